"""A run that is handed to a worker, and what the worker says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import BenchmarkError
from ..store import ResultRow
from .run import Run


@dataclass(frozen=True)
class Job:
    """A run, and what it needs besides: nothing here changes its numbers beyond rounding.

    :param directory: for its checkpoint, predictions and log, and the files by which a worker is told of it.
    :param num_threads: the number of cores that it may use, None to leave TensorFlow's threads as they are.
    :param stored: the row whose run is only to be scored again.
    :param tensorboard: the folder for a folder of each run's bounds, None for none.
    """

    run: Run
    directory: Path
    checkpoint_seconds: float
    data_dir: Path | None
    num_threads: int | None
    plugins: tuple[str, ...]
    stored: ResultRow | None = None
    tensorboard: Path | None = None


@dataclass(frozen=True)
class Interrupted:
    """What ended a run from outside: it keeps its checkpoint and stays due. `reason` is one line."""

    reason: str


@dataclass(frozen=True)
class Refused:
    """Why a worker does not take a job, one line: it has other code, or the job's file cannot be used."""

    reason: str


Outcome = ResultRow | Interrupted | Refused
"""What a worker ends with."""


@dataclass(frozen=True)
class Step:
    """How far a run is.

    :param number: of steps done.
    :param bound: per training point, the mean over the last steps; None where the training does not tell.
    """

    number: int
    bound: float | None = None


@dataclass(frozen=True)
class Notice:
    """Something that a run has to say, one line."""

    text: str


Report = Callable[["Step | Notice"], None]


class RefusedJob(BenchmarkError):  # noqa: N818  # says what happened
    """A worker does not take a job."""
