"""The density of sampled features by NumPy, a chain's law by quadrature, and predictions of what is kept."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Linear, SeparateIndependent, SquaredExponential
from gpflow.likelihoods import Gaussian
from scipy import stats
from scipy.spatial.distance import cdist

from gpflow_dkp.layers import OutputGP, SampledFeatures, WishartLayer
from gpflow_dkp.models import DWP, SGHMCDWP, DeepKernelProcess
from gpflow_dkp.training import SGHMC, fit, sample

RNG = np.random.default_rng(0)
N, D, M, WIDTH, S = 7, 2, 4, 3, 5
X = RNG.uniform(-2.0, 2.0, size=(N, D))
Y = np.sin(2.0 * X[:, :1]) + 0.3 * RNG.normal(size=(N, 1))
Z = RNG.uniform(-2.0, 2.0, size=(M, D))
NOISE, VARIANCES, LENGTHSCALES, JITTER = 0.3, (1.4, 0.8), (1.1, 0.9), 1e-6
FALSE_ALARM = 1e-5
"""Chance that a test of random numbers fails where nothing is wrong."""


def make_model(**settings: Any) -> SGHMCDWP:
    kernels = [
        SquaredExponential(*of_layer) for of_layer in zip(VARIANCES, LENGTHSCALES, strict=True)
    ]
    return SGHMCDWP(kernels, Gaussian(NOISE), Z, **({"widths": [WIDTH]} | settings))


def covariance(layer: int, A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Of features whose Gram matrix the layer's kernel takes."""
    squared = cdist(A, B, "sqeuclidean") / LENGTHSCALES[layer] ** 2
    return VARIANCES[layer] * np.exp(-0.5 * squared)


def factor(layer: int, features: np.ndarray, scale: float) -> np.ndarray:
    K = covariance(layer, features, features)
    return np.sqrt(scale) * np.linalg.cholesky(K + JITTER * np.eye(len(K)))


def slow_density(v: np.ndarray, w: np.ndarray, eps: np.ndarray) -> np.ndarray:
    """sum_n E[log p(y_n | f_n)] by one point after another, at normals [R, N, nu] of the features."""
    hidden = factor(0, Z, 1.0 / WIDTH) @ v
    K_inverse = np.linalg.inv(covariance(0, Z, Z) + JITTER * np.eye(M))
    values = np.zeros(len(eps))
    for n in range(N):
        cross = covariance(0, Z, X[n : n + 1])[:, 0]
        spread = np.sqrt((VARIANCES[0] + JITTER - cross @ K_inverse @ cross) / WIDTH)
        tril = factor(1, hidden, 1.0)
        for r, e in enumerate(eps[:, n]):
            feature = hidden.T @ K_inverse @ cross + spread * e
            basis = np.linalg.solve(tril, covariance(1, hidden, feature[None])[:, 0])
            variance = VARIANCES[1] + JITTER - basis @ basis
            density = stats.norm.logpdf(Y[n, 0], basis @ w[:, 0], np.sqrt(NOISE))
            values[r] += density - 0.5 * variance / NOISE
    return values


def test_the_density_is_that_of_a_slow_computation() -> None:
    model = make_model()
    v, w = (RNG.normal(size=layer.values.shape) for layer in model.layers)
    num_draws = 2000
    ours, log_prior = model.log_joint_terms(
        (X, Y), [np.tile(part[None], [num_draws, 1, 1]) for part in (v, w)], seed=0
    )
    np.testing.assert_allclose(
        log_prior[0], stats.norm.logpdf(v).sum() + stats.norm.logpdf(w).sum()
    )
    slow = slow_density(v, w, RNG.normal(size=(num_draws, N, WIDTH)))
    assert np.std(slow) > 0.05
    assert stats.ttest_ind(ours.numpy(), slow).pvalue > FALSE_ALARM
    assert stats.ks_2samp(ours.numpy(), slow).pvalue > FALSE_ALARM
    shifted = stats.ttest_ind(ours.numpy() + 0.25 * np.std(slow), slow)
    assert shifted.pvalue < FALSE_ALARM  # a quarter of a deviation would be seen


def test_where_the_chain_stands_is_what_elbo_is_of() -> None:
    model = make_model(num_data=N)
    v, w = (RNG.normal(size=layer.values.shape) for layer in model.layers)
    given = model.elbo_terms((X, Y), num_samples=3, seed=0, values=[tf.constant(v), tf.constant(w)])
    for layer, value in zip(model.layers, (v, w), strict=True):
        layer.values.assign(value)
    stands = model.elbo_terms((X, Y), num_samples=3, seed=0)
    np.testing.assert_array_equal(given, stands)
    assert model.elbo((X, Y), num_samples=3, seed=0) == stands[0] + stands[1]
    assert not model.objective_is_bound


def test_the_density_is_the_same_for_all_rotations() -> None:
    """F -> F U: the symmetry of the true posterior ([NeurIPS21] section 2.5), at the inducing points."""
    model = make_model()
    v, w = (RNG.normal(size=[S, *layer.values.shape]) for layer in model.layers)
    rotation = stats.ortho_group.rvs(WIDTH, random_state=0)
    data = Z, np.sin(Z[:, :1])
    ours, _ = model.log_joint_terms(data, [v, w], seed=0)
    rotated, _ = model.log_joint_terms(data, [v @ rotation, w], seed=0)
    np.testing.assert_allclose(rotated, ours, rtol=2e-3)  # the jitter's noise is not rotated
    assert np.ptp(ours) > 1.0


def quadrature(a: float, y: float, noise: float) -> Any:
    """Expectations under p(v, w) N(y; a |v| w, noise), by a grid."""
    grid = np.linspace(-7.0, 7.0, 1501)
    v, w = np.meshgrid(grid, grid, indexing="ij")
    log_density = -0.5 * (v**2 + w**2) - 0.5 * (y - a * np.abs(v) * w) ** 2 / noise
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    return lambda function: float(np.sum(weights * function(v, w)))


def test_chains_have_the_true_posterior_of_a_deep_linear_one() -> None:
    """One point, which is the inducing point, one function: f = a |v| w, the second factor's root."""
    x, y, noise, num_chains = 1.3, 1.1, 0.4, 2000
    kernels = [Linear(), Linear()]
    model = SGHMCDWP(kernels, Gaussian(noise), [[x]], widths=[1], jitter=1e-9)
    expectation = quadrature(x, y, noise)
    variables = [tf.Variable(RNG.normal(size=[num_chains, 1, 1])) for _ in model.layers]

    def log_density(seed: tf.Tensor) -> tf.Tensor:
        terms = model.log_joint_terms((np.array([[x]]), np.array([[y]])), variables, seed=seed)
        return tf.add_n([tf.reduce_sum(term) for term in terms])

    sampler = SGHMC(variables, step_size=0.05, friction=0.1)
    sampler.chain(log_density, 1, thinning=300, seed=0, adapt=True)
    draws = sampler.chain(log_density, 1, thinning=600, seed=1)
    v, w = (draw.numpy()[0, :, 0, 0] for draw in draws)
    for function in (
        lambda v, w: np.abs(v) * w,
        lambda v, w: v**2,
        lambda v, w: w**2,
        lambda v, w: (v * w) ** 2,
        lambda v, w: v,
    ):
        exact = expectation(function)
        assert stats.ttest_1samp(function(v, w), exact).pvalue > FALSE_ALARM
        wrong = exact + 0.15 * np.std(function(v, w))
        assert stats.ttest_1samp(function(v, w), wrong).pvalue < FALSE_ALARM
    assert min(np.mean(v > 0.0), np.mean(v < 0.0)) > 0.4  # both signs


def test_predictions_are_of_the_values_kept() -> None:
    """At the inducing points, where the functions are known given the values."""
    model = make_model()
    kept = [RNG.normal(size=[S, *layer.values.shape]) for layer in model.layers]
    for layer, values in zip(model.layers, kept, strict=True):
        layer.keep(values)
    mean, _ = model.predict_f(Z, num_samples=S)
    expected = []
    for v, w in zip(*kept, strict=True):
        hidden = factor(0, Z, 1.0 / WIDTH) @ v
        expected.append(factor(1, hidden, 1.0) @ w)
    np.testing.assert_allclose(mean, np.mean(expected, 0), atol=3e-3)  # the jitter's noise is 1e-3
    assert np.std(expected) > 0.5


def test_grams_of_the_values_kept_are_their_products() -> None:
    model = make_model()
    hidden = model.layers[0]
    hidden.keep(RNG.normal(size=[S, M, WIDTH]))
    (_, G), (K, _) = model.sample_grams(Z, num_samples=S, seed=0)
    features = factor(0, Z, 1.0 / WIDTH) @ hidden.samples.numpy()
    products = features @ np.swapaxes(features, 1, 2)
    np.testing.assert_allclose(G, products, atol=0.01)
    np.testing.assert_allclose(K, [covariance(1, F, F) for F in features], atol=3e-3)


def test_values_of_the_prior_are_the_wishart_layer_s_law() -> None:
    """Of standard normal v the Gram matrix has the mean and variances of Wishart(K / nu, nu)."""
    number = 20_000
    layer, other = SampledFeatures(M, WIDTH), WishartLayer(M, WIDTH)
    K = covariance(0, Z, Z) + JITTER * np.eye(M)
    layer.keep(RNG.normal(size=[number, M, WIDTH]))
    features = layer.sample(K, num_samples=number).features
    G = tf.matmul(features, features, transpose_b=True).numpy()
    theirs = other.prior_sample(K, num_samples=number, seed=0).inducing.ii.numpy()
    for i, j in zip(*np.tril_indices(M), strict=True):
        assert stats.ks_2samp(G[:, i, j], theirs[:, i, j]).pvalue > FALSE_ALARM
    assert stats.ks_2samp(1.1 * G[:, 0, 0], theirs[:, 0, 0]).pvalue < FALSE_ALARM


def test_without_a_hidden_layer_it_is_a_sparse_gp_of_sampled_values() -> None:
    """The mean over optimal values of v is GPflow's collapsed sparse GP."""
    model = SGHMCDWP(
        [SquaredExponential(VARIANCES[0], LENGTHSCALES[0])], Gaussian(NOISE), Z, widths=[]
    )
    K = covariance(0, Z, Z) + JITTER * np.eye(M)
    basis = np.linalg.solve(np.linalg.cholesky(K), covariance(0, Z, X)).T
    precision = np.eye(M) + basis.T @ basis / NOISE
    mean = np.linalg.solve(precision, basis.T @ Y) / NOISE
    number = 20_000
    root = np.linalg.cholesky(np.linalg.inv(precision))
    model.output_layer.keep(mean + root @ RNG.normal(size=[number, M, 1]))
    of_inducing, _ = model.output_layer_moments()
    average = factor(0, Z, 1.0) @ np.mean(model.output_layer.samples, 0)
    np.testing.assert_allclose(of_inducing, average, atol=1e-8)
    collapsed = gpflow.models.SGPR((X, Y), model.kernels[0], Z, noise_variance=NOISE)
    exact = collapsed.predict_f(X)
    ours = model.predict_f(X, num_samples=number)
    error = 5.0 * np.sqrt(np.max(exact[1]) / number)
    np.testing.assert_allclose(ours[0], exact[0], atol=error)
    np.testing.assert_allclose(ours[1], exact[1], rtol=0.05)
    whole = model.predict_f(X, full_cov=True, num_samples=100)[1]
    assert whole.shape == (1, N, N)
    with tf.GradientTape() as tape:
        value = model.elbo((X, Y), seed=0)
    assert np.isfinite(value)
    assert all(g is not None for g in tape.gradient(value, model.trainable_variables))


def test_a_trained_model_s_parts_are_taken_as_they_are() -> None:
    trained = DWP.from_data(X, Y, depth=2, num_inducing=M)
    fit(trained, (X, Y), num_steps=3, progress=False)
    parts = trained.kernels, trained.likelihood, trained.inducing_variable
    model = SGHMCDWP(*parts, widths=[2])
    before = [variable.numpy() for variable in model.trainable_variables]
    few = {"num_burn_in": 20, "num_samples": 4, "thinning": 2, "progress": False}
    history = sample(model, (X, Y), learning_rate=None, **few)
    assert history.num_steps == 28
    for variable, value in zip(model.trainable_variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)
    assert all(len(np.unique(layer.samples[:, 0, 0])) == 4 for layer in model.layers)
    sample(model, (X, Y), batch_size=3, **few)
    assert any(
        np.any(variable != value)
        for variable, value in zip(model.trainable_variables, before, strict=True)
    )


def test_a_chain_of_data_starts_near_the_inputs() -> None:
    model = SGHMCDWP.from_data(X, Y, depth=2, num_inducing=N, width=D)
    (_, G), _ = model.sample_grams(X, num_samples=1, seed=0)
    inputs = X @ X.T / D
    assert np.corrcoef(G[0].numpy().ravel(), inputs.ravel())[0, 1] > 0.95
    np.testing.assert_array_equal(model.output_layer.values, np.zeros([N, 1]))


def test_a_layer_that_is_not_finite_is_named() -> None:
    model = make_model()
    model.output_layer.values.assign(np.full([M, 1], np.nan))
    said = model.locate_failure(tf.constant(X), 0)
    assert said == "layer 2 of 2 (SampledOutput) gives values that are not finite"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"widths": [0]}, "width.*0.*needs"),
        ({"widths": []}, "got 2 kernels and 0 widths, needs one kernel more"),
        ({"seed": "one"}, "seed: got 'one', needs an integer"),
        ({"shared_precision": False}, "shared_precision: got False, an output layer whose values"),
    ],
)
def test_bad_arguments_get_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        make_model(**change)
    assert "\n" not in str(raised.value)


def test_what_it_has_not_is_said() -> None:
    with pytest.raises(ValueError, match="prior_kl: SGHMCDWP samples its posterior"):
        make_model().prior_kl()
    kernel = SeparateIndependent([SquaredExponential() for _ in range(2)])
    with pytest.raises(ValueError, match="kernel: got SeparateIndependent, needs one kernel"):
        SGHMCDWP([kernel], Gaussian(NOISE), Z, widths=[], num_latent_gps=2)
    layers = [
        SampledFeatures(M, 2, kernel=SquaredExponential()),
        OutputGP(M, 1, kernel=SquaredExponential()),
    ]
    with pytest.raises(ValueError, match="layers: got some whose values are sampled and some with"):
        DeepKernelProcess(layers, Gaussian(NOISE), Z)
    mean, covariance_of_it = make_model().output_layer_moments(num_samples=2, seed=0)
    np.testing.assert_array_equal(mean, np.zeros([M, 1]))
    np.testing.assert_array_equal(covariance_of_it, np.zeros([M, M]))
