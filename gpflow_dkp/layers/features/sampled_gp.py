"""The Gaussian-process layer whose inducing values are draws of their posterior."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from typing_extensions import Self

from ...linalg import cholesky
from ...random import Seed
from ..sampled import SampledLayer, log_standard_normal
from .sparse_gp import InducingGP, SparseGP


class SampledValues(NamedTuple):
    """S values v of the L GPs' whitened inducing values, u = L v, with the factor L of their covariance.

    :param tril: L [M, M].
    :param whitened: v [S, M, L].
    :param log_ratio: log p(v), summed over the GPs [S].
    """

    tril: tf.Tensor
    whitened: tf.Tensor
    log_ratio: tf.Tensor

    @property
    def excess(self) -> tf.Tensor:
        """Covariance of v, which is known, minus the prior's: minus the identity [L, M, M]."""
        _, num_inducing, num_latent_gps = tf.unstack(tf.shape(self.whitened))
        return -tf.eye(num_inducing, batch_shape=[num_latent_gps], dtype=self.whitened.dtype)

    @check_shapes("basis: [R, M]", "return: [R, L]")
    def mean_at(self, basis: tf.Tensor) -> tf.Tensor:
        """Mean [R, L] of the L GPs at points of this basis [R, M], the S values' points one after another."""
        num_samples, num_inducing, num_latent_gps = tf.unstack(tf.shape(self.whitened))
        by_sample = tf.reshape(basis, [num_samples, -1, num_inducing])
        return tf.reshape(by_sample @ self.whitened, [-1, num_latent_gps])

    @check_shapes("basis: [N, K, M]", "return: [N, L, K, K]")
    def excess_at(self, basis: tf.Tensor) -> tf.Tensor:
        """Covariance of the L GPs at N sets of K points, minus the prior's."""
        explained = tf.matmul(basis, basis, transpose_b=True)
        return -tf.tile(explained[:, None], [1, tf.shape(self.whitened)[-1], 1, 1])


class SampledGP(SampledLayer, InducingGP):
    """L independent GPs of one kernel, with inducing values u that are drawn from their posterior.

    It is the layer of [NeurIPS18], docs/mathematics.md 11: u = L v with L the factor of the inducing
    covariance and v ~ N(0, I) a priori. `gpflow_dkp.training.sample` moves v and keeps what it passes.
    Outputs, projection and mean function are those of `SparseGP`.

    :param kernel: any GPflow kernel on the layer's inputs, shared by the L GPs.
    :param inducing_variable: Z [M, D], an array or GPflow inducing points.
    :param num_latent_gps: L.
    :param mean_function: m, a GPflow mean function of P columns; default zero.
    :param projection: W [P, L], fixed; default the identity.

    Attributes are those of `SampledLayer`; the chain starts at v = 0.

    >>> layer = gpflow_dkp.layers.SampledGP(gpflow.kernels.SquaredExponential(), X[:3], 2)
    >>> mean, variance = layer.marginals(X)
    >>> mean.shape, np.allclose(mean, 0.0), np.allclose(variance[:3], 0.0, atol=1e-5)  # at Z f is known
    (TensorShape([10, 2]), True, True)
    >>> layer.keep(np.ones([4, 3, 2]))
    >>> layer.sample(num_samples=2).whitened.shape
    TensorShape([2, 3, 2])
    """

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: InducingVariables | tf.Tensor,
        num_latent_gps: int,
        *,
        mean_function: MeanFunction | None = None,
        projection: np.ndarray | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(
            kernel,
            inducing_variable,
            num_latent_gps,
            mean_function=mean_function,
            projection=projection,
            name=name,
        )
        self._start_chain(np.zeros([self.num_inducing, num_latent_gps]))

    @classmethod
    def of(cls, layer: SparseGP) -> Self:
        """The layer of a sparse GP's kernel, inducing points and mean function, at the mean of its q(v)."""
        sampled = cls(
            layer.kernel,
            layer.inducing_variable,
            layer.num_latent_gps,
            mean_function=layer.mean_function,
            projection=layer.projection,
        )
        sampled.move_to(layer.sample().mean)
        return sampled

    @check_shapes("return.tril: [M, M]", "return.whitened: [S, M, L]", "return.log_ratio: [S]")
    def sample(self, *, seed: Seed = None, num_samples: int | None = None) -> SampledValues:
        """So many of the values that are kept, evenly over the chain; where it stands now for None.

        Of more than are kept each is there several times. Nothing is drawn here.
        """
        if num_samples is None:
            return self.at(self.values[None])
        return self.at(self.kept(num_samples))

    @check_shapes("values: [S, M, L]", "return.whitened: [S, M, L]", "return.log_ratio: [S]")
    def at(self, values: tf.Tensor) -> SampledValues:
        """Values of v [S, M, L] with their factorisation and prior density."""
        tril = cholesky(self._inducing_covariance())
        return SampledValues(tril, values, log_standard_normal(values))
