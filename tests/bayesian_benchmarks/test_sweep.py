"""Sweeps: every run once, whatever is killed, fails, or runs beside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bayesian_benchmarks import Experiment, ResultsStore, Settings, expand, run_experiment
from bayesian_benchmarks.datasets import table
from bayesian_benchmarks.errors import BenchmarkError, DataFileError
from bayesian_benchmarks.store import ResultRow
from bayesian_benchmarks.sweep import Again, due_runs
from bayesian_benchmarks.sweep.environment import available_cores

HERE = Path(__file__).resolve().parent


@pytest.fixture(autouse=True)
def plugin_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    path = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    monkeypatch.syspath_prepend(HERE)


@pytest.fixture
def store(tmp_path: Path) -> ResultsStore:
    return ResultsStore(tmp_path / "runs" / "results.sqlite")


def experiment(**changes: Any) -> Experiment:
    base = Experiment(
        task="fake",
        models=("fake",),
        datasets=("fake-data",),
        splits=(0, 1),
        depths=(2,),
        settings=Settings(num_steps=30, test_samples=5, elbo_samples=5),
        plugins=("fake_models",),
    )
    return base.override(**changes)


def numbers(store: ResultsStore) -> list[tuple[Any, ...]]:
    """What must not depend on how the rows came about: keys and scores without times."""
    timing = {"seconds", "seconds_per_step", "epoch_seconds"}
    return [
        (*row.key, row.status, {k: v for k, v in row.metrics.items() if k not in timing})
        for row in store.rows()
    ]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    """Scores of the experiment done in this process without a break."""
    sys.path.insert(0, str(HERE))
    store = ResultsStore(tmp_path_factory.mktemp("unbroken") / "results.sqlite")
    run_experiment(experiment(), store, jobs=0, progress=False)
    return numbers(store)


@pytest.mark.parametrize("jobs", [0, 2])
def test_every_run_is_stored_once(
    store: ResultsStore, unbroken: list[tuple[Any, ...]], jobs: int
) -> None:
    report = run_experiment(experiment(), store, jobs=jobs, progress=False)
    assert (report.num_ok, report.num_failed, report.num_stored_before) == (2, 0, 0)
    assert numbers(store) == unbroken
    row = store.rows()[0]
    assert (row.depth, row.status, row.error) == (2, "ok", "")
    assert "numpy" in row.versions
    assert "cores" in row.hardware
    assert row.recorded_at.startswith("20")
    assert (row.threads, len(row.fingerprint)) == (
        available_cores() if jobs == 0 else row.threads,
        12,
    )
    assert row.history == {}
    folders = [path for path in store.path.parent.iterdir() if path.is_dir()]
    assert sorted(path.name for folder in folders for path in folder.iterdir()) == [
        "predictions.npz",
        "predictions.npz",
    ]


def test_what_is_stored_is_not_done_again(
    store: ResultsStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    run_experiment(experiment(splits=[0]), store, jobs=0, progress=False)
    report = run_experiment(experiment(), store, jobs=0, progress=False)
    assert (report.num_ok, report.num_stored_before) == (1, 1)
    assert (tmp_path / "log").read_text().count("start 0") == 2


def test_failures_are_stored_and_the_others_go_on(
    store: ResultsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = experiment(models=["fake-broken", "fake-nan", "fake"], splits=[0])
    report = run_experiment(sweep, store, jobs=1, progress=False)
    assert (report.num_ok, report.num_failed) == (1, 2)
    errors = {row.model: row.error for row in store.rows("failed")}
    assert errors["fake-broken"] == "RuntimeError: this model never works"
    assert errors["fake-nan"].startswith("FloatingPointError: elbo_per_point, ")
    logs = list(store.path.parent.glob("*fake-broken*/log.txt"))
    assert "Traceback" in logs[0].read_text()
    assert not list(store.path.parent.glob("*fake-nan*/checkpoint"))

    report = run_experiment(sweep, store, jobs=1, progress=False)
    assert (report.num_ok, report.num_failed, report.num_failed_before) == (0, 0, 2)
    monkeypatch.setenv("FAKE_CURED", "1")
    report = run_experiment(sweep, store, jobs=1, retry_failed=True, progress=False)
    assert (report.num_ok, report.num_failed, report.num_stored_before) == (1, 1, 1)
    assert [row.model for row in store.rows("failed")] == ["fake-broken"]
    (folder,) = store.path.parent.glob("*fake-nan*")
    assert os.listdir(folder) == ["predictions.npz"]


def test_a_killed_worker_is_a_failed_run_that_is_taken_up(
    store: ResultsStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unbroken: list[tuple[Any, ...]],
) -> None:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("FAKE_MARKER", str(tmp_path / "marker"))
    monkeypatch.setenv("FAKE_KILL_AT", "13")
    report = run_experiment(experiment(), store, jobs=1, progress=False)
    assert (report.num_ok, report.num_failed) == (1, 1)
    (failed,) = store.rows("failed")
    assert failed.error == "The worker process died (signal 9); out of memory?"
    report = run_experiment(experiment(), store, jobs=1, retry_failed=True, progress=False)
    assert report.num_ok == 1
    assert numbers(store) == unbroken
    assert (tmp_path / "log").read_text().split("\n")[:2] == ["start 0", "start 0"]
    assert "start 12" in (tmp_path / "log").read_text()


SWEEP = """
import sys
from test_sweep import ResultsStore, experiment, run_experiment
if __name__ == "__main__":
    report = run_experiment(experiment(), ResultsStore(sys.argv[1]), jobs=2, progress=False)
    print(report.num_ok, report.num_elsewhere)
"""


def sweep_process(store: ResultsStore, tmp_path: Path, **environment: str) -> subprocess.Popen:
    script = tmp_path / "sweep.py"
    script.write_text(SWEEP)
    return subprocess.Popen(
        [sys.executable, str(script), str(store.path)],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_an_unguarded_script_is_told_so(store: ResultsStore, tmp_path: Path) -> None:
    script = tmp_path / "sweep.py"
    script.write_text(
        SWEEP.replace('if __name__ == "__main__":', "if True:").replace("jobs=2", "jobs=1")
    )
    done = subprocess.run(
        [sys.executable, str(script), str(store.path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "call run_experiment under `if __name__ == '__main__':`" in done.stderr
    assert store.rows() == []


OWN_MODEL = """
from fake_models import FakeModel, train
from bayesian_benchmarks.models import register_model

@register_model("own", train=train, uses_tensorflow=False)
def build(X, Y, *, depth, settings, seed):
    return FakeModel(len(X), 7)
"""


@pytest.mark.parametrize("as_module", [False, True])
def test_workers_find_the_models_of_the_script(
    store: ResultsStore, tmp_path: Path, as_module: bool
) -> None:
    script = tmp_path / "own_sweep.py"
    script.write_text(OWN_MODEL + SWEEP.replace("experiment()", "experiment(models=['own'])"))
    how = ["-m", script.stem] if as_module else [str(script)]
    done = subprocess.run(
        [sys.executable, *how, str(store.path)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert done.stdout.split() == ["2", "0"], done.stderr


def test_a_script_that_no_worker_can_import_is_told(store: ResultsStore, tmp_path: Path) -> None:
    script = tmp_path / "sweep.py"
    script.write_text(SWEEP + "else:\n    raise RuntimeError('not here')\n")
    done = subprocess.run(
        [sys.executable, str(script), str(store.path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "cannot be imported here (RuntimeError: not here)." in done.stderr.splitlines()[-1]
    assert store.rows() == []


def wait_for(condition: Any, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.02)


def test_a_sweep_killed_at_any_moment_ends_with_the_same_numbers(
    store: ResultsStore, tmp_path: Path, unbroken: list[tuple[Any, ...]]
) -> None:
    log = tmp_path / "log"
    checkpoints = store.path.parent.glob
    killed = sweep_process(store, tmp_path, FAKE_STEP_SECONDS="0.1", FAKE_LOG=str(log))
    wait_for(lambda: list(checkpoints("*/checkpoint/state.json")))
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    started = log.read_text().count("start")
    assert store.rows() == []
    second = sweep_process(store, tmp_path, FAKE_LOG=str(log))
    out, _ = second.communicate(timeout=60)
    assert out.split() == ["2", "0"]
    assert numbers(store) == unbroken
    # The killed sweep's workers ended with it: each run was taken up once and ended once.
    assert log.read_text().count("end 30") == 2
    assert log.read_text().count("start") <= started + 2
    assert any(int(line.split()[1]) > 0 for line in log.read_text().splitlines())


def test_ctrl_c_leaves_no_worker_half_looked_at(
    store: ResultsStore,
    unbroken: list[tuple[Any, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`subprocess` has a lock while it looks, without which no process can be waited for."""
    begun, ended = [], []
    poll = subprocess.Popen.poll

    def poll_with_ctrl_c(process: subprocess.Popen) -> int | None:
        begun.append(process)
        if len(begun) == 20:
            os.kill(os.getpid(), signal.SIGINT)
        ended.append(process)
        return poll(process)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(subprocess.Popen, "poll", poll_with_ctrl_c)
            with pytest.raises(KeyboardInterrupt):
                run_experiment(experiment(), store, jobs=2, progress=False)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(begun) >= 20
    assert begun == ended
    run_experiment(experiment(), store, jobs=0, progress=False)
    assert numbers(store) == unbroken


def test_two_sweeps_on_one_store_share_the_runs(
    store: ResultsStore, tmp_path: Path, unbroken: list[tuple[Any, ...]]
) -> None:
    environment = {"FAKE_STEP_SECONDS": "0.02", "FAKE_LOG": str(tmp_path / "log")}
    sweeps = [sweep_process(store, tmp_path, **environment) for _ in range(2)]
    counts = [list(map(int, sweep.communicate(timeout=60)[0].split())) for sweep in sweeps]
    assert numbers(store) == unbroken
    assert (tmp_path / "log").read_text().count("start") == 2
    # A sweep that began when the other had finished finds nothing due.
    assert sum(ok for ok, _ in counts) == 2
    assert all(sum(count) in (0, 1, 2) for count in counts)


def test_data_are_checked_before_anything_is_trained(store: ResultsStore, tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match="does not exist"):
        run_experiment(experiment(), store, data_dir=tmp_path / "absent", progress=False)
    assert store.rows() == []


def test_jobs_are_checked(store: ResultsStore) -> None:
    with pytest.raises(BenchmarkError, match="jobs is -1"):
        run_experiment(experiment(), store, jobs=-1)


def test_due_runs(store: ResultsStore) -> None:
    runs = expand(experiment(splits=[0, 1, 2]))
    for run, status in zip(runs, ("ok", "failed"), strict=False):
        store.add(ResultRow(*run.key, 2, "{}", status))
    due = due_runs(runs, store)
    assert (due.runs, due.done, due.num_failed) == ([runs[2]], [runs[0]], 1)
    due = due_runs(runs, store, Again(failed=True))
    assert (due.runs, due.num_failed) == (runs[1:], 0)
    assert due.rows[runs[1].key].status == "failed"
    assert due_runs(runs, store, Again(rescore=True)).runs == runs[:1]
    # The rows say nothing of the code that made them.
    assert due_runs(runs, store, Again(changed=True)).runs == runs


def test_lines_tell_the_progress(store: ResultsStore, capsys: pytest.CaptureFixture[str]) -> None:
    run_experiment(experiment(), store, jobs=0)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("[1/2] fake-data split 0 fake depth 2: elbo_per_point -1.")
    assert first.endswith("left")
    assert second.startswith("[2/2] fake-data split 1 ")


@pytest.mark.parametrize("jobs", [0, 1])
def test_a_table_is_read_once_a_sweep(
    store: ResultsStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("a,y\n" + "\n".join(f"{i},{i % 5}" for i in range(20)))
    read, asked = table.read_table, []
    monkeypatch.setattr(table, "read_table", lambda p: asked.append(p) or read(p))
    sweep = experiment(datasets=[], csv=path, splits=[0, 1])

    def and_gone(*arguments: Any) -> None:
        path.unlink()  # what a worker knows of it came with its job

    monkeypatch.setattr("bayesian_benchmarks.sweep.coordinator.check_data", and_gone)
    report = run_experiment(sweep, store, jobs=jobs, progress=False)
    assert (report.num_ok, len(asked)) == (2, 1)


def test_cores_are_those_that_a_container_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joblib.cpu_count", lambda: 3)
    assert available_cores() == 3
