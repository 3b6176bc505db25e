"""Finite networks: kernels of the features themselves, which a Gram matrix alone does not give."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from gpflow import Parameter
from gpflow.kernels import Kernel
from gpflow.utilities import positive

from ..checks import brief
from .blocks import FeatureBlocks, GramBlocks
from .covariance import KernelNotComputableFromGram, covariance


class Activation(NamedTuple):
    """A nonlinearity and the factor of its kernel."""

    function: Callable[[tf.Tensor], tf.Tensor]
    factor: float = 1.0


ACTIVATIONS: dict[str, Activation] = {
    "relu": Activation(tf.nn.relu, 2.0),  # ArcCosine's: of unit inputs a unit variance
    "erf": Activation(tf.math.erf),
    "sin": Activation(tf.sin),
    "cos": Activation(tf.cos),
    "tanh": Activation(tf.tanh),
    "sigmoid": Activation(tf.sigmoid),
}


class FeatureKernel(Kernel):
    """K = v phi(F) phi(F)^T / width of features F: one layer of finite width ([ICML21] section 4).

    With it between the layers of a `DGP` the model is a Bayesian neural network whose hidden layers
    have `widths` units, each with independent normal weights; its prior is a deep kernel process, and with
    growing width K becomes E phi(f) phi(f') for f, f' jointly normal of the covariance before it. Only layers
    whose draws are features give K: those of a `DGP`, and any layer's prior.

    As all kernels on Gram matrices it equals K of features divided by the root of their number D: on [N, D]
    inputs X it takes F = sqrt(D) X.

    :param activation: phi, "relu" (whose K has the factor 2, as `ArcCosine(order=1)` has), "erf", "sin",
        "cos", "tanh", "sigmoid", or a function of a tensor that acts on each entry.
    :param variance: v.

    >>> X = np.array([[0.5], [1.0]])
    >>> np.allclose(gpflow_dkp.gram.FeatureKernel("sin", variance=3.0)(X), 3.0 * np.sin(X) * np.sin(X.T))
    True
    >>> gpflow_dkp.gram.FeatureKernel("sign")
    Traceback (most recent call last):
        ...
    ValueError: activation: got 'sign', choose one of relu, erf, sin, cos, tanh, sigmoid, or a function
    """

    def __init__(
        self,
        activation: str | Callable[[tf.Tensor], tf.Tensor],
        variance: float | tf.Tensor = 1.0,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        if not callable(activation) and activation not in ACTIVATIONS:
            raise ValueError(
                f"activation: got {brief(activation)}, choose one of {', '.join(ACTIVATIONS)}, or a function"
            )
        self.activation = activation
        self.variance = Parameter(variance, transform=positive())

    @property
    def phi(self) -> Activation:
        """The nonlinearity, with its kernel's factor."""
        if callable(self.activation):
            return Activation(self.activation)
        return ACTIVATIONS[self.activation]

    def features(self, X: tf.Tensor, axis: int = -1) -> tf.Tensor:
        """Phi, of the shape of X, with K = Phi Phi^T.

        :param X: features divided by the root of their number, which stand along `axis`.
        """
        function, factor = self.phi
        num_features = tf.cast(tf.shape(X)[axis], X.dtype)
        scale = tf.sqrt(factor * tf.cast(self.variance, X.dtype) / num_features)
        return scale * function(tf.sqrt(num_features) * X)

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:  # GPflow's
        """On features X [N, D] and X2 [N2, D]: [N, N2]."""
        return tf.matmul(self.features(X), self.features(X if X2 is None else X2), transpose_b=True)

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:  # GPflow's
        """The diagonal of `K(X)` [N]."""
        return tf.reduce_sum(tf.square(self.features(X)), -1)


class ReLUFeatures(FeatureKernel):
    """`FeatureKernel("relu")`, K = 2 v relu(F) relu(F)^T / width.

    With growing width it becomes `ArcCosine(order=1)` of the same variance and no bias.

    :param variance: v.

    >>> kernel = gpflow_dkp.gram.ReLUFeatures(variance=1.0)
    >>> kernel(np.array([[1.0, -1.0], [2.0, 1.0]])).numpy().round(6).tolist()
    [[2.0, 4.0], [4.0, 10.0]]
    """

    def __init__(self, variance: float | tf.Tensor = 1.0, name: str | None = None) -> None:
        super().__init__("relu", variance, name)


@covariance.register(FeatureKernel)  # type: ignore[attr-defined]  # as of singledispatch
def _of_features(kernel: FeatureKernel, gram: GramBlocks) -> FeatureBlocks:
    if not isinstance(gram, FeatureBlocks) or gram.own is not None:
        raise KernelNotComputableFromGram(
            kernel, "it needs the features behind the Gram matrix, which the layers of a DGP draw"
        )
    return FeatureBlocks(kernel.features(gram.inducing), kernel.features(gram.data, axis=-2))
