"""Checks of arguments: each raises one line that says what was got and what is allowed."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingVariables
from gpflow.models.util import inducingpoint_wrapper


def check_positive_integer(name: str, value: int) -> None:
    """Raise `ValueError` unless `value` is an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name}: got {value!r}, needs an integer of at least 1")


def check_positive(name: str, value: float) -> None:
    """Raise `ValueError` unless `value` is a positive finite number."""
    if not np.isscalar(value) or not np.isreal(value) or not 0.0 < value < np.inf:
        raise ValueError(f"{name}: got {value!r}, needs a positive finite number")


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise `ValueError` unless `value` is one of `allowed`."""
    if value not in allowed:
        raise ValueError(f"{name}: got {value!r}, choose one of {', '.join(allowed)}")


def check_inducing_variable(inducing_variable: InducingVariables | tf.Tensor) -> InducingVariables:
    """GPflow inducing points of an array Z [M, D], or as given.

    :raises ValueError: for another shape, no points, or NaN or infinite values.
    """
    given = isinstance(inducing_variable, InducingVariables)
    Z = np.asarray(inducing_variable.Z if given else inducing_variable)
    if Z.ndim != 2 or Z.size == 0:
        raise ValueError(
            f"inducing_variable: got shape {Z.shape}, needs [M, D] with M and D at least 1"
        )
    if Z.dtype.kind not in "biuf" or not np.all(np.isfinite(Z)):
        raise ValueError("inducing_variable: got values that are not finite numbers")
    return inducing_variable if given else inducingpoint_wrapper(Z)
