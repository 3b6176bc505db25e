"""The inverse Wishart layer: G ~ IW(delta K, delta + M + 1), of mean K, with an inverse Wishart posterior."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow import Parameter
from gpflow.kernels import Kernel

from ...checks import check_choice, check_positive, check_positive_integer
from ...distributions import InverseWishart
from ...distributions.inverse_wishart_divergence import expected_log_ratio, sampled_log_ratio
from ...gram import FeatureBlocks, GramBlocks
from ...linalg import (
    cholesky,
    half_logdet_from_chol,
    matmul,
    transpose,
    triangular_solve,
    without_second_derivative,
)
from ...random import Seed, fold_in, gamma, normal, split
from ..base import LOG_RATIOS, MIN_VARIANCE, check_noise
from .base import GramLayer, leading_size, num_samples_of

tfb = tfp.bijectors


class BartlettOfIdentity(NamedTuple):
    """Draws of a square Bartlett factor T, T T^T ~ Wishart(I, df).

    :param diag: T_jj^2 [S, M].
    :param below: standard normals [S, M, M], used below the diagonal of T.
    """

    diag: tf.Tensor
    below: tf.Tensor

    @property
    def factor(self) -> tf.Tensor:
        """T [S, M, M], lower-triangular."""
        return tf.linalg.set_diag(tf.linalg.band_part(self.below, -1, 0), tf.sqrt(self.diag))


class InverseWishartDraw(NamedTuple):
    """A Gram matrix G = U U^T of the inducing points.

    :param root: U [S, M, M].
    :param log_ratio: [S].
    :param prior_tril: L = chol(K_ii) [S, M, M], or [M, M] for all samples.
    :param solved: L^{-1} U [S, M, M].
    """

    root: tf.Tensor
    log_ratio: tf.Tensor
    prior_tril: tf.Tensor
    solved: tf.Tensor

    @property
    def inducing(self) -> FeatureBlocks:
        """U U^T."""
        return FeatureBlocks.of_inducing(self.root)


class InverseWishartLayer(GramLayer):
    """A layer of the deep inverse Wishart process ([ICML21]).

    Prior G ~ IW(delta K, delta + M + 1) over M inducing points: its mean is K, which it nears as
    delta grows. Approximate posterior G ~ IW(delta K + V V^T, delta + gamma + M + 1). A data point is
    drawn from the prior given the inducing points, alone, with delta + M + 2 degrees of freedom
    whatever else is drawn beside it, or N of them jointly, with delta + M + N + 1.

    :param num_inducing: M.
    :param kernel: as in `GramLayer`.
    :param delta: starting value.
    :param log_ratio: "expected" gives E_Q[log P - log Q], minus the Kullback-Leibler divergence, in
        closed form; "sampled" gives log P - log Q at the draw, as the paper does.

    Parameters: `delta` > 0, of the prior and the posterior; variational `gamma` > 0 and `V` [M, M].

    >>> layer = gpflow_dkp.layers.InverseWishartLayer(num_inducing=3, delta=1e6)
    >>> K_ii = gpflow.kernels.SquaredExponential()(X[:3])
    >>> G = layer.prior_sample(K_ii, seed=0).inducing.ii[0]
    >>> np.allclose(G, K_ii, atol=0.02)  # a large delta: near the mean
    True
    """

    def __init__(
        self,
        num_inducing: int,
        *,
        kernel: Kernel | None = None,
        delta: float = 5.0,
        log_ratio: Literal["expected", "sampled"] = "expected",
        name: str | None = None,
    ) -> None:
        super().__init__(kernel, name=name)
        check_choice("log_ratio", log_ratio, LOG_RATIOS)
        check_positive_integer("num_inducing", num_inducing)
        check_positive("delta", delta)
        self.num_inducing = num_inducing
        self.log_ratio = log_ratio
        self.delta = Parameter(delta, transform=tfb.Exp())
        self.gamma = Parameter(1.0, transform=tfb.Exp())
        self.V = Parameter(0.1 * np.eye(num_inducing))

    def start_at(self, K_ii: tf.Tensor, *, random: bool = False) -> None:
        """V = sqrt(gamma) chol(K): the posterior's mean is K. Where K has no factor, V stays as it is."""
        chol = tf.linalg.cholesky(K_ii)
        if np.all(np.isfinite(chol)):
            self.V.assign(tf.sqrt(tf.convert_to_tensor(self.gamma)) * chol)

    @check_shapes(
        "K_ii: [batch..., M, M]",
        "return.root: [S, M, M]",
        "return.log_ratio: [S]",
        "return.prior_tril: [batch..., M, M]",
        "return.solved: [S, M, M]",
    )
    def sample(
        self, K_ii: tf.Tensor, *, seed: Seed = None, num_samples: int | None = None
    ) -> InverseWishartDraw:
        """Draw the Gram matrix of the inducing points from the posterior."""
        K_ii = tf.convert_to_tensor(K_ii)
        num_samples = num_samples_of(K_ii, num_samples)
        excess = self.delta + self.gamma
        bartlett = sample_bartlett(self.num_inducing, excess, num_samples, seed)
        prior_tril, posterior_tril = self._prior_and_posterior_tril(K_ii)
        log_ratio = self._log_ratio(prior_tril, posterior_tril, bartlett)
        log_ratio = tf.broadcast_to(log_ratio, tf.shape(bartlett.diag)[:1])
        return draw_of(prior_tril, posterior_tril, bartlett, log_ratio)

    @check_shapes(
        "K_ii: [batch..., M, M]",
        "return.root: [S, M, M]",
        "return.log_ratio: [S]",
        "return.prior_tril: [batch..., M, M]",
        "return.solved: [S, M, M]",
    )
    def prior_sample(
        self, K_ii: tf.Tensor, *, seed: Seed = None, num_samples: int | None = None
    ) -> InverseWishartDraw:
        """Draw it from IW(delta K, delta + P + 1) at P inducing points."""
        K_ii = tf.convert_to_tensor(K_ii)
        num_samples = num_samples_of(K_ii, num_samples)
        delta = tf.convert_to_tensor(self.delta)
        bartlett = sample_bartlett(tf.shape(K_ii)[-1], delta, num_samples, seed)
        prior_tril = cholesky(K_ii)
        zero = tf.zeros(tf.shape(bartlett.diag)[:1], K_ii.dtype)
        return draw_of(prior_tril, tf.sqrt(delta) * prior_tril, bartlett, zero)

    def posterior_distribution(self, K_ii: tf.Tensor) -> InverseWishart:
        """Q(G | K) of the Gram matrix [..., M, M]."""
        _, posterior_tril = self._prior_and_posterior_tril(tf.convert_to_tensor(K_ii))
        return InverseWishart(self.delta + self.gamma + self.num_inducing + 1.0, posterior_tril)

    def condition(
        self,
        draw: InverseWishartDraw,
        K_it: tf.Tensor,
        K_tt: tf.Tensor,
        *,
        seed: Seed = None,
        full_cov: bool = False,
        common_noise: bool = False,
    ) -> GramBlocks:
        """Data points given the inducing points: each alone, or jointly."""
        delta = tf.convert_to_tensor(self.delta)
        return condition_inverse_wishart(
            draw,
            K_it,
            K_tt,
            seed,
            delta=delta,
            excess=delta,
            full_cov=full_cov,
            common_noise=common_noise,
            gradient_dtype=self.gradient_dtype,
        )

    def _prior_and_posterior_tril(self, K_ii: tf.Tensor) -> list[tf.Tensor]:
        """The Cholesky factors [..., M, M] of K and of delta K + V V^T."""
        V = tf.convert_to_tensor(self.V)
        Psi = self.delta * K_ii + tf.matmul(V, V, transpose_b=True)
        return tf.unstack(cholesky(tf.stack([K_ii, Psi])))

    def _log_ratio(
        self, prior_tril: tf.Tensor, posterior_tril: tf.Tensor, bartlett: BartlettOfIdentity
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
        prior_df = delta + M + 1.0
        if self.log_ratio == "expected":
            trace = tf.reduce_sum(tf.square(whitened_V), [-2, -1])
            return expected_log_ratio(M, prior_df, gamma, half_logdet_ratio, trace)
        quadratic = tf.matmul(bartlett.factor, whitened_V, transpose_a=True)
        return sampled_log_ratio(
            M,
            prior_df,
            gamma,
            half_logdet_ratio,
            half_logdet_from_chol(bartlett.factor),
            tf.reduce_sum(tf.square(quadratic), [-2, -1]),
        )


def sample_bartlett(
    dimension: int | tf.Tensor, excess: tf.Tensor, num_samples: int | tf.Tensor, seed: Seed
) -> BartlettOfIdentity:
    """Random numbers of IW(., excess + M + 1) with M = `dimension`."""
    for_diag, for_below, *_ = split(seed, 4)
    M, dtype = dimension, gpflow.default_float()
    # (df - j + 1) / 2 with df = excess + M + 1 and j = 1, ..., M
    concentration = 0.5 * (excess + tf.cast(tf.range(M + 1, 1, -1), dtype))
    return BartlettOfIdentity(
        2.0 * gamma(num_samples, concentration, for_diag),
        normal([num_samples, M, M], for_below, dtype),
    )


def draw_of(
    prior_tril: tf.Tensor,
    posterior_tril: tf.Tensor,
    bartlett: BartlettOfIdentity,
    log_ratio: tf.Tensor,
) -> InverseWishartDraw:
    """G = U U^T with U = L_q T^{-T} for factors L_q of the posterior's scale and L of K."""
    root = inverse_wishart_root(posterior_tril, bartlett)
    solved = tf.linalg.triangular_solve(tf.broadcast_to(prior_tril, tf.shape(root)), root)
    return InverseWishartDraw(root, log_ratio, prior_tril, solved)


@check_shapes(
    "scale_tril: [broadcast batch..., M, M]",
    "bartlett.diag: [S, M]",
    "bartlett.below: [S, M, M]",
    "return: [S, M, M]",
)
def inverse_wishart_root(scale_tril: tf.Tensor, bartlett: BartlettOfIdentity) -> tf.Tensor:
    """U = L T^{-T} [S, M, M], U U^T inverse Wishart with scale L L^T for L [..., M, M]."""
    factor = tf.stop_gradient(bartlett.factor)

    @tf.custom_gradient
    def forward(
        diag: tf.Tensor, scale: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
        value = tf.linalg.triangular_solve(factor, scale)

        def grad(d_value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            # No gradient goes below the diagonal of T: those entries are plain noise.
            d_scale = tf.linalg.triangular_solve(factor, d_value, adjoint=True)
            d_diag = -tf.reduce_sum(d_scale * value, -1)
            of = "inverse_wishart_root"
            return without_second_derivative(d_diag, of), without_second_derivative(d_scale, of)

        return value, grad

    scale = tf.broadcast_to(transpose(scale_tril), tf.shape(bartlett.below))
    return transpose(forward(tf.sqrt(bartlett.diag), scale))


@check_shapes(
    "draw.root: [S, M, M]",
    "draw.prior_tril: [batch..., M, M]",
    "draw.solved: [S, M, M]",
    "K_it: [batch..., M, N]",
    "K_tt: [batch..., N] if not full_cov",
    "K_tt: [batch..., N, N] if full_cov",
)
def condition_inverse_wishart(
    draw: Any,
    K_it: tf.Tensor,
    K_tt: tf.Tensor,
    seed: Seed,
    *,
    delta: tf.Tensor,
    excess: tf.Tensor,
    full_cov: bool = False,
    common_noise: bool = False,
    gradient_dtype: tf.DType | None = None,
) -> GramBlocks:
    """Data points given G_ii = U U^T under IW(delta K, excess + M + N + 1) over all points.

    With L the factor of K_ii, w = L^{-1} K_it + sqrt(g / delta) eps and h = U^T L^{-T} w:
    G_it = U h and G_tt = g + |h|^2, where g = delta (K_tt - |L^{-1} K_it|^2) / chi2(excess + M + 2)
    ([ICML21] Algorithm 1 with G_tt = G_tt.i + G_ti G_ii^{-1} G_it). Jointly, g is a draw C C^T from
    IW(delta (K_tt - K_ti K_ii^{-1} K_it), excess + M + N + 1), w = L^{-1} K_it + eps C^T / sqrt(delta) and
    G_tt = C C^T + h^T h (equations 31 to 34).

    :param draw: an `InverseWishartDraw`, or another with its fields, of S samples.
    :param gradient_dtype: precision of the backward products for the data points.
    """
    check_noise(full_cov, common_noise)
    K_it, K_tt = tf.convert_to_tensor(K_it), tf.convert_to_tensor(K_tt)
    *_, for_chi2, for_data = split(seed, 4)
    dtype, default = K_it.dtype, gpflow.default_float()
    num_samples, M = leading_size(draw.root), draw.root.shape[-1]
    num_data = tf.shape(K_it)[-1]
    num_draws = 1 if common_noise else num_data
    noise = normal([num_samples, M, num_draws], fold_in(for_data, 0), tf.float32, points=2)
    noise = tf.cast(noise, dtype)
    scale, delta = tf.cast(delta, default), tf.cast(delta, dtype)
    whitened = triangular_solve(tf.cast(draw.prior_tril, dtype), K_it, gradient_dtype)
    solved = tf.cast(draw.solved, dtype)
    if full_cov:
        residual = K_tt - tf.matmul(whitened, whitened, transpose_a=True)
        bartlett = sample_bartlett(num_data, excess + float(M), num_samples, for_chi2)
        root = inverse_wishart_root(cholesky(scale * tf.cast(residual, default)), bartlett)
        root = tf.cast(root, dtype)
        whitened += tf.matmul(noise, root, transpose_b=True) / tf.sqrt(delta)
        projected = tf.matmul(solved, whitened, transpose_a=True)
        it = tf.cast(draw.root, dtype) @ projected
        tt = tf.matmul(root, root, transpose_b=True)
        return GramBlocks(
            draw.inducing.ii, it, tt + tf.matmul(projected, projected, transpose_a=True)
        )
    concentration = 0.5 * (excess + M + 2.0)
    chi2 = 2.0 * gamma(num_samples, concentration, fold_in(for_chi2, 0), num_points=num_draws)
    residual = K_tt - tf.reduce_sum(tf.square(whitened), -2)
    residual = tf.maximum(residual, MIN_VARIANCE[dtype]) / tf.cast(chi2, dtype)
    whitened += tf.sqrt(residual)[..., None, :] * noise
    projected = matmul(solved, whitened, gradient_dtype, transpose_a=True)
    return FeatureBlocks(draw.root, projected, own=delta * residual)
