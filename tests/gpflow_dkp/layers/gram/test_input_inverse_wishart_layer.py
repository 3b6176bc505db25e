"""InputInverseWishart: Omega's density and moments, with fewer and with more features than points."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from layer_cases import check_gradients, hold_gammas, random_sum
from scipy import stats

from gpflow_dkp.distributions import InverseWishart
from gpflow_dkp.gram import FeatureBlocks, GramBlocks, InputBlocks
from gpflow_dkp.layers import InputInverseWishart
from gpflow_dkp.layers.gram import inverse_wishart

M, N, S = 4, 3, 5
FEATURES = [1, 3, 4, 6, 9]
"""Omega is formed up to M of them; with 6 the M + N points span them all, with 9 they do not."""
features = pytest.mark.parametrize("num_features", FEATURES)
whole = pytest.mark.parametrize("full_cov", [False, True])


def inputs(num_features: int, full_cov: bool = False) -> FeatureBlocks:
    rng = np.random.default_rng(0)
    return FeatureBlocks(
        tf.constant(rng.normal(size=(M, num_features))),
        tf.constant(rng.normal(size=(num_features, N))),
        full_cov=full_cov,
    )


def propagate(
    layer: InputInverseWishart, blocks: GramBlocks, *, prior: bool = False, **settings: int
) -> tuple[GramBlocks, tf.Tensor]:
    """The layer's Gram matrix at the inputs, and log P - log Q."""
    K = layer.covariance(blocks)
    if not prior:
        return layer.propagate(K, **settings)
    draw = layer.prior_sample(K.ii, **settings)
    points = layer.condition(draw, K.it, K.tt, seed=settings["seed"], full_cov=K.full_cov)
    return points, draw.log_ratio


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
    _, log_ratio = propagate(layer, inputs(num_features), seed=0, num_samples=S)
    expected = np.full(S, -tfp.distributions.kl_divergence(Q, P))
    np.testing.assert_allclose(log_ratio, expected, rtol=0, atol=1e-9)


@whole
@features
@pytest.mark.parametrize("prior", [False, True])
def test_moments_are_those_of_omega_drawn_by_scipy(
    num_features: int, prior: bool, full_cov: bool
) -> None:
    """Mean and mean square of every entry of G, and of its data points' whole block."""
    layer, blocks = make_layer(num_features), inputs(num_features, full_cov)
    size = 40_000
    sample, _ = propagate(layer, blocks, prior=prior, seed=3, num_samples=size)
    if prior:
        Psi, df = layer.delta.numpy() * np.eye(num_features), layer.delta.numpy() + num_features + 1
    else:
        Psi = posterior_scale(layer)
        df = layer.delta.numpy() + layer.gamma.numpy() + num_features + 1
    omega = (
        stats.invwishart(df, Psi).rvs(size, random_state=4).reshape(-1, num_features, num_features)
    )
    Z, X = blocks.inducing.numpy(), blocks.data.numpy().T
    left, right = (np.einsum("md,sde->sme", part, omega) / num_features for part in (Z, X))
    others = (left @ Z.T, left @ X.T, right @ X.T if full_cov else np.sum(right * X, -1))
    assert sample.full_cov == full_cov
    allowed = threshold(2 * (M * M + M * N + N * N) * 2 * 2 * len(FEATURES))
    for ours, theirs in zip((sample.ii, sample.it, sample.tt), others, strict=True):
        for power in (1, 2):
            first, second = ours.numpy() ** power, theirs**power
            error = np.sqrt((np.var(first, 0) + np.var(second, 0)) / size)
            # And the jitter, 1e-6, where Omega is not formed.
            difference = np.abs(np.mean(first, 0) - np.mean(second, 0))
            assert np.all(difference < allowed * error + 1e-5)


def threshold(num_comparisons: int) -> float:
    """Standard errors beyond which one in 1e5 runs of a correct program has one of its means."""
    return float(stats.norm.isf(0.5e-5 / num_comparisons))


@features
def test_joint_draws_are_positive_definite(num_features: int) -> None:
    """Over all M + N points, with the rank of the inputs where Omega is formed."""
    layer = make_layer(num_features)
    G, _ = propagate(layer, inputs(num_features, full_cov=True), seed=0, num_samples=S)
    joint = np.block([[G.ii.numpy(), G.it.numpy()], [G.it.numpy().swapaxes(1, 2), G.tt.numpy()]])
    eigenvalues = np.linalg.eigvalsh(joint)
    assert np.all(eigenvalues > -1e-12)
    if num_features >= M + N:
        assert np.all(eigenvalues > 1e-6)
    if num_features <= M:
        assert np.all(np.linalg.matrix_rank(joint, tol=1e-9) == num_features)


@features
def test_bias_and_scale_of_the_inputs(num_features: int) -> None:
    """Learned shift and scale are those of shifted and scaled inputs."""
    layer = make_layer(num_features, bias=True, scale=True)
    blocks, plain = inputs(num_features), make_layer(num_features)
    bias, scale = layer.bias.numpy(), layer.scale.numpy()
    moved = FeatureBlocks(
        (blocks.inducing + bias) * scale, (blocks.data + bias[:, None]) * scale[:, None]
    )
    first, _ = propagate(layer, blocks, seed=1, num_samples=S)
    second, _ = propagate(plain, moved, seed=1, num_samples=S)
    for name in ("ii", "it", "tt"):
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), rtol=1e-10)


@whole
@features
def test_gradients_are_those_of_finite_differences(
    num_features: int, full_cov: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = make_layer(num_features, bias=True, scale=True)
    if full_cov:
        # Where M + N points span all features the scale of G is singular but for it.
        layer.jitter.assign(0.1)
    start = inputs(num_features)
    blocks = [tf.Variable(start.inducing), tf.Variable(start.data)]
    gammas = hold_gammas(monkeypatch, inverse_wishart)

    def function() -> tf.Tensor:
        given = FeatureBlocks(*blocks, full_cov=full_cov)
        sample, log_ratio = propagate(layer, given, seed=0, num_samples=S)
        return random_sum([sample.ii, sample.it, sample.tt, log_ratio])

    function()
    assert len(gammas) == (1 if num_features <= M else 2)  # Omega needs none for the data
    check_gradients(function, [*layer.trainable_variables, *blocks, *gammas])


def test_inputs_of_a_model_are_taken() -> None:
    """`InputBlocks`, with jitter, which is not theirs, left alone."""
    blocks = inputs(3)
    given = InputBlocks(blocks.inducing, tf.transpose(blocks.data))
    layer = make_layer(3)
    first = layer.propagate(layer.covariance(given, 0.5), seed=0, num_samples=S)[0]
    second = propagate(layer, blocks, seed=0, num_samples=S)[0]
    np.testing.assert_allclose(first.tt, second.tt, rtol=1e-12)


def test_mean_of_g_is_what_an_infinitely_wide_layer_passes_on() -> None:
    """E[Omega] = I under the prior, so that G is Z Z^T / N_0 in the mean."""
    blocks = inputs(3)
    layer = make_layer(3)
    K = layer.covariance(blocks)
    Z = blocks.inducing.numpy()
    np.testing.assert_allclose(layer.infinite_width(K.ii).ii, Z @ Z.T / 3, rtol=0, atol=1e-12)


def test_a_covariance_is_refused() -> None:
    blocks = GramBlocks(np.eye(M), np.ones((M, N)), np.ones(N))
    with pytest.raises(ValueError, match="got GramBlocks, needs the inputs as FeatureBlocks"):
        propagate(make_layer(3), blocks, seed=0)


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
    for prior in (False, True):
        with pytest.raises(ValueError, match="got 4 features, needs 3"):
            propagate(layer, inputs(4), prior=prior, seed=0)
    fewer = FeatureBlocks(inputs(3).inducing[:2], inputs(3).data)
    with pytest.raises(ValueError, match="got 2 inducing points, needs 4"):
        propagate(layer, fewer, seed=0)
    assert propagate(layer, fewer, prior=True, seed=0)[0].ii.shape == (1, 2, 2)
