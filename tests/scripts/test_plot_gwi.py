"""GWI's pictures: they come out, bad input is one line, and the bands widen away from the data."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from script_cases import load_script


class Drawn:
    """One figure: its picture, the command's output, and the predictors of its GWI models."""

    def __init__(self, script: ModuleType, name: str, folder: Path) -> None:
        self.picture = folder / f"{name}.png"
        self.predictors: list[Any] = []
        train = script.gwi

        def gwi(*arguments: Any) -> Any:
            predict, model = train(*arguments)
            self.predictors.append(predict)
            return predict, model

        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(io.StringIO()) as out,
        ):
            patch.setattr(script, "gwi", gwi)
            asked = ["--figure", name, "--steps", "40", "--output", str(self.picture)]
            self.code = script.main(asked)
        self.printed = out.getvalue().split()


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def plot_gwi() -> ModuleType:
    return load_script("plot_gwi")


@pytest.fixture(scope="module")
def fits(plot_gwi: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    return Drawn(plot_gwi, "fits", tmp_path_factory.mktemp("fits"))


@pytest.fixture(scope="module")
def plane(plot_gwi: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    return Drawn(plot_gwi, "plane", tmp_path_factory.mktemp("plane"))


@pytest.fixture(scope="module")
def spectrum(plot_gwi: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    return Drawn(plot_gwi, "spectrum", tmp_path_factory.mktemp("spectrum"))


# One process has all tests of a figure, so that none is drawn twice.
of_fits, of_plane = (pytest.mark.xdist_group(f"plot_gwi-{name}") for name in ("fits", "plane"))


@pytest.mark.parametrize(
    "name",
    [pytest.param("fits", marks=of_fits), pytest.param("plane", marks=of_plane), "spectrum"],
)
def test_a_picture(name: str, request: pytest.FixtureRequest) -> None:
    drawn: Drawn = request.getfixturevalue(name)
    assert drawn.code == 0
    assert drawn.printed == [str(drawn.picture)]
    assert drawn.picture.read_bytes()[:4] == b"\x89PNG"
    assert drawn.picture.stat().st_size > 10_000


def test_all_pictures_are_in_one_folder(
    plot_gwi: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each by its own function, which another test draws with."""
    seen: list[tuple[str, int, int]] = []
    assert list(plot_gwi.FIGURES) == ["fits", "plane", "spectrum"]
    for name in plot_gwi.FIGURES:
        note = lambda _, steps, seed, name=name: seen.append((name, steps, seed))  # noqa: E731
        monkeypatch.setitem(plot_gwi.FIGURES, name, note)
    assert plot_gwi.main(["--steps", "40", "--seed", "3", "--output", str(tmp_path)]) == 0
    assert seen == [("fits", 40, 3), ("plane", 40, 3), ("spectrum", 40, 3)]
    pictures = [tmp_path / f"gwi_{name}.png" for name in ("fits", "plane", "spectrum")]
    assert capsys.readouterr().out.split() == [str(picture) for picture in pictures]
    for picture in pictures:
        assert picture.read_bytes()[:4] == b"\x89PNG"


def test_one_picture_of_the_largest_seed(
    plot_gwi: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--figure", "spectrum", "--steps", "2", "--seed", str(2**32 - 1)]
    assert plot_gwi.main([*arguments, "--output", "a.svg"]) == 0
    assert capsys.readouterr().out == "a.svg\n"
    assert "<svg" in Path("a.svg").read_text()


def test_help(plot_gwi: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        plot_gwi.main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for word in ("fits:", "plane:", "spectrum:", "--output PATH", "--steps", "--seed"):
        assert word in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "0"], "--steps is 0; it must be at least 1."),
        (["--seed", "-1"], "--seed is -1; it must be from 0 to 4294967295."),
        (["--output", "a.png"], "--output is a.png; three pictures need a folder that is there."),
        (["--figure", "fits", "--output", "a.bmp"], "the picture a.bmp: its name must end in"),
        (["--figure", "fits", "--output", "no/a.png"], "no/a.png: make the folder no first."),
    ],
)
def test_bad_input(
    plot_gwi: ModuleType,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    assert plot_gwi.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("plot_gwi.py: ")
    assert message in error
    assert error.count("\n") == 1


@of_fits
@pytest.mark.parametrize(("number", "name"), enumerate(["GWI-net", "GWI-SVGP"]))
def test_bands_on_the_line_widen(plot_gwi: ModuleType, fits: Drawn, number: int, name: str) -> None:
    """In the middle of the gap and far outside, against the training points."""
    data, predict = plot_gwi.line_data(0), fits.predictors[number]
    _, at_data = predict(data.X[~data.held_out])
    _, away = predict(np.array([[np.mean(plot_gwi.GAP)], [-3.0], [11.0]]))
    assert np.all(away > 2.0 * at_data.max()), name


@of_plane
def test_bands_between_the_clusters_widen(plot_gwi: ModuleType, plane: Drawn) -> None:
    """GWI-net's as the exact GP's, and at least as much beyond the clusters."""
    data = plot_gwi.plane_data(0)
    places = plot_gwi.slice_inputs(np.array([0.0, -4.0, 4.0]))
    for predict in (plane.predictors[0], plot_gwi.exact_gp(data)):
        _, at_data = predict(data.X[~data.held_out])
        _, (between, *beyond) = predict(places)
        assert between > 2.0 * np.median(at_data)
        assert min(beyond) > between


def test_predictions_are_in_the_units_of_the_data(plot_gwi: ModuleType) -> None:
    """Held-out targets of any scale are within two deviations as often as a normal distribution's."""
    line = plot_gwi.line_data(0)
    data = plot_gwi.Data(30.0 + 5.0 * line.X, 1000.0 + 200.0 * line.Y, 0)
    mean, deviation = plot_gwi.exact_gp(data)(data.X[data.held_out])
    covered = np.abs(data.Y[data.held_out, 0] - mean) < 2.0 * deviation
    assert 0.8 < covered.mean() <= 1.0
    # The noise's deviation is 0.2 of the line's units.
    np.testing.assert_allclose(np.median(deviation), 200.0 * 0.2, rtol=0.3)
