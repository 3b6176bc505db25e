"""The Wishart distribution, singular or not."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_dkp.bijectors import OuterProduct
from gpflow_dkp.distributions.bartlett_factor import is_number
from gpflow_dkp.distributions.multigamma import log_multigamma
from gpflow_dkp.distributions.wishart_divergence import expected_log_ratio
from gpflow_dkp.distributions.wishart_family import WishartFamily, wishart_parameter_properties
from gpflow_dkp.linalg import half_logdet_from_chol


class Wishart(WishartFamily):
    """G [..., P, P] with the law of sum_{k <= df} f_k f_k^T, f_k ~ Normal(0, S), S = L L^T.

    The mean is df S: for the deep Wishart process, whose G has mean K, pass chol(K / df). For
    df < P, G is singular with rank p = df. With G = F F^T, the density is

        log p(G) = df (p - P) / 2 log pi - df P / 2 log 2 - df / 2 logdet S
                   - log MultiGamma_p(df / 2) + (df - P - 1) / 2 logdet G[:p, :p]
                   - ||L^{-1} F||^2 / 2

    with respect to Lebesgue measure on the lower part of the first p columns of G (Srivastava 2003,
    [NeurIPS21]). For df > P - 1 it is the usual Wishart density.

    `log_prob` trusts its argument to have rank p, and reads its first p columns only. `entropy` is
    with respect to the same measure. `tfp.distributions.kl_divergence` between two of these is in
    closed form: of one rank, so that two singular ones have the same df.

    :param df: degrees of freedom. A Python integer >= 1; or a real > P - 1, or a tensor [...] of
        such.
    :param scale_tril: L = chol(S), [..., P, P].
    :raises ValueError: for a `df` that is not allowed, a `scale_tril` that is not square, or is
        known and not a Cholesky factor.

    >>> singular = gpflow_dkp.distributions.Wishart(df=2, scale_tril=np.eye(3))
    >>> int(np.linalg.matrix_rank(singular.sample(seed=0)))
    2
    >>> chi_squared = gpflow_dkp.distributions.Wishart(df=2, scale_tril=np.eye(1))
    >>> round(float(chi_squared.log_prob(np.eye(1))), 4)  # -log(2) - 1 / 2
    -1.1931
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

    def _variance(self) -> tf.Tensor:
        # Var G_ij = df (S_ij^2 + S_ii S_jj), whatever the rank.
        scale_tril = tf.convert_to_tensor(self.scale_tril)
        scale = tf.matmul(scale_tril, scale_tril, transpose_b=True)
        diagonal = tf.linalg.diag_part(scale)
        products = diagonal[..., :, tf.newaxis] * diagonal[..., tf.newaxis, :]
        return self._df_tensor()[..., tf.newaxis, tf.newaxis] * (tf.square(scale) + products)

    def _entropy(self) -> tf.Tensor:
        # log p is linear in the log T_jj and in ||T||^2, whose expectation is df P.
        log_diagonal = self._bartlett.law.mean_log_diagonal()
        square = self._df_tensor() * self.dimension
        return -self._density(tf.convert_to_tensor(self.scale_tril), log_diagonal, square)

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        self._check_value(value)
        scale_tril = tf.convert_to_tensor(self.scale_tril)
        factor = OuterProduct(rank=self.rank).inverse(value)
        return self._factor_log_prob(scale_tril, tf.linalg.triangular_solve(scale_tril, factor))

    def _factor(self, scale_tril: tf.Tensor, bartlett: tf.Tensor) -> tf.Tensor:
        return tf.matmul(scale_tril, bartlett)

    def _factor_log_prob(self, scale_tril: tf.Tensor, bartlett: tf.Tensor) -> tf.Tensor:
        log_diagonal = tf.math.log(tf.linalg.diag_part(bartlett))
        square = tf.reduce_sum(tf.square(bartlett), axis=[-2, -1])
        return self._density(scale_tril, log_diagonal, square)

    def _density(
        self, scale_tril: tf.Tensor, log_diagonal: tf.Tensor, square: tf.Tensor
    ) -> tf.Tensor:
        """log p(G) of log T_jj [..., p] and ||T||^2 [...], T = L^{-1} F the Bartlett factor."""
        # logdet G[:p, :p] = 2 sum_{j <= p} log (L_jj T_jj).
        P, p, df = self.dimension, self.rank, self._df_tensor()
        leading = half_logdet_from_chol(scale_tril[..., :p, :p])
        half_log_det_gram = leading + tf.reduce_sum(log_diagonal, axis=-1)
        return (
            0.5 * df * ((p - P) * math.log(math.pi) - P * math.log(2.0))
            - df * half_logdet_from_chol(scale_tril)
            - log_multigamma(0.5 * df, p)
            + (df - P - 1.0) * half_log_det_gram
            - 0.5 * square
        )


@tfp.distributions.RegisterKL(Wishart, Wishart)
def _kl_wishart(q: Wishart, p: Wishart, name: str | None = None) -> tf.Tensor:
    """KL(q || p) [...]; two singular Wisharts need the same degrees of freedom."""
    check_same_support(q, p)
    with tf.name_scope(name or "kl_wishart"):
        q_tril, p_tril = tf.convert_to_tensor(q.scale_tril), tf.convert_to_tensor(p.scale_tril)
        square = tf.square(tf.linalg.triangular_solve(p_tril, q_tril))
        return -expected_log_ratio(
            p.df if is_number(p.df) else p._df_tensor(),
            q._bartlett.law,
            half_logdet_from_chol(q_tril) - half_logdet_from_chol(p_tril),
            q._df_tensor() * tf.reduce_sum(square, axis=[-2, -1]),
        )


def check_same_support(
    q: tfp.distributions.Distribution, p: tfp.distributions.Distribution
) -> None:
    """Check that two distributions are over Gram matrices of one size and one rank.

    :raises ValueError: when they are not: their KL divergence is infinite.
    """
    if (q.dimension, q.rank) != (p.dimension, p.rank):
        raise ValueError(
            f"the two distributions are over matrices of dimensions {q.dimension} and "
            f"{p.dimension} and of ranks {q.rank} and {p.rank}; a KL divergence needs the same "
            "dimension and the same rank: singular ones have the same df."
        )
