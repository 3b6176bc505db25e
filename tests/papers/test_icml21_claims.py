"""What [ICML21], "Deep kernel processes", states, each claim by a computation of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import ArcCosine, Kernel, Linear, Matern32, SquaredExponential
from gpflow.likelihoods import Gaussian
from law_checks import check_law, check_mean, check_one_law
from scipy import stats

from gpflow_dkp import gram
from gpflow_dkp.gram import FeatureBlocks, ReLUFeatures
from gpflow_dkp.layers import InverseWishartLayer, OutputGP
from gpflow_dkp.models import DGP, DIWP, DWP, DeepKernelProcess

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 2))
JITTER = 1e-9


def rotation(size: int) -> np.ndarray:
    return stats.ortho_group(size).rvs(random_state=1)


@pytest.mark.parametrize("kernel", [SquaredExponential(lengthscales=0.7), Matern32(), ArcCosine()])
def test_a_kernel_of_features_is_one_of_their_gram_matrix(kernel: Kernel) -> None:
    """The statement "kernels of Gram matrices" (docs/mathematics.md 7), which [NeurIPS21] makes too.

    GPflow's on F, and on F U, is ours on F F^T / nu: with lengthscales in units of sqrt(nu).
    """
    F, nu = RNG.normal(size=(6, 4)), 4
    rotated = F @ rotation(4)
    assert np.max(np.abs(rotated - F)) > 0.5
    ours = gram.covariance(kernel, FeatureBlocks.of_inducing(tf.constant(F[None] / np.sqrt(nu)))).ii
    for features in (F, rotated):
        np.testing.assert_allclose(ours[0], kernel(features / np.sqrt(nu)), rtol=0, atol=1e-7)


@pytest.mark.parametrize("nu", [2, 7])
def test_equation_12_the_variance_of_a_wishart_layer(nu: int) -> None:
    """(K_ij^2 + K_ii K_jj) / nu, where the paper prints K_ij alone: docs/mathematics.md misprints."""
    model = DWP([SquaredExponential()] * 2, Gaussian(), X, widths=[nu], jitter=JITTER)
    (K, G), _ = model.sample_grams(X, 20_000, posterior=False, seed=0)
    K, G = K.numpy(), G.numpy()
    check_mean(G, K)
    check_mean((G - K) ** 2, (K**2 + np.outer(np.diag(K), np.diag(K))) / nu)


# The limits of infinite width


def squared_errors(model: DeepKernelProcess, limit: np.ndarray, num_samples: int) -> float:
    """Mean squared deviation of the outputs' covariance from its limit, over draws of the prior."""
    K = model.sample_grams(X, num_samples, posterior=False, seed=2)[-1][0].numpy()
    return float(np.mean((K - limit) ** 2))


@pytest.mark.parametrize("kind", ["DWP", "DGP", "DIWP"])
def test_the_nngp_limit_is_neared_as_one_by_the_width(kind: str) -> None:
    """The statement "infinite networks", of the deep kernel processes of docs/mathematics.md 3 and 5.

    Mean squared deviations fall as 1 / nu, and as 1 / delta: the variance of a layer is of that order.
    """
    sizes = (50, 200, 800)

    def kernel() -> SquaredExponential:
        return SquaredExponential(variance=1.3, lengthscales=1.4)

    def wide(size: int) -> DeepKernelProcess:
        if kind == "DIWP":
            layers = [InverseWishartLayer(3, kernel=kernel(), delta=size) for _ in range(2)]
            return DeepKernelProcess(
                [*layers, OutputGP(3, 1, kernel=kernel())], Gaussian(), X, jitter=JITTER
            )
        model = {"DWP": DWP, "DGP": DGP}[kind]
        return model([kernel()] * 3, Gaussian(), X, widths=[size] * 2, jitter=JITTER)

    limit = kernel()(X).numpy()
    for _ in range(2):
        squared = np.diag(limit)[:, None] - 2.0 * limit + np.diag(limit)
        limit = 1.3 * np.exp(-0.5 * squared / 1.4**2)
    errors = [squared_errors(wide(size), limit, 3000) for size in sizes]
    ratios = np.divide(errors[:-1], errors[1:])
    # A chi-square of some 3 000 terms, and terms of the next order, 1 / nu^2.
    assert np.all((ratios > 3.3) & (ratios < 4.9)), (errors, ratios)


def arc_cosine(G: np.ndarray) -> np.ndarray:
    """E[2 relu(f_i) relu(f_j)] for f ~ N(0, G) ([Cho and Saul 2009])."""
    size = np.sqrt(np.outer(np.diag(G), np.diag(G)))
    angle = np.arccos(np.clip(G / size, -1.0, 1.0))
    return size * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / np.pi


def test_section_4_a_bayesian_network_nears_the_arc_cosine_kernel_as_one_by_its_width() -> None:
    """A ReLU layer of nu units has the mean of infinitely many at every width, with a variance v / nu."""
    limit = arc_cosine(X @ X.T)
    at_infinity = ArcCosine(order=1, bias_variance=1e-12)(X).numpy()
    np.testing.assert_allclose(limit, at_infinity, rtol=0, atol=1e-9)
    scaled = []
    for nu in (4, 64):
        model = DGP([Linear(), ReLUFeatures()], Gaussian(), X, widths=[nu], jitter=1e-8)
        K = model.sample_grams(X, 8000, posterior=False, seed=3)[-1][0].numpy()
        check_mean(K, limit, rounding=1e-6)
        scaled.append(nu * np.mean((K - limit) ** 2, 0))
    # On the diagonal (2 relu(f)^2) has the variance 6 k^2 - k^2.
    for variance in scaled:
        np.testing.assert_allclose(np.diag(variance), 5.0 * np.diag(X @ X.T) ** 2, rtol=0.3)
    np.testing.assert_allclose(scaled[0], scaled[1], rtol=0.3)


def test_section_4_an_infinite_network_with_bottlenecks_is_a_dwp() -> None:
    """H ReLUs, nu linear units: E G_ii^2 = (1 + 2 / nu) k_ii^2 (1 + 5 / H), the DWP's at an infinite H.

    Of networks in NumPy and of the `DGP` that is one.
    """
    nu, size = 3, 20_000
    k = np.diag(X @ X.T)

    def expected(H: float) -> np.ndarray:
        return (1.0 + 2.0 / nu) * k**2 * (1.0 + 5.0 / H)

    rng = np.random.default_rng(5)
    for H in (2, 16):
        hidden = np.maximum(X @ rng.normal(size=(size, 2, H)), 0.0) * np.sqrt(2.0 / H)
        units = hidden @ rng.normal(size=(size, H, nu)) / np.sqrt(nu)
        check_mean(np.sum(units**2, -1) ** 2, expected(H))
        layers = [Linear(), ReLUFeatures(), Linear()]
        network = DGP(layers, Gaussian(), X, widths=[H, nu], jitter=JITTER)
        _, (_, G), _ = network.sample_grams(X, size, posterior=False, seed=4)
        check_mean(np.diagonal(G.numpy(), axis1=-2, axis2=-1) ** 2, expected(H), rounding=1e-6)
    kernels = [ArcCosine(order=1, bias_variance=1e-12) for _ in range(2)]
    model = DWP(kernels, Gaussian(), X, widths=[nu], jitter=JITTER)
    (_, G), _ = model.sample_grams(X, size, posterior=False, seed=6)
    G = np.diagonal(G.numpy(), axis1=-2, axis2=-1)
    check_mean(G**2, expected(np.inf), rounding=1e-6)
    with pytest.raises(AssertionError):
        check_mean(G**2, expected(16.0))
    wide = np.maximum(X @ rng.normal(size=(1000, 2, 1000)), 0.0) * np.sqrt(2.0 / 1000)
    units = wide @ rng.normal(size=(1000, 1000, nu)) / np.sqrt(nu)
    for i in range(3):
        check_one_law(np.sum(units[:, i] ** 2, -1), G[:, i])


# The inverse Wishart's own


def test_appendix_b_omega_is_lengthscales() -> None:
    """On x^T Omega x' / N_0 with Omega = N_0 diag(1 / l^2) a kernel is GPflow's ARD kernel of lengthscales l.

    The posterior of Omega is put there: its mean (delta I + V V^T) / (delta + gamma), for a large gamma.
    """
    lengthscales = np.array([0.4, 1.7])
    ard = SquaredExponential(lengthscales=lengthscales)
    model = DIWP([SquaredExponential()], Gaussian(), X, jitter=JITTER)
    layer = model.layers[0]
    layer.gamma.assign(1e9)
    layer.V.assign(np.sqrt(1e9) * np.diag(np.sqrt(2.0) / lengthscales))
    (_, G), (K, _) = model.sample_grams(X, 5, seed=0)
    np.testing.assert_allclose(G, np.tile((X / lengthscales**2) @ X.T, [5, 1, 1]), rtol=1e-3)
    np.testing.assert_allclose(K, np.tile(ard(X), [5, 1, 1]), rtol=0, atol=1e-3)
    assert np.max(np.abs(ard(X) - SquaredExponential()(X))) > 0.1


@pytest.mark.parametrize("delta", [0.5, 6.0])
def test_appendix_l_a_linear_inverse_wishart_layer_is_a_scaled_covariance(delta: float) -> None:
    """f ~ N(0, G), G ~ IW(delta K, delta + P + 1): f = sqrt(s) z, z ~ N(0, K), delta / s ~ chi2(delta + 2).

    The squared length of f whitened is s chi2(P), an F distribution, and its direction is uniform.
    """
    kernel, P = SquaredExponential(lengthscales=1.3), 3
    layers = [InverseWishartLayer(P, kernel=kernel, delta=delta), OutputGP(P, 1, kernel=Linear())]
    model = DeepKernelProcess(layers, Gaussian(), X, jitter=JITTER)
    f = model.sample_prior(X, 5000, seed=1).numpy()[..., 0]
    white = np.linalg.solve(np.linalg.cholesky(kernel(X)), f.T)
    squared = np.sum(white**2, 0)
    law = stats.f(P, delta + 2.0)
    check_law(squared / P * (delta + 2.0) / delta, law.cdf)
    check_law(white[0] ** 2 / squared, stats.beta(0.5, (P - 1) / 2.0).cdf)
    with pytest.raises(AssertionError):
        check_law(squared, stats.chi2(P).cdf)  # no Gaussian


# Its code


@pytest.mark.parametrize("num_data", [1, 4])
def test_equation_34a_by_its_code_draws_a_point_by_the_batch(
    num_data: int, import_plugin_of_benchmarks: Callable[[str], Any]
) -> None:
    """`benchmarks/diwp_by_batch.py`: E g = delta (K_tt - K_ti K_ii^{-1} K_it) / (delta + M + N - 1)."""
    by_batch = import_plugin_of_benchmarks("diwp_by_batch").DrawnByBatch
    Z, points = RNG.normal(size=(3, 2)), RNG.normal(size=(num_data, 2))
    kernel, M, delta = SquaredExponential(), 3, 6.0
    K_ii, K_it = kernel(Z).numpy(), kernel(Z, points).numpy()
    K_tt = kernel(points, full_cov=False)
    ours, theirs = (cls(M, kernel=kernel, delta=delta) for cls in (InverseWishartLayer, by_batch))
    draw = ours.sample(K_ii, seed=0, num_samples=20_000)
    g = theirs.condition(draw, K_it, K_tt, seed=1).own.numpy()
    residual = K_tt - np.sum(K_it * np.linalg.solve(K_ii, K_it), 0)
    check_mean(g, delta * residual / (delta + M + num_data - 1))
    alone = ours.condition(draw, K_it, K_tt, seed=1).own.numpy()
    check_mean(alone, delta * residual / (delta + M))
    assert np.array_equal(g, alone) == (num_data == 1)
    jointly = {"full_cov": True, "seed": 2}
    joint, expected = (
        layer.condition(draw, K_it, kernel(points), **jointly).tt for layer in (theirs, ours)
    )
    np.testing.assert_array_equal(joint, expected)
