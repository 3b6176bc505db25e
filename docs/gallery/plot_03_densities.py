"""
Noise that varies, and two branches
===================================

The density of y given x need not be a Gaussian of one width. On the left of these data the noise
grows with x, on the right y is on one of two branches. A GP and a deep GP have Gaussian noise of
one variance; a latent variable before the GP layers (LV-GP-GP) is an input that nobody observed,
and gives densities of any shape.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np

from gpflow_dkp.models import LatentVariableDGP
from gpflow_dkp.training import fit

rng = np.random.default_rng(0)
x = rng.uniform(-2.0, 2.0, size=500)
noisy = np.sin(2.0 * x) + 0.25 * (x + 2.0) * rng.normal(size=500)
branches = rng.choice([-1.0, 1.0], size=500) * (0.2 + 0.75 * x) + 0.08 * rng.normal(size=500)
y = np.where(x < 0.0, noisy, branches)
X, Y = x[:, None] / x.std(), y[:, None] / y.std()

# %%
# The same training for each architecture. ``predict_mixture`` is the predictive density itself, an
# equal mixture of Gaussians, which we evaluate on a grid.
x_grid, y_grid = np.linspace(-1.8, 1.8, 120), np.linspace(-3.0, 3.0, 150)
densities = {}
for architecture in ("GP", "GP-GP", "LV-GP-GP"):
    model = LatentVariableDGP.from_architecture(
        architecture,
        (X, Y),
        num_inducing=30,
        num_importance_samples=10,
        likelihood=gpflow.likelihoods.Gaussian(0.05 if "LV" in architecture else 0.5),
        seed=0,
    )
    fit(model, (X, Y), num_steps=500, batch_size=250, seed=0, progress=False)
    mixture = model.predict_mixture(x_grid[:, None], num_samples=1000, seed=0)
    log_density = [mixture.log_prob(np.full((120, 1), value)) for value in y_grid]
    densities[architecture] = np.exp(log_density)
    score = model.predict_log_density((X, Y), num_samples=500).numpy().mean()
    print(f"{architecture}: mean log density of the data {score:.2f}")

# %%
# Bright is probable. The GP and the deep GP spread one width over all inputs; LV-GP-GP is narrow
# where the data are and splits in two.
figure, axes = plt.subplots(1, 4, figsize=(12.0, 3.6), sharex=True, sharey=True)
axes[0].plot(X[:, 0], Y[:, 0], "k.", markersize=2)
axes[0].set(title="data", xlabel="x", ylabel="y", xlim=(-1.8, 1.8), ylim=(-3.0, 3.0))
for axis, (architecture, density) in zip(axes[1:], densities.items()):
    shown = axis.imshow(
        density, origin="lower", aspect="auto", extent=(-1.8, 1.8, -3.0, 3.0), vmin=0.0, vmax=1.2
    )
    axis.set(title=f"p(y | x) of {architecture}", xlabel="x")
figure.colorbar(shown, ax=axes, label="density", extend="max")
plt.show()
