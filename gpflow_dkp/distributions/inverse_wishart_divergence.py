"""log P - log Q of two inverse Wisharts: at a draw, and in expectation.

P is IW(Psi_p, m_p) and Q is IW(Psi_q, m_p + excess), of dimension P. With G = U U^T, U = L_q T^{-T}
and T T^T ~ Wishart(I, m_q), a draw of Q,

    log P - log Q = log MultiGamma_P(m_q / 2) - log MultiGamma_P(m_p / 2)
                    + m_p (log |Psi_p| - log |Psi_q|) / 2 - excess (sum_j log T_jj - P / 2 log 2)
                    + tr((Psi_q - Psi_p) G^{-1}) / 2,

whose expectation is in closed form (docs/mathematics.md 5).
"""

from __future__ import annotations

import math

import tensorflow as tf
from check_shapes import check_shapes

from gpflow_dkp.distributions.multigamma import log_multigamma, multidigamma


@check_shapes(
    "prior_df: [broadcast batch...]",
    "excess: [broadcast batch...]",
    "half_logdet_ratio: [broadcast batch...]",
    "trace: [broadcast batch...]",
    "return: [batch...]",
)
def expected_log_ratio(
    dimension: int,
    prior_df: tf.Tensor,
    excess: tf.Tensor,
    half_logdet_ratio: tf.Tensor,
    trace: tf.Tensor,
) -> tf.Tensor:
    """E_Q[log P - log Q] [...], minus the Kullback-Leibler divergence of Q from P.

    :param dimension: P.
    :param prior_df: m_p [...].
    :param excess: m_q - m_p [...].
    :param half_logdet_ratio: (log |Psi_p| - log |Psi_q|) / 2 [...].
    :param trace: P - tr(Psi_q^{-1} Psi_p) [...], which is ||L_q^{-1} V||^2 when Psi_q = Psi_p + V V^T.
    """
    df = prior_df + excess
    log_diagonal = 0.5 * multidigamma(0.5 * df, dimension)
    return _log_ratio(dimension, prior_df, excess, half_logdet_ratio, log_diagonal, df * trace)


@check_shapes(
    "prior_df: [broadcast batch...]",
    "excess: [broadcast batch...]",
    "half_logdet_ratio: [broadcast batch...]",
    "sum_log_diagonal: [broadcast batch...]",
    "quadratic: [broadcast batch...]",
    "return: [batch...]",
)
def sampled_log_ratio(
    dimension: int,
    prior_df: tf.Tensor,
    excess: tf.Tensor,
    half_logdet_ratio: tf.Tensor,
    sum_log_diagonal: tf.Tensor,
    quadratic: tf.Tensor,
) -> tf.Tensor:
    """log P - log Q [...] at the draw T; other arguments as in `expected_log_ratio`.

    :param sum_log_diagonal: sum_j log T_jj [...].
    :param quadratic: tr((Psi_q - Psi_p) G^{-1}) [...], ||T^T L_q^{-1} V||^2 when Psi_q = Psi_p + V V^T.
    """
    log_diagonal = sum_log_diagonal - 0.5 * dimension * math.log(2.0)
    return _log_ratio(dimension, prior_df, excess, half_logdet_ratio, log_diagonal, quadratic)


def _log_ratio(
    dimension: int,
    prior_df: tf.Tensor,
    excess: tf.Tensor,
    half_logdet_ratio: tf.Tensor,
    log_diagonal: tf.Tensor,
    quadratic: tf.Tensor,
) -> tf.Tensor:
    """The formula at the head of this module; `log_diagonal` is its bracket."""
    value = log_multigamma(0.5 * (prior_df + excess), dimension)
    value -= log_multigamma(0.5 * prior_df, dimension)
    return value + prior_df * half_logdet_ratio - excess * log_diagonal + 0.5 * quadratic
