"""
A real dataset, end to end
==========================

The resistance of 308 model yachts in a towing tank, from the shape of the hull and the speed: one of the
sets of the papers' tables, downloaded once, with their first split. Load, train, predict, score, and look
at whether the forecast's intervals can be trusted.
"""

import matplotlib.pyplot as plt
import numpy as np

import gpflow_dkp
from bayesian_benchmarks import get_dataset

data = get_dataset("yacht", split=0)
train, test = (data.X_train, data.Y_train), (data.X_test, data.Y_test)
print(f"{len(train[0])} runs to train on, {len(test[0])} to test on, {train[0].shape[1]} features")

# %%
# ``from_data`` takes the papers' kernels and starting values; without ``num_steps`` training would
# go on until the bound has stopped rising.
model = gpflow_dkp.models.DWP.from_data(*train, depth=2, num_samples=3, seed=0)
history = gpflow_dkp.training.fit(model, train, num_steps=2_000, seed=0, progress=False)

# %%
# Predictions are of normalised targets; the dataset knows the scale.
mixture = model.predict_mixture(test[0])
median, low, high = (data.scaling.restore_Y(q.numpy()) for q in mixture.quantile([0.5, 0.05, 0.95]))
target = data.scaling.restore_Y(test[1])
log_density = np.mean(mixture.log_prob(test[1])) - np.log(data.scaling.Y_std).sum()
print(f"test log density {log_density:.2f}, RMSE {np.sqrt(np.mean((median - target) ** 2)):.2f}")

# %%
# Left: the bound a training point; the line is where [UAI23] ends after 20 000 steps. Middle: 90 % intervals
# of what the prediction leaves over. The likelihood has one noise variance for all yachts, and where they
# are slow it is too large: all points lie well inside. Right: the distribution function at the targets,
# sorted, follows the diagonal where the intervals hold what they promise, within the 95 % range of as many
# uniform numbers (grey). Here it is too flat in the middle for the same reason, and a table of one's own
# that looks like this asks for noise that varies with x: ``LatentVariableDGP``.
figure, (rise, middle, right) = plt.subplots(1, 3, figsize=(12.0, 3.9))
rise.plot(history.elbo, color="C0", linewidth=1.0)
PUBLISHED = 2.07  # [UAI23], AB-GW, two layers: mean over 20 splits
rise.axhline(PUBLISHED, color="k", linewidth=1.0)
rise.set(title="training", xlabel="step", ylabel="bound a training point", ylim=(-1.5, 2.3))
errors = np.hstack([median - low, high - median]).T
middle.errorbar(
    median[:, 0], (target - median)[:, 0], yerr=errors, fmt="o", ms=4, lw=0.7, color="C0", alpha=0.8
)
middle.axhline(0.0, color="k", linewidth=1.0)
middle.set(
    title="90 % intervals",
    xlabel="predicted resistance",
    ylabel="observed - predicted",
    xscale="log",
)
pit = np.sort(mixture.cdf(test[1]).numpy()[:, 0])
ranks = (np.arange(len(pit)) + 0.5) / len(pit)
uniform = np.sort(np.random.default_rng(0).uniform(size=(4000, len(pit))), axis=1)
right.fill_between(ranks, *np.quantile(uniform, [0.025, 0.975], axis=0), color="0.88")
right.plot(ranks, pit, "o", markersize=4, color="C0")
right.plot([0, 1], [0, 1], "k-", linewidth=1.0)
right.set(title="calibration", xlabel="rank", ylabel="predictive cdf at the target", aspect="equal")
plt.show()
