"""Models over many datasets at once: average ranks and median differences, as in [ICML19] Table 1."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..errors import BenchmarkError, UnknownNameError
from ..store import ResultRow
from ..tasks import directions
from .competitors import competitors
from .tables import format_cells, frame, num_steps

NOTE = (
    "Over the splits of datasets that all models have: average rank among the models, the best the highest, "
    "± its standard error, and the median difference to {baseline}. {better} is better."
)


@dataclass(frozen=True)
class RankLine:
    """A model over `num_splits` splits of `num_datasets` datasets in all.

    `rank` is between 1 and the number of models, which is the best; `median_difference` is the metric's
    to the baseline, in its own sign.
    """

    model: str
    num_steps: int
    num_splits: int
    num_datasets: int
    rank: float
    standard_error: float
    median_difference: float


def average_ranks(
    rows: Iterable[ResultRow], metric: str, *, baseline: str, across_depths: bool = False
) -> list[RankLine]:
    """A line a model, the best first; a model with several settings has several.

    :param baseline: a model's name; of several settings the first is taken.
    :param across_depths: whether models of different depths are ranked among each other, in place of each
        depth of a dataset on its own.
    :raises UnknownNameError: a metric without a direction, or a baseline that no row is of.
    :raises BenchmarkError: no split of a dataset that all models have.
    """
    import pandas as pd
    from scipy.stats import rankdata

    if metric not in directions():
        raise UnknownNameError("metric to rank models by", metric, directions())
    sign = 1.0 if directions()[metric] else -1.0
    table = frame(rows)
    table = table[table[metric].notna()] if metric in table else table[:0]
    if baseline not in set(table["model"]):
        raise UnknownNameError("model among the finished runs", baseline, set(table["model"]))
    places = ["dataset", "split"] if across_depths else ["dataset", "depth", "split"]
    ranked = table if across_depths else table.assign(depth=0, place=table["depth"])
    if not across_depths:
        places[1] = "place"
    parts = competitors(ranked)
    scores = pd.DataFrame(
        {label: part.groupby(places)[metric].mean() for label, part in parts.items()}
    ).dropna()
    if scores.empty:
        raise BenchmarkError(
            f"No split of a dataset that all of {', '.join(parts)} have, so no ranks; name fewer with "
            "--models, or finish their runs."
        )
    ranks = pd.DataFrame(rankdata(sign * scores, axis=1), columns=scores.columns)
    first = next(label for label, part in parts.items() if part["model"].iloc[0] == baseline)
    medians = scores.sub(scores[first], axis=0).median()
    num_datasets = scores.index.get_level_values("dataset").nunique()
    return [
        RankLine(
            *(label, num_steps(parts[label]["protocol"].iloc[0]), len(scores), num_datasets),
            *(float(ranks[label].mean()), float(ranks[label].sem()), float(medians[label])),
        )
        for label in ranks.mean().sort_values(ascending=False, kind="stable").index
    ]


def format_ranks(lines: Sequence[RankLine], metric: str, baseline: str, style: str = "rich") -> str:
    """The lines as text; styles as of `format_table`."""
    import pandas as pd

    if style == "csv":
        return pd.DataFrame([vars(line) for line in lines]).to_csv(index=False, lineterminator="\n")
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
    better = "Higher" if directions()[metric] else "Lower"
    note = NOTE.format(baseline=baseline, better=f"{better} {metric}")
    return format_cells(header, cells, note, style)
