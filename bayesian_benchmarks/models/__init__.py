"""Models by name, with the papers' settings: registration, building, training."""

from . import deep, gaussian_wasserstein, latent_variable, sghmc  # noqa: F401  (importing them registers their models)
from .deep import train_with_fit
from .registry import (
    Builder,
    ModelSource,
    Trainer,
    TrainingRecord,
    find_model,
    list_models,
    model_source,
    register_model,
)

__all__ = [
    "Builder",
    "ModelSource",
    "Trainer",
    "TrainingRecord",
    "find_model",
    "list_models",
    "model_source",
    "register_model",
    "train_with_fit",
]
