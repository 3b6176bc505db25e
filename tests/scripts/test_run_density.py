"""The command line for conditional densities: what differs from that for regression."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from script_cases import load_script


@pytest.fixture(scope="module")
def run_density() -> ModuleType:
    return load_script("run_density")


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BAYESIAN_BENCHMARKS_DATA", raising=False)


def test_list(run_density: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_density.main(["--list"]) == 0
    out = capsys.readouterr().out
    for part in ("houseelectric", "energy-gal", "lv-gp-gp:iwvi", "shapiro_wilk", "salimbeni2019"):
        assert part in out
    assert "digits" not in out


@pytest.mark.usefixtures("workers_here")
def test_run_table_and_ranks(run_density: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    what = ["--config", "quick_density", "--steps", "4", "--models", "gp"]
    what += ["--format", "markdown"]
    assert run_density.main(what) == 0
    assert "| diabetes | - | gp | 4 | 1 |" in capsys.readouterr().out
    ranks = ["--tables-only", "--ranks", "test_log_likelihood_mixture"]
    assert run_density.main([*what, *ranks]) == 0
    assert "median difference to gp |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ranks", "coverage_90"], "metric to compare models by"),
        (["--ranks", "crps", "--paired", "crps"], "two tables; ask for one"),
        (["--baseline", "gp"], "--baseline is of --paired METRIC or --ranks METRIC"),
        (["--models", "lv-xx-gp"], "lv-xx-gp"),
        (["--config", "aitchison2021"], "an experiment in regression, not density"),
    ],
)
def test_bad_input_is_one_line(
    run_density: ModuleType,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    assert run_density.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert message in captured.err
