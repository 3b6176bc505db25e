"""A sweep of tiny runs whose processes are killed at random: no row is lost, doubled or another one.

    python benchmarks/kill_sweep.py
    python benchmarks/kill_sweep.py --kills 50 --seed 1

SIGKILL comes at a random moment, to the sweep itself or to one of its workers. A sweep that was killed is
started again with the same arguments; runs that a kill made a failure are done again by the next. When all
runs of a store are there, they are compared with those of a sweep that nothing disturbed. The same command
once more then has nothing to do but to tidy up, and the next store begins. After every kill the rows that
were there have to be there still, the same ones.

This file is a plugin too: a task, a dataset and a model that need no TensorFlow, checkpoint at every step,
and end with a number that depends on all steps.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bayesian_benchmarks import Experiment, ResultsStore, Settings, run_experiment
from bayesian_benchmarks.datasets import Dataset, SplitData, random_split, register_dataset
from bayesian_benchmarks.models import register_model
from bayesian_benchmarks.tasks import Metric, Task, register_task

STEP_SECONDS = 0.01
NUM_STEPS = 30
NUM_SPLITS = 10
JOBS = 2


@dataclass
class Record:
    seconds: float = 1.0
    seconds_per_step: float = 1.0 / NUM_STEPS
    num_recoveries: int = 0


class Model:
    """A number, which every step changes."""

    state = 0.5

    def step(self) -> None:
        self.state = 3.9 * self.state * (1.0 - self.state)


def train(
    model: Model,
    data: Any,
    *,
    settings: Settings,
    seed: int,
    checkpoint_dir: Path | None,
    checkpoint_seconds: float,
    report_step: Callable[[int], None],
) -> Record:
    start, file = 0, checkpoint_dir / "state.json" if checkpoint_dir else None
    if file and file.exists():
        start, model.state = json.loads(file.read_text())
    for step in range(start, settings.num_steps):
        model.step()
        time.sleep(STEP_SECONDS)
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.with_suffix(".part").write_text(json.dumps([step + 1, model.state]))
            file.with_suffix(".part").replace(file)
        report_step(step + 1)
    return Record()


def evaluate(model: Any, dataset: Dataset, *, settings: Settings, seed: int) -> dict[str, float]:
    return {"state": float(model.state)}


register_task(
    Task("killed", Settings, Dataset, evaluate, {"state": Metric("of the model", shown=True)})
)


@register_dataset("tiny", num_splits=NUM_SPLITS, task="killed")
def load(split: int, data_dir: Path | None) -> SplitData:
    X = np.random.RandomState(0).normal(size=(20, 2))
    return random_split(X, X.sum(axis=1, keepdims=True), split)


@register_model("tiny", train=train, uses_tensorflow=False)
def build(X: Any, Y: Any, *, depth: int, settings: Settings, seed: int) -> Model:
    model = Model()
    model.state = 0.1 + 0.8 / (2.0 + float(np.abs(X).sum()))
    return model


def sweep(path: str) -> None:
    """Do what is left of the runs of a store."""
    experiment = Experiment(
        task="killed",
        models=["tiny"],
        datasets=["tiny"],
        depths=[1],
        settings={"num_steps": NUM_STEPS},
        plugins=["kill_sweep"],
    )
    run_experiment(experiment, ResultsStore(path), jobs=JOBS, retry_failed=True, progress=False)


def rows_of(path: Path) -> dict[Any, tuple[str, float]]:
    """When each run that is done was stored, and its number."""
    if not path.exists():
        return {}
    rows = ResultsStore(path).rows("ok")
    assert len({row.key for row in rows}) == len(rows)
    return {row.key: (row.recorded_at, row.metrics["state"]) for row in rows}


def children(process: int) -> list[int]:
    found = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found += [int(word) for word in path.read_text().split()]
        except OSError:
            continue
    return found


def wait_for_worker(sweep: subprocess.Popen[bytes]) -> None:
    """Wait until a sweep has a worker, or has ended."""
    while sweep.poll() is None and not children(sweep.pid):
        time.sleep(0.01)


def kill_one(sweep: subprocess.Popen[bytes], rng: random.Random, of_sweep: float) -> str:
    """Kill the sweep or one of its workers; returns which, or "" where there is none any more."""
    workers = children(sweep.pid)
    if rng.random() < of_sweep or not workers:
        if sweep.poll() is not None:
            return ""
        sweep.kill()
        sweep.wait()
        return "sweeps"
    try:
        os.kill(rng.choice(workers), signal.SIGKILL)
    except ProcessLookupError:
        return ""
    return "runs"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--of-sweep", type=float, default=0.3, help="part of the kills (default 0.3)"
    )
    parser.add_argument("--seconds", type=float, default=1.5, help="between two, at most")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return disturb(Path(folder), asked)


def disturb(folder: Path, asked: argparse.Namespace) -> int:
    """Kill until there have been so many kills and the last store is complete; returns the exit code."""
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).resolve().parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    command = [sys.executable, "-c", "import sys, kill_sweep; kill_sweep.sweep(sys.argv[1])"]
    subprocess.run([*command, str(folder / "undisturbed" / "r.sqlite")], check=True)
    expected = {k: v[1] for k, v in rows_of(folder / "undisturbed" / "r.sqlite").items()}
    rng, counts, began = random.Random(asked.seed), Counter[str](), time.monotonic()
    while counts["sweeps"] + counts["runs"] < asked.kills:
        path = folder / f"store{counts['stores']}" / "r.sqlite"
        stored: dict[Any, tuple[str, float]] = {}
        while len(stored) < len(expected):
            process = subprocess.Popen([*command, str(path)])
            counts["starts"] += 1
            while process.poll() is None:
                killing = counts["sweeps"] + counts["runs"] < asked.kills
                if rng.random() < 0.9:  # else also before there is any
                    wait_for_worker(process)
                try:
                    process.wait(rng.uniform(0.0, asked.seconds) if killing else None)
                except subprocess.TimeoutExpired:
                    counts[kill_one(process, rng, asked.of_sweep)] += 1
                now = rows_of(path)
                counts["lost"] += len(set(stored) - set(now))
                counts["stored again"] += sum(
                    now[key] != stored[key] for key in set(now) & set(stored)
                )
                stored = now
            counts["crashed"] += process.returncode > 0
        subprocess.run([*command, str(path)], check=True)  # finds nothing due, and tidies up
        counts["stores"] += 1
        counts["rows"] += len(stored)
        counts["others"] += sum(stored[key][1] != expected[key] for key in expected)
        left = [p for p in path.parent.rglob("*") if p.is_file() and p.name not in KEPT]
        counts["left files"] += len(left)
        for p in left:
            print(f"left over: {p.relative_to(folder)}", file=sys.stderr)
        if sys.stderr.isatty():
            print(f"{counts['sweeps'] + counts['runs']} kills", end="\r", file=sys.stderr)
    print(f"{counts['runs']} kills of runs and {counts['sweeps']} of sweeps")
    print(
        f"{counts['stores']} stores of {len(expected)} runs, by {counts['starts']} starts of a sweep"
    )
    print(
        f"{counts['rows']} rows: {counts['lost']} lost, {counts['stored again']} stored again, "
        f"{counts['others']} other than undisturbed"
    )
    print(
        f"{counts['crashed']} sweeps that ended in an error, {counts['left files']} files left over"
    )
    print(f"{time.monotonic() - began:.0f} seconds")
    bad = ("lost", "stored again", "others", "crashed", "left files")
    return 1 if any(counts[name] for name in bad) else 0


KEPT = {"r.sqlite", "predictions.npz"}
"""What is beside a store when all is done."""

if __name__ == "__main__":
    sys.exit(main())
