"""Sweeps on other engines than processes of this one: the same rows, whatever of it is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from test_sweep import (  # noqa: F401  (fixtures among them)
    experiment,
    numbers,
    plugin_is_found,
    store,
    unbroken,
    wait_for,
)
from test_sweep_surroundings import hear

from bayesian_benchmarks import ResultsStore, run_experiment
from bayesian_benchmarks.errors import ConfigError
from bayesian_benchmarks.sweep import DaskEngine, SlurmEngine, SweepReport
from bayesian_benchmarks.sweep.engines import EngineLost

Numbers = list[tuple[Any, ...]]


class Cluster:
    """A Dask scheduler and two workers, processes of their own, for all tests here.

    Trainings note in the file `log` that they start and end, and stand at step 20 while there is `hold`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.log, self.hold = folder / "log", folder / "hold"
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start what of it is not alive."""
        self.log.unlink(missing_ok=True)
        self.hold.unlink(missing_ok=True)
        if self.scheduler is None or self.scheduler.poll() is not None:
            self.close()
            file = self._folder / f"scheduler-{time.time_ns()}.json"
            self.scheduler = self._start("scheduler", "--port", "0", "--scheduler-file", str(file))
            # The scheduler makes the file first and fills it then.
            wait_for(lambda: file.exists() and file.read_text().rstrip().endswith("}"))
            self.address: str = json.loads(file.read_text())["address"]
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        while len(self.workers) < 2:
            self.workers.append(
                self._start("worker", self.address, "--nthreads", "1", "--no-nanny")
            )

    def starts(self) -> list[int]:
        """The steps from which trainings have started."""
        return [int(line.split()[1]) for line in self._lines() if line.startswith("start")]

    def num_ended(self) -> int:
        """Trainings that have ended."""
        return sum(line.startswith("end") for line in self._lines())

    def do(self, store: ResultsStore, **options: Any) -> SweepReport:  # noqa: F811
        """The sweep on this cluster."""
        engine = DaskEngine(self.address)
        engine.grace_seconds = 1.0  # this machine's files are seen at once
        try:
            wait_for(lambda: engine.num_slots >= 2)
            return run_experiment(experiment(), store, engine=engine, progress=False, **options)
        finally:
            engine.close()

    def close(self) -> None:
        for process in [*self.workers, *([self.scheduler] if self.scheduler else [])]:
            process.kill()
            process.wait()

    def _lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def _start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._folder / "dask.txt").open("ab") as output:
            return subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    f"distributed.cli.dask_{program}",
                    "--no-dashboard",
                    *arguments,
                ],
                cwd=self._folder,
                stdout=output,
                stderr=output,
                env=os.environ | {"FAKE_LOG": str(self.log), "FAKE_HOLD": str(self.hold)},
            )


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    pytest.importorskip("distributed")
    found = Cluster(tmp_path_factory.mktemp("dask"))
    yield found
    found.close()


@pytest.fixture
def cluster(dask: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    dask.start()
    for name, path in (("FAKE_LOG", dask.log), ("FAKE_HOLD", dask.hold)):
        monkeypatch.setenv(name, str(path))  # of what is not on the cluster
    return dask


def at_step(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, do: Callable[[], None]) -> None:
    """Do something once, when two runs stand at step 20 or before it, and let them go on."""
    cluster.hold.touch()

    def then() -> None:
        if cluster.hold.exists() and len(cluster.starts()) >= 2:
            do()
            cluster.hold.unlink()

    hear(monkeypatch, then)


def test_a_cluster_gives_the_rows_of_this_machine(
    cluster: Cluster,
    store: ResultsStore,  # noqa: F811
    unbroken: Numbers,  # noqa: F811
) -> None:
    report = cluster.do(store)
    assert (report.num_ok, report.num_failed) == (2, 0)
    assert numbers(store) == unbroken
    assert [row.threads for row in store.rows()] == [1, 1]
    assert len(cluster.starts()) == 2


def children(process: int) -> list[int]:
    """Numbers of the processes that a process has started, from whatever thread."""
    found = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        found += [int(word) for word in path.read_text().split()]
    return found


def processes(*words: str) -> list[int]:
    """Numbers of the processes with these in their commands."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if all(word in path.read_bytes().decode() for word in words):
                found.append(int(path.parent.name))
    return found


def test_a_killed_run_harms_no_other(
    cluster: Cluster,
    store: ResultsStore,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    unbroken: Numbers,  # noqa: F811
) -> None:
    """It is a failure that is taken up from where it was."""

    def kill() -> None:
        (process,) = processes("bayesian_benchmarks.worker", str(store.path.parent), "split0")
        os.kill(process, signal.SIGKILL)

    at_step(monkeypatch, cluster, kill)
    report = cluster.do(store)
    assert (report.num_ok, report.num_failed) == (1, 1)
    assert store.rows("failed")[0].error == "The worker process died (signal 9); out of memory?"
    assert cluster.do(store, retry_failed=True).num_ok == 1
    assert numbers(store) == unbroken
    assert cluster.num_ended() == 2


def test_runs_of_killed_dask_workers_are_done_by_others(
    cluster: Cluster,
    store: ResultsStore,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    unbroken: Numbers,  # noqa: F811
) -> None:
    def kill() -> None:
        (run,) = children(cluster.workers[0].pid)
        cluster.workers[0].kill()
        wait_for(lambda: not Path(f"/proc/{run}").exists())

    at_step(monkeypatch, cluster, kill)
    assert cluster.do(store).num_ok == 2
    assert numbers(store) == unbroken
    assert len(cluster.starts()) == 3  # one run was begun twice, and none ended twice
    assert cluster.num_ended() == 2


COORDINATOR = """
import sys
from test_engines import DaskEngine
from test_sweep import ResultsStore, experiment, run_experiment
if __name__ == "__main__":
    run_experiment(experiment(), ResultsStore(sys.argv[1]), engine=DaskEngine(sys.argv[2]), progress=False)
"""


def test_a_killed_sweep_is_gone_on_with(
    cluster: Cluster,
    store: ResultsStore,  # noqa: F811
    unbroken: Numbers,  # noqa: F811
) -> None:
    """Its runs go on without it, and the next sweep takes in what they end with."""
    cluster.hold.touch()
    first = subprocess.Popen([sys.executable, "-c", COORDINATOR, str(store.path), cluster.address])
    wait_for(lambda: len(cluster.starts()) == 2)
    first.kill()
    first.wait()
    cluster.hold.unlink()
    assert cluster.do(store).num_ok == 2
    assert numbers(store) == unbroken
    assert cluster.starts() == [0, 0]
    assert cluster.num_ended() == 2


def test_a_killed_scheduler_ends_the_sweep_and_loses_nothing(
    cluster: Cluster,
    store: ResultsStore,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    unbroken: Numbers,  # noqa: F811
) -> None:
    def kill() -> None:
        assert cluster.scheduler is not None
        cluster.scheduler.kill()

    at_step(monkeypatch, cluster, kill)
    with pytest.raises(EngineLost, match="The Dask scheduler is gone; what is finished is stored"):
        cluster.do(store)
    assert run_experiment(experiment(), store, jobs=2, progress=False).num_elsewhere == 0
    assert numbers(store) == unbroken
    assert cluster.num_ended() == 2


def test_a_cluster_of_this_process(store: ResultsStore, unbroken: Numbers) -> None:  # noqa: F811
    pytest.importorskip("distributed")
    engine = DaskEngine(jobs=2)
    assert str(engine).startswith("Dask: 2 threads of 1 workers")
    assert run_experiment(experiment(), store, engine=engine, progress=False).num_ok == 2
    engine.close()
    assert numbers(store) == unbroken


def test_a_preempted_job_of_slurm_is_queued_again_and_goes_on(
    store: ResultsStore,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unbroken: Numbers,  # noqa: F811
) -> None:
    """By submitit's executor for one machine, which gets the signal that Slurm sends."""
    pytest.importorskip("submitit")
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("FAKE_STEP_SECONDS", "0.1")
    engine = SlurmEngine(tmp_path / "slurm", jobs=2, minutes=60, cluster="local")
    engine.poll_seconds = 0.1
    preempted: list[int] = []

    def preempt() -> None:
        if not preempted and list(store.path.parent.glob("*split0*/checkpoint/state.json")):
            for controller in processes("submitit.local._local", str(tmp_path / "slurm")):
                for job in children(controller):
                    preempted.append(job)
                    os.kill(job, signal.SIGUSR2)

    hear(monkeypatch, preempt)
    report = run_experiment(experiment(splits=[0]), store, engine=engine, progress=False)
    assert (report.num_ok, report.num_interrupted) == (1, 0)
    assert preempted
    assert numbers(store) == unbroken[:1]
    first, *others = [
        line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("start")
    ]
    assert first == "start 0"
    assert others
    assert others[-1] != "start 0"


def test_without_an_engine_a_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"--slurm: Could not detect .srun."):
        SlurmEngine("slurm")
    for name in ("distributed", "submitit"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=r"pip install 'gpflow-dkp\[cluster\]'"):
        DaskEngine()
    with pytest.raises(ConfigError, match=r"pip install 'gpflow-dkp\[slurm\]'"):
        SlurmEngine("slurm")
