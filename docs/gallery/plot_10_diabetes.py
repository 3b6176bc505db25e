"""
A real dataset, end to end
==========================

The progression of diabetes in 442 patients from ten measurements, a dataset that comes with
scikit-learn and is bundled in the benchmark: no download. Load, train, predict, score, and look at
whether the forecast's intervals can be trusted.
"""

import matplotlib.pyplot as plt
import numpy as np

import gpflow_dkp
from bayesian_benchmarks import get_dataset

data = get_dataset("diabetes", split=0)
train, test = (data.X_train, data.Y_train), (data.X_test, data.Y_test)
print(
    f"{len(train[0])} patients to train on, {len(test[0])} to test on, {train[0].shape[1]} features"
)

# %%
# ``from_data`` takes the papers' kernels and starting values; without ``num_steps`` training would
# go on until the bound has stopped rising.
model = gpflow_dkp.models.DWP.from_data(*train, depth=2, num_inducing=50, width=5, seed=0)
history = gpflow_dkp.training.fit(model, train, num_steps=800, seed=0, progress=False)

# %%
# Predictions are of normalised targets; the dataset knows the scale.
mean_y, sd_y = data.scaling.Y_mean, data.scaling.Y_std
mixture = model.predict_mixture(test[0])
median, low, high = (sd_y * q.numpy() + mean_y for q in mixture.quantile([0.5, 0.05, 0.95]))
target = data.scaling.Y_std * test[1] + mean_y
log_density = np.mean(mixture.log_prob(test[1])) - np.log(sd_y).sum()
print(f"test log density {log_density:.2f}, RMSE {np.sqrt(np.mean((median - target) ** 2)):.1f}")

# %%
# Left: the bound a patient rises and settles. Middle: medians and 90 % intervals against what
# happened; points on the diagonal are right. Right: the distribution function at the targets,
# sorted, follows the diagonal where the intervals hold what they promise, within the 95 % range of
# as many uniform numbers (grey).
figure, (rise, middle, right) = plt.subplots(1, 3, figsize=(12.0, 3.9))
rise.plot(history.elbo, color="C0", linewidth=1.0)
rise.set(title="training", xlabel="step", ylabel="bound a patient", ylim=(-1.8, -0.95))
order = np.argsort(median[:, 0])
errors = np.abs(np.hstack([median - low, high - median])[order].T)
middle.errorbar(
    median[order, 0], target[order, 0], xerr=errors, fmt="o", ms=4, lw=0.7, color="C0", alpha=0.8
)
middle.axline((150.0, 150.0), slope=1.0, color="k", linewidth=1.0)
middle.set(
    title="90 % intervals", xlabel="predicted", ylabel="observed", xlim=(0, 350), ylim=(0, 350)
)
pit = np.sort(mixture.cdf(test[1]).numpy()[:, 0])
ranks = (np.arange(len(pit)) + 0.5) / len(pit)
uniform = np.sort(np.random.default_rng(0).uniform(size=(4000, len(pit))), axis=1)
right.fill_between(ranks, *np.quantile(uniform, [0.025, 0.975], axis=0), color="0.88")
right.plot(ranks, pit, "o", markersize=4, color="C0")
right.plot([0, 1], [0, 1], "k-", linewidth=1.0)
right.set(title="calibration", xlabel="rank", ylabel="predictive cdf at the target", aspect="equal")
plt.show()
