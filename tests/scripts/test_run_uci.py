"""The command line: what it prints, its exit codes, and that bad input is one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from script_cases import load_script

from bayesian_benchmarks.command_line import run_program
from bayesian_benchmarks.store import ResultsStore

Main = Callable[[list[str]], int]
REPOSITORY = Path(__file__).resolve().parents[2]
ROWS_OF_OURS = REPOSITORY / "results" / "archive" / "ober2023.csv"
SCRIPT = REPOSITORY / "scripts" / "run_uci.py"
PLUGINS = REPOSITORY / "tests" / "bayesian_benchmarks"
FAKE = ["--plugin", "fake_models", "--models", "fake", "--steps", "30"]
FAKE_DATA = [*FAKE, "--datasets", "fake-data", "--depths", "2"]


@pytest.fixture(scope="module")
def run_uci() -> ModuleType:
    return load_script("run_uci")


@pytest.fixture(scope="module")
def run_fake(run_uci: ModuleType) -> Callable[[list[str]], int]:
    """The same command line of a task that needs no TensorFlow."""
    program = replace(
        run_uci.PROGRAM, task="fake", configs=PLUGINS, config="fake", config_of_datasets="fake"
    )
    return lambda arguments: run_program(program, ["--plugin", "fake_models", *arguments])


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty working directory, in which the plugin is found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(PLUGINS)
    path = [str(PLUGINS), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    monkeypatch.setenv("BAYESIAN_BENCHMARKS_CACHE", str(tmp_path / "cache"))
    for name in ("DATA", "MIRROR"):
        monkeypatch.delenv(f"BAYESIAN_BENCHMARKS_{name}", raising=False)


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(SCRIPT), *arguments]


def test_help_explains_and_is_quick() -> None:
    # A bound far above the second that it takes, and far below what importing TensorFlow takes
    # with it: that no such import happens is what the next test checks.
    done = subprocess.run(command("--help"), capture_output=True, text=True, timeout=20)
    assert done.returncode == 0
    for part in ("examples:", "--retry-failed", "--data-dir", "exit codes:", "SIGKILL"):
        assert part in done.stdout


def test_tensorflow_is_not_imported_for_bad_arguments_or_tables() -> None:
    code = (
        "import runpy, sys\n"
        "sys.argv = ['run_uci.py', '--tables-only']\n"
        "try:\n"
        f"    runpy.run_path({str(SCRIPT)!r}, run_name='__main__')\n"
        "except SystemExit as exit:\n"
        "    print(exit.code, 'tensorflow' in sys.modules, 'gpflow_dkp' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "0 False False\n"


def test_list(run_uci: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_uci.main(["--list"]) == 0
    out = capsys.readouterr().out
    for part in ("yacht", "diabetes", "dwp-ab-gw", "dgp", "crps", "ober2023", "quick", "5 splits"):
        assert part in out


def test_a_sweep_and_its_table(run_fake: Main, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*FAKE_DATA, "--splits", "0-1", "--format", "markdown"]
    assert run_fake(arguments) == 0
    out, err = capsys.readouterr()
    assert "| fake-data | 2 | fake | 30 | 2 |" in out
    assert "2 runs of 30 steps (config fake), 2 due" in err
    assert "[2/2] fake-data split 1 fake depth 2: " in err
    assert len(ResultsStore("runs/results.sqlite").rows("ok")) == 2

    assert run_fake(arguments) == 0
    assert "2 runs were in runs/results.sqlite already" in capsys.readouterr().err


def test_export_import_and_tables_only(run_fake: Main, capsys: pytest.CaptureFixture[str]) -> None:
    shown = [*FAKE_DATA, "--splits", "0-1", "--format", "csv", "--metrics", "mean_1"]
    assert run_fake([*shown, "--export", "results/rows.csv", "--jobs", "2"]) == 0
    first = capsys.readouterr()
    assert "2 rows in results/rows.csv" in first.err
    other = ["--store", "other.sqlite", "--import", "results/rows.csv", "--tables-only"]
    assert run_fake([*shown, *other]) == 0
    assert capsys.readouterr().out == first.out
    assert first.out.splitlines()[1].startswith("fake-data,2,fake,30,mean_1,")


def test_an_export_over_another_file_is_refused_before_the_sweep(
    run_uci: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("houses.csv").write_text("a,y\n1,2\n")
    assert run_uci.main([*FAKE_DATA, "--splits", "0", "--export", "houses.csv"]) == 2
    err = capsys.readouterr().err
    assert err == (
        "run_uci.py: houses.csv is there and is no export of a results store; choose another name.\n"
    )
    assert Path("houses.csv").read_text() == "a,y\n1,2\n"
    assert not Path("runs").exists()


def test_comparison_across_configs_is_of_the_experiments_datasets(
    run_uci: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    rows_of = {"ober2023": ROWS_OF_OURS, "wild2022": REPOSITORY / "results" / "wild2022.csv"}
    for name, rows in rows_of.items():
        assert run_uci.main(["--config", name, "--import", str(rows), "--tables-only"]) == 0
    capsys.readouterr()
    what = ["--config", "wild2022", "--datasets", "boston", "--tables-only", "--format", "markdown"]
    assert run_uci.main([*what, "--paired", "test_log_likelihood", "--across"]) == 0
    out = capsys.readouterr().out
    assert "| boston | 2 | dwp-ab-gw | 20000 | 3 |" in out
    assert "| boston | 1 | gwi-net-selected | 10000 | 3 |" in out
    assert "yacht" not in out


def test_rows_of_one_version_of_the_code(
    run_fake: Main, capsys: pytest.CaptureFixture[str]
) -> None:
    what = [*FAKE_DATA, "--splits", "0-1", "--format", "markdown"]
    assert run_fake(what) == 0
    store = ResultsStore("runs/results.sqlite")
    for row, code in zip(store.rows(), ("abc123", "def456"), strict=True):
        store.add(replace(row, fingerprint=code), replace=True)
    capsys.readouterr()
    assert run_fake([*what, "--tables-only"]) == 0
    assert "| fake | 30 | 2† |" in capsys.readouterr().out
    assert run_fake([*what, "--tables-only", "--code", "abc"]) == 0
    assert "| fake | 30 | 1 |" in capsys.readouterr().out
    assert run_fake([*what, "--tables-only", "--code", "bc"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.endswith("Unknown code of the rows 'bc'. Known: abc123, def456.\n")


def test_failed_runs_are_told(run_fake: Main, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*FAKE_DATA, "--models", "fake", "fake-broken", "--splits", "0"]
    assert run_fake(arguments) == 1
    out, err = capsys.readouterr()
    assert "fake-broken" not in out
    assert "FAILED: RuntimeError: this model never works" in err
    assert "1 runs failed and are not in the table" in err
    assert run_fake([*arguments, "--tables-only", "--remove"]) == 0
    assert "2 rows removed" in capsys.readouterr().out
    assert ResultsStore("runs/results.sqlite").rows() == []


def test_a_baseline_whose_runs_failed_keeps_the_exit_code_of_failed_runs(
    run_fake: Main, capsys: pytest.CaptureFixture[str]
) -> None:
    what = [*FAKE_DATA, "--models", "fake", "fake-broken", "--splits", "0"]
    what += ["--paired", "mean_1", "--baseline", "fake-broken", "--export", "rows.csv"]
    assert run_fake(what) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("run_uci.py: Unknown model among the finished runs 'fake-broken'.")
    assert Path("rows.csv").exists()
    assert run_fake([*what, "--tables-only"]) == 2


def test_own_csv(run_fake: Main, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "\n".join(f"{i},{i % 7},{i * 3 % 11}" for i in range(30))
    (tmp_path / "houses.csv").write_text(f"rooms,age,price\n{rows}\n")
    arguments = [*FAKE, "--csv", "houses.csv", "--target", "price", "--format", "markdown"]
    assert run_fake(arguments) == 0
    assert "| houses.csv | 2 | fake | 30 | 1 |" in capsys.readouterr().out


def test_tables_of_nothing(run_uci: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_uci.main(["--tables-only"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "No finished run of this experiment in runs/results.sqlite.\n"


def csv_of(text: str) -> str:
    Path("bad.csv").write_text(text)
    return "bad.csv"


ROWS = "".join(f"{i},{i * i}\n" for i in range(12))
BAD_CSV = {
    "a,b\n1,\n" + ROWS: "1 value is missing or infinite, the first in row 1",
    "a,b\nred,1\n" + ROWS: "not numbers in column a",
    "a,b\n1,2\n": "has 1 row; at least 10",
    "a,c\n" + ROWS: "Unknown target column of bad.csv 'b'",
    "": "bad.csv is empty",
    "a,b\n" + "1,2\n" * 12: "the target 'b' is 2 in every row",
}


@pytest.mark.parametrize("text", BAD_CSV)
def test_bad_csv_is_one_line(
    run_uci: ModuleType, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert run_uci.main(["--csv", csv_of(text), "--target", "b"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("run_uci.py: ")
    assert err.count("\n") == 1
    assert BAD_CSV[text] in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--datasets", "yatch"], "Unknown dataset 'yatch'. Did you mean yacht?"),
        (["--models", "dwp-abgw"], "Unknown model 'dwp-abgw'. Did you mean dwp-ab-gw"),
        (["--metrics", "rmse"], "Unknown metric 'rmse'. Did you mean test_rmse?"),
        (["--splits", "20"], "diabetes has no split 20; its 20 splits are 0 to 19."),
        (["--splits", "4-1"], "--splits: '4-1' goes down; write 1-4."),
        (["--splits", "one"], "'one' is not a number, a range such as 0-4, or all"),
        (["--steps", "0"], "--steps: num_steps: input should be greater than or equal to 1"),
        (["--depths", "0"], "dwp-ab-gw has a depth of at least 1, got 0"),
        (["--depths", "-1"], "depths: a depth is from 0 to 1000 (got"),
        (["--models", "cvae-50"], "cvae-50 is a model of density; it cannot be run in regression"),
        (["--seeds", "99999999999999999999"], "seeds: a seed is from 0 to 2147483647"),
        (["--splits", "0-99999999999"], "--splits: '0-99999999999' is too large"),
        (["--steps", "99999999999"], "--steps: num_steps: input should be less than or equal"),
        (["--plugin", "../../evil"], "The plugin '../../evil' is no module's name"),
        (["--plugin", ""], "The plugin '' is no module's name"),
        (["--max-run-seconds", "nan"], "--max-run-seconds is nan; it must be above 0"),
        (["--across"], "--across is of --paired METRIC or --ranks METRIC"),
        (["--export", "/dev/null/rows.csv", "--tables-only"], "/dev/null/rows.csv"),
        (["--jobs", "0"], "--jobs is 0; it must be at least 1."),
        (["--config", "nothing"], "Cannot read the config nothing (No such file or directory)"),
        (["--plugin", "nothing_here"], "Cannot import the plugin nothing_here"),
        (["--target", "a"], "A target is given but no CSV file"),
        (["--csv", "no.csv"], "Cannot read no.csv (No such file or directory)"),
        (["--import", "no.csv"], "Cannot read no.csv"),
        (["--store", "/dev/null/results.sqlite"], "Cannot make the folder of the store"),
        (["--datasets", "yacht", "--data-dir", "no"], "The data directory no does not exist."),
        (["--datasets", "yacht", "--data-dir", "."], "Cannot read yacht/data/data.txt in the data"),
    ],
)
def test_bad_arguments_are_one_line(
    run_uci: ModuleType,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    assert run_uci.main(arguments) == 2
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if " steps (config " not in line]
    assert out == ""
    assert len(lines) == 1
    assert lines[0].startswith("run_uci.py: ")
    assert message in lines[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--paired", "coverage_90"], "Unknown metric to compare models by 'coverage_90'"),
        (
            ["--paired", "crps", "--baseline", "fake-nan"],
            "Unknown baseline among the models of this experiment 'fake-nan'",
        ),
    ],
)
def test_a_comparison_that_cannot_be_made_is_refused_before_the_sweep(
    run_uci: ModuleType, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run_uci.main([*FAKE_DATA, "--splits", "0", *arguments]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("arguments", "environment", "code"),
    [
        (["--list"], {}, 1),
        (["--config", "ober2023", "--import", str(ROWS_OF_OURS), "--tables-only"], {}, 1),
        (
            ["--config", "ober2023", "--import", str(ROWS_OF_OURS), "--tables-only"],
            {"PYTHONIOENCODING": "ascii"},
            0,
        ),
    ],
    ids=["full list", "full table", "ascii table"],
)
def test_output_that_cannot_be_written_is_no_traceback(
    arguments: list[str], environment: dict[str, str], code: int
) -> None:
    with open(os.devnull if environment else "/dev/full", "w") as output:
        done = subprocess.run(
            command(*arguments),
            env=os.environ | environment,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert ("No space left on device" in done.stderr) == (code == 1)


def test_bad_input_exits_with_2_and_no_traceback() -> None:
    done = subprocess.run(command("--datasets", "yatch"), capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_interrupt_says_how_to_go_on() -> None:
    arguments = [*FAKE_DATA, "--splits", "0"]
    running = subprocess.Popen(
        command(*arguments),
        env=os.environ | {"FAKE_STEP_SECONDS": "0.2", "FAKE_LOG": "log"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Under nohup and the like the tests' own SIGINT is ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + 30
    while not Path("log").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=20)
    assert running.returncode == 130
    assert err.splitlines()[1:] == [
        "run_uci.py: interrupted; what is finished is stored, and the same command goes on from "
        "there."
    ]
