"""Layers by Monte Carlo: expected log-ratios, prior and posterior moments, independence of points."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from false_alarm import check_equal_means, check_mean, second_moments

from gpflow_dkp.gram import FeatureBlocks, GramBlocks
from gpflow_dkp.layers import GlobalInducingGP, Layer, WishartLayer

M, N = 3, 2
SIZE = 40_000
WIDTHS = [1, 2, 3, 5]

Draw = Callable[[GramBlocks, int], FeatureBlocks]


def covariance() -> GramBlocks:
    rng = np.random.default_rng(0)
    F = rng.normal(size=(M + N, 3))
    K = F @ F.T + 0.5 * np.eye(M + N)
    return GramBlocks(K[:M, :M], K[:M, M:], np.diag(K[M:, M:]))


def random_layer(width: int, posterior: str, log_ratio: str = "expected") -> Layer:
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


PRIORS: dict[str, Callable[[int], Layer]] = {
    "WishartLayer": lambda width: WishartLayer(M, width),
    "GlobalInducingGP": lambda width: GlobalInducingGP(M, width),
}


@pytest.mark.parametrize("layer", PRIORS)
@pytest.mark.parametrize("width", [1, 5])
def test_prior_features_have_covariance_k_over_width(width: int, layer: str) -> None:
    """Of inducing points, between them and each data point, and of each data point."""
    K = covariance()
    draws = PRIORS[layer](width).prior_sample(K, seed=3, num_samples=SIZE)
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
    draws = PRIORS[layer](width).prior_sample(K, seed=4, num_samples=SIZE)
    features = draws.data.numpy()
    through_inducing = K.it.numpy().T @ np.linalg.solve(K.ii.numpy(), K.it.numpy()) / width
    check_mean((features[:, 0, 0] * features[:, 0, 1])[:, None], through_inducing[0, 1])


@pytest.mark.parametrize("layer", PRIORS)
@pytest.mark.parametrize("width", [1, 5])
def test_prior_gram_matrix_has_the_wishart_moments(width: int, layer: str) -> None:
    """E[G] = K and Var[G_ij] = (K_ii K_jj + K_ij^2) / nu, for all three blocks."""
    K = covariance()
    G = PRIORS[layer](width).prior_sample(K, seed=5, num_samples=SIZE)
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

    def entries(layer: str, seed: int) -> np.ndarray:
        G = PRIORS[layer](width).prior_sample(K, seed=seed, num_samples=SIZE)
        rows, columns = np.tril_indices(M)
        return np.concatenate(
            [G.ii.numpy()[:, rows, columns], G.it.numpy()[:, :, 0], G.tt.numpy()[:, :1]], 1
        )

    first, second = entries("WishartLayer", 6), entries("GlobalInducingGP", 7)
    check_equal_means(first, second)
    check_equal_means(second_moments(first), second_moments(second))


@pytest.mark.parametrize("posterior", ["gw", "a-gw", "ab-gw"])
@pytest.mark.parametrize("width", WIDTHS)
def test_draws_have_the_posterior_distributions_mean(width: int, posterior: str) -> None:
    K, layer = covariance(), random_layer(width, posterior)
    G = layer.propagate(K, seed=8, num_samples=SIZE)[0].ii.numpy()
    check_mean(G, layer.posterior_distribution(K.ii).mean().numpy())


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


def test_gradient_of_an_expectation() -> None:
    """d E[G] / d parameters against the posterior's mean in closed form.

    The gradient of a draw goes through the gammas' implicit derivative in `alpha`.
    """
    K, layer = covariance(), random_layer(2, "ab-gw")
    variables = layer.trainable_variables

    def gradient_of(value: Callable[[], tf.Tensor]) -> np.ndarray:
        with tf.GradientTape() as tape:
            loss = value()
        gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
        return np.concatenate([np.ravel(gradient) for gradient in gradients])

    def mean_of_draws(seed: int) -> tf.Tensor:
        return tf.reduce_mean(layer.propagate(K, seed=seed, num_samples=2000)[0].ii[:, 2, 1])

    draws = np.stack([gradient_of(lambda seed=seed: mean_of_draws(seed)) for seed in range(40)])
    exact = gradient_of(lambda: layer.posterior_distribution(K.ii).mean()[2, 1])
    check_mean(draws, exact)
    assert np.count_nonzero(exact) > 10
