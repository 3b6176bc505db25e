"""Locks of runs: exclusive, and gone with their holder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bayesian_benchmarks.errors import StoreError
from bayesian_benchmarks.sweep.locks import RunLock

HOLDER = """
import sys, time
from pathlib import Path
from bayesian_benchmarks.sweep.locks import RunLock
lock = RunLock(Path(sys.argv[1]))
print(lock.acquire(), flush=True)
time.sleep(60)
"""


def test_lock_is_exclusive_and_ends_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "run" / "lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    lock = RunLock(path)
    assert not lock.acquire()
    holder.kill()
    holder.communicate()
    assert lock.acquire()
    lock.release()
    assert not path.exists()


def test_lock_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Cannot write to"):
        RunLock(tmp_path / "file" / "lock").acquire()
