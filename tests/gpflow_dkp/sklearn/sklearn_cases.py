"""A toy problem, and estimators small enough to fit in a test."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

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

TINY: dict[str, Any] = {"num_inducing": 5, "prediction_samples": 10, "random_state": 0}
DEEP: dict[str, Any] = {**TINY, "num_samples": 2, "num_steps": 40}

REGRESSORS: dict[str, BaseEstimator] = {
    "DWP": DWPRegressor(**DEEP),
    "DGP": DGPRegressor(**DEEP),
    "DIWP": DIWPRegressor(**DEEP),
    "NNGP": NNGPRegressor(**DEEP),
    "LatentVariableDGP": LatentVariableDGPRegressor(**TINY, num_steps=40),
    "GWI": GWIRegressor(**TINY, num_steps=40),
}
CLASSIFIERS: dict[str, BaseEstimator] = {
    "DWP": DWPClassifier(**DEEP),
    "DIWP": DIWPClassifier(**DEEP),
    "GWI": GWIClassifier(**TINY, num_steps=40),
}


def toy_data(num_data: int = 30, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(num_data, 2))
    return X, 100.0 + 7.0 * np.sin(2.0 * X[:, 0]) + rng.normal(size=num_data)
