"""The output layer whose inducing values a chain moves."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import MeanAndVariance
from gpflow.kernels import Kernel, SeparateIndependent

from ...linalg import transpose
from ...random import Seed
from ..base import MIN_VARIANCE
from .base import FeatureDraw, conditional_moments, residual_covariance
from .output_layer import OutputLayer
from .sampled_features import SampledGramLayer


class SampledOutput(SampledGramLayer, OutputLayer):
    """P independent GPs f ~ N(0, K) whose inducing values u = L v, L L^T = K, are sampled.

    Attributes are those of `SampledLayer`; the chain starts at v = 0. The functions given u are
    integrated out: `condition` gives their means and variances.

    :param num_inducing: M.
    :param num_outputs: P.
    :param kernel: as in `GramLayer`, shared by the outputs.

    >>> layer = gpflow_dkp.layers.SampledOutput(num_inducing=3, num_outputs=1)
    >>> K = gpflow_dkp.gram.from_inputs(gpflow.kernels.SquaredExponential(), X[:3], X)
    >>> mean, variance = layer.condition(layer.sample(K.ii), K.it, K.tt)
    >>> mean.shape, np.allclose(variance[0, :3], 0.0, atol=1e-5)  # at Z f is known
    (TensorShape([1, 10, 1]), True)
    """

    def __init__(
        self,
        num_inducing: int,
        num_outputs: int,
        *,
        kernel: Kernel | None = None,
        name: str | None = None,
    ) -> None:
        if isinstance(kernel, SeparateIndependent):
            raise ValueError(
                "kernel: got SeparateIndependent, needs one kernel for all outputs whose values are sampled"
            )
        super().__init__(num_inducing, num_outputs, kernel=kernel, name=name)
        self._start_chain(np.zeros([num_inducing, num_outputs]))

    @property
    def prior_scale(self) -> float:
        """1."""
        return 1.0

    def condition(
        self,
        draw: FeatureDraw,
        K_it: tf.Tensor,
        K_tt: tf.Tensor,
        *,
        seed: Seed = None,
        full_cov: bool = False,
        common_noise: bool = False,
    ) -> MeanAndVariance:
        """Means [S, N, P] and variances [S, N, P], or covariances [S, P, N, N] with `full_cov`.

        mean = K_ti K^{-1} u, variance = K_tt - K_ti K^{-1} K_it. Nothing is drawn.
        """
        K_it, K_tt = tf.convert_to_tensor(K_it), tf.convert_to_tensor(K_tt)
        mean, explained = conditional_moments(draw, K_it, self.gradient_dtype)
        mean = tf.cast(transpose(mean), draw.features.dtype)
        num_samples, num_data, num_outputs = tf.unstack(tf.shape(mean))
        if full_cov:
            covariance = residual_covariance(draw.prior, K_it, K_tt)[..., None, :, :]
            shape = [num_samples, num_outputs, num_data, num_data]
            return mean, tf.broadcast_to(covariance, shape)
        variance = tf.cast(K_tt, explained.dtype) - explained
        variance = tf.cast(tf.maximum(variance, MIN_VARIANCE[variance.dtype]), mean.dtype)
        return mean, tf.broadcast_to(variance[..., None], tf.shape(mean))

    @check_shapes(
        "K_ii: [batch..., M, M]",
        "return[0]: [S, M, P]",
        "return[1]: [S, 1, M, M]",
    )
    def inducing_moments(self, K_ii: tf.Tensor) -> MeanAndVariance:
        """The values that are kept [S, M, P], and the zero covariance [S, 1, M, M] of what is known.

        :param K_ii: [S, M, M] for as many of them, or [M, M] for all.
        """
        whole = tf.convert_to_tensor(K_ii).shape.rank == 2
        draw = self.at(tf.convert_to_tensor(self.samples), K_ii) if whole else self.sample(K_ii)
        values = draw.features
        num_samples, num_inducing, _ = tf.unstack(tf.shape(values))
        return values, tf.zeros([num_samples, 1, num_inducing, num_inducing], values.dtype)
