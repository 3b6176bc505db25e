r"""
Draws through a deep inverse Wishart process
============================================

In the manner of figure 2 of [ICML21]: one draw of the prior for inputs on a line, as it passes through
the layers, Gram matrices :math:`G_l \sim \mathcal{W}^{-1}(\delta K_{l-1}, \delta + N + 1)` and
covariances :math:`K_l = K(G_l)` in turn. The mean of :math:`G_l` is :math:`K_{l-1}`, and :math:`\delta`
says how near to it a draw is. Where it is infinite nothing is random before the functions: that is the
NNGP.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np

from gpflow_dkp.models import DIWP, NNGP

DEPTH = 3
x = np.linspace(-3.0, 3.0, 100)[:, None]
Z = np.linspace(-2.9, 2.9, 7)[:, None]  # of any number and place: the prior at x is the same


def diwp(delta, depth=DEPTH):
    """A kernel on the Gram matrix of each layer, the same delta in each."""
    kernels = [gpflow.kernels.SquaredExponential() for _ in range(depth)]
    return DIWP(kernels, gpflow.likelihoods.Gaussian(), Z, delta=delta)


def nngp(depth=DEPTH):
    """The limit of as many kernels."""
    kernels = [gpflow.kernels.SquaredExponential() for _ in range(depth)]
    return NNGP(kernels, gpflow.likelihoods.Gaussian(), Z)


# %%
# ``sample_grams`` draws K and G of all layers jointly. :math:`G_1 = x \Omega x^T` has one random number
# in it, which is a lengthscale; we show what follows. In the limit each G is the K before it.


def draw(delta):
    """K_1, G_2, K_2, G_3 and K_3 [N, N] of one draw."""
    (_, _), *pairs, (last, _) = diwp(delta).sample_grams(x, posterior=False, seed=4)
    return [np.squeeze(matrix) for pair in pairs for matrix in pair] + [np.squeeze(last)]


def limit():
    """The same of the NNGP."""
    covariances = [nngp(depth).sample_grams(x)[-1][0].numpy() for depth in range(1, DEPTH + 1)]
    return [*np.repeat(covariances[:-1], 2, axis=0), covariances[-1]]


# %%
# On the right are four functions with the last covariance, of the same random numbers in each row. With
# the small :math:`\delta` the draw forgets distance. :math:`G_2` is large around -1, so that
# :math:`K_2` parts these inputs from those around 2, while the two ends of the line are nearer to each
# other. One more layer, and nothing but the diagonal is left of the band; functions turn at some inputs
# and hardly change at others. With the large :math:`\delta` the draw is the limit but for some waves in
# G, and so are the functions.
rows = {r"$\delta = 3$": draw(3.0), r"$\delta = 300$": draw(300.0), "NNGP": limit()}
titles = ["$K_1$", "$G_2$", "$K_2$", "$G_3$", "$K_3$", "functions"]
noise = np.random.default_rng(1).normal(size=(len(x), 4))
figure, axes = plt.subplots(3, 6, figsize=(12.5, 5.8), width_ratios=(1, 1, 1, 1, 1, 1.3))
for row, (name, matrices) in zip(axes, rows.items()):
    for axis, matrix in zip(row, matrices):
        shown = axis.imshow(matrix, vmin=-1.5, vmax=1.5, cmap="RdBu_r", extent=(-3, 3, 3, -3))
        axis.set(xticks=[], yticks=[])
    row[0].set(ylabel=name, yticks=[-2, 0, 2])
    functions = np.linalg.cholesky(matrices[-1] + 1e-6 * np.eye(len(x))) @ noise
    row[-1].plot(x, functions)
    row[-1].set(xlim=(-3, 3), ylim=(-2.4, 2.4), xticks=[], ylabel="f(x)", box_aspect=0.75)
for column, title in zip(axes.T, titles):
    column[0].set_title(title)
    column[-1].set(xlabel="x", xticks=[-2, 0, 2])
_ = figure.colorbar(
    shown, ax=axes, label="entry of K or G", shrink=0.7, extend="both", aspect=30, pad=0.01
)

# %%
# **Towards the limit.** Left is how far :math:`K_3` is from the limit's, a root mean square over 300
# draws and all pairs of 20 inputs. It falls as :math:`\delta^{-1/2}`, since the variance of a layer
# falls as :math:`1 / \delta`. Right is what the limit becomes with depth: its kernel at inputs far
# apart, :math:`k \leftarrow e^{k - 1}` in each layer, rises to 1 as :math:`1 - 2 / L`, so that
# functions become flat. A small :math:`\delta` does not keep a process from that: on average its
# covariances rise faster, as the numbers below the picture say.
deltas = np.array([3.0, 10.0, 30.0, 100.0, 300.0, 1000.0])
some = x[::5]
wide = nngp().sample_grams(some)[-1][0].numpy()
deviations = [
    diwp(delta).sample_grams(some, 300, posterior=False, seed=0)[-1][0].numpy() - wide
    for delta in deltas
]
distances = np.sqrt(np.mean(np.square(deviations), axis=(1, 2, 3)))
figure, (left, right) = plt.subplots(1, 2, figsize=(10.0, 3.6))
left.loglog(deltas, distances, "o-", label="draws")
left.loglog(deltas, distances[-1] * np.sqrt(deltas[-1] / deltas), "k:", label=r"$\delta^{-1/2}$")
left.set(xlabel=r"$\delta$", ylabel="distance of $K_3$ from the limit")
left.set_yticks([0.02, 0.05, 0.1, 0.2], labels=["0.02", "0.05", "0.1", "0.2"])
left.minorticks_off()
left.legend()
line = np.linspace(0.0, 4.0, 100)[:, None]
for depth, shade in zip((20, 10, 5, 3, 2, 1), np.linspace(0.05, 0.85, 6)):
    covariance = nngp(depth).sample_grams(line)[-1][0].numpy()
    right.plot(line, covariance[0], color=plt.cm.magma(shade), label=depth)
right.set(xlabel="distance of two inputs", ylabel="kernel of the limit", ylim=(0.0, 1.02))
right.legend(title="layers", loc="center left", bbox_to_anchor=(1.0, 0.5))

ends = x[[0, -1]]
for depth in (3, 10):
    drawn = diwp(3.0, depth).sample_grams(ends, 300, posterior=False, seed=0)[-1][0].numpy()
    of_limit = nngp(depth).sample_grams(ends)[-1][0].numpy()
    print(
        f"Covariance of the ends of the line, {depth} layers: {np.mean(drawn[:, 0, 1]):.2f} on average "
        f"at delta 3, {of_limit[0, 1]:.2f} in the limit"
    )
plt.show()
