"""Layers of a `NeuralNetwork`: functions of their weights, of which there are as many as samples.

Letters: S samples, or 1, N data points, I inputs and O outputs of a unit's linear function; an image has
height H, width W and C channels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from ..checks import check_positive_integers

SIDE = 3
"""Pixels of a convolution in each direction."""

ImageShape = tuple[int, int, int]


@dataclass(frozen=True)
class Dense:
    """Each unit sees all of the layer before."""

    num_inputs: int
    num_outputs: int

    @property
    def weight_shape(self) -> tuple[int, int]:
        """I and O."""
        return self.num_inputs, self.num_outputs

    @property
    def num_neighbours(self) -> int:
        """Weights to and from a unit, by which Glorot's start is scaled."""
        return self.num_inputs + self.num_outputs

    @property
    def unit_shape(self) -> tuple[int, ...]:
        """Of the units of one point."""
        return (self.num_outputs,)

    def linear(self, hidden: tf.Tensor, W: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        """Linear functions [S, N, O] of the layer before [S, N, I], with weights [S, I, O] and [S, 1, O]."""
        return hidden @ W + b

    def flat(self, units: tf.Tensor) -> tf.Tensor:
        """What the next layer sees of the units [S, N, O]."""
        return units


@dataclass(frozen=True)
class Convolution:
    """Each unit sees 3 x 3 pixels and all channels; of 2 x 2 units the next layer sees the largest."""

    image_shape: ImageShape
    num_filters: int

    @property
    def weight_shape(self) -> tuple[int, int]:
        """I = 9 C and O filters."""
        return SIDE**2 * self.image_shape[2], self.num_filters

    @property
    def num_neighbours(self) -> int:
        """Weights to and from a unit, by which Glorot's start is scaled."""
        return SIDE**2 * (self.image_shape[2] + self.num_filters)

    @property
    def unit_shape(self) -> tuple[int, ...]:
        """Of the units of one point: H, W and O."""
        return *self.image_shape[:2], self.num_filters

    @property
    def pooled_shape(self) -> ImageShape:
        """Of the image that the next layer sees."""
        height, width, _ = self.image_shape
        return math.ceil(height / 2), math.ceil(width / 2), self.num_filters

    @property
    def num_outputs(self) -> int:
        """Pixels and channels of that image."""
        return math.prod(self.pooled_shape)

    def linear(self, hidden: tf.Tensor, W: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        """Linear functions [S, N, H, W, O] of the 3 x 3 pixels around each pixel, 0 outside [S, N, H W C]."""
        leading = tf.shape(hidden)[:2]
        images = tf.reshape(hidden, tf.concat([leading, self.image_shape], 0))
        filters = tf.reshape(W, [-1, SIDE, SIDE, self.image_shape[2], self.num_filters])
        if W.shape[0] == 1:
            flat = tf.reshape(images, [-1, *self.image_shape])
            values = tf.nn.conv2d(flat, filters[0], 1, "SAME")
            return (
                tf.reshape(values, tf.concat([leading, self.unit_shape], 0)) + b[:, :, None, None]
            )
        shape = tf.concat([tf.shape(W)[:1], tf.shape(images)[1:]], 0)
        values = tf.map_fn(
            lambda of_sample: tf.nn.conv2d(*of_sample, 1, "SAME"),
            (tf.broadcast_to(images, shape), filters),
            fn_output_signature=W.dtype,
        )
        return values + b[:, :, None, None]

    def flat(self, units: tf.Tensor) -> tf.Tensor:
        """The largest of each 2 x 2 units [S, N, H, W, O], as rows [S, N, H/2 W/2 O], halves rounded up."""
        leading = tf.shape(units)[:2]
        images = tf.reshape(units, tf.concat([[-1], self.unit_shape], 0))
        pooled = tf.nn.max_pool2d(images, 2, 2, "SAME")
        return tf.reshape(pooled, tf.concat([leading, [self.num_outputs]], 0))


Layer = Dense | Convolution


def network_layers(
    num_features: int,
    image_shape: ImageShape | None,
    filters: Sequence[int],
    hidden_units: Sequence[int],
    num_outputs: int,
) -> list[Layer]:
    """Convolutions, hidden layers and the output layer.

    :raises ValueError: filters without the shape of images of so many features.
    """
    check_positive_integers("filters", filters)
    layers: list[Layer] = []
    if image_shape is not None:
        check_positive_integers("image_shape", image_shape)
        if len(image_shape) != 3 or math.prod(image_shape) != num_features:
            raise ValueError(
                f"image_shape: got {tuple(image_shape)}, needs height, width and channels whose product "
                f"is num_features, {num_features}"
            )
    for number in filters:
        if image_shape is None:
            raise ValueError("filters: image_shape is None, needs height, width and channels")
        layer = Convolution(image_shape, number)
        layers.append(layer)
        image_shape = layer.pooled_shape
    size = layers[-1].num_outputs if layers else num_features
    sizes = [size, *hidden_units, num_outputs]
    return [*layers, *itertools.starmap(Dense, itertools.pairwise(sizes))]
