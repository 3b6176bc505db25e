"""How noisy a gradient of the bound is: the closed-form part of it against draws, and the number of samples.

    python benchmarks/gradient_noise.py --data-dir DIR
    python benchmarks/gradient_noise.py --data-dir DIR --models diwp --depths 2 5 --steps 0 500

Each model is trained for so many steps by the default recipe. There the gradient is drawn `--draws` times
with `--samples` samples, once with the layers' log P - log Q in closed form ("expected") and once at the
draw ("sampled"), as the papers' code has it. The table shows the variance as a multiple of that of ten
sampled draws: of each entry of the gradient, as the mean over entries whose variance is not zero (Adam
divides each entry by its own size, so that every entry counts the same). Beside it is the least number of
samples in closed form whose noise is no larger than that of ten sampled draws.
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

REFERENCE = ("sampled", 10)


def gradient_variances(
    model: Any, data: Any, num_draws: int, samples: list[int]
) -> dict[tuple[str, int], np.ndarray]:
    """Variance of each entry of the gradient, by form of the bound and number of samples."""
    import tensorflow as tf

    variables = model.trainable_variables
    variances = {}
    for form in ("expected", "sampled"):
        for part in model.submodules:
            if hasattr(part, "log_ratio"):
                part.log_ratio = form
        for num_samples in sorted({*samples, REFERENCE[1]}):

            @tf.function
            def gradient(seed: tf.Tensor, num_samples: int = num_samples) -> tf.Tensor:
                with tf.GradientTape() as tape:
                    bound = tf.add_n(model.elbo_terms(data, num_samples=num_samples, seed=seed))
                gradients = tape.gradient(bound, variables, unconnected_gradients="zero")
                return tf.concat([tf.reshape(part, [-1]) for part in gradients], 0)

            draws = [gradient(tf.constant([7, draw])).numpy() for draw in range(num_draws)]
            variances[form, num_samples] = np.var(draws, axis=0, ddof=1)
    return variances


def measure(case: dict[str, Any], arguments: argparse.Namespace) -> dict[tuple[str, int], float]:
    """Mean multiple of the reference's variance, by form of the bound and number of samples."""
    from bayesian_benchmarks.datasets import get_dataset
    from gpflow_dkp import models
    from gpflow_dkp.training import fit

    dataset = get_dataset(case["dataset"], arguments.split, data_dir=arguments.data_dir)
    data = dataset.X_train, dataset.Y_train
    family, _, posterior = case["model"].partition("-")
    settings = {"posterior": posterior} if posterior else {}
    model = getattr(models, family.upper()).from_data(
        *data, depth=case["depth"], num_inducing=100, num_samples=10, seed=0, **settings
    )
    if case["steps"]:
        fit(model, data, num_steps=case["steps"], seed=0)
    variances = gradient_variances(model, data, arguments.draws, arguments.samples)
    reference = variances[REFERENCE]
    counts = reference > 0.0
    return {
        key: float(np.mean(value[counts] / reference[counts])) for key, value in variances.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", nargs="+", default=["yacht"])
    parser.add_argument("--split", type=int, default=15)
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--models", nargs="+", default=["diwp", "dwp-ab-gw"])
    parser.add_argument("--depths", nargs="+", type=int, default=[2, 5])
    parser.add_argument("--steps", nargs="+", type=int, default=[0, 500], help="of training before")
    parser.add_argument("--samples", nargs="+", type=int, default=[1, 2, 3, 5, 10])
    parser.add_argument("--draws", type=int, default=100)
    arguments = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    cases = [
        {"dataset": dataset, "model": model, "depth": depth, "steps": steps}
        for dataset in arguments.datasets
        for depth in arguments.depths
        for model in arguments.models
        for steps in arguments.steps
    ]
    columns = [("expected", number) for number in arguments.samples]
    columns += [("sampled", number) for number in arguments.samples]
    table = Table(title="variance of the gradient, as a multiple of that of ten sampled draws")
    for name in (
        "data",
        "model",
        "depth",
        "steps",
        *(f"{form} {n}" for form, n in columns),
        "as 10",
    ):
        table.add_column(name, justify="right")
    for case in track(cases, description="measuring", console=Console(stderr=True)):
        ratios = measure(case, arguments)
        enough = [n for n in sorted(arguments.samples) if ratios["expected", n] <= 1.0]
        table.add_row(
            *(str(case[name]) for name in ("dataset", "model", "depth", "steps")),
            *(f"{ratios[column]:.2f}" for column in columns),
            str(enough[0]) if enough else "-",
        )
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
