"""The command line for classification: what differs from that for regression."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "run_classification.py"


@pytest.fixture(scope="module")
def run_classification() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_classification", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BAYESIAN_BENCHMARKS_DATA", raising=False)


def test_list(run_classification: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_classification.main(["--list"]) == 0
    out = capsys.readouterr().out
    for part in ("digits", "mnist_10k", "cifar10", "diwp:relu", "brier_score", "classification"):
        assert part in out
    assert "yacht" not in out


def test_run_table_paired_table_and_diagram(
    run_classification: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    what = ["--config", "quick_classification", "--datasets", "iris", "--steps", "4"]
    what += ["--models", "nngp:relu", "nngp:squared_exponential", "--format", "markdown"]
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
        (["--tables-only", "--reliability", "a.png"], "No finished classification run"),
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
