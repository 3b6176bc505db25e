"""One train/test split of a classification dataset: standardised features and integer labels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from typing_extensions import Self

from ..errors import BadDataError
from .dataset import (
    SCORED_ROWS,
    Array,
    FeatureScaling,
    SplitData,
    column_scale,
    stratified_split,
)

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ClassificationDataset:
    """One split of a dataset with classes 0, ..., `num_classes` - 1.

    `X_train` [N_train, D], `X_test` [N_test, D] in float64, standardised with the training part's
    means and standard deviations: of each column, or of all pixels together for images, which are
    flattened. `Y_train` [N_train, 1], `Y_test` [N_test, 1] hold the labels, as int64. `scaling` leads
    back to original units.

    >>> from bayesian_benchmarks.datasets import ClassificationDataset, get_dataset
    >>> iris = get_dataset("iris", task="classification")
    >>> isinstance(iris, ClassificationDataset), iris.num_classes, iris.N, iris.D
    (True, 3, 150, 4)
    >>> iris.Y_test.shape, np.allclose(iris.X_train.mean(axis=0), 0.0)
    ((15, 1), True)
    """

    name: str
    split: int
    X_train: Array
    Y_train: Labels
    X_test: Array
    Y_test: Labels
    num_classes: int
    scaling: FeatureScaling

    @property
    def N(self) -> int:
        """Rows in all, training and test."""
        return len(self.X_train) + len(self.X_test)

    @property
    def D(self) -> int:
        """Number of features, or pixels."""
        return self.X_train.shape[1]

    @classmethod
    def from_split(cls, name: str, split: int, data: SplitData) -> ClassificationDataset:
        """Check, standardise and wrap what a loader returned: features or images, and labels.

        `data.X_train` is [N, D], or [N, height, width] or [N, height, width, channels] for images;
        `data.Y_train` is [N] or [N, 1].

        :raises BadDataError: shapes that do not fit, images of several shapes, NaN or infinite values,
            labels that are no integers from 0 up, fewer than two classes, a gap in their numbering, or
            a class of the test part that the training part lacks.
        """
        X_train, X_test = (
            checked_features(name, part, X)
            for part, X in (("training", data.X_train), ("test", data.X_test))
        )
        if X_train.shape[1:] != X_test.shape[1:]:
            raise BadDataError(
                f"{name}: rows of shape {X_train.shape[1:]} in the training part and of shape "
                f"{X_test.shape[1:]} in the test part; both need the same."
            )
        Y_train = _labels(name, "training", data.Y_train, len(X_train))
        Y_test = _labels(name, "test", data.Y_test, len(X_test))
        num_classes = _count_classes(name, Y_train, Y_test)
        pixels = X_train if X_train.ndim == 2 else X_train.reshape(-1, 1)
        scaling = FeatureScaling(pixels.mean(axis=0), column_scale(pixels))
        X_train, X_test = (scaling.normalise_X(X.reshape(len(X), -1)) for X in (X_train, X_test))
        return cls(name, split, X_train, Y_train, X_test, Y_test, num_classes, scaling)

    def training_part(self, validation_fraction: float | None = None) -> Self:
        """The training part as a split of its own, for choices that the test part must not influence.

        :param validation_fraction: of it that stands in place of the test part, each class in proportion;
            None to train on all of it, with some of its rows where the test part was. The features' scaling,
            which knows no label, stays as it is.
        :raises BadDataError: a class of one row, which cannot be in both parts.

        >>> from bayesian_benchmarks.datasets import get_dataset
        >>> part = get_dataset("iris", task="classification").training_part(0.2)  # of 135 rows
        >>> len(part.X_train), len(part.X_test)
        (108, 27)
        """
        X, Y = self.X_train, self.Y_train
        if validation_fraction is None:
            return replace(self, X_test=X[:SCORED_ROWS], Y_test=Y[:SCORED_ROWS])
        parts = stratified_split(X, Y[:, 0], self.split, test_fraction=validation_fraction)
        return replace(
            self,
            X_train=parts.X_train,
            Y_train=parts.Y_train[:, None],
            X_test=parts.X_test,
            Y_test=parts.Y_test[:, None],
        )


def checked_features(name: str, part: str, X: npt.ArrayLike) -> Array:
    """`X` in float64, once its shape and values are known to be good."""
    try:
        values = np.asarray(X, np.float64)
    except (ValueError, TypeError) as error:
        shapes = sorted({np.shape(row) for row in X})  # type: ignore[union-attr]
        if len(shapes) > 1:
            raise BadDataError(
                f"{name}: images of several shapes in the {part} part, such as {shapes[0]} and "
                f"{shapes[1]}; bring them to one."
            ) from error
        raise BadDataError(f"{name}: the {part} part has features that are no numbers.") from error
    if values.ndim not in (2, 3, 4) or values.size == 0:
        raise BadDataError(
            f"{name}: the {part} part has X of shape {values.shape}; [N, D], [N, height, width] or "
            "[N, height, width, channels] is needed."
        )
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        raise BadDataError(
            f"{name}: {len(bad)} NaN or infinite values in the {part} part, the first in row "
            f"{bad[0][0]}; remove or fill them."
        )
    return values


def _count_classes(name: str, Y_train: Labels, Y_test: Labels) -> int:
    """The number of classes, once they are known to be 0, 1, ... and all in the training part."""
    present = np.unique(Y_train)
    if len(present) < 2:
        raise BadDataError(
            f"{name}: every training label is {present[0]}; at least two classes are needed."
        )
    classes = np.union1d(present, Y_test)
    gaps = np.flatnonzero(classes != np.arange(len(classes)))
    if len(gaps):
        raise BadDataError(
            f"{name}: no row of class {gaps[0]}, and there are labels up to {classes[-1]}; number the "
            "classes from 0 without gaps."
        )
    unseen = np.setdiff1d(classes, present)
    if len(unseen):
        raise BadDataError(
            f"{name}: class {unseen[0]} is only in the test part; put rows of it into the training "
            "part, or leave it out."
        )
    return len(classes)


def _labels(name: str, part: str, Y: npt.ArrayLike, num_rows: int) -> Labels:
    """Labels [N, 1], once they are known to be integers from 0 up."""
    labels = np.asarray(Y)
    if labels.shape not in ((num_rows,), (num_rows, 1)):
        raise BadDataError(
            f"{name}: the {part} part has {num_rows} rows and labels of shape {labels.shape}; "
            "one label a row is needed."
        )
    if labels.dtype.kind not in "iu":
        raise BadDataError(
            f"{name}: the {part} labels are of type {labels.dtype}; integers from 0 up are needed."
        )
    if labels.min() < 0:
        raise BadDataError(f"{name}: a {part} label is {labels.min()}; labels start at 0.")
    return labels.reshape(num_rows, 1).astype(np.int64)
