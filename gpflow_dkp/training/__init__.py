"""Training: `fit`, its schedules, checkpoints and recovery."""

from .checkpoint import CheckpointError
from .fit import fit
from .history import History
from .schedules import ExponentialDecay
from .threads import configure_threads
from .trainer import TrainingFailed

__all__ = [
    "CheckpointError",
    "ExponentialDecay",
    "History",
    "TrainingFailed",
    "configure_threads",
    "fit",
]
