"""InverseWishartLayer: densities, divergence, conditionals, limits and gradients, MATH.md 5."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from layer_cases import M, N, S, check_gram_gradients, covariance

from gpflow_dkp.distributions import InverseWishart
from gpflow_dkp.gram import GramBlocks
from gpflow_dkp.layers import InverseWishartLayer

samples = pytest.mark.parametrize("samples", [None, S])
log_ratios = pytest.mark.parametrize("log_ratio", ["expected", "sampled"])


def make_layer(log_ratio: str = "expected", delta: float = 3.0) -> InverseWishartLayer:
    layer = InverseWishartLayer(M, delta=delta, log_ratio=log_ratio)
    layer.gamma.assign(2.5)
    layer.V.assign(np.random.default_rng(0).normal(size=(M, M)))
    return layer


def prior_of(layer: InverseWishartLayer, K: tf.Tensor) -> InverseWishart:
    delta = float(layer.delta.numpy())
    return InverseWishart(delta + M + 1, tf.linalg.cholesky(delta * K))


def posterior_of(layer: InverseWishartLayer, K: tf.Tensor) -> InverseWishart:
    delta, V = float(layer.delta.numpy()), layer.V.numpy()
    scale_tril = tf.linalg.cholesky(delta * K + V @ V.T)
    return InverseWishart(delta + float(layer.gamma.numpy()) + M + 1, scale_tril)


@samples
def test_sampled_log_ratio_is_the_difference_of_the_densities(samples: int | None) -> None:
    layer, K = make_layer("sampled"), covariance(samples)
    sample, log_ratio = layer.propagate(K, seed=1, num_samples=S)
    P, Q = prior_of(layer, K.ii), posterior_of(layer, K.ii)
    expected = P.log_prob(sample.ii) - Q.log_prob(sample.ii)
    np.testing.assert_allclose(log_ratio, expected, rtol=0, atol=1e-8)


@samples
def test_expected_log_ratio_is_minus_the_divergence(samples: int | None) -> None:
    layer, K = make_layer(), covariance(samples)
    _, log_ratio = layer.propagate(K, seed=1, num_samples=S)
    kl = tfp.distributions.kl_divergence(posterior_of(layer, K.ii), prior_of(layer, K.ii))
    np.testing.assert_allclose(log_ratio, np.broadcast_to(-kl, [S]), rtol=0, atol=1e-9)


@log_ratios
def test_log_ratio_is_zero_where_posterior_is_prior(log_ratio: str) -> None:
    layer = make_layer(log_ratio)
    layer.gamma.assign(1e-9)
    layer.V.assign(np.zeros((M, M)))
    _, log_ratio_value = layer.propagate(covariance(), seed=1, num_samples=S)
    np.testing.assert_allclose(log_ratio_value, np.zeros(S), rtol=0, atol=1e-7)


@samples
def test_conditionals_of_the_data_points(samples: int | None) -> None:
    """z = Psi_ii^{-1} Psi_it + sqrt(g) L^{-T} eps, G_it = G_ii z, G_tt = g + z^T G_ii z, Psi = delta K."""
    layer, K = make_layer(), covariance(samples)
    noise = layer.sample_noise(S, N, 0)
    sample, _ = layer.propagate_noise(K, noise)
    delta = float(layer.delta.numpy())
    for i in range(S):
        own = () if samples is None else (i,)
        ii, it, tt = (delta * block.numpy()[own] for block in (K.ii, K.it, K.tt))
        g = (tt - np.sum(it * np.linalg.solve(ii, it), 0)) / noise.chi2[i].numpy()
        eps = noise.data[i].numpy().astype(float)
        z = np.linalg.solve(ii, it) + np.sqrt(g) * np.linalg.solve(np.linalg.cholesky(ii).T, eps)
        G_ii = sample.ii[i].numpy()
        np.testing.assert_allclose(sample.it[i], G_ii @ z, rtol=1e-10)
        np.testing.assert_allclose(sample.tt[i], g + np.sum(z * (G_ii @ z), 0), rtol=1e-10)


def test_degrees_of_freedom_of_a_data_point_are_those_of_it_alone() -> None:
    """chi2(delta + M + 2) for every point, however many are drawn together."""
    layer = make_layer()
    for num_data in (1, 50):
        draws = layer.sample_noise(40_000 // num_data, num_data, 0).chi2.numpy()
        df = float(layer.delta.numpy()) + M + 2
        error = 6.0 * np.sqrt(2.0 * df / draws.size)
        assert np.mean(draws) == pytest.approx(df, abs=error)


@pytest.mark.parametrize("first", [0, 3])
def test_offset_of_the_data_changes_the_data_points_numbers_only(first: int) -> None:
    layer = make_layer()
    plain, offset = layer.sample_noise(S, N, 1), layer.sample_noise(S, N, 1, first)
    np.testing.assert_array_equal(plain.diag, offset.diag)
    np.testing.assert_array_equal(plain.below, offset.below)
    assert np.array_equal(plain.data, offset.data) == (first == 0)
    assert np.array_equal(plain.chi2, offset.chi2) == (first == 0)


def test_first_layers_covariance_is_shared_by_the_samples() -> None:
    layer, K = make_layer("sampled"), covariance()
    repeated = GramBlocks(*(tf.stack([block] * S) for block in (K.ii, K.it, K.tt)))
    first, first_ratio = layer.propagate(K, seed=1, num_samples=S)
    second, second_ratio = layer.propagate(repeated, seed=1)
    for name in ("ii", "it", "tt"):
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), rtol=1e-10)
    np.testing.assert_allclose(first_ratio, second_ratio, rtol=0, atol=1e-10)


def test_prior_samples_near_the_covariance_as_delta_grows() -> None:
    K = covariance()
    for delta in (1e6, 1e10):
        sample = make_layer(delta=delta).prior_sample(K, seed=0, num_samples=S)
        tolerance = 6.0 * np.sqrt(2.0 / delta) * np.max(np.abs(K.ii))
        for name in ("ii", "it", "tt"):
            expected = np.broadcast_to(getattr(K, name), getattr(sample, name).shape)
            np.testing.assert_allclose(getattr(sample, name), expected, rtol=0, atol=tolerance)


@samples
@log_ratios
def test_gradients_are_those_of_finite_differences(samples: int | None, log_ratio: str) -> None:
    check_gram_gradients(make_layer(log_ratio), samples)


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        ((0,), {}, "num_inducing: got 0"),
        ((4,), {"log_ratio": "exact"}, "choose one of expected, sampled"),
        ((4,), {"delta": -1.0}, "delta: got -1.0"),
    ],
)
def test_bad_arguments(arguments: tuple, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InverseWishartLayer(*arguments, **settings)
