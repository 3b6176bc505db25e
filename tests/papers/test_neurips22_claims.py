"""What [NeurIPS22], "Generalized variational inference in function spaces", states."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Matern52, Polynomial
from gpflow.likelihoods import Gaussian
from scipy import linalg

from gpflow_dkp.models import GWI

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(-2.0, 2.0, size=(30, 1)), axis=0)
Y = np.sin(2.0 * X) + 0.3 * RNG.normal(size=X.shape)
NOISE = 0.09


def kernel() -> Matern52:
    return Matern52(variance=1.5, lengthscales=0.9)


def make(Z: np.ndarray, jitter: float = 1e-9) -> GWI:
    return GWI(kernel(), Gaussian(NOISE), Z, cross_term="exact", jitter=jitter)


def wasserstein(mean: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
    """W2^2 of N(mean, first) and N(0, second), the squared length by the number of points."""
    root = linalg.sqrtm(first)
    cross = linalg.sqrtm(root @ second @ root).real
    return float((mean @ mean + np.trace(first + second - 2.0 * cross)) / len(mean))


def test_the_distance_is_zero_at_the_prior_and_nowhere_else() -> None:
    """Equation 11: and that of the two Gaussians at the points, by SciPy's matrix square roots."""
    model = make(X[::3])
    assert abs(float(model.squared_distance(X))) < 1e-8
    model.start_at_sparse_posterior((X, Y), NOISE)
    mean, covariance = (part.numpy()[0] for part in model.predict_f(X, full_cov=True))
    mean = model.predict_f(X)[0].numpy()[:, 0]
    expected = wasserstein(mean, covariance, kernel()(X).numpy())
    assert expected > 0.3
    assert float(model.squared_distance(X)) == pytest.approx(expected, rel=1e-3)


def test_equation_77_is_the_exact_posterior_with_inducing_points_at_the_data() -> None:
    """GP regression in NumPy."""
    model = make(X)
    model.start_at_sparse_posterior((X, Y), NOISE)
    new = np.linspace(-2.5, 2.5, 11)[:, None]
    cross, K = kernel()(new, X).numpy(), kernel()(X).numpy() + NOISE * np.eye(len(X))
    mean, variance = (part.numpy()[:, 0] for part in model.predict_f(new))
    np.testing.assert_allclose(mean, cross @ np.linalg.solve(K, Y[:, 0]), rtol=0, atol=1e-5)
    reduction = np.sum(cross * np.linalg.solve(K, cross.T).T, 1)
    np.testing.assert_allclose(variance, 1.5 - reduction, rtol=0, atol=1e-5)


def test_the_posterior_contracts_at_the_parametric_rate_given_its_inducing_points() -> None:
    """The statement "contraction of the posterior" (docs/mathematics.md 9), of the start by equation 77.

    Tenfold the data, a tenth of the variance at Z and of the squared error, for a function of the span.
    """
    Z = np.linspace(-2.0, 2.0, 6)[:, None]
    weights = np.array([1.0, -2.0, 1.5, 0.5, -1.0, 2.0])
    sizes = (100, 1000, 10_000)
    variances, errors = [], []
    for size in sizes:
        rng = np.random.default_rng(size)
        inputs = np.linspace(-2.0, 2.0, size)[:, None]
        truth = kernel()(inputs, Z).numpy() @ weights
        of_noise = []
        model = make(Z)
        for _ in range(12):
            targets = truth + np.sqrt(NOISE) * rng.normal(size=size)
            model.start_at_sparse_posterior((inputs, targets[:, None]), NOISE)
            mean, variance = (part.numpy()[:, 0] for part in model.predict_f(Z))
            of_noise.append((mean - kernel()(Z).numpy() @ weights) ** 2)
        variances.append(variance)
        errors.append(np.mean(of_noise))
    for less, more in ((variances[0], variances[1]), (variances[1], variances[2])):
        np.testing.assert_allclose(less / more, np.full(6, 10.0), rtol=0.25)
    # 72 squared errors of a chi-square: within a factor of two of the variance that is said.
    for error, variance in zip(errors, variances, strict=True):
        assert 0.5 < error / np.mean(variance) < 2.0


def maximise(model: GWI, data: tuple[np.ndarray, np.ndarray]) -> None:
    """L-BFGS to the optimum, compiled without AutoGraph, which would take most of the time."""
    loss = tf.function(lambda: -model.elbo(data, seed=0), autograph=False)
    options = {"maxiter": 500, "ftol": 1e-15, "gtol": 1e-9}
    gpflow.optimizers.Scipy().minimize(
        loss, model.trainable_variables, compile=False, options=options
    )


def test_the_optimum_of_the_objective_contracts_too_its_variance_faster_than_its_error() -> None:
    """The statement "contraction of the posterior" (docs/mathematics.md 9), of the objective's own optimum.

    For a kernel of three dimensions that Z spans: the mean is least squares over 1 + 2 s^2 / N, the variance
    k over (1 + N / (2 s^2))^2, which falls by a hundred where the squared error falls by ten.
    """
    prior = Polynomial(degree=2.0, variance=0.7, offset=1.0)
    Z, num_functions = np.array([[-1.5], [0.0], [1.5]]), 40
    features_of_z, weights = np.vander(Z[:, 0], 3), np.array([0.8, -0.5, 0.3])
    variances, errors = [], []
    for size in (100, 1000):
        rng = np.random.default_rng(size)
        inputs = np.linspace(-2.0, 2.0, size)[:, None]
        features = np.vander(inputs[:, 0], 3)
        targets = (features @ weights)[:, None] + np.sqrt(NOISE) * rng.normal(
            size=(size, num_functions)
        )
        settings = {"cross_term": "nystrom", "num_cross_points": 10, "jitter": 1e-9}
        model = GWI(prior, Gaussian(NOISE), Z, num_latent_gps=num_functions, **settings)
        for part in (model.kernel, model.likelihood, model.inducing_variable):
            gpflow.set_trainable(part, False)
        maximise(model, (inputs, targets))
        mean, variance = (part.numpy() for part in model.predict_f(Z))
        coefficients = np.linalg.lstsq(features, targets, rcond=None)[0] / (
            1.0 + 2.0 * NOISE / size
        )
        np.testing.assert_allclose(mean, features_of_z @ coefficients, rtol=0, atol=1e-6)
        scale = (1.0 + size / (2.0 * NOISE)) ** 2
        k = np.tile(np.diag(prior(Z))[:, None], [1, num_functions])
        np.testing.assert_allclose(scale * variance, k, rtol=1e-3)
        error = np.mean((mean - (features_of_z @ weights)[:, None]) ** 2)
        covariance = NOISE * features_of_z @ np.linalg.solve(features.T @ features, features_of_z.T)
        assert 0.7 < error / np.mean(np.diag(covariance)) < 1.4  # of least squares
        variances.append(np.mean(variance))
        errors.append(error)
    assert variances[0] / variances[1] == pytest.approx(100.0, rel=0.01)
    assert errors[0] / errors[1] == pytest.approx(10.0, rel=0.4)
