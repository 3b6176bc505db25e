"""Paired comparison of models: differences on the same splits, as in Table 1 of [ICML21]."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import BenchmarkError, UnknownNameError
from ..store import ResultRow
from ..tasks import directions
from .competitors import competitors
from .paper import PaperResult, published, published_difference
from .tables import format_cells, frame, num_steps, of_splits, standard_error

if TYPE_CHECKING:
    import pandas as pd

NOTE = (
    "Mean over the splits that both models have; in brackets the mean difference to the first line's "
    "model ± {errors} of the paired differences, * where it is not 0 at the 5 % level of a paired "
    "t test. {better} is better."
)


@dataclass(frozen=True)
class PairedLine:
    """A model against the baseline of its dataset and depth.

    `label` is the model with what tells it from others of its name. `difference` and `error`, which is
    `num_errors` standard errors, are of the paired differences over `num_splits` splits: 0 for the baseline
    itself, a NaN error for one split; `is_clear` says that the difference is not 0 at the 5 % level of a
    paired t test. `is_baseline` says whether the line is the baseline's own. `published` is the paper's
    figure of the model, and `published_difference` of the model minus the baseline.
    """

    dataset: str
    depth: int
    model: str
    label: str
    num_steps: int
    num_splits: int
    mean: float
    difference: float
    error: float
    num_errors: int
    is_clear: bool
    is_baseline: bool
    published: PaperResult | None
    published_difference: PaperResult | None


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
    :param paper: whose figures to look up; errors are as many standard errors as it prints, two without one.
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
    lines = []
    for _, group in table.groupby(["dataset"] if across_depths else ["dataset", "depth"]):
        if baseline is not None and baseline not in set(group["model"]):
            continue
        scores = {
            label: (part, of_splits(part, metric)) for label, part in competitors(group).items()
        }
        first = _first(scores, metric, baseline)
        base, theirs = scores[first][0].iloc[0], scores[first][1]
        for label in sorted(scores, key=lambda label: (label != first, label)):
            part, ours = scores[label]
            head = part.iloc[0]
            dataset, depth, model, task = head[["dataset", "depth", "model", "task"]]
            n, mean, difference, error, is_clear = _compare(
                ours, theirs, (label, first, dataset, metric)
            )
            printed = None
            if base["depth"] == depth:
                printed = published_difference(
                    paper, dataset, depth, model, base["model"], metric, task=task
                )
            lines.append(
                PairedLine(
                    *(dataset, int(depth), model, label),
                    num_steps(head["protocol"]),
                    *(n, mean, difference, error),
                    num_errors=1,
                    is_clear=is_clear,
                    is_baseline=label == first,
                    published=published(paper, dataset, depth, model, metric, task=task),
                    published_difference=printed,
                )
            )
    num = _num_errors(lines)
    return [replace(line, error=num * line.error, num_errors=num) for line in lines]


def format_paired(lines: Sequence[PairedLine], metric: str, style: str = "rich") -> str:
    """The lines as text; styles as of `format_table`."""
    import pandas as pd

    if style == "csv":
        table = pd.DataFrame([vars(line) for line in lines])
        for name in ("published", "published_difference"):
            figures = [getattr(line, name) for line in lines]
            table[name] = [_part(figure, "value") for figure in figures]
            table[f"{name}_error"] = [_part(figure, "error") for figure in figures]
        return table.to_csv(index=False, lineterminator="\n")
    header = ["dataset", "depth", "model", "steps", "splits", "mean", "difference", "published"]
    has_differences = any(line.published_difference for line in lines)
    if has_differences:
        header.append("published difference")
    cells = [
        [
            *(line.dataset, str(line.depth or "-"), line.label),
            *(str(line.num_steps), str(line.num_splits)),
            *(f"{line.mean:.4g}", _difference(line), _published(line.published)),
            *([_published(line.published_difference, "+")] if has_differences else []),
        ]
        for line in lines
    ]
    better = "Higher" if directions()[metric] else "Lower"
    errors = "one standard error" if lines and lines[0].num_errors == 1 else "two standard errors"
    note = NOTE.format(errors=errors, better=f"{better} {metric}")
    return format_cells(header, cells, note, style)


def _num_errors(lines: Sequence[PairedLine]) -> int:
    """How many standard errors the paper prints with the figures of the lines: 1, or 2, our default."""
    figures = [f for line in lines for f in (line.published, line.published_difference) if f]
    of_one = [figure.error_kind.startswith("standard error") for figure in figures]
    return 1 if figures and all(of_one) else 2


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
    """Number of splits, mean, mean difference, its standard error, and whether it is clear."""
    from scipy import stats

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
    return n, float(ours[shared].mean()), mean, error, is_clear


def _difference(line: PairedLine) -> str:
    if line.is_baseline:
        return ""
    if math.isnan(line.error):
        return f"({line.difference:+.3g})"
    return f"({line.difference:+.3g} ± {line.error:.2g}{'*' if line.is_clear else ''})"


def _part(result: PaperResult | None, name: str) -> float | None:
    return None if result is None else getattr(result, name)


def _published(result: PaperResult | None, sign: str = "") -> str:
    if result is None:
        return ""
    text = f"{result.value:{sign}.{result.decimals}f}"
    return text if result.error is None else f"{text} ± {result.error:.{result.decimals}f}"
