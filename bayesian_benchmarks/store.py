"""The results store: one SQLite file, one row a run, safe for several processes."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import StoreError

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 2
SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    task TEXT NOT NULL, dataset TEXT NOT NULL, split INTEGER NOT NULL, model TEXT NOT NULL,
    settings_hash TEXT NOT NULL, seed INTEGER NOT NULL, depth INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('ok', 'failed')), error TEXT NOT NULL,
    metrics TEXT NOT NULL, recorded_at TEXT NOT NULL, hardware TEXT NOT NULL,
    versions TEXT NOT NULL, git_commit TEXT NOT NULL, settings TEXT NOT NULL,
    evaluation TEXT NOT NULL DEFAULT '{}', history TEXT NOT NULL DEFAULT '{}',
    fingerprint TEXT NOT NULL DEFAULT '', threads INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (task, dataset, split, model, settings_hash, seed)
)
"""
FROM_1_TO_2 = (
    "ALTER TABLE runs ADD COLUMN evaluation TEXT NOT NULL DEFAULT '{}'",
    "ALTER TABLE runs ADD COLUMN history TEXT NOT NULL DEFAULT '{}'",
    "ALTER TABLE runs ADD COLUMN fingerprint TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE runs ADD COLUMN threads INTEGER NOT NULL DEFAULT 0",
)
EXPORT_HEAD = ("task", "dataset", "split", "model", "depth", "seed", "status", "error")
EXPORT_TAIL = (
    *("recorded_at", "hardware", "threads", "versions", "git_commit", "fingerprint"),
    *("settings_hash", "settings", "evaluation", "history"),
)


class RunKey(NamedTuple):
    """What makes a run and its row unique.

    >>> from bayesian_benchmarks import ResultRow, RunKey
    >>> row = ResultRow("regression", "boston", 3, "dgp", "", seed=0, depth=2, settings="{}")
    >>> row.key == RunKey("regression", "boston", split=3, model="dgp", settings_hash="", seed=0)
    True
    """

    task: str
    dataset: str
    split: int
    model: str
    settings_hash: str
    seed: int


@dataclass(frozen=True)
class ResultRow:
    """One run's result. `metrics` is empty and `error` says why when `status` is "failed".

    :param settings_hash: first 16 hexadecimal digits of the SHA-256 of `settings`.
    :param depth: number of layers, the output layer included.
    :param settings: sorted JSON of all that training depends on besides the other parts of the key.
    :param evaluation: the same of what the scores depend on, and training does not.
    :param history: "step", "seconds" and "elbo", up to 50 points of the training.
    :param recorded_at: UTC in ISO 8601.
    :param threads: the number of cores that the run could use.
    :param fingerprint: of the package's code that trained and scored it, several with + between; empty
        where it is not known.

    >>> from bayesian_benchmarks import ResultRow
    >>> settings = '{"depth": 2, "num_steps": 100}'
    >>> row = ResultRow("regression", "boston", 0, "dgp", "", seed=0, depth=2, settings=settings)
    >>> row.key.model, row.status, row.protocol
    ('dgp', 'ok', '{"num_steps": 100}')
    """

    task: str
    dataset: str
    split: int
    model: str
    settings_hash: str
    seed: int
    depth: int
    settings: str
    status: str = "ok"
    error: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    recorded_at: str = ""
    hardware: str = ""
    versions: str = ""
    git_commit: str = ""
    evaluation: str = "{}"
    history: dict[str, list[float]] = field(default_factory=dict)
    fingerprint: str = ""
    threads: int = 0

    @property
    def key(self) -> RunKey:
        """Equal to the key of the run."""
        return RunKey(*(getattr(self, name) for name in RunKey._fields))

    @property
    def protocol(self) -> str:
        """How the model was trained: `settings` but for the depth and what data and code they were."""
        settings = json.loads(self.settings)
        rest = {k: v for k, v in settings.items() if k not in ("depth", "data", "code", "csv")}
        return json.dumps(rest, sort_keys=True)

    @property
    def code(self) -> str:
        """The code that made the row, as far as it is known: fingerprint, else commit."""
        return self.fingerprint or self.git_commit


def digest_of(settings: str) -> str:
    """The `settings_hash` of a row's `settings`."""
    return hashlib.sha256(settings.encode()).hexdigest()[:16]


OF_EVALUATION = ("elbo_samples", "test_samples")
"""Settings of version 1 that training does not depend on."""

NOT_STORED = {
    "ard": True,
    "gwi": None,
    "gwi.networks": [
        {"activation": "tanh", "hidden_units": [10, 10], "weight_variance": None},
        {"activation": "relu", "hidden_units": [50, 50], "weight_variance": 1.0},
        {"activation": "relu", "hidden_units": [50, 50], "weight_variance": 0.1},
    ],
}
"""Settings that version 1 left out where they had these values."""


def upgraded(row: ResultRow) -> ResultRow:
    """A row of a store or export of version 1 as this version has it.

    Version 1 had one set of settings for training and evaluation, those that a model does not read among
    them, and called the objective of Gaussian Wasserstein inference an evidence lower bound.
    """
    from .models import find_model

    settings = json.loads(row.settings)
    evaluation = {name: settings.pop(name) for name in OF_EVALUATION if name in settings}
    source = find_model(row.model)
    for name, value in NOT_STORED.items():
        outer, _, inner = name.partition(".")
        holder = settings.get(outer) if inner else settings
        if isinstance(holder, dict):
            holder.setdefault(inner or outer, value)
    for name in source.ignores if source else ():
        outer, _, inner = name.partition(".")
        holder = settings.get(outer) if inner else settings
        if isinstance(holder, dict):
            holder.pop(inner or outer, None)
    metrics = dict(row.metrics)
    if row.model.startswith("gwi-") and "elbo_per_point" in metrics:
        metrics["objective_per_point"] = metrics.pop("elbo_per_point")
    text = json.dumps(settings, sort_keys=True)
    return replace(
        row,
        settings=text,
        settings_hash=digest_of(text),
        evaluation=json.dumps(evaluation, sort_keys=True),
        metrics=metrics,
    )


def count_rows(path: Path) -> dict[str, int]:
    """How many rows of a store are "ok" and how many "failed"; the file is only read.

    :raises StoreError: it is not there, or is no results store.
    """
    counts = {"ok": 0, "failed": 0}
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=60)
        ) as connection:
            statement = "SELECT status, COUNT(*) FROM runs GROUP BY status"
            return counts | dict(connection.execute(statement).fetchall())
    except sqlite3.Error as error:
        raise StoreError(f"Cannot read {path} ({error}); give a results store.") from error


class ResultsStore:
    """Rows of finished runs in a SQLite file, made with its folder on first use.

    A row is written whole or not at all, and never twice: the key is unique. Any number of
    processes may read and write at a time.

    >>> import pathlib, tempfile
    >>> from bayesian_benchmarks import ResultRow, ResultsStore
    >>> row = ResultRow("regression", "boston", 0, "dgp", "", seed=0, depth=2, settings="{}")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = ResultsStore(pathlib.Path(folder, "results.sqlite"))
    ...     store.add(row), store.add(row), len(store.rows("ok"))  # never twice
    (True, False, 1)
    """

    def __init__(self, path: str | Path) -> None:
        """Open or make the store.

        :raises StoreError: the file is no results store, or cannot be written.
        """
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"Cannot make the folder of the store {path} ({error}).") from error
        with self._transaction() as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, 1, SCHEMA_VERSION):
                raise StoreError(
                    f"{path} is a results store of version {version}, this program reads version "
                    f"{SCHEMA_VERSION}; choose another file."
                )
            if version == 0:
                connection.execute(SCHEMA)
            if version == 1:
                _upgrade(connection)
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def add(self, row: ResultRow, *, replace: bool = False) -> bool:
        """Add a row, or put it in place of a failed one with the same key.

        A row that is there and "ok" stays, but with `replace`. Returns whether the row was written.
        """
        return self.add_all([row], replace=replace) == 1

    def add_all(self, rows: Iterable[ResultRow], *, replace: bool = False) -> int:
        """`add` for several rows in one transaction; returns how many were written."""
        with self._transaction() as connection:
            before = connection.total_changes
            _insert(connection, rows, "" if replace else " WHERE runs.status = 'failed'")
            return connection.total_changes - before

    def remove(self, keys: Iterable[RunKey]) -> int:
        """Remove the rows of these keys; returns how many there were."""
        condition = " AND ".join(f"{name} = ?" for name in RunKey._fields)
        with self._transaction() as connection:
            before = connection.total_changes
            connection.executemany(f"DELETE FROM runs WHERE {condition}", list(keys))
            return connection.total_changes - before

    def rows(self, status: str | None = None) -> list[ResultRow]:
        """All rows, or those of a status ("ok", "failed"), sorted by what a reader looks for."""
        statement = (
            f"SELECT {', '.join(FIELDS)} FROM runs WHERE ? IS NULL OR status = ? "
            "ORDER BY task, dataset, depth, model, split, seed, settings_hash"
        )
        with self._transaction() as connection:
            found = connection.execute(statement, (status, status)).fetchall()
        return [_row(dict(zip(FIELDS, values, strict=True))) for values in found]

    def find(self, key: RunKey) -> ResultRow | None:
        """The row of a key, if there is one."""
        condition = " AND ".join(f"{name} = ?" for name in RunKey._fields)
        with self._transaction() as connection:
            found = connection.execute(
                f"SELECT {', '.join(FIELDS)} FROM runs WHERE {condition}", key
            ).fetchone()
        return None if found is None else _row(dict(zip(FIELDS, found, strict=True)))

    def frame(self) -> pd.DataFrame:
        """All rows as a table, a line a run, sorted as `rows`.

        Columns are the fields of `ResultRow`, every metric, and every setting of training and evaluation. A
        setting inside another has a dot, such as `schedule.learning_rate`, one that is called like a field or
        a metric is `settings.NAME`, and lists are tuples. What a row does not have is NaN or None.
        """
        import pandas as pd

        rows = self.rows()
        taken = {*FIELDS, *(name for row in rows for name in row.metrics)}
        if not rows:
            return pd.DataFrame(columns=[name for name in FIELDS if name != "metrics"])
        return pd.DataFrame(
            [
                _flat(row)
                | {f"settings.{k}" if k in taken else k: v for k, v in _settings(row).items()}
                for row in rows
            ]
        )

    def export(self, path: str | Path) -> int:
        """Write all rows as sorted CSV text, the same for the same rows; returns their number.

        :raises StoreError: the file cannot be written, or is there and is no export.
        """
        rows, path = self.rows(), Path(path)
        metrics = sorted({name for row in rows for name in row.metrics})
        check_export(path)
        partial = path.with_name(f"{path.name}.partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("w", encoding="utf-8", newline="") as file:
                header = [*EXPORT_HEAD, *metrics, *EXPORT_TAIL]
                writer = csv.DictWriter(file, header, lineterminator="\n", restval="")
                writer.writeheader()
                writer.writerows(_flat(row) for row in rows)
            partial.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise StoreError(f"Cannot write {path} ({error.strerror or error}).") from error
        return len(rows)

    def import_(self, path: str | Path) -> int:
        """Add the rows of an exported file; returns how many were written, as `add` does.

        :raises StoreError: the file cannot be read, is not an export or is cut short, or a row contradicts
            its hash.
        """
        try:
            with Path(path).open(encoding="utf-8", newline="") as file:
                reader = csv.DictReader(file, strict=True)
                if not {*EXPORT_HEAD, "settings_hash"} <= set(reader.fieldnames or ()):
                    raise ValueError("its header is another one")
                rows = [_imported(values) for values in reader]
        except OSError as error:
            raise StoreError(f"Cannot read {path} ({error.strerror or error}).") from error
        except (
            *(KeyError, TypeError, ValueError, AttributeError, csv.Error),
            RecursionError,  # of JSON that is thousands of brackets deep
        ) as error:
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise StoreError(f"{path} is not an exported results store ({reason}).") from error
        return self.add_all(rows)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A connection whose changes are all kept, or none when the block raises."""
        connection: sqlite3.Connection | None = None
        try:
            connection = sqlite3.connect(self.path, timeout=60)
            with connection:
                yield connection
        except sqlite3.Error as error:
            raise StoreError(f"Cannot use {self.path} as a results store ({error}).") from error
        finally:
            if connection is not None:
                connection.close()


FIELDS = tuple(ResultRow.__dataclass_fields__)


def _insert(connection: sqlite3.Connection, rows: Iterable[ResultRow], condition: str) -> None:
    changes = ", ".join(
        f"{name} = excluded.{name}" for name in FIELDS if name not in RunKey._fields
    )
    statement = (
        f"INSERT INTO runs ({', '.join(FIELDS)}) VALUES ({', '.join(':' + name for name in FIELDS)}) "
        f"ON CONFLICT ({', '.join(RunKey._fields)}) DO UPDATE SET {changes}{condition}"
    )
    for row in rows:
        values = {name: getattr(row, name) for name in FIELDS}
        for name in ("metrics", "history"):
            values[name] = json.dumps(values[name], sort_keys=True)
        connection.execute(statement, values)


def _upgrade(connection: sqlite3.Connection) -> None:
    """Bring a store of version 1 to this version."""
    for statement in FROM_1_TO_2:
        connection.execute(statement)
    found = connection.execute(f"SELECT {', '.join(FIELDS)} FROM runs").fetchall()
    rows = [upgraded(_row(dict(zip(FIELDS, values, strict=True)))) for values in found]
    connection.execute("DELETE FROM runs")
    _insert(connection, rows, " WHERE runs.status = 'failed'")


def _row(values: dict[str, Any]) -> ResultRow:
    parsed = {name: json.loads(values[name]) for name in ("metrics", "history")}
    return ResultRow(**(values | parsed))


def _flat(row: ResultRow) -> dict[str, Any]:
    """A row's fields, its metrics among them."""
    values = {name: getattr(row, name) for name in FIELDS if name != "metrics"}
    values["history"] = json.dumps(row.history, separators=(",", ":"), sort_keys=True)
    return values | row.metrics


def _settings(row: ResultRow) -> dict[str, Any]:
    """A row's settings by name, but for the depth, which is a field."""
    settings = json.loads(row.settings) | json.loads(row.evaluation)
    settings.pop("depth", None)
    return dict(_leaves(settings))


def _leaves(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """What nested dictionaries hold, with names that say where."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", _hashable(value)


def _hashable(value: Any) -> Any:
    """A value of JSON by which a table can be grouped."""
    if isinstance(value, dict):
        return tuple((name, _hashable(part)) for name, part in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _imported(values: dict[str, str]) -> ResultRow:
    """A row of an export, whose columns that are no fields are metrics."""
    if None in values or None in values.values():
        raise ValueError("a line has more or fewer values than the header; is it cut short?")
    of_version_1 = "evaluation" not in values
    known = [name for name in FIELDS if name != "metrics" and name in values]
    fields: dict[str, Any] = {name: values[name] for name in known}
    fields |= {
        name: int(fields[name]) for name in ("split", "seed", "depth", "threads") if name in fields
    }
    for name in ("split", "seed", "depth", "threads"):
        if abs(fields.get(name, 0)) >= 2**63:  # which SQLite does not hold
            raise ValueError(f"the {name} {str(fields[name])[:40]} is too large")
    fields["metrics"] = {
        name: float(value) for name, value in values.items() if name not in fields and value != ""
    }
    if "history" in fields:
        fields["history"] = dict(json.loads(fields["history"]))
    row = ResultRow(**fields)
    dict(json.loads(row.settings)), dict(json.loads(row.evaluation))
    if row.status not in ("ok", "failed") or not row.task or not row.recorded_at:
        raise ValueError(
            f"a row of status {row.status!r}, task {row.task!r}, recorded at {row.recorded_at!r}"
        )
    if digest_of(row.settings) != row.settings_hash:
        raise ValueError(
            f"the settings of {row.dataset} split {row.split} {row.model} do not have the hash "
            f"{row.settings_hash}"
        )
    return upgraded(row) if of_version_1 else row


def check_export(path: str | Path) -> None:
    """Raise `StoreError` where an export would write over what is none."""
    path = Path(path)
    if not path.exists() or (path.is_file() and path.stat().st_size == 0):
        return
    try:
        with path.open(encoding="utf-8", newline="") as file:
            header = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        header = []
    if not {*EXPORT_HEAD, "settings_hash"} <= set(header):
        raise StoreError(
            f"{path} is there and is no export of a results store; choose another name."
        )
