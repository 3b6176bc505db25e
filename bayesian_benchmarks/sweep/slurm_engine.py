"""Workers as jobs of Slurm, by submitit: a job that is preempted, or whose time is over, is queued again.

When and where a job runs, and that it is queued again, is Slurm's part and submitit's.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..store import ResultRow
from .contract import read_outcome
from .engines import NOTHING, STOP_SECONDS, Exit, Handle, LocalHandle, attend
from .job import Job, Refused

MAX_REQUEUES = 1_000
"""Of a job whose time was over."""

MISSING = "submitit is not installed: pip install 'gpflow-dkp[slurm]'."


class SlurmEngine:
    """Jobs of Slurm, one each run; all machines see the folder of the store under the same path.

    :param folder: for submitit's files and the jobs' output.
    :param jobs: in the queue or running at a time.
    :param partition: that jobs are submitted to; by default Slurm's.
    :param minutes: of each job; a run that takes longer goes on in another.
    :param num_threads: cores of each.
    :param options: more of `sbatch`, by their long names.
    :param cluster: "local" for processes of this machine in place of Slurm.
    :raises ConfigError: submitit is not installed, there is no Slurm here, or an option is not allowed.

    >>> import tempfile
    >>> from bayesian_benchmarks.sweep import SlurmEngine
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     engine = SlurmEngine(folder, jobs=50, partition="cpu", cluster="local")
    ...     engine.has_room(49), engine.has_room(50)
    (True, False)
    """

    poll_seconds = 1.0
    progress_seconds = 2.0
    grace_seconds = 15.0

    def __init__(
        self,
        folder: str | Path,
        *,
        jobs: int = 100,
        partition: str | None = None,
        minutes: int = 24 * 60,
        num_threads: int = 1,
        options: Mapping[str, str] = NOTHING,
        cluster: str = "slurm",
    ) -> None:
        try:
            import submitit
        except ImportError as error:
            raise ConfigError(MISSING) from error
        self._jobs = jobs
        self.num_threads: int | None = num_threads
        of_slurm: dict[str, Any] = {"slurm_partition": partition} if partition else {}
        if options:
            of_slurm["slurm_additional_parameters"] = dict(options)
        try:
            self._executor = submitit.AutoExecutor(
                folder, cluster=cluster, **{f"{cluster}_max_num_timeout": MAX_REQUEUES}
            )
            self._executor.update_parameters(
                name="dkp-bench", timeout_min=minutes, cpus_per_task=num_threads, **of_slurm
            )
        except (OSError, RuntimeError, ValueError, NameError, TypeError) as error:
            raise ConfigError(f"--slurm: {_one_line(error)}.") from error

    def __str__(self) -> str:
        return f"Slurm: up to {self._jobs} jobs at a time, their output in {self._executor.folder}"

    @property
    def num_slots(self) -> int:
        """The most jobs at a time."""
        return self._jobs

    def has_room(self, num_active: int) -> bool:
        """Whether fewer than `jobs` are queued or running."""
        return num_active < self._jobs

    def main(self) -> list[str] | None:
        """No script of this machine."""
        return None

    def start(self, path: Path, job: Job) -> Handle:
        """Submit a job."""
        from submitit.core.utils import FailedSubmissionError

        try:
            submitted = self._executor.submit(Task(), str(path.absolute()), job.num_threads)
        except (FailedSubmissionError, OSError) as error:
            raise ConfigError(f"--slurm: {_one_line(error)}.") from error
        return _Submitted(submitted, path.parent)

    def close(self) -> None:
        """Nothing is held."""


class Task:
    """A job's part: a worker's process, which is stopped with a checkpoint when the job is queued again."""

    _worker: LocalHandle | None = None

    def __call__(self, path: str, num_threads: int | None) -> int:
        """Do a job of a sweep; returns the process' exit code."""
        self._worker = LocalHandle(Path(path), num_threads)
        return attend(self._worker, Path(path))

    def checkpoint(self, path: str, num_threads: int | None) -> Any:
        """What is queued in place of this job: the same, from its checkpoint."""
        from submitit.helpers import DelayedSubmission

        if self._worker is not None:
            self._worker.stop(True)
            deadline = time.monotonic() + STOP_SECONDS
            while self._worker.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
            self._worker.kill()
        return DelayedSubmission(Task(), path, num_threads)


class _Submitted:
    """A worker's process that a job starts."""

    def __init__(self, submitted: Any, folder: Path) -> None:
        self._submitted = submitted
        self._folder = folder

    def poll(self) -> Exit | None:
        """By the row, which is there long before Slurm is asked; else by Slurm.

        A run that was stopped and is queued again has an outcome that says so, and has not ended.
        """
        if isinstance(read_outcome(self._folder), ResultRow | Refused):
            return Exit(0)
        if not self._submitted.done():
            return None
        error = self._submitted.exception()
        if error is None:
            return Exit(self._submitted.result())
        return Exit(error=f"Slurm says {self._submitted.state}: {_one_line(error)}")

    def stop(self, began: bool) -> None:
        """Withdraw the job, where it waits; the process of one that runs sees the file."""
        if not began:
            self.kill()

    def kill(self) -> None:
        """Cancel the job."""
        with contextlib.suppress(Exception):  # such as of Slurm's commands
            self._submitted.cancel(check=False)


def _one_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return " ".join((lines[-1] if lines else type(error).__name__).split())[:300].rstrip(".?")
