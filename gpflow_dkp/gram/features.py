"""Finite networks: a kernel of the features themselves, which a Gram matrix alone does not give."""

from __future__ import annotations

import tensorflow as tf
from gpflow import Parameter
from gpflow.kernels import Kernel
from gpflow.utilities import positive

from .blocks import FeatureBlocks, GramBlocks
from .covariance import KernelNotComputableFromGram, covariance


class ReLUFeatures(Kernel):
    """K = 2 v relu(F) relu(F)^T of features F: one ReLU layer of finite width ([ICML21] section 4).

    With it between the layers of a `DGP` the model is a Bayesian neural network whose hidden layers
    have `widths` units, each weight N(0, 2 v / width); its prior is a deep kernel process, and with
    growing width K becomes that of `ArcCosine(order=1)` of the same variance and no bias. Only
    layers whose draws are features give K: those of a `DGP`, and any layer's prior.

    :param variance: v.

    >>> kernel = gpflow_dkp.gram.ReLUFeatures(variance=1.0)
    >>> kernel(np.array([[1.0, -1.0], [2.0, 1.0]])).numpy().round(6).tolist()
    [[2.0, 4.0], [4.0, 10.0]]
    """

    def __init__(self, variance: float | tf.Tensor = 1.0, name: str | None = None) -> None:
        super().__init__(name=name)
        self.variance = Parameter(variance, transform=positive())

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:  # GPflow's
        """On features X [N, D] and X2 [N2, D]: [N, N2]."""
        X2 = X if X2 is None else X2
        product = tf.matmul(tf.nn.relu(X), tf.nn.relu(X2), transpose_b=True)
        return 2.0 * self.variance * product

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:  # GPflow's
        """The diagonal of `K(X)` [N]."""
        return 2.0 * self.variance * tf.reduce_sum(tf.square(tf.nn.relu(X)), -1)


@covariance.register(ReLUFeatures)  # type: ignore[attr-defined]  # as of singledispatch
def _relu_features(kernel: ReLUFeatures, gram: GramBlocks) -> FeatureBlocks:
    if not isinstance(gram, FeatureBlocks) or gram.own is not None:
        raise KernelNotComputableFromGram(
            kernel, "it needs the features behind the Gram matrix, which the layers of a DGP draw"
        )
    scale = tf.sqrt(2.0 * tf.convert_to_tensor(kernel.variance))
    return FeatureBlocks(
        scale * tf.nn.relu(gram.inducing),
        tf.cast(scale, gram.data.dtype) * tf.nn.relu(gram.data),
    )
