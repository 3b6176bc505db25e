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


def raise_if_told() -> None:
    """Raise the exception of a signal whose own was dropped.

    :raises KeyboardInterrupt: on SIGINT.
    :raises Terminated: on SIGTERM.
    """
    if _told:
        raise _exception(_told.pop())


def _exception(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else Terminated()
