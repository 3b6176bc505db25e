"""A report's pictures, as SVG: curves of training, calibration, transformed targets, ranks."""

from __future__ import annotations

import io
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..store import ResultRow
from ..tasks.calibration import LEVELS, PIT_BINS
from .document import Figure
from .ranks import RankLine
from .tables import printed_depth

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def training_curves(rows: Sequence[ResultRow], counts_output_layer: bool) -> list[Figure]:
    """The bound against steps and against seconds, a panel for each dataset and depth, means over splits."""
    panels: dict[tuple[str, int], dict[str, list[dict[str, list[float]]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in rows:
        if row.status == "ok" and len(row.history.get("elbo", ())) > 1:
            place = row.dataset, printed_depth(row, counts_output_layer)
            panels[place][row.model].append(row.history)
    figures = []
    for axis, name in (("step", "steps"), ("seconds", "seconds")):
        shown = {
            place: {
                model: [h for h in histories if len(h.get(axis, ())) == len(h["elbo"])]
                for model, histories in of_model.items()
            }
            for place, of_model in panels.items()
        }
        shown = {place: lines for place, lines in shown.items() if any(lines.values())}
        if shown:
            svg = _panels(shown, lambda a, lines, x=axis: _draw_curves(a, lines, x), name, "bound")
            title = f"The bound per data point against {name}"
            figures.append(Figure(title, svg, "Means over splits; the lower end is cut off."))
    return figures


def calibration(rows: Sequence[ResultRow], counts_output_layer: bool) -> Figure | None:
    """Coverage of the central intervals against their probability, means over splits."""
    panels: dict[tuple[str, int], dict[str, list[list[float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in rows:
        names = [f"coverage_{level}" for level in LEVELS]
        if row.status == "ok" and all(name in row.metrics for name in names):
            place = row.dataset, printed_depth(row, counts_output_layer)
            panels[place][row.model].append([row.metrics[name] for name in names])
    if not panels:
        return None
    svg = _panels(panels, _draw_calibration, "probability", "fraction inside")
    return Figure(
        "Calibration: test points inside the central intervals of 50, 90 and 95 %",
        svg,
        "Means over splits. Above the diagonal the intervals are too wide, below it too narrow.",
    )


def pit_histograms(rows: Sequence[ResultRow], counts_output_layer: bool) -> Figure | None:
    """Probability integral transforms of the test targets, a panel for each dataset, depth and model.

    Counts of all splits are put together, and divided by what uniform transforms have on average. The band
    has 95 % of the counts that a bin has of so many independent uniform transforms.
    """
    counts: dict[tuple[str, int], dict[str, np.ndarray]] = defaultdict(dict)
    for row in rows:
        names = [f"pit_count_{i}" for i in range(PIT_BINS)]
        if row.status == "ok" and all(name in row.metrics for name in names):
            of_models = counts[row.dataset, printed_depth(row, counts_output_layer)]
            of_row = np.array([row.metrics[name] for name in names])
            of_models[row.model] = of_models.get(row.model, 0) + of_row
    if not counts:
        return None
    models = sorted({model for of_models in counts.values() for model in of_models})
    canvas = _canvas(min(1.8 * len(models) + 1.2, 10.8), 1.15 * len(counts) + 0.7)
    grid = canvas.subplots(len(counts), len(models), squeeze=False, sharex=True, sharey="row")
    for line, ((dataset, depth), of_models) in zip(grid, sorted(counts.items()), strict=True):
        for axes, model in zip(line, models, strict=True):
            if model in of_models:
                _draw_transforms(axes, of_models[model])
            else:
                axes.set_axis_off()
            axes.tick_params(labelsize=7)
        line[0].set_axis_on()
        line[0].margins(y=0.18)  # for the number of targets
        line[0].set_ylim(bottom=0.0)
        line[0].set_ylabel(_place(dataset, depth).replace(", ", "\n"), fontsize=8)
    for axes, model in zip(grid[0], models, strict=True):
        axes.set_title(model, fontsize=8)
    canvas.supxlabel("probability integral transform", fontsize=8)
    return Figure(
        "Calibration: probability integral transforms of the test targets",
        _svg(canvas),
        "How often targets are at each level of their predictive distributions, as a multiple of how often "
        "they should be. High at both ends: predictions are too narrow; high in the middle: too wide; a "
        "slope: biased. Of right predictions 95 % of the bars end in the grey band, if test points are "
        "independent (those that splits share are not quite); bars that end outside are red.",
    )


def critical_difference(lines: Sequence[RankLine], metric: str) -> Figure | None:
    """Average ranks on a line; what Nemenyi's test does not tell apart at 5 % is joined (Demsar, 2006)."""
    if len(lines) < 3:
        return None
    from scipy.stats import studentized_range

    number = len(lines)
    q = float(studentized_range.ppf(0.95, number, np.inf)) / math.sqrt(2.0)
    critical = q * math.sqrt(number * (number + 1) / (6.0 * lines[0].num_splits))
    canvas = _canvas(7.0, 0.9 + 0.28 * number)
    axes = canvas.subplots()
    axes.set(xlim=(0.8, number + 0.2), ylim=(-number - 0.7, 0.9), yticks=[])
    axes.xaxis.tick_top()
    axes.spines[["left", "right", "bottom"]].set_visible(False)
    for place, line in enumerate(lines):
        axes.plot([line.rank, line.rank], [0.9, -place - 0.6], color="0.8", lw=0.8, zorder=0)
        axes.plot(line.rank, -place - 0.6, "o", color="C0", ms=4)
        left = line.rank > (number + 1) / 2
        shift = -6 if left else 6
        axes.annotate(
            f"{line.model} {line.rank:.2f}",
            (line.rank, -place - 0.6),
            xytext=(shift, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            fontsize=8,
        )
    for start, first in enumerate(lines):
        within = [line.rank for line in lines if 0 <= first.rank - line.rank <= critical]
        if len(within) > 1:
            y = 0.7 - 0.25 * (start % 3)
            axes.plot([min(within), first.rank], [y, y], color="k", lw=2, solid_capstyle="round")
    return Figure(
        f"Average ranks by {metric}, the best right",
        _svg(canvas),
        f"Over {lines[0].num_splits} splits of datasets; joined: closer than the critical difference "
        f"{critical:.2f} of Nemenyi's test at 5 %.",
    )


def _draw_curves(axes: Any, lines: dict[str, list[dict[str, list[float]]]], axis: str) -> None:
    lowest, highest = [], []
    for number, (model, histories) in enumerate(sorted(lines.items())):
        if not histories:
            continue
        points = min(len(history["elbo"]) for history in histories)
        x = np.mean([history[axis][:points] for history in histories], axis=0)
        y = np.mean([history["elbo"][:points] for history in histories], axis=0)
        axes.plot(x, y, color=f"C{number}", lw=1, label=model)
        lowest.append(np.quantile(y, 0.25))
        highest.append(y.max())
    room = 0.5 * (max(highest) - min(lowest)) + 1e-3
    axes.set_ylim(min(lowest) - room, max(highest) + 0.15 * room)
    axes.set_xscale("log")


def _draw_calibration(axes: Any, lines: dict[str, list[list[float]]]) -> None:
    axes.plot([0.4, 1], [0.4, 1], color="0.7", lw=0.8)
    for number, (model, coverages) in enumerate(sorted(lines.items())):
        levels = np.array(LEVELS) / 100
        axes.plot(
            levels, np.mean(coverages, axis=0), "o-", color=f"C{number}", ms=3, lw=1, label=model
        )
    axes.set(xlim=(0.4, 1.02), ylim=(0.4, 1.02))


def _draw_transforms(axes: Any, counts: np.ndarray) -> None:
    from scipy.stats import binom

    number = counts.sum()
    expected = number / PIT_BINS
    low, high = binom.interval(0.95, int(number), 1.0 / PIT_BINS)
    outside = (counts < low) | (counts > high)
    left = np.arange(PIT_BINS) / PIT_BINS
    colors = ["C3" if bin_outside else "C0" for bin_outside in outside]
    axes.axhspan(low / expected, high / expected, color="0.85", lw=0, zorder=0)
    axes.bar(left, counts / expected, 0.92 / PIT_BINS, align="edge", color=colors, alpha=0.7)
    axes.axhline(1.0, color="0.3", lw=0.6)
    axes.set(xlim=(-0.02, 1.02), xticks=[0, 0.5, 1])
    axes.annotate(
        f"{int(number)} targets",
        (0.97, 0.95),
        xycoords="axes fraction",
        ha="right",
        va="top",
        fontsize=6,
    )


def _place(dataset: str, depth: int) -> str:
    return f"{dataset}, depth {depth}" if depth else dataset


def _panels(panels: dict[tuple[str, int], Any], draw: Any, xlabel: str, ylabel: str) -> str:
    """One panel each, four in a line, with one legend for all."""
    columns = min(4, len(panels))
    lines = math.ceil(len(panels) / columns)
    canvas = _canvas(2.6 * columns + 0.2, 2.2 * lines + 0.5 + 0.2 * (4 - columns))
    grid = canvas.subplots(lines, columns, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    legend: dict[str, Any] = {}
    for axes, ((dataset, depth), content) in zip(grid.flat, sorted(panels.items()), strict=False):
        draw(axes, content)
        axes.set_title(_place(dataset, depth), fontsize=8)
        axes.tick_params(labelsize=7)
        handles, labels = axes.get_legend_handles_labels()
        legend |= dict(zip(labels, handles, strict=True))
    canvas.supxlabel(xlabel, fontsize=8)
    canvas.supylabel(ylabel, fontsize=8)
    canvas.legend(
        legend.values(),
        legend.keys(),
        loc="outside upper center",
        ncols=columns,
        fontsize=8,
        frameon=False,
    )
    return _svg(canvas)


def _canvas(width: float, height: float) -> Canvas:
    from matplotlib.figure import Figure as NewCanvas

    return NewCanvas(figsize=(width, height), layout="constrained")


def _svg(canvas: Canvas) -> str:
    """The picture without the lines that make it a file of its own, the same for the same picture."""
    import matplotlib

    output = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "report", "svg.fonttype": "none"}):
        canvas.savefig(output, format="svg", metadata={"Date": None})
    text = output.getvalue()
    return text[text.index("<svg") :]
