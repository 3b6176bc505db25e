"""One model of each kind with every variational parameter away from its start, for predictions."""

from __future__ import annotations

from functools import cache
from typing import Any

import gpflow
import latent_variable_cases
import numpy as np
import tensorflow as tf
from gpflow.kernels import SquaredExponential
from model_cases import make_kernels, make_model, regression_data, scatter

from gpflow_dkp.layers import SampledGP
from gpflow_dkp.models import DIWP, SGHMCDGP, SGHMCDWP, MonteCarloModel

NUM_FEATURES = 7
"""Of a model whose inputs have more features than there are inducing points."""

CASES = (
    "DWP",
    "DGP",
    "DIWP",
    "DIWP of many features",
    "NNGP",
    "LV-GP-GP",
    "GP-LV-GP",
    "SGHMC",
    "SGHMC of a DWP",
    "Softmax",
)
WITH_DRAWS = tuple(case for case in CASES if case != "NNGP")
"""Those whose predictions are of several samples."""


def fresh_model(case: str) -> MonteCarloModel:
    """A model of its own, to be changed."""
    if "LV" in case:
        return latent_variable_cases.make_model(case)
    if case == "SGHMC":
        return sampled_model()
    if case == "SGHMC of a DWP":
        return sampled_dwp()
    if case == "Softmax":
        likelihood = gpflow.likelihoods.Softmax(3)
        return make_model("DWP", 3, likelihood=likelihood)
    if case == "DIWP of many features":
        return diwp_of_many_features()
    return make_model(case, 3)


def sampled_model() -> SGHMCDGP:
    """Two layers with more kept values than most tests take."""
    rng = np.random.default_rng(1)
    layers = [
        SampledGP(SquaredExponential(lengthscales=0.9), rng.uniform(-2.0, 2.0, (4, 2)), number)
        for number in (2, 1)
    ]
    for layer in layers:
        layer.keep(rng.normal(size=[7, *layer.values.shape]))
    return SGHMCDGP(layers, gpflow.likelihoods.Gaussian(0.2))


def sampled_dwp() -> SGHMCDWP:
    """Three layers with more kept values than most tests take."""
    rng = np.random.default_rng(1)
    Z = rng.uniform(-2.0, 2.0, (4, 2))
    model = SGHMCDWP(make_kernels(3), gpflow.likelihoods.Gaussian(0.2), Z, widths=[2, 3])
    for layer in model.layers:
        layer.keep(rng.normal(size=[7, *layer.values.shape]))
    return model


def diwp_of_many_features(**settings: Any) -> DIWP:
    Z = np.random.default_rng(1).uniform(-2.0, 2.0, size=(4, NUM_FEATURES))
    kernels = [SquaredExponential(lengthscales=0.8), *make_kernels(2)[1:]]
    return scatter(DIWP(kernels, gpflow.likelihoods.Gaussian(0.2), Z, num_samples=3, **settings))


@cache
def model_of(case: str) -> MonteCarloModel:
    """The model that tests share: none may change it."""
    return fresh_model(case)


@cache
def data_of(case: str) -> tuple[np.ndarray, np.ndarray]:
    """Six points between the training data, with targets."""
    num_features = NUM_FEATURES if "many" in case else 2
    X, Y = (part[:6] for part in regression_data(12, num_features))
    return X + 0.1, np.digitize(Y, [-0.5, 0.5]) if case == "Softmax" else Y


def predictions(predictor: Any, case: str, X: Any, Y: Any, **how: Any) -> dict[str, tf.Tensor]:
    """Everything that a model, or its posterior, says of each point on its own; points first."""
    of_f, of_y = predictor.predict_f(X, **how), predictor.predict_y(X, **how)
    found = {
        "mean of f": of_f[0],
        "variance of f": of_f[1],
        "mean of y": of_y[0],
        "variance of y": of_y[1],
        "log density": predictor.predict_log_density((X, Y), **how),
    }
    if case != "Softmax":
        levels = predictor.predict_quantiles(X, [0.05, 0.5, 0.9], **how)
        found["quantiles"] = tf.transpose(levels, [1, 0, 2])
    return {name: np.asarray(value) for name, value in found.items()}
