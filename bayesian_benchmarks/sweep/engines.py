"""What starts workers: by default this machine, each worker with its share of the cores.

An engine starts `python -m bayesian_benchmarks.worker JOB.json` somewhere, and says when that has ended. What
a worker does, and says, is in the files of its run's folder, for all engines alike (`contract`).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..errors import BenchmarkError, StoreError
from .contract import (
    KILL_NAME,
    PROGRESS_NAME,
    STOP_NAME,
    WORKER_LOCK_NAME,
    Progress,
    read_outcome,
    read_progress,
    write_job,
)
from .environment import available_cores
from .job import Job, Outcome, Report
from .locks import is_locked
from .worker import LOG_NAME

STOP_SECONDS = 20.0
"""That a worker has for a checkpoint when it is told to stop."""

KILL_SECONDS = 5.0
"""That it has to be gone when it is killed."""

LOOK_SECONDS = 0.1
"""Between two looks of an engine's task at its process."""


@dataclass(frozen=True)
class Exit:
    """How a worker's process ended.

    :param code: its exit code, minus the signal's number if it was killed; None where it is not known.
    :param error: what the engine says of it, if anything.
    """

    code: int | None = None
    error: str = ""

    def __str__(self) -> str:
        if self.error:
            return self.error
        killed = self.code is not None and self.code < 0
        return f"signal {-self.code}" if killed and self.code else f"exit code {self.code}"


class Handle(Protocol):
    """A worker's process, wherever it is."""

    def poll(self) -> Exit | None:
        """How it ended; None while it has not.

        :raises EngineLost: the engine cannot say any more.
        """

    def stop(self, began: bool) -> None:
        """Do what the engine can do for it to end in order, beside what the file `stop` does.

        :param began: whether it has been heard of; where it has not, it is withdrawn.
        """

    def kill(self) -> None:
        """End it at once, as far as the engine can."""


class Engine(Protocol):
    """Where workers are started.

    Attributes: `num_threads`, of each run; `poll_seconds`, between two looks at the workers;
    `progress_seconds`, between two words of a worker; `grace_seconds`, after which a file that was written
    elsewhere is seen here.
    """

    num_threads: int | None
    poll_seconds: float
    progress_seconds: float
    grace_seconds: float

    @property
    def num_slots(self) -> int:
        """How many run at a time, as far as it is known."""

    def has_room(self, num_active: int) -> bool:
        """Whether another worker may be started, or queued, beside so many."""

    def main(self) -> list[str] | None:
        """The script whose models workers find, and its arguments, if they run on this machine."""

    def start(self, path: Path, job: Job) -> Handle:
        """Start, or queue, a worker for a job.

        :param path: of the job's file.
        """

    def close(self) -> None:
        """Give back what the engine holds; its workers have ended."""


NOTHING: Mapping[str, str] = {}


class EngineLost(BenchmarkError):  # noqa: N818  # says what happened
    """An engine cannot say any more what became of its workers."""


class LocalEngine:
    """Processes of this machine, each with its share of the cores.

    They end with this process, however that ends.

    :param jobs: workers at a time.
    :param num_threads: cores of each; by default its share.

    >>> from bayesian_benchmarks.sweep import LocalEngine
    >>> engine = LocalEngine(jobs=2)
    >>> engine.num_slots, engine.has_room(1), engine.has_room(2)
    (2, True, False)
    """

    poll_seconds = 0.02
    progress_seconds = 0.2
    grace_seconds = 0.0

    def __init__(self, jobs: int = 1, *, num_threads: int | None = None) -> None:
        self._jobs = jobs
        self.num_threads: int | None = num_threads or max(1, available_cores() // jobs)

    @property
    def num_slots(self) -> int:
        """The number of workers at a time."""
        return self._jobs

    def has_room(self, num_active: int) -> bool:
        """Whether fewer than `jobs` are at work."""
        return num_active < self._jobs

    def main(self) -> list[str] | None:
        """The script that this process is of, and its arguments."""
        return main_script()

    def start(self, path: Path, job: Job) -> Handle:
        """Start a process."""
        return LocalHandle(path, job.num_threads, modules_as_here())

    def close(self) -> None:
        """Nothing is held."""


class LocalHandle:
    """A worker's process that ends with this one: it has a pipe whose other end is here."""

    def __init__(
        self, path: Path, num_threads: int | None, environment: Mapping[str, str] = NOTHING
    ) -> None:
        limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(num_threads or 1))
        try:
            log = path.with_name(LOG_NAME).open("ab")
        except OSError as error:
            raise StoreError(
                f"Cannot write to {path.parent} ({error.strerror or error})."
            ) from error
        with log:
            self._process = subprocess.Popen(
                [*worker_command(path), "--until-eof"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=os.environ | limits | dict(environment),
            )

    def poll(self) -> Exit | None:
        """By the process."""
        code = self._process.poll()
        if code is None:
            return None
        if self._process.stdin is not None:
            self._process.stdin.close()
        return Exit(code)

    def stop(self, began: bool) -> None:
        """By a signal."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """By a signal."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILL_SECONDS)


def main_script() -> list[str] | None:
    """The script that this process is of, or "-m" and the module, and the arguments; None for neither."""
    module = sys.modules["__main__"]
    name, file = getattr(module.__spec__, "name", None), getattr(module, "__file__", None)
    if name is not None:  # that of a package is none of the user's
        return None if name.endswith("__main__") else ["-m", name, *sys.argv[1:]]
    if file is None or not Path(file).is_file():
        return None
    return [str(Path(file).absolute()), *sys.argv[1:]]


def modules_as_here() -> dict[str, str]:
    """The environment of a process that finds the modules that this one does."""
    named = filter(None, [os.environ.get("PYTHONPATH")])
    path = os.pathsep.join([*named, *(folder or os.getcwd() for folder in sys.path)])
    # With no folder before those: a file `random.py` in the working one is not Python's.
    return {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


def attend(worker: LocalHandle, path: Path) -> int:
    """Wait until a process has ended, or until a file says that it is to be killed; returns its exit code."""
    while (end := worker.poll()) is None:
        if path.with_name(KILL_NAME).exists():
            worker.kill()
        time.sleep(LOOK_SECONDS)
    assert end.code is not None
    return end.code


def worker_command(path: Path) -> list[str]:
    """That starts a worker by this Python."""
    return [sys.executable, "-m", "bayesian_benchmarks.worker", str(path)]


def shell_command(path: Path) -> str:
    """The same for a shell, from any folder."""
    return f"cd {shlex.quote(str(Path.cwd()))} && {shlex.join(worker_command(path.absolute()))}"


class Worker:
    """A worker under way: its job's files, and its process.

    Attributes: `job`; `began`, when it was first heard of (of `time.monotonic`), None before; `outcome`, what
    it ended with, None where it died, and then `exit` says how.
    """

    def __init__(self, job: Job, engine: Engine) -> None:
        self.job = job
        self.began: float | None = None
        self.outcome: Outcome | None = None
        self.exit: Exit | None = None
        self._engine = engine
        self._seen: object = None
        self._progress: Progress | None = None
        self._gone_at: float | None = None
        path = write_job(job, main=engine.main(), progress_seconds=engine.progress_seconds)
        self._handle = engine.start(path, job)

    @property
    def spoke(self) -> bool:
        """Whether it has been heard of."""
        return self.began is not None

    def listen(self, report: Report) -> bool:
        """Take in what is new; returns whether that was something. `ended` says whether it was the last.

        :raises EngineLost: the engine cannot say what became of it.
        """
        if self.ended:
            return False
        exit_ = self._handle.poll()  # before the files, which are complete when it has ended
        found = self._listen(report)
        if exit_ is None:
            return found
        if self._gone_at is None:
            self._gone_at = time.monotonic()
            with contextlib.suppress(OSError):
                os.listdir(self.job.directory)  # which makes a network file system look
        self.outcome = read_outcome(self.job.directory)
        if self.outcome is None and time.monotonic() - self._gone_at < self._engine.grace_seconds:
            return found
        self.exit = exit_
        return True

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.exit is not None

    def stop(self) -> None:
        """Tell it to write a checkpoint and end."""
        with contextlib.suppress(OSError):
            (self.job.directory / STOP_NAME).touch()
        self._handle.stop(self.spoke)

    def end(self, seconds: float) -> None:
        """Wait for it to end, and kill it if it does not."""
        deadline = time.monotonic() + seconds
        while not self.ended and time.monotonic() < deadline:
            if not self.listen(lambda message: None):
                time.sleep(self._engine.poll_seconds)
        if not self.ended:
            with contextlib.suppress(OSError):
                (self.job.directory / KILL_NAME).touch()
            self._handle.kill()
            self._wait_for_kill()
            self.outcome = read_outcome(self.job.directory)
            self.exit = self._handle.poll() or Exit(error="it did not end when it was told to")

    def _wait_for_kill(self) -> None:
        """Leave the file `kill` to where the worker is until it has been seen."""
        deadline = time.monotonic() + KILL_SECONDS
        while is_locked(self.job.directory / WORKER_LOCK_NAME) and time.monotonic() < deadline:
            time.sleep(self._engine.poll_seconds)

    def _listen(self, report: Report) -> bool:
        """Take in the progress, if it is another than before."""
        try:
            found = (self.job.directory / PROGRESS_NAME).stat()
        except OSError:
            return False
        seen = found.st_ino, found.st_mtime_ns, found.st_size
        if seen == self._seen:
            return False
        progress = read_progress(self.job.directory)
        if progress is None:
            return False
        self._seen, before, self._progress = seen, self._progress, progress
        if self.began is None:
            self.began = time.monotonic()
        for message in progress.after(before):
            report(message)
        return True


def end_all(workers: Sequence[Worker]) -> None:
    """Let every worker write a checkpoint and end."""
    for worker in workers:
        with contextlib.suppress(EngineLost):
            worker.stop()
    for worker in workers:
        with contextlib.suppress(EngineLost):
            worker.end(STOP_SECONDS)
