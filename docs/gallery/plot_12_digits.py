"""
Images of digits
================

Ten classes of 8 x 8 pixels, by an NNGP with ReLU kernels: the Gaussian process that an infinitely
wide network with two hidden layers is. A softmax likelihood takes ten outputs.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from gpflow_dkp.models import NNGP
from gpflow_dkp.training import fit

images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(labels))
images = (images - images.mean()) / images.std()
train, test = order[:1000], order[1000:]

# %%
# Images learn no scale of their own for each pixel (``ard=False``).
data = images[train], labels[train, None].astype(float)
model = NNGP.from_data(
    *data,
    depth=3,
    num_inducing=80,
    kernel="relu",
    ard=False,
    likelihood=gpflow.likelihoods.Softmax(10),
    seed=0,
)
model.likelihood.num_monte_carlo_points = 10
fit(model, data, num_steps=250, batch_size=250, seed=0, progress=False)
probabilities = model.predict_y(images[test])[0].numpy()
predicted = probabilities.argmax(1)
right = predicted == labels[test]
print(f"{right.mean():.3f} of {len(test)} test images are right")

# %%
# Above the images it is least sure of, below ones it is surest of, each with the probabilities of
# the ten classes; the true class is dark. The doubtful ones are doubtful to us as well.
entropy = -np.sum(probabilities * np.log(np.maximum(probabilities, 1e-12)), axis=1)
ranked = np.argsort(-entropy)
figure, axes = plt.subplots(4, 8, figsize=(11.0, 5.4), height_ratios=(1.4, 1.0, 1.4, 1.0))
for rows, chosen in ((axes[:2], ranked[:8]), (axes[2:], ranked[-400:][::50])):
    for above, below, i in zip(*rows, chosen):
        above.imshow(images[test[i]].reshape(8, 8), cmap="gray_r")
        above.set(title=f"{labels[test[i]]} as {predicted[i]}", xticks=[], yticks=[])
        colours = ["C0" if k == labels[test[i]] else "0.75" for k in range(10)]
        below.bar(range(10), probabilities[i], color=colours)
        below.set(ylim=(0, 1), xticks=[0, 5, 9], yticks=[])
axes[0, 0].set_ylabel("least sure")
axes[2, 0].set_ylabel("surest")
plt.show()
