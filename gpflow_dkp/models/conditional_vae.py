"""The conditional variational autoencoder, [ICML19]'s neural baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gpflow
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import InputData, MeanAndVariance, RegressionData

from ..checks import check_positive_integer, check_positive_integers, check_seed
from ..layers import Encoder
from ..layers.features.latent_variable import expected_log_ratio
from ..networks import MultilayerPerceptron
from ..random import Seed, as_seed, normal
from .base import EVERY_LAYER_FINITE, MonteCarloModel
from .sampled_likelihood import of_likelihood

NEGLIGIBLE = 1e-12
"""Variance of the outputs given the latent variables."""


class ConditionalVAE(MonteCarloModel):
    """y = g(z, x) + noise with latent z ~ N(0, I) for each data point and a neural network g ([ICML19]).

    Tanh hidden layers in g and in the encoder of (x, y), which gives the posterior of z. Without hidden
    layers it is a linear model. The noise is Gaussian, of variance 0.05 at the start: for normalised targets.
    `fit` anneals no KL of z: small networks have higher bounds with all of it from the start.

    Letters: N data points, D input features, P outputs, d latent variables, S samples.

    :param num_features: D.
    :param num_outputs: P.
    :param hidden_units: of each hidden layer, in g and in the encoder.
    :param latent_dim: d.
    :param num_samples: S draws of z for each point of the training objective.
    :param num_data: size of the training set when `elbo` is given minibatches.
    :param seed: of the weights' starting values.
    :raises ValueError: in one line, for an argument of another type or size.

    Attributes: `decoder` is g, a `MultilayerPerceptron` of z and x side by side; `encoder` an `Encoder`.

    >>> model = gpflow_dkp.models.ConditionalVAE(2, hidden_units=[5])
    >>> model.predict_y_samples(X, num_samples=4, full_cov=False, seed=0).shape
    TensorShape([4, 10, 1])
    >>> bool(model.elbo((X, Y), seed=0) == model.elbo((X, Y), seed=0))
    True
    """

    def __init__(
        self,
        num_features: int,
        num_outputs: int = 1,
        *,
        hidden_units: Sequence[int] = (),
        latent_dim: int = 1,
        num_samples: int = 1,
        num_data: int | None = None,
        seed: int = 0,
        name: str | None = None,
    ) -> None:
        check_positive_integer("num_features", num_features)
        check_positive_integer("num_outputs", num_outputs)
        check_positive_integers("hidden_units", hidden_units)
        check_positive_integer("latent_dim", latent_dim)
        check_seed("seed", seed)
        super().__init__(
            gpflow.likelihoods.Gaussian(0.05),
            num_latent_gps=num_outputs,
            num_samples=num_samples,
            num_data=num_data,
            jitter=0.0,
            name=name,
        )
        self._num_features = num_features
        self.latent_dim = latent_dim
        self.encoder = Encoder(
            num_features + num_outputs, latent_dim, widths=hidden_units, bias=0.0, seed=[seed, 0]
        )
        self.decoder = MultilayerPerceptron(
            num_features + latent_dim, num_outputs, hidden_units=hidden_units, seed=[seed, 1]
        )

    @property
    def num_features(self) -> int:
        """Columns D of the inputs."""
        return self._num_features

    @inherit_check_shapes
    def elbo_terms(
        self,
        data: RegressionData,
        *,
        num_samples: int | None = None,
        seed: Seed = None,
        rows: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The two terms of `elbo`: the sum over the rows given, the KL of their z included, and 0."""
        X, Y = self.check_data(data)
        S = self._number_of_samples(num_samples)
        seed = as_seed(seed)
        mean, variance = self.encoder(tf.concat([X, Y], -1))
        noise = normal([S, tf.shape(X)[0], self.latent_dim], seed, X.dtype, points=1)
        moments = self._decode(X, mean + tf.sqrt(variance) * noise)
        expected = of_likelihood(self.likelihood, "variational_expectations", X, moments, seed, Y)
        local = tf.reduce_mean(expected, 0) + expected_log_ratio(mean, variance)
        return tf.reduce_sum(local), tf.zeros([], X.dtype)

    def sample_layers(self, num_samples: int, seed: Seed) -> Any:
        """Nothing is global."""
        return ()

    @inherit_check_shapes
    def condition_layers(
        self, draws: Any, X: tf.Tensor, num_samples: int, seed: Seed, *, full_cov: bool = False
    ) -> MeanAndVariance:
        """g at X and its negligible variance [S, N, P], or covariance [S, P, N, N].

        With `full_cov` every data point has a latent variable of its own.
        """
        shape = [num_samples, tf.shape(X)[0] if full_cov else 1, self.latent_dim]
        latent = normal(shape, as_seed(seed), X.dtype)
        shape = [num_samples, tf.shape(X)[0], self.latent_dim]
        mean, variance = self._decode(X, tf.broadcast_to(latent, shape))
        if full_cov:
            return mean, tf.linalg.diag(tf.linalg.matrix_transpose(variance))
        return mean, variance

    def _decode(self, X: tf.Tensor, latent: tf.Tensor) -> MeanAndVariance:
        """g and its negligible variance at X [N, D] and z [S, N, d]: [S, N, P] each."""
        repeated = tf.broadcast_to(X, tf.concat([tf.shape(latent)[:2], tf.shape(X)[1:]], 0))
        mean = self.decoder(tf.concat([latent, repeated], -1))
        return mean, NEGLIGIBLE * tf.ones_like(mean)

    @inherit_check_shapes
    def sample_prior(
        self, Xnew: InputData, num_samples: int = 1, *, seed: Seed = None
    ) -> tf.Tensor:
        """Draws of g [S, N, P], each input with a z of its own.

        :param Xnew: [N, D].
        """
        check_positive_integer("num_samples", num_samples)
        X = self.check_inputs(Xnew)
        mean, _ = self.condition_layers((), X, num_samples, seed, full_cov=True)
        return mean

    def samples_to_share(self) -> int:
        """S."""
        return self.num_samples

    def training_settings(self) -> dict[str, Any]:
        """Number of samples."""
        return {"num_samples": self.num_samples}

    def locate_failure(self, X: tf.Tensor, seed: tf.Tensor) -> str:
        """There is but one layer."""
        return EVERY_LAYER_FINITE
