"""What [ICML19], "Deep Gaussian processes with importance-weighted variational inference", states."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
from gpflow.functions import Linear
from gpflow.kernels import Constant, SquaredExponential
from gpflow.likelihoods import Gaussian
from law_checks import FALSE_ALARM, check_mean
from scipy import special, stats

from gpflow_dkp.layers import LatentVariableLayer, SparseGP
from gpflow_dkp.models import LatentVariableDGP

# One point y = c w + g + noise with w ~ N(0, 1), and a q(w) that is not its posterior. The last function's g
# is 0, so that all is known by quadrature, or ~ N(0, 1) with its true posterior for q(g).

SLOPE, NOISE, TARGET = 1.5, 0.4, 1.3
MEAN, VARIANCE = 0.3, 0.6
DATA = np.zeros([1, 1]), np.array([[TARGET]])
GIVEN_G = SLOPE**2 + NOISE
"""Variance of y given g."""
EVIDENCE = float(stats.norm(0.0, np.sqrt(GIVEN_G)).logpdf(TARGET))
EVIDENCE_WITH_G = float(stats.norm(0.0, np.sqrt(1.0 + GIVEN_G)).logpdf(TARGET))
G_VARIANCE = GIVEN_G / (1.0 + GIVEN_G)
G_MEAN = TARGET / (1.0 + GIVEN_G)
KL_G = 0.5 * (G_VARIANCE + G_MEAN**2 - 1.0 - np.log(G_VARIANCE))


def model(inference: str, K: int, *, with_g: bool = False) -> LatentVariableDGP:
    latents = LatentVariableLayer(num_points=1)
    latents.mean.assign([[MEAN]])
    latents.variance.assign([[VARIANCE]])
    mean = Linear(A=[[0.0], [SLOPE]], b=[0.0])
    kernel = Constant(1.0 if with_g else 1e-10)
    final = SparseGP(kernel, np.zeros([1, 2]), 1, mean_function=mean, whiten=not with_g)
    if with_g:
        final.q_mu.assign([[G_MEAN]])
        final.q_sqrt.assign([[[np.sqrt(G_VARIANCE)]]])
    settings = {"inference": inference, "num_importance_samples": K}
    return LatentVariableDGP([latents, final], Gaussian(NOISE), jitter=1e-12, **settings)


def elbos(
    inference: str,
    K: int,
    *,
    with_g: bool = False,
    num_samples: int | None = None,
    num_seeds: int = 40,
) -> np.ndarray:
    built = model(inference, K, with_g=with_g)
    samples = num_samples or (5000 if K < 10 else 200)
    bound = tf.function(
        lambda seed: built.elbo(DATA, num_samples=samples, seed=seed), autograph=False
    )
    return np.array([float(bound(tf.constant([3, number]))) for number in range(num_seeds)])


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
    """Equation 11 at K = 1 is the "bound in K" that is VI's (docs/mathematics.md 8), in expectation.

    By the closed form, the quadrature and both of our bounds.
    """
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
    """Equation 11 where its ">=" is an equality: each weight is p(y), whatever the draw."""
    posterior = 1.0 / (1.0 + SLOPE**2 / NOISE)
    for inference, K in (("vi", 1), ("iwvi", 1), ("iwvi", 7)):
        built = model(inference, K)
        built.layers[0].mean.assign([[posterior * SLOPE / NOISE * TARGET]])
        built.layers[0].variance.assign([[posterior]])
        error = np.abs(float(built.elbo(DATA, num_samples=500, seed=1)) - EVIDENCE)
        assert error < (1e-6 if inference == "iwvi" else 0.3)


# The last function drawn: equation 7


def in_numpy(inference: str, K: int, size: int = 20_000) -> np.ndarray:
    """The bounds by draws of w and g, from the equations."""
    rng = np.random.default_rng(K)
    w = MEAN + np.sqrt(VARIANCE) * rng.normal(size=(size, K))
    g = G_MEAN + np.sqrt(G_VARIANCE) * rng.normal(size=(size, 1))
    log_ratio = stats.norm.logpdf(w) - stats.norm(MEAN, np.sqrt(VARIANCE)).logpdf(w)
    if inference == "iwvi-sampled":
        log_likelihood = stats.norm(SLOPE * w + g, np.sqrt(NOISE)).logpdf(TARGET)
    else:
        log_likelihood = stats.norm(SLOPE * w + G_MEAN, np.sqrt(NOISE)).logpdf(TARGET)
        log_likelihood = log_likelihood - 0.5 * G_VARIANCE / NOISE
    return special.logsumexp(log_likelihood + log_ratio, axis=1) - np.log(K) - KL_G


def bounds(inference: str, K: int, num_samples: int = 200) -> np.ndarray:
    """A hundred, each the mean of so many draws."""
    return elbos(inference, K, with_g=True, num_samples=num_samples, num_seeds=100)


@pytest.mark.parametrize("inference", ["iwvi", "iwvi-sampled"])
@pytest.mark.parametrize("K", [1, 5, 50])
def test_both_bounds_are_numpys(inference: str, K: int) -> None:
    """Equation 7 and equation 11."""
    by_numpy = np.mean(in_numpy(inference, K).reshape(100, -1), 1)
    check_mean((bounds(inference, K) - by_numpy)[:, None], 0.0)


def test_vi_is_below_equation_11_which_is_below_equation_7_which_is_below_the_evidence() -> None:
    """Jensen: log mean exp is concave over the weights and convex in their logarithms, which f moves."""
    K, errors = 20, []
    means = [EVIDENCE_WITH_G]
    for inference in ("iwvi-sampled", "iwvi", "vi"):
        draws = bounds(inference, K)
        means.append(np.mean(draws))
        errors.append(stats.t(99).isf(FALSE_ALARM) * np.std(draws, ddof=1) / np.sqrt(100))
    assert np.all(-np.diff(means) > np.add(errors, [0.0, *errors[:-1]])), (means, errors)


def test_with_many_draws_equation_7_reaches_the_evidence_and_equation_11_does_not() -> None:
    """E_g log N(y; g, c^2 + s2) - KL(q(g) || p(g)) is log p(y) at the posterior of g; the other is
    log N(y; E g, c^2 + s2) - Var g / (2 s2) - KL.
    """
    limit = stats.norm(G_MEAN, np.sqrt(GIVEN_G)).logpdf(TARGET)
    limit -= 0.5 * G_VARIANCE / NOISE + KL_G
    assert limit < EVIDENCE_WITH_G - 0.5
    for inference, expected in (("iwvi-sampled", EVIDENCE_WITH_G), ("iwvi", limit)):
        draws = bounds(inference, 100, num_samples=50)
        assert np.mean(draws) == pytest.approx(expected, abs=0.04)
        assert np.std(draws, ddof=1) / np.sqrt(100) < 0.008


def test_one_draw_makes_vi_equation_11_and_equation_7_one_bound_in_expectation() -> None:
    vi, weighted, sampled = (bounds(inference, 1) for inference in ("vi", "iwvi", "iwvi-sampled"))
    check_mean(np.stack([weighted - vi, sampled - vi], 1), 0.0)
    assert np.var(sampled) > 1.5 * np.var(weighted) > 0.0


def test_section_3_4_samples_of_the_latent_variables_see_draws_of_the_last_function() -> None:
    """w given y, with g ~ q(g) drawn for each: of variance s2 / (c^2 + s2) + (c / (c^2 + s2))^2 Var g."""
    built = model("iwvi-sampled", 1, with_g=True)
    w, _ = built.sample_latents(DATA, 4000, num_importance_samples=100, seed=0)
    mean = SLOPE / GIVEN_G * (TARGET - G_MEAN)
    variance = NOISE / GIVEN_G + (SLOPE / GIVEN_G) ** 2 * G_VARIANCE
    law = stats.norm(mean, np.sqrt(variance))
    distance = stats.kstest(w.numpy()[:, 0, 0], law.cdf).statistic
    assert distance < stats.kstwo(4000).isf(FALSE_ALARM) + 2.0 / 100


# Marginals


def test_latent_covariates_give_marginals_that_no_gaussian_noise_gives() -> None:
    """Section 1: with w a covariate f(x, w) is bimodal in its marginal at x, as additive noise never is."""
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
