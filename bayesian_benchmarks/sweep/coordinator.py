"""Doing the runs of an experiment that are due: in parallel, resumably, each once."""

from __future__ import annotations

import contextlib
import multiprocessing
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from ..errors import BenchmarkError
from ..experiment import Experiment
from ..store import ResultRow, ResultsStore
from .due import Again, Due, check_data, due_runs
from .engines import STOP_SECONDS, Worker, end_all, ready
from .environment import available_cores
from .locks import RunLock
from .progress import Shown, SweepProgress
from .run import Run, expand
from .scalars import make_folder
from .shared import SharedState
from .worker import (
    CHECKPOINT_NAME,
    CODE_NAME,
    LOG_NAME,
    MODEL_NAME,
    Interrupted,
    Job,
    Notice,
    Step,
    do_job,
    result_row,
)

POLL_SECONDS = 1.0
"""How often to look whether another process has finished a run that is due here too."""

MAX_INTERRUPTED = 3
"""Runs in a row that errors of the surroundings end, after which the sweep does."""

UNGUARDED = (
    "A worker process could not start: in a script, call run_experiment under "
    "`if __name__ == '__main__':`, or with jobs=0."
)


@dataclass(frozen=True)
class SweepReport:
    """What a sweep did: numbers of runs.

    `num_elsewhere` were done meanwhile by another process, `num_failed` of those failed with the ones here;
    `num_interrupted` were ended by errors of the surroundings and stay due.

    >>> from bayesian_benchmarks.sweep import SweepReport
    >>> SweepReport(
    ...     num_stored_before=3, num_ok=2, num_failed=0, num_elsewhere=0, num_failed_before=1
    ... ).num_interrupted
    0
    """

    num_stored_before: int
    num_ok: int
    num_failed: int
    num_elsewhere: int
    num_failed_before: int
    num_interrupted: int = 0


def run_experiment(
    experiment: Experiment,
    store: ResultsStore,
    *,
    jobs: int = 1,
    data_dir: str | Path | None = None,
    retry_failed: bool = False,
    redo_changed: bool = False,
    rescore: bool = False,
    keep_models: bool = False,
    max_run_seconds: float | None = None,
    tensorboard: str | Path | None = None,
    progress: Shown = True,
) -> SweepReport:
    """Do an experiment's runs that the store lacks, and store each as it ends.

    A killed call goes on where it was when it is made again, and ends with the same numbers.
    A run that fails is stored as failed, and the others go on. An error of the surroundings, such as a full
    disk, is no result: the run keeps its checkpoint and stays due.

    :param jobs: worker processes at a time, which share the cores; 0 does the runs in this process,
        one after the other, for debugging. With fewer threads a sum is added in another order: scores
        differ by rounding, some 1e-8 of them, and rows say how many threads they had.
    :param data_dir: a local copy of the data, see `get_dataset`.
    :param retry_failed: whether failed runs are done again.
    :param redo_changed: whether runs whose rows other code made are done again.
    :param rescore: whether runs that are there are scored again in place of all else, without training: by
        their models where they were kept, else from their predictions.
    :param keep_models: whether the trained models' checkpoints stay beside the store.
    :param max_run_seconds: after which a run is stopped and stored as failed; its checkpoint stays.
    :param tensorboard: a folder in which each run has one of its own, with the bound of its training as
        TensorFlow's scalars; None for none.
    :param progress: what is said on standard error: all, nothing, or only "failures". Other processes can ask
        for the state either way, by `watch`.
    :raises BenchmarkError: bad names, splits or data, before anything is trained; or the surroundings ended
        three runs in a row.

    >>> import pathlib, tempfile
    >>> from bayesian_benchmarks import Experiment, ResultsStore, run_experiment
    >>> experiment = Experiment(
    ...     models=["nngp:relu"], datasets=["diabetes"], splits=[0], depths=[1],
    ...     settings={"num_steps": 2, "num_inducing": 3, "elbo_samples": 1, "test_samples": 2},
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = ResultsStore(pathlib.Path(folder, "results.sqlite"))
    ...     report = run_experiment(experiment, store, jobs=0, progress=False)
    ...     report.num_ok, [row.model for row in store.rows()]
    (1, ['nngp:relu'])
    """
    if jobs < 0:
        raise BenchmarkError(f"jobs is {jobs}; it must be 0 (this process) or more.")
    if jobs > 0 and multiprocessing.parent_process() is not None:
        raise BenchmarkError(UNGUARDED)
    scalars = None if tensorboard is None else make_folder(tensorboard)
    again = Again(failed=retry_failed, changed=redo_changed, rescore=rescore)
    directory = None if data_dir is None else Path(data_dir)
    due = due_runs(expand(experiment, directory), store, again)
    check_data(due.runs, directory)
    for run in due.done:  # a kill between a row and its clean-up leaves a checkpoint
        _sweep_unless_locked(store.path.parent / run.directory_name)
    with SweepProgress(
        due.runs,
        store.rows("ok"),
        jobs,
        shown=progress if due.runs else False,
        shared=SharedState(store.path) if due.runs else None,
    ) as shown:
        sweep = _Sweep(experiment, store, shown, due, again, jobs=jobs, data_dir=directory)
        sweep.keep_models, sweep.max_run_seconds = keep_models, max_run_seconds
        sweep.tensorboard = scalars
        sweep.do()
    return SweepReport(
        num_stored_before=len(due.done),
        num_ok=sweep.num_ok,
        num_failed=sweep.num_failed,
        num_elsewhere=sweep.num_elsewhere,
        num_failed_before=due.num_failed,
        num_interrupted=sweep.num_interrupted,
    )


@dataclass
class _Active:
    """A worker, its run, and the lock held for it; `late_at` is when it was told to stop for its time."""

    run: Run
    lock: RunLock
    worker: Worker
    is_retry: bool = False
    late_at: float | None = None


class _Sweep:
    """The runs of one call of `run_experiment`, under way."""

    def __init__(
        self,
        experiment: Experiment,
        store: ResultsStore,
        shown: SweepProgress,
        due: Due,
        again: Again,
        *,
        jobs: int,
        data_dir: Path | None,
    ) -> None:
        self.num_ok = self.num_failed = self.num_elsewhere = self.num_interrupted = 0
        self.keep_models = False
        self.max_run_seconds: float | None = None
        self.tensorboard: Path | None = None
        self._experiment = experiment
        self._store = store
        self._shown = shown
        self._due = due
        self._again = again
        self._jobs = jobs
        self._data_dir = data_dir
        self._active: list[_Active] = []
        self._interrupted_in_a_row = 0
        self._any_worker_spoke = False

    def do(self) -> None:
        """Do all runs; one that another process has in hand is waited for."""
        waiting = self._due.runs
        try:
            while waiting or self._active:
                waiting = self._begin_some(waiting)
                if self._active:
                    self._listen()
                elif waiting:
                    time.sleep(POLL_SECONDS)
                self._shown.refresh()
        finally:
            end_all([active.worker for active in self._active])
            for active in self._active:
                self._keep(active)
                active.lock.release()

    def _keep(self, active: _Active) -> None:
        """Store what a worker was done with before the sweep was told to stop."""
        if isinstance(active.worker.outcome, ResultRow):
            with contextlib.suppress(BenchmarkError):  # such as of a full disk; the run stays due
                self._end(active.run, active.worker.outcome)

    def _begin_some(self, waiting: list[Run]) -> list[Run]:
        """Start as many runs as there is room for; returns those that still wait."""
        return [
            run
            for run in waiting
            if len(self._active) >= max(1, self._jobs) or not self._begin(run)
        ]

    def _begin(self, run: Run) -> bool:
        """Start a run, or see that it is done; False when another process has it in hand."""
        lock = RunLock(self._directory(run) / "lock")
        if not lock.acquire():
            return False
        row = self._store.find(run.key)
        before = self._due.rows.get(run.key)
        if row is not None and (before is None or row.recorded_at != before.recorded_at):
            self._done_elsewhere(run, row, lock)
        elif self._jobs == 0:
            self._do_here(run, lock)
        else:
            self._active.append(_Active(run, lock, Worker(self._job(run))))
        return True

    def _done_elsewhere(self, run: Run, row: ResultRow, lock: RunLock) -> None:
        self.num_elsewhere += 1
        self.num_failed += row.status == "failed"
        if row.status == "ok":
            sweep_folder(self._directory(run))
        lock.release()
        self._remove_if_empty(run)
        self._shown.finish(run, row, elsewhere=True)

    def _do_here(self, run: Run, lock: RunLock) -> None:
        """Do a run in this process."""
        try:
            outcome = do_job(self._job(run), lambda message: self._report(run, message))
            self._end(run, outcome)
        finally:
            lock.release()
            self._remove_if_empty(run)

    def _listen(self) -> None:
        """Take in what the workers have sent, waiting a moment for something."""
        talking = ready([active.worker for active in self._active], POLL_SECONDS)
        for active in [active for active in self._active if active.worker in talking]:
            if not active.worker.listen(lambda message, run=active.run: self._report(run, message)):  # type: ignore[misc]
                self._ended(active)
            self._any_worker_spoke |= active.worker.spoke
        for active in self._active:
            self._stop_if_late(active)

    def _stop_if_late(self, active: _Active) -> None:
        """Tell a run that takes too long to end, and end it if it does not."""
        now = time.monotonic()
        if active.late_at is not None:
            if now - active.late_at > STOP_SECONDS:
                active.worker.end(0.0)
        elif self.max_run_seconds and now - active.worker.started > self.max_run_seconds:
            active.late_at = now
            active.worker.stop()

    def _ended(self, active: _Active) -> None:
        """A worker has ended: with an outcome as its last message, or because it died."""
        run, worker = active.run, active.worker
        if not worker.spoke and not self._any_worker_spoke and worker.exit_code == 1:
            raise BenchmarkError(UNGUARDED)
        self._active.remove(active)
        if not worker.spoke and not active.is_retry:
            self._active.append(_Active(run, active.lock, Worker(worker.job), is_retry=True))
            return
        outcome = worker.outcome
        if active.late_at is not None and not isinstance(outcome, ResultRow):
            limit = f"it took longer than the limit of {self.max_run_seconds:g} seconds"
            outcome = result_row(worker.job, error=f"Stopped: {limit}; its checkpoint is kept.")
            self._end(run, outcome, keep_checkpoint=True)
        elif outcome is None:
            outcome = result_row(worker.job, error=how_it_died(worker.exit_code))
            self._end(run, outcome, keep_checkpoint=True)
        else:
            self._end(run, outcome)
        active.lock.release()
        self._remove_if_empty(run)

    def _end(
        self, run: Run, outcome: ResultRow | Interrupted, *, keep_checkpoint: bool = False
    ) -> None:
        """Store a run's row; only then is its checkpoint removed.

        A run that was killed may be taken up where it was; one that raised starts afresh.
        """
        if isinstance(outcome, Interrupted):
            self._interrupted(run, outcome)
            return
        self._interrupted_in_a_row = 0
        if self._again.rescore and outcome.status == "failed":
            self.num_failed += 1  # the row that is there stays
        else:
            before = self._due.rows.get(run.key)
            is_worse = outcome.status == "failed" and before is not None and before.status == "ok"
            self._store.add(outcome, replace=before is not None and not is_worse)
            if outcome.status == "ok":
                self.num_ok += 1
                self._clear(run)
            else:
                self.num_failed += 1
                if not keep_checkpoint:
                    shutil.rmtree(self._directory(run) / CHECKPOINT_NAME, ignore_errors=True)
        self._shown.finish(run, outcome)

    def _interrupted(self, run: Run, outcome: Interrupted) -> None:
        self.num_interrupted += 1
        self._interrupted_in_a_row += 1
        self._shown.finish(run, outcome)
        if self._interrupted_in_a_row == MAX_INTERRUPTED:
            raise BenchmarkError(
                f"{MAX_INTERRUPTED} runs in a row could not be done, the last one of {outcome.reason}. "
                "What is finished is stored and checkpoints are kept: mend it, and give the same command."
            )

    def _report(self, run: Run, message: Step | Notice) -> None:
        if isinstance(message, Notice):
            self._shown.notice(message.text)
        else:
            self._shown.step(run, message)

    def _clear(self, run: Run) -> None:
        """Leave of a finished run its predictions, and its model if models are kept."""
        directory = self._directory(run)
        checkpoint = directory / CHECKPOINT_NAME
        if self.keep_models and checkpoint.exists():
            shutil.rmtree(directory / MODEL_NAME, ignore_errors=True)
            checkpoint.replace(directory / MODEL_NAME)
        sweep_folder(directory)

    def _remove_if_empty(self, run: Run) -> None:
        directory = self._directory(run)
        if directory.is_dir() and not any(directory.iterdir()):
            directory.rmdir()

    def _directory(self, run: Run) -> Path:
        return self._store.path.parent / run.directory_name

    def _job(self, run: Run) -> Job:
        return Job(
            run=run,
            directory=self._directory(run),
            checkpoint_seconds=self._experiment.checkpoint_seconds,
            data_dir=self._data_dir,
            num_threads=max(1, available_cores() // self._jobs) if self._jobs else None,
            plugins=self._experiment.plugins,
            stored=self._due.rows.get(run.key) if self._again.rescore else None,
            tensorboard=self.tensorboard,
        )


def _sweep_unless_locked(directory: Path) -> None:
    if (directory / CHECKPOINT_NAME).exists() or (directory / LOG_NAME).exists():
        lock = RunLock(directory / "lock")
        if lock.acquire():
            sweep_folder(directory)
            lock.release()
            if not any(directory.iterdir()):
                directory.rmdir()


def sweep_folder(directory: Path) -> None:
    """Remove what a finished run's folder no longer needs, and what a kill left half-written."""
    shutil.rmtree(directory / CHECKPOINT_NAME, ignore_errors=True)
    for name in (LOG_NAME, CODE_NAME):
        (directory / name).unlink(missing_ok=True)
    for path in directory.glob("*.partial"):
        path.unlink(missing_ok=True)


def how_it_died(code: int | None) -> str:
    """How a process ended that said nothing of it, by its exit code."""
    how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
    return f"The worker process died ({how}); out of memory?"
