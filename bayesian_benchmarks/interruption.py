"""The signals that tell a program to end in order: SIGINT, which is Ctrl-C, and SIGTERM."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

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

    def end(number: int, frame: object) -> None:
        _told.append(number)
        raise _exception(number)

    with _handled_by(end, but_for=(signal.SIG_IGN, None)):
        yield


@contextlib.contextmanager
def raised_when_asked() -> Iterator[None]:
    """What is told of signals raises here only where `raise_if_told` is called, and at the end.

    For a loop that calls it often. An exception may come between any two instructions otherwise: after
    `subprocess` has taken its lock for a process, say, and before it would give it back, and nobody can
    wait for that process any more. A second signal raises at once.
    """

    def note(number: int, frame: object) -> None:
        if _told:
            raise _exception(number)
        _told.append(number)

    with _handled_by(note, but_for=(signal.SIG_IGN, signal.SIG_DFL, None), ask_at_end=True):
        yield


@contextlib.contextmanager
def _handled_by(
    handler: Callable[[int, object], None], but_for: tuple[object, ...], ask_at_end: bool = False
) -> Iterator[None]:
    """The signals have this handler, in the main thread, which alone may set it.

    :param but_for: a signal whose handler is one of these keeps it.
    :param ask_at_end: call `raise_if_told` where nothing else was raised, once the handlers from before are
        back: no signal comes between the last question and them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) not in but_for]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        try:
            yield
        finally:
            for number, known in before.items():
                signal.signal(number, known)
        if ask_at_end:
            raise_if_told()
    finally:
        _told.clear()


def raise_if_told() -> None:
    """Raise the exception of a signal that has not raised its own, or whose own was dropped.

    :raises KeyboardInterrupt: on SIGINT.
    :raises Terminated: on SIGTERM.
    """
    if _told:
        raise _exception(_told.pop())


def _exception(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else Terminated()
