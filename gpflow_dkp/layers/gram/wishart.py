"""The Wishart layer: G ~ W(K / nu, nu)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.kernels import Kernel

from ...checks import check_choice, check_positive_integer
from ...gram import FeatureBlocks
from ...random import Seed, split
from .base import FeatureDraw, GramLayer, condition_features, prior_features
from .wishart_posterior import POSTERIORS, WishartPosterior

OF_POSTERIOR = ("q", "V", "A", "B", "alpha", "beta", "mu", "sigma", "log_ratio", "rank")
"""What the layer shows of its posterior as its own."""


class WishartLayer(GramLayer):
    """A layer of the deep Wishart process, of prior G ~ Wishart(K / nu, nu), nu = `width`.

    :param num_inducing: M.
    :param width: nu, degrees of freedom, above or below M.
    :param posterior: "gw", "a-gw" or "ab-gw", or a `WishartPosterior`.
    :param kernel: as in `GramLayer`.
    :param log_ratio: of the posteriors with a name, as in `GWPosterior`.
    :param seed: of their random starting value.

    The variational parameters of the posterior can be read here too: `q`, `V`, `A`, `B`, `alpha`, `beta`,
    `mu`, `sigma`.

    >>> layer = gpflow_dkp.layers.WishartLayer(num_inducing=3, width=5, posterior="gw")
    >>> K = gpflow_dkp.gram.from_inputs(gpflow.kernels.SquaredExponential(), X[:3], X)
    >>> draw = layer.sample(K.ii, seed=0, num_samples=4)
    >>> draw.inducing.ii.shape
    TensorShape([4, 3, 3])
    >>> layer.condition(draw, K.it, K.tt, seed=0).tt.shape
    TensorShape([4, 10])
    """

    def __init__(
        self,
        num_inducing: int,
        width: int,
        posterior: Literal["gw", "a-gw", "ab-gw"] | WishartPosterior = "ab-gw",
        *,
        kernel: Kernel | None = None,
        log_ratio: Literal["expected", "sampled"] = "expected",
        seed: int | Sequence[int] = 0,
        name: str | None = None,
    ) -> None:
        super().__init__(kernel, name=name)
        check_positive_integer("width", width)
        check_positive_integer("num_inducing", num_inducing)
        self.num_inducing = num_inducing
        self.width = width
        if isinstance(posterior, WishartPosterior):
            sizes = posterior.num_inducing, posterior.width
            if sizes != (num_inducing, width):
                raise ValueError(
                    f"posterior: got one of num_inducing, width = {sizes}, the layer has "
                    f"{num_inducing, width}"
                )
        else:
            check_choice("posterior", posterior, tuple(POSTERIORS))
            make = POSTERIORS[posterior]
            posterior = make(num_inducing, width, log_ratio=log_ratio, seed=seed)
        self.posterior = posterior

    def __getattr__(self, name: str) -> Any:
        if name in OF_POSTERIOR and "posterior" in self.__dict__:
            return getattr(self.posterior, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def start_at(self, K_ii: tf.Tensor, *, random: bool = False) -> None:
        """Start the posterior at the scale of K_ii [M, M]."""
        self.posterior.start_at(K_ii, random=random)

    def start_near(self, K_ii: tf.Tensor, features: np.ndarray) -> None:
        """Start the posterior near the Gram matrix of features [M, nu], given K_ii [M, M]."""
        self.posterior.start_near(K_ii, features)

    @check_shapes(
        "K_ii: [batch..., M, M]",
        "return.features: [S, M, D]",
        "return.log_ratio: [S]",
        "return.prior.matrix: [batch..., M, M]",
    )
    def sample(
        self, K_ii: tf.Tensor, *, seed: Seed = None, num_samples: int | None = None
    ) -> FeatureDraw:
        """Draw the Gram matrix of the inducing points from the posterior."""
        self.posterior.gradient_dtype = self.gradient_dtype
        K_ii = tf.convert_to_tensor(K_ii)
        return self.posterior.sample(K_ii, seed=seed, num_samples=num_samples)

    @check_shapes(
        "K_ii: [batch..., M, M]",
        "return.features: [S, M, D]",
        "return.log_ratio: [S]",
        "return.prior.matrix: [batch..., M, M]",
    )
    def prior_sample(
        self, K_ii: tf.Tensor, *, seed: Seed = None, num_samples: int | None = None
    ) -> FeatureDraw:
        """Draw it from Wishart(K / nu, nu)."""
        return prior_features(K_ii, self.width, num_samples, seed)

    def posterior_distribution(self, K_ii: tf.Tensor) -> tfp.distributions.Distribution:
        """Q(G | K) of the Gram matrix [..., M, M], a `GeneralisedWishart` of the posteriors with a name."""
        return self.posterior.distribution(tf.convert_to_tensor(K_ii))

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
        """Data points as features whose Gram matrix is that of nu functions with covariance K / nu."""
        return condition_features(
            draw,
            K_it,
            K_tt,
            split(seed, 3)[2],
            width=self.width,
            scale=1.0 / self.width,
            full_cov=full_cov,
            common_noise=common_noise,
            gradient_dtype=self.gradient_dtype,
        )
