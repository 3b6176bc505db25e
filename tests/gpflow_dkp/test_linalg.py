"""Hand-written gradients against plain autodiff of the obvious formula and finite differences."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError

from gpflow_dkp import linalg

M, N, D, S = 5, 7, 3, 2
BATCHES = [(), (S,)]


def spd(batch: tuple[int, ...] = (), seed: int = 0, size: int = M) -> tf.Tensor:
    X = np.random.default_rng(seed).normal(size=(*batch, size, size))
    return tf.constant(X @ np.swapaxes(X, -1, -2) + np.eye(size))


def dense(*shape: int, seed: int = 1) -> tf.Tensor:
    return tf.constant(np.random.default_rng(seed).normal(size=shape))


def symmetric(*shape: int, seed: int = 2) -> tf.Tensor:
    X = np.random.default_rng(seed).normal(size=shape)
    return tf.constant(X + np.swapaxes(X, -1, -2))


def inverse(K: tf.Tensor) -> tf.Tensor:
    return tf.linalg.inv(K)


def fast_conditional(
    K: tf.Tensor, features: tf.Tensor, cross: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    return tuple(linalg.conditional(linalg.positive_definite(K), features, cross))


def plain_conditional(
    K: tf.Tensor, features: tf.Tensor, cross: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    solved = inverse(K) @ cross
    return tf.matmul(features, solved, transpose_a=True), tf.reduce_sum(cross * solved, -2)


OPERATIONS: dict[str, tuple[Callable, Callable, Callable]] = {
    "cholesky": (linalg.cholesky, tf.linalg.cholesky, lambda batch: []),
    "cholesky_of_two": (
        lambda K: linalg.positive_definite_and_cholesky(2.0 * K, K)[1],
        tf.linalg.cholesky,
        lambda batch: [],
    ),
    "half_logdet": (
        lambda K: linalg.half_logdet(linalg.positive_definite(K)),
        lambda K: 0.5 * tf.linalg.slogdet(K)[1],
        lambda batch: [],
    ),
    "half_logdet_of_two": (
        lambda K: linalg.half_logdet(linalg.positive_definite_and_cholesky(K, 2.0 * K)[0]),
        lambda K: 0.5 * tf.linalg.slogdet(K)[1],
        lambda batch: [],
    ),
    "half_logdet_from_chol": (
        lambda K: linalg.half_logdet_from_chol(tf.linalg.cholesky(K)),
        lambda K: 0.5 * tf.linalg.slogdet(K)[1],
        lambda batch: [],
    ),
    "solve": (
        lambda K, rhs: linalg.solve(linalg.positive_definite(K), rhs),
        lambda K, rhs: inverse(K) @ rhs,
        lambda batch: [dense(*batch, M, D)],
    ),
    "solve_shared": (
        lambda K, rhs: linalg.solve_shared(linalg.positive_definite(K), rhs),
        lambda K, rhs: inverse(K) @ rhs,
        lambda batch: [dense(S, M, D)],
    ),
    "trace_of_solve": (
        lambda K, E: linalg.trace_of_solve(linalg.positive_definite(K), E),
        lambda K, E: tf.linalg.trace(inverse(K) @ E),
        lambda batch: [symmetric(M, M)],
    ),
    "trace_of_solve of each": (
        lambda K, E: linalg.trace_of_solve(linalg.positive_definite(K), E),
        lambda K, E: tf.linalg.trace(inverse(K) @ E),
        lambda batch: [symmetric(*batch, M, M)],
    ),
    "trace_of_solve of one in a batch": (
        lambda K, E: linalg.trace_of_solve(linalg.positive_definite(K[None]), E),
        lambda K, E: tf.linalg.trace(inverse(K[None]) @ E),
        lambda batch: [symmetric(1, *(1 for _ in batch), M, M)],
    ),
    "trace_of_congruence": (
        lambda K, L, H: linalg.trace_of_congruence(linalg.positive_definite(K), L, H),
        lambda K, L, H: tf.linalg.trace(inverse(K) @ L @ H @ tf.linalg.matrix_transpose(L)),
        lambda batch: [dense(*batch, M, M), symmetric(M, M)],
    ),
    "conditional": (
        fast_conditional,
        plain_conditional,
        lambda batch: [dense(*batch, M, D), dense(*batch, M, N, seed=3)],
    ),
}

cases = pytest.mark.parametrize(("name", "batch"), [(n, b) for n in OPERATIONS for b in BATCHES])


def value_and_gradients(
    function: Callable, arguments: list[tf.Tensor]
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Every output, and the gradients of one random linear function of all of them."""
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        outputs = tf.nest.flatten(function(*arguments))
        loss = tf.add_n(
            [
                tf.reduce_sum(dense(*output.shape, seed=10 + i) * output)
                for i, output in enumerate(outputs)
            ]
        )
    return outputs, tape.gradient(loss, arguments)


@cases
def test_value_and_gradient_are_those_of_the_formula(name: str, batch: tuple[int, ...]) -> None:
    fast, plain, arguments_of = OPERATIONS[name]
    root = dense(*batch, M, M, seed=5)
    arguments = arguments_of(batch)

    def of_root(operation: Callable) -> Callable:
        # K = X X^T + I: only the symmetric part of a gradient with respect to K matters.
        def function(root: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
            eye = tf.eye(M, dtype=root.dtype)
            return operation(tf.matmul(root, root, transpose_b=True) + eye, *others)

        return function

    values, gradients = value_and_gradients(of_root(fast), [root, *arguments])
    plain_values, plain_gradients = value_and_gradients(of_root(plain), [root, *arguments])
    for value, plain_value in zip(values, plain_values, strict=True):
        np.testing.assert_allclose(value, plain_value, rtol=0, atol=1e-11)
    for gradient, plain_gradient in zip(gradients, plain_gradients, strict=True):
        np.testing.assert_allclose(gradient, plain_gradient, rtol=0, atol=1e-10)


@pytest.mark.parametrize("shape", [(M, D), (S, M, D)])
def test_outer_product_is_that_of_matmul(shape: tuple[int, ...]) -> None:
    root = dense(*shape)
    values, gradients = value_and_gradients(linalg.outer_product, [root])
    plain_values, plain_gradients = value_and_gradients(
        lambda root: tf.matmul(root, root, transpose_b=True), [root]
    )
    np.testing.assert_allclose(values[0], plain_values[0], rtol=1e-14)
    np.testing.assert_allclose(gradients[0], plain_gradients[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("num_points", "num_draws", "num_forms", "size"),
    [(5, 1, 2, M), (4, 3, 2, M), (2, 2, 1, M), (4, 3, 2, 2 * linalg.BLOCK), (3, 2, 2, 75)],
)
def test_quadratic_forms_are_those_of_einsum(
    num_points: int, num_draws: int, num_forms: int, size: int
) -> None:
    """Also for upstream gradients that are not symmetric in the two points of a form."""
    points = dense(num_points, num_draws, size)
    root = dense(num_forms, size, size, seed=5)

    def of_root(forms: Callable) -> Callable:
        return lambda points, root: forms(points, root + tf.linalg.matrix_transpose(root))

    def plain(points: tf.Tensor, matrices: tf.Tensor) -> tf.Tensor:
        return tf.einsum("nkm,lmi,nji->nlkj", points, matrices, points)

    values, gradients = value_and_gradients(of_root(linalg.quadratic_forms), [points, root])
    plain_values, plain_gradients = value_and_gradients(of_root(plain), [points, root])
    np.testing.assert_allclose(values[0], plain_values[0], rtol=1e-12, atol=1e-12)
    for gradient, plain_gradient in zip(gradients, plain_gradients, strict=True):
        np.testing.assert_allclose(gradient, plain_gradient, rtol=1e-11, atol=1e-11)


@cases
def test_gradient_is_that_of_finite_differences(name: str, batch: tuple[int, ...]) -> None:
    fast, _, arguments_of = OPERATIONS[name]
    arguments = [spd(batch), *arguments_of(batch)]
    _, gradients = value_and_gradients(fast, arguments)
    step = 1e-5
    for i, gradient in enumerate(gradients):
        shape = arguments[i].shape
        # K and the symmetric matrices E and H are moved symmetrically.
        square = shape[-1] == shape[-2]
        direction = symmetric(*shape, seed=20 + i) if square else dense(*shape, seed=20 + i)

        def loss(shift: float, i: int = i, direction: tf.Tensor = direction) -> float:
            moved = [a + shift * direction if j == i else a for j, a in enumerate(arguments)]
            outputs = tf.nest.flatten(fast(*moved))
            return sum(
                float(tf.reduce_sum(dense(*output.shape, seed=10 + k) * output))
                for k, output in enumerate(outputs)
            )

        numerical = (loss(step) - loss(-step)) / (2.0 * step)
        analytic = float(tf.reduce_sum(direction * gradient))
        assert analytic == pytest.approx(numerical, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("batch", BATCHES)
def test_positive_definite_is_a_factorisation(batch: tuple[int, ...]) -> None:
    K, other = spd(batch), spd(batch, seed=8)
    first = linalg.positive_definite(K)
    second, chol_other = linalg.positive_definite_and_cholesky(K, other)
    for prior in (first, second):
        np.testing.assert_array_equal(prior.matrix, K)
        np.testing.assert_allclose(prior.chol, np.linalg.cholesky(K), rtol=0, atol=1e-12)
        eye = np.broadcast_to(np.eye(M), K.shape)
        np.testing.assert_allclose(prior.inverse_chol @ prior.chol, eye, rtol=0, atol=1e-12)
        np.testing.assert_allclose(prior.inverse @ K, eye, rtol=0, atol=1e-11)
    np.testing.assert_allclose(chol_other, np.linalg.cholesky(other), rtol=0, atol=1e-12)


def test_no_gradient_goes_through_the_constants_of_a_factorisation() -> None:
    K = spd()
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(K)
        prior = linalg.positive_definite(K)
    assert all(tape.gradient(t, K) is None for t in (prior.chol, prior.inverse_chol, prior.inverse))


def ill_conditioned(condition: float) -> tf.Tensor:
    """An SPD matrix with eigenvalues from 1 down to 1 / condition."""
    Q, _ = np.linalg.qr(np.random.default_rng(4).normal(size=(M, M)))
    return tf.constant(Q @ np.diag(np.geomspace(1.0, 1.0 / condition, M)) @ Q.T)


def run_conditional(
    cross_dtype: tf.DType, gradient_dtype: tf.DType | None, condition: float = 1e4
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Outputs and gradients in double precision, K_it = K U with bounded U as in a kernel's."""
    K = ill_conditioned(condition)
    arguments = [K, tf.linalg.cholesky(K) @ dense(M, D), K @ dense(M, N, seed=3)]

    def function(K: tf.Tensor, features: tf.Tensor, cross: tf.Tensor) -> list[tf.Tensor]:
        prior = linalg.positive_definite(K)
        result = linalg.conditional(prior, features, tf.cast(cross, cross_dtype), gradient_dtype)
        assert all(part.dtype == cross_dtype for part in result)
        return [tf.cast(part, tf.float64) for part in result]

    return value_and_gradients(function, arguments)


def relative_error(actual: tf.Tensor, expected: tf.Tensor) -> float:
    return float(tf.reduce_max(tf.abs(actual - expected)) / tf.reduce_max(tf.abs(expected)))


def test_conditional_of_single_precision_cross_covariance() -> None:
    condition = 1e4
    values, gradients = run_conditional(tf.float64, None, condition)
    low_values, low_gradients = run_conditional(tf.float32, None, condition)
    # Rounding of K_it is amplified by |L^{-1}| = sqrt(condition) forward and by |K^{-1}| backward.
    epsilon = np.finfo(np.float32).eps
    for low, full in zip(low_values, values, strict=True):
        assert 0.0 < relative_error(low, full) < 4 * epsilon * np.sqrt(condition)
    for low, full in zip(low_gradients, gradients, strict=True):
        assert 0.0 < relative_error(low, full) < 4 * epsilon * condition


def test_conditional_with_single_precision_gradient() -> None:
    values, gradients = run_conditional(tf.float64, tf.float64)
    low_values, low_gradients = run_conditional(tf.float64, tf.float32)
    for low, full in zip(low_values, values, strict=True):
        np.testing.assert_array_equal(low, full)
    for low, full in zip(low_gradients, gradients, strict=True):
        assert 0.0 < relative_error(low, full) < 8 * np.finfo(np.float32).eps


def test_stacked_columns_stand_side_by_side_and_come_apart_again() -> None:
    batch = dense(S, M, D)
    stacked = linalg.stack_columns(batch)
    np.testing.assert_array_equal(stacked, np.hstack(list(batch.numpy())))
    np.testing.assert_array_equal(linalg.unstack_columns(stacked, S), batch)


@pytest.mark.parametrize("batch", [(), (S,), (2, 3)])
def test_right_multiply(batch: tuple[int, ...]) -> None:
    left, right = dense(*batch, D, M), dense(M, N)
    product = linalg.right_multiply(left, right)
    np.testing.assert_allclose(product, left.numpy() @ right.numpy(), rtol=0, atol=1e-13)


def test_left_multiply() -> None:
    left, right = dense(D, M), dense(S, M, N)
    product = linalg.left_multiply(left, right)
    np.testing.assert_allclose(product, left.numpy() @ right.numpy(), rtol=0, atol=1e-13)


def test_transpose() -> None:
    np.testing.assert_array_equal(
        linalg.transpose(dense(S, M, N)), np.swapaxes(dense(S, M, N), 1, 2)
    )


SECOND_ORDER: dict[str, tuple[Callable, Callable, list[tuple[int, ...]]]] = {
    "outer_product": (
        linalg.outer_product,
        lambda R: tf.matmul(R, R, transpose_b=True),
        [(S, M, D)],
    ),
    "quadratic_forms": (
        lambda a, R: linalg.quadratic_forms(a, R + linalg.transpose(R)),
        lambda a, R: tf.einsum("nkm,lmi,nji->nlkj", a, R + linalg.transpose(R), a),
        [(N, 2, M), (S, M, M)],
    ),
    "matmul": (lambda a, b: linalg.matmul(a, b, tf.float32), tf.matmul, [(S, D, M), (S, M, N)]),
    "triangular_solve": (
        lambda L, b: linalg.triangular_solve(lower(L), b, tf.float32),
        lambda L, b: tf.linalg.triangular_solve(lower(L), b),
        [(S, M, M), (S, M, N)],
    ),
}


def lower(matrix: tf.Tensor) -> tf.Tensor:
    return tf.linalg.band_part(matrix, -1, 0) + 3.0 * tf.eye(M, dtype=matrix.dtype)


def gradient_of_gradient(
    function: Callable, arguments: list[tf.Tensor], stop: bool = False
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """The gradients of a function's cube, and those of their squared length."""
    with tf.GradientTape() as outer:
        outer.watch(arguments)
        with tf.GradientTape() as inner:
            inner.watch(arguments)
            outputs = tf.nest.flatten(function(*arguments))
            loss = tf.add_n([tf.reduce_sum(output**3) for output in outputs])
        gradients = inner.gradient(loss, arguments)
        if stop:
            gradients = [tf.stop_gradient(gradient) for gradient in gradients]
        squares = [tf.reduce_sum(g**2 * x) for g, x in zip(gradients, arguments, strict=True)]
        total = tf.add_n(squares)
    return gradients, outer.gradient(total, arguments)


def in_a_graph(run: Callable) -> Callable:
    return lambda *arguments, **settings: tf.function(
        lambda: run(*arguments, **settings), autograph=False
    )()


runs = pytest.mark.parametrize(
    "run", [gradient_of_gradient, in_a_graph(gradient_of_gradient)], ids=["eager", "graph"]
)


@runs
@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "half_logdet_from_chol"])
def test_a_constant_factorisation_has_no_second_derivative(name: str, run: Callable) -> None:
    fast, _, arguments_of = OPERATIONS[name]
    with pytest.raises(LookupError, match=r"\w+ has no second derivatives.* Use an optim"):
        run(fast, [spd(), *arguments_of(())])


@pytest.mark.parametrize("name", ["half_logdet", "conditional"])
def test_a_compiled_operation_has_no_second_derivative(name: str) -> None:
    fast, _, arguments_of = OPERATIONS[name]
    compiled = tf.function(fast, autograph=False)
    arguments = [spd(), *arguments_of(())]
    with pytest.raises(LookupError, match="has no second derivatives"):
        gradient_of_gradient(compiled, arguments)
    # A first derivative on a persistent tape is no second one.
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(arguments)
        value = tf.add_n([tf.reduce_sum(part) for part in tf.nest.flatten(compiled(*arguments))])
    assert all(gradient is not None for gradient in tape.gradient(value, arguments))


@runs
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_stopped_gradient_may_be_used_inside_a_tape(name: str, run: Callable) -> None:
    """d sum(g^2 x) / dx = g^2 for a constant g, which is the gradient outside that tape."""
    fast, _, arguments_of = OPERATIONS[name]
    arguments = [spd(), *arguments_of(())]
    gradients, squares = run(fast, arguments, stop=True)
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        outputs = tf.nest.flatten(fast(*arguments))
        loss = tf.add_n([tf.reduce_sum(output**3) for output in outputs])
    expected = tape.gradient(loss, arguments)
    for gradient, square, value in zip(gradients, squares, expected, strict=True):
        np.testing.assert_allclose(gradient, value, rtol=1e-12)
        np.testing.assert_allclose(square, np.square(value), rtol=1e-12)


@runs
@pytest.mark.parametrize("name", SECOND_ORDER)
def test_second_derivatives_are_those_of_the_formula(name: str, run: Callable) -> None:
    """To the precision of the gradient's products, which are in single precision where they can be."""
    fast, plain, shapes = SECOND_ORDER[name]
    arguments = [dense(*shape, seed=30 + i) for i, shape in enumerate(shapes)]
    for actual, expected in zip(run(fast, arguments)[1], run(plain, arguments)[1], strict=True):
        scale = np.max(np.abs(expected))
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * scale)


WRONG_SHAPES: dict[str, Callable[[], tf.Tensor]] = {
    "solve": lambda: linalg.solve(linalg.positive_definite(spd((S,))), dense(M, D)),
    "trace of solve": lambda: linalg.trace_of_solve(
        linalg.positive_definite(spd((S,))), symmetric(S + 1, M, M)
    ),
    "quadratic forms": lambda: linalg.quadratic_forms(dense(N, M, 1), symmetric(S, M, M)),
    "cholesky": lambda: linalg.cholesky(dense(M, N)),
}


@pytest.mark.parametrize("name", WRONG_SHAPES)
def test_shapes_whose_gradient_would_be_another_are_refused(name: str) -> None:
    """The first broadcasts forward, and would sum nothing backward."""
    with pytest.raises(ShapeMismatchError):
        WRONG_SHAPES[name]()
