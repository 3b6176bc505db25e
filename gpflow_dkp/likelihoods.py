"""Likelihoods that GPflow has with an approximation which matters here."""

from __future__ import annotations

import math
from collections.abc import Callable

import gpflow
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import TensorType

from .mixture import normal_cdf


class RobustMax(gpflow.likelihoods.RobustMax):
    """GPflow's inverse link of `MultiClass`, without the 1e-6 that GPflow adds to each probability.

    S(x, j) = pi^{-1/2} sum_i w_i prod_{l != j} Phi((m_j + sqrt(2 r_j) xi_i - m_l) / sqrt(r_l)), the
    probability that output j is the largest ([NeurIPS22] equation 70, with Phi the normal distribution
    function where it prints a density, and standard deviations where the published code has variances).

    >>> link = gpflow_dkp.likelihoods.RobustMax(3)
    >>> labels, mean, variance = np.array([[0], [2]]), np.zeros([2, 3]), np.ones([2, 3])
    >>> nodes = gpflow.quadrature.hermgauss(20)
    >>> np.allclose(link.prob_is_largest(labels, mean, variance, *nodes), 1 / 3)
    True
    >>> likelihood = gpflow.likelihoods.MultiClass(3, invlink=link)
    """

    @inherit_check_shapes
    def prob_is_largest(
        self, Y: TensorType, mu: TensorType, var: TensorType, gh_x: TensorType, gh_w: TensorType
    ) -> tf.Tensor:
        """S(x, y) [N, 1] for labels Y [N, 1] and independent outputs of mean and variance [N, J]."""
        mu, var = tf.convert_to_tensor(mu), tf.convert_to_tensor(var)
        labels = tf.cast(tf.reshape(Y, [-1]), tf.int32)
        scale = self.safe_sqrt(var)
        own_mean = tf.gather(mu, labels, batch_dims=1)
        own_scale = tf.gather(scale, labels, batch_dims=1)
        points = own_mean[:, None] + math.sqrt(2.0) * own_scale[:, None] * gh_x
        standardised = (points[:, None] - mu[..., None]) / scale[..., None]
        below = normal_cdf(standardised)
        own = tf.one_hot(labels, self.num_classes, dtype=tf.bool, on_value=True, off_value=False)
        below = tf.where(own[..., None], tf.ones_like(below), below)
        weights = tf.cast(gh_w, mu.dtype) / math.sqrt(math.pi)
        return tf.reduce_sum(_product_of_probabilities(below) * weights, -1, keepdims=True)


@tf.custom_gradient
def _product_of_probabilities(
    factors: tf.Tensor,
) -> tf.Tensor | tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """Product over axis 1 of [N, J, I], whose gradient is a division.

    TensorFlow's own allows for factors of zero, at more cost. Here they are a normal distribution
    function's, so that where one underflows its slope has, too.
    """
    product = tf.reduce_prod(factors, 1)

    def grad(d_product: tf.Tensor) -> tf.Tensor:
        return tf.math.divide_no_nan((d_product * product)[:, None], factors)

    return product, grad
