"""Scores of predicted class probabilities: pure functions of arrays.

Everywhere `probabilities` [N, C] are of each class, and `labels` [N] the classes that came.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

SMALLEST_PROBABILITY = 1e-12
"""Below it a probability is rounding: its logarithm is not to decide a mean."""


def log_likelihood(probabilities: Array, labels: Labels) -> float:
    """Mean log probability of the labels."""
    chosen = probabilities[np.arange(len(labels)), labels]
    return float(np.mean(np.log(np.maximum(chosen, SMALLEST_PROBABILITY))))


def accuracy(probabilities: Array, labels: Labels) -> float:
    """Fraction of labels that are the most probable class."""
    return float(np.mean(probabilities.argmax(axis=1) == labels))


def entropy(probabilities: Array) -> Array:
    """-sum_c p_c log p_c of each point [N], in nats: 0 where one class is certain, log C where none is."""
    from scipy.special import xlogy

    return -xlogy(probabilities, probabilities).sum(axis=1)


def brier_score(probabilities: Array, labels: Labels) -> float:
    """Mean over points of sum_c (p_c - [c = label])^2 [Brier 1950]: 0 is perfect, 2 the worst."""
    one_hot = np.eye(probabilities.shape[1])[labels]
    return float(np.mean(np.sum((probabilities - one_hot) ** 2, axis=1)))


def reliability(
    probabilities: Array, labels: Labels, num_bins: int = 10
) -> tuple[Labels, Array, Array]:
    """Points, mean confidence and accuracy in equal bins of the confidence, [num_bins] each.

    The confidence is the probability of the most probable class. Empty bins have 0 throughout.
    """
    confidence = probabilities.max(axis=1)
    correct = (probabilities.argmax(axis=1) == labels).astype(float)
    bins = np.minimum((confidence * num_bins).astype(int), num_bins - 1)
    counts = np.bincount(bins, minlength=num_bins)
    sums = [np.bincount(bins, weights=w, minlength=num_bins) for w in (confidence, correct)]
    mean_confidence, fraction_correct = (total / np.maximum(counts, 1) for total in sums)
    return counts, mean_confidence, fraction_correct


def expected_calibration_error(probabilities: Array, labels: Labels, num_bins: int = 10) -> float:
    """Mean distance of accuracy from confidence over the bins of `reliability` [Naeini et al. 2015]."""
    counts, confidence, correct = reliability(probabilities, labels, num_bins)
    return float(np.sum(counts * np.abs(confidence - correct)) / len(labels))
