"""The contract between a sweep and a worker: files, written whole, that a worker of other code refuses."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from test_live_view import PROGRAM, folder, on_a_terminal, press_ctrl_c  # noqa: F401  (a fixture)
from test_sweep import (  # noqa: F401  (fixtures among them)
    experiment,
    numbers,
    plugin_is_found,
    store,
    unbroken,
    wait_for,
)
from test_sweep_surroundings import hear

from bayesian_benchmarks import ResultsStore, expand, run_experiment
from bayesian_benchmarks.command_line import run_program
from bayesian_benchmarks.commands import uci
from bayesian_benchmarks.errors import BenchmarkError, StoreError
from bayesian_benchmarks.store import ResultRow
from bayesian_benchmarks.sweep import contract, hand_out
from bayesian_benchmarks.sweep.contract import (
    JobFile,
    Progress,
    package_version,
    read_job_file,
    read_outcome,
    write_job,
    write_outcome,
    write_whole,
)
from bayesian_benchmarks.sweep.job import Interrupted, Job, Notice, RefusedJob, Step
from bayesian_benchmarks.tuning import TrainingPartRun

Numbers = list[tuple[Any, ...]]


def job_of(folder: Path, **changes: Any) -> Job:  # noqa: F811
    (run,) = expand(experiment(splits=[0]))
    return Job(run, folder / run.directory_name, 30.0, None, 1, ("fake_models",), **changes)


def read(path: Path) -> Job:
    file = read_job_file(path)
    file.import_plugins()
    return file.job(path)


def test_a_job_goes_through_its_file(tmp_path: Path) -> None:
    (run,) = expand(experiment(splits=[0]))
    row = ResultRow(*run.key, 2, run.settings_json, metrics={"a": 0.1 + 0.2, "b": 3.0})
    for changes in ({}, {"stored": row, "tensorboard": tmp_path / "boards"}):
        job = job_of(tmp_path, **changes)
        assert read(write_job(job)) == job


def test_a_runs_class_and_table_go_with_it(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("a,y\n" + "\n".join(f"{i / 7},{i % 5}" for i in range(20)))
    (run,) = expand(experiment(datasets=[], csv=table, splits=[0]))
    values = {part.name: getattr(run, part.name) for part in fields(run)}
    part = TrainingPartRun(**values, validation_fraction=0.25)
    plugins = ("fake_models", "bayesian_benchmarks.tuning")
    job = Job(part, tmp_path / "runs" / "one", 30.0, tmp_path, None, plugins)
    path = write_job(job)
    table.unlink()
    found = read(path)
    assert found == job
    assert type(found.run) is TrainingPartRun
    assert found.run.csv is not None
    assert run.csv is not None
    assert found.run.csv.X.tobytes() == run.csv.X.tobytes()
    # Machines may have the folder at different places.
    (tmp_path / "runs").rename(tmp_path / "elsewhere")
    assert read(tmp_path / "elsewhere" / "one" / "job.json").run == part


def test_a_job_cut_short_anywhere_is_one_line(tmp_path: Path) -> None:
    path = write_job(job_of(tmp_path))
    text = path.read_text()
    for size in range(0, len(text) - 1, 7):
        path.write_text(text[:size])
        with pytest.raises(RefusedJob, match="is no job's file, or is cut short") as caught:
            read_job_file(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_threads": "two"}, "num_threads: Input should be a valid integer"),
        ({"more": 1}, "more: Extra inputs are not permitted"),
        ({"key": "0" * 16}, "settings are read otherwise here than by the sweep"),
    ],
)
def test_a_job_that_is_changed_is_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = write_job(job_of(tmp_path))
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RefusedJob, match=message):
        read(path)


def worker(path: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bayesian_benchmarks.worker", str(path)],
        env=os.environ | environment,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def test_a_worker_of_another_version_says_which(tmp_path: Path) -> None:
    path = write_job(job_of(tmp_path))
    path.write_text(path.read_text().replace(package_version(), "gpflow-dkp 9.9, code 0a1b2c"))
    done = worker(path)
    _, err = done.communicate(timeout=60)
    assert done.returncode == 2
    assert err.startswith(
        f"bayesian_benchmarks.worker: {path} is a job of gpflow-dkp 9.9, code 0a1b2c; "
    )
    assert f"this worker has {package_version()}: install one version for both" in err
    assert err.count("\n") == 1


def test_a_sweep_ends_where_its_workers_are_of_another_version(
    store: ResultsStore,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = package_version()
    monkeypatch.setattr(contract, "package_version", lambda: "gpflow-dkp 9.9, code 0a1b2c")
    with pytest.raises(
        BenchmarkError, match=r"is a job of gpflow-dkp 9\.9, code 0a1b2c; "
    ) as caught:
        run_experiment(experiment(), store, jobs=1, progress=False)
    assert f"this worker has {here}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert store.rows() == []


def test_another_plugin_than_the_sweeps_is_refused(
    store: ResultsStore,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where machines have different versions of a user's own file."""
    ((command,), _) = hand_out(experiment(splits=[0]), store, progress=False)
    (tmp_path / "other").mkdir()
    text = (Path(__file__).parent / "fake_models.py").read_text()
    (tmp_path / "other" / "fake_models.py").write_text(text + "# changed\n")
    path = f"{tmp_path / 'other'}{os.pathsep}{os.environ['PYTHONPATH']}"
    done = subprocess.run(
        command, shell=True, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    with pytest.raises(BenchmarkError, match="The plugin of fake has code") as caught:
        raise BenchmarkError(str(read_outcome(Path(shlex.split(command)[-1]).parent)))
    assert "copy one to the other" in str(caught.value)


def test_commands_are_run_anywhere_and_their_rows_are_taken_in(
    store: ResultsStore,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unbroken: Numbers,  # noqa: F811
) -> None:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    commands, report = hand_out(experiment(), store, progress=False)
    assert (len(commands), report.num_ok) == (2, 0)
    # One that is interrupted, by hand or by what runs it, goes on from its checkpoint.
    path = Path(shlex.split(commands[0])[-1])
    interrupted = worker(path, FAKE_STEP_SECONDS="0.1")
    wait_for(lambda: (path.parent / "checkpoint" / "state.json").exists())
    interrupted.send_signal(signal.SIGINT)
    assert interrupted.wait(30) == 1
    assert read_outcome(path.parent) == Interrupted("stopped")
    running = [subprocess.Popen(command, shell=True) for command in [*commands, commands[0]]]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert store.rows() == []  # the sweep alone writes there
    assert subprocess.run(commands[0], shell=True).returncode == 0  # it is done
    assert (tmp_path / "log").read_text().count("end 30") == 2
    commands, report = hand_out(experiment(), store, progress=False)
    assert (commands, report.num_ok, report.num_elsewhere) == ([], 2, 0)
    assert numbers(store) == unbroken
    assert [path.name for path in store.path.parent.glob("*/*")] == ["predictions.npz"] * 2


def test_a_command_at_work_is_waited_for(
    store: ResultsStore,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unbroken: Numbers,  # noqa: F811
) -> None:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    commands, _ = hand_out(experiment(), store, progress=False)
    slow = worker(Path(shlex.split(commands[0])[-1]), FAKE_STEP_SECONDS="0.1")
    wait_for(lambda: (tmp_path / "log").exists())
    left, report = hand_out(experiment(), store, progress=False)
    assert (left, report.num_elsewhere) == ([commands[1]], 1)
    report = run_experiment(experiment(), store, jobs=1, progress=False)
    assert slow.wait(30) == 0
    assert report.num_ok == 2
    assert numbers(store) == unbroken
    assert (tmp_path / "log").read_text().count("start") == 2


def test_a_row_that_cannot_be_written_is_no_result(
    store: ResultsStore,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    monkeypatch.setenv("FAKE_HOLD", str(hold))
    (run,) = expand(experiment(splits=[0]))

    def in_the_way() -> None:
        if hold.exists():
            (store.path.parent / run.directory_name / "outcome.json").mkdir()
            hold.unlink()

    hear(monkeypatch, in_the_way)
    report = run_experiment(experiment(splits=[0]), store, jobs=1, progress=False)
    assert (report.num_interrupted, store.rows()) == (1, [])
    assert list(store.path.parent.glob("*/checkpoint/state.json"))


def test_progress_says_what_is_new() -> None:
    first = Progress(Step(3, -2.0), (Step(3, -2.0),), ("a",))
    second = Progress(Step(9, -1.0), (Step(3, -2.0), Step(6, -1.5)), ("a", "b"))
    assert list(first.after(None)) == [Notice("a"), Step(3, -2.0)]
    assert list(second.after(first)) == [Notice("b"), Step(6, -1.5), Step(9, -1.0)]
    assert list(second.after(second)) == []


def test_an_outcome_goes_through_its_file(tmp_path: Path) -> None:
    row = ResultRow("fake", "a", 0, "b", "c", 1, 2, "{}", history={"elbo": [0.1 + 0.2]})
    for outcome in (row, Interrupted("stopped")):
        write_outcome(tmp_path, outcome)
        assert read_outcome(tmp_path) == outcome
    for text in ("", "{", "[]", '{"row": {}}', '{"row": {"more": 1}}', '{"x": 1}'):
        (tmp_path / "outcome.json").write_text(text)
        assert read_outcome(tmp_path) is None


def test_a_file_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_whole(tmp_path / "a.json", "1")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "a.json", "2", durable=True)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["1"]
    with pytest.raises(StoreError, match=r"Cannot write .*job.json \(No space left on device\)"):
        write_job(job_of(tmp_path))


def test_the_jobs_file_has_no_more_than_it_says(tmp_path: Path) -> None:
    path = write_job(job_of(tmp_path))
    assert set(json.loads(path.read_text())) == set(JobFile.model_fields)


def test_an_interrupted_sweep_leaks_nothing(folder: Path) -> None:  # noqa: F811
    """A worker that makes a lock, as tqdm does, tells no tracker that the sweep has too."""
    sweep = ["-c", PROGRAM, "--plugin", "fake_models", "--splits", "0-1", "--jobs", "2"]
    changes = {"FAKE_STEP_SECONDS": "0.3", "FAKE_SEMAPHORE": "1"}
    code, seen = on_a_terminal(sweep, "[4-9] of 30", press_ctrl_c, **changes)
    assert code == 130, seen
    assert "leaked" not in seen


def bench(*words: str) -> int:
    """`dkp-bench` of the fake task, in this process."""
    here = Path(__file__).parent
    names = {"config": "fake", "config_of_datasets": "fake"}
    fake = replace(uci.PROGRAM, task="fake", configs=here, **names)
    return run_program(fake, ["--plugin", "fake_models", "--splits", "0-1", *words])


def test_the_command_line_prints_commands_and_takes_rows_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert bench("--print-commands", "--threads", "3") == 0
    out, err = capsys.readouterr()
    assert err == "2 runs to do, 0 taken into runs/results.sqlite\n"
    first, second = out.splitlines()
    for command in (first, second):
        assert command.startswith(f"cd {tmp_path} && ")
        assert "-m bayesian_benchmarks.worker" in command
    assert subprocess.run(first, shell=True, cwd="/").returncode == 0
    assert bench("--print-commands", "--quiet") == 0
    assert capsys.readouterr().out == f"{second}\n"
    (row,) = ResultsStore("runs/results.sqlite").rows()
    assert row.threads == 3
    assert bench() == 0  # and does what is left
    assert "1 runs were in runs/results.sqlite already" in capsys.readouterr().err
    assert len(ResultsStore("runs/results.sqlite").rows("ok")) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--threads", "0"], "--threads is 0; it must be at least 1."),
        (["--slurm-partition", "cpu"], "--slurm-partition is of --slurm, which is not given."),
        (["--slurm", "--slurm-option", "mem"], "--slurm-option: 'mem' is not NAME=VALUE."),
        (["--print-commands", "--max-run-seconds", "9"], "--max-run-seconds is no part of --pri"),
        (["--dask", "no://where"], "--dask no://where: no scheduler answers there ("),
    ],
)
def test_bad_engines_are_one_line(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert bench(*words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"dkp-bench uci: {message}")
    assert err.count("\n") == 1
