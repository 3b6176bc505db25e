"""Seeds."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp


def stateless_seed(seed: Any) -> tf.Tensor:
    """A seed [2] for `tf.random.stateless_*` that depends on `seed` alone.

    TFP draws the seed behind an integer from TensorFlow's global generator, so that the second
    call with it gives other numbers than the first. Here an integer is the seed itself.

    :param seed: an integer, a stateless seed (integer tensor, array or pair of shape [2]), a
        callable that returns one of these, or `None` for other numbers on every call.
    :return: an int32 tensor [2].
    :raises ValueError: for a seed of another shape.
    """
    if callable(seed):
        seed = seed()
    if seed is None:
        return tfp.random.sanitize_seed(None)
    if isinstance(seed, numbers.Integral):
        words = np.array([int(seed) % 2**64], dtype=np.uint64).view(np.int32)
        return tf.constant(words, dtype=tf.int32)
    seed = tf.convert_to_tensor(seed)
    if not seed.shape.is_compatible_with([2]):
        raise ValueError(
            f"seed has shape {seed.shape}; it must be a Python integer, None, or an integer tensor "
            "of shape [2] such as tfp.random.split_seed returns."
        )
    return tfp.random.sanitize_seed(seed)
