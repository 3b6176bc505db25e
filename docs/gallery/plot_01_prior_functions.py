r"""
Functions deform with depth
===========================

A deep Wishart process draws a Gram matrix :math:`G_l \sim \mathcal{W}(K(G_{l-1}) / \nu, \nu)` in
each layer, and the next kernel is a function of it. We draw one sample of three hidden layers on a
line, and at each depth four functions with that depth's covariance.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np

from gpflow_dkp import gram
from gpflow_dkp.layers import WishartLayer

NUM_POINTS, WIDTH, DEPTH = 160, 3, 3
X = np.linspace(-3.0, 3.0, NUM_POINTS)[:, None]
kernel = gpflow.kernels.SquaredExponential(lengthscales=0.6)

# %%
# ``prior_sample`` draws a layer from the covariance before it, ``gram.covariance`` evaluates the
# next kernel on the Gram matrix that comes out.
layer = WishartLayer(NUM_POINTS, WIDTH)
covariance = gram.from_inputs(kernel, X, X[:0])
covariances = [covariance.ii.numpy()]
for depth in range(DEPTH):
    draw = layer.prior_sample(covariance.with_jitter(1e-6).ii, seed=[5, depth])
    covariance = gram.covariance(kernel, draw.inducing)
    covariances.append(covariance.ii.numpy().reshape(NUM_POINTS, NUM_POINTS))

# %%
# Above the covariances, below the functions. The first column is a Gaussian process: covariance
# falls with distance. Layer by layer it becomes patches: inputs far apart are mapped to the same
# place, neighbours are torn apart, and functions are flat at some x and change quickly at others.
rng = np.random.default_rng(1)
noise = rng.normal(size=(NUM_POINTS, 4))
figure, axes = plt.subplots(2, DEPTH + 1, figsize=(11.0, 5.2), height_ratios=(1.25, 1.0))
for depth, (above, below) in enumerate(axes.T):
    K = covariances[depth]
    image = above.imshow(K, vmin=0.0, vmax=1.0, extent=(-3, 3, 3, -3))
    above.set(title=["a GP", "1 hidden layer", "2 hidden layers", "3 hidden layers"][depth])
    above.set(xticks=[-3, 0, 3], yticks=[-3, 0, 3] if depth == 0 else [])
    functions = np.linalg.cholesky(K + 1e-6 * np.eye(NUM_POINTS)) @ noise
    below.plot(X[:, 0], functions)
    below.set(xlabel="x", ylim=(-3.2, 3.2), xlim=(-3, 3), xticks=[-3, 0, 3])
    if depth:
        below.set_yticklabels([])
axes[0, 0].set_ylabel("x'")
axes[1, 0].set_ylabel("f(x)")
figure.colorbar(image, ax=axes[0], label="k(x, x')", shrink=0.85)
plt.show()
