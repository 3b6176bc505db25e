"""
Two moons: probability and entropy
==================================

Classification needs another likelihood and nothing else. With two classes a Bernoulli likelihood
on one latent function gives the probability of class 1.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from gpflow_dkp.models import DWP
from gpflow_dkp.training import fit

X, labels = make_moons(n_samples=160, noise=0.18, random_state=0)
X = (X - X.mean(0)) / X.std(0)
Y = labels[:, None].astype(float)

model = DWP.from_data(
    X, Y, depth=2, num_inducing=30, likelihood=gpflow.likelihoods.Bernoulli(), seed=0
)
fit(model, (X, Y), num_steps=500, seed=0, progress=False)

# %%
# The mean of a Bernoulli observation is the probability of class 1; its entropy is largest, one
# bit, where both classes are equally probable.
side = np.linspace(-3.6, 3.6, 90)
grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
probability = model.predict_y(grid, num_samples=50)[0].numpy()[:, 0]
p = np.clip(probability, 1e-9, 1.0 - 1e-9)
entropy = -(p * np.log2(p) + (1.0 - p) * np.log2(1.0 - p))

# %%
# The boundary follows the moons. Away from them the probability goes back to one half and the
# entropy to one bit: the model does not extrapolate its classes.
figure, axes = plt.subplots(1, 2, figsize=(10.0, 4.4), sharey=True)
shown = (
    ("probability of class 1", probability, "RdBu_r", (0.0, 1.0)),
    ("entropy, bits", entropy, "viridis", (0.0, 1.0)),
)
for axis, (title, values, colours, (low, high)) in zip(axes, shown):
    levels = np.linspace(low, high, 21)
    filled = axis.contourf(side, side, values.reshape(90, 90), levels=levels, cmap=colours)
    axis.contour(side, side, probability.reshape(90, 90), [0.5], colors="k", linewidths=1.0)
    for label, colour in ((0, "#2166ac"), (1, "#b2182b")):
        chosen = labels == label
        axis.scatter(*X[chosen].T, s=16, c=colour, edgecolors="w", linewidths=0.5)
    axis.set(title=title, xlabel="$x_1$", aspect="equal")
    figure.colorbar(filled, ax=axis, ticks=[low, 0.5, high], shrink=0.85)
axes[0].set_ylabel("$x_2$")
plt.show()
