"""Sweeps: which runs are due, and doing them in parallel, resumably, each once."""

from .coordinator import SweepReport, run_experiment
from .due import Again, due_runs
from .run import Run, expand

__all__ = ["Again", "Run", "SweepReport", "due_runs", "expand", "run_experiment"]
