"""Tables: mean and standard error over splits, beside the published figures."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..errors import UnknownNameError
from ..settings import schedule_name
from ..store import ResultRow
from ..tasks import directions, find_task
from .competitors import told_apart
from .paper import PaperResult, published

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Summary:
    """A metric of one model at one setting: `mean` and `standard_error` over `num_splits` splits.

    Several seeds of a split count once, by their mean. `standard_error` is NaN for one split.

    >>> from bayesian_benchmarks.report import Summary
    >>> print(Summary(mean=-0.3812, standard_error=0.0123, num_splits=20))
    -0.381 ± 0.012
    """

    mean: float
    standard_error: float
    num_splits: int

    @classmethod
    def over_splits(cls, rows: pd.DataFrame, metric: str) -> Summary:
        """Of a `frame` of rows that agree in all but split and seed."""
        means = of_splits(rows, metric)
        return cls(means.mean(), standard_error(means), len(means))

    def __str__(self) -> str:
        if self.num_splits == 0:
            return ""
        if math.isnan(self.standard_error):
            return f"{self.mean:.4g}"
        digits = _decimals(self.standard_error)
        return f"{self.mean:.{digits}f} ± {self.standard_error:.{digits}f}"


@dataclass(frozen=True)
class TableLine:
    """One line of a table: a model on a dataset, ours and the published figure of each metric.

    `depth` counts layers as the paper does, 0 where the model's name says them; `metrics[name]` is
    (ours, published or None). `is_mixed` says that different code made the rows, as far as is known.
    `schedule` is of `schedule_name`. `settings` are those that tell it from other lines of the same dataset,
    depth, model, number of steps and schedule, "" where there are none.

    >>> from bayesian_benchmarks.report import Summary, TableLine
    >>> ours = Summary(mean=-0.3812, standard_error=0.0123, num_splits=20)
    >>> line = TableLine("boston", 2, "dgp", 20_000, 20, {"elbo_per_point": (ours, None)})
    >>> line.model, str(line.metrics["elbo_per_point"][0])
    ('dgp', '-0.381 ± 0.012')
    """

    dataset: str
    depth: int
    model: str
    num_steps: int
    num_splits: int
    metrics: dict[str, tuple[Summary, PaperResult | None]]
    is_mixed: bool = False
    schedule: str = "paper"
    settings: str = ""

    @property
    def label(self) -> str:
        """The model, and what tells it from others of its name."""
        return f"{self.model}, {self.settings}" if self.settings else self.model


def agrees(ours: float, published: PaperResult) -> bool | None:
    """Whether `ours` is within two of the paper's printed errors of its figure, or better.

    `ours` is rounded to the decimals that the paper prints: an error printed as 0.00 then asks for
    the printed figure. None where the paper prints no error, or no direction is better.

    >>> from bayesian_benchmarks.report import agrees, paper_results
    >>> printed, *_ = paper_results("ober2023")
    >>> printed.metric, printed.value, printed.error
    ('elbo_per_point', -0.38, 0.01)
    >>> agrees(-0.40, printed), agrees(-0.41, printed)
    (True, False)
    """
    higher = directions().get(published.metric)
    if published.error is None or higher is None:
        return None
    gain = round(ours, published.decimals) - published.value
    return (gain if higher else -gain) >= -2 * published.error - 1e-9


def summarise(
    rows: Iterable[ResultRow],
    *,
    metrics: Sequence[str] | None = None,
    paper: str | None = None,
    depth_counts_output_layer: bool = True,
) -> list[TableLine]:
    """Average successful rows over splits, and put the paper's figures beside them.

    Rows of different settings, such as numbers of steps, are never averaged together.

    :param metrics: columns; by default those that the rows' task shows.
    :param paper: whose figures to look up, such as "ober2023".
    :param depth_counts_output_layer: whether the paper's depth does; stored depths always do.
    :raises UnknownNameError: a metric that no row has.

    >>> from bayesian_benchmarks import ResultRow
    >>> from bayesian_benchmarks.report import summarise
    >>> scores = [{"test_rmse": 2.0}, {"test_rmse": 4.0}]
    >>> rows = [
    ...     ResultRow("regression", "boston", split, "dgp", "", 0, 2, "{}", metrics=metrics)
    ...     for split, metrics in enumerate(scores)
    ... ]
    >>> (line,) = summarise(rows, metrics=["test_rmse"])
    >>> line.num_splits, str(line.metrics["test_rmse"][0])
    (2, '3.00 ± 1.00')
    """
    table = frame(rows, depth_counts_output_layer)
    if table.empty:
        return []
    if metrics is None:
        metrics = list(
            dict.fromkeys(m for task in table["task"].unique() for m in find_task(task).shown)
        )
    known = {*table.columns[len(HEAD) :], *directions()}
    for metric in metrics:
        if metric not in known:
            raise UnknownNameError("metric", metric, known)
    lines = []
    names = ["dataset", "depth", "model", "protocol", "task"]
    groups = [group for _, group in table.groupby(names)]
    for group, settings in zip(groups, _settings_that_differ(groups), strict=True):
        dataset, depth, model, protocol, task = group[names].iloc[0]
        figures = {
            metric: (
                Summary.over_splits(group, metric),
                published(paper, dataset, depth, model, metric, task=task),
            )
            for metric in metrics
        }
        steps, is_mixed = num_steps(protocol), group["code"].nunique() > 1
        num_splits = group["split"].nunique()
        how = schedule_name(protocol)
        lines.append(
            TableLine(dataset, depth, model, steps, num_splits, figures, is_mixed, how, settings)
        )
    return lines


def _settings_that_differ(groups: Sequence[pd.DataFrame]) -> list[str]:
    """For each of the groups of rows what `TableLine.settings` says."""
    alike: dict[tuple, list[int]] = {}
    protocols = [group["protocol"].iloc[0] for group in groups]
    for i, (group, protocol) in enumerate(zip(groups, protocols, strict=True)):
        place = tuple(group[["task", "dataset", "depth", "model"]].iloc[0])
        alike.setdefault((place, num_steps(protocol), schedule_name(protocol)), []).append(i)
    found = [""] * len(groups)
    for members in alike.values():
        differences = told_apart([protocols[i] for i in members])
        for i, difference in zip(members, differences, strict=True):
            found[i] = difference
    return found


HEAD = ("task", "dataset", "depth", "model", "protocol", "split", "seed", "code")
"""Columns of `frame` before the metrics."""


def frame(rows: Iterable[ResultRow], depth_counts_output_layer: bool = True) -> pd.DataFrame:
    """The successful rows as a table: the columns of `HEAD`, and one for each metric of any."""
    import pandas as pd

    values = [
        {
            "task": row.task,
            "dataset": row.dataset,
            "depth": printed_depth(row, depth_counts_output_layer),
            "model": row.model,
            "protocol": row.protocol,
            "split": row.split,
            "seed": row.seed,
            "code": row.code,
            **row.metrics,
        }
        for row in rows
        if row.status == "ok"
    ]
    return pd.DataFrame(values) if values else pd.DataFrame(columns=list(HEAD))


def standard_error(values: pd.Series[float]) -> float:
    """Of the mean; NaN for one value."""
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def of_splits(rows: pd.DataFrame, metric: str) -> pd.Series[float]:
    """A metric by split, several seeds of one averaged; splits without it are left out."""
    import pandas as pd

    if metric not in rows:
        return pd.Series(dtype=float)
    return rows.groupby("split")[metric].mean().dropna()


def printed_depth(row: ResultRow, depth_counts_output_layer: bool) -> int:
    """A row's depth as the experiment counts, 0 where the model's name says the layers."""
    return row.depth if depth_counts_output_layer or row.depth == 0 else row.depth - 1


def num_steps(settings: str) -> int:
    """The training steps in a row's `settings`; 0 where they are not said."""
    return int(json.loads(settings).get("num_steps", 0))


class Bold(str):
    """A cell that `format_cells` sets in bold."""


def format_table(lines: Sequence[TableLine], style: str = "rich") -> str:
    """The table as text; for people the best mean of a dataset and depth is bold, ties all.

    :param style: "rich" for a terminal, "markdown", or "csv" (numbers in full, a row a figure).
    :raises UnknownNameError: another style.

    >>> from bayesian_benchmarks.report import Summary, TableLine, format_table
    >>> ours = Summary(mean=-0.3812, standard_error=0.0123, num_splits=20)
    >>> lines = [TableLine("boston", 2, "dgp", 20_000, 20, {"elbo_per_point": (ours, None)})]
    >>> print(format_table(lines, style="csv"))
    dataset,depth,model,...
    boston,2,dgp,...
    """
    return _csv(lines) if style == "csv" else format_cells(*_cells(lines), style)


def format_cells(
    header: Sequence[str], cells: Sequence[Sequence[str]], note: str, style: str
) -> str:
    """A table for people, with a note below.

    :param style: "rich" or "markdown".
    :raises UnknownNameError: another style.
    """
    formats = {"rich": _rich, "markdown": _markdown}
    if style not in formats:
        raise UnknownNameError("table format", style, [*formats, "csv"])
    return formats[style](header, cells, note)


def _decimals(error: float) -> int:
    """Decimals that show two digits of an error, between 2 and 6."""
    if error <= 0:
        return 4
    return min(6, max(2, 1 - math.floor(math.log10(error))))


def _cells(lines: Sequence[TableLine]) -> tuple[list[str], list[list[str]], str]:
    """Header, cells and note of the table for people."""
    metrics = list(lines[0].metrics) if lines else []
    paired = {m for m in metrics if any(line.metrics[m][1] for line in lines)}
    header = ["dataset", "depth", "model", "steps", "splits"]
    for metric in metrics:
        header += [metric, "published"] if metric in paired else [metric]
    cells = []
    for line in lines:
        row = [
            line.dataset,
            str(line.depth or "-"),
            line.label,
            f"{line.num_steps}{'' if line.schedule == 'paper' else f' {line.schedule}'}",
            f"{line.num_splits}{'†' if line.is_mixed else ''}",
        ]
        for metric in metrics:
            ours, theirs = line.metrics[metric]
            row.append(Bold(ours) if _is_best(line, metric, lines) else str(ours))
            if metric in paired:
                row.append(_published_cell(ours, theirs))
        cells.append(row)
    note = "Mean ± standard error over splits."
    if any(line.is_mixed for line in lines):
        note += " † made by different versions of the code; --redo-changed does them again."
    if paired:
        note += (
            " published: the paper's; ✓ ours is within two of its printed errors or better, ✗ not."
        )
    return header, cells, note


def _is_best(line: TableLine, metric: str, lines: Sequence[TableLine]) -> bool:
    """Whether no other line of the dataset and depth has a better mean; False where there is no other."""
    higher = directions().get(metric)
    means = [
        other.metrics[metric][0].mean
        for other in lines
        if (other.dataset, other.depth) == (line.dataset, line.depth)
        and other.metrics[metric][0].num_splits > 0
    ]
    if higher is None or len(means) < 2:
        return False
    best = max(means) if higher else min(means)
    return math.isclose(line.metrics[metric][0].mean, best, rel_tol=1e-9)  # rounding apart


def _published_cell(ours: Summary, theirs: PaperResult | None) -> str:
    if theirs is None:
        return ""
    text = f"{theirs.value:.{theirs.decimals}f}"
    if theirs.error is not None:
        text += f" ± {theirs.error:.{theirs.decimals}f}"
    verdict = agrees(ours.mean, theirs) if ours.num_splits else None
    return text if verdict is None else f"{text} {'✓' if verdict else '✗'}"


def _rich(header: Sequence[str], cells: Sequence[Sequence[str]], note: str) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(caption=note, caption_justify="left")
    for name in header:
        text = name in ("dataset", "model")
        table.add_column(name, justify="left" if text else "right", no_wrap=True)
    for row in cells:
        table.add_row(*(Text(cell, "bold" if isinstance(cell, Bold) else "") for cell in row))
    output = io.StringIO()
    width = max(
        80, 4 + sum(3 + max(len(r[i]) for r in [header, *cells]) for i in range(len(header)))
    )
    on_terminal = sys.stdout.isatty() or None  # None: as the environment says
    Console(file=output, width=width, force_terminal=on_terminal).print(table)
    return output.getvalue()


def _markdown(header: Sequence[str], cells: Sequence[Sequence[str]], note: str) -> str:
    rule = ["---" if name in ("dataset", "model") else "---:" for name in header]
    shown = [[f"**{cell}**" if isinstance(cell, Bold) else cell for cell in row] for row in cells]
    body = "\n".join(f"| {' | '.join(row)} |" for row in [header, rule, *shown])
    return f"{body}\n\n{note}\n"


def _csv(lines: Sequence[TableLine]) -> str:
    import pandas as pd

    rows = [
        {
            "dataset": line.dataset,
            "depth": line.depth,
            "model": line.model,
            "num_steps": line.num_steps,
            "metric": metric,
            "mean": ours.mean,
            "standard_error": ours.standard_error,
            "num_splits": ours.num_splits,
            "published": None if theirs is None else theirs.value,
            "published_error": None if theirs is None else theirs.error,
            "agrees": None if theirs is None else agrees(ours.mean, theirs),
            "is_mixed": line.is_mixed,
            "schedule": line.schedule,
            "settings": line.settings,
        }
        for line in lines
        for metric, (ours, theirs) in line.metrics.items()
    ]
    return pd.DataFrame(rows).to_csv(index=False, lineterminator="\n")
