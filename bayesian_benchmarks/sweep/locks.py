"""Claims on files: one process of those that share a folder has each, and a dead one's can be taken over.

No lock of the system's plays a part, since these do not hold over every network file system: a claim is a
file that was created exclusively, whose holder beats in it now and then.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..errors import StoreError

BEAT_SECONDS = 5.0
"""Between two beats of a claim."""

STALE_SECONDS = 60.0
"""Without a beat, after which a claim of another machine is taken over."""

UNWRITTEN_SECONDS = 10.0
"""The same of one that says nothing, whose holder was killed between creating and writing it."""


@dataclass(frozen=True)
class Holder:
    """What a claim says of the process that has it.

    :param machine: see `machine`; processes of one machine can look for each other.
    :param started: when the process did, as the system counts: numbers of processes are used again.
    :param token: of this claim alone.
    """

    machine: str
    process: int
    started: str
    token: str

    def is_here(self) -> bool:
        """Whether it is a process of this machine, which can be looked for."""
        return self.machine == machine() and os.name == "posix"

    def is_alive(self) -> bool:
        """Of a process of this machine."""
        return _started(self.process) in (self.started, "?")


class RunLock:
    """An exclusive claim on a run, so that two processes on one folder never train it at once.

    A claim of a dead process of this machine is taken over at once, one of another machine when it has not
    beaten for `STALE_SECONDS`, by this process' clock. A claim can so be lost by a process that was suspended
    for long: `is_held` says whether it was.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._holder: Holder | None = None
        self._writing = threading.Lock()

    def acquire(self) -> bool:
        """Take the claim if no other process has it; returns whether it was taken.

        :raises StoreError: its file cannot be made.
        """
        try:
            if self._create():
                return True
            found = _read(self.path)
            if found is None or not _is_abandoned(self.path, found):
                return False
            return self._take_over(found)
        except OSError as error:
            raise StoreError(
                f"Cannot write to {self.path.parent} ({error.strerror or error})."
            ) from error

    def release(self) -> None:
        """Give the claim back and remove its file."""
        if self._holder is not None:
            _HEART.forget(self)
            with self._writing:
                if self.is_held():
                    self.path.unlink(missing_ok=True)
                self._holder = None

    def is_held(self) -> bool:
        """Whether this process has the claim, and no other one has taken it over, as far as can be seen."""
        if self._holder is None:
            return False
        try:
            return _holder_of(self.path.read_bytes()) == self._holder
        except FileNotFoundError:
            return False
        except OSError:  # such as of a network that does not answer
            return True

    def beat(self) -> None:
        """Say that the holder is alive, in place: a claim that was taken over is left alone."""
        with self._writing, contextlib.suppress(OSError):
            if self._holder is not None and self.is_held():
                with self.path.open("r+b") as file:
                    file.write(_text(self._holder))

    def _create(self) -> bool:
        holder = Holder(machine(), os.getpid(), _started(os.getpid()), secrets.token_hex(8))
        descriptor = self._open()
        if descriptor is None:
            return False
        try:
            os.write(descriptor, _text(holder))
        except OSError:  # such as of a full disk
            self.path.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        self._holder = holder
        _HEART.keep(self)
        return True

    def _open(self) -> int | None:
        """The descriptor of the new file, None where there is one; others may just remove the folder."""
        for _ in range(3):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                return os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            except FileExistsError:
                return None
            except FileNotFoundError:
                continue
        raise FileNotFoundError(f"{self.path.parent} is removed again and again")

    def _take_over(self, abandoned: bytes) -> bool:
        """Remove another's claim and make an own one, unless others are faster at either.

        Of those that found this claim abandoned one may remove it: the one that has the claim on that.
        """
        holder = _holder_of(abandoned)
        right = RunLock(self.path.with_name(f"{self.path.name}-{holder.token if holder else ''}"))
        if not right.acquire():
            return False
        try:
            if _holder_of(_read(self.path)) == holder:
                self.path.unlink(missing_ok=True)
        finally:
            right.release()
        return self._create()


def is_locked(path: Path) -> bool:
    """Whether a living process has the claim of this file, which is only read.

    Of another machine's, by when it last beat and the two machines' clocks.
    """
    try:
        written = path.stat().st_mtime
    except OSError:
        return False
    holder = _holder_of(_read(path))
    if holder is not None and holder.is_here():
        return holder.is_alive()
    return time.time() - written < STALE_SECONDS


class _Heart:
    """The thread that beats for all claims of this process."""

    def __init__(self) -> None:
        self._claims: set[RunLock] = set()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def keep(self, claim: RunLock) -> None:
        """Beat for a claim from now on."""
        with self._guard:
            self._claims.add(claim)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._beat, name="claims", daemon=True)
                self._thread.start()

    def forget(self, claim: RunLock) -> None:
        """Beat for it no longer."""
        with self._guard:
            self._claims.discard(claim)

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT_SECONDS)
            with self._guard:
                claims = list(self._claims)
            for claim in claims:
                claim.beat()


_HEART = _Heart()

_SEEN: dict[Path, tuple[bytes, float]] = {}
"""Other machines' claims: what each said when it last changed, and when that was seen."""


def _is_abandoned(path: Path, content: bytes) -> bool:
    """Whether a claim's holder is dead, or has not been heard of for long."""
    holder = _holder_of(content)
    if holder is None:
        try:
            return time.time() - path.stat().st_mtime > UNWRITTEN_SECONDS
        except OSError:
            return False
    if holder.is_here():
        return not holder.is_alive()
    now = time.monotonic()
    before, since = _SEEN.get(path, (None, now))
    if before != content:
        _SEEN[path] = content, now
        return False
    if now - since < STALE_SECONDS:
        return False
    del _SEEN[path]
    return True


def _text(holder: Holder) -> bytes:
    """What a claim's file holds; its length does not depend on the time."""
    return json.dumps(vars(holder) | {"beat": f"{time.time():017.6f}"}).encode()


def _read(path: Path) -> bytes | None:
    """What a claim's file holds, read anew also over a network; None where there is none."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def _holder_of(content: bytes | None) -> Holder | None:
    """Who has a claim; None where that is not said."""
    try:
        said = json.loads(content or b"")
        return Holder(said["machine"], said["process"], said["started"], said["token"])
    except (ValueError, TypeError, KeyError):
        return None


@cache
def machine() -> str:
    """This machine since it was started, and the container in it: where a number names one process."""
    parts = [platform.node()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    return " ".join(parts)


def _started(process: int) -> str:
    """When a process of this machine started; "" where there is none, "?" where only that is known."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except OSError:
        if os.name != "posix":
            return "?"
    try:
        os.kill(process, 0)  # of systems that have no /proc
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "?"
