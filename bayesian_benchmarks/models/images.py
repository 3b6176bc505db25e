"""The images whose pixels are a dataset's features."""

from __future__ import annotations

import math

from ..errors import ConfigError


def image_shape(num_features: int, *, model: str, instead: str) -> tuple[int, int, int]:
    """Height, width and channels of square images of one channel or three.

    :raises ConfigError: so many features are none; it names the model, and what to take instead.
    """
    for channels in (1, 3):
        side = math.isqrt(num_features // channels)
        if side**2 * channels == num_features:
            return side, side, channels
    raise ConfigError(
        f"{model}: {num_features} features are no square image of 1 or 3 channels; use {instead}."
    )
