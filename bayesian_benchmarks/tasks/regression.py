"""Regression: train a model on a split, and score its predictive mixture on the test part."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..datasets import Dataset
from ..settings import Settings
from . import calibration, metrics
from .protocol import Metric, Task, register_task

METRICS = {
    "test_log_likelihood": Metric("mean test log density, original units", "higher", shown=True),
    "test_log_likelihood_mc_error": Metric("its Monte Carlo standard error for the samples used"),
    "test_rmse": Metric(
        "root mean squared error of the predictive mean, original units", "lower", shown=True
    ),
    "nlpd": Metric("negative mean test log density, normalised targets", "lower"),
    "crps": Metric("mean continuous ranked probability score, original units", "lower"),
    **calibration.METRICS,
    "test_log_likelihood_best_candidate": Metric(
        "of models that choose by validation: the same of the candidate that is best on the test part, "
        "as some papers report",
        "higher",
    ),
}


def evaluate(
    model: Any, dataset: Dataset, *, settings: Settings, seed: int = 0
) -> dict[str, float]:
    """Scores of a trained model on the test part.

    All scores come from the same `settings.test_samples` mixture components.
    """
    mixture = model.predict_mixture(dataset.X_test, num_samples=settings.test_samples, seed=seed)
    means, variances = (np.asarray(part, np.float64) for part in mixture)
    Y, scale = dataset.Y_test, dataset.scaling.Y_std
    log_density = float(metrics.mixture_log_density(means, variances, Y).mean())
    log_scale = float(np.log(scale).sum())
    candidates = getattr(model, "candidates", {}).values()
    densities = [c.predict_log_density((dataset.X_test, Y)) for c in candidates]
    best = [float(np.mean(density)) - log_scale for density in densities]
    return {
        "test_log_likelihood": log_density - log_scale,
        "test_log_likelihood_mc_error": metrics.log_likelihood_mc_error(means, variances, Y),
        "test_rmse": metrics.rmse(means * scale, Y * scale),
        "nlpd": -log_density,
        "crps": float(metrics.crps(means * scale, variances * scale**2, Y * scale).mean()),
        **calibration.scores(means, variances, Y),
        **({"test_log_likelihood_best_candidate": max(best)} if best else {}),
    }


REGRESSION = register_task(Task("regression", Settings, Dataset, evaluate, METRICS))
