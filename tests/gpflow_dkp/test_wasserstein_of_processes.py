"""The Wasserstein distance between two given Gaussian processes ([NeurIPS22] equation 11)."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from gpflow.kernels import Kernel, Linear, Matern32, SquaredExponential
from scipy import linalg

from gpflow_dkp.models import GWI
from gpflow_dkp.wasserstein import Exact, squared_distance

RNG = np.random.default_rng(0)
N, D = 8, 2
X, Y = RNG.normal(size=(N, D)), RNG.normal(size=(N, 2))


def dense(mean_p: np.ndarray, K_p: np.ndarray, mean_q: np.ndarray, K_q: np.ndarray) -> float:
    """Equation 11 with SciPy's matrix square root, of one output."""
    root = linalg.sqrtm(K_p)
    cross = np.trace(linalg.sqrtm(root @ K_q @ root)).real
    traces = np.trace(K_p) + np.trace(K_q)
    return (np.sum((mean_p - mean_q) ** 2) + traces - 2.0 * cross) / len(K_p)


def gpr(kernel: Kernel, outputs: int = 2) -> gpflow.models.GPR:
    return gpflow.models.GPR((X[:5], Y[:5, :outputs]), kernel, noise_variance=0.1)


def test_two_posteriors_are_at_the_dense_distance() -> None:
    p, q = gpr(SquaredExponential()), gpr(Matern32(lengthscales=0.5))
    moments = [[part.numpy() for part in model.predict_f(X, full_cov=True)] for model in (p, q)]
    (mean_p, K_p), (mean_q, K_q) = moments
    expected = sum(dense(mean_p[:, o], K_p[o], mean_q[:, o], K_q[o]) for o in range(2))
    np.testing.assert_allclose(squared_distance(p, q, X), expected, atol=1e-7)
    np.testing.assert_allclose(squared_distance(q, p, X), expected, atol=1e-7)
    # The prior of one kernel is that of both outputs.
    zero, K = np.zeros(N), SquaredExponential()(X).numpy()
    expected = sum(dense(mean_p[:, o], K_p[o], zero, K) for o in range(2))
    np.testing.assert_allclose(squared_distance(p, SquaredExponential(), X), expected, atol=1e-7)


@pytest.mark.parametrize("scale", [0.25, 4.0])
def test_covariances_that_commute(scale: float) -> None:
    """(sqrt(a) - 1)^2 times the mean variance, and the squared difference of the means; also of low rank."""
    for kernel, scaled in (
        (SquaredExponential(), SquaredExponential(variance=scale)),
        (Linear(), Linear(variance=scale)),
    ):
        mean = gpflow.functions.Linear(np.ones([D, 1]), [0.5])
        size = np.mean(kernel(X, full_cov=False))
        shift = np.mean((np.sum(X, 1) + 0.5) ** 2)
        expected = (np.sqrt(scale) - 1.0) ** 2 * size + shift
        np.testing.assert_allclose(squared_distance(kernel, (mean, scaled), X), expected, atol=1e-6)


def test_it_is_the_distance_of_gwi_to_its_prior() -> None:
    """But for the jitter of the model's inducing covariance."""
    model = GWI(SquaredExponential(), gpflow.likelihoods.Gaussian(0.1), X[:4], jitter=1e-8)
    model.start_at_sparse_posterior((X, Y[:, :1]), noise_variance=0.1)
    of_model = model.measures(X).squared_distance(Exact(), seed=None)
    np.testing.assert_allclose(squared_distance(model, model.kernel, X), of_model, atol=1e-5)


def test_what_is_no_process_is_refused() -> None:
    kernel = SquaredExponential()
    with pytest.raises(ValueError, match=r"q: got 'rbf', needs a GPflow kernel, a mean"):
        squared_distance(kernel, "rbf", X)
    with pytest.raises(ValueError, match="X: got no rows"):
        squared_distance(kernel, kernel, X[:0])
    three = gpflow.models.GPR((X, RNG.normal(size=(N, 3))), kernel)
    with pytest.raises(ValueError, match="p and q: got 2 and 3 outputs"):
        squared_distance(gpr(kernel), three, X)
    one = squared_distance(gpr(kernel, outputs=1), three, X)
    assert np.isfinite(one)
