"""The distributions of the random numbers."""

import numpy as np
import tensorflow as tf
from false_alarm import FALSE_ALARM, check_mean, sample_size
from scipy import stats

from gpflow_dkp.random import as_seed, fold_in, gamma, normal, split

# A moment of standard deviation 10 (that of x^4) wrong by 0.1.
SIZE = sample_size(10.0, 0.1, num_comparisons=6)


def test_normal_has_the_moments_of_the_standard_normal() -> None:
    x = normal([SIZE], as_seed(11), tf.float64).numpy()
    powers = np.stack([x**k for k in range(1, 7)], -1)
    check_mean(powers, np.array([0.0, 1.0, 0.0, 3.0, 0.0, 15.0]))


def test_normal_passes_kolmogorov_and_smirnov() -> None:
    x = normal([SIZE], as_seed(12), tf.float64).numpy()
    assert stats.kstest(x, "norm").pvalue > FALSE_ALARM


def test_pairs_of_one_box_muller_draw_are_independent() -> None:
    x, y = normal([2, SIZE], as_seed(13), tf.float64).numpy()
    check_mean(np.stack([x * y, (x**2 - 1) * (y**2 - 1), x * (y**2 - 1)], -1), np.zeros(3))
    check_mean((x[1:] * x[:-1])[:, None], 0.0)


def test_related_seeds_give_independent_numbers() -> None:
    seeds = [as_seed(0), as_seed(1), *split(0, 2), fold_in(0, 0), fold_in(0, 1)]
    draws = np.stack([normal([40_000], seed, tf.float64).numpy() for seed in seeds])
    products = [draws[i] * draws[j] for i in range(len(seeds)) for j in range(i)]
    check_mean(np.stack(products, -1), np.zeros(len(products)))


def test_gamma_has_the_moments_and_the_distribution_of_the_gamma() -> None:
    concentration = np.array([0.3, 1.0, 8.5])
    draws = gamma(100_000, tf.constant(concentration), as_seed(14)).numpy()
    check_mean(draws, concentration)
    check_mean((draws - concentration) ** 2, concentration)
    for column, alpha in zip(draws.T, concentration, strict=True):
        assert stats.kstest(column, stats.gamma(alpha).cdf).pvalue > FALSE_ALARM / 3


def test_gamma_gradient_is_that_of_its_expectations() -> None:
    """d E[u] / d alpha = 1 and d E[u^2] / d alpha = 2 alpha + 1, each draw's gradient unbiased."""
    alpha = tf.constant(np.full(50_000, 1.7))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(alpha)
        draws = gamma(1, alpha, as_seed(15))
        square = tf.square(draws)
    gradients = [tape.gradient(draws, alpha), tape.gradient(square, alpha)]
    check_mean(np.stack(gradients, -1), np.array([1.0, 2 * 1.7 + 1.0]))
