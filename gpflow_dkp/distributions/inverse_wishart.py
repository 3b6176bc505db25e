"""The inverse Wishart distribution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_dkp.distributions.multigamma import log_multigamma, multidigamma
from gpflow_dkp.distributions.wishart_family import (
    WishartFamily,
    sum_log_diagonal,
    wishart_parameter_properties,
)


class InverseWishart(WishartFamily):
    """G [..., P, P], positive definite, with G^{-1} ~ Wishart(Psi^{-1}, df), Psi = L L^T.

    The mean is Psi / (df - P - 1), for df > P + 1. The density is

        log p(G) = df / 2 logdet Psi - df P / 2 log 2 - log MultiGamma_P(df / 2)
                   - (df + P + 1) / 2 logdet G - tr(Psi G^{-1}) / 2.

    [ICML21] writes its degrees of freedom as delta, with df = delta + P + 1.

    `tfp.distributions.kl_divergence` between two of these is in closed form.

    :param df: degrees of freedom > P - 1: a Python number, or a tensor [...].
    :param scale_tril: L = chol(Psi), [..., P, P].
    :raises ValueError: for a `df` that is not allowed, a `scale_tril` that is not square, or is
        known and not a Cholesky factor.
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
        excess = (self._df_tensor() - self.dimension - 1.0)[..., tf.newaxis, tf.newaxis]
        if not self.allow_nan_stats:
            message = "the mean needs df > dimension + 1"
            with tf.control_dependencies([tf.debugging.assert_positive(excess, message)]):
                excess = tf.identity(excess)
        defined = excess > 0.0
        mean = scale / tf.where(defined, excess, tf.ones_like(excess))
        return tf.where(defined, mean, tf.constant(np.nan, self.dtype))

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        self._check_value(value)
        scale_tril = tf.convert_to_tensor(self.scale_tril)
        chol = tf.linalg.cholesky(value)
        whitened = tf.linalg.triangular_solve(chol, scale_tril)
        return self._density(scale_tril, sum_log_diagonal(chol), whitened)

    def _factor(self, scale_tril: tf.Tensor, bartlett: tf.Tensor) -> tf.Tensor:
        # (F F^T)^{-1} = L^{-T} T T^T L^{-1} for F = L T^{-T}
        right = tf.linalg.triangular_solve(bartlett, tf.linalg.matrix_transpose(scale_tril))
        return tf.linalg.matrix_transpose(right)

    def _factor_log_prob(self, scale_tril: tf.Tensor, bartlett: tf.Tensor) -> tf.Tensor:
        half_log_det_gram = sum_log_diagonal(scale_tril) - sum_log_diagonal(bartlett)
        return self._density(scale_tril, half_log_det_gram, bartlett)

    def _density(
        self, scale_tril: tf.Tensor, half_log_det_gram: tf.Tensor, whitened: tf.Tensor
    ) -> tf.Tensor:
        """log p(G), with tr(Psi G^{-1}) = ||whitened||^2."""
        P, df = self.dimension, self._df_tensor()
        return (
            df * sum_log_diagonal(scale_tril)
            - 0.5 * df * P * math.log(2.0)
            - log_multigamma(0.5 * df, P)
            - (df + P + 1.0) * half_log_det_gram
            - 0.5 * tf.reduce_sum(tf.square(whitened), axis=[-2, -1])
        )


@tfp.distributions.RegisterKL(InverseWishart, InverseWishart)
def _kl_inverse_wishart(q: InverseWishart, p: InverseWishart, name: str | None = None) -> tf.Tensor:
    """KL(q || p) [...], from E_q logdet G and E_q G^{-1} = df Psi_q^{-1}."""
    if q.dimension != p.dimension:
        raise ValueError(
            f"the two inverse Wisharts have dimensions {q.dimension} and {p.dimension}; a KL "
            "divergence needs the same dimension."
        )
    with tf.name_scope(name or "kl_inverse_wishart"):
        P, q_df, p_df = q.dimension, q._df_tensor(), p._df_tensor()
        q_tril, p_tril = tf.convert_to_tensor(q.scale_tril), tf.convert_to_tensor(p.scale_tril)
        q_log_det, p_log_det = 2.0 * sum_log_diagonal(q_tril), 2.0 * sum_log_diagonal(p_tril)
        trace = tf.reduce_sum(tf.square(tf.linalg.triangular_solve(q_tril, p_tril)), axis=[-2, -1])
        mean_log_det = q_log_det - P * math.log(2.0) - multidigamma(0.5 * q_df, P)
        return (
            0.5 * (q_df * q_log_det - p_df * p_log_det)
            - 0.5 * (q_df - p_df) * P * math.log(2.0)
            - log_multigamma(0.5 * q_df, P)
            + log_multigamma(0.5 * p_df, P)
            - 0.5 * (q_df - p_df) * mean_log_det
            + 0.5 * q_df * (trace - P)
        )
