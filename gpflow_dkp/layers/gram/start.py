"""Where a layer starts that is to be near given features."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

START_NOISE = 0.01
"""Variance in the features, against which the covariance's small eigenvalues do not count."""


def whitened_near(covariance: np.ndarray, features: np.ndarray) -> np.ndarray | None:
    """L^T (L L^T + eps I)^{-1} F [M, D], so that L times it is near F; None where L has no finite value.

    Its norm is bounded whatever the covariance's condition.

    :param covariance: L L^T [M, M].
    :param features: F [M, D].
    """
    tril = tf.linalg.cholesky(covariance).numpy()
    if not np.all(np.isfinite(tril)):
        return None
    noisy = tril @ tril.T + START_NOISE * np.eye(len(tril))
    return tril.T @ np.linalg.solve(noisy, features)
