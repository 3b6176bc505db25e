"""Cholesky factors of matrices whose condition number has a bound."""

from __future__ import annotations

import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_dkp.checks import check_positive


class WellConditionedTriL(tfp.bijectors.Bijector):
    """Compute the Cholesky factor Y [..., P, P] of Y Y^T = X X^T + ratio x mean(diag(X X^T)) I.

    X is lower triangular with a positive diagonal; X X^T may have any condition number, that of Y Y^T is at
    most (1 + ratio) P / `ratio`.

    :param ratio: positive.
    :raises ValueError: for another ratio.

    >>> bijector = gpflow_dkp.bijectors.WellConditionedTriL(ratio=0.5)
    >>> Y = bijector.forward([[1.0, 0.0], [1.0, 1e-6]])  # X X^T is [[1, 1], [1, 1]], of mean 1
    >>> np.round(Y @ tf.transpose(Y), 4).tolist()
    [[1.5, 1.0], [1.0, 1.5]]
    """

    def __init__(self, ratio: float, *, name: str = "well_conditioned_tril") -> None:
        parameters = dict(locals())
        check_positive("ratio", ratio)
        self._ratio = float(ratio)
        super().__init__(forward_min_event_ndims=2, parameters=parameters, name=name)

    @classmethod
    def _parameter_properties(cls, dtype: tf.DType) -> dict:
        return {}

    @property
    def ratio(self) -> float:
        """Of what is added to the diagonal to its mean."""
        return self._ratio

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        return _factor_with_diagonal(x, self._ratio)

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        return _factor_with_diagonal(y, -self._ratio / (1.0 + self._ratio))

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        # |d(X X^T) / dX| = 2^P prod_i X_ii^(P - i + 1), and so of Y. What is added between them lengthens the
        # diagonal's direction (1, ..., 1) by 1 + ratio.
        diagonals = tf.linalg.diag_part(x), tf.linalg.diag_part(self._forward(x))
        logs = [tf.math.log(diagonal) for diagonal in diagonals]
        exponents = tf.range(tf.shape(x)[-1], 0, -1)
        change = tf.cast(exponents, x.dtype) * (logs[0] - logs[1])
        return tf.reduce_sum(change, -1) + tf.math.log1p(tf.constant(self._ratio, x.dtype))


def _factor_with_diagonal(tril: tf.Tensor, ratio: float) -> tf.Tensor:
    """The Cholesky factor of L L^T + `ratio` mean(diag(L L^T)) I; NaN where there is none."""
    product = tf.matmul(tril, tril, transpose_b=True)
    diagonal = tf.linalg.diag_part(product)
    raised = diagonal + ratio * tf.reduce_mean(diagonal, -1, keepdims=True)
    return tf.linalg.cholesky(tf.linalg.set_diag(product, raised))
