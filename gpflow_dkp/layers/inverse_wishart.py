"""The inverse Wishart layer: G ~ IW(delta K, delta + M + 1), of mean K, with an inverse Wishart posterior."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter

from ..checks import check_choice, check_positive, check_positive_integer
from ..distributions.multigamma import log_multigamma, multidigamma
from ..gram import FeatureBlocks, GramBlocks
from ..linalg import cholesky, half_logdet_from_chol, matmul, transpose, triangular_solve
from ..random import Seed, fold_in, gamma, normal, split
from .base import LOG_RATIOS, MIN_VARIANCE, Layer, num_samples_of

tfb = tfp.bijectors


class InverseWishartNoise(NamedTuple):
    """The random numbers of one pass.

    :param diag: T_jj^2 [S, M] of a Bartlett factor T with T T^T ~ Wishart(I, df of the posterior).
    :param below: standard normals [S, M, M], used below the diagonal of T.
    :param chi2: chi-square draws of the data points' own residual [S, N].
    :param data: standard normals [S, M, N].
    """

    diag: tf.Tensor
    below: tf.Tensor
    chi2: tf.Tensor
    data: tf.Tensor

    @property
    def bartlett(self) -> tf.Tensor:
        """T [S, M, M], lower-triangular."""
        return tf.linalg.set_diag(tf.linalg.band_part(self.below, -1, 0), tf.sqrt(self.diag))


class InverseWishartLayer(Layer):
    """A layer of the deep inverse Wishart process ([ICML21]).

    Prior G ~ IW(delta K, delta + M + 1) over M inducing points: its mean is K, which it nears as
    delta grows. Approximate posterior G ~ IW(delta K + V V^T, delta + gamma + M + 1). A data point is
    drawn from the prior given the inducing points, alone, with delta + M + 2 degrees of freedom
    whatever else is drawn beside it.

    :param num_inducing: M.
    :param delta: starting value.
    :param log_ratio: "expected" gives E_Q[log P - log Q], minus the Kullback-Leibler divergence, in
        closed form; "sampled" gives log P - log Q at the draw, as the paper does.

    Parameters: `delta` > 0, of the prior and the posterior; variational `gamma` > 0 and `V` [M, M].
    """

    def __init__(
        self,
        num_inducing: int,
        *,
        delta: float = 5.0,
        log_ratio: Literal["expected", "sampled"] = "expected",
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        check_choice("log_ratio", log_ratio, LOG_RATIOS)
        check_positive_integer("num_inducing", num_inducing)
        check_positive("delta", delta)
        self.num_inducing = num_inducing
        self.log_ratio = log_ratio
        self.gradient_dtype: tf.DType | None = None
        self.delta = Parameter(delta, transform=tfb.Exp())
        self.gamma = Parameter(1.0, transform=tfb.Exp())
        self.V = Parameter(0.1 * np.eye(num_inducing))

    def sample_noise(
        self, num_samples: int | tf.Tensor, num_data: int | tf.Tensor, seed: Seed, first: int = 0
    ) -> InverseWishartNoise:
        """The random numbers of one pass, [S, ...] each."""
        M = self.num_inducing
        excess, residual_df = self.delta + self.gamma, self.delta + M + 2.0
        return sample_inverse_wishart_noise(
            M, excess, residual_df, num_samples, num_data, seed, first
        )

    def propagate_noise(self, covariance: GramBlocks, noise: tuple) -> tuple[GramBlocks, tf.Tensor]:
        """`propagate` with the random numbers of `sample_noise` given."""
        drawn = InverseWishartNoise(*noise)
        V = tf.convert_to_tensor(self.V)
        K = covariance.ii
        Psi = self.delta * K + tf.matmul(V, V, transpose_b=True)
        prior_tril, posterior_tril = tf.unstack(cholesky(tf.stack([K, Psi])))
        log_ratio = self._log_ratio(prior_tril, posterior_tril, drawn.bartlett)
        sample = conditional_inverse_wishart(
            covariance,
            prior_tril,
            posterior_tril,
            tf.convert_to_tensor(self.delta),
            drawn,
            self.gradient_dtype,
        )
        return sample, tf.broadcast_to(log_ratio, tf.shape(drawn.diag)[:1])

    def prior_sample(
        self, covariance: GramBlocks, *, seed: Seed, num_samples: int | None = None
    ) -> GramBlocks:
        """Draw G from IW(delta K, delta + P + 1) at P inducing points, the data points given it."""
        num_samples = num_samples_of(covariance, num_samples)
        num_points = tf.shape(covariance.ii)[-1]
        delta = tf.convert_to_tensor(self.delta)
        residual_df = delta + tf.cast(num_points, delta.dtype) + 2.0
        num_data = tf.shape(covariance.tt)[-1]
        noise = sample_inverse_wishart_noise(
            num_points, delta, residual_df, num_samples, num_data, seed
        )
        prior_tril = cholesky(covariance.ii)
        return conditional_inverse_wishart(
            covariance, prior_tril, tf.sqrt(delta) * prior_tril, delta, noise
        )

    def _log_ratio(
        self, prior_tril: tf.Tensor, posterior_tril: tf.Tensor, bartlett: tf.Tensor
    ) -> tf.Tensor:
        """log P - log Q at the draw [S], or its expectation [...]."""
        M, delta, gamma = self.num_inducing, self.delta, self.gamma
        V = tf.broadcast_to(tf.convert_to_tensor(self.V), tf.shape(posterior_tril))
        whitened_V = tf.linalg.triangular_solve(posterior_tril, V)
        half_logdet_ratio = (
            half_logdet_from_chol(prior_tril)
            + 0.5 * M * tf.math.log(delta)
            - half_logdet_from_chol(posterior_tril)
        )
        if self.log_ratio == "expected":
            trace = tf.reduce_sum(tf.square(whitened_V), [-2, -1])
            return expected_log_ratio(M, delta, gamma, half_logdet_ratio, trace)
        log_diag = half_logdet_from_chol(bartlett) - 0.5 * M * math.log(2.0)
        quadratic = tf.matmul(bartlett, whitened_V, transpose_a=True)
        quadratic = tf.reduce_sum(tf.square(quadratic), [-2, -1])
        terms = log_ratio_terms(M, delta, gamma, half_logdet_ratio)
        return terms - gamma * log_diag + 0.5 * quadratic


def sample_inverse_wishart_noise(
    dimension: int | tf.Tensor,
    excess: tf.Tensor,
    residual_df: tf.Tensor,
    num_samples: int | tf.Tensor,
    num_data: int | tf.Tensor,
    seed: Seed,
    first: int = 0,
) -> InverseWishartNoise:
    """The random numbers of IW(., excess + M + 1) with M = `dimension`, and of data points given it.

    :param residual_df: degrees of freedom of the data points' own residual [].
    """
    for_diag, for_below, for_chi2, for_data = split(seed, 4)
    M, dtype = dimension, gpflow.default_float()
    # (df - j + 1) / 2 with df = excess + M + 1 and j = 1, ..., M
    concentration = 0.5 * (excess + tf.cast(tf.range(M + 1, 1, -1), dtype))
    residual_concentration = 0.5 * residual_df * tf.ones([num_data], dtype)
    return InverseWishartNoise(
        2.0 * gamma(num_samples, concentration, for_diag),
        normal([num_samples, M, M], for_below, dtype),
        2.0 * gamma(num_samples, residual_concentration, fold_in(for_chi2, first)),
        normal([num_samples, M, num_data], fold_in(for_data, first), tf.float32),
    )


def expected_log_ratio(
    dimension: int,
    delta: tf.Tensor,
    gamma: tf.Tensor,
    half_logdet_ratio: tf.Tensor,
    trace: tf.Tensor,
) -> tf.Tensor:
    """-KL of IW(Psi_q, m_p + gamma) from IW(Psi_p, m_p), m_p = delta + P + 1 [...]: MATH.md 5.

    :param dimension: P.
    :param half_logdet_ratio: (log|Psi_p| - log|Psi_q|) / 2 [...].
    :param trace: P - tr(Psi_q^{-1} Psi_p) [...].
    """
    posterior_df = delta + gamma + dimension + 1.0
    mean_log = 0.5 * multidigamma(0.5 * posterior_df, dimension)
    terms = log_ratio_terms(dimension, delta, gamma, half_logdet_ratio)
    return terms - gamma * mean_log + 0.5 * posterior_df * trace


def log_ratio_terms(
    dimension: int, delta: tf.Tensor, gamma: tf.Tensor, half_logdet_ratio: tf.Tensor
) -> tf.Tensor:
    """The terms of log P - log Q that no draw enters [...]; arguments as in `expected_log_ratio`."""
    prior_df = delta + dimension + 1.0
    value = log_multigamma(0.5 * (prior_df + gamma), dimension)
    value -= log_multigamma(0.5 * prior_df, dimension)
    return value + prior_df * half_logdet_ratio


def inverse_wishart_root(scale_tril: tf.Tensor, noise: InverseWishartNoise) -> tf.Tensor:
    """U = L T^{-T} [S, M, M], U U^T inverse Wishart with scale L L^T for L [..., M, M]."""
    bartlett = tf.stop_gradient(noise.bartlett)

    @tf.custom_gradient
    def forward(
        diag: tf.Tensor, scale: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
        value = tf.linalg.triangular_solve(bartlett, scale)

        def grad(d_value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            # No gradient goes below the diagonal of T: those entries are plain noise.
            d_scale = tf.linalg.triangular_solve(bartlett, d_value, adjoint=True)
            return -tf.reduce_sum(d_scale * value, -1), d_scale

        return value, grad

    scale = tf.broadcast_to(transpose(scale_tril), tf.shape(noise.below))
    return transpose(forward(tf.sqrt(noise.diag), scale))


def conditional_inverse_wishart(
    covariance: GramBlocks,
    prior_tril: tf.Tensor,
    posterior_tril: tf.Tensor,
    delta: tf.Tensor,
    noise: InverseWishartNoise,
    gradient_dtype: tf.DType | None = None,
) -> FeatureBlocks:
    """G_ii = U U^T with U = L_q T^{-T}, and each data point given it, alone.

    With L the factor of K_ii, w = L^{-1} K_it + sqrt(g / delta) eps and h = U^T L^{-T} w:
    G_it = U h and G_tt = g + |h|^2, where g = delta (K_tt - |L^{-1} K_it|^2) / chi2(delta + M + 2)
    ([ICML21] Algorithm 1 with G_tt = G_tt.i + G_ti G_ii^{-1} G_it).

    :param covariance: K with or without samples.
    :param prior_tril: L, [S, M, M] or [M, M].
    :param posterior_tril: L_q, [S, M, M] or [M, M].
    :param gradient_dtype: precision of the backward products for the data points.
    """
    dtype = covariance.it.dtype
    root = inverse_wishart_root(posterior_tril, noise)
    whitened = triangular_solve(tf.cast(prior_tril, dtype), covariance.it, gradient_dtype)
    residual = covariance.tt - tf.reduce_sum(tf.square(whitened), -2)
    residual = tf.maximum(residual, MIN_VARIANCE[dtype]) / tf.cast(noise.chi2, dtype)
    whitened += tf.sqrt(residual)[..., None, :] * tf.cast(noise.data, dtype)
    solved = tf.linalg.triangular_solve(tf.broadcast_to(prior_tril, tf.shape(root)), root)
    projected = matmul(tf.cast(solved, dtype), whitened, gradient_dtype, transpose_a=True)
    return FeatureBlocks(root, projected, own=tf.cast(delta, dtype) * residual)
