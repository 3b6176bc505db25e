"""
A step: GP against deep Wishart process
=======================================

A stationary GP has one lengthscale for all inputs. On a step it must choose between ripples beside
the step and a ramp through it. A deep Wishart process learns a covariance that changes where the
data do.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np

from gpflow_dkp.models import DWP
from gpflow_dkp.training import fit

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(-1.0, 1.0, size=(80, 1)), axis=0)
Y = np.where(X < 0.0, -1.0, 1.0) + 0.1 * rng.normal(size=X.shape)

# %%
# The GP by its marginal likelihood, the DWP by its bound.
gp = gpflow.models.GPR((X, Y), gpflow.kernels.SquaredExponential(lengthscales=0.3))
gpflow.optimizers.Scipy().minimize(gp.training_loss, gp.trainable_variables)

dwp = DWP.from_data(X, Y, depth=3, num_inducing=30, width=3, seed=0)
history = fit(dwp, (X, Y), num_steps=600, seed=0, progress=False)
evidence = gp.log_marginal_likelihood().numpy() / len(X)
bound = dwp.elbo((X, Y), num_samples=100, seed=0).numpy() / len(X)
print(f"log evidence a point: GP {evidence:.2f}, DWP at least {bound:.2f}")

# %%
# The GP took a short lengthscale for the step, and ripples everywhere else. The DWP climbs as fast
# and stays nearly flat where the data are; beyond them it goes on at the last level before its
# band opens.
x = np.linspace(-1.5, 1.5, 300)[:, None]
mean, variance = gp.predict_y(x)
bands = {
    "GP": np.stack([mean - 1.645 * variance**0.5, mean, mean + 1.645 * variance**0.5]),
    "DWP, two hidden layers": dwp.predict_quantiles(x, [0.05, 0.5, 0.95], num_samples=200).numpy(),
}
figure, axes = plt.subplots(1, 2, figsize=(9.0, 3.8), sharey=True)
for axis, (title, (low, middle, high)) in zip(axes, bands.items()):
    axis.fill_between(x[:, 0], low[:, 0], high[:, 0], color="C0", alpha=0.25, lw=0, label="90 %")
    axis.plot(x[:, 0], middle[:, 0], color="C0", label="median")
    axis.plot(X[:, 0], Y[:, 0], "k.", markersize=4, label="data")
    axis.set(title=title, xlabel="x", xlim=(-1.5, 1.5), ylim=(-2.1, 2.1))
axes[0].set_ylabel("y")
axes[0].legend(loc="lower right")
plt.show()
