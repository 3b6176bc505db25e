"""The time left of a sweep, in lines where there is no terminal."""

from __future__ import annotations

import re
import time

import pytest

from bayesian_benchmarks import Settings
from bayesian_benchmarks.progress import SweepProgress
from bayesian_benchmarks.results import ResultRow
from bayesian_benchmarks.runs import Run

STEPS = 1000


@pytest.fixture
def runs() -> list[Run]:
    settings = Settings(num_steps=STEPS)
    return [Run("regression", "boston", split, "svgp", 1, 0, settings) for split in range(3)]


def row(run: Run) -> ResultRow:
    *key, settings_hash, seed = run.key
    task, dataset, split, model = key
    return ResultRow(task, dataset, split, model, settings_hash, seed, 1, "{}", "ok")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, to be set."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def seconds_left(capsys: pytest.CaptureFixture[str]) -> float | None:
    found = re.search(r"; about (\d+) (s|min) left$", capsys.readouterr().err.strip())
    return float(found[1]) * (60 if found[2] == "min" else 1) if found else None


@pytest.mark.parametrize(
    ("reported", "seconds"),
    [
        ((50, 500, STEPS), 40.0),
        # A worker's sign of life, then 200 steps after those from before a kill.
        ((0, 850, 900, 950, STEPS), 8.0),
    ],
    ids=["afresh", "resumed"],
)
def test_time_left_is_that_of_the_steps_left(
    runs: list[Run],
    clock: list[float],
    capsys: pytest.CaptureFixture[str],
    reported: tuple[int, ...],
    seconds: float,
) -> None:
    """At 0.04 s a step."""
    progress = SweepProgress(runs)
    for step in reported:
        progress.step(runs[0], step)
    clock[0] = seconds
    progress.finish(runs[0], row(runs[0]))
    assert seconds_left(capsys) == 80.0


def test_a_run_of_another_process_took_none_of_the_time(
    runs: list[Run], clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    progress = SweepProgress(runs)
    clock[0] = 40.0
    progress.finish(runs[0], None)
    assert seconds_left(capsys) is None
    progress.finish(runs[1], row(runs[1]))
    assert seconds_left(capsys) == 40.0


def test_no_time_is_left_after_the_last_run(
    runs: list[Run], clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    progress = SweepProgress(runs[:1])
    clock[0] = 40.0
    progress.finish(runs[0], row(runs[0]))
    assert seconds_left(capsys) is None
