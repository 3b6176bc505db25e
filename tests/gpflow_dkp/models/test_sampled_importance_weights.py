"""[ICML19] equation 7, the last function drawn too, beside equation 11: both against known evidence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gpflow.functions import Linear
from gpflow.kernels import Constant
from gpflow.likelihoods import Bernoulli, Gaussian, Likelihood, Softmax
from latent_variable_cases import (
    FALSE_ALARM,
    check_equal_means,
    check_mean,
    make_model,
    regression_data,
    replicate,
    svgp_of,
)
from scipy import special, stats

from gpflow_dkp.layers import LatentVariableLayer, SparseGP
from gpflow_dkp.models import LatentVariableDGP

X, Y = regression_data()

# One point y = c w + g + noise, w ~ N(0, 1), g ~ N(0, 1)

SLOPE, NOISE, TARGET = 1.5, 0.4, 1.2
WITHOUT_G = SLOPE**2 + NOISE
"""Variance of y given g."""
EVIDENCE = float(stats.norm(0.0, np.sqrt(1.0 + WITHOUT_G)).logpdf(TARGET))
G_VARIANCE = WITHOUT_G / (1.0 + WITHOUT_G)
G_MEAN = G_VARIANCE / WITHOUT_G * TARGET
"""Of the true posterior of g."""
KL_G = 0.5 * (G_VARIANCE + G_MEAN**2 - 1.0 - np.log(G_VARIANCE))
Q_MEAN, Q_VARIANCE = 0.1, 0.7
"""Of q(w), which is not the posterior of w."""
ONE_POINT = np.zeros([1, 1]), np.array([[TARGET]])


def one_point(
    inference: str, K: int = 1, likelihood: Likelihood | None = None
) -> LatentVariableDGP:
    """With q(g) the true posterior of g."""
    latents = LatentVariableLayer(num_points=1)
    latents.mean.assign([[Q_MEAN]])
    latents.variance.assign([[Q_VARIANCE]])
    mean = Linear(A=[[0.0], [SLOPE]], b=[0.0])
    final = SparseGP(Constant(1.0), np.zeros([1, 2]), 1, mean_function=mean, whiten=False)
    final.q_mu.assign([[G_MEAN]])
    final.q_sqrt.assign([[[np.sqrt(G_VARIANCE)]]])
    settings: dict[str, Any] = {"inference": inference, "num_importance_samples": K}
    likelihood = likelihood or Gaussian(NOISE)
    return LatentVariableDGP([latents, final], likelihood, jitter=1e-9, num_samples=200, **settings)


def bounds(inference: str, K: int = 1, num_samples: int = 200) -> np.ndarray:
    model = one_point(inference, K)
    return replicate(lambda seed: model.elbo(ONE_POINT, num_samples=num_samples, seed=seed), 100)


def in_numpy(inference: str, K: int, size: int = 20_000) -> np.ndarray:
    """The bounds by draws of w and g, from the equations."""
    rng = np.random.default_rng(K)
    w = Q_MEAN + np.sqrt(Q_VARIANCE) * rng.normal(size=(size, K))
    g = G_MEAN + np.sqrt(G_VARIANCE) * rng.normal(size=(size, 1))
    log_ratio = stats.norm.logpdf(w) - stats.norm(Q_MEAN, np.sqrt(Q_VARIANCE)).logpdf(w)
    if inference == "iwvi-sampled":
        log_likelihood = stats.norm(SLOPE * w + g, np.sqrt(NOISE)).logpdf(TARGET)
    else:
        log_likelihood = stats.norm(SLOPE * w + G_MEAN, np.sqrt(NOISE)).logpdf(TARGET)
        log_likelihood = log_likelihood - 0.5 * G_VARIANCE / NOISE
    return special.logsumexp(log_likelihood + log_ratio, axis=1) - np.log(K) - KL_G


@pytest.mark.parametrize("inference", ["iwvi", "iwvi-sampled"])
@pytest.mark.parametrize("K", [1, 5, 50])
def test_both_bounds_are_numpys(inference: str, K: int) -> None:
    check_equal_means(bounds(inference, K), in_numpy(inference, K))


def test_vi_is_below_equation_11_which_is_below_equation_7_which_is_below_the_evidence() -> None:
    """Jensen: log mean exp is concave over the weights and convex in their logarithms, which f moves."""
    K, errors = 20, []
    means = [EVIDENCE]
    for inference in ("iwvi-sampled", "iwvi", "vi"):
        draws = bounds(inference, K)
        means.append(np.mean(draws))
        errors.append(stats.t(99).isf(FALSE_ALARM) * np.std(draws, ddof=1) / np.sqrt(100))
    assert np.all(-np.diff(means) > np.add(errors, [0.0, *errors[:-1]])), (means, errors)


def test_with_many_draws_equation_7_reaches_the_evidence_and_equation_11_does_not() -> None:
    """E_g log N(y; g, c^2 + s2) - KL(q(g) || p(g)) is log p(y) at the posterior of g; the other is
    log N(y; E g, c^2 + s2) - Var g / (2 s2) - KL.
    """
    limit = stats.norm(G_MEAN, np.sqrt(WITHOUT_G)).logpdf(TARGET)
    limit -= 0.5 * G_VARIANCE / NOISE + KL_G
    assert limit < EVIDENCE - 0.5
    for inference, expected in (("iwvi-sampled", EVIDENCE), ("iwvi", limit)):
        draws = bounds(inference, 100, num_samples=50)
        assert np.mean(draws) == pytest.approx(expected, abs=0.04)
        assert np.std(draws, ddof=1) / np.sqrt(100) < 0.008


def test_one_draw_makes_all_three_one_bound_in_expectation() -> None:
    vi, weighted, sampled = (bounds(inference) for inference in ("vi", "iwvi", "iwvi-sampled"))
    check_equal_means(weighted, vi)
    check_equal_means(sampled, vi)
    assert np.var(sampled) > 1.5 * np.var(weighted) > 0.0


# Other models


@pytest.mark.parametrize("architecture", ["LV-GP", "LV-GP-GP", "GP-LV-GP"])
@pytest.mark.parametrize("num_outputs", [1, 2])
def test_a_last_function_without_variance_makes_both_the_same(
    architecture: str, num_outputs: int
) -> None:
    """At the same seed: then E log p(y | f) is log p(y | E f)."""
    settings: dict[str, Any] = {"num_outputs": num_outputs, "free": True}
    settings |= {"num_importance_samples": 4, "num_samples": 2}
    targets = regression_data(num_outputs)[1]
    values = []
    for inference in ("iwvi", "iwvi-sampled"):
        model = make_model(architecture, inference=inference, **settings)
        model.output_layer.kernel.variance.assign(1e-7)
        model.output_layer.q_sqrt.assign(1e-4 * model.output_layer.q_sqrt)
        model.output_layer.jitter.assign(1e-10)
        model.output_layer.mean_function = Linear(
            np.ones([model.output_layer.input_dim, num_outputs])
        )
        values.append(float(model.elbo((X, targets), seed=3)) + float(model.prior_kl()))
    assert values[0] == pytest.approx(values[1], abs=0.05)
    assert abs(values[0]) > 1.0


@pytest.mark.parametrize("likelihood", [Gaussian(0.3), Bernoulli(), Softmax(3)])
def test_without_latent_variables_it_is_svgps_bound_in_expectation(likelihood: Likelihood) -> None:
    """f is drawn where GPflow integrates it."""
    outputs = 3 if isinstance(likelihood, Softmax) else 1
    targets = {1: Y if isinstance(likelihood, Gaussian) else (Y > 0).astype(float)}
    targets[3] = np.array([[0], [2], [1], [1]])
    model = make_model("GP", num_outputs=outputs, likelihood=likelihood, inference="iwvi-sampled")
    data = X, targets[outputs]
    draws = replicate(lambda seed: model.elbo(data, num_samples=500, seed=seed), 30)
    svgp = svgp_of(model)
    if outputs == 3:
        likelihood.num_monte_carlo_points = 5000
        expected = replicate(lambda _: svgp.elbo(data), 30)
        check_equal_means(draws, expected)
    else:
        check_mean(draws, float(svgp.elbo(data)))


def test_it_is_a_bound_with_gradients_for_all_parameters() -> None:
    model = make_model("LV-GP-GP", inference="iwvi-sampled", num_importance_samples=3)
    assert model.objective_is_bound
    with tf.GradientTape() as tape:
        bound = model.elbo((X, Y), seed=0)
    gradients = tape.gradient(bound, model.trainable_variables)
    assert all(np.any(gradient.numpy() != 0.0) for gradient in gradients)


def test_samples_of_the_latent_variables_see_draws_of_the_last_function() -> None:
    """w given y, with g ~ q(g) drawn for each: of variance s2 / (c^2 + s2) + (c / (c^2 + s2))^2 Var g."""
    model = one_point("iwvi-sampled")
    w, _ = model.sample_latents(ONE_POINT, 4000, num_importance_samples=100, seed=0)
    mean = SLOPE / WITHOUT_G * (TARGET - G_MEAN)
    variance = NOISE / WITHOUT_G + (SLOPE / WITHOUT_G) ** 2 * G_VARIANCE
    standardised = (w.numpy()[:, 0, 0] - mean) / np.sqrt(variance)
    distance = stats.kstest(standardised, "norm").statistic
    assert distance < stats.kstwo(4000).isf(FALSE_ALARM) + 2.0 / 100
