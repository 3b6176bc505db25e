"""Time of a sweep with two workers over its time with one after another, each with all cores.

    python benchmarks/parallel_sweep.py
    python benchmarks/parallel_sweep.py --runs 4 --steps 20 --repeats 1
    python benchmarks/parallel_sweep.py --dask

Short runs of deep Gaussian processes on a bundled dataset, in a store of its own for each sweep. Both ways
are taken in turn, `--repeats` times over, and the ratio is that of the medians: machines drift, and only
figures of one call compare. The machine has to have nothing else to do.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bayesian_benchmarks import Experiment, ResultsStore, run_experiment
from bayesian_benchmarks.sweep import DaskEngine, LocalEngine
from bayesian_benchmarks.sweep.engines import Engine
from bayesian_benchmarks.sweep.environment import available_cores

TARGET = 0.6


def experiment(num_runs: int, num_steps: int) -> Experiment:
    return Experiment(
        models=["dgp"],
        datasets=["diabetes"],
        splits=list(range(min(num_runs, 4))),
        seeds=list(range(-(-num_runs // 4))),
        depths=[2],
        settings={"num_steps": num_steps, "kl_annealing_steps": 0, "num_inducing": 50},
    )


def seconds(asked: argparse.Namespace, engine: Engine) -> float:
    """Of a sweep in an empty store."""
    with tempfile.TemporaryDirectory() as folder:
        store = ResultsStore(Path(folder, "results.sqlite"))
        start = time.monotonic()
        report = run_experiment(
            experiment(asked.runs, asked.steps), store, engine=engine, progress=False
        )
        assert report.num_failed == report.num_interrupted == 0, store.rows("failed")
        assert report.num_ok >= asked.runs
        return time.monotonic() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=24, help="a multiple of 4 above 4 (default 24)")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dask", action="store_true", help="the workers as tasks of Dask")
    asked = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    times: dict[str, list[float]] = {"one after another": [], f"{asked.jobs} at a time": []}
    alone, together = times
    for _ in range(asked.repeats):
        times[alone].append(seconds(asked, LocalEngine(1)))
        engine = DaskEngine(jobs=asked.jobs) if asked.dask else LocalEngine(asked.jobs)
        times[together].append(seconds(asked, engine))
        engine.close()
    print(f"{asked.runs} runs of {asked.steps} steps on {available_cores()} cores")
    for way, found in times.items():
        print(f"{way:<18} {', '.join(f'{value:.1f}' for value in found)} s")
    ratio = statistics.median(times[together]) / statistics.median(times[alone])
    print(f"ratio {ratio:.2f}, at most {TARGET} is aimed at")
    return 0 if ratio <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
