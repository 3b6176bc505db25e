"""The figures that the papers print, shipped with the package."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class PaperResult:
    """One printed figure.

    `depth` is what the paper calls depth, None where it has none; `error` is None where none is
    printed, and `error_kind` says what it is; `decimals` is the number of printed decimals.
    """

    paper: str
    dataset: str
    depth: int | None
    model: str
    metric: str
    value: float
    error: float | None
    error_kind: str
    decimals: int


@cache
def paper_results(paper: str | None = None) -> tuple[PaperResult, ...]:
    """The printed figures of one paper, such as "ober2023", or of all with None."""
    text = (resources.files(__package__) / "paper_results.csv").read_text(encoding="utf-8")
    rows = [_parse(row) for row in csv.DictReader(text.splitlines())]
    return tuple(row for row in rows if paper in (None, row.paper))


OUR_NAMES = {
    "test_nll": ("test_log_likelihood", -1.0),
    "test_accuracy": ("accuracy", 1.0),
    "ood_auc": ("auroc_entropy", 1.0),
}
"""Metrics that the papers name otherwise: our name, and the factor to ours."""

PRINTED_AS = {
    ("fashion_mnist_vs_mnist", "gwi-cnn"): ("fashion_mnist", "gwi-net"),
    ("cifar10_vs_svhn", "gwi-cnn"): ("cifar10", "gwi-net"),
}
"""Whose figures [NeurIPS22] prints under other names: its network for images is convolutional."""


def _parse(row: dict[str, str]) -> PaperResult:
    metric, factor = OUR_NAMES.get(row["metric"], (row["metric"], 1.0))
    return PaperResult(
        paper=row["paper"],
        dataset=row["dataset"],
        depth=int(row["depth"]) if row["depth"] else None,
        model=row["model"],
        metric=metric,
        value=factor * float(row["value"]),
        error=float(row["error"]) if row["error"] else None,
        error_kind=row["error_kind"],
        decimals=len(row["value"].partition(".")[2]),
    )
