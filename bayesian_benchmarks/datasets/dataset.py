"""One train/test split of a regression dataset, normalised, and the way back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import BadDataError

Array = npt.NDArray[np.float64]

MIN_ROWS = 10
"""Fewer rows than this do not give a 90/10 split that means anything."""

SCORED_ROWS = 10
"""Training rows that stand where a test part is needed and its scores are not."""


@dataclass(frozen=True, eq=False)
class SplitData:
    """A train/test split in original units: what a dataset's loader returns.

    `X_train` [N_train, D], `Y_train` [N_train, P], `X_test` [N_test, D], `Y_test` [N_test, P]; for
    classification `X` may be images [N, height, width(, channels)] and `Y` integer labels [N].

    >>> from bayesian_benchmarks.datasets import SplitData
    >>> data = SplitData(X_train=X[:8], Y_train=Y[:8], X_test=X[8:], Y_test=Y[8:])
    >>> data.X_test.shape, data.Y_test.shape
    ((2, 2), (2, 1))
    """

    X_train: npt.NDArray[Any]
    Y_train: npt.NDArray[Any]
    X_test: npt.NDArray[Any]
    Y_test: npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class FeatureScaling:
    """Means and standard deviations of the training part's features, in original units.

    `X_mean`, `X_std` [D], or [1] for images, whose pixels share them. A constant column has standard
    deviation 1 here.

    >>> from bayesian_benchmarks.datasets import FeatureScaling
    >>> scaling = FeatureScaling(X_mean=np.array([1.0, 2.0]), X_std=np.array([1.0, 4.0]))
    >>> scaling.normalise_X(np.array([[2.0, 10.0]])).tolist()
    [[1.0, 2.0]]
    """

    X_mean: Array
    X_std: Array

    def normalise_X(self, X: Array) -> Array:
        """Features [N, D] in original units to mean 0 and standard deviation 1."""
        return (X - self.X_mean) / self.X_std

    def restore_X(self, X: Array) -> Array:
        """Normalised features [N, D] to original units."""
        return X * self.X_std + self.X_mean


@dataclass(frozen=True, eq=False)
class Scaling(FeatureScaling):
    """The same of features and targets: `Y_mean`, `Y_std` [P].

    >>> from bayesian_benchmarks.datasets import Scaling
    >>> scaling = Scaling.fit(X, Y)
    >>> np.allclose(scaling.restore_Y(scaling.normalise_Y(Y)), Y)
    True
    >>> np.allclose(scaling.restore_Y_variance(np.ones([10, 1])), Y.var())
    True
    """

    Y_mean: Array
    Y_std: Array

    @classmethod
    def fit(cls, X: Array, Y: Array) -> Scaling:
        """Scaling of `X` [N, D] and `Y` [N, P], to be fitted on the training part alone."""
        return cls(X.mean(axis=0), column_scale(X), Y.mean(axis=0), column_scale(Y))

    def normalise_Y(self, Y: Array) -> Array:
        """Targets [N, P] in original units to mean 0 and standard deviation 1."""
        return (Y - self.Y_mean) / self.Y_std

    def restore_Y(self, Y: Array) -> Array:
        """Normalised targets, or predicted means, [..., P] to original units."""
        return Y * self.Y_std + self.Y_mean

    def restore_Y_variance(self, variance: Array) -> Array:
        """Variances [..., P] of normalised targets to original units squared."""
        return variance * self.Y_std**2


@dataclass(frozen=True, eq=False)
class Dataset:
    """One split of a dataset, in float64, normalised with its training part's `scaling`.

    `X_train` [N_train, D], `Y_train` [N_train, P], `X_test` [N_test, D], `Y_test` [N_test, P].

    >>> from bayesian_benchmarks.datasets import Dataset, random_split
    >>> dataset = Dataset.from_split("toy", 0, random_split(X, Y, 0))
    >>> dataset.N, dataset.D, dataset.X_test.shape
    (10, 2, (1, 2))
    >>> np.allclose(dataset.Y_train.std(axis=0), 1.0)
    True
    """

    name: str
    split: int
    X_train: Array
    Y_train: Array
    X_test: Array
    Y_test: Array
    scaling: Scaling

    @property
    def N(self) -> int:
        """Rows in all, training and test."""
        return len(self.X_train) + len(self.X_test)

    @property
    def D(self) -> int:
        """Number of features."""
        return self.X_train.shape[1]

    @classmethod
    def from_split(cls, name: str, split: int, data: SplitData) -> Dataset:
        """Check, scale and wrap what a loader returned.

        :raises BadDataError: wrong shapes, too few rows, or a value that is NaN or infinite.
        """
        X_train, Y_train = _checked(name, "training", data.X_train, data.Y_train)
        X_test, Y_test = _checked(name, "test", data.X_test, data.Y_test)
        if X_train.shape[1] != X_test.shape[1]:
            raise BadDataError(
                f"{name}: {X_train.shape[1]} features in the training part and {X_test.shape[1]} "
                "in the test part; both need the same columns."
            )
        if Y_train.shape[1] != Y_test.shape[1]:
            raise BadDataError(
                f"{name}: {Y_train.shape[1]} targets in the training part and {Y_test.shape[1]} in the "
                "test part; both need the same columns."
            )
        if len(X_train) < 2:
            raise BadDataError(f"{name}: {len(X_train)} training rows; at least 2 are needed.")
        scaling = Scaling.fit(X_train, Y_train)
        return cls(
            name=name,
            split=split,
            X_train=scaling.normalise_X(X_train),
            Y_train=scaling.normalise_Y(Y_train),
            X_test=scaling.normalise_X(X_test),
            Y_test=scaling.normalise_Y(Y_test),
            scaling=scaling,
        )

    def training_part(self, validation_fraction: float | None = None) -> Dataset:
        """The training part as a split of its own, for choices that the test part must not influence.

        :param validation_fraction: of it that stands in place of the test part, normalised with the rest's
            scaling; None to train on all of it, with some of its rows where the test part was.

        >>> from bayesian_benchmarks.datasets import get_dataset
        >>> part = get_dataset("diabetes").training_part(0.25)  # of 398 rows
        >>> len(part.X_train), len(part.X_test)
        (298, 100)
        """
        X, Y = self.X_train, self.Y_train
        if validation_fraction is None:
            return replace(self, X_test=X[:SCORED_ROWS], Y_test=Y[:SCORED_ROWS])
        restored = self.scaling.restore_X(X), self.scaling.restore_Y(Y)
        parts = random_split(*restored, self.split, test_fraction=validation_fraction)
        return Dataset.from_split(self.name, self.split, parts)


def random_split(X: Array, Y: Array, split: int, *, test_fraction: float = 0.1) -> SplitData:
    """The seeded train/test split number `split` of `X` [N, D] and `Y` [N, P].

    The same number gives the same rows on every machine and version: `RandomState` is the
    generator whose stream NumPy promises never to change.

    :raises BadDataError: fewer than ten rows.

    >>> from bayesian_benchmarks.datasets import random_split
    >>> data = random_split(X, Y, split=0, test_fraction=0.2)
    >>> data.X_train.shape, data.X_test.shape
    ((8, 2), (2, 2))
    >>> np.array_equal(data.X_test, random_split(X, Y, split=0, test_fraction=0.2).X_test)
    True
    """
    if len(X) < MIN_ROWS:
        rows = "1 row" if len(X) == 1 else f"{len(X)} rows"
        raise BadDataError(f"{rows} of data; a 90/10 split needs at least {MIN_ROWS}.")
    order = np.random.RandomState(split).permutation(len(X))
    test, train = np.split(order, [max(1, round(test_fraction * len(X)))])
    return SplitData(X[train], Y[train], X[test], Y[test])


def stratified_split(
    X: npt.NDArray[Any], labels: npt.NDArray[np.int64], split: int, *, test_fraction: float = 0.1
) -> SplitData:
    """The seeded split number `split` of `X` [N, ...] and labels [N], each class in proportion.

    The same number gives the same rows on every machine and version. Each class is in both parts.

    :raises BadDataError: a class of one row.

    >>> from bayesian_benchmarks.datasets import stratified_split
    >>> labels = np.array([0] * 6 + [1] * 4)
    >>> data = stratified_split(X, labels, split=0)
    >>> np.sort(data.Y_test).tolist()  # each class is in both parts
    [0, 1]
    """
    classes, counts = np.unique(labels, return_counts=True)
    if len(counts) and counts.min() < 2:
        raise BadDataError(
            f"Class {classes[counts.argmin()]} has 1 row; each class needs at least 2, one for "
            "training and one for testing: add rows of it, or leave it out."
        )
    random = np.random.RandomState(split)
    order = random.permutation(len(X))
    is_test = np.zeros(len(X), bool)
    for label in classes:
        rows = order[labels[order] == label]
        is_test[rows[: min(max(1, round(test_fraction * len(rows))), len(rows) - 1)]] = True
    test, train = order[is_test[order]], order[~is_test[order]]
    return SplitData(X[train], labels[train], X[test], labels[test])


def column_scale(columns: Array) -> Array:
    """Standard deviations [D]; 1 where a column is constant up to rounding (naval has two)."""
    std = columns.std(axis=0)
    constant = std <= 1e-12 * np.abs(columns).max(axis=0)
    return np.where(constant, 1.0, std)


def _checked(name: str, part: str, X: Array, Y: Array) -> tuple[Array, Array]:
    """`X` and `Y` in float64, once their shapes and values are known to be good."""
    X, Y = np.asarray(X, np.float64), np.asarray(Y, np.float64)
    if X.ndim != 2 or X.shape[1] == 0 or Y.ndim != 2 or len(Y) != len(X) or Y.size == 0:
        raise BadDataError(
            f"{name}: the {part} part has X of shape {X.shape} and Y of shape {Y.shape}; "
            "[N, D] and [N, P] with N, D, P > 0 are needed."
        )
    for label, values in (("X", X), ("Y", Y)):
        bad = np.argwhere(~np.isfinite(values))
        if len(bad):
            raise BadDataError(
                f"{name}: {len(bad)} NaN or infinite values in the {part} part, the first in "
                f"{label} at row {bad[0][0]}, column {bad[0][1]}; remove or fill them."
            )
    return X, Y
