r"""
Linear combinations leave the generalised Wisharts
==================================================

A generalised Wishart posterior draws :math:`W = L T T^T L^T` with a Bartlett factor :math:`T`, so that
:math:`W_{11} = L_{11}^2 T_{11}^2` is a Gamma variable. [UAI23] puts a dense matrix :math:`A` in the place of
:math:`L`, and shows by an example that this is more. We draw the example, and see where it holds.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import integrate, stats

from gpflow_dkp.distributions import GeneralisedWishart

A = np.array([[1.0, 1.0], [0.0, 1.0]])


def first_entries(mean: float, num_draws: int = 50_000) -> np.ndarray:
    r"""Draws of :math:`W_{11} = (T_{11} + T_{21})^2`, with :math:`T_{21} \sim N(\text{mean}, 1)`."""
    loc = np.array([[0.0], [mean]])
    law = GeneralisedWishart(
        1, A=A, concentration=[0.5], rate=[0.5], loc=loc, scale=np.ones((2, 1))
    )
    return law.sample(num_draws, seed=0).numpy()[:, 0, 0]


# %%
# :math:`T_{11}` is positive, the absolute value of a standard normal :math:`g`, so that
# :math:`W_{11} = (|g| + n)^2` with :math:`n = T_{21}`. Given :math:`|g|` its distribution function is a
# difference of two normal ones, and one integral is left.


def distribution_function(w: np.ndarray, mean: float) -> np.ndarray:
    r"""Of :math:`(|g| + n)^2` at w."""
    size = np.linspace(0.0, 9.0, 2001)
    root = np.sqrt(w)[:, None]
    given = stats.norm.cdf(root - size - mean) - stats.norm.cdf(-root - size - mean)
    return integrate.trapezoid(2.0 * stats.norm.pdf(size) * given, size)


# %%
# Left the densities of three means, with the Gamma fitted to each. Right how far the draws are from
# three laws, as Kolmogorov-Smirnov distances: from the fitted Gamma, from the non-central chi-square
# that :math:`(g + n)^2` would have, and from their own; above the dotted line chance comes once in
# 100 000 pictures. At mean zero :math:`|g| + n` has the law of :math:`g + n` but for its sign, and its
# square *is* a Gamma: there the example shows nothing, and down to a mean of -1 it is so near to one
# that these draws do not tell. At the others no Gamma fits. The chi-square, which the paper names, is
# further off still, as it does not see the sign of the mean.
def distances(mean: float) -> tuple[float, float, float]:
    """Of draws from the fitted Gamma, the chi-square and their own law."""
    draws = first_entries(mean)
    gamma = stats.gamma(*stats.gamma.fit(draws, floc=0.0))
    grid = np.concatenate([np.logspace(-9.0, -1.0, 200), np.linspace(0.11, draws.max(), 1000)])
    exact = distribution_function(grid, mean)
    chi_square = stats.ncx2(1, max(mean**2 / 2.0, 1e-12), scale=2.0)
    laws = (gamma.cdf, chi_square.cdf, lambda w: np.interp(w, grid, exact))
    return tuple(stats.kstest(draws, law).statistic for law in laws)


figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 3.8))
bins = np.linspace(0.0, 12.0, 80)
for mean, colour in ((-2.0, "C0"), (0.0, "C1"), (1.0, "C2")):
    draws = first_entries(mean)
    gamma = stats.gamma(*stats.gamma.fit(draws, floc=0.0))
    weights = np.full(len(draws), 1.0 / (len(draws) * (bins[1] - bins[0])))
    left.hist(draws, bins, weights=weights, color=colour, histtype="step", label=f"mean {mean:.0f}")
    left.plot(bins[1:], gamma.pdf(bins[1:]), color=colour, linestyle="--")
left.set(xlabel="$W_{11}$", ylabel="density", yscale="log", ylim=(1e-3, 3.0))
left.legend(title="draws; dashed the fitted Gamma")

means = np.linspace(-3.0, 3.0, 13)
measured = np.array([distances(mean) for mean in means])
for column, label in enumerate(("fitted Gamma", "non-central $\\chi^2$", "$(|g| + n)^2$")):
    right.plot(means, measured[:, column], "o-", markersize=4, label=label)
right.axhline(stats.kstwo(50_000).isf(1e-5), color="k", linewidth=0.8, linestyle=":")
right.set(xlabel="mean of $n$", ylabel="distance of 50 000 draws", yscale="log")
right.legend(loc=(0.6, 0.19))
plt.show()
