"""InputInverseWishart: Omega's density and moments, with fewer and with more features than points."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from layer_cases import check_gradients, with_variable_draws
from scipy import stats

from gpflow_dkp.distributions import InverseWishart
from gpflow_dkp.gram import FeatureBlocks, GramBlocks
from gpflow_dkp.layers import InputInverseWishart

M, N, S = 4, 3, 5
FEATURES = [1, 3, 4, 6]
features = pytest.mark.parametrize("num_features", FEATURES)


def inputs(num_features: int) -> FeatureBlocks:
    rng = np.random.default_rng(0)
    return FeatureBlocks(
        tf.constant(rng.normal(size=(M, num_features))),
        tf.constant(rng.normal(size=(num_features, N))),
    )


def make_layer(num_features: int, **settings) -> InputInverseWishart:  # type: ignore[no-untyped-def]
    layer = InputInverseWishart(M, num_features, delta=12.0, **settings)
    rng = np.random.default_rng(1)
    layer.gamma.assign(2.5)
    layer.V.assign(rng.normal(size=layer.V.shape))
    if layer.bias is not None:
        layer.bias.assign(rng.normal(size=num_features))
    if layer.scale is not None:
        layer.scale.assign(rng.uniform(0.5, 2.0, num_features))
    return layer


def posterior_scale(layer: InputInverseWishart) -> np.ndarray:
    V = layer.V.numpy()
    return layer.delta.numpy() * np.eye(layer.num_features) + V @ V.T


@features
@pytest.mark.parametrize("rank", [None, 1])
def test_log_ratio_is_minus_the_divergence_of_omega(num_features: int, rank: int | None) -> None:
    layer = make_layer(num_features, rank=rank)
    delta, gamma = layer.delta.numpy(), layer.gamma.numpy()
    prior_tril = np.sqrt(delta) * np.eye(num_features)
    P = InverseWishart(delta + num_features + 1, prior_tril)
    Q = InverseWishart(delta + gamma + num_features + 1, np.linalg.cholesky(posterior_scale(layer)))
    _, log_ratio = layer.propagate(inputs(num_features), seed=0, num_samples=S)
    expected = np.full(S, -tfp.distributions.kl_divergence(Q, P))
    np.testing.assert_allclose(log_ratio, expected, rtol=0, atol=1e-9)


@features
@pytest.mark.parametrize("prior", [False, True])
def test_moments_are_those_of_omega_drawn_by_scipy(num_features: int, prior: bool) -> None:
    """Mean and mean square of every entry of G, to six standard errors of both sides' draws."""
    layer, blocks = make_layer(num_features), inputs(num_features)
    size = 40_000
    if prior:
        sample = layer.prior_sample(blocks, seed=3, num_samples=size)
        Psi, df = layer.delta.numpy() * np.eye(num_features), layer.delta.numpy() + num_features + 1
    else:
        sample, _ = layer.propagate(blocks, seed=3, num_samples=size)
        Psi = posterior_scale(layer)
        df = layer.delta.numpy() + layer.gamma.numpy() + num_features + 1
    omega = (
        stats.invwishart(df, Psi).rvs(size, random_state=4).reshape(-1, num_features, num_features)
    )
    Z, X = blocks.inducing.numpy(), blocks.data.numpy().T
    left, right = (np.einsum("md,sde->sme", part, omega) / num_features for part in (Z, X))
    others = (left @ Z.T, left @ X.T, np.einsum("snd,nd->sn", right, X))
    for ours, theirs in zip((sample.ii, sample.it, sample.tt), others, strict=True):
        for power in (1, 2):
            first, second = ours.numpy() ** power, theirs**power
            error = np.sqrt((np.var(first, 0) + np.var(second, 0)) / size)
            assert np.all(np.abs(np.mean(first, 0) - np.mean(second, 0)) < 6.0 * error)


@features
def test_bias_and_scale_of_the_inputs(num_features: int) -> None:
    """Learned shift and scale are those of shifted and scaled inputs."""
    layer = make_layer(num_features, bias=True, scale=True)
    blocks, plain = inputs(num_features), make_layer(num_features)
    bias, scale = layer.bias.numpy(), layer.scale.numpy()
    moved = FeatureBlocks(
        (blocks.inducing + bias) * scale, (blocks.data + bias[:, None]) * scale[:, None]
    )
    first, _ = layer.propagate(blocks, seed=1, num_samples=S)
    second, _ = plain.propagate(moved, seed=1, num_samples=S)
    for name in ("ii", "it", "tt"):
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), rtol=1e-10)


@features
def test_gradients_are_those_of_finite_differences(num_features: int) -> None:
    layer = make_layer(num_features, bias=True, scale=True)
    start = inputs(num_features)
    blocks = [tf.Variable(start.inducing), tf.Variable(start.data)]
    noise, draws = with_variable_draws(layer.sample_noise(S, N, 0))
    draws = [draw for draw in draws if draw.shape[-1]]  # Omega needs none for the data
    rng = np.random.default_rng(3)
    weights = [rng.normal(size=shape) for shape in [(S, M, M), (S, M, N), (S, N), (S,)]]

    def function() -> tf.Tensor:
        sample, log_ratio = layer.propagate_noise(FeatureBlocks(*blocks), noise)
        outputs = (sample.ii, sample.it, sample.tt, log_ratio)
        return tf.add_n(
            [tf.reduce_sum(w * output) for w, output in zip(weights, outputs, strict=True)]
        )

    check_gradients(function, [*layer.trainable_variables, *blocks, *draws])


def test_a_covariance_is_refused() -> None:
    blocks = GramBlocks(np.eye(M), np.ones((M, N)), np.ones(N))
    with pytest.raises(ValueError, match="got GramBlocks, needs the inputs as FeatureBlocks"):
        make_layer(3).propagate(blocks, seed=0)


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        ((4, 0), {}, "num_features: got 0"),
        ((4, 3), {"rank": 0}, "rank: got 0"),
        ((4, 3), {"delta": 0.0}, "delta: got 0.0"),
    ],
)
def test_bad_arguments(arguments: tuple, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InputInverseWishart(*arguments, **settings)


def test_inputs_of_another_shape_are_refused() -> None:
    layer = make_layer(3)
    with pytest.raises(ValueError, match="got 4 features, needs 3"):
        layer.propagate(inputs(4), seed=0)
    with pytest.raises(ValueError, match="got 4 features, needs 3"):
        layer.prior_sample(inputs(4), seed=0)
    fewer = FeatureBlocks(inputs(3).inducing[:2], inputs(3).data)
    with pytest.raises(ValueError, match="got 2 inducing points, needs 4"):
        layer.propagate(fewer, seed=0)
    assert layer.prior_sample(fewer, seed=0).ii.shape == (1, 2, 2)
