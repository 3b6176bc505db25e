"""Tables against hand computation, and the published figures."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesian_benchmarks.errors import UnknownNameError
from bayesian_benchmarks.report import (
    PaperResult,
    Summary,
    agrees,
    format_table,
    paper,
    paper_results,
    summarise,
)
from bayesian_benchmarks.report.paper import SAME_DATA
from bayesian_benchmarks.settings import FAST
from bayesian_benchmarks.store import ResultRow

REFERENCE = Path(__file__).resolve().parents[3] / "shared/reference/paper_results.csv"


def row(split: int, elbo: float, **changes: Any) -> ResultRow:
    fields: dict[str, Any] = {
        "task": "regression",
        "dataset": "yacht",
        "split": split,
        "model": "dwp-ab-gw",
        "seed": 0,
        "depth": 2,
        "metrics": {"elbo_per_point": elbo, "test_rmse": 1.0, "coverage_90": 0.9},
    } | changes
    content = {"depth": fields["depth"], "num_steps": fields.pop("num_steps", 20_000)}
    settings = json.dumps(content | fields.pop("others", {}))
    return ResultRow(settings=settings, settings_hash=str(hash(settings)), **fields)


def published(**changes: Any) -> PaperResult:
    fields: dict[str, Any] = {
        "paper": "p",
        "dataset": "yacht",
        "depth": 2,
        "model": "dgp",
        "metric": "elbo_per_point",
        "value": -0.33,
        "error": 0.01,
        "error_kind": "",
        "decimals": 2,
    }
    return PaperResult(**(fields | changes))


ROWS = [row(0, 2.0), row(1, 2.1), row(2, 2.5)]


def test_mean_and_standard_error_by_hand() -> None:
    (line,) = summarise(ROWS, metrics=["elbo_per_point"])
    ours, theirs = line.metrics["elbo_per_point"]
    # Deviations from 2.2 are -0.2, -0.1, 0.3: variance 0.14 / 2, over three splits.
    assert ours.mean == pytest.approx(2.2)
    assert ours.standard_error == pytest.approx(math.sqrt(0.07 / 3))
    assert (line.num_splits, line.num_steps, theirs) == (3, 20_000, None)
    assert str(ours) == "2.20 ± 0.15"


def test_one_split_has_no_error() -> None:
    (line,) = summarise(ROWS[:1], metrics=["elbo_per_point"])
    ours, _ = line.metrics["elbo_per_point"]
    assert math.isnan(ours.standard_error)
    assert str(ours) == "2"


def test_seeds_of_a_split_count_once() -> None:
    rows = [row(0, 1.0), row(0, 3.0, seed=1), row(1, 4.0)]
    (line,) = summarise(rows, metrics=["elbo_per_point"])
    ours, _ = line.metrics["elbo_per_point"]
    assert (ours.mean, ours.num_splits) == (3.0, 2)
    assert ours.standard_error == pytest.approx(np.std([2.0, 4.0], ddof=1) / math.sqrt(2))


def test_settings_and_failures_are_not_mixed() -> None:
    rows = [*ROWS, row(0, 9.0, num_steps=10), row(3, 0.0, status="failed", metrics={})]
    lines = summarise(rows, metrics=["elbo_per_point"])
    assert [(line.num_steps, line.num_splits) for line in lines] == [(10, 1), (20_000, 3)]


def test_settings_that_tell_lines_of_as_many_steps_apart() -> None:
    rows = [
        row(0, 1.0, num_steps=10, others={"gwi": {"weight_variance": 0.1}}),
        row(0, 2.0, num_steps=10, others={"gwi": {}}),
        row(0, 3.0, num_steps=20, others={"gwi": {"weight_variance": 0.1}}),
    ]
    lines = summarise(rows, metrics=["elbo_per_point"])
    name = ROWS[0].model
    assert {(line.label, line.metrics["elbo_per_point"][0].mean) for line in lines} == {
        (f"{name}, weight_variance 0.1", 1.0),
        (name, 2.0),
        (name, 3.0),  # alone with its number of steps
    }
    for style in ("rich", "markdown"):
        assert f"{name}, weight_variance 0.1" in format_table(lines, style)
    settings = [line.rpartition(",")[2] for line in format_table(lines, "csv").splitlines()[1:]]
    assert sorted(settings) == ["", "", "weight_variance 0.1"]


def test_recipes_of_ones_own_are_told_apart_by_what_they_change() -> None:
    own = [FAST.model_copy(update={"annealing": part}) for part in (0.1, 0.25)]
    rows = [
        row(0, value, num_steps=10, others={"schedule": recipe.model_dump(mode="json")})
        for value, recipe in enumerate([FAST, *own])
    ]
    lines = summarise(rows, metrics=["elbo_per_point"])
    name = ROWS[0].model
    assert {(line.label, line.schedule) for line in lines} == {
        (name, "fast"),
        (f"{name}, annealing 0.1", "own"),
        (f"{name}, annealing 0.25", "own"),
    }


def test_rows_of_different_code_are_marked() -> None:
    rows = [row(0, 2.0, git_commit="a"), row(1, 2.1, git_commit="b")]
    (line,) = summarise(rows)
    assert line.is_mixed
    assert "| 2† |" in format_table([line], "markdown")
    assert "--redo-changed" in format_table([line])
    (line,) = summarise(
        [row(0, 2.0, fingerprint="f", git_commit="a"), row(1, 2.1, fingerprint="f")]
    )
    assert not line.is_mixed
    assert "†" not in format_table([line])


def test_the_objective_that_is_no_bound_is_never_better() -> None:
    rows = [row(0, 0.0, model="gwi-net", metrics={"objective_per_point": 5.0, "test_rmse": 1.0})]
    (line,) = summarise(rows, metrics=["elbo_per_point", "objective_per_point"], paper="ober2023")
    assert line.metrics["elbo_per_point"][0].num_splits == 0
    assert line.metrics["objective_per_point"][0].mean == 5.0
    assert agrees(5.0, published(metric="objective_per_point")) is None


def test_papers_figure_is_found_by_its_own_depth() -> None:
    (line,) = summarise(ROWS, metrics=["elbo_per_point"], paper="ober2023")
    theirs = line.metrics["elbo_per_point"][1]
    assert theirs is not None
    assert (theirs.dataset, theirs.depth, theirs.model) == ("yacht", 2, "dwp-ab-gw")
    (line,) = summarise(
        [row(0, 2.0, depth=3)],
        metrics=["elbo_per_point"],
        paper="ober2023",
        depth_counts_output_layer=False,
    )
    assert line.depth == 2
    assert line.metrics["elbo_per_point"][1] == theirs


@pytest.mark.parametrize(
    ("ours", "changes", "verdict"),
    [
        (-0.35, {}, True),
        (-0.354, {}, True),
        (-0.356, {}, False),
        (5.0, {}, True),
        (-0.334, {"error": 0.0}, True),
        (-0.336, {"error": 0.0}, False),
        (-0.31, {"metric": "test_rmse"}, True),
        (-0.30, {"metric": "test_rmse"}, False),
        (-9.0, {"metric": "test_rmse"}, True),
        (-0.33, {"error": None}, None),
        (-0.33, {"metric": "coverage_90"}, None),
    ],
)
def test_within_two_of_the_papers_errors_or_better(
    ours: float, changes: dict[str, Any], verdict: bool | None
) -> None:
    assert agrees(ours, published(**changes)) is verdict


def test_seconds_an_epoch_stand_beside_the_papers_without_a_verdict() -> None:
    """[UAI23] Table 2 was measured on other hardware; nothing is worked out for rows without them."""
    rows = [
        row(0, 0.0, dataset="boston", metrics={"epoch_seconds": 0.1, "seconds_per_step": 0.1}),
        row(0, 0.0, dataset="protein", metrics={"seconds_per_step": 0.1}),
    ]
    boston, protein = summarise(rows, metrics=["epoch_seconds"], paper="ober2023")
    ours, theirs = boston.metrics["epoch_seconds"]
    assert theirs is not None
    assert (ours.mean, theirs.value, agrees(ours.mean, theirs)) == (0.1, 0.202, None)
    assert protein.metrics["epoch_seconds"][0].num_splits == 0
    text = format_table([boston, protein], "markdown")
    assert "| 0.1 | 0.202 |" in text
    assert "|  | 0.869 |" in text


@pytest.mark.parametrize(
    ("paper", "task", "dataset", "depth", "value"),
    [
        ("salimbeni2019", "density", "wine", 0, -1.09),  # of winered
        ("salimbeni2019", "density", "wine-gal", 0, -1.09),
        ("salimbeni2019", "density", "energy-gal", 0, 1.71),
        ("salimbeni2019", "density", "housing", 0, 0.02),  # of boston
        ("ober2023", "density", "energy-gal", 2, -0.70),
        ("ober2023", "regression", "winered", 2, -0.96),  # of wine
        ("ober2023", "classification", "wine", 2, None),  # scikit-learn's
        (None, "regression", "wine", 2, None),
    ],
)
def test_a_dataset_has_the_figures_that_a_paper_prints_under_another_name(
    paper: str | None, task: str, dataset: str, depth: int, value: float | None
) -> None:
    of_icml = paper == "salimbeni2019"
    model, metric = ("gp", "_normalised") if of_icml else ("dgp", "")
    rows = [row(0, 0.0, task=task, dataset=dataset, depth=depth, model=model)]
    (line,) = summarise(rows, metrics=[f"test_log_likelihood{metric}"], paper=paper)
    ((_, theirs),) = line.metrics.values()
    assert (theirs and theirs.value) == value


@pytest.mark.parametrize("paper", sorted({r.paper for r in paper_results()}))
def test_no_two_figures_of_a_paper_are_looked_up_by_one_name(paper: str) -> None:
    names = [
        (SAME_DATA.get(r.dataset, r.dataset), r.depth, r.model, r.metric)
        for r in paper_results(paper)
    ]
    assert len(names) == len(set(names))


def test_unknown_metric_and_format() -> None:
    with pytest.raises(UnknownNameError, match=r"Unknown metric 'rmse'.*test_rmse"):
        summarise(ROWS, metrics=["rmse"])
    with pytest.raises(UnknownNameError, match="Unknown table format 'html'"):
        format_table(summarise(ROWS), "html")


LINES = summarise(ROWS, metrics=["elbo_per_point", "coverage_90"], paper="ober2023")


def test_terminal_table() -> None:
    text = format_table(LINES)
    for part in ("yacht", "dwp-ab-gw", "20000", "2.20 ± 0.15", "0.9000 ± 0.0000", "✓", "published"):
        assert part in text


def test_markdown_table() -> None:
    header, rule, line, _, note = format_table(LINES, "markdown").splitlines()
    assert header.startswith("| dataset | depth | model | steps | splits | elbo_per_point | publi")
    assert header.count("published") == 1
    assert rule.count("---") == header.count("|") - 1 == line.count("|") - 1
    assert line.startswith("| yacht | 2 | dwp-ab-gw | 20000 | 3 | 2.20 ± 0.15 |")
    assert note.startswith("Mean ± standard error over splits.")


COMPARED = summarise(
    [
        row(0, 2.0, metrics={"elbo_per_point": 2.0, "test_rmse": 1.0, "coverage_90": 0.9}),
        row(0, 3.0, model="dgp", metrics={"elbo_per_point": 3.0, "test_rmse": 2.0}),
        row(0, 3.0, model="dgp", num_steps=10, metrics={"elbo_per_point": 3.0}),
        row(0, 9.0, model="dgp", depth=3, metrics={"elbo_per_point": 9.0}),
        row(0, 9.0, model="dgp", dataset="boston", metrics={"elbo_per_point": 9.0}),
    ],
    metrics=["elbo_per_point", "test_rmse", "coverage_90"],
)


def test_the_best_mean_of_a_dataset_and_depth_is_bold() -> None:
    """Ties all; not what has no direction, nor what is compared with nothing."""
    assert format_table(COMPARED, "markdown").splitlines()[2:7] == [
        "| boston | 2 | dgp | 20000 | 1 | 9 |  |  |",
        "| yacht | 2 | dgp | 10 | 1 | **3** |  |  |",
        "| yacht | 2 | dgp | 20000 | 1 | **3** | 2 |  |",
        "| yacht | 2 | dwp-ab-gw | 20000 | 1 | 2 | **1** | 0.9 |",
        "| yacht | 3 | dgp | 20000 | 1 | 9 |  |  |",
    ]
    assert "*" not in format_table(COMPARED, "csv")


def test_bold_on_a_terminal_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert "\x1b" not in format_table(COMPARED)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    text = format_table(COMPARED)
    assert re.findall("\x1b\\[1m([0-9.]+)\x1b", text.replace(" ", "")) == ["3", "3", "1"]
    assert "*" not in text


def test_csv_table_has_the_numbers_in_full() -> None:
    rows = list(csv.DictReader(io.StringIO(format_table(LINES, "csv"))))
    assert [r["metric"] for r in rows] == ["elbo_per_point", "coverage_90"]
    assert float(rows[0]["mean"]) == LINES[0].metrics["elbo_per_point"][0].mean
    assert rows[0]["num_splits"] == "3"
    assert rows[0]["agrees"] == "True"
    assert rows[1]["published"] == ""


def test_a_metric_that_some_rows_lack() -> None:
    rows = [row(0, 1.0), row(0, 1.0, model="dgp", metrics={"elbo_per_point": 1.0})]
    lines = summarise(rows, metrics=["test_rmse"])
    assert [str(line.metrics["test_rmse"][0]) for line in lines] == ["", "1"]
    for style in ("rich", "markdown", "csv"):
        format_table(lines, style)


def test_no_rows() -> None:
    assert summarise([]) == []


@pytest.mark.parametrize(
    ("mean", "error", "text"),
    [
        (1.23456, 0.0123, "1.235 ± 0.012"),
        (53.2, 4.0, "53.20 ± 4.00"),
        (0.1, 0.0, "0.1000 ± 0.0000"),
    ],
)
def test_errors_show_two_digits(mean: float, error: float, text: str) -> None:
    assert str(Summary(mean, error, 3)) == text


def test_published_figures() -> None:
    ober = paper_results("ober2023")
    assert {r.paper for r in paper_results()} == {
        "ober2023",
        "ober2021",
        "aitchison2021",
        "wild2022",
        "salimbeni2019",
    }
    (figure,) = [
        r
        for r in ober
        if (r.dataset, r.depth, r.model, r.metric) == ("boston", 2, "dgp", "elbo_per_point")
    ]
    assert (figure.value, figure.error, figure.decimals) == (-0.38, 0.01, 2)
    # Tables 3, 5 and 6; Table 2; Table 4.
    assert len(ober) == 9 * 4 * 4 * 3 + 16 + 9 * 4 * 3
    assert paper_results("nobody") == ()


def test_published_figures_of_networks_that_the_paper_calls_otherwise() -> None:
    """[NeurIPS22] Table 1's BBB and VDO are mean-field VI and dropout; its exact GP has our name."""
    found = {
        model: paper.published(
            "wild2022", "boston", 1, model, "test_log_likelihood", task="regression"
        )
        for model in ("mlp-mean-field", "mlp-dropout", "exact-gp", "mlp-map", "mlp-ensemble")
    }
    printed = {r.model: r for r in paper_results("wild2022") if r.dataset == "boston"}
    assert found == {
        "mlp-mean-field": printed["bbb"],
        "mlp-dropout": printed["vdo"],
        "exact-gp": printed["exact-gp"],
        "mlp-map": None,
        "mlp-ensemble": None,
    }
    on_images = paper.published("wild2022", "cifar10_vs_svhn", 1, "cnn-map", "accuracy", task="ood")
    assert on_images is not None
    assert on_images.model == "map"


def test_published_figures_are_the_references() -> None:
    if not REFERENCE.exists():
        pytest.skip("no reference beside the repository")
    shipped = Path(__file__).resolve().parents[2] / "bayesian_benchmarks/report/paper_results.csv"
    assert shipped.read_text() == REFERENCE.read_text()
