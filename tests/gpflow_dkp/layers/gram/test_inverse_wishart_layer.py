"""InverseWishartLayer: densities, divergence, conditionals, limits and gradients, docs/mathematics.md 5."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from layer_cases import (
    HOW,
    M,
    N,
    S,
    check_layer_gradients,
    covariance,
    hold_gammas,
    own_covariance,
    record,
)

from gpflow_dkp.distributions import InverseWishart
from gpflow_dkp.gram import GramBlocks
from gpflow_dkp.layers import InverseWishartLayer
from gpflow_dkp.layers.gram import inverse_wishart

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
@pytest.mark.parametrize("how", HOW)
def test_conditionals_of_the_data_points(
    how: dict, samples: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """z = Psi_ii^{-1} Psi_it + L^{-T} eps C^T, G_it = G_ii z, G_tt = C C^T + z^T G_ii z, Psi = delta K.

    C C^T is Psi_tt - Psi_ti Psi_ii^{-1} Psi_it over chi2, point by point; jointly an inverse Wishart draw
    from its Bartlett factor.
    """
    layer, K = make_layer(), covariance(samples, full_cov="full_cov" in how)
    draw = layer.sample(K.ii, seed=0, num_samples=S)
    normals = record(monkeypatch, inverse_wishart, "normal")
    gammas = record(monkeypatch, inverse_wishart, "gamma")
    points = layer.condition(draw, K.it, K.tt, seed=0, **how)
    (chi2,), delta = (2.0 * value for value in gammas), float(layer.delta.numpy())
    for i in range(S):
        ii, it, tt = (delta * block for block in own_covariance(K, i))
        eps = normals[0][i].astype(float)
        z, G_ii = np.linalg.solve(ii, it), draw.inducing.ii[i].numpy()
        back = np.linalg.inv(np.linalg.cholesky(ii)).T
        if "full_cov" in how:
            T = np.tril(normals[1][i], -1) + np.diag(np.sqrt(chi2[i]))
            C = np.linalg.cholesky(tt - it.T @ z) @ np.linalg.inv(T).T
            z = z + back @ eps @ C.T
            G_tt = C @ C.T + z.T @ G_ii @ z
        else:
            g = (tt - np.sum(it * z, 0)) / chi2[i]
            z = z + np.sqrt(g) * (back @ eps)
            G_tt = g + np.sum(z * (G_ii @ z), 0)
        np.testing.assert_allclose(points.ii[i], G_ii, rtol=1e-10)
        np.testing.assert_allclose(points.it[i], G_ii @ z, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(points.tt[i], G_tt, rtol=1e-10, atol=1e-12)
    assert points.full_cov == ("full_cov" in how)
    assert eps.shape == (M, 1 if "common_noise" in how else N)


def test_degrees_of_freedom_of_a_data_point_are_those_of_it_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """chi2(delta + M + 2) for every point, however many are drawn together."""
    layer, K = make_layer(), covariance()
    gammas = record(monkeypatch, inverse_wishart, "gamma")
    for num_data in (1, 50):
        size = 40_000 // num_data
        draw = layer.sample(K.ii, seed=0, num_samples=size)
        repeated = tf.repeat(K.it[:, :1], num_data, 1), tf.repeat(K.tt[:1], num_data)
        layer.condition(draw, *repeated, seed=0)
        draws = 2.0 * gammas[-1]
        assert draws.shape == (size, num_data)
        df = float(layer.delta.numpy()) + M + 2
        error = 6.0 * np.sqrt(2.0 * df / draws.size)
        assert np.mean(draws) == pytest.approx(df, abs=error)


@pytest.mark.parametrize("num_data", [1, 3])
def test_degrees_of_freedom_of_data_points_drawn_jointly(
    num_data: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T_jj^2 ~ chi2(delta + M + N + 1 - j + 1): of N points delta + M + N + 1 in all."""
    layer, K = make_layer(), covariance(full_cov=True)
    size = 20_000
    draw = layer.sample(K.ii, seed=0, num_samples=size)
    gammas = record(monkeypatch, inverse_wishart, "gamma")
    layer.condition(draw, K.it[:, :num_data], K.tt[:num_data, :num_data], seed=0, full_cov=True)
    (gamma,) = gammas
    df = float(layer.delta.numpy()) + M + num_data + 1 - np.arange(num_data)
    error = 6.0 * np.sqrt(2.0 * df / size)
    assert np.all(np.abs(2.0 * gamma.mean(0) - df) < error)


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
        layer = make_layer(delta=delta)
        draw = layer.prior_sample(K.ii, seed=0, num_samples=S)
        sample = layer.condition(draw, K.it, K.tt, seed=0)
        tolerance = 6.0 * np.sqrt(2.0 / delta) * np.max(np.abs(K.ii))
        for name in ("ii", "it", "tt"):
            expected = np.broadcast_to(getattr(K, name), getattr(sample, name).shape)
            np.testing.assert_allclose(getattr(sample, name), expected, rtol=0, atol=tolerance)


@samples
@log_ratios
def test_gradients_are_those_of_finite_differences(
    samples: int | None, log_ratio: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gammas = hold_gammas(monkeypatch, inverse_wishart)
    check_layer_gradients(make_layer(log_ratio), samples, gammas)
    assert [variable.shape for variable in gammas] == [(S, M), (S, N)]


@samples
@pytest.mark.parametrize("prior", [False, True])
def test_gradients_of_joint_draws_are_those_of_finite_differences(
    prior: bool, samples: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    gammas = hold_gammas(monkeypatch, inverse_wishart)
    check_layer_gradients(make_layer(), samples, gammas, full_cov=True, prior=prior)
    assert [variable.shape for variable in gammas] == [(S, M), (S, N)]


@samples
def test_gradients_of_prior_draws_are_those_of_finite_differences(
    samples: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    gammas = hold_gammas(monkeypatch, inverse_wishart)
    check_layer_gradients(make_layer(), samples, gammas, prior=True)


def test_prior_draws_at_another_number_of_points() -> None:
    """The prior is one of every number of points."""
    K = covariance()
    draw = make_layer().prior_sample(K.ii[:2, :2], seed=0, num_samples=S)
    assert draw.inducing.ii.shape == (S, 2, 2)


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
