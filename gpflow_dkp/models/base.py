"""The deep kernel process: a chain of kernels and stochastic layers with one Gaussian-process output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance, RegressionData
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.models import BayesianModel, ExternalDataTrainingLossMixin

from .. import gram
from ..gram import GramBlocks
from ..layers import GlobalInducingGP, Layer, Marginals
from ..layers.base import MIN_VARIANCE, check_choice, check_positive_integer
from ..random import Seed, as_seed, fold_in, normal, split
from .checks import check_inducing_variable, check_kernels, check_labels

PREDICTION_SAMPLES = 100
"""Samples of the hidden layers in a prediction, as in the papers' tests."""

PREDICTION_BATCH = 500
"""Data points predicted at a time: 100 samples of 100 inducing points take 80 kB a point."""


class Precision(NamedTuple):
    """What is computed in which precision; inducing blocks are always in GPflow's default float.

    :param data: the blocks of the data points, forward.
    :param gradient: the backward products of the data points' conditionals.
    """

    data: tf.DType
    gradient: tf.DType


def precision_of(name: str) -> Precision:
    """The precision of a name: "full", "mixed-gradient" or "mixed"."""
    check_choice("precision", name, ("full", "mixed-gradient", "mixed"))
    full = gpflow.default_float()
    return {
        "full": Precision(full, full),
        "mixed-gradient": Precision(full, tf.float32),
        "mixed": Precision(tf.float32, tf.float32),
    }[name]


class DeepKernelProcess(BayesianModel, ExternalDataTrainingLossMixin):
    """Kernels and stochastic layers in turn, from the inputs to one GP output layer.

    Subclasses choose the hidden layers. `kernels[0]` acts on the inputs, the others on Gram matrices.
    The output layer is marginalised: given the hidden layers, f is Gaussian at every data point, so
    any GPflow likelihood with variational expectations applies, and predictions are mixtures over
    the samples of the hidden layers.

    Letters: N data points, D input features, P outputs, M inducing points, S samples.

    :param kernels: one GPflow kernel a layer, output included.
    :param likelihood: a GPflow likelihood with variational expectations.
    :param inducing_variable: Z [M, D], an array or GPflow inducing points.
    :param hidden_layers: one layer before each kernel on Gram matrices.
    :param num_latent_gps: P.
    :param num_samples: S of the training objective.
    :param num_data: size of the training set when `elbo` is given minibatches.
    :param jitter: added to every covariance matrix and its diagonal; default GPflow's.
    :param precision: "full", or "mixed-gradient" or "mixed" for single precision in the backward
        products or throughout the blocks of the data points.
    """

    _num_input_kernels = 1
    """How many of the kernels act on the inputs, before any layer."""

    _draws_features = False
    """Whether the hidden layers' posteriors draw features, not only their Gram matrix."""

    def __init__(
        self,
        kernels: Sequence[Kernel],
        likelihood: Likelihood,
        inducing_variable: InducingVariables | tf.Tensor,
        hidden_layers: Sequence[Layer],
        *,
        num_latent_gps: int = 1,
        num_samples: int = 10,
        num_data: int | None = None,
        jitter: float | None = None,
        precision: str = "full",
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        check_positive_integer("num_latent_gps", num_latent_gps)
        check_positive_integer("num_samples", num_samples)
        if num_data is not None:
            check_positive_integer("num_data", num_data)
        jitter = gpflow.default_jitter() if jitter is None else jitter
        if not 0.0 <= jitter < np.inf:
            raise ValueError(f"jitter: got {jitter}, needs a finite number of at least 0")
        kernels = check_kernels(kernels)
        for kernel in kernels[self._num_input_kernels :]:
            gram.check_computable_from_gram(kernel, features=self._draws_features)
        self.kernels = kernels
        self.likelihood = likelihood
        self.inducing_variable = check_inducing_variable(inducing_variable)
        self.hidden_layers = list(hidden_layers)
        self.output_layer = GlobalInducingGP(
            self.inducing_variable.Z.shape[0], num_latent_gps, output=True
        )
        self.num_latent_gps = num_latent_gps
        self.num_samples = num_samples
        self.num_data = num_data
        dtype = gpflow.default_float()
        self.jitter = tf.Variable(jitter, dtype=dtype, trainable=False, name="jitter")
        self.kl_weight = tf.Variable(1.0, dtype=dtype, trainable=False, name="kl_weight")
        self.precision = precision

    @property
    def precision(self) -> str:
        """ "full", "mixed-gradient" or "mixed"."""
        return self._precision

    @precision.setter
    def precision(self, name: str) -> None:
        gradient = precision_of(name).gradient
        for layer in [*self.hidden_layers, self.output_layer]:
            layer.gradient_dtype = gradient
        self._precision = name

    # The bound

    def elbo(
        self, data: RegressionData, *, num_samples: int | None = None, seed: Seed = None
    ) -> tf.Tensor:
        """Monte Carlo estimate of the evidence lower bound, of the whole training set [].

        (N / |B|) sum_n E_Q[log p(y_n | f_n)] + `kl_weight` E_Q[log P - log Q].

        :param data: X [B, D] and Y [B, P], a minibatch when `num_data` is set.
        :param num_samples: S, default the model's.
        :param seed: int or stateless seed; None draws fresh samples at each call.
        """
        expected, log_ratio = self.elbo_terms(data, num_samples=num_samples, seed=seed)
        scale = 1.0
        if self.num_data is not None:
            scale = self.num_data / tf.cast(tf.shape(data[0])[0], expected.dtype)
        return scale * expected + self.kl_weight * log_ratio

    def elbo_terms(
        self, data: RegressionData, *, num_samples: int | None = None, seed: Seed = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The two terms of `elbo`: sum_n E_Q[log p(y_n | f_n)] of the rows given, E_Q[log P - log Q]."""
        X, Y = self._check_data(data)
        seed = as_seed(seed)
        marginals = self._marginals(X, self._number_of_samples(num_samples), seed)
        expected = self._of_likelihood("variational_expectations", X, marginals, seed, Y)
        return tf.reduce_mean(tf.reduce_sum(expected, -1)), tf.reduce_mean(marginals.log_ratio)

    def maximum_log_likelihood_objective(self, data: RegressionData) -> tf.Tensor:
        """The `elbo` of fresh samples."""
        return self.elbo(data)

    def prior_kl(self, *, num_samples: int | None = None, seed: Seed = None) -> tf.Tensor:
        """Monte Carlo estimate of KL(Q || P) of all layers []."""
        num_samples = self._number_of_samples(num_samples)
        log_ratio = self._marginals(self._Z[:1], num_samples, as_seed(seed)).log_ratio
        return -tf.reduce_mean(log_ratio)

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
        marginals = self._predict_marginals(Xnew, num_samples, seed, batch_size)
        return _mixture_moments(marginals.mean, self._output_variance(marginals))

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
        marginals = self._predict_marginals(Xnew, num_samples, seed, batch_size)
        return self._of_likelihood("predict_mean_and_var", Xnew, marginals, seed)

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
        marginals = self._predict_marginals(X, num_samples, seed, batch_size)
        density = self._of_likelihood("predict_log_density", X, marginals, seed, Y)
        log_samples = tf.math.log(tf.cast(tf.shape(density)[0], density.dtype))
        return tf.reduce_logsumexp(density, 0) - log_samples

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
        for_marginals, for_f = split(seed, 2)
        marginals = self._predict_marginals(Xnew, num_samples, for_marginals, batch_size)
        if not self.hidden_layers:
            marginals = Marginals(*(tf.repeat(value, num_samples, axis=0) for value in marginals))
        noise = normal(tf.unstack(tf.shape(marginals.mean)), for_f, marginals.mean.dtype)
        return marginals.mean + tf.sqrt(self._output_variance(marginals)) * noise

    def sample_prior(
        self, Xnew: InputData, num_samples: int = 1, *, seed: Seed = None
    ) -> tf.Tensor:
        """Joint draws of f from the prior [S, N, P]; costs O(N^3) a sample and layer.

        :param Xnew: [N, D].
        """
        check_positive_integer("num_samples", num_samples)
        Xnew = self._check_inputs(Xnew)
        seeds = split(seed, len(self.hidden_layers) + 1)
        covariance = self._input_covariance(Xnew, Xnew[:1])
        for layer, kernel, layer_seed in zip(
            self.hidden_layers, self._gram_kernels, seeds[:-1], strict=True
        ):
            sample = layer.prior_sample(covariance, seed=layer_seed, num_samples=num_samples)
            covariance = self._covariance(kernel, sample)
        sample = self.output_layer.prior_sample(covariance, seed=seeds[-1], num_samples=num_samples)
        return sample.inducing

    # What a pass is made of

    @property
    def _Z(self) -> tf.Tensor:
        return tf.convert_to_tensor(self.inducing_variable.Z)

    def _input_covariance(self, Z: InducingVariables | tf.Tensor, X: tf.Tensor) -> GramBlocks:
        """The first kernel on the inputs, with jitter, without a sample dimension."""
        blocks = gram.from_inputs(self.kernels[0], Z, X)
        return blocks.with_jitter(self.jitter).with_data_dtype(self._data_dtype)

    def _covariance(self, kernel: Kernel, sample: GramBlocks) -> GramBlocks:
        return gram.covariance(kernel, sample).with_jitter(self.jitter)

    @property
    def _gram_kernels(self) -> list[Kernel]:
        """The kernels on Gram matrices, one after each hidden layer."""
        return self.kernels[self._num_input_kernels :]

    @property
    def _data_dtype(self) -> tf.DType:
        return precision_of(self.precision).data

    def _marginals(
        self, X: tf.Tensor, num_samples: int, seed: tf.Tensor, first: int = 0
    ) -> Marginals:
        """The output layer's marginals given S samples of the hidden layers, S = 1 if there are none.

        The samples go through the layers after the first in independent chains, one for each of
        TensorFlow's inter-op threads.

        :param first: offset of X in a larger set, whose other parts see the same inducing samples.
        :returns: mean [S, N, P], variance [S, N], log_ratio [S].
        """
        covariance = self._input_covariance(self.inducing_variable, X)
        if not self.hidden_layers:
            return Marginals(*(value[None] for value in self.output_layer.marginals(covariance)))
        num_data = tf.shape(X)[0]
        seeds = split(seed, len(self.hidden_layers))
        noise = [
            layer.sample_noise(num_samples, num_data, layer_seed, first)
            for layer, layer_seed in zip(self.hidden_layers, seeds, strict=True)
        ]
        sample, log_ratio = self.hidden_layers[0].propagate_noise(covariance, noise[0])
        sizes = _chain_sizes(num_samples)
        samples, log_ratios = sample.split(sizes), tf.split(log_ratio, sizes)
        chain_noise = [
            list(zip(*(tf.split(part, sizes) for part in layer_noise), strict=True))
            for layer_noise in noise[1:]
        ]
        chains = [
            self._chain(sample, log_ratio, [layer_noise[i] for layer_noise in chain_noise])
            for i, (sample, log_ratio) in enumerate(zip(samples, log_ratios, strict=True))
        ]
        return Marginals(*(tf.concat(parts, 0) for parts in zip(*chains, strict=True)))

    def _chain(self, sample: GramBlocks, log_ratio: tf.Tensor, noise: list[Any]) -> Marginals:
        """From a sample of the first hidden layer to the output layer's marginals."""
        for layer, kernel, layer_noise in zip(
            self.hidden_layers[1:], self._gram_kernels[:-1], noise, strict=True
        ):
            sample, ratio = layer.propagate_noise(self._covariance(kernel, sample), layer_noise)
            log_ratio += ratio
        marginals = self.output_layer.marginals(self._covariance(self.kernels[-1], sample))
        return marginals._replace(log_ratio=marginals.log_ratio + log_ratio)

    def _predict_marginals(
        self, Xnew: InputData, num_samples: int, seed: Seed, batch_size: int | None
    ) -> Marginals:
        check_positive_integer("num_samples", num_samples)
        if batch_size is not None:
            check_positive_integer("batch_size", batch_size)
        X = self._check_inputs(Xnew)
        seed = as_seed(seed)
        num_data = X.shape[0]
        if batch_size is None or num_data is None or num_data <= batch_size:
            return self._marginals(X, num_samples, seed)
        batches = [
            self._marginals(X[first : first + batch_size], num_samples, seed, first)
            for first in range(0, num_data, batch_size)
        ]
        mean, variance, log_ratios = zip(*batches, strict=True)
        return Marginals(tf.concat(mean, 1), tf.concat(variance, 1), log_ratios[0])

    def _output_variance(self, marginals: Marginals) -> tf.Tensor:
        """The variance, shared by the outputs, as [S, N, P], positive."""
        variance = tf.maximum(marginals.variance, MIN_VARIANCE[marginals.variance.dtype])
        return tf.broadcast_to(variance[..., None], tf.shape(marginals.mean))

    def _of_likelihood(
        self,
        method: str,
        X: tf.Tensor,
        marginals: Marginals,
        seed: tf.Tensor,
        Y: tf.Tensor | None = None,
    ) -> Any:
        """A method of the likelihood on [S, N, P] moments: GPflow's multi-class ones are rank 2.

        GPflow's Monte Carlo likelihoods draw without a seed; their private methods take the draws.
        """
        shape = tf.shape(marginals.mean)
        num_samples, num_data, num_outputs = shape[0], shape[1], shape[2]
        rows = [num_samples * num_data, num_outputs]
        X = tf.cast(tf.convert_to_tensor(X), marginals.mean.dtype)
        arguments = [
            tf.tile(X, [num_samples, 1]),
            tf.reshape(marginals.mean, rows),
            tf.reshape(self._output_variance(marginals), rows),
        ]
        if Y is not None:
            arguments.append(tf.tile(Y, [num_samples, 1]))
        if isinstance(self.likelihood, gpflow.likelihoods.MonteCarloLikelihood):
            draws = [self.likelihood.num_monte_carlo_points, *rows]
            epsilon = normal(draws, fold_in(seed, 1), marginals.mean.dtype)
            result = getattr(self.likelihood, f"_{method}")(*arguments, epsilon=epsilon)
        else:
            result = getattr(self.likelihood, method)(*arguments)

        def unflatten(value: tf.Tensor) -> tf.Tensor:
            return tf.reshape(value, tf.concat([[num_samples, num_data], tf.shape(value)[1:]], 0))

        if isinstance(result, tuple):
            return tuple(unflatten(value) for value in result)
        return unflatten(result)

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
        num_features = self._Z.shape[1]
        if not X.shape[1:].is_compatible_with([num_features]):
            raise ValueError(
                f"data: got X {X.shape}, needs {num_features} columns as the inducing points have"
            )
        return tf.cast(X, gpflow.default_float())


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


def _chain_sizes(num_samples: int) -> list[int]:
    """Samples a chain: one chain for each inter-op thread, where intra-op parallelism is off."""
    threads = tf.config.threading
    parallel = threads.get_intra_op_parallelism_threads() == 1
    chains = threads.get_inter_op_parallelism_threads() if parallel else 1
    chains = max(1, min(chains, num_samples))
    return [num_samples // chains + (i < num_samples % chains) for i in range(chains)]
