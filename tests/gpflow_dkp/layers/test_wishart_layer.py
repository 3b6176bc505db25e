"""WishartLayer: draws by MATH.md 4, log-ratios by densities, limits, conditionals, gradients."""

from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from layer_cases import (
    POSTERIORS,
    WIDTHS,
    M,
    N,
    S,
    check_conditionals,
    check_layer_gradients,
    check_prior_gradients,
    covariance,
    wishart_layer,
)
from scipy.special import gammaln

from gpflow_dkp.distributions import Wishart
from gpflow_dkp.gram import GramBlocks
from gpflow_dkp.layers import WishartLayer

posteriors = pytest.mark.parametrize("posterior", POSTERIORS)
widths = pytest.mark.parametrize("width", WIDTHS)
samples = pytest.mark.parametrize("samples", [None, S])
log_ratios = pytest.mark.parametrize("log_ratio", ["expected", "sampled"])


class Dense(NamedTuple):
    A: np.ndarray
    B: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    mu: np.ndarray
    sigma: np.ndarray


def dense(layer: WishartLayer, K: np.ndarray) -> Dense:
    """[UAI23] equations 23 to 26: A = chol((1 - q) K / nu + q V V^T) A', and T's parameters."""
    q, V = layer.q.numpy(), layer.V.numpy()
    A = np.linalg.cholesky((1 - q) * K / layer.width + q * V @ V.T)
    if layer.posterior != "gw":
        A = A @ layer.A.numpy()
    p = min(M, layer.width)
    B = layer.B.numpy() if layer.posterior == "ab-gw" else np.eye(p)
    below = np.tril(np.ones((M, p)), -1)
    mu, sigma = below * layer.mu.numpy(), below * layer.sigma.numpy()
    return Dense(A, B, layer.alpha.numpy(), layer.beta.numpy(), mu, sigma)


@samples
@posteriors
@pytest.mark.parametrize("width", [2, 7])
def test_draw_is_a_t_b(width: int, posterior: str, samples: int | None) -> None:
    """F = (A T B, 0) from the numbers of `sample_noise`."""
    layer, K = wishart_layer(width, posterior), covariance(samples)
    noise = layer.sample_noise(S, N, 0)
    gammas, normals, _ = (part.numpy() for part in noise)
    F = layer.propagate_noise(K, noise)[0].inducing.numpy()
    p = min(M, width)
    assert F.shape == (S, M, width)
    for i in range(S):
        q = dense(layer, K.ii.numpy() if samples is None else K.ii[i].numpy())
        T = q.mu + q.sigma * normals[i]
        T[range(p), range(p)] = np.sqrt(gammas[i] / q.beta)
        np.testing.assert_allclose(F[i, :, :p], q.A @ T @ q.B, rtol=0, atol=1e-10)
    np.testing.assert_array_equal(F[:, :, p:], np.zeros((S, M, width - p)))


@posteriors
@pytest.mark.parametrize("width", [2, 7])
def test_mean_of_the_posterior(width: int, posterior: str) -> None:
    """MATH.md 2: E[G] = A (E[T] B B^T E[T]^T + diag_k(sum_j V_kj (B B^T)_jj)) A^T."""
    layer, K = wishart_layer(width, posterior), covariance().ii.numpy()
    A, B, alpha, beta, mu, sigma = dense(layer, K)
    diag = range(min(M, width))
    mean, variance = mu.copy(), sigma**2
    mean[diag, diag] = np.exp(gammaln(alpha + 0.5) - gammaln(alpha)) / np.sqrt(beta)
    variance[diag, diag] = alpha / beta - mean[diag, diag] ** 2
    second = mean @ B @ B.T @ mean.T + np.diag(variance @ np.diag(B @ B.T))
    actual = layer.posterior_distribution(K).mean()
    np.testing.assert_allclose(actual, A @ second @ A.T, rtol=0, atol=1e-10)


@samples
@posteriors
@widths
def test_sampled_log_ratio_is_the_difference_of_the_densities(
    width: int, posterior: str, samples: int | None
) -> None:
    layer = wishart_layer(width, posterior, "sampled")
    K = covariance(samples)
    sample, log_ratio = layer.propagate(K, seed=1, num_samples=S)
    prior = Wishart(width, tf.linalg.cholesky(K.ii / width))
    G = sample.ii
    expected = prior.log_prob(G) - layer.posterior_distribution(K.ii).log_prob(G)
    np.testing.assert_allclose(log_ratio, expected, rtol=0, atol=1e-8)


def at_the_prior(width: int, posterior: str, log_ratio: str, K: np.ndarray) -> WishartLayer:
    """A' = B = I, the standard Bartlett factor and V V^T = K / nu, where q does not matter."""
    layer = WishartLayer(M, width, posterior, log_ratio=log_ratio)
    p = min(M, width)
    layer.alpha.assign((width - np.arange(p)) / 2)
    layer.beta.assign(np.full(p, 0.5))
    layer.mu.assign(np.zeros((M, p)))
    layer.sigma.assign(np.ones((M, p)))
    layer.q.assign(0.37)
    layer.V.assign(np.linalg.cholesky(K / width))
    return layer


@log_ratios
@posteriors
@pytest.mark.parametrize("width", [2, 7])
def test_log_ratio_is_zero_where_posterior_is_prior(
    width: int, posterior: str, log_ratio: str
) -> None:
    K = covariance()
    layer = at_the_prior(width, posterior, log_ratio, K.ii.numpy())
    _, value = layer.propagate(K, seed=2, num_samples=S)
    np.testing.assert_allclose(value, np.zeros(S), rtol=0, atol=1e-9)


@posteriors
def test_every_parameter_matters_where_posterior_is_prior(posterior: str) -> None:
    """The zero above is not that of a constant: -KL is stationary there, and falls away from it."""
    K = covariance()
    layer = at_the_prior(3, posterior, "expected", K.ii.numpy())
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(layer.propagate(K, seed=2)[1])
    # q does not matter here: V V^T is K / nu.
    for variable, gradient in zip(
        layer.trainable_variables, tape.gradient(value, layer.trainable_variables), strict=True
    ):
        np.testing.assert_allclose(gradient, np.zeros(variable.shape), atol=1e-9)
    for variable in layer.trainable_variables:
        if variable.ref() == layer.q.unconstrained_variable.ref():
            continue
        start = variable.numpy()
        moves = np.tril(np.full(variable.shape, 0.3)) if start.ndim == 2 else 0.3
        variable.assign_add(np.broadcast_to(moves, variable.shape))
        assert float(layer.propagate(K, seed=2)[1][0]) < -1e-3
        variable.assign(start)


def test_first_layers_covariance_is_shared_by_the_samples() -> None:
    """No sample dimension is the same as the same covariance in every sample."""
    K = covariance()
    shared = wishart_layer(3, "ab-gw", "sampled")
    repeated = GramBlocks(*(tf.stack([block] * S) for block in (K.ii, K.it, K.tt)))
    first, first_ratio = shared.propagate(K, seed=1, num_samples=S)
    second, second_ratio = shared.propagate(repeated, seed=1)
    np.testing.assert_allclose(first.ii, second.ii, rtol=0, atol=1e-12)
    np.testing.assert_allclose(first.data, second.data, rtol=0, atol=1e-12)
    np.testing.assert_allclose(first_ratio, second_ratio, rtol=0, atol=1e-10)


@samples
@widths
def test_conditionals_of_the_data_points(width: int, samples: int | None) -> None:
    check_conditionals(wishart_layer(width, "ab-gw"), samples)


@samples
@log_ratios
@posteriors
@pytest.mark.parametrize("width", [2, 7])
def test_gradients_are_those_of_finite_differences(
    width: int, posterior: str, log_ratio: str, samples: int | None
) -> None:
    check_layer_gradients(wishart_layer(width, posterior, log_ratio), samples)


@samples
@widths
def test_gradients_of_prior_draws_are_those_of_finite_differences(
    width: int, samples: int | None
) -> None:
    check_prior_gradients(wishart_layer(width, "gw"), samples)


@pytest.mark.parametrize("posterior", ["a-gw", "ab-gw"])
def test_posterior_of_no_deformation_is_the_next_simpler_one(posterior: str) -> None:
    """B = I is A-GW and A' = I is GW: one draw, one log-ratio."""
    K = covariance(S)
    plain = wishart_layer(3, "gw", "sampled")
    other = wishart_layer(3, posterior, "sampled")
    for name in ("A", "B"):
        if hasattr(other, name):
            getattr(other, name).assign(np.eye(getattr(other, name).shape[0]))
    first, first_ratio = plain.propagate(K, seed=1)
    second, second_ratio = other.propagate(K, seed=1)
    np.testing.assert_allclose(first.ii, second.ii, rtol=0, atol=1e-12)
    np.testing.assert_allclose(first_ratio, second_ratio, rtol=0, atol=1e-10)


@posteriors
def test_one_seed_gives_one_draw(posterior: str) -> None:
    layer, K = wishart_layer(3, posterior, "sampled"), covariance(S)
    for first, second in zip(layer.propagate(K, seed=1), layer.propagate(K, seed=1), strict=True):
        values = [getattr(part, "data", part) for part in (first, second)]
        np.testing.assert_array_equal(*values)
    assert not np.allclose(layer.propagate(K, seed=1)[1], layer.propagate(K, seed=2)[1])
    np.testing.assert_array_equal(*(layer.prior_sample(K, seed=1).data for _ in range(2)))


@pytest.mark.parametrize("first", [0, 3])
def test_offset_of_the_data_changes_the_data_points_numbers_only(first: int) -> None:
    layer = wishart_layer(3, "gw")
    plain, offset = layer.sample_noise(S, N, 1), layer.sample_noise(S, N, 1, first)
    for ours, others in zip(plain[:-1], offset[:-1], strict=True):
        np.testing.assert_array_equal(ours, others)
    assert np.array_equal(plain[-1], offset[-1]) == (first == 0)


@posteriors
def test_starting_values_follow_from_the_seed(posterior: str) -> None:
    first, again, other = (WishartLayer(M, 7, posterior, seed=seed) for seed in (0, 0, 1))
    for ours, others in zip(first.trainable_variables, again.trainable_variables, strict=True):
        np.testing.assert_array_equal(ours, others)
    assert not np.allclose(first.mu, other.mu)
    assert np.isfinite(first.propagate(covariance(), seed=0)[1])


def test_b_keeps_a_unit_diagonal() -> None:
    layer = WishartLayer(M, 7)
    layer.B.unconstrained_variable.assign(np.random.default_rng(0).normal(size=(M, M)))
    B = layer.B.numpy()
    np.testing.assert_array_equal(np.diag(B), np.ones(M))
    np.testing.assert_array_equal(np.triu(B, 1), np.zeros((M, M)))


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        ((M, 3, "wishart"), {}, r"posterior: got 'wishart', choose one of gw, a-gw, ab-gw"),
        ((M, 3, None), {}, "posterior: got None"),
        ((M, 0), {}, "width: got 0, needs an integer of at least 1"),
        ((M, -2), {}, "width: got -2"),
        ((M, 2.5), {}, "width: got 2.5"),
        ((M, True), {}, "width: got True"),
        ((0, 3), {}, "num_inducing: got 0"),
        ((M, 3), {"log_ratio": "exact"}, "log_ratio: got 'exact', choose one of expected, sampled"),
    ],
)
def test_bad_arguments(arguments: tuple, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WishartLayer(*arguments, **settings)


def test_other_number_of_samples_than_the_covariances() -> None:
    with pytest.raises(ValueError, match=f"num_samples=3 for a covariance with {S} samples"):
        wishart_layer(3, "gw").propagate(covariance(S), seed=0, num_samples=3)
    sample, _ = wishart_layer(3, "gw").propagate(covariance(S), seed=0, num_samples=S)
    assert sample.ii.shape[0] == S


@posteriors
def test_single_precision_data_blocks(posterior: str) -> None:
    layer, K = wishart_layer(3, posterior), covariance(S)
    full, full_ratio = layer.propagate(K, seed=0)
    low, low_ratio = layer.propagate(K.with_data_dtype(tf.float32), seed=0)
    np.testing.assert_array_equal(low.inducing, full.inducing)
    np.testing.assert_array_equal(low_ratio, full_ratio)
    assert low.data.dtype == tf.float32
    scale = float(tf.reduce_max(tf.abs(full.data)))
    np.testing.assert_allclose(low.data, full.data, rtol=0, atol=3e-6 * scale)
