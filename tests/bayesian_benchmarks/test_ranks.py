"""Average ranks and median differences against hand computation."""

from __future__ import annotations

import json
import math

import pytest

from bayesian_benchmarks.errors import BenchmarkError, UnknownNameError
from bayesian_benchmarks.report.ranks import average_ranks, format_ranks
from bayesian_benchmarks.store import ResultRow


def row(model: str, dataset: str, value: float, *, split: int = 0, steps: int = 5) -> ResultRow:
    return ResultRow(
        task="density",
        dataset=dataset,
        split=split,
        model=model,
        settings_hash=str(steps),
        seed=0,
        depth=0,
        settings=json.dumps({"depth": 0, "num_steps": steps}),
        metrics={"test_log_likelihood_normalised": value, "test_rmse": value, "coverage_90": 0.9},
    )


SCORES = {
    "gp": {"forest": -1.4, "solar": -1.7, "servo": -0.2},
    "lv-gp:vi": {"forest": -1.0, "solar": 0.1, "servo": -0.1},
    "gp-gp": {"forest": -1.4, "solar": -1.2, "servo": -0.3},
}
ROWS = [row(model, name, v) for model, values in SCORES.items() for name, v in values.items()]


def test_ranks_and_medians() -> None:
    lines = average_ranks(ROWS, "test_log_likelihood_normalised", baseline="gp")
    assert lines[0].model == "lv-gp:vi"
    by_model = {line.model: line for line in lines}
    # forest: gp and gp-gp tie at 1.5; solar: 1, 3, 2; servo: 2, 3, 1
    assert by_model["gp"].rank == pytest.approx(1.5)
    assert by_model["gp"].standard_error == pytest.approx(0.5 / math.sqrt(3))
    assert by_model["lv-gp:vi"].rank == 3.0
    assert by_model["gp-gp"].rank == pytest.approx(1.5)
    assert by_model["lv-gp:vi"].median_difference == pytest.approx(0.4)
    assert by_model["gp-gp"].median_difference == pytest.approx(0.0)
    assert {line.num_splits for line in lines} == {3}


def test_lower_is_better_for_errors() -> None:
    best, *_, worst = average_ranks(ROWS, "test_rmse", baseline="gp")
    assert best.model == "gp"
    # The difference is the metric's own: the worst has the larger errors.
    assert worst.model == "lv-gp:vi"
    assert worst.median_difference == pytest.approx(0.4)
    text = format_ranks([best, worst], "test_rmse", "gp", "markdown")
    assert text.splitlines()[-1].endswith("Lower test_rmse is better.")


def test_a_split_that_a_model_lacks_is_left_out() -> None:
    lines = average_ranks(
        [*ROWS, row("gp", "pendulum", 5.0)], "test_log_likelihood_normalised", baseline="gp"
    )
    assert {line.num_splits for line in lines} == {3}


def test_settings_are_told_apart() -> None:
    longer = [row("gp", name, 5.0, steps=9) for name in ("forest", "solar")]
    lines = average_ranks([*ROWS, *longer], "test_log_likelihood_normalised", baseline="gp")
    assert [(line.model, line.num_steps) for line in lines[:2]] == [
        ("gp, num_steps 9", 9),
        ("lv-gp:vi", 5),
    ]
    assert {line.num_splits for line in lines} == {2}
    assert {line.model for line in lines[2:]} == {"gp, num_steps 5", "gp-gp"}


def test_nothing_in_common() -> None:
    apart = [row("gp", "forest", 1.0), row("gp-gp", "solar", 1.0)]
    with pytest.raises(BenchmarkError, match="No split of a dataset that all of gp, gp-gp have"):
        average_ranks(apart, "test_log_likelihood_normalised", baseline="gp")


@pytest.mark.parametrize(
    ("metric", "baseline"), [("coverage_90", "gp"), ("test_log_likelihood_normalised", "dgp")]
)
def test_unknown_names(metric: str, baseline: str) -> None:
    with pytest.raises(UnknownNameError, match=f"{metric}|{baseline}"):
        average_ranks(ROWS, metric, baseline=baseline)


def test_text() -> None:
    lines = average_ranks(ROWS, "test_log_likelihood_normalised", baseline="gp")
    text = format_ranks(lines, "test_log_likelihood_normalised", "gp", "markdown")
    assert "| lv-gp:vi | 5 | 3 | 3.00 ± 0.00 | +0.4 |" in text
    assert "the best the highest" in text
    header, first, *_ = format_ranks(
        lines, "test_log_likelihood_normalised", "gp", "csv"
    ).splitlines()
    assert header == "model,num_steps,num_splits,num_datasets,rank,standard_error,median_difference"
    assert first.startswith("lv-gp:vi,5,3,3,3.0,0.0,0.39999")
