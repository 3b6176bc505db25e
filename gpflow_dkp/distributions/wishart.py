"""The Wishart distribution, singular or not."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_dkp.bijectors import OuterProduct
from gpflow_dkp.distributions.multigamma import log_multigamma
from gpflow_dkp.distributions.wishart_family import (
    WishartFamily,
    sum_log_diagonal,
    wishart_parameter_properties,
)


class Wishart(WishartFamily):
    """G [..., P, P] with the law of sum_{k <= df} f_k f_k^T, f_k ~ Normal(0, S), S = L L^T.

    The mean is df S: for the deep Wishart process, whose G has mean K, pass chol(K / df). For
    df < P, G is singular with rank p = df. With G = F F^T, the density is

        log p(G) = df (p - P) / 2 log pi - df P / 2 log 2 - df / 2 logdet S
                   - log MultiGamma_p(df / 2) + (df - P - 1) / 2 logdet G[:p, :p]
                   - ||L^{-1} F||^2 / 2

    with respect to Lebesgue measure on the lower part of the first p columns of G (Srivastava 2003,
    [NeurIPS21]). For df > P - 1 it is the usual Wishart density.

    `log_prob` trusts its argument to have rank p, and reads its first p columns only.

    :param df: degrees of freedom. A Python integer >= 1; or a real > P - 1, or a tensor [...] of
        such.
    :param scale_tril: L = chol(S), [..., P, P].
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
        name: str = "Wishart",
    ) -> None:
        super().__init__(
            df,
            scale_tril,
            validate_args=validate_args,
            allow_nan_stats=allow_nan_stats,
            parameters=dict(locals()),
            name=name,
        )

    @classmethod
    def _parameter_properties(
        cls, dtype: Any, num_classes: int | None = None
    ) -> dict[str, tfp.util.ParameterProperties]:
        return wishart_parameter_properties()

    def _mean(self) -> tf.Tensor:
        scale_tril = tf.convert_to_tensor(self.scale_tril)
        scale = tf.matmul(scale_tril, scale_tril, transpose_b=True)
        return self._df_tensor()[..., tf.newaxis, tf.newaxis] * scale

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        self._check_value(value)
        scale_tril = tf.convert_to_tensor(self.scale_tril)
        factor = OuterProduct(rank=self.rank).inverse(value)
        return self._factor_log_prob(scale_tril, tf.linalg.triangular_solve(scale_tril, factor))

    def _factor(self, scale_tril: tf.Tensor, bartlett: tf.Tensor) -> tf.Tensor:
        return tf.matmul(scale_tril, bartlett)

    def _factor_log_prob(self, scale_tril: tf.Tensor, bartlett: tf.Tensor) -> tf.Tensor:
        # L^{-1} F is the Bartlett factor T, and logdet G[:p, :p] = 2 sum_{j <= p} log (L_jj T_jj).
        P, p, df = self.dimension, self.rank, self._df_tensor()
        leading = scale_tril[..., :p, :p]
        half_log_det_gram = sum_log_diagonal(leading) + sum_log_diagonal(bartlett)
        return (
            0.5 * df * ((p - P) * math.log(math.pi) - P * math.log(2.0))
            - df * sum_log_diagonal(scale_tril)
            - log_multigamma(0.5 * df, p)
            + (df - P - 1.0) * half_log_det_gram
            - 0.5 * tf.reduce_sum(tf.square(bartlett), axis=[-2, -1])
        )
