"""Sample sizes and tolerances of statistical tests, from the false alarms that they accept."""

import numpy as np
from scipy import stats

FALSE_ALARM = 1e-5
"""Chance that a test of a correct program fails, over the seeds it could have been given."""

MISS = 1e-3
"""Chance that an error of the size a test is made for goes unseen."""


def threshold(num_comparisons: int, num_draws: float = np.inf) -> float:
    """Estimated standard errors that no correct mean of `num_draws` is away from its expectation."""
    return float(stats.t(num_draws - 1).isf(0.5 * FALSE_ALARM / num_comparisons))


def sample_size(standard_deviation: float, error: float, num_comparisons: int = 1) -> int:
    """Draws that show a wrong mean by `error`, among `num_comparisons`."""
    needed = threshold(num_comparisons) + float(stats.norm.isf(MISS))
    return int(np.ceil((needed * standard_deviation / error) ** 2))


def check_mean(draws: np.ndarray, expected: np.ndarray | float, rounding: float = 1e-9) -> None:
    """The mean of independent `draws` [n, ...] is `expected` [...]."""
    draws = np.asarray(draws, dtype=float)
    error = np.abs(draws.mean(0) - expected)
    standard_error = draws.std(0, ddof=1) / np.sqrt(len(draws))
    allowed = threshold(draws[0].size, len(draws)) * standard_error + rounding
    worst = np.unravel_index(np.argmax(error / allowed), np.shape(error))
    assert np.all(error <= allowed), (
        f"mean {draws.mean(0)[worst]:.6g} at {worst} of {len(draws)} draws, "
        f"error {error[worst]:.3g}, allowed {allowed[worst]:.3g}"
    )


def check_equal_means(first: np.ndarray, second: np.ndarray) -> None:
    """Independent draws `first` [n, ...] and `second` [m, ...] have one mean."""
    first, second = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    difference = np.abs(first.mean(0) - second.mean(0))
    variance = first.var(0, ddof=1) / len(first) + second.var(0, ddof=1) / len(second)
    allowed = threshold(first[0].size, min(len(first), len(second))) * np.sqrt(variance) + 1e-9
    assert np.all(difference <= allowed), f"differ by {np.max(difference / allowed):.2f} allowances"


def second_moments(draws: np.ndarray) -> np.ndarray:
    """The products x_i x_j [n, k (k + 1) / 2] of draws [n, k]."""
    rows, columns = np.tril_indices(draws.shape[1])
    return draws[:, rows] * draws[:, columns]
