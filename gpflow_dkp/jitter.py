"""The jitter that is added to covariances: a variable, so that a compiled step sees it raised."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf

from .checks import brief

IGNORING_JITTER = frozenset({*tf.Module._TF_MODULE_IGNORED_PROPERTIES, "jitter"})
"""For `_TF_MODULE_IGNORED_PROPERTIES` of what has one: no parameter, `set_trainable` is to leave it alone."""


def jitter_variable(jitter: float | None = None) -> tf.Variable:
    """A variable of this value, default GPflow's jitter, in GPflow's default float.

    :raises ValueError: for a negative or infinite one.
    """
    jitter = gpflow.default_jitter() if jitter is None else jitter
    number = isinstance(jitter, (int, float, np.number)) and not isinstance(jitter, bool)
    if not number or not 0.0 <= float(jitter) < np.inf:
        raise ValueError(f"jitter: got {brief(jitter)}, needs a finite number of at least 0")
    return tf.Variable(jitter, dtype=gpflow.default_float(), trainable=False, name="jitter")


def jitters_of(model: tf.Module) -> list[tf.Variable]:
    """The variables named `jitter` of a model and its parts, each once, the model's first."""
    found = [getattr(module, "jitter", None) for module in (model, *model.submodules)]
    variables = [jitter for jitter in found if isinstance(jitter, tf.Variable)]
    return list({id(jitter): jitter for jitter in variables}.values())
