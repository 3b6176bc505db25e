"""What `fit` refuses at the door: arguments of the wrong type, sign or size, with one line each."""

from __future__ import annotations

import inspect
import math
import numbers
import os
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from gpflow.models import BayesianModel, ExternalDataTrainingLossMixin
from gpflow.models.training_mixins import InternalDataTrainingLossMixin

from ..checks import brief, check_positive_integer
from ..models import SampledModel
from ..random import as_seed
from .history import History

Callback: TypeAlias = "Callable[[int], Any] | Callable[[int, History], Any]"


def check_model(model: BayesianModel) -> None:
    """Raise `ValueError` for what is no model with a training loss and something to train."""
    losses = ExternalDataTrainingLossMixin, InternalDataTrainingLossMixin
    if not isinstance(model, BayesianModel) or not isinstance(model, losses):
        raise ValueError(
            f"model: got {brief(model)}, needs a model of gpflow_dkp.models or a GPflow model with a "
            "training loss"
        )
    if isinstance(model, SampledModel):
        raise ValueError(
            f"model: got an {type(model).__name__}, whose inducing values are sampled; call "
            "gpflow_dkp.training.sample"
        )
    if not model.trainable_variables:
        raise ValueError("fit: the model has no trainable variables")


def check_sampled_model(model: BayesianModel) -> None:
    """Raise `ValueError` for what is no model whose inducing values are sampled."""
    if not isinstance(model, SampledModel):
        raise ValueError(
            f"model: got {brief(model)}, needs an SGHMCDGP or SGHMCDWP; other models are trained by "
            "gpflow_dkp.training.fit"
        )


def check_integer(name: str, value: int) -> None:
    """Raise `ValueError` unless `value` is an integer of at least 0."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise ValueError(f"{name}: got {brief(value)}, needs an integer of at least 0")


def check_annealing(kl_annealing_steps: int | None, num_steps: int | None) -> None:
    """Raise `ValueError` unless the annealing is None or ends before the run does."""
    if kl_annealing_steps is None:
        return
    check_integer("kl_annealing_steps", kl_annealing_steps)
    if num_steps is not None and kl_annealing_steps >= num_steps:
        raise ValueError(
            f"kl_annealing_steps: got {kl_annealing_steps} of {num_steps} steps, needs fewer than "
            "num_steps, so that the run ends on the true bound; None is the schedule's part of them"
        )


def check_seconds(name: str, value: float) -> None:
    """Raise `ValueError` unless `value` is a number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not float(value) >= 0.0:
        raise ValueError(f"{name}: got {brief(value)}, needs a number of seconds of at least 0")


def check_seed(seed: int) -> tf.Tensor:
    """The stateless seed [2] of an integer, or one as it is.

    :raises ValueError: for anything else.
    """
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
        return as_seed(seed)
    if isinstance(seed, (np.ndarray, tf.Tensor)) and seed.shape == (2,):
        dtype = tf.as_dtype(seed.dtype)
        if dtype.is_integer:
            return as_seed(seed)
    raise ValueError(f"seed: got {brief(seed)}, needs an integer")


def check_directory(checkpoint_dir: str | os.PathLike[str] | None) -> None:
    """Raise `ValueError` for what is no path."""
    if checkpoint_dir is not None and not isinstance(checkpoint_dir, (str, os.PathLike)):
        raise ValueError(f"checkpoint_dir: got {brief(checkpoint_dir)}, needs a path or None")
    if checkpoint_dir == "":
        raise ValueError("checkpoint_dir: got an empty path, needs a directory or None")


def check_progress(progress: bool) -> None:
    """Raise `ValueError` for what is no truth value."""
    if not isinstance(progress, (bool, np.bool_)):
        raise ValueError(f"progress: got {brief(progress)}, needs True or False")


def check_pair(name: str, data: Any) -> tuple[Any, Any]:
    """X and Y.

    :raises ValueError: for what is no pair.
    """
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        shape = f" of shape {data.shape}" if hasattr(data, "shape") else ""
        raise ValueError(f"{name}: got {type(data).__name__}{shape}, needs a pair (X, Y)")
    for letter, part in zip("XY", data, strict=True):
        try:
            np.asarray(part)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}: {letter} is no array of numbers; its rows differ") from error
    return data[0], data[1]


def check_patience(patience: int | None, validation_data: object) -> None:
    """Raise `ValueError` unless patience is None or a number of validations that will take place."""
    if patience is None:
        return
    check_positive_integer("patience", patience)
    if validation_data is None:
        raise ValueError(f"patience: got {patience}, needs validation_data to judge by")


def check_callbacks(callbacks: Iterable[Callback]) -> list[Callable[[int, History], Any]]:
    """The callbacks as functions of the step and the history, whichever of the two they take.

    :raises ValueError: for what is not callable, or with neither (step) nor (step, history).
    """
    if isinstance(callbacks, (str, bytes)) or not isinstance(callbacks, Iterable):
        raise ValueError(
            f"callbacks: got {brief(callbacks)}, needs a list of functions of (step) or (step, history)"
        )
    return [_of_step_and_history(callback) for callback in callbacks]


def _of_step_and_history(callback: Any) -> Callable[[int, History], Any]:
    if not callable(callback):
        raise ValueError(f"callbacks: got {brief(callback)} among them, needs functions")
    try:
        signature = inspect.signature(callback)
    except (TypeError, ValueError):  # some built-in functions do not say
        return lambda step, _: callback(step)
    required = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    # A second parameter with a default is a closure's (lambda step, model=model: ...), but for this name.
    if len(required) == 2 or "history" in list(signature.parameters)[1:2]:
        return callback
    try:
        signature.bind(0)
    except TypeError as error:
        raise ValueError(
            f"callbacks: got a function of {signature}, needs (step) or (step, history)"
        ) from error
    return lambda step, _: callback(step)


def is_real(value: object) -> bool:
    """Whether it is a finite number, and no truth value."""
    return (
        isinstance(value, numbers.Real)
        and not isinstance(value, (bool, np.bool_))
        and math.isfinite(value)
    )
