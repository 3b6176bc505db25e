"""Training: `fit` and `sample`, their schedules, checkpoints and recovery."""

from .checkpoint import CheckpointError
from .fit import fit
from .history import History
from .recipe import Recipe
from .sample import sample
from .schedules import Cosine, ExponentialDecay
from .sghmc import SGHMC
from .threads import configure_threads
from .trainer import TrainingFailed

__all__ = [
    "SGHMC",
    "CheckpointError",
    "Cosine",
    "ExponentialDecay",
    "History",
    "Recipe",
    "TrainingFailed",
    "configure_threads",
    "fit",
    "sample",
]
