"""Paired comparison of models: differences on the same splits, as in Table 1 of [ICML21]."""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from ..errors import BenchmarkError, UnknownNameError
from .paper import PaperResult, paper_results
from .store import ResultRow
from .tables import HIGHER_IS_BETTER, format_cells, num_steps, printed_depth

NOTE = (
    "Mean over the splits that both models have; in brackets the mean difference to the first line's "
    "model ± two standard errors of the paired differences, * where it is further from 0 than that."
)


@dataclass(frozen=True)
class PairedLine:
    """A model against the baseline of its dataset, depth and settings.

    `difference` and `two_errors` are of the paired differences over `num_splits` splits: 0 for the
    baseline itself, NaN errors for one split. `is_baseline` says whether the line is the baseline's
    own, `published` is the paper's figure of the model.
    """

    dataset: str
    depth: int
    model: str
    num_steps: int
    num_splits: int
    mean: float
    difference: float
    two_errors: float
    is_baseline: bool
    published: PaperResult | None


def paired_differences(
    rows: Iterable[ResultRow],
    metric: str,
    *,
    baseline: str | None = None,
    paper: str | None = None,
    depth_counts_output_layer: bool = True,
) -> list[PairedLine]:
    """Each model's paired differences to the best model, or to `baseline`, the best first.

    Rows are compared when dataset, depth and settings agree, split by split; several seeds of a split
    count once, by their mean.

    :raises UnknownNameError: a metric without a direction, or a baseline that no row is of.
    :raises BenchmarkError: two models without a split in common.
    """
    if metric not in HIGHER_IS_BETTER:
        raise UnknownNameError("metric to compare models by", metric, HIGHER_IS_BETTER)
    values = _values(rows, metric, depth_counts_output_layer)
    models = {model for group in values.values() for model in group}
    if baseline is not None and baseline not in models:
        raise UnknownNameError("model among the finished runs", baseline, models)
    published = {
        (r.dataset, r.depth, r.model): r for r in paper_results(paper) if r.metric == metric
    }
    lines = []
    for (dataset, depth, settings), group in sorted(values.items()):
        if baseline is None or baseline in group:
            first = baseline or _best(group, metric)
            for model, difference in _compare(group, first, (dataset, metric)):
                figures = published.get((dataset, depth or None, model)) if paper else None
                of = dataset, depth, model, num_steps(settings)
                lines.append(PairedLine(*of, *difference, model == first, figures))
    return lines


def format_paired(lines: Sequence[PairedLine], style: str = "rich") -> str:
    """The lines as text; styles as of `format_table`."""
    if style == "csv":
        return _csv(lines)
    header = ["dataset", "depth", "model", "steps", "splits", "mean", "difference", "published"]
    cells = [
        [
            *(
                line.dataset,
                str(line.depth or "-"),
                line.model,
                str(line.num_steps),
                str(line.num_splits),
            ),
            *(f"{line.mean:.4g}", _difference(line), _published(line.published)),
        ]
        for line in lines
    ]
    return format_cells(header, cells, NOTE, style)


def _csv(lines: Sequence[PairedLine]) -> str:
    output = io.StringIO()
    names = [field.name for field in fields(PairedLine)]
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow([*names, "published_error"])
    for line in lines:
        values = [getattr(line, name) for name in names[:-1]]
        published = line.published
        figures = ["", ""] if published is None else [published.value, published.error]
        writer.writerow([*values, *("" if value is None else value for value in figures)])
    return output.getvalue()


def _values(
    rows: Iterable[ResultRow], metric: str, depth_counts_output_layer: bool
) -> dict[tuple[str, int, str], dict[str, dict[int, float]]]:
    """The metric by (dataset, depth, settings), model and split."""
    seeds: dict[tuple[str, int, str], dict[str, dict[int, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for row in rows:
        if row.status == "ok" and metric in row.metrics:
            depth = printed_depth(row, depth_counts_output_layer)
            group = seeds[row.dataset, depth, row.settings]
            group[row.model][row.split].append(row.metrics[metric])
    return {
        key: {
            model: {split: float(np.mean(each)) for split, each in splits.items()}
            for model, splits in group.items()
        }
        for key, group in seeds.items()
    }


def _best(group: dict[str, dict[int, float]], metric: str) -> str:
    """The best model on the splits that all have."""
    shared = set.intersection(*(set(splits) for splits in group.values()))
    sign = 1.0 if HIGHER_IS_BETTER[metric] else -1.0
    splits = {model: shared or set(values) for model, values in group.items()}
    return max(group, key=lambda model: sign * np.mean([group[model][s] for s in splits[model]]))


def _compare(
    group: dict[str, dict[int, float]], first: str, of: tuple[str, str]
) -> list[tuple[str, tuple[int, float, float, float]]]:
    """Number of splits, mean, mean difference to `first` and two standard errors, by model."""
    lines = []
    for model in sorted(group, key=lambda name: (name != first, name)):
        shared = sorted(set(group[model]) & set(group[first]))
        if not shared:
            raise BenchmarkError(
                f"{of[0]}: {model} and {first} have no split in common, so no paired {of[1]}."
            )
        ours = np.array([group[model][split] for split in shared])
        differences = ours - [group[first][split] for split in shared]
        n = len(shared)
        error = 2.0 * np.std(differences, ddof=1) / math.sqrt(n) if n > 1 else math.nan
        error = 0.0 if model == first else float(error)
        lines.append((model, (n, float(ours.mean()), float(differences.mean()), error)))
    return lines


def _difference(line: PairedLine) -> str:
    if line.is_baseline:
        return ""
    clear = "*" if abs(line.difference) > line.two_errors else ""
    return f"({line.difference:+.3g} ± {line.two_errors:.2g}{clear})"


def _published(result: PaperResult | None) -> str:
    if result is None:
        return ""
    text = f"{result.value:.{result.decimals}f}"
    return text if result.error is None else f"{text} ± {result.error:.{result.decimals}f}"
