"""Milliseconds to predict 1, 500 and 10 000 points, by model and depth: from the model and its posterior.

    python benchmarks/prediction_time.py
    python benchmarks/prediction_time.py --models dwp-ab-gw diwp --depths 2 5

A model's `predict_y` samples its layers, factorises and predicts; `model.posterior()` does the first two
once. 100 inducing points, 100 samples, 13 features, eager; medians of some calls, in one process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

POINTS = (1, 500, 10_000)
MODELS = ("dwp-ab-gw", "dgp", "diwp", "nngp", "lv-gp-gp")


def milliseconds(function: Callable[[], Any], repeats: int) -> float:
    """Median of some calls after one that is not counted."""
    function()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return 1e3 * statistics.median(seconds)


def build(name: str, depth: int) -> Any:
    import numpy as np

    from gpflow_dkp import models

    rng = np.random.default_rng(0)
    X = rng.normal(size=(455, 13))
    Y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(455, 1))
    if name == "lv-gp-gp":
        architecture = "-".join(["LV"] + ["GP"] * depth)
        return models.LatentVariableDGP.from_architecture(architecture, (X, Y), num_inducing=100)
    family, _, posterior = name.partition("-")
    settings = {"posterior": posterior} if posterior else {}
    return getattr(models, family.upper()).from_data(X, Y, depth=depth, **settings)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--depths", nargs="+", type=int, default=[2, 5])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    from gpflow_dkp.training import configure_threads

    configure_threads(arguments.threads)
    table = Table(title=f"predict_y, ms, {arguments.threads} threads")
    for column in ("model", "depth", "from", *(f"N = {points}" for points in POINTS)):
        table.add_column(column, justify="right")
    X = np.random.default_rng(1).normal(size=(max(POINTS), 13))
    for name in arguments.models:
        for depth in arguments.depths:
            model = build(name, depth)
            sources = {"model": model}
            if hasattr(model, "posterior"):
                sources["posterior"] = model.posterior()
            for label, source in sources.items():
                times = [
                    milliseconds(
                        lambda source=source, points=points: source.predict_y(X[:points]),  # type: ignore[misc]
                        3 if points > 500 else 10,
                    )
                    for points in POINTS
                ]
                table.add_row(name, str(depth), label, *(f"{value:.1f}" for value in times))
    Console().print(table)


if __name__ == "__main__":
    main()
