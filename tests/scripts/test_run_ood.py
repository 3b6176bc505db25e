"""The command line for out-of-distribution detection: what differs from that for classification."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest
from script_cases import load_script

PLUGINS = Path(__file__).resolve().parents[1] / "bayesian_benchmarks"


@pytest.fixture(scope="module")
def run_ood() -> ModuleType:
    return load_script("run_ood")


@pytest.fixture(autouse=True)
def ood_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(PLUGINS)
    path = [str(PLUGINS), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    monkeypatch.delenv("BAYESIAN_BENCHMARKS_DATA", raising=False)


def test_list_of_pairs(run_ood: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_ood.main(["--list"]) == 0
    out = capsys.readouterr().out
    for part in (
        "digits_rotated",
        "cifar10_vs_svhn",
        "nngp:relu",
        "auroc_variance",
        "wild2022_ood",
    ):
        assert part in out
    assert "yacht" not in out


def test_help_says_where_svhn_belongs(
    run_ood: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run_ood.main(["--help"])
    text = capsys.readouterr().out
    assert "DIR/svhn/test_32x32.mat" in text
    assert "--csv" not in text


@pytest.mark.usefixtures("workers_here")
def test_a_short_ood_run_and_its_tables(
    run_ood: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    what = ["--config", "quick_ood", "--datasets", "digits_rotated", "--models", "mlp-map"]
    what += ["--steps", "4", "--format", "markdown"]
    assert run_ood.main(what) == 0
    out = capsys.readouterr().out
    assert "| accuracy | auroc_entropy | auroc_max_probability | auroc_variance |" in out
    assert "| digits_rotated | 2 | mlp-map | 4 | 1 |" in out
    assert run_ood.main([*what, "--tables-only", "--paired", "auroc_entropy"]) == 0
    assert "| mean | difference | published |" in capsys.readouterr().out


@pytest.mark.usefixtures("workers_here")
def test_the_demonstration_of_a_model_that_finds_every_class_equally_probable(
    run_ood: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    what = ["--plugin", "fake_models", "--models", "fake-classes", "--steps", "4"]
    assert run_ood.main([*what, "--format", "csv", "--metrics", "auroc_entropy"]) == 0
    captured = capsys.readouterr()
    assert "2 runs of 4 steps" in captured.err
    for name in ("digits_noisy", "digits_rotated"):
        assert f"{name},2,fake-classes,4,auroc_entropy,0.5,,1," in captured.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--datasets", "digits_rotatd"],
            "Unknown dataset 'digits_rotatd'. Did you mean digits_ro",
        ),
        (["--datasets", "digits"], "Unknown dataset 'digits'"),
        (["--config", "quick_classification"], "an experiment in classification, not ood"),
        (["--metrics", "auc"], "Unknown metric 'auc'"),
        (["--csv", "a.csv"], "a.csv: one table has no out-distribution"),
        (["--paired", "num_test_points"], "Unknown metric to compare models by 'num_test_points'"),
        (["--datasets", "mnist_10k_halves", "--data-dir", "."], "There is no folder mnist in"),
        (["--datasets", "cifar10_vs_svhn", "--data-dir", "no"], "directory no does not exist"),
    ],
)
def test_bad_ood_arguments_are_one_line(
    run_ood: ModuleType,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    assert run_ood.main([*arguments, "--steps", "4"]) == 2
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if not line.endswith("steps")]
    assert len(lines) == 1
    assert lines[0].startswith("run_ood.py: ")
    assert message in lines[0]
    assert captured.out == ""
