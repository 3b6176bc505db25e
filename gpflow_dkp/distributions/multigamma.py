"""The multivariate gamma function and its derivative."""

from __future__ import annotations

import math

import tensorflow as tf
from check_shapes import check_shapes


@check_shapes("a: [batch...]", "return: [batch...]")
def log_multigamma(a: tf.Tensor, p: int) -> tf.Tensor:
    """log MultiGamma_p(a) = p (p - 1) / 4 log(pi) + sum_{k < p} lgamma(a - k / 2).

    :param a: floating tensor [...], > (p - 1) / 2.
    :param p: dimension, an integer >= 1.
    :return: [...].

    >>> a = tf.constant(5.0, tf.float64)
    >>> round(float(tf.exp(gpflow_dkp.distributions.log_multigamma(a, 1))), 6)  # 4!
    24.0
    """
    return 0.25 * p * (p - 1) * math.log(math.pi) + tf.reduce_sum(
        tf.math.lgamma(_arguments(a, p)), axis=-1
    )


@check_shapes("a: [batch...]", "return: [batch...]")
def multidigamma(a: tf.Tensor, p: int) -> tf.Tensor:
    """The derivative of `log_multigamma` with respect to `a`: sum_{k < p} digamma(a - k / 2).

    :param a: floating tensor [...], > (p - 1) / 2.
    :param p: dimension, an integer >= 1.
    :return: [...].

    >>> a = tf.constant(1.0, tf.float64)
    >>> round(float(gpflow_dkp.distributions.multidigamma(a, 1)), 4)  # minus Euler's constant
    -0.5772
    """
    return tf.reduce_sum(tf.math.digamma(_arguments(a, p)), axis=-1)


def _arguments(a: tf.Tensor, p: int) -> tf.Tensor:
    return a[..., tf.newaxis] - 0.5 * tf.range(p, dtype=a.dtype)
