"""RobustMax: probabilities that an output is the largest, against draws and closed forms."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from gpflow.likelihoods import MultiClass
from gpflow.quadrature import hermgauss
from scipy import integrate, stats

from gpflow_dkp.likelihoods import RobustMax

N, J = 6, 4
POINTS = 100
EPSILON = 0.01

FALSE_ALARM = 1e-5
"""Chance that a statistical test of a correct program fails, over the seeds it could be given."""


def moments(num_data: int = N, num_classes: int = J, seed: int = 0) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=[num_data, num_classes])
    return mean, rng.uniform(0.2, 1.5, size=[num_data, num_classes])


def probability(
    label: int, mean: np.ndarray, variance: np.ndarray, num_points: int = POINTS
) -> np.ndarray:
    """S(x, label) [N]."""
    link = RobustMax(mean.shape[1])
    labels = np.full([len(mean), 1], float(label))
    value = link.prob_is_largest(labels, mean, variance, *hermgauss(num_points))
    assert value.shape == (len(mean), 1)
    return value.numpy()[:, 0]


def by_integration(label: int, mean: np.ndarray, variance: np.ndarray) -> float:
    """S of one point, by adaptive quadrature over the labelled output."""
    scale = np.sqrt(variance)
    others = np.arange(len(mean)) != label

    def integrand(value: float) -> float:
        below = stats.norm.cdf(value, mean[others], scale[others])
        return stats.norm.pdf(value, mean[label], scale[label]) * np.prod(below)

    bounds = mean[label] + 10.0 * scale[label] * np.array([-1.0, 1.0])
    return integrate.quad(integrand, *bounds, epsabs=1e-12, epsrel=1e-10, limit=200)[0]


def test_probability_is_the_integral() -> None:
    mean, variance = moments()
    for label in range(J):
        expected = [by_integration(label, *point) for point in zip(mean, variance, strict=True)]
        np.testing.assert_allclose(probability(label, mean, variance), expected, atol=1e-8)


def test_probability_is_the_share_of_draws() -> None:
    """An error of 0.01 in any of the N J probabilities would show but for 1 chance in 1000."""
    needed = stats.norm.isf(0.5 * FALSE_ALARM / (N * J)) + stats.norm.isf(1e-3)
    num_draws = int(np.ceil((needed * 0.5 / 0.01) ** 2))
    mean, variance = moments()
    rng = np.random.default_rng(1)
    draws = mean + np.sqrt(variance) * rng.normal(size=[num_draws, N, J])
    largest = np.argmax(draws, -1)
    for label in range(J):
        expected = probability(label, mean, variance)
        counts = np.sum(largest == label, 0)
        for count, share in zip(counts, expected, strict=True):
            p_value = stats.binomtest(int(count), num_draws, float(share)).pvalue
            assert p_value > FALSE_ALARM / (N * J)


def test_probability_is_gpflows_but_for_its_squash() -> None:
    """GPflow squeezes each of J - 1 distribution functions into [1e-6, 1 - 1e-6]."""
    mean, variance = moments()
    theirs, nodes = gpflow.likelihoods.RobustMax(J), hermgauss(20)
    for label in range(J):
        labels = np.full([N, 1], float(label))
        expected = theirs.prob_is_largest(labels, mean, variance, *nodes).numpy()
        actual = RobustMax(J).prob_is_largest(labels, mean, variance, *nodes).numpy()
        np.testing.assert_allclose(actual, expected, rtol=0, atol=(J - 1) * 1e-6)
        theirs._squash = 0.0
        expected = theirs.prob_is_largest(labels, mean, variance, *nodes).numpy()
        np.testing.assert_allclose(actual, expected, rtol=1e-9)
        theirs._squash = 1e-6


def test_each_point_has_its_own_label() -> None:
    mean, variance = moments()
    labels = np.array([2, 0, 3, 1, 1, 0])
    value = RobustMax(J).prob_is_largest(labels[:, None], mean, variance, *hermgauss(POINTS))
    expected = [
        by_integration(label, *point)
        for label, point in zip(labels, zip(mean, variance, strict=True), strict=True)
    ]
    np.testing.assert_allclose(value[:, 0], expected, atol=1e-8)


@pytest.mark.parametrize("num_classes", [2, 3, 10])
def test_probabilities_sum_to_one(num_classes: int) -> None:
    mean, variance = moments(num_classes=num_classes)
    total = sum(probability(label, mean, variance) for label in range(num_classes))
    np.testing.assert_allclose(total, 1.0, rtol=0, atol=1e-6)


def test_two_classes_in_closed_form() -> None:
    """Phi((m_0 - m_1) / sqrt(r_0 + r_1))."""
    mean, variance = moments(20, 2)
    argument = (mean[:, 0] - mean[:, 1]) / np.sqrt(variance.sum(1))
    actual = probability(0, mean, variance)
    np.testing.assert_allclose(actual, stats.norm.cdf(argument), rtol=0, atol=1e-8)
    actual = probability(1, mean, variance)
    np.testing.assert_allclose(actual, stats.norm.sf(argument), rtol=0, atol=1e-8)


def test_the_same_shift_of_all_outputs_changes_nothing() -> None:
    mean, variance = moments()
    np.testing.assert_allclose(
        probability(1, mean + 3.0, variance), probability(1, mean, variance), rtol=1e-9
    )


@pytest.mark.parametrize(
    ("num_classes", "distance"), [(2, 5.0), (2, 20.0), (3, 5.0), (3, 15.0), (10, 10.0)]
)
def test_gradient_in_the_far_tail(num_classes: int, distance: float) -> None:
    """Finite and towards the labelled class, also where 1 + erf is zero at every node."""
    mean = np.full([1, num_classes], distance)
    mean[0, 0] = 0.0
    tensors = tf.constant(mean), tf.constant(np.full([1, num_classes], 0.5))
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = RobustMax(num_classes).prob_is_largest(np.zeros([1, 1]), *tensors, *hermgauss(20))
        log_value = tf.math.log(value)
    d_mean, d_variance = (gradient.numpy() for gradient in tape.gradient(log_value, tensors))
    assert float(value[0, 0]) > 0.0
    assert np.all(np.isfinite(d_mean))
    assert np.all(np.isfinite(d_variance))
    assert d_mean[0, 0] > 1.0
    assert np.all(d_mean[0, 1:] < 0.0)
    assert np.sum(d_mean) == pytest.approx(0.0, abs=1e-6 * d_mean[0, 0])


@pytest.mark.parametrize("variance", [0.0, 1e-12, 1e4])
def test_values_and_gradients_are_finite_at_any_variance(variance: float) -> None:
    tensors = tf.constant([[0.0, 300.0, -2.0]]), tf.constant([[variance] * 3])
    for label, certain in ((0, 0.0), (1, 1.0), (2, 0.0)):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            value = RobustMax(3).prob_is_largest(np.array([[label]]), *tensors, *hermgauss(20))
        assert all(np.all(np.isfinite(part)) for part in tape.gradient(value, tensors))
        if variance < 1.0:
            assert float(value[0, 0]) == pytest.approx(certain, abs=1e-9)


def test_gradient_is_the_finite_difference() -> None:
    mean, variance = moments()
    tensors = tf.constant(mean), tf.constant(variance)
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        labels = np.full([N, 1], 2.0)
        value = RobustMax(J).prob_is_largest(labels, *tensors, *hermgauss(20))
    gradients = tape.gradient(value, tensors)
    rng = np.random.default_rng(5)
    for which, gradient in enumerate(gradients):
        direction = rng.normal(size=[N, J])
        step = 1e-5 * direction
        ends = []
        for sign in (1.0, -1.0):
            moved = [mean, variance]
            moved[which] = moved[which] + sign * step
            ends.append(probability(2, *moved, num_points=20))
        expected = (ends[0] - ends[1]) / 2e-5
        np.testing.assert_allclose(np.sum(gradient * direction, 1), expected, rtol=1e-6, atol=1e-9)


# GPflow's likelihood with this inverse link


def multi_class(num_classes: int = J) -> MultiClass:
    likelihood = MultiClass(num_classes, invlink=RobustMax(num_classes, epsilon=EPSILON))
    likelihood.num_gauss_hermite_points = POINTS
    return likelihood


def test_predictive_probabilities() -> None:
    """(1 - e) S_j + e / (J - 1) (1 - S_j), which sum to 1."""
    mean, variance = moments()
    X = np.zeros([N, 1])
    largest = np.stack([probability(label, mean, variance) for label in range(J)], 1)
    expected = (1.0 - EPSILON) * largest + EPSILON / (J - 1) * (1.0 - largest)
    actual, spread = multi_class().predict_mean_and_var(X, mean, variance)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    np.testing.assert_allclose(spread, expected * (1.0 - expected), rtol=1e-10)
    np.testing.assert_allclose(np.sum(actual, 1), 1.0, atol=1e-6)
    for label in range(J):
        labels = np.full([N, 1], float(label))
        density = multi_class().predict_log_density(X, mean, variance, labels)
        np.testing.assert_allclose(density, np.log(expected[:, label]), rtol=1e-10)


def test_variational_expectation() -> None:
    """log(1 - e) S_y + log(e / (J - 1)) (1 - S_y)."""
    mean, variance = moments()
    for label in range(J):
        largest = probability(label, mean, variance)
        labels = np.full([N, 1], float(label))
        actual = multi_class().variational_expectations(np.zeros([N, 1]), mean, variance, labels)
        expected = np.log(1.0 - EPSILON) * largest + np.log(EPSILON / (J - 1)) * (1.0 - largest)
        np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_certain_predictions_are_the_link_itself() -> None:
    mean = np.array([[5.0, 0.0, 1.0], [0.0, 1.0, 7.0]])
    likelihood = multi_class(3)
    actual, _ = likelihood.predict_mean_and_var(np.zeros([2, 1]), mean, np.full([2, 3], 1e-8))
    np.testing.assert_allclose(actual, likelihood.invlink(mean), atol=1e-12)


def test_labels_without_a_column_are_refused() -> None:
    mean, variance = moments()
    with pytest.raises(ShapeMismatchError, match="Y"):
        RobustMax(J).prob_is_largest(np.zeros(N), mean, variance, *hermgauss(3))
