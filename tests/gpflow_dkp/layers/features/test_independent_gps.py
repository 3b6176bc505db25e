"""IndependentGPs: a SparseGP where the kernels agree, GPflow's SVGP of each part, and additive noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.functions import Linear
from gpflow.kernels import Matern32, SquaredExponential, White
from gpflow.likelihoods import Gaussian

import gpflow_dkp
from gpflow_dkp.layers import Encoder, IndependentGPs, LatentVariableLayer, SparseGP
from gpflow_dkp.models import LatentVariableDGP

RNG = np.random.default_rng(0)
Z, FEATURES = RNG.normal(size=(4, 2)), tf.constant(RNG.normal(size=(3, 5, 2)))
MEAN, PROJECTION = Linear(RNG.normal(size=(2, 3)), RNG.normal(size=3)), RNG.normal(size=(3, 2))


def sparse(kernel: gpflow.kernels.Kernel, num_latent_gps: int = 1, **settings: Any) -> SparseGP:
    rng = np.random.default_rng(1)
    layer = SparseGP(kernel, Z, num_latent_gps, **settings)
    layer.q_mu.assign(rng.normal(size=(4, num_latent_gps)))
    root = np.tril(0.4 * rng.normal(size=(num_latent_gps, 4, 4)), -1) + 0.6 * np.eye(4)
    layer.q_sqrt.assign(root)
    return layer


def parted(whole: SparseGP, **settings: Any) -> IndependentGPs:
    """The same GPs, a part each."""
    parts = []
    for number in range(whole.num_latent_gps):
        part = SparseGP(whole.kernel, whole.inducing_variable, 1)
        part.q_mu.assign(whole.q_mu[:, number : number + 1])
        part.q_sqrt.assign(whole.q_sqrt[number : number + 1])
        parts.append(part)
    return IndependentGPs(parts, **settings)


@pytest.mark.parametrize("full_cov", [False, True])
@pytest.mark.parametrize("settings", [{}, {"mean_function": MEAN, "projection": PROJECTION}])
def test_parts_of_one_kernel_are_one_sparse_gp(settings: dict[str, Any], full_cov: bool) -> None:
    whole = sparse(SquaredExponential(lengthscales=1.3), 2, **settings)
    layer = parted(whole, **settings)
    assert layer.output_dim_of(2) == whole.output_dim_of(2)
    moments = (x.marginals(FEATURES, full_cov=full_cov) for x in (layer, whole))
    for ours, expected in zip(*moments, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(layer.sample().log_ratio, whole.sample().log_ratio, rtol=1e-10)


@pytest.mark.parametrize("full_cov", [False, True])
def test_draws_have_the_moments_of_the_marginals(full_cov: bool) -> None:
    """Of each part's own kernel, and no correlation between parts."""
    layer = IndependentGPs(
        [sparse(SquaredExponential(lengthscales=0.5)), sparse(Matern32(variance=2.0))],
        mean_function=MEAN,
        projection=PROJECTION,
    )
    size = 4000
    points = tf.tile(FEATURES[:1], [size, 1, 1])
    draws = layer.condition(layer.sample(), points, seed=0, full_cov=full_cov).numpy()
    mean, variance = (moment.numpy()[0] for moment in layer.marginals(FEATURES[:1]))
    error = np.abs(draws.mean(0) - mean) / np.sqrt(variance / size)
    assert np.max(error) < 5.0
    np.testing.assert_allclose(draws.var(0), variance, rtol=0.15)
    back = np.linalg.lstsq(PROJECTION, (draws - mean).reshape(-1, 3).T, rcond=None)[0]
    assert abs(np.corrcoef(back)[0, 1]) < 5.0 / np.sqrt(size)
    first, second = (layer.condition(layer.sample(), FEATURES, seed=seed) for seed in (1, 1))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("how", [{}, {"common_noise": True}, {"full_cov": True}])
def test_copies_of_points_are_drawn_as_one_by_one(how: dict[str, bool]) -> None:
    kernels = [SquaredExponential(lengthscales=0.5), Matern32(variance=2.0)]
    parts = [sparse(kernel) for kernel in kernels]
    layer = IndependentGPs(parts, mean_function=MEAN, projection=PROJECTION)
    X = FEATURES[0]
    expected = layer.condition(layer.sample(), tf.tile(X[None], [4, 1, 1]), seed=5, **how)
    copies = layer.condition_copies(layer.sample(), X, 4, seed=5, **how)
    np.testing.assert_allclose(copies, expected, rtol=0, atol=1e-12)


def test_each_part_is_gpflows_svgp_of_its_kernel() -> None:
    kernels = [SquaredExponential(lengthscales=0.4), Matern32(lengthscales=2.0, variance=0.5)]
    layer = IndependentGPs([sparse(kernel) for kernel in kernels])
    mean, variance = (moment.numpy() for moment in layer.marginals(FEATURES[0]))
    for number, part in enumerate(layer.parts):
        svgp = gpflow.models.SVGP(part.kernel, Gaussian(), part.inducing_variable)
        svgp.q_mu, svgp.q_sqrt = part.q_mu, part.q_sqrt
        expected = [moment.numpy()[:, 0] for moment in svgp.predict_f(FEATURES[0])]
        np.testing.assert_allclose(mean[:, number], expected[0], rtol=0, atol=1e-8)
        np.testing.assert_allclose(variance[:, number], expected[1], rtol=0, atol=1e-8)
    assert np.max(np.abs(mean[:, 0] - mean[:, 1])) > 0.05


def test_a_white_kernel_is_additive_noise_of_its_part() -> None:
    """At the prior: s2 more variance at every point, none of it shared with another point or part."""
    noisy, quiet = (
        IndependentGPs([SparseGP(first, Z, 1), SparseGP(Matern32(), Z, 1)])
        for first in (SquaredExponential() + White(0.3), SquaredExponential())
    )
    covariances = [layer.marginals(FEATURES, full_cov=True)[1].numpy() for layer in (noisy, quiet)]
    difference = covariances[0] - covariances[1]
    np.testing.assert_allclose(difference[:, 0], np.tile(0.3 * np.eye(5), [3, 1, 1]), atol=1e-6)
    np.testing.assert_allclose(difference[:, 1], np.zeros([3, 5, 5]), rtol=0, atol=1e-12)
    draws = noisy.prior_sample(tf.zeros([4000, 2, 2], tf.float64), seed=0).numpy()
    # Two points in one place part by the noise alone.
    np.testing.assert_allclose(np.var(draws[:, 0] - draws[:, 1], axis=0), [0.6, 0.0], atol=0.08)


@pytest.mark.parametrize("doubly_reparametrised", [False, True])
def test_an_inner_layer_of_parts_is_trained(doubly_reparametrised: bool, tmp_path: Path) -> None:
    """Every parameter has a gradient, and a file keeps the bound."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(6, 2))
    Y = np.sin(X[:, :1])
    points = rng.normal(size=(4, 3))
    parts = [SparseGP(kernel, points, 1) for kernel in (SquaredExponential(), Matern32())]
    for part in parts:
        part.q_mu.assign(rng.normal(size=(4, 1)))
    latent = LatentVariableLayer(encoder=Encoder(3, widths=(2,), bias=-0.7))
    output = sparse(SquaredExponential(lengthscales=1.5))
    model = LatentVariableDGP(
        [latent, IndependentGPs(parts), output],
        Gaussian(0.1),
        doubly_reparametrised=doubly_reparametrised,
        jitter=1e-5,
    )
    assert {float(layer.jitter) for layer in (*parts, output)} == {1e-5}
    with tf.GradientTape() as tape:
        bound = model.elbo((X, Y), seed=0)
    gradients = tape.gradient(bound, model.trainable_variables)
    assert all(np.any(gradient.numpy() != 0.0) for gradient in gradients)
    model.save(tmp_path / "model")
    loaded = gpflow_dkp.load(tmp_path / "model")
    assert float(loaded.elbo((X, Y), seed=0)) == pytest.approx(float(bound), abs=1e-12)


@pytest.mark.parametrize(
    ("parts", "settings", "pattern"),
    [
        ([], {}, r"parts: got \[\], needs a list of SparseGP"),
        ([SquaredExponential()], {}, "parts: got .*, needs a list of SparseGP"),
        (
            [SparseGP(Matern32(), np.ones((2, d)), 1) for d in (1, 2)],
            {},
            "parts: got inducing points of 1 and 2 columns, needs one number",
        ),
        (
            [SparseGP(Matern32(), np.ones((2, 1)), 1)],
            {"projection": np.ones((3, 2))},
            r"projection: got shape \(3, 2\), needs \[P, 1\]",
        ),
    ],
)
def test_bad_arguments(parts: Any, settings: dict[str, Any], pattern: str) -> None:
    with pytest.raises(ValueError, match=pattern) as error:
        IndependentGPs(parts, **settings)
    assert "\n" not in str(error.value)


def test_posterior_distribution_is_that_of_each_part() -> None:
    whole = sparse(SquaredExponential(lengthscales=1.3), 2)
    values = RNG.normal(size=(2, 4))
    parts = parted(whole).posterior_distribution()
    log_density = parts.log_prob([values[:1], values[1:]])
    np.testing.assert_allclose(log_density, whole.posterior_distribution().log_prob(values))
