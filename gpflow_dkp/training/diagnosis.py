"""Which part of a model a training run broke in."""

from __future__ import annotations

import gpflow
import tensorflow as tf
from gpflow.models import BayesianModel

from ..models import MonteCarloModel
from ..models.base import all_finite


def describe_failure(
    model: BayesianModel, data: tuple[tf.Tensor, tf.Tensor] | None, seed: tf.Tensor
) -> str:
    """One clause naming the first parameter, or layer at the data's X [N, D], that is not finite."""
    for name, parameter in gpflow.utilities.parameter_dict(model).items():
        value = getattr(parameter, "unconstrained_variable", parameter)
        if not all_finite(value):
            return f"parameter {name.lstrip('.')} of shape {value.shape} is not finite"
    if isinstance(model, MonteCarloModel) and data is not None:
        return model.locate_failure(data[0], seed)
    return "every parameter is finite"
