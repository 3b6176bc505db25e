"""WishartLayer: draws by docs/mathematics.md 4, log-ratios by densities, limits, conditionals, gradients."""

from typing import Literal, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from gpflow import Parameter
from gpflow.kernels import SquaredExponential
from gpflow.utilities import positive
from layer_cases import (
    HOW,
    POSTERIORS,
    WIDTHS,
    M,
    S,
    check_conditionals,
    check_layer_gradients,
    covariance,
    hold_gammas,
    record,
    wishart_layer,
)
from scipy.special import gammaln

from gpflow_dkp.distributions import BartlettFactor, Wishart
from gpflow_dkp.gram import FeatureBlocks, GramBlocks
from gpflow_dkp.layers import (
    ABGWPosterior,
    AGWPosterior,
    FeatureDraw,
    GWPosterior,
    WishartLayer,
    WishartPosterior,
)
from gpflow_dkp.layers.gram import wishart_posterior
from gpflow_dkp.linalg import cholesky, positive_definite

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
    if layer.A is not None:
        A = A @ layer.A.numpy()
    p = min(M, layer.width)
    B = np.eye(p) if layer.B is None else layer.B.numpy()
    below = np.tril(np.ones((M, p)), -1)
    mu, sigma = below * layer.mu.numpy(), below * layer.sigma.numpy()
    return Dense(A, B, layer.alpha.numpy(), layer.beta.numpy(), mu, sigma)


@samples
@posteriors
@pytest.mark.parametrize("width", [2, 7])
def test_draw_is_a_t_b(
    width: int, posterior: str, samples: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F = (A T B, 0), the zeros once data points stand beside it."""
    layer, K = wishart_layer(width, posterior), covariance(samples)
    drawn_gammas = record(monkeypatch, wishart_posterior, "gamma")
    drawn_normals = record(monkeypatch, wishart_posterior, "normal")
    draw = layer.sample(K.ii, seed=0, num_samples=S)
    (gammas,), (normals,) = drawn_gammas, drawn_normals
    p = min(M, width)
    assert draw.features.shape == (S, M, p)
    for i in range(S):
        q = dense(layer, K.ii.numpy() if samples is None else K.ii[i].numpy())
        T = q.mu + q.sigma * normals[i]
        T[range(p), range(p)] = np.sqrt(gammas[i] / q.beta)
        np.testing.assert_allclose(draw.features[i], q.A @ T @ q.B, rtol=0, atol=1e-10)
    padded = layer.condition(draw, K.it, K.tt, seed=0).inducing.numpy()
    np.testing.assert_array_equal(padded[:, :, :p], draw.features)
    np.testing.assert_array_equal(padded[:, :, p:], np.zeros((S, M, width - p)))


@posteriors
@pytest.mark.parametrize("width", [2, 7])
def test_distribution_is_the_law_of_the_draw(width: int, posterior: str) -> None:
    """Its A, B and Bartlett factor are those of the draw, for covariances with and without samples."""
    layer, K = wishart_layer(width, posterior), covariance(S)
    Q = layer.posterior.distribution(K.ii)
    assert Q.batch_shape == (S,)
    F = layer.sample(K.ii, seed=0).features
    G = tf.matmul(F, F, transpose_b=True)
    expected = [layer.posterior.distribution(K.ii[i]).log_prob(G[i]) for i in range(S)]
    np.testing.assert_allclose(Q.log_prob(G), expected, rtol=0, atol=1e-9)


def test_posteriors_of_names() -> None:
    for name, cls in [("gw", GWPosterior), ("a-gw", AGWPosterior), ("ab-gw", ABGWPosterior)]:
        layer = WishartLayer(M, 3, name, log_ratio="sampled")
        assert type(layer.posterior) is cls
        assert layer.log_ratio == "sampled"
        assert layer.rank == 3
        assert layer.alpha is layer.posterior.alpha
        assert (layer.A is None, layer.B is None) == (name == "gw", name != "ab-gw")
    with pytest.raises(AttributeError, match="WishartLayer has no attribute 'gamma'"):
        _ = layer.gamma


@posteriors
@pytest.mark.parametrize("width", [2, 7])
def test_mean_of_the_posterior(width: int, posterior: str) -> None:
    """docs/mathematics.md 2: E[G] = A (E[T] B B^T E[T]^T + diag_k(sum_j V_kj (B B^T)_jj)) A^T."""
    layer, K = wishart_layer(width, posterior), covariance().ii.numpy()
    A, B, alpha, beta, mu, sigma = dense(layer, K)
    diag = range(min(M, width))
    mean, variance = mu.copy(), sigma**2
    mean[diag, diag] = np.exp(gammaln(alpha + 0.5) - gammaln(alpha)) / np.sqrt(beta)
    variance[diag, diag] = alpha / beta - mean[diag, diag] ** 2
    second = mean @ B @ B.T @ mean.T + np.diag(variance @ np.diag(B @ B.T))
    actual = layer.posterior.distribution(K).mean()
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
    expected = prior.log_prob(G) - layer.posterior.distribution(K.ii).log_prob(G)
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
@pytest.mark.parametrize("how", HOW)
def test_conditionals_of_the_data_points(
    how: dict, width: int, samples: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_conditionals(wishart_layer(width, "ab-gw"), 1 / width, samples, how, monkeypatch)


@pytest.mark.parametrize(
    ("width", "posterior", "log_ratio", "samples"),
    [
        (2, "gw", "expected", None),
        (7, "gw", "sampled", S),
        (7, "a-gw", "expected", S),
        (2, "a-gw", "sampled", None),
        (2, "ab-gw", "expected", S),
        (7, "ab-gw", "expected", None),
        (2, "ab-gw", "sampled", S),
        (7, "ab-gw", "sampled", None),
    ],
)
def test_gradients_are_those_of_finite_differences(
    width: int,
    posterior: str,
    log_ratio: str,
    samples: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gammas = hold_gammas(monkeypatch, wishart_posterior)
    check_layer_gradients(wishart_layer(width, posterior, log_ratio), samples, gammas)
    assert len(gammas) == 1


@samples
def test_gradients_of_joint_draws_are_those_of_finite_differences(
    samples: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    gammas = hold_gammas(monkeypatch, wishart_posterior)
    check_layer_gradients(wishart_layer(3, "ab-gw"), samples, gammas, full_cov=True)


@samples
@pytest.mark.parametrize(("width", "full_cov"), [(1, False), (7, False), (2, True)])
def test_gradients_of_prior_draws_are_those_of_finite_differences(
    width: int, full_cov: bool, samples: int | None
) -> None:
    layer = wishart_layer(width, "gw")
    check_layer_gradients(layer, samples, [], full_cov=full_cov, prior=True)


@pytest.mark.parametrize("posterior", ["a-gw", "ab-gw"])
def test_posterior_of_no_deformation_is_the_next_simpler_one(posterior: str) -> None:
    """B = I is A-GW and A' = I is GW: one draw, one log-ratio."""
    K = covariance(S)
    plain = wishart_layer(3, "gw", "sampled")
    other = wishart_layer(3, posterior, "sampled")
    for name in ("A", "B"):
        if getattr(other, name) is not None:
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
    np.testing.assert_array_equal(*(layer.prior_sample(K.ii, seed=1).features for _ in range(2)))


def nearly_coincident_points(num_points: int = 50) -> np.ndarray:
    """K of evenly spaced points of one dimension, as a model's first layer has it."""
    Z = np.linspace(-1.0, 1.0, num_points)[:, None]
    return SquaredExponential()(Z).numpy() + 1e-6 * np.eye(num_points)


@pytest.mark.parametrize("width", [3, 50, 60])
def test_start_at_has_the_scale_of_the_covariance(width: int) -> None:
    """Psi = K / nu whatever q is, so that log P - log Q is that of the Bartlett factor alone."""
    K = tf.constant(nearly_coincident_points())
    layer = WishartLayer(50, width)
    before = float(layer.sample(K, seed=0).log_ratio[0])
    layer.start_at(K)
    V = layer.V.numpy()
    np.testing.assert_allclose(V @ V.T, K / width, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(V, np.tril(V))
    values = []
    for q in (0.02, 0.5):
        layer.q.assign(q)
        values.append(float(layer.sample(K, seed=0).log_ratio[0]))
    assert values[0] == pytest.approx(values[1], abs=1e-4)
    # The Bartlett factor's own divergence: K = I, where the start is V = I / sqrt(nu) already.
    own = float(WishartLayer(50, width).sample(tf.eye(50, dtype=K.dtype), seed=0).log_ratio[0])
    assert values[0] == pytest.approx(own, abs=1e-4)
    assert own > -10.0 * 50 * width
    assert before < -1e5


class ScaledWishart(WishartPosterior):
    """A user's posterior: G ~ Wishart(c K / nu, nu), with c in place of all else."""

    def __init__(self, num_inducing: int, width: int) -> None:
        super().__init__(num_inducing, width)
        self.c = Parameter(1.7, transform=positive())

    def sample(
        self, K: tf.Tensor, *, seed: object = None, num_samples: int | None = None
    ) -> FeatureDraw:
        S = (num_samples or 1) if len(K.shape) == 2 else K.shape[0]
        prior = positive_definite(K)
        T = BartlettFactor(self.width, self.num_inducing).sample(S, seed=seed)
        features = tf.sqrt(self.c / self.width) * cholesky(prior.matrix, prior.chol) @ T
        dof = self.width * self.num_inducing
        log_ratio = -0.5 * dof * (self.c - 1.0 - tf.math.log(self.c))
        return FeatureDraw(features, tf.fill([S], log_ratio), prior)


@samples
@widths
def test_posterior_of_ones_own(width: int, samples: int | None) -> None:
    """Its log ratio is that of GW at beta = 1 / (2 c) and sigma^2 = c; its data points' law the prior's."""
    K, c = covariance(samples), 1.7
    layer = WishartLayer(M, width, ScaledWishart(M, width))
    same = at_the_prior(width, "gw", "expected", K.ii.numpy()[0 if samples else ...])
    same.beta.assign(np.full(min(M, width), 0.5 / c))
    same.sigma.assign(np.full((M, min(M, width)), np.sqrt(c)))
    same.q.assign(1e-12)
    points, log_ratio = layer.propagate(K, seed=3, num_samples=S)
    assert isinstance(points, FeatureBlocks)
    assert points.inducing.shape == (S, M, width)
    expected = same.sample(K.ii, seed=0, num_samples=S).log_ratio
    np.testing.assert_allclose(log_ratio, expected, rtol=0, atol=1e-8)
    with tf.GradientTape() as tape:
        value = layer.propagate(K, seed=3, num_samples=S)[1][0]
    (gradient,) = tape.gradient(value, layer.trainable_variables)
    slope = (
        -0.5 * width * M * (1.0 - 1.0 / c) * tf.sigmoid(layer.posterior.c.unconstrained_variable)
    )
    assert float(gradient) == pytest.approx(float(slope), rel=1e-8)


@samples
def test_conditionals_given_a_posterior_of_ones_own(
    samples: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = WishartLayer(M, 7, ScaledWishart(M, 7))
    check_conditionals(layer, 1 / 7, samples, {}, monkeypatch)


@pytest.mark.parametrize("sizes", [(M, 4), (M + 1, 3)])
def test_posterior_of_another_size_is_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="posterior: got one of num_inducing, width = "):
        WishartLayer(M, 3, ScaledWishart(*sizes))


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


def test_a_covariance_that_is_not_square_is_refused() -> None:
    with pytest.raises(ShapeMismatchError, match="K_ii"):
        wishart_layer(3, "gw").sample(covariance(S).ii[..., :1], seed=0)


@pytest.mark.parametrize(("width", "num_points"), [(3, 7), (7, 7), (9, 7)])
def test_lower_trapezoidal_features_have_the_same_gram_matrix(width: int, num_points: int) -> None:
    features = np.random.default_rng(0).normal(size=(num_points, width))
    rotated = wishart_posterior.lower_trapezoidal(features)
    assert rotated.shape == (num_points, min(width, num_points))
    np.testing.assert_allclose(rotated @ rotated.T, features @ features.T, atol=1e-12)
    np.testing.assert_array_equal(rotated, np.tril(rotated))
    assert np.all(np.diagonal(rotated) >= 0.0)


@pytest.mark.parametrize("posterior", ["a-gw", "ab-gw"])
def test_a_start_near_features_draws_their_gram_matrix(posterior: Literal["a-gw", "ab-gw"]) -> None:
    """Without noise of the Bartlett factor: C (C + eps I)^{-1} F, C = K / nu."""
    num_points, width = 12, 3
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(num_points, 2))
    K = SquaredExponential(lengthscales=1.5)(Z).numpy() + 1e-6 * np.eye(num_points)
    features = np.hstack([Z, np.sin(Z[:, :1])])
    layer = WishartLayer(num_points, width, posterior)
    layer.start_at(K)
    layer.start_near(K, features)
    assert np.all(layer.sigma.numpy() == wishart_posterior.START_SCALE)
    layer.sigma.assign(np.full(layer.sigma.shape, 1e-9))
    layer.alpha.assign(1e12 * layer.alpha)
    layer.beta.assign(1e12 * layer.beta)
    drawn = layer.sample(tf.constant(K), seed=0).features[0].numpy()
    C = K / width
    noise = wishart_posterior.START_NOISE * np.eye(num_points)
    expected = C @ np.linalg.solve(C + noise, features)
    np.testing.assert_allclose(drawn @ drawn.T, expected @ expected.T, atol=1e-4)


def test_where_there_is_no_factor_or_no_a_the_start_stays() -> None:
    features = np.random.default_rng(0).normal(size=(4, 2))
    for posterior, K in (("ab-gw", -np.eye(4)), ("gw", np.eye(4))):
        layer = WishartLayer(4, 2, posterior)  # type: ignore[arg-type]
        before = layer.mu.numpy()
        layer.start_near(tf.constant(K), features)
        np.testing.assert_array_equal(layer.mu, before)
