"""A lock that one process holds on a file, and that ends with the process however it ends."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ..errors import StoreError


class RunLock:
    """An exclusive lock on a run, so that two processes on one store never train it twice.

    SQLite's own file lock: it works on every platform, and the system lifts it when the process is
    killed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None

    def acquire(self) -> bool:
        """Take the lock if no other process has it; returns whether it was taken.

        :raises StoreError: the lock's file cannot be made.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, timeout=0, isolation_level=None)
            self._connection = connection
            connection.execute("BEGIN EXCLUSIVE")
        except (OSError, sqlite3.Error) as error:
            self._close()
            if "locked" in str(error):
                return False
            raise StoreError(f"Cannot write to {self.path.parent} ({error}).") from error
        return True

    def release(self) -> None:
        """Give the lock back and remove its file."""
        if self._connection is not None:
            self.path.unlink(missing_ok=True)
        self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of this file, which is only read."""
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=0)
        try:
            connection.execute("SELECT * FROM sqlite_master").fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        return "locked" in str(error)
    return False
