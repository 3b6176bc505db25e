"""Deep GPs with latent variables, with every parameter away from its start."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import SquaredExponential
from scipy import stats

from gpflow_dkp.layers import Encoder, LatentVariableLayer, SparseGP
from gpflow_dkp.models import LatentVariableDGP

N, D, M, NUM_INNER_GPS = 4, 2, 3, 2

FALSE_ALARM = 1e-5
"""Chance that a statistical test of a correct model fails."""


def regression_data(num_outputs: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(N, D))
    return X, np.sin(2.0 * X[:, :1]) + 0.5 * rng.normal(size=(N, num_outputs))


class RecordingLayer(LatentVariableLayer):
    """Keeps the latent variables that were last drawn for it."""

    drawn: np.ndarray

    def append(self, features: tf.Tensor, latent: tf.Tensor) -> tf.Tensor:
        self.drawn = latent.numpy()
        return super().append(features, latent)


def make_gp(
    columns: int, num_latent_gps: int, rng: np.random.Generator, **settings: Any
) -> SparseGP:
    kernel = SquaredExponential(variance=1.2, lengthscales=rng.uniform(1.5, 2.5, columns))
    layer = SparseGP(kernel, rng.normal(size=(M, columns)), num_latent_gps, **settings)
    layer.q_mu.assign(1.5 * rng.normal(size=(M, num_latent_gps)))
    tril = np.tril(0.4 * rng.normal(size=(num_latent_gps, M, M)), -1)
    layer.q_sqrt.assign(tril + 0.6 * np.eye(M))
    return layer


def make_latents(
    rng: np.random.Generator, free: bool, kind: type[LatentVariableLayer] = RecordingLayer
) -> LatentVariableLayer:
    """One latent variable a point, of an encoder or of free parameters."""
    if free:
        layer = kind(num_points=N)
        layer.mean.assign(0.7 * rng.normal(size=(N, 1)))
        layer.variance.assign(rng.uniform(0.3, 0.8, size=(N, 1)))
        return layer
    encoder = Encoder(D + 1, widths=(2,), bias=-0.7, seed=int(rng.integers(1000)))
    for offset in encoder.offsets:
        offset.assign(0.3 * rng.normal(size=offset.shape))
    return kind(encoder=encoder)


def make_model(
    architecture: str,
    *,
    num_outputs: int = 1,
    likelihood: gpflow.likelihoods.Likelihood | None = None,
    free: bool = False,
    whiten: bool = True,
    kind: type[LatentVariableLayer] = LatentVariableLayer,
    **settings: Any,
) -> LatentVariableDGP:
    """A model with random parameters; inner layers map to D columns by a projection and a mean."""
    rng = np.random.default_rng(1)
    layers: list[LatentVariableLayer | SparseGP] = []
    letters, columns = architecture.split("-"), D
    for letter in letters[:-1]:
        if letter == "LV":
            layers.append(make_latents(rng, free, kind))
            columns += 1
        else:
            mean = gpflow.functions.Linear(rng.normal(size=(columns, D)), rng.normal(size=D))
            gpflow.set_trainable(mean, False)
            projection = rng.normal(size=(D, NUM_INNER_GPS))
            given = {"mean_function": mean, "projection": projection, "whiten": whiten}
            layers.append(make_gp(columns, NUM_INNER_GPS, rng, **given))
            columns = D
    layers.append(make_gp(columns, num_outputs, rng, whiten=whiten))
    likelihood = gpflow.likelihoods.Gaussian(0.3) if likelihood is None else likelihood
    return LatentVariableDGP(layers, likelihood, **settings)


def svgp_of(model: LatentVariableDGP, num_data: int | None = None) -> gpflow.models.SVGP:
    """GPflow's model of the output layer, with the same parameters."""
    layer = model.output_layer
    svgp = gpflow.models.SVGP(
        layer.kernel,
        model.likelihood,
        layer.inducing_variable,
        num_latent_gps=layer.num_latent_gps,
        whiten=layer.whiten,
        num_data=num_data,
    )
    svgp.q_mu, svgp.q_sqrt = layer.q_mu, layer.q_sqrt
    return svgp


def replicate(function: Callable[[tf.Tensor], tf.Tensor], num_replicates: int) -> np.ndarray:
    """Values [n, ...] of a function of a seed, compiled."""
    # Without AutoGraph, which takes most of the time of a trace.
    compiled = tf.function(function, autograph=False)
    return np.array([compiled(tf.constant(seed)) for seed in range(num_replicates)])


def check_mean(draws: np.ndarray, expected: np.ndarray | float) -> None:
    """The mean of independent `draws` [n, ...] is `expected` [...]."""
    p_values = np.asarray(stats.ttest_1samp(draws, expected).pvalue)
    assert np.min(p_values) > FALSE_ALARM / p_values.size, (np.mean(draws, 0), expected)


def check_equal_means(first: np.ndarray, second: np.ndarray) -> None:
    """Independent draws `first` [n, ...] and `second` [m, ...] have one mean."""
    p_values = np.asarray(stats.ttest_ind(first, second, equal_var=False).pvalue)
    assert np.min(p_values) > FALSE_ALARM / p_values.size, (np.mean(first, 0), np.mean(second, 0))
