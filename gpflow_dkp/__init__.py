"""Deep kernel processes in TensorFlow and GPflow.

`models` are what to start with, `training.fit` trains them, `sklearn` has both as scikit-learn's estimators;
`layers`, `gram`, `distributions` and `bijectors` are what they are made of. `likelihoods`, `means` and
`networks` are to choose from, a `mixture` is what the models predict, `saving` has their files, `tables`
files of data, `wasserstein` the distances of `models.GWI`, `random` the seeds.

Each is imported when it is first named: TensorFlow, which takes seconds, when the first of them needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
        saving,
        selection,
        sklearn,
        tables,
        training,
        wasserstein,
    )
    from .saving import load

__version__ = "0.1.0"

__all__ = [
    "bijectors",
    "distributions",
    "gram",
    "layers",
    "likelihoods",
    "load",
    "means",
    "mixture",
    "models",
    "networks",
    "random",
    "saving",
    "selection",
    "sklearn",
    "tables",
    "training",
    "wasserstein",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "load":
        return importlib.import_module(".saving", __name__).load
    return importlib.import_module(f".{name}", __name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
