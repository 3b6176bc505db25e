"""Depth and kernel chosen by the bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn_cases import DEEP, toy_data

import gpflow_dkp
from gpflow_dkp.sklearn import DWPRegressor, NNGPRegressor, choice
from gpflow_dkp.training import History, TrainingFailed


def test_the_candidates_are_all_pairs() -> None:
    assert choice.candidates_of(2, "relu") == [(2, "relu")]
    assert choice.candidates_of("auto", "relu") == [(1, "relu"), (2, "relu"), (3, "relu")]
    assert choice.candidates_of(2, "auto") == [
        (2, "squared_exponential"),
        (2, "rational_quadratic"),
        (2, "relu"),
    ]
    assert len(choice.candidates_of("auto", "auto")) == 9


@pytest.mark.parametrize(("depth", "kernel"), [("auto", "relu"), (1, "auto")])
def test_the_candidate_of_the_highest_bound_is_kept(depth: Any, kernel: str) -> None:
    X, y = toy_data()
    auto = DWPRegressor(**DEEP, depth=depth, kernel=kernel).fit(X, y)
    bounds = [line["bound"] for line in auto.comparison_]
    assert len(bounds) == 3
    assert bounds == sorted(bounds, reverse=True)
    assert (auto.depth_, auto.kernel_) == tuple(
        auto.comparison_[0][name] for name in ("depth", "kernel")
    )
    assert choice.final_bound(auto.history_) == bounds[0]
    last = auto.comparison_[-1]
    alone = clone(auto).set_params(depth=last["depth"], kernel=last["kernel"]).fit(X, y)
    assert choice.final_bound(alone.history_) == pytest.approx(last["bound"], rel=1e-9)
    same = clone(auto).set_params(depth=auto.depth_, kernel=auto.kernel_).fit(X, y)
    np.testing.assert_allclose(same.predict(X), auto.predict(X), rtol=1e-9)
    assert not hasattr(same, "comparison_")


def test_a_bound_that_should_be_the_best_is() -> None:
    """The kink of |x| is in the relu kernel's functions, and no smooth function's."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(60, 1))
    y = np.abs(X[:, 0]) + 0.01 * rng.normal(size=60)
    auto = NNGPRegressor(num_inducing=20, num_steps=300, random_state=0, kernel="auto").fit(X, y)
    assert auto.kernel_ == "relu"


def test_max_seconds_is_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def trained(self: Any, *_: Any) -> tuple[None, History]:
        given.append(self.max_seconds)
        return None, History(elbo=[1.0])

    estimator = DWPRegressor(max_seconds=1.0, depth="auto")
    monkeypatch.setattr(DWPRegressor, "_trained", trained)
    X, y = toy_data()
    choice.compare(estimator, choice.candidates_of("auto", "relu"), X, y, None, 0)
    assert given == [1 / 3] * 3


def test_a_candidate_that_fails_is_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = NNGPRegressor._trained

    def trained(self: Any, *arguments: Any) -> Any:
        if self.depth == failing or (failing is None and self.depth != "auto"):
            raise TrainingFailed("no number")
        return real(self, *arguments)

    monkeypatch.setattr(NNGPRegressor, "_trained", trained)
    X, y = toy_data()
    failing: int | None = 2
    estimator = NNGPRegressor(**DEEP, depth="auto", verbose=True).fit(X, y)
    assert [line["failure"] for line in estimator.comparison_] == ["", "", "no number"]
    assert "depth 2, rational_quadratic: no number\n" in capsys.readouterr().out
    failing = None
    with pytest.raises(TrainingFailed, match="no depth and kernel could be trained"):
        clone(estimator).fit(X, y)


def test_a_warm_start_goes_on_with_what_was_chosen(tmp_path: Path) -> None:
    X, y = toy_data()
    estimator = NNGPRegressor(**DEEP, depth="auto", warm_start=True).fit(X, y)
    first = estimator.history_.elbo
    chosen, compared = estimator.depth_, estimator.comparison_
    estimator.fit(X, y)
    assert estimator.depth_ == chosen
    assert estimator.comparison_ is compared
    assert estimator.history_.elbo[0] > first[0]
    estimator.save(tmp_path / "model.dkp")
    loaded: Any = gpflow_dkp.load(tmp_path / "model.dkp")
    assert loaded.comparison_ == compared
    assert loaded.depth_ == chosen
    np.testing.assert_allclose(loaded.predict(X), estimator.predict(X), rtol=1e-12)
