"""Multiplication of a trapezoidal matrix by a triangular one, from the right."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_dkp.bijectors.parameters import (
    as_parameter,
    check_event_shape,
    check_lower_triangular,
    floating_dtype,
    matrix_dimension,
)


class RightMultiplyTriL(tfp.bijectors.Bijector):
    """Compute `T B` for lower-trapezoidal T [..., P, p] and lower-triangular B [..., p, p].

    The product is lower trapezoidal. Its diagonal is T_jj B_jj, so it has the signs of diag(B),
    which may be negative but not zero. What is above the diagonal of B is ignored when B is a
    variable, and an error otherwise.

    :param B: lower-triangular matrix [..., p, p].
    :raises ValueError: when B is not square, not triangular, or singular.

    >>> bijector = gpflow_dkp.bijectors.RightMultiplyTriL([[2.0, 0.0], [1.0, 3.0]])
    >>> bijector.forward([[1.0, 0.0], [1.0, 1.0], [2.0, 1.0]]).numpy().tolist()
    [[2.0, 0.0], [3.0, 3.0], [5.0, 3.0]]
    """

    def __init__(
        self, B: Any, *, validate_args: bool = False, name: str = "right_multiply_tril"
    ) -> None:
        parameters = dict(locals())
        dtype = floating_dtype(B)
        self._B = as_parameter(B, dtype, "B")
        self._columns = matrix_dimension("B", self._B)
        check_lower_triangular("B", self._B, positive_diagonal=False)
        super().__init__(
            forward_min_event_ndims=2,
            is_constant_jacobian=True,
            dtype=dtype,
            validate_args=validate_args,
            parameters=parameters,
            name=name,
        )

    @classmethod
    def _parameter_properties(cls, dtype: Any) -> dict[str, Any]:
        return {
            "B": tfp.util.ParameterProperties(
                event_ndims=2,
                shape_fn=lambda shape: tf.concat([shape[:-2], shape[-1:], shape[-1:]], axis=0),
                default_constraining_bijector_fn=lambda: tfp.bijectors.FillScaleTriL(),
            )
        }

    @property
    def B(self) -> Any:
        """The lower-triangular matrix [..., p, p]."""
        return self._B

    def to_dense(self) -> tf.Tensor:
        """B [..., p, p], zero above the diagonal."""
        return self._operator().to_dense()

    def _operator(self) -> tf.linalg.LinearOperator:
        return tf.linalg.LinearOperatorLowerTriangular(tf.convert_to_tensor(self.B))

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        check_event_shape("T", x, [None, self._columns], "[..., P, p]")
        return tf.matmul(x, self.to_dense())

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        check_event_shape("T B", y, [None, self._columns], "[..., P, p]")
        # y B^{-1} = (B^{-T} y^T)^T
        solution = self._operator().solve(y, adjoint=True, adjoint_arg=True)
        return tf.linalg.matrix_transpose(solution)

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        # Row i of T has m = min(i, p) free entries, and row i of T B is those entries times the
        # leading m x m block of B, which is triangular:
        #   log |d (T B)_i / d T_i| = sum_{j <= min(i, p)} log |B_jj|.
        # B_jj is in that sum for the rows i = j..P, so over all rows
        #   log |d (T B) / d T| = sum_{j <= p} (P - j + 1) log |B_jj|.
        log_diagonal = tf.math.log(tf.abs(tf.linalg.diag_part(tf.convert_to_tensor(self.B))))
        rows = tf.cast(tf.shape(x)[-2], log_diagonal.dtype)
        exponents = rows - tf.range(self._columns, dtype=log_diagonal.dtype)
        return tf.reduce_sum(exponents * log_diagonal, axis=-1)
