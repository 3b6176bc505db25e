"""Where the hidden layers of models of data start."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest

from gpflow_dkp.layers.gram import wishart_posterior
from gpflow_dkp.models import DGP, DWP
from gpflow_dkp.models.from_data import principal_features

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = np.sin(X[:, :1])


def nearest_gram(Z: np.ndarray, width: int) -> np.ndarray:
    """The Gram matrix Z Z^T / D without its small eigenvalues, by its eigenvectors."""
    values, vectors = np.linalg.eigh(Z @ Z.T / Z.shape[1])
    kept = vectors[:, -width:]
    return (kept * values[-width:]) @ kept.T


@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_principal_features_are_the_nearest_gram_matrix(width: int) -> None:
    Z = X[:8]
    features = principal_features(Z, width)
    assert features.shape == (8, width)
    np.testing.assert_allclose(features @ features.T, nearest_gram(Z, width), atol=1e-12)


@pytest.mark.parametrize("width", [2, 3, 5])
def test_deep_gps_start_near_the_inputs(width: int) -> None:
    model = DGP.from_data(X, Y, depth=3, num_inducing=9, width=width)
    Z = model.inducing_variable.Z.numpy()
    for layer in model.hidden_layers:
        v = layer.v.numpy()
        np.testing.assert_allclose(v @ v.T, nearest_gram(Z, width), atol=1e-12)


@pytest.mark.parametrize("posterior", ["a-gw", "ab-gw"])
def test_deep_wishart_processes_start_near_the_inputs(posterior: str) -> None:
    """Each layer's mean factor is that of the covariance of the inputs' Gram matrix, of every depth."""
    model = DWP.from_data(X, Y, depth=3, num_inducing=9, posterior=posterior)
    Z = model.inducing_variable.Z.numpy()
    lengthscales = np.sqrt(3.0), 1.0
    inputs = Z, Z / np.sqrt(3.0)
    for layer, lengthscale, points in zip(model.hidden_layers, lengthscales, inputs, strict=True):
        K = gpflow.kernels.SquaredExponential(lengthscales=lengthscale)(points).numpy()
        C = (K + gpflow.default_jitter() * np.eye(9)) / 3
        smooth = C @ np.linalg.solve(C + wishart_posterior.START_NOISE * np.eye(9), points)
        smooth *= 1.0 if points is inputs[1] else 1.0 / np.sqrt(3.0)
        diagonal = np.sqrt(layer.alpha.numpy() / layer.beta.numpy())
        factor = np.linalg.cholesky(C) @ (layer.mu.numpy() + np.eye(9, 3) * diagonal)
        np.testing.assert_allclose(factor @ factor.T, smooth @ smooth.T, atol=1e-6)


def test_gw_starts_as_if_there_were_no_inputs_to_start_near(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def parameters(posterior: str) -> list[np.ndarray]:
        model = DWP.from_data(X, Y, depth=3, num_inducing=9, posterior=posterior, seed=1)
        return [variable.numpy() for variable in model.variables]

    near = {posterior: parameters(posterior) for posterior in ("gw", "ab-gw")}
    monkeypatch.setattr(DWP, "_start_near_inputs", lambda self, inputs: None)
    for ours, random in zip(near["gw"], parameters("gw"), strict=True):
        np.testing.assert_array_equal(ours, random)
    pairs = zip(near["ab-gw"], parameters("ab-gw"), strict=True)
    assert any(not np.array_equal(ours, random) for ours, random in pairs)
