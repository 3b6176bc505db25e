"""SIGKILL a training process, go on in another, and compare with a run that nobody killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
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
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("killed")


@pytest.fixture(scope="module")
def process(folder: Path) -> Iterator[subprocess.Popen]:
    """A run that waits to be killed, with its `checkpoints`. It imports TensorFlow while tests go on."""
    process = start_held(folder / "checkpoints", folder / "killed.json")
    yield process
    process.kill()
    process.wait(30)


@pytest.fixture(scope="module")
def unbroken(process: subprocess.Popen, folder: Path) -> Path:
    """The result of a run of this process, which goes on while the other one starts."""
    killed_run.run(folder / "unbroken", folder / "unbroken.json")
    return folder / "unbroken.json"


@pytest.fixture(scope="module")
def killed(process: subprocess.Popen, unbroken: Path, folder: Path) -> Path:
    """The checkpoints of a run that was killed before its last one."""
    checkpoints = folder / "checkpoints"
    deadline = time.monotonic() + 300
    while step_of(checkpoints) < 30 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL
    return checkpoints


def test_a_run_leaves_its_last_checkpoint_and_its_result(unbroken: Path, folder: Path) -> None:
    assert step_of(folder / "unbroken") == killed_run.NUM_STEPS
    parameters, bounds, _ = json.loads(unbroken.read_text())
    assert parameters
    assert len(bounds) == killed_run.NUM_STEPS


def test_killed_run_ends_with_the_numbers_of_an_unbroken_one(
    killed: Path, unbroken: Path, folder: Path
) -> None:
    """Both in this process, which has compiled and run other things."""
    assert 30 <= step_of(killed) < killed_run.NUM_STEPS
    result = folder / "killed.json"
    assert not result.exists()
    killed_run.run(killed, result)
    assert json.loads(result.read_text()) == json.loads(unbroken.read_text())
