"""NeuralNetwork: linear networks against closed forms, dropout by all its masks, ensembles, curvature."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import Bernoulli, Gaussian, MultiClass, Poisson, Softmax, StudentT
from scipy.special import expit, logsumexp
from scipy.stats import multivariate_normal, norm

import gpflow_dkp
from gpflow_dkp.models import NeuralNetwork
from gpflow_dkp.models.neural_network import INFERENCES
from gpflow_dkp.training import fit

N, D, NOISE, PRIOR = 12, 2, 0.3, 0.7
rng = np.random.default_rng(0)
X = rng.normal(size=(N, D))
Y = X @ np.array([[0.8], [-0.5]]) + 0.4 + np.sqrt(NOISE) * rng.normal(size=(N, 1))
XNEW = rng.normal(size=(5, D))
inferences = pytest.mark.parametrize("inference", INFERENCES)


def make(inference: str, *, hidden: tuple[int, ...] = (4, 3), **settings: Any) -> NeuralNetwork:
    likelihood = settings.pop("likelihood", Gaussian(NOISE))
    return NeuralNetwork(
        D,
        likelihood,
        inference=inference,
        hidden_units=hidden,
        weight_variance=PRIOR,
        **settings,
    )


def design(x: np.ndarray) -> np.ndarray:
    return np.hstack([x, np.ones((len(x), 1))])


def linear_posterior() -> tuple[np.ndarray, np.ndarray]:
    """Mean [Q] and covariance [Q, Q] of Bayesian linear regression."""
    A = design(X)
    covariance = np.linalg.inv(A.T @ A / NOISE + np.eye(D + 1) / PRIOR)
    return covariance @ A.T @ Y[:, 0] / NOISE, covariance


def at_optimum(model: NeuralNetwork) -> None:
    """The linear network of the highest posterior density."""
    mean, _ = linear_posterior()
    model.weights[0].assign(mean[None, :D, None])
    model.offsets[0].assign(mean[None, None, D:])


def test_map_objective_is_the_log_joint_density() -> None:
    model = make("map", hidden=())
    at_optimum(model)
    mean, _ = linear_posterior()
    expected = norm(design(X) @ mean, np.sqrt(NOISE)).logpdf(Y[:, 0]).sum()
    expected += norm(0.0, np.sqrt(PRIOR)).logpdf(mean).sum()
    np.testing.assert_allclose(model.elbo((X, Y)), expected, rtol=1e-10)
    with tf.GradientTape() as tape:
        value = model.elbo((X, Y))
    for gradient in tape.gradient(value, model.trainable_variables[:2]):
        np.testing.assert_allclose(gradient, np.zeros_like(gradient), atol=1e-10)


def test_the_objective_of_given_weights_has_no_draws() -> None:
    """Not even where GPflow's likelihood takes expectations by Monte Carlo."""
    model = NeuralNetwork(D, Softmax(3), inference="map", hidden_units=())
    random = np.random.default_rng(1)
    model.weights[0].assign(random.normal(size=(1, D, 3)))
    model.offsets[0].assign(random.normal(size=(1, 1, 3)))
    labels = np.arange(N)[:, None] % 3
    f = X @ model.weights[0].numpy()[0] + model.offsets[0].numpy()[0]
    expected = np.take_along_axis(f - logsumexp(f, axis=1, keepdims=True), labels, 1).sum()
    terms = [float(model.elbo_terms((X, labels), seed=seed)[0]) for seed in (0, 1)]
    assert terms[0] == terms[1] == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("full_cov", [False, True])
def test_laplace_of_a_linear_network_is_exact(full_cov: bool) -> None:
    model = make("laplace", hidden=())
    at_optimum(model)
    before = model.predict_f(XNEW)[1]
    np.testing.assert_allclose(before, np.zeros_like(before), atol=1e-10)
    model.find_curvature((X, Y), batch_size=5)
    mean, covariance = linear_posterior()
    A = design(XNEW)
    actual_mean, actual = model.predict_f(XNEW, full_cov=full_cov)
    np.testing.assert_allclose(actual_mean[:, 0], A @ mean, rtol=1e-10)
    expected = A @ covariance @ A.T
    expected = expected[None] if full_cov else np.diag(expected)[:, None]
    np.testing.assert_allclose(actual, expected, rtol=1e-8, atol=1e-10)


def test_joint_draws_of_more_points_than_weights() -> None:
    model = make("laplace", hidden=())
    at_optimum(model)
    model.find_curvature((X, Y))
    points = np.random.default_rng(4).normal(size=(40, D))
    draws = model.predict_f_samples(points, 4000, seed=0).numpy()[..., 0]
    mean, covariance = linear_posterior()
    A = design(points)
    spread = np.sqrt(np.diag(A @ covariance @ A.T))
    np.testing.assert_allclose(draws.mean(0), A @ mean, atol=5.0 * spread.max() / np.sqrt(4000))
    np.testing.assert_allclose(draws.std(0), spread, rtol=0.1)


@pytest.mark.parametrize(
    "likelihood", [Gaussian(NOISE), Bernoulli(), Poisson(), StudentT(scale=0.5, df=4.0), Softmax(3)]
)
def test_curvature_is_that_of_finite_differences(likelihood: Any) -> None:
    """J by differences of the network, Lambda by those of the log density, clipped at zero."""
    model = make("laplace", hidden=(3,), likelihood=likelihood, seed=2)
    targets = {Softmax: np.arange(N) % 3, Bernoulli: np.arange(N) % 2, Poisson: np.arange(N) % 4}
    y = targets.get(type(likelihood), Y[:, 0])[:, None].astype(float)
    model.find_curvature((X, y))
    values = [value for pair in zip(model.weights, model.offsets, strict=True) for value in pair]
    start = np.concatenate([value.numpy().ravel() for value in values])

    def network(flat: np.ndarray) -> np.ndarray:
        position, parts = 0, []
        for value in values:
            size = int(np.prod(value.shape))
            parts.append(flat[position : position + size].reshape(value.shape[1:]))
            position += size
        hidden = np.tanh(X @ parts[0] + parts[1])
        return hidden @ parts[2] + parts[3]

    step = 1e-5
    J = np.stack(
        [
            (network(start + step * unit) - network(start - step * unit)) / (2 * step)
            for unit in np.eye(len(start))
        ],
        -1,
    )
    f = network(start)
    P = f.shape[1]
    labels = y.astype(int) if isinstance(likelihood, Softmax) else y

    def log_density(offset: np.ndarray) -> np.ndarray:
        return likelihood.log_prob(X, tf.constant(f + offset), tf.constant(labels)).numpy()

    h, eye = 1e-4, np.eye(P)
    Lambda = np.zeros((N, P, P))
    for i, j in itertools.product(range(P), range(P)):
        a, b = h * eye[i], h * eye[j]
        second = log_density(a + b) - log_density(a - b) - log_density(b - a) + log_density(-a - b)
        Lambda[:, i, j] = -second / (4 * h**2)
    roots, vectors = np.linalg.eigh(Lambda)
    Lambda = np.einsum("nij,nj,nkj->nik", vectors, np.maximum(roots, 0.0), vectors)
    expected = np.einsum("npq,npr,nrs->qs", J, Lambda, J) + np.eye(len(start)) / PRIOR
    tril = model.precision_tril.numpy()
    np.testing.assert_allclose(tril @ tril.T, expected, rtol=1e-4, atol=1e-5)


def test_mean_field_bound_is_tight_where_the_posterior_factorises() -> None:
    """Orthogonal columns without an offset's: then the bound is the log evidence."""
    inputs = np.vstack([np.eye(D), -np.eye(D)])
    targets = np.array([[0.5], [0.2], [-0.4], [0.1]])
    model = make("mean-field", hidden=())
    A = design(inputs)
    covariance = np.linalg.inv(A.T @ A / NOISE + np.eye(D + 1) / PRIOR)
    mean = covariance @ A.T @ targets[:, 0] / NOISE
    np.testing.assert_allclose(covariance, np.diag(np.diag(covariance)), atol=1e-15)
    model.weights[0].assign(mean[None, :D, None])
    model.offsets[0].assign(mean[None, None, D:])
    scales = np.sqrt(np.diag(covariance))
    model.weight_scales[0].assign(scales[None, :D, None])
    model.offset_scales[0].assign(scales[None, None, D:])
    evidence = multivariate_normal(
        np.zeros(len(A)), PRIOR * A @ A.T + NOISE * np.eye(len(A))
    ).logpdf(targets[:, 0])
    draws = [float(model.elbo((inputs, targets), num_samples=2000, seed=s)) for s in range(8)]
    error = np.std(draws) / np.sqrt(len(draws))
    assert abs(np.mean(draws) - evidence) < 4.0 * error < 0.05
    # Any other posterior has a lower one.
    model.weights[0].assign(model.weights[0] + 0.3)
    assert float(model.elbo((inputs, targets), num_samples=2000, seed=0)) < evidence - 0.1


def test_mean_field_draws_have_the_posteriors_moments() -> None:
    model = make("mean-field", hidden=(), num_samples=3)
    model.weight_scales[0].assign([[[0.4], [0.2]]])
    model.offset_scales[0].assign([[[0.3]]])
    S = 20_000
    mean, variance = model.predict_mixture(XNEW, num_samples=S, seed=0)
    A = design(XNEW)
    weights = np.concatenate([model.weights[0].numpy().ravel(), [0.0]])
    expected = A**2 @ np.array([0.16, 0.04, 0.09])
    np.testing.assert_allclose(np.mean(mean, 0)[:, 0], A @ weights, atol=5 * np.sqrt(2.0 / S))
    np.testing.assert_allclose(np.var(mean, 0)[:, 0], expected, rtol=5 * np.sqrt(2.0 / S))
    np.testing.assert_allclose(variance, np.full(variance.shape, NOISE), rtol=1e-6)


def test_dropout_draws_are_those_of_all_masks() -> None:
    """Mean and variance of f over the 2^3 masks of one hidden layer, which hold for all points alike."""
    rate = 0.3
    model = make("dropout", hidden=(3,), dropout_rate=rate)
    W, V = (weight.numpy()[0] for weight in model.weights)
    hidden = np.tanh(XNEW @ W)
    masks = np.array(list(itertools.product([0.0, 1.0], repeat=3)))
    probabilities = np.prod(np.where(masks > 0, 1.0 - rate, rate), 1)
    outputs = np.einsum("nh,kh,h->kn", hidden, masks / (1.0 - rate), V[:, 0])
    S = 20_000
    draws = np.asarray(model.predict_mixture(XNEW, num_samples=S, seed=1).mean)[..., 0]
    assert len(np.unique(np.round(draws, 10), axis=0)) == 8
    expected = probabilities @ outputs
    spread = probabilities @ outputs**2 - expected**2
    np.testing.assert_allclose(draws.mean(0), expected, atol=5 * np.sqrt(spread.max() / S))
    np.testing.assert_allclose(draws.var(0), spread, rtol=0.05)


def test_dropout_of_nothing_is_map() -> None:
    settings = {"hidden": (4,), "seed": 3}
    dropout, map_ = make("dropout", dropout_rate=0.0, **settings), make("map", **settings)
    np.testing.assert_allclose(dropout.elbo((X, Y), seed=0), map_.elbo((X, Y)), rtol=1e-12)


def test_an_ensemble_is_its_members_side_by_side() -> None:
    model = make("ensemble", num_members=3, seed=5)
    history = fit(model, (X, Y), num_steps=30, learning_rate=0.02, progress=False)
    assert history.elbo[-1] > history.elbo[0]
    means, objectives = [], []
    for member in range(3):
        alone = make("map", likelihood=model.likelihood)
        for ours, theirs in zip(
            [*alone.weights, *alone.offsets], [*model.weights, *model.offsets], strict=True
        ):
            ours.assign(theirs[member : member + 1])
        means.append(alone.predict_mixture(XNEW, num_samples=1).mean[0])
        objectives.append(float(alone.elbo((X, Y))))
    mixture = model.predict_mixture(XNEW, num_samples=100)
    np.testing.assert_allclose(mixture.mean, means, rtol=0, atol=1e-12)
    functions = model.predict_f_samples(XNEW, 7, full_cov=False, seed=0)
    np.testing.assert_allclose(functions, (means * 3)[:7], rtol=0, atol=1e-5)
    np.testing.assert_allclose(model.elbo((X, Y)), np.mean(objectives), rtol=1e-10)
    assert not np.allclose(means[0], means[1], atol=1e-3)


@inferences
def test_training_raises_the_objective_and_a_file_keeps_the_model(
    inference: str, tmp_path: Path
) -> None:
    model = make(inference, num_samples=2)
    history = fit(model, (X, Y), num_steps=60, learning_rate=0.02, progress=False, seed=0)
    assert np.mean(history.elbo[-10:]) > np.mean(history.elbo[:10])
    assert model.objective_is_bound == (inference == "mean-field")
    if inference == "laplace":
        model.find_curvature((X, Y))
    path = tmp_path / "network.dkp"
    model.save(path)
    loaded = gpflow_dkp.load(path)
    for ours, theirs in zip(
        model.predict_y(XNEW, seed=1), loaded.predict_y(XNEW, seed=1), strict=True
    ):
        np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-12)
    assert model.predict_f_samples(XNEW, 7, seed=0).shape == (7, 5, 1)
    assert np.all(np.isfinite(model.predict_log_density((X, Y))))


@inferences
def test_classes(inference: str) -> None:
    inputs = np.random.default_rng(2).normal(size=(80, D))
    labels = (inputs[:, :1] > 0).astype(float)
    model = make(inference, likelihood=Bernoulli())
    fit(model, (inputs, labels), num_steps=200, learning_rate=0.03, progress=False, seed=0)
    if inference == "laplace":
        model.find_curvature((inputs, labels))
    probability, _ = model.predict_y(inputs, num_samples=50, seed=0)
    assert np.mean((probability.numpy() > 0.5) == labels) > 0.9


def test_prior_draws_of_a_linear_network_have_its_covariance() -> None:
    S = 20_000
    draws = make("map", hidden=()).sample_prior(XNEW, S, seed=0).numpy()[..., 0]
    expected = PRIOR * design(XNEW) @ design(XNEW).T
    np.testing.assert_allclose(np.cov(draws.T), expected, atol=6 * expected.max() / np.sqrt(S))
    np.testing.assert_allclose(draws.mean(0), np.zeros(5), atol=5 * np.sqrt(expected.max() / S))


def test_bernoulli_curvature_of_one_weight_by_hand() -> None:
    """p (1 - p) x^2 with GPflow's probit link replaced by the logistic one."""
    likelihood = Bernoulli(invlink=lambda f: tf.sigmoid(f))
    model = NeuralNetwork(1, likelihood, inference="laplace", hidden_units=())
    model.weights[0].assign([[[0.6]]])
    x = np.array([[0.5], [-1.0], [2.0]])
    model.find_curvature((x, np.array([[1.0], [0.0], [1.0]])))
    p = expit(0.6 * x[:, 0])
    A = design(x)
    expected = (A.T * (p * (1.0 - p))) @ A + np.eye(2)
    tril = model.precision_tril.numpy()
    np.testing.assert_allclose(tril @ tril.T, expected, rtol=1e-6)


def test_what_is_not_allowed_is_said() -> None:
    for settings, says in (
        ({"inference": "hmc"}, r"inference: got 'hmc', choose one of map, mean-field, dropout"),
        ({"dropout_rate": 1.0}, r"dropout_rate: got 1.0, needs a number from 0 to below 1"),
        ({"weight_variance": 0.0}, r"weight_variance: got 0.0"),
        ({"num_members": 0}, r"num_members: got 0"),
        ({"activation": "sine"}, r"activation: got 'sine'"),
    ):
        with pytest.raises(ValueError, match=says):
            NeuralNetwork(D, **settings)
    with pytest.raises(ValueError, match=r"find_curvature: got inference='map', needs 'laplace'"):
        make("map").find_curvature((X, Y))
    with pytest.raises(ValueError, match=r"likelihood: got MultiClass, .* no slope .* Softmax"):
        NeuralNetwork(D, MultiClass(3))
