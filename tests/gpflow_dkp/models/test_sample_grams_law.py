"""The laws of `sample_grams`: the layers' posteriors by NumPy and SciPy from their parameters; priors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from model_cases import M, make_model
from scipy import stats

from gpflow_dkp.models import DeepKernelProcess

FALSE_ALARM = 1e-5
SIZE = 3000
JITTER = 1e-9
WIDTH = 3


def functionals(G: np.ndarray, K: np.ndarray) -> list[np.ndarray]:
    """Numbers [S] that between them see every part of G [S, M, M]."""
    K = np.broadcast_to(K, G.shape)
    weights = np.random.default_rng(5).normal(size=(3, G.shape[-1], G.shape[-1]))
    sums = [np.sum(weight * G, (-2, -1)) for weight in weights]
    return [*sums, np.trace(np.linalg.solve(K, G), axis1=-2, axis2=-1), G[:, 0, 0]]


def check_one_law(first: list[np.ndarray], second: list[np.ndarray]) -> None:
    """Kolmogorov-Smirnov of independent draws of each functional."""
    p_values = [stats.ks_2samp(*pair).pvalue for pair in zip(first, second, strict=True)]
    assert min(p_values) > FALSE_ALARM / len(p_values), p_values


def wishart_posterior(layer, K: np.ndarray, rng: np.random.Generator) -> np.ndarray:  # type: ignore[no-untyped-def]
    """A T B B^T T^T A^T, docs/mathematics.md 3."""
    q, V, alpha, beta, mu, sigma = (
        getattr(layer.posterior, name).numpy()
        for name in ("q", "V", "alpha", "beta", "mu", "sigma")
    )
    A = np.linalg.cholesky((1.0 - q) / layer.width * K + q * V @ V.T) @ layer.posterior.A.numpy()
    rank = len(alpha)
    T = mu + sigma * rng.normal(size=(SIZE, M, rank))
    T[:, np.triu(np.ones((M, rank))) == 1.0] = 0.0
    diagonal = np.sqrt(rng.gamma(alpha, 1.0 / beta, size=(SIZE, rank)))
    T[:, np.arange(rank), np.arange(rank)] = diagonal
    F = A @ T @ layer.posterior.B.numpy()
    return F @ np.swapaxes(F, -1, -2)


def inverse_wishart_posterior(layer, K: np.ndarray, rng: np.random.Generator) -> np.ndarray:  # type: ignore[no-untyped-def]
    """IW(delta K + V V^T, delta + gamma + M + 1), docs/mathematics.md 5."""
    delta, gamma, V = (getattr(layer, name).numpy() for name in ("delta", "gamma", "V"))
    chol = np.linalg.cholesky(delta * K + V @ V.T)
    white = stats.invwishart(delta + gamma + M + 1, np.eye(M)).rvs(SIZE, random_state=rng)
    return chol @ white @ np.swapaxes(chol, -1, -2)


def features_posterior(layer, K: np.ndarray, rng: np.random.Generator) -> np.ndarray:  # type: ignore[no-untyped-def]
    """F F^T of columns F ~ N(Sigma Lambda v, Sigma), docs/mathematics.md 6."""
    tril, v = layer.precision_tril.numpy(), layer.v.numpy()
    Sigma = np.linalg.inv(np.linalg.inv(K / layer.width) + tril @ tril.T)
    F = Sigma @ tril @ tril.T @ v + np.linalg.cholesky(Sigma) @ rng.normal(size=(SIZE, *v.shape))
    return F @ np.swapaxes(F, -1, -2)


POSTERIORS: dict[str, Callable] = {
    "DWP": wishart_posterior,
    "DIWP": inverse_wishart_posterior,
    "DGP": features_posterior,
}


@pytest.mark.parametrize("width", [WIDTH, M + 2])
@pytest.mark.parametrize("model", POSTERIORS)
def test_at_the_inducing_points_the_law_is_the_posteriors(model: str, width: int) -> None:
    """Of both hidden layers: the second one given the K that was drawn with it."""
    if model == "DIWP" and width != WIDTH:
        pytest.skip("it has no width")
    built = make_model(model, 3, width=width, jitter=JITTER)
    Z, rng = built.inducing_variable.Z, np.random.default_rng(1)
    drawn = built.sample_grams(Z, SIZE, seed=1)
    others = built.sample_grams(Z, SIZE, seed=2)
    for number, layer in enumerate(built.hidden_layers):
        if number == 0 and model == "DIWP":
            continue  # its own test
        K = others[number][0].numpy()
        check_one_law(
            functionals(drawn[number][1].numpy(), drawn[number][0].numpy()),
            functionals(POSTERIORS[model](layer, K, rng), K),
        )


def test_the_first_layer_of_a_diwp_is_the_inputs_with_omega() -> None:
    """X Omega X^T / N_0 at any points: Omega ~ IW(delta I + V V^T, delta + gamma + N_0 + 1)."""
    built = make_model("DIWP", 2, jitter=JITTER)
    X = np.random.default_rng(4).normal(size=(3, 2))
    layer = built.layers[0]
    delta, gamma, V = (getattr(layer, name).numpy() for name in ("delta", "gamma", "V"))
    Psi = delta * np.eye(2) + V @ V.T
    Omega = stats.invwishart(delta + gamma + 3, Psi).rvs(SIZE, random_state=1)
    G = built.sample_grams(X, SIZE, seed=3)[0][1].numpy()
    check_one_law(functionals(G, np.eye(3)), functionals(X @ Omega @ X.T / 2.0, np.eye(3)))


def at_the_prior(model: str) -> DeepKernelProcess:
    """The posterior of every hidden layer set to its prior."""
    built = make_model(model, 3, width=WIDTH, jitter=JITTER)
    for layer in built.hidden_layers:
        if model == "DWP":
            posterior, rank = layer.posterior, WIDTH
            posterior.q.assign(1e-12)
            posterior.A.assign(np.eye(M))
            posterior.B.assign(np.eye(rank))
            posterior.alpha.assign((WIDTH - np.arange(rank)) / 2.0)
            posterior.beta.assign(np.full(rank, 0.5))
            posterior.mu.assign(np.zeros((M, rank)))
            posterior.sigma.assign(np.ones((M, rank)))
        elif model == "DIWP":
            layer.V.assign(np.zeros(layer.V.shape))
            layer.gamma.assign(1e-12)
        else:
            layer.v.assign(np.zeros(layer.v.shape))
            layer.precision_tril.assign(1e-6 * np.eye(M))
    return built


@pytest.mark.parametrize("model", POSTERIORS)
def test_a_posterior_at_the_prior_gives_the_priors_gram_matrices(model: str) -> None:
    """Every G and K of the chain, at points that are not inducing; moved away, it does not."""
    X = np.random.default_rng(4).uniform(-1.5, 1.5, size=(3, 2))
    built = at_the_prior(model)
    posterior, prior = (
        built.sample_grams(X, SIZE, posterior=on, seed=seed) for seed, on in ((1, True), (2, False))
    )
    for number, (first, second) in enumerate(zip(posterior, prior, strict=True)):
        for ours, theirs in zip(first, second, strict=True):
            if ours is not None and ours.shape.rank == 3:
                check_one_law(*(functionals(part.numpy(), np.eye(3)) for part in (ours, theirs)))
            elif ours is not None:
                assert number == 0
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
    moved = make_model(model, 3, width=WIDTH, jitter=JITTER).sample_grams(X, SIZE, seed=1)
    with pytest.raises(AssertionError):
        check_one_law(*(functionals(G.numpy(), np.eye(3)) for (_, G) in (moved[1], prior[1])))


@pytest.mark.parametrize("posterior", [True, False])
@pytest.mark.parametrize("model", POSTERIORS)
def test_a_points_own_variance_has_the_law_of_one_point(model: str, posterior: bool) -> None:
    """nu G_tt / K_tt ~ chi2(nu), and delta K_tt / G_tt ~ chi2(delta + 2), whatever the chain before it."""
    X = np.random.default_rng(4).uniform(-1.5, 1.5, size=(3, 2))
    built = at_the_prior(model)
    pairs = built.sample_grams(X, SIZE, posterior=posterior, seed=3)
    for number, layer in enumerate(built.hidden_layers):
        K, G = (np.diagonal(part, axis1=-2, axis2=-1)[..., -1] for part in pairs[number])
        if model == "DIWP" and number == 0:
            # w^T Omega w of one direction w: N_0 G_tt = w^T Omega w, delta |w|^2 / that.
            K = np.sum(X[-1] ** 2) / 2.0
        if model == "DIWP":
            delta = float(layer.delta.numpy())
            statistic = stats.kstest(delta * K / G, stats.chi2(delta + 2.0).cdf)
        else:
            statistic = stats.kstest(WIDTH * G / K, stats.chi2(WIDTH).cdf)
        assert statistic.pvalue > FALSE_ALARM
