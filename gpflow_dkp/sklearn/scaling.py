"""Columns of arrays with mean 0 and standard deviation 1 over the training rows, and the way back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ROUNDING = 10.0 * np.finfo(float).eps
"""Of a column's largest value: one that varies by no more is constant."""


@dataclass(frozen=True)
class Scaling:
    """The map (x - mean) / scale of D columns, K of which are kept.

    :param kept: their numbers [K].
    :param mean: of the training rows [K].
    :param scale: their standard deviation [K], 1 where a column is constant.
    """

    kept: np.ndarray
    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, columns: np.ndarray, *, drop_constant: bool = False) -> Scaling:
        """That of training rows [N, D].

        :param drop_constant: keep the columns that vary; the first where none does.
        """
        largest = np.max(np.abs(columns), axis=0)
        # Nothing overflows in units of the largest value, and in differences to a row 1e9 + noise keeps its
        # digits.
        unit = np.where(largest > 0.0, largest, 1.0)
        first = columns[0] / unit
        difference = columns / unit - first
        mean = unit * (first + np.mean(difference, axis=0))
        spread = np.std(difference, axis=0)
        varies = spread > ROUNDING
        kept = np.flatnonzero(varies) if drop_constant else np.arange(columns.shape[1])
        kept = kept if kept.size else np.arange(1)
        return cls(kept, mean[kept], np.where(varies, unit * spread, 1.0)[kept])

    @classmethod
    def none(cls, num_columns: int) -> Scaling:
        """That of columns which stay as they are."""
        return cls(np.arange(num_columns), np.zeros(num_columns), np.ones(num_columns))

    def standardise(self, columns: np.ndarray) -> np.ndarray:
        """Rows [N, D] to [N, K], with mean 0 and standard deviation 1 if they are the training rows."""
        return (columns[:, self.kept] - self.mean) / self.scale

    def restore(self, columns: np.ndarray) -> np.ndarray:
        """Standardised rows [..., K] in the units that `standardise` took."""
        return self.mean + self.scale * columns
