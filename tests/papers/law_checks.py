"""Comparisons of draws with laws and moments, each at one chance of a false alarm."""

import numpy as np
from scipy import stats

FALSE_ALARM = 1e-5
"""Chance that a test of a correct program fails, over the seeds it could have been given."""


def check_mean(draws: np.ndarray, expected: np.ndarray | float, rounding: float = 1e-9) -> None:
    """The mean of independent draws [n, ...]."""
    error = np.abs(np.mean(draws, 0) - expected)
    quantile = stats.t(len(draws) - 1).isf(0.5 * FALSE_ALARM / draws[0].size)
    allowed = quantile * np.std(draws, 0, ddof=1) / np.sqrt(len(draws)) + rounding
    assert np.all(error <= allowed), f"{np.max(error / allowed):.2f} allowances"


def check_law(draws: np.ndarray, cdf) -> None:  # type: ignore[no-untyped-def]
    """Independent draws [n] have the distribution function `cdf`."""
    assert stats.kstest(draws, cdf).pvalue > FALSE_ALARM


def check_one_law(first: np.ndarray, second: np.ndarray) -> None:
    """Independent draws [n] and [m] have one law."""
    assert stats.ks_2samp(first, second).pvalue > FALSE_ALARM
