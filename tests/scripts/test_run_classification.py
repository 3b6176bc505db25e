"""The command line for classification: what differs from that for regression."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest
from script_cases import load_script

REPOSITORY = Path(__file__).resolve().parents[2]
PLUGINS = REPOSITORY / "tests" / "bayesian_benchmarks"


@pytest.fixture(scope="module")
def run_classification() -> ModuleType:
    return load_script("run_classification")


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(PLUGINS)
    path = [str(PLUGINS), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    monkeypatch.delenv("BAYESIAN_BENCHMARKS_DATA", raising=False)


def test_list(run_classification: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_classification.main(["--list"]) == 0
    out = capsys.readouterr().out
    for part in ("digits", "mnist_10k", "cifar10", "diwp:relu", "brier_score", "classification"):
        assert part in out
    assert "yacht" not in out


def test_help_says_where_the_data_are_kept(
    run_classification: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run_classification.main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "or download once to Keras' cache, $KERAS_HOME/datasets (default ~/.keras/datasets)" in text
    )
    assert "BAYESIAN_BENCHMARKS_CACHE" not in text


def test_run_table_paired_table_and_diagram(
    run_classification: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    what = ["--config", "quick_classification", "--datasets", "iris", "--steps", "4"]
    what += ["--plugin", "fake_models", "--models", "fake-classes", "--format", "markdown"]
    assert run_classification.main([*what, "--reliability", "a.png"]) == 0
    captured = capsys.readouterr()
    assert "| accuracy | brier_score | expected_calibration_error |" in captured.out
    assert "1 panels in a.png" in captured.err
    assert Path("a.png").stat().st_size > 1000
    assert run_classification.main([*what, "--tables-only", "--paired", "accuracy"]) == 0
    assert "| mean | difference | published |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--datasets", "yacht"], "Unknown dataset 'yacht'"),
        (["--config", "ober2023"], "ober2023 is an experiment in regression, not classification"),
        (["--metrics", "test_rmse"], "Unknown metric 'test_rmse'"),
        (["--paired", "rmse"], "Unknown metric 'rmse'"),
        (["--baseline", "dgp"], "--baseline is of --paired METRIC"),
        (["--datasets", "mnist", "--data-dir", "nowhere"], "nowhere does not exist"),
        (["--csv", "no.csv"], "Cannot read no.csv (No such file or directory)"),
        (["--target", "a"], "A target is given but no CSV file"),
        (["--reliability", "a.bmp"], "the picture a.bmp: its name must end in one of ."),
        (["--reliability", "a"], "the picture a: its name must end in one of ."),
        (["--reliability", "no/a.png"], "the picture no/a.png: make the folder no first."),
    ],
)
def test_bad_arguments_are_one_line(
    run_classification: ModuleType,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    assert run_classification.main([*arguments, "--steps", "4"]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.splitlines()[-1].startswith("run_classification.py: ")


def test_own_csv(
    run_classification: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = "\n".join(f"{i},{i % 3},{i * 7 % 5}" for i in range(30))
    (tmp_path / "flowers.csv").write_text(f"length,species,width\n{rows}\n")
    what = ["--csv", "flowers.csv", "--plugin", "fake_models", "--models", "fake-classes"]
    what += ["--steps", "4", "--splits", "0-1", "--format", "markdown"]
    assert run_classification.main([*what, "--target", "species"]) == 0
    assert "| flowers.csv | 2 | fake-classes | 4 | 2 |" in capsys.readouterr().out
    assert run_classification.main([*what, "--target", "length"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("run_classification.py: flowers.csv: Class 0 has 1 row; ")
    assert err.count("\n") == 1


def test_rows_are_exported_and_no_diagram_is_drawn_when_every_run_failed(
    run_classification: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    what = ["--plugin", "fake_models", "--models", "fake-broken", "--datasets", "iris"]
    what += ["--splits", "0", "--steps", "4", "--reliability", "a.png", "--export", "rows.csv"]
    assert run_classification.main(what) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "1 rows in rows.csv" in captured.err
    last = captured.err.splitlines()[-1]
    assert last == "No finished run of this experiment in runs/results.sqlite."
    assert Path("rows.csv").read_text().count("failed") == 1
    assert not Path("a.png").exists()
