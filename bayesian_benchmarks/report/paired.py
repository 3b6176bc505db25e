"""Paired comparison of models: differences on the same splits, as in Table 1 of [ICML21]."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd
from scipy import stats

from ..errors import BenchmarkError, UnknownNameError
from ..store import ResultRow
from ..tasks import directions
from .competitors import competitors
from .paper import PaperResult, paper_results
from .tables import format_cells, frame, num_steps, of_splits, standard_error

NOTE = (
    "Mean over the splits that both models have; in brackets the mean difference to the first line's "
    "model ± two standard errors of the paired differences, * where it is not 0 at the 5 % level of a paired "
    "t test. {better} is better."
)


@dataclass(frozen=True)
class PairedLine:
    """A model against the baseline of its dataset and depth.

    `label` is the model with what tells it from others of its name. `difference` and `two_errors` are of
    the paired differences over `num_splits` splits: 0 for the baseline itself, NaN errors for one split;
    `is_clear` says that the difference is not 0 at the 5 % level of a paired t test. `is_baseline` says
    whether the line is the baseline's own, `published` is the paper's figure of the model.
    """

    dataset: str
    depth: int
    model: str
    label: str
    num_steps: int
    num_splits: int
    mean: float
    difference: float
    two_errors: float
    is_clear: bool
    is_baseline: bool
    published: PaperResult | None


def paired_differences(
    rows: Iterable[ResultRow],
    metric: str,
    *,
    baseline: str | None = None,
    paper: str | None = None,
    depth_counts_output_layer: bool = True,
    across_depths: bool = False,
) -> list[PairedLine]:
    """Each model's paired differences to the best model, or to `baseline`, the best first.

    Rows are compared when dataset and depth agree, split by split; several seeds of a split count once, by
    their mean. A model with several settings is several competitors.

    :param baseline: a model's name.
    :param across_depths: whether models of different depths are compared too.
    :raises UnknownNameError: a metric without a direction, or a baseline that no row is of.
    :raises BenchmarkError: two models without a split in common.
    """
    if metric not in directions():
        raise UnknownNameError("metric to compare models by", metric, directions())
    table = frame(rows, depth_counts_output_layer)
    table = table[table[metric].notna()] if metric in table else table[:0]
    if baseline is not None and baseline not in set(table["model"]):
        raise UnknownNameError("model among the finished runs", baseline, set(table["model"]))
    published = {
        (r.dataset, r.depth, r.model): r for r in paper_results(paper) if r.metric == metric
    }
    lines = []
    for _, group in table.groupby(["dataset"] if across_depths else ["dataset", "depth"]):
        if baseline is not None and baseline not in set(group["model"]):
            continue
        scores = {
            label: (part, of_splits(part, metric)) for label, part in competitors(group).items()
        }
        first = _first(scores, metric, baseline)
        for label in sorted(scores, key=lambda label: (label != first, label)):
            part, ours = scores[label]
            head = part.iloc[0]
            theirs = scores[first][1]
            n, mean, difference, two_errors, is_clear = _compare(
                ours, theirs, (label, first, head["dataset"], metric)
            )
            figures = published.get((head["dataset"], head["depth"] or None, head["model"]))
            lines.append(
                PairedLine(
                    *(head["dataset"], int(head["depth"]), head["model"], label),
                    num_steps(head["protocol"]),
                    *(n, mean, difference, two_errors),
                    is_clear=is_clear,
                    is_baseline=label == first,
                    published=figures if paper else None,
                )
            )
    return lines


def format_paired(lines: Sequence[PairedLine], metric: str, style: str = "rich") -> str:
    """The lines as text; styles as of `format_table`."""
    if style == "csv":
        table = pd.DataFrame([vars(line) for line in lines])
        table["published_error"] = [_part(line.published, "error") for line in lines]
        table["published"] = [_part(line.published, "value") for line in lines]
        return table.to_csv(index=False, lineterminator="\n")
    header = ["dataset", "depth", "model", "steps", "splits", "mean", "difference", "published"]
    cells = [
        [
            *(line.dataset, str(line.depth or "-"), line.label),
            *(str(line.num_steps), str(line.num_splits)),
            *(f"{line.mean:.4g}", _difference(line), _published(line.published)),
        ]
        for line in lines
    ]
    better = "Higher" if directions()[metric] else "Lower"
    return format_cells(header, cells, NOTE.format(better=f"{better} {metric}"), style)


def _first(
    scores: dict[str, tuple[pd.DataFrame, pd.Series[float]]], metric: str, baseline: str | None
) -> str:
    """The baseline, or the best competitor on the splits that all have."""
    sign = 1.0 if directions()[metric] else -1.0
    shared = set.intersection(*(set(values.index) for _, values in scores.values()))
    means = {
        label: sign * (values[sorted(shared)] if shared else values).mean()
        for label, (part, values) in scores.items()
        if baseline in (None, part["model"].iloc[0])
    }
    return max(means, key=lambda label: means[label])


def _compare(
    ours: pd.Series[float], theirs: pd.Series[float], of: tuple[str, str, str, str]
) -> tuple[int, float, float, float, bool]:
    """Number of splits, mean, mean difference, two standard errors, and whether it is clear."""
    label, first, dataset, metric = of
    shared = sorted(set(ours.index) & set(theirs.index))
    if not shared:
        raise BenchmarkError(
            f"{dataset}: {label} and {first} have no split in common, so no paired {metric}."
        )
    differences = ours[shared] - theirs[shared]
    n, mean, error = len(shared), float(differences.mean()), standard_error(differences)
    if label == first:
        return n, float(ours[shared].mean()), 0.0, 0.0, False
    is_clear = n > 1 and abs(mean) > float(stats.t.ppf(0.975, n - 1)) * error
    return n, float(ours[shared].mean()), mean, 2.0 * error, is_clear


def _difference(line: PairedLine) -> str:
    if line.is_baseline:
        return ""
    if math.isnan(line.two_errors):
        return f"({line.difference:+.3g})"
    return f"({line.difference:+.3g} ± {line.two_errors:.2g}{'*' if line.is_clear else ''})"


def _part(result: PaperResult | None, name: str) -> float | None:
    return None if result is None else getattr(result, name)


def _published(result: PaperResult | None) -> str:
    if result is None:
        return ""
    text = f"{result.value:.{result.decimals}f}"
    return text if result.error is None else f"{text} ± {result.error:.{result.decimals}f}"
