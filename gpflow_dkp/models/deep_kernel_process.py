"""The deep kernel process: a chain of kernels and stochastic layers with one Gaussian-process output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gpflow
import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance, RegressionData
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from .. import gram
from ..chains import chain_sizes
from ..checks import check_choice, check_inducing_variable, check_positive_integer
from ..gram import GramBlocks
from ..layers import GlobalInducingGP, Layer, Marginals
from ..layers.base import MIN_VARIANCE
from ..random import Seed, as_seed, fold_in, split
from .base import EVERY_LAYER_FINITE, MonteCarloModel, all_finite
from .checks import check_kernels


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


class DeepKernelProcess(MonteCarloModel):
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
        super().__init__(
            likelihood,
            num_latent_gps=num_latent_gps,
            num_samples=num_samples,
            num_data=num_data,
            jitter=jitter,
            name=name,
        )
        kernels = check_kernels(kernels)
        for kernel in kernels[self._num_input_kernels :]:
            gram.check_computable_from_gram(kernel, features=self._draws_features)
        self.kernels = kernels
        self.inducing_variable = check_inducing_variable(inducing_variable)
        self.hidden_layers = list(hidden_layers)
        self.output_layer = GlobalInducingGP(
            self.inducing_variable.Z.shape[0], num_latent_gps, output=True
        )
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

    @property
    def num_features(self) -> int:
        """Columns D of the inputs, as many as the inducing points have."""
        return self._Z.shape[1]

    # The bound

    def elbo_terms(
        self,
        data: RegressionData,
        *,
        num_samples: int | None = None,
        seed: Seed = None,
        rows: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The two terms of `elbo`: sum_n E_Q[log p(y_n | f_n)] of the rows given, E_Q[log P - log Q]."""
        X, Y = self._check_data(data)
        seed = as_seed(seed)
        marginals = self._marginals(X, self._number_of_samples(num_samples), seed)
        moments = self._moments(marginals)
        expected = self._of_likelihood("variational_expectations", X, moments, seed, Y)
        return tf.reduce_mean(tf.reduce_sum(expected, -1)), tf.reduce_mean(marginals.log_ratio)

    def prior_kl(self, *, num_samples: int | None = None, seed: Seed = None) -> tf.Tensor:
        """Monte Carlo estimate of KL(Q || P) of all layers []."""
        num_samples = self._number_of_samples(num_samples)
        log_ratio = self._marginals(self._Z[:1], num_samples, as_seed(seed)).log_ratio
        return -tf.reduce_mean(log_ratio)

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

        :param first: offset of X in a larger set, whose other parts see the same inducing samples.
        :returns: mean [S, N, P], variance [S, N], log_ratio [S].
        """
        parts = []
        for covariance, log_ratio in self._output_covariances(X, num_samples, seed, first):
            marginals = self.output_layer.marginals(covariance)
            if not self.hidden_layers:
                return Marginals(*(value[None] for value in marginals))
            parts.append(marginals._replace(log_ratio=marginals.log_ratio + log_ratio))
        return Marginals(*(tf.concat(values, 0) for values in zip(*parts, strict=True)))

    def _output_covariances(
        self, X: tf.Tensor, num_samples: int, seed: tf.Tensor, first: int = 0
    ) -> list[tuple[GramBlocks, tf.Tensor]]:
        """The output layer's K given samples of the hidden layers, with the latter's log P - log Q.

        The samples go through the layers after the first in independent chains, one for each of
        TensorFlow's inter-op threads; an entry a chain. One K without sample dimension if there are no
        hidden layers.
        """
        covariance = self._input_covariance(self.inducing_variable, X)
        if not self.hidden_layers:
            return [(covariance, tf.zeros([], covariance.ii.dtype))]
        num_data = tf.shape(X)[0]
        seeds = split(seed, len(self.hidden_layers))
        noise = [
            layer.sample_noise(num_samples, num_data, layer_seed, first)
            for layer, layer_seed in zip(self.hidden_layers, seeds, strict=True)
        ]
        sample, log_ratio = self.hidden_layers[0].propagate_noise(covariance, noise[0])
        sizes = chain_sizes(num_samples)
        samples, log_ratios = sample.split(sizes), tf.split(log_ratio, sizes)
        chain_noise = [
            list(zip(*(tf.split(part, sizes) for part in layer_noise), strict=True))
            for layer_noise in noise[1:]
        ]
        return [
            self._chain(sample, log_ratio, [layer_noise[i] for layer_noise in chain_noise])
            for i, (sample, log_ratio) in enumerate(zip(samples, log_ratios, strict=True))
        ]

    def _chain(
        self, sample: GramBlocks, log_ratio: tf.Tensor, noise: list[Any]
    ) -> tuple[GramBlocks, tf.Tensor]:
        """From a sample of the first hidden layer to the output layer's K."""
        for layer, kernel, layer_noise in zip(
            self.hidden_layers[1:], self._gram_kernels[:-1], noise, strict=True
        ):
            sample, ratio = layer.propagate_noise(self._covariance(kernel, sample), layer_noise)
            log_ratio += ratio
        return self._covariance(self.kernels[-1], sample), log_ratio

    def output_sites(
        self, data: RegressionData, *, seed: Seed = None, rows: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The data's part of the natural gradient in the output layer's posterior.

        Given the hidden layers, the posterior of the inducing values is proportional to their prior
        times a Gaussian of natural parameters (Lambda v, -Lambda / 2). What is returned takes the place
        of Lambda v [M, P] and Lambda [M, M] after a whole step: the gradients of the expected
        log-likelihood of the rows given in the expectations of the inducing values, averaged over the
        samples of the hidden layers.
        """
        X, Y = self._check_data(data)
        seed = as_seed(seed)
        sites = []
        for i, (covariance, _) in enumerate(self._output_covariances(X, self.num_samples, seed)):
            marginals = self.output_layer.marginals(covariance)
            if not self.hidden_layers:
                marginals = Marginals(*(value[None] for value in marginals))
                covariance = GramBlocks(*(block[None] for block in covariance.blocks))
            mean, variance = self._moments(marginals)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch([mean, variance])
                expected = self._of_likelihood(
                    "variational_expectations", X, (mean, variance), fold_in(seed, i), Y
                )
            d_mean, d_variance = tape.gradient(expected, [mean, variance])
            sites.append(self.output_layer.sites(covariance, mean, d_mean, d_variance))
        num_samples = self.num_samples if self.hidden_layers else 1
        return tuple(tf.add_n(parts) / num_samples for parts in zip(*sites, strict=True))

    def _output_moments(
        self, X: tf.Tensor, num_samples: int, seed: tf.Tensor, first: int = 0
    ) -> MeanAndVariance:
        return self._moments(self._marginals(X, num_samples, seed, first))

    def _moments(self, marginals: Marginals) -> MeanAndVariance:
        """Mean and variance, which the outputs share, as [S, N, P] each; the variance positive."""
        variance = tf.maximum(marginals.variance, MIN_VARIANCE[marginals.variance.dtype])
        return marginals.mean, tf.broadcast_to(variance[..., None], tf.shape(marginals.mean))

    # For training

    def training_settings(self) -> dict[str, Any]:
        """Number of samples, precision, and the form of each hidden layer."""
        layers = [
            [getattr(layer, "posterior", None), getattr(layer, "log_ratio", None)]
            for layer in self.hidden_layers
        ]
        return {"num_samples": self.num_samples, "precision": self.precision, "layers": layers}

    def locate_failure(self, X: tf.Tensor, seed: tf.Tensor) -> str:
        """One clause naming the first layer whose values or log-ratio are not finite at X [N, D]."""
        covariance = self._input_covariance(self.inducing_variable, X)
        seeds = split(seed, max(1, len(self.hidden_layers)))
        for number, (layer, kernel) in enumerate(
            zip(self.hidden_layers, self._gram_kernels, strict=True), 1
        ):
            where = f"hidden layer {number} of {len(self.hidden_layers)} ({type(layer).__name__})"
            if not all_finite(covariance.ii):
                return f"{where} gets a covariance that is not finite"
            sample, log_ratio = layer.propagate(
                covariance, seed=seeds[number - 1], num_samples=self.num_samples
            )
            if not all_finite(log_ratio) or not all_finite(sample.ii):
                return f"{where} gives values that are not finite"
            covariance = self._covariance(kernel, sample)
        if not all(all_finite(part) for part in self.output_layer.marginals(covariance)):
            return "the output layer gives values that are not finite"
        return EVERY_LAYER_FINITE
