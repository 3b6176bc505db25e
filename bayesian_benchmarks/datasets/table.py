"""A user's own table as a dataset with seeded 90/10 splits: a file, a DataFrame, or arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..errors import BadDataError, DataFileError, UnknownNameError
from .dataset import MIN_ROWS, Array, SplitData, random_split, stratified_split
from .registry import check_split, has_classes, register_dataset, split_type

if TYPE_CHECKING:
    import pandas as pd

TARGET_NAMES = ("target", "y")
"""Column names that are taken for the target when none is given."""

LARGEST = 1e150
"""Absolute value: the square of a larger one is infinite."""


@dataclass(frozen=True)
class TableDataset:
    """A table with numeric columns, one or more of which are the targets; it is read once.

    For tasks with classes the target's values are the classes: 0, 1, 2, ..., or names, which are numbered
    in their alphabetical order.

    :param name: of the dataset; never that of a registered one.
    :param targets: their columns.
    :param digest: of the numbers and the columns' names.
    :param X: all rows' features [N, D] in original units.
    :param Y: their targets [N, P], or labels [N].
    :param classes: names of the classes; () where they are numbers, or targets are.
    :param notes: what is odd about the table, a line each.

    >>> import pandas as pd
    >>> from bayesian_benchmarks.datasets import TableDataset
    >>> table = pd.DataFrame({"rain": X[:, 0], "sun": X[:, 1], "yield": Y[:, 0]})
    >>> dataset = TableDataset.of_frame("harvest", table, target="yield")
    >>> dataset.targets, dataset.X.shape, dataset.get(split=3).X_test.shape
    (('yield',), (10, 2), (1, 2))
    """

    name: str
    targets: tuple[str, ...]
    digest: str
    task: str = "regression"
    X: Array = field(default_factory=lambda: np.empty((0, 0)), compare=False, repr=False)
    Y: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0), compare=False, repr=False)
    classes: tuple[str, ...] = field(default=(), compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    num_splits: ClassVar[int] = 20

    @classmethod
    def open(
        cls,
        path: str | Path,
        target: str | Sequence[str] | None = None,
        *,
        task: str = "regression",
    ) -> TableDataset:
        """Read a file, find the targets' columns and check everything.

        :param path: of a CSV file with a header line, or a Parquet (.parquet) or ARFF (.arff) file.
        :param target: the targets' columns; may be left out when one column is called target or y.
        :param task: whose dataset it is to be.
        :raises DataFileError: the file cannot be read.
        :raises BadDataError: it cannot be used, and where and why; no table can for the task "ood".
        """
        path = Path(path)
        _refuse_ood(str(path), task)
        name = path.name if path.suffix else f"{path.name}.csv"
        return cls.of_frame(name, read_table(path), target, task=task, source=str(path))

    @classmethod
    def of_frame(
        cls,
        name: str,
        table: pd.DataFrame,
        target: str | Sequence[str] | None = None,
        *,
        task: str = "regression",
        source: str | None = None,
    ) -> TableDataset:
        """The same of a table in memory, which `source` names in messages."""
        source = source or name
        _refuse_ood(source, task)
        table = table.rename(columns=lambda column: str(column).strip())
        targets = _find_targets(source, list(table.columns), target)
        if has_classes(task) and len(targets) > 1:
            raise BadDataError(
                f"{source}: {len(targets)} targets are named; a table of classes has one."
            )
        X, Y, classes = _arrays(source, table, targets, has_classes(task))
        digest = hashlib.sha256(repr((tuple(table.columns), targets)).encode())
        for array in (X, Y):
            digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
        notes = tuple(_notes(source, X, Y))
        dataset = cls(name, targets, digest.hexdigest(), task, X, Y, classes, notes)
        try:
            dataset.get()
        except BadDataError as error:
            raise BadDataError(str(error).replace(f"{name}:", f"{source}:", 1)) from error
        return dataset

    def get(self, split: int = 0) -> Any:
        """Split number `split`, 0 to 19, normalised; of classes each in proportion.

        :raises BadSplitError: no such split.
        :raises BadDataError: it cannot be split.
        """
        check_split(self.name, split, self.num_splits)
        return split_type(self.task).from_split(self.name, split, self.split(split))

    def split(self, split: int) -> SplitData:
        """The same in original units."""
        if not has_classes(self.task):
            return random_split(self.X, self.Y, split)
        try:
            return stratified_split(self.X, self.Y, split)
        except BadDataError as error:
            raise BadDataError(f"{self.name}: {error}") from error


def add_dataset(
    name: str,
    data: str | Path | pd.DataFrame | tuple[npt.ArrayLike, npt.ArrayLike],
    target: str | Sequence[str] | None = None,
    *,
    task: str = "regression",
) -> TableDataset:
    """Register a dataset of one's own, with 20 seeded 90/10 splits, in one call.

    :param data: a CSV, Parquet or ARFF file, a table, or features [N, D] and targets [N] or [N, P].
    :param target: columns of a file or table; may be left out when one is called target or y.
    :raises BenchmarkError: data that cannot be used, or a name that is taken.

    >>> from bayesian_benchmarks.datasets import add_dataset, get_dataset
    >>> dataset = add_dataset("waves", (X, Y))
    >>> get_dataset("waves", split=0).X_train.shape
    (9, 2)
    """
    import pandas as pd

    if isinstance(data, tuple):
        if target is not None:
            raise BadDataError(f"{name}: target names a column; with arrays (X, y) it is y.")
        data, target = _as_table(name, *data)
    if isinstance(data, pd.DataFrame):
        dataset = TableDataset.of_frame(name, data, target, task=task)
    else:
        opened = TableDataset.open(data, target, task=task)
        dataset = TableDataset(name, *(getattr(opened, part) for part in _PARTS))

    def load(split: int, data_dir: Path | None) -> SplitData:
        return dataset.split(split)

    load.__qualname__ = f"load_{name}"
    register_dataset(name, num_splits=TableDataset.num_splits, task=task)(load)
    return dataset


_PARTS = ("targets", "digest", "task", "X", "Y", "classes", "notes")


def _refuse_ood(source: str, task: str) -> None:
    if task == "ood":
        raise BadDataError(
            f"{source}: one table has no out-distribution; register a dataset of yours with "
            "register_dataset(..., task='ood')."
        )


def read_table(path: Path) -> pd.DataFrame:
    """A file's table, by the name's ending.

    :raises DataFileError: the file cannot be read.
    :raises BadDataError: it holds no table.
    """
    from gpflow_dkp import tables

    try:
        return tables.read_table(path)
    except tables.TableError as error:
        raise BadDataError(str(error)) from error
    except OSError as error:
        raise DataFileError(f"Cannot read {path} ({error.strerror or error}).") from error


def _find_targets(
    source: str, columns: list[str], target: str | Sequence[str] | None
) -> tuple[str, ...]:
    if target is None:
        found = [column for column in columns if column.lower() in TARGET_NAMES]
        if len(found) != 1:
            raise BadDataError(
                f"{source}: say which column is the target with --target; "
                f"the columns are {', '.join(columns)}."
            )
        return tuple(found)
    targets = (target,) if isinstance(target, str) else tuple(dict.fromkeys(target))
    for name in targets:
        if name not in columns:
            raise UnknownNameError(f"target column of {Path(source).name}", name, columns)
    if len(targets) == len(columns):
        raise BadDataError(f"{source}: every column is a target; at least one feature is needed.")
    return targets


def _arrays(
    source: str, table: pd.DataFrame, targets: tuple[str, ...], with_classes: bool
) -> tuple[Array, npt.NDArray[Any], tuple[str, ...]]:
    """`X` [N, D], `Y` [N, P] or labels [N], and the classes' names, once the table is known to be usable."""
    if len(table) < MIN_ROWS:
        rows = "1 row" if len(table) == 1 else f"{len(table)} rows"
        raise BadDataError(
            f"{source} has {rows}; at least {MIN_ROWS} are needed for a 90/10 split."
        )
    classes: tuple[str, ...] = ()
    if with_classes and table[targets[0]].dtype.kind not in "biuf":
        labels = table[targets[0]]
        if labels.isna().any():
            row = int(np.flatnonzero(labels.isna())[0]) + 1
            raise BadDataError(
                f"{source}: no class in row {row} of the data; fill it or remove the row."
            )
        labels = labels.map(lambda label: str(label).strip())
        classes = tuple(sorted(set(labels)))
        table = table.assign(**{targets[0]: labels.map({c: i for i, c in enumerate(classes)})})
    text = [
        c for c, kind in zip(table.columns, table.dtypes, strict=True) if kind.kind not in "biuf"
    ]
    if text:
        raise BadDataError(
            f"{source}: not numbers in column {', '.join(text)}; encode it as numbers or remove it."
        )
    values = table.to_numpy(np.float64)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, column = bad[0]
        count = "1 value is" if len(bad) == 1 else f"{len(bad)} values are"
        raise BadDataError(
            f"{source}: {count} missing or infinite, the first in row {row + 1} of the data, column "
            f"{table.columns[column]!r}; fill it or remove the row."
        )
    Y = np.ascontiguousarray(table[list(targets)].to_numpy(np.float64))
    for name, column in zip(targets, Y.T, strict=True):
        if np.ptp(column) == 0:
            raise BadDataError(f"{source}: the target {name!r} is {column[0]:g} in every row.")
    X = np.ascontiguousarray(table.drop(columns=list(targets)).to_numpy(np.float64))
    if with_classes:
        return X, _labels(source, targets[0], Y), classes
    large = np.argwhere(np.abs(values) > LARGEST)
    if len(large):
        row, column = large[0]
        raise BadDataError(
            f"{source}: {values[row, column]:g} in row {row + 1} of the data, column "
            f"{table.columns[column]!r}, is too large to be standardised; take other units."
        )
    return X, Y, ()


def _labels(source: str, target: str, Y: Array) -> npt.NDArray[np.int64]:
    """The labels [N] in `Y` [N, 1], once they are known to be integers from 0 up."""
    labels = Y[:, 0]
    bad = np.flatnonzero((labels < 0) | (labels != np.floor(labels)) | (labels > 2**53))
    if len(bad):
        raise BadDataError(
            f"{source}: the label {labels[bad[0]]:g} in row {bad[0] + 1} of the data, column {target!r}, "
            "is no integer from 0 up; number the classes 0, 1, 2, ..., or name them."
        )
    return labels.astype(np.int64)


def _notes(source: str, X: Array, Y: npt.NDArray[Any]) -> list[str]:
    import pandas as pd

    rows = np.hstack([X, Y.reshape(len(X), -1)])
    num_repeated = int(pd.DataFrame(rows).duplicated().sum())
    if not num_repeated:
        return []
    return [
        f"{source}: {num_repeated} of {len(rows)} rows repeat another one; where one is for training and the "
        "other for testing, the scores are better than on new data."
    ]


def _as_table(name: str, X: npt.ArrayLike, Y: npt.ArrayLike) -> tuple[pd.DataFrame, list[str]]:
    """Arrays as a table with columns x0, x1, ... and y0, y1, ...; and the latter."""
    import pandas as pd

    features, targets = np.asarray(X), np.asarray(Y)
    targets = targets[:, None] if targets.ndim == 1 else targets
    if features.ndim != 2 or targets.ndim != 2 or len(features) != len(targets):
        raise BadDataError(
            f"{name}: X of shape {np.shape(X)} and y of shape {np.shape(Y)}; [N, D] and [N] or [N, P] are "
            "needed."
        )
    names = [f"y{i}" for i in range(targets.shape[1])]
    columns = {f"x{i}": column for i, column in enumerate(features.T)}
    return pd.DataFrame(columns | dict(zip(names, targets.T, strict=True))), names
