"""Small models of Gaussian Wasserstein inference, their measures by NumPy, and data."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Bernoulli, Gaussian, MultiClass
from latent_variable_cases import check_mean
from scipy import linalg

from gpflow_dkp.likelihoods import RobustMax
from gpflow_dkp.models import GWI

N, D, M, S = 8, 2, 4, 3
NUM_DATA = 30
NOISE, VARIANCE, LENGTHSCALES = 0.3, 1.4, np.array([0.8, 1.3])
JITTER = 1e-6
CROSS_JITTER = 1e-4 * JITTER * VARIANCE  # on the cross term's covariances
rng = np.random.default_rng(0)
X = rng.uniform(-2.0, 2.0, size=(N, D))
Y = np.sin(2.0 * X[:, :1]) + 0.3 * rng.normal(size=(N, 2))
XNEW = rng.uniform(-2.5, 2.5, size=(7, D))
Z = rng.uniform(-2.0, 2.0, size=(M, D))
LABELS = np.arange(N)[:, None] % 3
PAIRS = [
    ("squared", "nystrom"),
    ("squared", "eigenvalues"),
    ("squared", "exact"),
    ("root", "nystrom"),
    ("published", "nystrom"),
]
pairs = pytest.mark.parametrize(("distance", "cross_term"), PAIRS)
CROSS_TERMS = ["nystrom", "eigenvalues", "exact"]
cross_terms = pytest.mark.parametrize("cross_term", CROSS_TERMS)


def se() -> SquaredExponential:
    return SquaredExponential(VARIANCE, LENGTHSCALES)


def prior_mean() -> gpflow.functions.MeanFunction:
    return gpflow.functions.Linear(np.array([[0.3], [-0.2]]), [0.1])


def make_model(
    num_outputs: int = 2,
    *,
    kernel: gpflow.kernels.Kernel | None = None,
    likelihood: gpflow.likelihoods.Likelihood | None = None,
    inducing: np.ndarray = Z,
    at_prior: bool = False,
    **settings: Any,
) -> GWI:
    """A model whose variational parameters are random, or those of the prior."""
    model = GWI(
        se() if kernel is None else kernel,
        Gaussian(NOISE) if likelihood is None else likelihood,
        inducing,
        num_latent_gps=num_outputs,
        **settings,
    )
    if at_prior:
        return model
    rng = np.random.default_rng(1)
    shape = (num_outputs, model.num_inducing, model.num_inducing)
    model.q_sqrt.assign(np.tril(0.3 * rng.normal(size=shape), -1) + 0.6 * np.eye(shape[-1]))
    if model.mean is None:
        model.q_mu.assign(rng.normal(size=(shape[-1], num_outputs)))
    return model


def classes(num_classes: int = 3) -> MultiClass:
    return MultiClass(num_classes, invlink=RobustMax(num_classes))


def kernel_matrix(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    differences = (x[:, None] - y[None]) / LENGTHSCALES
    return VARIANCE * np.exp(-0.5 * np.sum(differences**2, -1))


def measure(model: GWI, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """m_Q [N, P] and r [P, N, N] by explicit inverses of k_ZZ."""
    k_zz = kernel_matrix(Z, Z) + JITTER * np.eye(M)
    tril, k_xz = np.linalg.cholesky(k_zz), kernel_matrix(x, Z)
    inverse, root = np.linalg.inv(k_zz), np.linalg.inv(tril).T
    r = []
    for q_sqrt in model.q_sqrt.numpy():
        sigma = root @ q_sqrt @ q_sqrt.T @ root.T
        r.append(kernel_matrix(x, x) - k_xz @ inverse @ k_xz.T + k_xz @ sigma @ k_xz.T)
    mean = k_xz @ root @ model.q_mu.numpy()
    if model.prior_mean is not None:
        mean = mean + model.prior_mean(x).numpy()
    return mean, np.array(r)


def svgp_of(model: GWI, num_data: int | None = None) -> gpflow.models.SVGP:
    svgp = gpflow.models.SVGP(
        model.kernel,
        model.likelihood,
        model.inducing_variable,
        mean_function=model.prior_mean,
        num_latent_gps=model.num_latent_gps,
        whiten=True,
        num_data=num_data,
    )
    svgp.q_mu, svgp.q_sqrt = model.q_mu, model.q_sqrt
    return svgp


LIKELIHOODS: dict[str, tuple[Callable, np.ndarray]] = {
    "Gaussian": (lambda: Gaussian(NOISE), Y),
    "Bernoulli": (Bernoulli, (Y[:, :1] > 0).astype(float)),
    "StudentT": (lambda: gpflow.likelihoods.StudentT(scale=0.3, df=4.0), Y),
    "MultiClass": (lambda: MultiClass(3), LABELS.astype(float)),
}


def keras_network(*layers: Any, num_inputs: int = D, num_outputs: int = 2) -> Any:
    keras = tf.keras
    keras.utils.set_random_seed(0)
    parts = [keras.Input([num_inputs]), keras.layers.Dense(4, activation="tanh"), *layers]
    return keras.Sequential([*parts, keras.layers.Dense(num_outputs)])


def many_data(num_data: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    inputs = rng.uniform(-2.0, 2.0, size=(num_data, D))
    return inputs, np.sin(2.0 * inputs[:, :1]) + 0.2 * rng.normal(size=(num_data, 1))


def check_joint_moments(draws: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> None:
    """Of draws [n, N, P], with means [N, P] and covariances [P, N, N]; outputs are independent."""
    flat = np.swapaxes(draws, 1, 2).reshape(len(draws), -1)
    expected_mean = mean.T.reshape(-1)
    check_mean(flat, expected_mean)
    expected = linalg.block_diag(*covariance)
    rows, columns = np.tril_indices(len(expected))
    centred = flat - expected_mean
    check_mean(centred[:, rows] * centred[:, columns], expected[rows, columns])
