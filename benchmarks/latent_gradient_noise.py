"""What drawing the last function costs: bounds and gradient variances of [ICML19] equations 7 and 11.

    python benchmarks/latent_gradient_noise.py
    python benchmarks/latent_gradient_noise.py --datasets forest --data-dir DIR --steps 2000

An LV-GP-GP is trained for so many steps by equation 11 ("iwvi"). At its parameters the bounds of VI, (11)
and (7) ("iwvi-sampled") are estimated from `--draws` seeds, with standard errors, and the variances of the
gradients of (11) and (7), for each group of parameters: sums over their entries.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

BOUNDS = {"vi": "VI", "iwvi": "(11)", "iwvi-sampled": "(7)"}
GROUPS = {
    "encoder": ".layers[0].encoder",
    "inner q(u)": ".layers[1].q_",
    "last q(u)": ".layers[2].q_",
    "kernels": ".kernel.",
    "noise": ".likelihood.",
}


def data_of(name: str, arguments: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    if name == "branches":  # of docs/latent_variables.md
        rng = np.random.default_rng(0)
        X = rng.uniform(-2.0, 2.0, size=(200, 1))
        signs = rng.choice([-1.0, 1.0], size=X.shape)
        return X, np.sin(2.0 * X) * signs + 0.1 * rng.normal(size=X.shape)
    from bayesian_benchmarks.datasets import get_dataset

    dataset = get_dataset(name, 0, data_dir=arguments.data_dir)
    return dataset.X_train, dataset.Y_train


def draws_of(
    model: Any, data: Any, inference: str, num_draws: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Bounds [draws] and the gradient of each parameter [draws, entries]."""
    import gpflow
    import tensorflow as tf

    model.inference = inference
    parameters = gpflow.utilities.parameter_dict(model).values()
    variables = [parameter.unconstrained_variable for parameter in parameters]

    @tf.function(autograph=False)
    def step(seed: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            bound = model.elbo(data, seed=seed)
        gradients = tape.gradient(bound, variables, unconnected_gradients="zero")
        return bound, [tf.reshape(part, [-1]) for part in gradients]

    draws = [step(tf.constant([11, number])) for number in range(num_draws)]
    bounds = np.array([float(bound) for bound, _ in draws])
    gradients = zip(*(gradient for _, gradient in draws), strict=True)
    return bounds, [np.stack(parts) for parts in gradients]


def measure(
    model: Any, data: Any, num_draws: int
) -> tuple[dict[str, tuple[float, float]], dict[str, dict[str, float]]]:
    """Mean of each bound and its standard error; the variance of its gradient, of each group.

    Before any training the last function is the prior's, and (11) has no noise of the parameters before it.
    """
    import gpflow

    names = list(gpflow.utilities.parameter_dict(model))
    bounds, variances = {}, {}
    for inference in BOUNDS:
        values, gradients = draws_of(model, data, inference, num_draws)
        bounds[inference] = float(values.mean()), float(values.std(ddof=1) / np.sqrt(num_draws))
        by_name = [np.sum(np.var(gradient, axis=0, ddof=1)) for gradient in gradients]
        variances[inference] = {
            group: float(sum(v for name, v in zip(names, by_name, strict=True) if part in name))
            for group, part in GROUPS.items()
        }
    return bounds, variances


def table_of(title: str, *columns: str) -> Table:
    table = Table(title=title)
    for name in ("data", "steps", "K", *columns):
        table.add_column(name, justify="right")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", nargs="+", default=["branches"])
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--steps", nargs="+", type=int, default=[1000], help="of training")
    parser.add_argument("--importance-samples", nargs="+", type=int, default=[1, 5, 20])
    parser.add_argument("--inducing", type=int, default=20)
    parser.add_argument("--draws", type=int, default=200)
    arguments = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from gpflow_dkp.models import LatentVariableDGP
    from gpflow_dkp.training import fit

    of_bounds = table_of("bounds", *BOUNDS.values())
    of_variances = table_of("variance of the gradient", "of", *GROUPS)
    cases = [
        (name, steps, K)
        for name in arguments.datasets
        for steps in arguments.steps
        for K in arguments.importance_samples
    ]
    for name, steps, K in track(cases, description="measuring", console=Console(stderr=True)):
        data = data_of(name, arguments)
        model = LatentVariableDGP.from_architecture(
            "LV-GP-GP", data, num_inducing=arguments.inducing, num_importance_samples=K
        )
        if steps:
            fit(model, data, num_steps=steps, seed=0, progress=False)
        bounds, variances = measure(model, data, arguments.draws)
        case = name, str(steps), str(K)
        of_bounds.add_row(*case, *(f"{mean:.1f} ± {error:.1f}" for mean, error in bounds.values()))
        integrated, drawn = (
            variances[inference].values() for inference in ("iwvi", "iwvi-sampled")
        )
        of_variances.add_row(*case, BOUNDS["iwvi"], *(f"{value:.3g}" for value in integrated))
        of_variances.add_row(*case, BOUNDS["iwvi-sampled"], *(f"{value:.3g}" for value in drawn))
        with np.errstate(divide="ignore"):
            ratios = np.divide(list(drawn), list(integrated))
        of_variances.add_row(*case, "(7) by (11)", *(f"{ratio:.2f}" for ratio in ratios))
    for table in (of_bounds, of_variances):
        Console(width=160).print(table)


if __name__ == "__main__":
    main()
