"""The files between a sweep and a worker, in the run's folder: JSON, each replaced as a whole.

    job.json       what is to be done, by the sweep
    progress.json  how far it is, by the worker
    outcome.json   the row with its history, or why there is none, by the worker
    stop, kill     empty: the worker is to write a checkpoint and end, or is to be ended, by the sweep
    worker.lock    the claim of the worker that is at it

Paths of a job's own are relative to its file, so that machines may have the folder at different places.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from ..datasets import TableDataset
from ..errors import StoreError
from ..plugins import import_installed_plugins, import_plugin
from ..settings import validated
from ..store import ResultRow
from ..tasks import find_task
from .environment import fingerprint
from .job import Interrupted, Job, Notice, Outcome, Refused, RefusedJob, Step
from .run import Run

JOB_NAME = "job.json"
PROGRESS_NAME = "progress.json"
OUTCOME_NAME = "outcome.json"
STOP_NAME = "stop"
KILL_NAME = "kill"
WORKER_LOCK_NAME = "worker.lock"

REFUSED = 2
"""The exit code of a worker that cannot use its job."""

CANNOT_WRITE = 75
"""That of one that could not write in the run's folder."""

PARTS = 10
"""Of a training, at whose ends its bound is kept: these are told even where what lies between is not seen."""


def package_version() -> str:
    """Of this package, with its code: "gpflow-dkp 0.1.0, code 0123456789ab"."""
    try:
        number = metadata.version("gpflow-dkp")
    except metadata.PackageNotFoundError:
        number = "not installed"
    return f"gpflow-dkp {number}, code {fingerprint()}"


class JobFile(BaseModel):
    """What `job.json` holds.

    :param version: the package of the sweep.
    :param key: the `settings_hash` of the run, as the sweep has it.
    :param kind: of the run, a class of `Run.kinds`.
    :param run: its fields, without the table.
    :param table: of a table of the user's all but the numbers, which are in a file beside the run's folder.
    :param folder: where plugins are looked for besides.
    :param main: the script whose models the run may be of, and its arguments, on this machine alone.
    :param progress_seconds: least time between two states of the progress.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    version: str
    key: str
    kind: str
    run: dict[str, Any]
    table: dict[str, Any] | None
    checkpoint_seconds: float
    data_dir: str | None
    num_threads: int | None
    plugins: list[str]
    folder: str
    main: list[str] | None
    stored: dict[str, Any] | None
    tensorboard: str | None
    progress_seconds: float

    def import_plugins(self) -> None:
        """Import what the run may be of.

        :raises ConfigError: a module cannot be imported.
        """
        import_installed_plugins()
        for plugin in self.plugins:
            import_plugin(plugin, Path(self.folder))

    def job(self, path: Path) -> Job:
        """The job; its plugins have been imported.

        :param path: of this file.
        :raises RefusedJob: the run is another one here than in the sweep.
        :raises BenchmarkError: there is no such model, dataset or task here.
        :raises OSError: the table cannot be read.
        """
        values = dict(self.run)
        values["settings"] = validated(
            find_task(values["task"]).settings, values["settings"], f"{path}: settings."
        )
        run = Run.kinds[self.kind](
            **values, csv=None if self.table is None else _read_table(path, self.table)
        )
        if run.key.settings_hash != self.key:
            raise RefusedJob(
                f"{path}: the run's settings are read otherwise here than by the sweep."
            )
        return Job(
            run=run,
            directory=path.parent,
            checkpoint_seconds=self.checkpoint_seconds,
            data_dir=None if self.data_dir is None else Path(self.data_dir),
            num_threads=self.num_threads,
            plugins=tuple(self.plugins),
            stored=None if self.stored is None else _row_of(self.stored),
            tensorboard=None if self.tensorboard is None else Path(self.tensorboard),
        )


def write_job(job: Job, *, main: list[str] | None = None, progress_seconds: float = 2.0) -> Path:
    """Write `job.json`, in a folder without the files of an earlier worker; returns its path.

    :raises StoreError: it cannot be written.
    """
    run, path = job.run, job.directory / JOB_NAME
    values = {
        part.name: getattr(run, part.name)
        for part in fields(run)
        if part.name not in ("settings", "csv")
    }
    content = JobFile(
        version=package_version(),
        key=run.key.settings_hash,
        kind=type(run).__name__,
        run=values | {"settings": run.settings.model_dump(mode="json")},
        table=None if run.csv is None else _about_table(run.csv),
        checkpoint_seconds=job.checkpoint_seconds,
        data_dir=None if job.data_dir is None else str(job.data_dir.absolute()),
        num_threads=job.num_threads,
        plugins=list(job.plugins),
        folder=str(Path.cwd()),
        main=main,
        stored=None if job.stored is None else vars(job.stored),
        tensorboard=None if job.tensorboard is None else str(job.tensorboard),
        progress_seconds=progress_seconds,
    )
    try:
        job.directory.mkdir(parents=True, exist_ok=True)
        clear(job.directory)
        if run.csv is not None:
            _write_table(path, run.csv)
        write_whole(path, content.model_dump_json(indent=1), durable=True)
    except OSError as error:
        raise StoreError(f"Cannot write {path} ({error.strerror or error}).") from error
    return path


def read_job_file(path: Path) -> JobFile:
    """What is in `job.json`.

    :raises RefusedJob: it cannot be used, or is of another version of the package than this one.
    """
    ours = package_version()
    try:
        content = json.loads(path.read_bytes())
        theirs = content["version"]
        if theirs == ours:
            return JobFile.model_validate(content)
    except OSError as error:
        raise RefusedJob(f"Cannot read {path} ({error.strerror or error}).") from error
    except (ValueError, TypeError, KeyError) as error:  # pydantic's are among them
        raise RefusedJob(
            f"{path} is no job's file, or is cut short ({_first_line(error)}); give the sweep's command "
            "again."
        ) from error
    raise RefusedJob(
        f"{path} is a job of {theirs}; this worker has {ours}: install one version for both, and give the "
        "sweep's command again."
    )


def clear(folder: Path) -> None:
    """Remove what passes between a sweep and a worker, the job last: without it no worker begins.

    :raises OSError: something cannot be removed.
    """
    for name in (PROGRESS_NAME, OUTCOME_NAME, STOP_NAME, KILL_NAME, JOB_NAME):
        (folder / name).unlink(missing_ok=True)


@dataclass(frozen=True)
class Progress:
    """How far a worker is.

    :param step: the last that it told of.
    :param passed: the first steps that it told of in each further tenth of the training.
    :param notices: all that it has said.
    """

    step: Step
    passed: tuple[Step, ...] = ()
    notices: tuple[str, ...] = ()

    def after(self, before: Progress | None) -> Iterator[Step | Notice]:
        """What is new since another state of the same worker."""
        for text in self.notices[len(before.notices) if before else 0 :]:
            yield Notice(text)
        told = before.passed if before else ()
        yield from (step for step in self.passed if step not in told and step != self.step)
        if before is None or self.step != before.step:
            yield self.step


def write_progress(folder: Path, progress: Progress) -> None:
    """Tell of it, as far as it can be written: a run goes on without."""
    with contextlib.suppress(OSError):
        write_whole(folder / PROGRESS_NAME, _PROGRESS.dump_json(progress).decode())


def read_progress(folder: Path) -> Progress | None:
    """None where there is none."""
    try:
        return _PROGRESS.validate_json((folder / PROGRESS_NAME).read_bytes())
    except (OSError, ValidationError):
        return None


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Write down how a job ended, on the disk before it has its name.

    :raises OSError: it cannot be written.
    """
    name = {ResultRow: "row", Interrupted: "interrupted", Refused: "refused"}[type(outcome)]
    value = vars(outcome) if isinstance(outcome, ResultRow) else outcome.reason
    write_whole(folder / OUTCOME_NAME, json.dumps({name: value}), durable=True)


def read_outcome(folder: Path) -> Outcome | None:
    """How a job ended; None where that is not said."""
    try:
        content = json.loads((folder / OUTCOME_NAME).read_bytes())
        ((name, value),) = content.items()
        if name == "row":
            return _row_of(value)
        if name == "interrupted":
            return Interrupted(str(value))
        return Refused(str(value)) if name == "refused" else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def write_whole(path: Path, text: str, *, durable: bool = False) -> None:
    """Replace a file in one move.

    :param durable: whether the text is on the disk before.
    :raises OSError: it cannot be written; the file before stays.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


_ROW = TypeAdapter(ResultRow)
_PROGRESS = TypeAdapter(Progress)


def _row_of(values: dict[str, Any]) -> ResultRow:
    """A row that was written as JSON.

    :raises ValueError: it is none.
    """
    if unknown := set(values) - set(ResultRow.__dataclass_fields__):
        raise ValueError(f"a row has no {min(unknown)}")
    return _ROW.validate_json(
        json.dumps(values), strict=True
    )  # of Python, strict means an instance


def _table_path(path: Path, task: str, digest: str) -> Path:
    """Of a table's numbers, which all runs of a sweep share."""
    return path.parent.parent / f"table-{task}-{digest}.npz"


def _about_table(table: TableDataset) -> dict[str, Any]:
    return {
        "name": table.name,
        "targets": list(table.targets),
        "digest": table.digest,
        "task": table.task,
        "classes": list(table.classes),
    }


def _write_table(path: Path, table: TableDataset) -> None:
    target = _table_path(path, table.task, table.digest)
    if target.exists():
        return
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    with partial.open("wb") as file:
        np.savez(file, X=table.X, Y=table.Y)
    partial.replace(target)


def _read_table(path: Path, about: dict[str, Any]) -> TableDataset:
    with np.load(_table_path(path, about["task"], about["digest"]), allow_pickle=False) as arrays:
        X, Y = arrays["X"], arrays["Y"]
    lists = {name: tuple(about[name]) for name in ("targets", "classes")}
    return TableDataset(**(about | lists), X=X, Y=Y)


def _first_line(error: Exception) -> str:
    """What is wrong, of an error that may be pydantic's."""
    if isinstance(error, ValidationError):
        problem = error.errors()[0]
        return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"[:200]
    if isinstance(error, KeyError):
        return f"no {error}"
    return " ".join(str(error).split())[:200] or type(error).__name__
