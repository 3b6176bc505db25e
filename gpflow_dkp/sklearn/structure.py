"""The structure of a model: what is compiled into its graphs. Values of variables are not."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from ..training.agreement import describe_parameter

ATOMS = (
    *(str, bytes, bool, int, float, type(None), type, np.generic),
    *(tf.DType, tf.TensorShape, FunctionType, BuiltinFunctionType, MethodType),
)
"""What is known by itself; functions by their identity."""

OF_TENSORFLOW = ("_self_", "_name", "_scope_name")
"""Names of attributes that count modules, or keep what TensorFlow knows of them, begin so."""


def structure_of(value: Any, seen: dict[int, int] | None = None) -> Hashable:
    """What two models have in common if each may do the other's work, once it has the other's values.

    :param seen: numbers of the objects met before, by their ids.
    """
    if isinstance(value, ATOMS):
        return value
    seen = {} if seen is None else seen
    if id(value) in seen:
        return "seen", seen[id(value)]
    seen[id(value)] = len(seen)
    kind = type(value)
    if isinstance(value, gpflow.Parameter):
        described = dict(describe_parameter(value, ""))
        described.pop(".value", None)
        return kind, repr(described)
    if isinstance(value, tf.Variable):
        return kind, value.dtype.name, tuple(value.shape), value.trainable
    if isinstance(value, (np.ndarray, tf.Tensor)):
        array = np.asarray(value)
        return array.shape, array.dtype.str, array.tobytes()
    if isinstance(value, Mapping):
        return kind, tuple((key, structure_of(child, seen)) for key, child in value.items())
    if isinstance(value, (list, tuple)):
        return kind, tuple(structure_of(child, seen) for child in value)
    if isinstance(value, slice):
        return kind, value.start, value.stop, value.step
    if hasattr(value, "get_config") and hasattr(value, "get_weights"):
        return id(value)  # a Keras model is its own structure
    if hasattr(value, "__dict__"):
        attributes = sorted(vars(value).items())
        return kind, tuple(
            (name, structure_of(child, seen))
            for name, child in attributes
            if not name.startswith(OF_TENSORFLOW)
        )
    return id(value)
