"""Approximate posteriors of a Wishart layer: generalised singular Wisharts, GW, A-GW and AB-GW."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import Literal

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes, inherit_check_shapes
from gpflow import Parameter

from ...checks import check_choice, check_positive_integer, check_seeds
from ...distributions import GeneralisedWishart
from ...distributions.bartlett_law import BartlettLaw
from ...distributions.wishart_divergence import (
    expected_log_ratio,
    sampled_log_ratio,
    second_moment,
)
from ...linalg import (
    PositiveDefinite,
    half_logdet,
    half_logdet_from_chol,
    left_multiply,
    positive_definite_and_cholesky,
    right_multiply,
    solve_shared,
    trace_of_congruence,
)
from ...random import Seed, gamma, normal, split
from ..base import LOG_RATIOS
from .base import FeatureDraw, num_samples_of
from .start import START_NOISE, whitened_near

tfb = tfp.bijectors

START_SCALE = 0.05
"""Of a Bartlett factor that starts near features, below its diagonal."""


class WishartPosterior(gpflow.Module, abc.ABC):
    """An approximate posterior Q(G | K) of a layer whose prior is G ~ Wishart(K / nu, nu).

    Q is the law of a factor F, G = F F^T. For one of your own write `sample`.

    :param num_inducing: M.
    :param width: nu.

    >>> class PriorAsPosterior(gpflow_dkp.layers.WishartPosterior):
    ...     def sample(self, K, *, seed=None, num_samples=None):
    ...         prior = gpflow_dkp.layers.WishartLayer(self.num_inducing, self.width)
    ...         return prior.prior_sample(K, seed=seed, num_samples=num_samples)
    >>> layer = gpflow_dkp.layers.WishartLayer(3, 2, PriorAsPosterior(3, 2))
    >>> draw = layer.sample(gpflow.kernels.SquaredExponential()(X[:3]), seed=0)
    >>> float(draw.log_ratio[0])  # nothing parts the two
    0.0
    """

    def __init__(self, num_inducing: int, width: int, *, name: str | None = None) -> None:
        super().__init__(name=name)
        check_positive_integer("num_inducing", num_inducing)
        check_positive_integer("width", width)
        self.num_inducing = num_inducing
        self.width = width
        self.gradient_dtype: tf.DType | None = None

    @abc.abstractmethod
    @check_shapes(
        "K: [batch..., M, M]",
        "return.features: [S, M, D]",
        "return.log_ratio: [S]",
        "return.prior.matrix: [batch..., M, M]",
    )
    def sample(
        self, K: tf.Tensor, *, seed: Seed = None, num_samples: int | None = None
    ) -> FeatureDraw:
        """Draw F [S, M, D], D at most nu, with log P - log Q of G [S], or its expectation over the draw.

        :param K: [S, M, M], or [M, M] with `num_samples`, by default 1.
        """

    def distribution(self, K: tf.Tensor) -> tfp.distributions.Distribution:
        """Q(G | K) as a TFP distribution, for K [..., M, M].

        :raises NotImplementedError: a posterior of one's own that does not state it.
        """
        raise NotImplementedError(f"{type(self).__name__} does not state its distribution")

    def start_at(  # some start as they are
        self, K: tf.Tensor, *, random: bool = False
    ) -> None:
        """Set parameters to a start at the scale of K [M, M]; arguments as in `GramLayer.start_at`."""

    def start_near(  # some start as they are
        self, K: tf.Tensor, features: np.ndarray
    ) -> None:
        """Set parameters so that F is near features [M, nu] or a rotation of them, given K [M, M]."""


class GWPosterior(WishartPosterior):
    """The generalised singular Wishart ([NeurIPS21]): G = A T T^T A^T, A = chol((1 - q) K / nu + q V V^T).

    T is a Bartlett factor with free parameters.

    :param log_ratio: "expected" gives E_Q[log P - log Q] over the draw in closed form (same expectation,
        lower variance); "sampled" gives it at the draw, as the papers do.
    :param seed: of the random starting value of `mu`.

    Parameters: `q` [], `V` [M, M], `alpha` [p], `beta` [p], `mu` [M, p], `sigma` [M, p], p = min(M, nu).

    >>> posterior = gpflow_dkp.layers.GWPosterior(num_inducing=3, width=2)
    >>> K = gpflow.kernels.SquaredExponential()(X[:3])
    >>> draw = posterior.sample(K, seed=0, num_samples=4)
    >>> draw.features.shape, draw.log_ratio.shape
    (TensorShape([4, 3, 2]), TensorShape([4]))
    """

    def __init__(
        self,
        num_inducing: int,
        width: int,
        *,
        log_ratio: Literal["expected", "sampled"] = "expected",
        seed: int | Sequence[int] = 0,
        name: str | None = None,
    ) -> None:
        super().__init__(num_inducing, width, name=name)
        check_choice("log_ratio", log_ratio, LOG_RATIOS)
        self.log_ratio = log_ratio
        self.rank = min(num_inducing, width)
        self._below_diagonal = np.tril(np.ones((num_inducing, self.rank)), -1)

        # Less noise than the prior: a wide T gives the layers above nothing to learn from.
        check_seeds("seed", seed)
        rng = np.random.default_rng(seed)
        dof = width - np.arange(self.rank)
        self.alpha = Parameter(dof / 2.0, transform=tfb.Exp())
        self.beta = Parameter(np.full(self.rank, 0.5), transform=tfb.Exp())
        self.mu = Parameter(self._below_diagonal * rng.normal(size=(num_inducing, self.rank)))
        self.sigma = Parameter(np.full((num_inducing, self.rank), 0.3), transform=tfb.Exp())
        self.q = Parameter(0.02, transform=tfb.Sigmoid())
        self.V = Parameter(np.eye(num_inducing) / math.sqrt(width))
        self.A: Parameter | None = None
        self.B: Parameter | None = None

    def start_at(self, K: tf.Tensor, *, random: bool = False) -> None:
        """V = chol(K / nu), so that Psi is K / nu whatever q is; where K has no factor, V stays as it is.

        A random K may be down to the jitter where this one is not, as between features that narrow layers map
        to one: V at its scale would start 1e5 nats from the prior, and is shrunk to the jitter's.
        """
        chol = tf.linalg.cholesky(K)
        if np.all(np.isfinite(chol)):
            scale = gpflow.default_jitter() if random else 1.0
            self.V.assign(math.sqrt(scale / self.width) * chol)

    @property
    def law(self) -> BartlettLaw:
        """The law of the Bartlett factor T."""
        parameters = (self.alpha, self.beta, self.mu, self.sigma)
        return BartlettLaw(*(tf.convert_to_tensor(parameter) for parameter in parameters))

    @inherit_check_shapes
    def sample(
        self, K: tf.Tensor, *, seed: Seed = None, num_samples: int | None = None
    ) -> FeatureDraw:
        """Draw F = A T B."""
        for_gamma, for_factor, _ = split(seed, 3)
        num_samples = num_samples_of(K, num_samples)
        prior, chol = self._prior_and_posterior_chol(K)
        law = self.law
        noise = normal([num_samples, self.num_inducing, self.rank], for_factor, K.dtype)
        factor = self._below_diagonal * (law.loc + law.scale * noise)
        gammas = gamma(num_samples, law.concentration, for_gamma)
        factor = tf.linalg.set_diag(factor, tf.sqrt(gammas / law.rate))
        features = self._apply_posterior_scale(chol, factor)
        log_ratio = self._log_ratio(prior, chol, law, factor, features)
        return FeatureDraw(features, tf.broadcast_to(log_ratio, tf.shape(gammas)[:1]), prior)

    def distribution(self, K: tf.Tensor) -> GeneralisedWishart:
        """Q(G | K) as a TFP distribution, for K [..., M, M]."""
        _, chol = self._prior_and_posterior_chol(K)
        A = None if self.A is None else right_multiply(chol, tf.convert_to_tensor(self.A))
        B = None if self.B is None else tf.convert_to_tensor(self.B)
        return GeneralisedWishart(
            self.width,
            chol if A is None else None,
            *self.law,
            A=A,
            B=B,
        )

    def _prior_and_posterior_chol(self, K: tf.Tensor) -> tuple[PositiveDefinite, tf.Tensor]:
        """K [..., M, M] factorised, and chol((1 - q) K / nu + q V V^T)."""
        q = tf.convert_to_tensor(self.q)
        V = tf.convert_to_tensor(self.V)
        Psi = (1.0 - q) / self.width * K + q * tf.matmul(V, V, transpose_b=True)
        return positive_definite_and_cholesky(K, Psi)

    def _apply_posterior_scale(self, chol: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
        """F = A T B [S, M, p] for chol [M, M] or [S, M, M] and T [S, M, p]."""
        if self.B is not None:
            factor = right_multiply(factor, tf.convert_to_tensor(self.B))
        if chol.shape.rank == 2:
            scale = chol if self.A is None else chol @ tf.convert_to_tensor(self.A)
            return left_multiply(scale, factor)
        if self.A is not None:
            factor = left_multiply(tf.convert_to_tensor(self.A), factor)
        return chol @ factor

    def _log_ratio(
        self,
        prior: PositiveDefinite,
        chol: tf.Tensor,
        law: BartlettLaw,
        factor: tf.Tensor,
        features: tf.Tensor,
    ) -> tf.Tensor:
        """log P - log Q at the draw [S], or its expectation [...]: [UAI23] equation 50."""
        A, B = (None if p is None else tf.convert_to_tensor(p) for p in (self.A, self.B))
        half_logdet_ratio = half_logdet_from_chol(chol) - half_logdet(prior)
        if A is not None:
            half_logdet_ratio += tf.linalg.slogdet(A)[1]
        # B has a unit diagonal, whose logarithm adds nothing.
        if self.log_ratio == "sampled":
            quadratic = tf.reduce_sum(features * solve_shared(prior, features), [-2, -1])
            return sampled_log_ratio(
                self.width, law, factor, half_logdet_ratio, quadratic, divisor=self.width
            )
        moment = second_moment(law, B)
        if A is not None:
            moment = tf.matmul(A @ moment, A, transpose_b=True)
        quadratic = trace_of_congruence(prior, chol, moment, self.gradient_dtype)
        return expected_log_ratio(self.width, law, half_logdet_ratio, quadratic, divisor=self.width)


def lower_trapezoidal(features: np.ndarray) -> np.ndarray:
    """Features [M, nu] rotated to be lower-trapezoidal [M, p], p = min(M, nu), the diagonal not negative."""
    rotated = np.linalg.qr(features.T)[1].T
    return rotated * np.where(np.diagonal(rotated) < 0.0, -1.0, 1.0)


class AGWPosterior(GWPosterior):
    """A-GW ([UAI23] equation 24): A = chol((1 - q) K / nu + q V V^T) A' with a dense `A` = A' [M, M].

    Arguments as in `GWPosterior`.

    >>> posterior = gpflow_dkp.layers.AGWPosterior(num_inducing=3, width=2)
    >>> sorted(gpflow.utilities.parameter_dict(posterior))
    ['.A', '.V', '.alpha', '.beta', '.mu', '.q', '.sigma']
    """

    def __init__(
        self,
        num_inducing: int,
        width: int,
        *,
        log_ratio: Literal["expected", "sampled"] = "expected",
        seed: int | Sequence[int] = 0,
        name: str | None = None,
    ) -> None:
        super().__init__(num_inducing, width, log_ratio=log_ratio, seed=seed, name=name)
        self.A = Parameter(np.eye(num_inducing))

    def start_near(self, K: tf.Tensor, features: np.ndarray) -> None:
        """The mean of T to L^T (L L^T + eps I)^{-1} F, rotated, with K / nu = L L^T and eps = `START_NOISE`.

        Its norm is bounded whatever K's condition. Psi is taken to be K / nu, which it nearly is after
        `start_at`; where K has no factor, all stays as it is. GW has no `A` to leave such a start with, and
        ends higher from a random one (docs/training.md).
        """
        whitened = whitened_near(K / self.width, features)
        if whitened is None:
            return
        mean = lower_trapezoidal(whitened)
        squares = np.maximum(np.square(np.diagonal(mean)), START_NOISE)
        self.mu.assign(np.tril(mean, -1))
        self.sigma.assign(np.full(self.sigma.shape, START_SCALE))
        self.beta.assign(self.alpha.numpy() / squares)


class ABGWPosterior(AGWPosterior):
    """AB-GW ([UAI23] equations 25 and 26): F = A T B with `B` [p, p], lower triangular.

    B has a unit diagonal: its diagonal is redundant with alpha, beta, mu and sigma. Arguments as in
    `GWPosterior`.

    >>> posterior = gpflow_dkp.layers.ABGWPosterior(num_inducing=3, width=2)
    >>> posterior.A.shape, posterior.B.shape
    (TensorShape([3, 3]), TensorShape([2, 2]))
    >>> K = gpflow.kernels.SquaredExponential()(X[:3])
    >>> G, log_q = posterior.distribution(K).experimental_sample_and_log_prob(seed=0)
    >>> G.shape, log_q.shape
    (TensorShape([3, 3]), TensorShape([]))
    """

    def __init__(
        self,
        num_inducing: int,
        width: int,
        *,
        log_ratio: Literal["expected", "sampled"] = "expected",
        seed: int | Sequence[int] = 0,
        name: str | None = None,
    ) -> None:
        super().__init__(num_inducing, width, log_ratio=log_ratio, seed=seed, name=name)
        self.B = Parameter(np.eye(self.rank), transform=UnitTriangular())


class UnitTriangular(tfp.bijectors.Bijector):
    """Lower-triangular matrices [p, p] with a unit diagonal, from any matrix's strictly lower part."""

    def __init__(self, name: str = "unit_triangular") -> None:
        parameters = dict(locals())
        super().__init__(
            forward_min_event_ndims=2, is_constant_jacobian=True, parameters=parameters, name=name
        )

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        return tf.linalg.set_diag(tf.linalg.band_part(x, -1, 0), tf.ones_like(x[..., 0]))

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        return tf.linalg.set_diag(y, tf.zeros_like(y[..., 0]))

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        return tf.zeros([], x.dtype)


POSTERIORS = {"gw": GWPosterior, "a-gw": AGWPosterior, "ab-gw": ABGWPosterior}
"""The posteriors that have names."""
