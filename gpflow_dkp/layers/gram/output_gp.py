"""The output layer: Gaussian processes with global inducing points, whose values are integrated out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow import Parameter
from gpflow.base import MeanAndVariance
from gpflow.kernels import Kernel, SeparateIndependent

from ...linalg import PositiveDefinite, conditional, solve, transpose
from ...random import Seed, split
from ..base import MIN_VARIANCE
from .base import FeatureDraw, prior_features, residual_covariance
from .global_inducing_gp import (
    batched,
    kl_divergence,
    of_functions,
    posterior_moments,
    precision_parameter,
    pseudo_noise_tril,
    with_pseudo_noise,
)
from .output_layer import OutputLayer


class OutputDraw(NamedTuple):
    """What the inducing points fix in an output layer, their values integrated out.

    The outputs come in groups that share a covariance and a precision: one group, or one an output.

    :param log_ratio: -KL(Q || P) [S], or [] where K has no samples.
    :param noisy: K + E of each group, [S, M, M] or [M, M].
    :param v: of each group, [S, M, P / groups] or [M, P / groups].
    """

    log_ratio: tf.Tensor
    noisy: tuple[PositiveDefinite, ...]
    v: tuple[tf.Tensor, ...]


class OutputGP(OutputLayer):
    """P independent GPs f ~ N(0, K), the posterior of `GlobalInducingGP`, its inducing values integrated out.

    `sample` draws nothing: it factorises. `condition` gives the outputs' means and variances.

    :param num_inducing: M.
    :param num_outputs: P.
    :param kernel: as in `GramLayer`; GPflow's `SharedIndependent` and `SeparateIndependent` too.
    :param shared_precision: one Lambda for all outputs, or one for each as in [ICML21] equation 21.

    Variational parameters: `v` [M, P] and `precision_tril` [M, M], or [P, M, M] unless it is shared.

    >>> layer = gpflow_dkp.layers.OutputGP(num_inducing=3, num_outputs=1)
    >>> K = gpflow_dkp.gram.from_inputs(gpflow.kernels.SquaredExponential(), X[:3], X)
    >>> draw = layer.sample(K.ii)
    >>> mean, variance = layer.condition(draw, K.it, K.tt)
    >>> mean.shape, bool(np.all(variance < 1.0))
    (TensorShape([10, 1]), True)
    """

    def __init__(
        self,
        num_inducing: int,
        num_outputs: int,
        *,
        kernel: Kernel | None = None,
        shared_precision: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(num_inducing, num_outputs, kernel=kernel, name=name)
        self._separate_kernels = isinstance(kernel, SeparateIndependent)
        if isinstance(kernel, SeparateIndependent) and len(kernel.kernels) != num_outputs:
            raise ValueError(
                f"kernel: got SeparateIndependent of {len(kernel.kernels)} kernels, needs one for each "
                f"of {num_outputs} outputs"
            )
        self.shared_precision = bool(shared_precision)
        self.v = Parameter(np.zeros([num_inducing, num_outputs]))
        start = 3.0 * np.eye(num_inducing)
        if not shared_precision:
            start = np.tile(start, [num_outputs, 1, 1])
        self.precision_tril = precision_parameter(start)

    @property
    def shared_covariance(self) -> bool:
        """Whether the outputs have one posterior covariance of their inducing values."""
        return self.shared_precision and not self._separate_kernels

    @check_shapes(
        "K_ii: [batch..., M, M]",
        "return.noisy[all].matrix: [group_batch..., M, M]",
        "return.v[all]: [group_batch..., M, Q]",
        "return.log_ratio: [group_batch...]",
    )
    def sample(  # nothing follows that would need its Gram matrix
        self, K_ii: tf.Tensor, *, seed: Seed = None, num_samples: int | None = None
    ) -> OutputDraw:
        """Factorise; nothing is drawn.

        :param K_ii: [S, M, M] or [M, M]; with `SeparateIndependent` [S, P, M, M] or [P, M, M].
        """
        noisy, v, kl = [], [], []
        for K, precision_tril, columns in self._groups(K_ii):
            noise_tril = pseudo_noise_tril(precision_tril)
            noisy.append(with_pseudo_noise(K, noise_tril))
            v.append(batched(columns, K))
            kl.append(kl_divergence(noisy[-1], noise_tril, v[-1]))
        return OutputDraw(-tf.add_n(kl), tuple(noisy), tuple(v))

    @check_shapes("K_ii: [batch..., M, M]", "return.features: [S, M, P]")
    def prior_sample(
        self, K_ii: tf.Tensor, *, seed: Seed = None, num_samples: int | None = None
    ) -> FeatureDraw:
        """Draw the outputs at the inducing points from the prior, as features [S, M, P]."""
        if not self._separate_kernels:
            return super().prior_sample(K_ii, seed=seed, num_samples=num_samples)
        seeds = split(seed, self.num_outputs)
        draws = [
            prior_features(K_ii[..., p, :, :], 1, num_samples, seed) for p, seed in enumerate(seeds)
        ]
        features = tf.concat([draw.features for draw in draws], -1)
        return draws[0]._replace(features=features)

    def condition(
        self,
        draw: OutputDraw,
        K_it: tf.Tensor,
        K_tt: tf.Tensor,
        *,
        seed: Seed = None,
        full_cov: bool = False,
        common_noise: bool = False,
    ) -> MeanAndVariance:
        """Means [..., N, P] and variances [..., N, P], or covariances [..., P, N, N] with `full_cov`.

        mean = K_ti (K + E)^{-1} v, variance = K_tt - K_ti (K + E)^{-1} K_it. Nothing is drawn.
        """
        K_it, K_tt = tf.convert_to_tensor(K_it), tf.convert_to_tensor(K_tt)
        means, variances = [], []
        for number, (noisy, v) in enumerate(zip(draw.noisy, draw.v, strict=True)):
            own = self._separate_kernels
            cross = K_it[..., number, :, :] if own else K_it
            if full_cov:
                mean = transpose(tf.cast(cross, v.dtype)) @ solve(noisy, v)
                covariance = residual_covariance(
                    noisy, cross, K_tt[..., number, :, :] if own else K_tt
                )
                shape = tf.shape(covariance)
                shape = tf.concat([shape[:-2], v.shape[-1:], shape[-2:]], 0)
                variances.append(tf.broadcast_to(covariance[..., None, :, :], shape))
            else:
                mean, explained = conditional(noisy, v, cross, self.gradient_dtype)
                mean = tf.cast(transpose(mean), v.dtype)
                variance = (K_tt[..., number, :] if own else K_tt) - explained
                variance = tf.cast(tf.maximum(variance, MIN_VARIANCE[variance.dtype]), v.dtype)
                variances.append(tf.broadcast_to(variance[..., None], tf.shape(mean)))
            means.append(mean)
        return tf.concat(means, -1), tf.concat(variances, -3 if full_cov else -1)

    @check_shapes(
        "K_ii: [kernel_batch..., M, M]",
        "return[0]: [batch..., M, P]",
        "return[1]: [batch..., groups, M, M]",
    )
    def inducing_moments(self, K_ii: tf.Tensor) -> MeanAndVariance:
        """Mean [..., M, P] and covariance [..., groups, M, M] of the inducing values under Q.

        :param K_ii: as in `sample`.
        """
        means, covariances = [], []
        for K, precision_tril, columns in self._groups(K_ii):
            mean, covariance = posterior_moments(K, precision_tril, columns)
            means.append(mean)
            covariances.append(covariance)
        return tf.concat(means, -1), tf.stack(covariances, -3)

    def posterior_distribution(self, K_ii: tf.Tensor) -> tfp.distributions.Distribution:
        """Q of the outputs' values at the inducing points, as rows [..., P, M]; K_ii as in `sample`."""
        return of_functions(*self.inducing_moments(K_ii))

    def _groups(self, K_ii: tf.Tensor) -> list[tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
        """K, the factor of Lambda [M, M] and v of each group of outputs."""
        K_ii = tf.convert_to_tensor(K_ii)
        tril, v = tf.convert_to_tensor(self.precision_tril), tf.convert_to_tensor(self.v)
        if self.shared_covariance:
            return [(K_ii, tril, v)]
        return [
            (
                K_ii[..., p, :, :] if self._separate_kernels else K_ii,
                tril if self.shared_precision else tril[p],
                v[:, p : p + 1],
            )
            for p in range(self.num_outputs)
        ]
