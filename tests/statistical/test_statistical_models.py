"""Models by Monte Carlo: priors, unbiasedness of the bound, predictions of one point at a time."""

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from false_alarm import check_equal_means, check_mean, second_moments
from gpflow.kernels import Linear, SquaredExponential
from scipy import stats

from gpflow_dkp.layers import GramLayer
from gpflow_dkp.models import DGP, DIWP, DWP, DeepKernelProcess

N, D, M = 6, 2, 3
SIZE = 20_000
WIDTHS = [2, 5]
MODELS = {"DWP": DWP, "DGP": DGP, "DIWP": DIWP}
models = pytest.mark.parametrize("model", MODELS)

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, size=(N, D))
Y = np.sin(X[:, :1])
Z = RNG.uniform(-2.0, 2.0, size=(M, D))


def make_kernels(model: str) -> list[gpflow.kernels.Kernel]:
    return [
        SquaredExponential(lengthscales=0.7 if model == "DIWP" else [1.0, 1.5]),
        SquaredExponential(variance=0.7) + Linear(0.5),
        Linear(0.8) + gpflow.kernels.Constant(0.3),
    ]


def make_model(model: str, **settings) -> DeepKernelProcess:  # type: ignore[no-untyped-def]
    """Variational parameters away from their start."""
    settings.setdefault("num_samples", 5)
    likelihood = gpflow.likelihoods.Gaussian(0.3)
    if model != "DIWP":
        settings["widths"] = WIDTHS
    built = MODELS[model](make_kernels(model), likelihood, Z, **settings)
    rng = np.random.default_rng(1)
    for layer in built.layers:
        for variable in variational_variables(layer):
            variable.assign_add(0.3 * rng.normal(size=variable.shape))
    return built


def variational_variables(layer: GramLayer) -> list[tf.Variable]:
    """The layer's own, without those of its kernel."""
    of_kernel = () if layer.kernel is None else layer.kernel.variables
    known = {variable.ref() for variable in of_kernel}
    return [variable for variable in layer.trainable_variables if variable.ref() not in known]


def set_to_prior(model: DeepKernelProcess) -> DeepKernelProcess:
    for layer in model.hidden_layers:
        if isinstance(model, DGP):
            layer.precision_tril.assign(1e-7 * np.eye(M))
            continue
        if isinstance(model, DIWP):
            layer.gamma.assign(1e-12)
            layer.V.assign(np.zeros(layer.V.shape))
            continue
        p = layer.rank
        layer.alpha.assign((layer.width - np.arange(p)) / 2)
        layer.beta.assign(np.full(p, 0.5))
        layer.mu.assign(np.zeros((M, p)))
        layer.sigma.assign(np.ones((M, p)))
        layer.q.assign(1e-16)
        layer.A.assign(np.eye(M))
        layer.B.assign(np.eye(p))
    model.output_layer.precision_tril.assign(1e-7 * np.eye(M))
    return model


def distances(G: np.ndarray) -> np.ndarray:
    """Squared distances [n, N, N] of points with inner products G."""
    squares = np.diagonal(G, axis1=-2, axis2=-1)
    return squares[:, :, None] - 2 * G + squares[:, None, :]


def diwp_prior(points: np.ndarray, num_samples: int) -> np.ndarray:
    """Draws of f [n, N]: G = X Omega X^T / D, then G ~ IW(delta K, delta + N + 1) and N(0, K)."""
    rng = np.random.default_rng(2)
    delta, jitter = 5.0, 1e-6 * np.eye(len(points))
    omega = stats.invwishart(delta + D + 1, delta * np.eye(D)).rvs(num_samples, random_state=3)
    K = np.exp(-0.5 * distances(points @ omega @ points.T / D) / 0.7**2) + jitter
    # L G_0 L^T is IW(L L^T, df) for G_0 ~ IW(I, df).
    df = delta + len(points) + 1
    for seed, kernel in enumerate(
        [
            lambda G: 0.7 * np.exp(-0.5 * distances(G)) + 0.5 * G,
            lambda G: 0.8 * G + 0.3,
        ]
    ):
        identity = stats.invwishart(df, np.eye(len(points)))
        chol = np.sqrt(delta) * np.linalg.cholesky(K)
        G = chol @ identity.rvs(num_samples, random_state=4 + seed) @ chol.transpose(0, 2, 1)
        K = kernel(G) + jitter
    return (np.linalg.cholesky(K) @ rng.normal(size=(num_samples, len(points), 1)))[..., 0]


def deep_gp_prior(points: np.ndarray, num_samples: int) -> np.ndarray:
    """Draws of f [n, N] of the deep GP whose layer l has widths[l] functions with covariance K / nu."""
    rng = np.random.default_rng(2)
    jitter = 1e-6 * np.eye(len(points))
    chol = np.linalg.cholesky(make_kernels("DWP")[0](points).numpy() + jitter)
    F = chol @ rng.normal(size=(num_samples, len(points), WIDTHS[0])) / np.sqrt(WIDTHS[0])
    G = F @ F.transpose(0, 2, 1)
    K = 0.7 * np.exp(-0.5 * distances(G)) + 0.5 * G + jitter
    F = np.linalg.cholesky(K) @ rng.normal(size=(num_samples, len(points), WIDTHS[1]))
    K = 0.8 * F @ F.transpose(0, 2, 1) / WIDTHS[1] + 0.3 + jitter
    return (np.linalg.cholesky(K) @ rng.normal(size=(num_samples, len(points), 1)))[..., 0]


@models
def test_prior_is_that_of_the_process_in_numpy(model: str) -> None:
    points = X[:3]
    built = set_to_prior(make_model(model))
    if model == "DIWP":
        for layer in built.hidden_layers:
            layer.delta.assign(5.0)
    draws = built.sample_prior(points, SIZE, seed=0).numpy()[..., 0]
    reference = (diwp_prior if model == "DIWP" else deep_gp_prior)(points, SIZE)
    moments, reference_moments = second_moments(draws), second_moments(reference)
    check_mean(draws, np.zeros(3))
    check_equal_means(moments, reference_moments)
    check_equal_means(second_moments(moments), second_moments(reference_moments))


def test_dwp_and_dgp_have_one_prior() -> None:
    points = X[:3]
    first, second = (
        second_moments(make_model(model).sample_prior(points, SIZE, seed=seed).numpy()[..., 0])
        for seed, model in enumerate(["DWP", "DGP"])
    )
    check_equal_means(first, second)
    check_equal_means(second_moments(first), second_moments(second))


@pytest.mark.parametrize("model", ["DWP", "DGP"])
def test_prior_of_a_linear_last_layer_has_its_covariance_in_closed_form(model: str) -> None:
    """E[v G + c] = v E[K] + c: with one hidden layer the prior covariance of f is v K + c."""
    kernels = [SquaredExponential(), Linear(0.8) + gpflow.kernels.Constant(0.3)]
    built = MODELS[model](kernels, gpflow.likelihoods.Gaussian(), Z, widths=[2])
    draws = built.sample_prior(X[:3], SIZE, seed=3).numpy()[..., 0]
    covariance = 0.8 * SquaredExponential()(X[:3]).numpy() + 0.3
    check_mean(second_moments(draws), covariance[np.tril_indices(3)], rounding=1e-5)


@pytest.mark.parametrize("full_cov", [True, False])
@models
def test_posterior_at_the_prior_predicts_the_prior(model: str, full_cov: bool) -> None:
    """Through the inducing points, each data point alone or all jointly, and densely: one law."""
    built = set_to_prior(make_model(model))
    through_inducing = built.predict_f_samples(X[:3], SIZE, full_cov, seed=4).numpy()[..., 0]
    dense = built.sample_prior(X[:3], SIZE, seed=5).numpy()[..., 0]
    check_mean(through_inducing, np.zeros(3))
    check_equal_means(through_inducing**2, dense**2)
    check_equal_means(through_inducing**4, dense**4)
    if full_cov:
        products, reference = second_moments(through_inducing), second_moments(dense)
        check_equal_means(products, reference)
        check_equal_means(second_moments(products), second_moments(reference))


def replicate(function: Callable, num_replicates: int) -> np.ndarray:
    compiled = tf.function(function, autograph=False)
    return np.array([np.ravel(compiled(tf.constant(i))) for i in range(num_replicates)])


@models
def test_minibatches_leave_the_bounds_expectation(model: str) -> None:
    whole, part = make_model(model), make_model(model, num_data=N)
    data = tf.constant(X), tf.constant(Y)

    def of_minibatch(seed: tf.Tensor) -> tf.Tensor:
        rows = 2 * (seed % 3) + tf.range(2)
        return part.elbo([tf.gather(array, rows) for array in data], seed=1000 + seed)

    num_replicates = 300
    check_equal_means(
        replicate(lambda seed: whole.elbo(data, seed=seed), num_replicates),
        replicate(of_minibatch, num_replicates),
    )


@models
def test_expected_and_sampled_log_ratio_give_one_bound(model: str) -> None:
    """With one seed the draws are the same: only the log-ratio's noise differs."""
    expected, sampled = make_model(model), make_model(model, log_ratio="sampled")
    data = tf.constant(X), tf.constant(Y)

    def difference(seed: tf.Tensor) -> tf.Tensor:
        first, second = (built.elbo(data, seed=seed) for built in (expected, sampled))
        return first - second

    differences = replicate(difference, 300)
    assert differences.std() > 0.1
    check_mean(differences, 0.0)


@models
def test_importance_weights_have_mean_one(model: str) -> None:
    """E_Q[P / Q] = 1 over all hidden layers: no layer's ratio is missing or counted twice.

    Near the prior, where the weights have a variance; Omega's ratio is an expectation, so it stays 1.
    """
    built = set_to_prior(make_model(model, log_ratio="sampled"))
    rng = np.random.default_rng(5)
    for layer in built.hidden_layers[1 if model == "DIWP" else 0 :]:
        if model == "DGP":
            layer.precision_tril.assign(0.5 * np.eye(M))
        elif model == "DIWP":
            layer.gamma.assign(1.0)
        for variable in variational_variables(layer):
            variable.assign_add(0.1 * rng.normal(size=variable.shape))
    log_ratio = tf.function(
        lambda seed: built.elbo_terms((X, Y), num_samples=1, seed=seed)[1], autograph=False
    )
    weights = np.exp([float(log_ratio(tf.constant(seed))) for seed in range(3000)])
    check_mean(weights[:, None], 1.0)
    assert 0.2 < weights.std() < 3.0


@models
def test_bound_does_not_depend_on_the_number_of_samples(model: str) -> None:
    built, data = make_model(model), (tf.constant(X), tf.constant(Y))
    check_equal_means(
        replicate(lambda seed: built.elbo(data, num_samples=1, seed=seed), 600),
        replicate(lambda seed: built.elbo(data, num_samples=20, seed=seed), 60),
    )


@pytest.mark.parametrize("batch_size", [None, 2])
@models
def test_prediction_of_a_point_does_not_depend_on_the_others(
    model: str, batch_size: int | None
) -> None:
    """One seed gives all points one noise; and where the noise differs, one law."""
    built, size = make_model(model), 4000
    alone = built.predict_mixture(X[3:4], num_samples=size, seed=0)
    for points, place in [(X, 3), (X[::-1], N - 4), (X[3:], 0)]:
        same, other = (
            built.predict_mixture(points, num_samples=size, seed=seed, batch_size=batch_size)
            for seed in (0, 1)
        )
        for first, second, third in zip(alone, same, other, strict=True):
            own, third = first.numpy()[:, 0, 0], third.numpy()[:, place, 0]
            np.testing.assert_allclose(own, second.numpy()[:, place, 0], rtol=0, atol=1e-12)
            check_equal_means(own[:, None], third[:, None])
            check_equal_means(own[:, None] ** 2, third[:, None] ** 2)


@pytest.mark.parametrize("full_cov", [True, False])
@models
def test_samples_have_the_predicted_moments(model: str, full_cov: bool) -> None:
    built = make_model(model)
    samples = built.predict_f_samples(X, SIZE, full_cov, seed=6).numpy()[..., 0]
    mean, variance = built.predict_mixture(X, num_samples=SIZE, seed=7)
    component_mean = mean.numpy()[..., 0]
    second_moment = component_mean**2 + variance.numpy()[..., 0] - 0.3
    check_equal_means(samples, component_mean)
    check_equal_means(samples**2, second_moment)


@models
def test_quantiles_hold_their_share_of_the_samples(model: str) -> None:
    built = make_model(model)
    levels = np.array([0.05, 0.5, 0.9])
    quantiles = built.predict_quantiles(X, levels, num_samples=SIZE, seed=8).numpy()[..., 0]
    noise = np.sqrt(0.3) * np.random.default_rng(9).normal(size=(SIZE, N))
    observations = built.predict_f_samples(X, SIZE, seed=9).numpy()[..., 0] + noise
    mean, variance = built.predict_mixture(X, num_samples=SIZE, seed=8)
    below = observations[:, None, :] < quantiles
    # The quantiles are of SIZE components, and the share of each component below them scatters too.
    scale = np.sqrt(variance.numpy()[..., 0])
    share = stats.norm(mean.numpy()[..., 0], scale).cdf(quantiles[:, None]).transpose(1, 0, 2)
    check_mean(share, np.broadcast_to(levels[:, None], (3, N)))
    check_equal_means(below, share)
