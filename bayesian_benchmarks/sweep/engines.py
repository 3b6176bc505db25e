"""What runs jobs: worker processes of this machine, each with its share of the cores, or this process."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import connection

from ..store import ResultRow
from .worker import Interrupted, Job, Notice, Report, Step, work

STOP_SECONDS = 20.0
"""That a worker has for a checkpoint when it is told to stop."""


class Worker:
    """A process at work on a job.

    Attributes: `job`, `started` (of `time.monotonic`), `spoke`, whether it has sent anything, and
    `outcome`, what it ended with: None where it died.
    """

    def __init__(self, job: Job) -> None:
        context = multiprocessing.get_context("spawn")
        self.job = job
        self.started = time.monotonic()
        self.spoke = False
        self._is_silent = False
        self.outcome: ResultRow | Interrupted | None = None
        self._pipe, there = context.Pipe(duplex=False)
        self._process = context.Process(target=work, args=(job, there), daemon=True)
        with _thread_limit(job.num_threads or 1):
            self._process.start()
        there.close()

    def listen(self, report: Report) -> bool:
        """Take in one message; returns False when there are no more, and the process has ended."""
        if self._is_silent:
            self._process.join()
            return False
        try:
            message = self._pipe.recv()
        except (EOFError, OSError):
            self._is_silent = True
            return True
        self.spoke = True
        if isinstance(message, Step | Notice):
            report(message)
        else:
            self.outcome = message
        return True

    @property
    def waits_for(self) -> connection.Connection | int:
        """What is ready when there is something to take in: the pipe, and then the end of the process.

        An ending process takes seconds to give its memory back, while others go on.
        """
        return self._process.sentinel if self._is_silent else self._pipe

    @property
    def exit_code(self) -> int | None:
        """Of the ended process; minus the signal's number if it was killed."""
        return self._process.exitcode

    def stop(self) -> None:
        """Tell the process to write a checkpoint and end."""
        if self._process.is_alive():
            self._process.terminate()

    def end(self, seconds: float) -> None:
        """Wait for the process to end, and kill it if it does not."""
        deadline = time.monotonic() + seconds
        while not self._is_silent and self._pipe.poll(max(0.0, deadline - time.monotonic())):
            self.listen(lambda message: None)
        self._process.join(max(0.0, deadline - time.monotonic()))
        self._process.kill()
        self._process.join()


def ready(workers: Sequence[Worker], seconds: float) -> list[Worker]:
    """The workers that have something to say, waiting a while for one."""
    found = connection.wait([worker.waits_for for worker in workers], timeout=seconds)
    return [worker for worker in workers if worker.waits_for in found]


def end_all(workers: Sequence[Worker]) -> None:
    """Let every worker write a checkpoint and end."""
    for worker in workers:
        worker.stop()
    for worker in workers:
        worker.end(STOP_SECONDS)


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
