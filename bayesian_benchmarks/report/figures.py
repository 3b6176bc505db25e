"""Pictures of stored results."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import BenchmarkError, StoreError
from ..store import ResultRow
from .tables import num_steps, printed_depth

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def check_picture(path: str | Path) -> None:
    """Raise `StoreError` unless a picture can be written there: its format, its folder, the file."""
    from matplotlib.backend_bases import FigureCanvasBase

    path = Path(path)
    formats = sorted(FigureCanvasBase.get_supported_filetypes())
    if path.suffix[1:].lower() not in formats:
        raise StoreError(
            f"Cannot write the picture {path}: its name must end in one of .{', .'.join(formats)}."
        )
    if not path.parent.is_dir():
        raise StoreError(f"Cannot write the picture {path}: make the folder {path.parent} first.")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise StoreError(f"Cannot write the picture {path}: choose a place that can be written to.")


def reliability_diagram(
    rows: Iterable[ResultRow], path: str | Path, *, depth_counts_output_layer: bool = True
) -> int:
    """Accuracy against confidence, a panel for each dataset and depth, a line for each model.

    Test points of all splits and seeds are put together, those of different settings never: a model
    then has several lines. Rows without reliability metrics are left out. The diagonal is perfect
    calibration, and a marker's area is 8 + 200 x the fraction of the line's points in its bin.

    :param path: of the picture, in a format that matplotlib writes.
    :param depth_counts_output_layer: whether the panels' depths do; stored depths always do.
    :returns: the number of panels.
    :raises BenchmarkError: no row is of a classification run with reliability metrics.
    :raises StoreError: the picture cannot be written.
    """
    panels: dict[tuple[str, int], dict[tuple[str, str], list[ResultRow]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in rows:
        if row.status == "ok" and "reliability_count_0" in row.metrics:
            depth = printed_depth(row, depth_counts_output_layer)
            panels[row.dataset, depth][row.model, row.protocol].append(row)
    if not panels:
        raise BenchmarkError(
            "No finished classification run with reliability metrics to draw a diagram of."
        )

    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.0 * len(panels), 4.2), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axis, ((dataset, depth), lines) in zip(axes, sorted(panels.items()), strict=True):
        axis.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        several = len({settings for _, settings in lines}) > 1
        for (model, settings), group in sorted(lines.items()):
            count, confidence, accuracy = _pooled(group)
            shown = count > 0
            label = f"{model}, {num_steps(settings)} steps" if several else model
            (line,) = axis.plot(confidence[shown], accuracy[shown], linewidth=1, label=label)
            sizes = 200 * count[shown] / count.sum() + 8
            axis.scatter(confidence[shown], accuracy[shown], sizes, color=line.get_color())
        axis.set(title=f"{dataset}, depth {depth}", xlabel="confidence", xlim=(0, 1.02))
        axis.set_ylim(0, 1.02)
        axis.legend(fontsize="small", frameon=False, loc="upper left")
    axes[0].set_ylabel("accuracy")
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise StoreError(f"Cannot write the picture {path} ({error}).") from error
    return len(panels)


def draw_training(rows: Sequence[ResultRow], by_seconds: Axes, by_epochs: Axes) -> None:
    """The bound per data point against the seconds and the epochs of training, a line for each row.

    An epoch is as many steps as batches cover the training part; where a row does not know, steps are drawn
    in its place. What is shown are the last four fifths of the lines' values: the first steps lie far below.

    :param rows: of finished runs with their training's history, at least one, of one dataset.
    :param by_seconds: Matplotlib's axes for the one.
    :param by_epochs: for the other, with the legend.
    """
    in_epochs = all("epoch_seconds" in row.metrics for row in rows)
    for row in rows:
        elbo = row.history["elbo"]
        label = row.model if row.seed == 0 else f"{row.model}, seed {row.seed}"
        by_seconds.plot(row.history["seconds"], elbo, label=label)
        by_epochs.plot(_epochs(row) if in_epochs else row.history["step"], elbo, label=label)
    by_seconds.set(xlabel="seconds", ylabel="bound per data point")
    by_epochs.set(xlabel="epochs" if in_epochs else "steps")
    late = [value for row in rows for value in row.history["elbo"][len(row.history["elbo"]) // 5 :]]
    margin = 0.05 * (max(late) - min(late)) or 0.1
    for axis in (by_seconds, by_epochs):
        axis.set_ylim(min(late) - margin, max(late) + margin)
    by_epochs.legend(frameon=False, loc="lower right")


def _epochs(row: ResultRow) -> list[float]:
    steps_an_epoch = row.metrics["epoch_seconds"] / row.metrics["seconds_per_step"]
    return [step / steps_an_epoch for step in row.history["step"]]


def _pooled(group: list[ResultRow]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points, mean confidence and accuracy of each bin over all rows."""
    num_bins = sum(name.startswith("reliability_count_") for name in group[0].metrics)
    counts, confidences, accuracies = (
        np.array(
            [[row.metrics[f"reliability_{what}_{i}"] for i in range(num_bins)] for row in group]
        )
        for what in ("count", "confidence", "accuracy")
    )
    total = counts.sum(axis=0)
    weights = counts / np.maximum(total, 1)
    return total, (weights * confidences).sum(axis=0), (weights * accuracies).sum(axis=0)
