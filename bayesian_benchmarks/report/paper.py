"""The figures that the papers print, shipped with the package."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class PaperResult:
    """One printed figure.

    `depth` is what the paper calls depth, None where it has none; `error` is None where none is
    printed, and `error_kind` says what it is; `decimals` is the number of printed decimals.

    >>> from bayesian_benchmarks.report import PaperResult
    >>> PaperResult(
    ...     paper="ober2023", dataset="boston", depth=2, model="dgp", metric="elbo_per_point",
    ...     value=-0.38, error=0.01, error_kind="standard error over 20 splits", decimals=2,
    ... ).value
    -0.38
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
    """The printed figures of one paper, such as "ober2023", or of all with None.

    >>> from bayesian_benchmarks.report import paper_results
    >>> printed, *_ = paper_results("ober2023")
    >>> printed.dataset, printed.depth, printed.model, printed.value
    ('boston', 2, 'dgp', -0.38)
    """
    text = (resources.files(__package__) / "paper_results.csv").read_text(encoding="utf-8")
    rows = [_parse(row) for row in csv.DictReader(text.splitlines())]
    return tuple(row for row in rows if paper in (None, row.paper))


def published(
    paper: str | None, dataset: str, depth: int, model: str, metric: str, *, task: str
) -> PaperResult | None:
    """The figure that a paper prints where we have a row; None without a paper, or without one.

    One printed without a depth is beside any.

    :param dataset: as we call it; the paper may call it otherwise.
    :param depth: as the paper counts, 0 where the model's name says the layers.
    :param task: whose dataset it is.
    """
    if paper is None or (task, dataset) in NOT_PRINTED:
        return None
    dataset, model = PRINTED_AS.get((dataset, model), (dataset, model))
    known, name = _by_name(paper), SAME_DATA.get(dataset, dataset)
    for printed in (model, *SAME_MODEL.get(model, ())):
        for of_depth in (depth or None, None):
            if found := known.get((name, of_depth, printed, metric)):
                return found
    return None


def published_difference(
    paper: str | None,
    dataset: str,
    depth: int,
    model: str,
    baseline: str,
    metric: str,
    *,
    task: str,
) -> PaperResult | None:
    """The difference of two models' `metric` that a paper prints, `model` minus `baseline`.

    Of one printed the other way round the sign is changed; the parameters are those of `published`.
    """
    for first, second, sign in ((model, baseline, 1.0), (baseline, model, -1.0)):
        of = f"{first}-minus-{second}", f"{metric}_difference"
        if found := published(paper, dataset, depth, *of, task=task):
            name = f"{model}-minus-{baseline}"
            # 0.0 is added so that no zero is negative.
            return replace(found, model=name, value=sign * found.value + 0.0)
    return None


OUR_NAMES = {
    "test_nll": ("test_log_likelihood", -1.0),
    "test_accuracy": ("accuracy", 1.0),
    "ood_auc": ("auroc_entropy", 1.0),
}
"""Metrics that the papers name otherwise: our name, and the factor to ours."""

PRINTED_AS = {
    (ours, model): (printed, model.replace("gwi-cnn", "gwi-net"))
    for ours, printed in (
        ("fashion_mnist_vs_mnist", "fashion_mnist"),
        ("cifar10_vs_svhn", "cifar10"),
    )
    for model in ("gwi-cnn", "cnn-mean-field", "cnn-map", "cnn-laplace")
}
"""Whose figures [NeurIPS22] prints under other names: its network for images is convolutional."""

SAME_MODEL = {
    "mlp-mean-field": ("bbb",),
    "mlp-dropout": ("vdo",),
    "cnn-mean-field": ("mfvi",),
    "cnn-map": ("map",),
    "cnn-laplace": ("kfac-laplace",),
}
"""Names by which a paper prints a model of ours: Bayes by backprop, variational dropout and others."""

SAME_DATA = {
    "winered": "wine",
    "housing": "boston",
    **{f"{name}-gal": name for name in ("concrete", "energy", "protein", "wine", "yacht")},
}
"""Datasets that we or a paper call otherwise: the name that all of these are looked up by.

They are the same rows; the splits may be others, Gal & Ghahramani's or the `uci_datasets` collection's.
"""

NOT_PRINTED = {("classification", "wine")}
"""Tasks and datasets that only share their name with a printed one: scikit-learn's wine has classes."""


@cache
def _by_name(paper: str) -> dict[tuple[str, int | None, str, str], PaperResult]:
    """A paper's figures by dataset, depth, model and metric."""
    return {
        (SAME_DATA.get(r.dataset, r.dataset), r.depth, r.model, r.metric): r
        for r in paper_results(paper)
    }


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
