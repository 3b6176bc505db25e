"""scikit-learn's own checks of all estimators, with settings as small as the checks allow."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks

from gpflow_dkp.sklearn import (
    DGPRegressor,
    DIWPClassifier,
    DIWPRegressor,
    DWPClassifier,
    DWPRegressor,
    GWIClassifier,
    GWIRegressor,
    LatentVariableDGPRegressor,
    NNGPRegressor,
)

TINY: dict[str, Any] = {"num_inducing": 5, "prediction_samples": 5, "random_state": 0}
DEEP: dict[str, Any] = {**TINY, "num_samples": 2, "num_steps": 100}

ESTIMATORS = [
    DWPRegressor(**DEEP),
    DGPRegressor(**DEEP),
    DIWPRegressor(**DEEP),
    NNGPRegressor(**DEEP),
    LatentVariableDGPRegressor(**TINY, num_steps=100),
    GWIRegressor(**TINY, num_steps=100),
    DWPClassifier(**DEEP),
    DIWPClassifier(**DEEP),
    GWIClassifier(**TINY, num_steps=100),
]

WEIGHTS_ARE_REFUSED = "the bound weighs all rows alike: a sample_weight other than None is an error"


def expected_failures(estimator: BaseEstimator) -> dict[str, str]:
    return {}


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
def test_scikit_learn_check(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)
