"""Composed: kernels of kernels, against nested covariances and explicit formulas; as GPflow's kernel."""

import re
from collections.abc import Callable
from functools import reduce
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels as k
from gram_cases import BLOCKS, KERNELS, M, N, S, features

from gpflow_dkp import gram
from gpflow_dkp.gram import Composed, KernelNotComputableFromGram
from gpflow_dkp.models import DGP, DIWP, DWP, DeepKernelProcess

CHAINS = {
    "stationary": lambda: [KERNELS["Matern52"](), KERNELS["SquaredExponential"]()],
    "arc-cosine": lambda: [
        KERNELS["ArcCosine1"](),
        KERNELS["ArcCosine2"](),
        KERNELS["ArcCosine0"](),
    ],
    "sums": lambda: [KERNELS["Linear"](), KERNELS["Sum of Products"](), KERNELS["Polynomial2"]()],
    "one": lambda: [KERNELS["RationalQuadratic"]()],
    "nested": lambda: [Composed([k.Linear(), k.Matern32()]), k.Linear(0.3) + k.Matern12()],
}
chains = pytest.mark.parametrize("chain", CHAINS)


@chains
@pytest.mark.parametrize("full_cov", [False, True])
@pytest.mark.parametrize(("blocks", "samples"), [("GramBlocks", S), ("FeatureBlocks", None)])
def test_on_a_gram_matrix_it_is_the_nested_covariance(
    blocks: str, samples: int | None, full_cov: bool, chain: str
) -> None:
    G = BLOCKS[blocks](*features(samples), full_cov=full_cov)
    kernels = CHAINS[chain]()
    expected = reduce(lambda value, kernel: gram.covariance(kernel, value), kernels, G)
    actual = gram.covariance(Composed(kernels), G)
    assert actual.full_cov == full_cov
    for name in ("ii", "it", "tt"):
        np.testing.assert_allclose(
            getattr(actual, name), getattr(expected, name), rtol=0, atol=1e-12
        )


@chains
def test_on_inputs_it_is_the_nested_covariance(chain: str) -> None:
    """Whole and by its diagonal, in blocks and as GPflow calls a kernel."""
    Z, X = features(None)
    first, *others = CHAINS[chain]()
    kernel = Composed([first, *others])
    for full_cov in (False, True):
        K = gram.from_inputs(first, Z, X, full_cov=full_cov)
        K = reduce(lambda value, kernel: gram.covariance(kernel, value), others, K)
        actual = gram.from_inputs(kernel, Z, X, full_cov=full_cov)
        for name in ("ii", "it", "tt"):
            np.testing.assert_allclose(getattr(actual, name), getattr(K, name), atol=1e-12)
        np.testing.assert_allclose(kernel(X, full_cov=full_cov), K.tt, rtol=0, atol=1e-12)
    np.testing.assert_allclose(kernel(Z), K.ii, rtol=0, atol=1e-12)
    np.testing.assert_allclose(kernel(Z, X), K.it, rtol=0, atol=1e-12)


def test_squared_exponential_of_a_squared_exponential_by_hand() -> None:
    X = features(None)[1].numpy()
    kernel = Composed([k.SquaredExponential(1.5, 0.9), k.SquaredExponential(0.7, 0.6)])
    squared = np.sum((X[:, None] - X) ** 2, -1)
    inner = 1.5 * np.exp(-0.5 * squared / 0.9**2)
    np.testing.assert_allclose(
        kernel(X), 0.7 * np.exp(-0.5 * (3.0 - 2.0 * inner) / 0.6**2), rtol=0, atol=1e-12
    )


def test_arc_cosine_recursion_of_a_wide_network() -> None:
    """[Cho & Saul 2009] section 2.3: K_{l+1} = sqrt(K_ii K_jj) (sin t + (pi - t) cos t) / pi."""
    X = features(None)[1].numpy()
    kernels = [k.ArcCosine(1, bias_variance=1e-12) for _ in range(3)]
    K = X @ X.T
    for _ in kernels:
        norms = np.sqrt(np.outer(np.diag(K), np.diag(K)))
        t = np.arccos(np.clip(K / norms, -1.0, 1.0))
        K = norms * (np.sin(t) + (np.pi - t) * np.cos(t)) / np.pi
    np.testing.assert_allclose(Composed(kernels)(X), K, rtol=0, atol=1e-7)
    np.testing.assert_allclose(Composed(kernels)(X, full_cov=False), np.sum(X**2, -1), rtol=1e-10)


@chains
def test_it_is_symmetric_and_positive_definite_with_its_diagonal(chain: str) -> None:
    kernel = Composed(CHAINS[chain]())
    X = np.random.default_rng(3).normal(size=(20, 3))
    K = kernel(X).numpy()
    np.testing.assert_allclose(K, K.T, rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.diag(K), kernel(X, full_cov=False), rtol=1e-7)
    assert np.linalg.eigvalsh(K).min() > -1e-9 * np.linalg.eigvalsh(K).max()
    np.testing.assert_allclose(kernel(X, X[:5]), K[:, :5], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "first",
    [
        lambda: k.SquaredExponential(lengthscales=[0.5, 1.0, 2.0]),
        lambda: k.Matern32(active_dims=[1]) + k.Linear(active_dims=[0, 2]),
        lambda: k.Periodic(k.SquaredExponential()),
    ],
)
def test_first_kernel_may_be_any_on_inputs(first: Callable[[], k.Kernel]) -> None:
    X = features(None)[1].numpy()
    inner, outer = first(), k.SquaredExponential(lengthscales=0.6)
    K = inner(X).numpy()
    diag = np.diag(K)
    expected = np.exp(-0.5 * (diag[:, None] + diag - 2.0 * K) / 0.6**2)
    np.testing.assert_allclose(Composed([inner, outer])(X), expected, rtol=0, atol=1e-7)


def test_it_is_a_child_of_other_kernels_and_has_active_dims() -> None:
    Z, X = features(None)
    composed = Composed([k.Matern52(), k.Linear(0.4)])
    for combined, expected in [
        (composed + k.Linear(), composed(Z, X) + k.Linear()(Z, X)),
        (composed * k.Constant(0.3), 0.3 * composed(Z, X)),
    ]:
        np.testing.assert_allclose(combined(Z, X), expected, rtol=1e-12)
        np.testing.assert_allclose(gram.from_inputs(combined, Z, X).it, expected, rtol=1e-12)
    on_first = Composed([k.Matern52(active_dims=[0]), k.Linear(0.4)])
    narrow = Composed([k.Matern52(), k.Linear(0.4)])
    np.testing.assert_allclose(on_first(Z, X), narrow(Z[:, :1], X[:, :1]), rtol=1e-12)


def test_batches_of_inputs() -> None:
    """As GPflow's kernels: [S, N, D] to [S, N, N] and [S, N]."""
    _, X = features(S)
    for chain in ("stationary", "sums"):
        kernel = Composed(CHAINS[chain]())
        expected = [kernel(points) for points in X]
        np.testing.assert_allclose(kernel(X), tf.stack(expected), rtol=0, atol=1e-10)
        expected = [kernel(points, full_cov=False) for points in X]
        np.testing.assert_allclose(kernel(X, full_cov=False), tf.stack(expected), atol=1e-12)


def test_gaussian_process_regression_with_it() -> None:
    """GPflow's GPR: its marginal likelihood by NumPy, and gradients for every parameter."""
    rng = np.random.default_rng(4)
    X, Y = rng.normal(size=(12, 2)), rng.normal(size=(12, 1))
    kernel = Composed([k.Matern52(lengthscales=[0.5, 2.0]), k.SquaredExponential(), k.Linear()])
    model = gpflow.models.GPR((X, Y), kernel, noise_variance=0.1)
    K = kernel(X).numpy() + 0.1 * np.eye(12)
    expected = -0.5 * (
        Y[:, 0] @ np.linalg.solve(K, Y[:, 0]) + np.linalg.slogdet(K)[1] + 12 * np.log(2 * np.pi)
    )
    assert float(model.log_marginal_likelihood()) == pytest.approx(expected, abs=1e-8)
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    assert len(model.trainable_variables) == 6
    for gradient in tape.gradient(loss, model.trainable_variables):
        assert np.all(np.isfinite(gradient))
        assert np.any(gradient.numpy() != 0.0)
    mean, variance = model.predict_f(X[:3])
    assert mean.shape == variance.shape == (3, 1)


class ByHand(k.IsotropicStationary):
    """Of lengthscale 0.6, on the covariance of one of variance 1.5 and lengthscale 0.9."""

    def K_r2(self, r2: tf.Tensor) -> tf.Tensor:
        inner = 1.5 * tf.exp(-0.5 * r2 / 0.9**2)
        return self.variance * tf.exp(-0.5 * (3.0 - 2.0 * inner) / 0.6**2)


@pytest.mark.parametrize("model", [DWP, DIWP, DGP])
def test_in_a_layer_it_is_the_kernel_composed_by_hand(model: type[DeepKernelProcess]) -> None:
    """Infinite layers between bottlenecks: bound, its gradient, and predictions with the same seed."""
    rng = np.random.default_rng(5)
    X, Y = rng.normal(size=(9, 2)), rng.normal(size=(9, 1))
    settings = {} if model is DIWP else {"widths": [3, 2]}

    def composed(*order: int) -> Composed:
        kernels = [k.SquaredExponential(1.5, 0.9), k.SquaredExponential(0.7, 0.6)]
        return Composed([kernels[i] for i in order])

    def of(make: Callable[[], k.Kernel]) -> list[np.ndarray]:
        kernels = [make(), make(), k.SquaredExponential()]
        built = model(kernels, gpflow.likelihoods.Gaussian(0.1), X[:5], **settings)
        parameters = gpflow.utilities.parameter_dict(built).items()
        values = [value for name, value in parameters if name.endswith((".V", ".v"))]
        assert len(values) > 2
        for number, value in enumerate(values):
            value.assign(np.random.default_rng(number).normal(size=value.shape))
        with tf.GradientTape() as tape:
            bound = built.elbo((X, Y), num_samples=3, seed=1)
        gradients = tape.gradient(bound, [value.unconstrained_variable for value in values])
        predictions = built.predict_f(X, num_samples=3, seed=2)
        return [part.numpy() for part in (bound, *gradients, *predictions)]

    ours, other = of(lambda: composed(0, 1)), of(lambda: composed(1, 0))
    for actual, expected in zip(ours, of(lambda: ByHand(0.7)), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-8)
    assert abs(other[0] - ours[0]) > 0.01  # the order of the kernels is seen


def test_kernels_after_the_first_must_act_on_gram_matrices() -> None:
    for kernel in (k.Cosine(), k.Matern32(active_dims=[0])):
        with pytest.raises(KernelNotComputableFromGram, match=type(kernel).__name__):
            Composed([k.Linear(), kernel])(features(None)[0])
        with pytest.raises(KernelNotComputableFromGram, match=type(kernel).__name__):
            gram.check_computable_from_gram(Composed([kernel, k.Linear()]))
    gram.check_computable_from_gram(Composed([k.Linear(), k.Matern32()]))


def test_kernels_are_given_one_after_the_other_or_as_a_list() -> None:
    first, second = k.Matern52(), k.Linear(0.4)
    for kernel in (Composed(first, second), Composed([first, second]), Composed((first, second))):
        assert kernel.kernels == [first, second]
    assert Composed(first).kernels == [first]


@pytest.mark.parametrize(
    ("kernels", "got"), [((), "none"), (([],), "none"), ((k.Linear(), "rbf"), "str")]
)
def test_what_is_no_kernel_is_one_clear_line(kernels: tuple[Any, ...], got: str) -> None:
    expected = (
        f"kernels: got {got}, needs one or more GPflow kernels, one after the other or as a list"
    )
    with pytest.raises(ValueError, match=re.escape(expected)):
        Composed(*kernels)


def test_compiled_with_unknown_sizes() -> None:
    kernel = Composed(CHAINS["sums"]())
    compiled = tf.function(
        lambda X: (kernel(X), kernel(X, full_cov=False)),
        input_signature=[tf.TensorSpec([None, 3], tf.float64)],
        autograph=False,
    )
    for points, size in zip(features(None), (M, N), strict=True):
        whole, diagonal = compiled(points)
        assert whole.shape == (size, size)
        np.testing.assert_allclose(whole, kernel(points), rtol=0, atol=1e-12)
        np.testing.assert_allclose(diagonal, kernel(points, full_cov=False), rtol=0, atol=1e-12)
