"""Sparse GPs side by side, each with a kernel and inducing points of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance
from gpflow.functions import MeanFunction

from ...checks import brief
from ...random import Seed, fold_in, split
from .base import FeatureLayer, Observed
from .sparse_gp import SparseGP, WhitenedPosterior


class IndependentDraws(NamedTuple):
    """The draws of the GPs, one each.

    :param draws: of each part.
    :param log_ratio: their sum [].
    """

    draws: tuple[WhitenedPosterior, ...]
    log_ratio: tf.Tensor


class IndependentGPs(FeatureLayer):
    """Sparse GPs side by side: f(x) = m(x) + W [g_1(x), ..., g_L(x)] for parts g_l of one kernel each.

    Where a `SparseGP` shares its kernel and inducing points among its GPs, here each part has its own;
    additive noise of its own too, by `gpflow.kernels.White` in the part's kernel.

    :param parts: `SparseGP`s on the same inputs, whose outputs stand side by side.
    :param mean_function: m, a GPflow mean function of P columns; default zero.
    :param projection: W [P, L], fixed; default the identity.

    >>> short, long = (gpflow.kernels.SquaredExponential(lengthscales=l) for l in (0.3, 3.0))
    >>> parts = [gpflow_dkp.layers.SparseGP(kernel, X[:3], 1) for kernel in (short, long)]
    >>> layer = gpflow_dkp.layers.IndependentGPs(parts)
    >>> mean, variance = layer.marginals(X)
    >>> mean.shape, len(layer.trainable_variables)
    (TensorShape([10, 2]), 10)
    """

    def __init__(
        self,
        parts: Sequence[SparseGP],
        *,
        mean_function: MeanFunction | None = None,
        projection: np.ndarray | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        if (
            not isinstance(parts, Sequence)
            or not parts
            or not all(isinstance(part, SparseGP) for part in parts)
        ):
            raise ValueError(f"parts: got {brief(parts)}, needs a list of SparseGP")
        columns = sorted({part.input_dim for part in parts})
        if len(columns) > 1:
            raise ValueError(
                f"parts: got inducing points of {' and '.join(map(str, columns))} columns, needs one number"
            )
        num_gps = sum(part.output_dim_of(columns[0]) for part in parts)
        if projection is not None:
            projection = np.asarray(projection, dtype=gpflow.default_float())
            if projection.ndim != 2 or projection.shape[1] != num_gps:
                raise ValueError(
                    f"projection: got shape {projection.shape}, needs [P, {num_gps}], one column an output "
                    "of the parts"
                )
        self.parts = list(parts)
        self.mean_function = mean_function
        self.projection = projection

    @property
    def input_dim(self) -> int:
        """Columns of the inducing points."""
        return self.parts[0].input_dim

    @property
    def num_inducing(self) -> int:
        """M, the most of a part."""
        return max(part.num_inducing for part in self.parts)

    def output_dim_of(self, input_dim: int) -> int:
        """P."""
        if self.projection is not None:
            return self.projection.shape[0]
        return sum(part.output_dim_of(input_dim) for part in self.parts)

    def posterior_distribution(
        self, observed: Observed | None = None
    ) -> tfp.distributions.Distribution:
        """q(u) of each part's inducing values, as a sequence of rows [L, M]."""
        return tfp.distributions.JointDistributionSequential(
            [part.posterior_distribution() for part in self.parts]
        )

    def sample(self, *, seed: Seed = None, num_samples: int | None = None) -> IndependentDraws:
        """q of each part's inducing values, with the sum of their log P - log Q."""
        draws = tuple(part.sample() for part in self.parts)
        return IndependentDraws(draws, tf.add_n([draw.log_ratio for draw in draws]))

    @inherit_check_shapes
    def condition(
        self,
        draw: IndependentDraws,
        features: tf.Tensor,
        *,
        seed: Seed = None,
        full_cov: bool = False,
        common_noise: bool = False,
        own_gradient: bool = False,
    ) -> tf.Tensor:
        """Draw f at features [S, N, D]: [S, N, P]; arguments as in `SparseGP.condition`."""
        values = [
            part.condition(
                of_part,
                features,
                seed=own_seed,
                full_cov=full_cov,
                common_noise=common_noise,
                own_gradient=own_gradient,
            )
            for part, of_part, own_seed in self._of_each_part(draw, seed)
        ]
        return self._outputs(tf.concat(values, -1), features)

    @inherit_check_shapes
    def condition_copies(
        self,
        draw: IndependentDraws,
        X: tf.Tensor,
        num_samples: int,
        *,
        seed: Seed = None,
        full_cov: bool = False,
        common_noise: bool = False,
    ) -> tf.Tensor:
        """S draws of f at X [N, D], whose moments are computed once: [S, N, P]."""
        values = [
            part.condition_copies(
                of_part,
                X,
                num_samples,
                seed=own_seed,
                full_cov=full_cov,
                common_noise=common_noise,
            )
            for part, of_part, own_seed in self._of_each_part(draw, seed)
        ]
        return self._outputs(tf.concat(values, -1), X)

    @inherit_check_shapes
    def prior_sample(self, features: tf.Tensor, *, seed: Seed = None) -> tf.Tensor:
        """Joint draws of f from the prior at features [S, N, D]: [S, N, P]."""
        seeds = split(seed, len(self.parts))
        values = [
            part.prior_sample(features, seed=of_part)
            for part, of_part in zip(self.parts, seeds, strict=True)
        ]
        return self._outputs(tf.concat(values, -1), features)

    @inherit_check_shapes
    def marginals(
        self,
        features: tf.Tensor,
        draw: IndependentDraws | None = None,
        *,
        full_cov: bool = False,
    ) -> MeanAndVariance:
        """Mean and variance [..., N, P] of f at features [..., N, D], or covariance [..., P, N, N]."""
        draw = self.sample() if draw is None else draw
        moments = [
            part.marginals(features, of_part, full_cov=full_cov)
            for part, of_part in zip(self.parts, draw.draws, strict=True)
        ]
        means, variances = zip(*moments, strict=True)
        variance = tf.concat(variances, -3 if full_cov else -1)
        if self.projection is not None:
            rule = "pl,...lnm->...pnm" if full_cov else "pl,...nl->...np"
            variance = tf.einsum(rule, tf.square(self.projection), variance)
        return self._outputs(tf.concat(means, -1), features), variance

    def _of_each_part(
        self, draw: IndependentDraws, seed: Seed
    ) -> Iterator[tuple[SparseGP, WhitenedPosterior, Seed]]:
        """Parts with their draws, and a seed for each."""
        for number, (part, of_part) in enumerate(zip(self.parts, draw.draws, strict=True)):
            yield part, of_part, fold_in(seed, number)

    def _outputs(self, values: tf.Tensor, features: tf.Tensor) -> tf.Tensor:
        """m(x) + W g(x) [..., P] of g [..., L]."""
        if self.projection is not None:
            values = tf.einsum("...l,pl->...p", values, self.projection)
        return values if self.mean_function is None else values + self.mean_function(features)
