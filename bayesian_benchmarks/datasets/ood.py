"""One split of an in-distribution dataset with classes, and inputs of another distribution beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Self

from ..errors import BadDataError
from .classification import ClassificationDataset, checked_features
from .dataset import SCORED_ROWS, Array, SplitData


@dataclass(frozen=True, eq=False)
class OodSplitData(SplitData):
    """A split in original units, and the out-distribution's inputs: what a loader of task "ood" returns.

    `X_ood` [N_ood, ...] has rows as those of `X_train`; no labels of it are needed.

    >>> from bayesian_benchmarks.datasets import OodSplitData, SplitData
    >>> labels = np.arange(10) % 2
    >>> data = OodSplitData(X[:8], labels[:8], X[8:], labels[8:], X_ood=X + 5.0)
    >>> isinstance(data, SplitData), data.X_ood.shape
    (True, (10, 2))
    """

    X_ood: npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class OodDataset(ClassificationDataset):
    """The in-distribution's split, and `X_ood` [N_ood, D] with the training part's scaling.

    >>> from bayesian_benchmarks.datasets import OodDataset, OodSplitData
    >>> labels = np.arange(10) % 2
    >>> data = OodSplitData(X[:8], labels[:8], X[8:], labels[8:], X_ood=X + 5.0)
    >>> dataset = OodDataset.from_split("toy", 0, data)
    >>> dataset.X_ood.shape, dataset.num_classes, bool(dataset.X_ood.mean() > 1.0)
    ((10, 2), 2, True)
    """

    X_ood: Array

    @classmethod
    def from_split(cls, name: str, split: int, data: SplitData) -> OodDataset:
        """Check, standardise and wrap what a loader returned, which must be `OodSplitData`.

        :raises BadDataError: as for classification, or the out-distribution is missing, has rows of
            another shape, or NaN or infinite values.
        """
        if not isinstance(data, OodSplitData):
            raise BadDataError(
                f"{name}: its loader returned {type(data).__name__}; a dataset for out-of-distribution "
                "detection needs OodSplitData, with inputs X_ood of the other distribution."
            )
        inside = ClassificationDataset.from_split(name, split, data)
        X_ood = checked_features(name, "out-of-distribution", data.X_ood)
        shape = np.shape(data.X_train)[1:]
        if X_ood.shape[1:] != shape:
            raise BadDataError(
                f"{name}: rows of shape {shape} in the training part and of shape {X_ood.shape[1:]} in "
                "the out-of-distribution part; both need the same."
            )
        X_ood = inside.scaling.normalise_X(X_ood.reshape(len(X_ood), -1))
        return cls(**vars(inside), X_ood=X_ood)

    def training_part(self, validation_fraction: float | None = None) -> Self:
        """As of classification; some of its rows stand where the other distribution's were."""
        part = super().training_part(validation_fraction)
        return replace(part, X_ood=part.X_train[:SCORED_ROWS])
