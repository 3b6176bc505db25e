"""An estimator that takes tables with names and categories, as the command line trains them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .columns import Columns, is_text
from .quality import Quality
from .read import TableError

if TYPE_CHECKING:
    import pandas as pd


@dataclass
class TableModel:
    """A fitted estimator of `gpflow_dkp.sklearn` and how a table becomes its numbers.

    :param estimator: fitted on the matrix that `columns` makes.
    :param columns: of the features.
    :param targets: names of the target columns; one of classes.
    :param num_rows: of the training table.
    :param baseline: mean [P] and standard deviation [P] of the training targets, or each class' frequency.
    :param held_out: how good it was on rows that it was not trained on; None if there were none.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"rain": X[:, 0], "town": ["Bath", "York"] * 5, "yield": Y[:, 0]})
    >>> estimator = gpflow_dkp.sklearn.NNGPRegressor(num_inducing=3, num_steps=3, random_state=0)
    >>> model = gpflow_dkp.tables.TableModel.fit(estimator, table, ["yield"])
    >>> list(model.predict(table).columns)
    ['mean', 'std', 'quantile_0.05', 'quantile_0.5', 'quantile_0.95']
    """

    estimator: Any
    columns: Columns
    targets: list[str]
    num_rows: int
    baseline: np.ndarray
    held_out: Quality | None = field(default=None)

    @classmethod
    def fit(
        cls,
        estimator: Any,
        table: pd.DataFrame,
        targets: Sequence[str],
        source: str = "table",
        columns: Columns | None = None,
    ) -> Any:
        """Fit an estimator to a table whose columns but the targets are features.

        :param source: what messages call the table.
        :param columns: of the features, where a category may be that these rows do not have; default theirs.
        :raises TableError: for a table that cannot be used.
        """
        columns = columns or Columns.of(table.drop(columns=list(targets)), source)
        X = columns.matrix(table[columns.names], source)
        y = _targets(table, targets)
        estimator.fit(X, y)
        if hasattr(estimator, "classes_"):
            baseline = np.mean(y[:, None] == estimator.classes_, axis=0)
        else:
            values = np.reshape(y, [len(y), -1])
            baseline = np.stack([values.mean(0), values.std(0)])
        return cls(estimator, columns, list(targets), len(table), baseline)

    @property
    def is_classifier(self) -> bool:
        """Whether the target's values are classes."""
        return hasattr(self.estimator, "classes_")

    def predict(
        self,
        table: pd.DataFrame,
        levels: Sequence[float] = (0.05, 0.5, 0.95),
        source: str = "table",
    ) -> pd.DataFrame:
        """The predictive distribution of each row: mean, std and quantiles, or each class' probability.

        Columns as `Regressor.predict_distribution` has them, or the class and "p(A)", "p(B)", ....

        :param levels: of the quantiles, not used for classes.
        :raises TableError: for other columns than those of the training, or a category that is new.
        """
        import pandas as pd

        X = self._matrix(table, source)
        if self.is_classifier:
            probabilities = self.estimator.predict_proba(X)
            names = [f"p({label})" for label in self.estimator.classes_]
            frame = pd.DataFrame(probabilities, index=table.index, columns=names)
            best = self.estimator.classes_[np.argmax(probabilities, axis=1)]
            frame.insert(0, self.targets[0], best)
            return frame
        return self.estimator.predict_distribution(X, levels).set_index(table.index)

    def evaluate(self, table: pd.DataFrame, source: str = "table") -> Quality:
        """How good the predictions of a table's targets are.

        :raises TableError: as `predict` does, and for a table without the targets.
        """
        missing = [name for name in self.targets if name not in table.columns]
        if missing:
            raise TableError(
                f"{source} has no column {', '.join(missing)}, which is to be compared with the predictions."
            )
        X, y = self._matrix(table, source), _targets(table, self.targets)
        if self.is_classifier:
            new = sorted({str(label) for label in y} - {str(c) for c in self.estimator.classes_})
            if new:
                raise TableError(
                    f"{source}: the target {self.targets[0]!r} has the class {new[0]!r}, which was not in "
                    f"the training data; it had {', '.join(map(str, self.estimator.classes_))}."
                )
            return Quality.of_classes(self.estimator, X, y, self.baseline)
        return Quality.of_numbers(self.estimator, X, np.reshape(y, [len(y), -1]), self.baseline)

    def save(self, path: str | Path) -> None:
        """Write it to one file, for `gpflow_dkp.load`."""
        from ..saving import save

        save(self, path)

    def _matrix(self, table: pd.DataFrame, source: str) -> np.ndarray:
        features = table.drop(columns=[name for name in self.targets if name in table.columns])
        return self.columns.matrix(features, source)


def _targets(table: pd.DataFrame, targets: Sequence[str]) -> Any:
    """Numbers [N] or a frame [N, P] of several targets, or labels [N]."""
    if len(targets) == 1:
        column = table[targets[0]]
        return np.array([str(v) for v in column]) if is_text(column) else column.to_numpy()
    return table[list(targets)].astype(np.float64)
