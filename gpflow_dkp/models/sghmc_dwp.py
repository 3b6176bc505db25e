"""Deep Wishart processes whose features at the inducing points are sampled by Hamiltonian Monte Carlo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import RegressionData
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from ..checks import check_inducing_variable, check_seed
from ..gram import InputBlocks
from ..layers import FeatureDraw, OutputLayer, SampledFeatures, SampledOutput
from ..parallel import map_over_samples
from ..random import Seed, as_seed
from .base import EVERY_LAYER_FINITE, all_finite
from .checks import check_widths
from .from_data import ModelWithWidths
from .sampled_likelihood import of_likelihood
from .sampled_model import SampledModel


class SGHMCDWP(SampledModel, ModelWithWidths):
    """The deep GP that a deep Wishart process is, its inducing values sampled from their posterior.

    F_l = L_l v_l with L_l L_l^T = K(F_{l-1} F_{l-1}^T) / nu_l, f ~ N(0, K(F_L F_L^T)), all at the global
    inducing points: Gram matrices have `DWP`'s prior, and features `DGP`'s. With the inducing points at all
    inputs the chain's law is the exact posterior, by which approximate ones can be judged ([NeurIPS21]
    appendix G): see docs/mathematics.md 11.

    :param kernels: `kernels[0]` on the inputs (ARD, any GPflow kernel), the others on Gram matrices.
    :param likelihood: a GPflow likelihood with variational expectations.
    :param inducing_variable: Z [M, D], an array or GPflow inducing points.
    :param widths: nu of each hidden layer, one fewer than kernels.
    :param num_samples: S draws of the data points' features in an estimate of the density.
    :param seed: of where the chain starts.

    Other arguments as in `DeepKernelProcess`. To sample what a trained `DWP` or `DGP` approximates, hand its
    kernels, likelihood and inducing points over, and hold them (`sample(learning_rate=None)`).

    >>> model = gpflow_dkp.models.SGHMCDWP.from_data(X, Y, num_inducing=3)
    >>> few = {"num_burn_in": 10, "num_samples": 4, "thinning": 2, "progress": False}
    >>> history = gpflow_dkp.training.sample(model, (X, Y), **few)
    >>> [layer.samples.shape[1:] for layer in model.layers]
    [TensorShape([3, 2]), TensorShape([3, 1])]
    >>> (K, G), _ = model.sample_grams(X, num_samples=4, seed=0)
    >>> G.shape
    TensorShape([4, 10, 10])
    """

    def __init__(
        self,
        kernels: Sequence[Kernel],
        likelihood: Likelihood,
        inducing_variable: InducingVariables | tf.Tensor,
        *,
        widths: Sequence[int],
        num_samples: int = 1,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        check_widths(kernels, widths)
        check_seed("seed", seed)
        inducing_variable = check_inducing_variable(inducing_variable)
        layers = [
            SampledFeatures(inducing_variable.Z.shape[0], width, kernel=kernel, seed=[seed, i])
            for i, (kernel, width) in enumerate(zip(kernels[:-1], widths, strict=True))
        ]
        super().__init__(
            layers, kernels[-1], likelihood, inducing_variable, num_samples=num_samples, **settings
        )

    def _make_output_layer(
        self, num_inducing: int, num_outputs: int, kernel: Kernel, shared_precision: bool
    ) -> OutputLayer:
        if not shared_precision:
            raise ValueError(
                "shared_precision: got False, an output layer whose values are sampled has no precision; "
                "leave it out"
            )
        return SampledOutput(num_inducing, num_outputs, kernel=kernel)

    def _start_output_near(self, targets: np.ndarray) -> None:
        """The chain starts at 0."""

    # The density

    @inherit_check_shapes
    def log_joint_terms(
        self, data: RegressionData, values: Sequence[tf.Tensor], *, seed: Seed = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Expected log-likelihood [S] of the rows given and log p(v) [S], at S values v [S, M, L]."""
        X, Y = self.check_data(data)
        seed = as_seed(seed)
        draws = self.draws_at(values)
        how = {"full_cov": False, "common_noise": False}
        moments = self._moments_given(draws, X, values[0].shape[0], seed, **how)
        expected = of_likelihood(self.likelihood, "variational_expectations", X, moments, seed, Y)
        return tf.reduce_sum(expected, -1), tf.add_n([draw.log_ratio for draw in draws])

    def draws_at(self, values: Sequence[tf.Tensor]) -> list[FeatureDraw]:
        """Features of the inducing points in each layer at S values of v, with log p(v).

        :param values: v [S, M, L] of each layer.
        """
        first = self.layers[0]
        K_ii = self._covariance(first, InputBlocks(self.inducing_variable)).ii
        draw = first.at(values[0], K_ii)
        if not self.hidden_layers:
            return [draw]

        def through_the_others(arguments: Any, _: Seed) -> list[FeatureDraw]:
            inducing, values = arguments
            draws = []
            for layer, value in zip(self.layers[1:], values, strict=True):
                draws.append(layer.at(value, self._covariance(layer, inducing).ii))
                inducing = draws[-1].inducing
            return draws

        arguments = draw.inducing, list(values[1:])
        num_samples = values[0].shape[0]
        others = map_over_samples(through_the_others, num_samples, arguments, as_seed(0))
        return [draw, *others]

    # Predictions

    def sample_layers(self, num_samples: int, seed: Seed) -> list[FeatureDraw]:
        """`num_samples` of the values kept, evenly over the chain, with each layer's factorisation."""
        return self.draws_at([layer.kept(num_samples) for layer in self.layers])

    def prior_kl(self, *, num_samples: int | None = None, seed: Seed = None) -> tf.Tensor:
        """There is none: no density is known of what is sampled.

        :raises ValueError: always.
        """
        raise ValueError("prior_kl: SGHMCDWP samples its posterior, of which no density is known")

    # For training

    def locate_failure(self, X: tf.Tensor, seed: Seed) -> str:
        """One clause naming the first layer whose values are not finite where the chain stands."""
        values = [layer.values[None] for layer in self.layers]
        for number, draw in enumerate(self.draws_at(values), 1):
            if not all_finite(draw.features):
                name = type(self.layers[number - 1]).__name__
                return f"layer {number} of {len(self.layers)} ({name}) gives values that are not finite"
        return EVERY_LAYER_FINITE
