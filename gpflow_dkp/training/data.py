"""The training set, in memory or on disk, and its minibatches."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData

from ..models.checks import check_arrays, row_blocks
from .schedules import minibatch_rows


class Minibatch(NamedTuple):
    """Some rows of a training set.

    :param data: X [B, D] and Y [B, P].
    :param rows: which rows they are [B], None for all of them in order.
    """

    data: tuple[tf.Tensor, tf.Tensor]
    rows: tf.Tensor | None


def fingerprint(arrays: Sequence[np.ndarray]) -> list:
    """The shape of the first array and a digest of all."""
    digest = hashlib.sha256()
    for array in arrays:
        for block in row_blocks(array):
            digest.update(np.ascontiguousarray(block).data)
    return [list(arrays[0].shape), digest.hexdigest()[:16]]


class TrainingData:
    """X [N, D] and Y [N, P], held in memory or, where one is a `numpy.memmap`, read a minibatch at a time.

    :param batch_size: default and at most N.
    :param seed: of the order of the rows.
    """

    def __init__(self, data: RegressionData, batch_size: int | None, seed: tf.Tensor) -> None:
        on_disk = any(isinstance(part, np.memmap) for part in data)
        arrays = check_arrays(*data, convert=not on_disk)
        self._arrays = arrays
        self._tensors = None if on_disk else tuple(tf.constant(array) for array in arrays)
        self._seed = seed
        self.num_data = len(arrays[0])
        self.batch_size = min(batch_size or self.num_data, self.num_data)

    @property
    def labels(self) -> np.ndarray:
        """Y."""
        return self._arrays[1]

    def fingerprint(self) -> list:
        """The shape of X and a digest of X and Y."""
        return fingerprint(self._arrays)

    def minibatch(self, step: tf.Tensor) -> Minibatch:
        """The minibatch of 0-based `step`."""
        if self.batch_size == self.num_data:
            data = self._tensors or self._read(np.arange(self.num_data))
            return Minibatch(data, None)
        rows = minibatch_rows(step, self.batch_size, self.num_data, self._seed)
        if self._tensors is None:
            return Minibatch(self._read(rows), rows)
        return Minibatch(tuple(tf.gather(tensor, rows) for tensor in self._tensors), rows)

    def _read(self, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Rows from the disk."""
        dtype = gpflow.default_float()

        def read(rows: np.ndarray) -> tuple[np.ndarray, ...]:
            return tuple(array[rows].astype(dtype) for array in self._arrays)

        parts = tf.numpy_function(read, [rows], [dtype, dtype], stateful=False)
        for part, array in zip(parts, self._arrays, strict=True):
            part.set_shape([self.batch_size, array.shape[1]])
        return tuple(parts)
