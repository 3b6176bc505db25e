"""Scores of a Gaussian mixture against scipy, quadrature and the definitions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from bayesian_benchmarks.tasks import metrics

S, N, P = 7, 5, 2


@pytest.fixture
def mixture() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    means, variances = rng.normal(size=(S, N, P)), rng.gamma(2.0, 0.3, size=(S, N, P))
    return means, variances, rng.normal(size=(N, P))


def test_log_density_is_the_log_of_the_mean_density(mixture: tuple) -> None:
    means, variances, Y = mixture
    density = stats.norm.pdf(Y, means, np.sqrt(variances)).prod(axis=-1).mean(axis=0)
    np.testing.assert_allclose(metrics.mixture_log_density(means, variances, Y), np.log(density))


def test_log_density_far_away_does_not_underflow() -> None:
    ones = np.ones((3, 1, 1))
    value = metrics.mixture_log_density(ones, ones, np.array([[101.0]]))
    np.testing.assert_allclose(value, stats.norm.logpdf(100.0))


def test_log_density_moves_with_scale_as_a_density_must(mixture: tuple) -> None:
    means, variances, Y = mixture
    scale = np.array([3.0, 0.2])
    np.testing.assert_allclose(
        metrics.mixture_log_density(means * scale, variances * scale**2, Y * scale),
        metrics.mixture_log_density(means, variances, Y) - np.log(scale).sum(),
    )


def test_mc_error_is_the_spread_over_repetitions() -> None:
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(20, 1))

    def draw() -> tuple[np.ndarray, np.ndarray]:
        return 0.5 * rng.normal(size=(200, 20, 1)), np.full((200, 20, 1), 0.8)

    values, errors = [], []
    for _ in range(400):
        means, variances = draw()
        values.append(metrics.mixture_log_density(means, variances, Y).mean())
        errors.append(metrics.log_likelihood_mc_error(means, variances, Y))
    # The relative error of a standard deviation from 400 draws is 1/sqrt(800): 0.2 is over 5 of it.
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.2)
    assert metrics.log_likelihood_mc_error(means[:1], variances[:1], Y) == 0.0


def test_cdf_is_the_integral_of_the_density(mixture: tuple) -> None:
    means, variances, Y = (part[..., :1] for part in mixture)
    for n in range(N):

        def density(y: float, n: int = n) -> float:
            point = slice(n, n + 1)
            value = metrics.mixture_log_density(means[:, point], variances[:, point], [[y]])
            return float(np.exp(value[0]))

        below, _ = integrate.quad(density, -20.0, float(Y[n, 0]))
        assert metrics.mixture_cdf(means, variances, Y)[n, 0] == pytest.approx(below, abs=1e-8)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_coverage_counts_targets_between_the_quantiles(level: float) -> None:
    rng = np.random.default_rng(4)
    means, variances = rng.normal(size=(4, 60, 1)), rng.gamma(2.0, 0.3, size=(4, 60, 1))
    Y = rng.normal(0.0, 1.5, size=(60, 1))

    def quantile(n: int, probability: float) -> float:
        def excess(y: float) -> float:
            return float(stats.norm.cdf(y, means[:, n], np.sqrt(variances[:, n])).mean())

        return optimize.brentq(lambda y: excess(y) - probability, -30, 30)

    inside = [
        quantile(n, (1 - level) / 2) <= Y[n, 0] <= quantile(n, (1 + level) / 2) for n in range(60)
    ]
    assert metrics.interval_coverage(means, variances, Y, level) == pytest.approx(np.mean(inside))


def test_coverage_of_the_true_distribution_is_its_level() -> None:
    rng = np.random.default_rng(5)
    num_points, level = 20_000, 0.9
    Y = rng.normal(size=(num_points, 1))
    ones = np.ones((2, num_points, 1))
    coverage = metrics.interval_coverage(0 * ones, ones, Y, level)
    # Binomial: 5 standard errors are passed once in 1.7 million runs.
    assert abs(coverage - level) < 5 * np.sqrt(level * (1 - level) / num_points)


def test_transforms_of_draws_are_uniform() -> None:
    rng = np.random.default_rng(6)
    num_points, num_bins = 20_000, 10
    means = rng.normal(size=(3, num_points, 1))
    variances = rng.gamma(2.0, 0.3, size=(3, num_points, 1))
    chosen = rng.integers(3, size=num_points), np.arange(num_points)
    Y = means[chosen] + np.sqrt(variances[chosen]) * rng.normal(size=(num_points, 1))
    counts = metrics.pit_counts(means, variances, Y, num_bins)
    assert counts.sum() == num_points
    expected = num_points / num_bins
    statistic = np.sum((counts - expected) ** 2) / expected
    assert statistic < stats.chi2(num_bins - 1).isf(1e-6)
    # Of predictions with half the standard deviation the bins at both ends have too many.
    narrow = metrics.pit_counts(means, 0.25 * variances, Y, num_bins)
    assert min(narrow[0], narrow[-1]) > 1.5 * expected


def test_every_target_of_every_output_is_in_a_bin() -> None:
    means, variances = np.zeros([2, 4, 2]), np.ones([2, 4, 2])
    Y = np.array([[-1e3, 1e3], [-0.1, 0.1], [0.0, 40.0], [-3.0, 2.0]])
    counts = metrics.pit_counts(means, variances, Y, 4)
    # By the quartiles -0.67, 0 and 0.67; a target at a boundary counts above it.
    np.testing.assert_array_equal(counts, [2, 1, 2, 3])


def test_crps_is_the_integral_of_the_squared_cdf_difference(mixture: tuple) -> None:
    means, variances, Y = mixture
    scores = metrics.crps(means, variances, Y)
    grid = np.linspace(-15, 15, 300_001)
    for n in range(N):
        for p in range(P):
            cdf = stats.norm.cdf(grid[:, None], means[:, n, p], np.sqrt(variances[:, n, p])).mean(
                axis=1
            )
            expected = integrate.trapezoid((cdf - (grid >= Y[n, p])) ** 2, grid)
            assert scores[n, p] == pytest.approx(expected, abs=1e-4)


def test_crps_of_one_gaussian_is_the_textbook_formula() -> None:
    y, m, s = 0.7, 0.2, 1.3
    z = (y - m) / s
    expected = s * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    score = metrics.crps(np.full((1, 1, 1), m), np.full((1, 1, 1), s**2), np.array([[y]]))
    np.testing.assert_allclose(score, expected)


def test_rmse_is_of_the_mean_of_the_mixture() -> None:
    means = np.array([[[0.0], [2.0]], [[2.0], [4.0]]])
    assert metrics.rmse(means, np.array([[1.0], [7.0]])) == pytest.approx(np.sqrt(8.0))


def test_kernel_density_estimate_is_scipys(mixture: tuple) -> None:
    """`gaussian_kde` at bandwidth 1.06 std S^(-1/5), each output with its own."""
    rng = np.random.default_rng(1)
    samples, Y = rng.normal(size=(50, N, 1)) ** 3, rng.normal(size=(N, 1))
    expected = []
    for n in range(N):
        column = samples[:, n, 0]
        # scipy's factor multiplies the standard deviation of ddof = 1
        factor = 1.06 * 50**-0.2 * column.std() / column.std(ddof=1)
        expected.append(stats.gaussian_kde(column, bw_method=factor).logpdf(Y[n, 0])[0])
    np.testing.assert_allclose(metrics.kde_log_density(samples, Y), expected)


def test_kernel_density_estimate_is_biased_on_two_narrow_modes() -> None:
    """docs/mathematics.md 10: by about a nat, so that the exact mixture is reported beside it."""
    rng = np.random.default_rng(0)
    modes = np.where(np.arange(2000) % 2, 1.0, -1.0)[:, None, None]
    variances = np.full_like(modes, 0.01**2)
    samples = metrics.mixture_samples(modes, variances, 2000, rng)
    exact = metrics.mixture_log_density(modes, variances, np.array([[1.0]]))
    assert exact - metrics.kde_log_density(samples, np.array([[1.0]])) > 1.0


def test_mixture_samples_have_the_mixtures_distribution(mixture: tuple) -> None:
    means, variances, _ = mixture
    samples = metrics.mixture_samples(means, variances, 20_000, np.random.default_rng(0))
    for n in range(N):
        cdf = lambda y, n=n: np.mean(  # noqa: E731
            stats.norm.cdf(y, means[:, n, 0, None], np.sqrt(variances[:, n, 0, None])), axis=0
        )
        assert stats.kstest(samples[:, n, 0], cdf).pvalue > 1e-4


def test_shapiro_wilk_is_near_1_for_gaussians_alone() -> None:
    rng = np.random.default_rng(0)
    gaussian = rng.normal(size=(6000, 3, 1))
    two_modes = gaussian + 4.0 * rng.choice([-1.0, 1.0], size=gaussian.shape)
    assert metrics.median_shapiro_wilk(gaussian) > 0.998
    assert metrics.median_shapiro_wilk(two_modes) < 0.9
    mixed = np.concatenate([gaussian[:, :1], two_modes[:, :2]], axis=1)
    expected = np.median([stats.shapiro(mixed[:5000, n, 0]).statistic for n in range(3)])
    assert metrics.median_shapiro_wilk(mixed) == pytest.approx(expected)
