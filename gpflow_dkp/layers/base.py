"""What both families of layers share."""

from __future__ import annotations

import tensorflow as tf

LOG_RATIOS = ("expected", "sampled")

MIN_VARIANCE = {tf.float64: 1e-12, tf.float32: 1e-7}
"""Floor of a conditional variance that rounding may take below zero, by precision."""


def check_noise(full_cov: bool, common_noise: bool) -> None:
    """`condition` draws points jointly or gives each the same random numbers."""
    if full_cov and common_noise:
        raise ValueError("common_noise: got True with full_cov=True, needs one of them")
