"""The Gaussian-process layer with global inducing points: hidden layers of the DGP."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow import Parameter
from gpflow.base import MeanAndVariance
from gpflow.kernels import Kernel

from ...bijectors import RelativeTriL, WellConditionedTriL
from ...checks import check_choice, check_flag, check_positive_integer, check_seeds
from ...gram import FeatureBlocks
from ...linalg import (
    PositiveDefinite,
    cholesky,
    half_logdet,
    half_logdet_from_chol,
    inverse_triangular,
    positive_definite,
    right_multiply,
    solve,
    solve_shared,
    trace_of_solve,
    transpose,
)
from ...random import Seed, normal, split
from ..base import LOG_RATIOS
from .base import (
    FeatureDraw,
    GramLayer,
    condition_features,
    num_samples_of,
    prior_features,
)

tfb = tfp.bijectors

LEAST_RATIO = 1e-9
"""Of the smallest eigenvalue of a Lambda to their mean."""


class GlobalInducingGP(GramLayer):
    """P independent GPs f ~ N(0, K) with the global-inducing posterior Q(F | K) = N(Sigma Lambda v, Sigma).

    Sigma = (K^{-1} + Lambda)^{-1}: the exact posterior under pseudo-observations v of the inducing
    values with noise covariance E = Lambda^{-1} ([ICML21] section 4.2). All that is needed comes from
    (K + E)^{-1}, which is well conditioned where K is not.

    As a hidden layer the `width` functions have covariance K / width, so that their Gram matrix has
    the deep Wishart process' prior; with `output=True` they have covariance K. A model's last layer is an
    `OutputGP`, which integrates the inducing values out.

    :param num_inducing: M.
    :param width: number of functions P.
    :param output: whether the functions have covariance K rather than K / width.
    :param kernel: as in `GramLayer`.
    :param log_ratio: as in `GWPosterior`.
    :param shared_precision: one Lambda for all functions, or one for each as in [ICML21] equation 21, which
        takes P times as many factorisations.
    :param seed: of a hidden layer's random starting value of `v`; an output layer starts at 0.

    Variational parameters: `v` [M, P] and the Cholesky factor of Lambda, `precision_tril` [M, M],
    or [P, M, M] unless it is shared.

    >>> layer = gpflow_dkp.layers.GlobalInducingGP(num_inducing=3, width=2)
    >>> K = gpflow_dkp.gram.from_inputs(gpflow.kernels.SquaredExponential(), X[:3], X)
    >>> draw = layer.sample(K.ii, seed=0, num_samples=4)
    >>> draw.features.shape
    TensorShape([4, 3, 2])
    >>> layer.condition(draw, K.it, K.tt, seed=0).it.shape
    TensorShape([4, 3, 10])
    """

    def __init__(
        self,
        num_inducing: int,
        width: int,
        *,
        output: bool = False,
        kernel: Kernel | None = None,
        log_ratio: Literal["expected", "sampled"] = "expected",
        shared_precision: bool = True,
        seed: int | Sequence[int] = 0,
        name: str | None = None,
    ) -> None:
        super().__init__(kernel, name=name)
        check_choice("log_ratio", log_ratio, LOG_RATIOS)
        check_positive_integer("width", width)
        check_positive_integer("num_inducing", num_inducing)
        check_flag("shared_precision", shared_precision)
        self.num_inducing = num_inducing
        self.width = width
        self.log_ratio = log_ratio
        self.shared_precision = bool(shared_precision)
        self._prior_scale = 1.0 if output else 1.0 / width
        check_seeds("seed", seed)
        start = np.random.default_rng(seed).normal(size=(num_inducing, width)) / np.sqrt(width)
        self.v = Parameter(np.zeros_like(start) if output else start)
        precision_tril = 3.0 * np.eye(num_inducing)
        if not shared_precision:
            precision_tril = np.tile(precision_tril, [width, 1, 1])
        self.precision_tril = precision_parameter(precision_tril)

    @property
    def draws_features(self) -> bool:
        """The functions' values are genuine features."""
        return True

    def start_near(self, K_ii: tf.Tensor, features: np.ndarray) -> None:
        """The pseudo-observations to the features [M, P]."""
        self.v.assign(features)

    def infinite_width(self, K_ii: tf.Tensor) -> FeatureBlocks:
        """K_ii, as features that a kernel of features may take."""
        return FeatureBlocks.of_inducing(tf.linalg.cholesky(K_ii))

    @check_shapes(
        "K_ii: [batch..., M, M]",
        "return.features: [S, M, D]",
        "return.log_ratio: [S]",
        "return.prior.matrix: [batch..., M, M]",
    )
    def sample(
        self, K_ii: tf.Tensor, *, seed: Seed = None, num_samples: int | None = None
    ) -> FeatureDraw:
        """Draw the functions at the inducing points from the posterior."""
        K_ii = tf.convert_to_tensor(K_ii)
        num_samples = num_samples_of(K_ii, num_samples)
        shape = [num_samples, self.num_inducing, 2 * self.width]
        noise = normal(shape, split(seed, 2)[0], K_ii.dtype)
        prior = positive_definite(K_ii)
        K = self._prior_scale * K_ii
        noise_tril = pseudo_noise_tril(tf.convert_to_tensor(self.precision_tril))
        noisy = with_pseudo_noise(self._of_each_precision(K), noise_tril)
        features = self._sample_inducing(prior, noisy, noise_tril, noise)
        if self.log_ratio == "expected":
            v = batched(self._columns(tf.convert_to_tensor(self.v)), noisy.matrix)
            log_ratio = -self._sum_precisions(kl_divergence(noisy, noise_tril, v))
        else:
            log_ratio = self._sampled_log_ratio(prior, noisy, noise_tril, features)
        return FeatureDraw(features, tf.broadcast_to(log_ratio, tf.shape(noise)[:1]), prior)

    @check_shapes(
        "K_ii: [batch..., M, M]",
        "return.features: [S, M, D]",
        "return.log_ratio: [S]",
        "return.prior.matrix: [batch..., M, M]",
    )
    def prior_sample(
        self, K_ii: tf.Tensor, *, seed: Seed = None, num_samples: int | None = None
    ) -> FeatureDraw:
        """Draw them from the prior."""
        draw = prior_features(K_ii, self.width, num_samples, seed)
        return draw._replace(features=math.sqrt(self._prior_scale * self.width) * draw.features)

    def posterior_distribution(self, K_ii: tf.Tensor) -> tfp.distributions.Distribution:
        """Q of the functions' values at the inducing points, as rows [..., P, M]."""
        K = self._of_each_precision(self._prior_scale * tf.convert_to_tensor(K_ii))
        tril, v = tf.convert_to_tensor(self.precision_tril), tf.convert_to_tensor(self.v)
        mean, covariance = posterior_moments(K, tril, self._columns(v))
        covariance = covariance[..., None, :, :] if self.shared_precision else covariance
        return of_functions(self._side_by_side(mean), covariance)

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
        """The functions at data points, in rows of the features' columns [S, P, N]."""
        return condition_features(
            draw,
            K_it,
            K_tt,
            split(seed, 2)[1],
            width=self.width,
            scale=self._prior_scale,
            full_cov=full_cov,
            common_noise=common_noise,
            gradient_dtype=self.gradient_dtype,
        )

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
        residual = self._columns(self.v - prior_draw) - noise_tril @ self._columns(for_noise)
        weights = self._side_by_side(solve_shared(noisy, residual))
        return prior_draw + self._prior_scale * prior.matrix @ weights

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
        v = batched(self._columns(tf.convert_to_tensor(self.v)), noisy.matrix)
        mean = self._prior_scale * prior.matrix @ self._side_by_side(solve(noisy, v))
        deviation = features - mean
        whitened = right_multiply(
            transpose(self._columns(deviation)), tf.convert_to_tensor(self.precision_tril)
        )
        half = 0.5 / self._prior_scale
        log_p = -half * tf.reduce_sum(features * solve_shared(prior, features), [-2, -1])
        log_q = -half * tf.reduce_sum(deviation * solve_shared(prior, deviation), [-2, -1])
        log_q -= 0.5 * self._sum_precisions(tf.reduce_sum(tf.square(whitened), [-2, -1]))
        log_q_det = half_logdet(noisy) - half_logdet_from_chol(noise_tril)
        functions = self.width if self.shared_precision else 1
        return log_p - log_q - functions * self._sum_precisions(log_q_det)

    # With a Lambda for each function their axis is the last of the batch.

    def _of_each_precision(self, K: tf.Tensor) -> tf.Tensor:
        """K [..., M, M], or [..., 1, M, M] for each function's Lambda."""
        return K if self.shared_precision else K[..., None, :, :]

    def _columns(self, values: tf.Tensor) -> tf.Tensor:
        """The functions' values [..., M, P] under one Lambda, or [..., P, M, 1] under one each."""
        return values if self.shared_precision else transpose(values)[..., None]

    def _side_by_side(self, columns: tf.Tensor) -> tf.Tensor:
        """The inverse of `_columns`."""
        return columns if self.shared_precision else transpose(columns[..., 0])

    def _sum_precisions(self, values: tf.Tensor) -> tf.Tensor:
        """[...] of what each Lambda gives."""
        return values if self.shared_precision else tf.reduce_sum(values, -1)


def precision_parameter(start: np.ndarray) -> Parameter:
    """The Cholesky factor of Lambda [..., M, M], with a bound on Lambda's condition number.

    The optimum is singular: of most directions the data say nothing. Without a bound E = Lambda^{-1} grows
    in them until K + E has lost K to rounding.

    The diagonal is trained by its logarithm, the rest relative to it.
    """
    filled = tfb.FillScaleTriL(diag_bijector=tfb.Exp(), diag_shift=None)
    transform = tfb.Chain([WellConditionedTriL(LEAST_RATIO), RelativeTriL(0.1), filled])
    return Parameter(start, transform=transform)


@check_shapes("precision_tril: [groups..., M, M]", "return: [groups..., M, M]")
def pseudo_noise_tril(precision_tril: tf.Tensor) -> tf.Tensor:
    """A factor R [..., M, M] of E = Lambda^{-1} = R R^T, upper triangular."""
    return transpose(inverse_triangular(precision_tril))


@check_shapes(
    "K: [broadcast batch..., M, M]",
    "noise_tril: [broadcast batch..., M, M]",
    "return.matrix: [batch..., M, M]",
)
def with_pseudo_noise(K: tf.Tensor, noise_tril: tf.Tensor) -> PositiveDefinite:
    """K + E with its factorisation."""
    return positive_definite(K + tf.matmul(noise_tril, noise_tril, transpose_b=True))


@check_shapes(
    "noisy.matrix: [batch..., M, M]",
    "noise_tril: [broadcast batch..., M, M]",
    "v: [batch..., M, P]",
    "return: [batch...]",
)
def kl_divergence(noisy: PositiveDefinite, noise_tril: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """KL(Q || P) summed over the functions [...].

    With w = (K + E)^{-1} v, of each [tr(E (K + E)^{-1}) + w^T K w - M + log|K + E| - log|E|] / 2.

    :param v: [..., M, P].
    """
    E = tf.matmul(noise_tril, noise_tril, transpose_b=True)
    num_inducing, num_outputs = v.shape[-2:]
    logdet_E = 2.0 * tf.reduce_sum(tf.math.log(tf.abs(tf.linalg.diag_part(noise_tril))), -1)
    shared = trace_of_solve(noisy, E) - num_inducing + 2.0 * half_logdet(noisy) - logdet_E
    weights = solve(noisy, v)
    quadratic = tf.reduce_sum(v * weights, [-2, -1])
    noise_weights = right_multiply(transpose(weights), noise_tril)
    quadratic -= tf.reduce_sum(tf.square(noise_weights), [-2, -1])
    return 0.5 * (num_outputs * shared + quadratic)


@check_shapes(
    "K: [broadcast batch..., M, M]",
    "precision_tril: [broadcast batch..., M, M]",
    "v: [broadcast batch..., M, P]",
    "return[0]: [batch..., M, P]",
    "return[1]: [batch..., M, M]",
)
def posterior_moments(K: tf.Tensor, precision_tril: tf.Tensor, v: tf.Tensor) -> MeanAndVariance:
    """Sigma Lambda v [..., M, P] and Sigma = (K^{-1} + Lambda)^{-1} [..., M, M]."""
    # Sigma = L (I + L^T Lambda L)^{-1} L^T is positive definite (docs/mathematics.md 6).
    tril = tf.linalg.cholesky(K)
    root = tf.matmul(tril, precision_tril, transpose_a=True)
    eye = tf.eye(tf.shape(K)[-1], dtype=K.dtype)
    inner = tf.linalg.cholesky(eye + tf.matmul(root, root, transpose_b=True))
    half = tf.linalg.triangular_solve(inner, transpose(tril))
    covariance = tf.matmul(half, half, transpose_a=True)
    precision = tf.matmul(precision_tril, precision_tril, transpose_b=True)
    return covariance @ (precision @ v), covariance


@check_shapes("mean: [batch..., M, P]", "covariance: [batch..., groups, M, M]")
def of_functions(mean: tf.Tensor, covariance: tf.Tensor) -> tfp.distributions.Distribution:
    """P independent Gaussians over values at M points, as rows [..., P, M].

    :param covariance: of 1 or P groups of functions.
    """
    normal_of_each = tfp.distributions.MultivariateNormalTriL(
        transpose(mean), tf.linalg.cholesky(covariance)
    )
    return tfp.distributions.Independent(normal_of_each, reinterpreted_batch_ndims=1)


@check_shapes("v: [broadcast batch..., M, P]", "K: [batch..., M, M]", "return: [batch..., M, P]")
def batched(v: tf.Tensor, K: tf.Tensor) -> tf.Tensor:
    """v [M, P], or of the last axes of the batch, with the batch of K: [..., M, P]."""
    v = tf.convert_to_tensor(v)
    return tf.broadcast_to(v, tf.concat([tf.shape(K)[:-2], tf.shape(v)[-2:]], 0))
