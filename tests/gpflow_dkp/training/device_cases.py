"""Runs with and without a strategy, for a process that has two devices: `DEVICES` before TensorFlow starts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from fit_cases import toy_data, toy_model
from gpflow.kernels import SquaredExponential
from gpflow.models import BayesianModel
from tensorflow.python.eager import context

from gpflow_dkp import models
from gpflow_dkp.training import History, fit

DEVICES = ["CPU:0", "CPU:1"]


def start() -> None:
    """Give this process two CPU devices."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration() for _ in DEVICES]
    )


def diwp() -> BayesianModel:
    return models.DIWP.from_data(*toy_data(), depth=2, num_inducing=4, num_samples=3, jitter=1e-4)


def latent_variable_dgp(**settings: Any) -> BayesianModel:
    return models.LatentVariableDGP.from_data(
        *toy_data(), depth=2, num_inducing=4, jitter=1e-4, **settings
    )


def svgp(num_data: int | None = 20) -> BayesianModel:
    Z = np.linspace(-2.0, 2.0, 4)[:, None]
    kernel, likelihood = SquaredExponential(), gpflow.likelihoods.Gaussian(0.5)
    kernel.lengthscales.prior = gpflow_prior()
    return gpflow.models.SVGP(kernel, likelihood, Z, num_data=num_data)


def gpflow_prior() -> Any:
    import tensorflow_probability as tfp

    one = tf.constant(1.0, tf.float64)
    return tfp.distributions.LogNormal(one, one)


def with_prior(model: BayesianModel) -> BayesianModel:
    model.kernels[0].lengthscales.prior = gpflow_prior()
    return model


class Noisy(gpflow.likelihoods.MonteCarloLikelihood):
    """Gaussian noise, its expectations by draws."""

    def __init__(self) -> None:
        super().__init__(input_dim=None, latent_dim=1, observation_dim=1)
        self.num_monte_carlo_points = 5

    def _scalar_log_prob(self, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        return self._log_prob(X, F, Y)

    def _log_prob(self, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        return -tf.reduce_sum(tf.square(F - Y), -1)

    def _conditional_mean(self, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
        return F

    def _conditional_variance(self, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
        return tf.ones_like(F)


def toy(kind: str, depth: int = 2, **settings: Any) -> BayesianModel:
    return toy_model(kind, depth, jitter=1e-4, **settings)


CASES: dict[str, tuple[Callable[[], BayesianModel], dict[str, Any]]] = {
    "DWP": (lambda: with_prior(toy("DWP")), {"batch_size": 7}),
    "DWP, rows of a sample": (lambda: toy("DWP", num_samples=1), {"batch_size": 7}),
    "DGP, natural gradients": (
        lambda: toy("DGP", kernels=[SquaredExponential(), SquaredExponential()]),
        {"batch_size": 7, "natural_gradient": 0.1},
    ),
    "DGP, a Monte Carlo likelihood": (lambda: toy("DGP", likelihood=Noisy()), {}),
    "DGP, another optimiser": (
        lambda: toy("DGP", num_samples=1),
        {"optimizer": lambda: tf.keras.optimizers.SGD(0.01)},
    ),
    "DIWP": (diwp, {"batch_size": 7}),
    "DIWP, rows of a sample": (
        lambda: models.DIWP.from_data(*toy_data(), num_inducing=4, num_samples=1, jitter=1e-4),
        {"batch_size": 7},
    ),
    "NNGP": (
        lambda: models.NNGP.from_data(*toy_data(), depth=2, num_inducing=4, jitter=1e-4),
        {"batch_size": 7},
    ),
    "LatentVariableDGP": (latent_variable_dgp, {"batch_size": 7}),
    "LatentVariableDGP, samples": (
        lambda: latent_variable_dgp(num_samples=3, inference="vi", amortised=False),
        {},
    ),
    "LatentVariableDGP, latent variables of each row": (
        lambda: latent_variable_dgp(amortised=False, likelihood=Noisy()),
        {},
    ),
    "ConditionalVAE": (
        lambda: models.ConditionalVAE(1, 1, hidden_units=[4], num_samples=1),
        {"batch_size": 7},
    ),
    "SVGP": (svgp, {"batch_size": 7}),
}
"""Models with the arguments of a run."""

NUM_STEPS = 6


def run(case: str, strategy: Any, **settings: Any) -> tuple[list[float], list[np.ndarray], History]:
    """The bounds of the steps and the values of all variables at the end."""
    make, arguments = CASES[case]
    model = make()
    arguments = {"num_steps": NUM_STEPS, "seed": 3, "progress": False, **arguments, **settings}
    if "optimizer" in arguments:
        arguments["optimizer"] = arguments["optimizer"]()
    history = fit(model, toy_data(), strategy=strategy, **arguments)
    return history.elbo, [variable.numpy() for variable in model.variables], history


def compare(case: str) -> tuple[float, float, dict[str, int]]:
    """Largest differences of bounds and variables to the run of one device, and each device's operations."""
    expected, values, _ = run(case, None)
    context.enable_run_metadata()
    elbo, shared, _ = run(case, tf.distribute.MirroredStrategy(DEVICES))
    done = context.export_run_metadata().step_stats.dev_stats
    context.disable_run_metadata()
    work = {
        device.device.split("device:")[-1]: sum(
            any(kind in node.node_name for kind in ("MatMul", "Cholesky"))
            for node in device.node_stats
        )
        for device in done
    }
    differences = [np.max(np.abs(a - b), initial=0.0) for a, b in zip(values, shared, strict=True)]
    return float(np.max(np.abs(np.subtract(elbo, expected)))), float(max(differences)), work
