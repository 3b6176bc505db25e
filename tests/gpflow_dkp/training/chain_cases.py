"""What independent chains side by side say of a law: their own means are independent draws."""

from __future__ import annotations

import numpy as np
from scipy import stats

FALSE_ALARM = 1e-5
"""Chance that a test of a correct sampler fails."""

NUM_CHAINS = 2000


def relative_error(num_draws: int) -> float:
    """Relative standard error of a variance from so many independent Gaussian draws."""
    return float(np.sqrt(2.0 / num_draws))


def check_law(draws: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> None:
    """Draws [K, C, d] of C chains have this mean and covariance, within errors of each chain's means."""
    centred = draws - mean
    rows, columns = np.tril_indices(len(mean))
    products = (centred[..., rows] * centred[..., columns]).mean(0) - covariance[rows, columns]
    errors = np.hstack([centred.mean(0), products])
    p_values = stats.ttest_1samp(errors, 0.0).pvalue
    assert np.min(p_values) > FALSE_ALARM / p_values.size, (
        f"p {np.min(p_values):.1e}: mean and covariance are off by {errors.mean(0)}"
    )
