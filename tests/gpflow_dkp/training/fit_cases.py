"""A toy problem and models small enough to train in a test."""

from typing import Any

import gpflow
import numpy as np
from gpflow.kernels import SquaredExponential

from gpflow_dkp.models import DGP, DWP, DeepKernelProcess
from gpflow_dkp.training import History

MODELS = {"DWP": DWP, "DGP": DGP}


def toy_data(num_data: int = 20) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(num_data, 1))
    return X, np.sin(3.0 * X) + 0.1 * rng.normal(size=X.shape)


def toy_model(model: str = "DWP", depth: int = 1, **settings: Any) -> DeepKernelProcess:
    """A sparse GP by default, which compiles in half a second."""
    Z = np.linspace(-2.0, 2.0, 4)[:, None]
    return MODELS[model](
        settings.pop("kernels", [SquaredExponential() for _ in range(depth)]),
        settings.pop("likelihood", gpflow.likelihoods.Gaussian(0.5)),
        Z,
        widths=[2] * (depth - 1),
        num_samples=settings.pop("num_samples", 3),
        **settings,
    )


def numbers(model: DeepKernelProcess, history: History) -> list[Any]:
    """What must be the same in two runs: the parameters and the record but for the times."""
    return [
        *(variable.numpy().tolist() for variable in model.variables),
        history.elbo,
        history.validation,
        history.recoveries,
    ]
