"""Fitted estimators come back from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gpflow.kernels import Matern32
from sklearn.exceptions import NotFittedError
from sklearn_cases import CLASSIFIERS, REGRESSORS, toy_data

import gpflow_dkp
from gpflow_dkp.sklearn import DWPRegressor


@pytest.mark.parametrize("name", REGRESSORS)
def test_a_regressor_comes_back(name: str, tmp_path: Path) -> None:
    X, y = toy_data()
    regressor = REGRESSORS[name].fit(X, y)
    regressor.save(tmp_path / "regressor.dkp")
    other = gpflow_dkp.load(tmp_path / "regressor.dkp")
    assert type(other) is type(regressor)
    assert other.get_params() == regressor.get_params()
    for ours, theirs in zip(
        regressor.predict(X, return_std=True), other.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_allclose(theirs, ours, rtol=1e-12)
    np.testing.assert_allclose(
        other.log_density(X, y), regressor.log_density(X, y), rtol=1e-10, atol=1e-10
    )
    assert other.history_.elbo == regressor.history_.elbo


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_comes_back(name: str, tmp_path: Path) -> None:
    X, y = toy_data()
    labels = np.where(y > 100.0, "high", "low")
    classifier = CLASSIFIERS[name].fit(X, labels)
    classifier.save(tmp_path / "classifier.dkp")
    other = gpflow_dkp.load(tmp_path / "classifier.dkp")
    np.testing.assert_allclose(other.predict_proba(X), classifier.predict_proba(X), rtol=1e-12)
    assert list(other.predict(X)) == list(classifier.predict(X))


def test_training_goes_on_after_loading(tmp_path: Path) -> None:
    X, y = toy_data()
    regressor = DWPRegressor(
        kernel=Matern32(),
        num_inducing=5,
        num_samples=2,
        num_steps=30,
        warm_start=True,
        random_state=0,
    ).fit(X, y)
    regressor.save(tmp_path / "regressor.dkp")
    other = gpflow_dkp.load(tmp_path / "regressor.dkp")
    np.testing.assert_allclose(
        other.fit(X, y).history_.elbo, regressor.fit(X, y).history_.elbo, rtol=1e-9
    )


def test_an_unfitted_one_has_nothing_to_save(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        DWPRegressor().save(tmp_path / "regressor.dkp")
    assert not list(tmp_path.iterdir())
