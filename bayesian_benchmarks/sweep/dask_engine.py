"""Workers on a Dask cluster: a task starts a worker's process, so that a killed run harms no other.

Which machine does a run, and that a run of a dead Dask worker is done by another, is Dask's part.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BenchmarkError, ConfigError
from .engines import (
    EngineLost,
    Exit,
    Handle,
    LocalHandle,
    attend,
    main_script,
    modules_as_here,
)
from .environment import available_cores
from .job import Job

if TYPE_CHECKING:
    from distributed import Client, Future

CONNECT_SECONDS = 20
"""That a scheduler has to answer."""

GONE = (
    "The Dask scheduler is gone; what is finished is stored, and what its workers still finish is taken in "
    "when the same command is given again."
)
MISSING = "Dask is not installed: pip install 'gpflow-dkp[cluster]'."


class DaskEngine:
    """Tasks of a Dask scheduler.

    :param address: of a scheduler that is there, such as "tcp://host:8786", whose workers see the folder of
        the store under the same path; None for one of this process, on this machine.
    :param jobs: runs at a time on this machine; of a scheduler that is there it is its workers' threads.
    :param num_threads: cores of each run; by default the share of this machine's, or 1 elsewhere.
    :raises ConfigError: Dask is not installed, or the scheduler does not answer.

    >>> from bayesian_benchmarks.sweep import DaskEngine
    >>> DaskEngine("no://address")
    Traceback (most recent call last):
        ...
    bayesian_benchmarks.errors.ConfigError: --dask no://address: ...
    """

    poll_seconds = 0.1
    progress_seconds = 1.0

    def __init__(
        self, address: str | None = None, *, jobs: int = 1, num_threads: int | None = None
    ) -> None:
        try:
            from distributed import Client, LocalCluster
        except ImportError as error:
            raise ConfigError(MISSING) from error
        self._cluster: Any = None
        if address is None:  # a task only waits for its process: threads of this one will do
            self._cluster = LocalCluster(
                n_workers=1,
                threads_per_worker=jobs,
                processes=False,
                dashboard_address=":0",
                silence_logs=50,
            )
        try:
            self._client: Client = Client(
                self._cluster or address, timeout=CONNECT_SECONDS, set_as_default=False
            )
        except (OSError, ValueError, TypeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ConfigError(
                f"--dask {address}: no scheduler answers there ({reason}); start one with `dask scheduler`."
            ) from error
        share = max(1, available_cores() // jobs) if address is None else 1
        self.num_threads: int | None = num_threads or share
        self.grace_seconds = 0.0 if address is None else 15.0

    def __str__(self) -> str:
        link, threads = self._client.dashboard_link, self._client.nthreads()
        where = f", dashboard at {link}" if link else ""
        return f"Dask: {sum(threads.values())} threads of {len(threads)} workers{where}"

    @property
    def num_slots(self) -> int:
        """As many as the workers have threads, which may be more later."""
        with _asking():
            return max(1, sum(self._client.nthreads().values()))

    def has_room(self, num_active: int) -> bool:
        """Whether there are fewer than two for each thread: what waits there starts at once."""
        return num_active < 2 * self.num_slots

    def main(self) -> list[str] | None:
        """The script that this process is of, where the cluster is of this process."""
        return None if self._cluster is None else main_script()

    def start(self, path: Path, job: Job) -> Handle:
        """Submit a task."""
        with _asking():
            future = self._client.submit(
                run_worker,
                str(path.absolute()),
                job.num_threads,
                {} if self._cluster is None else modules_as_here(),
                key=f"{job.run}-{time.time_ns()}",
                pure=False,
                retries=0,
            )
        return _Submitted(self._client, future)

    def close(self) -> None:
        """Leave the scheduler; one of this process ends."""
        with contextlib.suppress(Exception):  # such as of a scheduler that has gone
            self._client.close(timeout=5)
        if self._cluster is not None:
            self._cluster.close(timeout=5)


@contextlib.contextmanager
def _asking() -> Iterator[None]:
    """What asks the scheduler.

    :raises EngineLost: it does not answer.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise EngineLost(GONE) from error


class _Submitted:
    """A worker's process that a task starts."""

    def __init__(self, client: Client, future: Future) -> None:
        self._client = client
        self._future = future
        self._withdrawn = False

    def poll(self) -> Exit | None:
        """By the task."""
        status = self._future.status
        if status == "finished":
            return Exit(self._future.result())
        if status == "error":
            return Exit(error=f"Dask says: {_one_line(self._future.exception())}")
        if status in ("cancelled", "lost"):
            if self._withdrawn:
                return Exit(error="withdrawn")
            raise EngineLost(GONE)
        return None

    def stop(self, began: bool) -> None:
        """Withdraw the task, where it waits; the process of one that runs sees the file."""
        if not began:
            self.kill()

    def kill(self) -> None:
        """Withdraw the task; one that runs looks for a file, and ends its process."""
        self._withdrawn = True
        with contextlib.suppress(Exception):
            self._future.cancel()


def run_worker(path: str, num_threads: int | None, environment: dict[str, str]) -> int:
    """A task: do a job in a process of its own, which ends with this one; returns its exit code."""
    try:
        return attend(LocalHandle(Path(path), num_threads, environment), Path(path))
    except BenchmarkError as error:
        raise RuntimeError(str(error)) from None


def _one_line(error: BaseException | None) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
