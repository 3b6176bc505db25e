"""Milliseconds a training step on one CPU device and on two logical ones, by threads an operation.

    python benchmarks/devices.py
    python benchmarks/devices.py --models dwp-ab-gw --depth 5 --size 2000x8

Two logical devices share the machine's cores: what is gained is what a single operation does not use of
them. Every case is a process of its own, run in turn, `--repeats` times over; the table has the medians of
time and of processor time, which is all cores' and does not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from typing import Any

from fresh_process import in_fresh_process

CASES = {
    "one device, its threads": {"devices": 1, "configure": False},
    "one device, configure_threads": {"devices": 1, "configure": True},
    "two devices, their threads": {"devices": 2, "configure": False},
    "two devices, configure_threads": {"devices": 2, "configure": True},
}


def measure(case: dict[str, Any]) -> list[float]:
    """Milliseconds a step in this process, and of processor time."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import numpy as np
    import tensorflow as tf

    from gpflow_dkp import models
    from gpflow_dkp.training import configure_threads
    from gpflow_dkp.training.plan import Stretch
    from gpflow_dkp.training.trainer import Trainer

    if case["configure"]:
        configure_threads()
    strategy = None
    if case["devices"] > 1:
        cpu, *_ = tf.config.list_physical_devices("CPU")
        logical = [tf.config.LogicalDeviceConfiguration() for _ in range(case["devices"])]
        tf.config.set_logical_device_configuration(cpu, logical)
        strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(case["devices"])])
    num_data, num_features = (int(part) for part in case["size"].split("x"))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(num_data, num_features))
    Y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(num_data, 1))
    settings: dict[str, Any] = {"depth": case["depth"], "num_inducing": 100}
    family, _, posterior = case["model"].partition("-")
    if posterior:
        settings["posterior"] = posterior
    model = getattr(models, family.upper()).from_data(X, Y, **settings)
    trainer = Trainer(model, (X, Y), num_steps=10**6, strategy=strategy)
    trainer.steps(0, Stretch(3))
    seconds, processor = [], time.process_time()
    for first in range(3, 3 + case["steps"], 5):
        start = time.perf_counter()
        trainer.steps(first, Stretch(5))
        seconds.append((time.perf_counter() - start) / 5)
    processor = (time.process_time() - processor) / (5 * len(seconds))
    return [1e3 * statistics.median(seconds), 1e3 * processor]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["dwp-ab-gw", "dgp", "diwp", "nngp"])
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--size", default="1000x9", help="rows x features")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    if arguments.case:
        print(measure(json.loads(arguments.case)))
        return
    common = {name: getattr(arguments, name) for name in ("depth", "size", "steps")}
    for model in arguments.models:
        found: dict[str, list[list[float]]] = {name: [] for name in CASES}
        for _ in range(arguments.repeats):
            for name, case in CASES.items():
                found[name].append(in_fresh_process(__file__, {**common, **case, "model": model}))
        for name, values in found.items():
            wall, processor = map(statistics.median, zip(*values, strict=True))
            print(f"{model:10} {name:32} {wall:8.1f} ms, processor {processor:8.1f} ms", flush=True)


if __name__ == "__main__":
    main()
