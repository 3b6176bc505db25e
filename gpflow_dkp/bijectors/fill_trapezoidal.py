"""Vectors as tall lower-trapezoidal matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp


class FillTrapezoidal(tfp.bijectors.Bijector):
    """Fill a tall lower-trapezoidal matrix, row by row, with a vector.

    With `rows` = P and `columns` = p <= P, a vector [..., P p - p (p - 1) / 2] becomes a matrix
    [..., P, p] that is zero above its diagonal.

    The order is that of `np.tril_indices(P, m=p)`, not the spiral of TFP's `FillTriangular`. The
    inverse ignores what is above the diagonal.

    :param rows: P, an integer.
    :param columns: p, an integer with 1 <= p <= P.
    :raises ValueError: for other `rows` and `columns`.

    >>> bijector = gpflow_dkp.bijectors.FillTrapezoidal(rows=3, columns=2)
    >>> bijector.forward([1.0, 2.0, 3.0, 4.0, 5.0]).numpy().tolist()
    [[1.0, 0.0], [2.0, 3.0], [4.0, 5.0]]
    """

    def __init__(
        self,
        rows: int,
        columns: int,
        *,
        validate_args: bool = False,
        name: str = "fill_trapezoidal",
    ) -> None:
        parameters = dict(locals())
        if not 1 <= columns <= rows:
            raise ValueError(
                f"rows is {rows} and columns is {columns}; allowed is 1 <= columns <= rows: a "
                "trapezoidal matrix is at least as tall as it is wide."
            )
        self._rows = int(rows)
        self._columns = int(columns)
        lower_rows, lower_columns = np.tril_indices(self._rows, m=self._columns)
        self._size = len(lower_rows)
        # Position of each vector entry in the row-major matrix, and of each matrix entry in the
        # vector followed by one zero.
        self._matrix_positions = lower_rows * self._columns + lower_columns
        vector_positions = np.full(self._rows * self._columns, self._size)
        vector_positions[self._matrix_positions] = np.arange(self._size)
        self._vector_positions = vector_positions.reshape(self._rows, self._columns)
        super().__init__(
            forward_min_event_ndims=1,
            inverse_min_event_ndims=2,
            is_constant_jacobian=True,
            validate_args=validate_args,
            parameters=parameters,
            name=name,
        )

    @classmethod
    def _parameter_properties(cls, dtype: Any) -> dict[str, Any]:
        return {}

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        self._check_size(x.shape)
        padded = tf.concat([x, tf.zeros_like(x[..., :1])], axis=-1)
        return tf.gather(padded, self._vector_positions, axis=-1)

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        self._check_matrix(y.shape)
        flat = tf.reshape(y, tf.concat([tf.shape(y)[:-2], [self._rows * self._columns]], axis=0))
        return tf.gather(flat, self._matrix_positions, axis=-1)

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        # Every entry of the vector is one free entry of the matrix: the Jacobian is a permutation.
        return tf.zeros([], dtype=x.dtype)

    def _inverse_log_det_jacobian(self, y: tf.Tensor) -> tf.Tensor:
        return tf.zeros([], dtype=y.dtype)

    def _forward_event_shape(self, input_shape: tf.TensorShape) -> tf.TensorShape:
        self._check_size(input_shape)
        return input_shape[:-1].concatenate([self._rows, self._columns])

    def _forward_event_shape_tensor(self, input_shape: tf.Tensor) -> tf.Tensor:
        return tf.concat([input_shape[:-1], [self._rows, self._columns]], axis=0)

    def _inverse_event_shape(self, output_shape: tf.TensorShape) -> tf.TensorShape:
        self._check_matrix(output_shape)
        return output_shape[:-2].concatenate([self._size])

    def _inverse_event_shape_tensor(self, output_shape: tf.Tensor) -> tf.Tensor:
        return tf.concat([output_shape[:-2], [self._size]], axis=0)

    def _check_size(self, shape: tf.TensorShape) -> None:
        if shape.rank is not None and shape[-1] not in (None, self._size):
            raise ValueError(
                f"the vector has shape {shape}; a {self._rows} x {self._columns} trapezoidal "
                f"matrix has {self._size} entries: pass [..., {self._size}]."
            )

    def _check_matrix(self, shape: tf.TensorShape) -> None:
        if not shape[-2:].is_compatible_with([self._rows, self._columns]):
            raise ValueError(
                f"the matrix has shape {shape}; pass [..., {self._rows}, {self._columns}]."
            )
