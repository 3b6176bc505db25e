"""K(G) against GPflow's kernels on features with that Gram matrix."""

import re
from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from gpflow import kernels as k
from gram_cases import (
    BLOCKS,
    KERNELS,
    D,
    LogisticDecay,
    M,
    N,
    NarrowSquaredExponential,
    QuadraticDecay,
    S,
    feature_blocks_of,
    features,
    gram_of,
)

from gpflow_dkp import gram
from gpflow_dkp.gram import FeatureBlocks, GramBlocks, KernelNotComputableFromGram
from gpflow_dkp.gram.blocks import with_diagonal

blocks = pytest.mark.parametrize("blocks", BLOCKS)
samples = pytest.mark.parametrize("samples", [None, S])

RNG = np.random.default_rng(0)


def kernel_on_features(
    kernel: k.Kernel, inducing: tf.Tensor, data: tf.Tensor
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """GPflow's ii, it and tt on features scaled by 1 / sqrt(D), a sample at a time."""
    if inducing.shape.rank == 3:
        parts = [kernel_on_features(kernel, *pair) for pair in zip(inducing, data, strict=True)]
        return tuple(np.stack(part) for part in zip(*parts, strict=True))
    inducing, data = inducing / np.sqrt(D), data / np.sqrt(D)
    ii = kernel(inducing).numpy()
    # GPflow computes the distance of a point to itself with rounding, K_diag without.
    np.fill_diagonal(ii, kernel(inducing, full_cov=False))
    return ii, kernel(inducing, data).numpy(), kernel(data, full_cov=False).numpy()


def whole_block_on_features(kernel: k.Kernel, data: tf.Tensor) -> np.ndarray:
    """GPflow's kernel [(S,) N, N] on all features at once."""
    if data.shape.rank == 3:
        return np.stack([whole_block_on_features(kernel, points) for points in data])
    whole = kernel(data / np.sqrt(D)).numpy()
    np.fill_diagonal(whole, kernel(data / np.sqrt(D), full_cov=False))
    return whole


def check_against_features(kernel: k.Kernel, blocks: str, samples: int | None) -> None:
    inducing, data = features(samples)
    actual = gram.covariance(kernel, BLOCKS[blocks](inducing, data))
    ii, it, tt = kernel_on_features(kernel, inducing, data)
    np.testing.assert_allclose(actual.ii, ii, rtol=0, atol=1e-10)
    np.testing.assert_allclose(actual.it, it, rtol=0, atol=1e-10)
    np.testing.assert_allclose(actual.tt, tt, rtol=0, atol=1e-10)
    assert not actual.full_cov
    if (blocks == "GramBlocks") == (samples is None):
        return  # two of the four for the whole block
    whole = gram.covariance(kernel, BLOCKS[blocks](inducing, data, full_cov=True))
    assert whole.full_cov
    np.testing.assert_allclose(whole.ii, ii, rtol=0, atol=1e-10)
    np.testing.assert_allclose(whole.it, it, rtol=0, atol=1e-10)
    np.testing.assert_allclose(whole.tt, whole_block_on_features(kernel, data), rtol=0, atol=1e-10)


@samples
@blocks
@pytest.mark.parametrize("name", KERNELS)
def test_equals_the_kernel_on_features(name: str, blocks: str, samples: int | None) -> None:
    check_against_features(KERNELS[name](), blocks, samples)


@blocks
@pytest.mark.parametrize("kernel_class", [QuadraticDecay, LogisticDecay])
def test_isotropic_stationary_of_a_user_needs_no_registration(
    kernel_class: type[k.Kernel], blocks: str
) -> None:
    check_against_features(kernel_class(variance=1.4, lengthscales=0.6), blocks, S)
    check_against_features(kernel_class() + k.Linear(0.5), blocks, None)


@blocks
def test_subclass_that_changes_the_formula_is_not_taken_for_its_base_class(blocks: str) -> None:
    check_against_features(NarrowSquaredExponential(variance=1.4, lengthscales=0.6), blocks, None)


@pytest.mark.parametrize("name", KERNELS)
def test_lengths_of_the_data_points_own_are_those_of_the_gram_matrix(name: str) -> None:
    """Features with squared lengths beside them give what the Gram matrix of both gives."""
    G = feature_blocks_of(*features(S))
    G = FeatureBlocks(G.inducing, G.data, tf.constant(np.linspace(0.1, 1.5, S * N).reshape(S, N)))
    actual = gram.covariance(KERNELS[name](), G)
    expected = gram.covariance(KERNELS[name](), GramBlocks(G.ii, G.it, G.tt))
    for block in ("ii", "it", "tt"):
        np.testing.assert_allclose(
            getattr(actual, block), getattr(expected, block), rtol=0, atol=1e-12
        )


@pytest.mark.parametrize("name", KERNELS)
def test_gradients_of_the_whole_block_are_those_of_finite_differences(name: str) -> None:
    kernel, (inducing, data) = KERNELS[name](), features(S)
    rng = np.random.default_rng(6)
    weights = rng.normal(size=(*data.shape[:-1], N))
    direction = rng.normal(size=data.shape)

    def loss(data: tf.Tensor) -> tf.Tensor:
        blocks = gram_of(inducing, data, full_cov=True)
        return tf.reduce_sum(weights * gram.covariance(kernel, blocks).tt)

    with tf.GradientTape() as tape:
        tape.watch(data)
        value = loss(data)
    gradient = tape.gradient(value, data, unconnected_gradients="zero")
    analytic = float(tf.reduce_sum(direction * gradient))
    step = 1e-5
    above, below = (float(loss(data + sign * step * direction)) for sign in (1, -1))
    assert analytic == pytest.approx((above - below) / (2 * step), rel=1e-6, abs=1e-7)


def test_subclass_that_changes_nothing_is_its_base_class() -> None:
    class Renamed(k.Matern32):
        pass

    check_against_features(Renamed(variance=1.4), "GramBlocks", None)


def test_registered_kernel() -> None:
    class Squared(k.Kernel):
        """k(x, x') = (x^T x')^2."""

        def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
            return tf.square(tf.matmul(X, X if X2 is None else X2, transpose_b=True))

        def K_diag(self, X: tf.Tensor) -> tf.Tensor:
            return tf.square(tf.reduce_sum(tf.square(X), -1))

    with pytest.raises(KernelNotComputableFromGram, match="Squared"):
        gram.check_computable_from_gram(Squared())

    @gram.covariance.register(Squared)
    def _(kernel: Squared, blocks: GramBlocks) -> GramBlocks:
        return GramBlocks(blocks.ii**2, blocks.it**2, blocks.tt**2)

    gram.check_computable_from_gram(Squared())
    for name in BLOCKS:
        check_against_features(Squared(), name, S)
        check_against_features(Squared() * k.Matern32() + k.Linear(), name, None)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_arc_cosine_formula(order: int) -> None:
    """[Cho & Saul 2009] equations 4 to 7, from G; order 1 is docs/mathematics.md 7's ReLU kernel."""
    blocks = gram_of(*features(None))
    bias = 1e-12
    kernel = k.ArcCosine(order, variance=1.3, weight_variances=1.0, bias_variance=bias)
    actual = gram.covariance(kernel, blocks)
    norm_i, norm_t = np.sqrt(np.diag(blocks.ii)), np.sqrt(blocks.tt)
    cosine = blocks.it.numpy() / np.outer(norm_i, norm_t)
    t = np.arccos(cosine)
    angular = {
        0: np.pi - t,
        1: np.sin(t) + (np.pi - t) * np.cos(t),
        2: 3 * np.sin(t) * np.cos(t) + (np.pi - t) * (1 + 2 * np.cos(t) ** 2),
    }[order]
    expected = 1.3 / np.pi * np.outer(norm_i, norm_t) ** order * angular
    np.testing.assert_allclose(actual.it, expected, rtol=0, atol=1e-10)
    diagonal = 1.3 * blocks.tt.numpy() ** order * (3.0 if order == 2 else 1.0)
    np.testing.assert_allclose(actual.tt, diagonal, rtol=0, atol=1e-10)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_arc_cosine_has_the_second_derivatives_of_its_formula(order: int) -> None:
    kernel = k.ArcCosine(order, variance=1.3, weight_variances=1.0, bias_variance=0.4)
    F, direction = (tf.constant(RNG.normal(size=(M + N, 3))) for _ in range(2))

    def ours(F: tf.Tensor) -> tf.Tensor:
        return gram.covariance(kernel, FeatureBlocks(F[:M], tf.transpose(F[M:]))).it

    def formula(F: tf.Tensor) -> tf.Tensor:
        inner = tf.matmul(F, F, transpose_b=True) + kernel.bias_variance
        norms = tf.sqrt(tf.linalg.diag_part(inner))
        products = (norms[:, None] * norms)[:M, M:]
        cosine = inner[:M, M:] / products
        angle = np.pi - tf.acos(cosine)
        sine = tf.sqrt(1.0 - cosine**2)
        angular = {
            0: angle,
            1: sine + angle * cosine,
            2: 3.0 * sine * cosine + angle * (1.0 + 2.0 * cosine**2),
        }[order]
        return kernel.variance / np.pi * products**order * angular

    def second_derivative(function: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        with tf.GradientTape() as outer:
            outer.watch(F)
            with tf.GradientTape() as inner:
                inner.watch(F)
                value = tf.reduce_sum(tf.sin(function(F)))
            along = tf.reduce_sum(inner.gradient(value, F) * direction)
        return outer.gradient(along, F)

    np.testing.assert_allclose(
        second_derivative(ours), second_derivative(formula), rtol=0, atol=1e-10
    )


@pytest.mark.parametrize(("order", "ratio"), [(1, 1.0), (2, 3.0)])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_arc_cosine_of_parallel_points_has_its_gradient(
    order: int, ratio: float, sign: float
) -> None:
    """k(a u, b u) = (a b)^n J_n(0) / pi of a unit vector u, and k(a u, -b u) = 0."""
    unit, lengths = tf.constant([[0.6, 0.8]], tf.float64), tf.constant([2.0, 0.5], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(lengths)
        blocks = FeatureBlocks(lengths[0] * unit, sign * lengths[1] * tf.transpose(unit))
        value = gram.covariance(k.ArcCosine(order, bias_variance=1e-12), blocks).it
    gradient = ratio * order * np.array([0.5, 2.0]) if sign > 0 else np.zeros(2)
    np.testing.assert_allclose(tape.gradient(value, lengths), gradient, rtol=0, atol=1e-10)


def test_white_is_on_the_diagonals_only() -> None:
    blocks = gram.covariance(k.White(0.3), gram_of(*features(S)))
    expected = np.broadcast_to(0.3 * np.eye(M), (S, M, M))
    np.testing.assert_allclose(blocks.ii, expected, rtol=1e-15, atol=0)
    np.testing.assert_array_equal(blocks.it, np.zeros((S, M, N)))
    np.testing.assert_allclose(blocks.tt, np.full((S, N), 0.3), rtol=1e-15)


REFUSED = {
    "Periodic": (lambda: k.Periodic(k.SquaredExponential()), "Periodic"),
    "Cosine": (lambda: k.Cosine(), "Cosine"),
    "ChangePoints": (lambda: k.ChangePoints([k.Matern12(), k.Matern32()], [0.0]), "ChangePoints"),
    "Coregion": (lambda: k.Coregion(2, 1), "Coregion"),
    "ARD": (lambda: k.SquaredExponential(lengthscales=[1.0, 2.0]), "SquaredExponential"),
    "ARD Matern": (lambda: k.Matern52(lengthscales=[1.0, 2.0]), "Matern52"),
    "ARD of one dimension": (lambda: k.Matern52(lengthscales=[1.0]), "Matern52"),
    "ARD Linear": (lambda: k.Linear(variance=[1.0, 2.0]), "Linear"),
    "ARD Polynomial": (lambda: k.Polynomial(2, variance=[1.0, 2.0]), "Polynomial"),
    "ARD ArcCosine": (lambda: k.ArcCosine(1, weight_variances=[1.0, 2.0]), "ArcCosine"),
    "active_dims": (lambda: k.Matern52(active_dims=[0]), "Matern52"),
    "active_dims slice": (lambda: k.Linear(active_dims=slice(0, 2)), "Linear"),
}


def check_refused(kernel: k.Kernel, kernel_name: str) -> None:
    pattern = re.compile(f"kernel {kernel_name} .* cannot act on a Gram matrix")
    with pytest.raises(KernelNotComputableFromGram, match=pattern) as error:
        gram.check_computable_from_gram(kernel)
    assert isinstance(error.value, ValueError)
    assert "\n" not in str(error.value)
    with pytest.raises(KernelNotComputableFromGram, match=pattern):
        gram.covariance(kernel, gram_of(*features(S)))


@pytest.mark.parametrize("name", REFUSED)
def test_kernel_that_no_gram_matrix_gives_is_refused(name: str) -> None:
    make, kernel_name = REFUSED[name]
    check_refused(make(), kernel_name)


def test_kernel_that_no_gram_matrix_gives_is_refused_in_sums_and_products() -> None:
    check_refused(k.Matern32() + k.Cosine(), "Cosine")
    check_refused(k.Matern32() * k.Cosine(), "Cosine")
    check_refused(k.Constant() * (k.Matern32() + k.Cosine()), "Cosine")


@pytest.mark.parametrize("base", [k.IsotropicStationary, k.Matern32, k.Linear])
def test_subclass_that_states_its_formula_on_inputs_only_is_refused(base: type[k.Kernel]) -> None:
    class OnInputsOnly(base):  # type: ignore[valid-type, misc]
        def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
            return tf.zeros([tf.shape(X)[0], tf.shape(X if X2 is None else X2)[0]], X.dtype)

    with pytest.raises(KernelNotComputableFromGram, match="OnInputsOnly"):
        gram.check_computable_from_gram(OnInputsOnly())


def test_refusal_says_which_values_were_got_and_what_is_allowed() -> None:
    with pytest.raises(KernelNotComputableFromGram, match=r"lengthscales.*\(2,\).*scalar"):
        gram.check_computable_from_gram(k.SquaredExponential(lengthscales=[1.0, 2.0]))
    with pytest.raises(KernelNotComputableFromGram, match=r"active_dims=\[0"):
        gram.check_computable_from_gram(k.SquaredExponential(active_dims=[0]))


def loss_of(
    kernel: k.Kernel, blocks: str, inducing: tf.Tensor, data: tf.Tensor, seed: int = 3
) -> tf.Tensor:
    """A random linear function of all entries of K."""
    rng = np.random.default_rng(seed)
    result = gram.covariance(kernel, BLOCKS[blocks](inducing, data))
    return tf.add_n(
        [
            tf.reduce_sum(rng.normal(size=block.shape) * block)
            for block in (result.ii, result.it, result.tt)
        ]
    )


@blocks
@pytest.mark.parametrize("name", KERNELS)
def test_gradients_are_those_of_finite_differences(name: str, blocks: str) -> None:
    kernel = KERNELS[name]()
    inducing, data = features(None)
    variables = [inducing, data, *kernel.trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch(variables)
        loss = loss_of(kernel, blocks, inducing, data)
    gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
    rng = np.random.default_rng(5)
    directions = [rng.normal(size=variable.shape) for variable in variables]
    analytic = sum(
        float(tf.reduce_sum(direction * gradient))
        for direction, gradient in zip(directions, gradients, strict=True)
    )

    start = [variable.numpy() for variable in kernel.trainable_variables]

    def moved(shift: float) -> float:
        for variable, value, direction in zip(
            kernel.trainable_variables, start, directions[2:], strict=True
        ):
            variable.assign(value + shift * direction)
        return float(
            loss_of(kernel, blocks, inducing + shift * directions[0], data + shift * directions[1])
        )

    step = 1e-5
    numerical = (moved(step) - moved(-step)) / (2 * step)
    assert analytic == pytest.approx(numerical, rel=1e-6, abs=1e-7)


@blocks
@pytest.mark.parametrize("name", KERNELS)
def test_coinciding_points_have_finite_values_and_gradients(name: str, blocks: str) -> None:
    """R = 0 and cos = 1, where the square root and the arc cosine have infinite gradients."""
    kernel = KERNELS[name]()
    inducing, data = features(S)
    inducing = tf.concat([inducing[..., :2, :], inducing[..., :2, :]], -2)
    data = tf.concat([inducing, -inducing[..., :1, :], 2.0 * inducing[..., :1, :]], -2)
    with tf.GradientTape() as tape:
        tape.watch([inducing, data])
        loss = loss_of(kernel, blocks, inducing, data)
    gradients = tape.gradient(
        loss, [inducing, data, *kernel.trainable_variables], unconnected_gradients="zero"
    )
    assert np.isfinite(loss)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


# White noise of two equal points is independent.
@pytest.mark.parametrize("name", sorted(set(KERNELS) - {"White", "Sum", "Product of Sums"}))
def test_coinciding_points_have_the_diagonals_value(name: str) -> None:
    inducing, _ = features(None)
    same = gram.covariance(KERNELS[name](), feature_blocks_of(inducing, inducing))
    # 1e-8 is the square root of rounding: the distance of equal points by three inner products.
    np.testing.assert_allclose(np.diag(same.it), same.tt, rtol=0, atol=2e-7)
    np.testing.assert_allclose(same.ii_diag, same.tt, rtol=0, atol=1e-12)


@blocks
@pytest.mark.parametrize("name", KERNELS)
def test_covariance_of_single_precision_data_blocks(name: str, blocks: str) -> None:
    kernel = KERNELS[name]()
    inducing, data = features(S)
    full = gram.covariance(kernel, BLOCKS[blocks](inducing, data))
    if blocks == "GramBlocks":
        mixed = gram_of(inducing, data).with_data_dtype(tf.float32)
    else:
        double = feature_blocks_of(inducing, data)
        mixed = FeatureBlocks(double.inducing, tf.cast(double.data, tf.float32))
    low = gram.covariance(kernel, mixed)
    assert (low.ii.dtype, low.it.dtype, low.tt.dtype) == (tf.float64, tf.float32, tf.float32)
    np.testing.assert_array_equal(low.ii, full.ii)
    scale = float(np.max(np.abs(full.tt)))
    np.testing.assert_allclose(low.it, full.it, rtol=0, atol=3e-6 * scale)
    np.testing.assert_allclose(low.tt, full.tt, rtol=2e-6)


def test_compiled_with_unknown_sizes() -> None:
    inducing, data = features(S)
    kernel = KERNELS["Sum of Products"]()

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, M, D], tf.float64),
            tf.TensorSpec([None, None, D], tf.float64),
        ],
        autograph=False,
    )
    def compiled(inducing: tf.Tensor, data: tf.Tensor) -> tuple[tf.Tensor, ...]:
        result = gram.covariance(kernel, gram_of(inducing, data))
        return result.ii, result.it, result.tt

    eager = gram.covariance(kernel, gram_of(inducing, data))
    for actual, expected in zip(
        compiled(inducing, data), (eager.ii, eager.it, eager.tt), strict=True
    ):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)


INPUT_KERNELS = {
    "ARD": lambda: k.SquaredExponential(lengthscales=[0.5, 1.0, 2.0]),
    "active_dims": lambda: k.Matern32(active_dims=[1]) + k.Linear(active_dims=[0, 2]),
    "Periodic": lambda: k.Periodic(k.SquaredExponential()),
    "ChangePoints": lambda: k.ChangePoints(
        [k.Matern12(active_dims=[0]), k.Matern32(active_dims=[0])], [0.0]
    ),
    "White": lambda: k.White(0.2) + k.SquaredExponential(),
}


@pytest.mark.parametrize("name", INPUT_KERNELS)
@pytest.mark.parametrize("wrapping", [lambda Z: Z, gpflow.inducing_variables.InducingPoints])
def test_from_inputs_is_gpflows_covariances(name: str, wrapping) -> None:  # type: ignore[no-untyped-def]
    kernel = INPUT_KERNELS[name]()
    dims = 1 if name == "ChangePoints" else D
    Z, X = (part.numpy()[:, :dims] for part in features(None))
    actual = gram.from_inputs(kernel, wrapping(Z), X)
    inducing = gpflow.inducing_variables.InducingPoints(Z)
    np.testing.assert_array_equal(actual.ii, gpflow.covariances.Kuu(inducing, kernel))
    np.testing.assert_array_equal(actual.it, gpflow.covariances.Kuf(inducing, kernel, X))
    np.testing.assert_array_equal(actual.tt, kernel(X, full_cov=False))
    assert (actual.ii.shape, actual.it.shape, actual.tt.shape) == ((M, M), (M, N), (N,))
    whole = gram.from_inputs(kernel, wrapping(Z), X, full_cov=True)
    assert whole.full_cov
    np.testing.assert_array_equal(whole.tt, kernel(X))
    np.testing.assert_array_equal(whole.it, actual.it)
    np.testing.assert_array_equal(whole.ii, actual.ii)


def test_from_inputs_and_covariance_agree() -> None:
    """K on inputs is K of the inputs' Gram matrix."""
    inducing, data = features(None)
    kernel = KERNELS["Matern52"]()
    scale = np.sqrt(D)
    on_inputs = gram.from_inputs(kernel, inducing / scale, data / scale)
    on_gram = gram.covariance(kernel, gram_of(inducing, data))
    np.testing.assert_allclose(on_inputs.it, on_gram.it, rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_arc_cosine_of_inputs_equals_gpflows(order: int) -> None:
    rng = np.random.default_rng(0)
    Z, X = rng.normal(size=(4, 3)), rng.normal(size=(6, 3))
    kernel = k.ArcCosine(
        order,
        variance=1.3,
        weight_variances=[0.7, 0.2],
        bias_variance=0.4,
        active_dims=[0, 2],
    )
    for points in (Z, gpflow.inducing_variables.InducingPoints(Z)):
        blocks = gram.from_inputs(kernel, points, X)
        np.testing.assert_allclose(blocks.ii, kernel(Z), atol=1e-7)  # GPflow's diagonal, at cos = 1
        np.testing.assert_allclose(blocks.it, kernel(Z, X), rtol=1e-12)
        np.testing.assert_allclose(blocks.tt, kernel(X, full_cov=False), rtol=1e-12)
        whole = gram.from_inputs(kernel, points, X, full_cov=True)
        np.testing.assert_allclose(whole.tt, kernel(X), atol=1e-7)
        np.testing.assert_allclose(whole.it, blocks.it, rtol=1e-12)


def separate() -> k.SeparateIndependent:
    return k.SeparateIndependent([KERNELS[name]() for name in ("Matern32", "Linear", "Sum")])


@pytest.mark.parametrize("full_cov", [False, True])
@samples
@blocks
def test_separate_kernels_are_stacked_before_the_matrix(
    blocks: str, samples: int | None, full_cov: bool
) -> None:
    kernel, G = separate(), BLOCKS[blocks](*features(samples), full_cov=full_cov)
    actual = gram.covariance(kernel, G)
    assert actual.full_cov == full_cov
    batch = [] if samples is None else [samples]
    assert actual.ii.shape == [*batch, 3, M, M]
    assert actual.it.shape == [*batch, 3, M, N]
    assert actual.tt.shape == ([*batch, 3, N, N] if full_cov else [*batch, 3, N])
    for p, child in enumerate(kernel.kernels):
        of_child = gram.covariance(child, G)
        np.testing.assert_array_equal(actual.ii[..., p, :, :], of_child.ii)
        np.testing.assert_array_equal(actual.it[..., p, :, :], of_child.it)
        own = actual.tt[..., p, :, :] if full_cov else actual.tt[..., p, :]
        np.testing.assert_array_equal(own, of_child.tt)
    jittered = actual.with_jitter(tf.constant(0.2, tf.float64))
    np.testing.assert_allclose(jittered.ii, actual.ii + 0.2 * np.eye(M), rtol=1e-14)
    diagonal = 0.2 * np.eye(N) if full_cov else 0.2
    np.testing.assert_allclose(jittered.tt, actual.tt + diagonal, rtol=1e-14)


@pytest.mark.parametrize("full_cov", [False, True])
def test_separate_and_shared_kernels_on_inputs(full_cov: bool) -> None:
    kernel, (Z, X) = separate(), features(None)
    actual = gram.from_inputs(kernel, Z, X, full_cov=full_cov)
    for p, child in enumerate(kernel.kernels):
        np.testing.assert_array_equal(actual.it[p], child(Z, X))
        np.testing.assert_array_equal(actual.tt[p], child(X, full_cov=full_cov))
    child = KERNELS["Matern32"]()
    shared = gram.from_inputs(k.SharedIndependent(child, 3), Z, X, full_cov=full_cov)
    np.testing.assert_array_equal(shared.it, child(Z, X))
    np.testing.assert_array_equal(shared.tt, child(X, full_cov=full_cov))


@blocks
def test_shared_kernel_is_its_kernel(blocks: str) -> None:
    G, child = BLOCKS[blocks](*features(S)), KERNELS["Matern32"]()
    actual = gram.covariance(k.SharedIndependent(child, 3), G)
    np.testing.assert_array_equal(actual.it, gram.covariance(child, G).it)


def test_kernels_that_mix_outputs_are_refused() -> None:
    mixed = k.LinearCoregionalization([k.Matern32(), k.Matern52()], np.ones((3, 2)))
    with pytest.raises(KernelNotComputableFromGram, match="it mixes outputs"):
        gram.check_computable_from_gram(mixed)
    with pytest.raises(KernelNotComputableFromGram, match="Cosine"):
        gram.check_computable_from_gram(k.SeparateIndependent([k.Matern32(), k.Cosine()]))


@pytest.mark.parametrize(
    "of_arc_cosine",
    [lambda arc: arc, lambda arc: arc + k.White(0.1), lambda arc: k.Constant(2.0) * (arc + arc)],
)
def test_arc_cosine_of_inputs_of_many_features_is_finite(of_arc_cosine) -> None:  # type: ignore[no-untyped-def]
    """Where rounding takes the cosine of a point with itself above 1, GPflow's is NaN.

    Which points these are depends on the processor and its threads.
    """
    kernel = of_arc_cosine(k.ArcCosine(1, weight_variances=np.ones(784), bias_variance=0.5))
    draws = (np.random.default_rng(seed).normal(size=(200, 784)) for seed in range(200))
    Z = next((Z for Z in draws if np.isnan(kernel(Z)).any()), None)
    if Z is None:
        pytest.skip("no draw's cosines round above 1 on this processor")
    found, right = gram.from_inputs(kernel, Z, Z[:5]), ~np.isnan(kernel(Z))
    np.testing.assert_allclose(found.ii[right], kernel(Z)[right], rtol=1e-6)
    assert np.isfinite(found.ii).all()
    assert np.isfinite(found.it).all()


class HalfArcCosine(k.ArcCosine):
    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:  # GPflow's
        return 0.5 * super().K(X, X2)


def test_subclass_of_arc_cosine_is_evaluated_on_inputs_as_it_says() -> None:
    Z, X = (part.numpy() for part in features(None))
    for kernel in (HalfArcCosine(1), HalfArcCosine(1) + k.Constant(0.2)):
        np.testing.assert_array_equal(gram.from_inputs(kernel, Z, X).it, kernel(Z, X))


def test_a_matrix_that_is_not_square_has_no_diagonal() -> None:
    """A single column would broadcast."""
    with pytest.raises(ShapeMismatchError, match="matrix"):
        with_diagonal(tf.ones([M, 1], tf.float64), tf.constant(1.0, tf.float64))


@pytest.mark.parametrize("full_cov", [False, True])
def test_rational_quadratic_on_inputs_is_gpflows(full_cov: bool) -> None:
    """It has a way of its own there: with ARD, on some dimensions, coinciding points among them."""
    rng = np.random.default_rng(3)
    Z, X = rng.normal(size=(4, 3)), rng.normal(size=(6, 3))
    X[2] = Z[1]
    kernel = gpflow.kernels.RationalQuadratic(1.3, [0.4, 2.0], alpha=0.7, active_dims=[0, 2])

    def gradients(of_gpflow: bool) -> list[np.ndarray]:
        with tf.GradientTape() as tape:
            if of_gpflow:
                blocks = kernel(Z), kernel(Z, X), kernel(X, full_cov=full_cov)
            else:
                K = gram.from_inputs(kernel, Z, X, full_cov=full_cov)
                blocks = K.ii, K.it, K.tt
            found.append(blocks)
            value = sum(tf.reduce_sum(tf.sin(block)) for block in blocks)
        return [part.numpy() for part in tape.gradient(value, kernel.trainable_variables)]

    found: list[tuple[tf.Tensor, ...]] = []
    ours, theirs = gradients(False), gradients(True)
    for block, expected in zip(*found, strict=True):
        np.testing.assert_allclose(block, expected, rtol=0, atol=1e-12)
    for gradient, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-12)
