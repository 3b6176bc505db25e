"""Which runs of an experiment are due, and doing them: in parallel, resumably, each once."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from .config import Experiment
from .errors import BenchmarkError
from .locks import RunLock
from .progress import SweepProgress
from .results import ResultRow, ResultsStore
from .results.environment import available_cores, git_commit, hardware, versions
from .runs import Run, expand
from .worker import Job, do_job, result_row, work

POLL_SECONDS = 1.0
"""How often to look whether another process has finished a run that is due here too."""

UNGUARDED = (
    "A worker process could not start: in a script, call run_experiment under "
    "`if __name__ == '__main__':`, or with jobs=0."
)


@dataclass(frozen=True)
class SweepReport:
    """What a sweep did: numbers of runs. `num_elsewhere` were done meanwhile by another process."""

    num_stored_before: int
    num_ok: int
    num_failed: int
    num_elsewhere: int
    num_failed_before: int


def due_runs(
    runs: list[Run], store: ResultsStore, *, retry_failed: bool = False
) -> tuple[list[Run], int]:
    """The runs that the store has no row of (failed ones too with `retry_failed`).

    Also returns how many of those left out are there as failed.
    """
    statuses = store.statuses()
    skipped = {"ok"} if retry_failed else {"ok", "failed"}
    due = [run for run in runs if statuses.get(run.key) not in skipped]
    num_failed = sum(statuses.get(run.key) == "failed" for run in runs)
    return due, 0 if retry_failed else num_failed


def run_experiment(
    experiment: Experiment,
    store: ResultsStore,
    *,
    jobs: int = 1,
    data_dir: str | Path | None = None,
    retry_failed: bool = False,
    progress: bool = True,
) -> SweepReport:
    """Do an experiment's runs that the store lacks, and store each as it ends.

    A killed call goes on where it was when it is made again, and ends with the same numbers.
    A run that fails is stored as failed, and the others go on.

    :param jobs: worker processes at a time, which share the cores; 0 does the runs in this process,
        one after the other, for debugging.
    :param data_dir: a local copy of the data, see `get_dataset`.
    :raises BenchmarkError: bad names, splits or data; before anything is trained.
    """
    if jobs < 0:
        raise BenchmarkError(f"jobs is {jobs}; it must be 0 (this process) or more.")
    if jobs > 0 and multiprocessing.parent_process() is not None:
        raise BenchmarkError(UNGUARDED)
    directory = None if data_dir is None else Path(data_dir)
    runs = expand(experiment)
    due, num_failed_before = due_runs(runs, store, retry_failed=retry_failed)
    _check_data(due, directory)
    with SweepProgress(due, enabled=progress and bool(due)) as shown:
        sweep = _Sweep(experiment, store, shown, directory, jobs, retry_failed)
        sweep.do(due)
    return SweepReport(
        num_stored_before=len(runs) - len(due) - num_failed_before,
        num_ok=sweep.num_ok,
        num_failed=sweep.num_failed,
        num_elsewhere=len(due) - sweep.num_ok - sweep.num_failed,
        num_failed_before=num_failed_before,
    )


def _check_data(due: list[Run], data_dir: Path | None) -> None:
    """Load every split that is due, so that data that cannot be had end a sweep at its start."""
    for run in {(run.dataset, run.split): run for run in due}.values():
        run.load(data_dir)


@dataclass
class _Worker:
    """A worker process, its run, the lock held for it, and the pipe that it reports through."""

    run: Run
    lock: RunLock
    process: SpawnProcess
    pipe: connection.Connection
    last_message: ResultRow | int | None = None


class _Sweep:
    """The runs of one call of `run_experiment`, under way."""

    def __init__(
        self,
        experiment: Experiment,
        store: ResultsStore,
        shown: SweepProgress,
        data_dir: Path | None,
        jobs: int,
        retry_failed: bool,
    ) -> None:
        self.num_ok = 0
        self.num_failed = 0
        self._experiment = experiment
        self._store = store
        self._shown = shown
        self._data_dir = data_dir
        self._jobs = jobs
        self._retry_failed = retry_failed
        self._active: list[_Worker] = []

    def do(self, due: list[Run]) -> None:
        """Do all runs; one that another process has in hand is waited for."""
        waiting = due
        try:
            while waiting or self._active:
                waiting = self._begin_some(waiting)
                if self._active:
                    self._listen()
                elif waiting:
                    time.sleep(POLL_SECONDS)
        finally:
            for worker in self._active:
                worker.process.kill()
                worker.process.join()
                worker.lock.release()

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
        if not due_runs([run], self._store, retry_failed=self._retry_failed)[0]:
            self._clear(run, lock)
            self._shown.finish(run, None)
        elif self._jobs == 0:
            self._do_here(run, lock)
        else:
            self._active.append(_start(run, lock, self._job(run, self._threads_a_worker())))
        return True

    def _do_here(self, run: Run, lock: RunLock) -> None:
        """Do a run in this process."""
        try:
            row = do_job(self._job(run, None), lambda step: self._shown.step(run, step))
            self._end(run, lock, row)
        finally:
            lock.release()

    def _listen(self) -> None:
        """Take in what the workers have sent, waiting a moment for something."""
        ready = connection.wait([worker.pipe for worker in self._active], timeout=POLL_SECONDS)
        for worker in [worker for worker in self._active if worker.pipe in ready]:
            try:
                message = worker.pipe.recv()
            except (EOFError, OSError):
                self._ended(worker)
                continue
            worker.last_message = message
            if not isinstance(message, ResultRow):
                self._shown.step(worker.run, message)

    def _ended(self, worker: _Worker) -> None:
        """A worker has closed its pipe: with a row as its last message, or because it died."""
        worker.process.join()
        if worker.last_message is None:
            raise BenchmarkError(UNGUARDED)
        self._active.remove(worker)
        if isinstance(worker.last_message, ResultRow):
            self._end(worker.run, worker.lock, worker.last_message)
        else:
            self._end(worker.run, worker.lock, _died(worker), keep_checkpoint=True)

    def _end(self, run: Run, lock: RunLock, row: ResultRow, keep_checkpoint: bool = False) -> None:
        """Store a run's row; only then is its checkpoint removed.

        A run that was killed may be taken up where it was; one that raised starts afresh.
        """
        self._store.add(row)
        if row.status == "ok":
            self.num_ok += 1
            self._clear(run, lock)
        else:
            self.num_failed += 1
            if not keep_checkpoint:
                shutil.rmtree(self._directory(run) / "checkpoint", ignore_errors=True)
            lock.release()
        self._shown.finish(run, row)

    def _clear(self, run: Run, lock: RunLock) -> None:
        lock.release()
        shutil.rmtree(self._directory(run), ignore_errors=True)

    def _directory(self, run: Run) -> Path:
        return self._store.path.parent / run.directory_name

    def _threads_a_worker(self) -> int:
        return max(1, available_cores() // self._jobs)

    def _job(self, run: Run, num_threads: int | None) -> Job:
        return Job(
            run=run,
            directory=self._directory(run),
            checkpoint_seconds=self._experiment.checkpoint_seconds,
            data_dir=self._data_dir,
            num_threads=num_threads,
            plugins=self._experiment.plugins,
        )


def _start(run: Run, lock: RunLock, job: Job) -> _Worker:
    """A worker process at work on a job."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(job, there), daemon=True)
    with _thread_limit(job.num_threads or 1):
        process.start()
    there.close()
    return _Worker(run, lock, process, here)


def _died(worker: _Worker) -> ResultRow:
    """The row of a run whose process ended without one, such as one killed for its memory."""
    code = worker.process.exitcode
    how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
    return result_row(
        worker.run,
        (versions(), git_commit()),
        hardware(),
        error=f"The worker process died ({how}); out of memory?",
    )


@contextmanager
def _thread_limit(num_threads: int) -> Iterator[None]:
    """The environment in which a new process' linear algebra uses so many threads."""
    limits = {name: str(num_threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    before = {name: os.environ.get(name) for name in limits}
    os.environ.update(limits)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
