"""The signals that tell a program to end in order: SIGINT, which is Ctrl-C, and SIGTERM."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

_told: list[int] = []
"""The signals of this program that have been told of, and not been seen by `raise_if_told` since."""


class Terminated(BaseException):
    """SIGTERM, which no `except Exception` is to catch."""


@contextlib.contextmanager
def ended_in_order() -> Iterator[None]:
    """The signals as exceptions: workers write checkpoints, and a terminal has its cursor back.

    Python drops an exception that a signal raises while a finalizer runs, so that loops call
    `raise_if_told` too. A signal that is ignored, as SIGINT is in the background of a script, stays so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        _told.append(number)
        raise _exception(number)

    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _told.clear()


@contextlib.contextmanager
def raised_when_asked() -> Iterator[None]:
    """What is told of signals raises here only where `raise_if_told` is called, and at the end.

    For a loop that calls it often. An exception may come between any two instructions otherwise: after
    `subprocess` has taken its lock for a process, say, and before it would give it back, and nobody can
    wait for that process any more. A second signal raises at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(number: int, frame: object) -> None:
        if _told:
            raise _exception(number)
        _told.append(number)

    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if callable(signal.getsignal(n))]
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        told = tuple(_told)
        _told.clear()
    if told:
        raise _exception(told[0])


def raise_if_told() -> None:
    """Raise the exception of a signal that has not raised its own, or whose own was dropped.

    :raises KeyboardInterrupt: on SIGINT.
    :raises Terminated: on SIGTERM.
    """
    if _told:
        raise _exception(_told.pop())


def _exception(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else Terminated()
