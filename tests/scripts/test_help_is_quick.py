"""Help needs nothing that takes long to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [*sorted((ROOT / "scripts").glob("*.py")), ROOT / "gpflow_dkp" / "__main__.py"]
PROGRAM = """
import runpy, sys
sys.argv = [sys.argv[1], "--help"]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    assert not end.code
slow = {"tensorflow", "gpflow", "pandas", "scipy", "sklearn", "matplotlib"} & set(sys.modules)
assert not slow, slow
"""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_help_imports_nothing_slow(script: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(script)],
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
