"""The Wishart layer: G ~ W(K / nu, nu), with the (A-, AB-) generalised singular Wishart posterior."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from scipy.special import multigammaln

from ..checks import check_choice, check_positive_integer
from ..distributions import GeneralisedWishart
from ..gram import FeatureBlocks, GramBlocks
from ..linalg import (
    PositiveDefinite,
    half_logdet,
    half_logdet_from_chol,
    left_multiply,
    positive_definite_and_cholesky,
    right_multiply,
    solve_shared,
    trace_of_congruence,
)
from ..random import Seed, fold_in, gamma, normal, split
from .base import LOG_RATIOS, Layer, conditional_features, num_samples_of, prior_feature_sample

tfb = tfp.bijectors

POSTERIORS = ("gw", "a-gw", "ab-gw")


class Bartlett(NamedTuple):
    """The parameters of a Bartlett factor T [M, p], T_jj^2 ~ Gamma(alpha, beta), T_ij ~ N(mu, sigma^2).

    :param alpha: concentrations [p].
    :param beta: rates [p].
    :param mu: means [M, p], zero on and above the diagonal.
    :param sigma: standard deviations [M, p], zero on and above the diagonal.
    """

    alpha: tf.Tensor
    beta: tf.Tensor
    mu: tf.Tensor
    sigma: tf.Tensor

    def mean(self) -> tf.Tensor:
        """E[T] [M, p]."""
        diag = tf.exp(tf.math.lgamma(self.alpha + 0.5) - tf.math.lgamma(self.alpha))
        return tf.linalg.set_diag(self.mu, diag / tf.sqrt(self.beta))

    def variance(self) -> tf.Tensor:
        """Elementwise variance of T [M, p]."""
        mean = tf.exp(tf.math.lgamma(self.alpha + 0.5) - tf.math.lgamma(self.alpha))
        return tf.linalg.set_diag(tf.square(self.sigma), (self.alpha - tf.square(mean)) / self.beta)


class WishartLayer(Layer):
    """A layer of the deep Wishart process.

    Prior G ~ Wishart(K / nu, nu), nu = `width`; approximate posterior G = A T B B^T T^T A^T with
    A = chol((1 - q) K / nu + q V V^T) A' and a Bartlett factor T ([UAI23] equations 23-26; `gw` is
    A' = B = I, [NeurIPS21]). B has a unit diagonal: its diagonal is redundant with alpha, beta, mu and sigma.

    :param num_inducing: M.
    :param width: nu, degrees of freedom, above or below M.
    :param posterior: "gw", "a-gw" or "ab-gw".
    :param log_ratio: "expected" gives E_Q[log P - log Q] over this layer's own draw in closed form
        (same expectation, lower variance); "sampled" gives it at the draw, as the papers do.
    :param seed: of the random starting value of `mu`.

    Variational parameters: `q` [], `V` [M, M], `alpha` [p], `beta` [p], `mu` [M, p], `sigma` [M, p]
    with p = min(M, nu), and `A` = A' [M, M], `B` [p, p] where the posterior has them.
    """

    def __init__(
        self,
        num_inducing: int,
        width: int,
        posterior: Literal["gw", "a-gw", "ab-gw"] = "ab-gw",
        *,
        log_ratio: Literal["expected", "sampled"] = "expected",
        seed: int | Sequence[int] = 0,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        check_choice("posterior", posterior, POSTERIORS)
        check_choice("log_ratio", log_ratio, LOG_RATIOS)
        check_positive_integer("width", width)
        check_positive_integer("num_inducing", num_inducing)
        self.num_inducing = num_inducing
        self.width = width
        self.posterior = posterior
        self.log_ratio = log_ratio
        self.rank = min(num_inducing, width)
        self.gradient_dtype: tf.DType | None = None
        self._below_diagonal = np.tril(np.ones((num_inducing, self.rank)), -1)

        # Less noise than the prior: a wide T gives the layers above nothing to learn from.
        rng = np.random.default_rng(seed)
        dof = width - np.arange(self.rank)
        self.alpha = Parameter(dof / 2.0, transform=tfb.Exp())
        self.beta = Parameter(np.full(self.rank, 0.5), transform=tfb.Exp())
        self.mu = Parameter(self._below_diagonal * rng.normal(size=(num_inducing, self.rank)))
        self.sigma = Parameter(np.full((num_inducing, self.rank), 0.3), transform=tfb.Exp())
        self.q = Parameter(0.02, transform=tfb.Sigmoid())
        self.V = Parameter(np.eye(num_inducing) / math.sqrt(width))
        if posterior != "gw":
            self.A = Parameter(np.eye(num_inducing))
        if posterior == "ab-gw":
            self.B = Parameter(np.eye(self.rank), transform=UnitTriangular())

    @property
    def bartlett(self) -> Bartlett:
        """The parameters of the posterior's Bartlett factor, masked to its support."""
        below = tf.constant(self._below_diagonal, gpflow.default_float())
        return Bartlett(
            tf.convert_to_tensor(self.alpha),
            tf.convert_to_tensor(self.beta),
            below * self.mu,
            below * self.sigma,
        )

    def sample_noise(
        self, num_samples: int | tf.Tensor, num_data: int | tf.Tensor, seed: Seed, first: int = 0
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """T_jj^2 beta_j [S, p], normals of the Bartlett factor [S, M, p] and of the data [S, nu, N]."""
        for_gamma, for_factor, for_data = split(seed, 3)
        dtype = gpflow.default_float()
        return (
            gamma(num_samples, tf.convert_to_tensor(self.alpha), for_gamma),
            normal([num_samples, self.num_inducing, self.rank], for_factor, dtype),
            normal([num_samples, self.width, num_data], fold_in(for_data, first), tf.float32),
        )

    def propagate_noise(
        self, covariance: GramBlocks, noise: tuple[tf.Tensor, tf.Tensor, tf.Tensor]
    ) -> tuple[FeatureBlocks, tf.Tensor]:
        """`propagate` with the random numbers of `sample_noise` given."""
        gammas, factor_noise, data_noise = noise
        prior, chol = self._prior_and_posterior_chol(covariance.ii)
        bartlett = self.bartlett
        factor = bartlett.mu + bartlett.sigma * factor_noise
        diag_squared = gammas / bartlett.beta
        factor = tf.linalg.set_diag(factor, tf.sqrt(diag_squared))
        features = self._apply_posterior_scale(chol, factor)
        if self.log_ratio == "expected":
            log_ratio = self._expected_log_ratio(prior, chol, bartlett)
        else:
            log_ratio = self._sampled_log_ratio(prior, chol, bartlett, factor, features)
        gram = conditional_features(prior, features, covariance, data_noise, self.gradient_dtype)
        return gram, tf.broadcast_to(log_ratio, tf.shape(gammas)[:1])

    def prior_sample(
        self, covariance: GramBlocks, *, seed: Seed, num_samples: int | None = None
    ) -> FeatureBlocks:
        """Draw G from Wishart(K / nu, nu) at the inducing points, and the data points given it."""
        return prior_feature_sample(
            covariance, self.width, num_samples_of(covariance, num_samples), seed
        )

    def posterior_distribution(self, covariance: tf.Tensor) -> GeneralisedWishart:
        """Q(G | K) as a TFP distribution, for K [..., M, M]."""
        _, chol = self._prior_and_posterior_chol(covariance)
        bartlett = self.bartlett
        A = None if self.posterior == "gw" else right_multiply(chol, tf.convert_to_tensor(self.A))
        B = tf.convert_to_tensor(self.B) if self.posterior == "ab-gw" else None
        return GeneralisedWishart(
            self.width,
            chol if A is None else None,
            bartlett.alpha,
            bartlett.beta,
            bartlett.mu,
            bartlett.sigma,
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
        if self.posterior == "ab-gw":
            factor = right_multiply(factor, tf.convert_to_tensor(self.B))
        if chol.shape.rank == 2:
            scale = chol if self.posterior == "gw" else chol @ tf.convert_to_tensor(self.A)
            return left_multiply(scale, factor)
        if self.posterior != "gw":
            factor = left_multiply(tf.convert_to_tensor(self.A), factor)
        return chol @ factor

    def _log_ratio_terms(self, prior: PositiveDefinite, chol: tf.Tensor) -> tf.Tensor:
        """The terms of log P - log Q that no draw of T enters, [...]; log|K / nu| = log|K| - P log nu."""
        P, p, nu = self.num_inducing, self.rank, self.width
        # NumPy's, in double precision: the constant is thousands of nats.
        constant = 0.5 * nu * (p - P) * math.log(math.pi) - 0.5 * nu * P * math.log(2.0)
        constant += 0.5 * nu * P * math.log(nu) - multigammaln(0.5 * nu, p)
        value = constant + nu * (half_logdet_from_chol(chol) - half_logdet(prior))
        if self.posterior != "gw":
            value += nu * tf.linalg.slogdet(tf.convert_to_tensor(self.A))[1]
        return value

    def _expected_log_ratio(
        self, prior: PositiveDefinite, chol: tf.Tensor, bartlett: Bartlett
    ) -> tf.Tensor:
        """E[log P - log Q] over T, [...]: [UAI23] equation 50 integrated in closed form."""
        alpha, beta, _, sigma = bartlett
        nu, j = self.width, np.arange(1, self.rank + 1)
        mean, variance = bartlett.mean(), bartlett.variance()
        column_scale = tf.ones_like(alpha)
        if self.posterior == "ab-gw":
            B = tf.convert_to_tensor(self.B)
            mean = mean @ B
            column_scale = tf.reduce_sum(tf.square(B), -1)
        spread = tf.linalg.matvec(variance, column_scale)
        if self.posterior == "gw":
            second_moment = tf.linalg.diag(spread)
        else:
            A = tf.convert_to_tensor(self.A)
            mean = A @ mean
            second_moment = tf.matmul(A * spread, A, transpose_b=True)
        second_moment += tf.matmul(mean, mean, transpose_b=True)
        log_beta = tf.math.log(beta)
        digamma = tf.math.digamma(alpha)
        log_diag = 0.5 * (digamma - log_beta)
        gammas = alpha * log_beta - tf.math.lgamma(alpha) - alpha
        gammas += (alpha - 1.0) * (digamma - log_beta)
        normals = self._sum_below(-0.5 * math.log(2.0 * math.pi) - _log_or_zero(sigma) - 0.5)
        return (
            self._log_ratio_terms(prior, chol)
            - 0.5 * nu * trace_of_congruence(prior, chol, second_moment, self.gradient_dtype)
            + tf.reduce_sum((nu - j - 1.0) * log_diag - gammas)
            - normals
        )

    def _sampled_log_ratio(
        self,
        prior: PositiveDefinite,
        chol: tf.Tensor,
        bartlett: Bartlett,
        factor: tf.Tensor,
        features: tf.Tensor,
    ) -> tf.Tensor:
        """log P - log Q at the draw, [S]: [UAI23] equation 50 with |det A|^nu."""
        alpha, beta, mu, sigma = bartlett
        nu, j = self.width, np.arange(1, self.rank + 1)
        diag = tf.linalg.diag_part(factor)
        log_diag = tf.math.log(diag)
        gammas = (
            alpha * tf.math.log(beta)
            - tf.math.lgamma(alpha)
            + (alpha - 1.0) * 2.0 * log_diag
            - beta * tf.square(diag)
        )
        safe_sigma = tf.where(self._below_diagonal > 0, sigma, tf.ones_like(sigma))
        standardised = (factor - mu) / safe_sigma
        normals = -0.5 * math.log(2.0 * math.pi) - tf.math.log(safe_sigma)
        normals = self._sum_below(normals - 0.5 * tf.square(standardised))
        quadratic = tf.reduce_sum(features * solve_shared(prior, features), [-2, -1])
        return (
            self._log_ratio_terms(prior, chol)
            - 0.5 * nu * quadratic
            + tf.reduce_sum((nu - j - 1.0) * log_diag - gammas, -1)
            - normals
        )

    def _sum_below(self, values: tf.Tensor) -> tf.Tensor:
        """Sum over the strictly lower part of [..., M, p]."""
        below = tf.constant(self._below_diagonal, values.dtype)
        return tf.reduce_sum(below * values, [-2, -1])


class UnitTriangular(tfp.bijectors.Bijector):
    """Lower-triangular matrices [p, p] with a unit diagonal, from any matrix's strictly lower part."""

    def __init__(self, name: str = "unit_triangular") -> None:
        super().__init__(forward_min_event_ndims=2, is_constant_jacobian=True, name=name)

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        return tf.linalg.set_diag(tf.linalg.band_part(x, -1, 0), tf.ones_like(x[..., 0]))

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        return tf.linalg.set_diag(y, tf.zeros_like(y[..., 0]))

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        return tf.zeros([], x.dtype)


def _log_or_zero(value: tf.Tensor) -> tf.Tensor:
    """log of the positive entries, 0 (with zero gradient) elsewhere."""
    positive = value > 0
    return tf.math.log(tf.where(positive, value, tf.ones_like(value)))
