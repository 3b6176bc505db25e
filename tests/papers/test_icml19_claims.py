"""What [ICML19], "Deep Gaussian processes with importance-weighted variational inference", states."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
from gpflow.functions import Linear
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Gaussian
from law_checks import check_mean
from scipy import special, stats

from gpflow_dkp.layers import LatentVariableLayer, SparseGP
from gpflow_dkp.models import LatentVariableDGP

# One point y = c w + noise with w ~ N(0, 1), and a q(w) that is not its posterior: all by quadrature.

SLOPE, NOISE, TARGET = 1.5, 0.4, 1.3
MEAN, VARIANCE = 0.3, 0.6
DATA = np.zeros([1, 1]), np.array([[TARGET]])
EVIDENCE = float(stats.norm(0.0, np.sqrt(SLOPE**2 + NOISE)).logpdf(TARGET))


def model(inference: str, K: int) -> LatentVariableDGP:
    latents = LatentVariableLayer(num_points=1)
    latents.mean.assign([[MEAN]])
    latents.variance.assign([[VARIANCE]])
    mean = Linear(A=[[0.0], [SLOPE]], b=[0.0])
    final = SparseGP(SquaredExponential(variance=1e-10), np.zeros([1, 2]), 1, mean_function=mean)
    settings = {"inference": inference, "num_importance_samples": K, "jitter": 1e-12}
    return LatentVariableDGP([latents, final], Gaussian(NOISE), **settings)


def elbos(inference: str, K: int) -> np.ndarray:
    built = model(inference, K)
    samples = 5000 if K < 10 else 200
    bound = tf.function(
        lambda seed: built.elbo(DATA, num_samples=samples, seed=seed), autograph=False
    )
    return np.array([float(bound(tf.constant([3, number]))) for number in range(40)])


def log_weight(w: np.ndarray) -> np.ndarray:
    q = stats.norm(MEAN, np.sqrt(VARIANCE))
    log_likelihood = stats.norm(SLOPE * w, np.sqrt(NOISE)).logpdf(TARGET)
    return log_likelihood + stats.norm.logpdf(w) - q.logpdf(w)


def by_quadrature(K: int, num_nodes: int = 40) -> float:
    """E log mean_k weight(w_k), an integral in K dimensions."""
    nodes, shares = np.polynomial.hermite_e.hermegauss(num_nodes)
    log_weights = log_weight(MEAN + np.sqrt(VARIANCE) * nodes)
    shares = shares / np.sum(shares)
    total = 0.0
    for others in itertools.product(range(num_nodes), repeat=K - 1):
        rows = np.stack([log_weights, *(np.full(num_nodes, log_weights[i]) for i in others)])
        value = special.logsumexp(rows, axis=0) - np.log(K)
        total += np.prod(shares[list(others)]) * np.dot(shares, value)
    return float(total)


def vi_in_closed_form() -> float:
    squares = (TARGET - SLOPE * MEAN) ** 2 + SLOPE**2 * VARIANCE
    kl = 0.5 * (VARIANCE + MEAN**2 - 1.0 - np.log(VARIANCE))
    return float(-0.5 * np.log(2.0 * np.pi * NOISE) - 0.5 * squares / NOISE - kl)


def test_importance_weighting_by_one_draw_is_vi() -> None:
    """In expectation: the closed form, the quadrature and both of our bounds."""
    expected = vi_in_closed_form()
    assert by_quadrature(1) == pytest.approx(expected, abs=1e-9)
    for inference in ("vi", "iwvi"):
        check_mean(elbos(inference, 1)[:, None], expected)


@pytest.mark.parametrize("K", [2, 3])
def test_equation_11_is_the_integral_over_all_draws(K: int) -> None:
    check_mean(elbos("iwvi", K)[:, None], by_quadrature(K))


def test_equation_11_rises_in_k_to_the_evidence() -> None:
    """At K = 1, 2, 3 by quadrature, and 1 000 by ours; the paper's "strictly" is so here."""
    bounds = [by_quadrature(K) for K in (1, 2, 3)]
    assert np.all(np.diff([*bounds, EVIDENCE]) > 0.03)
    assert np.mean(elbos("iwvi", 1000)) == pytest.approx(EVIDENCE, abs=0.01)


def test_at_the_true_posterior_every_k_gives_the_evidence() -> None:
    """Where ">=" is an equality: each weight is p(y), whatever the draw."""
    posterior = 1.0 / (1.0 + SLOPE**2 / NOISE)
    for inference, K in (("vi", 1), ("iwvi", 1), ("iwvi", 7)):
        built = model(inference, K)
        built.layers[0].mean.assign([[posterior * SLOPE / NOISE * TARGET]])
        built.layers[0].variance.assign([[posterior]])
        error = np.abs(float(built.elbo(DATA, num_samples=500, seed=1)) - EVIDENCE)
        assert error < (1e-6 if inference == "iwvi" else 0.3)


def test_latent_covariates_give_marginals_that_no_gaussian_noise_gives() -> None:
    """With w a covariate f(x, w) is bimodal in its marginal at x, which additive noise never is."""
    kernel = SquaredExponential(variance=4.0, lengthscales=[1.0, 0.3])
    latents = LatentVariableLayer(num_points=1)
    built = LatentVariableDGP([latents, SparseGP(kernel, np.zeros([1, 2]), 1)], Gaussian(0.01))
    layer = built.output_layer
    layer.inducing_variable.Z.assign([[0.0, 0.0]])
    grid = np.linspace(-3.0, 3.0, 41)[:, None]
    Z = np.hstack([np.zeros_like(grid), grid])
    layer = SparseGP(kernel, Z, 1)
    layer.start_at_regression(tf.constant(Z), tf.constant(2.0 * np.sign(grid)), 1e-2)
    built = LatentVariableDGP([latents, layer], Gaussian(0.01))
    draws = built.predict_y_samples(np.zeros([1, 1]), 2000, full_cov=False, seed=0).numpy().ravel()
    near = [np.mean(np.abs(draws - mode) < 0.6) for mode in (-2.0, 0.0, 2.0)]
    assert near[1] < 0.15 < 0.3 < min(near[0], near[2])
