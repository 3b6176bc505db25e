"""Small data sets and models with every variational parameter away from its start."""

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel, Linear, Matern52, SquaredExponential

from gpflow_dkp.models import DGP, DIWP, DWP, NNGP, DeepKernelProcess

N, D, M = 12, 2, 4
MODELS = {"DWP": DWP, "DGP": DGP, "DIWP": DIWP, "NNGP": NNGP}


def regression_data(num_data: int = N, num_features: int = D) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(num_data, num_features))
    return X, np.sin(2.0 * X[:, :1]) + 0.1 * rng.normal(size=(num_data, 1))


def make_kernels(depth: int) -> list[Kernel]:
    """ARD on the inputs, then kernels of three kinds."""
    hidden = [
        SquaredExponential(variance=1.2, lengthscales=0.9),
        Matern52(variance=0.8) + Linear(0.3),
        SquaredExponential(lengthscales=1.4),
    ]
    return [SquaredExponential(lengthscales=np.linspace(0.8, 1.2, D)), *hidden[: depth - 1]]


def make_model(
    model: str = "DWP",
    depth: int = 2,
    *,
    width: int = 3,
    likelihood: gpflow.likelihoods.Likelihood | None = None,
    **settings: Any,
) -> DeepKernelProcess:
    """A model with random variational parameters."""
    likelihood = gpflow.likelihoods.Gaussian(0.2) if likelihood is None else likelihood
    Z = np.random.default_rng(1).uniform(-2.0, 2.0, size=(M, D))
    settings.setdefault("num_samples", 3)
    kernels = make_kernels(depth)
    if model in ("DWP", "DGP"):
        settings["widths"] = [width] * (depth - 1)
    elif model == "DIWP":
        kernels[0] = SquaredExponential(lengthscales=0.8)
    return scatter(MODELS[model](kernels, likelihood, Z, **settings))


def scatter(model: DeepKernelProcess) -> DeepKernelProcess:
    """Move all variational parameters, and leave the kernels as they are."""
    rng = np.random.default_rng(2)
    for variable in variational_variables(model):
        variable.assign_add(0.3 * rng.normal(size=variable.shape))
    return model


def variational_variables(model: DeepKernelProcess) -> list[tf.Variable]:
    """Of all layers, and the inverse Wishart's delta."""
    of_kernels = {variable.ref() for kernel in model.kernels for variable in kernel.variables}
    return [
        variable
        for layer in model.layers
        for variable in layer.trainable_variables
        if variable.ref() not in of_kernels
    ]


def gradient_of(model: DeepKernelProcess, data: Any, seed: int = 0) -> list[tf.Tensor]:
    """The gradient of the bound."""
    with tf.GradientTape() as tape:
        elbo = model.elbo(data, seed=seed)
    return tape.gradient(elbo, model.trainable_variables)
