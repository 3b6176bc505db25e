"""SIGKILL a training process, go on in another, and compare with a run that nobody killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import killed_run
import pytest

HELD = """
import sys, time, killed_run
from gpflow_dkp.training import fit

def hold(step):
    if step == killed_run.NUM_STEPS:
        time.sleep(300.0)

killed_run.fit = lambda *data, **settings: fit(*data, **settings, callbacks=[hold])
killed_run.run(*sys.argv[1:])
"""
"""The same run, but before its last checkpoint it waits to be killed."""


def start_held(directory: Path, result: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", HELD, str(directory), str(result)],
        cwd=Path(killed_run.__file__).parent,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stderr=subprocess.DEVNULL,
    )


def step_of(directory: Path) -> int:
    try:
        return int(json.loads((directory / "latest.json").read_text())["step"])
    except FileNotFoundError:
        return 0


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `checkpoints` of a process that was killed before its last one, and an `unbroken` run.

    That of this process goes on while the other imports TensorFlow.
    """
    folder = tmp_path_factory.mktemp("killed")
    directory = folder / "checkpoints"
    process = start_held(directory, folder / "killed.json")
    deadline = time.monotonic() + 300
    try:
        killed_run.run(folder / "unbroken", folder / "unbroken.json")
        while step_of(directory) < 100 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait(30)
    return folder


def test_killed_run_ends_with_the_numbers_of_an_unbroken_one(killed: Path) -> None:
    """Both in this process, which has compiled and run other things."""
    assert 100 <= step_of(killed / "checkpoints") < killed_run.NUM_STEPS
    result = killed / "killed.json"
    assert not result.exists()
    killed_run.run(killed / "checkpoints", result)
    of_killed, of_unbroken = (
        json.loads((killed / f"{name}.json").read_text()) for name in ("killed", "unbroken")
    )
    assert len(of_killed[1]) == killed_run.NUM_STEPS
    assert of_killed == of_unbroken
