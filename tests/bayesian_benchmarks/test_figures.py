"""The reliability diagram: what is drawn of which rows, read back from the picture's text."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from bayesian_benchmarks.errors import BenchmarkError, StoreError
from bayesian_benchmarks.report.figures import check_picture, reliability_diagram
from bayesian_benchmarks.store import ResultRow

BINS = {
    f"reliability_{what}_{i}": value
    for what, values in (
        ("count", [0.0, 30.0, 70.0]),
        ("confidence", [0.0, 0.5, 0.9]),
        ("accuracy", [0.0, 0.4, 0.95]),
    )
    for i, value in enumerate(values)
}


def row(split: int, num_steps: int = 500, metrics: dict[str, float] = BINS) -> ResultRow:
    settings = json.dumps({"depth": 3, "num_steps": num_steps})
    return ResultRow(
        task="classification",
        dataset="iris",
        split=split,
        model="dgp:relu",
        settings_hash=str(num_steps),
        seed=0,
        depth=3,
        settings=settings,
        metrics=metrics,
    )


def text_of(rows: list[ResultRow], path: Path, **options: bool) -> str:
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        assert reliability_diagram(rows, path, **options) == 1
    return path.read_text()


def test_rows_of_different_settings_are_lines_of_their_own(tmp_path: Path) -> None:
    one = text_of([row(0), row(1)], tmp_path / "one.svg")
    assert ">dgp:relu<" in one
    two = text_of([row(0), row(1, num_steps=8000)], tmp_path / "two.svg")
    assert ">dgp:relu, 500 steps<" in two
    assert ">dgp:relu, 8000 steps<" in two


def test_depth_is_counted_as_in_the_table(tmp_path: Path) -> None:
    assert ">iris, depth 3<" in text_of([row(0)], tmp_path / "a.svg")
    hidden = text_of([row(0)], tmp_path / "b.svg", depth_counts_output_layer=False)
    assert ">iris, depth 2<" in hidden


def test_rows_without_reliability_metrics_are_left_out(tmp_path: Path) -> None:
    bare = row(1, metrics={"accuracy": 0.9})
    with_it = text_of([row(0), bare], tmp_path / "a.svg")
    assert ">dgp:relu<" in with_it
    with pytest.raises(BenchmarkError, match="No finished classification run with reliability"):
        reliability_diagram([bare], tmp_path / "b.svg")


def test_the_area_of_a_marker_is_what_is_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.axes import Axes

    areas: list[np.ndarray] = []
    monkeypatch.setattr(Axes, "scatter", lambda self, x, y, s, **_: areas.append(s))
    reliability_diagram([row(0), row(1)], tmp_path / "a.svg")
    np.testing.assert_allclose(areas, [[8 + 200 * 0.3, 8 + 200 * 0.7]])
    assert "8 + 200 x the fraction" in (reliability_diagram.__doc__ or "")


def test_a_place_for_a_picture(tmp_path: Path) -> None:
    check_picture(tmp_path / "a.PDF")
    for path, message in (
        (tmp_path / "a.bmp", r"a\.bmp: its name must end in one of \."),
        (tmp_path / "a", "a: its name must end in one of"),
        (tmp_path / "nowhere" / "a.png", "make the folder .*nowhere first"),
    ):
        with pytest.raises(StoreError, match=message):
            check_picture(path)
    (tmp_path / "b.png").mkdir()
    with pytest.raises(StoreError, match="choose a place that can be written to"):
        check_picture(tmp_path / "b.png")
