"""
A density in the shape of letters
=================================

Points inside two letters: x is where along the word, y how high. At most x the density of y has
several modes with sharp edges. It is a hard case for regression, and shows how much of a density
latent variables can learn.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import TextPath

from gpflow_dkp.models import LatentVariableDGP
from gpflow_dkp.training import fit

# %%
# Uniform points inside the glyphs.
rng = np.random.default_rng(0)
font = FontProperties(family="DejaVu Sans", weight="bold")
outlines = [Path(part) for part in TextPath((0, 0), "LV", size=1, prop=font).to_polygons()]
corners = np.concatenate([outline.vertices for outline in outlines])
candidates = rng.uniform(corners.min(0), corners.max(0), size=(4000, 2))
inside = sum(outline.contains_points(candidates).astype(int) for outline in outlines) % 2 == 1
points = candidates[inside][:1200]
X, Y = np.split((points - points.mean(0)) / points.std(0), 2, axis=1)

# %%
# The latent variable is followed by two GP layers. Ten importance samples make the bound much
# tighter than that of VI, and a short lengthscale to start with lets functions turn in a letter.
model = LatentVariableDGP.from_architecture(
    "LV-GP-GP",
    (X, Y),
    num_inducing=60,
    kernel=gpflow.kernels.SquaredExponential(lengthscales=0.4),
    inference="iwvi",
    num_importance_samples=10,
    seed=0,
)
history = fit(model, (X, Y), num_steps=2000, batch_size=200, seed=0, progress=False)

# %%
# Left the data, right the predictive density of y at each x, bright where probable. The V has two
# arms with a gap between them, and y can be anything in the stem of the L and only low in its foot.
x_grid, y_grid = np.linspace(-1.8, 1.8, 140), np.linspace(-2.1, 2.1, 160)
mixture = model.predict_mixture(x_grid[:, None], num_samples=2000, seed=0)
density = np.exp([mixture.log_prob(np.full((140, 1), value)) for value in y_grid])
figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.9), sharey=True)
left.plot(X, Y, "k.", markersize=2)
left.set(title=f"{len(X)} points", xlabel="x", ylabel="y", xlim=(-1.8, 1.8), ylim=(-2.1, 2.1))
extent = (-1.8, 1.8, -2.1, 2.1)
shown = right.imshow(density, origin="lower", aspect="auto", extent=extent, vmin=0.0, vmax=0.8)
right.set(title="p(y | x) of LV-GP-GP", xlabel="x")
figure.colorbar(shown, ax=right, label="density", extend="max")
plt.show()
