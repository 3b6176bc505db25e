"""Seconds a training step and peak memory, by model, depth, data size, samples and precision.

    python benchmarks/step_time.py
    python benchmarks/step_time.py --models dwp-ab-gw dgp --depths 2 5 --sizes 455x13 --precisions full mixed

Every row is a process of its own, so that its peak memory is its own. The rows are run in turn,
`--repeats` times over, and the table shows the median of their median steps: machines drift, and only
figures of one run compare. Memory is the peak resident set; what the imports alone take is shown too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import statistics
import time
from typing import Any

from fresh_process import in_fresh_process
from rich.console import Console
from rich.progress import track
from rich.table import Table

SIZES = {"yacht": "277x6", "boston": "455x13", "protein": "1000x9"}
MODELS = ("dwp-gw", "dwp-a-gw", "dwp-ab-gw", "dgp", "diwp", "nngp")


def measure(case: dict[str, Any]) -> dict[str, float]:
    """Time the training step of one case in this process."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import gpflow
    import numpy as np
    import tensorflow as tf

    from gpflow_dkp import models
    from gpflow_dkp.training import configure_threads
    from gpflow_dkp.training.plan import Stretch
    from gpflow_dkp.training.trainer import Trainer

    imports_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    configure_threads(case["threads"])
    precision = case["precision"]
    if precision == "float32":
        gpflow.config.set_default_float(np.float32)
        gpflow.config.set_default_jitter(1e-4)
        precision = "full"
    num_data, num_features = (int(part) for part in case["size"].split("x"))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(num_data, num_features))
    Y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(num_data, 1))
    settings: dict[str, Any] = {
        "depth": case["depth"],
        "num_inducing": case["inducing"],
        "num_samples": case["samples"],
        "precision": precision,
    }
    if case["log_ratio"] != "expected":
        settings["log_ratio"] = case["log_ratio"]
    family, _, posterior = case["model"].partition("-")
    if posterior:
        settings["posterior"] = posterior
    model = getattr(models, family.upper()).from_data(X, Y, **settings)
    trainer = Trainer(model, (X, Y), num_steps=10**6)
    trainer.steps(0, Stretch(3))
    seconds = []
    processor = time.process_time()
    for first in range(3, 3 + case["steps"], 5):
        start = time.perf_counter()
        trainer.steps(first, Stretch(5))
        seconds.append((time.perf_counter() - start) / 5)
    processor = time.process_time() - processor
    tf.debugging.assert_all_finite(model.trainable_variables[0], "training broke")
    return {
        "ms": 1e3 * statistics.median(seconds),
        "cpu_ms": 1e3 * processor / (5 * len(seconds)),
        "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "imports_mib": imports_mib,
    }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["dwp-ab-gw", "dgp"])
    parser.add_argument("--depths", nargs="+", type=int, default=[2, 5])
    parser.add_argument(
        "--sizes",
        nargs="+",
        default=list(SIZES),
        help="rows x features as 455x13, or " + ", ".join(SIZES),
    )
    parser.add_argument(
        "--precisions",
        nargs="+",
        choices=["full", "mixed-gradient", "mixed", "float32"],
        default=["full", "mixed"],
    )
    parser.add_argument(
        "--log-ratios",
        nargs="+",
        choices=["expected", "sampled"],
        default=["expected"],
        help="the layers' part of the bound: in closed form, or sampled as in the papers' code",
    )
    parser.add_argument("--samples", nargs="+", type=int, default=[10])
    parser.add_argument("--inducing", type=int, default=100)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--steps", type=int, default=50, help="timed steps a process")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    if arguments.case:
        print(json.dumps(measure(json.loads(arguments.case))))
        return
    cases = [
        {
            "model": model,
            "depth": depth,
            "size": SIZES.get(size, size),
            "precision": precision,
            "log_ratio": log_ratio,
            "samples": samples,
            "inducing": arguments.inducing,
            "threads": arguments.threads,
            "steps": arguments.steps,
        }
        for size, depth, model, samples, log_ratio, precision in itertools.product(
            arguments.sizes,
            arguments.depths,
            arguments.models,
            arguments.samples,
            arguments.log_ratios,
            arguments.precisions,
        )
    ]
    results: list[list[dict[str, float]]] = [[] for _ in cases]
    order = [index for _ in range(arguments.repeats) for index in range(len(cases))]
    for index in track(order, description="measuring", console=Console(stderr=True)):
        results[index].append(in_fresh_process(__file__, cases[index]))
    table = Table(
        title=f"training step, {arguments.inducing} inducing points, {arguments.threads} threads"
    )
    for column in (
        "size",
        "depth",
        "model",
        "S",
        "log ratio",
        "precision",
        "ms/step",
        "CPU ms",
        "MiB",
        "imports MiB",
    ):
        table.add_column(column, justify="right")
    for case, runs in zip(cases, results, strict=True):
        table.add_row(
            case["size"],
            str(case["depth"]),
            case["model"],
            str(case["samples"]),
            case["log_ratio"],
            case["precision"],
            f"{statistics.median(run['ms'] for run in runs):.1f}",
            f"{statistics.median(run['cpu_ms'] for run in runs):.1f}",
            f"{max(run['mib'] for run in runs):.0f}",
            f"{runs[0]['imports_mib']:.0f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
