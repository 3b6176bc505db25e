"""What [NeurIPS21], "A variational approximate posterior for the deep Wishart process", states."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Linear, SquaredExponential
from gpflow.likelihoods import Gaussian
from law_checks import check_mean
from scipy import optimize, stats

from gpflow_dkp.layers import ABGWPosterior, GlobalInducingGP
from gpflow_dkp.models import DGP, DWP, DeepKernelProcess

P, NU = 4, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(P, 2))
K = SquaredExponential(variance=1.2)(X).numpy() + 1e-6 * np.eye(P)
F = RNG.normal(size=(P, NU)) / np.sqrt(NU)
ROTATION = stats.ortho_group(NU).rvs(random_state=3)
ROTATED = F @ ROTATION


def log_joint(features: np.ndarray, y: np.ndarray) -> float:
    """log p(F, y) of a deep GP: columns of F from N(0, K / nu), y from N(0, k(F) + noise)."""
    prior = sum(stats.multivariate_normal(np.zeros(P), K / NU).logpdf(f) for f in features.T)
    covariance = SquaredExponential(lengthscales=0.8)(features).numpy() + 0.1 * np.eye(P)
    return prior + stats.multivariate_normal(np.zeros(P), covariance).logpdf(y)


def test_the_true_posterior_of_features_is_the_same_for_all_rotations() -> None:
    """Submission section 2.5, (16), by the joint density of F and y."""
    y = RNG.normal(size=P)
    assert np.max(np.abs(ROTATED - F)) > 0.3
    assert log_joint(ROTATED, y) == pytest.approx(log_joint(F, y), abs=1e-9)
    assert log_joint(1.1 * F, y) != pytest.approx(log_joint(F, y), abs=1e-2)


def test_a_deep_gps_posterior_tells_rotations_apart_and_a_dwps_does_not() -> None:
    """Submission (17): N(Sigma Lambda v, Sigma) by SciPy at F and F U, the AB-GW at their Gram matrix."""
    layer = GlobalInducingGP(P, NU)
    tril, v = layer.precision_tril.numpy(), layer.v.numpy()
    Sigma = np.linalg.inv(NU * np.linalg.inv(K) + tril @ tril.T)
    mean = Sigma @ tril @ tril.T @ v

    def log_q(features: np.ndarray) -> float:
        columns = zip(features.T, mean.T, strict=True)
        return sum(stats.multivariate_normal(m, Sigma).logpdf(f) for f, m in columns)

    assert abs(log_q(ROTATED) - log_q(F)) > 1.0
    of_layer = layer.posterior_distribution(tf.constant(K))
    for features in (F, ROTATED):
        log_density = float(tf.reduce_sum(of_layer.log_prob(features.T)))
        assert log_density == pytest.approx(log_q(features), abs=1e-8)
    draw = layer.sample(tf.constant(K), seed=0, num_samples=4000)
    check_mean(draw.features.numpy(), mean)  # which is the law of its draws
    posterior = ABGWPosterior(P, NU)
    densities = [
        float(posterior.distribution(tf.constant(K)).log_prob(f @ f.T)) for f in (F, ROTATED)
    ]
    assert densities[0] == pytest.approx(densities[1], abs=1e-8)
    other = float(posterior.distribution(tf.constant(K)).log_prob(1.1 * F @ F.T))
    assert abs(other - densities[0]) > 0.05


# One inducing point and one function: everything by quadrature. f ~ N(0, 1), y ~ N(0, f^2 + noise)

TARGET, NOISE = 2.0, 0.1
GRID = np.linspace(-8.0, 8.0, 8_000)  # symmetric, and without 0
STEP = GRID[1] - GRID[0]
POSITIVE = GRID[GRID > 0.0]


def log_likelihood(f: np.ndarray) -> np.ndarray:
    return stats.norm(0.0, np.sqrt(f**2 + NOISE)).logpdf(TARGET)


EVIDENCE = float(np.log(np.sum(np.exp(log_likelihood(GRID) + stats.norm.logpdf(GRID))) * STEP))


def dgp_bound(mean: float, scale: float) -> float:
    """E_q[log p(y | f) + log p(f) - log q(f)] for q = N(mean, scale^2)."""
    q = stats.norm(mean, scale)
    values = log_likelihood(GRID) + stats.norm.logpdf(GRID) - q.logpdf(GRID)
    return float(np.sum(q.pdf(GRID) * values) * STEP)


def bound_of_the_gram_matrix(mean: float, scale: float) -> float:
    """The same for the law of G = f^2 under that q: of |f|, as a density of its own."""
    q = stats.norm(mean, scale)
    density = q.pdf(POSITIVE) + q.pdf(-POSITIVE)
    log_prior = np.log(2.0) + stats.norm.logpdf(POSITIVE)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = density * (log_likelihood(POSITIVE) + log_prior - np.log(density))
    return float(np.sum(np.nan_to_num(values)) * STEP)


def dwp_bound(alpha: float, beta: float) -> float:
    """For G = T^2 ~ Gamma(alpha, beta)."""
    log_q = stats.gamma(alpha, scale=1.0 / beta).logpdf(POSITIVE**2) + np.log(2.0 * POSITIVE)
    log_prior = np.log(2.0) + stats.norm.logpdf(POSITIVE)
    values = np.exp(log_q) * (log_likelihood(POSITIVE) + log_prior - log_q)
    return float(np.sum(values) * STEP)


def best(bound, start: list[float]) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Parameters of the highest bound, the logarithm of the last one free."""
    return optimize.minimize(lambda at: -bound(at), start, method="Nelder-Mead").x


def test_the_dwps_best_bound_is_above_the_deep_gps() -> None:
    """The statement "gain of the Gram matrix" (docs/mathematics.md 3), for the best of each.

    Already the Gram matrix's law under the deep GP's q has a higher bound, as it keeps no sign of f.

    The gap to the evidence is 0.78 for the deep GP, 0.083 for its law of G, and 0.025 for a Gamma.
    """
    mean, log_scale = best(lambda at: dgp_bound(at[0], np.exp(at[1])), [1.0, -1.0])
    alpha, beta = np.exp(best(lambda at: dwp_bound(*np.exp(at)), [0.5, 0.5]))
    of_features = dgp_bound(mean, np.exp(log_scale))
    folded = bound_of_the_gram_matrix(mean, np.exp(log_scale))
    of_gram = dwp_bound(alpha, beta)
    assert of_features < folded - 0.5
    assert folded < of_gram - 0.03 < EVIDENCE - 0.03
    gaps = EVIDENCE - np.array([of_features, folded, of_gram])
    np.testing.assert_allclose(gaps, [0.776, 0.083, 0.0254], rtol=0, atol=1e-3)


@pytest.mark.parametrize("mean", [0.0, 0.3, 1.5, -3.0])
@pytest.mark.parametrize("scale", [0.2, 0.9])
def test_a_law_of_gram_matrices_never_has_a_lower_bound_than_one_of_features(
    mean: float, scale: float
) -> None:
    """The statement "gain of the Gram matrix" (docs/mathematics.md 3), at one q.

    By the KL divergence of q from its symmetrisation, 0 at mean 0 and log 2 far from it.
    """
    gap = bound_of_the_gram_matrix(mean, scale) - dgp_bound(mean, scale)
    assert -1e-6 < gap < np.log(2.0) + 1e-6
    assert (gap < 1e-6) == (mean == 0.0)


def of_one_point(kind: str) -> DeepKernelProcess:
    """The model of these bounds: the output layer at its exact posterior, so that y is integrated out."""
    Z = np.zeros([1, 1])
    model = {"DWP": DWP, "DGP": DGP}[kind](
        [SquaredExponential(), Linear()], Gaussian(NOISE), Z, widths=[1], jitter=1e-9
    )
    model.output_layer.v.assign([[TARGET]])
    model.output_layer.precision_tril.assign([[NOISE**-0.5]])
    return model


def test_both_models_have_these_bounds() -> None:
    """The statement "gain of the Gram matrix" (docs/mathematics.md 3) is of the package's models.

    Their ELBOs at the same posteriors, by Monte Carlo.
    """
    data = np.zeros([1, 1]), np.array([[TARGET]])
    wishart = of_one_point("DWP")
    posterior = wishart.layers[0].posterior
    posterior.q.assign(1e-12)
    posterior.alpha.assign([2.5])
    posterior.beta.assign([1.1])
    # q(f) = N(m, s^2) is N(Sigma Lambda v, Sigma) with Sigma = 1 / (1 + Lambda).
    deep, mean, scale = of_one_point("DGP"), 1.4, 0.4
    precision = scale**-2 - 1.0
    deep.layers[0].precision_tril.assign([[np.sqrt(precision)]])
    deep.layers[0].v.assign([[mean / (scale**2 * precision)]])
    for model, expected in ((wishart, dwp_bound(2.5, 1.1)), (deep, dgp_bound(mean, scale))):
        draws = [float(model.elbo(data, num_samples=2000, seed=seed)) for seed in range(20)]
        check_mean(np.array(draws)[:, None], expected, rounding=1e-5)
