"""Networks with a prior on their weights: baselines of Gaussian Wasserstein inference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes, inherit_check_shapes
from gpflow import Parameter
from gpflow.base import InputData, MeanAndVariance, RegressionData
from gpflow.likelihoods import Gaussian, Likelihood, MultiClass
from gpflow.utilities import triangular

from ..checks import (
    check_choice,
    check_positive,
    check_positive_integer,
    check_positive_integers,
    check_seed,
)
from ..linalg import transpose
from ..networks import ACTIVATIONS
from ..random import Seed, as_seed, normal, split
from .base import EVERY_LAYER_FINITE, MonteCarloModel
from .checks import check_likelihood
from .network_layers import network_layers
from .posterior import PREDICTION_BATCH

INFERENCES = ("map", "mean-field", "dropout", "laplace", "ensemble")

CURVATURES = ("full", "last-layer")

PRECISIONS = ("full", "mixed")

NEGLIGIBLE = 1e-12
"""Variance of the outputs given the weights."""

START_SCALE = 0.05
"""Standard deviation of the weights at the start of "mean-field"."""

Weights = list[tuple[tf.Tensor, tf.Tensor]]
"""Of each layer the weights [S, I, O] and the offsets [S, 1, O]."""


class NeuralNetwork(MonteCarloModel):
    """f(x) is a network, each weight and offset of prior N(0, `weight_variance`).

    It is fully connected, and with `filters` its first layers are convolutions of images.

    By `inference`:

    - "map": the weights of the highest posterior density;
    - "mean-field": independent normals, by the evidence lower bound [Blundell et al. 2015];
    - "dropout": each hidden unit, of a convolution each filter at each place, is left out with a probability,
      in training and in each sample of the prediction [Gal & Ghahramani 2016];
    - "laplace": those of "map" and then, by `find_curvature`, a Gaussian of the generalised Gauss-Newton
      matrix, with which the network is linearised [Immer et al. 2021], or of its block of the last layer
      [Kristiadi et al. 2020];
    - "ensemble": networks of different starts, each as of "map", sharing the likelihood's parameters
      [Lakshminarayanan et al. 2017].

    `elbo` is a bound of "mean-field" alone, of the others the log joint density of the data and weights, of
    an ensemble the members' mean. A prediction is the mixture of S draws of the weights, or of the members,
    at most S of them; "map" and "laplace" have one.

    Letters: N data points, D input features, P outputs, S samples, Q weights and offsets that the
    curvature is of.

    :param num_features: D.
    :param likelihood: a GPflow likelihood with variational expectations; default Gaussian, of variance 0.1 at
        the start: for normalised targets.
    :param num_latent_gps: P, default the likelihood's number of latent functions, or 1.
    :param hidden_units: of each hidden layer; [NeurIPS22]'s has two of 10. None make a linear model.
    :param activation: "tanh" or "relu".
    :param filters: of each convolution, of 3 x 3 pixels and followed by a maximum over 2 x 2 of them, before
        the hidden units; [NeurIPS22]'s has three.
    :param image_shape: height H, width W and channels C of the images whose pixels are the features,
        D = H W C; needed with filters.
    :param weight_variance: of the prior.
    :param dropout_rate: probability with which "dropout" leaves a unit out.
    :param num_members: networks of "ensemble".
    :param curvature: of "laplace", of all weights ("full") or those of the last layer ("last-layer"), with
        the others as they are: Q x Q numbers are held.
    :param precision: "mixed" computes the network in single precision, which makes a step of convolutions
        some five times as fast on a CPU; weights, prior and likelihood stay in GPflow's, as all does in
        "full".
    :param num_samples: S of the training objective, of "mean-field" and "dropout".
    :param num_data: size of the training set when `elbo` is given minibatches.
    :param seed: of the weights' starting values.
    :raises ValueError: in one line, for an argument of another type or size, or GPflow's `MultiClass`.

    Parameters: `weights` and `offsets`, lists of [R, I, O] and [R, 1, O] of R members, or 1, where a
    convolution of C channels has I = 9 C; of "mean-field" their `weight_scales` and `offset_scales` too; of
    "laplace" `precision_tril` [Q, Q], not trained.

    >>> model = gpflow_dkp.models.NeuralNetwork(2, inference="ensemble", num_members=3)
    >>> history = gpflow_dkp.training.fit(model, (X, Y), num_steps=3, progress=False)
    >>> model.predict_mixture(X, num_samples=3).mean.shape
    TensorShape([3, 10, 1])
    >>> images = gpflow_dkp.models.NeuralNetwork(64, filters=[4, 8], image_shape=(8, 8, 1))
    >>> [tuple(weight.shape) for weight in images.weights]
    [(1, 9, 4), (1, 36, 8), (1, 32, 10), (1, 10, 10), (1, 10, 1)]
    >>> linear = gpflow_dkp.models.NeuralNetwork(2, inference="laplace", hidden_units=[])
    >>> linear.find_curvature((X, Y))
    >>> mean, variance = linear.predict_f(X)
    >>> bool(np.all(variance < 1.0))
    True
    """

    def __init__(
        self,
        num_features: int,
        likelihood: Likelihood | None = None,
        *,
        inference: Literal["map", "mean-field", "dropout", "laplace", "ensemble"] = "mean-field",
        num_latent_gps: int | None = None,
        hidden_units: Sequence[int] = (10, 10),
        activation: str = "tanh",
        filters: Sequence[int] = (),
        image_shape: tuple[int, int, int] | None = None,
        weight_variance: float = 1.0,
        dropout_rate: float = 0.1,
        num_members: int = 5,
        curvature: Literal["full", "last-layer"] = "full",
        precision: Literal["full", "mixed"] = "full",
        num_samples: int = 1,
        num_data: int | None = None,
        seed: int = 0,
        name: str | None = None,
    ) -> None:
        check_choice("inference", inference, INFERENCES)
        check_choice("activation", activation, tuple(ACTIVATIONS))
        check_positive_integer("num_features", num_features)
        check_positive_integers("hidden_units", hidden_units)
        check_choice("curvature", curvature, CURVATURES)
        check_choice("precision", precision, PRECISIONS)
        check_positive("weight_variance", weight_variance)
        check_positive_integer("num_members", num_members)
        check_seed("seed", seed)
        if not isinstance(dropout_rate, (int, float)) or not 0.0 <= dropout_rate < 1.0:
            raise ValueError(
                f"dropout_rate: got {dropout_rate!r}, needs a number from 0 to below 1"
            )
        if likelihood is None:
            likelihood = Gaussian(0.1)
        check_likelihood(likelihood)
        if isinstance(likelihood, MultiClass):
            raise ValueError(
                "likelihood: got MultiClass, which is piecewise constant in f and has no slope to train a "
                "network by; take GPflow's Softmax"
            )
        super().__init__(
            likelihood,
            num_latent_gps=num_latent_gps,
            num_samples=num_samples,
            num_data=num_data,
            # A covariance of more points than weights is singular.
            jitter=None if inference == "laplace" else 0.0,
            name=name,
        )
        self.inference = inference
        self.activation = activation
        self.weight_variance = float(weight_variance)
        self.dropout_rate = float(dropout_rate)
        self.num_members = num_members if inference == "ensemble" else 1
        self.curvature = curvature
        self.precision = precision
        self._num_features = num_features
        self._layers = network_layers(
            num_features, image_shape, filters, hidden_units, self.num_latent_gps
        )
        rng = np.random.default_rng(seed)
        self.weights = [
            Parameter(
                math.sqrt(2.0 / layer.num_neighbours)
                * rng.normal(size=(self.num_members, *layer.weight_shape))
            )
            for layer in self._layers
        ]
        self.offsets = [
            Parameter(np.zeros((self.num_members, 1, layer.weight_shape[1])))
            for layer in self._layers
        ]
        self.weight_scales: list[Parameter] | None = None
        self.offset_scales: list[Parameter] | None = None
        if inference == "mean-field":
            positive = tfp.bijectors.Exp()
            self.weight_scales, self.offset_scales = (
                [
                    Parameter(np.full(value.shape, START_SCALE), transform=positive)
                    for value in values
                ]
                for values in (self.weights, self.offsets)
            )
        self.precision_tril: Parameter | None = None
        if inference == "laplace":
            num_weights = sum(int(np.prod(value.shape)) for value in self._curved_values())
            # No variance until there is a curvature.
            start = np.eye(num_weights) / math.sqrt(NEGLIGIBLE)
            self.precision_tril = Parameter(start, transform=triangular(), trainable=False)

    @property
    def num_features(self) -> int:
        """Columns D of the inputs."""
        return self._num_features

    @property
    def objective_is_bound(self) -> bool:
        """Whether `elbo` is in expectation a lower bound on the log evidence: of "mean-field"."""
        return self.inference == "mean-field"

    def _values(self) -> list[Parameter]:
        """Weights and offsets, layer by layer."""
        return [value for layer in zip(self.weights, self.offsets, strict=True) for value in layer]

    def _curved_values(self) -> list[Parameter]:
        """Those that Laplace's approximation is of."""
        return self._values()[-2:] if self.curvature == "last-layer" else self._values()

    # The objective

    @inherit_check_shapes
    def elbo_terms(
        self,
        data: RegressionData,
        *,
        num_samples: int | None = None,
        seed: Seed = None,
        rows: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The two terms of `elbo`: the log-likelihood of the rows given, and that of the weights' prior.

        Of "mean-field" they are its expectation and the negative Kullback-Leibler divergence.
        """
        X, Y = self.check_data(data)
        for_weights, for_masks = split(as_seed(seed), 2)
        S = self._number_of_samples(num_samples) if self._is_random else self.num_members
        f = self._network(X, self._draw_weights(S, for_weights), self._masks(S, X, for_masks))
        X, Y = (tf.tile(values, [tf.shape(f)[0], 1]) for values in (tf.cast(X, f.dtype), Y))
        log_prob = self.likelihood.log_prob(X, tf.reshape(f, [-1, f.shape[-1]]), Y)
        log_prob = tf.reshape(log_prob, tf.shape(f)[:2])
        return tf.reduce_sum(tf.reduce_mean(log_prob, 0)), self._log_prior()

    def _log_prior(self) -> tf.Tensor:
        """The log density of a member's weights, their mean over members; of "mean-field" minus KL."""
        if self.weight_scales is None or self.offset_scales is None:
            densities = [
                tf.reduce_sum(self._prior.log_prob(tf.convert_to_tensor(value)))
                for value in self._values()
            ]
            return tf.add_n(densities) / self.num_members
        divergences = []
        for location, scale in zip(
            [*self.weights, *self.offsets],
            [*self.weight_scales, *self.offset_scales],
            strict=True,
        ):
            q = tfp.distributions.Normal(
                tf.convert_to_tensor(location), tf.convert_to_tensor(scale)
            )
            divergences.append(tf.reduce_sum(tfp.distributions.kl_divergence(q, self._prior)))
        return -tf.add_n(divergences)

    @property
    def _prior(self) -> tfp.distributions.Normal:
        zero = tf.zeros([], gpflow.default_float())
        return tfp.distributions.Normal(zero, zero + math.sqrt(self.weight_variance))

    @property
    def _is_random(self) -> bool:
        """Whether samples differ by what is drawn."""
        drops = self.inference == "dropout" and len(self._layers) > 1
        return drops or self.inference == "mean-field"

    # The network

    def _draw_weights(self, num_samples: int, seed: Seed) -> Weights:
        """Those of S samples, or of 1 that all share; of an ensemble its first S members."""
        parameters = list(zip(self.weights, self.offsets, strict=True))
        if self.weight_scales is None or self.offset_scales is None:
            return [
                (tf.convert_to_tensor(W)[:num_samples], tf.convert_to_tensor(b)[:num_samples])
                for W, b in parameters
            ]
        drawn = []
        scales = zip(self.weight_scales, self.offset_scales, strict=True)
        for (W, b), (W_scale, b_scale), of_layer in zip(
            parameters, scales, split(seed, len(parameters)), strict=True
        ):
            seeds = split(of_layer, 2)
            both = (
                location + scale * normal([num_samples, *location.shape[1:]], key, location.dtype)
                for location, scale, key in zip((W, b), (W_scale, b_scale), seeds, strict=True)
            )
            drawn.append(tuple(both))
        return drawn

    def _masks(
        self, num_samples: int, X: tf.Tensor, seed: Seed, *, shared: bool = False
    ) -> list[tf.Tensor]:
        """By what each layer's hidden units are multiplied [S, N, ...], or [S, 1, ...] at all points."""
        if self.inference != "dropout":
            return []
        keep = 1.0 - self.dropout_rate
        num_points = 1 if shared else tf.shape(X)[0]
        hidden = self._layers[:-1]
        return [
            tf.cast(
                tf.random.stateless_uniform([num_samples, num_points, *layer.unit_shape], of_layer)
                < keep,
                self._layers_dtype(X),
            )
            / keep
            for layer, of_layer in zip(hidden, split(seed, max(len(hidden), 1)), strict=False)
        ]

    def _network(self, X: tf.Tensor, weights: Weights, masks: Sequence[tf.Tensor]) -> tf.Tensor:
        """f [S, N, P] at X [N, D], or at as many points for each sample [S, N, D]."""
        dtype = X.dtype
        X, weights, masks = tf.nest.map_structure(
            lambda tensor: tf.cast(tensor, self._layers_dtype(X)), (X, weights, masks)
        )
        hidden = X if X.shape.rank == 3 else X[None]
        *hidden_layers, output_layer = self._layers
        for number, layer in enumerate(hidden_layers):
            units = ACTIVATIONS[self.activation](layer.linear(hidden, *weights[number]))
            hidden = layer.flat(units * masks[number] if masks else units)
        return tf.cast(output_layer.linear(hidden, *weights[-1]), dtype)

    def _layers_dtype(self, X: tf.Tensor) -> tf.DType:
        """In which the layers are computed."""
        return tf.float32 if self.precision == "mixed" else X.dtype

    # Prediction

    def sample_layers(self, num_samples: int, seed: Seed) -> Any:
        """Weights and masks of S samples; where nothing is random of each member, of at most S."""
        count = num_samples if self._is_random else min(num_samples, self.num_members)
        for_weights, for_masks = split(as_seed(seed), 2)
        no_points = tf.zeros([0, self.num_features], gpflow.default_float())
        masks = self._masks(count, no_points, for_masks, shared=True)
        return self._draw_weights(count, for_weights), masks

    def some_samples(self, draws: Any, start: int, count: int) -> Any:
        """The draws of samples `start`, ..., `start` + `count` - 1, members in turn."""

        def some(tensor: tf.Tensor) -> tf.Tensor:
            if tensor.shape[0] == 1:
                return tensor
            return tf.gather(tensor, tf.range(start, start + count) % tf.shape(tensor)[0])

        weights, masks = tf.nest.map_structure(some, draws)
        return weights, masks

    @inherit_check_shapes
    def condition_layers(
        self, draws: Any, X: tf.Tensor, num_samples: int, seed: Seed, *, full_cov: bool = False
    ) -> MeanAndVariance:
        """f at X and its negligible variance given the weights, but of "laplace" that of all weights."""
        mean = self._network(X, *draws)
        if self.precision_tril is None:
            variance = NEGLIGIBLE * tf.ones_like(mean)
            return mean, tf.linalg.diag(transpose(variance)) if full_cov else variance
        # With the precision R R^T of the weights the covariance is J R^{-T} R^{-1} J^T.
        jacobian = tf.transpose(self._jacobian(X), [1, 2, 0])
        tril = tf.broadcast_to(
            tf.convert_to_tensor(self.precision_tril),
            tf.concat([tf.shape(jacobian)[:1], tf.shape(self.precision_tril)], 0),
        )
        root = tf.linalg.triangular_solve(tril, jacobian)
        if full_cov:
            covariance = tf.matmul(root, root, transpose_a=True)
            eye = tf.eye(tf.shape(X)[0], dtype=X.dtype)
            return mean, (covariance + NEGLIGIBLE * eye)[None]
        return mean, transpose(tf.reduce_sum(tf.square(root), 1))[None] + NEGLIGIBLE

    @inherit_check_shapes
    def sample_prior(
        self, Xnew: InputData, num_samples: int = 1, *, seed: Seed = None
    ) -> tf.Tensor:
        """Draws of f from the prior [S, N, P].

        :param Xnew: [N, D].
        """
        check_positive_integer("num_samples", num_samples)
        X = self.check_inputs(Xnew)
        scale = math.sqrt(self.weight_variance)
        weights = []
        for layer, of_layer in zip(self._layers, split(seed, len(self._layers)), strict=True):
            for_weights, for_offsets = split(of_layer, 2)
            before, after = layer.weight_shape
            W = scale * normal([num_samples, before, after], for_weights, X.dtype)
            weights.append((W, scale * normal([num_samples, 1, after], for_offsets, X.dtype)))
        return self._network(X, weights, [])

    # Laplace's approximation

    def find_curvature(
        self, data: RegressionData, *, batch_size: int | None = PREDICTION_BATCH
    ) -> None:
        """Set `precision_tril` R from all training data.

        R R^T = sum_n J_n^T Lambda_n J_n + I / `weight_variance`. J_n [P, Q] is the network's gradient in its
        weights, or those of its last layer, at x_n, Lambda_n [P, P] minus the second derivative of
        log p(y_n | f) in f, with negative eigenvalues at 0.

        :param data: X [N, D] and Y [N, P].
        :raises ValueError: another inference than "laplace".
        """
        if self.precision_tril is None:
            raise ValueError(f"find_curvature: got inference={self.inference!r}, needs 'laplace'")
        X, Y = self.check_data(data)
        num_weights = self.precision_tril.shape[0]
        precision = tf.eye(num_weights, dtype=X.dtype) / self.weight_variance
        size = batch_size or max(len(X), 1)
        for start in range(0, len(X), size):
            rows = slice(start, start + size)
            jacobian = self._jacobian(X[rows])
            weighted = self._curvature(X[rows], Y[rows]) @ jacobian
            precision += tf.einsum("npq,npr->qr", jacobian, weighted)
        self.precision_tril.assign(tf.linalg.cholesky(precision))

    @check_shapes("X: [N, D]", "return: [N, P, Q]")
    def _jacobian(self, X: tf.Tensor) -> tf.Tensor:
        """df / d(weights and offsets), layer by layer, of those that the curvature is of."""
        num_points = tf.shape(X)[0]
        # A copy of the weights for each point, so that one pass has each point's own gradient.
        curved = self._curved_values()
        own = [tf.tile(tf.convert_to_tensor(value), [num_points, 1, 1]) for value in curved]
        same = [tf.convert_to_tensor(value) for value in self._values()[: -len(curved)]]
        with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
            tape.watch(own)
            values = [*same, *own]
            weights = list(zip(values[::2], values[1::2], strict=True))
            outputs = tf.unstack(self._network(X[:, None], weights, [])[:, 0], axis=-1)
        rows = [
            tf.concat([tf.reshape(part, [num_points, -1]) for part in tape.gradient(f, own)], -1)
            for f in outputs
        ]
        return tf.stack(rows, 1)

    @check_shapes("X: [N, D]", "return: [N, P, P]")
    def _curvature(self, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        """Lambda."""
        f = self._network(X, self._draw_weights(1, 0), [])[0]
        zero = tf.UnconnectedGradients.ZERO
        with tf.GradientTape(persistent=True) as outer:
            outer.watch(f)
            with tf.GradientTape() as inner:
                inner.watch(f)
                log_density = self.likelihood.log_prob(X, f, Y)
            slopes = tf.unstack(inner.gradient(log_density, f), axis=-1)
        rows = [outer.gradient(slope, f, unconnected_gradients=zero) for slope in slopes]
        second = -tf.stack(rows, 1)
        values, vectors = tf.linalg.eigh(0.5 * (second + transpose(second)))
        return tf.matmul(vectors * tf.maximum(values, 0.0)[:, None], vectors, transpose_b=True)

    # For training

    def training_settings(self) -> dict[str, Any]:
        """The inference and what it takes."""
        return {
            "inference": self.inference,
            "num_samples": self.num_samples,
            "weight_variance": self.weight_variance,
            "dropout_rate": self.dropout_rate,
            "curvature": self.curvature,
            "precision": self.precision,
        }

    def locate_failure(self, X: tf.Tensor, seed: tf.Tensor) -> str:
        """There is but one layer."""
        return EVERY_LAYER_FINITE
