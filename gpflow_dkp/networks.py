"""Fully connected networks of GPflow parameters: means of GWI, encoders of latent variables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter

from .checks import (
    check_choice,
    check_positive,
    check_positive_integer,
    check_positive_integers,
    check_seeds,
)

ACTIVATIONS = {"tanh": tf.tanh, "relu": tf.nn.relu}


class MultilayerPerceptron(gpflow.Module):
    """A fully connected network; hidden layers of `activation`, a linear one last.

    :param input_dim: D.
    :param output_dim: P.
    :param hidden_units: of each hidden layer; [NeurIPS22]'s has two of 10.
    :param activation: "tanh" or "relu".
    :param skip_connections: add its input to each hidden layer whose widths agree.
    :param weight_variance: of a normal prior on each weight, but no offset, which `fit` adds to the
        objective (weight decay of 1 / `weight_variance`); None for no prior.
    :param seed: of the weights' starting values, normal with Glorot's variance.

    >>> network = gpflow_dkp.networks.MultilayerPerceptron(2, 3, hidden_units=[5])
    >>> network(X).shape
    TensorShape([10, 3])
    >>> [tuple(weight.shape) for weight in network.weights]
    [(2, 5), (5, 3)]
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int = 1,
        *,
        hidden_units: Sequence[int] = (10, 10),
        activation: str = "tanh",
        skip_connections: bool = False,
        weight_variance: float | None = None,
        seed: int | Sequence[int] = 0,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        check_choice("activation", activation, tuple(ACTIVATIONS))
        prior = None
        if weight_variance is not None:
            check_positive("weight_variance", weight_variance)
            zero, variance = (tf.constant(v, gpflow.default_float()) for v in (0, weight_variance))
            prior = tfp.distributions.Normal(zero, tf.sqrt(variance))
        check_positive_integer("input_dim", input_dim)
        check_positive_integers("hidden_units", hidden_units)
        check_positive_integer("output_dim", output_dim)
        sizes = [input_dim, *hidden_units, output_dim]
        check_seeds("seed", seed)
        rng = np.random.default_rng(seed)
        self.activation = activation
        self.skip_connections = skip_connections
        self.weights = [
            Parameter(
                math.sqrt(2.0 / (before + after)) * rng.normal(size=(before, after)), prior=prior
            )
            for before, after in itertools.pairwise(sizes)
        ]
        self.offsets = [Parameter(np.zeros(size)) for size in sizes[1:]]

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """Outputs [..., P] at X [..., D]."""
        activation = ACTIVATIONS[self.activation]
        *layers, (last_weight, last_offset) = zip(self.weights, self.offsets, strict=True)
        hidden = tf.convert_to_tensor(X)
        for weight, offset in layers:
            value = activation(hidden @ weight + offset)
            skips = self.skip_connections and weight.shape[0] == weight.shape[1]
            hidden = value + hidden if skips else value
        return hidden @ last_weight + last_offset
