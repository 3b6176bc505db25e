"""Regression: train a model on a split, and score its predictive mixture on the test part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..config import Settings
from ..datasets import Dataset
from ..models import model_source, train_with_fit
from . import metrics

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
    "seconds_per_step": "seconds a training step; none for a run too short to tell",
    "seconds": "seconds of training",
    "num_recoveries": "training steps that were taken again after a failed Cholesky",
}
"""Every metric of a regression run, and what it is."""


def run_regression(
    dataset: Dataset,
    model_name: str,
    *,
    depth: int,
    settings: Settings,
    seed: int = 0,
    checkpoint_dir: Path | None = None,
    checkpoint_seconds: float = 30.0,
    report_step: Callable[[int], None] = lambda step: None,
) -> dict[str, float]:
    """Build, train and score a registered model; the metrics are those of `METRICS`.

    :param depth: number of layers, the output layer included.
    :raises FloatingPointError: a metric is NaN or infinite.
    """
    source = model_source(model_name)
    data = (dataset.X_train, dataset.Y_train)
    model = source.build(*data, depth=depth, settings=settings, seed=seed)
    record = (source.train or train_with_fit)(
        model,
        data,
        settings=settings,
        seed=seed,
        checkpoint_dir=checkpoint_dir,
        checkpoint_seconds=checkpoint_seconds,
        report_step=report_step,
    )
    scores = evaluate(model, dataset, settings=settings, seed=seed)
    bad = [name for name, value in scores.items() if not np.isfinite(value)]
    if bad:
        raise FloatingPointError(f"{', '.join(bad)} of the trained model is NaN or infinite")
    if np.isfinite(record.seconds_per_step):
        scores["seconds_per_step"] = float(record.seconds_per_step)
    scores["seconds"] = float(record.seconds)
    scores["num_recoveries"] = float(record.num_recoveries)
    return scores


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
    return {
        "elbo_per_point": elbo_per_point(model, dataset, settings=settings, seed=seed),
        "test_log_likelihood": log_density - float(np.log(scale).sum()),
        "test_log_likelihood_mc_error": metrics.log_likelihood_mc_error(means, variances, Y),
        "test_rmse": metrics.rmse(means * scale, Y * scale),
        "nlpd": -log_density,
        "crps": float(metrics.crps(means * scale, variances * scale**2, Y * scale).mean()),
        **{
            f"coverage_{percent}": metrics.interval_coverage(means, variances, Y, percent / 100)
            for percent in (50, 90, 95)
        },
    }


def elbo_per_point(model: Any, dataset: Dataset, *, settings: Settings, seed: int = 0) -> float:
    """ELBO of the training part over its number of points, averaged over `elbo_samples`.

    Taken `train_samples` samples and `batch_size` points at a time, as in training: the model
    scales a batch's ELBO to all points, and the batch weighs as many points as it has.
    """
    X, Y = dataset.X_train, dataset.Y_train
    total = 0.0
    for samples in _chunks(settings.elbo_samples, settings.train_samples):
        for rows in _chunks(len(X), settings.batch_size):
            batch = slice(rows.start, rows.stop)
            elbo = model.elbo(
                (X[batch], Y[batch]), num_samples=len(samples), seed=seed + samples[0]
            )
            total += len(samples) * len(rows) * float(elbo)
    return total / (settings.elbo_samples * len(X) ** 2)


def _chunks(total: int, size: int) -> Iterator[range]:
    """Consecutive ranges of at most `size` that cover `range(total)`."""
    for start in range(0, total, size):
        yield range(start, min(start + size, total))
