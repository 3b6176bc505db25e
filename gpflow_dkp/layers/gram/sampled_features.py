"""Features of the inducing points that a chain moves: the deep GP that a deep Wishart process is."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.kernels import Kernel

from ...checks import check_positive_integer, check_seeds
from ...gram import FeatureBlocks
from ...linalg import cholesky, positive_definite
from ...random import Seed, split
from ..sampled import SampledLayer, log_standard_normal
from .base import FeatureDraw, GramLayer, condition_features, num_samples_of, prior_features
from .start import whitened_near


class SampledGramLayer(SampledLayer, GramLayer):
    """Functions of values L v at the inducing points, L L^T = `prior_scale` K: what is sampled is v."""

    @property
    @abc.abstractmethod
    def prior_scale(self) -> float:
        """The functions' covariance as a multiple of K."""

    def sample(
        self, K_ii: tf.Tensor, *, seed: Seed = None, num_samples: int | None = None
    ) -> FeatureDraw:
        """As many as there are samples of the values kept, evenly over the chain; nothing is drawn."""
        K_ii = tf.convert_to_tensor(K_ii)
        return self.at(self.kept(num_samples_of(K_ii, num_samples)), K_ii)

    @check_shapes(
        "values: [S, M, D]",
        "K_ii: [batch..., M, M]",
        "return.features: [S, M, D]",
        "return.log_ratio: [S]",
    )
    def at(self, values: tf.Tensor, K_ii: tf.Tensor) -> FeatureDraw:
        """The functions at the inducing points, with log p(v) in the place of log P - log Q.

        :param values: v [S, M, D] of D functions.
        :param K_ii: [S, M, M] or [M, M].
        """
        prior = positive_definite(K_ii)
        tril = math.sqrt(self.prior_scale) * cholesky(prior.matrix, prior.chol)
        return FeatureDraw(tril @ values, log_standard_normal(values), prior)


class SampledFeatures(SampledGramLayer):
    """`width` functions of covariance K / width whose values at the inducing points are sampled.

    Their Gram matrix has the prior of a `WishartLayer`, Wishart(K / nu, nu): this layer is its
    representation by features, F = L v with L L^T = K / nu and v ~ N(0, I) a priori, in which its posterior
    is a density that `gpflow_dkp.training.sample` can follow (docs/mathematics.md 11).

    Attributes are those of `SampledLayer`; the chain starts at a draw of the prior.

    :param num_inducing: M.
    :param width: nu, the number of functions.
    :param kernel: as in `GramLayer`.
    :param seed: of the start.

    >>> layer = gpflow_dkp.layers.SampledFeatures(num_inducing=3, width=2)
    >>> K = gpflow_dkp.gram.from_inputs(gpflow.kernels.SquaredExponential(), X[:3], X)
    >>> layer.keep(np.random.default_rng(0).normal(size=[20, 3, 2]))
    >>> draw = layer.sample(K.ii, num_samples=4)  # of those that are kept
    >>> draw.features.shape, layer.condition(draw, K.it, K.tt, seed=0).tt.shape
    (TensorShape([4, 3, 2]), TensorShape([4, 10]))
    """

    def __init__(
        self,
        num_inducing: int,
        width: int,
        *,
        kernel: Kernel | None = None,
        seed: int | Sequence[int] = 0,
        name: str | None = None,
    ) -> None:
        super().__init__(kernel, name=name)
        check_positive_integer("num_inducing", num_inducing)
        check_positive_integer("width", width)
        check_seeds("seed", seed)
        self.num_inducing = num_inducing
        self.width = width
        self._start_chain(np.random.default_rng(seed).normal(size=[num_inducing, width]))

    @property
    def prior_scale(self) -> float:
        """1 / nu."""
        return 1.0 / self.width

    @property
    def draws_features(self) -> bool:
        """They are features."""
        return True

    def start_near(self, K_ii: tf.Tensor, features: np.ndarray) -> None:
        """Have the chain stand near the features [M, nu], if K_ii [M, M] has a Cholesky factor."""
        whitened = whitened_near(K_ii / self.width, features)
        if whitened is not None:
            self.move_to(whitened)

    def infinite_width(self, K_ii: tf.Tensor) -> FeatureBlocks:
        """K_ii, as features that a kernel of features may take."""
        return FeatureBlocks.of_inducing(tf.linalg.cholesky(K_ii))

    @check_shapes("K_ii: [batch..., M, M]", "return.features: [S, M, width]")
    def prior_sample(
        self, K_ii: tf.Tensor, *, seed: Seed = None, num_samples: int | None = None
    ) -> FeatureDraw:
        """Draw them from the prior."""
        return prior_features(K_ii, self.width, num_samples, seed)

    def condition(
        self,
        draw: FeatureDraw,
        K_it: tf.Tensor,
        K_tt: tf.Tensor,
        *,
        seed: Seed = None,
        full_cov: bool = False,
        common_noise: bool = False,
    ) -> FeatureBlocks:
        """The functions at data points, in rows of the features' columns [S, nu, N]."""
        return condition_features(
            draw,
            K_it,
            K_tt,
            split(seed, 2)[1],
            width=self.width,
            scale=self.prior_scale,
            full_cov=full_cov,
            common_noise=common_noise,
            gradient_dtype=self.gradient_dtype,
        )
