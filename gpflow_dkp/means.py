"""Mean functions of variational measures: kernel expansions and neural networks, from [N, D] to [N, P]."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter, covariances
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from .checks import check_choice, check_inducing_variable, check_positive, check_positive_integer
from .linalg import cholesky

Mean = Callable[[tf.Tensor], tf.Tensor]

ACTIVATIONS = {"tanh": tf.tanh, "relu": tf.nn.relu}


class MultilayerPerceptron(gpflow.Module):
    """A fully connected network; hidden layers of `activation`, a linear one last.

    :param input_dim: D.
    :param output_dim: P.
    :param hidden_units: of each hidden layer; [NeurIPS22]'s has two of 10.
    :param activation: "tanh" or "relu".
    :param weight_variance: of a normal prior on each weight, but no offset, which `fit` adds to the
        objective (weight decay of 1 / `weight_variance`); None for no prior.
    :param seed: of the weights' starting values, normal with Glorot's variance.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int = 1,
        *,
        hidden_units: Sequence[int] = (10, 10),
        activation: str = "tanh",
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
        if np.ndim(hidden_units) != 1:
            raise ValueError(f"hidden_units: got {hidden_units!r}, needs a list of integers")
        sizes = [input_dim, *hidden_units, output_dim]
        for size in sizes:
            check_positive_integer("input_dim, hidden_units and output_dim", size)
        rng = np.random.default_rng(seed)
        self.activation = activation
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
            hidden = activation(hidden @ weight + offset)
        return hidden @ last_weight + last_offset


class KernelExpansion(gpflow.Module):
    """m(x) + sum_n beta_n k(x, x_n) over given points, such as all the training inputs.

    [NeurIPS22] equation 17 with more points than the variational kernel has.

    :param kernel: k.
    :param points: x_n [N, D].
    :param output_dim: P.
    :param prior_mean: m, default zero.
    :param whiten: `weights` are chol(k_NN)^T beta, on the scale of the outputs, at O(N^3) a call;
        otherwise beta itself.

    The parameter is `weights` [N, P].
    """

    def __init__(
        self,
        kernel: Kernel,
        points: InducingVariables | tf.Tensor,
        output_dim: int = 1,
        *,
        prior_mean: MeanFunction | None = None,
        whiten: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        check_positive_integer("output_dim", output_dim)
        self.kernel = kernel
        self.points = check_inducing_variable(points)
        gpflow.set_trainable(self.points, False)
        self.prior_mean = prior_mean
        self.whiten = whiten
        self.weights = Parameter(
            np.zeros([tf.convert_to_tensor(self.points.Z).shape[0], output_dim])
        )

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """Values [N, P] at X [N, D]."""
        cross = covariances.Kuf(self.points, self.kernel, X)
        if self.whiten:
            tril = self._tril()
            cross = tf.linalg.triangular_solve(tril, cross)
        value = tf.matmul(cross, self.weights, transpose_a=True)
        return value if self.prior_mean is None else value + self.prior_mean(X)

    def interpolate(self, Y: tf.Tensor, noise_variance: float) -> None:
        """Set `weights` to the posterior mean of a GP regression on targets Y [N, P] at the points."""
        check_positive("noise_variance", noise_variance)
        if np.shape(Y) != tuple(self.weights.shape):
            raise ValueError(
                f"data: got Y {np.shape(Y)}, needs {tuple(self.weights.shape)}, a row a point"
            )
        covariance = covariances.Kuu(self.points, self.kernel)
        noisy = covariance + noise_variance * tf.eye(len(Y), dtype=covariance.dtype)
        residual = tf.cast(Y, covariance.dtype)
        if self.prior_mean is not None:
            residual -= self.prior_mean(tf.convert_to_tensor(self.points.Z))
        beta = tf.linalg.cholesky_solve(tf.linalg.cholesky(noisy), residual)
        self.weights.assign(
            tf.matmul(self._tril(), beta, transpose_a=True) if self.whiten else beta
        )

    def _tril(self) -> tf.Tensor:
        jitter = gpflow.default_jitter()
        return cholesky(covariances.Kuu(self.points, self.kernel, jitter=jitter))


class KerasMean(tf.Module):
    """A Keras model as a mean function: its trainable weights are this module's variables.

    Deterministic: dropout and the like are off, in training too.

    :param network: from [N, D] to [N, P], in any precision.
    :param input_dim: D.
    """

    def __init__(self, network: Any, input_dim: int, name: str | None = None) -> None:
        super().__init__(name=name)
        self.network, self.input_dim = network, input_dim
        self._dtype = tf.as_dtype(getattr(network, "compute_dtype", "float32"))
        self(tf.zeros([1, input_dim], gpflow.default_float()))  # Keras makes its weights here.
        # Those of frozen layers are the network's own, which checkpoints track too.
        self.network_variables = [
            v if isinstance(v, tf.Variable) else v.value for v in network.trainable_variables
        ]

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """Outputs [N, P] at X [N, D], in the type of X."""
        return tf.cast(self.network(tf.cast(X, self._dtype), training=False), X.dtype)

    def __deepcopy__(self, memo: dict[int, Any]) -> KerasMean:
        try:
            network = tf.keras.models.clone_model(self.network)
        except (NotImplementedError, TypeError) as error:
            raise ValueError(
                f"mean: Keras cannot copy a {type(self.network).__name__}, which needs get_config and "
                "from_config for it; or use a Sequential or functional model"
            ) from error
        other = KerasMean(network, self.input_dim, name=self.name)
        network.set_weights(self.network.get_weights())
        memo[id(self)] = other
        return other


def convolutional_network(
    image_shape: tuple[int, int, int],
    num_classes: int,
    *,
    filters: Sequence[int] = (16, 16, 16),
    dense_units: Sequence[int] = (64,),
    activation: str = "relu",
    seed: int = 0,
) -> Any:
    """A Keras network for images flattened to rows [N, H W C]: convolutions with pooling, then dense layers.

    [NeurIPS22]'s mean for images: three convolutions.

    :param image_shape: height, width and channels.
    :param num_classes: outputs.
    """
    layers = tf.keras.layers
    seeds = itertools.count(seed * 100)

    def start() -> Any:
        return tf.keras.initializers.GlorotUniform(seed=next(seeds))

    network = [tf.keras.Input([math.prod(image_shape)]), layers.Reshape(image_shape)]
    for width in filters:
        network += [
            layers.Conv2D(
                width, 3, padding="same", activation=activation, kernel_initializer=start()
            ),
            layers.MaxPooling2D(padding="same"),
        ]
    network.append(layers.Flatten())
    for width in dense_units:
        network.append(layers.Dense(width, activation=activation, kernel_initializer=start()))
    network.append(layers.Dense(num_classes, kernel_initializer=start()))
    return tf.keras.Sequential(network)


def as_mean(mean: Any, input_dim: int, output_dim: int) -> Mean:
    """A callable that maps [N, D] to [N, P], checked on two points; Keras models are wrapped.

    :raises ValueError: it is not callable, fails, or gives another shape.
    """
    if not callable(mean):
        raise ValueError(
            f"mean: got {mean!r}, needs 'svgp' or a callable from [N, {input_dim}] to "
            f"[N, {output_dim}], such as a tf.Module or a Keras model"
        )
    name, dtype = type(mean).__name__, gpflow.default_float()
    try:
        if hasattr(mean, "trainable_weights") and not isinstance(mean, KerasMean):
            mean = KerasMean(mean, input_dim)
        value = tf.convert_to_tensor(mean(tf.zeros([2, input_dim], dtype)))
    except Exception as error:  # whatever the user's function raises
        raise ValueError(
            f"mean: {name} fails on 2 points of {input_dim} columns in {dtype.__name__} "
            f"({type(error).__name__}), needs a callable from [N, {input_dim}] to [N, {output_dim}]"
        ) from error
    if value.shape != (2, output_dim):
        raise ValueError(
            f"mean: {type(mean).__name__} gives shape {tuple(value.shape)} for 2 points, needs "
            f"[N, {output_dim}]: one column an output of the likelihood"
        )
    return mean
