"""Scores of a predictive distribution that is a mixture of Gaussians: pure functions of arrays.

Everywhere `means`, `variances` [S, N, P] are the mixture's equally weighted components and
`Y` [N, P] the targets. The formulas are in docs/mathematics.md, section 10.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def check_finite(values: Mapping[str, npt.ArrayLike]) -> None:
    """Raise `FloatingPointError` if a score or prediction is NaN or infinite, or has such a part."""
    bad = [name for name, value in values.items() if not np.all(np.isfinite(value))]
    if bad:
        raise FloatingPointError(f"{', '.join(bad)} of the trained model is NaN or infinite")


def mixture_log_density(means: Array, variances: Array, Y: Array) -> Array:
    """Exact log density of each point under the mixture: [N], by log-mean-exp over components."""
    return _mixture(means, variances).log_prob(Y).numpy()


def _mixture(means: Array, variances: Array) -> Any:
    from gpflow_dkp.mixture import (
        Mixture,  # and TensorFlow, which takes seconds that tables do without
    )

    return Mixture(means, variances)


def log_likelihood_mc_error(means: Array, variances: Array, Y: Array) -> float:
    """Monte Carlo standard error of the mean over points of `mixture_log_density`.

    Delta method: the mean log density moves with sample s as the mean over points of that sample's
    density relative to the mixture's. A single component is the exact density: its error is 0.
    """
    from scipy.special import logsumexp

    num_samples = len(means)
    if num_samples < 2:
        return 0.0
    log_density = _mixture(means, variances).component_log_prob(Y).numpy()
    relative = np.exp(log_density - logsumexp(log_density, axis=0) + np.log(num_samples))
    return float(relative.mean(axis=1).std(ddof=1) / np.sqrt(num_samples))


def mixture_cdf(means: Array, variances: Array, Y: Array) -> Array:
    """Cumulative distribution of the mixture at the targets, output by output: [N, P]."""
    return _mixture(means, variances).cdf(Y).numpy()


def interval_coverage(means: Array, variances: Array, Y: Array, level: float) -> float:
    """Fraction of targets inside the central interval of probability `level`, such as 0.9.

    A target is between the quantiles (1 - level)/2 and (1 + level)/2 exactly when the mixture's
    cumulative distribution there is between these numbers, so no quantile is computed.
    """
    return float(np.mean(np.abs(mixture_cdf(means, variances, Y) - 0.5) <= level / 2))


def pit_counts(means: Array, variances: Array, Y: Array, num_bins: int) -> npt.NDArray[np.int64]:
    """Targets by their probability integral transform F_n(y_n), in equal bins of [0, 1]: [num_bins].

    Each output is counted. Transforms of draws from the predictive distributions are uniform (Dawid, 1984).
    """
    transforms = np.clip(mixture_cdf(means, variances, Y), 0.0, 1.0)
    return np.histogram(transforms, num_bins, (0.0, 1.0))[0]


def crps(means: Array, variances: Array, Y: Array) -> Array:
    """Continuous ranked probability score of the mixture, exact, in the targets' units: [N, P]."""
    return _mixture(means, variances).crps(Y).numpy()


def rmse(means: Array, Y: Array) -> float:
    """Root mean squared error of the mixture's mean, in the targets' units."""
    return float(np.sqrt(np.mean((means.mean(axis=0) - Y) ** 2)))


def mixture_samples(
    means: Array, variances: Array, num_samples: int, rng: np.random.Generator
) -> Array:
    """Draws from the mixture [num_samples, N, P], each component's in turn."""
    components = np.arange(num_samples) % len(means)
    noise = rng.standard_normal((num_samples, *means.shape[1:]))
    return means[components] + np.sqrt(variances[components]) * noise


def kde_log_density(samples: Array, Y: Array) -> Array:
    """Log density of each point by a Gaussian kernel density estimate from samples [S, N, P]: [N].

    Each point and output has its own bandwidth, 1.06 std S^(-1/5), as in [ICML19]; biased where the
    density is narrower than that.
    """
    num_samples = len(samples)
    bandwidth = 1.06 * samples.std(axis=0) * num_samples**-0.2
    return mixture_log_density(samples, np.broadcast_to(bandwidth**2, samples.shape), Y)


def median_shapiro_wilk(samples: Array) -> float:
    """Median over points and outputs of the Shapiro-Wilk statistic of samples [S, N, P].

    1 for Gaussian marginals, less for others. At most 5 000 samples, as the statistic is made for.
    """
    from scipy.stats import shapiro

    columns = samples[:5000].reshape(min(len(samples), 5000), -1).T
    return float(np.median([shapiro(column).statistic for column in columns]))
