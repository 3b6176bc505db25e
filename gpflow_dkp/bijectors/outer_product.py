"""Gram matrices of trapezoidal factors."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp


class OuterProduct(tfp.bijectors.Bijector):
    """Compute `G = Lambda Lambda^T` for lower-trapezoidal Lambda [..., P, p], singular or not.

    Lambda has a positive diagonal, as TFP's `CholeskyOuterProduct` wants it, but may have fewer
    columns than rows; G [..., P, P] then has rank p < P and is determined by its first p columns.
    What is above the diagonal of Lambda is ignored.

    The inverse is, with R1 the first p rows of Lambda and R2 the others,

        R1 = chol(G[:p, :p]),  R2 = G[p:, :p] R1^{-T}.

    [UAI23] recovers the factor as chol(G), which a G of rank p < P does not have.

    :param rank: p, or `None`: the forward map then takes any p, and the inverse takes G to have
        full rank.
    :raises ValueError: when `rank` is not positive, or the shape of an input does not fit.

    >>> bijector = gpflow_dkp.bijectors.OuterProduct(rank=1)
    >>> bijector.forward([[1.0], [2.0], [3.0]]).numpy().tolist()
    [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 6.0, 9.0]]
    >>> bijector.inverse([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 6.0, 9.0]]).numpy().tolist()
    [[1.0], [2.0], [3.0]]
    """

    def __init__(
        self,
        rank: int | None = None,
        *,
        validate_args: bool = False,
        name: str = "outer_product",
    ) -> None:
        parameters = dict(locals())
        if rank is not None and rank < 1:
            raise ValueError(f"rank is {rank}; it must be an integer >= 1, or None for full rank.")
        self._rank = rank
        super().__init__(
            forward_min_event_ndims=2,
            validate_args=validate_args,
            parameters=parameters,
            name=name,
        )

    @classmethod
    def _parameter_properties(cls, dtype: Any) -> dict[str, Any]:
        return {}

    @property
    def rank(self) -> int | None:
        """The number p of columns of Lambda, or `None`."""
        return self._rank

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        self._check_factor(x.shape)
        with tf.control_dependencies(self._assertions(x)):
            factor = tf.linalg.band_part(x, -1, 0)
        return tf.matmul(factor, factor, transpose_b=True)

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        self._check_gram(y.shape)
        if self.rank is None:
            return tf.linalg.cholesky(y)
        top = tf.linalg.cholesky(y[..., : self.rank, : self.rank])
        bottom = tf.linalg.triangular_solve(
            top, tf.linalg.matrix_transpose(y[..., self.rank :, : self.rank])
        )
        return tf.concat([top, tf.linalg.matrix_transpose(bottom)], axis=-2)

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        # With R1 the first p rows of Lambda and R2 the other P - p, the first p columns of G are
        #   G[:p, :p] = R1 R1^T,   G[p:, :p] = R2 R1^T.
        # The first does not depend on R2, so the Jacobian is block triangular. Its blocks are
        #   |d (R1 R1^T) / d R1| = 2^p prod_{j <= p} R_jj^{p - j + 1}
        # as in TFP's CholeskyOuterProduct, and, row by row of R2,
        #   |d (R2 R1^T) / d R2| = |det R1|^{P - p} = prod_{j <= p} R_jj^{P - p}.
        # Together
        #   log |d G / d Lambda| = p log 2 + sum_{j <= p} (P - j + 1) log Lambda_jj.
        self._check_factor(x.shape)
        with tf.control_dependencies(self._assertions(x)):
            log_diagonal = tf.math.log(tf.linalg.diag_part(x))
        rows, columns = tf.shape(x)[-2], tf.shape(x)[-1]
        exponents = tf.cast(rows - tf.range(columns), x.dtype)
        return tf.cast(columns, x.dtype) * math.log(2.0) + tf.reduce_sum(
            exponents * log_diagonal, axis=-1
        )

    def _forward_event_shape(self, input_shape: tf.TensorShape) -> tf.TensorShape:
        self._check_factor(input_shape)
        return input_shape[:-1].concatenate(input_shape[-2])

    def _forward_event_shape_tensor(self, input_shape: tf.Tensor) -> tf.Tensor:
        return tf.concat([input_shape[:-1], input_shape[-2:-1]], axis=0)

    def _inverse_event_shape(self, output_shape: tf.TensorShape) -> tf.TensorShape:
        self._check_gram(output_shape)
        return output_shape if self.rank is None else output_shape[:-1].concatenate(self.rank)

    def _inverse_event_shape_tensor(self, output_shape: tf.Tensor) -> tf.Tensor:
        if self.rank is None:
            return output_shape
        return tf.concat([output_shape[:-1], [self.rank]], axis=0)

    def _assertions(self, x: tf.Tensor) -> list[tf.Operation]:
        if not self.validate_args:
            return []
        message = "the factor must have a positive diagonal"
        return [tf.debugging.assert_positive(tf.linalg.diag_part(x), message=message)]

    def _check_factor(self, shape: tf.TensorShape) -> None:
        rows, columns = shape[-2], shape[-1]
        if self.rank is not None and columns not in (None, self.rank):
            raise ValueError(
                f"the factor has shape {shape}, {columns} columns; this OuterProduct has rank "
                f"{self.rank}: pass [..., P, {self.rank}]."
            )
        if rows is not None and columns is not None and rows < columns:
            raise ValueError(
                f"the factor has shape {shape}; it must be at least as tall as it is wide: pass "
                "[..., P, p] with p <= P."
            )

    def _check_gram(self, shape: tf.TensorShape) -> None:
        if not shape[-1:].is_compatible_with(shape[-2:-1]):
            raise ValueError(f"the Gram matrix has shape {shape}; it must be [..., P, P].")
        if self.rank is not None and shape[-1] is not None and shape[-1] < self.rank:
            raise ValueError(
                f"the Gram matrix has shape {shape}, smaller than the rank {self.rank} of this "
                "OuterProduct: pass [..., P, P] with P >= rank."
            )
