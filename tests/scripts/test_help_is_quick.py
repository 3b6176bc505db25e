"""Help needs nothing that takes long to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bayesian_benchmarks.commands import COMMANDS as COMMANDS_OF_BENCH

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bayesian_benchmarks" / "__main__.py"
COMMANDS = [
    *([script] for script in sorted((ROOT / "scripts").glob("*.py"))),
    [ROOT / "gpflow_dkp" / "__main__.py"],
    [BENCH],
    *([BENCH, name] for name in COMMANDS_OF_BENCH),
]
PROGRAM = """
import runpy, sys
sys.argv = [*sys.argv[1:], "--help"]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    assert not end.code
slow = {"tensorflow", "gpflow", "pandas", "scipy", "sklearn", "matplotlib", "optuna"} & set(sys.modules)
assert not slow, slow
"""


@pytest.mark.parametrize(
    "command", COMMANDS, ids=lambda parts: "-".join(Path(p).name for p in parts)
)
def test_help_imports_nothing_slow(command: list[Path | str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, command)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout


def test_importing_the_library_prints_nothing_and_loads_nothing_slow() -> None:
    program = "import sys, gpflow_dkp; assert 'tensorflow' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not done.stdout
    assert not done.stderr
