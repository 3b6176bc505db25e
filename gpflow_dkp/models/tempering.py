"""Tempering: predictive variances times alpha, by held-out data ([NeurIPS22] A.6, docs/mathematics.md 9).

A `TemperedModel` predicts f with variances alpha r; `tempered` is the likelihood that goes with them, and
`best_temperature` finds alpha. Letters: N data points, P outputs.
"""

from __future__ import annotations

import abc
import math
from functools import singledispatch
from typing import Any

import gpflow
import numpy as np
import scipy.optimize
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow import Parameter
from gpflow.base import MeanAndVariance, RegressionData, TensorType
from gpflow.likelihoods import Gaussian, Likelihood, MultiClass
from gpflow.quadrature import hermgauss

from ..random import split
from .base import MonteCarloModel
from .checks import check_arrays
from .posterior import PREDICTION_BATCH, Posterior
from .sampled_likelihood import of_likelihood

LOG_TEMPERATURE = math.log(100.0)
"""Bound of a numerical search's |log alpha|."""

TEMPERED_QUADRATURE = 100
"""Points of the quadrature over a class' function, once the classes are tempered.

Where their variances differ much its integrand is nearly a step: with GPflow's 20 points a search over alpha
finds densities that are too high by up to 0.04."""

QUADRATURE_ROWS = 500
"""Rows of a quadrature at a time: it holds many arrays [J, 100] a row."""

MIN_TEMPERATURE = 1e-12
"""Least alpha of a Gaussian likelihood, for predictions without an error."""


class TemperedModel(MonteCarloModel, abc.ABC):
    """A model whose `condition_layers` gives variances of f times `temperature` [P], which `temper` chooses.

    Training ignores it. Arguments as in `MonteCarloModel`.
    """

    def __init__(self, likelihood: Likelihood, **settings: Any) -> None:
        super().__init__(likelihood, **settings)
        # By its logarithm, which is exactly 0 where it is 1.
        self.temperature = Parameter(
            np.ones(self.num_latent_gps), transform=tfp.bijectors.Exp(), trainable=False
        )

    @property
    def predictive_likelihood(self) -> Likelihood:
        """The likelihood, `tempered` as `temperature` says."""
        return tempered(self.likelihood, self.temperature.unconstrained_variable)

    def temper(self, data: RegressionData, *, batch_size: int | None = PREDICTION_BATCH) -> float:
        """Set `temperature` to what gives held-out data the highest density, and return its mean log.

        A Gaussian likelihood's predictive variance becomes alpha (r + s2), with alpha for each output the
        mean of (m_Q - y)^2 / (r + s2) ([NeurIPS22] equation 80); other likelihoods see alpha_j r_j, with
        the alphas, from 1/100 to 100, found numerically; probabilities of `MultiClass` then add up to 1.
        The held-out data are to have no part in training or testing.

        :param data: X [N, D] and Y [N, P].
        :raises ValueError: no rows, or values that are not finite.
        """
        X, Y = self._check_held_out(data)
        moments = self._untempered_moments(X, batch_size)
        self.temperature.assign(best_temperature(self.likelihood, X, Y, moments, batch_size))
        return float(tf.reduce_mean(self.predict_log_density((X, Y), batch_size=batch_size)))

    def held_out_log_density(self, data: RegressionData) -> float:
        """Mean log density of held-out data, tempered on them where the likelihood is Gaussian."""
        X, Y = self._check_held_out(data)
        if not isinstance(self.likelihood, Gaussian):  # whose best temperature takes no search
            return super().held_out_log_density((X, Y))
        moments = self._untempered_moments(X, PREDICTION_BATCH)
        alpha = best_temperature(self.likelihood, X, Y, moments, None)
        return tempered_log_density(self.likelihood, alpha, X, Y, moments)

    def _check_held_out(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        X, Y = self.check_data(data)
        if X.shape[0] == 0:
            raise ValueError("held-out data: got no rows, needs at least 1 to choose a temperature")
        check_arrays(X, Y, min_rows=1)
        return X, Y

    def _untempered_moments(self, X: tf.Tensor, batch_size: int | None) -> MeanAndVariance:
        """f's mean and variance [1, N, P]."""
        mean, variance = Posterior(self, 1).mixture_of_f(X, batch_size=batch_size)
        return mean, variance / self.temperature


@singledispatch
def tempered(likelihood: Likelihood, log_temperature: tf.Tensor) -> Likelihood:
    """The likelihood of predictions from moments of f whose variances are alpha r.

    Noise is tempered with f: a Gaussian likelihood's predictive variance is alpha (r + s2). Others are as
    they are, but that probabilities of `MultiClass` come of a finer quadrature and add up to 1. Of alpha = 1
    it is the likelihood's own. Register another with `@tempered.register(MyLikelihood)`.

    :param log_temperature: log alpha [P], 0 where untempered.
    """
    return likelihood


@tempered.register(Gaussian)
def _of_noise(likelihood: Gaussian, log_temperature: tf.Tensor) -> Likelihood:
    return Gaussian(TemperedVariance(likelihood, log_temperature), variance_lower_bound=0.0)


@tempered.register(MultiClass)
def _of_classes(likelihood: MultiClass, log_temperature: tf.Tensor) -> Likelihood:
    return TemperedClasses(likelihood, log_temperature)


class TemperedVariance(gpflow.functions.Function):
    """alpha s2 [N, P] at X [N, D]."""

    def __init__(self, likelihood: Gaussian, log_temperature: tf.Tensor) -> None:
        super().__init__()
        self._likelihood, self._log_temperature = likelihood, log_temperature

    def __call__(self, X: TensorType) -> tf.Tensor:
        """The tempered noise at X."""
        return tf.exp(self._log_temperature) * self._likelihood.variance_at(X)


class TemperedClasses(MultiClass):
    """`MultiClass` of variances that may differ much; exactly the likelihood given where untempered."""

    def __init__(self, likelihood: MultiClass, log_temperature: tf.Tensor) -> None:
        super().__init__(likelihood.num_classes, invlink=likelihood.invlink)
        self._likelihood, self._log_temperature = likelihood, log_temperature

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        def moments() -> MeanAndVariance:
            probabilities = self._probabilities(Fmu, Fvar)
            return probabilities, probabilities - tf.square(probabilities)

        untempered = self._likelihood.predict_mean_and_var
        return tf.cond(self._is_untempered(), lambda: untempered(X, Fmu, Fvar), moments)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        def log_density() -> tf.Tensor:
            labels = tf.cast(Y, tf.int32)
            return tf.math.log(
                tf.gather(self._probabilities(Fmu, Fvar), labels, batch_dims=1)[:, 0]
            )

        untempered = self._likelihood.predict_log_density
        return tf.cond(self._is_untempered(), lambda: untempered(X, Fmu, Fvar, Y), log_density)

    def _is_untempered(self) -> tf.Tensor:
        # Of the logarithm, whose 0 is exact: alpha may come back as 1 less a rounding.
        return tf.reduce_all(tf.equal(self._log_temperature, 0.0))

    def _probabilities(self, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
        """p(j) [N, J], which add up to 1, from moments [N, J] of any variances."""
        if tf.executing_eagerly() and len(mean) > QUADRATURE_ROWS:
            starts = range(0, len(mean), QUADRATURE_ROWS)
            rows = [slice(start, start + QUADRATURE_ROWS) for start in starts]
            return tf.concat([self._probabilities(mean[part], variance[part]) for part in rows], 0)
        link, nodes = self.invlink, hermgauss(TEMPERED_QUADRATURE)

        def largest(label: tf.Tensor) -> tf.Tensor:
            labels = label * tf.ones_like(mean[:, :1], label.dtype)
            return link.prob_is_largest(labels, mean, variance, *nodes)[:, 0]

        labels = tf.range(self.num_classes)
        # A loop, so that a graph of many classes takes no longer to trace.
        share = tf.transpose(tf.map_fn(largest, labels, fn_output_signature=mean.dtype))
        share /= tf.reduce_sum(share, 1, keepdims=True)
        return (1.0 - link.epsilon) * share + link.eps_k1 * (1.0 - share)


@check_shapes("temperature: [P]", "X: [N, D]", "Y: [N, Q]", "moments[all]: [1, N, P]")
def tempered_log_density(
    likelihood: Likelihood,
    temperature: np.ndarray,
    X: tf.Tensor,
    Y: tf.Tensor,
    moments: MeanAndVariance,
) -> float:
    """Mean log density of targets [N, P] at alpha [P], from f's untempered mean and variance [1, N, P]."""
    mean, variance = moments
    likelihood = tempered(likelihood, tf.math.log(tf.cast(temperature, mean.dtype)))
    scaled = mean, temperature * variance
    density = of_likelihood(likelihood, "predict_log_density", X, scaled, 0, Y, common_noise=True)
    return float(tf.reduce_mean(density))


@singledispatch
@check_shapes("X: [N, D]", "Y: [N, Q]", "moments[all]: [1, N, P]", "return: [P]")
def best_temperature(
    likelihood: Likelihood,
    X: tf.Tensor,
    Y: tf.Tensor,
    moments: MeanAndVariance,
    batch_size: int | None,
) -> np.ndarray:
    """alpha [P] of the highest density of Y [N, P], from f's untempered mean and variance [1, N, P].

    Found numerically from alpha = 1 on, between 1/100 and 100 for each output; of a Gaussian likelihood the
    mean of (m_Q - y)^2 / (r + s2) (equation 80).

    :param batch_size: rows at a time, None for all.
    """
    num_data, num_outputs = moments[0].shape[1:]
    size = batch_size or num_data
    mean, variance = moments
    batches = [
        (X[i : i + size], Y[i : i + size], mean[:, i : i + size], variance[:, i : i + size])
        for i in range(0, num_data, size)
    ]

    # Of a Monte Carlo likelihood's draws, the same as a prediction's.
    _, for_noise = split(0, 2)

    @tf.function(autograph=False)
    def objective(log_alpha: tf.Tensor, batch: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
        X, Y, mean, variance = batch
        with tf.GradientTape() as tape:
            tape.watch(log_alpha)
            scaled = mean, tf.exp(log_alpha) * variance
            at_alpha = tempered(likelihood, log_alpha)
            density = of_likelihood(
                at_alpha, "predict_log_density", X, scaled, for_noise, Y, common_noise=True
            )
            value = -tf.reduce_sum(density) / num_data
        return value, tape.gradient(value, log_alpha)

    def of_array(log_alpha: np.ndarray) -> tuple[float, np.ndarray]:
        at = tf.constant(log_alpha, mean.dtype)
        values, gradients = zip(*(objective(at, batch) for batch in batches), strict=True)
        return float(sum(values)), np.sum(gradients, 0).astype(float)

    bounds = [(-LOG_TEMPERATURE, LOG_TEMPERATURE)] * num_outputs
    # Next to 0, where classes are untempered and their quadrature is another one.
    start = np.full(num_outputs, 1e-9)
    found = scipy.optimize.minimize(of_array, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return np.exp(found.x)


@best_temperature.register(Gaussian)
@check_shapes("X: [N, D]", "Y: [N, P]", "moments[all]: [1, N, P]", "return: [P]")
def _by_residuals(
    likelihood: Gaussian,
    X: tf.Tensor,
    Y: tf.Tensor,
    moments: MeanAndVariance,
    batch_size: int | None,
) -> np.ndarray:
    mean, variance = (moment[0] for moment in moments)
    found = np.mean(np.square(Y - mean) / (variance + likelihood.variance_at(X)), 0)
    return np.maximum(found, MIN_TEMPERATURE)
