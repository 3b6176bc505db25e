"""The deep kernel process: a chain of stochastic layers on Gram matrices with one Gaussian-process output."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import gpflow
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import InputData, MeanAndVariance, RegressionData
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel, SeparateIndependent
from gpflow.likelihoods import Likelihood

from .. import gram
from ..checks import (
    brief,
    check_choice,
    check_inducing_variable,
    check_positive_integer,
    num_points_and_features,
)
from ..gram import GramBlocks, InputBlocks
from ..layers import GramLayer, InputInverseWishart, OutputLayer, SampledLayer
from ..parallel import map_over_samples
from ..random import Seed, as_seed, split
from .base import EVERY_LAYER_FINITE, MonteCarloModel, all_finite
from .checks import check_kernel_on_inputs, check_mean_function, check_outputs_of_layers
from .sampled_likelihood import of_likelihood


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
    """Stochastic layers on Gram matrices, from the inputs to one GP output layer.

    Each layer's kernel acts on the Gram matrix before it, the first one's on the inputs. The output layer
    is marginalised: given the hidden layers, f is Gaussian at every data point, so any GPflow likelihood
    with variational expectations applies, and predictions are mixtures over the samples of the hidden
    layers. `DWP`, `DIWP`, `DGP` and `NNGP` build the layers from kernels.

    Letters: N data points, D input features, P outputs, M inducing points, S samples.

    :param layers: of hidden layers, then an `OutputGP`, each of M inducing points.
    :param likelihood: a GPflow likelihood with variational expectations.
    :param inducing_variable: Z [M, D], an array or GPflow inducing points.
    :param mean_function: of the outputs, a GPflow mean function of the inputs; default zero.
    :param num_samples: S of the training objective.
    :param num_data: size of the training set when `elbo` is given minibatches.
    :param jitter: added to every covariance matrix and its diagonal; default GPflow's.
    :param precision: "full", or "mixed-gradient" or "mixed" for single precision in the backward
        products or throughout the blocks of the data points.

    >>> kernel = gpflow.kernels.SquaredExponential
    >>> layers = [
    ...     gpflow_dkp.layers.WishartLayer(3, width=2, kernel=kernel()),
    ...     gpflow_dkp.layers.InverseWishartLayer(3, kernel=kernel()),
    ...     gpflow_dkp.layers.OutputGP(3, num_outputs=1, kernel=kernel()),
    ... ]
    >>> likelihood = gpflow.likelihoods.Gaussian(0.1)
    >>> model = gpflow_dkp.models.DeepKernelProcess(layers, likelihood, X[:3])
    >>> [None if G is None else G.shape for K, G in model.sample_grams(X, num_samples=4, seed=0)]
    [TensorShape([4, 10, 10]), TensorShape([4, 10, 10]), None]
    """

    def __init__(
        self,
        layers: Sequence[GramLayer],
        likelihood: Likelihood,
        inducing_variable: InducingVariables | tf.Tensor,
        *,
        mean_function: MeanFunction | None = None,
        num_samples: int = 10,
        num_data: int | None = None,
        jitter: float | None = None,
        precision: str = "full",
        name: str | None = None,
    ) -> None:
        check_layers(layers)
        check_outputs_of_layers(likelihood, layers[-1].num_outputs)
        super().__init__(
            likelihood,
            num_latent_gps=layers[-1].num_outputs,
            num_samples=num_samples,
            num_data=num_data,
            jitter=jitter,
            name=name,
        )
        self.inducing_variable = check_inducing_variable(inducing_variable)
        Z = self.inducing_variable.Z
        check_sizes_of_layers(layers, *Z.shape)
        if layers[0].kernel is not None:
            check_kernel_on_inputs(layers[0].kernel, Z)
        check_mean_function(mean_function, Z, layers[-1].num_outputs)
        self.mean_function = mean_function
        self.layers = list(layers)
        self.precision = precision
        self._start_layers()

    @property
    def hidden_layers(self) -> list[GramLayer]:
        """All layers but the last."""
        return self.layers[:-1]

    @property
    def output_layer(self) -> OutputLayer:
        """The last layer."""
        return self.layers[-1]

    @property
    def kernels(self) -> list[Kernel]:
        """The layers' kernels."""
        return [layer.kernel for layer in self.layers if layer.kernel is not None]

    @property
    def precision(self) -> str:
        """ "full", "mixed-gradient" or "mixed"."""
        return self._precision

    @precision.setter
    def precision(self, name: str) -> None:
        gradient = precision_of(name).gradient
        for layer in self.layers:
            layer.gradient_dtype = gradient
        self._precision = name

    @property
    def num_features(self) -> int:
        """Columns D of the inputs, as many as the inducing points have."""
        return num_points_and_features(self.inducing_variable)[1]

    @property
    def num_inducing_points(self) -> int:
        """M."""
        return num_points_and_features(self.inducing_variable)[0]

    def _start_layers(self) -> None:
        """Start every layer from an infinitely wide process' covariance of the inducing points."""
        blocks: GramBlocks = InputBlocks(self.inducing_variable)
        for number, layer in enumerate(self.hidden_layers):
            K_ii = self._covariance(layer, blocks).ii
            layer.start_at(K_ii, random=number > 0)
            blocks = layer.infinite_width(K_ii)

    # The bound

    @inherit_check_shapes
    def elbo_terms(
        self,
        data: RegressionData,
        *,
        num_samples: int | None = None,
        seed: Seed = None,
        rows: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The two terms of `elbo`: sum_n E_Q[log p(y_n | f_n)] of the rows given, E_Q[log P - log Q]."""
        X, Y = self.check_data(data)
        seed = as_seed(seed)
        moments, log_ratio = self._propagate(X, self._number_of_samples(num_samples), seed)
        expected = of_likelihood(self.likelihood, "variational_expectations", X, moments, seed, Y)
        return tf.reduce_mean(tf.reduce_sum(expected, -1)), tf.reduce_mean(log_ratio)

    @check_shapes("return: []")
    def prior_kl(self, *, num_samples: int | None = None, seed: Seed = None) -> tf.Tensor:
        """Monte Carlo estimate of KL(Q || P) of all layers []."""
        draws = self.sample_layers(self._number_of_samples(num_samples), seed)
        return -tf.add_n([tf.reduce_mean(draw.log_ratio) for draw in draws])

    def _propagate(
        self, X: tf.Tensor, num_samples: int, seed: Seed
    ) -> tuple[MeanAndVariance, tf.Tensor]:
        """Moments [S, N, P] at X under fresh samples of the layers, and log P - log Q [S].

        The layers after the first go through the samples in independent parts; S is 1 if there is no
        hidden layer.
        """
        blocks: GramBlocks = InputBlocks(self.inducing_variable, X)
        if not self.hidden_layers:
            marginals = self.output_layer.marginals(self._covariance(self.output_layer, blocks))
            return self._moments(marginals[:2], X), marginals.log_ratio
        first = self.layers[0]
        K = self._covariance(first, blocks)
        layer_seed = self._layer_seeds(seed)[0]
        draw = first.sample(K.ii, seed=layer_seed, num_samples=num_samples)
        blocks = first.condition(draw, K.it, K.tt, seed=layer_seed)

        def through_the_others(arguments: Any, seed: Seed) -> Any:
            blocks, log_ratio = arguments
            draws = self._sample(1, blocks, seed)
            moments = self._condition(1, draws, blocks, seed)
            return moments, log_ratio + tf.add_n([draw.log_ratio for draw in draws])

        arguments = blocks, draw.log_ratio
        moments, log_ratio = map_over_samples(through_the_others, num_samples, arguments, seed)
        return self._moments(moments, X), log_ratio

    def _sample(
        self, start: int, blocks: GramBlocks, seed: Seed, num_samples: int | None = None
    ) -> list[Any]:
        """Draws of the layers from number `start` on, given the Gram matrix before them."""
        draws: list[Any] = []
        inducing: Any = blocks
        for layer, layer_seed in self._seeded_layers(seed)[start:]:
            K_ii = self._covariance(layer, inducing).ii
            draws.append(layer.sample(K_ii, seed=layer_seed, num_samples=num_samples))
            inducing = getattr(draws[-1], "inducing", None)  # the output layer's has none
        return draws

    def _condition(
        self,
        start: int,
        draws: Sequence[Any],
        blocks: GramBlocks,
        seed: Seed,
        **how: bool,
    ) -> Any:
        """The data points through the layers from number `start` on: the outputs' moments.

        :param how: `full_cov` and `common_noise`.
        """
        value: Any = blocks
        for (layer, layer_seed), draw in zip(self._seeded_layers(seed)[start:], draws, strict=True):
            K = self._covariance(layer, value)
            value = layer.condition(draw, K.it, K.tt, seed=layer_seed, **how)
        return value

    # Predictions

    def sample_layers(self, num_samples: int, seed: Seed) -> list[Any]:
        """The draws of all layers at the inducing points, log ratios [S] among them."""
        seed = as_seed(seed)
        blocks = InputBlocks(self.inducing_variable)
        if not self.hidden_layers:
            return self._sample(0, blocks, seed)
        first, layer_seed = self.layers[0], self._layer_seeds(seed)[0]
        K_ii = self._covariance(first, blocks).ii
        draw = first.sample(K_ii, seed=layer_seed, num_samples=num_samples)
        others = map_over_samples(
            lambda inducing, seed: self._sample(1, inducing, seed), num_samples, draw.inducing, seed
        )
        return [draw, *others]

    @inherit_check_shapes
    def condition_layers(
        self, draws: Any, X: tf.Tensor, num_samples: int, seed: Seed, *, full_cov: bool = False
    ) -> MeanAndVariance:
        """Mean [S, N, P] and variance [S, N, P] at X, or covariance [S, P, N, N]: see the base class."""
        how = {"full_cov": full_cov, "common_noise": not full_cov}
        return self._moments_given(draws, X, num_samples, as_seed(seed), **how)

    def _moments_given(
        self, draws: Any, X: tf.Tensor, num_samples: int, seed: Seed, **how: bool
    ) -> MeanAndVariance:
        """The outputs' moments at X [N, D] given draws of all layers; `how` as in `_condition`."""
        blocks = InputBlocks(self.inducing_variable, X, full_cov=how["full_cov"])
        if not self.hidden_layers:
            moments = self._condition(0, draws, blocks, seed, **how)
            return self._moments(moments, X)
        first, layer_seed = self.layers[0], self._layer_seeds(seed)[0]
        K = self._covariance(first, blocks)
        points = first.condition(draws[0], K.it, K.tt, seed=layer_seed, **how)
        moments = map_over_samples(
            lambda arguments, seed: self._condition(1, arguments[1], arguments[0], seed, **how),
            num_samples,
            (points, draws[1:]),
            seed,
        )
        return self._moments(moments, X)

    def some_samples(self, draws: Any, start: int, count: int) -> Any:
        """The draws of some samples: tensors of rank 2 are shared by them, the others are theirs."""

        def part(tensor: tf.Tensor) -> tf.Tensor:
            return tensor if tensor.shape.rank in (0, 2) else tensor[start : start + count]

        return tf.nest.map_structure(part, draws)

    @check_shapes("return[all][0]: [..., N, N]", "return[all][1]: [S, N, N]")
    def sample_grams(
        self,
        X: InputData,
        num_samples: int = 1,
        *,
        posterior: bool = True,
        seed: Seed = None,
    ) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """K and G of every hidden layer at X, drawn jointly: [S, N, N] each, K [N, N] in the first layer.

        :param X: [N, D].
        :param posterior: draw from the approximate posterior, otherwise from the prior.
        :returns: a pair (K, G) a hidden layer, and (K, None) for the output layer.
        """
        check_positive_integer("num_samples", num_samples)
        X = self.check_inputs(X)
        blocks: Any = InputBlocks(self.inducing_variable, X, full_cov=True)
        pairs: list[Any] = []
        for number, (layer, layer_seed) in enumerate(self._seeded_layers(as_seed(seed))):
            K = self._covariance(layer, blocks)
            if layer is self.output_layer:
                return [*pairs, (K.tt, None)]
            sample = layer.sample if posterior else layer.prior_sample
            draw = sample(K.ii, seed=layer_seed, num_samples=num_samples if number == 0 else None)
            blocks = layer.condition(draw, K.it, K.tt, seed=layer_seed, full_cov=True)
            pairs.append((K.tt, blocks.tt))
        return pairs

    @inherit_check_shapes
    def sample_prior(
        self, Xnew: InputData, num_samples: int = 1, *, seed: Seed = None
    ) -> tf.Tensor:
        """Joint draws of f from the prior [S, N, P]; costs O(N^3) a sample and layer.

        :param Xnew: [N, D].
        """
        check_positive_integer("num_samples", num_samples)
        Xnew = self.check_inputs(Xnew)
        blocks: GramBlocks = InputBlocks(Xnew)
        draw: Any = None
        for layer, layer_seed in zip(self.layers, split(seed, len(self.layers)), strict=True):
            K_ii = self._covariance(layer, blocks).ii
            number = num_samples if layer is self.layers[0] else None
            draw = layer.prior_sample(K_ii, seed=layer_seed, num_samples=number)
            blocks = draw.inducing
        return self._plus_mean(draw.features, Xnew)

    @check_shapes("return[0]: [M, P]", "return[1]: [M, M]")
    def output_layer_moments(
        self, *, num_samples: int | None = None, seed: Seed = None
    ) -> MeanAndVariance:
        """Mean [M, P] and covariance [M, M] of the output layer's inducing values, averaged over samples.

        :raises ValueError: the outputs have covariances of their own.
        """
        layer = self.output_layer
        if not layer.shared_covariance:
            raise ValueError(
                "output_layer_moments: the outputs have covariances of their own, needs a shared kernel "
                "and shared_precision=True"
            )
        K_ii = self._output_covariance_ii(self._number_of_samples(num_samples), as_seed(seed))
        mean, covariance = layer.inducing_moments(K_ii)
        covariance = covariance[..., 0, :, :]
        if mean.shape.rank == 2:
            return mean, covariance
        return tf.reduce_mean(mean, 0), tf.reduce_mean(covariance, 0)

    def _output_covariance_ii(self, num_samples: int, seed: Seed) -> tf.Tensor:
        """The output layer's K_ii [S, M, M], or [M, M]."""
        blocks: Any = InputBlocks(self.inducing_variable)
        if self.hidden_layers:
            blocks = self.sample_layers(num_samples, seed)[-2].inducing
        return self._covariance(self.output_layer, blocks).ii

    # What a pass is made of

    def _covariance(self, layer: GramLayer, blocks: GramBlocks) -> Any:
        """The layer's K with jitter."""
        return layer.covariance(blocks, self.jitter, precision_of(self.precision).data)

    def _layer_seeds(self, seed: Seed) -> list[Any]:
        """A seed for each layer; the output layer, which draws nothing, takes the last again."""
        seeds = split(seed, max(1, len(self.hidden_layers)))
        return [*seeds, seeds[-1]] if self.hidden_layers else seeds

    def _seeded_layers(self, seed: Seed) -> list[tuple[GramLayer, Any]]:
        return list(zip(self.layers, self._layer_seeds(seed), strict=True))

    def _moments(self, moments: MeanAndVariance, X: tf.Tensor) -> MeanAndVariance:
        """Mean [S, N, P], mean function included, and variance, with S = 1 if there is none."""
        mean, variance = moments
        if mean.shape.rank == 2:
            mean, variance = mean[None], variance[None]
        return self._plus_mean(mean, X), variance

    def _plus_mean(self, mean: tf.Tensor, X: tf.Tensor) -> tf.Tensor:
        return mean if self.mean_function is None else mean + self.mean_function(X)

    # For training

    def samples_to_share(self) -> int:
        """S, 1 without a hidden layer."""
        return self.num_samples if self.hidden_layers else 1

    def training_settings(self) -> dict[str, Any]:
        """Number of samples and precision."""
        return {"num_samples": self.num_samples, "precision": self.precision}

    def locate_failure(self, X: tf.Tensor, seed: Seed) -> str:
        """One clause naming the first layer whose values or log-ratio are not finite at X [N, D]."""
        blocks: GramBlocks = InputBlocks(self.inducing_variable, X)
        for number, (layer, layer_seed) in enumerate(self._seeded_layers(seed), 1):
            if layer is self.output_layer:
                break
            where = f"hidden layer {number} of {len(self.hidden_layers)} ({type(layer).__name__})"
            K = self._covariance(layer, blocks)
            if not all_finite(K.ii):
                return f"{where} gets a covariance that is not finite"
            draw = layer.sample(
                K.ii, seed=layer_seed, num_samples=self.num_samples if number == 1 else None
            )
            blocks = layer.condition(draw, K.it, K.tt, seed=layer_seed)
            if not all_finite(draw.log_ratio) or not all_finite(blocks.ii):
                return f"{where} gives values that are not finite"
        marginals = self.output_layer.marginals(self._covariance(self.output_layer, blocks))
        if not all(all_finite(part) for part in marginals):
            return "the output layer gives values that are not finite"
        return EVERY_LAYER_FINITE


def check_layers(layers: Sequence[GramLayer]) -> None:
    """Raise `ValueError` unless these are layers on Gram matrices, an output last, that fit together."""
    if not isinstance(layers, Sequence) or not layers:
        raise ValueError(f"layers: got {brief(layers)}, needs a list of layers on Gram matrices")
    for layer in layers:
        if not isinstance(layer, GramLayer):
            raise ValueError(
                f"layers: got {type(layer).__name__} among them, needs layers on Gram matrices"
            )
    if len({isinstance(layer, SampledLayer) for layer in layers}) > 1:
        raise ValueError(
            "layers: got some whose values are sampled and some with a posterior, needs one kind"
        )
    if not isinstance(layers[-1], OutputLayer) or any(
        isinstance(layer, OutputLayer) for layer in layers[:-1]
    ):
        raise ValueError("layers: needs an OutputGP last, and nowhere else")
    for number, layer in enumerate(layers[:-1], 1):
        if isinstance(layer.kernel, SeparateIndependent):
            raise ValueError(
                f"layers: layer {number} has a SeparateIndependent kernel, which only the last can have"
            )
        if number > 1 and isinstance(layer, InputInverseWishart):
            raise ValueError(
                f"layers: layer {number} is an InputInverseWishart, needs to be the first"
            )
    for before, layer in itertools.pairwise(layers):
        if layer.kernel is not None:
            gram.check_computable_from_gram(layer.kernel, features=before.draws_features)


def check_sizes_of_layers(
    layers: Sequence[GramLayer], num_inducing: int, num_features: int
) -> None:
    """Raise `ValueError` unless all are of M inducing points, and the first of D features."""
    for number, layer in enumerate(layers, 1):
        own = getattr(layer, "num_inducing", num_inducing)
        if own != num_inducing:
            raise ValueError(
                f"layers: layer {number} is of {own} inducing points, inducing_variable has {num_inducing}"
            )
    if isinstance(layers[0], InputInverseWishart) and layers[0].num_features != num_features:
        raise ValueError(
            f"layers: the first is of {layers[0].num_features} features, inducing_variable has "
            f"{num_features}"
        )
