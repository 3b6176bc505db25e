"""A training run to be killed."""

import json
from pathlib import Path

import gpflow
import numpy as np

from gpflow_dkp.models import DWP
from gpflow_dkp.training import fit

NUM_STEPS = 80


def run(checkpoint_dir: str | Path, result: str | Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(20, 1))
    Y = np.sin(3.0 * X) + 0.1 * rng.normal(size=X.shape)
    kernels = [gpflow.kernels.SquaredExponential() for _ in range(2)]
    likelihood = gpflow.likelihoods.Gaussian(0.5)
    model = DWP(kernels, likelihood, X[:4].copy(), widths=[2], num_samples=3)
    history = fit(
        model,
        (X, Y),
        num_steps=NUM_STEPS,
        batch_size=7,
        kl_annealing_steps=40,
        seed=3,
        checkpoint_dir=checkpoint_dir,
        checkpoint_seconds=0.0,
        progress=False,
    )
    parameters = [variable.numpy().tolist() for variable in model.variables]
    Path(result).write_text(json.dumps([parameters, history.elbo, history.recoveries]))
