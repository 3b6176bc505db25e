"""Regression: train a model on a split, and score its predictive mixture on the test part."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..config import Settings
from ..datasets import Dataset
from . import metrics
from .training import elbo_per_point

METRICS: dict[str, str] = {
    "elbo_per_point": "evidence lower bound per training point, normalised targets",
    "test_log_likelihood": "mean test log density, original units",
    "test_log_likelihood_mc_error": "its Monte Carlo standard error for the samples used",
    "test_rmse": "root mean squared error of the predictive mean, original units",
    "nlpd": "negative mean test log density, normalised targets",
    "crps": "mean continuous ranked probability score, original units",
    "coverage_50": "fraction of test targets inside the central 50 % interval",
    "coverage_90": "fraction of test targets inside the central 90 % interval",
    "coverage_95": "fraction of test targets inside the central 95 % interval",
    "test_log_likelihood_best_candidate": "of models that choose by validation: the same of the candidate "
    "that is best on the test part, as some papers report",
    "seconds_per_step": "seconds a training step; none for a run too short to tell",
    "seconds": "seconds of training",
    "num_recoveries": "training steps that were taken again after a failed Cholesky",
}
"""Every metric of a regression run, and what it is."""


def evaluate(
    model: Any, dataset: Dataset, *, settings: Settings, seed: int = 0
) -> dict[str, float]:
    """Scores of a trained model: ELBO on the training part, the others on the test part.

    All predictive scores come from the same `settings.test_samples` mixture components.
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
        "elbo_per_point": elbo_per_point(
            model, (dataset.X_train, dataset.Y_train), settings=settings, seed=seed
        ),
        "test_log_likelihood": log_density - log_scale,
        "test_log_likelihood_mc_error": metrics.log_likelihood_mc_error(means, variances, Y),
        "test_rmse": metrics.rmse(means * scale, Y * scale),
        "nlpd": -log_density,
        "crps": float(metrics.crps(means * scale, variances * scale**2, Y * scale).mean()),
        **{
            f"coverage_{percent}": metrics.interval_coverage(means, variances, Y, percent / 100)
            for percent in (50, 90, 95)
        },
        **({"test_log_likelihood_best_candidate": max(best)} if best else {}),
    }
