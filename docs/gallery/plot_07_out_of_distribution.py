"""
Bands off the data: Gaussian Wasserstein inference
==================================================

GWI takes the mean from a neural network and the variance from a sparse GP, and holds the two near
a GP prior by the Wasserstein distance. The band is narrow on the data and as wide as the prior in
a gap and beyond the ends, while the mean is the network's.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np

from gpflow_dkp.models import GWI
from gpflow_dkp.training import fit

rng = np.random.default_rng(0)
x = np.concatenate([rng.uniform(0.0, 2.5, 75), rng.uniform(5.5, 8.0, 75)])
y = np.sin(2.4 * x) + 0.5 * np.cos(1.1 * x) + 0.2 * rng.normal(size=150)
X, Y = ((values - values.mean()) / values.std() for values in (x[:, None], y[:, None]))
held_out = rng.permutation(150) < 30
train, validation = (X[~held_out], Y[~held_out]), (X[held_out], Y[held_out])

# %%
# Training leaves little of the variance where data are; a fifth of them, held out, say by which
# factor it is too small or too large (``temper``).
grid = np.linspace(-2.2, 2.2, 400)[:, None]
figure, axes = plt.subplots(1, 2, figsize=(10.0, 4.0), sharey=True)
for axis, mean_of in zip(axes, ("net", "svgp")):
    model = GWI.from_data(*train, mean=mean_of, seed=0)
    gpflow.set_trainable(model.inducing_variable, False)
    fit(model, train, num_steps=1500, learning_rate=1e-2, kl_annealing_steps=0, progress=False)
    model.temper(validation)
    mean, variance = (moment.numpy()[:, 0] for moment in model.predict_y(grid))
    for factor, opacity in ((2, 0.18), (1, 0.28)):
        axis.fill_between(
            grid[:, 0],
            mean - factor * variance**0.5,
            mean + factor * variance**0.5,
            color="C0",
            alpha=opacity,
            linewidth=0,
            label=rf"$\pm$ {factor} sd",
        )
    axis.plot(grid[:, 0], mean, color="C0", label="mean")
    axis.plot(train[0][:, 0], train[1][:, 0], "k.", markersize=4, label="data")
    axis.plot(*(part[:, 0] for part in validation), "ko", markersize=4, mfc="w", label="held out")
    Z = model.inducing_variable.Z.numpy()[:, 0]
    axis.plot(Z, np.full_like(Z, -3.8), "^", color="C3", markersize=5, label="inducing points")
    axis.set(title=f"GWI, mean of {'a network' if mean_of == 'net' else 'a sparse GP'}", xlabel="x")

# %%
# Both bands open in the gap and beyond the ends, where no inducing point is. The sparse GP's mean
# goes back to zero there; the network's goes on as networks do, and the band says not to trust it.
axes[0].set(ylabel="y", ylim=(-4.2, 4.2), xlim=(-2.2, 2.2))
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
plt.show()
