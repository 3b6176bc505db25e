"""Seconds a training step of a deep GP, beside GPflux's, and of importance weighting beside VI.

    python benchmarks/deep_gp_step.py
    python benchmarks/deep_gp_step.py --cases gp-gp gpflux --repeats 5

The GP-GP model is the same in both: D inputs, a hidden layer of D GPs that share an ARD squared
exponential and are added to the identity, an output GP, inducing points of each layer's own, all trained by
Adam on minibatches in double precision. Every row is a process of its own; the rows are run in turn,
`--repeats` times over, and the table shows the median of their medians: only figures of one run compare.
`gpflux` needs `pip install gpflux==0.4.5 tf-keras`, and is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from fresh_process import in_fresh_process
from rich.console import Console
from rich.progress import track
from rich.table import Table

CASES = {
    "gp-gp": "ours, Adam",
    "gp-gp natural": "ours, natural gradient of the last layer and Adam",
    "gpflux": "GPflux 0.4.5, Keras' fit with Adam, TensorFlow's threads",
    "lv-gp-gp vi": "ours, LV-GP-GP by VI",
    "lv-gp-gp iwvi": "ours, LV-GP-GP by importance-weighted VI with K samples",
    "lv-gp-gp dreg": "the same with doubly reparametrised gradients",
}
STEPS = 20


def data(case: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(STEPS * case["batch"], case["features"]))
    return X, np.sin(X[:, :1]) + 0.1 * rng.normal(size=(len(X), 1))


def gpflux_steps(case: dict[str, Any]) -> Callable[[], None]:
    """20 training steps of GPflux, as its tutorials take them."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import gpflow
    import gpflux
    import tensorflow as tf

    tf.keras.backend.set_floatx("float64")
    X, Y = data(case)
    D, M = case["features"], case["inducing"]

    def layer(num_outputs: int, mean: gpflow.functions.MeanFunction) -> gpflux.layers.GPLayer:
        kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(D, np.sqrt(D)))
        return gpflux.layers.GPLayer(
            gpflux.helpers.construct_basic_kernel(
                kernel, output_dim=num_outputs, share_hyperparams=True
            ),
            gpflux.helpers.construct_basic_inducing_variables(
                M, input_dim=D, output_dim=num_outputs, share_variables=True, z_init=X[:M]
            ),
            num_data=len(X),
            num_latent_gps=num_outputs,
            mean_function=mean,
        )

    layers = [layer(D, gpflow.functions.Identity()), layer(1, gpflow.functions.Zero())]
    likelihood = gpflux.layers.LikelihoodLayer(gpflow.likelihoods.Gaussian(0.01))
    model = gpflux.models.DeepGP(layers, likelihood).as_training_model()
    model.compile(tf.optimizers.Adam(0.005))

    def steps() -> None:
        model.fit({"inputs": X, "targets": Y}, batch_size=case["batch"], epochs=1, verbose=0)

    return steps


def our_steps(case: dict[str, Any]) -> Callable[[], None]:
    """20 training steps of `fit`."""
    import gpflow

    from gpflow_dkp.layers import SparseGP
    from gpflow_dkp.models import LatentVariableDGP
    from gpflow_dkp.training import configure_threads
    from gpflow_dkp.training.plan import Stretch
    from gpflow_dkp.training.trainer import Trainer

    configure_threads(case["threads"])
    X, Y = data(case)
    D, M = case["features"], case["inducing"]

    def layer(num_outputs: int, mean: gpflow.functions.MeanFunction | None) -> SparseGP:
        kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(D, np.sqrt(D)))
        return SparseGP(kernel, X[:M], num_outputs, mean_function=mean)

    name, _, kind = case["case"].partition(" ")
    if name == "gp-gp":
        layers = [layer(D, gpflow.functions.Identity()), layer(1, None)]
        model = LatentVariableDGP(layers, gpflow.likelihoods.Gaussian(0.01), inference="vi")
    else:
        model = LatentVariableDGP.from_architecture(
            name.upper(),
            (X, Y),
            num_inducing=M,
            inference="vi" if kind == "vi" else "iwvi",
            num_importance_samples=case["samples"],
            doubly_reparametrised=kind == "dreg",
        )
    natural = None if case["case"] == "gp-gp" else 0.01
    trainer = Trainer(
        model,
        (X, Y),
        num_steps=10**6,
        batch_size=case["batch"],
        learning_rate=0.005,
        kl_annealing_steps=0,
        natural_gradient=natural,
    )
    done = 0

    def steps() -> None:
        nonlocal done
        taken, *_ = trainer.steps(done, Stretch(STEPS))
        if taken < STEPS:
            raise SystemExit("training broke")
        done += STEPS

    return steps


def measure(case: dict[str, Any]) -> dict[str, float]:
    """Time 20 steps, some times over, in this process."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    steps = (gpflux_steps if case["case"] == "gpflux" else our_steps)(case)
    steps()
    seconds = []
    processor = time.process_time()
    for _ in range(case["rounds"]):
        start = time.perf_counter()
        steps()
        seconds.append((time.perf_counter() - start) / STEPS)
    processor = (time.process_time() - processor) / (STEPS * case["rounds"])
    return {"ms": 1e3 * statistics.median(seconds), "cpu_ms": 1e3 * processor}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--features", type=int, default=8, help="D")
    parser.add_argument("--inducing", type=int, default=128, help="M")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--samples", type=int, default=5, help="K of importance weighting")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=10, help=f"times {STEPS} steps")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Run the cases in turn and print the table."""
    arguments = parse_arguments()
    if arguments.case:
        print(json.dumps(measure(json.loads(arguments.case))))
        return
    names = [c for c in arguments.cases if c != "gpflux" or importlib.util.find_spec("gpflux")]
    settings = {
        name: getattr(arguments, name)
        for name in ("features", "inducing", "batch", "samples", "threads", "rounds")
    }
    results: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for name in track(names * arguments.repeats, description="cases"):
        results[name].append(in_fresh_process(__file__, {"case": name, **settings}))
    table = Table("case", "what", "ms a step", "CPU ms", "of each repeat")
    for name, measured in results.items():
        table.add_row(
            name,
            CASES[name],
            f"{statistics.median(m['ms'] for m in measured):.1f}",
            f"{statistics.median(m['cpu_ms'] for m in measured):.1f}",
            " ".join(f"{m['ms']:.1f}" for m in measured),
        )
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
