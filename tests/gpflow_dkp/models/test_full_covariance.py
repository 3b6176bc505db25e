"""Joint predictions: the covariance of all points, and draws of whole functions."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import SquaredExponential
from model_cases import D, M, make_model, regression_data
from prediction_cases import CASES, WITH_DRAWS, data_of, diwp_of_many_features, model_of
from scipy import stats

from gpflow_dkp.models import DGP, DIWP, DWP, NNGP, DeepKernelProcess
from gpflow_dkp.random import split

FALSE_ALARM = 1e-5
"""Chance that a statistical test of a correct model fails."""


def standard_errors(num_comparisons: int, num_draws: int) -> float:
    """How many of them no mean of `num_draws` is away from its expectation."""
    return float(stats.t(num_draws - 1).isf(0.5 * FALSE_ALARM / num_comparisons))


def check_equal_means(first: np.ndarray, second: np.ndarray, rounding: float = 1e-9) -> float:
    """Independent draws [n, ...] and [m, ...] have one mean; returns the difference that is allowed."""
    variance = first.var(0, ddof=1) / len(first) + second.var(0, ddof=1) / len(second)
    allowed = standard_errors(first[0].size, min(len(first), len(second))) * np.sqrt(variance)
    difference = np.abs(first.mean(0) - second.mean(0))
    assert np.all(difference <= allowed + rounding), np.max(difference / (allowed + rounding))
    return float(np.max(allowed))


def components(case: str, X: np.ndarray, num_samples: int, seed: int, full_cov: bool):  # type: ignore[no-untyped-def]
    """Mean [S, N, P] and variance [S, N, P] or covariance [S, P, N, N] of f given each sample."""
    model = model_of(case)
    for_draws, for_points = split(seed, 2)
    draws = model.sample_layers(num_samples, for_draws)
    moments = model.condition_layers(
        draws, tf.constant(X), num_samples, for_points, full_cov=full_cov
    )
    return tuple(moment.numpy() for moment in moments)


@pytest.mark.parametrize("case", CASES)
def test_shapes_and_symmetry(case: str) -> None:
    (X, _), model = data_of(case), model_of(case)
    mean, covariance = (part.numpy() for part in model.predict_f(X, full_cov=True, num_samples=5))
    num_outputs = model.num_latent_gps
    assert mean.shape == (6, num_outputs)
    assert covariance.shape == (num_outputs, 6, 6)
    np.testing.assert_allclose(covariance, covariance.transpose(0, 2, 1), rtol=0, atol=1e-12)
    assert np.min(np.linalg.eigvalsh(covariance)) > 0.0
    assert model.predict_f_samples(X, 7, seed=0).shape == (7, 6, num_outputs)
    again = model.predict_f_samples(X, 7, seed=0)
    np.testing.assert_array_equal(model.predict_f_samples(X, 7, seed=0), again)
    assert not np.any(np.equal(model.predict_f_samples(X, 7, seed=1), again))


def test_full_covariance_of_the_nngp_is_in_closed_form() -> None:
    """K_XX - K_XZ (K_ZZ + E)^{-1} K_ZX with the composed kernel, and its diagonal the variances."""
    X, model = data_of("NNGP")[0], model_of("NNGP")
    layer, jitter = model.output_layer, float(model.jitter)
    Z, kernel = model.inducing_variable.Z.numpy(), layer.kernel
    tril = layer.precision_tril.numpy()
    noisy = kernel(Z).numpy() + jitter * np.eye(M) + np.linalg.inv(tril @ tril.T)
    cross = kernel(Z, X).numpy()
    expected = kernel(X).numpy() + jitter * np.eye(6) - cross.T @ np.linalg.solve(noisy, cross)
    mean, covariance = model.predict_f(X, full_cov=True)
    np.testing.assert_allclose(covariance[0], expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        mean, cross.T @ np.linalg.solve(noisy, layer.v.numpy()), rtol=0, atol=1e-10
    )
    _, variance = model.predict_f(X)
    np.testing.assert_allclose(variance[:, 0], np.diag(expected), rtol=0, atol=1e-10)


@pytest.mark.parametrize("case", WITH_DRAWS)
def test_a_point_among_others_has_the_law_it_has_alone(case: str) -> None:
    """First and second moments of f, and the law of its moments given a sample."""
    X, size = data_of(case)[0][:3], 3000
    mean, variance = components(case, X, size, 0, full_cov=False)
    joint_mean, covariance = components(case, X, size, 1, full_cov=True)
    joint_variance = np.diagonal(covariance, axis1=-2, axis2=-1).transpose(0, 2, 1)
    # Of a function with values and standard deviations of about 1.
    assert check_equal_means(mean, joint_mean) < 0.3
    check_equal_means(mean**2 + variance, joint_mean**2 + joint_variance)
    check_equal_means(np.sqrt(variance), np.sqrt(joint_variance))
    check_equal_means(np.tanh(mean) * variance, np.tanh(joint_mean) * joint_variance)


@pytest.mark.parametrize("case", WITH_DRAWS)
def test_joint_draws_have_the_covariance_of_predict_f(case: str) -> None:
    X, size = data_of(case)[0][:3], 4000
    draws = model_of(case).predict_f_samples(X, size, seed=2).numpy()
    mean, covariance = components(case, X, size, 3, full_cov=True)
    check_equal_means(draws, mean)
    products = np.einsum("snp,smp->spnm", draws, draws)
    allowed = check_equal_means(products, np.einsum("snp,smp->spnm", mean, mean) + covariance)
    # And `predict_f` gives just these moments, of its own samples.
    _, predicted = model_of(case).predict_f(X, full_cov=True, num_samples=size, seed=4)
    centred = mean - mean.mean(0)
    expected = np.einsum("snp,smp->pnm", centred, centred) / size + covariance.mean(0)
    np.testing.assert_allclose(predicted, expected, rtol=0, atol=2.0 * allowed)


@pytest.mark.parametrize("case", CASES)
def test_predict_f_averages_the_components(case: str) -> None:
    X, S = data_of(case)[0], 6
    mean, covariance = components(case, X, S, 5, full_cov=True)
    predicted = model_of(case).predict_f(X, full_cov=True, num_samples=S, seed=5)
    np.testing.assert_allclose(predicted[0], mean.mean(0), rtol=0, atol=1e-12)
    second = np.mean(np.einsum("snp,smp->spnm", mean, mean) + covariance, 0)
    expected = second - np.einsum("np,mp->pnm", mean.mean(0), mean.mean(0))
    np.testing.assert_allclose(predicted[1], expected, rtol=0, atol=1e-12)


# Limits

KERNELS = [
    lambda: SquaredExponential(variance=1.3, lengthscales=np.sqrt(D)),
    lambda: SquaredExponential(variance=0.9, lengthscales=0.8),
]
Z = np.random.default_rng(1).uniform(-2.0, 2.0, size=(M, D))
XNEW = regression_data()[0][:4]


def at_the_prior(cls: type, **settings) -> DeepKernelProcess:  # type: ignore[no-untyped-def]
    """Hidden layers at their prior under an output layer that has learnt something."""
    first = SquaredExponential(variance=1.3) if cls is DIWP else KERNELS[0]()
    model = cls([first, KERNELS[1]()], gpflow.likelihoods.Gaussian(0.2), Z, jitter=1e-8, **settings)
    for layer in model.hidden_layers:
        if cls is DIWP:
            layer.gamma.assign(1e-10)
            layer.V.assign(tf.zeros_like(layer.V))
        elif cls is DGP:
            layer.precision_tril.assign(1e-7 * np.eye(M))
        else:
            p = layer.rank
            layer.alpha.assign((layer.width - np.arange(p)) / 2)
            layer.beta.assign(np.full(p, 0.5))
            layer.mu.assign(np.zeros((M, p)))
            layer.sigma.assign(np.ones((M, p)))
            layer.q.assign(1e-16)
    rng = np.random.default_rng(5)
    model.output_layer.v.assign(rng.normal(size=(M, 1)))
    model.output_layer.precision_tril.assign(np.eye(M) + 0.2 * np.tril(rng.normal(size=(M, M))))
    return model


@pytest.mark.parametrize("cls", [DWP, DGP, DIWP])
def test_full_covariance_approaches_the_nngps(cls: type) -> None:
    """As widths or delta grow; of mean and covariance, the points drawn jointly."""
    limit = at_the_prior(NNGP).predict_f(XNEW, full_cov=True)
    errors = []
    for size in (10, 5000):
        settings = {"delta": float(10 * size)} if cls is DIWP else {"widths": [size]}
        model = at_the_prior(cls, **settings)
        moments = model.predict_f(XNEW, full_cov=True, num_samples=200)
        errors.append(max(np.max(np.abs(a - b)) for a, b in zip(moments, limit, strict=True)))
    # The standard deviation of a Gram matrix of 5000 features is 2 %, of which 200 are averaged; its
    # spread adds its square.
    assert errors[1] < 0.01, errors
    assert errors[1] < 0.3 * errors[0], errors


@pytest.mark.parametrize("cls", [DWP, DGP, DIWP])
def test_joint_predictions_of_the_prior_are_the_priors(cls: type) -> None:
    """Through the inducing points, the points jointly, and densely without inducing points."""
    settings = {"delta": 4.0} if cls is DIWP else {"widths": [3]}
    model = at_the_prior(cls, **settings)
    model.output_layer.precision_tril.assign(1e-7 * np.eye(M))
    size = 8000
    draws = model.predict_f_samples(XNEW[:3], size, seed=0).numpy()[..., 0]
    dense = model.sample_prior(XNEW[:3], size, seed=1).numpy()[..., 0]
    products, expected = (part[:, :, None] * part[:, None] for part in (draws, dense))
    allowed = check_equal_means(products, expected, rounding=1e-6)
    off_diagonal = np.mean(expected, 0)[np.triu_indices(3, 1)]
    assert allowed < 0.2
    assert np.max(np.abs(off_diagonal)) > 0.2
    check_equal_means(products**2, expected**2, rounding=1e-6)
    # Of three points: their Gram matrix is more than its pairs.
    triple, dense_triple = (
        np.stack([np.prod(part**2, 1), np.prod(np.cos(part), 1)], 1) for part in (draws, dense)
    )
    check_equal_means(triple, dense_triple, rounding=1e-6)


# Whole functions


@pytest.mark.parametrize("name", ["DWP", "DGP", "DIWP", "DIWP of many features", "NNGP"])
def test_joint_draws_are_smooth(name: str) -> None:
    """On a line: increments are of the order of the step, as of a differentiable function."""
    settings = {"jitter": 1e-10}
    many = "many" in name
    model = diwp_of_many_features(**settings) if many else make_model(name, 2, **settings)
    step, size = 0.02, 40
    line = np.linspace(0.0, step * 24, 25)[:, None] * np.ones(model.num_features)
    draws = model.predict_f_samples(1.5 + line / np.sqrt(model.num_features), size, seed=0)
    values = draws.numpy()[..., 0]
    increments = np.diff(values, axis=1)
    assert np.std(values[:, -1] - values[:, 0]) > 0.1
    slope = np.sqrt(np.mean(increments**2)) / step
    turns = np.sqrt(np.mean(np.diff(increments, axis=1) ** 2)) / step
    assert slope < 5.0, slope
    # Independent increments, of a function nowhere differentiable, would turn by sqrt(2) of the slope.
    assert turns < 0.25 * slope, (slope, turns)


def test_joint_draws_of_latent_variables_are_smooth_but_for_those() -> None:
    """Without latent variables; with them each point has one of its own."""
    import latent_variable_cases

    line = 0.02 * np.arange(25)[:, None] * np.ones(2)
    found = {}
    for architecture in ("GP-GP", "LV-GP"):
        model = latent_variable_cases.make_model(architecture, jitter=1e-10)
        values = model.predict_f_samples(line, 40, seed=0).numpy()[..., 0]
        increments = np.diff(values, axis=1)
        found[architecture] = np.sqrt(np.mean(increments**2)) / 0.02
    assert found["GP-GP"] < 5.0 < found["LV-GP"]
