"""Mean functions of variational measures: kernel expansions and neural networks, from [N, D] to [N, P]."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import Parameter, covariances
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from .checks import (
    brief,
    check_inducing_variable,
    check_positive,
    check_positive_integer,
    num_points_and_features,
)
from .jitter import IGNORING_JITTER, jitter_variable
from .linalg import cholesky
from .networks import MultilayerPerceptron

__all__ = [
    "KerasMean",
    "KernelExpansion",
    "Mean",
    "MultilayerPerceptron",
    "as_mean",
    "as_prior_mean",
    "convolutional_network",
]

Mean = Callable[[tf.Tensor], tf.Tensor]

TRIAL_POINTS = 16
"""Random points at which a Keras network is compared with itself in training."""


class KernelExpansion(gpflow.Module):
    """m(x) + sum_n beta_n k(x, x_n) over given points, such as all the training inputs.

    [NeurIPS22] equation 17 with more points than the variational kernel has.

    :param kernel: k.
    :param points: x_n [N, D].
    :param output_dim: P.
    :param prior_mean: m, default zero.
    :param whiten: `weights` are chol(k_NN)^T beta, on the scale of the outputs, at O(N^3) a call;
        otherwise beta itself.
    :param jitter: added to k_NN, default GPflow's; a variable, which `fit` raises where it has to.

    The parameter is `weights` [N, P].

    >>> mean = gpflow_dkp.means.KernelExpansion(gpflow.kernels.SquaredExponential(), X)
    >>> mean.interpolate(Y, noise_variance=1e-6)
    >>> np.allclose(mean(X), Y, atol=1e-2)
    True
    """

    _TF_MODULE_IGNORED_PROPERTIES = IGNORING_JITTER

    def __init__(
        self,
        kernel: Kernel,
        points: InducingVariables | tf.Tensor,
        output_dim: int = 1,
        *,
        prior_mean: MeanFunction | None = None,
        whiten: bool = True,
        jitter: float | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        check_positive_integer("output_dim", output_dim)
        if not isinstance(kernel, Kernel):
            raise ValueError(f"kernel: got {brief(kernel)}, needs a GPflow kernel")
        self.kernel = kernel
        self.points = check_inducing_variable(points)
        gpflow.set_trainable(self.points, False)
        self.prior_mean = prior_mean
        self.whiten = whiten
        self.jitter = jitter_variable(jitter)
        num_points, _ = num_points_and_features(self.points)
        self.weights = Parameter(np.zeros([num_points, output_dim]))

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
        covariance = covariances.Kuu(self.points, self.kernel)
        return cholesky(
            covariance + self.jitter * tf.eye(tf.shape(covariance)[0], dtype=covariance.dtype)
        )


class KerasMean(tf.Module):
    """A Keras model as a mean function: its trainable weights are this module's variables.

    :param network: from [N, D] to [N, P], in any precision, the same function in training as otherwise.
    :param input_dim: D.
    :raises ValueError: the network is another function in training, as one with dropout is.

    >>> network = tf.keras.Sequential([tf.keras.layers.Dense(5, "tanh"), tf.keras.layers.Dense(1)])
    >>> mean = gpflow_dkp.means.KerasMean(network, input_dim=2)
    >>> mean(tf.constant(X)).shape, len(mean.trainable_variables)
    (TensorShape([10, 1]), 4)
    """

    def __init__(self, network: Any, input_dim: int, name: str | None = None) -> None:
        super().__init__(name=name)
        self.network, self.input_dim = network, input_dim
        self._dtype = tf.as_dtype(getattr(network, "compute_dtype", "float32"))
        self(tf.zeros([1, input_dim], gpflow.default_float()))  # Keras makes its weights here.
        self._check_training()
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

    def _check_training(self) -> None:
        """Raise `ValueError` if the network is another function in training; leaves its state alone."""
        points = np.random.default_rng(0).normal(size=(TRIAL_POINTS, self.input_dim))
        points = tf.cast(points, self._dtype)
        before = [(variable, variable.numpy()) for variable in self.network.variables]
        values = [tf.convert_to_tensor(self.network(points, training=t)) for t in (False, True)]
        for variable, value in before:  # a running average, the state of a random generator
            variable.assign(value)
        outside, inside = (tf.cast(value, tf.float64).numpy() for value in values)
        # A layer that differs, differs by much: dropout scales what it keeps.
        if not np.allclose(inside, outside, rtol=1e-5, atol=1e-12, equal_nan=True):
            raise ValueError(
                f"mean: {type(self.network).__name__} is another function in training, as layers like "
                "Dropout or BatchNormalization are, needs one function; leave such layers out, or freeze "
                "a BatchNormalization by trainable = False"
            )


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

    [NeurIPS22]'s mean for images: three convolutions. Its code tries 8 to 64 filters, and one to three dense
    layers, on held-out images.

    :param image_shape: height, width and channels.
    :param num_classes: outputs.

    >>> network = gpflow_dkp.means.convolutional_network((8, 8, 1), 10, filters=[2], dense_units=[])
    >>> network(tf.zeros([3, 64])).shape
    TensorShape([3, 10])
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

    :raises ValueError: it is not callable, fails, gives another shape, or is another function in training.

    >>> mean = gpflow_dkp.means.as_mean(lambda X: X[:, :1], input_dim=2, output_dim=1)
    >>> mean(X).shape
    (10, 1)
    >>> gpflow_dkp.means.as_mean(lambda X: X, input_dim=2, output_dim=1)
    Traceback (most recent call last):
        ...
    ValueError: mean: function gives shape (2, 2) for 2 points, needs [N, 1]: one column ...
    """
    if not callable(mean) or isinstance(mean, type):
        raise ValueError(
            f"mean: got {_described(mean)}, needs 'svgp' or a callable from [N, {input_dim}] to "
            f"[N, {output_dim}], such as a tf.Module or a Keras model"
        )
    of_keras = hasattr(mean, "trainable_weights") and not isinstance(mean, KerasMean)
    needs = f"a callable from [N, {input_dim}] to [N, {output_dim}]"
    if of_keras:
        # Before it is wrapped, to tell a network that fails from one that is refused.
        dtype = tf.as_dtype(getattr(mean, "compute_dtype", "float32"))
        _value_at_two_points("mean", mean, input_dim, needs, dtype)
        mean = KerasMean(mean, input_dim)
    value = _value_at_two_points("mean", mean, input_dim, needs)
    if value.shape != (2, output_dim):
        raise ValueError(
            f"mean: {type(mean).__name__} gives shape {tuple(value.shape)} for 2 points, needs "
            f"[N, {output_dim}]: one column an output of the likelihood"
        )
    return mean


def as_prior_mean(
    prior_mean: Any, input_dim: int, num_outputs: int
) -> Callable[[tf.Tensor], tf.Tensor]:
    """A callable that maps [N, D] to one column or to P, checked on two points.

    :raises ValueError: it is not callable, fails or gives another shape.

    >>> prior_mean = gpflow_dkp.means.as_prior_mean(gpflow.functions.Constant(2.0), 2, 1)
    >>> np.allclose(prior_mean(X), 2.0)
    True
    """
    if not callable(prior_mean) or isinstance(prior_mean, type):
        raise ValueError(f"prior_mean: got {_described(prior_mean)}, needs a GPflow mean function")
    needs = f"a GPflow mean function on [N, {input_dim}]"
    value = _value_at_two_points("prior_mean", prior_mean, input_dim, needs)
    if value.shape not in ((2, 1), (2, num_outputs)):
        raise ValueError(
            f"prior_mean: gives shape {tuple(value.shape)} for 2 points, needs one column, or "
            f"{num_outputs}"
        )
    return prior_mean


def _value_at_two_points(
    argument: str,
    function: Callable[[tf.Tensor], tf.Tensor],
    input_dim: int,
    needs: str,
    dtype: tf.DType | None = None,
) -> tf.Tensor:
    """Its value at two points of zeros.

    :raises ValueError: in one line, whatever it raises.
    """
    try:
        zeros = tf.zeros([2, input_dim], dtype or gpflow.default_float())
        return tf.convert_to_tensor(function(zeros))
    except Exception as error:  # whatever the user's function raises
        raise ValueError(
            f"{argument}: {type(function).__name__} fails on 2 points of {input_dim} columns in "
            f"{np.dtype(gpflow.default_float()).name} ({type(error).__name__}), needs {needs}"
        ) from error


def _described(value: object) -> str:
    """A value that is no function, in one line."""
    shape = getattr(value, "shape", None)
    if isinstance(value, type) or shape is None:
        return repr(value).splitlines()[0]
    return f"array of shape {tuple(shape)}"
