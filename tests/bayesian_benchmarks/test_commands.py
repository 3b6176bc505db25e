"""`dkp-bench`: one command line, whose configs are found by name from anywhere, also in a wheel."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bayesian_benchmarks import load_experiment
from bayesian_benchmarks.commands import COMMANDS, main
from bayesian_benchmarks.configs import CONFIGS, find_config, list_configs
from bayesian_benchmarks.errors import ConfigError

REPOSITORY = Path(__file__).resolve().parents[2]
QUICK = ("--steps", "5", "--models", "svgp", "--splits", "0")


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another working directory than the source's, which is found from there."""
    monkeypatch.chdir(tmp_path)
    path = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bayesian_benchmarks", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_installed_command_is_the_modules() -> None:
    text = (REPOSITORY / "pyproject.toml").read_text()
    found = re.search(r'^dkp-bench = "(.+):(.+)"$', text, re.MULTILINE)
    assert found is not None
    assert getattr(importlib.import_module(found[1]), found[2]) is main


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ucy"], "dkp-bench: Unknown command 'ucy'. Did you mean uci? Known: "),
        (["uci", "--config", "nothing"], "dkp-bench uci: Cannot read the config nothing "),
        (["ood", "--config", "quick"], "dkp-bench ood: quick is an experiment in regression"),
        (["report", "nothing.csv"], "dkp-bench report: Cannot read nothing.csv; give a results"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str) -> None:
    done = bench(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1


@pytest.mark.usefixtures("workers_here")
def test_a_sweep_from_another_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ("--store", "mine/quick.sqlite", "--tensorboard", "bounds")
    assert main(["uci", *QUICK, "--format", "markdown", *where]) == 0
    out, err = capsys.readouterr()
    assert "1 runs of 5 steps (config quick), 1 due" in err
    assert "| diabetes | 2 | svgp | 5 fast | 1 |" in out
    assert (tmp_path / "mine" / "quick.sqlite").is_file()
    assert len(list(tmp_path.glob("bounds/*svgp*/events.*"))) == 1


def test_a_report_from_another_folder(tmp_path: Path) -> None:
    rows = REPOSITORY / "results" / "archive" / "ober2023.csv"
    done = bench("report", str(rows), "--markdown", "tables.md")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("tables.md: ")
    assert "dwp-ab-gw" in (tmp_path / "tables.md").read_text()


@pytest.mark.parametrize("task", ["uci", "density", "classification", "ood"])
def test_each_command_lists_the_configs_of_its_task(
    task: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([task, "--list"]) == 0
    listed = set(capsys.readouterr().out.partition("configs:\n")[2].split())
    program = importlib.import_module(f"bayesian_benchmarks.commands.{task}").PROGRAM
    of_task = {name for name in list_configs() if load_experiment(name).task == program.task}
    assert listed == of_task
    assert {program.config, program.config_of_datasets} <= listed


def test_a_config_is_found_by_name_or_path(tmp_path: Path) -> None:
    assert find_config("quick") == CONFIGS / "quick.yaml"
    assert find_config("configs/quick.yaml") == CONFIGS / "quick.yaml"
    own = tmp_path / "configs" / "quick.yaml"
    own.parent.mkdir()
    own.write_text((CONFIGS / "ober2023.yaml").read_text())
    assert find_config("configs/quick.yaml") == Path("configs/quick.yaml")
    assert find_config(own) == own
    assert load_experiment(own) == load_experiment("ober2023")
    with pytest.raises(ConfigError, match=r"config ober2024 .* one of aitchison2021, .*ober2023,"):
        load_experiment("ober2024")


def test_a_wheel_has_every_config() -> None:
    """What setuptools takes into one, by its own rules."""
    program = (
        "from setuptools.dist import Distribution\n"
        "distribution = Distribution()\n"
        "distribution.parse_config_files()\n"
        "build = distribution.get_command_obj('build_py')\n"
        "build.finalize_options()\n"
        "build.manifest_files = {}  # what is under version control plays no part\n"
        "print(*build.find_data_files('bayesian_benchmarks', 'bayesian_benchmarks'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    names = {Path(path).stem for path in done.stdout.split() if Path(path).suffix == ".yaml"}
    assert set(list_configs()) <= names
    assert len(list_configs()) > 10
