"""Models by name, with the papers' settings: registration, building, training."""

from . import deep  # noqa: F401  (importing it registers its models)
from .deep import train_with_fit
from .registry import Builder, Trainer, TrainingRecord, list_models, model_source, register_model

__all__ = [
    "Builder",
    "Trainer",
    "TrainingRecord",
    "list_models",
    "model_source",
    "register_model",
    "train_with_fit",
]
