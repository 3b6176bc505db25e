"""Sweeps: which runs are due, and doing them in parallel, resumably, each once, on one machine or many."""

from .coordinator import SweepReport, hand_out, run_experiment
from .dask_engine import DaskEngine
from .due import Again, due_runs
from .engines import LocalEngine
from .run import Run, expand
from .slurm_engine import SlurmEngine

__all__ = [
    "Again",
    "DaskEngine",
    "LocalEngine",
    "Run",
    "SlurmEngine",
    "SweepReport",
    "due_runs",
    "expand",
    "hand_out",
    "run_experiment",
]
