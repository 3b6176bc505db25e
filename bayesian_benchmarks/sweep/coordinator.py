"""Doing the runs of an experiment that are due: in parallel, resumably, each once."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import BenchmarkError
from ..experiment import Experiment
from ..interruption import raise_if_told, raised_when_asked
from ..store import ResultRow, ResultsStore
from .contract import (
    CANNOT_WRITE,
    JOB_NAME,
    REFUSED,
    WORKER_LOCK_NAME,
    clear,
    read_outcome,
    write_job,
)
from .due import Again, Due, check_data, due_runs
from .engines import STOP_SECONDS, Engine, Exit, LocalEngine, Worker, end_all, shell_command
from .job import Interrupted, Job, Notice, Refused, Step
from .locks import RunLock, is_locked
from .progress import Shown, SweepProgress
from .run import Run, expand
from .scalars import make_folder
from .shared import SharedState, forget_killed
from .worker import (
    CHECKPOINT_NAME,
    CODE_NAME,
    LOG_NAME,
    MODEL_NAME,
    UNGUARDED,
    do_job,
    in_worker,
    result_row,
)

LOCK_NAME = "lock"
"""In a run's folder: the claim of the sweep that has it in hand."""

POLL_SECONDS = 1.0
"""How often to look whether another process has finished a run that is due here too."""

MAX_INTERRUPTED = 3
"""Runs in a row that errors of the surroundings end, after which the sweep does."""


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
    engine: Engine | None = None,
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
        one after the other, for debugging. With as many threads a run gives the same numbers, beside
        others or alone; with fewer a sum is added in another order, which training makes larger. Rows say
        how many threads they had.
    :param engine: where workers are started; by default they are `jobs` processes of this machine. It is not
        closed here.
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
    if engine is None and jobs > 0:
        engine = LocalEngine(jobs)
    if engine is not None and in_worker():
        raise BenchmarkError(UNGUARDED)
    again = Again(failed=retry_failed, changed=redo_changed, rescore=rescore)
    with _sweeping(experiment, store, again, engine, data_dir, tensorboard, progress) as sweep:
        sweep.keep_models, sweep.max_run_seconds = keep_models, max_run_seconds
        sweep.do()
    return sweep.report


def hand_out(
    experiment: Experiment,
    store: ResultsStore,
    *,
    num_threads: int | None = None,
    data_dir: str | Path | None = None,
    retry_failed: bool = False,
    redo_changed: bool = False,
    rescore: bool = False,
    keep_models: bool = False,
    tensorboard: str | Path | None = None,
    progress: Shown = True,
) -> tuple[list[str], SweepReport]:
    """Shell commands that do an experiment's runs that the store lacks, wherever they are run.

    Rows that such commands have written are taken into the store first, as `run_experiment` does too.

    :param num_threads: cores of each run; by default all that its process may use.
    :return: a command for each due run that no process has in hand, and what was taken in; the report's
        `num_elsewhere` are the runs that other processes have in hand.
    :raises BenchmarkError: bad names, splits or data, or a job's file cannot be written.

    >>> import pathlib, tempfile
    >>> from bayesian_benchmarks import Experiment, ResultsStore
    >>> from bayesian_benchmarks.sweep import hand_out
    >>> experiment = Experiment(models=["dgp"], datasets=["diabetes"], splits=[0, 1], depths=[2])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = ResultsStore(pathlib.Path(folder, "results.sqlite"))
    ...     commands, report = hand_out(experiment, store)
    >>> len(commands), "-m bayesian_benchmarks.worker" in commands[0], report.num_ok
    (2, True, 0)
    """
    again = Again(failed=retry_failed, changed=redo_changed, rescore=rescore)
    with _sweeping(experiment, store, again, None, data_dir, tensorboard, progress) as sweep:
        sweep.keep_models = keep_models
        commands = [
            shell_command(path)
            for run in sweep.collect()
            if (path := sweep.leave(run, num_threads))
        ]
    return commands, sweep.report


@contextlib.contextmanager
def _sweeping(
    experiment: Experiment,
    store: ResultsStore,
    again: Again,
    engine: Engine | None,
    data_dir: str | Path | None,
    tensorboard: str | Path | None,
    progress: Shown,
) -> Iterator[_Sweep]:
    """The runs that are due, known to be possible, while others are told of them."""
    scalars = None if tensorboard is None else make_folder(tensorboard)
    directory = None if data_dir is None else Path(data_dir)
    due = due_runs(expand(experiment, directory), store, again)
    check_data(due.runs, directory)
    forget_killed(store.path)
    for run in due.done:  # a kill between a row and its clean-up leaves a checkpoint
        _sweep_unless_locked(store.path.parent / run.directory_name)
    with SweepProgress(
        due.runs,
        store.rows("ok"),
        engine.num_slots if engine else 1,
        shown=progress if due.runs else False,
        shared=SharedState(store.path) if due.runs else None,
    ) as shown:
        sweep = _Sweep(experiment, store, shown, due, again, engine=engine, data_dir=directory)
        sweep.tensorboard = scalars
        yield sweep


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
        engine: Engine | None,
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
        self._engine = engine
        self._data_dir = data_dir
        self._active: list[_Active] = []
        self._interrupted_in_a_row = 0

    @property
    def report(self) -> SweepReport:
        """What has been done so far."""
        return SweepReport(
            num_stored_before=len(self._due.done),
            num_ok=self.num_ok,
            num_failed=self.num_failed,
            num_elsewhere=self.num_elsewhere,
            num_failed_before=self._due.num_failed,
            num_interrupted=self.num_interrupted,
        )

    def do(self) -> None:
        """Do all runs; one that another process has in hand is waited for."""
        try:
            # A run in this process is to end at once, wherever it is.
            with raised_when_asked() if self._engine is not None else contextlib.nullcontext():
                self._do_all()
        finally:
            end_all([active.worker for active in self._active])
            for active in self._active:
                with self._releasing(active.run, active.lock):
                    self._keep(active)

    def _do_all(self) -> None:
        waiting = self.collect()
        look_at = 0.0
        while waiting or self._active:
            raise_if_told()
            if time.monotonic() >= look_at:
                waiting = self._begin_some(waiting)
                look_at = time.monotonic() + POLL_SECONDS
            if not self._active:
                if waiting:
                    time.sleep(POLL_SECONDS)
            elif self._listen():
                look_at = 0.0  # there is room
            self._shown.refresh()

    def collect(self) -> list[Run]:
        """Take in the rows that workers wrote while no sweep was there to hear; returns what is left."""
        return [run for run in self._due.runs if not self._collect(run)]

    def _collect(self, run: Run) -> bool:
        """Take in the row of a run that no process has in hand; returns whether there was one."""
        if not isinstance(read_outcome(self._directory(run)), ResultRow):
            return False
        lock = RunLock(self._directory(run) / LOCK_NAME)
        if not lock.acquire():
            return False
        with self._releasing(run, lock):
            return self._take_in(run)

    def _take_in(self, run: Run) -> bool:
        """The same of a run whose claim is held."""
        row = read_outcome(self._directory(run))
        if not isinstance(row, ResultRow) or row.key != run.key:
            return False
        before = self._store.find(run.key)
        if before is not None and before.recorded_at == row.recorded_at:
            return False  # a kill came between the store and the clean-up
        self._end(run, row, elsewhere=True)
        return True

    @contextlib.contextmanager
    def _releasing(self, run: Run, lock: RunLock) -> Iterator[None]:
        try:
            yield
        finally:
            lock.release()
            self._remove_if_empty(run)

    def _keep(self, active: _Active) -> None:
        """Store what a worker was done with before the sweep was told to stop.

        A job that no worker has in hand any more is withdrawn, also from one that is yet to begin.
        """
        with contextlib.suppress(BenchmarkError, OSError):  # of a full disk; the run stays due
            if isinstance(active.worker.outcome, ResultRow):
                self._end(active.run, active.worker.outcome)
            elif active.worker.ended:
                clear(self._directory(active.run))

    def leave(self, run: Run, num_threads: int | None) -> Path | None:
        """Write a run's job for any worker; returns its file, None where another process has it in hand."""
        directory = self._directory(run)
        lock = RunLock(directory / LOCK_NAME)
        if not lock.acquire():
            self.num_elsewhere += 1
            return None
        with self._releasing(run, lock):
            if is_locked(directory / WORKER_LOCK_NAME):
                self.num_elsewhere += 1
                return None
            return write_job(replace(self._job(run), num_threads=num_threads))

    def _begin_some(self, waiting: list[Run]) -> list[Run]:
        """Start as many runs as there is room for; returns those that still wait."""
        return [run for run in waiting if not self._has_room() or not self._begin(run)]

    def _has_room(self) -> bool:
        return self._engine is None or self._engine.has_room(len(self._active))

    def _begin(self, run: Run) -> bool:
        """Start a run, or see that it is done; False when another process has it in hand."""
        lock = RunLock(self._directory(run) / LOCK_NAME)
        if not lock.acquire():
            return False
        try:
            row, before = self._store.find(run.key), self._due.rows.get(run.key)
            # Before the outcome is looked for: a worker of a killed sweep, or of none, may be at it.
            at_work = is_locked(self._directory(run) / WORKER_LOCK_NAME)
            if row is not None and (before is None or row.recorded_at != before.recorded_at):
                self._done_elsewhere(run, row)
            elif not self._take_in(run):
                if at_work:
                    return False
                if self._engine is not None:
                    worker = Worker(self._job(run), self._engine)
                    self._active.append(_Active(run, lock, worker))
                    return True
                self._do_here(run)
        finally:
            if all(active.lock is not lock for active in self._active):
                lock.release()
                self._remove_if_empty(run)
        return True

    def _done_elsewhere(self, run: Run, row: ResultRow) -> None:
        self.num_elsewhere += 1
        self.num_failed += row.status == "failed"
        if row.status == "ok":
            sweep_folder(self._directory(run))
        self._shown.finish(run, row, elsewhere=True)

    def _do_here(self, run: Run) -> None:
        """Do a run in this process."""
        with contextlib.suppress(OSError):
            clear(self._directory(run))
        self._end(run, do_job(self._job(run), lambda message: self._report(run, message)))

    def _listen(self) -> bool:
        """Take in what workers have said, waiting a moment for something; returns whether one has ended."""
        assert self._engine is not None
        deadline, any_news, any_ended = time.monotonic() + POLL_SECONDS, False, False
        while not any_news and time.monotonic() < deadline:
            raise_if_told()
            for active in list(self._active):
                any_news |= active.worker.listen(
                    lambda message, run=active.run: self._report(run, message)  # type: ignore[misc]
                )
                if active.worker.ended:
                    self._ended(active)
                    any_ended = True
                else:
                    self._stop_if_late(active)
            if not any_news:
                time.sleep(self._engine.poll_seconds)
        return any_ended

    def _stop_if_late(self, active: _Active) -> None:
        """Tell a run that takes too long to end, and end it if it does not."""
        now, began = time.monotonic(), active.worker.began
        if active.late_at is not None:
            if now - active.late_at > STOP_SECONDS:
                active.worker.end(0.0)
        elif self.max_run_seconds and began is not None and now - began > self.max_run_seconds:
            active.late_at = now
            active.worker.stop()

    def _ended(self, active: _Active) -> None:
        """A worker has ended: with an outcome, or because it died."""
        assert self._engine is not None
        run, worker = active.run, active.worker
        outcome, how = worker.outcome, worker.exit or Exit()
        if isinstance(outcome, Refused):
            raise BenchmarkError(outcome.reason)
        if outcome is None and not worker.spoke and not active.is_retry:
            active.worker, active.is_retry = Worker(worker.job, self._engine), True
            return
        self._active.remove(active)
        with self._releasing(run, active.lock):
            if not active.lock.is_held():
                self._taken_over(run)
            elif active.late_at is not None and not isinstance(outcome, ResultRow):
                limit = f"it took longer than the limit of {self.max_run_seconds:g} seconds"
                outcome = result_row(worker.job, error=f"Stopped: {limit}; its checkpoint is kept.")
                self._end(run, outcome, keep_checkpoint=True)
            elif outcome is None and how.code in (REFUSED, CANNOT_WRITE):
                told = f"see {LOG_NAME} in {self._directory(run)}"
                self._end(run, Interrupted(f"its worker could not write what it was to; {told}"))
            elif outcome is None and how.error:
                self._end(run, Interrupted(how.error))
            elif outcome is None:
                outcome = result_row(worker.job, error=how_it_died(how))
                self._end(run, outcome, keep_checkpoint=True)
            else:
                self._end(run, outcome)

    def _taken_over(self, run: Run) -> None:
        """Another sweep has the run in hand, since this process was suspended for long."""
        self.num_interrupted += 1
        self._shown.finish(run, Interrupted("another sweep has taken it over"))

    def _end(
        self,
        run: Run,
        outcome: ResultRow | Interrupted,
        *,
        keep_checkpoint: bool = False,
        elsewhere: bool = False,
    ) -> None:
        """Store a run's row; only then is its checkpoint removed, and what its worker wrote.

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
        with contextlib.suppress(OSError):
            clear(self._directory(run))
        self._shown.finish(run, outcome, elsewhere=elsewhere)

    def _interrupted(self, run: Run, outcome: Interrupted) -> None:
        self.num_interrupted += 1
        self._interrupted_in_a_row += 1
        with contextlib.suppress(OSError):
            clear(self._directory(run))
        self._shown.finish(run, outcome)
        if self._interrupted_in_a_row == MAX_INTERRUPTED:
            raise BenchmarkError(
                f"{MAX_INTERRUPTED} runs in a row could not be done, the last one of {outcome.reason}. "
                "What is finished is stored and checkpoints are kept: mend it, and give the same command."
            )

    def _report(self, run: Run, message: Step | Notice) -> None:
        raise_if_told()
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
            num_threads=self._engine.num_threads if self._engine else None,
            plugins=self._experiment.plugins,
            stored=self._due.rows.get(run.key) if self._again.rescore else None,
            tensorboard=self.tensorboard,
        )


def _sweep_unless_locked(directory: Path) -> None:
    left = (CHECKPOINT_NAME, LOG_NAME, JOB_NAME, LOCK_NAME, WORKER_LOCK_NAME)
    if any((directory / name).exists() for name in left):
        lock = RunLock(directory / LOCK_NAME)
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
    with contextlib.suppress(OSError):
        clear(directory)
    for pattern in ("*.partial", f"{LOCK_NAME}-*", f"{WORKER_LOCK_NAME}*"):
        for path in directory.glob(pattern):
            path.unlink(missing_ok=True)


def how_it_died(how: Exit) -> str:
    """How a process ended that said nothing of it."""
    return f"The worker process died ({how}); out of memory?"
