"""Training: `fit`, its schedules, checkpoints and recovery."""

from .checkpoint import CheckpointError
from .fit import TrainingFailed, fit
from .history import History
from .threads import configure_threads

__all__ = ["CheckpointError", "History", "TrainingFailed", "configure_threads", "fit"]
