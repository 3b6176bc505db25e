"""
What a Wishart posterior learns
===============================

A deep Wishart process has no features, only Gram matrices: how similar the inputs are to each
other in a layer. ``sample_grams`` draws them jointly at any inputs, from prior or posterior, so
that one can look at what training did to them.
"""

import matplotlib.pyplot as plt
import numpy as np

from gpflow_dkp.models import DWP
from gpflow_dkp.training import fit

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(-1.5, 1.5, size=(90, 1)), axis=0)
Y = np.select([X < -0.5, X < 0.5], [-1.0, np.sin(9.0 * X)], 1.0) + 0.05 * rng.normal(size=X.shape)

model = DWP.from_data(X, Y, depth=2, num_inducing=40, width=5, seed=0)
x = np.linspace(-1.5, 1.5, 100)[:, None]


def correlations(posterior: bool) -> list[np.ndarray]:
    """Correlation matrices of the hidden layer and of the outputs, means over 100 samples."""
    (_, gram), (covariance, _) = model.sample_grams(x, 100, posterior=posterior, seed=0)
    means = [np.mean(matrix, axis=0) for matrix in (gram, covariance)]
    return [mean / np.sqrt(np.outer(np.diag(mean), np.diag(mean))) for mean in means]


# %%
# The kernel's parameters are trained too, so that we keep three states: prior before training,
# prior after it, and posterior.
before = correlations(posterior=False)
fit(model, (X, Y), num_steps=800, seed=0, progress=False)
states = {
    "prior before training": before,
    "prior with trained kernels": correlations(posterior=False),
    "posterior": correlations(posterior=True),
}

# %%
# The data are flat, then waves, then flat. In either prior similarity falls with distance alone.
# In the posterior each flat part is a block of inputs that are alike, the two blocks are opposites
# in the hidden layer, and the waves between them are like neither.
figure, axes = plt.subplots(2, 4, figsize=(11.5, 5.2), width_ratios=(1.1, 1.0, 1.0, 1.0))
axes[0, 0].plot(X, Y, "k.", markersize=4)
axes[0, 0].set(title="data", xlabel="x", ylabel="y")
mean, variance = (moment.numpy()[:, 0] for moment in model.predict_y(x))
axes[1, 0].fill_between(
    x[:, 0], mean - 2.0 * variance**0.5, mean + 2.0 * variance**0.5, alpha=0.3, linewidth=0
)
axes[1, 0].plot(x[:, 0], mean)
axes[1, 0].set(title="prediction, $\\pm$ 2 sd", xlabel="x", ylabel="y")
for column, (title, matrices) in zip(axes.T[1:], states.items()):
    for axis, matrix in zip(column, matrices):
        shown = axis.imshow(matrix, vmin=-1, vmax=1, cmap="RdBu_r", extent=(-1.5, 1.5, 1.5, -1.5))
        axis.set(xticks=[-1, 0, 1], yticks=[])
    column[0].set_title(title)
axes[0, 1].set_ylabel("hidden layer, G")
axes[1, 1].set_ylabel("outputs, K(G)")
figure.colorbar(shown, ax=axes, label="mean correlation", shrink=0.8)
plt.show()
