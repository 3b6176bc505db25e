"""Which part of a model a training run broke in."""

from __future__ import annotations

import gpflow
import tensorflow as tf

from ..models import MonteCarloModel
from ..models.base import all_finite


def describe_failure(model: MonteCarloModel, X: tf.Tensor, seed: tf.Tensor) -> str:
    """One clause naming the first parameter or layer that is not finite at X [N, D]."""
    for name, parameter in gpflow.utilities.parameter_dict(model).items():
        value = getattr(parameter, "unconstrained_variable", parameter)
        if not all_finite(value):
            return f"parameter {name.lstrip('.')} of shape {value.shape} is not finite"
    return model.locate_failure(X, seed)
