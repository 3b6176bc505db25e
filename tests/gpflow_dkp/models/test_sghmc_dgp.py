"""The density that is sampled, its law where that is known, and predictions by a slow computation."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Gaussian
from scipy import stats
from scipy.spatial.distance import cdist

from gpflow_dkp.layers import LatentVariableLayer, SampledGP, SparseGP
from gpflow_dkp.models import SGHMCDGP, LatentVariableDGP

RNG = np.random.default_rng(0)
N, D, M = 8, 2, 4
X = RNG.uniform(-2.0, 2.0, size=(N, D))
Y = np.sin(2.0 * X[:, :1]) + 0.3 * RNG.normal(size=(N, 1))
Z = RNG.uniform(-2.0, 2.0, size=(M, D))
XNEW = RNG.uniform(-2.0, 2.0, size=(M, D))
NOISE, VARIANCE, LENGTHSCALE, JITTER = 0.3, 1.4, 1.1, 1e-6


def make_layer(points: np.ndarray = Z, num_latent_gps: int = 1, **options: Any) -> SampledGP:
    kernel = SquaredExponential(VARIANCE, LENGTHSCALE)
    return SampledGP(kernel, points, num_latent_gps, **options)


def make_model(num_outputs: int = 1, **settings: Any) -> SGHMCDGP:
    return SGHMCDGP([make_layer(num_latent_gps=num_outputs)], Gaussian(NOISE), **settings)


def covariance(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return VARIANCE * np.exp(-0.5 * cdist(A, B, "sqeuclidean") / LENGTHSCALE**2)


def basis_at(points: np.ndarray, inducing: np.ndarray = Z) -> np.ndarray:
    """k(x, Z) L^{-T}, whose product with v is the mean."""
    tril = np.linalg.cholesky(covariance(inducing, inducing) + JITTER * np.eye(len(inducing)))
    return np.linalg.solve(tril, covariance(inducing, points)).T


def test_the_density_is_that_of_a_slow_computation() -> None:
    model, v = make_model(), RNG.normal(size=(M, 1))
    model.layers[0].values.assign(v)
    basis = basis_at(X)
    variance = VARIANCE - np.sum(basis**2, 1, keepdims=True)
    expected = stats.norm.logpdf(Y, basis @ v, np.sqrt(NOISE)) - 0.5 * variance / NOISE
    log_prior = stats.norm.logpdf(v).sum()
    np.testing.assert_allclose(model.elbo((X, Y), seed=0), expected.sum() + log_prior)
    of_data, of_prior = model.elbo_terms((X, Y), values=[tf.zeros([M, 1], tf.float64)])
    zero = stats.norm.logpdf(Y, 0.0, np.sqrt(NOISE)) - 0.5 * variance / NOISE
    np.testing.assert_allclose(of_data, zero.sum())
    np.testing.assert_allclose(of_prior, M * stats.norm.logpdf(0.0))


def test_a_batch_s_likelihood_is_scaled_to_all_rows() -> None:
    """The mean over batches that cover the data is the density of all of them."""
    model = make_model(num_data=N)
    model.layers[0].values.assign(RNG.normal(size=(M, 1)))
    batches = [model.elbo((X[i : i + 2], Y[i : i + 2]), seed=0) for i in range(0, N, 2)]
    np.testing.assert_allclose(np.mean(batches), model.elbo((X, Y), seed=0))
    assert np.std(batches) > 0.1


def test_inner_functions_are_drawn_for_each_sample() -> None:
    """Through two layers: the expectation over S draws is that of single ones."""
    model = SGHMCDGP([make_layer(num_latent_gps=D), make_layer()], Gaussian(NOISE))
    for layer in model.layers:
        layer.values.assign(RNG.normal(size=layer.values.shape))
    single = np.array([model.elbo_terms((X, Y), seed=s)[0] for s in range(30)])
    many, _ = model.elbo_terms((X, Y), num_samples=1000, seed=0)
    assert np.std(single) > 0.1
    error = np.std(single, ddof=1) * np.sqrt(1 / len(single) + 1 / 1000)
    assert abs(single.mean() - many) < stats.t(len(single) - 1).isf(0.5e-5) * error
    again, _ = model.elbo_terms((X, Y), num_samples=1000, seed=0)
    assert many == again


@pytest.mark.parametrize("num_samples", [3, 6, 10])
def test_predictions_are_averages_over_the_values_kept(num_samples: int) -> None:
    """Of one layer, whose mixture is the chain's; each component by NumPy."""
    model, kept = make_model(num_outputs=2), RNG.normal(size=(6, M, 2))
    model.layers[0].keep(kept)
    chosen = kept[np.arange(num_samples) * 6 // num_samples]
    basis = basis_at(XNEW)
    means = basis @ chosen
    variances = VARIANCE - np.sum(basis**2, 1)[:, None] + NOISE * np.ones([1, 2])
    mixture = model.predict_mixture(XNEW, num_samples=num_samples)
    np.testing.assert_allclose(mixture.mean, means, atol=1e-9)
    np.testing.assert_allclose(mixture.variance, np.tile(variances, [num_samples, 1, 1]))
    mean, variance = model.predict_y(XNEW, num_samples=num_samples)
    np.testing.assert_allclose(mean, means.mean(0), atol=1e-9)
    np.testing.assert_allclose(variance, variances + means.var(0))
    y = RNG.normal(size=(M, 2))
    density = stats.norm.pdf(y, means, np.sqrt(variances)).prod(-1).mean(0)
    log_density = model.predict_log_density((XNEW, y), num_samples=num_samples)
    np.testing.assert_allclose(log_density, np.log(density))


def test_predictions_through_two_layers_are_those_of_each_value() -> None:
    """At the inner layer's inducing points, where its function is known given the values."""
    mean_function = gpflow.functions.Linear(np.eye(D), np.zeros(D))
    inner = make_layer(XNEW, D, mean_function=mean_function)
    model = SGHMCDGP([inner, make_layer()], Gaussian(NOISE))
    first, second = RNG.normal(size=(5, M, D)), RNG.normal(size=(5, M, 1))
    inner.keep(first)
    model.output_layer.keep(second)
    mean, _ = model.predict_f(XNEW, num_samples=5)
    expected = []
    for v, w in zip(first, second, strict=True):
        features = XNEW + basis_at(XNEW, XNEW) @ v
        expected.append(basis_at(features) @ w)
    np.testing.assert_allclose(mean, np.mean(expected, 0), atol=0.02)  # the jitter's noise is 1e-3
    assert np.std(expected) > 0.5


def test_some_samples_are_those_of_all() -> None:
    model = make_model()
    model.layers[0].keep(RNG.normal(size=(6, M, 1)))
    (draw,) = model.sample_layers(6, 0)
    (part,) = model.some_samples([draw], 2, 3)
    np.testing.assert_array_equal(part.whitened, draw.whitened[2:5])
    np.testing.assert_array_equal(part.log_ratio, draw.log_ratio[2:5])
    drawn = model.predict_f_samples(X, 12, seed=0)  # twice as many as are kept
    assert drawn.shape == (12, N, 1)
    assert len(np.unique(np.round(drawn[:, 0, 0], 6))) == 12


def test_before_there_are_samples_predictions_are_of_the_start() -> None:
    mean, variance = make_model().predict_f(XNEW)
    np.testing.assert_allclose(mean, np.zeros([M, 1]))
    np.testing.assert_allclose(variance[:, 0], VARIANCE - np.sum(basis_at(XNEW) ** 2, 1))


@pytest.mark.parametrize(
    "likelihood", [gpflow.likelihoods.Softmax(3), gpflow.likelihoods.StudentT()]
)
def test_any_likelihood_with_expectations_does(likelihood: Any) -> None:
    labels = np.digitize(Y, [-0.5, 0.5]).astype(float)
    model = SGHMCDGP.from_data(X, labels, num_inducing=M, likelihood=likelihood, num_samples=2)
    with tf.GradientTape() as tape:
        values = [layer.values for layer in model.layers]
        tape.watch(values)
        value = model.elbo((X, labels), seed=0)
    gradients = tape.gradient(value, values)
    assert np.isfinite(value)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)
    assert np.any(gradients[-1] != 0.0)
    assert np.all(np.isfinite(model.predict_log_density((X, labels), num_samples=3)))


def test_layers_from_data_are_those_of_the_other_inference() -> None:
    """The paper's kernels, projections and inducing points; values at 0."""
    ours = SGHMCDGP.from_data(X, Y, depth=2, num_inducing=M, seed=3)
    theirs = LatentVariableDGP.from_architecture("GP-GP", (X, Y), num_inducing=M, seed=3)
    for layer, other in zip(ours.layers, theirs.layers, strict=True):
        np.testing.assert_array_equal(layer.inducing_variable.Z, other.inducing_variable.Z)
        assert type(layer.mean_function) is type(other.mean_function)
        np.testing.assert_array_equal(layer.values, np.zeros(layer.values.shape))
    np.testing.assert_array_equal(ours.layers[0].projection, theirs.layers[0].projection)
    assert not ours.objective_is_bound


def test_a_layer_that_is_not_finite_is_named() -> None:
    model = make_model()
    model.layers[0].values.assign(np.full([M, 1], np.nan))
    said = model.locate_failure(tf.constant(X), 0)
    assert said == "layer 1 of 1 (SampledGP) gives values that are not finite"


SPARSE = SparseGP(SquaredExponential(), Z, 1)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([], "layers: needs a list of .*, got none"),
        ([SPARSE], "layers: got SparseGP among them, needs SampledGP; of a SparseGP make one by"),
        (
            [LatentVariableLayer(num_points=N), make_layer()],
            "layers: got LatentVariableLayer among",
        ),
        ([make_layer(), make_layer()], "layers: layer 2 takes 2 columns, those before it give 1"),
    ],
)
def test_bad_layers_get_one_line(layers: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        SGHMCDGP(layers, Gaussian())
    assert "\n" not in str(raised.value)


def test_other_bad_arguments_get_one_line() -> None:
    with pytest.raises(ValueError, match="layers: got SampledGP among them, needs SparseGP"):
        LatentVariableDGP([make_layer()], Gaussian())
    with pytest.raises(ValueError, match="depth: got 0, needs an integer of at least 1"):
        SGHMCDGP.from_data(X, Y, depth=0)
    with pytest.raises(ValueError, match="num_samples: got 0, needs an integer of at least 1"):
        make_model(num_samples=0)
