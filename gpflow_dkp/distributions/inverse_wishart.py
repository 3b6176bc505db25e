"""The inverse Wishart distribution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_dkp.distributions.inverse_wishart_divergence import expected_log_ratio
from gpflow_dkp.distributions.multigamma import log_multigamma
from gpflow_dkp.distributions.wishart_family import WishartFamily, wishart_parameter_properties
from gpflow_dkp.linalg import half_logdet_from_chol


class InverseWishart(WishartFamily):
    """G [..., P, P], positive definite, with G^{-1} ~ Wishart(Psi^{-1}, df), Psi = L L^T.

    The mean is Psi / (df - P - 1), for df > P + 1; the variance needs df > P + 3. The density is

        log p(G) = df / 2 logdet Psi - df P / 2 log 2 - log MultiGamma_P(df / 2)
                   - (df + P + 1) / 2 logdet G - tr(Psi G^{-1}) / 2.

    [ICML21] writes its degrees of freedom as delta, with df = delta + P + 1.

    `tfp.distributions.kl_divergence` between two of these is in closed form.

    :param df: degrees of freedom > P - 1: a Python number, or a tensor [...].
    :param scale_tril: L = chol(Psi), [..., P, P].
    :raises ValueError: for a `df` that is not allowed, a `scale_tril` that is not square, or is
        known and not a Cholesky factor.

    >>> distribution = gpflow_dkp.distributions.InverseWishart(df=6, scale_tril=np.eye(2))
    >>> np.allclose(distribution.mean(), np.eye(2) / 3.0)
    True
    >>> gamma = gpflow_dkp.distributions.InverseWishart(df=2, scale_tril=np.eye(1))
    >>> round(float(gamma.log_prob(np.eye(1))), 4)  # inverse gamma: -log(2) - 1 / 2
    -1.1931
    """

    def __init__(
        self,
        df: Any,
        scale_tril: Any,
        *,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "InverseWishart",
    ) -> None:
        super().__init__(
            df,
            scale_tril,
            validate_args=validate_args,
            allow_nan_stats=allow_nan_stats,
            parameters=dict(locals()),
            name=name,
        )
        if self.rank < self.dimension:
            raise ValueError(
                f"df is {df} for dimension {self.dimension}; an inverse Wishart needs df > "
                f"dimension - 1 = {self.dimension - 1}: no singular matrix has an inverse."
            )

    @classmethod
    def _parameter_properties(
        cls, dtype: Any, num_classes: int | None = None
    ) -> dict[str, tfp.util.ParameterProperties]:
        return wishart_parameter_properties()

    def _mean(self) -> tf.Tensor:
        scale_tril = tf.convert_to_tensor(self.scale_tril)
        scale = tf.matmul(scale_tril, scale_tril, transpose_b=True)
        excess = self._excess_df(1)
        defined = excess > 0.0
        mean = scale / tf.where(defined, excess, tf.ones_like(excess))
        return tf.where(defined, mean, tf.constant(np.nan, self.dtype))

    def _variance(self) -> tf.Tensor:
        # [(m - P + 1) Psi_ij^2 + (m - P - 1) Psi_ii Psi_jj] / [(m - P) (m - P - 1)^2 (m - P - 3)]
        scale_tril = tf.convert_to_tensor(self.scale_tril)
        scale = tf.matmul(scale_tril, scale_tril, transpose_b=True)
        diagonal = tf.linalg.diag_part(scale)
        products = diagonal[..., :, tf.newaxis] * diagonal[..., tf.newaxis, :]
        excess = self._excess_df(3)
        own = (excess + 4.0) * tf.square(scale) + (excess + 2.0) * products
        defined = excess > 0.0
        denominator = (excess + 3.0) * tf.square(excess + 2.0) * excess
        variance = own / tf.where(defined, denominator, tf.ones_like(excess))
        return tf.where(defined, variance, tf.constant(np.nan, self.dtype))

    def _entropy(self) -> tf.Tensor:
        scale_tril = tf.convert_to_tensor(self.scale_tril)
        log_diagonal = tf.reduce_sum(self._bartlett.law.mean_log_diagonal(), axis=-1)
        trace = self._df_tensor() * self.dimension
        return -self._density(scale_tril, half_logdet_from_chol(scale_tril) - log_diagonal, trace)

    def _excess_df(self, needed: int) -> tf.Tensor:
        """df - P - `needed` [..., 1, 1], positive where a moment is defined."""
        excess = (self._df_tensor() - self.dimension - needed)[..., tf.newaxis, tf.newaxis]
        if self.allow_nan_stats:
            return excess
        message = f"this moment needs df > dimension + {needed}"
        with tf.control_dependencies([tf.debugging.assert_positive(excess, message)]):
            return tf.identity(excess)

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        self._check_value(value)
        scale_tril = tf.convert_to_tensor(self.scale_tril)
        chol = tf.linalg.cholesky(value)
        whitened = tf.linalg.triangular_solve(chol, scale_tril)
        trace = tf.reduce_sum(tf.square(whitened), axis=[-2, -1])
        return self._density(scale_tril, half_logdet_from_chol(chol), trace)

    def _factor(self, scale_tril: tf.Tensor, bartlett: tf.Tensor) -> tf.Tensor:
        # (F F^T)^{-1} = L^{-T} T T^T L^{-1} for F = L T^{-T}
        right = tf.linalg.triangular_solve(bartlett, tf.linalg.matrix_transpose(scale_tril))
        return tf.linalg.matrix_transpose(right)

    def _factor_log_prob(self, scale_tril: tf.Tensor, bartlett: tf.Tensor) -> tf.Tensor:
        half_log_det_gram = half_logdet_from_chol(scale_tril) - half_logdet_from_chol(bartlett)
        trace = tf.reduce_sum(tf.square(bartlett), axis=[-2, -1])
        return self._density(scale_tril, half_log_det_gram, trace)

    def _density(
        self, scale_tril: tf.Tensor, half_log_det_gram: tf.Tensor, trace: tf.Tensor
    ) -> tf.Tensor:
        """log p(G) [...] of logdet G / 2 and tr(Psi G^{-1}), [...] each."""
        P, df = self.dimension, self._df_tensor()
        return (
            df * half_logdet_from_chol(scale_tril)
            - 0.5 * df * P * math.log(2.0)
            - log_multigamma(0.5 * df, P)
            - (df + P + 1.0) * half_log_det_gram
            - 0.5 * trace
        )


@tfp.distributions.RegisterKL(InverseWishart, InverseWishart)
def _kl_inverse_wishart(q: InverseWishart, p: InverseWishart, name: str | None = None) -> tf.Tensor:
    """KL(q || p) [...]."""
    if q.dimension != p.dimension:
        raise ValueError(
            f"the two inverse Wisharts have dimensions {q.dimension} and {p.dimension}; a KL "
            "divergence needs the same dimension."
        )
    with tf.name_scope(name or "kl_inverse_wishart"):
        q_tril, p_tril = tf.convert_to_tensor(q.scale_tril), tf.convert_to_tensor(p.scale_tril)
        square = tf.square(tf.linalg.triangular_solve(q_tril, p_tril))
        return -expected_log_ratio(
            q.dimension,
            p._df_tensor(),
            q._df_tensor() - p._df_tensor(),
            half_logdet_from_chol(p_tril) - half_logdet_from_chol(q_tril),
            q.dimension - tf.reduce_sum(square, axis=[-2, -1]),
        )
