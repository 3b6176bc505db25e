"""What the models refuse: kernels, likelihoods and data, with one clear line each."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, MultioutputKernel, SeparateIndependent
from gpflow.likelihoods import (
    Bernoulli,
    Beta,
    Exponential,
    Gamma,
    Likelihood,
    MultiClass,
    Ordinal,
    Poisson,
    Softmax,
    SwitchedLikelihood,
)

from ..checks import check_positive_integer
from ..gram import KernelNotComputableFromGram, from_inputs

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
    """Raise `ValueError` for what is no GPflow likelihood, or one of fewer than two classes."""
    if not isinstance(likelihood, Likelihood):
        a_class = inspect.isclass(likelihood)
        got = f"the class {likelihood.__name__}" if a_class else _brief(likelihood)
        raise ValueError(
            f"likelihood: got {got}, needs a GPflow likelihood object, such as "
            "gpflow.likelihoods.Gaussian()"
        )
    if isinstance(likelihood, (MultiClass, Softmax)):
        number = likelihood.num_classes
        if not isinstance(number, (int, np.integer)) or number < 2:
            raise ValueError(f"likelihood: got {number} class, needs at least 2 to tell apart")
    if isinstance(likelihood, SwitchedLikelihood):
        if not likelihood.likelihoods:
            raise ValueError("likelihood: got SwitchedLikelihood of none, needs at least 1")
        for part in likelihood.likelihoods:
            check_likelihood(part)


def check_num_latent_gps(likelihood: Likelihood, num_latent_gps: int | None) -> int:
    """Number of latent functions: as the likelihood needs, as given, or 1.

    :param num_latent_gps: None for what the likelihood needs, 1 where it takes any number.
    :raises ValueError: for a number that the likelihood cannot take, or what is no likelihood.
    """
    check_likelihood(likelihood)
    needed = _latent_dim(likelihood)
    if num_latent_gps is None:
        return needed or 1
    check_positive_integer("num_latent_gps", num_latent_gps)
    if needed not in (None, num_latent_gps):
        one_each = ", one a class" if isinstance(likelihood, (MultiClass, Softmax)) else ""
        raise ValueError(
            f"num_latent_gps: got {num_latent_gps}, {type(likelihood).__name__} needs {needed}{one_each}"
        )
    return int(num_latent_gps)


def check_outputs_of_layers(likelihood: Likelihood, num_outputs: int) -> None:
    """Raise `ValueError` unless the last layer's number of outputs is what the likelihood needs."""
    check_likelihood(likelihood)
    needed = _latent_dim(likelihood)
    if needed not in (None, num_outputs):
        raise ValueError(
            f"layers: the last gives {num_outputs} outputs, {type(likelihood).__name__} needs {needed}"
        )


def num_target_columns(likelihood: Likelihood, num_latent_gps: int) -> int:
    """Columns of Y: one an output, one of labels, and one more for the index of a `SwitchedLikelihood`."""
    if isinstance(likelihood, SwitchedLikelihood):
        return 1 + num_target_columns(likelihood.likelihoods[0], num_latent_gps)
    if likelihood.observation_dim is not None:
        return likelihood.observation_dim
    return 1 if isinstance(likelihood, (MultiClass, Softmax)) else num_latent_gps


def num_latent_gps_for(likelihood: Likelihood, Y: np.ndarray | tf.Tensor) -> int:
    """Number of latent functions of a model of targets Y [N, ...]; the inverse of `num_target_columns`.

    :raises ValueError: for a number of columns that the likelihood cannot take.
    """
    check_likelihood(likelihood)
    columns = Y.shape[-1]
    of_outputs = columns - num_index_columns(likelihood)
    num_latent_gps = _latent_dim(likelihood) or max(1, of_outputs)
    check_target_columns(likelihood, num_latent_gps, Y)
    return num_latent_gps


def check_target_columns(
    likelihood: Likelihood, num_latent_gps: int, Y: np.ndarray | tf.Tensor
) -> None:
    """Raise `ValueError` unless Y has the columns that the likelihood takes."""
    columns = num_target_columns(likelihood, num_latent_gps)
    if Y.shape[-1] not in (None, columns):
        noun = "column" if columns == 1 else "columns"
        switched = isinstance(likelihood, SwitchedLikelihood)
        last = ", the last of them the index of a likelihood" if switched else ""
        raise ValueError(
            f"data: got Y {tuple(Y.shape)}, needs {columns} {noun} for {likelihood.name}{last}"
        )


def num_index_columns(likelihood: Likelihood) -> int:
    """Columns of Y that say which likelihood is a row's."""
    if not isinstance(likelihood, SwitchedLikelihood):
        return 0
    return 1 + num_index_columns(likelihood.likelihoods[0])


def _latent_dim(likelihood: Likelihood) -> int | None:
    """Latent functions that a likelihood needs, None for any number."""
    if not isinstance(likelihood, SwitchedLikelihood):
        return likelihood.latent_dim
    each = (_latent_dim(part) for part in likelihood.likelihoods)
    needed = {number for number in each if number is not None}
    if len(needed) > 1:
        raise ValueError(
            f"likelihood: got SwitchedLikelihood of parts with {sorted(needed)} latent functions, needs "
            "one number for all"
        )
    return needed.pop() if needed else None


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


def check_mean_function(mean_function: MeanFunction | None, Z: tf.Tensor, num_outputs: int) -> None:
    """Raise `ValueError` unless it is None, or gives a column an output at inputs such as Z [M, D]."""
    if mean_function is None:
        return
    if not isinstance(mean_function, MeanFunction):
        raise ValueError(
            f"mean_function: got {_brief(mean_function)}, needs a GPflow mean function, such as "
            "gpflow.functions.Constant()"
        )
    name = type(mean_function).__name__
    columns = _evaluate(f"mean_function: {name}", mean_function, Z).shape[-1]
    if columns not in (1, num_outputs):
        raise ValueError(f"mean_function: {name} gives {columns} columns, needs {num_outputs}")


def check_kernel_on_inputs(kernel: Kernel, Z: tf.Tensor) -> None:
    """Raise `ValueError` unless the kernel takes inputs such as Z [M, D]."""
    _evaluate(
        f"kernel {type(kernel).__name__}", lambda points: from_inputs(kernel, points, points).ii, Z
    )


def _evaluate(what: str, function: Callable[[tf.Tensor], tf.Tensor], Z: tf.Tensor) -> tf.Tensor:
    """A user's function at the first inducing point, an error of which is said to be of its shapes."""
    try:
        return function(tf.convert_to_tensor(Z)[:1])
    except KernelNotComputableFromGram:
        raise
    except Exception as error:
        reason = re.sub(r"\{\{.*?\}\} | \[Op:.*", "", str(error).strip().partition("\n")[0])
        raise ValueError(
            f"{what} does not take inputs of {Z.shape[-1]} columns: {reason}"
        ) from error


def check_arrays(
    X: np.ndarray, Y: np.ndarray, *, convert: bool = True, min_rows: int = 2
) -> tuple[np.ndarray, np.ndarray]:
    """X [N, D] and Y [N, P] as arrays of GPflow's default float, or of their own type.

    :param convert: to the default float; without it a memory-mapped array stays on the disk.
    :param min_rows: fewer rows are an error.
    :raises ValueError: for other shapes, too few rows, or what are no finite numbers.
    """
    X, Y = _as_numbers("X", X), _as_numbers("Y", Y)
    check_shapes(X, Y)
    if len(X) < min_rows:
        raise ValueError(f"data: got {len(X)} rows, needs at least {min_rows}")
    if X.shape[1] < 1 or Y.shape[1] < 1:
        raise ValueError(
            f"data: got X {X.shape} and Y {Y.shape}, needs at least one column in each"
        )
    for name, array in (("X", X), ("Y", Y)):
        _check_range(name, array, float(np.finfo(gpflow.default_float()).max))
    if not convert:
        return X, Y
    dtype = gpflow.default_float()
    return X.astype(dtype), Y.astype(dtype)


def check_shapes(X: np.ndarray, Y: np.ndarray) -> None:
    """Raise `ValueError` unless they are X [N, D] and Y [N, P]."""
    shapes = _shape("X", X), _shape("Y", Y)
    if len(shapes[0]) != 2 or len(shapes[1]) != 2 or shapes[0][0] != shapes[1][0]:
        column = len(shapes[0]) == 2 and len(shapes[1]) == 1
        remedy = "; a single column is np.reshape(Y, (-1, 1))" if column else ""
        raise ValueError(
            f"data: got X {shapes[0]} and Y {shapes[1]}, needs X [N, D] and Y [N, P]{remedy}"
        )


def _shape(name: str, value: Any) -> tuple[int, ...]:
    """The shape of an array, or of lists."""
    return tuple(value.shape) if hasattr(value, "shape") else _as_numbers(name, value).shape


def _as_numbers(name: str, value: Any) -> np.ndarray:
    """An array of real numbers, which is not copied where it is one."""
    if tf.is_tensor(value) and not hasattr(value, "numpy"):
        raise ValueError(f"data: {name} has no values inside a tf.function, needs arrays")
    if np.ma.is_masked(value):
        raise ValueError(
            f"data: {name} has masked values, needs numbers; remove or impute such rows"
        )
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise ValueError(f"data: {name} is {_brief(value)}, needs rows of equal length") from error
    if array.dtype.kind not in "biuf":
        raise ValueError(f"data: {name} is of type {array.dtype}, needs numbers")
    return array


def _check_range(name: str, array: np.ndarray, largest: float, remedy: str = "") -> None:
    """Raise `ValueError` for a NaN, or a number beyond `largest`."""
    if array.dtype.kind != "f":
        return
    largest = min(largest, float(np.finfo(array.dtype).max))
    for first, block in _numbered_blocks(array):
        outside = ~((block >= -largest) & (block <= largest))
        if not np.any(outside):
            continue
        row, column = np.argwhere(outside)[0]
        value = block[row, column]
        if np.isfinite(value):
            dtype = np.dtype(gpflow.default_float()).name
            needs = f"{remedy or 'finite numbers'} in {dtype}, at most {largest:.2g}"
        else:
            needs = "finite numbers; remove or impute such rows"
        raise ValueError(f"data: {name}[{first + row}, {column}] is {value}, needs {needs}")


def _numbered_blocks(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """`row_blocks`, each with the number of its first row."""
    for number, block in enumerate(row_blocks(array)):
        yield number * BLOCK_ROWS, block


def row_blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    """The rows of an array, `BLOCK_ROWS` at a time."""
    for start in range(0, len(array), BLOCK_ROWS):
        yield array[start : start + BLOCK_ROWS]


@dataclasses.dataclass(frozen=True)
class Support:
    """The targets to which a likelihood gives a density.

    :param needs: which they are, in words.
    :param lowest: bound.
    :param highest: bound.
    :param strict: the bounds themselves are none of them.
    :param integers: integers only.
    :param noun: what one is called.
    """

    needs: str = "finite numbers"
    lowest: float = -np.inf
    highest: float = np.inf
    strict: bool = False
    integers: bool = False
    noun: str = "value"

    def outside(self, Y: np.ndarray) -> np.ndarray:
        """Which entries of an array are not in it, in GPflow's default float: 1e-300 may be 0 there."""
        Y = Y.astype(gpflow.default_float(), copy=False)
        if self.strict:
            inside = (self.lowest < Y) & (self.highest > Y)
        else:
            inside = (self.lowest <= Y) & (self.highest >= Y)
        if self.integers:
            inside &= np.floor(Y) == Y
        return ~inside


@functools.singledispatch
def target_support(likelihood: Likelihood) -> Support:
    """Targets that a likelihood takes: finite numbers, unless `target_support.register` says otherwise."""
    return Support()


@target_support.register(MultiClass)
@target_support.register(Softmax)
def _of_classes(likelihood: MultiClass | Softmax) -> Support:
    return _labels(likelihood.num_classes)


@target_support.register(Ordinal)
def _of_bins(likelihood: Ordinal) -> Support:
    return _labels(likelihood.num_bins)


@target_support.register(Bernoulli)
def _of_two(likelihood: Bernoulli) -> Support:
    return Support("0 and 1, or -1 and 1", -1, 1, integers=True, noun="label")


@target_support.register(Poisson)
def _of_counts(likelihood: Poisson) -> Support:
    return Support("integers of at least 0", 0, integers=True, noun="count")


@target_support.register(Exponential)
def _of_times(likelihood: Exponential) -> Support:
    return Support("numbers of at least 0", 0)


@target_support.register(Gamma)
def _of_sizes(likelihood: Gamma) -> Support:
    return Support("positive numbers", 0, strict=True)


@target_support.register(Beta)
def _of_fractions(likelihood: Beta) -> Support:
    return Support("numbers strictly between 0 and 1", 0, 1, strict=True)


def _labels(number: int) -> Support:
    return Support(f"integers from 0 to {number - 1}", 0, number - 1, integers=True, noun="label")


@tf.autograph.experimental.do_not_convert
def check_targets(likelihood: Likelihood, Y: np.ndarray | tf.Tensor) -> None:
    """Raise `ValueError` for targets Y [N, P] that a likelihood cannot have given, or whose squares overflow.

    Nothing is said of tensors without values in a graph.
    """
    if tf.is_tensor(Y) and not hasattr(Y, "numpy"):
        return
    Y = _as_numbers("Y", Y)
    if Y.ndim != 2 or Y.shape[1] < 1:
        raise ValueError(f"data: got Y {Y.shape}, needs Y [N, P] with P at least 1")
    largest = float(np.sqrt(np.finfo(gpflow.default_float()).max))
    _check_range("Y", Y, largest, "numbers whose squares are finite")
    _check_support(likelihood, Y)


def _check_support(likelihood: Likelihood, Y: np.ndarray, rows: np.ndarray | None = None) -> None:
    """Raise `ValueError` for targets that a likelihood cannot have given.

    :param rows: number of each row of Y in the data.
    """
    if isinstance(likelihood, SwitchedLikelihood):
        _check_switched(likelihood, Y, np.arange(len(Y)) if rows is None else rows)
        return
    support = target_support(likelihood)
    for first, block in _numbered_blocks(Y):
        outside = support.outside(block)
        if np.any(outside):
            row, column = np.argwhere(outside)[0]
            _refuse(likelihood, support, Y, first + row, column, rows)
    if isinstance(likelihood, Bernoulli) and np.any(Y == -1) and np.any(Y == 0):
        row, column = np.argwhere(Y == -1)[0]
        _refuse(likelihood, support, Y, row, column, rows, beside=" beside 0")


def _check_switched(likelihood: SwitchedLikelihood, Y: np.ndarray, rows: np.ndarray) -> None:
    """`_check_support` of each row by the likelihood that its last column names."""
    index = Y[:, -1]
    support = dataclasses.replace(_labels(len(likelihood.likelihoods)), noun="likelihood's index")
    outside = np.flatnonzero(support.outside(index))
    if outside.size:
        _refuse(likelihood, support, Y, outside[0], Y.shape[1] - 1, rows)
    for number, part in enumerate(likelihood.likelihoods):
        own = np.flatnonzero(index == number)
        _check_support(part, Y[own, :-1], rows[own])


def _refuse(
    likelihood: Likelihood,
    support: Support,
    Y: np.ndarray,
    row: int,
    column: int,
    rows: np.ndarray | None,
    beside: str = "",
) -> None:
    """Raise the `ValueError` of a target outside the support."""
    value = float(Y[row, column])
    text = f"{value:g}" if float(f"{value:g}") == value else repr(value)
    raise ValueError(
        f"data: got a {support.noun} {text}{beside}, {type(likelihood).__name__} needs {support.needs}; "
        f"see Y[{row if rows is None else rows[row]}, {column}]"
    )


def _brief(value: object) -> str:
    """A value in an error message: its type, and itself where that is short."""
    text = "" if isinstance(value, Kernel) else repr(value)
    name = type(value).__name__
    return f"{name} {text}" if text and len(text) < 40 and "\n" not in text else name


def kernels_of_outputs(name: str, kernel: Kernel, num_outputs: int) -> tuple[Kernel, ...]:
    """One kernel for each of P outputs, of one for all or of `SeparateIndependent`.

    :raises ValueError: another number of kernels, or a kernel of several outputs.
    """
    if isinstance(kernel, SeparateIndependent):
        if len(kernel.kernels) != num_outputs:
            raise ValueError(
                f"{name}: got SeparateIndependent of {len(kernel.kernels)} kernels, needs one for "
                f"each of {num_outputs} outputs"
            )
        return tuple(kernel.kernels)
    if isinstance(kernel, MultioutputKernel):
        raise ValueError(
            f"{name}: got {type(kernel).__name__}, needs a kernel of one output or SeparateIndependent"
        )
    return (kernel,) * num_outputs
