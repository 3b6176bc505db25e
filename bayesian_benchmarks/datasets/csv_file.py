"""A user's own CSV file as a dataset of either task, with seeded 90/10 splits."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..errors import BadDataError, DataFileError, UnknownNameError
from .classification import ClassificationDataset, Labels
from .dataset import MIN_ROWS, Array, Dataset, random_split, stratified_split
from .registry import check_split

if TYPE_CHECKING:
    import pandas as pd

TARGET_NAMES = ("target", "y")
"""Column names that are taken for the target when none is given."""


@dataclass(frozen=True)
class CsvDataset:
    """A CSV file with a header line and numeric columns, one of which is the target.

    For the task "classification" the target's values are the classes 0, 1, 2, ...
    `sha256` is the content's, so that results of an edited file are not mixed with the old one's.
    """

    path: Path
    target: str
    sha256: str
    task: str = "regression"
    num_splits: ClassVar[int] = 20

    @classmethod
    def open(
        cls, path: str | Path, target: str | None = None, *, task: str = "regression"
    ) -> CsvDataset:
        """Find the target column and check the whole file.

        :param target: the target's column; may be left out when a column is called target or y.
        :param task: "regression", "classification" or "density".
        :raises DataFileError: the file cannot be read.
        :raises BadDataError: it cannot be used, and where and why; no table can for the task "ood".
        """
        path = Path(path)
        if task == "ood":
            raise BadDataError(
                f"{path}: one table has no out-distribution; register a dataset of yours with "
                "register_dataset(..., task='ood')."
            )
        dataset = cls(path, _find_target(path, _read(path), target), _sha256(path), task)
        dataset.get()
        return dataset

    @property
    def name(self) -> str:
        """The file's name, such as `houses.csv`: never the name of a registered dataset."""
        return self.path.name

    def arrays(self) -> tuple[Array, Array]:
        """All rows in original units: `X` [N, D] and `Y` [N, 1].

        :raises BadDataError: the file cannot be used, and where and why.
        """
        if _sha256(self.path) != self.sha256:
            raise DataFileError(f"{self.path} has changed since the run was set up; start again.")
        return _arrays(self.path, _read(self.path), self.target)

    def get(self, split: int = 0) -> Dataset | ClassificationDataset:
        """Split number `split`, 0 to 19, normalised; for classification each class in proportion.

        :raises BadDataError: the file cannot be used, and where and why.
        """
        check_split(self.name, split, self.num_splits)
        X, Y = self.arrays()
        if self.task != "classification":
            return Dataset.from_split(self.name, split, random_split(X, Y, split))
        labels = _labels(self.path, self.target, Y)
        try:
            data = stratified_split(X, labels, split)
        except BadDataError as error:
            raise BadDataError(f"{self.path}: {error}") from error
        return ClassificationDataset.from_split(self.name, split, data)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read(path: Path) -> pd.DataFrame:
    """The file's table, column names stripped, as pandas reads it."""
    import pandas as pd

    try:
        table = pd.read_csv(path, skipinitialspace=True, index_col=False)
    except pd.errors.EmptyDataError as error:
        raise BadDataError(
            f"{path} is empty; a header line and rows of numbers are needed."
        ) from error
    except (pd.errors.ParserError, UnicodeDecodeError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise BadDataError(f"{path} is not a comma-separated table in UTF-8: {reason}") from error
    except OSError as error:
        raise DataFileError(f"Cannot read {path} ({error.strerror or error}).") from error
    table.columns = [str(column).strip() for column in table.columns]
    _check_header(path, list(table.columns))
    return table


def _check_header(path: Path, columns: list[str]) -> None:
    if all(_is_number(column) for column in columns):
        raise BadDataError(
            f"{path} has no header: its first line is numbers; put the columns' names there."
        )
    unnamed = [column for column in columns if column.startswith("Unnamed: ")]
    if unnamed:
        number = int(unnamed[0].removeprefix("Unnamed: ")) + 1
        raise BadDataError(
            f"{path}: column {number} has no name; name it, or remove it if it is a row index."
        )
    if len(columns) < 2:
        raise BadDataError(f"{path} has one column; a target and at least one feature are needed.")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _find_target(path: Path, table: pd.DataFrame, target: str | None) -> str:
    columns = list(table.columns)
    if target is not None:
        if target not in columns:
            raise UnknownNameError(f"target column of {path.name}", target, columns)
        return target
    found = [column for column in columns if column.lower() in TARGET_NAMES]
    if len(found) != 1:
        raise BadDataError(
            f"{path}: say which column is the target with --target; "
            f"the columns are {', '.join(columns)}."
        )
    return found[0]


def _arrays(path: Path, table: pd.DataFrame, target: str) -> tuple[Array, Array]:
    """`X` [N, D] and `Y` [N, 1] of a table, once it is known to be usable."""
    if len(table) < MIN_ROWS:
        rows = "1 row" if len(table) == 1 else f"{len(table)} rows"
        raise BadDataError(f"{path} has {rows}; at least {MIN_ROWS} are needed for a 90/10 split.")
    text = [
        c for c, kind in zip(table.columns, table.dtypes, strict=True) if kind.kind not in "biuf"
    ]
    if text:
        raise BadDataError(
            f"{path}: not numbers in column {', '.join(text)}; encode it as numbers or remove it."
        )
    values = table.to_numpy(np.float64)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, column = bad[0]
        count = "1 value is" if len(bad) == 1 else f"{len(bad)} values are"
        raise BadDataError(
            f"{path}: {count} missing or infinite, the first in row {row + 1} of the data, column "
            f"{table.columns[column]!r}; fill it or remove the row."
        )
    Y = table[[target]].to_numpy(np.float64)
    if np.ptp(Y) == 0:
        raise BadDataError(f"{path}: the target {target!r} is {Y[0, 0]:g} in every row.")
    return table.drop(columns=target).to_numpy(np.float64), Y


def _labels(path: Path, target: str, Y: Array) -> Labels:
    """The labels [N] in `Y` [N, 1], once they are known to be integers from 0 up."""
    labels = Y[:, 0]
    bad = np.flatnonzero((labels < 0) | (labels != np.floor(labels)) | (labels > 2**53))
    if len(bad):
        raise BadDataError(
            f"{path}: the label {labels[bad[0]]:g} in row {bad[0] + 1} of the data, column {target!r}, "
            "is no integer from 0 up; number the classes 0, 1, 2, ..."
        )
    return labels.astype(np.int64)
