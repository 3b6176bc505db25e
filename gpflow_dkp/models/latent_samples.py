"""Posterior samples of latent variables, by resampling draws according to their importance weights."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf
from check_shapes import check_shapes

from ..random import Seed, as_seed


class LatentSamples(NamedTuple):
    """Draws of the latent variables of data points, of `LatentVariableDGP.sample_latents`.

    :param latents: [S, N, d], those of several latent-variable layers side by side.
    :param effective_sample_size: 1 / sum_k v_k^2 of a point's K normalised weights v_k, the mean over the S
        sets of them [N]: K where q(w) is the posterior itself, near 1 where more draws are needed.

    >>> model = gpflow_dkp.models.LatentVariableDGP.from_architecture("LV-GP", (X, Y), num_inducing=3)
    >>> samples = model.sample_latents((X, Y), 4, num_importance_samples=20, seed=0)
    >>> isinstance(samples, gpflow_dkp.models.LatentSamples), samples.latents.shape
    (True, TensorShape([4, 10, 1]))
    >>> bool(np.all((samples.effective_sample_size >= 1.0) & (samples.effective_sample_size <= 20.0)))
    True
    """

    latents: tf.Tensor
    effective_sample_size: tf.Tensor


@check_shapes("candidates: [R, K, d]", "log_weights: [R, K]", "return[0]: [R, d]", "return[1]: [R]")
def resample(
    candidates: tf.Tensor, log_weights: tf.Tensor, seed: Seed
) -> tuple[tf.Tensor, tf.Tensor]:
    """One of each row's K candidates, in proportion to its weight, and the row's effective sample size."""
    chosen = tf.random.stateless_categorical(log_weights, 1, as_seed(seed))
    log_shares = tf.nn.log_softmax(log_weights, -1)
    effective_size = tf.exp(-tf.reduce_logsumexp(2.0 * log_shares, -1))
    return tf.gather(candidates, chosen, batch_dims=1)[:, 0], effective_size
