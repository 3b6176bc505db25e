"""Likelihoods of their own numbers of outputs and columns, and draws of observations."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import likelihoods
from gpflow.kernels import SquaredExponential
from model_cases import MODELS, make_model, regression_data
from scipy import stats

from gpflow_dkp.layers import SparseGP
from gpflow_dkp.models import LatentVariableDGP, MonteCarloModel, observation_distribution

FALSE_ALARM = 1e-5
RNG = np.random.default_rng(0)
X = np.linspace(-2.0, 2.0, 40)[:, None]
CLASSES = np.digitize(X, [-0.7, 0.7]).astype(float)
SPREAD = np.sin(2.0 * X) + np.exp(1.5 * X - 3.0) * RNG.normal(size=X.shape)


def switched() -> tuple[likelihoods.Likelihood, np.ndarray]:
    """A precise instrument and a poor one, by turns."""
    index = np.arange(40)[:, None] % 2
    noise = np.where(index == 0, 0.05, 0.8) * RNG.normal(size=X.shape)
    parts = [likelihoods.Gaussian(0.1), likelihoods.Gaussian(0.1)]
    return likelihoods.SwitchedLikelihood(parts), np.hstack([np.sin(2.0 * X) + noise, index])


NEEDS: dict[str, tuple[Callable, int]] = {
    "MultiClass": (lambda: (likelihoods.MultiClass(3), CLASSES), 3),
    "Softmax": (lambda: (likelihoods.Softmax(3), CLASSES), 3),
    "HeteroskedasticTFPConditional": (
        lambda: (likelihoods.HeteroskedasticTFPConditional(), SPREAD),
        2,
    ),
    "SwitchedLikelihood": (switched, 1),
}


def build(kind: str, likelihood: likelihoods.Likelihood, **settings) -> MonteCarloModel:  # type: ignore[no-untyped-def]
    Z = np.linspace(-2.0, 2.0, 6)[:, None]
    kernels = [SquaredExponential(lengthscales=0.7), SquaredExponential()]
    if kind in ("DWP", "DGP"):
        settings["widths"] = [2]
    return MODELS[kind](kernels, likelihood, Z, num_samples=3, **settings)


def data_term_of_a_constant(name: str, likelihood: likelihoods.Likelihood, Y: np.ndarray) -> float:
    """The best log-likelihood of f that is the same for all X: in closed form, or generous."""
    if name in ("MultiClass", "Softmax"):
        shares = np.bincount(Y[:, 0].astype(int)) / len(Y)
        return len(Y) * float(np.sum(shares * np.log(shares)))
    if name == "SwitchedLikelihood":
        targets = [Y[Y[:, 1] == i, 0] for i in (0, 1)]
        return sum(float(np.sum(stats.norm(t.mean(), t.std()).logpdf(t))) for t in targets)
    return float(np.sum(stats.norm(Y.mean(), Y.std()).logpdf(Y)))


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("name", NEEDS)
def test_the_default_number_of_outputs_is_what_the_likelihood_needs(name: str, kind: str) -> None:
    make, needed = NEEDS[name]
    likelihood, Y = make()
    model = build(kind, likelihood)
    assert model.num_latent_gps == model.output_layer.num_outputs == needed
    assert np.isfinite(model.elbo((X, Y), seed=0))


@pytest.mark.parametrize("name", NEEDS)
def test_it_trains_and_beats_a_constant(name: str) -> None:
    """By the density of the data it has seen, on data that a function of X explains."""
    make, _ = NEEDS[name]
    likelihood, Y = make()
    model = build("DWP", likelihood)
    optimizer = tf.keras.optimizers.Adam(0.05)

    @tf.function(autograph=False)
    def step(seed: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = -model.elbo((X, Y), seed=seed)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    losses = [float(step(tf.constant(seed))) for seed in range(200)]
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 10.0
    density = float(tf.reduce_sum(model.predict_log_density((X, Y), num_samples=20)))
    assert density > data_term_of_a_constant(name, likelihood, Y) + 5.0
    if name in ("MultiClass", "Softmax"):
        labels = np.argmax(model.predict_y(X, num_samples=20)[0], -1)
        assert np.mean(labels == CLASSES[:, 0]) > 0.9
    if name == "HeteroskedasticTFPConditional":
        scale = np.sqrt(model.predict_y(X, num_samples=20)[1].numpy()[:, 0])
        # The noise rises by e^6 over the data.
        assert np.mean(scale[-10:]) > 3.0 * np.mean(scale[:10])


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("name", ["MultiClass", "Softmax", "HeteroskedasticTFPConditional"])
def test_a_wrong_number_of_outputs_is_one_clear_line(name: str, kind: str) -> None:
    make, needed = NEEDS[name]
    likelihood, _ = make()
    with pytest.raises(ValueError, match=f"^num_latent_gps: got 5, {name} needs {needed}") as error:
        build(kind, likelihood, num_latent_gps=5)
    assert "\n" not in str(error.value)


def test_wrong_columns_of_y_are_one_clear_line() -> None:
    for name, (make, _) in NEEDS.items():
        likelihood, Y = make()
        model, wide = build("DWP", likelihood), np.hstack([Y, Y[:, :1]])
        for function in (model.elbo, model.predict_log_density):
            with pytest.raises(ValueError, match=r"^data: got Y \(40, \d\), needs \d col") as error:
                function((X, wide))
            assert "\n" not in str(error.value), name


# Draws of observations


def student_t() -> likelihoods.Likelihood:
    return likelihoods.StudentT(scale=0.5, df=8.0)


OBSERVATIONS: dict[str, tuple[Callable[[], likelihoods.Likelihood], int]] = {
    "Gaussian": (lambda: likelihoods.Gaussian(0.2), 2),
    "Gaussian of the inputs": (
        lambda: likelihoods.Gaussian(scale=gpflow.functions.Linear(A=0.3 * np.ones((2, 1)), b=1.5)),
        1,
    ),
    "StudentT": (student_t, 1),
    "Bernoulli": (likelihoods.Bernoulli, 1),
    "Bernoulli of a logistic link": (lambda: likelihoods.Bernoulli(tf.sigmoid), 1),
    "Poisson": (lambda: likelihoods.Poisson(binsize=2.5), 1),
    "Exponential": (likelihoods.Exponential, 1),
    "MultiClass": (lambda: likelihoods.MultiClass(3), 3),
    "Softmax": (lambda: likelihoods.Softmax(3), 3),
    "HeteroskedasticTFPConditional": (likelihoods.HeteroskedasticTFPConditional, 2),
}
SIZE = 4000


@cache
def model_with(name: str) -> MonteCarloModel:
    make, num_latent_gps = OBSERVATIONS[name]
    likelihood = make()
    if name == "Softmax":
        likelihood.num_monte_carlo_points = 500
    return make_model("DWP", 2, likelihood=likelihood, num_latent_gps=num_latent_gps)


def check_mean(draws: np.ndarray, expected: np.ndarray, own_error: np.ndarray | float) -> None:
    """Of independent draws [n, ...], where what is expected has a standard error of its own."""
    error = np.sqrt(draws.var(0, ddof=1) / len(draws) + np.square(own_error))
    quantile = stats.t(len(draws) - 1).isf(0.5 * FALSE_ALARM / draws[0].size)
    difference = np.abs(draws.mean(0) - expected)
    assert np.all(difference <= quantile * error + 1e-9), np.max(difference / error)


@pytest.mark.parametrize("full_cov", [True, False])
@pytest.mark.parametrize("name", OBSERVATIONS)
def test_observations_have_the_predicted_moments(name: str, full_cov: bool) -> None:
    model, points = model_with(name), regression_data()[0][:3]
    draws = model.predict_y_samples(points, SIZE, full_cov=full_cov, seed=0).numpy()
    means, variances = (part.numpy() for part in model.predict_mixture(points, num_samples=SIZE))
    own_error = means.std(0, ddof=1) / np.sqrt(SIZE)
    if name in ("MultiClass", "Softmax"):
        assert draws.shape == (SIZE, 3, 1)
        draws = np.eye(3)[draws[..., 0].astype(int)]
        if name == "Softmax":  # which has its probabilities from draws of f
            own_error = own_error + 0.5 / np.sqrt(500)
        check_mean(draws, means.mean(0), own_error)
        return
    columns = 1 if "Hetero" in name else model.num_latent_gps
    assert draws.shape == (SIZE, 3, columns)
    check_mean(draws, means.mean(0), own_error)
    second = means**2 + variances
    check_mean(draws**2, second.mean(0), second.std(0, ddof=1) / np.sqrt(SIZE))


def test_observations_follow_the_function_that_was_drawn() -> None:
    """The noise is each point's own, the function is shared: their covariance is that of f."""
    model, points = model_with("Gaussian"), regression_data()[0][:3] * 0.1
    draws = model.predict_y_samples(points, SIZE, seed=1).numpy()[..., 0]
    _, covariance = model.predict_f(points, full_cov=True, num_samples=SIZE)
    centred = draws - draws.mean(0)
    products = centred[:, :, None] * centred[:, None]
    check_mean(products, covariance[0].numpy() + 0.2 * np.eye(3), 0.05 * products.std(0))


def test_observations_are_repeatable() -> None:
    model, points = model_with("Poisson"), regression_data()[0][:3]
    first, again, other = (model.predict_y_samples(points, 5, seed=s).numpy() for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.any(first != other)
    assert np.all(first == np.floor(first))
    fresh = [model_with("Gaussian").predict_y_samples(points, 5).numpy() for _ in range(2)]
    assert not np.any(np.equal(*fresh))


def test_observations_of_a_latent_variable_model() -> None:
    likelihood = student_t()
    layer = SparseGP(SquaredExponential(), X[::8], 1)
    model = LatentVariableDGP([layer], likelihood)
    draws = model.predict_y_samples(X[:4], SIZE, seed=0).numpy()
    mean, variance = model.predict_y(X[:4])
    check_mean(draws, mean.numpy(), 0.0)
    check_mean(draws**2, (mean**2 + variance).numpy(), 0.0)


class Shouting(likelihoods.ScalarLikelihood):
    """A user's own."""

    def _scalar_log_prob(self, X, F, Y):  # type: ignore[no-untyped-def]
        return -tf.abs(Y - F)

    def _conditional_mean(self, X, F):  # type: ignore[no-untyped-def]
        return F

    def _conditional_variance(self, X, F):  # type: ignore[no-untyped-def]
        return 2.0 * tf.ones_like(F)


def test_a_likelihood_of_no_known_distribution_is_one_clear_line() -> None:
    model, points = make_model("DWP", 2, likelihood=Shouting()), regression_data()[0][:3]
    with pytest.raises(ValueError, match=r"^likelihood: got Shouting, of which") as error:
        model.predict_y_samples(points, 3)
    assert "\n" not in str(error.value)
    assert "observation_distribution.register" in str(error.value)

    class Registered(Shouting):
        pass

    @observation_distribution.register(Registered)
    def _(likelihood, X, F):  # type: ignore[no-untyped-def]
        return tfp.distributions.Laplace(F, tf.ones_like(F))

    model.likelihood = Registered()
    assert model.predict_y_samples(points, 3, seed=0).shape == (3, 3, 1)
