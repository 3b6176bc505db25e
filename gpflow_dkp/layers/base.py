"""What the layers with global inducing points share."""

from __future__ import annotations

import abc

import gpflow
import tensorflow as tf

from ..gram import FeatureBlocks, GramBlocks
from ..linalg import PositiveDefinite, cholesky, conditional, positive_definite, stack_columns
from ..random import Seed, normal, split

LOG_RATIOS = ("expected", "sampled")

MIN_VARIANCE = {tf.float64: 1e-12, tf.float32: 1e-7}
"""Floor of a conditional variance that rounding may take below zero, by precision."""


class Layer(gpflow.Module, abc.ABC):
    """A stochastic layer: covariance blocks in, a sample's blocks and log P - log Q out."""

    @abc.abstractmethod
    def sample_noise(
        self, num_samples: int | tf.Tensor, num_data: int | tf.Tensor, seed: Seed, first: int = 0
    ) -> tuple:
        """Everything random of one pass, each tensor with leading dimension `num_samples`.

        :param first: offset of the data points in a larger set: it changes their random numbers
            and leaves those of the inducing points.
        """

    @abc.abstractmethod
    def propagate_noise(self, covariance: GramBlocks, noise: tuple) -> tuple[GramBlocks, tf.Tensor]:
        """`propagate` with the random numbers given."""

    def propagate(
        self, covariance: GramBlocks, *, seed: Seed, num_samples: int | None = None
    ) -> tuple[GramBlocks, tf.Tensor]:
        """Draw the layer's output from the approximate posterior.

        :param covariance: K over M inducing and N data points, with a sample dimension S or, at
            the first layer, without.
        :param seed: int, stateless seed [2] or None.
        :param num_samples: S when `covariance` has no sample dimension (default 1).
        :returns: the sample's blocks, with sample dimension S, and log P - log Q [S].
        """
        num_samples = num_samples_of(covariance, num_samples)
        noise = self.sample_noise(num_samples, tf.shape(covariance.tt)[-1], seed)
        return self.propagate_noise(covariance, noise)

    @abc.abstractmethod
    def prior_sample(
        self, covariance: GramBlocks, *, seed: Seed, num_samples: int | None = None
    ) -> GramBlocks:
        """Draw the layer's output from the prior; arguments as in `propagate`."""


def num_samples_of(covariance: GramBlocks, num_samples: int | None) -> int | tf.Tensor:
    """The number of samples S of a pass, from the covariance's own if it has one."""
    if covariance.ii.shape.rank == 2:
        return 1 if num_samples is None else num_samples
    own = (
        covariance.ii.shape[0] if covariance.ii.shape[0] is not None else tf.shape(covariance.ii)[0]
    )
    if num_samples is not None and isinstance(own, int) and num_samples != own:
        raise ValueError(f"got num_samples={num_samples} for a covariance with {own} samples")
    return own


def conditional_features(
    prior: PositiveDefinite,
    features: tf.Tensor,
    covariance: GramBlocks,
    noise: tf.Tensor,
    gradient_dtype: tf.DType | None = None,
) -> FeatureBlocks:
    """Features of each data point given the inducing points', one point at a time.

    F_t = F_i^T S_ii^{-1} S_it + sqrt(S_tt - S_ti S_ii^{-1} S_it) eps with S = K / width, column by
    column; [UAI23] Algorithm 1 with the padding by zero columns for D < width and with S_it where
    it prints its transpose. S_ii^{-1} S_it = K_ii^{-1} K_it, so only the residual is scaled.

    :param prior: K_ii [S, M, M] or [M, M].
    :param features: F_i [S, M, D], D at most the width.
    :param covariance: K with or without samples.
    :param noise: standard normals eps [S, width, N].
    :returns: features of width columns.
    """
    cross = covariance.it
    if cross.shape.rank == 2:
        mean, explained = conditional(prior, stack_columns(features), cross, gradient_dtype)
        mean = tf.reshape(mean, [tf.shape(features)[0], -1, tf.shape(mean)[-1]])
    else:
        mean, explained = conditional(prior, features, cross, gradient_dtype)
    width = noise.shape[-2]
    residual = (tf.cast(covariance.tt, mean.dtype) - explained) / width
    residual = tf.maximum(residual, MIN_VARIANCE[mean.dtype])
    scatter = tf.sqrt(residual)[..., None, :] * tf.cast(noise, mean.dtype)
    missing = width - features.shape[-1]
    if missing:
        mean = tf.pad(mean, [[0, 0], [0, missing], [0, 0]])
        features = tf.pad(features, [[0, 0], [0, 0], [0, missing]])
    return FeatureBlocks(features, mean + scatter)


def prior_feature_sample(
    covariance: GramBlocks, width: int, num_samples: int | tf.Tensor, seed: Seed
) -> FeatureBlocks:
    """`width` independent N(0, K / width) features: their Gram matrix is Wishart(K / width, width)."""
    for_factor, for_data = split(seed, 2)
    dtype = covariance.ii.dtype
    prior = positive_definite(covariance.ii)
    num_inducing = tf.shape(covariance.ii)[-1]
    noise = normal([num_samples, num_inducing, width], for_factor, dtype)
    features = cholesky(prior.matrix, prior.chol) @ noise / tf.sqrt(tf.cast(width, dtype))
    data_noise = normal([num_samples, width, tf.shape(covariance.tt)[-1]], for_data, tf.float32)
    return conditional_features(prior, features, covariance, data_noise)
