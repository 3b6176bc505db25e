"""The latent-variable layer: each data point has an unobserved input of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes, inherit_check_shapes
from gpflow import Parameter
from gpflow.base import MeanAndVariance

from ...checks import brief, check_positive, check_positive_integer, check_positive_integers
from ...networks import MultilayerPerceptron
from ...random import Seed, as_seed, normal
from .base import FeatureLayer, Observed

START_VARIANCE = math.exp(-5.0)
"""Of latent variables' posteriors, about: a standard deviation of 0.08.

[ICML19] says standard deviations of e^-5, variances of e^-10; its code has softplus(-3) = 0.049 for them.
"""


class Encoder(MultilayerPerceptron):
    """A network from (x, y) to the Gaussian posterior of a point's latent variables ([ICML19]).

    Tanh layers, each with a skip connection where its widths agree, and a linear one for mean and log
    variance.

    :param input_dim: columns of x and y together.
    :param latent_dim: d.
    :param widths: of the tanh layers.
    :param bias: added to the log variance: negative for a posterior that starts narrow, -10 for the
        standard deviations of e^-5 that the paper says.
    :param seed: of the weights' starting values.

    >>> encoder = gpflow_dkp.layers.Encoder(input_dim=3, latent_dim=2)
    >>> mean, variance = encoder(np.hstack([X, Y]))
    >>> mean.shape, variance.shape
    (TensorShape([10, 2]), TensorShape([10, 2]))
    """

    def __init__(
        self,
        input_dim: int,
        latent_dim: int = 1,
        *,
        widths: Sequence[int] = (10, 10, 10),
        bias: float = math.log(START_VARIANCE),
        seed: int | Sequence[int] = 0,
        name: str | None = None,
    ) -> None:
        check_positive_integers("Encoder's widths", widths)
        for size in (input_dim, latent_dim):
            check_positive_integer("Encoder's input_dim and latent_dim", size)
        super().__init__(
            input_dim,
            2 * latent_dim,
            hidden_units=widths,
            skip_connections=True,
            seed=seed,
            name=name,
        )
        self.input_dim = input_dim
        self.bias = bias

    def __call__(self, XY: tf.Tensor) -> MeanAndVariance:
        """Mean and variance [N, d] for x and y side by side [N, D + P]."""
        if XY.shape[-1] != self.input_dim:
            raise ValueError(
                f"Encoder: got {XY.shape[-1]} columns of x and y together, needs {self.input_dim}"
            )
        mean, log_variance = tf.split(super().__call__(XY), 2, axis=-1)
        return mean, tf.exp(log_variance + self.bias)


class LatentDraw(NamedTuple):
    """Nothing: the latent variables are the data points' own.

    :param log_ratio: 0 [].
    """

    log_ratio: tf.Tensor


class LatentVariableLayer(FeatureLayer):
    """Appends to each data point latent variables w ~ N(0, I), of posterior N(a, diag b) ([ICML19]).

    The posterior comes from an encoder of the data point, or has free parameters for each.

    :param latent_dim: d.
    :param encoder: from x and y side by side [N, D + P] to mean and variance [N, d], as `Encoder`.
    :param num_points: N, for free parameters `mean` [N, d] and `variance` [N, d] instead.
    :param start_variance: starting value of a free `variance`; an encoder has its own.

    >>> encoder = gpflow_dkp.layers.Encoder(input_dim=3)
    >>> layer = gpflow_dkp.layers.LatentVariableLayer(latent_dim=1, encoder=encoder)
    >>> features = layer.prior_sample(X[None], seed=0)
    >>> features.shape, np.allclose(features[0, :, :2], X)
    (TensorShape([1, 10, 3]), True)
    """

    def __init__(
        self,
        latent_dim: int = 1,
        *,
        encoder: Callable[[tf.Tensor], MeanAndVariance] | None = None,
        num_points: int | None = None,
        start_variance: float = START_VARIANCE,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        check_positive_integer("latent_dim", latent_dim)
        check_positive("start_variance", start_variance)
        if (encoder is None) == (num_points is None):
            raise ValueError(
                "LatentVariableLayer: needs an encoder, or num_points for free parameters of each data "
                f"point, and not both; got encoder={brief(encoder)}, num_points={brief(num_points)}"
            )
        if encoder is not None and not callable(encoder):
            raise ValueError(
                f"encoder: got {brief(encoder)}, needs a callable from [N, D + P] to mean and variance [N, d]"
            )
        self.latent_dim = latent_dim
        self.encoder = encoder
        self.num_points = num_points
        if num_points is not None:
            check_positive_integer("num_points", num_points)
            # Means that all agree would never part: the points' latent variables are exchangeable.
            start = 0.01 * np.random.default_rng(0).normal(size=(num_points, latent_dim))
            positive = tfp.bijectors.Exp()
            self.mean = Parameter(start)
            self.variance = Parameter(
                np.full([num_points, latent_dim], start_variance), transform=positive
            )

    def output_dim_of(self, input_dim: int) -> int:
        """Columns of the features it gives for features of `input_dim` columns."""
        return input_dim + self.latent_dim

    @inherit_check_shapes
    def latent_posterior(self, observed: Observed) -> MeanAndVariance:
        """Mean and variance of the latent variables of the data points [N, d].

        :raises ValueError: for free parameters and points that have none.
        """
        if self.encoder is not None:
            mean, variance = self.encoder(tf.concat([observed.X, observed.Y], -1))
            for moment in (mean, variance):
                if not moment.shape.is_compatible_with([None, self.latent_dim]):
                    raise ValueError(
                        f"encoder: got a mean or variance of shape {moment.shape}, needs "
                        f"[N, {self.latent_dim}]"
                    )
            return mean, variance
        if observed.rows is not None:
            num_rows, num_points = observed.rows.shape[0], observed.X.shape[0]
            if None not in (num_rows, num_points) and num_rows != num_points:
                raise ValueError(
                    f"rows: got {num_rows} of them for {num_points} data points, needs one for each"
                )
            return tf.gather(self.mean, observed.rows), tf.gather(self.variance, observed.rows)
        num_points = observed.X.shape[0]
        if num_points is not None and num_points != self.num_points:
            raise ValueError(
                f"LatentVariableLayer: got {num_points} data points, has free parameters for the "
                f"{self.num_points} of the training set: pass the rows of a minibatch, the whole set, or "
                "use an encoder for unseen points"
            )
        return tf.convert_to_tensor(self.mean), tf.convert_to_tensor(self.variance)

    def posterior_distribution(
        self, observed: Observed | None = None
    ) -> tfp.distributions.Distribution:
        """q(w) of data points' latent variables [N, d].

        :param observed: the points; None for all that have free parameters.
        :raises ValueError: as `latent_posterior`, or for an encoder without points.
        """
        if observed is not None:
            mean, variance = self.latent_posterior(observed)
        elif self.encoder is None:
            mean, variance = tf.convert_to_tensor(self.mean), tf.convert_to_tensor(self.variance)
        else:
            raise ValueError("observed: got None, needs the data points that the encoder is to see")
        of_each = tfp.distributions.MultivariateNormalDiag(mean, tf.sqrt(variance))
        return tfp.distributions.Independent(of_each, reinterpreted_batch_ndims=1)

    def sample(self, *, seed: Seed = None, num_samples: int | None = None) -> LatentDraw:
        """Nothing is fixed by inducing points."""
        return LatentDraw(tf.zeros([], gpflow.default_float()))

    @inherit_check_shapes
    def condition(
        self,
        draw: LatentDraw,
        features: tf.Tensor,
        *,
        seed: Seed = None,
        full_cov: bool = False,
        common_noise: bool = False,
    ) -> tf.Tensor:
        """Features [S, N, D] with latent variables drawn from the prior: [S, N, D + d].

        Those of different points are independent, with `full_cov` too.
        """
        num_samples, num_points = tf.unstack(tf.shape(features)[:2])
        shape = [num_samples, 1 if common_noise else num_points, self.latent_dim]
        latent = normal(shape, as_seed(seed), features.dtype)
        shape = [num_samples, num_points, self.latent_dim]
        return self.append(features, tf.broadcast_to(latent, shape))

    @check_shapes("features: [N, broadcast K, D]", "latent: [N, K, d]", "return: [N, K, E]")
    def append(self, features: tf.Tensor, latent: tf.Tensor) -> tf.Tensor:
        """Features [N, K, D] or [N, 1, D] with latent variables [N, K, d]: [N, K, D + d]."""
        shape = tf.concat([tf.shape(latent)[:2], tf.shape(features)[2:]], 0)
        return tf.concat([tf.broadcast_to(features, shape), latent], -1)

    @inherit_check_shapes
    def prior_sample(self, features: tf.Tensor, *, seed: Seed = None) -> tf.Tensor:
        """Features [S, N, D] with latent variables drawn from the prior: [S, N, D + d]."""
        return self.condition(self.sample(), features, seed=seed)


@check_shapes("latent: [N, K, d]", "mean: [N, d]", "variance: [N, d]", "return: [N, K]")
def sampled_log_ratio(latent: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """log N(w; 0, I) - log N(w; a, diag b) [N, K] at w [N, K, d], for a and b [N, d]."""
    deviation = tf.square(latent - mean[:, None]) / variance[:, None]
    terms = deviation - tf.square(latent) + tf.math.log(variance)[:, None]
    return 0.5 * tf.reduce_sum(terms, -1)


@check_shapes("mean: [N, d]", "variance: [N, d]", "return: [N]")
def expected_log_ratio(mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """-KL(N(a, diag b) || N(0, I)) [N] for a and b [N, d]."""
    terms = 1.0 + tf.math.log(variance) - variance - tf.square(mean)
    return 0.5 * tf.reduce_sum(terms, -1)
