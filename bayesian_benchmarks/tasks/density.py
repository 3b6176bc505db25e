"""Conditional density estimation: how well a model's predictive density of any shape does ([ICML19])."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..datasets import Dataset
from ..settings import DensitySettings, Settings
from . import calibration, metrics
from .metrics import Array
from .protocol import Metric, Task, register_task

MAX_TEST_POINTS = 10_000
"""Test points that are scored, the first ones, as in the paper."""

CRPS_COMPONENTS = 200
"""Components of the mixture whose CRPS is taken: its cost grows with their square."""

PREDICTED_ROWS = 50_000
"""Components times data points predicted at a time."""

METRICS = {
    "test_log_likelihood_normalised": Metric(
        "mean test log density, normalised targets, by the paper's kernel density estimate",
        "higher",
        shown=True,
    ),
    "test_log_likelihood_mixture": Metric(
        "the same of the exact mixture of Gaussians", "higher", shown=True
    ),
    "test_log_likelihood_mc_error": Metric("its Monte Carlo standard error for the samples used"),
    "test_log_likelihood": Metric("mean test log density of the mixture, original units", "higher"),
    "test_rmse": Metric(
        "root mean squared error of the predictive mean, original units", "lower", shown=True
    ),
    "crps": Metric("mean continuous ranked probability score, original units", "lower", shown=True),
    **calibration.METRICS,
    "shapiro_wilk": Metric(
        "median Shapiro-Wilk statistic of the predictive samples, 1 for a Gaussian", shown=True
    ),
}


def evaluate(
    model: Any, dataset: Dataset, *, settings: Settings, seed: int = 0
) -> dict[str, float]:
    """Scores of a trained model on the test part.

    All predictive scores come from the same `settings.test_samples` mixture components, and as many
    samples drawn from them.
    """
    X, Y = dataset.X_test[:MAX_TEST_POINTS], dataset.Y_test[:MAX_TEST_POINTS]
    scale = dataset.scaling.Y_std
    num_samples = settings.test_samples
    means, variances = predict_in_batches(model, X, num_samples, seed)
    log_density = float(metrics.mixture_log_density(means, variances, Y).mean())
    samples = metrics.mixture_samples(means, variances, num_samples, np.random.default_rng(seed))
    few = slice(CRPS_COMPONENTS)
    return {
        "test_log_likelihood_normalised": float(metrics.kde_log_density(samples, Y).mean()),
        "test_log_likelihood_mixture": log_density,
        "test_log_likelihood_mc_error": metrics.log_likelihood_mc_error(means, variances, Y),
        "test_log_likelihood": log_density - float(np.log(scale).sum()),
        "test_rmse": metrics.rmse(means * scale, Y * scale),
        "crps": float(
            metrics.crps(means[few] * scale, variances[few] * scale**2, Y * scale).mean()
        ),
        **calibration.scores(means, variances, Y),
        "shapiro_wilk": metrics.median_shapiro_wilk(samples),
    }


def predict_in_batches(model: Any, X: Array, num_samples: int, seed: int) -> tuple[Array, Array]:
    """`predict_mixture` of X [N, D], some points at a time: means and variances [S, N, P]."""
    size = max(1, PREDICTED_ROWS // num_samples)
    batches = [
        model.predict_mixture(X[start : start + size], num_samples=num_samples, seed=seed)
        for start in range(0, len(X), size)
    ]
    means, variances = (
        np.concatenate([np.asarray(part, np.float64) for part in parts], axis=1)
        for parts in zip(*batches, strict=True)
    )
    return means, variances


DENSITY = register_task(
    Task(
        "density",
        DensitySettings,
        Dataset,
        evaluate,
        METRICS,
        datasets_of=("regression",),
        default_depths=(0,),
    )
)
