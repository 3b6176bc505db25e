"""Models over many datasets at once: average ranks and median differences, as in [ICML19] Table 1."""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields

import numpy as np
from scipy.stats import rankdata

from ..errors import BenchmarkError, UnknownNameError
from .store import ResultRow
from .tables import HIGHER_IS_BETTER, format_cells, num_steps

NOTE = (
    "Over the splits of datasets that all models have: average rank among the models, the best the highest, "
    "± its standard error, and the median difference to {baseline}."
)


@dataclass(frozen=True)
class RankLine:
    """A model over `num_splits` splits of all datasets.

    `rank` is between 1 and the number of models, which is the best; `median_difference` is to the
    baseline, positive where the model is better.
    """

    model: str
    num_steps: int
    num_splits: int
    rank: float
    standard_error: float
    median_difference: float


def average_ranks(rows: Iterable[ResultRow], metric: str, *, baseline: str) -> list[RankLine]:
    """A line a model, the best first; rows of different settings are kept apart.

    :raises UnknownNameError: a metric without a direction, or a baseline that no row is of.
    :raises BenchmarkError: no split of a dataset that all models have.
    """
    if metric not in HIGHER_IS_BETTER:
        raise UnknownNameError("metric to rank models by", metric, HIGHER_IS_BETTER)
    sign = 1.0 if HIGHER_IS_BETTER[metric] else -1.0
    values: dict[str, dict[str, dict[tuple[str, int, int], list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for row in rows:
        if row.status == "ok" and metric in row.metrics:
            place = row.dataset, row.split, row.depth
            values[row.settings][row.model][place].append(sign * row.metrics[metric])
    models = {model for group in values.values() for model in group}
    if baseline not in models:
        raise UnknownNameError("model among the finished runs", baseline, models)
    lines = []
    for settings, group in sorted(values.items()):
        if baseline in group:
            lines += _lines(group, num_steps(settings), baseline)
    return lines


def _lines(
    group: dict[str, dict[tuple[str, int, int], list[float]]], steps: int, baseline: str
) -> list[RankLine]:
    names = sorted(group)
    shared = sorted(set.intersection(*(set(group[name]) for name in names)))
    if not shared:
        raise BenchmarkError(
            f"No split of a dataset that all of {', '.join(names)} have, so no ranks; name fewer with "
            "--models, or finish their runs."
        )
    table = np.array([[np.mean(group[name][place]) for name in names] for place in shared])
    ranks = rankdata(table, axis=1)
    n = len(shared)
    errors = ranks.std(axis=0, ddof=1) / math.sqrt(n) if n > 1 else np.full(len(names), math.nan)
    medians = np.median(table - table[:, [names.index(baseline)]], axis=0)
    order = np.argsort(-ranks.mean(axis=0), kind="stable")
    return [
        RankLine(
            *(names[i], steps, n),
            *(float(ranks[:, i].mean()), float(errors[i]), float(medians[i])),
        )
        for i in order
    ]


def format_ranks(lines: Sequence[RankLine], baseline: str, style: str = "rich") -> str:
    """The lines as text; styles as of `format_table`."""
    names = [field.name for field in fields(RankLine)]
    if style == "csv":
        output = io.StringIO()
        csv.writer(output, lineterminator="\n").writerows([names, *map(astuple, lines)])
        return output.getvalue()
    header = ["model", "steps", "splits", "average rank", f"median difference to {baseline}"]
    cells = [
        [
            *(line.model, str(line.num_steps), str(line.num_splits)),
            f"{line.rank:.2f}"
            + ("" if math.isnan(line.standard_error) else f" ± {line.standard_error:.2f}"),
            f"{line.median_difference:+.3g}",
        ]
        for line in lines
    ]
    return format_cells(header, cells, NOTE.format(baseline=baseline), style)
