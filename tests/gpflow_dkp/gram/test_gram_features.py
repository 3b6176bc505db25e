"""Kernels of features: on features, in the limit of infinite width, and what refuses them."""

import math
from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.special
import tensorflow as tf
from gpflow.kernels import ArcCosine, Linear, White

from gpflow_dkp import gram
from gpflow_dkp.gram import (
    FeatureBlocks,
    FeatureKernel,
    KernelNotComputableFromGram,
    ReLUFeatures,
)
from gpflow_dkp.models import DGP, DIWP, DWP, NNGP
from gpflow_dkp.models.from_data import KERNELS_OF_FEATURES, relu

S, M, N, D = 3, 4, 5, 7


def blocks() -> FeatureBlocks:
    rng = np.random.default_rng(0)
    inducing = rng.normal(size=(S, M, D)) / np.sqrt(D)
    data = rng.normal(size=(S, D, N)) / np.sqrt(D)
    return FeatureBlocks(tf.constant(inducing), tf.constant(data))


KERNELS = [ReLUFeatures(1.3), FeatureKernel("erf", 0.7), FeatureKernel(tf.math.softplus, 1.1)]


def by_hand(kernel: FeatureKernel, X: np.ndarray, X2: np.ndarray) -> np.ndarray:
    """v phi(sqrt(D) X) phi(sqrt(D) X2)^T / D, entry by entry."""
    phi: Any = {"relu": lambda x: np.sqrt(2.0) * max(x, 0.0), "erf": math.erf}.get(
        str(kernel.activation), lambda x: math.log1p(math.exp(x))
    )
    applied, applied2 = (
        np.array([[phi(np.sqrt(D) * x) for x in row] for row in rows]) for rows in (X, X2)
    )
    return kernel.variance.numpy() * applied @ applied2.T / D


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_is_the_mean_of_products_of_units(kernel: FeatureKernel) -> None:
    X, X2 = (np.random.default_rng(seed).normal(size=(n, D)) for seed, n in ((1, M), (2, N)))
    np.testing.assert_allclose(kernel(X, X2), by_hand(kernel, X, X2), rtol=0, atol=1e-12)
    np.testing.assert_allclose(kernel(X), by_hand(kernel, X, X), rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        kernel(X, full_cov=False), np.diag(by_hand(kernel, X, X)), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("kernel", KERNELS)
def test_covariance_is_the_kernel_on_features(kernel: FeatureKernel) -> None:
    features = blocks()
    K = gram.covariance(kernel, features)
    for s in range(S):
        inducing, data = features.inducing[s], tf.transpose(features.data[s])
        np.testing.assert_allclose(K.ii[s], kernel(inducing), rtol=0, atol=1e-12)
        np.testing.assert_allclose(K.it[s], kernel(inducing, data), rtol=0, atol=1e-12)
        np.testing.assert_allclose(K.tt[s], kernel(data, full_cov=False), rtol=0, atol=1e-12)
    both = gram.covariance(kernel + White(0.2), features)
    np.testing.assert_allclose(both.ii, K.ii + 0.2 * np.eye(M), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
def test_whole_block_is_the_kernel_on_features(kernel: FeatureKernel) -> None:
    features = blocks()
    K = gram.covariance(kernel, FeatureBlocks(features.inducing, features.data, full_cov=True))
    assert K.full_cov
    for s in range(S):
        inducing, data = features.inducing[s], tf.transpose(features.data[s])
        np.testing.assert_allclose(K.ii[s], kernel(inducing), rtol=0, atol=1e-12)
        np.testing.assert_allclose(K.it[s], kernel(inducing, data), rtol=0, atol=1e-12)
        np.testing.assert_allclose(K.tt[s], kernel(data), rtol=0, atol=1e-12)


def test_features_with_lengths_of_their_own_are_refused() -> None:
    """What stands behind such a length is not known."""
    own = tf.ones([S, N], tf.float64)
    with pytest.raises(KernelNotComputableFromGram, match="it needs the features"):
        gram.covariance(ReLUFeatures(), FeatureBlocks(blocks().inducing, blocks().data, own))


def test_many_features_approach_the_arc_cosine_kernel() -> None:
    rng = np.random.default_rng(0)
    width = 400_000
    factor = rng.normal(size=(M, 3))
    features = factor @ rng.normal(size=(3, width)) / np.sqrt(width)
    limit = ArcCosine(order=1, variance=1.3, bias_variance=1e-12)(factor).numpy()
    # A unit's 2 relu(u) relu(v) has a variance of at most 6 E[u^2] E[v^2], and 5 where u = v.
    scale = np.sqrt(np.outer(np.diag(limit), np.diag(limit)))
    error = np.abs(ReLUFeatures(1.3)(features) - limit) / (np.sqrt(6.0 / width) * scale)
    assert np.max(error) < 6.0


@pytest.mark.parametrize("activation", ["erf", "sin", "cos", "tanh", "sigmoid"])
def test_many_features_approach_the_expectation_of_products(activation: str) -> None:
    """E phi(f_i) phi(f_j) for f ~ N(0, G) by quadrature; of erf, sin and cos in closed form too."""
    rng = np.random.default_rng(0)
    width = 400_000
    factor = rng.normal(size=(M, 2))
    G = factor @ factor.T
    phi: Any = {
        "erf": scipy.special.erf,
        "sin": np.sin,
        "sigmoid": scipy.special.expit,
    }.get(activation, getattr(np, activation, None))
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / np.sum(weights)
    units = phi(np.tensordot(factor, np.stack(np.meshgrid(nodes, nodes)), 1))
    products = units[:, None] * units[None]
    both = weights[:, None] * weights
    limit = np.sum(both * products, (-1, -2))
    spread = np.sqrt(np.sum(both * products**2, (-1, -2)) - limit**2)
    size = np.diag(G)
    total = 0.5 * (size[:, None] + size)
    closed = {
        "erf": 2 / np.pi * np.arcsin(2 * G / np.sqrt(np.outer(1 + 2 * size, 1 + 2 * size))),
        "sin": np.exp(-total) * np.sinh(G),
        "cos": np.exp(-total) * np.cosh(G),
    }.get(activation, limit)
    np.testing.assert_allclose(limit, closed, rtol=0, atol=1e-6)
    features = factor @ rng.normal(size=(2, width)) / np.sqrt(width)
    error = FeatureKernel(activation, 1.3)(features).numpy() / 1.3 - limit
    # 10 entries of 5 kernels by 5.5 standard errors: one false alarm in half a million runs.
    assert np.max(np.abs(error) / (spread / np.sqrt(width))) < 5.5


def test_activation_that_is_none_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"activation: got 'sign', choose one of relu, .* function"
    ):
        FeatureKernel("sign")
    with pytest.raises(ValueError, match=r"activation: got 3, choose one of"):
        FeatureKernel(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("model", [DWP, DIWP])
def test_models_of_gram_matrices_refuse_it(model: type) -> None:
    settings = {"widths": [3]} if model is DWP else {}
    with pytest.raises(
        KernelNotComputableFromGram, match=r"ReLUFeatures .*layers of a DGP"
    ) as raised:
        model([Linear(), ReLUFeatures()], gpflow.likelihoods.Gaussian(), np.eye(4), **settings)
    assert "\n" not in str(raised.value)


def test_network_is_trained_as_a_deep_gp() -> None:
    X = np.random.default_rng(0).normal(size=(12, 2))
    data = X, np.abs(X[:, :1])
    kernels = [Linear(), ReLUFeatures(), ReLUFeatures()]
    network = DGP(kernels, gpflow.likelihoods.Gaussian(0.1), X[:6], widths=[8, 5])
    with tf.GradientTape() as tape:
        elbo = network.elbo(data, seed=0)
    for gradient in tape.gradient(elbo, network.trainable_variables):
        assert np.all(np.isfinite(gradient))


# Networks from data

PHI: dict[str, Any] = {
    "relu_features": lambda x: np.sqrt(2.0) * np.maximum(x, 0.0),
    "erf": scipy.special.erf,
    "sin": np.sin,
}


@pytest.mark.parametrize("name", KERNELS_OF_FEATURES)
@pytest.mark.parametrize("ard", [True, False])
def test_a_network_from_data_has_the_covariances_of_its_weights_and_biases(
    name: str, ard: bool
) -> None:
    """E (w x + b) (w x' + b) of weights of variance 1 / fan-in and biases of variance 1/2."""
    X = np.random.default_rng(0).normal(size=(12, 2))
    model = DGP.from_data(X, X[:, :1], depth=3, width=D, num_inducing=4, kernel=name, ard=ard)
    first, *others = model.kernels
    np.testing.assert_allclose(first(X), X @ X.T / 2.0 + 0.5, rtol=1e-12)
    assert first.kernels[0].variance.shape == ([2] if ard else [])
    features = blocks()
    units = [
        PHI[name](np.sqrt(D) * np.asarray(part)) for part in (features.inducing, features.data)
    ]
    expected = units[0] @ units[1] / D + 0.5
    assert [layer.width for layer in model.hidden_layers] == [D, D]
    for kernel in others:
        np.testing.assert_allclose(gram.covariance(kernel, features).it, expected, rtol=1e-12)


def test_many_units_from_data_are_the_relu_kernel_from_data() -> None:
    rng, width = np.random.default_rng(0), 400_000
    X = rng.normal(size=(M, 3))
    inputs, units = (KERNELS_OF_FEATURES["relu_features"](*given) for given in ((3,), ()))
    features = np.linalg.cholesky(inputs(X)) @ rng.normal(size=(M, width)) / np.sqrt(width)
    limit = relu(3)(X).numpy()
    # As above: six standard errors of the mean over the units.
    scale = np.sqrt(np.outer(np.diag(limit), np.diag(limit)))
    error = np.abs(units(features) - 0.5 - limit) / (np.sqrt(6.0 / width) * scale)
    assert np.max(error) < 6.0


@pytest.mark.parametrize("model", [DIWP, DWP, NNGP])
def test_other_models_have_no_such_kernel_by_name(model: Any) -> None:
    X = np.eye(4)
    line = r"^kernel: got 'erf', choose one of squared_exponential, rational_quadratic, relu$"
    with pytest.raises(ValueError, match=line):
        model.from_data(X, X[:, :1], kernel="erf")
    with pytest.raises(ValueError, match=r"choose one of .*, relu, relu_features, erf, sin$"):
        DGP.from_data(X, X[:, :1], kernel="cos")
