"""
Calibration beside an exact GP
==============================

A forecast is calibrated if what it calls 80 % probable happens 80 % of the time. We compare an
exact GP and a deep Wishart process on held-out data of a function that a stationary kernel does
not fit: smooth on the left, fast on the right.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np

from gpflow_dkp.mixture import Mixture
from gpflow_dkp.models import DWP
from gpflow_dkp.training import fit

rng = np.random.default_rng(1)
X = rng.uniform(-1.0, 1.0, size=(640, 1))
Y = np.sin(6.0 * np.exp(1.2 * X)) + 0.1 * rng.normal(size=X.shape)
train, test = (X[:140], Y[:140]), (X[140:], Y[140:])

gp = gpflow.models.GPR(train, gpflow.kernels.SquaredExponential(lengthscales=0.3))
gpflow.optimizers.Scipy().minimize(gp.training_loss, gp.trainable_variables)
dwp = DWP.from_data(*train, depth=2, num_inducing=50, width=4, seed=0)
fit(dwp, train, num_steps=800, seed=0, progress=False)

# %%
# The probability integral transform is the predictive distribution function at the observed
# target. It is uniform for a calibrated forecast, whatever the data.
predictions = {
    "exact GP": Mixture(*(moment[None] for moment in gp.predict_y(test[0]))),
    "DWP": dwp.predict_mixture(test[0], num_samples=200),
}
levels = np.linspace(0.02, 0.98, 49)
figure, axes = plt.subplots(1, 3, figsize=(11.0, 3.7))
for number, (name, mixture) in enumerate(predictions.items()):
    pit = mixture.cdf(test[1]).numpy()[:, 0]
    log_density = mixture.log_prob(test[1]).numpy().mean()
    axis = axes[number]
    axis.hist(pit, bins=10, range=(0.0, 1.0), density=True, color=f"C{number}", alpha=0.75)
    axis.axhspan(
        1.0 - 1.96 * np.sqrt(0.09 / 5.0), 1.0 + 1.96 * np.sqrt(0.09 / 5.0), color="0.85", zorder=0
    )
    axis.axhline(1.0, color="k", linewidth=1.0)
    axis.set(title=f"{name}: log density {log_density:.2f}", xlabel="PIT", ylim=(0.0, 2.2))
    covered = [np.mean(np.abs(pit - 0.5) <= level / 2.0) for level in levels]
    axes[2].plot(levels, covered, color=f"C{number}", label=name)
axes[0].set_ylabel("density over the test points")

# %%
# Left and middle: the transforms of 500 test points, with the 95 % range of a bar of a calibrated
# forecast in grey. Right: how often central intervals hold the target. Above the diagonal a
# forecast is too wide, below too narrow. Both are near it; at equal calibration the log density
# says which forecast is sharper.
axes[2].plot([0, 1], [0, 1], "k--", linewidth=1.0)
axes[2].set(title="central intervals", xlabel="nominal", ylabel="covered", aspect="equal")
axes[2].legend(loc="upper left")
plt.show()
