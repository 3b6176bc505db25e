"""Conversion and checks of the parameters of bijectors and distributions.

Shapes are always checked. Values are checked when they can be read without running a graph; a
`tf.Variable` may change, so its values are only checked by `validate_args=True`, at run time.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp


def is_variable(value: Any) -> bool:
    """Whether `value` may change after construction: a variable or a deferred tensor."""
    return isinstance(value, (tf.Variable, tfp.util.DeferredTensor))


def floating_dtype(*values: Any, dtype: Any = None) -> tf.DType:
    """The one floating dtype of `values`; float64 when none of them has one.

    :param values: tensors, variables, arrays, Python numbers or `None`.
    :param dtype: the dtype to use, or `None` to take that of `values`.
    :raises ValueError: when two of them disagree, or `dtype` is not floating.
    """
    dtypes = [] if dtype is None else [tf.as_dtype(dtype)]
    if dtypes and not dtypes[0].is_floating:
        raise ValueError(f"dtype is {dtypes[0].name}; it must be floating: use tf.float64.")
    for value in values:
        if isinstance(value, numbers.Number) or not hasattr(value, "dtype"):
            continue
        value_dtype = tf.as_dtype(value.dtype)
        if value_dtype.is_floating:
            dtypes.append(value_dtype)
    if len(set(dtypes)) > 1:
        names = ", ".join(sorted({dtype.name for dtype in dtypes}))
        raise ValueError(f"parameters have dtypes {names}; cast them all to one floating dtype.")
    return dtypes[0] if dtypes else tf.float64


def as_parameter(value: Any, dtype: tf.DType, name: str) -> Any:
    """`value` as a tensor; variables and `None` stay what they are, to be read when used."""
    if value is None or is_variable(value):
        return value
    return tf.convert_to_tensor(value, dtype=dtype, name=name)


def gram_rank(df: Any, dimension: int) -> int:
    """The rank p = min(dimension, df) of a Gram matrix with `df` degrees of freedom.

    :param df: a number: an integer >= 1, or a real > dimension - 1; or a floating tensor of any
        batch shape, > dimension - 1.
    :param dimension: P, a Python integer >= 1.
    :raises ValueError: for any other `df` or `dimension`.
    """
    if not isinstance(dimension, numbers.Integral) or dimension < 1:
        raise ValueError(f"dimension is {dimension!r}; it must be an integer >= 1.")
    dimension = int(dimension)
    if not isinstance(df, numbers.Real):
        value = None if is_variable(df) else tf.get_static_value(tf.convert_to_tensor(df))
        if value is not None and not np.all(value > dimension - 1):
            raise ValueError(
                f"df is a tensor with smallest value {np.min(value)}; a tensor must be > "
                f"dimension - 1 = {dimension - 1}. For a singular matrix pass a Python integer."
            )
        return dimension
    if math.isfinite(df) and df > dimension - 1:
        return dimension
    if math.isfinite(df) and df >= 1 and df == int(df):
        return int(df)
    raise ValueError(
        f"df is {df} for dimension {dimension}; it must be an integer >= 1 (singular below the "
        f"dimension) or a real > {dimension - 1}."
    )


def matrix_dimension(name: str, value: Any) -> int:
    """The static size P of a square matrix [..., P, P].

    :raises ValueError: when the last two dimensions are unknown, or differ.
    """
    shape = value.shape
    if shape.rank is None or shape.rank < 2 or shape[-1] is None or shape[-1] != shape[-2]:
        raise ValueError(
            f"{name} has shape {shape}; it must be [..., P, P] with a known P: a square matrix "
            "or a batch of them."
        )
    return int(shape[-1])


def check_event_shape(
    name: str, value: Any, event_shape: Sequence[int | None], letters: str
) -> None:
    """Check the static shape of `value` against [..., *event_shape]; `None` passes.

    :param letters: the shape as the message should write it, such as "[..., P, p]".
    :raises ValueError: when they cannot agree.
    """
    if value is None or value.shape.rank is None:
        return
    allowed = tf.TensorShape([*event_shape])
    rank = len(event_shape)
    if value.shape.rank < rank or not allowed.is_compatible_with(value.shape[-rank:]):
        raise ValueError(
            f"{name} has shape {value.shape}; its last {rank} must be {tuple(event_shape)}: pass "
            f"{letters}."
        )


def check_positive_values(name: str, value: Any) -> None:
    """Check that known values are finite and positive.

    :raises ValueError: when one is not.
    """
    known = _known_value(value)
    if known is not None and not np.all((known > 0) & np.isfinite(known)):
        raise ValueError(
            f"{name} has the value {_first(known, ~((known > 0) & np.isfinite(known)))}; every "
            f"value must be finite and > 0: constrain it, with a softplus for example."
        )


def check_finite_values(name: str, value: Any) -> None:
    """Check that known values are finite.

    :raises ValueError: when one is not.
    """
    known = _known_value(value)
    if known is not None and not np.all(np.isfinite(known)):
        raise ValueError(
            f"{name} has the value {_first(known, ~np.isfinite(known))}; every value must be "
            "finite: remove NaN and infinite entries."
        )


def check_lower_triangular(name: str, value: Any, *, positive_diagonal: bool) -> None:
    """Check that a known matrix is lower triangular and has a positive, or non-zero, diagonal.

    :raises ValueError: when it is not.
    """
    check_finite_values(name, value)
    known = _known_value(value)
    if known is None:
        return
    if np.any(np.triu(known, 1) != 0):
        raise ValueError(
            f"{name} has non-zero values above the diagonal; it must be lower triangular: pass "
            "the output of tf.linalg.cholesky or tf.linalg.band_part(..., -1, 0)."
        )
    diagonal = np.diagonal(known, axis1=-2, axis2=-1)
    wrong = diagonal <= 0 if positive_diagonal else diagonal == 0
    if np.any(wrong):
        allowed = "> 0: pass the output of tf.linalg.cholesky" if positive_diagonal else "not 0"
        raise ValueError(
            f"{name} has {_first(diagonal, wrong)} on its diagonal; every value there must be "
            f"{allowed}."
        )


def _known_value(value: Any) -> np.ndarray | None:
    return None if value is None or is_variable(value) else tf.get_static_value(value)


def _first(values: np.ndarray, wrong: np.ndarray) -> float:
    return float(values[wrong].flat[0])
