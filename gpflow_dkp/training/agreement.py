"""What a run and its checkpoint must agree on: the model's classes, choices and fixed values."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from ..models.checks import row_blocks

LEGIBLE = 6
"""Numbers in a fixed parameter that are written out; more are digested."""


def fingerprint(arrays: Sequence[np.ndarray]) -> list:
    """The shape of the first array and a digest of all."""
    digest = hashlib.sha256()
    for array in arrays:
        for block in row_blocks(array):
            digest.update(np.ascontiguousarray(block).data)
    return [list(arrays[0].shape), digest.hexdigest()[:16]]


def describe_model(model: tf.Module) -> dict[str, Any]:
    """By their paths: the class of each part of a model, its simple settings, and what is not trained.

    Settings are public attributes that are text, numbers, truth values, None, arrays or functions, or
    sequences of these. Trained values are left out: a checkpoint brings them.
    """
    description = dict(_describe(model, "model", {}))
    for name, value in getattr(model, "training_settings", dict)().items():
        description[f"model.training_settings.{name}"] = value
    return description


def _describe(value: Any, path: str, seen: dict[int, Any]) -> Iterator[tuple[str, Any]]:
    """Pairs of path and description of what is at a path and below, each object once."""
    if isinstance(value, (tf.Module, tf.Variable)):
        if id(value) in seen:
            return
        seen[id(value)] = value
    if isinstance(value, gpflow.Parameter):
        yield from describe_parameter(value, path)
    elif isinstance(value, tf.Variable):
        yield f"{path}.shape", list(value.shape)
        if not value.trainable:
            yield f"{path}.value", _legible(value.numpy())
    elif isinstance(value, tf.Module):
        yield path, _class_name(value)
        if isinstance(value, gpflow.kernels.Kernel):
            yield f"{path}.active_dims", str(value.active_dims)
        for name, child in sorted(vars(value).items(), key=_public_first):
            if name.startswith("_self_") or name in tf.Module._TF_MODULE_IGNORED_PROPERTIES:
                continue
            if not name.startswith("_") or _holds_modules(child):
                yield from _describe(child, f"{path}.{name}", seen)
    elif isinstance(value, Mapping):
        for key, child in value.items():
            yield from _describe(child, f"{path}[{key!r}]", seen)
    elif isinstance(value, (list, tuple)):
        if _holds_modules(value):
            for i, child in enumerate(value):
                yield from _describe(child, f"{path}[{i}]", seen)
        elif value:
            yield path, [_simple(child) for child in value]
    elif hasattr(value, "get_config") and hasattr(value, "layers"):
        yield path, [_describe_keras(layer) for layer in value.layers]
    else:
        yield path, _simple(value)


def describe_parameter(parameter: gpflow.Parameter, path: str) -> Iterator[tuple[str, Any]]:
    """Shape, transform and prior, each with a number that tells two of a family apart; the value if fixed."""
    unconstrained = parameter.unconstrained_variable
    yield f"{path}.shape", list(parameter.shape)
    yield f"{path}.trainable", bool(parameter.trainable)
    if parameter.transform is not None:
        probe = tf.fill(unconstrained.shape, tf.constant(0.5, parameter.dtype))
        image = float(tf.reduce_sum(parameter.transform.forward(probe)))
        yield f"{path}.transform", f"{parameter.transform.name} ({image:.10g} at 0.5)"
    if parameter.prior is not None:
        somewhere = tf.fill(parameter.shape, tf.constant(0.5, parameter.dtype))
        density = float(tf.reduce_sum(parameter.prior.log_prob(somewhere)))
        on = parameter.prior_on.value
        yield f"{path}.prior", f"{parameter.prior.name} on {on} ({density:.10g} at 0.5)"
    if not parameter.trainable:
        yield f"{path}.value", _legible(parameter.numpy())


def _describe_keras(layer: Any) -> list[Any]:
    """A Keras layer's class and settings, but for its name, which counts the layers made before."""
    config = {
        key: value
        for key, value in layer.get_config().items()
        if key != "name" and not key.endswith("initializer")
    }
    return [_class_name(layer), json.dumps(config, sort_keys=True, default=_class_name)]


def _public_first(item: tuple[str, Any]) -> tuple[bool, str]:
    return item[0].startswith("_"), item[0]


def _holds_modules(value: Any) -> bool:
    children = value.values() if isinstance(value, Mapping) else value
    if isinstance(value, (list, tuple, Mapping)):
        return any(_holds_modules(child) for child in children)
    return isinstance(value, (tf.Module, tf.Variable))


def _simple(value: Any) -> Any:
    """A setting as JSON has it; of an object of another kind only the class."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, (float, np.generic)):
        number = value.item() if isinstance(value, np.generic) else value
        if not isinstance(number, float):
            return number
        # A parameter's value has gone through its transform and back.
        return float(f"{number:.12g}") if math.isfinite(number) else str(number)
    if isinstance(value, (np.ndarray, tf.Tensor)):
        return _legible(np.asarray(value))
    if isinstance(value, tf.DType):
        return value.name
    if isinstance(value, (list, tuple)):
        return [_simple(child) for child in value]
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return _class_name(value)


def _legible(array: np.ndarray) -> Any:
    """A few numbers as they are, more as shape and digest."""
    if array.size > LEGIBLE or array.dtype.kind not in "biuf":
        return fingerprint([np.atleast_1d(array)])
    return [_simple(number) for number in np.ravel(array)] if array.ndim else _simple(array[()])


def _class_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
