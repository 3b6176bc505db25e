"""Bijectors of triangular and Gram matrices against complex-step Jacobians in NumPy.

Every map here is analytic, so the complex step Im f(x + ih) / h is exact to rounding.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_dkp.bijectors import (
    Congruence,
    FillTrapezoidal,
    OuterProduct,
    RelativeTriL,
    RightMultiplyTriL,
    WellConditionedTriL,
)

CASES = [(1, 1), (3, 5), (5, 5), (5, 3), (4, 1)]


def log_abs_det_jacobian(function: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> float:
    step = 1e-30
    columns = [function(x + 1j * step * unit).imag / step for unit in np.eye(len(x))]
    return float(np.linalg.slogdet(np.stack(columns, axis=-1))[1])


def pack(matrix: np.ndarray, p: int) -> np.ndarray:
    """The lower part of the first p columns."""
    return matrix[np.tril_indices(len(matrix), m=p)]


def unpack(vector: np.ndarray, P: int, p: int) -> np.ndarray:
    matrix = np.zeros((P, p), dtype=vector.dtype)
    matrix[np.tril_indices(P, m=p)] = vector
    return matrix


def gram_from_columns(vector: np.ndarray, P: int, p: int) -> np.ndarray:
    """The rank-p Gram matrix whose first p columns have this lower part."""
    columns = unpack(vector, P, p)
    top = np.tril(columns[:p]) + np.tril(columns[:p], -1).T
    bottom = columns[p:]
    corner = bottom @ np.linalg.solve(top, bottom.T)
    return np.block([[top, bottom.T], [bottom, corner]])


def trapezoid(P: int, p: int, seed: int, batch: tuple[int, ...] = ()) -> np.ndarray:
    rng = np.random.default_rng(seed)
    factor = np.tril(rng.normal(size=(*batch, P, p)))
    factor[..., range(p), range(p)] = rng.uniform(0.5, 2.0, size=(*batch, p))
    return factor


def triangle(p: int, seed: int, batch: tuple[int, ...] = ()) -> np.ndarray:
    """Lower triangular, every second diagonal entry negative."""
    matrix = trapezoid(p, p, seed, batch)
    matrix[..., range(1, p, 2), range(1, p, 2)] *= -1.0
    return matrix


def dense(P: int, seed: int, batch: tuple[int, ...] = ()) -> np.ndarray:
    return np.eye(P) + 0.3 * np.random.default_rng(seed).normal(size=(*batch, P, P))


def transpose(matrix: np.ndarray) -> np.ndarray:
    return np.swapaxes(matrix, -1, -2)


def complex_cholesky(matrix: np.ndarray) -> np.ndarray:
    """The lower L with L L^T, no conjugate, a complex symmetric matrix."""
    tril = np.zeros_like(matrix)
    for j in range(len(matrix)):
        rest = matrix[j:, j] - tril[j:, :j] @ tril[j, :j]
        tril[j:, j] = rest / np.sqrt(rest[0])
    return tril


def check_inverse(bijector: Any, x: np.ndarray, atol: float = 1e-11) -> None:
    """Round trip and inverse log-det-Jacobian, with arrays, so that nothing is cached."""
    y = bijector.forward(x).numpy()
    np.testing.assert_allclose(bijector.inverse(y.copy()), x, rtol=0, atol=atol)
    np.testing.assert_allclose(
        bijector.inverse_log_det_jacobian(y.copy()),
        -bijector.forward_log_det_jacobian(x.copy()),
        rtol=0,
        atol=atol,
    )
    assert bijector.forward_event_shape(x.shape) == y.shape
    assert bijector.inverse_event_shape(y.shape) == x.shape
    np.testing.assert_array_equal(bijector.forward_event_shape_tensor(x.shape), y.shape)
    np.testing.assert_array_equal(bijector.inverse_event_shape_tensor(y.shape), x.shape)


@pytest.mark.parametrize(("P", "df"), CASES)
def test_right_multiply_tril(P: int, df: int) -> None:
    p = min(P, df)
    T, B = trapezoid(P, p, 0), triangle(p, 1)
    bijector = RightMultiplyTriL(B)
    np.testing.assert_allclose(bijector.forward(T), T @ B, rtol=0, atol=1e-14)
    expected = log_abs_det_jacobian(lambda t: pack(unpack(t, P, p) @ B, p), pack(T, p))
    np.testing.assert_allclose(bijector.forward_log_det_jacobian(T), expected, rtol=0, atol=1e-12)
    check_inverse(bijector, T)


@pytest.mark.parametrize(("P", "df"), CASES)
def test_outer_product(P: int, df: int) -> None:
    p = min(P, df)
    factor = trapezoid(P, p, 2)
    bijector = OuterProduct(rank=p)
    np.testing.assert_allclose(bijector.forward(factor), factor @ factor.T, rtol=0, atol=1e-14)

    def gram_columns(vector: np.ndarray) -> np.ndarray:
        matrix = unpack(vector, P, p)
        return pack(matrix @ matrix.T, p)

    expected = log_abs_det_jacobian(gram_columns, pack(factor, p))
    for outer in (bijector, OuterProduct()):
        np.testing.assert_allclose(
            outer.forward_log_det_jacobian(factor.copy()), expected, rtol=0, atol=1e-12
        )
    check_inverse(bijector, factor)


@pytest.mark.parametrize("P", [1, 4])
@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_relative_tril(P: int, scale: float) -> None:
    x = trapezoid(P, P, seed=P)
    below = np.tril(x, -1)

    def by_hand(vector: np.ndarray) -> np.ndarray:
        matrix = unpack(vector, P, P)
        D = np.diag(np.diag(matrix))
        return pack(D + scale * D @ np.tril(matrix, -1), P)

    bijector = RelativeTriL(scale)
    y = bijector.forward(x).numpy()
    np.testing.assert_allclose(y, np.diag(np.diag(x)) @ (np.eye(P) + scale * below), rtol=1e-14)
    np.testing.assert_allclose(RelativeTriL(scale).inverse(y), x, rtol=1e-14)
    expected = log_abs_det_jacobian(by_hand, pack(x, P))
    np.testing.assert_allclose(
        bijector.forward_log_det_jacobian(x), expected, rtol=1e-12, atol=1e-14
    )
    batch = np.stack([x, 2.0 * x])
    np.testing.assert_allclose(bijector.forward(batch)[1], bijector.forward(2.0 * x), rtol=1e-14)
    assert bijector.forward_log_det_jacobian(batch).shape == (2,)


def test_relative_tril_needs_a_positive_scale() -> None:
    with pytest.raises(ValueError, match=r"scale: got 0.0, needs a positive finite number"):
        RelativeTriL(0.0)


@pytest.mark.parametrize("P", [1, 4])
@pytest.mark.parametrize("ratio", [0.5, 1e-3])
def test_well_conditioned_tril(P: int, ratio: float) -> None:
    x = trapezoid(P, P, seed=P)

    def by_hand(vector: np.ndarray) -> np.ndarray:
        matrix = unpack(vector, P, P)
        product = matrix @ matrix.T
        return pack(complex_cholesky(product + ratio * np.trace(product) / P * np.eye(P)), P)

    bijector = WellConditionedTriL(ratio)
    y = bijector.forward(x).numpy()
    np.testing.assert_allclose(pack(y, P), by_hand(pack(x, P)), rtol=1e-13)
    np.testing.assert_allclose(WellConditionedTriL(ratio).inverse(y), x, rtol=1e-9, atol=1e-12)
    expected = log_abs_det_jacobian(by_hand, pack(x, P))
    np.testing.assert_allclose(
        bijector.forward_log_det_jacobian(x), expected, rtol=1e-12, atol=1e-13
    )
    batch = np.stack([x, 2.0 * x])
    np.testing.assert_allclose(bijector.forward(batch)[1], bijector.forward(2.0 * x), rtol=1e-14)
    assert bijector.forward_log_det_jacobian(batch).shape == (2,)


def test_well_conditioned_tril_bounds_the_condition_number() -> None:
    """Of a factor that double precision cannot invert: entries below the diagonal as large as it."""
    P, ratio = 60, 1e-6
    x = np.eye(P) + np.tril(np.ones((P, P)), -1)
    x[-1, -1] = 1e-12
    y = WellConditionedTriL(ratio).forward(x).numpy()
    eigenvalues = np.linalg.eigvalsh(y @ y.T)
    assert eigenvalues[0] >= ratio / (1.0 + ratio) * np.mean(eigenvalues) * (1.0 - 1e-6)
    assert eigenvalues[-1] / eigenvalues[0] <= (1.0 + ratio) * P / ratio


def test_well_conditioned_tril_needs_a_positive_ratio() -> None:
    with pytest.raises(ValueError, match=r"ratio: got -1.0, needs a positive finite number"):
        WellConditionedTriL(-1.0)


def test_outer_product_without_rank() -> None:
    """The forward map takes any p; the inverse takes full rank, where it is TFP's bijector."""
    bijector = OuterProduct()
    assert bijector.forward(trapezoid(4, 2, 0)).shape == [4, 4]
    square = trapezoid(4, 4, 3)
    reference = tfp.bijectors.CholeskyOuterProduct()
    np.testing.assert_allclose(
        bijector.forward_log_det_jacobian(square),
        reference.forward_log_det_jacobian(square),
        rtol=1e-14,
    )
    check_inverse(bijector, square)


def test_outer_product_ignores_what_is_above_the_diagonal() -> None:
    factor = trapezoid(4, 2, 0)
    above = factor + np.triu(np.ones((4, 2)), 1)
    np.testing.assert_array_equal(OuterProduct().forward(above), OuterProduct().forward(factor))


@pytest.mark.parametrize(("P", "df"), CASES)
@pytest.mark.parametrize("lower_triangular", [False, True])
def test_congruence(P: int, df: int, lower_triangular: bool) -> None:
    p = min(P, df)
    A = triangle(P, 3) if lower_triangular else dense(P, 3)
    factor = trapezoid(P, p, 4)
    C = factor @ factor.T
    bijector = Congruence(A, df, lower_triangular=lower_triangular)
    np.testing.assert_allclose(bijector.forward(C), A @ C @ A.T, rtol=0, atol=1e-13)
    expected = log_abs_det_jacobian(
        lambda c: pack(A @ gram_from_columns(c, P, p) @ A.T, p), pack(C, p)
    )
    np.testing.assert_allclose(bijector.forward_log_det_jacobian(C), expected, rtol=0, atol=1e-10)
    check_inverse(bijector, C, atol=1e-10)

    rotation, _ = np.linalg.qr(np.random.default_rng(5).normal(size=(p, p)))
    for any_factor in (factor, factor @ rotation):
        np.testing.assert_allclose(
            bijector.factor_log_det_jacobian(tf.constant(any_factor)), expected, rtol=0, atol=1e-10
        )


def test_a_real_df_means_full_rank() -> None:
    A = dense(3, 0)
    C = trapezoid(3, 3, 1) @ trapezoid(3, 3, 1).T
    np.testing.assert_array_equal(
        Congruence(A, 2.5).forward_log_det_jacobian(C), Congruence(A, 3).forward_log_det_jacobian(C)
    )


@pytest.mark.parametrize(("P", "p"), [(4, 4), (4, 2)])
@pytest.mark.parametrize("parameter_batch", [(), (3,), (2, 1)])
def test_batches_are_their_members(P: int, p: int, parameter_batch: tuple[int, ...]) -> None:
    factor = trapezoid(P, p, 6, batch=(2, 3))
    gram = factor @ transpose(factor)
    A, L, B = dense(P, 7, parameter_batch), triangle(P, 8, parameter_batch), triangle(p, 9)
    B = np.broadcast_to(B, (*parameter_batch, p, p))
    for make, parameter, x in (
        (RightMultiplyTriL, B, factor),
        (lambda a: Congruence(a, p), A, gram),
        (lambda a: Congruence(a, p, lower_triangular=True), L, gram),
    ):
        bijector = make(parameter)
        assert bijector.experimental_batch_shape() == parameter_batch
        full = np.broadcast_to(parameter, (2, 3, *parameter.shape[-2:]))
        log_det = np.broadcast_to(bijector.forward_log_det_jacobian(x), (2, 3))
        y = bijector.forward(x).numpy()
        inverse = bijector.inverse(y.copy()).numpy()
        for i, j in np.ndindex(2, 3):
            member = make(full[i, j])
            np.testing.assert_allclose(y[i, j], member.forward(x[i, j]), rtol=0, atol=1e-13)
            np.testing.assert_allclose(inverse[i, j], x[i, j], rtol=0, atol=1e-10)
            np.testing.assert_allclose(
                log_det[i, j], member.forward_log_det_jacobian(x[i, j]), rtol=0, atol=1e-10
            )
    check_inverse(OuterProduct(rank=p), factor)


@pytest.mark.parametrize(("P", "df"), [(3, 5), (5, 3)])
def test_the_chain_of_the_generalised_wishart(P: int, df: int) -> None:
    """Vector -> T -> T B -> (T B)(T B)^T -> A (T B)(T B)^T A^T, in one Jacobian."""
    p = min(P, df)
    A, B = dense(P, 10), trapezoid(p, p, 11)
    chain = tfp.bijectors.Chain(
        [
            Congruence(A, df),
            OuterProduct(rank=p),
            RightMultiplyTriL(B),
            FillTrapezoidal(P, p),
        ]
    )
    vector = pack(trapezoid(P, p, 12), p)

    def gram_columns(t: np.ndarray) -> np.ndarray:
        F = A @ unpack(t, P, p) @ B
        return pack(F @ F.T, p)

    expected = log_abs_det_jacobian(gram_columns, vector)
    np.testing.assert_allclose(chain.forward_log_det_jacobian(vector), expected, rtol=0, atol=1e-10)
    check_inverse(chain, vector, atol=1e-10)


def test_float32() -> None:
    A, B, factor = dense(4, 0), triangle(2, 1), trapezoid(4, 2, 2)
    for make, parameter, x in (
        (RightMultiplyTriL, B, factor),
        (lambda a: Congruence(a, 2), A, factor @ factor.T),
        (lambda _: OuterProduct(rank=2), B, factor),
    ):
        single = make(tf.constant(parameter, tf.float32)).forward_log_det_jacobian(
            tf.constant(x, tf.float32)
        )
        assert single.dtype == tf.float32
        np.testing.assert_allclose(single, make(parameter).forward_log_det_jacobian(x), rtol=1e-4)


def test_gradients_reach_variables() -> None:
    B, A = tf.Variable(triangle(2, 0)), tf.Variable(dense(3, 1))
    right, congruence = RightMultiplyTriL(B), Congruence(A, 2)

    def total() -> tf.Tensor:
        T = tf.constant(trapezoid(3, 2, 2))
        factor = right.forward(T)
        gram = tf.matmul(factor, factor, transpose_b=True)
        return (
            right.forward_log_det_jacobian(T)
            + congruence.forward_log_det_jacobian(gram)
            + congruence.factor_log_det_jacobian(factor)
            + tf.reduce_sum(congruence.forward(gram))
        )

    with tf.GradientTape() as tape:
        value = total()
    step = 1e-6
    for variable, gradient in zip([A, B], tape.gradient(value, [A, B]), strict=True):
        for index in zip(*np.tril_indices(len(gradient)), strict=True):
            values = []
            for sign in (1.0, -1.0):
                shifted = variable.numpy()
                shifted[index] += sign * step
                original = variable.numpy()
                variable.assign(shifted)
                values.append(total().numpy())
                variable.assign(original)
            difference = (values[0] - values[1]) / (2 * step)
            np.testing.assert_allclose(gradient[index], difference, rtol=1e-7, atol=1e-7)


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match="square matrix"):
        RightMultiplyTriL(np.ones((3, 2)))
    with pytest.raises(ValueError, match="square matrix"):
        Congruence(np.ones(3), 2)
    with pytest.raises(ValueError, match=r"pass \[\.\.\., P, p\]"):
        RightMultiplyTriL(np.eye(2)).forward(trapezoid(4, 3, 0))
    with pytest.raises(ValueError, match=r"pass \[\.\.\., P, P\]"):
        Congruence(np.eye(4), 2).forward(np.eye(3))
    with pytest.raises(ValueError, match=r"pass \[\.\.\., P, p\]"):
        Congruence(np.eye(4), 2).factor_log_det_jacobian(tf.ones([4, 3], tf.float64))
    with pytest.raises(ValueError, match=r"pass \[\.\.\., P, 2\]"):
        OuterProduct(rank=2).forward(trapezoid(4, 3, 0))
    with pytest.raises(ValueError, match="as tall as it is wide"):
        OuterProduct().forward(np.ones((2, 3)))
    with pytest.raises(ValueError, match="P >= rank"):
        OuterProduct(rank=4).inverse(np.eye(3))
    with pytest.raises(ValueError, match=r"must be \[\.\.\., P, P\]"):
        OuterProduct().inverse(np.ones((4, 3)))


def test_values_are_checked() -> None:
    with pytest.raises(ValueError, match="above the diagonal"):
        RightMultiplyTriL(np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"0\.0 on its diagonal"):
        RightMultiplyTriL(np.diag([1.0, 0.0]))
    with pytest.raises(ValueError, match="above the diagonal"):
        Congruence(np.ones((2, 2)), 2, lower_triangular=True)
    with pytest.raises(ValueError, match="nan"):
        Congruence(np.full((2, 2), np.nan), 2)
    with pytest.raises(ValueError, match="integer >= 1"):
        OuterProduct(rank=0)
    with pytest.raises(ValueError, match=r"df is 1\.5 for dimension 4"):
        Congruence(np.eye(4), 1.5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="positive diagonal"):
        OuterProduct(validate_args=True).forward(-np.eye(2))
