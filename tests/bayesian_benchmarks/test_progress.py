"""The time left of a sweep, by what runs like those left have taken."""

from __future__ import annotations

import re

import pytest

from bayesian_benchmarks import Settings
from bayesian_benchmarks.store import ResultRow
from bayesian_benchmarks.sweep.costs import Costs
from bayesian_benchmarks.sweep.progress import SweepProgress
from bayesian_benchmarks.sweep.run import Run
from bayesian_benchmarks.sweep.worker import Interrupted, Step

STEPS = 1000


def make(split: int, model: str = "svgp", dataset: str = "boston", depth: int = 1) -> Run:
    return Run("regression", dataset, split, model, depth, 0, Settings(num_steps=STEPS))


def row(run: Run, seconds: float) -> ResultRow:
    return ResultRow(*run.key, run.depth, run.settings_json, metrics={"seconds": seconds})


@pytest.fixture(autouse=True)
def nothing_is_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Costs, "shipped", staticmethod(dict))


def seconds_left(capsys: pytest.CaptureFixture[str]) -> float | None:
    found = re.search(r"; about (\d+) (s|min) left$", capsys.readouterr().err.strip())
    return float(found[1]) * (60 if found[2] == "min" else 1) if found else None


def test_runs_that_differ_in_cost_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """One cheap run is done, a cheap one and a dear one of known cost are left."""
    cheap, other, dear = make(0), make(1), make(0, "dwp-ab-gw")
    progress = SweepProgress([cheap, other, dear], [row(make(7, "dwp-ab-gw"), 60.0)])
    progress.finish(cheap, row(cheap, 10.0))
    assert seconds_left(capsys) == 70.0
    progress.finish(other, row(other, 10.0))
    assert seconds_left(capsys) == 60.0
    progress.finish(dear, row(dear, 60.0))
    assert seconds_left(capsys) is None


def test_two_at_a_time_take_half_as_long(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [make(split) for split in range(5)]
    progress = SweepProgress(runs, jobs=2)
    progress.finish(runs[0], row(runs[0], 20.0))
    assert seconds_left(capsys) == 40.0


def test_what_is_done_of_a_run_counts(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [make(split) for split in range(2)]
    progress = SweepProgress(runs, [row(make(7), 80.0)])
    progress.step(runs[1], Step(750))
    progress.finish(runs[0], row(runs[0], 80.0))
    assert seconds_left(capsys) == 20.0


def test_what_is_most_alike_counts() -> None:
    costs = Costs([row(make(0), 5.0), row(make(0, dataset="protein"), 50.0)])
    assert costs.seconds(make(3)) == 5.0
    assert costs.seconds(make(3, dataset="protein")) == 50.0
    assert costs.seconds(make(3, dataset="naval")) == pytest.approx(27.5)
    assert costs.seconds(make(3, depth=4)) == pytest.approx(27.5)
    assert costs.seconds(make(3, "dgp")) is None
    assert costs.total([make(3), make(3, "dgp")]) == 10.0
    assert costs.total([make(3, "dgp")]) is None


def test_a_run_that_was_not_done_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    progress = SweepProgress([make(0)])
    progress.finish(make(0), Interrupted("OSError: No space left on device"))
    text = capsys.readouterr().err
    assert (
        text.strip()
        == "[1/1] boston split 0 svgp depth 1: not done: OSError: No space left on device"
    )
