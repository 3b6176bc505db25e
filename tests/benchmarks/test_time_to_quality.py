"""`benchmarks/time_to_quality.py`: when a curve is at its target, and what its table and picture show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from bayesian_benchmarks.report import paper_results


@pytest.fixture
def module(import_plugin_of_benchmarks: Callable[[str], Any]) -> Any:
    return import_plugin_of_benchmarks("time_to_quality")


def curve(schedule: str, seconds_a_step: float, bounds: list[float]) -> pd.DataFrame:
    """Of AB-GW at depth 2 on yacht's split 0, a point each hundred steps."""
    steps = 100 * np.arange(1, len(bounds) + 1)
    place = {"dataset": "yacht", "split": 0, "model": "dwp-ab-gw", "depth": 2}
    points = {"step": steps, "seconds": seconds_a_step * steps, "elbo_per_point": bounds}
    return pd.DataFrame(points).assign(**place, schedule=schedule, steps=steps[-1])


CURVES = pd.concat(
    [curve("fast", 0.01, [1.0, 2.0, 2.1]), curve("paper", 0.02, [-1.0, 0.5, 1.0, 1.5])],
    ignore_index=True,
)
REFERENCE = pd.DataFrame(
    {
        "dataset": ["yacht", "yacht", "boston"],
        "depth": [2, 5, 2],
        "model": "dwp-ab-gw",
        "seconds": [1234.0, 2345.0, 3456.0],
        "elbo_per_point": [2.0, 1.8, -0.3],
    }
)


def test_target_is_the_published_bound(module: Any) -> None:
    printed = {
        r.value
        for r in paper_results("ober2023")
        if (r.dataset, r.depth, r.model, r.metric) == ("yacht", 2, "dwp-ab-gw", "elbo_per_point")
    }
    assert printed == {module.target_of("yacht", 2, "dwp-ab-gw")} == {2.07}
    assert np.isnan(module.target_of("yacht", 2, "diwp"))


@pytest.mark.parametrize(
    ("target", "there"),
    [(0.5, (100, 1)), (2.0, (200, 2)), (2.05, (300, 3)), (2.2, (np.nan, np.nan))],
)
def test_a_target_is_reached_at_the_first_point_that_is_at_it(
    module: Any, target: float, there: tuple[float, float]
) -> None:
    fast = CURVES[CURVES["schedule"] == "fast"]
    np.testing.assert_array_equal(module.reached(fast, target), there)


def test_table_has_steps_seconds_and_ends_and_the_reference_of_the_place(
    module: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    module.print_table(CURVES, 1.2, REFERENCE)
    fast, paper, theirs = (
        [cell.strip() for cell in line.split("│")[4:-1]]
        for line in capsys.readouterr().out.splitlines()
        if "yacht" in line
    )
    assert fast == ["fast, split 0", "1.20", "200", "2", "2.100", "300", "3"]
    assert paper == ["paper, split 0", "1.20", "400", "8", "1.500", "400", "8"]
    assert theirs == ["reference", "1.20", "", "1234", "2.000", "", "1234"]


def test_a_target_that_is_not_reached_is_a_dash(
    module: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    module.print_table(CURVES, None, REFERENCE)
    lines = [line for line in capsys.readouterr().out.splitlines() if "2.07" in line]
    there = [[cell.strip() for cell in line.split("│")[6:8]] for line in lines]
    assert there == [["300", "3"], ["-", "-"], ["", "-"]]


@pytest.mark.parametrize("bound", [1.0, 2.5])  # below the lowest end, and above the highest
def test_picture_has_a_line_a_schedule_the_published_bound_and_the_reference_within(
    module: Any, bound: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    save = Figure.savefig

    def keep_and_save(figure: Figure, *arguments: Any, **options: Any) -> None:
        drawn.append(figure)
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", keep_and_save)
    path = tmp_path / "pictures" / "curves.png"
    module.draw(CURVES, path, REFERENCE.assign(elbo_per_point=bound))
    assert path.read_bytes().startswith(b"\x89PNG")
    (axis,) = drawn[0].axes
    assert axis.get_title() == "yacht, dwp-ab-gw, depth 2"
    lines = {str(line.get_label()): line for line in axis.get_lines()}
    assert set(lines) == {"fast, 300 steps", "paper, 400 steps", "published", "reference"}
    assert list(lines["published"].get_ydata()) == [2.07, 2.07]
    ((x, y),) = zip(*lines["reference"].get_data(), strict=True)
    assert (x, y) == (1234.0, bound)
    assert axis.get_xlim()[0] < x < axis.get_xlim()[1]
    assert axis.get_ylim()[0] < y < axis.get_ylim()[1]


def test_what_stands_among_the_curves_is_not_trained_again(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "curves.csv"
    CURVES[CURVES["schedule"] == "fast"].to_csv(kept, index=False)
    trained = []

    def train(case: dict[str, Any]) -> pd.DataFrame:
        trained.append(case["schedule"])
        return CURVES[CURVES["schedule"] == case["schedule"]]

    monkeypatch.setattr(module, "curve_in_process", train)
    asked = ["--datasets", "yacht", "--depths", "2", "--fast-steps", "300", "--paper-steps", "400"]
    monkeypatch.setattr("sys.argv", ["time_to_quality.py", *asked, "--curves", str(kept)])
    for _ in range(2):
        found = module.all_curves(module.parse_arguments())
        pd.testing.assert_frame_equal(found, CURVES, check_dtype=False)
    assert trained == ["paper"]
