"""The scripts that draw: a picture comes out, and bad input is one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from script_cases import load_script


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_plot_prior(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--points", "8", "--layers", "2", "--output"]
    assert load_script("plot_prior").main([*small, "a.png"]) == 0
    assert Path("a.png").read_bytes()[:4] == b"\x89PNG"
    capsys.readouterr()
    assert load_script("plot_prior").main([*small, "nowhere/a.png"]) == 2
    assert "cannot write the picture nowhere/a.png" in capsys.readouterr().err
    for delta in ("-1", "nan", "inf"):
        with pytest.raises(SystemExit) as caught:
            load_script("plot_prior").main(["--delta", delta])
        assert caught.value.code == 2
        message = f"--delta is {float(delta)}; it must be positive and finite."
        assert message in capsys.readouterr().err


def test_plot_fit_of_made_up_data() -> None:
    short = ["--steps", "4", "--inducing", "5", "--models", "dgp", "lv-gp:vi"]
    assert load_script("plot_fit").main(short) == 0
    assert Path("fit.png").stat().st_size > 10_000


def test_plot_fit_of_a_csv_file(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(30, 3))
    np.savetxt("one.csv", table[:, :2], delimiter=",", header="x,y", comments="")
    np.savetxt("two.csv", table, delimiter=",", header="x,z,y", comments="")
    table[:, 0] = 0.1 + 0.2
    np.savetxt("flat.csv", table[:, :2], delimiter=",", header="x,y", comments="")
    plot_fit = load_script("plot_fit")
    short = ["--steps", "4", "--inducing", "5", "--models", "dgp", "--csv"]
    assert plot_fit.main([*short, "one.csv"]) == 0
    capsys.readouterr()
    for arguments, message in (
        ([*short, "two.csv"], "two.csv has 2 features; one is needed"),
        ([*short, "none.csv"], "none.csv"),
        ([*short, "flat.csv"], "flat.csv: the feature is 0.3 in every row; it must vary."),
        (["--models", "dpg"], "Unknown model 'dpg'"),
        (["--steps", "0"], "--steps is 0; it must be at least 1."),
        (["--seed", "-1"], "--seed is -1; it must be from 0 to 4294967295."),
        (["--target", "y"], "--target is of --csv FILE, which is not given."),
        (["--output", "fit.bmp"], "the picture fit.bmp: its name must end in one of ."),
        (["--output", "no/fit.png"], "the picture no/fit.png: make the folder no first."),
    ):
        assert plot_fit.main(arguments) == 2
        err = capsys.readouterr().err
        assert err.startswith("plot_fit.py: ")
        assert message in err
        assert err.count("\n") == 1


def test_demo_letters(capsys: pytest.CaptureFixture[str]) -> None:
    demo = load_script("demo_letters")
    short = ["--steps", "2", "--points", "60", "--inducing", "5", "--importance", "2"]
    assert demo.main([*short, "--output", "a.png"]) == 0
    assert Path("a.png").read_bytes()[:4] == b"\x89PNG"
    capsys.readouterr()
    for arguments, message in (
        (["--word", " "], "--word: ' ' has nothing to draw; give letters or digits."),
        (["--steps", "0"], "--steps is 0; it must be at least 1."),
        (["--output", "a.bmp"], "the picture a.bmp: its name must end in one of ."),
    ):
        assert demo.main(arguments) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert message in error


def test_letters_points_are_inside_the_glyphs() -> None:
    """An I is one bar: its points fill a rectangle; an O has a hole in the middle."""
    demo = load_script("demo_letters")
    bar = np.hstack(demo.points_inside("I", 2000, np.random.default_rng(0)))
    np.testing.assert_allclose(bar.mean(0), 0.0, atol=0.1)
    for column in bar.T:
        assert np.histogram(column, bins=5)[0].min() > 300
    ring = np.hstack(demo.points_inside("O", 2000, np.random.default_rng(0)))
    assert np.linalg.norm(ring, axis=1).min() > 0.3
