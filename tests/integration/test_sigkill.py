"""SIGKILL a training process, go on in another, and compare with a run that nobody killed."""

import json
import signal
import subprocess
import time
from pathlib import Path

import killed_run
import pytest

# In the process of the README's examples, which run while the other one starts.
pytestmark = pytest.mark.xdist_group("README.md")


def step_of(directory: Path) -> int:
    try:
        return int(json.loads((directory / "latest.json").read_text())["step"])
    except FileNotFoundError:
        return 0


def test_killed_run_ends_with_the_numbers_of_an_unbroken_one(
    held_run: tuple[subprocess.Popen, Path, Path], tmp_path: Path
) -> None:
    """Both in this process, which has compiled and run other things."""
    process, checkpoints, result = held_run
    killed_run.run(tmp_path / "unbroken", tmp_path / "unbroken.json")
    deadline = time.monotonic() + 300
    while step_of(checkpoints) < 30 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL
    assert 30 <= step_of(checkpoints) < killed_run.NUM_STEPS
    assert not result.exists()
    killed_run.run(checkpoints, result)
    of_killed, of_unbroken = (
        json.loads(path.read_text()) for path in (result, tmp_path / "unbroken.json")
    )
    assert len(of_killed[1]) == killed_run.NUM_STEPS
    assert of_killed == of_unbroken
