"""Checks of arguments: each raises one line that says what was got and what is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.models.util import inducingpoint_wrapper


def brief(value: object) -> str:
    """A value in an error message: itself where that is short and of one line, else what it is."""
    shape = getattr(value, "shape", None)
    if shape is not None and tuple(shape):
        return f"an array of shape {tuple(shape)}"
    text = repr(value)
    return text if len(text) < 60 and "\n" not in text else type(value).__name__


def check_positive_integer(name: str, value: int) -> None:
    """Raise `ValueError` unless `value` is an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name}: got {brief(value)}, needs an integer of at least 1")


def check_positive_integers(name: str, values: Sequence[int]) -> None:
    """Raise `ValueError` unless `values` is a list, perhaps empty, of integers of at least 1."""
    if isinstance(values, (str, bytes)) or not isinstance(values, (Sequence, np.ndarray)):
        raise ValueError(f"{name}: got {brief(values)}, needs a list of integers")
    for value in values:
        check_positive_integer(name, value)


def check_seed(name: str, value: int) -> None:
    """Raise `ValueError` unless `value` is an integer of at least 0, as NumPy's generators need."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise ValueError(f"{name}: got {brief(value)}, needs an integer of at least 0")


def check_seeds(name: str, value: int | Sequence[int]) -> None:
    """Raise `ValueError` unless `value` is such an integer, or a list of some."""
    values: Sequence[Any] = value if isinstance(value, (list, tuple)) and value else [value]
    try:
        for each in values:
            check_seed(name, each)
    except ValueError as error:
        raise ValueError(
            f"{name}: got {brief(value)}, needs an integer of at least 0, or a list of such"
        ) from error


def check_flag(name: str, value: bool) -> None:
    """Raise `ValueError` unless `value` is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name}: got {brief(value)}, needs True or False")


def check_positive(name: str, value: float) -> None:
    """Raise `ValueError` unless the scalar `value` is a positive finite number."""
    if not np.isscalar(value) or not np.isreal(value) or not 0.0 < value < np.inf:
        raise ValueError(f"{name}: got {brief(value)}, needs a positive finite number")


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise `ValueError` unless `value` is one of `allowed`."""
    if value not in allowed:
        raise ValueError(f"{name}: got {brief(value)}, choose one of {', '.join(allowed)}")


def check_inducing_variable(inducing_variable: InducingVariables | tf.Tensor) -> InducingVariables:
    """GPflow inducing points of an array Z [M, D], or as given.

    :raises ValueError: for another shape, no points, or NaN or infinite values.
    """
    given = isinstance(inducing_variable, InducingVariables)
    if given and not hasattr(inducing_variable, "Z"):
        raise ValueError(
            f"inducing_variable: got {type(inducing_variable).__name__}, needs inducing points Z [M, D]"
        )
    try:
        Z = np.asarray(inducing_variable.Z if given else inducing_variable)
    except ValueError as error:
        raise ValueError(
            "inducing_variable: got rows of different lengths, needs [M, D]"
        ) from error
    if Z.ndim != 2 or Z.size == 0:
        raise ValueError(
            f"inducing_variable: got shape {Z.shape}, needs [M, D] with M and D at least 1"
        )
    if Z.dtype.kind not in "biuf" or not np.all(np.isfinite(Z)):
        raise ValueError("inducing_variable: got values that are not finite numbers")
    return inducing_variable if given else inducingpoint_wrapper(Z)


def num_points_and_features(inducing_variable: InducingVariables) -> tuple[int, int]:
    """M and D of inducing points Z [M, D], without their values where the shape is known."""
    shape = inducing_variable.Z.shape
    known = shape if shape.is_fully_defined() else tf.convert_to_tensor(inducing_variable.Z).shape
    return known[0], known[1]


def check_single_output_kernel(kernel: Kernel, inducing_variable: InducingVariables) -> None:
    """Raise `ValueError` for no GPflow kernel, one of several outputs, or one for other columns."""
    name = type(kernel).__name__
    if not isinstance(kernel, Kernel):
        raise ValueError(f"kernel: got {brief(kernel)}, needs a GPflow kernel")
    if isinstance(kernel, MultioutputKernel):
        raise ValueError(f"kernel: got {name}, needs one of a single output, which all share")
    if not isinstance(inducing_variable, InducingPoints):
        return
    Z = tf.convert_to_tensor(inducing_variable.Z)
    try:
        kernel(Z[:2])
    except Exception as error:  # whatever the user's kernel raises
        raise ValueError(
            f"kernel: {name} fails on inputs of {Z.shape[1]} columns ({type(error).__name__}), needs one "
            "for as many columns as the inducing points have"
        ) from error
