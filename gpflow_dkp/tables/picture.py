"""One picture of how good a model of a table is: its calibration, and its predictions against the truth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .quality import LEVELS
from .read import TableError

if TYPE_CHECKING:
    import pandas as pd

    from .table_model import TableModel

AT_MOST = 300
"""Rows whose intervals are drawn."""


def draw_quality(model: TableModel, table: pd.DataFrame, path: str | Path) -> None:
    """Write a picture of predictions of a table with its targets.

    :param path: in a format that matplotlib writes.
    :raises TableError: for a path that cannot be written to.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 4.2), layout="constrained")
    calibration, predictions = figure.subplots(1, 2)
    calibration.plot([0, 1], [0, 1], color="0.7", lw=1)
    (_draw_classes if model.is_classifier else _draw_numbers)(
        model, table, calibration, predictions
    )
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise TableError(f"Cannot write the picture {path} ({error}).") from error


def _draw_numbers(
    model: TableModel, table: pd.DataFrame, calibration: Any, predictions: Any
) -> None:
    """Coverage against probability; mean and 90 % interval against the truth, of the first target."""
    quality = model.evaluate(table)
    calibration.plot(LEVELS, quality.coverage, "o-", color="C0")
    calibration.set(
        xlabel="probability of the central interval",
        ylabel="fraction of rows inside",
        title=f"calibration on {quality.num_rows} rows",
        xlim=(0, 1),
        ylim=(0, 1),
    )
    target = model.targets[0]
    some = table.sample(min(len(table), AT_MOST), random_state=0)
    predicted = model.predict(some, [0.05, 0.95])
    prefix = f"{target}_" if len(model.targets) > 1 else ""
    mean, low, high = (
        predicted[f"{prefix}{name}"].to_numpy()
        for name in ("mean", "quantile_0.05", "quantile_0.95")
    )
    truth = some[target].to_numpy(np.float64)
    predictions.vlines(truth, low, high, color="C0", alpha=0.3, lw=1)
    predictions.plot(truth, mean, ".", color="C0", ms=4)
    predictions.locator_params(nbins=6)
    ends = [min(truth.min(), mean.min()), max(truth.max(), mean.max())]
    predictions.plot(ends, ends, color="0.7", lw=1, zorder=0)
    predictions.set(
        xlabel=f"{target}",
        ylabel="predicted mean and 90 % interval",
        title="prediction against truth",
    )


def _draw_classes(
    model: TableModel, table: pd.DataFrame, calibration: Any, predictions: Any
) -> None:
    """Accuracy against confidence; how often each class is taken for which."""
    target = model.targets[0]
    predicted = model.predict(table)
    names = np.array([str(label) for label in model.estimator.classes_])
    truth = np.argmax(table[target].astype(str).to_numpy()[:, None] == names, axis=1)
    probability = predicted.drop(columns=target).to_numpy()
    best = probability.argmax(1)
    confidence, right = probability.max(1), best == truth
    bins = np.minimum((confidence * 10).astype(int), 9)
    counts = np.bincount(bins, minlength=10)
    filled = counts > 0
    calibration.scatter(
        (np.bincount(bins, confidence, 10)[filled] / counts[filled]),
        (np.bincount(bins, right, 10)[filled] / counts[filled]),
        s=8 + 200 * counts[filled] / len(truth),
        color="C0",
    )
    calibration.set(
        xlabel="probability of the class that is predicted",
        ylabel="fraction right",
        title=f"calibration on {len(truth)} rows",
        xlim=(0, 1.02),
        ylim=(0, 1.02),
    )
    table_of = np.zeros((len(names), len(names)), int)
    np.add.at(table_of, (truth, best), 1)
    predictions.imshow(table_of, cmap="Blues")
    for row, column in np.ndindex(table_of.shape):
        dark = table_of[row, column] > table_of.max() / 2
        predictions.text(
            column, row, table_of[row, column], ha="center", va="center", color="w" if dark else "k"
        )
    ticks = range(len(names))
    predictions.set_xticks(ticks, names, rotation=45, ha="right")
    predictions.set_yticks(ticks, names)
    predictions.set(xlabel="predicted", ylabel=target, title="how often each is taken for which")
