"""
Draws of whole functions
========================

A prediction at each point says how unsure a model is there. Many questions need more: where is the
minimum, how steep is it, does it cross zero? ``predict_f_samples`` draws whole functions from the
posterior, jointly at all inputs.
"""

import matplotlib.pyplot as plt
import numpy as np

from gpflow_dkp.models import DWP
from gpflow_dkp.training import fit

rng = np.random.default_rng(3)
X = np.sort(np.concatenate([rng.uniform(-2.0, -0.6, 25), rng.uniform(0.7, 2.0, 25)]))[:, None]
Y = np.sin(3.0 * X) * np.where(X > 0.0, 1.0, 0.5) + 0.08 * rng.normal(size=X.shape)

model = DWP.from_data(X, Y, depth=2, num_inducing=25, width=4, seed=0)
fit(model, (X, Y), num_steps=500, seed=0, progress=False)

# %%
# One posterior object keeps the samples of the hidden layers, so that several predictions cost
# little.
x = np.linspace(-2.6, 2.6, 200)[:, None]
posterior = model.posterior(num_samples=400, seed=1)
functions = posterior.predict_f_samples(x, seed=2).numpy()[..., 0]
low, high = np.quantile(functions, [0.05, 0.95], axis=0)
gap = (x[:, 0] > -0.6) & (x[:, 0] < 0.8)
rises = np.diff(np.sign(functions[:, gap]), axis=1) > 0
crossings = [x[gap][:-1][row].max() for row in rises if row.any()]

# %%
# Left: twelve functions of the posterior agree on the data and go their own ways in the gap.
# Right: where each of 400 functions comes up through zero before the data on the right, which no
# pointwise band says.
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), width_ratios=(1.6, 1.0))
left.fill_between(x[:, 0], low, high, color="0.9", label="90 % at each x")
left.plot(x[:, 0], functions[:12].T, color="C0", linewidth=0.9, alpha=0.8)
left.plot([], [], color="C0", linewidth=0.9, label="joint draws")
left.plot(X[:, 0], Y[:, 0], "k.", markersize=5, label="data")
left.set(
    title="functions of the posterior",
    xlabel="x",
    ylabel="f(x)",
    xlim=(-2.6, 2.6),
    ylim=(-2.2, 2.6),
)
left.legend(loc="upper left", ncols=3, fontsize=9)
right.hist(crossings, bins=14, color="C0", alpha=0.8, density=True)
right.set(title="the way up", xlabel="x where f crosses zero upwards", ylabel="density")
plt.show()
