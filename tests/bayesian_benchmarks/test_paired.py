"""Paired comparison of models against hand computation."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from bayesian_benchmarks.errors import BenchmarkError, UnknownNameError
from bayesian_benchmarks.report.paired import format_paired, paired_differences
from bayesian_benchmarks.store import ResultRow


def row(
    model: str,
    split: int,
    value: float,
    *,
    seed: int = 0,
    dataset: str = "yacht",
    depth: int = 3,
    steps: int = 8000,
) -> ResultRow:
    settings = json.dumps({"depth": depth, "num_steps": steps})
    return ResultRow(
        task="regression",
        dataset=dataset,
        split=split,
        model=model,
        settings_hash="0",
        seed=seed,
        depth=depth,
        settings=settings,
        metrics={"test_log_likelihood": value, "test_rmse": -value, "coverage_90": 0.9},
    )


SCORES = {
    "diwp:relu": [-0.6, -0.5, -0.9],
    "nngp:relu": [-0.7, -0.8, -0.95],
    "dgp:relu": [-2, -1, -3],
}
ROWS = [row(model, split, v) for model, values in SCORES.items() for split, v in enumerate(values)]


def test_differences_to_the_best() -> None:
    best, *others = paired_differences(ROWS, "test_log_likelihood")
    assert (best.model, best.is_baseline, best.num_splits) == ("diwp:relu", True, 3)
    assert best.mean == pytest.approx(np.mean(SCORES["diwp:relu"]))
    assert [line.model for line in others] == ["dgp:relu", "nngp:relu"]
    for line in others:
        differences = np.subtract(SCORES[line.model], SCORES["diwp:relu"])
        assert line.difference == pytest.approx(differences.mean())
        assert line.error == pytest.approx(2 * differences.std(ddof=1) / math.sqrt(3))
        assert not line.is_baseline


def test_a_tied_model_is_not_the_baseline() -> None:
    tied = [*ROWS, *(row("tied", split, v) for split, v in enumerate(SCORES["diwp:relu"]))]
    lines = paired_differences(tied, "test_log_likelihood", baseline="diwp:relu")
    assert [line.model for line in lines if line.is_baseline] == ["diwp:relu"]
    assert lines[3].model == "tied"
    assert (lines[3].difference, lines[3].error) == (0.0, 0.0)
    assert "| tied | 8000 | 3 | -0.6667 | (+0 ± 0) |" in format_paired(
        lines, "test_log_likelihood", "markdown"
    )
    table = csv.DictReader(io.StringIO(format_paired(lines, "test_log_likelihood", "csv")))
    assert [line["is_baseline"] for line in table] == ["True", "False", "False", "False"]


def test_the_lower_error_is_better() -> None:
    assert paired_differences(ROWS, "test_rmse")[0].model == "diwp:relu"


def test_any_baseline() -> None:
    lines = paired_differences(ROWS, "test_log_likelihood", baseline="nngp:relu")
    assert [line.model for line in lines] == ["nngp:relu", "dgp:relu", "diwp:relu"]
    assert lines[2].difference > 0


def test_only_shared_splits_count_and_seeds_are_averaged() -> None:
    rows = [
        *(row("a", 0, -1.0, seed=seed) for seed in range(3)),
        row("a", 0, -5.0, seed=3),
        row("a", 1, -1.0),
        row("a", 7, 100.0),
        row("b", 0, -1.0),
        row("b", 1, -2.0),
    ]
    first, second = paired_differences(rows, "test_log_likelihood", baseline="b")
    assert (second.model, second.num_splits) == ("a", 2)
    assert second.difference == pytest.approx(((-2.0 + 1.0) + (-1.0 + 2.0)) / 2)
    assert first.num_splits == 2
    # On the splits of both, b's mean of -1.5 is no better than a's of -1.5; split 7 does not count.
    assert paired_differences(rows[:-1], "test_log_likelihood")[0].model == "b"


def test_one_split_has_no_error_and_no_split_in_common_is_refused() -> None:
    lines = paired_differences([row("a", 0, 1.0), row("b", 0, 0.5)], "test_log_likelihood")
    assert math.isnan(lines[1].error)
    with pytest.raises(BenchmarkError, match="yacht: b and a have no split in common"):
        paired_differences([row("a", 0, 1.0), row("b", 1, 0.5)], "test_log_likelihood")


def test_a_star_is_a_paired_t_tests() -> None:
    """Two standard errors are too few for three splits: the t quantile is 4.3."""
    from scipy.stats import ttest_rel

    clear = [row("clear", split, -5.0 - 0.1 * split) for split in range(3)]
    lines = {
        line.model: line for line in paired_differences([*ROWS, *clear], "test_log_likelihood")
    }
    for model, values in {**SCORES, "clear": [-5.0, -5.1, -5.2]}.items():
        if model != "diwp:relu":
            p = ttest_rel(values, SCORES["diwp:relu"]).pvalue
            assert lines[model].is_clear == (p < 0.05), model
    assert abs(lines["dgp:relu"].difference) > lines["dgp:relu"].error
    assert not lines["dgp:relu"].is_clear
    assert lines["clear"].is_clear
    text = format_paired([lines["diwp:relu"], lines["clear"]], "test_log_likelihood", "markdown")
    assert text.count("*") == 1 + text.splitlines()[-1].count("*")
    assert text.splitlines()[-1].endswith("Higher test_log_likelihood is better.")
    one = paired_differences([row("a", 0, 1.0), row("b", 0, 0.5)], "test_rmse")
    text = format_paired(one, "test_rmse", "markdown")
    assert "(+0.5)" in text
    assert "nan" not in text
    assert text.splitlines()[-1].endswith("Lower test_rmse is better.")


def test_models_of_other_protocols_and_depths_are_told_apart() -> None:
    rows = [
        *(row("dwp-ab-gw", split, -0.5, depth=2, steps=20) for split in range(2)),
        *(row("dwp-ab-gw", split, -0.4, depth=3, steps=20) for split in range(2)),
        *(row("gwi-net", split, -0.3, depth=1, steps=10) for split in range(2)),
        *(row("gwi-net", split, -0.6, depth=1, steps=5) for split in range(2)),
    ]
    lines = paired_differences(rows, "test_log_likelihood", across_depths=True)
    assert [(line.label, line.num_splits) for line in lines] == [
        ("gwi-net, num_steps 10", 2),
        ("dwp-ab-gw, depth 2", 2),
        ("dwp-ab-gw, depth 3", 2),
        ("gwi-net, num_steps 5", 2),
    ]
    assert lines[1].difference == pytest.approx(-0.2)
    alone = paired_differences(rows, "test_log_likelihood")
    assert [line.label for line in alone if line.depth > 1] == ["dwp-ab-gw", "dwp-ab-gw"]


def test_unknown_names() -> None:
    with pytest.raises(UnknownNameError, match="'coverage_90'"):
        paired_differences(ROWS, "coverage_90")
    with pytest.raises(UnknownNameError, match=r"'dwp-gw'.*Known: dgp:relu"):
        paired_differences(ROWS, "test_log_likelihood", baseline="dwp-gw")


def test_formats_with_the_papers_figures() -> None:
    lines = paired_differences(
        ROWS, "test_log_likelihood", paper="aitchison2021", depth_counts_output_layer=False
    )
    text = format_paired(lines, "test_log_likelihood", "markdown")
    header, _, first, second, third = text.splitlines()[:5]
    assert header.endswith("| mean | difference | published |")
    assert first == "| yacht | 2 | diwp:relu | 8000 | 3 | -0.6667 |  | -0.64 |"
    assert second == "| yacht | 2 | dgp:relu | 8000 | 3 | -2 | (-1.33 ± 0.93) | -2.45 ± 0.49 |"
    assert third == "| yacht | 2 | nngp:relu | 8000 | 3 | -0.8167 | (-0.15 ± 0.15) | -0.77 ± 0.07 |"
    assert "diwp:relu" in format_paired(lines, "test_log_likelihood")
    table = list(csv.DictReader(io.StringIO(format_paired(lines, "test_log_likelihood", "csv"))))
    assert float(table[1]["difference"]) == lines[1].difference
    assert (table[1]["published"], table[1]["published_error"]) == ("-2.45", "0.49")
    with pytest.raises(UnknownNameError, match="table format"):
        format_paired(lines, "test_log_likelihood", "latex")


UAI23_ELBOS = {
    "dwp-gw": [1.9, 2.0, 2.1],
    "dwp-a-gw": [2.0, 2.1, 2.3],
    "dwp-ab-gw": [2.1, 2.1, 2.2],
}


def uai23_rows(dataset: str = "yacht", depth: int = 2) -> list[ResultRow]:
    rows = [
        row(model, split, value, dataset=dataset, depth=depth)
        for model, values in UAI23_ELBOS.items()
        for split, value in enumerate(values)
    ]
    return [replace(r, metrics={"elbo_per_point": r.metrics["test_log_likelihood"]}) for r in rows]


def test_printed_differences_stand_beside_ours() -> None:
    """[UAI23] Table 4 prints one standard error; yacht at depth 2 is 0.05 for either above GW."""
    lines = paired_differences(uai23_rows(), "elbo_per_point", baseline="dwp-gw", paper="ober2023")
    text = format_paired(lines, "elbo_per_point", "markdown")
    header, _, gw, a, ab, _, note = text.splitlines()
    assert header.endswith("| mean | difference | published | published difference |")
    assert gw == "| yacht | 2 | dwp-gw | 8000 | 3 | 2 |  | 2.02 ± 0.01 |  |"
    # 0.1, 0.1, 0.2 and 0.2, 0.1, 0.1: a standard error of a thirtieth.
    ours = "(+0.133 ± 0.033)"
    assert a == f"| yacht | 2 | dwp-a-gw | 8000 | 3 | 2.133 | {ours} | 2.07 ± 0.01 | +0.05 ± 0.01 |"
    assert (
        ab == f"| yacht | 2 | dwp-ab-gw | 8000 | 3 | 2.133 | {ours} | 2.07 ± 0.01 | +0.05 ± 0.01 |"
    )
    assert "± one standard error of the paired differences" in note
    table = list(csv.DictReader(io.StringIO(format_paired(lines, "elbo_per_point", "csv"))))
    assert [line["published_difference"] for line in table] == ["", "0.05", "0.05"]
    assert [line["published_difference_error"] for line in table] == ["", "0.01", "0.01"]
    assert float(table[1]["error"]) == pytest.approx(1 / 30)
    assert {line["num_errors"] for line in table} == {"1"}


def test_a_difference_printed_the_other_way_round_changes_its_sign() -> None:
    """A-GW minus AB-GW is printed as -0.13 for naval at depth 3, and as 0.00 for yacht at depth 2."""
    lines = paired_differences(
        [*uai23_rows("naval", 3), *uai23_rows()],
        "elbo_per_point",
        baseline="dwp-a-gw",
        paper="ober2023",
    )
    text = format_paired(lines, "elbo_per_point", "markdown")
    found = {
        (line.dataset, line.model): row.split(" | ")[-1]
        for line, row in zip(lines, text.splitlines()[2:], strict=False)
    }
    assert found["naval", "dwp-ab-gw"] == "+0.13 ± 0.07 |"
    assert found["yacht", "dwp-ab-gw"] == "+0.00 ± 0.01 |"
    assert found["yacht", "dwp-a-gw"] == " |"
    assert lines[1].published_difference is not None
    assert lines[1].published_difference.model == "dwp-ab-gw-minus-dwp-a-gw"


def test_a_printed_difference_is_of_one_depth() -> None:
    lines = paired_differences(
        [*uai23_rows(depth=2), *uai23_rows(depth=3)],
        "elbo_per_point",
        baseline="dwp-gw",
        paper="ober2023",
        across_depths=True,
    )
    assert {(line.depth, line.model) for line in lines if line.published_difference} == {
        (lines[0].depth, "dwp-a-gw"),
        (lines[0].depth, "dwp-ab-gw"),
    }


@pytest.mark.parametrize(
    ("paper", "num_errors", "words"),
    [
        (None, 2, "two standard errors"),
        ("aitchison2021", 2, "two standard errors"),
        ("wild2022", 2, "two standard errors"),  # prints standard deviations
        ("ober2023", 1, "one standard error"),
    ],
)
def test_as_many_standard_errors_as_the_paper_prints(
    paper: str | None, num_errors: int, words: str
) -> None:
    names = {"aitchison2021": ("diwp:relu", "dgp:relu"), "wild2022": ("gwi-net", "gwi-svgp")}
    first, second = names.get(str(paper), ("dgp", "dwp-gw"))
    rows = [
        row(model, split, value, depth=2)
        for model, values in ((first, [0.0, 0.0]), (second, [0.5, 1.5]))
        for split, value in enumerate(values)
    ]
    lines = paired_differences(rows, "test_log_likelihood", baseline=first, paper=paper)
    assert lines[1].error == pytest.approx(num_errors * 0.5)
    note = format_paired(lines, "test_log_likelihood", "markdown").splitlines()[-1]
    assert f"± {words} of the paired differences" in note


def test_figures_without_a_depth_and_under_other_names_are_found() -> None:
    """As in the tables of means: [NeurIPS22] prints no depths, and its image models as gwi-net."""
    rows = [
        row("gwi-net", 0, -0.3, depth=1),
        row("gwi-cnn", 0, -0.3, dataset="fashion_mnist_vs_mnist", depth=1),
    ]
    image, yacht = paired_differences(rows, "test_log_likelihood", paper="wild2022")
    assert yacht.published is not None
    assert image.published is not None
    assert (yacht.published.value, image.published.value) == (-0.29, -0.25)
