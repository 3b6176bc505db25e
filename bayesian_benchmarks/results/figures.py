"""Pictures of stored results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..errors import BenchmarkError, StoreError
from .store import ResultRow


def reliability_diagram(rows: Iterable[ResultRow], path: str | Path) -> int:
    """Accuracy against confidence, a panel for each dataset and depth, a line for each model.

    Test points of all splits and seeds are put together; the diagonal is perfect calibration, and the
    area of a marker is the number of points in its bin.

    :param path: of the picture, in a format that matplotlib writes.
    :returns: the number of panels.
    :raises BenchmarkError: no row is of a classification run.
    :raises StoreError: the picture cannot be written.
    """
    panels: dict[tuple[str, int], dict[str, list[ResultRow]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in rows:
        if row.task == "classification" and row.status == "ok":
            panels[row.dataset, row.depth][row.model].append(row)
    if not panels:
        raise BenchmarkError("No finished classification run to draw a reliability diagram of.")

    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.0 * len(panels), 4.2), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axis, ((dataset, depth), models) in zip(axes, sorted(panels.items()), strict=True):
        axis.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        for model, group in sorted(models.items()):
            count, confidence, accuracy = _pooled(group)
            shown = count > 0
            (line,) = axis.plot(confidence[shown], accuracy[shown], linewidth=1, label=model)
            sizes = 200 * count[shown] / count.sum() + 8
            axis.scatter(confidence[shown], accuracy[shown], sizes, color=line.get_color())
        axis.set(title=f"{dataset}, {depth} layers", xlabel="confidence", xlim=(0, 1.02))
        axis.set_ylim(0, 1.02)
        axis.legend(fontsize="small", frameon=False, loc="upper left")
    axes[0].set_ylabel("accuracy")
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise StoreError(f"Cannot write the picture {path} ({error}).") from error
    return len(panels)


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
