"""A paper's table with ours beside: datasets down, models across, differences in standard errors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from ..tasks import directions, metrics_of
from .document import Cell, Table
from .paper import PaperResult, published
from .sources import Source
from .tables import Summary, TableLine, printed_depth, summarise

NOTE = (
    "Ours: mean ± standard error over splits, the best of a line in bold. In brackets what the paper prints. "
    "The last number is ours less the paper's, in standard errors of both: more is better."
)

OF_SOMETHING_ELSE = ("two standard errors of the paired difference", "plus or minus")
"""Beginnings of what the papers print that is no standard error of the figure beside it."""

OURS_ALONE = (
    " The paper prints no standard errors of its figures ({kinds}): the last number is in those of ours "
    "alone, and so further from 0 than it should be."
)

BOUND = "elbo_per_point"
FAR_BELOW = 0.1
"""Nats a point."""


def runs_below_printed_bounds(source: Source) -> str | None:
    """How far single runs end below the mean bounds of the paper, which our own means could hide.

    None where the paper prints no bound for any of the runs.
    """
    gaps = []
    for row in source.rows:
        if row.status == "ok" and BOUND in row.metrics:
            depth = printed_depth(row, source.counts_output_layer)
            of = source.paper, row.dataset, depth, row.model, BOUND
            if printed := published(*of, task=row.task):
                place = f"{row.dataset}, depth {depth}, {row.model}, split {row.split}"
                gaps.append((row.metrics[BOUND] - printed.value, place))
    if not gaps:
        return None
    far = sum(gap < -FAR_BELOW for gap, _ in gaps)
    gap, place = min(gaps)
    runs = "1 run" if len(gaps) == 1 else f"{len(gaps)} runs"
    return (
        f"Of {runs} {far or 'none'} ended more than {FAR_BELOW} nats a point below the mean bound "
        f"that the paper prints; the lowest against it is {place}, {gap:+.3f}."
    )


def tables_beside_paper(source: Source) -> list[Table]:
    """A table for each metric that the task shows, or that the paper prints; after them those of the other
    papers, of what they print."""
    if not any(row.status == "ok" for row in source.rows):
        return []
    tasks = sorted({row.task for row in source.rows})
    found = []
    for paper, task in itertools.product((source.paper, *source.other_papers), tasks):
        rows = [row for row in source.rows if row.task == task]
        known = {name for row in rows for name in row.metrics}
        metrics = [name for name in metrics_of(task) if name in known and name in directions()]
        lines = summarise(
            rows,
            metrics=metrics,
            paper=paper,
            depth_counts_output_layer=source.counts_output_layer,
        )
        is_main = paper == source.paper
        shown = {name for name, metric in metrics_of(task).items() if metric.shown and is_main}
        printed = {m for m in metrics if any(line.metrics[m][1] for line in lines)}
        for metric in metrics:
            if metric in shown | printed:
                of_metric = [line for line in lines if is_main or line.metrics[metric][1]]
                name = source.name if is_main else f"{source.name}-{paper}"
                meaning = metrics_of(task)[metric].meaning
                if not is_main:
                    meaning += f", beside {paper}"
                found.append(_table(name, of_metric, metric, meaning))
    return found


def _table(name: str, lines: Sequence[TableLine], metric: str, meaning: str) -> Table:
    models = list(dict.fromkeys(line.label for line in lines))
    several = len({line.schedule for line in lines}) > 1
    places: dict[tuple, dict[str, TableLine]] = {}
    for line in lines:
        key = (line.dataset, line.depth, line.num_steps, line.schedule)
        places.setdefault(key, {})[line.label] = line
    rows = []
    for (dataset, depth, num_steps, schedule), of_model in places.items():
        best = _best([line.metrics[metric][0] for line in of_model.values()], metric)
        splits = sorted({line.num_splits for line in of_model.values()})
        rows.append(
            [
                Cell(dataset),
                Cell(str(depth or "-"), sort=depth),
                Cell(f"{num_steps}{f' {schedule}' if several else ''}", sort=num_steps),
                Cell("-".join(map(str, dict.fromkeys([splits[0], splits[-1]]))), sort=splits[0]),
                *(
                    _cell(*of_model[model].metrics[metric], best, of_model[model].is_mixed)
                    if model in of_model
                    else Cell("")
                    for model in models
                ),
            ]
        )
    better = {True: "Higher is better.", False: "Lower is better."}[directions()[metric]]
    mixed = any(line.is_mixed for line in lines)
    note = NOTE + _about_errors(line.metrics[metric][1] for line in lines)
    note += " † rows of several versions of the code." if mixed else ""
    return Table(
        f"{metric}: {meaning}. {better}",
        f"{name}-{metric.replace('_', '-')}",
        ["dataset", "depth", "steps", "splits", *models],
        rows,
        note,
    )


def distance(ours: Summary, published: PaperResult) -> float | None:
    """Ours less the published figure in standard errors of both, more is better.

    The error that the paper prints counts as what the paper says it is, and as 0 where it is of a
    difference or unknown. None where there is none at all, and where ours is of one split. What rounding
    hides is added: a printed 0.00 is not 0.
    """
    printed = 0.0 if _is_of_something_else(published) else standard_error_of(published)
    if printed is None or math.isnan(ours.standard_error):
        return None
    unit = 10.0**-published.decimals
    error = math.hypot(ours.standard_error, printed, unit / math.sqrt(12.0))
    sign = 1.0 if directions()[published.metric] else -1.0
    return sign * (ours.mean - published.value) / error


def standard_error_of(published: PaperResult) -> float | None:
    """That of a printed figure; None where what is printed is no error of it."""
    if published.error is None:
        return None
    kind = published.error_kind
    if kind.startswith("standard deviation over 10"):
        return published.error / math.sqrt(10.0)
    if kind.startswith("standard error"):
        return published.error
    return None


def _about_errors(figures: Iterable[PaperResult | None]) -> str:
    """What the note says of figures whose printed errors are of something else; "" where none are."""
    kinds = sorted({each.error_kind for each in figures if each and _is_of_something_else(each)})
    return OURS_ALONE.format(kinds="; ".join(kinds)) if kinds else ""


def _is_of_something_else(published: PaperResult) -> bool:
    return published.error_kind.startswith(OF_SOMETHING_ELSE)


def _cell(ours: Summary, published: PaperResult | None, best: float | None, mixed: bool) -> Cell:
    if ours.num_splits == 0:
        return Cell("")
    beside, away = "", None
    if published is not None:
        beside = f"{published.value:.{published.decimals}f}"
        if published.error is not None:
            beside += f" ± {published.error:.{published.decimals}f}"
        away = distance(ours, published)
    is_best = best is not None and math.isclose(ours.mean, best, rel_tol=1e-9)
    return Cell(f"{ours}{'†' if mixed else ''}", beside, away, ours.mean, is_best)


def _best(summaries: Sequence[Summary], metric: str) -> float | None:
    means = [each.mean for each in summaries if each.num_splits]
    if len(means) < 2:
        return None
    return max(means) if directions()[metric] else min(means)
