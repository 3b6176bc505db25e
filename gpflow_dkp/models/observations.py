"""The distribution of an observation given f, which GPflow's likelihoods have the density of only."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import likelihoods
from gpflow.likelihoods import Likelihood

from ..random import Seed, as_seed

tfd = tfp.distributions


def sample_observations(
    likelihood: Likelihood, X: tf.Tensor, f: tf.Tensor, seed: Seed
) -> tf.Tensor:
    """Draws of observations given f [S, N, P] at X [N, D], each its own: [S, N, columns of Y]."""
    num_samples, num_data, _ = tf.unstack(tf.shape(f))
    flat = tf.reshape(f, [num_samples * num_data, f.shape[-1]])
    tiled = tf.tile(tf.cast(X, f.dtype), [num_samples, 1])
    draws = observation_distribution(likelihood, tiled, flat).sample(seed=as_seed(seed))
    draws = tf.cast(draws, f.dtype)
    return tf.reshape(draws, [num_samples, num_data, -1])


@singledispatch
def observation_distribution(likelihood: Likelihood, X: tf.Tensor, F: tf.Tensor) -> Any:
    """p(y | f) as a tfp Distribution, for f [N, P] at X [N, D].

    Register a likelihood of your own with `@observation_distribution.register(MyLikelihood)`.

    :raises ValueError: for a likelihood that has no registration.

    >>> f = np.zeros([10, 1])
    >>> poisson = gpflow.likelihoods.Poisson()
    >>> counts = gpflow_dkp.models.observation_distribution(poisson, X, f)
    >>> np.allclose(counts.mean(), 1.0)  # exp(0)
    True
    """
    raise ValueError(
        f"likelihood: got {type(likelihood).__name__}, of which no distribution is known; register it "
        "with @gpflow_dkp.models.observation_distribution.register"
    )


@observation_distribution.register(likelihoods.Gaussian)
def _gaussian(likelihood: likelihoods.Gaussian, X: tf.Tensor, F: tf.Tensor) -> Any:
    return tfd.Normal(F, tf.sqrt(likelihood.conditional_variance(X, F)))


@observation_distribution.register(likelihoods.StudentT)
def _student_t(likelihood: likelihoods.StudentT, X: tf.Tensor, F: tf.Tensor) -> Any:
    scale = tf.convert_to_tensor(likelihood.scale)
    return tfd.StudentT(tf.cast(likelihood.df, F.dtype), F, scale)


@observation_distribution.register(likelihoods.Bernoulli)
def _bernoulli(likelihood: likelihoods.Bernoulli, X: tf.Tensor, F: tf.Tensor) -> Any:
    return tfd.Bernoulli(probs=likelihood.invlink(F))


@observation_distribution.register(likelihoods.Poisson)
def _poisson(likelihood: likelihoods.Poisson, X: tf.Tensor, F: tf.Tensor) -> Any:
    return tfd.Poisson(likelihood.invlink(F) * likelihood.binsize)


@observation_distribution.register(likelihoods.Exponential)
def _exponential(likelihood: likelihoods.Exponential, X: tf.Tensor, F: tf.Tensor) -> Any:
    return tfd.Exponential(1.0 / likelihood.invlink(F))


@observation_distribution.register(likelihoods.MultiClass)
@observation_distribution.register(likelihoods.Softmax)
def _classes(likelihood: Likelihood, X: tf.Tensor, F: tf.Tensor) -> Any:
    return tfd.Categorical(probs=likelihood.conditional_mean(X, F))


@observation_distribution.register(likelihoods.HeteroskedasticTFPConditional)
def _conditional(
    likelihood: likelihoods.HeteroskedasticTFPConditional, X: tf.Tensor, F: tf.Tensor
) -> Any:
    return likelihood.conditional_distribution(F)
