"""Layers by Monte Carlo: expected log-ratios, prior and posterior moments, independence of points."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from false_alarm import FALSE_ALARM, check_equal_means, check_mean, second_moments
from gpflow.kernels import Linear, SeparateIndependent
from scipy import stats
from scipy.special import digamma, polygamma

from gpflow_dkp.gram import FeatureBlocks, GramBlocks
from gpflow_dkp.layers import (
    GlobalInducingGP,
    GramLayer,
    InverseWishartLayer,
    OutputGP,
    WishartLayer,
)

M, N = 3, 2
SIZE = 40_000
WIDTHS = [1, 2, 3, 5]

Draw = Callable[[GramBlocks, int], FeatureBlocks]


def whole_covariance() -> np.ndarray:
    F = np.random.default_rng(0).normal(size=(M + N, 3))
    return F @ F.T + 0.5 * np.eye(M + N)


def covariance(full_cov: bool = False) -> GramBlocks:
    K = whole_covariance()
    tt = K[M:, M:] if full_cov else np.diag(K[M:, M:])
    return GramBlocks(K[:M, :M], K[:M, M:], tt)


def prior_points(
    layer: GramLayer, K: GramBlocks, seed: int, *, common_noise: bool = False
) -> FeatureBlocks:
    """`SIZE` draws from the prior over inducing and data points, jointly where K has their whole block."""
    draw = layer.prior_sample(K.ii, seed=seed, num_samples=SIZE)
    how = {"full_cov": K.full_cov, "common_noise": common_noise}
    return layer.condition(draw, K.it, K.tt, seed=seed, **how)


def posterior_points(
    layer: GramLayer, K: GramBlocks, seed: int, *, common_noise: bool = False
) -> GramBlocks:
    """`SIZE` draws from the posterior."""
    draw = layer.sample(K.ii, seed=seed, num_samples=SIZE)
    how = {"full_cov": K.full_cov, "common_noise": common_noise}
    return layer.condition(draw, K.it, K.tt, seed=seed, **how)


def random_layer(width: int, posterior: str, log_ratio: str = "expected") -> GramLayer:
    rng = np.random.default_rng(width)
    if posterior == "gp":
        layer = GlobalInducingGP(M, width, log_ratio=log_ratio)
        layer.v.assign(rng.normal(size=(M, width)))
        layer.precision_tril.assign(np.tril(rng.normal(size=(M, M)), -1) + np.diag([0.5, 2, 1]))
        return layer
    p = min(M, width)
    layer = WishartLayer(M, width, posterior, log_ratio=log_ratio)
    layer.alpha.assign(rng.uniform(1.0, 3.0, p))
    layer.beta.assign(rng.uniform(0.5, 2.0, p))
    layer.mu.assign(rng.normal(size=(M, p)))
    layer.sigma.assign(rng.uniform(0.3, 1.0, (M, p)))
    layer.q.assign(0.3)
    layer.V.assign(rng.normal(size=(M, M)))
    if posterior != "gw":
        layer.A.assign(np.eye(M) + 0.3 * rng.normal(size=(M, M)))
    if posterior == "ab-gw":
        layer.B.assign(np.tril(0.4 * rng.normal(size=(p, p)), -1) + np.eye(p))
    return layer


@pytest.mark.parametrize("posterior", ["gw", "a-gw", "ab-gw", "gp"])
@pytest.mark.parametrize("width", WIDTHS)
def test_expected_log_ratio_is_the_mean_of_the_sampled_one(width: int, posterior: str) -> None:
    K = covariance()
    exact = random_layer(width, posterior).propagate(K, seed=0)[1]
    layer = random_layer(width, posterior, "sampled")
    sampled = layer.propagate(K, seed=1, num_samples=SIZE)[1].numpy()
    check_mean(sampled[:, None], exact.numpy())
    assert sampled.std() > 0.1


def feature_draws(draws: FeatureBlocks) -> np.ndarray:
    """One feature [S, M + N] of all points."""
    return np.concatenate([draws.inducing[:, :, 0], draws.data[:, 0, :]], 1)


def gram_entries(G: GramBlocks) -> np.ndarray:
    """The entries of G [S, .] at the inducing points and the first data point."""
    own = G.tt.numpy()[:, 0, 0] if G.full_cov else G.tt.numpy()[:, 0]
    return joint_entries(G.ii.numpy(), G.it.numpy()[:, :, 0], own)


def all_entries(G: np.ndarray) -> np.ndarray:
    """The lower triangle of matrices [S, P, P]."""
    rows, columns = np.tril_indices(G.shape[-1])
    return G[:, rows, columns]


def over_all_points(G: GramBlocks) -> np.ndarray:
    """G [S, M + N, M + N] of blocks drawn jointly."""
    it = G.it.numpy()
    return np.block([[G.ii.numpy(), it], [np.swapaxes(it, 1, 2), G.tt.numpy()]])


def joint_entries(ii: np.ndarray, it: np.ndarray, tt: np.ndarray) -> np.ndarray:
    """Of blocks [S, M, M], [S, M] and [S]."""
    rows, columns = np.tril_indices(M)
    return np.concatenate([ii[:, rows, columns], it, tt[:, None]], 1)


PRIORS: dict[str, Callable[[int], GramLayer]] = {
    "WishartLayer": lambda width: WishartLayer(M, width),
    "GlobalInducingGP": lambda width: GlobalInducingGP(M, width),
}


@pytest.mark.parametrize("layer", PRIORS)
@pytest.mark.parametrize("width", [1, 5])
def test_prior_features_have_covariance_k_over_width(width: int, layer: str) -> None:
    """Of inducing points, between them and each data point, and of each data point."""
    K = covariance()
    draws = prior_points(PRIORS[layer](width), K, 3)
    features = feature_draws(draws)
    check_mean(features, np.zeros(M + N))
    full = np.block([[K.ii.numpy(), K.it.numpy()], [K.it.numpy().T, np.diag(K.tt)]]) / width
    rows, columns = np.tril_indices(M + N)
    known = (rows < M) | (columns < M) | (rows == columns)
    moments = second_moments(features)[:, known]
    check_mean(moments, full[rows, columns][known])


@pytest.mark.parametrize("layer", PRIORS)
@pytest.mark.parametrize("width", [1, 5])
def test_data_points_are_conditionally_independent(width: int, layer: str) -> None:
    """Two data points, drawn one at a time, covary through the inducing points only."""
    K = covariance()
    draws = prior_points(PRIORS[layer](width), K, 4)
    features = draws.data.numpy()
    through_inducing = K.it.numpy().T @ np.linalg.solve(K.ii.numpy(), K.it.numpy()) / width
    check_mean((features[:, 0, 0] * features[:, 0, 1])[:, None], through_inducing[0, 1])


@pytest.mark.parametrize("layer", PRIORS)
@pytest.mark.parametrize("width", [1, 5])
def test_prior_features_drawn_jointly_have_covariance_k_over_width(width: int, layer: str) -> None:
    """Of all pairs of points, the data points' own among them."""
    draws = prior_points(PRIORS[layer](width), covariance(full_cov=True), 15)
    features = feature_draws(draws)
    check_mean(features, np.zeros(M + N))
    rows, columns = np.tril_indices(M + N)
    check_mean(second_moments(features), whole_covariance()[rows, columns] / width)


@pytest.mark.parametrize("layer", PRIORS)
@pytest.mark.parametrize("width", [1, 5])
def test_prior_gram_matrix_drawn_jointly_has_the_wishart_moments(width: int, layer: str) -> None:
    K = whole_covariance()
    draws = prior_points(PRIORS[layer](width), covariance(full_cov=True), 16)
    G = over_all_points(draws)
    check_mean(all_entries(G), all_entries(K[None])[0])
    variance = (np.outer(np.diag(K), np.diag(K)) + K**2) / width
    check_mean(all_entries((G - K) ** 2), all_entries(variance[None])[0])


LAYERS: dict[str, Callable[[], GramLayer]] = {
    "Wishart": lambda: random_layer(2, "ab-gw"),
    "wide Wishart": lambda: random_layer(5, "gw"),
    "GP": lambda: random_layer(3, "gp"),
    "inverse Wishart": lambda: inverse_wishart_layer(),
}


@pytest.mark.parametrize("prior", [False, True])
@pytest.mark.parametrize("how", ["jointly", "common noise"])
@pytest.mark.parametrize("name", LAYERS)
def test_law_of_a_data_point_is_the_same_however_it_is_drawn(
    name: str, how: str, prior: bool
) -> None:
    """On its own, with the noise of its neighbours, and jointly with them."""
    layer, points = LAYERS[name](), prior_points if prior else posterior_points
    alone = gram_entries(points(layer, covariance(), 17))
    K = covariance(full_cov=how == "jointly")
    other = gram_entries(points(layer, K, 18, common_noise=how == "common noise"))
    check_equal_means(alone, other)
    check_equal_means(second_moments(alone), second_moments(other))


@pytest.mark.parametrize("separate", [False, True])
def test_prior_draws_of_an_output_layer_have_its_kernels_covariance(separate: bool) -> None:
    K, P = whole_covariance()[:M, :M], 2
    kernel = SeparateIndependent([Linear(), Linear()]) if separate else None
    given = np.stack([K, 2.0 * K]) if separate else K
    layer = OutputGP(M, P, kernel=kernel)
    features = layer.prior_sample(tf.constant(given), seed=19, num_samples=SIZE).features.numpy()
    vectors = np.swapaxes(features, 1, 2).reshape(SIZE, P * M)
    expected = np.kron(np.diag([1.0, 2.0 if separate else 1.0]), K)
    rows, columns = np.tril_indices(P * M)
    check_mean(second_moments(vectors), expected[rows, columns])


@pytest.mark.parametrize("layer", PRIORS)
@pytest.mark.parametrize("width", [1, 5])
def test_prior_gram_matrix_has_the_wishart_moments(width: int, layer: str) -> None:
    """E[G] = K and Var[G_ij] = (K_ii K_jj + K_ij^2) / nu, for all three blocks."""
    K = covariance()
    G = prior_points(PRIORS[layer](width), K, 5)
    variance_i, variance_t = np.diag(K.ii), K.tt.numpy()
    for draws, mean, outer in [
        (G.ii.numpy(), K.ii.numpy(), np.outer(variance_i, variance_i)),
        (G.it.numpy(), K.it.numpy(), np.outer(variance_i, variance_t)),
        (G.tt.numpy(), K.tt.numpy(), variance_t**2),
    ]:
        check_mean(draws, mean)
        check_mean((draws - mean) ** 2, (outer + mean**2) / width)


@pytest.mark.parametrize("width", [1, 5])
def test_both_layers_have_one_prior(width: int) -> None:
    """All first and second moments of G at the inducing points and one data point."""
    K = covariance()

    first, second = (
        gram_entries(prior_points(PRIORS[layer](width), K, seed))
        for layer, seed in [("WishartLayer", 6), ("GlobalInducingGP", 7)]
    )
    check_equal_means(first, second)
    check_equal_means(second_moments(first), second_moments(second))


@pytest.mark.parametrize("posterior", ["gw", "a-gw", "ab-gw"])
@pytest.mark.parametrize("width", WIDTHS)
def test_draws_have_the_posterior_distributions_mean(width: int, posterior: str) -> None:
    K, layer = covariance(), random_layer(width, posterior)
    G = layer.propagate(K, seed=8, num_samples=SIZE)[0].ii.numpy()
    check_mean(G, layer.posterior.distribution(K.ii).mean().numpy())


@pytest.mark.parametrize("posterior", ["gw", "ab-gw"])
@pytest.mark.parametrize("width", [2, 5])
def test_posterior_at_the_prior_has_the_priors_moments(width: int, posterior: str) -> None:
    """`propagate` (Bartlett's factor, zero-padded) and `prior_sample` (Gaussian features) agree."""
    K, p = covariance(), min(M, width)
    layer = WishartLayer(M, width, posterior)
    layer.alpha.assign((width - np.arange(p)) / 2)
    layer.mu.assign(np.zeros((M, p)))
    layer.sigma.assign(np.ones((M, p)))
    layer.V.assign(np.linalg.cholesky(K.ii.numpy() / width))
    G = layer.propagate(K, seed=9, num_samples=SIZE)[0]
    check_mean(G.ii.numpy(), K.ii.numpy())
    check_mean(G.it.numpy(), K.it.numpy())
    check_mean(G.tt.numpy(), K.tt.numpy())
    check_mean((G.tt.numpy() - K.tt.numpy()) ** 2, 2 * K.tt.numpy() ** 2 / width)
    check_mean(
        (G.it.numpy() - K.it.numpy()) ** 2,
        (np.outer(np.diag(K.ii), K.tt) + K.it.numpy() ** 2) / width,
    )


def inverse_wishart_layer(log_ratio: str = "expected") -> InverseWishartLayer:
    """With finite fourth moments."""
    layer = InverseWishartLayer(M, delta=12.0, log_ratio=log_ratio)
    layer.gamma.assign(2.5)
    layer.V.assign(np.random.default_rng(3).normal(size=(M, M)))
    return layer


def test_expected_log_ratio_of_inverse_wisharts_is_the_mean_of_the_sampled_one() -> None:
    K = covariance()
    exact = inverse_wishart_layer().propagate(K, seed=0)[1]
    sampled = inverse_wishart_layer("sampled").propagate(K, seed=1, num_samples=SIZE)[1].numpy()
    check_mean(sampled[:, None], exact.numpy())
    assert sampled.std() > 0.1


def test_inverse_wishart_prior_is_the_joint_one_of_inducing_points_and_a_data_point() -> None:
    """[ICML21]: over M + 1 points IW(delta K, delta + M + 2)."""
    K, layer = covariance(), inverse_wishart_layer()
    delta = float(layer.delta.numpy())
    cross = K.it.numpy()[:, :1]
    joint = np.block([[K.ii.numpy(), cross], [cross.T, K.tt.numpy()[0]]])
    G = stats.invwishart(delta + M + 2, delta * joint).rvs(SIZE, random_state=10)
    expected = joint_entries(G[:, :M, :M], G[:, :M, M], G[:, M, M])
    drawn = gram_entries(prior_points(layer, K, 11))
    check_equal_means(drawn, expected)
    check_equal_means(second_moments(drawn), second_moments(expected))


@pytest.mark.parametrize("num_data", [1, 2])
def test_inverse_wishart_prior_drawn_jointly_is_that_of_all_points(num_data: int) -> None:
    """[ICML21] 31 to 34: over M + N points IW(delta K, delta + M + N + 1), of mean K."""
    layer, P = inverse_wishart_layer(), M + num_data
    delta, K = float(layer.delta.numpy()), whole_covariance()[:P, :P]
    blocks = GramBlocks(K[:M, :M], K[:M, M:], K[M:, M:])
    G = over_all_points(prior_points(layer, blocks, 20))
    drawn = all_entries(G)
    check_mean(drawn, all_entries(K[None])[0])
    df = delta + P + 1
    expected = all_entries(stats.invwishart(df, delta * K).rvs(SIZE, random_state=21))
    check_equal_means(drawn, expected)
    check_equal_means(second_moments(drawn), second_moments(expected))
    # |delta K| / |G| is a product of independent chi-squares of df, df - 1, ..., df - P + 1.
    halves = 0.5 * (df - np.arange(P))
    logdet = np.linalg.slogdet(delta * K)[1] - np.linalg.slogdet(G)[1]
    log_mean = P * np.log(2.0) + np.sum(digamma(halves))
    check_mean(logdet[:, None], log_mean)
    check_mean((logdet[:, None] - log_mean) ** 2, np.sum(polygamma(1, halves)))
    # a^T Psi a / a^T G a is chi-square with df - P + 1 = delta + 2 whatever a is, and
    # a^T G^{-1} a / a^T Psi^{-1} a with df.
    a = np.random.default_rng(22).normal(size=P)
    Psi, inverse = delta * K, np.linalg.inv(G)
    for ratio, own in [
        (a @ Psi @ a / np.einsum("i,sij,j->s", a, G, a), delta + 2),
        (np.einsum("i,sij,j->s", a, inverse, a) / (a @ np.linalg.solve(Psi, a)), df),
    ]:
        assert stats.kstest(ratio, stats.chi2(own).cdf).pvalue > FALSE_ALARM / 4


@pytest.mark.parametrize("prior", [False, True])
def test_one_inverse_wishart_point_drawn_jointly_is_one_drawn_alone(prior: bool) -> None:
    layer, K = inverse_wishart_layer(), covariance()
    points = prior_points if prior else posterior_points
    draws = [
        gram_entries(points(layer, GramBlocks(K.ii, K.it[:, :1], tt), seed))
        for tt, seed in [(K.tt[:1], 23), (K.tt[:1, None], 24)]
    ]
    check_equal_means(*draws)
    check_equal_means(*map(second_moments, draws))


def test_inverse_wishart_posterior_and_the_prior_of_a_data_point_given_it() -> None:
    """G_ii of the posterior; given it, the data point's Schur complement and coefficients."""
    K, layer = covariance(), inverse_wishart_layer()
    delta, gamma = float(layer.delta.numpy()), float(layer.gamma.numpy())
    V, rng = layer.V.numpy(), np.random.default_rng(12)
    ii, it, tt = delta * K.ii.numpy(), delta * K.it.numpy()[:, 0], delta * K.tt.numpy()[0]
    G = stats.invwishart(delta + gamma + M + 1, ii + V @ V.T).rvs(SIZE, random_state=13)
    complement = stats.invgamma(
        0.5 * (delta + M + 2), scale=0.5 * (tt - it @ np.linalg.solve(ii, it))
    )
    g = complement.rvs(SIZE, random_state=rng)
    scatter = rng.multivariate_normal(np.zeros(M), np.linalg.inv(ii), SIZE)
    coefficients = np.linalg.solve(ii, it) + np.sqrt(g)[:, None] * scatter
    cross = np.einsum("sij,sj->si", G, coefficients)
    expected = joint_entries(G, cross, g + np.sum(coefficients * cross, -1))
    drawn = gram_entries(layer.propagate(K, seed=14, num_samples=SIZE)[0])
    check_equal_means(drawn, expected)
    check_equal_means(second_moments(drawn), second_moments(expected))


def check_gradient_of_a_mean(
    layer: GramLayer,
    of_draws: Callable[[GramBlocks], tf.Tensor],
    exact: Callable[[], tf.Tensor],
) -> None:
    """d / d parameters of the mean of `of_draws` [S], in closed form in `exact`.

    The gradient of a draw goes through the implicit derivatives of its gammas.
    """
    K, variables = covariance(), layer.trainable_variables

    def gradient_of(value: Callable[[], tf.Tensor]) -> np.ndarray:
        with tf.GradientTape() as tape:
            loss = value()
        gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
        return np.concatenate([np.ravel(gradient) for gradient in gradients])

    def mean_of_draws(seed: int) -> tf.Tensor:
        return tf.reduce_mean(of_draws(layer.propagate(K, seed=seed, num_samples=2000)[0]))

    draws = np.stack([gradient_of(lambda seed=seed: mean_of_draws(seed)) for seed in range(40)])
    expected = gradient_of(exact)
    check_mean(draws, expected)
    assert np.count_nonzero(expected) > 10


def test_gradient_of_a_wisharts_mean() -> None:
    K, layer = covariance(), random_layer(2, "ab-gw")
    check_gradient_of_a_mean(
        layer,
        lambda G: G.ii[:, 2, 1],
        lambda: layer.posterior.distribution(K.ii).mean()[2, 1],
    )


def test_gradient_of_an_inverse_wisharts_mean() -> None:
    """Of G_tt, which takes every random number; E[G_ii] = (delta K + V V^T) / (delta + gamma)."""
    K, layer = covariance(), inverse_wishart_layer()

    def mean() -> tf.Tensor:
        delta, V = layer.delta, tf.convert_to_tensor(layer.V)
        G = (delta * K.ii + tf.matmul(V, V, transpose_b=True)) / (delta + layer.gamma)
        inverse = tf.linalg.inv(K.ii)
        coefficients = tf.linalg.matvec(inverse, K.it[:, 0])
        residual = K.tt[0] - tf.reduce_sum(K.it[:, 0] * coefficients)
        complement = delta * residual / (delta + M)
        quadratic = tf.reduce_sum(coefficients * tf.linalg.matvec(G, coefficients))
        return quadratic + complement * (1.0 + tf.linalg.trace(inverse @ G) / delta)

    check_gradient_of_a_mean(layer, lambda G: G.tt[:, 0], mean)
