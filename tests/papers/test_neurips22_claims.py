"""What [NeurIPS22], "Generalized variational inference in function spaces", states."""

from __future__ import annotations

import numpy as np
import pytest
from gpflow.kernels import Matern52
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
    """And that of the two Gaussians at the points, by SciPy's matrix square roots."""
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
    """Tenfold the data, a tenth of the variance at Z and of the squared error, for a function of the span."""
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
