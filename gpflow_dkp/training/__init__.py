"""Training: `fit`, its schedules, checkpoints and recovery."""

from .checkpoint import CheckpointError
from .fit import TrainingFailed, fit
from .history import History
from .schedules import ExponentialDecay
from .threads import configure_threads

__all__ = [
    "CheckpointError",
    "ExponentialDecay",
    "History",
    "TrainingFailed",
    "configure_threads",
    "fit",
]
