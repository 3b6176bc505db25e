"""Models by name, with the papers' settings: registration, building, training."""

# Importing them registers their models.
from . import baselines, deep, gaussian_wasserstein, latent_variable, sghmc  # noqa: F401
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
