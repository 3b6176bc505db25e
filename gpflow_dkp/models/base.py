"""What all models share: a bound and predictions that average over samples of what the output needs."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance, RegressionData
from gpflow.likelihoods import Likelihood
from gpflow.models import BayesianModel, ExternalDataTrainingLossMixin

from ..checks import check_positive_integer
from ..random import Seed, as_seed, fold_in, normal, split
from .checks import check_labels, check_likelihood

PREDICTION_SAMPLES = 100
"""Samples of the hidden layers in a prediction, as in the papers' tests."""

PREDICTION_BATCH = 500
"""Data points predicted at a time: 100 samples of 100 inducing points take 80 kB a point."""

LIKELIHOOD_ELEMENTS = 2**24
"""Numbers in a Monte Carlo likelihood's copies of X, or of f, in an eager call: 128 MiB of doubles."""

EVERY_LAYER_FINITE = "every layer is finite, the likelihood or the gradient is not"
"""What `locate_failure` says when it finds nothing."""


class MonteCarloModel(BayesianModel, ExternalDataTrainingLossMixin, abc.ABC):
    """A model whose outputs are Gaussian at every data point given a sample of all that lies before.

    Any GPflow likelihood with variational expectations applies, and predictions are mixtures over the
    samples. Subclasses say how a sample is drawn.

    Letters: N data points, D input features, P outputs, S samples.

    :param likelihood: a GPflow likelihood with variational expectations.
    :param num_latent_gps: P.
    :param num_samples: S of the training objective.
    :param num_data: size of the training set when `elbo` is given minibatches.
    :param jitter: added to covariance matrices; default GPflow's.
    """

    def __init__(
        self,
        likelihood: Likelihood,
        *,
        num_latent_gps: int,
        num_samples: int,
        num_data: int | None,
        jitter: float | None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        check_likelihood(likelihood)
        check_positive_integer("num_latent_gps", num_latent_gps)
        check_positive_integer("num_samples", num_samples)
        if num_data is not None:
            check_positive_integer("num_data", num_data)
        jitter = gpflow.default_jitter() if jitter is None else jitter
        if not 0.0 <= jitter < np.inf:
            raise ValueError(f"jitter: got {jitter}, needs a finite number of at least 0")
        self.likelihood = likelihood
        self.num_latent_gps = num_latent_gps
        self.num_samples = num_samples
        self.num_data = num_data
        dtype = gpflow.default_float()
        self.jitter = tf.Variable(jitter, dtype=dtype, trainable=False, name="jitter")
        self.kl_weight = tf.Variable(1.0, dtype=dtype, trainable=False, name="kl_weight")

    # What a subclass says

    @property
    @abc.abstractmethod
    def num_features(self) -> int:
        """Columns D of the inputs."""

    @abc.abstractmethod
    def elbo_terms(
        self,
        data: RegressionData,
        *,
        num_samples: int | None = None,
        seed: Seed = None,
        rows: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The two terms of `elbo`: one that grows with the rows given, and the global log P - log Q."""

    @abc.abstractmethod
    def _output_moments(
        self, X: tf.Tensor, num_samples: int, seed: tf.Tensor, first: int = 0
    ) -> MeanAndVariance:
        """Mean and positive variance of the outputs given each sample [S, N, P], or one if all agree.

        :param first: offset of X in a larger set, whose other parts see the same global samples.
        """

    def check_num_data(self, num_data: int) -> None:  # most have nothing to check
        """Raise `ValueError` unless a training set of `num_data` rows is the one the model is for."""

    @abc.abstractmethod
    def training_settings(self) -> dict[str, Any]:
        """What a training run must agree on, beside the parameters, to go on from a checkpoint."""

    @abc.abstractmethod
    def locate_failure(self, X: tf.Tensor, seed: tf.Tensor) -> str:
        """One clause naming the first layer whose values are not finite at X [N, D]."""

    # The bound

    def elbo(
        self,
        data: RegressionData,
        *,
        num_samples: int | None = None,
        seed: Seed = None,
        rows: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Monte Carlo estimate of the evidence lower bound, of the whole training set [].

        (N / |B|) sum_n E_Q[log p(y_n | f_n)] + `kl_weight` E_Q[log P - log Q].

        :param data: X [B, D] and Y [B, P], a minibatch when `num_data` is set.
        :param num_samples: S, default the model's.
        :param seed: int or stateless seed; None draws fresh samples at each call.
        :param rows: which rows of the training set these are [B]; only models with parameters of
            their own for each data point ask for it.
        """
        expected, log_ratio = self.elbo_terms(data, num_samples=num_samples, seed=seed, rows=rows)
        scale = 1.0
        if self.num_data is not None:
            scale = self.num_data / tf.cast(tf.shape(data[0])[0], expected.dtype)
        return scale * expected + self.kl_weight * log_ratio

    def maximum_log_likelihood_objective(self, data: RegressionData) -> tf.Tensor:
        """The `elbo` of fresh samples."""
        return self.elbo(data)

    # Prediction

    def predict_f(
        self,
        Xnew: InputData,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        num_samples: int = PREDICTION_SAMPLES,
        seed: Seed = 0,
        batch_size: int | None = PREDICTION_BATCH,
    ) -> MeanAndVariance:
        """Mean and variance of the mixture over the hidden layers' samples, [N, P] each.

        :param Xnew: [N, D].
        :param full_cov: not available: the conditionals are drawn one data point at a time.
        :param full_output_cov: not available, the outputs being independent.
        :param num_samples: S.
        :param seed: int or stateless seed, so that a prediction repeats; None for a fresh one.
        :param batch_size: data points at a time, None for all at once.
        """
        if full_cov or full_output_cov:
            raise NotImplementedError(
                "predict_f: full_cov and full_output_cov must be False; data points are drawn one at "
                "a time given the inducing points"
            )
        return _mixture_moments(*self._predict_moments(Xnew, num_samples, seed, batch_size))

    def predict_y(
        self,
        Xnew: InputData,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        num_samples: int = PREDICTION_SAMPLES,
        seed: Seed = 0,
        batch_size: int | None = PREDICTION_BATCH,
    ) -> MeanAndVariance:
        """Mean and variance of new observations, [N, P] each; arguments as in `predict_f`."""
        if full_cov or full_output_cov:
            raise NotImplementedError("predict_y: full_cov and full_output_cov must be False")
        return _mixture_moments(
            *self.predict_mixture(Xnew, num_samples=num_samples, seed=seed, batch_size=batch_size)
        )

    def predict_mixture(
        self,
        Xnew: InputData,
        *,
        num_samples: int = PREDICTION_SAMPLES,
        seed: Seed = 0,
        batch_size: int | None = PREDICTION_BATCH,
    ) -> MeanAndVariance:
        """Mean and variance of new observations given each sample of the hidden layers, [S, N, P] each.

        With a Gaussian likelihood the predictive density is exactly the equal mixture of these
        Gaussians. S is 1 if there is no hidden layer. Arguments as in `predict_f`.
        """
        seed = as_seed(seed)
        moments = self._predict_moments(Xnew, num_samples, seed, batch_size)
        return self._of_likelihood("predict_mean_and_var", Xnew, moments, seed)

    def predict_log_density(
        self,
        data: RegressionData,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        num_samples: int = PREDICTION_SAMPLES,
        seed: Seed = 0,
        batch_size: int | None = PREDICTION_BATCH,
    ) -> tf.Tensor:
        """log of the mixture's density at each data point [N]; arguments as in `predict_f`."""
        if full_cov or full_output_cov:
            raise NotImplementedError("predict_log_density: full covariances are not available")
        X, Y = self._check_data(data)
        seed = as_seed(seed)
        moments = self._predict_moments(X, num_samples, seed, batch_size)
        density = self._of_likelihood("predict_log_density", X, moments, seed, Y)
        log_samples = tf.math.log(tf.cast(tf.shape(density)[0], density.dtype))
        return tf.reduce_logsumexp(density, 0) - log_samples

    def held_out_log_density(self, data: RegressionData) -> float:
        """Mean of `predict_log_density` over held-out data, by which training may choose."""
        return float(np.mean(self.predict_log_density(data)))

    def predict_quantiles(
        self,
        Xnew: InputData,
        levels: Sequence[float],
        *,
        num_samples: int = PREDICTION_SAMPLES,
        seed: Seed = 0,
        batch_size: int | None = PREDICTION_BATCH,
    ) -> tf.Tensor:
        """Quantiles of new observations [L, N, P], of the exact mixture of Gaussians.

        :param levels: L probabilities, each strictly between 0 and 1.
        :raises ValueError: for other levels, or a likelihood that is not Gaussian.

        Other arguments as in `predict_f`.
        """
        if not isinstance(self.likelihood, gpflow.likelihoods.Gaussian):
            raise ValueError(
                f"predict_quantiles: got likelihood {type(self.likelihood).__name__}, needs Gaussian, "
                "whose mixture has quantiles; use predict_f_samples for others"
            )
        try:
            probabilities = np.asarray(levels, dtype=float)
        except ValueError as error:
            raise ValueError(
                f"levels: got {levels}, needs numbers strictly between 0 and 1"
            ) from error
        if probabilities.ndim != 1 or not np.all((probabilities > 0) & (probabilities < 1)):
            raise ValueError(f"levels: got {levels}, needs numbers strictly between 0 and 1")
        mean, variance = self.predict_mixture(
            Xnew, num_samples=num_samples, seed=seed, batch_size=batch_size
        )
        return mixture_quantiles(mean, tf.sqrt(variance), probabilities)

    def predict_f_samples(
        self,
        Xnew: InputData,
        num_samples: int = PREDICTION_SAMPLES,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        seed: Seed = None,
        batch_size: int | None = PREDICTION_BATCH,
    ) -> tf.Tensor:
        """Independent draws of f at each data point [S, N, P], one a sample of the hidden layers."""
        if full_cov or full_output_cov:
            raise NotImplementedError("predict_f_samples: full covariances are not available")
        for_moments, for_f = split(seed, 2)
        mean, variance = self._predict_moments(Xnew, num_samples, for_moments, batch_size)
        noise = normal([num_samples, *tf.unstack(tf.shape(mean)[1:])], for_f, mean.dtype)
        return mean + tf.sqrt(variance) * noise

    @abc.abstractmethod
    def sample_prior(
        self, Xnew: InputData, num_samples: int = 1, *, seed: Seed = None
    ) -> tf.Tensor:
        """Joint draws of f from the prior [S, N, P]; costs O(N^3) a sample and layer.

        :param Xnew: [N, D].
        """

    def _predict_moments(
        self, Xnew: InputData, num_samples: int, seed: Seed, batch_size: int | None
    ) -> MeanAndVariance:
        """`_output_moments`, `batch_size` data points at a time."""
        check_positive_integer("num_samples", num_samples)
        if batch_size is not None:
            check_positive_integer("batch_size", batch_size)
        X = self._check_inputs(Xnew)
        seed = as_seed(seed)
        num_data = X.shape[0]
        if batch_size is None or num_data is None or num_data <= batch_size:
            return self._output_moments(X, num_samples, seed)
        batches = [
            self._output_moments(X[first : first + batch_size], num_samples, seed, first)
            for first in range(0, num_data, batch_size)
        ]
        mean, variance = zip(*batches, strict=True)
        return tf.concat(mean, 1), tf.concat(variance, 1)

    def _of_likelihood(
        self,
        method: str,
        X: tf.Tensor,
        moments: MeanAndVariance,
        seed: tf.Tensor,
        Y: tf.Tensor | None = None,
    ) -> Any:
        """A method of the likelihood on [S, N, P] moments: GPflow's multi-class ones are rank 2.

        GPflow copies X for each draw of a Monte Carlo likelihood. A compiled call drops the copies that
        are not used; an eager one goes through the rows in parts.
        """
        num_samples, num_data, num_outputs = tf.unstack(tf.shape(moments[0]))
        num_rows = num_samples * num_data
        flat = [tf.reshape(value, [num_rows, num_outputs]) for value in moments]
        X = tf.cast(tf.convert_to_tensor(X), flat[0].dtype)
        data = [X] if Y is None else [X, Y]
        at_a_time = self._likelihood_rows(X.shape[-1]) if tf.executing_eagerly() else None
        if at_a_time is None or num_rows <= at_a_time:
            tiled = [tf.tile(values, [num_samples, 1]) for values in data]
            result = self._of_rows(method, tiled, flat, seed)
        else:
            parts = []
            for first in range(0, int(num_rows), at_a_time):
                rows = tf.range(first, min(first + at_a_time, int(num_rows)))
                of_data = [tf.gather(values, rows % num_data) for values in data]
                of_moments = [tf.gather(values, rows) for values in flat]
                parts.append(self._of_rows(method, of_data, of_moments, fold_in(seed, first)))
            result = tf.nest.map_structure(lambda *values: tf.concat(values, 0), *parts)

        def unflatten(value: tf.Tensor) -> tf.Tensor:
            return tf.reshape(value, tf.concat([[num_samples, num_data], tf.shape(value)[1:]], 0))

        return tf.nest.map_structure(unflatten, result)

    def _of_rows(
        self, method: str, data: list[tf.Tensor], moments: list[tf.Tensor], seed: tf.Tensor
    ) -> Any:
        """A method of the likelihood on rows of X, and of Y if it is given, and on [rows, P] moments.

        GPflow's Monte Carlo likelihoods draw without a seed; their private methods take the draws.
        """
        arguments = [data[0], *moments, *data[1:]]
        if not isinstance(self.likelihood, gpflow.likelihoods.MonteCarloLikelihood):
            return getattr(self.likelihood, method)(*arguments)
        mean = moments[0]
        draws = [self.likelihood.num_monte_carlo_points, *tf.unstack(tf.shape(mean))]
        epsilon = normal(draws, fold_in(seed, 1), mean.dtype)
        return getattr(self.likelihood, f"_{method}")(*arguments, epsilon=epsilon)

    def _likelihood_rows(self, num_features: int) -> int:
        """Rows that an eager call of the likelihood takes at a time."""
        copies = getattr(self.likelihood, "num_monte_carlo_points", 1)
        return max(1, LIKELIHOOD_ELEMENTS // (copies * max(num_features, self.num_latent_gps)))

    def _number_of_samples(self, num_samples: int | None) -> int:
        """S of the objective: as given, or the model's."""
        if num_samples is None:
            return self.num_samples
        check_positive_integer("num_samples", num_samples)
        return num_samples

    def _check_data(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        """X [N, D] and Y [N, P] as tensors that the kernels and the likelihood take."""
        X, Y = (tf.convert_to_tensor(part) for part in data)
        if (
            X.shape.rank != 2
            or Y.shape.rank != 2
            or not X.shape[:1].is_compatible_with(Y.shape[:1])
        ):
            raise ValueError(f"data: got X {X.shape} and Y {Y.shape}, needs X [N, D] and Y [N, P]")
        likelihood = self.likelihood
        softmax = isinstance(likelihood, gpflow.likelihoods.Softmax)
        one_label = softmax or isinstance(likelihood, gpflow.likelihoods.MultiClass)
        columns = likelihood.observation_dim or (1 if one_label else self.num_latent_gps)
        if not Y.shape[1:].is_compatible_with([columns]):
            raise ValueError(
                f"data: got Y {Y.shape}, needs {columns} columns for {likelihood.name}"
            )
        check_labels(likelihood, Y)
        # GPflow's Softmax indexes with the labels, its MultiClass compares them.
        return self._check_inputs(X), tf.cast(Y, tf.int64 if softmax else gpflow.default_float())

    def _check_inputs(self, X: InputData) -> tf.Tensor:
        """X [N, D] as a tensor in GPflow's default float, with as many columns as the inducing points."""
        X = tf.convert_to_tensor(X)
        if X.shape.rank != 2:
            raise ValueError(f"data: got X {X.shape}, needs X [N, D]")
        if not X.shape[1:].is_compatible_with([self.num_features]):
            raise ValueError(
                f"data: got X {X.shape}, needs {self.num_features} columns as the inducing points have"
            )
        return tf.cast(X, gpflow.default_float())


def all_finite(value: tf.Tensor) -> bool:
    """Whether no entry is NaN or infinite."""
    return bool(tf.reduce_all(tf.math.is_finite(value)))


def mixture_quantiles(mean: tf.Tensor, scale: tf.Tensor, levels: np.ndarray) -> tf.Tensor:
    """Quantiles of equal mixtures of Gaussians, by bisection of the distribution function.

    :param mean: [S, ...].
    :param scale: standard deviations [S, ...].
    :param levels: probabilities [L].
    :returns: [L, ...].
    """
    target = tf.reshape(tf.constant(levels, mean.dtype), [-1] + [1] * (mean.shape.rank - 1))
    component = mean + scale * tf.math.ndtri(target)[:, None]
    low, high = tf.reduce_min(component, 1), tf.reduce_max(component, 1)
    for _ in range(60):
        middle = 0.5 * (low + high)
        standardised = (middle[:, None] - mean) / scale
        below = tf.reduce_mean(_normal_cdf(standardised), 1) < target
        low, high = tf.where(below, middle, low), tf.where(below, high, middle)
    return 0.5 * (low + high)


def _normal_cdf(value: tf.Tensor) -> tf.Tensor:
    return 0.5 * tf.math.erfc(-value / tf.sqrt(tf.constant(2.0, value.dtype)))


def _mixture_moments(mean: tf.Tensor, variance: tf.Tensor) -> MeanAndVariance:
    """Mean and variance of equal mixtures over the first axis."""
    return tf.reduce_mean(mean, 0), tf.reduce_mean(variance, 0) + tf.math.reduce_variance(mean, 0)
