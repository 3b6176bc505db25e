"""Triangular matrices whose entries below the diagonal are given relative to it."""

from __future__ import annotations

import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_dkp.checks import check_positive


class RelativeTriL(tfp.bijectors.Bijector):
    """Compute D + scale x D N for lower-triangular D + N [..., P, P], D its diagonal.

    An entry below the diagonal is so `scale` times a multiple of its row's entry on the diagonal, and a step
    of an optimiser in proportion to the row. Steps of one size are too small for large rows, and build up
    entries in small ones that make the inverse of the matrix grow exponentially with its size.

    :param scale: positive.
    :raises ValueError: for another scale.

    >>> bijector = gpflow_dkp.bijectors.RelativeTriL(scale=0.5)
    >>> bijector.forward([[2.0, 0.0], [3.0, 4.0]]).numpy().tolist()  # 0.5 x 4 x 3 below
    [[2.0, 0.0], [6.0, 4.0]]
    """

    def __init__(self, scale: float = 1.0, *, name: str = "relative_tril") -> None:
        parameters = dict(locals())
        check_positive("scale", scale)
        self._scale = float(scale)
        super().__init__(forward_min_event_ndims=2, parameters=parameters, name=name)

    @classmethod
    def _parameter_properties(cls, dtype: tf.DType) -> dict:
        return {}

    @property
    def scale(self) -> float:
        """Of the entries below the diagonal."""
        return self._scale

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        diagonal = tf.linalg.diag_part(x)
        return tf.linalg.set_diag(self._scale * tf.expand_dims(diagonal, -1) * x, diagonal)

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        diagonal = tf.linalg.diag_part(y)
        return tf.linalg.set_diag(y / (self._scale * tf.expand_dims(diagonal, -1)), diagonal)

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        # Row i has i - 1 entries below the diagonal, each times scale D_i.
        below = tf.math.log(self._scale * tf.abs(tf.linalg.diag_part(x)))
        return tf.reduce_sum(below * tf.range(tf.shape(x)[-1], dtype=x.dtype), -1)
