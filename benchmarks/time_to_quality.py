"""Seconds and steps to a bound, by the library's default recipe and by the papers': a table and a picture.

    python benchmarks/time_to_quality.py --datasets yacht boston --depths 2 5 --curves curves.csv
    python benchmarks/time_to_quality.py --curves curves.csv --figure curves.png

Each run is a process of its own; what stands in --curves is not run again. The bound of a step is that of
ten samples with its KL term at full weight; a target is reached where the mean of the last `WINDOW` steps is
at it. Targets are the published bounds of 20 000 steps, but for --target. --reference names a CSV file with
columns dataset, depth, model, seconds and elbo_per_point: what other code reached in which time, a line in
the table and a cross in the picture.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import track
from rich.table import Table

WINDOW = 100
"""Steps that a bound is averaged over."""

POINTS = 400
"""Of a curve that are kept."""

CASE = ["dataset", "split", "model", "depth", "schedule", "steps"]
COLOURS = {"fast": "C0", "paper": "C1"}


def curve(case: dict[str, Any]) -> dict[str, list[float]]:
    """Train one case in this process: steps, seconds, and the bound's mean over the steps before."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from bayesian_benchmarks import Settings, get_dataset
    from bayesian_benchmarks.models import model_source, train_with_fit
    from gpflow_dkp.training import configure_threads

    configure_threads(case["threads"])
    data_dir = None if case["data_dir"] is None else Path(case["data_dir"])
    data = get_dataset(case["dataset"], case["split"], data_dir=data_dir)
    settings = Settings(num_steps=case["steps"], schedule=case["schedule"])
    arrays = data.X_train, data.Y_train
    model = model_source(case["model"]).build(
        *arrays, depth=case["depth"], settings=settings, seed=0
    )
    history = train_with_fit(
        model,
        arrays,
        settings=settings,
        seed=0,
        checkpoint_dir=None,
        checkpoint_seconds=0.0,
        report_step=lambda step: None,
    )
    window = min(WINDOW, len(history.elbo))
    means = np.convolve(history.elbo, np.ones(window) / window, mode="valid")
    steps = np.arange(window, len(history.elbo) + 1)
    known, seconds = zip((0, 0.0), *history.clock, strict=True)
    kept = np.unique(np.linspace(0, len(steps) - 1, POINTS).round().astype(int))
    return {
        "step": steps[kept].tolist(),
        "seconds": np.interp(steps[kept], known, seconds).tolist(),
        "elbo_per_point": means[kept].tolist(),
    }


def curve_in_process(case: dict[str, Any]) -> pd.DataFrame:
    """`curve` in a fresh process, with the case's columns beside it."""
    command = [sys.executable, __file__, "--case", json.dumps(case)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{case} failed:\n{done.stderr[-2000:]}")
    table = pd.DataFrame(json.loads(done.stdout.splitlines()[-1]))
    return table.assign(**{name: case[name] for name in CASE})


def target_of(dataset: str, depth: int, model: str) -> float:
    """The published bound, NaN where there is none."""
    from bayesian_benchmarks.report import paper_results

    for result in paper_results("ober2023"):
        of_case = (result.dataset, result.depth, result.model) == (dataset, depth, model)
        if of_case and result.metric == "elbo_per_point":
            return result.value
    return float("nan")


def reached(run: pd.DataFrame, target: float) -> tuple[float, float]:
    """Steps and seconds of a run to a target, NaN if it does not come to it."""
    there = run[run["elbo_per_point"] >= target]
    if there.empty:
        return float("nan"), float("nan")
    return float(there["step"].iloc[0]), float(there["seconds"].iloc[0])


def print_table(curves: pd.DataFrame, target: float | None, reference: pd.DataFrame | None) -> None:
    """Steps and seconds to the target, and where each run ends; of other code seconds and end."""
    table = Table(*("dataset", "depth", "model", "schedule", "target"))
    for name in ("steps to it", "seconds to it", "end", "steps", "seconds"):
        table.add_column(name, justify="right")
    places = ["dataset", "depth", "model"]
    for (dataset, depth, model), of_place in curves.groupby(places, sort=False):
        goal = target_of(dataset, depth, model) if target is None else target
        for (schedule, split), run in of_place.groupby(["schedule", "split"], sort=False):
            steps, seconds = reached(run, goal)
            last = run.iloc[-1]
            table.add_row(
                *(dataset, str(depth), model, f"{schedule}, split {split}", f"{goal:.2f}"),
                *("-" if np.isnan(x) else f"{x:.0f}" for x in (steps, seconds)),
                *(f"{last['elbo_per_point']:.3f}", f"{last['step']:.0f}", f"{last['seconds']:.0f}"),
            )
        for seconds, end in _of_place(reference, dataset, depth, model):
            then = f"{seconds:.0f}" if end >= goal else "-"
            place = dataset, str(depth), model, "reference", f"{goal:.2f}"
            table.add_row(*place, "", then, f"{end:.3f}", "", f"{seconds:.0f}")
    Console(width=120).print(table)


def _of_place(
    reference: pd.DataFrame | None, dataset: str, depth: int, model: str
) -> list[tuple[float, float]]:
    """Seconds and bounds of other code."""
    if reference is None:
        return []
    theirs = reference.query("dataset == @dataset and depth == @depth and model == @model")
    return list(zip(theirs["seconds"], theirs["elbo_per_point"], strict=True))


def draw(curves: pd.DataFrame, path: Path, reference: pd.DataFrame | None) -> None:
    """Bound against seconds, a panel a dataset and depth; the published bound is a line."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator

    panels = list(curves.groupby(["dataset", "depth", "model"], sort=False))
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.5 * columns, 3.1 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, ((dataset, depth, model), of_panel) in zip(axes, panels, strict=False):
        for (schedule, split), run in of_panel.groupby(["schedule", "split"], sort=False):
            label = (
                f"{schedule}, {run['steps'].iloc[0]} steps"
                if split == of_panel["split"].min()
                else None
            )
            axis.plot(run["seconds"], run["elbo_per_point"], color=COLOURS[schedule], label=label)
        published = target_of(dataset, depth, model)
        axis.axhline(published, color="0.5", linewidth=1, linestyle="--", label="published")
        ends = [run["elbo_per_point"].iloc[-1] for _, run in of_panel.groupby("schedule")]
        if theirs := _of_place(reference, dataset, depth, model):
            axis.plot(*zip(*theirs, strict=True), "x", color="k", label="reference")
            ends += [bound for _, bound in theirs]
        highest = max([*ends, published])
        lowest = highest - 1.2 * max(0.3, highest - min([*ends, published]))
        axis.set_ylim(lowest, highest + 0.05)
        axis.set_xlim(left=0.8 * of_panel["seconds"][of_panel["elbo_per_point"] >= lowest].min())
        axis.set(title=f"{dataset}, {model}, depth {depth}", xlabel="seconds", xscale="log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_ylabel("bound per data point")
        axis.legend(fontsize="small", frameon=False)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def all_curves(arguments: argparse.Namespace) -> pd.DataFrame:
    """The curves of all cases: those that are kept, and the others by training."""
    kept: Path | None = arguments.curves
    depths = zip(arguments.depths, arguments.fast_steps, strict=True)
    schedules = ("fast", "paper")
    cases = [
        {
            **{"dataset": dataset, "split": split, "model": model, "depth": depth},
            "schedule": schedule,
            "steps": fast_steps if schedule == "fast" else arguments.paper_steps,
            **{"threads": arguments.threads, "data_dir": arguments.data_dir},
        }
        for dataset, (depth, fast_steps), model, split, schedule in itertools.product(
            *(arguments.datasets, depths, arguments.models, arguments.splits, schedules)
        )
    ]
    parts = {}
    if kept is not None and kept.exists():
        parts = {key: part for key, part in pd.read_csv(kept).groupby(CASE, sort=False)}
    due = [case for case in cases if tuple(case[name] for name in CASE) not in parts]
    for case in track(due, "training"):
        parts[tuple(case[name] for name in CASE)] = curve_in_process(case)
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            table = pd.concat(parts.values(), ignore_index=True)
            table.to_csv(kept, index=False, float_format="%.6g", lineterminator="\n")
    wanted = [parts[tuple(case[name] for name in CASE)] for case in cases]
    return pd.concat(wanted, ignore_index=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", nargs="+", default=["yacht", "boston"])
    parser.add_argument("--splits", nargs="+", type=int, default=[0])
    parser.add_argument("--models", nargs="+", default=["dwp-ab-gw"])
    parser.add_argument("--depths", nargs="+", type=int, default=[2, 5])
    parser.add_argument(
        "--fast-steps", nargs="+", type=int, default=[3000], help="one number, or one a depth"
    )
    parser.add_argument("--paper-steps", type=int, default=20_000)
    parser.add_argument("--target", type=float, help="default: the published bound")
    parser.add_argument("--data-dir", help="where the UCI files lie; default: they are downloaded")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--curves", type=Path, help="CSV file where the curves are kept")
    parser.add_argument("--figure", type=Path, help="of the picture, such as curves.png")
    parser.add_argument("--reference", type=Path, help="CSV of other code's times")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if len(arguments.fast_steps) == 1:
        arguments.fast_steps = arguments.fast_steps * len(arguments.depths)
    if len(arguments.fast_steps) != len(arguments.depths):
        parser.error(
            f"--fast-steps: got {len(arguments.fast_steps)} numbers, needs one or one for each of the "
            f"{len(arguments.depths)} depths"
        )
    return arguments


def main() -> None:
    arguments = parse_arguments()
    if arguments.case:
        print(json.dumps(curve(json.loads(arguments.case))))
        return
    curves = all_curves(arguments)
    reference = None if arguments.reference is None else pd.read_csv(arguments.reference)
    print_table(curves, arguments.target, reference)
    if arguments.figure is not None:
        draw(curves, arguments.figure, reference)
        print(f"The picture is in {arguments.figure}.")


if __name__ == "__main__":
    main()
