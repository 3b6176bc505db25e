"""Scores of class probabilities against scikit-learn and hand computation."""

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from bayesian_benchmarks.tasks import classification_metrics as metrics
from bayesian_benchmarks.tasks.classification import class_probabilities


def calibrated(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities [size, 4] and labels drawn with them."""
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.full(4, 0.4), size=size)
    cumulative = probabilities.cumsum(1)
    return probabilities, np.minimum((rng.uniform(size=(size, 1)) > cumulative).sum(1), 3)


def test_log_likelihood_and_accuracy_are_scikit_learns() -> None:
    probabilities, labels = calibrated(500)
    loss = sklearn_metrics.log_loss(labels, probabilities, labels=range(4))
    assert metrics.log_likelihood(probabilities, labels) == pytest.approx(-loss, abs=1e-12)
    expected = sklearn_metrics.accuracy_score(labels, probabilities.argmax(1))
    assert metrics.accuracy(probabilities, labels) == expected


def test_brier_score_of_two_classes_is_twice_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(size=200)
    labels = (rng.uniform(size=200) < p).astype(int)
    expected = 2.0 * sklearn_metrics.brier_score_loss(labels, p)
    actual = metrics.brier_score(np.stack([1.0 - p, p], 1), labels)
    assert actual == pytest.approx(expected, abs=1e-12)
    assert metrics.brier_score(np.eye(3), np.arange(3)) == 0.0
    assert metrics.brier_score(np.eye(3), np.array([1, 2, 0])) == 2.0


def test_reliability_by_hand() -> None:
    probabilities = np.array([[0.95, 0.05], [0.91, 0.09], [0.32, 0.68], [0.4, 0.6], [1.0, 0.0]])
    labels = np.array([0, 1, 1, 0, 0])
    counts, confidence, correct = metrics.reliability(probabilities, labels)
    np.testing.assert_array_equal(counts, [0, 0, 0, 0, 0, 0, 2, 0, 0, 3])
    assert confidence[6] == pytest.approx(0.64)
    assert correct[6] == pytest.approx(0.5)
    assert confidence[9] == pytest.approx((0.95 + 0.91 + 1.0) / 3)
    assert correct[9] == pytest.approx(2 / 3)
    expected = (2 * 0.14 + 3 * abs(2.86 / 3 - 2 / 3)) / 5
    error = metrics.expected_calibration_error(probabilities, labels)
    assert error == pytest.approx(expected, abs=1e-12)


def test_calibrated_probabilities_have_a_small_calibration_error() -> None:
    probabilities, labels = calibrated(40_000)
    assert metrics.expected_calibration_error(probabilities, labels) < 0.015
    sharpened = probabilities**3 / (probabilities**3).sum(1, keepdims=True)
    assert metrics.expected_calibration_error(sharpened, labels) > 0.05


def test_impossible_label_costs_a_finite_amount() -> None:
    value = metrics.log_likelihood(np.array([[1.0, 0.0]]), np.array([1]))
    assert value == pytest.approx(np.log(1e-12))


def test_class_probabilities_of_two_and_of_more_classes() -> None:
    np.testing.assert_allclose(class_probabilities(np.array([[0.3]])), [[0.7, 0.3]])
    rows = class_probabilities(np.array([[0.2, 0.2, 0.58]]))
    np.testing.assert_allclose(rows.sum(1), 1.0)
    assert rows[0, 2] == pytest.approx(0.58 / 0.98)
