"""The report: what is beside a paper's figures, what is concluded, and pages that stand alone."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from bayesian_benchmarks.configs import CONFIGS
from bayesian_benchmarks.errors import BenchmarkError
from bayesian_benchmarks.experiment import load_experiment
from bayesian_benchmarks.report import assemble, render
from bayesian_benchmarks.report.beside_paper import (
    distance,
    runs_below_printed_bounds,
    standard_error_of,
    tables_beside_paper,
)
from bayesian_benchmarks.report.conclusions import Claim, Competitor, conclusions
from bayesian_benchmarks.report.document import Cell, Table
from bayesian_benchmarks.report.paper import published
from bayesian_benchmarks.report.pictures import pit_histograms
from bayesian_benchmarks.report.sources import Source, open_source
from bayesian_benchmarks.report.tables import Summary
from bayesian_benchmarks.store import ResultRow, ResultsStore, digest_of

ROOT = Path(__file__).parents[2]


def row(
    model: str,
    split: int,
    bound: float,
    *,
    dataset: str = "yacht",
    depth: int = 2,
    steps: int = 2000,
    status: str = "ok",
) -> ResultRow:
    settings = json.dumps({"depth": depth, "num_steps": steps}, sort_keys=True)
    steps_kept = list(range(0, steps, steps // 10))
    metrics = {
        "elbo_per_point": bound,
        "test_log_likelihood": 2 * bound,
        "test_rmse": 1.0 - bound / 10,
        "coverage_50": 0.5,
        "coverage_90": 0.9,
        "coverage_95": 0.96,
        "seconds": 10.0,
        "seconds_per_step": 0.004,
    }
    return ResultRow(
        task="regression",
        dataset=dataset,
        split=split,
        model=model,
        settings_hash=digest_of(settings),
        seed=0,
        depth=depth,
        settings=settings,
        status=status,
        error="" if status == "ok" else "FloatingPointError: the bound is <NaN>",
        metrics=metrics if status == "ok" else {},
        recorded_at="2026-01-01T00:00:00+00:00",
        hardware="a machine",
        versions="python 3.11",
        fingerprint="abc",
        history={
            "step": steps_kept,
            "elbo": np.linspace(bound - 1, bound, len(steps_kept)).tolist(),
            "seconds": np.linspace(1, 10, len(steps_kept)).tolist(),
        },
    )


DATASETS = ("yacht", "boston", "energy")
ROWS = [
    *(
        row(model, split, bound + 0.01 * split, dataset=dataset)
        for dataset in DATASETS
        for model, bound in (("dgp", 1.88), ("dwp-gw", 1.95), ("dwp-ab-gw", 2.07))
        for split in range(3)
    ),
    row("dgp", 3, 0.0, status="failed"),
]
SOURCE = Source("ober2023", Path("ober2023.csv"), ROWS, None)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("store")
    store = ResultsStore(folder / "ober2023_fast.sqlite")
    store.add_all(ROWS)
    store.export(folder / "ober2023_fast.csv")
    return open_source(folder / "ober2023_fast.csv")


def test_a_source_takes_the_config_of_its_name(source: Source) -> None:
    assert source.paper == "ober2023"
    assert len(source.rows) == len(ROWS)
    store = source.path.with_suffix(".sqlite")
    assert open_source(store).rows == list(source.rows)
    assert open_source(store, "wild2022").paper == "wild2022"
    with pytest.raises(BenchmarkError, match=r"nothing\.csv"):
        open_source(source.path.with_name("nothing.csv"))


def test_distances_are_in_standard_errors_of_both(source: Source) -> None:
    figure = published("ober2023", "yacht", 2, "dgp", "elbo_per_point", task="regression")
    assert figure is not None
    assert (figure.value, figure.error) == (1.88, 0.03)
    expected = (1.95 - 1.88) / math.sqrt(0.02**2 + 0.03**2 + 0.01**2 / 12)
    assert distance(Summary(1.95, 0.02, 5), figure) == pytest.approx(expected)
    assert distance(Summary(1.95, math.nan, 1), figure) is None
    # Of an error less is better, and [NeurIPS22]'s errors are standard deviations over ten splits.
    rmse = published("ober2023", "yacht", 2, "dgp", "test_rmse", task="regression")
    assert rmse is not None
    assert distance(Summary(rmse.value + 1.0, 0.1, 5), rmse) < 0  # type: ignore[operator]
    spread = published("wild2022", "yacht", 0, "gwi-net", "test_log_likelihood", task="regression")
    assert spread is not None
    assert standard_error_of(spread) == pytest.approx(spread.error / math.sqrt(10))


@pytest.mark.parametrize(
    ("paper", "depth", "model"), [("aitchison2021", 2, "dgp:relu"), ("ober2021", 5, "dgp")]
)
def test_distances_are_in_our_errors_where_the_printed_are_of_something_else(
    paper: str, depth: int, model: str
) -> None:
    """Of differences in [ICML21], and of what [NeurIPS21] does not say."""
    figure = published(paper, "yacht", depth, model, "test_log_likelihood", task="regression")
    assert figure is not None
    assert figure.error is not None
    assert standard_error_of(figure) is None
    expected = 0.3 / math.sqrt(0.1**2 + 0.01**2 / 12)
    assert distance(Summary(figure.value + 0.3, 0.1, 5), figure) == pytest.approx(expected)


def test_there_is_no_distance_to_a_figure_without_an_error() -> None:
    """Seconds of an epoch, on the paper's machine."""
    figure = published("ober2023", "boston", 2, "dgp", "epoch_seconds", task="regression")
    assert figure is not None
    assert distance(Summary(0.1, 0.01, 5), figure) is None


def test_figures_of_another_paper_of_the_same_runs_have_tables_of_their_own() -> None:
    """[NeurIPS21] prints the DGP and GW at depth 5 that [UAI23] prints too; not AB-GW, and no depth 2."""
    models = ("dgp", "dwp-gw", "dwp-ab-gw")
    rows = [row(model, split, 1.5, depth=d) for model in models for split in (0, 1) for d in (2, 5)]
    experiment = load_experiment(CONFIGS / "ober2023_fast.yaml")
    source = Source("made-up", Path("made-up.csv"), rows, experiment)
    of_other = [table for table in tables_beside_paper(source) if "beside ober2021" in table.title]
    bound = of_other[0]
    assert bound.header[4:] == ["dgp", "dwp-gw"]
    assert [cells[1].text for cells in bound.rows] == ["5"]
    assert [cell.beside for cell in bound.rows[0][4:]] == ["1.37 ± 0.03", "1.65 ± 0.01"]
    assert "kind not said" in bound.note


def test_tables_have_models_across_and_the_best_in_bold(source: Source) -> None:
    bound, *_ = tables_beside_paper(source)
    assert bound.header[4:] == ["dgp", "dwp-ab-gw", "dwp-gw"]
    line = next(cells for cells in bound.rows if cells[0].text == "yacht")
    dgp, ab_gw, gw = line[4:]
    assert (dgp.text, dgp.beside) == ("1.8900 ± 0.0058", "1.88 ± 0.03")
    assert [cell.best for cell in (dgp, ab_gw, gw)] == [False, True, False]
    assert dgp.mark == "close"
    assert gw.mark == "worse"  # 1.96 where the paper has 2.02 ± 0.01


def test_settings_of_one_model_have_columns_of_their_own() -> None:
    """None in another's place."""
    other = row("dgp", 0, 1.0)
    settings = json.dumps(json.loads(other.settings) | {"num_inducing": 7})
    other = replace(other, settings=settings, settings_hash=digest_of(settings))
    source = Source("made-up", Path("made-up.csv"), [row("dgp", 0, 2.0), other], None)
    bound, *_ = tables_beside_paper(source)
    (line,) = bound.rows
    found = dict(zip(bound.header, (cell.text for cell in line), strict=True))
    values = {name: value for name, value in found.items() if name.startswith("dgp")}
    assert values == {"dgp, num_inducing 7": "1", "dgp": "2"}


def test_runs_that_end_far_below_the_printed_bound_are_counted(source: Source) -> None:
    """Of single runs: printed for yacht are 1.88 (DGP) and 2.02 (GW) at depth 2, 1.46 (DGP) at depth 5."""
    yacht = [row("dgp", 0, 1.79), row("dgp", 1, 1.77), row("dwp-gw", 0, 2.5)]
    others = [row("dgp", 0, 1.40, depth=5), row("nngp:relu", 0, -9.0)]
    for rows, told in (
        (yacht, "Of 3 runs 1 ended"),
        ([*yacht[:1], *others], "Of 2 runs none ended"),
    ):
        line = runs_below_printed_bounds(replace(source, rows=rows))
        assert line is not None
        assert told in line
        lowest = "split 1, -0.110." if "1 ended" in told else "split 0, -0.090."
        assert line.endswith(f"the lowest against it is yacht, depth 2, dgp, {lowest}")
    assert runs_below_printed_bounds(replace(source, rows=others[1:])) is None
    assert runs_below_printed_bounds(SOURCE) is None


def test_conclusions_count_datasets() -> None:
    against = [
        row(model, split, {"dgp": 1.0, "dwp-gw": 0.5}[model] + 0.01 * split, dataset="wine")
        for model in ("dgp", "dwp-gw")
        for split in range(3)
    ]
    claim = Claim(
        "[X]", "GW above DGP", Competitor("dwp-gw", 2), Competitor("dgp", 2), "elbo_per_point"
    )
    (found,) = conclusions([Source("s", Path("s"), [*ROWS, *against], None)], [claim])
    assert (found.num_for, found.num_against, found.num_datasets) == (3, 1, 4)
    assert found.verdict == "holds"
    assert found.mean == pytest.approx((3 * 0.07 - 0.5) / 4)
    assert found.median == pytest.approx(0.07)
    absent = Claim("[X]", "none", Competitor("nngp"), Competitor("dgp"), "elbo_per_point")
    (nothing,) = conclusions([SOURCE], [absent])
    assert nothing.verdict == "open"
    assert "no rows of both" in nothing.sentence


def test_one_or_two_datasets_tell_nothing() -> None:
    for num_datasets, verdict in ((1, "open"), (2, "open"), (3, "holds")):
        datasets = ("yacht", "boston", "wine")[:num_datasets]
        rows = [
            row(model, split, value + 0.01 * split, dataset=dataset)
            for model, value in (("dgp", 1.0), ("dwp-gw", 1.5))
            for split in range(3)
            for dataset in datasets
        ]
        claim = Claim(
            "[X]", "GW above DGP", Competitor("dwp-gw", 2), Competitor("dgp", 2), "elbo_per_point"
        )
        (found,) = conclusions([Source("s", Path("s"), rows, None)], [claim])
        assert (found.num_for, found.verdict) == (num_datasets, verdict)


def test_conclusions_compare_depths_of_unequal_length() -> None:
    deep = [row("dwp-ab-gw", split, 1.5, depth=5, steps=3000) for split in range(3)]
    claim = Claim(
        "[X]", "2 above 5", Competitor("dwp-ab-gw", 2), Competitor("dwp-ab-gw", 5), "elbo_per_point"
    )
    (found,) = conclusions([Source("s", Path("s"), [*ROWS, *deep], None)], [claim])
    assert (found.num_for, found.num_datasets) == (1, 1)


@pytest.mark.parametrize(("num_shared", "ranked"), [(1, False), (2, False), (3, True)])
def test_models_are_ranked_on_three_datasets_that_all_have(num_shared: int, ranked: bool) -> None:
    rows = [row("dgp", split, 1.0, dataset=name) for name in DATASETS for split in range(3)]
    for name in DATASETS[:num_shared]:
        rows += [row("dwp-gw", split, 1.5, dataset=name) for split in range(3)]
    document = assemble.report([Source("s", Path("s"), rows, None)], with_figures=False)
    titles = [table.title for section in document.sections for table in section.tables]
    assert any(title.startswith("Average ranks") for title in titles) == ranked


class Links(HTMLParser):
    """What a page refers to, and what it has."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.inside: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.anchors |= {values["id"]} if "id" in values else set()
        for name in ("href", "src"):
            target = values.get(name, "")
            if target.startswith("#"):
                self.inside.append(target[1:])
            elif target and not target.startswith("data:"):
                self.outside.append(target)


def test_the_page_stands_alone(source: Source) -> None:
    page = render.to_html(assemble.report([source], "Rows & tables"))
    links = Links()
    links.feed(page)
    assert not links.outside
    assert links.inside
    assert set(links.inside) <= links.anchors
    assert "Rows &amp; tables" in page
    assert "the bound is &lt;NaN&gt;" in page  # an error message is text
    assert page.count("<svg") >= 4  # curves by steps and seconds, calibration, ranks
    assert render.to_html(assemble.report([source], "Rows & tables")) == page


def with_transforms(model: str, split: int, counts: list[float], dataset: str) -> ResultRow:
    of_row = row(model, split, 1.0, dataset=dataset)
    of_row.metrics.update({f"pit_count_{i}": count for i, count in enumerate(counts)})
    return of_row


def test_transformed_targets_have_a_panel_for_each_dataset_and_model() -> None:
    flat, few_outside = [10.0] * 10, [40.0, *[11.0] * 8, 2.0]
    rows = [
        *(with_transforms("dgp", split, flat, "yacht") for split in range(2)),
        with_transforms("dwp-gw", 0, few_outside, "yacht"),
        with_transforms("dgp", 0, flat, "boston"),
        row("dgp", 3, 1.0),  # without transforms
        row("dgp", 4, 0.0, status="failed"),
    ]
    figure = pit_histograms(rows, counts_output_layer=True)
    assert figure is not None
    texts = re.findall(r"<text [^>]*>([^<]*)</text>", figure.svg)
    assert sorted(text for text in texts if "targets" in text) == [
        "100 targets",
        "130 targets",
        "200 targets",
    ]
    assert {"dgp", "dwp-gw", "yacht", "boston"} <= set(texts)
    bars = {color: figure.svg.count(f"fill: {color}") for color in ("#1f77b4", "#d62728")}
    # Of 130 targets a bin has 13; 95 % of the counts are from 7 to 20.
    assert bars == {"#1f77b4": 28, "#d62728": 2}


def test_rows_without_transforms_have_no_picture_of_them() -> None:
    assert pit_histograms(ROWS, counts_output_layer=True) is None


def test_the_page_in_a_browser(source: Source, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no browser is installed")
    page = tmp_path / "report.html"
    sort = '<script>document.querySelectorAll("th")[4].click(); console.log("rows",'
    sort += ' [...document.querySelector("tbody").rows].map(r => r.cells[0].innerText).join());</script>'
    text = render.to_html(assemble.report([source]))
    page.write_text(text.replace("</body>", f"{sort}</body>"))
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    command += ["--disable-background-networking", "--disable-component-update", "--no-first-run"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert len(said) == 1, said
    assert "rows " in said[0]
    assert 'aria-sort="ascending"' in done.stdout


def test_markdown_latex_and_csv_have_the_same_cells() -> None:
    cells = [
        [Cell("a_b"), Cell("1.5 ± 0.1", "2.00 ± 0.01", -4.5, 1.52, best=True)],
        [Cell("50 % & more"), Cell("")],
    ]
    table = Table("a title", "name", ["data set", "x|y"], cells)
    latex = render.to_latex(table)
    assert r"a\_b & \textbf{1.5 $\pm$ 0.1} \emph{(2.00 $\pm$ 0.01)} \\" in latex
    assert r"50 \% \& more &  \\" in latex
    assert re.search(r"\\toprule\n.*\n\\midrule\n(.*\n)+\\bottomrule", latex)
    rows = list(csv.reader(io.StringIO(render.to_csv(table))))
    assert rows[0] == ["data set", "x|y", "x|y published", "x|y distance"]
    assert rows[1] == ["a_b", "1.52", "2.00 ± 0.01", "-4.5"]
    assert rows[2] == ["50 % & more", "", "", ""]


def test_the_script_writes_every_form(source: Source, tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(ROOT / "scripts" / "make_report.py"), *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )

    done = run(
        *(str(source.path), "--out", "r.html", "--markdown", "r.md"),
        *("--latex", "tables", "--csv", "tables"),
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r.html").stat().st_size < 5e6
    assert (
        "| yacht | 2 | 2000 | 3 | 1.8900 ± 0.0058 [1.88 ± 0.03]" in (tmp_path / "r.md").read_text()
    )
    names = {path.name for path in (tmp_path / "tables").iterdir()}
    assert {"ober2023_fast-elbo-per-point.tex", "ober2023_fast-elbo-per-point.csv"} <= names
    missing = run("nothing.csv")
    assert missing.returncode == 2
    assert missing.stderr.startswith("make_report.py: Cannot read nothing.csv")
    assert missing.stderr.count("\n") == 1
