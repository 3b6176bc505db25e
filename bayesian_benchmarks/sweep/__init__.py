"""Sweeps: which runs are due, and doing them in parallel, resumably, each once, on one machine or many."""

from .coordinator import SweepReport, run_experiment
from .due import Again, due_runs
from .engines import LocalEngine
from .run import Run, expand

__all__ = [
    "Again",
    "LocalEngine",
    "Run",
    "SweepReport",
    "due_runs",
    "expand",
    "run_experiment",
]
