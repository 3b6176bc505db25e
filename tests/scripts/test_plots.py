"""The scripts that draw: a picture comes out, and bad input is one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from script_cases import load_script

from bayesian_benchmarks import ResultRow, ResultsStore
from gpflow_dkp.mixture import Mixture


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


@pytest.mark.parametrize("models", [("dgp",), ("svgp", "gwi-svgp"), ("lv-gp:vi",)])
def test_plot_fit_of_made_up_data(models: tuple[str, ...]) -> None:
    short = ["--steps", "4", "--inducing", "5", "--models", *models]
    assert load_script("plot_fit").main(short) == 0
    assert Path("fit.png").stat().st_size > 10_000


@pytest.mark.parametrize(("distance", "num_modes"), [(1.0, 1), (3.0, 2)])
def test_plot_fit_tells_one_mode_from_two(distance: float, num_modes: int) -> None:
    """Of two Gaussians of deviation 0.5 that far apart; a faint third one is no mode."""
    plot_fit = load_script("plot_fit")
    mean = np.array([-4.0, *20 * [-distance / 2], *20 * [distance / 2]])[:, None, None]
    mixture = Mixture(np.tile(mean, (1, 5, 1)), np.full((41, 5, 1), 0.25))
    y = np.linspace(-6.0, 6.0, 121)
    density = plot_fit._log_density(mixture, y)
    assert density.shape == (121, 5)
    np.testing.assert_allclose(np.exp(density).sum(0) * 0.1, 1.0, rtol=1e-4)
    rows, columns = np.nonzero(plot_fit._modes(density))
    assert np.bincount(columns).tolist() == 5 * [num_modes]
    if num_modes == 2:
        np.testing.assert_allclose(np.abs(y[rows]), distance / 2, atol=0.05)


def test_plot_fit_draws_bands_of_one_mode_and_the_density_of_two() -> None:
    plot_fit = load_script("plot_fit")
    x, y = np.linspace(0.0, 1.0, 20), np.linspace(-6.0, 6.0, 121)
    for distance, labels in ((0.0, ["95 %", "90 %", "50 %", "median"]), (4.0, ["modes"])):
        mean = np.array([-distance / 2, distance / 2])[:, None, None]
        axis = Figure().subplots()
        plot_fit._draw(axis, x, y, Mixture(np.tile(mean, (1, 20, 1)), np.full((2, 20, 1), 0.25)))
        assert axis.get_legend_handles_labels()[1] == labels


def test_plot_fit_changes_units() -> None:
    """The density of 3 + 2 y is that of y over 2."""
    plot_fit = load_script("plot_fit")
    mixture = Mixture(np.array([[[0.5]], [[-1.0]]]), np.array([[[0.3]], [[2.0]]]))
    y = np.array([[0.7]])
    ours = plot_fit._in_units(mixture, 3.0, 2.0).log_prob(3.0 + 2.0 * y)
    np.testing.assert_allclose(ours, mixture.log_prob(y) - np.log(2.0))


def test_plot_fit_refuses_before_it_trains(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plot_fit = load_script("plot_fit")
    monkeypatch.setattr(plot_fit, "_made_up", lambda: pytest.fail("too late"))
    for arguments, message in (
        (["--models", "dgp", "gwi-cnn"], "gwi-cnn is a model of classification and ood; it cannot"),
        (["--models", "dgp", "--steps", "10000000000"], "--steps: num_steps: input should be less"),
    ):
        assert plot_fit.main(arguments) == 2
        err = capsys.readouterr().err
        assert err.startswith("plot_fit.py: ")
        assert message in err
        assert err.count("\n") == 1


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


@pytest.mark.parametrize("architecture", ["GP-GP", "LV-GP-GP"])
def test_demo_letters(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    demo = load_script("demo_letters")
    monkeypatch.setattr(demo, "ARCHITECTURES", (architecture,))
    monkeypatch.setattr(demo, "GRID", 15)
    short = ["--steps", "2", "--points", "60", "--inducing", "5", "--importance", "2"]
    assert demo.main([*short, "--output", "a.png"]) == 0
    assert Path("a.png").read_bytes()[:4] == b"\x89PNG"


def test_the_published_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    demo = load_script("demo_letters")
    monkeypatch.setattr(demo, "PRIORS", ("LV-GP-GP",))
    monkeypatch.setattr(demo, "PIXELS", 40)
    assert demo.main(["--published", "--steps", "2", "--output", "a.png"]) == 0
    assert Path("a.png").read_bytes()[:4] == b"\x89PNG"
    X, Y = demo.pixels_inside("I", 20)
    for column in (X, Y):
        np.testing.assert_allclose([column.min(), column.max()], [-3.0, 3.0])
    assert np.corrcoef(X[:, 0], Y[:, 0])[0, 1] > 0.3  # italic: a bar that leans to the right


def test_demo_letters_refuses_before_it_trains(capsys: pytest.CaptureFixture[str]) -> None:
    demo = load_script("demo_letters")
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


def stored_row(model: str, slope: float, split: int = 0) -> ResultRow:
    """A run of three steps."""
    return ResultRow(
        task="regression",
        dataset="yacht",
        split=split,
        model=model,
        depth=2,
        seed=0,
        status="ok",
        metrics={"seconds_per_step": 0.1, "epoch_seconds": 0.4, "elbo_per_point": 3.0 * slope},
        recorded_at="2026-01-01T00:00:00+00:00",
        settings_hash="a",
        settings="{}",
        history={
            "step": [1.0, 2.0, 3.0],
            "seconds": [0.1, 0.2, 0.3],
            "elbo": [slope, 2.0 * slope, 3.0 * slope],
        },
    )


def test_plot_training(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Of a finished sweep's rows: one line a model, seconds and epochs from the rows."""
    rows = [stored_row(model, slope) for model, slope in (("dgp", 1.0), ("dwp-gw", 2.0))]
    store = ResultsStore(tmp_path / "rows.sqlite")
    for row in [*rows, stored_row("dwp-ab-gw", 1.0, split=1)]:
        store.add(row)
    drawn: list[Figure] = []
    plot_training = load_script("plot_training")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
        what = [str(store.path), "--dataset", "yacht", "--depth", "2"]
        assert plot_training.main([*what, "--output", "a.png"]) == 0
        by_seconds, by_epochs = drawn[0].axes
        assert [line.get_label() for line in by_seconds.lines] == ["dgp", "dwp-gw"]
        np.testing.assert_allclose(by_seconds.lines[1].get_xdata(), [0.1, 0.2, 0.3])
        # Batches of 10 rows cover 35 in four steps.
        np.testing.assert_allclose(by_epochs.lines[1].get_xdata(), [0.25, 0.5, 0.75])
        np.testing.assert_allclose(by_epochs.lines[1].get_ydata(), [2.0, 4.0, 6.0])
        assert plot_training.main([*what, "--models", "dwp-ab-gw", "--split", "1"]) == 0
        assert [line.get_label() for line in drawn[1].axes[0].lines] == ["dwp-ab-gw"]
    assert plot_training.main(what) == 0
    assert Path("training.png").read_bytes()[:4] == b"\x89PNG"
    capsys.readouterr()
    for wrong, says in (
        (["nowhere.csv"], "Cannot read nowhere.csv"),
        (
            [*what, "--split", "7"],
            "has no finished run with its training's history on yacht, split 7",
        ),
        ([*what, "--output", "a.txt"], "its name must end in one of"),
    ):
        assert plot_training.main(wrong) == 2
        assert says in capsys.readouterr().err
