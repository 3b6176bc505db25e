"""What a sweep tells other processes: its state, in a small file beside the store."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from ..errors import StoreError
from .locks import RunLock, is_locked
from .state import SweepState


class SharedState:
    """The file `STORE.sweep-TOKEN.json`, replaced as a whole and gone when the sweep ends.

    The sweep holds the lock beside it, which the system lifts however the sweep ends: a file without its
    lock is of one that was killed. A sweep goes on where the file cannot be written.
    """

    def __init__(self, store: Path) -> None:
        """Lock a file of a new name."""
        self._path = store.with_name(f"{store.name}.sweep-{secrets.token_hex(4)}.json")
        self._lock = RunLock(self._path.with_suffix(".lock"))
        self._is_ours = _acquire(self._lock)

    def write(self, state: SweepState) -> None:
        """Put a state in place of the one before."""
        if not self._is_ours:
            return
        content = {
            "process": os.getpid(),
            "host": platform.node(),
            "written_at": _now().isoformat(),
            "state": state.as_json(),
        }
        partial = self._path.with_suffix(".partial")
        with contextlib.suppress(OSError):
            partial.write_text(json.dumps(content), encoding="utf-8")
            partial.replace(self._path)

    def close(self) -> None:
        """Remove the file: the sweep is over."""
        if self._is_ours:
            _remove(self._path, self._lock)


def forget_killed(store: Path) -> None:
    """Remove what killed sweeps on a store have left."""
    for path in _files(store, ".lock"):  # which are there before the states are
        lock = RunLock(path)
        if _acquire(lock):
            _remove(path.with_suffix(".json"), lock)
    for path in _files(store):
        if not path.with_suffix(".lock").exists():
            _remove(path, RunLock(path.with_suffix(".lock")))


@dataclass(frozen=True)
class KnownSweep:
    """A sweep that another process does, or did until it was killed.

    :param process: its number, on the machine `host`.
    :param seconds_ago: since it told of `state`.
    """

    process: int
    host: str
    seconds_ago: float
    is_alive: bool
    state: SweepState


def known_sweeps(store: Path) -> list[KnownSweep]:
    """The sweeps on a store that are under way or were killed; nothing is written."""
    return [sweep for path in _files(store) if (sweep := _read(path)) is not None]


def _read(path: Path) -> KnownSweep | None:
    """None for a file that has gone, or is of another version."""
    is_alive = is_locked(path.with_suffix(".lock"))  # before the file, which goes first
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        written = datetime.fromisoformat(content["written_at"])
        state = SweepState.from_json(content["state"])
        seconds = max(0.0, (_now() - written).total_seconds())
        return KnownSweep(content["process"], content["host"], seconds, is_alive, state)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _files(store: Path, end: str = ".json") -> Iterable[Path]:
    """Of sweeps on a store."""
    start = f"{store.name}.sweep-"
    try:
        names = sorted(os.listdir(store.parent))
    except OSError:
        return []
    return [
        store.with_name(name) for name in names if name.startswith(start) and name.endswith(end)
    ]


def _acquire(lock: RunLock) -> bool:
    try:
        return lock.acquire()
    except StoreError:  # the folder cannot be written
        return False


def _remove(path: Path, lock: RunLock) -> None:
    """Remove a file that is of no living sweep, and then its lock."""
    with contextlib.suppress(OSError):
        for suffix in (".json", ".partial"):
            path.with_suffix(suffix).unlink(missing_ok=True)
        lock.release()


def _now() -> datetime:
    return datetime.now(timezone.utc)
