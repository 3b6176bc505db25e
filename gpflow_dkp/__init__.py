"""Deep kernel processes in TensorFlow and GPflow.

`models` are what to start with, `training.fit` trains them, `sklearn` has both as scikit-learn's estimators;
`layers`, `gram`, `distributions` and `bijectors` are what they are made of. `likelihoods`, `means` and
`networks` are to choose from, a `mixture` is what the models predict, `wasserstein` has the distances of
`models.GWI`, `random` the seeds.
"""

from . import (
    bijectors,
    distributions,
    gram,
    layers,
    likelihoods,
    means,
    mixture,
    models,
    networks,
    random,
    selection,
    sklearn,
    training,
    wasserstein,
)

__version__ = "0.1.0"

__all__ = [
    "bijectors",
    "distributions",
    "gram",
    "layers",
    "likelihoods",
    "means",
    "mixture",
    "models",
    "networks",
    "random",
    "selection",
    "sklearn",
    "training",
    "wasserstein",
]
