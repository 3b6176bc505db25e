"""The Wasserstein distance between Gaussian measures, from covariances at a batch of points.

With P = N(m_P, k) and Q = N(m_Q, r) on the square-integrable functions under the inputs' distribution,

    W2^2 = mean_b[(m_P - m_Q)^2 + k + r] - 2 c,    c = tr (k^{1/2} r k^{1/2})^{1/2} on the batch,

and the functions of this module estimate c ([NeurIPS22] equations 12-16, MATH.md 9). Letters: B points of
the batch, S of them for the estimate, P outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from .linalg import cholesky, inverse_triangular, transpose

NEGLIGIBLE = 1e-8
"""Singular values below this fraction of the largest have no gradient."""


class LowRankUpdate(NamedTuple):
    """Covariances r_BS = k_BS + A_B^T E A_S of P outputs, which need not be formed to be multiplied.

    :param prior: k_BS [B, S].
    :param left: A_B [M, B].
    :param right: A_S [M, S].
    :param excess: symmetric E [P, M, M].
    """

    prior: tf.Tensor
    left: tf.Tensor
    right: tf.Tensor
    excess: tf.Tensor

    def to_dense(self) -> tf.Tensor:
        """r_BS [P, B, S]."""
        return self.prior + tf.matmul(self.left, self.excess @ self.right, transpose_a=True)

    def multiplied_by(self, matrix: tf.Tensor) -> tf.Tensor:
        """`matrix` [R, B] times r_BS: [P, R, S]."""
        inner = tf.matmul(matrix, self.left, transpose_b=True)
        return matrix @ self.prior + inner @ (self.excess @ self.right)


class _Singular(NamedTuple):
    """Singular values and vectors of A [..., R, C], from the eigenvectors of A^T A.

    Values down to 1e-8 of the largest lose nothing to the square, being the norms of A V's columns; faster
    than `tf.linalg.svd`.

    :param values: [..., C].
    :param left: U [..., R, C], zero where the value is negligible, so that gradients are finite.
    :param right: V [..., C, C].
    """

    values: tf.Tensor
    left: tf.Tensor
    right: tf.Tensor


def _singular(matrix: tf.Tensor) -> _Singular:
    _, right = tf.linalg.eigh(tf.matmul(matrix, matrix, transpose_a=True))
    left = matrix @ right
    values = tf.linalg.norm(left, axis=-2)
    floor = NEGLIGIBLE * tf.reduce_max(values, -1, keepdims=True)
    scale = tf.where(values > floor, tf.math.reciprocal_no_nan(values), tf.zeros_like(values))
    return _Singular(values, left * scale[..., None, :], right)


@tf.custom_gradient
def nuclear_norm(
    matrix: tf.Tensor,
) -> tf.Tensor | tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """Sum of the singular values [...] of A [..., R, C]; the gradient is U V^T."""
    values, left, right = _singular(matrix)

    def grad(d_value: tf.Tensor) -> tf.Tensor:
        return d_value[..., None, None] * tf.matmul(left, right, transpose_b=True)

    return tf.reduce_sum(values, -1), grad


@tf.custom_gradient
def whitened_nuclear_norm(
    matrix: tf.Tensor, covariance: tf.Tensor
) -> tf.Tensor | tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
    """Sum of the singular values of A L^{-T} [...] with a covariance C = L L^T.

    With A L^{-T} = U diag(s) V^T and F = L^{-T} V the gradients are U F^T with respect to A and
    -F diag(s) F^T / 2 with respect to C, which differentiate neither solve nor factorisation.

    :param matrix: A [..., R, S].
    :param covariance: C [..., S, S].
    """
    tril = tf.linalg.cholesky(covariance)
    values, left, right = _singular(transpose(tf.linalg.triangular_solve(tril, transpose(matrix))))

    def grad(d_value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        factor = tf.linalg.triangular_solve(tril, right, adjoint=True)
        d_value = d_value[..., None, None]
        weights = -0.5 * d_value * values[..., None, :]
        return (
            d_value * tf.matmul(left, factor, transpose_b=True),
            tf.matmul(weights * factor, factor, transpose_b=True),
        )

    return tf.reduce_sum(values, -1), grad


def nystrom_cross_term(
    k_bs: tf.Tensor,
    k_ss: tf.Tensor,
    r_bs: tf.Tensor | LowRankUpdate,
    r_ss: tf.Tensor,
    jitter: tf.Tensor | float,
) -> tf.Tensor:
    """c of the Nystrom approximations of k and r on S points: never above the exact c of the batch.

    ||Phi_P^T Phi_Q||_* / B with Phi_P = k_BS chol(k_SS)^{-T} and Phi_Q = r_BS chol(r_SS)^{-T}.

    :param k_bs: [B, S].
    :param k_ss: [S, S].
    :param r_bs: [P, B, S], dense or not.
    :param r_ss: [P, S, S].
    :param jitter: added to the diagonals of k_ss and r_ss.
    :returns: [P].
    """
    num_points = tf.cast(tf.shape(k_bs)[0], k_bs.dtype)
    eye = jitter * tf.eye(tf.shape(k_ss)[-1], dtype=k_ss.dtype)
    # Phi_P before the product: solved for after it, rounding would be amplified by the inverse of the
    # jitter, and where r is the small difference of large covariances outgrow the distance.
    phi_p = tf.matmul(inverse_triangular(cholesky(k_ss + eye)), k_bs, transpose_b=True)
    return whitened_nuclear_norm(_multiply(phi_p, r_bs), r_ss + eye) / num_points


def exact_cross_term(k_bb: tf.Tensor, r_bb: tf.Tensor, jitter: tf.Tensor | float) -> tf.Tensor:
    """c on the whole batch, ||F_K^T F_R||_* / B with Cholesky factors F; costs O(P B^3).

    :param k_bb: [B, B].
    :param r_bb: [P, B, B].
    :param jitter: added to the diagonals.
    :returns: [P].
    """
    num_points = tf.cast(tf.shape(k_bb)[-1], k_bb.dtype)
    eye = jitter * tf.eye(tf.shape(k_bb)[-1], dtype=k_bb.dtype)
    tril_k, tril_r = cholesky(k_bb + eye), cholesky(r_bb + eye)
    return nuclear_norm(tf.matmul(tril_k, tril_r, transpose_a=True)) / num_points


def _multiply(matrix: tf.Tensor, r_bs: tf.Tensor | LowRankUpdate) -> tf.Tensor:
    """`matrix` [R, B] times r_BS: [P, R, S]."""
    return r_bs.multiplied_by(matrix) if isinstance(r_bs, LowRankUpdate) else matrix @ r_bs


def eigenvalue_cross_term(k_bs: tf.Tensor, r_bs: tf.Tensor | LowRankUpdate) -> tf.Tensor:
    """[NeurIPS22]'s estimate of c, sum_s sqrt(max(Re lambda_s, 0)) / sqrt(B S).

    lambda_s are the eigenvalues of r_SB k_BS, which is not symmetric, so that they can be complex where S
    are not all the points of B.

    :param k_bs: [B, S].
    :param r_bs: [P, B, S], dense or not.
    :returns: [P].
    """
    num_points, num_chosen = (tf.cast(size, k_bs.dtype) for size in tf.unstack(tf.shape(k_bs)))
    roots = _sum_of_root_eigenvalues(_multiply(transpose(k_bs), r_bs))
    return roots / tf.sqrt(num_points * num_chosen)


def cross_spectrum(k_bs: tf.Tensor, r_bs: tf.Tensor | LowRankUpdate) -> tf.Tensor:
    """Eigenvalues of r_SB k_BS / (B S), complex [P, S], the largest real part first.

    [NeurIPS22] figure 4: how fast they decay, and how far from real and positive they are. The sum of
    their roots is `eigenvalue_cross_term`, whose arguments these are.
    """
    num_points, num_chosen = (tf.cast(size, k_bs.dtype) for size in tf.unstack(tf.shape(k_bs)))
    product = _multiply(transpose(k_bs), r_bs) / (num_points * num_chosen)
    values = tf.linalg.eigvals(product)
    order = tf.argsort(tf.math.real(values), axis=-1, direction="DESCENDING")
    return tf.gather(values, order, batch_dims=values.shape.rank - 1)


@tf.custom_gradient
def _sum_of_root_eigenvalues(
    matrix: tf.Tensor,
) -> tf.Tensor | tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """sum_s sqrt(max(Re lambda_s, 0)) [...] of matrices [..., S, S] that need not be symmetric.

    dlambda_s = u_s^H dA v_s with right eigenvectors v_s and the rows u_s^H of their inverse. Eigenvalues
    that vanish to rounding, S times the machine's epsilon of the largest, whose root has an infinite slope,
    and eigenvectors without an inverse count as constants.
    """
    values, right = tf.linalg.eig(matrix)
    real = tf.math.real(values)
    rounding = tf.cast(tf.shape(real)[-1], real.dtype) * np.finfo(real.dtype.as_numpy_dtype).eps
    floor = rounding * tf.reduce_max(real, -1, keepdims=True)
    matters = real > floor
    root = tf.sqrt(tf.where(matters, real, tf.ones_like(real)))
    total = tf.reduce_sum(tf.sqrt(tf.maximum(real, 0.0)), -1)

    def grad(d_total: tf.Tensor) -> tf.Tensor:
        slope = tf.where(matters, 0.5 / root, tf.zeros_like(root)) * d_total[..., None]
        # A little noise keeps an exactly singular matrix of eigenvectors from raising.
        ridge = tf.cast(1e-14 * tf.eye(tf.shape(right)[-1], dtype=real.dtype), right.dtype)
        scaled = tf.cast(slope, right.dtype)[..., None] * tf.linalg.adjoint(right)
        d_matrix = tf.linalg.solve(tf.linalg.adjoint(right) + ridge, scaled)
        d_matrix = tf.math.real(d_matrix)
        return tf.where(tf.math.is_finite(d_matrix), d_matrix, tf.zeros_like(d_matrix))

    return total, grad
