"""
Bayesian optimisation by joint draws
====================================

Thompson sampling looks for the minimum of a function that is costly to evaluate: draw one function
from the posterior, evaluate where it is lowest, repeat. It needs joint draws, and here four of
them at a time, so that four evaluations run side by side.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np

from gpflow_dkp.models import DWP
from gpflow_dkp.training import fit

grid = np.linspace(-2.0, 2.0, 250)[:, None]


def costly(x: np.ndarray) -> np.ndarray:
    """A smooth slope on the left, and a narrow valley that holds the minimum."""
    return 0.35 * np.sin(2.0 * x) + 0.1 * x - 1.6 * np.exp(-10.0 * (x - 1.05) ** 2)


# %%
# Rounds of four evaluations, after five at the start, with a model of the data so far. So few
# points do not determine a lengthscale, and one learned from them is too sure of itself: kernels
# and noise are given, the posterior is trained.
X = np.array([-1.7, -0.6, 0.3, 0.75, 1.4])[:, None]
rounds = []
for number in range(4):
    Y = costly(X)
    shift = Y.mean()
    model = DWP.from_data(X, Y - shift, num_inducing=len(X), width=3, seed=0)
    model.kernels[0].lengthscales.assign([0.35])
    model.likelihood.variance.assign(1e-4)
    for part in (*model.kernels, model.likelihood, model.inducing_variable):
        gpflow.set_trainable(part, False)
    fit(model, (X, Y - shift), num_steps=300, seed=number, progress=False)
    draws = model.predict_f_samples(grid, 4, seed=number).numpy()[..., 0] + shift
    chosen = grid[np.argmin(draws, axis=1)]
    rounds.append((X, draws, chosen))
    X = np.concatenate([X, chosen])

# %%
# Each panel has four draws in colour and, as triangles, where each is lowest: the next
# evaluations. The draws spread their bets over what is not known yet, and agree once the valley is
# found.
figure, axes = plt.subplots(1, 4, figsize=(13.0, 3.6), sharey=True)
for number, (axis, (points, draws, chosen)) in enumerate(zip(axes, rounds)):
    axis.plot(grid, costly(grid), "k--", linewidth=1.0, label="the function")
    for k, draw in enumerate(draws):
        axis.plot(grid[:, 0], draw, color=f"C{k}", linewidth=1.0, alpha=0.9)
        axis.plot(chosen[k], draw.min(), "v", color=f"C{k}", markersize=8)
    axis.plot(points, costly(points), "ko", markersize=5, label="evaluated")
    best = costly(points).min()
    axis.set(title=f"round {number + 1}: lowest of {len(points)} is {best:.2f}", xlabel="x")
axes[0].set(ylabel="y", ylim=(-2.4, 1.6))
axes[0].legend(loc="upper left")
print(f"the minimum is {costly(grid).min():.2f}, found {costly(X).min():.2f}")
plt.show()
