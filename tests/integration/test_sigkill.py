"""SIGKILL a training process, start it again, and compare with a run that nobody killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import killed_run

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


def start(directory: Path, result: Path, program: Sequence[str]) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, *program, str(directory), str(result)],
        cwd=Path(killed_run.__file__).parent,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stderr=subprocess.DEVNULL,
    )


def step_of(directory: Path) -> int:
    try:
        return int(json.loads((directory / "latest.json").read_text())["step"])
    except FileNotFoundError:
        return 0


def test_killed_run_ends_with_the_numbers_of_an_unbroken_one(tmp_path: Path) -> None:
    directory, result = tmp_path / "killed", tmp_path / "killed.json"
    process = start(directory, result, ["-c", HELD])
    deadline = time.monotonic() + 300
    try:
        while step_of(directory) < 100 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait(30)
    assert 100 <= step_of(directory) < killed_run.NUM_STEPS
    assert not result.exists()

    resumed = start(directory, result, [killed_run.__file__])
    try:
        # Beside it, and in a process that has compiled and run other things.
        killed_run.run(tmp_path / "unbroken", tmp_path / "unbroken.json")
        assert resumed.wait(300) == 0
    finally:
        resumed.kill()
        resumed.wait(30)
    killed, unbroken = (
        json.loads((tmp_path / f"{n}.json").read_text()) for n in ("killed", "unbroken")
    )
    assert len(killed[1]) == killed_run.NUM_STEPS
    assert killed == unbroken
