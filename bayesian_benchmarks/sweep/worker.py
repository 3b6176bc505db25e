"""The process that does one run: loads its data, trains, scores, and reports through a pipe.

A fresh process for each run: no state of an earlier run can change its numbers, its memory goes
back to the system, and if it is killed only its run is lost.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from multiprocessing import connection
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataFileError
from ..models import model_source
from ..plugins import import_installed_plugins, import_plugin
from ..store import ResultRow
from ..tasks import Outcome, find_task, rescore
from ..tasks import run as run_model
from ..tasks.protocol import COST_METRICS
from ..tasks.recorded import load_predictions, save_predictions
from .environment import available_cores, fingerprint, git_commit, hardware, versions
from .run import Run
from .scalars import Scalars

LOG_NAME = "log.txt"
"""In a run's folder: its warnings and traceback, removed when the run is done."""
CODE_NAME = "code.txt"
"""In a run's folder: the fingerprints of the code that has worked on it, a line each."""
PREDICTIONS_NAME = "predictions.npz"
CHECKPOINT_NAME = "checkpoint"
MODEL_NAME = "model"
"""In a run's folder: the last checkpoint, where models are kept."""

RECENT_STEPS = 50
"""Of a training, whose mean bound is told while it goes on."""


@dataclass(frozen=True)
class Job:
    """A run, and what it needs besides: nothing here changes its numbers beyond rounding.

    :param directory: for its checkpoint, predictions and log.
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


def work(job: Job, pipe: connection.Connection) -> None:
    """Do a job in a worker process.

    Sends `Step`s (one of 0 at once) and notices, and last a `ResultRow` or `Interrupted`.
    SIGTERM stops the run after its present steps, with a checkpoint.
    """
    stopping = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())

    def report(message: Step | Notice) -> None:
        pipe.send(message)
        if stopping.is_set():
            raise KeyboardInterrupt

    pipe.send(Step(0))
    try:
        _send_errors_to(job.directory / LOG_NAME)
    except OSError as error:
        pipe.send(Interrupted(_one_line(error)))
        return
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        pipe.send(do_job(job, report))
    except KeyboardInterrupt:
        pipe.send(Interrupted("stopped"))
    pipe.close()


def do_job(job: Job, report: Report) -> ResultRow | Interrupted:
    """Do a job in this process.

    An exception becomes a row of status "failed", but for an error of the surroundings: memory, files,
    data that cannot be had.
    """
    try:
        outcome = _rescored(job) if job.stored else _trained(job, report)
        if outcome.predictions:
            save_predictions(job.directory / PREDICTIONS_NAME, outcome.predictions)
    except Exception as error:
        traceback.print_exc()
        if _is_outside(error):
            return Interrupted(_one_line(error))
        return result_row(job, error=_one_line(error))
    return result_row(job, outcome)


def result_row(job: Job, outcome: Outcome | None = None, *, error: str = "") -> ResultRow:
    """The row of a run that has ended now: failed if there is an error."""
    run = job.run
    return ResultRow(
        **run.key._asdict(),
        depth=run.depth,
        settings=run.settings_json,
        evaluation=run.evaluation_json,
        status="failed" if error else "ok",
        error=error,
        metrics=outcome.metrics if outcome else {},
        history=outcome.history if outcome else {},
        recorded_at=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        hardware=hardware(),
        versions=versions(),
        git_commit=git_commit(),
        fingerprint="+".join(_codes(job)),
        threads=job.num_threads or available_cores(),
    )


def _trained(job: Job, report: Report) -> Outcome:
    """The run from its checkpoint, or from the start where there is none or one that is of no use."""
    checkpoint = job.directory / CHECKPOINT_NAME
    _note_code(job.directory)
    try:
        return _measured(job, report)
    except Exception as error:
        if not _is_useless_checkpoint(error) or not checkpoint.exists():
            raise
        report(Notice(f"{job.run}: starts afresh ({_one_line(error)})"))
        shutil.rmtree(checkpoint)
        (job.directory / CODE_NAME).unlink(missing_ok=True)
        _note_code(job.directory)
        return _measured(job, report)


def _measured(job: Job, report: Report, checkpoint: str = CHECKPOINT_NAME) -> Outcome:
    _import_plugins(job)
    run = job.run

    scalars = Scalars(job.tensorboard / run.directory_name) if job.tensorboard else None

    def report_step(step: int, history: Any = None) -> None:  # `fit` gives its callbacks both
        nonlocal scalars
        bound = _recent_bound(history)
        if scalars is not None and bound is not None:
            try:
                scalars.add(step, bound)
            except OSError as error:  # no fault of the run
                report(Notice(f"{run}: no more bounds for TensorBoard ({_one_line(error)})"))
                scalars = None
        report(Step(step, bound))

    dataset = run.load(job.data_dir)
    if job.num_threads is not None and model_source(run.model).uses_tensorflow:
        from gpflow_dkp.training import configure_threads

        configure_threads(job.num_threads)
    try:
        return run_model(
            dataset,
            run.model,
            find_task(run.task),
            depth=run.depth,
            seed=run.seed,
            settings=run.settings,
            checkpoint_dir=job.directory / checkpoint,
            checkpoint_seconds=job.checkpoint_seconds,
            report_step=report_step,
        )
    finally:
        if scalars is not None:
            scalars.close()


def _rescored(job: Job) -> Outcome:
    """The stored run scored again: by its model where that was kept, else from its predictions."""
    run, stored = job.run, job.stored
    assert stored is not None
    if (job.directory / MODEL_NAME).exists():
        outcome = _measured(job, lambda message: None, checkpoint=MODEL_NAME)
        costs = {name: stored.metrics[name] for name in COST_METRICS if name in stored.metrics}
        return Outcome(outcome.metrics | costs, stored.history, outcome.predictions)
    _import_plugins(job)
    predictions = load_predictions(job.directory / PREDICTIONS_NAME)
    scores = rescore(
        predictions,
        run.load(job.data_dir),
        find_task(run.task),
        settings=run.settings,
        seed=run.seed,
    )
    return Outcome(stored.metrics | scores, stored.history, {})


def _recent_bound(history: Any) -> float | None:
    """The mean of a training's last bounds, where it has any and they are finite."""
    recent = getattr(history, "elbo", None) or ()
    bound = float(np.mean(recent[-RECENT_STEPS:])) if len(recent) else math.nan
    return bound if math.isfinite(bound) else None


def _import_plugins(job: Job) -> None:
    import_installed_plugins()
    for plugin in job.plugins:
        import_plugin(plugin)


def _is_outside(error: Exception) -> bool:
    """Whether an error is no fault of the run's numbers: it is to be tried again, not stored."""
    if isinstance(error, OSError | MemoryError | DataFileError):
        return True
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and isinstance(error, tensorflow.errors.ResourceExhaustedError):
        return True
    checkpoints = sys.modules.get("gpflow_dkp.training.checkpoint")
    return checkpoints is not None and isinstance(error, checkpoints.CheckpointError)


def _is_useless_checkpoint(error: Exception) -> bool:
    """Whether an error says that the checkpoint is damaged, or of another version's run."""
    checkpoints = sys.modules.get("gpflow_dkp.training.checkpoint")
    return checkpoints is not None and isinstance(error, checkpoints.UnusableCheckpoint)


def _note_code(directory: Path) -> None:
    """Write down which code works on a run: another version may go on from a checkpoint."""
    path = directory / CODE_NAME
    directory.mkdir(parents=True, exist_ok=True)
    codes = path.read_text(encoding="utf-8").split() if path.exists() else []
    if fingerprint() not in codes:
        path.write_text("\n".join([*codes, fingerprint()]) + "\n", encoding="utf-8")


def _codes(job: Job) -> list[str]:
    """Fingerprints of the code that trained and scored a run."""
    if job.stored is not None:
        known = job.stored.fingerprint.split("+") if job.stored.fingerprint else []
        return list(dict.fromkeys([*known, fingerprint()]))
    try:
        return (job.directory / CODE_NAME).read_text(encoding="utf-8").split()
    except OSError:
        return [fingerprint()]


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]


def _send_errors_to(path: Path) -> None:
    """Append to a file what this process, TensorFlow's C++ part included, writes to stderr."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())


def _die_with_parent() -> None:
    """End this process when its parent ends, so that nothing goes on after a SIGKILL of it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
