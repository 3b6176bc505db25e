r"""
Marginals that no Gaussian has
==============================

In the manner of the figures of [ICML19]'s appendix: the predictive densities of deep GPs at single inputs
with their Shapiro-Wilk statistics, and draws of whole functions coloured by their first principal component.
The paper's own panels were not to be had; the dataset is one of its table, the functions are ours. Last its
letters.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from bayesian_benchmarks import get_dataset
from gpflow_dkp.models import LatentVariableDGP
from gpflow_dkp.training import fit

# %%
# **A dataset.** The areas of forest fires, of which almost half are zero: at most inputs the density of the
# target has a peak and a long tail. One GP, two, and two with a latent variable, by importance-weighted VI.
data = get_dataset("forest", split=0)
train, test = (data.X_train, data.Y_train), (data.X_test, data.Y_test)
models = {}
for architecture in ("GP", "GP-GP", "LV-GP-GP"):
    iwvi = {"inference": "iwvi", "num_importance_samples": 3} if "LV" in architecture else {}
    models[architecture] = LatentVariableDGP.from_architecture(
        architecture, train, num_inducing=50, seed=0, **iwvi
    )
    fit(models[architecture], train, num_steps=800, seed=0, progress=False)

# %%
# **Marginals.** Two thousand draws of the target at each of the test inputs. The Shapiro-Wilk statistic is
# 1 for draws of a Gaussian. We show three inputs: the one where the marginals with a latent variable are
# furthest from Gaussian, the median one, and the nearest.
draws = {
    name: model.predict_y_samples(test[0], 2000, full_cov=False, seed=0).numpy()[..., 0]
    for name, model in models.items()
}
statistic = {
    name: np.array([stats.shapiro(column).statistic for column in values.T])
    for name, values in draws.items()
}
order = np.argsort(statistic["LV-GP-GP"])
shown = order[[0, len(order) // 2, -1]]
figure, axes = plt.subplots(3, 3, figsize=(10.5, 6.5), sharex=True)
for row, (name, values) in zip(axes, draws.items()):
    for axis, point in zip(row, shown):
        axis.hist(values[:, point], np.linspace(-3.0, 5.0, 90), density=True, color="C0")
        axis.axvline(test[1][point, 0], color="k", linewidth=1.0)
        axis.set_title(f"{name}, input {point}: W = {statistic[name][point]:.3f}", fontsize=9)
        axis.set(yticks=[])
for axis in axes[-1]:
    axis.set_xlabel("target, normalised; line: what was observed")
figure.tight_layout()

for name, values in statistic.items():
    density = np.mean(models[name].predict_log_density(test, num_samples=1000, seed=0))
    print(f"{name}: median W {np.median(values):.3f}, test log-likelihood {density:.2f}")

# %%
# **Functions.** Draws of two GPs, one into the other, that were trained on a step with a gap: is the step to
# the left of the gap's middle, or to the right? The first principal component of the draws is that
# question. Each draw has the colour of its score.
rng = np.random.default_rng(0)
x = rng.uniform(-2.0, 2.0, size=(150, 1))
x = x[np.abs(x[:, 0]) > 0.5]
y = np.sign(x) + 0.05 * rng.normal(size=x.shape)
grid = np.linspace(-2.0, 2.0, 200)[:, None]
figure, axes = plt.subplots(1, 3, figsize=(11.0, 3.4))
for axis, architecture in zip(axes, ("GP", "GP-GP")):
    model = LatentVariableDGP.from_architecture(architecture, (x, y), num_inducing=30, seed=0)
    fit(model, (x, y), num_steps=600, seed=0, progress=False)
    functions = model.predict_f_samples(grid, 80, seed=0).numpy()[..., 0]
    left, singular, components = np.linalg.svd(functions - functions.mean(0), full_matrices=False)
    scores = left[:, 0] * singular[0]
    explained = singular[0] ** 2 / np.sum(singular**2)
    colours = plt.cm.coolwarm((scores - scores.min()) / np.ptp(scores))
    for function, colour in zip(functions, colours):
        axis.plot(grid, function, color=colour, linewidth=0.6)
    axis.plot(x, y, "k.", markersize=3)
    axis.set(title=f"{architecture}: first component has {explained:.0%}", xlabel="x")
    axes[2].plot(grid, components[0] * np.sign(components[0].sum()), label=architecture)
axes[2].set(title="first components", xlabel="x", yticks=[])
axes[2].legend()
figure.tight_layout()
plt.show()

# %%
# **Letters**, the paper's figures 1 and 4, take longer than a page may. By the settings of its author's code
# ``python scripts/demo_letters.py --published`` draws the first:
#
# .. image:: /images/letters_published.png
#    :alt: The pixels of italic letters DGP, and the densities of GP, GP-GP, LV-GP and LV-GP-GP
#
# GP and GP-GP have one mode at each x. LV-GP has the letters' outlines, and two layers after the latent
# variable make them sharper. ``python scripts/demo_letters.py`` draws them with points and settings of our
# own, at three inputs on a grid too, and draws of four priors:
#
# .. image:: /images/letters.png
#    :alt: Points inside the letters DGP, densities of LV-GP, GP-GP and LV-GP-GP, and draws of four priors
#
# Here the latent variable moves x, and the last GP sees the moved x alone: LV-GP-GP is less sharp than LV-GP.
# What departs from the paper stands in :doc:`/papers`.
