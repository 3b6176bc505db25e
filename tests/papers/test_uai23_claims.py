"""What [UAI23], "An improved variational approximate posterior for the deep Wishart process", states."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from law_checks import FALSE_ALARM, check_law
from scipy import integrate, optimize, stats

from gpflow_dkp.distributions import GeneralisedWishart

CASES = [(2, 2), (3, 5), (4, 2)]
"""P and nu: Gram matrices of full rank, and singular."""


def parameters(P: int, nu: int) -> dict[str, np.ndarray]:
    p, rng = min(P, nu), np.random.default_rng(1)
    return {
        "concentration": rng.uniform(1.0, 4.0, size=p),
        "rate": rng.uniform(0.3, 2.0, size=p),
        "loc": rng.normal(size=(P, p)),
        "scale": rng.uniform(0.3, 2.0, size=(P, p)),
    }


def dense(P: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(P, P))


def log_jacobian(R: np.ndarray, G: np.ndarray, p: int) -> float:
    """log |d R G R^T / d G| between the free entries, those of the first p columns, by complex steps."""
    P, step = len(G), 1e-30
    rows, columns = np.tril_indices(P, m=p)

    def image(free: np.ndarray) -> np.ndarray:
        first = np.zeros((P, p), dtype=free.dtype)
        first[rows, columns] = free
        first[:p] += np.tril(first[:p], -1).T
        whole = first @ np.linalg.inv(first[:p]) @ first.T  # G has rank p
        return (R @ whole @ R.T)[rows, columns]

    free = G[rows, columns]
    steps = (image(free + 1j * step * unit).imag / step for unit in np.eye(len(free)))
    return float(np.linalg.slogdet(np.stack(list(steps), -1))[1])


@pytest.mark.parametrize("with_b", [False, True])
@pytest.mark.parametrize(("P", "nu"), CASES)
def test_the_a_gw_is_closed_under_congruence(P: int, nu: int, with_b: bool) -> None:
    """The statement "closure of the A-GW" (docs/mathematics.md 2): so is the AB-GW.

    G ~ A-GW(A) makes R G R^T ~ A-GW(R A) for any invertible R: its density is q(G) / |J|.
    """
    p = min(P, nu)
    A, R, of_factor = dense(P, 2), dense(P, 3), parameters(P, nu)
    if with_b:
        of_factor["B"] = np.tril(dense(p, 4))
    F = np.random.default_rng(5).normal(size=(P, p))
    G = F @ F.T
    before = float(GeneralisedWishart(nu, A=A, **of_factor).log_prob(G))
    after = float(GeneralisedWishart(nu, A=R @ A, **of_factor).log_prob(R @ G @ R.T))
    jacobian = log_jacobian(R, G, p)
    assert after == pytest.approx(before - jacobian, abs=1e-7)
    if nu >= P:
        assert jacobian == pytest.approx((P + 1) * np.linalg.slogdet(R)[1], abs=1e-7)
    unchanged = float(GeneralisedWishart(nu, A=A, **of_factor).log_prob(R @ G @ R.T))
    assert abs(unchanged - after) > 0.1


def test_the_order_of_inducing_points_is_no_matter_to_the_a_gw_but_is_to_the_gw() -> None:
    """The statement "order of the inducing points" (docs/mathematics.md 2), by draws.

    Of Gram matrices permuted by R, with standard parameters but for one: A-GW(R A) has the density, no GW.

    In a GW the law of G_11 is a Gamma; here it is that of G_22 before, which is none.
    """
    of_factor = parameters(2, 1)
    draws = GeneralisedWishart(1, scale_tril=np.eye(2), **of_factor).sample(50_000, seed=1).numpy()
    R = np.array([[0.0, 1.0], [1.0, 0.0]])
    permuted = R @ draws @ R
    other = GeneralisedWishart(1, A=R, **of_factor).sample(50_000, seed=2).numpy()
    for i, j in ((0, 0), (0, 1), (1, 1)):
        assert stats.ks_2samp(permuted[:, i, j], other[:, i, j]).pvalue > FALSE_ALARM
    gamma = stats.gamma(of_factor["concentration"][0], scale=1.0 / of_factor["rate"][0])
    check_law(draws[:, 0, 0], gamma.cdf)
    fitted = stats.gamma(*stats.gamma.fit(permuted[:, 0, 0], floc=0.0))
    assert stats.kstest(permuted[:, 0, 0], fitted.cdf).pvalue < FALSE_ALARM


# Equations 18 to 22 and figure 1: W_11 of an A-GW with A = [[1, 1], [0, 1]] and nu = 1 is (T_11 + T_21)^2


def cdf(w: np.ndarray, mean: float) -> np.ndarray:
    """P((|g| + n)^2 <= w) for standard normal g and n ~ N(mean, 1), by quadrature over |g|."""
    size = np.linspace(0.0, 9.0, 1501)
    density = 2.0 * stats.norm.pdf(size)
    root = np.sqrt(np.atleast_1d(w))[:, None]
    inside = stats.norm.cdf(root - size - mean) - stats.norm.cdf(-root - size - mean)
    return integrate.trapezoid(density * inside, size)


def first_entry(mean: float, num_draws: int) -> np.ndarray:
    """Draws of W_11: T_11^2 ~ chi2(1), T_21 ~ N(mean, 1)."""
    A = np.array([[1.0, 1.0], [0.0, 1.0]])
    law = GeneralisedWishart(
        1,
        A=A,
        loc=np.array([[0.0], [mean]]),
        concentration=[0.5],
        rate=[0.5],
        scale=np.ones((2, 1)),
    )
    return law.sample(num_draws, seed=tf.constant([7, 1])).numpy()[:, 0, 0]


def best_gamma(mean: float) -> float:
    """The least Kolmogorov-Smirnov distance of any Gamma from the law of W_11."""
    w = np.concatenate([np.logspace(-7.0, -1.0, 60), np.linspace(0.12, 60.0, 250)])
    exact = cdf(w, mean)

    def distance(at: np.ndarray) -> float:
        gamma = stats.gamma(np.exp(at[0]), scale=np.exp(at[1]))
        return float(np.max(np.abs(exact - gamma.cdf(w))))

    starts = ([-0.7, 1.0], [0.0, 1.5])
    fits = [optimize.minimize(distance, at, method="Nelder-Mead") for at in starts]
    return min(fit.fun for fit in fits)


@pytest.mark.parametrize("mean", [-2.0, 0.0, 1.0])
def test_equations_18_to_22_the_first_entry_is_the_square_of_a_sum_with_a_positive_term(
    mean: float,
) -> None:
    """(|g| + n)^2: not the non-central chi-square (g + n)^2, unless n has mean zero."""
    draws = first_entry(mean, 20_000)
    check_law(draws, lambda w: np.interp(w, GRID, cdf(GRID, mean)))
    # (g + n)^2 / 2 ~ chi2(1, mean^2 / 2), and the sign of the mean does not show in it.
    chi_square = stats.ncx2(1, mean**2 / 2.0, scale=2.0) if mean else stats.chi2(1, scale=2.0)
    distance = stats.kstest(draws, chi_square.cdf).statistic
    if mean:
        assert distance > 0.15
    else:
        check_law(draws, chi_square.cdf)
        check_law(draws, stats.gamma(0.5, scale=4.0).cdf)


GRID = np.concatenate([np.logspace(-9.0, -1.0, 200), np.linspace(0.11, 100.0, 1500)])


def test_figure_1_no_gamma_is_the_law_of_the_first_entry_unless_the_mean_is_zero() -> None:
    """The counter-example to the GW's closure, whose W_11 is a Gamma: it needs a mean of n that is not zero.

    By symmetry |g| + n has the law of g + n up to its sign at mean zero, and its square is Gamma(1/2, 1/4).
    """
    distances = {mean: best_gamma(mean) for mean in (-3.0, -2.0, 0.0, 1.0, 2.0)}
    assert distances[0.0] < 1e-4
    expected = {-3.0: 0.0284, -2.0: 0.0153, 1.0: 0.0205, 2.0: 0.0163}
    for mean, value in expected.items():
        assert distances[mean] == pytest.approx(value, abs=2e-3)


def test_figure_1_draws_tell_the_first_entry_from_every_fitted_gamma() -> None:
    """With the mean of n at 1; at 0 the fitted Gamma passes."""
    for mean in (0.0, 1.0):
        draws = first_entry(mean, 50_000)
        fitted = stats.gamma(*stats.gamma.fit(draws, floc=0.0))
        statistic = stats.kstest(draws, fitted.cdf).statistic
        critical = stats.kstwo(len(draws)).isf(FALSE_ALARM)
        assert (statistic > critical) == bool(mean), (mean, statistic, critical)
