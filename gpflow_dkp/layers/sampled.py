"""What layers have in common whose values a chain moves, in the place of a posterior with parameters."""

from __future__ import annotations

import math

import gpflow
import tensorflow as tf
from check_shapes import check_shapes

from ..checks import check_positive_integer


class SampledLayer(gpflow.Module):
    """Values v of a layer, standard normal a priori, that `gpflow_dkp.training.sample` moves and keeps.

    Attributes: `values`, v [M, L] where the chain stands; `samples` [K, M, L], those that are kept for
    predictions, at first where it starts. Neither is trainable: they are sampled.

    >>> layer = gpflow_dkp.layers.SampledFeatures(num_inducing=3, width=2)
    >>> isinstance(layer, gpflow_dkp.layers.SampledLayer), layer.values.shape, layer.samples.shape
    (True, TensorShape([3, 2]), TensorShape([None, 3, 2]))
    """

    @check_shapes("start: [M, L]")
    def _start_chain(self, start: tf.Tensor) -> None:
        """Make the variables, the chain at `start`."""
        start = tf.convert_to_tensor(start, gpflow.default_float())
        self.values = tf.Variable(start, trainable=False, name="values")
        self.samples = tf.Variable(
            start[None], trainable=False, shape=[None, *start.shape], name="samples"
        )

    @check_shapes("values: [M, L]")
    def move_to(self, values: tf.Tensor) -> None:
        """Have the chain stand at v, which is then all that is kept."""
        self.values.assign(values)
        self.keep(tf.convert_to_tensor(values)[None])

    @check_shapes("samples: [K, M, L]")
    def keep(self, samples: tf.Tensor) -> None:
        """Predict from these values of v [K, M, L]."""
        self.samples.assign(samples)

    @check_shapes("return: [S, M, L]")
    def kept(self, num_samples: int | tf.Tensor) -> tf.Tensor:
        """So many of the values that are kept, evenly over the chain [S, M, L].

        Of more than are kept each is there several times.
        """
        if not tf.is_tensor(num_samples):
            check_positive_integer("num_samples", num_samples)
        size = tf.cast(num_samples, tf.int64)
        num_kept = tf.cast(tf.shape(self.samples)[0], tf.int64)
        return tf.gather(self.samples, tf.range(size) * num_kept // size)


@check_shapes("values: [S, M, L]", "return: [S]")
def log_standard_normal(values: tf.Tensor) -> tf.Tensor:
    """log N(v; 0, I) of each of S values."""
    return -0.5 * tf.reduce_sum(tf.square(values) + math.log(2.0 * math.pi), [-2, -1])
