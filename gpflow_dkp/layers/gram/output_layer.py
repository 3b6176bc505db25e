"""What a deep kernel process ends with: Gaussians of the outputs at every data point."""

from __future__ import annotations

import abc
import math
from typing import Any, NamedTuple

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import MeanAndVariance
from gpflow.kernels import Kernel

from ...checks import check_positive_integer
from ...gram import GramBlocks
from ...random import Seed, split
from .base import FeatureDraw, GramLayer, prior_features


class Marginals(NamedTuple):
    """The output layer's Gaussians at the data points, the inducing values integrated out.

    :param mean: [..., N, P].
    :param variance: [..., N, P], or the covariance [..., P, N, N].
    :param log_ratio: -KL(Q || P), summed over the outputs [...].

    >>> layer = gpflow_dkp.layers.OutputGP(num_inducing=3, num_outputs=1)
    >>> K = gpflow_dkp.gram.from_inputs(gpflow.kernels.SquaredExponential(), X[:3], X)
    >>> marginals = layer.marginals(K)
    >>> marginals.mean.shape, marginals.variance.shape, bool(marginals.log_ratio < 0.0)
    (TensorShape([10, 1]), TensorShape([10, 1]), True)
    """

    mean: tf.Tensor
    variance: tf.Tensor
    log_ratio: tf.Tensor


class OutputLayer(GramLayer):
    """P independent GPs f ~ N(0, K), of which `condition` gives means and variances in the place of draws.

    :param num_inducing: M.
    :param num_outputs: P.
    :param kernel: as in `GramLayer`.

    >>> layer = gpflow_dkp.layers.OutputGP(num_inducing=3, num_outputs=1)
    >>> isinstance(layer, gpflow_dkp.layers.OutputLayer)
    True
    """

    def __init__(
        self,
        num_inducing: int,
        num_outputs: int,
        *,
        kernel: Kernel | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(kernel, name=name)
        check_positive_integer("num_outputs", num_outputs)
        check_positive_integer("num_inducing", num_inducing)
        self.num_inducing = num_inducing
        self.num_outputs = num_outputs

    @property
    def shared_covariance(self) -> bool:
        """Whether the outputs have one posterior covariance of their inducing values."""
        return True

    @abc.abstractmethod
    def condition(
        self,
        draw: Any,
        K_it: tf.Tensor,
        K_tt: tf.Tensor,
        *,
        seed: Seed = None,
        full_cov: bool = False,
        common_noise: bool = False,
    ) -> MeanAndVariance:
        """Means [..., N, P] and variances [..., N, P], or covariances [..., P, N, N] with `full_cov`."""

    @abc.abstractmethod
    def inducing_moments(self, K_ii: tf.Tensor) -> MeanAndVariance:
        """Mean [..., M, P] and covariance [..., groups, M, M] of the inducing values under Q."""

    @check_shapes("K_ii: [batch..., M, M]", "return.features: [S, M, P]")
    def prior_sample(
        self, K_ii: tf.Tensor, *, seed: Seed = None, num_samples: int | None = None
    ) -> FeatureDraw:
        """Draw the outputs at the inducing points from the prior, as features [S, M, P]."""
        seeds = split(seed, self.num_outputs)
        draw = prior_features(K_ii, self.num_outputs, num_samples, seeds[0])
        return draw._replace(features=math.sqrt(self.num_outputs) * draw.features)

    def marginals(self, K: GramBlocks) -> Marginals:
        """`sample` and `condition` at once."""
        draw = self.sample(K.ii)
        mean, variance = self.condition(draw, K.it, K.tt, full_cov=K.full_cov)
        return Marginals(mean, variance, draw.log_ratio)
