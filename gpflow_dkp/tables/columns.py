"""Tables as matrices of numbers: categories one-hot, what has no number refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .read import TableError

if TYPE_CHECKING:
    import pandas as pd

MAX_CATEGORIES = 50
"""Of a column of text: one with more is rather a name or a note than a category."""

LARGEST = 1e150
"""Absolute value: the square of a larger one is infinite."""

DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}")


@dataclass(frozen=True)
class Column:
    """A column of a table.

    :param name: as the table has it.
    :param categories: of text, in order; None of numbers.

    >>> towns = gpflow_dkp.tables.Column("town", ("Bath", "York"))
    >>> numbers = gpflow_dkp.tables.Column("rain")
    >>> gpflow_dkp.tables.Columns((numbers, towns)).feature_names
    ['rain', 'town=Bath', 'town=York']
    """

    name: str
    categories: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Columns:
    """The columns that make a matrix, in order: of numbers as they are, of text one for each category.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"rain": [0.5, 1.5], "town": ["York", "Bath"]})
    >>> columns = gpflow_dkp.tables.Columns.of(table, "towns.csv")
    >>> columns.matrix(table, "towns.csv").tolist()
    [[0.5, 0.0, 1.0], [1.5, 1.0, 0.0]]
    >>> columns.describe()
    '1 column of numbers, town as 2 columns (Bath, York)'
    """

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, table: pd.DataFrame, source: str) -> Columns:
        """Those of a table, which `source` names in messages.

        :raises TableError: for missing values, dates, and text that is no category.
        """
        if not len(table.columns):
            raise TableError(
                f"{source} has no column but the target; at least one feature is needed."
            )
        _check_complete(table, source)
        return cls(tuple(_column(table[name], source) for name in table.columns))

    @property
    def names(self) -> list[str]:
        """Of the table's columns."""
        return [column.name for column in self.columns]

    @property
    def feature_names(self) -> list[str]:
        """Of the matrix' columns: "city" of numbers, "city=Paris" of a category."""
        return [
            name
            for column in self.columns
            for name in (
                [column.name]
                if column.categories is None
                else [f"{column.name}={category}" for category in column.categories]
            )
        ]

    def matrix(self, table: pd.DataFrame, source: str) -> np.ndarray:
        """The table's rows as numbers [N, D], its columns in any order.

        :raises TableError: for other columns, a category that is new, or values that are missing.
        """
        missing = [name for name in self.names if name not in table.columns]
        if missing:
            raise TableError(
                f"{source} has no column {_join(missing)}, which the model was trained with."
            )
        other = [name for name in table.columns if name not in self.names]
        if other:
            raise TableError(
                f"{source} has a column {_join(other)}, which the model was not trained with; "
                "leave it out by --drop."
            )
        _check_complete(table, source)
        return np.hstack([_numbers(table[column.name], column, source) for column in self.columns])

    def describe(self) -> str:
        """One line: how many columns of numbers, and what the others became."""
        text = [column for column in self.columns if column.categories is not None]
        numbers = len(self.columns) - len(text)
        parts = [f"{numbers} column{'s' * (numbers != 1)} of numbers"] if numbers else []
        parts += [
            f"{column.name} as {len(column.categories or ())} columns ({_join(column.categories or ())})"
            for column in text
        ]
        return ", ".join(parts)


def check_target(table: pd.DataFrame, name: str, source: str) -> None:
    """Raise `TableError` for a target of which values are missing, or all are one."""
    _check_complete(table[[name]], source)
    if table[name].nunique() < 2:
        raise TableError(
            f"{source}: the target {name!r} is {table[name].iloc[0]} in every row; nothing is to be learnt."
        )


def is_text(column: pd.Series) -> bool:
    """Whether a column has categories: text, or pandas' own."""
    return column.dtype.kind not in "biuf"


def _check_complete(table: pd.DataFrame, source: str) -> None:
    """Raise `TableError` where a value is missing or infinite: how many, by column."""
    counts = {}
    for name in table.columns:
        column = table[name]
        bad = column.isna()
        if column.dtype.kind == "f":
            bad = ~np.isfinite(column)
        if bad.any():
            counts[name] = int(bad.sum())
    if counts:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise TableError(
            f"{source} has missing or infinite values, by column: {listed} (of {len(table)} rows); fill "
            "them in, remove those rows, or leave a column out by --drop."
        )


def _column(column: pd.Series, source: str) -> Column:
    name = str(column.name)
    if column.dtype.kind in "mM" or _has_dates(column):
        raise TableError(
            f"{source}: column {name!r} has dates; give numbers in their place, such as days since the "
            "first, the month and the weekday, or leave it out by --drop."
        )
    if not is_text(column):
        return Column(name)
    categories = tuple(sorted({str(value) for value in column}))
    if len(categories) > MAX_CATEGORIES:
        raise TableError(
            f"{source}: column {name!r} has {len(categories)} different texts, such as {categories[0]!r}; "
            f"as categories at most {MAX_CATEGORIES} are taken: leave it out by --drop, or group them."
        )
    return Column(name, categories)


def _has_dates(column: pd.Series) -> bool:
    return is_text(column) and all(DATE.match(str(value)) for value in column.head(100))


def _numbers(column: pd.Series, description: Column, source: str) -> np.ndarray:
    """One column's rows [N, 1], or [N, C] of C categories."""
    if description.categories is None:
        if is_text(column):
            raise TableError(
                f"{source}: column {description.name!r} has text, such as {column.iloc[0]!r}; it had "
                "numbers in training."
            )
        values = column.to_numpy(np.float64)[:, None]
        if np.any(np.abs(values) > LARGEST):
            row = int(np.argmax(np.abs(values[:, 0]) > LARGEST))
            raise TableError(
                f"{source}: {values[row, 0]:g} in row {row + 1}, column {description.name!r}, is too large "
                "to be standardised; take other units."
            )
        return values
    texts = np.array([str(value) for value in column])
    known = texts[:, None] == np.array(description.categories)
    new = ~known.any(1)
    if new.any():
        row = int(np.argmax(new))
        raise TableError(
            f"{source}: column {description.name!r} has {texts[row]!r} in row {row + 1}, which it never had "
            f"in training; it had {_join(description.categories)}."
        )
    return known.astype(np.float64)


def _join(names: Sequence[str], at_most: int = 8) -> str:
    rest = len(names) - at_most
    return ", ".join(names[:at_most]) + (f" and {rest} more" if rest > 0 else "")
