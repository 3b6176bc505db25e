"""The results store: one SQLite file, one row a run, safe for several processes."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..errors import StoreError

SCHEMA_VERSION = 1
SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    task TEXT NOT NULL, dataset TEXT NOT NULL, split INTEGER NOT NULL, model TEXT NOT NULL,
    settings_hash TEXT NOT NULL, seed INTEGER NOT NULL, depth INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('ok', 'failed')), error TEXT NOT NULL,
    metrics TEXT NOT NULL, recorded_at TEXT NOT NULL, hardware TEXT NOT NULL,
    versions TEXT NOT NULL, git_commit TEXT NOT NULL, settings TEXT NOT NULL,
    PRIMARY KEY (task, dataset, split, model, settings_hash, seed)
)
"""
KEY = ("task", "dataset", "split", "model", "settings_hash", "seed")
EXPORT_HEAD = ("task", "dataset", "split", "model", "depth", "seed", "status", "error")
EXPORT_TAIL = ("recorded_at", "hardware", "versions", "git_commit", "settings_hash", "settings")


@dataclass(frozen=True)
class ResultRow:
    """One run's result. `metrics` is empty and `error` says why when `status` is "failed".

    `depth` counts the output layer; `settings` is JSON, `settings_hash` its digest;
    `recorded_at` is UTC in ISO 8601.
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

    @property
    def key(self) -> tuple[str, str, int, str, str, int]:
        """What is unique in a store, equal to the key of the run."""
        return (
            self.task,
            self.dataset,
            self.split,
            self.model,
            self.settings_hash,
            self.seed,
        )


class ResultsStore:
    """Rows of finished runs in a SQLite file, made with its folder on first use.

    A row is written whole or not at all, and never twice: the key is unique. Any number of
    processes may read and write at a time.
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
            if version not in (0, SCHEMA_VERSION):
                raise StoreError(
                    f"{path} is a results store of version {version}, this program reads version "
                    f"{SCHEMA_VERSION}; choose another file."
                )
            if version == 0:
                connection.execute(SCHEMA)
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def add(self, row: ResultRow) -> bool:
        """Add a row, or put it in place of a failed one with the same key.

        A row that is there and "ok" stays. Returns whether the row was written.
        """
        return self.add_all([row]) == 1

    def add_all(self, rows: Iterable[ResultRow]) -> int:
        """`add` for several rows in one transaction; returns how many were written."""
        fields = list(ResultRow.__dataclass_fields__)
        statement = (
            f"INSERT INTO runs ({', '.join(fields)}) "
            f"VALUES ({', '.join(':' + name for name in fields)}) "
            f"ON CONFLICT ({', '.join(KEY)}) DO UPDATE SET "
            + ", ".join(f"{name} = excluded.{name}" for name in fields if name not in KEY)
            + " WHERE runs.status = 'failed'"
        )
        with self._transaction() as connection:
            before = connection.total_changes
            for row in rows:
                values = asdict(row) | {"metrics": json.dumps(row.metrics, sort_keys=True)}
                connection.execute(statement, values)
            return connection.total_changes - before

    def rows(self, status: str | None = None) -> list[ResultRow]:
        """All rows, or those of a status ("ok", "failed"), sorted by what a reader looks for."""
        names = list(ResultRow.__dataclass_fields__)
        statement = (
            f"SELECT {', '.join(names)} FROM runs WHERE ? IS NULL OR status = ? "
            "ORDER BY task, dataset, depth, model, split, seed, settings_hash"
        )
        with self._transaction() as connection:
            found = connection.execute(statement, (status, status)).fetchall()
        return [_row(dict(zip(names, values, strict=True))) for values in found]

    def statuses(self) -> dict[tuple[str, str, int, str, str, int], str]:
        """The status of every row, by key."""
        with self._transaction() as connection:
            found = connection.execute(f"SELECT {', '.join(KEY)}, status FROM runs").fetchall()
        return {values[:-1]: values[-1] for values in found}

    def export(self, path: str | Path) -> int:
        """Write all rows as sorted CSV text, the same for the same rows; returns their number.

        :raises StoreError: the file cannot be written.
        """
        rows = self.rows()
        metrics = sorted({name for row in rows for name in row.metrics})
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w", encoding="utf-8", newline="") as file:
                header = [*EXPORT_HEAD, *metrics, *EXPORT_TAIL]
                writer = csv.DictWriter(file, header, lineterminator="\n", restval="")
                writer.writeheader()
                for row in rows:
                    values = asdict(row)
                    values |= {name: repr(value) for name, value in values.pop("metrics").items()}
                    writer.writerow(values)
        except OSError as error:
            raise StoreError(f"Cannot write {path} ({error.strerror or error}).") from error
        return len(rows)

    def import_(self, path: str | Path) -> int:
        """Add the rows of an exported file; returns how many were written, as `add` does.

        :raises StoreError: the file cannot be read or is not an export.
        """
        try:
            with Path(path).open(encoding="utf-8", newline="") as file:
                rows = [_imported(row) for row in csv.DictReader(file)]
        except OSError as error:
            raise StoreError(f"Cannot read {path} ({error.strerror or error}).") from error
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(f"{path} is not an exported results store ({error!r}).") from error
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


def _row(values: dict[str, Any]) -> ResultRow:
    return ResultRow(**(values | {"metrics": json.loads(values["metrics"])}))


def _imported(values: dict[str, str]) -> ResultRow:
    """A row of an export, whose columns that are no fields are metrics."""
    fields: dict[str, Any] = {
        name: values[name] for name in ResultRow.__dataclass_fields__ if name != "metrics"
    }
    integers = {name: int(fields[name]) for name in ("split", "seed", "depth")}
    metrics = {
        name: float(value) for name, value in values.items() if name not in fields and value != ""
    }
    return ResultRow(**(fields | integers), metrics=metrics)
