"""The input layer of the deep inverse Wishart process: G = X Omega X^T / N_0, Omega inverse Wishart."""

from __future__ import annotations

import math

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter

from ..checks import check_positive, check_positive_integer
from ..gram import FeatureBlocks, GramBlocks
from ..linalg import cholesky, half_logdet_from_chol, left_multiply, transpose
from ..random import Seed
from .base import Layer
from .inverse_wishart import (
    InverseWishartNoise,
    conditional_inverse_wishart,
    expected_log_ratio,
    inverse_wishart_root,
    sample_inverse_wishart_noise,
)

tfb = tfp.bijectors


class InputInverseWishart(Layer):
    """Omega ~ IW(delta I, delta + N_0 + 1) over the N_0 input features, G = X Omega X^T / N_0 ([ICML21]).

    The approximate posterior is Omega ~ IW(delta I + V V^T, delta + gamma + N_0 + 1). The inputs are
    first shifted and scaled, feature by feature, where `bias` and `scale` ask for it.

    With more features than inducing points Omega is never formed. G over M points is then inverse
    Wishart with scale X (delta I + V V^T) X^T / N_0 and delta + gamma + M + 1 degrees of freedom, drawn
    at the inducing points, and at each data point given them: O(M^3) a sample, and O(N_0 r (M + N))
    once a step for the r columns of V.

    :param num_inducing: M.
    :param num_features: N_0.
    :param delta: starting value.
    :param rank: r, columns of V; default min(N_0, M).
    :param bias: learn a shift of each feature.
    :param scale: learn a scale of each feature.

    Parameters: `delta` > 0, of the prior and the posterior; variational `gamma` > 0 and `V` [N_0, r];
    `bias` and `scale` [N_0], or None. `jitter` is added to G where Omega is not formed; a model sets it.
    """

    def __init__(
        self,
        num_inducing: int,
        num_features: int,
        *,
        delta: float = 5.0,
        rank: int | None = None,
        bias: bool = False,
        scale: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        check_positive_integer("num_inducing", num_inducing)
        check_positive_integer("num_features", num_features)
        rank = min(num_features, num_inducing) if rank is None else rank
        check_positive_integer("rank", rank)
        check_positive("delta", delta)
        self.num_inducing = num_inducing
        self.num_features = num_features
        self.gradient_dtype: tf.DType | None = None
        self.jitter: tf.Variable | float = gpflow.default_jitter()
        self.delta = Parameter(delta, transform=tfb.Exp())
        self.gamma = Parameter(1.0, transform=tfb.Exp())
        self.V = Parameter(0.1 * np.eye(num_features, rank))
        self.bias = Parameter(np.zeros(num_features)) if bias else None
        self.scale = Parameter(np.ones(num_features), transform=tfb.Exp()) if scale else None

    def sample_noise(
        self, num_samples: int | tf.Tensor, num_data: int | tf.Tensor, seed: Seed, first: int = 0
    ) -> InverseWishartNoise:
        """The random numbers of one pass, [S, ...] each."""
        excess = self.delta + self.gamma
        return self._noise(self.num_inducing, excess, num_samples, num_data, seed, first)

    def propagate_noise(self, covariance: GramBlocks, noise: tuple) -> tuple[GramBlocks, tf.Tensor]:
        """`propagate` with the random numbers of `sample_noise` given.

        :param covariance: the inputs as `FeatureBlocks` of Z [M, N_0] and X^T [N_0, N].
        """
        if covariance.ii.shape[-1] != self.num_inducing:
            raise ValueError(
                f"InputInverseWishart: got {covariance.ii.shape[-1]} inducing points, needs "
                f"{self.num_inducing}"
            )
        drawn = InverseWishartNoise(*noise)
        V = tf.convert_to_tensor(self.V)
        log_ratio = tf.broadcast_to(self._expected_log_ratio(V), tf.shape(drawn.diag)[:1])
        return self._sample(covariance, V, drawn), log_ratio

    def prior_sample(
        self, covariance: GramBlocks, *, seed: Seed, num_samples: int | None = None
    ) -> GramBlocks:
        """Draw Omega from IW(delta I, delta + N_0 + 1), as G at the inducing and the data points."""
        num_samples = 1 if num_samples is None else num_samples
        num_points, num_data = covariance.ii.shape[-1], tf.shape(covariance.tt)[-1]
        delta = tf.convert_to_tensor(self.delta)
        noise = self._noise(num_points, delta, num_samples, num_data, seed)
        return self._sample(covariance, None, noise)

    def _noise(
        self,
        num_points: int | None,
        excess: tf.Tensor,
        num_samples: int | tf.Tensor,
        num_data: int | tf.Tensor,
        seed: Seed,
        first: int = 0,
    ) -> InverseWishartNoise:
        """Of Omega, which needs none for the data, or of G at the inducing points and the data's."""
        forms_omega = self._forms_omega(num_points)
        dimension = self.num_features if forms_omega else num_points
        num_data = 0 if forms_omega else num_data
        residual_df = excess + dimension + 2.0
        return sample_inverse_wishart_noise(
            dimension, excess, residual_df, num_samples, num_data, seed, first
        )

    def _forms_omega(self, num_points: int | None) -> bool:
        """Whether Omega itself is drawn: when G over the points, if their number is known, is no smaller."""
        return num_points is None or self.num_features <= num_points

    def _sample(
        self, inputs: GramBlocks, V: tf.Tensor | None, noise: InverseWishartNoise
    ) -> GramBlocks:
        """G with Omega ~ IW(delta I + V V^T, .) from its random numbers."""
        if not isinstance(inputs, FeatureBlocks):
            raise ValueError(
                f"InputInverseWishart: got {type(inputs).__name__}, needs the inputs as FeatureBlocks"
            )
        if inputs.inducing.shape[-1] != self.num_features:
            raise ValueError(
                f"InputInverseWishart: got {inputs.inducing.shape[-1]} features, needs "
                f"{self.num_features}"
            )
        Z = self._standardise(inputs.inducing)
        X = transpose(self._standardise(transpose(inputs.data)))
        if self._forms_omega(Z.shape[0]):
            Psi = self.delta * tf.eye(self.num_features, dtype=Z.dtype)
            if V is not None:
                Psi += tf.matmul(V, V, transpose_b=True)
            root = inverse_wishart_root(cholesky(Psi), noise)
            data = tf.matmul(tf.cast(root, X.dtype), X, transpose_a=True)
            return FeatureBlocks(left_multiply(Z, root), data)
        covariance = self._scale_blocks(Z, X, V).with_jitter(tf.cast(self.jitter, Z.dtype))
        chol = cholesky(covariance.ii)
        return conditional_inverse_wishart(
            covariance, chol, chol, tf.ones([], Z.dtype), noise, self.gradient_dtype
        )

    def _scale_blocks(self, Z: tf.Tensor, X: tf.Tensor, V: tf.Tensor | None) -> GramBlocks:
        """X (delta I + V V^T) X^T in blocks."""
        columns = [tf.sqrt(self.delta) * Z]
        rows = [tf.sqrt(tf.cast(self.delta, X.dtype)) * X]
        if V is not None:
            columns.append(Z @ V)
            rows.append(tf.matmul(tf.cast(V, X.dtype), X, transpose_a=True))
        blocks = FeatureBlocks(tf.concat(columns, -1), tf.concat(rows, -2))
        return GramBlocks(blocks.ii, blocks.it, blocks.tt)

    def _standardise(self, X: tf.Tensor) -> tf.Tensor:
        """(X + bias) scale / sqrt(N_0) for X [., N_0]."""
        if self.bias is not None:
            X = X + tf.cast(self.bias, X.dtype)
        if self.scale is not None:
            X = X * tf.cast(self.scale, X.dtype)
        return X / math.sqrt(self.num_features)

    def _expected_log_ratio(self, V: tf.Tensor) -> tf.Tensor:
        """-KL(Q || P) of Omega [], through B = I + V^T V / delta [r, r]."""
        eye = tf.eye(tf.shape(V)[-1], dtype=V.dtype)
        B = eye + tf.matmul(V, V, transpose_a=True) / self.delta
        chol = cholesky(B)
        whitened = tf.linalg.triangular_solve(chol, eye)
        trace = tf.reduce_sum(eye) - tf.reduce_sum(tf.square(whitened))
        return expected_log_ratio(
            self.num_features, self.delta, self.gamma, -half_logdet_from_chol(chol), trace
        )
