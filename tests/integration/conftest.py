"""A run in another process, which imports TensorFlow while other tests go on."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import killed_run
import pytest

HELD = """
import sys, time, killed_run
from gpflow_dkp.training import fit

def hold(step):
    if step == killed_run.NUM_STEPS:
        time.sleep(3600.0)

killed_run.fit = lambda *data, **settings: fit(*data, **settings, callbacks=[hold])
killed_run.run(*sys.argv[1:])
"""
"""The run of `killed_run`, but before its last checkpoint it waits to be killed."""


@pytest.fixture(scope="session")
def held_run(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[subprocess.Popen, Path, Path]]:
    """The process, its folder of checkpoints, and where its result would be."""
    folder = tmp_path_factory.mktemp("held")
    checkpoints, result = folder / "checkpoints", folder / "result.json"
    process = subprocess.Popen(
        [sys.executable, "-c", HELD, str(checkpoints), str(result)],
        cwd=Path(killed_run.__file__).parent,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stderr=subprocess.DEVNULL,
    )
    yield process, checkpoints, result
    process.kill()
    process.wait(30)
