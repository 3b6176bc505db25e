"""The process that does one run: loads its data, trains, scores, and reports by files in the run's folder.

A fresh process for each run: no state of an earlier run can change its numbers, its memory goes
back to the system, and if it is killed only its run is lost.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import runpy
import shutil
import signal
import sys
import threading
import time
import traceback
import types
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BenchmarkError, DataFileError, StoreError
from ..models import model_source
from ..plugins import import_installed_plugins, import_plugin
from ..store import ResultRow
from ..tasks import Outcome, find_task, rescore
from ..tasks import run as run_model
from ..tasks.protocol import COST_METRICS
from ..tasks.recorded import load_predictions, save_predictions
from .contract import (
    CANNOT_WRITE,
    JOB_NAME,
    PARTS,
    STOP_NAME,
    WORKER_LOCK_NAME,
    JobFile,
    Progress,
    read_job_file,
    read_outcome,
    write_outcome,
    write_progress,
    write_whole,
)
from .environment import available_cores, fingerprint, git_commit, hardware, versions
from .job import Interrupted, Job, Notice, Refused, RefusedJob, Report, Step
from .locks import RunLock
from .run import plugin_code
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

WAIT_SECONDS = 0.5
"""Between two looks whether another worker is still at the run."""

UNGUARDED = (
    "A worker process could not start: in a script, call run_experiment under "
    "`if __name__ == '__main__':`, or with jobs=0."
)

_IN_WORKER = threading.Event()


def in_worker() -> bool:
    """Whether this process is a worker, which starts none itself."""
    return _IN_WORKER.is_set()


def work(path: Path, *, until_eof: bool = False) -> int:
    """Do a job in this process; returns its exit code.

    SIGTERM, SIGINT and a file `stop` beside the job's end the run after its present steps, with a
    checkpoint.

    :param path: of the job's file.
    :param until_eof: whether this process ends, by whatever means, when its standard input does: a pipe of
        the process that started it. SIGINT is then that one's affair.
    :raises RefusedJob: the job is not for this worker; its outcome says so too.
    """
    _IN_WORKER.set()
    stopping = _Stopping()
    signal.signal(signal.SIGTERM, stopping.tell)
    signal.signal(signal.SIGINT, signal.SIG_IGN if until_eof else stopping.tell)
    if until_eof:
        threading.Thread(target=_die_with_input, daemon=True).start()
    if not path.parent.is_dir():
        raise RefusedJob(f"There is no folder {path.parent}; give the path of a run's {JOB_NAME}.")
    claim = RunLock(path.with_name(WORKER_LOCK_NAME))
    try:
        while (
            not claim.acquire()
        ):  # another worker is at it; when that is done there is nothing to do
            time.sleep(WAIT_SECONDS)
            if stopping.is_told:
                return 1
    except StoreError as error:
        print(error, file=sys.stderr)
        return CANNOT_WRITE
    try:
        if not path.exists() or isinstance(read_outcome(path.parent), ResultRow):
            return 0
        return _do(path, claim, stopping)
    finally:
        claim.release()
        with contextlib.suppress(OSError):
            path.parent.rmdir()  # made for the claim where the job had gone


def _do(path: Path, claim: RunLock, stopping: _Stopping) -> int:
    """Do the job that this worker has the claim on."""
    folder = path.parent
    try:
        file = read_job_file(path)
        outcome = _outcome(file, path, _Teller(folder, claim, stopping, file.progress_seconds))
    except RefusedJob as error:
        if path.name == JOB_NAME:
            with contextlib.suppress(OSError):
                write_outcome(folder, Refused(f"On {platform.node()}: {error}"))
        raise
    if not claim.is_held():
        return 1  # it was suspended for so long that another worker has taken the run over
    try:
        write_outcome(folder, outcome)
    except OSError:
        traceback.print_exc()
        return CANNOT_WRITE
    return 0 if isinstance(outcome, ResultRow) and outcome.status == "ok" else 1


def _outcome(file: JobFile, path: Path, tell: _Teller) -> ResultRow | Interrupted:
    """Do a job with its notices and errors where the sweep looks for them."""
    try:
        tell.start()
        _send_errors_to(path.with_name(LOG_NAME))
        if file.main is not None:
            _run_main(file.main)
        file.import_plugins()
        job = file.job(path)
        if file.main is None:
            _check_code(job)
        tell.num_steps = job.run.settings.num_steps
        return do_job(job, tell)
    except OSError as error:
        return Interrupted(_one_line(error))
    except KeyboardInterrupt:
        return Interrupted("stopped")
    except RefusedJob:
        raise
    except BenchmarkError as error:  # no such plugin, model or dataset here
        raise RefusedJob(str(error)) from error
    finally:
        tell.end()


class _Stopping:
    """Whether a worker has been told to end: by a signal too, which may come while an event has its lock."""

    def __init__(self) -> None:
        self.is_told = False

    def tell(self, *_: object) -> None:
        self.is_told = True


class _Teller:
    """What a run reports to. A thread writes the progress, and sees whether the run is to stop.

    A run says nothing for long where it compiles or is scored; what it said last is then there.
    """

    def __init__(self, folder: Path, claim: RunLock, stopping: _Stopping, seconds: float) -> None:
        self.num_steps: int | None = None
        self._folder = folder
        self._claim = claim
        self._stopping = stopping
        self._seconds = seconds
        self._progress = Progress(Step(0))
        self._written: Progress | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="progress", daemon=True)

    def start(self) -> None:
        """Say that there is a worker, unless it is to stop already."""
        self._look()
        self._stop_if_told()
        self._thread.start()

    def end(self) -> None:
        """Say what has not been said."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._look()

    def __call__(self, message: Step | Notice) -> None:
        if isinstance(message, Notice):
            notices = (*self._progress.notices, message.text)
            self._progress = replace(self._progress, notices=notices)
            return
        passed = self._progress.passed
        if self._is_first_of_part(message):
            passed = (*passed, message)
        self._progress = replace(self._progress, step=message, passed=passed)
        self._stop_if_told()

    def _is_first_of_part(self, step: Step) -> bool:
        """Whether it is the first with a bound in its tenth of the training."""
        if step.bound is None or self.num_steps is None:
            return False
        before = self._progress.passed[-1].number if self._progress.passed else 0
        return PARTS * step.number // self.num_steps > PARTS * before // self.num_steps

    def _stop_if_told(self) -> None:
        if self._stopping.is_told:
            raise KeyboardInterrupt

    def _tell(self) -> None:
        while not self._ending.wait(self._seconds):
            self._look()

    def _look(self) -> None:
        """Write the progress if there is any, and see what there is to see."""
        if not self._claim.is_held():
            os._exit(1)  # another worker has taken the run over, and its checkpoint
        with contextlib.suppress(OSError):
            if STOP_NAME in os.listdir(self._folder):  # which a network file system asks anew for
                self._stopping.tell()
        progress = self._progress
        if progress != self._written:
            write_progress(self._folder, progress)
            self._written = progress


def _run_main(main: list[str]) -> None:
    """Run a script, or a module after "-m", but for what it does as a program: it may register models.

    :raises RefusedJob: it cannot be run so.
    """
    name = "__mp_main__"  # as multiprocessing calls it
    module = types.ModuleType(name)
    try:
        if main[0] == "-m":
            sys.argv = main[1:]
            vars(module).update(runpy.run_module(main[1], run_name=name, alter_sys=True))
        else:
            sys.argv = main
            vars(module).update(runpy.run_path(main[0], run_name=name))
    except SystemExit as error:
        raise RefusedJob(UNGUARDED) from error
    except BenchmarkError:
        raise
    except Exception as error:  # whatever the script's own code raises
        reason = _one_line(error)
        raise RefusedJob(f"{' '.join(main[:2])} cannot be imported here ({reason}).") from error
    sys.modules["__main__"] = sys.modules[name] = module


def _check_code(job: Job) -> None:
    """Refuse a job whose plugins are others here than where the sweep is.

    :raises RefusedJob: they are.
    """
    run = job.run
    here = plugin_code(run.task, run.dataset, run.model)
    if here != run.code:
        raise RefusedJob(
            f"The plugin of {run.model} has code {here or 'none'} here and {run.code or 'none'} where the "
            "sweep is: copy one to the other, and give the sweep's command again."
        )


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
        write_whole(path, "\n".join([*codes, fingerprint()]) + "\n")


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


def _die_with_input() -> None:
    """End this process when its standard input does: nothing goes on after a SIGKILL of its parent."""
    with contextlib.suppress(OSError, ValueError):
        while os.read(sys.stdin.fileno(), 4096):
            pass
    os._exit(1)
