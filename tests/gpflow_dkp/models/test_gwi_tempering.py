"""Tempering: the best temperature, and predictions at one."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from gpflow.likelihoods import Bernoulli, Gaussian, Softmax
from gwi_cases import LIKELIHOODS, NOISE, XNEW, D, N, X, Y, classes, make_model
from latent_variable_cases import check_mean
from scipy import optimize, stats

from gpflow_dkp.models import tempering
from gpflow_dkp.models.tempering import LOG_TEMPERATURE, tempered


def log_density(mean: np.ndarray, variance: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return stats.norm.logpdf(targets, mean, np.sqrt(variance))


def held_out() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(6)
    return XNEW, np.array([2.0, 0.3]) * rng.normal(size=(7, 2))


def test_temperature_of_a_gaussian_minimises_the_negative_log_density() -> None:
    """Each output's alone, by a scalar search over moments at temperature 1."""
    model = make_model()
    inputs, targets = held_out()
    mean, variance = (part.numpy() for part in model.predict_y(inputs))
    model.temperature.assign([3.0, 5.0])
    value = model.temper((inputs, targets))
    for p in range(2):
        found = optimize.minimize_scalar(
            lambda log_alpha, p=p: (
                -np.mean(log_density(mean[:, p], np.exp(log_alpha) * variance[:, p], targets[:, p]))
            ),
            bounds=(-8.0, 8.0),
            method="bounded",
            options={"xatol": 1e-9},
        )
        assert float(model.temperature[p]) == pytest.approx(np.exp(found.x), rel=1e-5)
    alpha = model.temperature.numpy()
    np.testing.assert_allclose(alpha, np.mean((targets - mean) ** 2 / variance, 0), rtol=1e-9)
    expected = log_density(mean, alpha * variance, targets).sum(1)
    assert value == pytest.approx(np.mean(expected), abs=1e-9)
    np.testing.assert_allclose(model.predict_log_density((inputs, targets)), expected, atol=1e-9)


def test_temperature_multiplies_predictive_variances() -> None:
    model = make_model()
    mean, variance = (part.numpy() for part in model.predict_f(XNEW))
    covariance = model.predict_f(XNEW, full_cov=True)[1].numpy()
    alpha = np.array([0.4, 3.0])
    model.temperature.assign(alpha)
    np.testing.assert_allclose(model.predict_f(XNEW)[0], mean, rtol=1e-12)
    np.testing.assert_allclose(model.predict_f(XNEW)[1], alpha * variance, rtol=1e-9)
    full = model.predict_f(XNEW, full_cov=True)[1]
    np.testing.assert_allclose(full, alpha[:, None, None] * covariance, rtol=1e-9)
    actual_mean, actual = model.predict_y(XNEW)
    np.testing.assert_allclose(actual_mean, mean, rtol=1e-12)
    np.testing.assert_allclose(actual, alpha * (variance + NOISE), rtol=1e-9)
    density = model.predict_log_density((X, Y))
    moments = (part.numpy() for part in model.predict_y(X))
    np.testing.assert_allclose(density, log_density(*moments, Y).sum(1), rtol=1e-9)
    quantile = model.predict_quantiles(XNEW, [0.9])[0]
    expected = stats.norm.ppf(0.9, mean, np.sqrt(alpha * (variance + NOISE)))
    np.testing.assert_allclose(quantile, expected, atol=1e-9)


def test_temperature_multiplies_noise_that_varies_with_the_input() -> None:
    noise = gpflow.functions.Polynomial(degree=2, input_dim=D, output_dim=1)
    noise.w.assign(np.full([1, noise.w.shape[1]], 0.2))
    model = make_model(likelihood=Gaussian(variance=noise))
    before = model.predict_y(XNEW)[1].numpy()
    assert np.ptp(model.likelihood.variance_at(XNEW)) > 0.1
    model.temperature.assign([0.4, 3.0])
    np.testing.assert_allclose(model.predict_y(XNEW)[1], np.array([0.4, 3.0]) * before, rtol=1e-9)


@pytest.mark.parametrize("name", ["Gaussian", "MultiClass"])
def test_training_ignores_the_temperature(name: str) -> None:
    make, targets = LIKELIHOODS[name]
    model = make_model(2 if name == "Gaussian" else 3, likelihood=make())
    before = float(model.elbo((X, targets), seed=0)), float(model.squared_distance(X))
    model.temperature.assign(np.linspace(0.2, 4.0, model.num_latent_gps))
    after = float(model.elbo((X, targets), seed=0)), float(model.squared_distance(X))
    assert after == before
    assert model.temperature.unconstrained_variable.ref() not in [
        variable.ref() for variable in model.trainable_variables
    ]


def few_draws() -> Softmax:
    softmax = Softmax(3)
    softmax.num_monte_carlo_points = 20
    return softmax


CLASSIFIERS: dict[str, Callable] = {
    "MultiClass": classes,
    "Softmax": lambda _: few_draws(),
    "Bernoulli": lambda _: Bernoulli(),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_tempering_of_classes_does_not_lower_the_density(name: str) -> None:
    """And no temperature a step away, within the search's bounds, is better than the one found."""
    binary = name == "Bernoulli"
    model = make_model(1 if binary else 3, likelihood=CLASSIFIERS[name](3))
    # Right at six points and wrong at two, so that a best temperature exists.
    mean = model.predict_f(X)[0].numpy()
    right = (mean > 0).astype(int) if binary else np.argmax(mean, 1)[:, None]
    wrong = np.arange(N)[:, None] < 2
    data = X, np.where(wrong, (right + 1) % (2 if binary else 3), right)
    before = float(np.mean(model.predict_log_density(data)))
    assert model.held_out_log_density(data) == pytest.approx(before, abs=1e-12)
    np.testing.assert_array_equal(model.temperature, 1.0)
    model.temperature.assign(np.linspace(0.1, 9.0, model.num_latent_gps))
    value = model.temper(data)
    assert value >= before
    assert value == pytest.approx(float(np.mean(model.predict_log_density(data))), abs=1e-9)
    best = model.temperature.numpy()
    assert np.max(np.abs(np.log(best))) > 0.1
    for p, factor in itertools.product(range(model.num_latent_gps), (0.8, 1.25)):
        nearby = best.copy()
        nearby[p] = np.clip(factor * best[p], *np.exp([-LOG_TEMPERATURE, LOG_TEMPERATURE]))
        model.temperature.assign(nearby)
        assert float(np.mean(model.predict_log_density(data))) < value + 1e-5


def class_probabilities(mean: np.ndarray, variance: np.ndarray, epsilon: float) -> np.ndarray:
    """p(j) [N, J] by a sum over 12 000 values: of the chance that f_j is there and all others are below."""
    scale, share = np.sqrt(variance), np.empty_like(mean)
    for n in range(len(mean)):
        values = np.sort(np.ravel(mean[n] + scale[n] * np.linspace(-9.0, 9.0, 4001)[:, None]))
        below = stats.norm.cdf(0.5 * (values[1:] + values[:-1])[:, None], mean[n], scale[n])
        there = np.diff(stats.norm.cdf(values[:, None], mean[n], scale[n]), axis=0)
        for j in range(mean.shape[1]):
            share[n, j] = np.sum(there[:, j] * np.prod(np.delete(below, j, 1), 1))
    return (1.0 - epsilon) * share + epsilon / (mean.shape[1] - 1) * (1.0 - share)


def test_tempered_probabilities_are_of_tempered_variances() -> None:
    """The likelihood has no noise to temper. Untempered, they are the likelihood's own."""
    model = make_model(3, likelihood=classes())
    mean, variance = (part.numpy() for part in model.predict_f(XNEW))
    expected, _ = model.likelihood.predict_mean_and_var(XNEW, mean, variance)
    np.testing.assert_allclose(model.predict_y(XNEW)[0], expected, rtol=1e-12)
    for alpha, error in (([0.2, 1.5, 4.0], 1e-5), ([0.01, 1.0, 100.0], 1e-2)):
        model.temperature.assign(alpha)
        epsilon = float(model.likelihood.invlink.epsilon.numpy())
        expected = class_probabilities(mean, np.array(alpha) * variance, epsilon)
        probabilities, spread = model.predict_y(XNEW)
        np.testing.assert_allclose(probabilities, expected, rtol=0, atol=error)
        np.testing.assert_allclose(np.sum(probabilities, 1), 1.0, rtol=1e-12)
        np.testing.assert_allclose(spread, probabilities * (1.0 - probabilities), rtol=1e-12)
        labels = np.arange(len(XNEW))[:, None] % 3
        density = np.log(np.take_along_axis(probabilities.numpy(), labels, 1))[:, 0]
        np.testing.assert_allclose(model.predict_log_density((XNEW, labels)), density, rtol=1e-9)


def test_tempering_of_classes_goes_through_the_rows_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the temperature and probabilities of all rows at once: the memory does not grow with them."""
    inputs = np.random.default_rng(0).uniform(-2.0, 2.0, size=(30, D))
    model = make_model(3, likelihood=classes())
    labels = np.argmax(model.predict_f(inputs)[0], 1)[:, None]
    labels[::4] = (labels[::4] + 1) % 3
    model.temper((inputs, labels), batch_size=None)
    temperature, probabilities = model.temperature.numpy(), model.predict_y(inputs)[0].numpy()
    link, rows = model.likelihood.invlink, []
    whole = link.prob_is_largest

    def recorded(chosen: tf.Tensor, *arguments: Any) -> tf.Tensor:
        rows.append(chosen.shape[0])
        return whole(chosen, *arguments)

    monkeypatch.setattr(link, "prob_is_largest", recorded)
    monkeypatch.setattr(tempering, "QUADRATURE_ROWS", 12)
    model.temper((inputs, labels), batch_size=12)
    np.testing.assert_allclose(model.temperature, temperature, rtol=1e-9)
    model.temperature.assign(temperature)
    np.testing.assert_allclose(model.predict_y(inputs)[0], probabilities, rtol=1e-12)
    assert max(rows) == 12


@pytest.mark.parametrize("seed", range(2))
def test_tempered_density_of_classes_is_no_error_of_the_quadrature(seed: int) -> None:
    """Of labels that are drawn with other variances, so that the best ones differ much."""
    rng = np.random.default_rng(seed)
    inputs = rng.uniform(-2.0, 2.0, size=(60, D))
    model = make_model(3, likelihood=classes())
    mean, variance = (part.numpy() for part in model.predict_f(inputs))
    drawn = mean + np.sqrt(variance * [0.01, 1.0, 30.0]) * rng.normal(size=mean.shape)
    labels = np.argmax(drawn, 1)[:, None]
    reported = model.temper((inputs, labels))
    assert reported == pytest.approx(
        float(np.mean(model.predict_log_density((inputs, labels)))), abs=1e-9
    )
    tempered = variance * model.temperature.numpy()
    probabilities = class_probabilities(
        mean, tempered, float(model.likelihood.invlink.epsilon.numpy())
    )
    expected = np.mean(np.log(np.take_along_axis(probabilities, labels, 1)))
    assert reported == pytest.approx(expected, abs=3e-3)


def test_held_out_density_is_tempered_and_leaves_the_temperature() -> None:
    model = make_model()
    model.temperature.assign([2.0, 0.7])
    untempered = float(np.mean(model.predict_log_density(held_out())))
    value = model.held_out_log_density(held_out())
    np.testing.assert_allclose(model.temperature, [2.0, 0.7], rtol=1e-12)
    assert value > untempered + 0.01
    assert value == pytest.approx(model.temper(held_out()), abs=1e-12)


def test_perfect_predictions_have_a_density() -> None:
    model = make_model(1, at_prior=True)
    value = model.temper((X, np.zeros([N, 1])))
    assert value > 10.0
    assert np.all(model.predict_y(X)[1] > 0.0)


@pytest.mark.parametrize("num_classes", range(2, 10))
def test_untempered_classes_are_exactly_the_likelihoods(num_classes: int) -> None:
    """Of any number, also where the temperature is vectorised; and after a round trip of its value."""
    model = make_model(num_classes, likelihood=classes(num_classes))
    labels = np.arange(N)[:, None] % num_classes
    mean, variance = model.predict_f(X)
    expected, _ = model.likelihood.predict_mean_and_var(X, mean, variance)
    density = model.likelihood.predict_log_density(X, mean, variance, labels)
    for _ in range(2):
        np.testing.assert_array_equal(model.predict_y(X)[0], expected)
        np.testing.assert_array_equal(model.predict_log_density((X, labels)), density)
        model.temperature.assign(np.full(num_classes, 3.0))
        assert not np.allclose(model.predict_y(X)[0], expected, atol=1e-6)
        model.temperature.assign(np.ones(num_classes))


def test_a_temperature_survives_a_checkpoint(tmp_path: Path) -> None:
    """Exactly, untempered too."""
    for values in (np.ones(4), np.array([0.3, 1.0, 2.0, 5.0])):
        model, other = (make_model(4, likelihood=classes(4)) for _ in range(2))
        model.temperature.assign(values)
        other.temperature.assign(np.full(4, 7.0))
        path = tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
        tf.train.Checkpoint(model=other).read(path).assert_consumed()
        np.testing.assert_array_equal(other.predict_y(XNEW)[0], model.predict_y(XNEW)[0])
        gpflow.utilities.multiple_assign(other, gpflow.utilities.read_values(model))
        np.testing.assert_allclose(other.predict_y(XNEW)[0], model.predict_y(XNEW)[0], rtol=1e-12)


@pytest.mark.parametrize("num_outputs", [1, 2, 5])
def test_untempered_noise_is_exactly_the_likelihoods(num_outputs: int) -> None:
    likelihood = tempered(Gaussian(0.3), tf.zeros([num_outputs], tf.float64))
    moments = tf.ones([N, num_outputs], tf.float64), tf.fill([N, num_outputs], np.float64(0.7))
    for actual, expected in zip(
        likelihood.predict_mean_and_var(X, *moments),
        Gaussian(0.3).predict_mean_and_var(X, *moments),
        strict=True,
    ):
        np.testing.assert_array_equal(actual, expected)


def test_other_likelihoods_are_as_they_are() -> None:
    """Theirs is to see alpha r."""
    for likelihood in (Bernoulli(), Softmax(3), gpflow.likelihoods.StudentT()):
        assert tempered(likelihood, tf.ones([3], tf.float64)) is likelihood


def test_draws_of_observations_are_tempered_with_their_noise() -> None:
    """Their variance is alpha (r + s2), as `predict_y` has it."""
    model = make_model()
    model.temperature.assign([0.4, 3.0])
    mean, variance = (part.numpy() for part in model.predict_y(XNEW[:2]))
    draws = model.predict_y_samples(XNEW[:2], 7000, seed=0).numpy()
    check_mean(draws.reshape(7000, -1), mean.reshape(-1))
    check_mean(((draws - mean) ** 2).reshape(7000, -1), variance.reshape(-1))


def test_compiled_predictions_follow_the_temperature() -> None:
    """A compiled prediction sees a temperature that is set after it was traced."""
    model = make_model(4, likelihood=classes(4))
    compiled = tf.function(model.predict_y, autograph=False)
    for values in (np.ones(4), np.array([0.3, 1.0, 2.0, 5.0])):
        model.temperature.assign(values)
        np.testing.assert_allclose(compiled(XNEW)[0], model.predict_y(XNEW)[0], rtol=1e-10)


def test_one_mean_for_all_outputs_has_no_temperature() -> None:
    """It would broadcast."""
    model, (inputs, targets) = make_model(), held_out()
    mean, variance = (part[None] for part in model.predict_f(inputs))
    moments = mean[..., :1], variance
    with pytest.raises(ShapeMismatchError, match="moments"):
        tempering.best_temperature(model.likelihood, inputs, targets, moments, None)
