"""Training: `fit`, its schedules, checkpoints and recovery."""

from .checkpoint import CheckpointError
from .fit import fit
from .history import History
from .recipe import Recipe
from .schedules import Cosine, ExponentialDecay
from .threads import configure_threads
from .trainer import TrainingFailed

__all__ = [
    "CheckpointError",
    "Cosine",
    "ExponentialDecay",
    "History",
    "Recipe",
    "TrainingFailed",
    "configure_threads",
    "fit",
]
