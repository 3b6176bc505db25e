"""Classification: train a model on a split, and score its predicted probabilities on the test part."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..datasets import ClassificationDataset
from ..settings import ClassificationSettings, Settings
from . import classification_metrics as metrics
from .metrics import check_finite
from .protocol import Metric, Task, register_task

NUM_BINS = 10
"""Of the reliability diagram and the expected calibration error."""

METRICS = {
    "test_log_likelihood": Metric("mean log probability of the test labels", "higher", shown=True),
    "accuracy": Metric(
        "fraction of test labels that are the most probable class", "higher", shown=True
    ),
    "brier_score": Metric(
        "mean squared distance of the probabilities from the label, 0 to 2", "lower", shown=True
    ),
    "expected_calibration_error": Metric(
        f"mean distance of accuracy from confidence over {NUM_BINS} bins", "lower", shown=True
    ),
    **{
        f"reliability_{what}_{i}": Metric(f"{meaning} in confidence bin {i} of {NUM_BINS}")
        for what, meaning in (
            ("count", "test points"),
            ("confidence", "mean confidence"),
            ("accuracy", "accuracy"),
        )
        for i in range(NUM_BINS)
    },
}


def evaluate(
    model: Any, dataset: ClassificationDataset, *, settings: Settings, seed: int = 0
) -> dict[str, float]:
    """Scores of a trained model on the test part.

    :raises FloatingPointError: a predicted probability is NaN or infinite.
    """
    probabilities = predicted_probabilities(model, dataset.X_test, settings=settings, seed=seed)
    labels = dataset.Y_test[:, 0]
    bins = metrics.reliability(probabilities, labels, NUM_BINS)
    return {
        "test_log_likelihood": metrics.log_likelihood(probabilities, labels),
        "accuracy": metrics.accuracy(probabilities, labels),
        "brier_score": metrics.brier_score(probabilities, labels),
        "expected_calibration_error": metrics.expected_calibration_error(
            probabilities, labels, NUM_BINS
        ),
        **{
            f"reliability_{what}_{i}": float(values[i])
            for what, values in zip(("count", "confidence", "accuracy"), bins, strict=True)
            for i in range(NUM_BINS)
        },
    }


def predicted_probabilities(
    model: Any, X: np.ndarray, *, settings: Settings, seed: int
) -> np.ndarray:
    """Class probabilities [N, C] at X [N, D], of the mixture of `settings.test_samples` components.

    :raises FloatingPointError: one is NaN or infinite.
    """
    mean, _ = model.predict_mixture(X, num_samples=settings.test_samples, seed=seed)
    probabilities = class_probabilities(np.asarray(mean, np.float64).mean(axis=0))
    check_finite({"a predicted probability": probabilities})
    return probabilities


def class_probabilities(mean: np.ndarray) -> np.ndarray:
    """Probabilities [N, C] from the predictive mean [N, C], or [N, 1] of class 1 of two.

    Normalised: those of a Monte Carlo likelihood sum to 1 only up to rounding.
    """
    probabilities = np.hstack([1.0 - mean, mean]) if mean.shape[1] == 1 else mean
    return probabilities / probabilities.sum(axis=1, keepdims=True)


CLASSIFICATION = register_task(
    Task("classification", ClassificationSettings, ClassificationDataset, evaluate, METRICS)
)
