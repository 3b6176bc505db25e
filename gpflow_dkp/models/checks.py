"""What the models refuse: kernels, inducing points and data, with one clear line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel
from gpflow.likelihoods import Bernoulli, Likelihood, MultiClass, Softmax

from ..checks import check_positive_integer

BLOCK_ROWS = 65_536
"""Rows looked at together, so that an array larger than the memory can be checked."""


def check_kernels(kernels: Sequence[Kernel]) -> list[Kernel]:
    """The kernels as a list, one a layer.

    :raises ValueError: for none, or for what is no sequence of kernels.
    """
    if not isinstance(kernels, Sequence) or not kernels:
        raise ValueError(
            f"kernels: got {_brief(kernels)}, needs a list of GPflow kernels, one a layer"
        )
    for kernel in kernels:
        if not isinstance(kernel, Kernel):
            raise ValueError(f"kernels: got {_brief(kernel)} among them, needs GPflow kernels")
    return list(kernels)


def check_likelihood(likelihood: Likelihood) -> None:
    """Raise `ValueError` for what is no GPflow likelihood."""
    if not isinstance(likelihood, Likelihood):
        raise ValueError(f"likelihood: got {_brief(likelihood)}, needs a GPflow likelihood")


def check_widths(kernels: Sequence[Kernel], widths: Sequence[int]) -> None:
    """Raise `ValueError` unless there is one width fewer than kernels."""
    check_kernels(kernels)
    if np.ndim(widths) != 1:
        raise ValueError(f"widths: got {_brief(widths)}, needs a list of integers")
    if len(kernels) != len(widths) + 1:
        raise ValueError(
            f"got {len(kernels)} kernels and {len(widths)} widths, needs one kernel more than widths: "
            "the first acts on the inputs, then one after each hidden layer"
        )
    for width in widths:
        check_positive_integer("widths", width)


def check_arrays(
    X: np.ndarray, Y: np.ndarray, *, convert: bool = True, min_rows: int = 2
) -> tuple[np.ndarray, np.ndarray]:
    """X [N, D] and Y [N, P] as arrays of GPflow's default float, or of their own type.

    :param convert: to the default float; without it a memory-mapped array stays on the disk.
    :param min_rows: fewer rows are an error.
    :raises ValueError: for other shapes, too few rows, or NaN or infinite values.
    """
    X, Y = np.asarray(X), np.asarray(Y)
    for name, array in (("X", X), ("Y", Y)):
        if array.dtype.kind not in "biuf":
            raise ValueError(f"data: {name} is of type {array.dtype}, needs numbers")
    check_shapes(X, Y)
    if len(X) < min_rows:
        raise ValueError(f"data: got {len(X)} rows, needs at least {min_rows}")
    if X.shape[1] < 1 or Y.shape[1] < 1:
        raise ValueError(
            f"data: got X {X.shape} and Y {Y.shape}, needs at least one column in each"
        )
    for name, array in (("X", X), ("Y", Y)):
        for number, block in enumerate(row_blocks(array)):
            if not np.all(np.isfinite(block)):
                row, column = np.argwhere(~np.isfinite(block))[0]
                raise ValueError(
                    f"data: {name}[{number * BLOCK_ROWS + row}, {column}] is {block[row, column]}, needs "
                    "finite numbers; remove or impute such rows"
                )
    if not convert:
        return X, Y
    dtype = gpflow.default_float()
    return X.astype(dtype), Y.astype(dtype)


def check_shapes(X: np.ndarray, Y: np.ndarray) -> None:
    """Raise `ValueError` unless they are X [N, D] and Y [N, P]."""
    shapes = np.shape(X), np.shape(Y)
    if len(shapes[0]) != 2 or len(shapes[1]) != 2 or shapes[0][0] != shapes[1][0]:
        raise ValueError(f"data: got X {shapes[0]} and Y {shapes[1]}, needs X [N, D] and Y [N, P]")


def row_blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    """The rows of an array, `BLOCK_ROWS` at a time."""
    for start in range(0, len(array), BLOCK_ROWS):
        yield array[start : start + BLOCK_ROWS]


def check_labels(likelihood: Likelihood, Y: np.ndarray | tf.Tensor) -> None:
    """Raise `ValueError` for labels that a likelihood of classes would misread; none in a graph."""
    if tf.is_tensor(Y) and not hasattr(Y, "numpy"):
        return
    labels = np.unique(np.asarray(Y))
    if isinstance(likelihood, (Softmax, MultiClass)):
        allowed = [list(range(likelihood.num_classes))]
        needs = f"integers from 0 to {likelihood.num_classes - 1}"
    elif isinstance(likelihood, Bernoulli):
        allowed = [[0, 1], [-1, 1]]
        needs = "0 and 1, or -1 and 1"
    else:
        return
    if not any(np.all(np.isin(labels, choice)) for choice in allowed):
        bad = labels[~np.isin(labels, allowed[0])][0]
        raise ValueError(f"data: got a label {bad:g}, {type(likelihood).__name__} needs {needs}")


def _brief(value: object) -> str:
    """A value in an error message: its type, and itself where that is short."""
    text = "" if isinstance(value, Kernel) else repr(value)
    name = type(value).__name__
    return f"{name} {text}" if text and len(text) < 40 and "\n" not in text else name
