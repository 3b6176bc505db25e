"""
Calibration beside an exact GP
==============================

A forecast is calibrated if what it calls 90 % probable happens 90 % of the time, everywhere. The
noise of these data grows from left to right. An exact GP has one noise variance for all inputs; a
latent variable before a GP (LV-GP) can have more of it where there is more.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np

from gpflow_dkp.mixture import Mixture
from gpflow_dkp.models import LatentVariableDGP
from gpflow_dkp.training import fit

rng = np.random.default_rng(0)
X = rng.uniform(-1.7, 1.7, size=(2300, 1))
Y = np.sin(2.0 * X) + 0.05 * np.exp(1.6 * (X + 0.3)) * rng.normal(size=X.shape)
train, test = (X[:300], Y[:300]), (X[300:], Y[300:])

gp = gpflow.models.GPR(train, gpflow.kernels.SquaredExponential())
gpflow.optimizers.Scipy().minimize(gp.training_loss, gp.trainable_variables)
model = LatentVariableDGP.from_architecture("LV-GP", train, num_inducing=30, seed=0)
fit(model, train, num_steps=1500, batch_size=150, seed=0, progress=False)

# %%
# The probability integral transform (PIT) is the predictive distribution function at the observed
# target. For a calibrated forecast it is uniform, whatever the data.
predictions = {
    "exact GP": Mixture(*(moment[None] for moment in gp.predict_y(test[0]))),
    "LV-GP": model.predict_mixture(test[0], num_samples=500),
}
edges = np.linspace(-1.7, 1.7, 11)
cell = np.digitize(test[0][:, 0], edges[1:-1])
spread = 1.96 * np.sqrt(0.05 * 0.95 / len(test[0])) / 0.05
figure, axes = plt.subplots(1, 3, figsize=(12.0, 3.8), width_ratios=(1.0, 1.0, 1.3))
for number, (name, mixture) in enumerate(predictions.items()):
    pit = mixture.cdf(test[1]).numpy()[:, 0]
    log_density = mixture.log_prob(test[1]).numpy().mean()
    axis, colour = axes[number], f"C{number}"
    axis.axhspan(1.0 - spread, 1.0 + spread, color="0.85", zorder=0)
    axis.hist(pit, bins=20, range=(0.0, 1.0), density=True, color=colour, alpha=0.75)
    axis.axhline(1.0, color="k", linewidth=1.0)
    axis.set(title=f"{name}: log density {log_density:.2f}", xlabel="PIT", ylim=(0.0, 4.2))
    covered = [np.mean(np.abs(pit[cell == k] - 0.5) <= 0.45) for k in range(10)]
    axes[2].plot((edges[1:] + edges[:-1]) / 2.0, covered, "o-", color=colour, label=name)
axes[0].set_ylabel("density over the test points")

# %%
# Left and middle: the transforms of 2000 test points, and in grey the 95 % range of a bar of a
# calibrated forecast. The exact GP's hump says too wide on most points, its raised ends too narrow
# on others. Right: how often 90 % intervals hold the target, by x. The GP's are too wide on the
# left and too narrow on the right; the LV-GP's follow the noise, too wide where it is least and
# somewhat too narrow next to that.
axes[2].axhline(0.9, color="k", linewidth=1.0)
axes[2].set(title="covered by 90 % intervals", xlabel="x", ylabel="fraction", ylim=(0.5, 1.02))
axes[2].legend(loc="lower left")
plt.show()
