"""The training set, in memory, on disk or as a `tf.data.Dataset`, and its minibatches."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import BayesianModel
from gpflow.models.training_mixins import InternalDataTrainingLossMixin

from ..checks import brief, check_positive_integer
from ..models import MonteCarloModel
from ..models.checks import check_arrays, check_targets
from .agreement import fingerprint
from .arguments import check_pair
from .schedules import minibatch_rows


class Minibatch(NamedTuple):
    """Some rows of a training set.

    :param data: X [B, D] and Y [B, P]; None of a model that has its data inside.
    :param rows: which rows they are [B], None for all of them in order, or where that is not known.
    :param size: B.
    """

    data: tuple[tf.Tensor, tf.Tensor] | None
    rows: tf.Tensor | None
    size: int | tf.Tensor


class TrainingData(abc.ABC):
    """A training set of `num_data` rows, of which each step sees `batch_size`, None if they vary."""

    num_data: int | tf.Variable
    batch_size: int | None

    @abc.abstractmethod
    def fingerprint(self) -> list:
        """What a run must agree on to go on from a checkpoint."""

    @abc.abstractmethod
    def minibatch(self, step: tf.Tensor) -> Minibatch:
        """The minibatch of 0-based `step`."""

    @abc.abstractmethod
    def example(self) -> tuple[tf.Tensor, tf.Tensor]:
        """A few rows."""

    def start_at(self, step: int) -> None:  # noqa: B027  # only what is read in order must go there
        """Make ready for `step` and those after it."""


class ArrayData(TrainingData):
    """X [N, D] and Y [N, P], held in memory or, where one is a `numpy.memmap`, read a minibatch at a time.

    :param batch_size: default and at most N.
    :param seed: of the order of the rows.
    """

    def __init__(self, data: RegressionData, batch_size: int | None, seed: tf.Tensor) -> None:
        pair = check_pair("data", data)
        if batch_size is not None:
            check_positive_integer("batch_size", batch_size)
        on_disk = any(isinstance(part, np.memmap) for part in pair)
        arrays = check_arrays(*pair, convert=not on_disk)
        self._arrays = arrays
        self._tensors = None if on_disk else tuple(tf.constant(array) for array in arrays)
        self._seed = seed
        self.num_data = len(arrays[0])
        self.batch_size: int = min(batch_size or self.num_data, self.num_data)

    @property
    def labels(self) -> np.ndarray:
        """Y."""
        return self._arrays[1]

    def fingerprint(self) -> list:
        """The shape of X and a digest of X and Y."""
        return fingerprint(self._arrays)

    def minibatch(self, step: tf.Tensor) -> Minibatch:
        """Rows of a new permutation in each epoch, or all in order."""
        if self.batch_size == self.num_data:
            data = self._tensors or self._read(np.arange(self.num_data))
            return Minibatch(data, None, self.num_data)
        rows = minibatch_rows(step, self.batch_size, self.num_data, self._seed)
        if self._tensors is None:
            return Minibatch(self._read(rows), rows, self.batch_size)
        data = tuple(tf.gather(tensor, rows) for tensor in self._tensors)
        return Minibatch(data, rows, self.batch_size)

    def example(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The first two rows."""
        X, Y = (tf.constant(np.asarray(a[:2], gpflow.default_float())) for a in self._arrays)
        return X, Y

    def _read(self, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Rows from the disk."""
        dtype = gpflow.default_float()

        def read(rows: np.ndarray) -> tuple[np.ndarray, ...]:
            return tuple(array[rows].astype(dtype) for array in self._arrays)

        parts = tf.numpy_function(read, [rows], [dtype, dtype], stateful=False)
        for part, array in zip(parts, self._arrays, strict=True):
            part.set_shape([self.batch_size, array.shape[1]])
        return tuple(parts)


class ReplaceableData(TrainingData):
    """X [N, D] and Y [N, P] in variables, whose place others take without anything being compiled again.

    :param num_features: D.
    :param num_targets: P.
    :param batch_size: None for all rows.
    """

    def __init__(self, num_features: int, num_targets: int, batch_size: int | None) -> None:
        self._parts = [
            tf.Variable(
                tf.zeros([0, columns], gpflow.default_float()),
                trainable=False,
                shape=[None, columns],
            )
            for columns in (num_features, num_targets)
        ]
        self.num_data: tf.Variable = tf.Variable(0, trainable=False, dtype=tf.int64)
        self.batch_size = batch_size
        self._seed = tf.Variable([0, 0], trainable=False)

    def replace(self, data: RegressionData, seed: tf.Tensor) -> None:
        """Put other rows in place of these.

        :param seed: of the order of the rows.
        """
        arrays = check_arrays(*check_pair("data", data))
        for variable, part in zip(self._parts, arrays, strict=True):
            variable.assign(part)
        self.num_data.assign(len(arrays[0]))
        self._seed.assign(seed)

    def clear(self) -> None:
        """Let go of the rows."""
        for part in self._parts:
            part.assign(tf.zeros([0, part.shape[1]], part.dtype))

    def fingerprint(self) -> list:
        """The shape of X and a digest of X and Y."""
        return fingerprint([part.numpy() for part in self._parts])

    def minibatch(self, step: tf.Tensor) -> Minibatch:
        """Rows of a new permutation in each epoch, or all in order."""
        if self.batch_size is None:
            X, Y = (tf.convert_to_tensor(part) for part in self._parts)
            return Minibatch((X, Y), None, self.num_data)
        rows = minibatch_rows(step, self.batch_size, self.num_data, self._seed)
        X, Y = (tf.gather(part, rows) for part in self._parts)
        return Minibatch((X, Y), rows, self.batch_size)

    def example(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The first two rows."""
        X, Y = (part[:2] for part in self._parts)
        return X, Y


class DatasetData(TrainingData):
    """Batches (X, Y) of a `tf.data.Dataset`, in its order and from its beginning again when they end.

    The batch of the last step is kept: a step that fails is repeated with it.

    :param num_data: N of the whole set; None counts the rows of a dataset that ends, in one pass.
    :raises ValueError: for a dataset of anything else, or of unknown size.
    """

    batch_size = None

    def __init__(self, dataset: tf.data.Dataset, num_data: int | None) -> None:
        spec = dataset.element_spec
        tensors = isinstance(spec, tuple) and all(isinstance(s, tf.TensorSpec) for s in spec)
        if not tensors or len(spec) != 2 or any(s.shape.rank not in (2, None) for s in spec):
            raise ValueError(
                "data: got a tf.data.Dataset of other elements than pairs of X [B, D] and Y [B, P]; make "
                "pairs, and batches by .batch(B)"
            )
        first = next(iter(dataset.take(1)), None)
        if first is None:
            raise ValueError("data: got a tf.data.Dataset without a batch, needs at least 1")
        self._example = check_arrays(*first, min_rows=1)
        self._dataset = dataset
        self._of_what = [repr(spec), *fingerprint(self._example)]
        if num_data is None:
            num_data, digest = self._count()
            self._of_what.append(digest)
        self.num_data = num_data
        dtype = gpflow.default_float()
        self._last = [
            tf.Variable(part, trainable=False, shape=[None, part.shape[1]], dtype=dtype)
            for part in self._example
        ]
        self._position = tf.Variable(0, trainable=False)
        self.start_at(0)

    def _count(self) -> tuple[int, list]:
        """Rows of all batches, which are checked, and a digest of them."""
        cardinality = int(self._dataset.cardinality())
        if cardinality < 0:
            size = (
                "without end" if cardinality == tf.data.INFINITE_CARDINALITY else "of unknown size"
            )
            raise ValueError(
                f"data: got a tf.data.Dataset {size}, needs the number of data points; give num_data to the "
                "model"
            )
        num_data, digests = 0, []
        for batch in self._dataset:
            arrays = check_arrays(*batch, min_rows=1)
            num_data += len(arrays[0])
            digests.append(fingerprint(arrays)[1])
        return num_data, fingerprint([np.frombuffer("".join(digests).encode(), np.uint8)])

    @property
    def labels(self) -> np.ndarray:
        """Y of the first batch."""
        return self._example[1]

    def fingerprint(self) -> list:
        """The form of the batches and a digest of the first, or of all if they were counted."""
        return [self.num_data, *self._of_what]

    def example(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The first batch."""
        X, Y = (tf.constant(array) for array in self._example)
        return X, Y

    def start_at(self, step: int) -> None:
        """Skip the batches of the steps before."""
        self._batches = iter(self._dataset.repeat().skip(step))
        self._position.assign(step)

    def minibatch(self, step: tf.Tensor) -> Minibatch:
        """The next batch, or the last again."""

        def read() -> tf.Tensor:
            for last, part in zip(self._last, next(self._batches), strict=True):
                last.assign(tf.cast(part, last.dtype))
            return self._position.assign(step + 1)

        with tf.control_dependencies(
            [tf.cond(self._position > step, lambda: tf.identity(self._position), read)]
        ):
            X, Y = (tf.identity(last) for last in self._last)
        return Minibatch((X, Y), None, tf.shape(X)[0])


class InternalData(TrainingData):
    """The data that a GPflow model has inside."""

    def __init__(self, model: BayesianModel) -> None:
        parts = model.data if isinstance(model.data, (tuple, list)) else [model.data]
        self._arrays = [np.asarray(part) for part in parts]
        self.num_data = self.batch_size = len(self._arrays[0])

    def same(self, data: Any) -> bool:
        """Whether `data` are these."""
        return len(data) == len(self._arrays) and all(
            np.array_equal(theirs, ours) for theirs, ours in zip(data, self._arrays, strict=True)
        )

    def fingerprint(self) -> list:
        """The shape of the first array and a digest of all."""
        return fingerprint(self._arrays)

    def example(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The model has them."""
        raise NotImplementedError

    def minibatch(self, step: tf.Tensor) -> Minibatch:
        """None."""
        return Minibatch(None, None, self.num_data)


def training_data(
    model: BayesianModel, data: Any, batch_size: int | None, seed: tf.Tensor
) -> TrainingData:
    """The data of any kind that `fit` takes, checked against the model; `TrainingData` as they are.

    :raises ValueError: for other data, or a batch size where there is no choice.
    """
    if isinstance(data, TrainingData):
        return data
    if isinstance(model, InternalDataTrainingLossMixin):
        internal = InternalData(model)
        if data is not None and not internal.same(check_pair("data", data)):
            raise ValueError(
                f"data: {type(model).__name__} has its data inside, and these are others; give None"
            )
        _refuse_batch_size(batch_size, f"{type(model).__name__} has its data inside")
        return internal
    if isinstance(data, tf.data.Dataset):
        _refuse_batch_size(batch_size, "a tf.data.Dataset has its own batches")
        batches = DatasetData(data, getattr(model, "num_data", None))
        check_targets(getattr(model, "likelihood", None), batches.labels)
        if isinstance(model, MonteCarloModel):
            model.check_num_data(batches.num_data)
            _check_rows_are_not_needed(model, batches.num_data)
        return batches
    arrays = ArrayData(data, batch_size, seed)
    check_targets(getattr(model, "likelihood", None), arrays.labels)
    if isinstance(model, MonteCarloModel):
        model.check_num_data(arrays.num_data)
    return arrays


def _refuse_batch_size(batch_size: int | None, because: str) -> None:
    if batch_size is not None:
        raise ValueError(f"batch_size: got {brief(batch_size)}, but {because}; set it to None")


def _check_rows_are_not_needed(model: MonteCarloModel, num_data: int) -> None:
    """Raise `ValueError` for a model that is for one number of rows: each has parameters of its own."""
    try:
        model.check_num_data(num_data + 1)
    except ValueError as error:
        raise ValueError(
            "data: got a tf.data.Dataset, but the model has parameters for each data point and needs to "
            "know its row; give arrays"
        ) from error
