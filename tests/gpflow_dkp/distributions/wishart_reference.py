"""Slow, obvious NumPy and SciPy references for the Wishart family, and parameters to try."""

from typing import NamedTuple

import numpy as np
from scipy import stats

CASES = [(1, 1), (3, 5), (5, 5), (5, 3), (4, 1)]


class Parameters(NamedTuple):
    concentration: np.ndarray
    rate: np.ndarray
    loc: np.ndarray
    scale: np.ndarray


def parameters(P: int, df: int, seed: int = 0, batch: tuple[int, ...] = ()) -> Parameters:
    p = min(P, df)
    rng = np.random.default_rng(seed)
    return Parameters(
        rng.uniform(1.0, 4.0, size=(*batch, p)),
        rng.uniform(0.3, 2.0, size=(*batch, p)),
        rng.normal(size=(*batch, P, p)),
        rng.uniform(0.3, 2.0, size=(*batch, P, p)),
    )


def cholesky_factor(P: int, seed: int = 0, batch: tuple[int, ...] = ()) -> np.ndarray:
    rng = np.random.default_rng(100 + seed)
    L = np.tril(0.4 * rng.normal(size=(*batch, P, P)))
    L[..., range(P), range(P)] = rng.uniform(0.6, 1.6, size=(*batch, P))
    return L


def dense_matrix(P: int, seed: int = 0, batch: tuple[int, ...] = ()) -> np.ndarray:
    return np.eye(P) + 0.3 * np.random.default_rng(200 + seed).normal(size=(*batch, P, P))


def mixed_sign_triangle(p: int, seed: int = 0, batch: tuple[int, ...] = ()) -> np.ndarray:
    """Lower triangular; the first, third, ... diagonal entries are negative."""
    B = cholesky_factor(p, seed + 50, batch)
    B[..., range(0, p, 2), range(0, p, 2)] *= -1.0
    return B


def bartlett_sample(P: int, p: int, seed: int = 0, batch: tuple[int, ...] = ()) -> np.ndarray:
    rng = np.random.default_rng(300 + seed)
    T = np.tril(rng.normal(size=(*batch, P, p)))
    T[..., range(p), range(p)] = rng.uniform(0.5, 2.0, size=(*batch, p))
    return T


def bartlett_log_prob(T: np.ndarray, q: Parameters) -> float:
    P, p = T.shape
    total = 0.0
    for j in range(p):
        gamma = stats.gamma(q.concentration[j], scale=1.0 / q.rate[j])
        # T = sqrt(u): the density of T is that of u at T^2, times du/dT = 2 T.
        total += gamma.logpdf(T[j, j] ** 2) + np.log(2.0 * T[j, j])
        for i in range(j + 1, P):
            total += stats.norm(q.loc[i, j], q.scale[i, j]).logpdf(T[i, j])
    return float(total)


def gram_log_prob(T: np.ndarray, q: Parameters, A: np.ndarray, B: np.ndarray) -> float:
    """log q(A T B (A T B)^T) by the change of variables T -> G, with a complex-step Jacobian."""
    P, p = T.shape
    lower = np.tril_indices(P, m=p)

    def gram(free: np.ndarray) -> np.ndarray:
        matrix = np.zeros((P, p), dtype=free.dtype)
        matrix[lower] = free
        F = A @ matrix @ B
        return (F @ F.T)[lower]

    step = 1e-30
    free = T[lower]
    jacobian = np.stack(
        [gram(free + 1j * step * unit).imag / step for unit in np.eye(len(free))], axis=-1
    )
    return bartlett_log_prob(T, q) - float(np.linalg.slogdet(jacobian)[1])


def standard_parameters(P: int, df: float) -> Parameters:
    """The Bartlett decomposition of a standard Wishart."""
    p = P if df > P - 1 else int(df)
    concentration = np.array([(df - j) / 2.0 for j in range(p)])
    return Parameters(concentration, np.full(p, 0.5), np.zeros((P, p)), np.ones((P, p)))


def check_mean(samples: np.ndarray, expected: np.ndarray, false_alarm: float) -> None:
    """A z test of every entry, with Bonferroni's bound on the probability of one false alarm."""
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    constant = error == 0.0
    np.testing.assert_array_equal(samples.mean(axis=0)[constant], expected[constant])
    z = np.abs(samples.mean(axis=0) - expected)[~constant] / error[~constant]
    threshold = stats.norm.isf(false_alarm / (2 * z.size))
    assert np.all(z < threshold), f"largest z is {z.max():.1f}, the threshold {threshold:.1f}"


def sample_size(entries: int, false_alarm: float, bias: float, missed: float = 1e-3) -> int:
    """Samples for `check_mean` to miss a bias of `bias` standard deviations with rate `missed`."""
    quantiles = stats.norm.isf(false_alarm / (2 * entries)) + stats.norm.isf(missed)
    return int(np.ceil((quantiles / bias) ** 2))
