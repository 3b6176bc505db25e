"""The input layer of the deep inverse Wishart process: G = X Omega X^T / N_0, Omega inverse Wishart."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow import Parameter

from ...checks import check_positive, check_positive_integer
from ...distributions import InverseWishart
from ...distributions.inverse_wishart_divergence import expected_log_ratio
from ...gram import FeatureBlocks, GramBlocks
from ...jitter import IGNORING_JITTER, jitter_variable
from ...linalg import cholesky, half_logdet_from_chol, left_multiply, transpose
from ...random import Seed
from .base import GramLayer
from .inverse_wishart import (
    condition_inverse_wishart,
    draw_of,
    inverse_wishart_root,
    sample_bartlett,
)

tfb = tfp.bijectors


class ScaledInputs(NamedTuple):
    """The inputs, shifted and scaled, in the places of a covariance's blocks.

    :param ii: Z [M, N_0].
    :param it: X^T [N_0, N].
    :param tt: squared lengths [N], or inner products [N, N], of the data points.
    :param full_cov: whether the data points' whole block is meant.
    """

    ii: tf.Tensor
    it: tf.Tensor
    tt: tf.Tensor
    full_cov: bool


class OmegaDraw(NamedTuple):
    """Omega = R R^T and Z R.

    :param features: Z R [S, M, N_0].
    :param log_ratio: [S].
    :param root: R [S, N_0, N_0].
    """

    features: tf.Tensor
    log_ratio: tf.Tensor
    root: tf.Tensor

    @property
    def inducing(self) -> FeatureBlocks:
        """Z Omega Z^T."""
        return FeatureBlocks.of_inducing(self.features)


class ScaledDraw(NamedTuple):
    """G at the inducing points, where Omega is not formed: an `InverseWishartDraw` and what it is of.

    :param root: U [S, M, M], G = U U^T.
    :param log_ratio: [S].
    :param prior_tril: [M, M], of the scale matrix of G.
    :param solved: [S, M, M].
    :param columns: C [M, R], of which the scale matrix is C C^T.
    :param V: [N_0, r], or [N_0, 0] for a draw from the prior.
    :param excess: degrees of freedom less M + 1, [1, 1].
    """

    root: tf.Tensor
    log_ratio: tf.Tensor
    prior_tril: tf.Tensor
    solved: tf.Tensor
    columns: tf.Tensor
    V: tf.Tensor
    excess: tf.Tensor

    @property
    def inducing(self) -> FeatureBlocks:
        """U U^T."""
        return FeatureBlocks.of_inducing(self.root)


class InputInverseWishart(GramLayer):
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
    `bias` and `scale` [N_0], or None. `jitter` is added to G where Omega is not formed.

    >>> layer = gpflow_dkp.layers.InputInverseWishart(num_inducing=3, num_features=2)
    >>> inputs = layer.covariance(gpflow_dkp.gram.InputBlocks(X[:3], X))
    >>> G, log_ratio = layer.propagate(inputs, seed=0, num_samples=4)
    >>> G.it.shape, log_ratio.shape
    (TensorShape([4, 3, 10]), TensorShape([4]))
    """

    _TF_MODULE_IGNORED_PROPERTIES = IGNORING_JITTER

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
        self.jitter = jitter_variable()
        self.delta = Parameter(delta, transform=tfb.Exp())
        self.gamma = Parameter(1.0, transform=tfb.Exp())
        self.V = Parameter(0.1 * np.eye(num_features, rank))
        self.bias = Parameter(np.zeros(num_features)) if bias else None
        self.scale = Parameter(np.ones(num_features), transform=tfb.Exp()) if scale else None

    def covariance(
        self, blocks: GramBlocks, jitter: tf.Tensor | float = 0.0, dtype: tf.DType | None = None
    ) -> ScaledInputs:
        """The inputs themselves, shifted and scaled, in place of a covariance.

        :param blocks: the inputs as `InputBlocks` or other `FeatureBlocks`, Z [M, N_0] and X^T [N_0, N].
        """
        if not isinstance(blocks, FeatureBlocks):
            raise ValueError(
                f"InputInverseWishart: got {type(blocks).__name__}, needs the inputs as FeatureBlocks"
            )
        if blocks.inducing.shape[-1] != self.num_features:
            raise ValueError(
                f"InputInverseWishart: got {blocks.inducing.shape[-1]} features, needs "
                f"{self.num_features}"
            )
        X = transpose(self._standardise(transpose(blocks.data)))
        X = X if dtype is None or blocks.full_cov else tf.cast(X, dtype)
        Z = self._standardise(blocks.inducing)
        tt = FeatureBlocks(Z, X, full_cov=blocks.full_cov).tt
        return ScaledInputs(Z, X, tt, blocks.full_cov)

    def infinite_width(self, K_ii: tf.Tensor) -> GramBlocks:
        """Z Z^T, at Omega's mean."""
        return FeatureBlocks.of_inducing(K_ii)

    @check_shapes("return.log_ratio: [S]", "return.root: [S, R, R]")
    def sample(
        self, K_ii: tf.Tensor, *, seed: Seed = None, num_samples: int | None = None
    ) -> OmegaDraw | ScaledDraw:
        """Draw G at the inducing points from the posterior.

        :param K_ii: the inputs Z [M, N_0] of `covariance`.
        """
        K_ii = tf.convert_to_tensor(K_ii)
        if K_ii.shape[-2] != self.num_inducing:
            raise ValueError(
                f"InputInverseWishart: got {K_ii.shape[-2]} inducing points, needs "
                f"{self.num_inducing}"
            )
        V = tf.convert_to_tensor(self.V)
        log_ratio = self._expected_log_ratio(V)
        return self._draw(K_ii, V, self.delta + self.gamma, log_ratio, seed, num_samples)

    @check_shapes("K_ii: [M, N_0]", "return.log_ratio: [S]", "return.root: [S, R, R]")
    def prior_sample(
        self, K_ii: tf.Tensor, *, seed: Seed = None, num_samples: int | None = None
    ) -> OmegaDraw | ScaledDraw:
        """Draw Omega from IW(delta I, delta + N_0 + 1), as G at the inducing points."""
        V = tf.zeros([self.num_features, 0], K_ii.dtype)
        delta = tf.convert_to_tensor(self.delta)
        return self._draw(K_ii, V, delta, tf.zeros([], K_ii.dtype), seed, num_samples)

    def _draw(
        self,
        Z: tf.Tensor,
        V: tf.Tensor,
        excess: tf.Tensor,
        log_ratio: tf.Tensor,
        seed: Seed,
        num_samples: int | None,
    ) -> OmegaDraw | ScaledDraw:
        """With Omega ~ IW(delta I + V V^T, excess + N_0 + 1)."""
        num_samples = 1 if num_samples is None else num_samples
        num_points, dtype = Z.shape[0], Z.dtype
        # Omega itself is drawn when G over the points, if their number is known, is no smaller.
        forms_omega = num_points is None or self.num_features <= num_points
        dimension = self.num_features if forms_omega else num_points
        bartlett = sample_bartlett(dimension, excess, num_samples, seed)
        log_ratio = tf.broadcast_to(log_ratio, tf.shape(bartlett.diag)[:1])
        if forms_omega:
            root = inverse_wishart_root(cholesky(self._posterior_scale(V)), bartlett)
            return OmegaDraw(left_multiply(Z, root), log_ratio, root)
        columns = tf.concat([tf.sqrt(self.delta) * Z, Z @ V], -1)
        scale = tf.matmul(columns, columns, transpose_b=True)
        chol = cholesky(scale + self.jitter * tf.eye(num_points, dtype=dtype))
        draw = draw_of(chol, chol, bartlett, log_ratio)
        return ScaledDraw(*draw, columns, V, tf.reshape(excess, [1, 1]))

    def posterior_distribution(self, K_ii: tf.Tensor | None = None) -> InverseWishart:
        """Q(Omega) of the features' covariance [N_0, N_0], whatever the inducing points."""
        df = self.delta + self.gamma + self.num_features + 1.0
        return InverseWishart(df, cholesky(self._posterior_scale(tf.convert_to_tensor(self.V))))

    def _posterior_scale(self, V: tf.Tensor) -> tf.Tensor:
        """delta I + V V^T [N_0, N_0]."""
        eye = tf.eye(self.num_features, dtype=V.dtype)
        return self.delta * eye + tf.matmul(V, V, transpose_b=True)

    def condition(
        self,
        draw: OmegaDraw | ScaledDraw,
        K_it: tf.Tensor,
        K_tt: tf.Tensor,
        *,
        seed: Seed = None,
        full_cov: bool = False,
        common_noise: bool = False,
    ) -> GramBlocks:
        """Data points given the inducing points: fixed by Omega, or drawn where it is not formed.

        :param K_it: the inputs X^T [N_0, N] of `covariance`.
        :param K_tt: not used.
        """
        X = tf.convert_to_tensor(K_it)
        if isinstance(draw, OmegaDraw):
            data = tf.matmul(tf.cast(draw.root, X.dtype), X, transpose_a=True)
            return FeatureBlocks(draw.features, data, full_cov=full_cov)
        rows = [tf.sqrt(tf.cast(self.delta, X.dtype)) * X]
        rows.append(tf.matmul(tf.cast(draw.V, X.dtype), X, transpose_a=True))
        blocks = FeatureBlocks(draw.columns, tf.concat(rows, -2), full_cov=full_cov)
        jittered = blocks.with_jitter(tf.cast(self.jitter, draw.columns.dtype))
        return condition_inverse_wishart(
            draw,
            jittered.it,
            jittered.tt,
            seed,
            delta=tf.ones([], X.dtype),
            excess=draw.excess[0, 0],
            full_cov=full_cov,
            common_noise=common_noise,
            gradient_dtype=self.gradient_dtype,
        )

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
        prior_df = self.delta + self.num_features + 1.0
        return expected_log_ratio(
            self.num_features, prior_df, self.gamma, -half_logdet_from_chol(chol), trace
        )
