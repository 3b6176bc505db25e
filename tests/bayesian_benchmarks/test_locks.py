"""Locks of runs: exclusive, and gone with their holder."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bayesian_benchmarks.errors import StoreError
from bayesian_benchmarks.sweep import locks
from bayesian_benchmarks.sweep.locks import RunLock, is_locked

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
    assert is_locked(path)
    holder.kill()
    holder.communicate()
    assert not is_locked(path)
    assert lock.acquire()
    assert lock.is_held()
    lock.release()
    assert not lock.is_held()
    assert list(path.parent.iterdir()) == []


def test_lock_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Cannot write to"):
        RunLock(tmp_path / "file" / "lock").acquire()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunLock:
    """A claim of another machine, which has not been heard of since."""
    monkeypatch.setattr(locks, "STALE_SECONDS", 0.3)
    monkeypatch.setattr(locks, "UNWRITTEN_SECONDS", 0.2)
    with monkeypatch.context() as there:
        there.setattr(locks, "machine", lambda: "another one")
        lock = RunLock(tmp_path / "lock")
        assert lock.acquire()
    locks._HEART.forget(lock)  # whose thread may be about to beat
    return lock


def test_a_machine_that_is_not_heard_of_loses_its_claim(elsewhere: RunLock) -> None:
    lock = RunLock(elsewhere.path)
    assert is_locked(lock.path)
    assert not lock.acquire()  # it has only now been seen
    time.sleep(0.2)
    elsewhere.beat()
    assert not lock.acquire()  # it has beaten
    time.sleep(0.2)
    assert not lock.acquire()
    time.sleep(0.2)
    assert not is_locked(lock.path)
    assert lock.acquire()
    # The machine was suspended only: it sees that the claim is another's now, and leaves it alone.
    before = lock.path.read_bytes()
    assert not elsewhere.is_held()
    elsewhere.beat()
    elsewhere.release()
    assert lock.path.read_bytes() == before
    assert lock.is_held()
    lock.release()


def test_one_of_many_takes_a_claim_over(elsewhere: RunLock) -> None:
    others = [RunLock(elsewhere.path) for _ in range(8)]
    assert not any(lock.acquire() for lock in others)
    time.sleep(0.4)
    taken: list[bool] = []
    threads = [
        threading.Thread(target=lambda lock=lock: taken.append(lock.acquire())) for lock in others
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == [False] * 7 + [True]
    assert [lock.is_held() for lock in others].count(True) == 1
    assert [path.name for path in elsewhere.path.parent.iterdir()] == ["lock"]


def test_a_claim_that_says_nothing_is_taken_over(elsewhere: RunLock) -> None:
    """As of a process that was killed while it wrote it."""
    for text in ("", '{"machine": "a", "pro'):
        elsewhere.path.write_text(text)
        lock = RunLock(elsewhere.path)
        assert not lock.acquire()
        time.sleep(0.3)
        assert lock.acquire()
        lock.release()


def test_a_claim_beats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(locks, "_HEART", locks._Heart())
    lock = RunLock(tmp_path / "lock")
    assert lock.acquire()
    before = lock.path.read_bytes()
    time.sleep(0.5)
    after = lock.path.read_bytes()
    assert before != after
    assert len(before) == len(after)
    assert lock.is_held()
    lock.release()


def test_a_process_number_that_is_used_again_is_another_process(tmp_path: Path) -> None:
    lock = RunLock(tmp_path / "lock")
    assert lock.acquire()
    text = lock.path.read_text()
    started = locks._started(os.getpid())
    lock.path.write_text(text.replace(f'"{started}"', '"1"'))
    assert not is_locked(lock.path)
    assert RunLock(lock.path).acquire()
