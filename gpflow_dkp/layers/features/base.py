"""What a layer from features to features is: sample what its inducing points fix, condition on that."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple, Protocol

import gpflow
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import MeanAndVariance

from ...random import Seed


class FeatureLayerDraw(Protocol):
    """What a layer's own inducing points fix: factorisations, log P - log Q; a named tuple of tensors."""

    @property
    def log_ratio(self) -> tf.Tensor:
        """log P - log Q, or its expectation []."""


class Observed(NamedTuple):
    """Data points whose latent variables are asked for.

    :param X: [N, D].
    :param Y: [N, P].
    :param rows: which rows of the training set they are [N], or None for all of them in order.

    >>> encoder = gpflow_dkp.layers.Encoder(input_dim=3)
    >>> layer = gpflow_dkp.layers.LatentVariableLayer(encoder=encoder)
    >>> mean, variance = layer.latent_posterior(gpflow_dkp.layers.Observed(X, Y))
    >>> mean.shape
    TensorShape([10, 1])
    """

    X: tf.Tensor
    Y: tf.Tensor
    rows: tf.Tensor | None = None


class FeatureLayer(gpflow.Module, abc.ABC):
    """A stochastic layer of a deep GP: features in, features out.

    `sample` gives what the layer's inducing points fix, `condition` draws the features of points given
    that. For a layer of your own write these two, `prior_sample` and `output_dim_of`; `marginals` too for
    one that may come last.

    >>> layer = gpflow_dkp.layers.SparseGP(gpflow.kernels.SquaredExponential(), X[:3], 1)
    >>> isinstance(layer, gpflow_dkp.layers.FeatureLayer)
    True
    >>> features = np.tile(X, [4, 1, 1])  # four samples
    >>> layer.condition(layer.sample(), features, seed=0).shape
    TensorShape([4, 10, 1])
    """

    latent_dim = 0
    """Latent variables that it gives each data point, of posterior `latent_posterior`."""

    @property
    def input_dim(self) -> int | None:
        """Columns of the features that it takes, None for any."""
        return None

    @abc.abstractmethod
    def output_dim_of(self, input_dim: int) -> int:
        """Columns of the features it gives for features of `input_dim` columns."""

    @abc.abstractmethod
    def sample(self, *, seed: Seed = None, num_samples: int | None = None) -> FeatureLayerDraw:
        """What the inducing points fix, with log P - log Q.

        :param seed: int, stateless seed [2] or None, where something is drawn.
        """

    @abc.abstractmethod
    @check_shapes("features: [S, N, D]", "return: [S, N, P]")
    def condition(
        self,
        draw: Any,
        features: tf.Tensor,
        *,
        seed: Seed = None,
        full_cov: bool = False,
        common_noise: bool = False,
    ) -> tf.Tensor:
        """Draw the layer's output [S, N, P] at features [S, N, D].

        :param draw: of `sample`.
        :param full_cov: draw one function for the N points of each sample, rather than each on its own.
        :param common_noise: all N points get the same random numbers; not with `full_cov`.
        """

    @check_shapes("X: [N, D]", "return: [S, N, P]")
    def condition_copies(
        self,
        draw: Any,
        X: tf.Tensor,
        num_samples: int,
        *,
        seed: Seed = None,
        full_cov: bool = False,
        common_noise: bool = False,
    ) -> tf.Tensor:
        """What `condition` draws [S, N, P] at features that are S times the same X [N, D].

        A layer that computes something of the points before it draws can do so once, in a method of its own.

        :param num_samples: S. The other arguments are those of `condition`.
        """
        features = tf.tile(X[None], [num_samples, 1, 1])
        return self.condition(
            draw, features, seed=seed, full_cov=full_cov, common_noise=common_noise
        )

    @abc.abstractmethod
    @check_shapes("features: [S, N, D]", "return: [S, N, P]")
    def prior_sample(self, features: tf.Tensor, *, seed: Seed = None) -> tf.Tensor:
        """Joint draws from the prior at features [S, N, D]: [S, N, P]."""

    @check_shapes(
        "features: [batch..., N, D]",
        "return[0]: [batch..., N, P]",
        "return[1]: [batch..., N, P] if not full_cov",
        "return[1]: [batch..., P, N, N] if full_cov",
    )
    def marginals(
        self, features: tf.Tensor, draw: Any = None, *, full_cov: bool = False
    ) -> MeanAndVariance:
        """Mean and variance [..., N, P], or covariance [..., P, N, N], at features [..., N, D].

        :param draw: of `sample`, where it is there already.
        """
        raise ValueError(
            f"layers: {type(self).__name__} has no marginals, needs another layer last"
        )

    @check_shapes("observed.X: [N, D]", "return[0]: [N, d]", "return[1]: [N, d]")
    def latent_posterior(self, observed: Observed) -> MeanAndVariance:
        """Mean and variance [N, d] of the latent variables of data points, for layers that have some."""
        raise ValueError(f"{type(self).__name__} has no latent variables")

    def posterior_distribution(
        self, observed: Observed | None = None
    ) -> tfp.distributions.Distribution:
        """q of the layer's inducing values, or of data points' latent variables, as a TFP distribution.

        :param observed: the data points, for a layer of latent variables.
        :raises NotImplementedError: a layer of one's own that does not state it, or one that samples.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not state its posterior_distribution"
        )
