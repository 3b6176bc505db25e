"""Posterior samples of latent variables: against quadrature, closed forms, and NumPy's weights."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from gpflow.functions import Linear
from gpflow.kernels import Constant, SquaredExponential
from gpflow.likelihoods import Gaussian, Softmax
from latent_variable_cases import (
    FALSE_ALARM,
    D,
    N,
    RecordingLayer,
    check_mean,
    make_model,
    regression_data,
    svgp_of,
)
from scipy import special, stats

from gpflow_dkp.layers import LatentVariableLayer, Observed, SparseGP
from gpflow_dkp.models import LatentVariableDGP, latent_variable_dgp
from gpflow_dkp.models.latent_samples import resample

X, Y = regression_data()
K = 200


def quadrature(model: LatentVariableDGP, num_nodes: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Of "LV-GP": a grid of w [Q], and the posterior's probabilities on it [Q, N], by GPflow's SVGP."""
    nodes = np.linspace(-6.0, 6.0, num_nodes)
    inputs = np.hstack([np.tile(X, [num_nodes, 1]), np.repeat(nodes, N)[:, None]])
    svgp, targets = svgp_of(model), np.tile(Y, [num_nodes, 1])
    mean, variance = svgp.predict_f(inputs)
    expected = model.likelihood.variational_expectations(inputs, mean, variance, targets)
    log_density = np.reshape(expected, [num_nodes, N]) + stats.norm.logpdf(nodes)[:, None]
    return nodes, special.softmax(log_density, axis=0)


@pytest.mark.parametrize("inference", ["vi", "iwvi", "iwvi-independent"])
@pytest.mark.parametrize("free", [False, True])
def test_the_law_of_one_gp_is_that_of_quadrature(free: bool, inference: str) -> None:
    """Whatever bound trained it: e^L p(w) normalised, far from q(w)."""
    model = make_model("LV-GP", free=free, inference=inference)
    nodes, shares = quadrature(model)
    w = model.sample_latents((X, Y), 2000, num_importance_samples=K, seed=0).latents.numpy()
    assert w.shape == (2000, N, 1)
    for n in range(N):
        cdf = np.interp(np.sort(w[:, n, 0]), nodes, np.cumsum(shares[:, n]))
        distance = np.max(np.abs(cdf - (np.arange(2000) + 0.5) / 2000))
        # The bias of K draws, and half a step of the grid, beside the chance of 2000.
        assert distance < stats.kstwo(2000).isf(FALSE_ALARM / N) + 2.0 / K, (n, distance)
    observed = Observed(tf.constant(X), tf.constant(Y))
    mean, variance = model.layers[0].latent_posterior(observed)
    from_q = stats.norm(mean, np.sqrt(variance)).cdf(w)
    assert max(stats.kstest(from_q[:, n, 0], "uniform").statistic for n in range(N)) > 0.1


SLOPE, NOISE = 1.5, 0.4


def linear(num_layers: int = 1) -> LatentVariableDGP:
    """y = c (w_1 + ... + w_l) + noise, of layers of free parameters."""
    latents = [LatentVariableLayer(num_points=N) for _ in range(num_layers)]
    for layer in latents:
        layer.mean.assign(np.full([N, 1], 0.2))
        layer.variance.assign(np.full([N, 1], 0.9))
    slopes = np.vstack([[[0.0]], np.full([num_layers, 1], SLOPE)])
    final = SparseGP(
        SquaredExponential(variance=1e-10),
        np.zeros([1, num_layers + 1]),
        1,
        mean_function=Linear(A=slopes, b=[0.0]),
    )
    return LatentVariableDGP([*latents, final], Gaussian(NOISE), jitter=1e-12)


def test_two_layers_are_drawn_together() -> None:
    """w_1, w_2 given y are Gaussian with covariance (I + c^2 1 1^T / s)^{-1}: anticorrelated."""
    data, size = (X[:, :1], Y), 4000
    samples = linear(2).sample_latents(data, size, num_importance_samples=K, seed=1)
    w = samples.latents.numpy()
    assert w.shape == (size, N, 2)
    covariance = np.linalg.inv(np.eye(2) + SLOPE**2 / NOISE)
    mean = covariance @ np.full(2, SLOPE / NOISE) * Y
    assert covariance[0, 1] < -0.3
    tolerance = 3.0 / K  # the bias of K draws
    within(w, mean, tolerance)
    deviation = w - mean
    products = deviation[..., :, None] * deviation[..., None, :]
    within(products, np.broadcast_to(covariance, products.shape[1:]), tolerance)


def within(draws: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """The mean of independent draws [n, ...] is no more than `tolerance` beside what chance leaves."""
    error = np.abs(draws.mean(0) - expected)
    quantile = stats.norm.isf(FALSE_ALARM / (2 * draws[0].size))
    allowed = quantile * draws.std(0, ddof=1) / np.sqrt(len(draws)) + tolerance
    assert np.all(error < allowed), np.max(error - allowed)


def test_one_draw_is_of_the_encoders_posterior() -> None:
    """K = 1 has nothing to choose from."""
    model = make_model("LV-GP", free=True)
    w, size = model.sample_latents((X, Y), 4000, num_importance_samples=1, seed=0)
    layer = model.layers[0]
    check_mean(w.numpy(), layer.mean.numpy())
    check_mean((w.numpy() - layer.mean.numpy()) ** 2, layer.variance.numpy())
    np.testing.assert_allclose(size, np.ones(N), rtol=0, atol=1e-12)


@pytest.mark.parametrize("mean", [0.0, 4.0])
def test_effective_sample_size_is_k_at_the_posterior_and_falls_away_from_it(mean: float) -> None:
    """K where q(w) is the posterior itself; from afar most weights are nothing."""
    model = linear()
    variance = 1.0 / (1.0 + SLOPE**2 / NOISE)
    layer = model.layers[0]
    layer.mean.assign(variance * SLOPE / NOISE * Y + mean * np.sqrt(variance))
    layer.variance.assign(np.full([N, 1], variance))
    size = model.sample_latents((X[:, :1], Y), 10, num_importance_samples=50, seed=0)[1].numpy()
    if mean:
        assert np.all((size >= 1.0) & (size < 10.0))
    else:
        np.testing.assert_allclose(size, np.full(N, 50.0), rtol=1e-6)


def test_the_choice_is_by_numpys_weights() -> None:
    """Of three candidates, in proportion; the effective size of their shares."""
    log_weights = np.log([[0.5, 0.3, 0.2], [0.0 + 1e-300, 1.0, 1.0]]) + 700.0
    candidates = np.array([[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]])
    repeated = [np.repeat(values, 6000, 0) for values in (candidates, log_weights)]
    chosen, size = (part.numpy() for part in resample(*map(tf.constant, repeated), 3))
    counts = [np.sum(chosen[:6000] == value) for value in (1.0, 2.0, 3.0)]
    assert stats.chisquare(counts, 6000 * np.array([0.5, 0.3, 0.2])).pvalue > FALSE_ALARM
    assert set(chosen[6000:, 0]) == {5.0, 6.0}
    np.testing.assert_allclose(size[[0, -1]], [1.0 / 0.38, 2.0], rtol=1e-12)


def test_one_draw_of_the_inner_functions_maps_all_candidates_on() -> None:
    """y = g + noise with one g ~ q(g) for all w: every candidate of a set weighs the same."""
    latents = LatentVariableLayer(num_points=N)
    latents.mean.assign(np.zeros([N, 1]))
    latents.variance.assign(np.ones([N, 1]))
    inner = SparseGP(Constant(1.0), np.zeros([1, 2]), 1)
    final = SparseGP(
        SquaredExponential(variance=1e-10),
        np.zeros([1, 1]),
        1,
        mean_function=Linear(A=[[1.0]], b=[0.0]),
    )
    for inference in ("iwvi", "iwvi-independent"):
        model = LatentVariableDGP(
            [latents, inner, final], Gaussian(0.1), jitter=1e-10, inference=inference
        )
        size = model.sample_latents((X[:, :1], Y), 5, num_importance_samples=20, seed=0)[1]
        np.testing.assert_allclose(size, np.full(N, 20.0), rtol=1e-2)


@pytest.mark.parametrize("architecture", ["LV-GP-GP", "LV-GP-LV-GP"])
def test_the_weights_of_deep_models_are_the_bounds(architecture: str) -> None:
    """The mean of log mean weights over the sets is the bound of one seed, up to the KL."""
    model = make_model(architecture, kind=RecordingLayer, num_importance_samples=4)
    seeds: list[tf.Tensor] = []

    def recorded(candidates, log_weights, seed):  # type: ignore[no-untyped-def]
        seeds.append(tf.reduce_logsumexp(log_weights, -1) - np.log(4))
        return resample(candidates, log_weights, seed)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(latent_variable_dgp, "resample", recorded)
        model.sample_latents((X, Y), 2000, num_importance_samples=4, seed=0, batch_size=None)
    by_set = np.reshape(seeds[0], [2000, N]).sum(1)
    bounds = [float(model.elbo((X, Y), num_samples=1000, seed=seed)) for seed in range(5)]
    expected = np.mean(bounds) + float(model.prior_kl())
    check_mean(by_set, expected)


def test_batches_and_seeds() -> None:
    """Of any size: shapes, one seed one draw; free parameters of points by their rows."""
    model = make_model("LV-GP-LV-GP", free=True)
    for batch_size in (7, None):
        first, again, other = (
            model.sample_latents(
                (X, Y), 5, num_importance_samples=7, seed=seed, batch_size=batch_size
            )
            for seed in (1, 1, 2)
        )
        assert first.latents.shape == (5, N, 2)
        assert first.effective_sample_size.shape == (N,)
        np.testing.assert_array_equal(first.latents, again.latents)
        assert not np.any(np.isclose(first.latents, other.latents, rtol=0, atol=1e-9))
        assert len(np.unique(first.latents)) == first.latents.numpy().size
    model.layers[0].mean.assign(np.arange(N)[:, None] * 100.0)
    rows = tf.constant([2, 0])
    w, _ = model.sample_latents((X[:2], Y[:2]), 3, num_importance_samples=1, rows=rows, seed=0)
    np.testing.assert_allclose(w[..., 0], np.tile([200.0, 0.0], [3, 1]), rtol=0, atol=10.0)


def test_compiled_for_any_number_of_points_is_the_eager_one() -> None:
    model = make_model("LV-GP-GP")
    signature = [tf.TensorSpec([None, D], tf.float64), tf.TensorSpec([None, 1], tf.float64)]
    compiled = tf.function(
        lambda *data: model.sample_latents(data, 3, num_importance_samples=5, seed=0),
        input_signature=signature,
        autograph=False,
    )
    for rows in (1, N):
        eager = model.sample_latents((X[:rows], Y[:rows]), 3, num_importance_samples=5, seed=0)
        for actual, expected in zip(compiled(X[:rows], Y[:rows]), eager, strict=True):
            np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-7)


def test_classes() -> None:
    """A likelihood of integer labels that draws f."""
    labels = np.array([[0], [1], [2], [1]])
    model = make_model("LV-GP", num_outputs=3, likelihood=Softmax(3))
    w, size = model.sample_latents((X, labels), 6, num_importance_samples=4, seed=0)
    assert w.shape == (6, N, 1)
    assert np.all(np.isfinite(size))


def test_bad_arguments() -> None:
    model = make_model("LV-GP")
    for arguments, pattern in (
        ({"num_samples": 0}, "num_samples: got 0"),
        ({"num_importance_samples": 0}, "num_importance_samples: got 0"),
        ({"batch_size": 0}, "batch_size: got 0"),
    ):
        with pytest.raises(ValueError, match=pattern):
            model.sample_latents((X, Y), **arguments)
    with pytest.raises(ValueError, match=r"sample_latents: .* needs a layer that has some") as got:
        make_model("GP-GP").sample_latents((X, Y))
    assert "\n" not in str(got.value)
