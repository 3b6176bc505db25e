"""The live view of a sweep: what it says of runs, and that it leaves a terminal as it found it."""

from __future__ import annotations

import io
import json
import math
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from test_sweep import experiment, plugin_is_found  # noqa: F401  (a fixture)

from bayesian_benchmarks import Experiment, ResultsStore, Settings, expand, run_experiment
from bayesian_benchmarks.sweep.pace import SECONDS, Pace
from bayesian_benchmarks.sweep.progress import SweepProgress
from bayesian_benchmarks.sweep.run import Run
from bayesian_benchmarks.sweep.state import RunState, SweepState
from bayesian_benchmarks.sweep.table import table_of
from bayesian_benchmarks.sweep.worker import Job, Step, do_job

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
"""What makes a terminal's cursor go and come back."""

STATE = SweepState(
    num_runs=10,
    num_ended=3,
    num_failed=1,
    num_interrupted=0,
    running=(
        RunState("boston split 0 dgp depth 2", 500, 2000, -1.25, 50.0, 30.0),
        RunState("yacht [0] svgp", 0, 2000),
        RunState("wine split 1 svgp", 2000, 2000, -0.5, 80.0, 0.0),
    ),
    part=0.4,
    seconds_left=600.0,
)


def make(split: int, num_steps: int = 1000) -> Run:
    settings = Settings(num_steps=num_steps)
    return Run("regression", "boston", split, "svgp", 1, 0, settings)


def test_a_states_lines_say_all_that_is_known() -> None:
    assert list(STATE.lines()) == [
        "3 of 10 runs, 1 failed; about 10 min left",
        "  boston split 0 dgp depth 2: step 500 of 2000, bound -1.2500, 50 steps a second, about 30 s left",
        "  yacht [0] svgp: step 0 of 2000",
        "  wine split 1 svgp: step 2000 of 2000, bound -0.5000, 80 steps a second, being scored",
    ]


def test_a_state_goes_through_json() -> None:
    assert SweepState.from_json(json.loads(json.dumps(STATE.as_json()))) == STATE
    with pytest.raises((TypeError, KeyError)):
        SweepState.from_json({"num_runs": 3, "running": []})


def test_the_table_has_a_line_a_run_above_the_total() -> None:
    console = Console(file=io.StringIO(), width=100)
    console.print(table_of(STATE))
    assert isinstance(console.file, io.StringIO)
    header, *runs, total = console.file.getvalue().splitlines()
    assert header.split() == ["run", "step", "bound", "steps/s", "left"]
    cells = [re.split(r"\s{2,}", line.strip()) for line in runs]
    assert cells == [
        ["boston split 0 dgp depth 2", "500 of 2000", "-1.2500", "50", "30 s"],
        ["yacht [0] svgp", "0 of 2000", "-", "-", "-"],
        ["wine split 1 svgp", "2000 of 2000", "-0.5000", "80", "scores"],
    ]
    assert total.endswith("3 of 10 runs, 1 failed; about 10 min left")


def test_a_pace_is_of_the_last_minute_without_the_start() -> None:
    now = [0.0]
    pace = Pace(lambda: now[0])
    pace.add(0)
    now[0] = 20.0  # of compiling
    pace.add(5000)  # from a checkpoint
    assert pace.steps_per_second is None
    now[0] = 22.0
    pace.add(5100)
    assert pace.steps_per_second == 50.0
    for second in range(30, 200, 10):  # slower from now on
        now[0] = float(second)
        pace.add(5100 + second)
    assert pace.steps_per_second == pytest.approx(1.0, abs=10 / SECONDS)
    pace.add(50)  # it starts afresh
    assert pace.steps_per_second is None


def test_a_runs_time_left_is_by_its_own_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    run = make(0)
    progress = SweepProgress([run, make(1)], shown=False)
    monkeypatch.setattr(Pace.__init__, "__defaults__", (lambda: now[0],))
    for second, step in ((0.0, 100), (10.0, 200)):
        now[0] = second
        progress.step(run, Step(step, -1.5))
    (running,) = progress.state.running
    assert running == RunState("boston split 0 svgp depth 1", 200, 1000, -1.5, 10.0, 80.0)
    assert progress.state.part == 0.1


def test_a_training_tells_its_bound(tmp_path: Path) -> None:
    """Of a real model, by `fit`'s callbacks."""
    sweep = Experiment(
        models=("svgp",),
        datasets=("diabetes",),
        splits=(0,),
        depths=(1,),
        settings=Settings(num_steps=60, num_inducing=5, elbo_samples=1, test_samples=2),
    )
    (run,) = expand(sweep)
    told: list[object] = []
    do_job(Job(run, tmp_path / "run", 30.0, None, None, ()), told.append)
    steps = [message for message in told if isinstance(message, Step)]
    assert steps[-1].number == 60
    assert all(step.bound is not None and math.isfinite(step.bound) for step in steps)


def test_only_failures_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = experiment(models=["fake-broken", "fake"], splits=[0])
    store = ResultsStore(tmp_path / "results.sqlite")
    report = run_experiment(sweep, store, jobs=0, progress="failures")
    assert (report.num_ok, report.num_failed) == (1, 1)
    (line,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("[")]
    assert "FAILED: RuntimeError: this model never works" in line


def on_a_terminal(
    arguments: list[str],
    when: str | None = None,
    then: Callable[[int], object] = lambda process: None,
    **environment: str,
) -> tuple[int, str]:
    """The exit code of Python on a terminal of its own, and all that it printed there.

    :param when: a pattern of what it prints there when something is to be done. A view that is behind
        leaves steps out, so that no single step is sure to be shown.
    :param then: what, given the number of its process and of its workers' group.
    """
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "40"} | environment,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    os.close(theirs)
    seen, deadline = b"", time.monotonic() + 120
    try:
        while time.monotonic() < deadline:
            if select.select([ours], [], [], 1.0)[0]:
                try:
                    part = os.read(ours, 65536)
                except OSError:  # the other end is closed
                    break
                if not part:
                    break
                seen += part
            if when is not None and re.search(when.encode(), seen):
                then(running.pid)
                when = None
        return running.wait(30), seen.decode()
    finally:
        running.kill()
        running.wait(30)
        os.close(ours)


def press_ctrl_c(process: int) -> None:
    """Which reaches the workers too."""
    os.killpg(process, signal.SIGINT)


def terminate(process: int) -> None:
    os.kill(process, signal.SIGTERM)


PROGRAM = """
import sys
from dataclasses import replace
from pathlib import Path
from bayesian_benchmarks.command_line import run_program
from bayesian_benchmarks.commands.uci import PROGRAM
import fake_models
here = Path(fake_models.__file__).parent
fake = replace(PROGRAM, task="fake", configs=here, config="fake", config_of_datasets="fake")
sys.exit(run_program(fake, sys.argv[1:]))
"""
"""`dkp-bench` of a task that needs no TensorFlow."""
SWEEP = ["-c", PROGRAM, "--plugin", "fake_models", "--splits", "0-1", "--jobs", "2"]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    root = str(Path(__file__).resolve().parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ["PYTHONPATH"]]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plain(text: str) -> str:
    """Without what moves the cursor and gives colours."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_a_terminal_shows_the_workers_and_is_left_in_order(folder: Path) -> None:
    code, seen = on_a_terminal(SWEEP, FAKE_STEP_SECONDS="0.1")
    assert code == 0, seen
    text = plain(seen)
    lines = [line.strip() for line in text.splitlines()]
    for split in (0, 1):
        name = f"fake-data split {split} fake depth 2"
        assert any(re.match(rf"{name} +\d+ of 30 .*\d", line) for line in lines), seen
        assert any(re.match(rf"\[[12]/2\] {name}: elbo_per_point", line) for line in lines), seen
    assert "0 of 2 runs" in text
    assert seen.rindex(SHOW) > seen.rindex(HIDE)
    # The table of the results is the last thing on it, and nothing of the live one stays below.
    assert "Mean ± standard error over splits." in seen[seen.rindex(SHOW) :]


def test_an_interrupted_terminal_is_left_in_order(folder: Path) -> None:
    code, seen = on_a_terminal(SWEEP, "fake-data split 1", press_ctrl_c, FAKE_STEP_SECONDS="0.3")
    assert code == 130, seen
    assert seen.rindex(SHOW) > seen.rindex(HIDE)
    assert "interrupted; what is finished is stored" in seen[seen.rindex(SHOW) :]
    assert not list(folder.glob("runs/*.sweep-*"))


def test_a_terminated_sweep_writes_checkpoints_and_leaves_the_terminal_in_order(
    folder: Path,
) -> None:
    code, seen = on_a_terminal(SWEEP, "[4-9] of 30", terminate, FAKE_STEP_SECONDS="0.3")
    assert code == 128 + signal.SIGTERM, seen
    assert seen.rindex(SHOW) > seen.rindex(HIDE)
    assert "interrupted; what is finished is stored" in seen[seen.rindex(SHOW) :]
    assert list(folder.glob("runs/*/checkpoint/state.json"))
    assert not list(folder.glob("runs/*.sweep-*"))


def test_quiet_says_the_summary_alone(folder: Path) -> None:
    code, seen = on_a_terminal([*SWEEP, "--quiet", "--format", "csv"])
    assert code == 0, seen
    first, *table = seen.splitlines()
    assert first == "2 of 2 runs were done now"
    assert table[0].startswith("dataset,")
