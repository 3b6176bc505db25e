"""The Gaussian-process layer with global inducing points: hidden layers of the DGP, every output layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter

from ..checks import check_choice, check_positive_integer
from ..gram import FeatureBlocks, GramBlocks
from ..linalg import (
    PositiveDefinite,
    cholesky,
    conditional,
    half_logdet,
    half_logdet_from_chol,
    positive_definite,
    right_multiply,
    solve,
    solve_shared,
    trace_of_solve,
)
from ..random import Seed, fold_in, normal, split
from .base import LOG_RATIOS, Layer, conditional_features, num_samples_of, prior_feature_sample

tfb = tfp.bijectors


class Marginals(NamedTuple):
    """The layer's Gaussian marginals at the data points, the inducing values integrated out.

    :param mean: [..., N, P].
    :param variance: [..., N], shared by the outputs.
    :param log_ratio: -KL(Q || P), summed over the outputs [...].
    """

    mean: tf.Tensor
    variance: tf.Tensor
    log_ratio: tf.Tensor


class GlobalInducingGP(Layer):
    """P independent GPs f ~ N(0, K) with the global-inducing posterior Q(F | K) = N(Sigma Lambda v, Sigma).

    Sigma = (K^{-1} + Lambda)^{-1}: the exact posterior under pseudo-observations v of the inducing
    values with noise covariance E = Lambda^{-1} ([ICML21] section 4.2). All that is needed comes from
    (K + E)^{-1}, which is well conditioned where K is not.

    As a hidden layer the `width` functions have covariance K / width, so that their Gram matrix has
    the deep Wishart process' prior; as an output layer (`output=True`) they have covariance K and are
    marginalised with `marginals`.

    :param num_inducing: M.
    :param width: number of functions P.
    :param output: whether this is an output layer.
    :param log_ratio: as in `WishartLayer`, for `propagate`.
    :param seed: of a hidden layer's random starting value of `v`; an output layer starts at 0.

    Variational parameters: `v` [M, P] and the Cholesky factor of Lambda, `precision_tril` [M, M],
    shared by the outputs.
    """

    def __init__(
        self,
        num_inducing: int,
        width: int,
        *,
        output: bool = False,
        log_ratio: Literal["expected", "sampled"] = "expected",
        seed: int | Sequence[int] = 0,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        check_choice("log_ratio", log_ratio, LOG_RATIOS)
        check_positive_integer("width", width)
        check_positive_integer("num_inducing", num_inducing)
        self.num_inducing = num_inducing
        self.width = width
        self.log_ratio = log_ratio
        self.gradient_dtype: tf.DType | None = None
        self._prior_scale = 1.0 if output else 1.0 / width
        start = np.random.default_rng(seed).normal(size=(num_inducing, width)) / np.sqrt(width)
        self.v = Parameter(np.zeros_like(start) if output else start)
        self.precision_tril = Parameter(
            3.0 * np.eye(num_inducing),
            transform=tfb.FillScaleTriL(diag_bijector=tfb.Exp(), diag_shift=None),
        )

    def sample_noise(
        self, num_samples: int | tf.Tensor, num_data: int | tf.Tensor, seed: Seed, first: int = 0
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Normals of the prior and the pseudo-noise [S, M, 2 P] and of the data points [S, P, N]."""
        for_inducing, for_data = split(seed, 2)
        shape = [num_samples, self.num_inducing, 2 * self.width]
        return (
            normal(shape, for_inducing, gpflow.default_float()),
            normal([num_samples, self.width, num_data], fold_in(for_data, first), tf.float32),
        )

    def propagate_noise(
        self, covariance: GramBlocks, noise: tuple[tf.Tensor, tf.Tensor]
    ) -> tuple[FeatureBlocks, tf.Tensor]:
        """`propagate` with the random numbers of `sample_noise` given."""
        inducing_noise, data_noise = noise
        prior = positive_definite(covariance.ii)
        K = self._prior_scale * covariance.ii
        noisy, noise_tril = self._with_pseudo_noise(K)
        features = self._sample_inducing(prior, noisy, noise_tril, inducing_noise)
        if self.log_ratio == "expected":
            log_ratio = -self._kl(noisy, noise_tril)
        else:
            log_ratio = self._sampled_log_ratio(prior, noisy, noise_tril, features)
        gram = conditional_features(prior, features, covariance, data_noise, self.gradient_dtype)
        return gram, tf.broadcast_to(log_ratio, tf.shape(inducing_noise)[:1])

    def marginals(self, covariance: GramBlocks) -> Marginals:
        """The posterior at each data point with the inducing values integrated out.

        mean = K_ti (K + E)^{-1} v, variance = K_tt - K_ti (K + E)^{-1} K_it.

        :param covariance: K with or without samples.
        """
        if self._prior_scale != 1.0:
            raise ValueError("marginals: for output layers; use propagate for a hidden one")
        K = covariance.ii
        noisy, noise_tril = self._with_pseudo_noise(K)
        mean, explained = conditional(noisy, self._batched_v(K), covariance.it, self.gradient_dtype)
        variance = covariance.tt - explained
        return Marginals(
            tf.cast(tf.linalg.matrix_transpose(mean), K.dtype),
            tf.cast(variance, K.dtype),
            -self._kl(noisy, noise_tril),
        )

    def sites(
        self,
        covariance: GramBlocks,
        mean: tf.Tensor,
        d_mean: tf.Tensor,
        d_variance: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Gradients at the data points in terms of the natural parameters Lambda v and Lambda.

        With a_n = K_ii^{-1} k_n a data point's mean and variance are a_n^T m and a_n^T S a_n plus what
        does not depend on q. The gradients in the expectations m_p and sum_p (S + m_p m_p^T), which
        belong to Lambda v_p and -Lambda / 2, are sums over the data points of (d_mean_p - 2 d mean_p) a_n
        and d a_n a_n^T with d the mean of d_variance over the outputs.

        :param covariance: K of S samples.
        :param mean: of the data points [S, N, P].
        :param d_mean: gradient of the objective in it [S, N, P].
        :param d_variance: in the variances [S, N, P].
        :returns: [M, P] and [M, M], summed over the samples.
        """
        dtype = covariance.ii.dtype
        solved = positive_definite(covariance.ii).inverse @ tf.cast(covariance.it, dtype)
        d = tf.reduce_mean(d_variance, -1, keepdims=True)
        linear = solved @ (d_mean - 2.0 * d * mean)
        curvature = tf.matmul(-2.0 * solved * d[..., 0][:, None], solved, transpose_b=True)
        return tf.reduce_sum(linear, 0), tf.reduce_sum(curvature, 0)

    def prior_sample(
        self, covariance: GramBlocks, *, seed: Seed, num_samples: int | None = None
    ) -> FeatureBlocks:
        """Draw the functions from the prior at the inducing points, and the data points given them."""
        num_samples = num_samples_of(covariance, num_samples)
        sample = prior_feature_sample(covariance, self.width, num_samples, seed)
        scale = math.sqrt(self._prior_scale * self.width)
        return FeatureBlocks(scale * sample.inducing, scale * sample.data)

    def _with_pseudo_noise(self, K: tf.Tensor) -> tuple[PositiveDefinite, tf.Tensor]:
        """K + E with its factorisation, and a factor R [M, M] of E = R R^T."""
        precision_tril = tf.convert_to_tensor(self.precision_tril)
        eye = tf.eye(self.num_inducing, dtype=K.dtype)
        noise_tril = tf.linalg.triangular_solve(precision_tril, eye, adjoint=True)
        return positive_definite(
            K + tf.matmul(noise_tril, noise_tril, transpose_b=True)
        ), noise_tril

    def _sample_inducing(
        self,
        prior: PositiveDefinite,
        noisy: PositiveDefinite,
        noise_tril: tf.Tensor,
        noise: tf.Tensor,
    ) -> tf.Tensor:
        """F [S, M, P] by Matheron's rule: a prior draw f0, moved by K (K + E)^{-1} (v - f0 - e)."""
        for_prior, for_noise = tf.split(noise, 2, axis=-1)
        chol = math.sqrt(self._prior_scale) * cholesky(prior.matrix, prior.chol)
        prior_draw = chol @ for_prior
        residual = self.v - prior_draw - noise_tril @ for_noise
        return prior_draw + self._prior_scale * prior.matrix @ solve_shared(noisy, residual)

    def _batched_v(self, K: tf.Tensor) -> tf.Tensor:
        """v with the sample dimension of K, if it has one: [..., M, P]."""
        v = tf.convert_to_tensor(self.v)
        return tf.broadcast_to(v, tf.concat([tf.shape(K)[:-2], tf.shape(v)], 0))

    def _kl(self, noisy: PositiveDefinite, noise_tril: tf.Tensor) -> tf.Tensor:
        """KL(Q || P) summed over the outputs [...].

        With w = (K + E)^{-1} v, per output [tr(E (K + E)^{-1}) + w^T K w - M + log|K + E| - log|E|] / 2.
        """
        E = tf.matmul(noise_tril, noise_tril, transpose_b=True)
        logdet_E = 2.0 * tf.reduce_sum(tf.math.log(tf.abs(tf.linalg.diag_part(noise_tril))))
        shared = trace_of_solve(noisy, E) - self.num_inducing + 2.0 * half_logdet(noisy) - logdet_E
        v = self._batched_v(noisy.matrix)
        weights = solve(noisy, v)
        quadratic = tf.reduce_sum(v * weights, [-2, -1])
        noise_weights = right_multiply(tf.linalg.matrix_transpose(weights), noise_tril)
        quadratic -= tf.reduce_sum(tf.square(noise_weights), [-2, -1])
        return 0.5 * (self.width * shared + quadratic)

    def _sampled_log_ratio(
        self,
        prior: PositiveDefinite,
        noisy: PositiveDefinite,
        noise_tril: tf.Tensor,
        features: tf.Tensor,
    ) -> tf.Tensor:
        """log P(F) - log Q(F) at the draw [S].

        log|Sigma^{-1}| = log|K + E| - log|K| - log|E|, so the determinant of K cancels.
        """
        mean = self._prior_scale * prior.matrix @ solve(noisy, self._batched_v(noisy.matrix))
        deviation = features - mean
        whitened = tf.linalg.matrix_transpose(
            right_multiply(
                tf.linalg.matrix_transpose(deviation), tf.convert_to_tensor(self.precision_tril)
            )
        )
        half = 0.5 / self._prior_scale
        log_p = -half * tf.reduce_sum(features * solve_shared(prior, features), [-2, -1])
        log_q = -half * tf.reduce_sum(deviation * solve_shared(prior, deviation), [-2, -1])
        log_q -= 0.5 * tf.reduce_sum(tf.square(whitened), [-2, -1])
        log_q_det = half_logdet(noisy) - half_logdet_from_chol(noise_tril)
        return log_p - log_q - self.width * log_q_det
