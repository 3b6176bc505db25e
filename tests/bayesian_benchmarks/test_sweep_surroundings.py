"""What a sweep makes of errors that are no results: a full disk, memory, kills, damaged checkpoints."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_sweep import (  # noqa: F401  (fixtures among them)
    experiment,
    numbers,
    plugin_is_found,
    store,
    sweep_process,
    unbroken,
    wait_for,
)

from bayesian_benchmarks import ResultsStore, Settings, expand, run_experiment
from bayesian_benchmarks.errors import BenchmarkError
from bayesian_benchmarks.sweep import worker
from bayesian_benchmarks.sweep.progress import SweepProgress
from bayesian_benchmarks.sweep.run import Run
from bayesian_benchmarks.sweep.worker import Step

Numbers = list[tuple[Any, ...]]


@pytest.mark.parametrize("kind", ["full-disk", "memory"])
def test_errors_of_the_surroundings_are_no_rows(
    store: ResultsStore,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unbroken: Numbers,  # noqa: F811
    kind: str,
) -> None:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("FAKE_ERROR", kind)
    monkeypatch.setenv("FAKE_ERROR_AT", "20")
    report = run_experiment(experiment(), store, jobs=0, progress=False)
    assert (report.num_ok, report.num_failed, report.num_interrupted) == (0, 0, 2)
    assert store.rows() == []
    assert len(list(store.path.parent.glob("*/checkpoint/state.json"))) == 2
    monkeypatch.delenv("FAKE_ERROR_AT")
    assert run_experiment(experiment(), store, jobs=0, progress=False).num_ok == 2
    assert numbers(store) == unbroken
    assert (tmp_path / "log").read_text().count("start 21") == 2


def test_three_in_a_row_stop_the_sweep(
    store: ResultsStore,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAKE_ERROR", "full-disk")
    monkeypatch.setenv("FAKE_ERROR_AT", "5")
    with pytest.raises(
        BenchmarkError, match=r"3 runs in a row .* No space left on device"
    ) as caught:
        run_experiment(experiment(splits=[0, 1, 2], seeds=[0, 1]), store, jobs=0, progress=False)
    assert "\n" not in str(caught.value)
    assert len(list(store.path.parent.glob("*/checkpoint/state.json"))) == 3


def test_a_damaged_checkpoint_starts_the_run_afresh(
    store: ResultsStore,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    unbroken: Numbers,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    for run in expand(experiment(splits=[0])):
        checkpoint = store.path.parent / run.directory_name / "checkpoint" / "state.json"
        checkpoint.parent.mkdir(parents=True)
        checkpoint.write_text("[12, 0.")
    run_experiment(experiment(splits=[0]), store, jobs=0)
    first, *_ = capsys.readouterr().err.splitlines()[0:1]
    assert "starts afresh (UnusableCheckpoint: checkpoint state.json cannot be read)" in first
    assert numbers(store) == unbroken[:1]


SITE = """
import os, signal, sys
from pathlib import Path
marker = Path(os.environ["FAKE_MARKER"])
if "bayesian_benchmarks.worker" in sys.orig_argv and not marker.exists():
    if os.environ["FAKE_AT_START"] == "once":
        marker.touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("times", ["once", "always"])
def test_a_worker_that_is_killed_before_it_spoke_is_tried_again_once(
    store: ResultsStore,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unbroken: Numbers,  # noqa: F811
    times: str,
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}{os.pathsep}{os.environ['PYTHONPATH']}")
    monkeypatch.setenv("FAKE_MARKER", str(tmp_path / "marker"))
    monkeypatch.setenv("FAKE_AT_START", times)
    run_experiment(experiment(splits=[0]), store, jobs=1, progress=False)
    if times == "once":
        assert numbers(store) == unbroken[:1]
    else:
        (row,) = store.rows("failed")
        assert row.error == "The worker process died (signal 9); out of memory?"


def test_a_run_that_takes_too_long_is_stopped_with_a_checkpoint(
    store: ResultsStore,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    unbroken: Numbers,  # noqa: F811
) -> None:
    monkeypatch.setenv("FAKE_STEP_SECONDS", "0.3")
    sweep = experiment(splits=[0])
    report = run_experiment(sweep, store, jobs=1, max_run_seconds=3.0, progress=False)
    assert report.num_failed == 1
    assert "longer than the limit of 3 seconds; its checkpoint is kept" in store.rows()[0].error
    monkeypatch.setenv("FAKE_STEP_SECONDS", "0")
    run_experiment(sweep, store, jobs=1, retry_failed=True, progress=False)
    assert numbers(store) == unbroken[:1]


def test_a_failure_of_another_sweep_is_a_failure_and_is_not_done_twice(
    store: ResultsStore,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if another sweep had done the run between our looking what is due and our lock."""
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    sweep = experiment(models=["fake-broken"], splits=[0])
    run_experiment(sweep, store, jobs=0, progress=False)
    (row,) = store.rows()
    again = replace(row, recorded_at="2030-01-01T00:00:00.000+00:00")
    found = store.find

    def find(key: Any) -> Any:
        store.add(again, replace=True)
        return found(key)

    monkeypatch.setattr(store, "find", find)
    report = run_experiment(sweep, store, jobs=0, retry_failed=True, progress=False)
    assert (report.num_failed, report.num_elsewhere) == (1, 1)
    assert store.rows() == [again]


def test_scores_again_without_training(
    store: ResultsStore,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    sweep = experiment()
    run_experiment(sweep, store, jobs=0, progress=False)
    before = {row.key: row for row in store.rows()}
    started = (tmp_path / "log").read_text()
    fewer = sweep.override(settings=Settings(num_steps=30, test_samples=3, elbo_samples=5))
    # Another number of test samples is no other run.
    assert run_experiment(fewer, store, jobs=0, progress=False).num_stored_before == 2
    assert store.rows() == list(before.values())
    report = run_experiment(fewer, store, jobs=0, rescore=True, progress=False)
    assert (report.num_ok, report.num_failed) == (2, 0)
    for row in store.rows():
        old = before[row.key]
        assert row.metrics["num_components"] == 3
        assert row.metrics["mean_1"] == pytest.approx(old.metrics["mean_1"], abs=1e-7)
        assert row.metrics["seconds"] == old.metrics["seconds"]
        assert '"test_samples": 3' in row.evaluation
    assert (tmp_path / "log").read_text() == started
    # More than were kept need the model.
    more = sweep.override(settings=Settings(num_steps=30, test_samples=7))
    report = run_experiment(more, store, jobs=0, rescore=True, progress=False)
    assert (report.num_ok, report.num_failed) == (0, 2)
    assert all(row.metrics["num_components"] == 3 for row in store.rows("ok"))


def test_a_kept_model_gives_more_samples(
    store: ResultsStore,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    sweep = experiment(splits=[0])
    run_experiment(sweep, store, jobs=0, keep_models=True, progress=False)
    more = sweep.override(settings=Settings(num_steps=30, test_samples=7, elbo_samples=5))
    report = run_experiment(more, store, jobs=0, rescore=True, progress=False)
    assert (report.num_ok, report.num_failed) == (1, 0)
    (row,) = store.rows()
    fresh = ResultsStore(tmp_path / "fresh" / "results.sqlite")
    run_experiment(more, fresh, jobs=0, progress=False)
    assert row.metrics == fresh.rows()[0].metrics
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines == ["start 0", "end 30", "start 30", "end 30", "start 0", "end 30"]


def test_rows_of_other_code_are_done_again_on_demand(
    store: ResultsStore,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_experiment(experiment(), store, jobs=0, progress=False)
    first, second = store.rows()
    store.add(replace(first, fingerprint="0" * 12), replace=True)
    report = run_experiment(experiment(), store, jobs=0, redo_changed=True, progress=False)
    assert (report.num_ok, report.num_stored_before) == (1, 1)
    assert [row.fingerprint for row in store.rows()] == [first.fingerprint, second.fingerprint]
    # A run that fails now takes nothing away.
    store.add(replace(first, fingerprint="0" * 12), replace=True)
    monkeypatch.setattr(worker, "_measured", lambda *_: 1 / 0)
    report = run_experiment(experiment(), store, jobs=0, redo_changed=True, progress=False)
    assert report.num_failed == 1
    assert [row.status for row in store.rows()] == ["ok", "ok"]


def test_a_run_that_two_versions_have_trained_says_so(
    store: ResultsStore,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAKE_ERROR", "full-disk")
    monkeypatch.setenv("FAKE_ERROR_AT", "20")
    monkeypatch.setattr(worker, "fingerprint", lambda: "a" * 12)
    run_experiment(experiment(splits=[0]), store, jobs=0, progress=False)
    monkeypatch.delenv("FAKE_ERROR_AT")
    monkeypatch.setattr(worker, "fingerprint", lambda: "b" * 12)
    run_experiment(experiment(splits=[0]), store, jobs=0, progress=False)
    assert store.rows()[0].fingerprint == f"{'a' * 12}+{'b' * 12}"


CLAIM = """
import os, signal, sys
from pathlib import Path
from bayesian_benchmarks.sweep.locks import RunLock
RunLock(Path(sys.argv[1])).acquire()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_kill_left_of_a_finished_run_is_swept(store: ResultsStore) -> None:  # noqa: F811
    run_experiment(experiment(splits=[0]), store, jobs=0, progress=False)
    (run,) = expand(experiment(splits=[0]))
    folder = store.path.parent / run.directory_name
    (folder / "checkpoint").mkdir()
    (folder / "log.txt").write_text("")
    (folder / "predictions.partial").write_text("")
    run_experiment(experiment(splits=[0]), store, jobs=0, progress=False)
    assert os.listdir(folder) == ["predictions.npz"]
    killed = subprocess.Popen([sys.executable, "-c", CLAIM, str(folder / "lock")])
    killed.wait()
    assert (folder / "lock").exists()
    run_experiment(experiment(splits=[0]), store, jobs=0, progress=False)
    assert os.listdir(folder) == ["predictions.npz"]
    with np.load(folder / "predictions.npz") as kept:
        assert {array.dtype for array in kept.values()} == {np.dtype("float32")}
        assert {array.shape for array in kept.values()} == {(5, 3, 1)}


def test_scores_of_other_code_than_the_trainings_say_so(
    store: ResultsStore,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_experiment(experiment(splits=[0]), store, jobs=0, progress=False)
    (row,) = store.rows()
    monkeypatch.setattr(worker, "fingerprint", lambda: "b" * 12)
    run_experiment(experiment(splits=[0]), store, jobs=0, rescore=True, progress=False)
    assert store.rows()[0].fingerprint == f"{row.fingerprint}+{'b' * 12}"


def test_a_run_that_does_not_stop_is_ended(
    store: ResultsStore,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAKE_STEP_SECONDS", "60")
    monkeypatch.setattr("bayesian_benchmarks.sweep.coordinator.STOP_SECONDS", 0.5)
    report = run_experiment(
        experiment(splits=[0]), store, jobs=1, max_run_seconds=2.0, progress=False
    )
    assert report.num_failed == 1
    assert "longer than the limit of 2 seconds" in store.rows()[0].error


@pytest.fixture
def lingering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a worker that ends late, while another goes on."""
    folder = tmp_path / "lingering"
    folder.mkdir()
    monkeypatch.setenv("FAKE_LINGER", str(folder))
    monkeypatch.setenv("FAKE_STEP_SECONDS", "0.2")
    return folder


def hear(monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
    """Do something at each step that the coordinator hears of."""
    step = SweepProgress.step

    def heard(self: SweepProgress, run: Run, done: Step) -> None:
        step(self, run, done)
        then()

    monkeypatch.setattr(SweepProgress, "step", heard)


def test_the_others_are_heard_while_a_worker_ends(
    store: ResultsStore,  # noqa: F811
    lingering: Path,
    monkeypatch: pytest.MonkeyPatch,
    unbroken: Numbers,  # noqa: F811
) -> None:
    def release() -> None:
        if (lingering / "lingers").exists():
            (lingering / "release").touch()

    hear(monkeypatch, release)
    run_experiment(experiment(), store, jobs=2, progress=False)
    assert (lingering / "release").exists()
    assert not (lingering / "gave-up").exists()
    assert numbers(store) == unbroken


def test_what_was_done_before_an_interrupt_is_stored(
    store: ResultsStore,  # noqa: F811
    lingering: Path,
    monkeypatch: pytest.MonkeyPatch,
    unbroken: Numbers,  # noqa: F811
) -> None:
    def interrupt() -> None:
        if (lingering / "lingers").exists():
            assert store.rows() == []
            (lingering / "release").touch()
            raise KeyboardInterrupt

    hear(monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment(), store, jobs=2, progress=False)
    (row,) = numbers(store)
    assert row in unbroken
