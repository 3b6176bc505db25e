"""Deep Gaussian processes whose inducing values are sampled by Hamiltonian Monte Carlo on minibatches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import InputData, MeanAndVariance, RegressionData
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from typing_extensions import Self

from ..checks import check_positive_integer
from ..jitter import jitters_of
from ..layers import SampledGP
from ..layers.features.sampled_gp import SampledValues
from ..parallel import map_over_samples
from ..random import Seed, as_seed, fold_in
from .architecture import build_layers
from .checks import check_outputs_of_layers, check_targets, num_latent_gps_for
from .checks import check_shapes as check_data_shapes
from .latent_variable_dgp import check_layers, failing_layer, prior_through
from .sampled_likelihood import of_likelihood
from .sampled_model import SampledModel


class SGHMCDGP(SampledModel):
    """Layers of sparse GPs whose inducing values are sampled from their posterior, not approximated.

    It is the model of [NeurIPS18]; see docs/mathematics.md 11. Where q(u) of `LatentVariableDGP` is Gaussian,
    here `gpflow_dkp.training.sample` draws u by stochastic gradient Hamiltonian Monte Carlo from

        p(u) prod_n exp E[log p(y_n | f_n)],

    the expectation over the functions given u: inner layers are drawn, the last is integrated out. For one
    layer that is the optimal q(u) of [Titsias 2009], which a Gaussian likelihood makes Gaussian.

    Predictions are mixtures over the samples that are kept, `num_samples` of them evenly over the chain; with
    a Gaussian likelihood each is a component. Before there are any they are of the chain's start.

    `elbo` is the logarithm of the density above where the chain stands: no bound on the evidence.

    :param layers: `SampledGP`s.
    :param likelihood: a GPflow likelihood with variational expectations.
    :param num_samples: S draws of the inner functions at each data point in an estimate of the density.
    :param num_data: size of the training set when `elbo` is given minibatches.
    :param jitter: added to covariances, of all the layers; default each layer's own.

    >>> model = gpflow_dkp.models.SGHMCDGP.from_data(X, Y, num_inducing=3)
    >>> few = {"num_burn_in": 10, "num_samples": 4, "thinning": 2, "progress": False}
    >>> history = gpflow_dkp.training.sample(model, (X, Y), **few)
    >>> model.predict_mixture(X, num_samples=4).mean.shape
    TensorShape([4, 10, 1])
    """

    def __init__(
        self,
        layers: Sequence[SampledGP],
        likelihood: Likelihood,
        *,
        num_samples: int = 1,
        num_data: int | None = None,
        jitter: float | None = None,
        name: str | None = None,
    ) -> None:
        num_features = check_layers(layers)
        for layer in layers:
            if not isinstance(layer, SampledGP):
                raise ValueError(
                    f"layers: got {type(layer).__name__} among them, needs SampledGP; of a SparseGP make one "
                    "by SampledGP.of"
                )
        num_outputs = layers[-1].output_dim_of(num_features)
        check_outputs_of_layers(likelihood, num_outputs)
        super().__init__(
            likelihood,
            num_latent_gps=num_outputs,
            num_samples=num_samples,
            num_data=num_data,
            jitter=jitter,
            name=name,
        )
        self.layers = list(layers)
        self._num_features = num_features
        if jitter is not None:
            for layer in self.layers:
                for of_layer in jitters_of(layer):
                    of_layer.assign(jitter)

    @classmethod
    def from_data(
        cls,
        X: np.ndarray,
        Y: np.ndarray,
        *,
        depth: int = 2,
        num_inducing: int = 128,
        num_inner_gps: int = 5,
        kernel: str | Kernel = "squared_exponential",
        likelihood: Likelihood | None = None,
        seed: int = 0,
        **settings: Any,
    ) -> Self:
        """As many GP layers as `depth` for X [N, D] and Y [N, P], both normalised, as [ICML19] has them.

        Kernels, inducing points, projections and mean functions are those of
        `LatentVariableDGP.from_architecture` with `num_marginal_points=0`, and so are the arguments; the
        chain starts at v = 0.

        :param num_inducing: M of each layer.
        :param num_inner_gps: at most; no more than X has columns.
        :param likelihood: default Gaussian, of variance 0.01.
        :param seed: of the clustering and the random starting values.
        :param settings: further arguments of the constructor.
        """
        check_positive_integer("depth", depth)
        check_data_shapes(X, Y)
        likelihood = likelihood or gpflow.likelihoods.Gaussian(0.01)
        check_targets(likelihood, Y)
        layers = build_layers(
            "-".join(["GP"] * depth),
            X,
            Y,
            num_outputs=num_latent_gps_for(likelihood, Y),
            num_inducing=num_inducing,
            num_inner_gps=num_inner_gps,
            kernel=kernel,
            seed=seed,
        )
        return cls([SampledGP.of(layer) for layer in layers], likelihood, **settings)

    @property
    def num_features(self) -> int:
        """Columns D of the inputs."""
        return self._num_features

    @property
    def output_layer(self) -> SampledGP:
        """The last layer."""
        return self.layers[-1]

    @property
    def num_inducing_points(self) -> int:
        """M, the most of a layer."""
        return max(layer.num_inducing for layer in self.layers)

    # The density

    @inherit_check_shapes
    def log_joint_terms(
        self, data: RegressionData, values: Sequence[tf.Tensor], *, seed: Seed = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Expected log-likelihood [S] of the rows given and log p(v) [S], at S values v [S, M, L]."""
        X, Y = self.check_data(data)
        draws = [layer.at(value) for layer, value in zip(self.layers, values, strict=True)]
        seed = as_seed(seed)
        moments = self._through_layers(draws, X, values[0].shape[0], seed)
        for_likelihood = fold_in(seed, len(self.layers))
        expected = of_likelihood(
            self.likelihood, "variational_expectations", X, moments, for_likelihood, Y
        )
        return tf.reduce_sum(expected, -1), tf.add_n([draw.log_ratio for draw in draws])

    def _through_layers(
        self,
        draws: Sequence[SampledValues],
        X: tf.Tensor,
        num_samples: int,
        seed: Seed,
        *,
        full_cov: bool = False,
        common_noise: bool = False,
    ) -> MeanAndVariance:
        """The last layer's `marginals` at X [N, D] given each of S values, the inner layers drawn."""

        def part(arguments: tuple[tf.Tensor, list[tf.Tensor]], seed: Seed) -> MeanAndVariance:
            features, values = arguments
            of_part = [
                draw._replace(whitened=value) for draw, value in zip(draws, values, strict=True)
            ]
            for number, layer in enumerate(self.layers[:-1]):
                features = layer.condition(
                    of_part[number],
                    features,
                    seed=fold_in(seed, number),
                    full_cov=full_cov,
                    common_noise=common_noise,
                )
            return self.output_layer.marginals(features, of_part[-1], full_cov=full_cov)

        features = tf.tile(X[None], [num_samples, 1, 1])
        arguments = features, [draw.whitened for draw in draws]
        return map_over_samples(part, num_samples, arguments, seed)

    # Prediction

    def sample_layers(self, num_samples: int, seed: Seed) -> list[SampledValues]:
        """`num_samples` of the values kept, evenly over the chain, with each layer's factorisation."""
        return [layer.sample(num_samples=num_samples) for layer in self.layers]

    def some_samples(self, draws: Any, start: int, count: int) -> list[SampledValues]:
        """The draws of samples `start`, ..., `start` + `count` - 1."""
        some = slice(start, start + count)
        return [
            draw._replace(whitened=draw.whitened[some], log_ratio=draw.log_ratio[some])
            for draw in draws
        ]

    @inherit_check_shapes
    def condition_layers(
        self, draws: Any, X: tf.Tensor, num_samples: int, seed: Seed, *, full_cov: bool = False
    ) -> MeanAndVariance:
        """Mean [S, N, P] and variance [S, N, P] at X, or covariance [S, P, N, N]: see the base class."""
        how = {"full_cov": full_cov, "common_noise": not full_cov}
        return self._through_layers(draws, X, num_samples, as_seed(seed), **how)

    @inherit_check_shapes
    def sample_prior(
        self, Xnew: InputData, num_samples: int = 1, *, seed: Seed = None
    ) -> tf.Tensor:
        """Joint draws of f from the prior [S, N, P]; costs O(N^3) a sample and layer.

        :param Xnew: [N, D].
        """
        check_positive_integer("num_samples", num_samples)
        return prior_through(self.layers, self.check_inputs(Xnew), num_samples, seed)

    # For training

    def training_settings(self) -> dict[str, Any]:
        """The layers and the number of samples."""
        return {
            "layers": [type(layer).__name__ for layer in self.layers],
            "num_samples": self.num_samples,
        }

    def locate_failure(self, X: tf.Tensor, seed: Seed) -> str:
        """One clause naming the first layer whose values at X [N, D] are not finite."""
        return failing_layer(self.layers, X, seed)
