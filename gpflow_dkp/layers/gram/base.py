"""What a layer from Gram matrices to Gram matrices is: sample at the inducing points, condition on that."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple, Protocol

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.kernels import Kernel

from ... import gram
from ...gram import FeatureBlocks, GramBlocks
from ...linalg import (
    PositiveDefinite,
    cholesky,
    conditional,
    positive_definite,
    stack_columns,
)
from ...random import Seed, as_seed, fold_in, normal, split
from ..base import MIN_VARIANCE, check_noise


class Draw(Protocol):
    """What the inducing points fix in a layer: its value there, factorisations, log P - log Q.

    A named tuple of tensors. Those of rank 2 are shared by the samples, all others have the samples S as
    their first axis.
    """

    @property
    def log_ratio(self) -> tf.Tensor:
        """log P - log Q, or its expectation [S]."""

    @property
    def inducing(self) -> GramBlocks:
        """The Gram matrix of the M inducing points and no data points, S samples."""


class FeatureDraw(NamedTuple):
    """Features of the inducing points, and the covariance by which those of data points follow.

    :param features: F [S, M, D].
    :param log_ratio: [S].
    :param prior: K_ii [S, M, M], or [M, M] for all samples.

    >>> layer = gpflow_dkp.layers.WishartLayer(num_inducing=3, width=2)
    >>> draw = layer.prior_sample(gpflow.kernels.SquaredExponential()(X[:3]), seed=0)
    >>> F = draw.features[0]
    >>> np.allclose(draw.inducing.ii[0], F @ tf.transpose(F))
    True
    """

    features: tf.Tensor
    log_ratio: tf.Tensor
    prior: PositiveDefinite

    @property
    def inducing(self) -> FeatureBlocks:
        """F F^T."""
        return FeatureBlocks.of_inducing(self.features)


class GramLayer(gpflow.Module, abc.ABC):
    """A stochastic layer of a deep kernel process: a Gram matrix in, a random one out.

    The kernel turns the Gram matrix into a covariance K. `sample` draws the layer at the inducing points,
    from K_ii alone; `condition` draws data points given that, from K_it and K_tt. For a layer of your own
    write these two and `prior_sample`.

    :param kernel: on Gram matrices, or on the inputs in a model's first layer; None for K = G.

    >>> kernel = gpflow.kernels.SquaredExponential()
    >>> layer = gpflow_dkp.layers.WishartLayer(num_inducing=3, width=2, kernel=kernel)
    >>> isinstance(layer, gpflow_dkp.layers.GramLayer)
    True
    >>> K = layer.covariance(gpflow_dkp.gram.InputBlocks(X[:3], X), jitter=1e-6)
    >>> G, log_ratio = layer.propagate(K, seed=0, num_samples=4)
    >>> G.ii.shape, G.it.shape, G.tt.shape
    (TensorShape([4, 3, 3]), TensorShape([4, 3, 10]), TensorShape([4, 10]))
    """

    def __init__(self, kernel: Kernel | None = None, *, name: str | None = None) -> None:
        super().__init__(name=name)
        if kernel is not None and not isinstance(kernel, Kernel):
            raise ValueError(f"kernel: got {type(kernel).__name__}, needs a GPflow kernel")
        self.kernel = kernel
        self.gradient_dtype: tf.DType | None = None

    @property
    def draws_features(self) -> bool:
        """Whether `condition` gives genuine features, which a kernel of features may take."""
        return False

    def covariance(
        self, blocks: GramBlocks, jitter: tf.Tensor | float = 0.0, dtype: tf.DType | None = None
    ) -> Any:
        """K(G) + jitter I, with attributes `ii`, `it`, `tt` and `full_cov`.

        :param dtype: of the data points' blocks; the whole of theirs, which is factorised, stays in K's.
        """
        K = blocks if self.kernel is None else gram.covariance(self.kernel, blocks)
        K = K.with_jitter(jitter)
        return K if dtype is None or K.full_cov else K.with_data_dtype(dtype)

    @abc.abstractmethod
    def sample(self, K_ii: tf.Tensor, *, seed: Seed = None, num_samples: int | None = None) -> Draw:
        """Draw the layer at the inducing points from the approximate posterior.

        :param K_ii: [S, M, M], or [M, M] with `num_samples`, by default 1.
        :param seed: int, stateless seed [2] or None.
        """

    @abc.abstractmethod
    def prior_sample(
        self, K_ii: tf.Tensor, *, seed: Seed = None, num_samples: int | None = None
    ) -> Draw:
        """Draw the layer at the inducing points from the prior; arguments as in `sample`."""

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
    ) -> GramBlocks:
        """Draw the data points given the inducing points, each on its own.

        :param draw: of `sample` or `prior_sample`: the prior's conditional is the posterior's.
        :param K_it: [S, M, N] or [M, N].
        :param K_tt: [S, N] or [N]; with `full_cov` [S, N, N] or [N, N].
        :param seed: may be that of `sample`, of which it takes other numbers.
        :param full_cov: draw the data points jointly.
        :param common_noise: every data point gets the same random numbers, so that what is drawn for one
            does not depend on what stands beside it; not with `full_cov`.
        :returns: the Gram matrix over M inducing and N data points, S samples.
        """

    def start_at(self, K_ii: tf.Tensor, *, random: bool = False) -> None:  # most start as they are
        """Set variational parameters to a start at the scale of K_ii [M, M], if it has a Cholesky factor.

        :param random: K_ii is that of infinitely wide layers, whose own is random.
        """

    def start_near(self, K_ii: tf.Tensor, features: np.ndarray) -> None:  # as above
        """Set variational parameters so that draws are near the Gram matrix of features [M, `width`].

        :param K_ii: what the layer's prior is of [M, M].
        """

    def infinite_width(self, K_ii: tf.Tensor) -> GramBlocks:
        """The Gram matrix of the inducing points that the layer passes on where nothing is random: K_ii."""
        return GramBlocks.of_inducing(K_ii)

    def posterior_distribution(self, K_ii: tf.Tensor) -> tfp.distributions.Distribution:
        """Q of what the layer draws at the inducing points, given K_ii [..., M, M], as a TFP distribution.

        :raises NotImplementedError: a layer of one's own that does not state it, or one that samples.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not state its posterior_distribution"
        )

    def propagate(
        self, K: GramBlocks, *, seed: Seed = None, num_samples: int | None = None
    ) -> tuple[GramBlocks, tf.Tensor]:
        """`sample` and `condition` at once: the layer's output and log P - log Q [S].

        :param K: over M inducing and N data points, with a sample dimension S or without.
        """
        seed = as_seed(seed)
        draw = self.sample(K.ii, seed=seed, num_samples=num_samples)
        points = self.condition(draw, K.it, K.tt, seed=seed, full_cov=K.full_cov)
        return points, draw.log_ratio


def num_samples_of(K_ii: tf.Tensor, num_samples: int | None) -> int | tf.Tensor:
    """The number of samples S of a pass, from the covariance's own if it has one."""
    if K_ii.shape.rank == 2:
        return 1 if num_samples is None else num_samples
    own = leading_size(K_ii)
    if num_samples is not None and isinstance(own, int) and num_samples != own:
        raise ValueError(f"got num_samples={num_samples} for a covariance with {own} samples")
    return own


def leading_size(tensor: tf.Tensor) -> int | tf.Tensor:
    """The size of the first axis, an integer if it is known."""
    return tf.shape(tensor)[0] if tensor.shape[0] is None else tensor.shape[0]


@check_shapes(
    "draw.features: [S, M, D]",
    "draw.log_ratio: [S]",
    "draw.prior.matrix: [batch..., M, M]",
    "K_it: [batch..., M, N]",
    "K_tt: [tt_shape...]",
)
def condition_features(
    draw: FeatureDraw,
    K_it: tf.Tensor,
    K_tt: tf.Tensor,
    seed: Seed,
    *,
    width: int,
    scale: float,
    full_cov: bool = False,
    common_noise: bool = False,
    gradient_dtype: tf.DType | None = None,
) -> FeatureBlocks:
    """`width` features of each data point given the inducing points', with covariance K times `scale`.

    F_t = F_i^T K_ii^{-1} K_it + sqrt(scale (K_tt - K_ti K_ii^{-1} K_it)) eps, column by column; [UAI23]
    Algorithm 1 with the padding by zero columns for D < width and with S_it where it prints its transpose.

    :param draw: features F_i [S, M, D], D at most `width`.
    :param seed: of eps, standard normals [S, width, N].

    >>> K = gpflow_dkp.gram.from_inputs(gpflow.kernels.SquaredExponential(), X[:3], X)
    >>> draw = gpflow_dkp.layers.WishartLayer(3, width=2).prior_sample(K.ii, seed=0)
    >>> G = gpflow_dkp.layers.condition_features(draw, K.it, K.tt, 0, width=2, scale=0.5)
    >>> G.data.shape
    TensorShape([1, 2, 10])
    >>> np.allclose(G.data[0, :, :3], tf.transpose(draw.features[0]), atol=1e-3)  # at Z itself
    True
    """
    check_noise(full_cov, common_noise)
    K_it, K_tt = tf.convert_to_tensor(K_it), tf.convert_to_tensor(K_tt)
    features, _, prior = draw
    num_samples, num_data = leading_size(features), tf.shape(K_it)[-1]
    noise_shape = [num_samples, width, 1 if common_noise else num_data]
    noise = normal(noise_shape, fold_in(seed, 0), tf.float32, points=2)
    mean, explained = conditional_moments(draw, K_it, gradient_dtype)
    if full_cov:
        tril = cholesky(scale * residual_covariance(prior, K_it, K_tt))
        tril = tf.broadcast_to(tf.cast(tril, mean.dtype), _batch_of(tril, num_samples))
        scatter = tf.matmul(tf.cast(noise, mean.dtype), tril, transpose_b=True)
    else:
        residual = scale * (tf.cast(K_tt, mean.dtype) - explained)
        residual = tf.maximum(residual, MIN_VARIANCE[mean.dtype])
        scatter = tf.sqrt(residual)[..., None, :] * tf.cast(noise, mean.dtype)
    missing = width - features.shape[-1]
    if missing:
        mean = tf.pad(mean, [[0, 0], [0, missing], [0, 0]])
        features = tf.pad(features, [[0, 0], [0, 0], [0, missing]])
    return FeatureBlocks(features, mean + scatter, full_cov=full_cov)


@check_shapes(
    "draw.features: [S, M, D]",
    "draw.prior.matrix: [batch..., M, M]",
    "K_it: [batch..., M, N]",
    "return[0]: [S, D, N]",
    "return[1]: [batch..., N]",
)
def conditional_moments(
    draw: FeatureDraw, K_it: tf.Tensor, gradient_dtype: tf.DType | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """F_i^T K_ii^{-1} K_it [S, D, N] and the diagonal of K_ti K_ii^{-1} K_it [..., N]."""
    features, _, prior = draw
    if K_it.shape.rank > 2:
        return conditional(prior, features, K_it, gradient_dtype)
    mean, explained = conditional(prior, stack_columns(features), K_it, gradient_dtype)
    shape = [leading_size(features), features.shape[-1], tf.shape(K_it)[-1]]
    return tf.reshape(mean, shape), explained


@check_shapes(
    "prior.matrix: [prior_batch..., M, M]",
    "K_it: [batch..., M, N]",
    "K_tt: [batch..., N, N]",
    "return: [return_batch..., N, N]",
)
def residual_covariance(prior: PositiveDefinite, K_it: tf.Tensor, K_tt: tf.Tensor) -> tf.Tensor:
    """K_tt - K_ti K_ii^{-1} K_it [..., N, N], positive definite by the jitter in K_tt."""
    # Through the factor with a gradient: `prior.inverse_chol` is a constant to differentiation.
    tril = cholesky(prior.matrix, prior.chol)
    whitened = tf.linalg.triangular_solve(tril, tf.cast(K_it, tril.dtype))
    return tf.cast(K_tt, whitened.dtype) - tf.matmul(whitened, whitened, transpose_a=True)


@check_shapes("K_ii: [batch..., M, M]", "return.features: [S, M, width]")
def prior_features(K_ii: tf.Tensor, width: int, num_samples: int | None, seed: Seed) -> FeatureDraw:
    """`width` independent N(0, K / width) features: their Gram matrix is Wishart(K / width, width)."""
    K_ii = tf.convert_to_tensor(K_ii)
    prior = positive_definite(K_ii)
    num_samples = num_samples_of(K_ii, num_samples)
    noise = normal([num_samples, tf.shape(K_ii)[-1], width], split(seed, 2)[0], K_ii.dtype)
    features = cholesky(prior.matrix, prior.chol) @ noise / tf.sqrt(tf.cast(width, K_ii.dtype))
    features.set_shape([None, K_ii.shape[-1], width])
    return FeatureDraw(features, tf.zeros([num_samples], K_ii.dtype), prior)


def _batch_of(matrix: tf.Tensor, num_samples: int | tf.Tensor) -> tf.Tensor:
    return tf.concat([[num_samples], tf.shape(matrix)[-2:]], 0)
