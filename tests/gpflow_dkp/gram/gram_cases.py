"""Kernels that a Gram matrix gives, with every parameter away from its default, and features."""

from collections.abc import Callable

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import kernels as k

from gpflow_dkp.gram import FeatureBlocks, GramBlocks

M, N, D, S = 4, 6, 3, 2


def squared_exponential() -> k.Kernel:
    return k.SquaredExponential(variance=1.3, lengthscales=0.8)


def linear() -> k.Kernel:
    return k.Linear(variance=0.6)


KERNELS: dict[str, Callable[[], k.Kernel]] = {
    "SquaredExponential": squared_exponential,
    "RationalQuadratic": lambda: k.RationalQuadratic(variance=1.3, lengthscales=0.8, alpha=0.7),
    "Exponential": lambda: k.Exponential(variance=1.3, lengthscales=0.8),
    "Matern12": lambda: k.Matern12(variance=1.3, lengthscales=0.8),
    "Matern32": lambda: k.Matern32(variance=1.3, lengthscales=0.8),
    "Matern52": lambda: k.Matern52(variance=1.3, lengthscales=0.8),
    "Linear": linear,
    "Polynomial2": lambda: k.Polynomial(degree=2, variance=0.7, offset=0.4),
    "Polynomial3": lambda: k.Polynomial(degree=3, variance=0.7, offset=0.4),
    "ArcCosine0": lambda: k.ArcCosine(0, variance=1.3, weight_variances=0.7, bias_variance=0.2),
    "ArcCosine1": lambda: k.ArcCosine(1, variance=1.3, weight_variances=0.7, bias_variance=0.2),
    "ArcCosine2": lambda: k.ArcCosine(2, variance=1.3, weight_variances=0.7, bias_variance=0.2),
    "Constant": lambda: k.Constant(0.9),
    "White": lambda: k.White(0.3),
    "Sum": lambda: k.Sum([squared_exponential(), linear(), k.White(0.3)]),
    "Product": lambda: k.Product([squared_exponential(), linear()]),
    "plus": lambda: k.Matern52(lengthscales=2.0) + linear(),
    "times": lambda: k.Matern52(lengthscales=2.0) * linear(),
    "Sum of Products": lambda: (
        squared_exponential() * linear() + k.Matern32() * (k.Constant(0.5) + linear())
    ),
    "Product of Sums": lambda: (squared_exponential() + linear()) * (k.White(0.3) + k.Matern12()),
}


def features(samples: int | None, seed: int = 0) -> tuple[tf.Tensor, tf.Tensor]:
    """F_i [(S,) M, D] and F_t [(S,) N, D]."""
    rng = np.random.default_rng(seed)
    batch = () if samples is None else (samples,)
    return tf.constant(rng.normal(size=(*batch, M, D))), tf.constant(
        rng.normal(size=(*batch, N, D))
    )


def gram_of(inducing: tf.Tensor, data: tf.Tensor, *, full_cov: bool = False) -> GramBlocks:
    """G = F F^T / D."""
    tt = tf.matmul(data, data, transpose_b=True) if full_cov else tf.reduce_sum(data**2, -1)
    return GramBlocks(
        tf.matmul(inducing, inducing, transpose_b=True) / D,
        tf.matmul(inducing, data, transpose_b=True) / D,
        tt / D,
    )


def feature_blocks_of(
    inducing: tf.Tensor, data: tf.Tensor, *, full_cov: bool = False
) -> FeatureBlocks:
    """The same, as features."""
    scale = 1.0 / np.sqrt(D)
    data = scale * tf.linalg.matrix_transpose(data)
    return FeatureBlocks(scale * inducing, data, full_cov=full_cov)


BLOCKS = {"GramBlocks": gram_of, "FeatureBlocks": feature_blocks_of}


class QuadraticDecay(gpflow.kernels.IsotropicStationary):
    """A user's kernel, stated by `K_r2` alone."""

    def K_r2(self, r2: tf.Tensor) -> tf.Tensor:
        return self.variance / (1.0 + r2)


class LogisticDecay(gpflow.kernels.IsotropicStationary):
    """A user's kernel, stated by `K_r` alone."""

    def K_r(self, r: tf.Tensor) -> tf.Tensor:
        return self.variance / tf.math.cosh(r)


class NarrowSquaredExponential(gpflow.kernels.SquaredExponential):
    """A user's subclass that changes the formula."""

    def K_r2(self, r2: tf.Tensor) -> tf.Tensor:
        return self.variance * tf.exp(-4.0 * r2)
