"""log P - log Q of a Wishart prior P and a generalised Wishart Q: at a draw, and in expectation.

With S = K / divisor, P is G ~ Wishart(S, df) and Q is G = F F^T, F = A T B, for T [..., P, p] of a
`BartlettLaw`, an invertible A [..., P, P] and a lower-triangular B [..., p, p]. The minors of the two
densities cancel, so nothing here factorises G, singular or not:

    log P - log Q = df (p - P) / 2 log pi - df P / 2 log 2 - log MultiGamma_p(df / 2) + p log 2
                    + df (log |det A| - log |S| / 2) - ||L_S^{-1} F||^2 / 2
                    + sum_j [(df - j) log T_jj + (df + P - 2 j + 1) log |B_jj|] - log q(T).

That is docs/mathematics.md 3 with log q(T) for its g + n, and [UAI23] equation 50 with |det A|^df. Its
expectation over T is in closed form. What needs K comes in from outside, so that a caller with
factorisations and gradients of its own can bring them.
"""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from scipy.special import multigammaln

from gpflow_dkp.distributions.bartlett_law import BartlettLaw
from gpflow_dkp.distributions.multigamma import log_multigamma


@check_shapes(
    "df: [broadcast batch...]",
    "law.concentration: [broadcast batch..., p]",
    "law.rate: [broadcast batch..., p]",
    "law.scale: [broadcast batch..., P, p]",
    "half_logdet_ratio: [broadcast batch...]",
    "quadratic: [broadcast batch...]",
    "B: [broadcast batch..., p, p]",
    "return: [batch...]",
)
def expected_log_ratio(
    df: Any,
    law: BartlettLaw,
    half_logdet_ratio: tf.Tensor,
    quadratic: tf.Tensor,
    *,
    B: tf.Tensor | None = None,
    divisor: float = 1.0,
) -> tf.Tensor:
    """E_Q[log P - log Q] [...], minus the Kullback-Leibler divergence of Q from P.

    :param df: of the prior: a number, or a tensor [...] > P - 1.
    :param law: of T.
    :param half_logdet_ratio: log |det A| - log |K| / 2 [...].
    :param quadratic: E[tr(K^{-1} F F^T)] [...], which is tr(K^{-1} A H A^T) with H = `second_moment`.
    :param B: or `None` where its diagonal is one.
    :param divisor: K / S. A layer with S = K / df passes df and K's own terms.
    """
    log_diagonal, log_density = law.mean_log_diagonal(), -law.entropy()
    return _log_ratio(df, law, log_diagonal, log_density, half_logdet_ratio, quadratic, B, divisor)


@check_shapes(
    "df: [broadcast batch...]",
    "law.concentration: [broadcast batch..., p]",
    "law.rate: [broadcast batch..., p]",
    "law.scale: [broadcast batch..., P, p]",
    "law.loc: [broadcast batch..., P, p]",
    "factor: [broadcast batch..., P, p]",
    "half_logdet_ratio: [broadcast batch...]",
    "quadratic: [broadcast batch...]",
    "B: [broadcast batch..., p, p]",
    "return: [batch...]",
)
def sampled_log_ratio(
    df: Any,
    law: BartlettLaw,
    factor: tf.Tensor,
    half_logdet_ratio: tf.Tensor,
    quadratic: tf.Tensor,
    *,
    B: tf.Tensor | None = None,
    divisor: float = 1.0,
) -> tf.Tensor:
    """log P - log Q [...] at the draw T; other arguments as in `expected_log_ratio`.

    :param factor: T [..., P, p].
    :param quadratic: tr(K^{-1} F F^T) [...].
    """
    log_diagonal = tf.math.log(tf.linalg.diag_part(factor))
    log_density = law.log_prob(factor)
    return _log_ratio(df, law, log_diagonal, log_density, half_logdet_ratio, quadratic, B, divisor)


@check_shapes(
    "law.concentration: [diagonal_batch..., p]",
    "law.loc: [loc_batch..., P, p]",
    "B: [B_batch..., p, p]",
    "return: [batch..., P, P]",
)
def second_moment(law: BartlettLaw, B: tf.Tensor | None = None) -> tf.Tensor:
    """H = E[T B B^T T^T] [..., P, P]: E[T] B B^T E[T]^T + diag_k(sum_j V_kj (B B^T)_jj), V = Var T."""
    mean, variance = law.moments()
    if B is not None:
        mean = tf.matmul(mean, B)
        variance = variance * tf.reduce_sum(tf.square(B), -1)[..., tf.newaxis, :]
    moment = tf.matmul(mean, mean, transpose_b=True)
    return moment + tf.linalg.diag(tf.reduce_sum(variance, -1))


def _log_ratio(
    df: Any,
    law: BartlettLaw,
    log_diagonal: tf.Tensor,
    log_density: tf.Tensor,
    half_logdet_ratio: tf.Tensor,
    quadratic: tf.Tensor,
    B: tf.Tensor | None,
    divisor: float,
) -> tf.Tensor:
    """The formula at the head of this module, for T_jj and q(T) or for their expected logarithms."""
    P, j, dtype = law.dimension, np.arange(1, law.rank + 1), log_density.dtype
    constant = tf.cast(_constant(df, P, law.rank, divisor), dtype)
    df = tf.convert_to_tensor(df, dtype)
    of_columns = (df[..., tf.newaxis] - tf.constant(j, dtype)) * log_diagonal
    if B is not None:
        of_B = tf.math.log(tf.abs(tf.linalg.diag_part(B)))
        of_columns += (df[..., tf.newaxis] + tf.constant(P - 2 * j + 1, dtype)) * of_B
    value = constant + df * half_logdet_ratio - 0.5 * divisor * quadratic
    return value + tf.reduce_sum(of_columns, -1) - log_density


def _constant(df: Any, P: int, p: int, divisor: float) -> Any:
    """The terms with neither K nor T; for a number in double precision: they are thousands of nats."""
    if isinstance(df, numbers.Real):
        log_multi = multigammaln(0.5 * df, p)
    else:
        df = tf.convert_to_tensor(df)
        log_multi = log_multigamma(0.5 * df, p)
    per_df = 0.5 * (p - P) * math.log(math.pi) + 0.5 * P * math.log(0.5 * divisor)
    return df * per_df - log_multi + p * math.log(2.0)
