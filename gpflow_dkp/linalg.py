"""Positive-definite matrices and the operations on them whose gradients are written by hand.

Automatic differentiation of a Cholesky costs two to three times what the operations around it need.
Each function here computes its value from a factorisation that is already there and states its
gradient with respect to the *matrix*, so no gradient ever passes through a factorisation of `K`.
The factorisation is a constant to TensorFlow: first derivatives are right, second ones would not be,
and raise an error that says so, in forward mode too. A first gradient may be used inside a tape behind
`tf.stop_gradient`; where a `tf.function` computes what is differentiated, both tapes go into it, as
TensorFlow prepares the second derivatives of a function that two tapes watch. `outer_product`,
`quadratic_forms`, `matmul` and `triangular_solve` have second derivatives.

Letters: M inducing points, N data points, D columns (width), S samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from check_shapes import check_shapes

BLOCK = 32
"""Columns of a symmetric gradient that are found together."""


class PositiveDefinite(NamedTuple):
    """A positive-definite matrix with its factorisation.

    Gradients flow into `matrix` only; `chol` and `inverse` are constants for differentiation.

    :param matrix: K [..., M, M].
    :param chol: its lower Cholesky factor L [..., M, M].
    :param inverse_chol: L^{-1} [..., M, M].
    :param inverse: K^{-1} [..., M, M].
    """

    matrix: tf.Tensor
    chol: tf.Tensor
    inverse_chol: tf.Tensor
    inverse: tf.Tensor


def without_second_derivative(gradient: tf.Tensor, of: str) -> tf.Tensor:
    """`gradient`, which raises when it is differentiated: for the `grad` of a custom gradient.

    :param of: the operation that the message names.
    """
    message = (
        f"{of} has no second derivatives, as its factorisation is a constant to "
        "TensorFlow. Use an optimizer of first derivatives (gpflow.optimizers.Scipy, Adam), or finite "
        "differences of the gradient; tf.stop_gradient for a gradient that is to be a constant."
    )
    return tf.raw_ops.PreventGradient(input=gradient, message=message)


def transpose(matrix: tf.Tensor) -> tf.Tensor:
    """Swap the last two axes."""
    return tf.linalg.matrix_transpose(matrix)


def inverse_triangular(chol: tf.Tensor) -> tf.Tensor:
    """L^{-1} [..., M, M] of a lower triangular L, differentiable."""
    eye = tf.eye(tf.shape(chol)[-1], dtype=chol.dtype)
    return tf.linalg.triangular_solve(chol, tf.broadcast_to(eye, tf.shape(chol)))


@check_shapes("matrix: [batch..., M, M]")
def positive_definite(matrix: tf.Tensor) -> PositiveDefinite:
    """Factorise `matrix` [..., M, M] once, for the functions of this module."""
    chol = tf.linalg.cholesky(tf.stop_gradient(matrix))
    return _from_chol(matrix, chol)


def _from_chol(matrix: tf.Tensor, chol: tf.Tensor) -> PositiveDefinite:
    chol = tf.stop_gradient(chol)
    inverse_chol = tf.stop_gradient(inverse_triangular(chol))
    inverse = tf.stop_gradient(
        tf.linalg.triangular_solve(chol, inverse_chol, lower=True, adjoint=True)
    )
    return PositiveDefinite(matrix, chol, inverse_chol, inverse)


@check_shapes("matrix: [batch..., M, M]", "other: [batch..., M, M]")
def positive_definite_and_cholesky(
    matrix: tf.Tensor, other: tf.Tensor
) -> tuple[PositiveDefinite, tf.Tensor]:
    """Factorise `matrix`, and the differentiable Cholesky factor of `other`, in one call.

    :param matrix: [..., M, M].
    :param other: [..., M, M].
    """
    chol, chol_other = tf.unstack(tf.linalg.cholesky(tf.stop_gradient(tf.stack([matrix, other]))))
    return _from_chol(matrix, chol), _attach_cholesky_gradient(other, chol_other)


@check_shapes("matrix: [batch..., M, M]", "chol: [batch..., M, M]", "return: [batch..., M, M]")
def cholesky(matrix: tf.Tensor, chol: tf.Tensor | None = None) -> tf.Tensor:
    """Lower Cholesky factor of `matrix` [..., M, M], with a cheaper gradient than TensorFlow's.

    Equal gradient: the symmetric dK = L^{-T} sym(tril(L^T dL)) L^{-1}, [Murray 2016,
    arXiv:1602.07527] equation 10, here with two triangular solves instead of an explicit inverse.

    :param chol: the factor, where it is there already as in `PositiveDefinite`.
    """
    if chol is None:
        chol = tf.linalg.cholesky(tf.stop_gradient(matrix))
    return _attach_cholesky_gradient(matrix, chol)


def _attach_cholesky_gradient(matrix: tf.Tensor, chol: tf.Tensor) -> tf.Tensor:
    chol = tf.stop_gradient(chol)

    @tf.custom_gradient
    def forward(_: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def grad(d_chol: tf.Tensor) -> tf.Tensor:
            inner = tf.matmul(chol, d_chol, transpose_a=True) * _half_tril(chol)
            inner = inner + transpose(inner)
            left = tf.linalg.triangular_solve(chol, inner, lower=True, adjoint=True)
            d_matrix = tf.linalg.triangular_solve(chol, transpose(left), lower=True, adjoint=True)
            return without_second_derivative(d_matrix, "cholesky")

        return tf.identity(chol), grad

    return forward(matrix)


def _half_tril(matrix: tf.Tensor) -> tf.Tensor:
    """[M, M] with 1/2 below the diagonal, 1/4 on it and 0 above."""
    ones = tf.ones_like(matrix[0] if matrix.shape.rank == 3 else matrix)
    return 0.5 * tf.linalg.band_part(ones, -1, 0) - 0.25 * tf.eye(
        tf.shape(ones)[-1], dtype=ones.dtype
    )


def half_logdet(prior: PositiveDefinite) -> tf.Tensor:
    """log|K| / 2 [...]; its gradient is K^{-1} / 2."""

    @tf.custom_gradient
    def forward(_: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def grad(d_value: tf.Tensor) -> tf.Tensor:
            d_matrix = 0.5 * d_value[..., None, None] * prior.inverse
            return without_second_derivative(d_matrix, "half_logdet")

        return half_logdet_from_chol(prior.chol), grad

    return forward(prior.matrix)


def half_logdet_from_chol(chol: tf.Tensor) -> tf.Tensor:
    """log|L L^T| / 2 = sum_j log L_jj [...] of a triangular factor L [..., M, M].

    Of a lower-trapezoidal factor [..., M, p] it is that of its first p rows.
    """
    return tf.reduce_sum(tf.math.log(tf.linalg.diag_part(chol)), -1)


@check_shapes("prior.matrix: [batch..., M, M]", "rhs: [batch..., M, D]", "return: [batch..., M, D]")
def solve(prior: PositiveDefinite, rhs: tf.Tensor) -> tf.Tensor:
    """K^{-1} rhs for rhs [..., M, D] with few columns; gradient dK = -(K^{-1} d) (K^{-1} rhs)^T."""

    @tf.custom_gradient
    def forward(
        _: tf.Tensor, rhs: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
        value = prior.inverse @ rhs

        def grad(d_value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            d_rhs = prior.inverse @ d_value
            d_matrix = -tf.matmul(d_rhs, value, transpose_b=True)
            return without_second_derivative(d_matrix, "solve"), without_second_derivative(
                d_rhs, "solve"
            )

        return value, grad

    return forward(prior.matrix, rhs)


@check_shapes(
    "prior.matrix: [batch..., M, M]",
    "rhs: [rhs_batch..., M, D]",
    "return: [rhs_batch..., M, D]",
)
def solve_shared(prior: PositiveDefinite, rhs: tf.Tensor) -> tf.Tensor:
    """`solve` for rhs [S, ..., M, D], side by side when the matrix has no sample dimension."""
    if prior.matrix.shape.rank < rhs.shape.rank:
        return unstack_columns(solve(prior, stack_columns(rhs)), tf.shape(rhs)[0])
    return solve(prior, rhs)


@check_shapes(
    "prior.matrix: [batch..., M, M]",
    "other: [broadcast batch..., M, M]",
    "return: [batch...]",
)
def trace_of_solve(prior: PositiveDefinite, other: tf.Tensor) -> tf.Tensor:
    """tr(K^{-1} E) [...] for a symmetric E that the batch shares; dK = -K^{-1} E K^{-1}.

    :param prior: K [..., M, M].
    :param other: E [M, M], or of the last axes of the batch.
    """

    @tf.custom_gradient
    def forward(
        _: tf.Tensor, other: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
        def grad(d_value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            scaled = d_value[..., None, None] * prior.inverse
            d_matrix = -(right_multiply(scaled, other) @ prior.inverse)
            d_other = _summed_like(scaled, other)
            name = "trace_of_solve"
            return without_second_derivative(d_matrix, name), without_second_derivative(
                d_other, name
            )

        return tf.reduce_sum(prior.inverse * other, [-2, -1]), grad

    return forward(prior.matrix, other)


@check_shapes(
    "prior.matrix: [batch..., M, M]",
    "chol: [batch..., M, M]",
    "middle: [M, M]",
    "return: [batch...]",
)
def trace_of_congruence(
    prior: PositiveDefinite,
    chol: tf.Tensor,
    middle: tf.Tensor,
    gradient_dtype: tf.DType | None = None,
) -> tf.Tensor:
    """tr(K^{-1} L H L^T) [...]: the expected quadratic form of the factor L T with E[T T^T] = H.

    With C = K^{-1} L: dL = 2 C H, dK = -C H C^T and dH = L^T C.

    :param prior: K [..., M, M].
    :param chol: L [..., M, M], the same batch.
    :param middle: symmetric H [M, M], shared by the batch.
    :param gradient_dtype: precision of the products for dK and dH, by default that of K.
    """
    dtype = prior.matrix.dtype
    gradient_dtype = gradient_dtype or dtype

    @tf.custom_gradient
    def forward(
        _: tf.Tensor, chol: tf.Tensor, middle: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]]:
        solved = prior.inverse @ chol
        product = right_multiply(solved, middle)

        def grad(d_value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            scaled = d_value[..., None, None] * product
            left, right = tf.cast(scaled, gradient_dtype), tf.cast(solved, gradient_dtype)
            d_matrix = -tf.matmul(left, right, transpose_b=True)
            rows = [-1, tf.shape(middle)[0]]
            weighted = tf.cast(d_value[..., None, None] * chol, gradient_dtype)
            d_middle = tf.matmul(
                tf.reshape(weighted, rows), tf.reshape(right, rows), transpose_a=True
            )
            gradients = (tf.cast(d_matrix, dtype), 2.0 * scaled, tf.cast(d_middle, dtype))
            first, second, third = (
                without_second_derivative(d, "trace_of_congruence") for d in gradients
            )
            return first, second, third

        return tf.reduce_sum(product * chol, [-2, -1]), grad

    return forward(prior.matrix, chol, middle)


class Conditional(NamedTuple):
    """What `conditional` returns.

    :param mean: F^T K^{-1} K_it [..., D, N].
    :param explained: diag(K_ti K^{-1} K_it) [..., N].
    """

    mean: tf.Tensor
    explained: tf.Tensor


def conditional(
    prior: PositiveDefinite,
    features: tf.Tensor,
    cross: tf.Tensor,
    gradient_dtype: tf.DType | None = None,
) -> Conditional:
    """Gaussian conditional of D functions at N points given their values at M inducing points.

    With C = K^{-1} K_it, W = K^{-1} F, and incoming gradients dm [D, N] and dq [N]:

        dK_it = W dm + 2 C diag(dq)
        dF    = C dm^T
        dK    = -C diag(dq) C^T - W (C dm^T)^T

    so the backward pass is matrix products only, [M, N] x [N, M] and [M, M] x [M, N] the large ones.

    All go through L^{-1}, whose entries grow with the square root of the condition number only. By K^{-1}
    the error of `explained` grows with the condition number itself, and is the noise variance's size
    where K_it is large beside what it leaves, as with an arc-cosine kernel of large bias.

    `cross` in single precision under a double-precision K computes the [M, N] part, forward and
    backward, in single precision; `gradient_dtype` lowers the backward products alone.

    :param prior: K [..., M, M].
    :param features: F [..., M, D].
    :param cross: K_it [..., M, N].
    :param gradient_dtype: precision of the backward products, by default that of `cross`.
    """
    dtype = cross.dtype
    gradient_dtype = gradient_dtype or dtype

    @tf.custom_gradient
    def forward(
        _: tf.Tensor, features: tf.Tensor, cross: tf.Tensor
    ) -> tuple[
        tuple[tf.Tensor, tf.Tensor],
        Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor, tf.Tensor]],
    ]:
        # A tensor of this graph, as a gradient that is saved with its model may use no other.
        inverse_chol = tf.identity(prior.inverse_chol)
        left = inverse_chol @ features
        right = tf.cast(inverse_chol, dtype) @ cross
        mean = tf.matmul(tf.cast(left, dtype), right, transpose_a=True)
        explained = tf.reduce_sum(tf.square(right), -2)

        def grad(
            d_mean: tf.Tensor, d_explained: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            weights = tf.matmul(inverse_chol, left, transpose_a=True)
            weights = tf.cast(weights, gradient_dtype)
            solved = tf.matmul(
                tf.cast(inverse_chol, gradient_dtype),
                tf.cast(right, gradient_dtype),
                transpose_a=True,
            )
            d_mean = tf.cast(d_mean, gradient_dtype)
            scaled = solved * tf.cast(2.0 * d_explained, gradient_dtype)[..., None, :]
            d_features = tf.matmul(solved, d_mean, transpose_b=True)
            d_cross = weights @ d_mean + scaled
            d_matrix = -0.5 * tf.matmul(scaled, solved, transpose_b=True)
            d_matrix -= tf.matmul(weights, d_features, transpose_b=True)
            gradients = (
                tf.cast(d_matrix, prior.matrix.dtype),
                tf.cast(d_features, features.dtype),
                tf.cast(d_cross, dtype),
            )
            first, second, third = (without_second_derivative(d, "conditional") for d in gradients)
            return first, second, third

        return (mean, explained), grad

    return Conditional(*forward(prior.matrix, features, cross))


@check_shapes("root: [batch..., M, D]", "return: [batch..., M, M]")
@tf.custom_gradient
def outer_product(
    root: tf.Tensor,
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """R R^T [..., M, M] of R [..., M, D]; dR = (d + d^T) R, in one product instead of two."""
    return tf.matmul(root, root, transpose_b=True), lambda d: (d + transpose(d)) @ root


@check_shapes("points: [N, K, M]", "matrices: [L, M, M]", "return: [N, L, K, K]")
def quadratic_forms(points: tf.Tensor, matrices: tf.Tensor) -> tf.Tensor:
    """a_k^T S_l a_j [N, L, K, K] for points a [N, K, M] and symmetric S [L, M, M].

    With B = S_l a_j from the forward pass and incoming gradients d_kj, made symmetric: da_j = 2 sum_k
    d_kj B_k, and dS_l = sum_n a_j (sum_k d_kj a_k)^T, of which the lower blocks suffice: with M = 128
    five eighths of a large matrix product go backward for one that went forward, of automatic
    differentiation's two.
    """

    @tf.custom_gradient
    def forward(
        points: tf.Tensor, matrices: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
        (N, K, M), L = tf.unstack(tf.shape(points)), tf.shape(matrices)[0]
        flat = tf.reshape(points, [N * K, M])
        columns = tf.reshape(tf.transpose(matrices, [1, 0, 2]), [M, L * M])
        products = tf.reshape(flat @ columns, [N, K * L, M])
        value = tf.reshape(tf.matmul(points, products, transpose_b=True), [N, K, K, L])

        def grad(d_value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            d_value = 0.5 * (d_value + transpose(d_value))
            weights = tf.reshape(tf.transpose(d_value, [0, 2, 3, 1]), [N, K, K * L])
            blocks = []
            for start in range(0, points.shape[-1], BLOCK):
                part = points[..., start : start + BLOCK]
                weighted = tf.matmul(weights, part, transpose_a=True)
                weighted = tf.reshape(weighted, [N * K, L * tf.shape(part)[-1]])
                block = tf.matmul(flat[:, start:], weighted, transpose_a=True)
                block = tf.reshape(block, [M - start, L, tf.shape(part)[-1]])
                blocks.append(tf.pad(block, [[start, 0], [0, 0], [0, 0]]))
            lower = tf.transpose(tf.concat(blocks, -1), [1, 0, 2])
            lower = tf.linalg.band_part(lower, -1, 0)
            diagonal = tf.linalg.diag_part(lower)
            symmetric = tf.linalg.set_diag(lower + transpose(lower), diagonal)
            return 2.0 * weights @ products, symmetric

        return tf.transpose(value, [0, 3, 1, 2]), grad

    return forward(points, matrices)


def matmul(
    a: tf.Tensor, b: tf.Tensor, gradient_dtype: tf.DType | None, *, transpose_a: bool = False
) -> tf.Tensor:
    """a @ b, or a^T @ b, for the same batch; the products of its gradient in `gradient_dtype`."""
    if gradient_dtype in (None, a.dtype):
        return tf.matmul(a, b, transpose_a=transpose_a)

    @tf.custom_gradient
    def forward(
        a: tf.Tensor, b: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
        def grad(d_value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            left, right, d = (tf.cast(tensor, gradient_dtype) for tensor in (a, b, d_value))
            if transpose_a:
                d_a = tf.matmul(right, d, transpose_b=True)
            else:
                d_a = tf.matmul(d, right, transpose_b=True)
            d_b = tf.matmul(left, d, transpose_a=not transpose_a)
            return tf.cast(d_a, a.dtype), tf.cast(d_b, b.dtype)

        return tf.matmul(a, b, transpose_a=transpose_a), grad

    return forward(a, b)


@check_shapes("chol: [batch..., M, M]", "rhs: [batch..., M, N]", "return: [batch..., M, N]")
def triangular_solve(
    chol: tf.Tensor, rhs: tf.Tensor, gradient_dtype: tf.DType | None = None
) -> tf.Tensor:
    """L^{-1} rhs, lower L [..., M, M] and rhs [..., M, N] of one batch; its gradient in `gradient_dtype`."""
    if gradient_dtype in (None, chol.dtype):
        return tf.linalg.triangular_solve(chol, rhs)

    @tf.custom_gradient
    def forward(
        chol: tf.Tensor, rhs: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
        value = tf.linalg.triangular_solve(chol, rhs)

        def grad(d_value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            low = tf.cast(chol, gradient_dtype)
            d_rhs = tf.linalg.triangular_solve(low, tf.cast(d_value, gradient_dtype), adjoint=True)
            d_chol = -tf.matmul(d_rhs, tf.cast(value, gradient_dtype), transpose_b=True)
            d_chol = tf.linalg.band_part(d_chol, -1, 0)
            return tf.cast(d_chol, chol.dtype), tf.cast(d_rhs, rhs.dtype)

        return value, grad

    return forward(chol, rhs)


def right_multiply(batch: tf.Tensor, matrix: tf.Tensor) -> tf.Tensor:
    """`batch` [..., R, M] times one `matrix` [M, C], as a single matrix product.

    A `matrix` [..., M, C] for each of the last axes of the batch is multiplied as ever.
    """
    if batch.shape.rank == 2 or matrix.shape.rank > 2:
        return batch @ matrix
    shape = tf.shape(batch)
    product = tf.reshape(batch, [-1, shape[-1]]) @ matrix
    return tf.reshape(product, tf.concat([shape[:-1], tf.shape(matrix)[-1:]], 0))


def left_multiply(matrix: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
    """One `matrix` [R, M] times `batch` [S, M, C], as a single matrix product: [S, R, C]."""
    return unstack_columns(matrix @ stack_columns(batch), tf.shape(batch)[0])


def stack_columns(batch: tf.Tensor) -> tf.Tensor:
    """[S, ..., M, C] to [..., M, S C]: the samples side by side."""
    rank, shape = batch.shape.rank, tf.shape(batch)
    side_by_side = tf.transpose(batch, [*range(1, rank - 1), 0, rank - 1])
    return tf.reshape(side_by_side, tf.concat([shape[1:-1], [shape[0] * shape[-1]]], 0))


def unstack_columns(matrix: tf.Tensor, num_samples: tf.Tensor) -> tf.Tensor:
    """[..., M, S C] to [S, ..., M, C]: the inverse of `stack_columns`."""
    rank = matrix.shape.rank
    split = tf.reshape(matrix, tf.concat([tf.shape(matrix)[:-1], [num_samples, -1]], 0))
    return tf.transpose(split, [rank - 1, *range(rank - 1), rank])


def _summed_like(batch: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """The gradient of broadcasting `other` to the shape of `batch`: summed over what it shares."""
    shape = tf.shape(other)
    axes = tf.raw_ops.BroadcastGradientArgs(s0=shape, s1=tf.shape(batch)).r0
    return tf.reshape(tf.reduce_sum(batch, axes), shape)
