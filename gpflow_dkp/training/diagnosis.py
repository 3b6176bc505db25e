"""Which layer a training run broke in."""

from __future__ import annotations

import gpflow
import tensorflow as tf

from ..models import DeepKernelProcess
from ..random import split


def describe_failure(model: DeepKernelProcess, X: tf.Tensor, seed: tf.Tensor) -> str:
    """One clause naming the first layer whose values or log-ratio are not finite at X [N, D]."""
    for name, parameter in gpflow.utilities.parameter_dict(model).items():
        value = getattr(parameter, "unconstrained_variable", parameter)
        if not bool(tf.reduce_all(tf.math.is_finite(value))):
            return f"parameter {name.lstrip('.')} of shape {value.shape} is not finite"
    covariance = model._input_covariance(model.inducing_variable, X)
    seeds = split(seed, max(1, len(model.hidden_layers)))
    for number, (layer, kernel) in enumerate(
        zip(model.hidden_layers, model._gram_kernels, strict=True), 1
    ):
        where = f"hidden layer {number} of {len(model.hidden_layers)} ({type(layer).__name__})"
        if not _finite(covariance.ii):
            return f"{where} gets a covariance that is not finite"
        sample, log_ratio = layer.propagate(
            covariance, seed=seeds[number - 1], num_samples=model.num_samples
        )
        if not _finite(log_ratio) or not _finite(sample.ii):
            return f"{where} gives values that are not finite"
        covariance = model._covariance(kernel, sample)
    if not all(_finite(part) for part in model.output_layer.marginals(covariance)):
        return "the output layer gives values that are not finite"
    return "every layer is finite, the likelihood or the gradient is not"


def _finite(value: tf.Tensor) -> bool:
    return bool(tf.reduce_all(tf.math.is_finite(value)))
