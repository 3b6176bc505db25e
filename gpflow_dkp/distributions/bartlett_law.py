"""The law of a Bartlett factor as plain tensors: moments, density and entropy."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes

SERIES = (
    *(1 / 2, -9 / 8, 153 / 16, -21429 / 128, 1268343 / 256, -227803437 / 1024),
    *(28918062729 / 2048, -39470164739469 / 32768),
)
"""Coefficients of `root_gamma_moments`: of s^-1, s^-3, ..., s^-15."""

SERIES_START = {tf.float64: 10.0, tf.float32: 4.0}
"""Concentrations from which the series is exact to rounding."""


class BartlettLaw(NamedTuple):
    """What a `BartlettFactor` is a tfp Distribution of, without the cost of building one.

    T [..., P, p] is lower trapezoidal with independent T_jj > 0, T_jj^2 ~ Gamma(concentration_j,
    rate_j), and T_ij ~ Normal(loc_ij, scale_ij) for i > j. The shapes P and p must be known; values
    are not checked. What `loc` and `scale` have on and above the diagonal is not used and gets zero
    gradients.

    :param concentration: [..., p], the papers' alpha.
    :param rate: [..., p], beta.
    :param loc: [..., P, p], mu.
    :param scale: standard deviations [..., P, p], sigma.

    >>> one = tf.ones([1], tf.float64)
    >>> law = gpflow_dkp.distributions.BartlettLaw(one, 0.5 * one, 0.0 * one[None], one[None])
    >>> round(float(law.mean()[0, 0]), 4)  # sqrt(pi / 2): T_11^2 is exponential, of mean 2
    1.2533
    """

    concentration: tf.Tensor
    rate: tf.Tensor
    loc: tf.Tensor
    scale: tf.Tensor

    @check_shapes(
        "self.concentration: [broadcast batch..., p]",
        "self.rate: [broadcast batch..., p]",
        "self.loc: [broadcast batch..., P, p]",
        "return: [batch..., P, p]",
    )
    def mean(self) -> tf.Tensor:
        """E[T] [..., P, p]."""
        return self.moments()[0]

    @check_shapes(
        "self.concentration: [broadcast batch..., p]",
        "self.rate: [broadcast batch..., p]",
        "self.scale: [broadcast batch..., P, p]",
        "return: [batch..., P, p]",
    )
    def variance(self) -> tf.Tensor:
        """Elementwise variance of T [..., P, p]."""
        return self.moments()[1]

    @check_shapes(
        "self.concentration: [diagonal_batch..., p]",
        "return[0]: [mean_batch..., P, p]",
        "return[1]: [variance_batch..., P, p]",
    )
    def moments(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and elementwise variance of T [..., P, p]."""
        mean, variance = root_gamma_moments(self.concentration)
        return (
            self._trapezoidal(mean / tf.sqrt(self.rate), self.loc),
            self._trapezoidal(variance / self.rate, tf.square(self.scale)),
        )

    @check_shapes(
        "self.concentration: [broadcast batch..., p]",
        "self.rate: [broadcast batch..., p]",
        "return[0]: [batch..., p]",
        "return[1]: [batch..., p]",
    )
    def diagonal_cumulants(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Third and fourth cumulants of the T_jj, [..., p] each."""
        # With a the concentration, m and v the moments for rate 1, and m^2 + v = a:
        # E T^3 = (a + 1/2) m and E T^4 = a (a + 1).
        a, (m, v) = self.concentration, root_gamma_moments(self.concentration)
        third = m * (0.5 - 2.0 * v)
        fourth = a * (4.0 * v - 1.0) + 2.0 * v - 6.0 * tf.square(v)
        return third / self.rate**1.5, fourth / tf.square(self.rate)

    @check_shapes(
        "self.concentration: [broadcast batch..., p]",
        "self.rate: [broadcast batch..., p]",
        "return: [batch..., p]",
    )
    def mean_log_diagonal(self) -> tf.Tensor:
        """E[log T_jj] = (digamma(concentration_j) - log rate_j) / 2, [..., p]."""
        return 0.5 * (tf.math.digamma(self.concentration) - tf.math.log(self.rate))

    @check_shapes(
        "self.concentration: [broadcast batch..., p]",
        "self.rate: [broadcast batch..., p]",
        "self.loc: [broadcast batch..., P, p]",
        "self.scale: [broadcast batch..., P, p]",
        "factor: [broadcast batch..., P, p]",
        "return: [batch...]",
    )
    def log_prob(self, factor: tf.Tensor) -> tf.Tensor:
        """log q(T) [...], with respect to Lebesgue measure on and below the diagonal (docs/mathematics.md 1).

        :param factor: T [..., P, p]; what is above its diagonal is not used.
        """
        concentration, rate = self.concentration, self.rate
        diagonal = tf.linalg.diag_part(factor)
        log_gamma = (
            math.log(2.0)
            + concentration * tf.math.log(rate)
            - tf.math.lgamma(concentration)
            + (2.0 * concentration - 1.0) * tf.math.log(diagonal)
            - rate * tf.square(diagonal)
        )
        scale = self._below(self.scale, 1.0)
        standardised = self._below(factor - self.loc) / scale
        log_normal = -0.5 * tf.square(standardised) - tf.math.log(scale)
        return (
            tf.reduce_sum(log_gamma, -1)
            + tf.reduce_sum(log_normal, [-2, -1])
            - 0.5 * math.log(2.0 * math.pi) * self._num_normals
        )

    @check_shapes(
        "self.concentration: [broadcast batch..., p]",
        "self.rate: [broadcast batch..., p]",
        "self.scale: [broadcast batch..., P, p]",
        "return: [batch...]",
    )
    def entropy(self) -> tf.Tensor:
        """-E[log q(T)] [...]."""
        concentration, log_rate = self.concentration, tf.math.log(self.rate)
        digamma = tf.math.digamma(concentration)
        of_diagonal = (
            concentration
            + tf.math.lgamma(concentration)
            + (0.5 - concentration) * digamma
            - 0.5 * log_rate
            - math.log(2.0)
        )
        of_normals = tf.math.log(self._below(self.scale, 1.0))
        return (
            tf.reduce_sum(of_diagonal, -1)
            + tf.reduce_sum(of_normals, [-2, -1])
            + 0.5 * (1.0 + math.log(2.0 * math.pi)) * self._num_normals
        )

    @property
    def dimension(self) -> int:
        """The number P of rows."""
        return int(self.loc.shape[-2])

    @property
    def rank(self) -> int:
        """The number p of columns."""
        return int(self.loc.shape[-1])

    @property
    def _num_normals(self) -> int:
        return self.rank * (2 * self.dimension - self.rank - 1) // 2

    def _below(self, matrix: tf.Tensor, other: float = 0.0) -> tf.Tensor:
        """`matrix` strictly below the diagonal, and `other` elsewhere."""
        below = np.tri(self.dimension, self.rank, -1, dtype=bool)
        return tf.where(below, matrix, tf.constant(other, matrix.dtype))

    def _trapezoidal(self, diagonal: tf.Tensor, entries: tf.Tensor) -> tf.Tensor:
        """A lower-trapezoidal matrix with this diagonal, and `entries` below it."""
        entries = self._below(entries)
        if diagonal.shape.rank != 1 or entries.shape.rank != 2:
            batch = tf.broadcast_dynamic_shape(tf.shape(diagonal)[:-1], tf.shape(entries)[:-2])
            entries = tf.broadcast_to(entries, tf.concat([batch, tf.shape(entries)[-2:]], 0))
            diagonal = tf.broadcast_to(diagonal, tf.concat([batch, tf.shape(diagonal)[-1:]], 0))
        return tf.linalg.set_diag(entries, diagonal)


@check_shapes("concentration: [batch...]", "return[0]: [batch...]", "return[1]: [batch...]")
def root_gamma_moments(concentration: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance [...] of sqrt(x), x ~ Gamma(concentration, 1), to rounding in any precision.

    The mean is m = Gamma(a + 1/2) / Gamma(a) and the variance a - m^2, which tends to 1/4: the
    difference loses all digits as a grows. Brouncker's continued fraction has no difference,

        4 m^2 = s + 1 / (2 s + 9 / (2 s + 25 / (2 s + ...))),   s = 4 a - 1,

    and what follows s is a series of odd powers of 1 / s.

    :param concentration: a > 0, [...].
    """
    dtype = concentration.dtype
    start = tf.constant(SERIES_START.get(dtype, 4.0), dtype)
    is_large = concentration > start
    inverse = 1.0 / (4.0 * tf.maximum(concentration, start) - 1.0)
    odd = tf.constant(np.arange(1, 2 * len(SERIES), 2), dtype)
    tail = tf.reduce_sum(tf.constant(SERIES, dtype) * inverse[..., None] ** odd, -1)
    small = tf.minimum(concentration, start)
    square = tf.exp(2.0 * (tf.math.lgamma(small + 0.5) - tf.math.lgamma(small)))
    variance = tf.where(is_large, 0.25 * (1.0 - tail), small - square)
    square = tf.where(is_large, concentration - variance, square)
    return tf.sqrt(square), variance
