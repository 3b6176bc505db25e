"""A signal ends a program in order, also where Python drops the exception that it raises."""

from __future__ import annotations

import os
import signal
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from bayesian_benchmarks.interruption import (
    Terminated,
    ended_in_order,
    raise_if_told,
    raised_when_asked,
)

SIGNALS = pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)


@pytest.fixture(autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """Also by tests in the background of a script, which is started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Thing:
    """Something that a weak reference may be to."""


def send_in_a_callback(number: int) -> None:
    """The signal comes while a weak reference's callback runs, whose exceptions Python drops."""
    thing = Thing()
    reference = weakref.ref(thing, lambda _: os.kill(os.getpid(), number))
    del thing
    assert reference() is None


@SIGNALS
def test_a_signal_is_an_exception(number: int, error: type[BaseException]) -> None:
    with pytest.raises(error), ended_in_order():
        os.kill(os.getpid(), number)
    raise_if_told()  # it has been seen


@SIGNALS
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_dropped_exception_is_raised_later(number: int, error: type[BaseException]) -> None:
    with ended_in_order():
        raise_if_told()
        send_in_a_callback(number)
        with pytest.raises(error):
            raise_if_told()
        raise_if_told()  # once


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with ended_in_order():
            os.kill(os.getpid(), signal.SIGINT)
            raise_if_told()
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_handlers_from_before_come_back() -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with ended_in_order():
        assert signal.getsignal(signal.SIGINT) is not handlers[0]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


@SIGNALS
def test_a_loop_raises_when_it_asks(number: int, error: type[BaseException]) -> None:
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with ended_in_order():
        with raised_when_asked():
            os.kill(os.getpid(), number)
            with pytest.raises(error):
                raise_if_told()
            raise_if_told()  # it has been seen
        raise_if_told()
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers


@SIGNALS
def test_a_loop_that_ends_before_it_asks_raises_then(
    number: int, error: type[BaseException]
) -> None:
    with ended_in_order(), pytest.raises(error), raised_when_asked():
        os.kill(os.getpid(), number)
    raise_if_told()


@SIGNALS
def test_a_signal_as_the_loop_ends_is_not_lost(
    number: int, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes when the loop has asked for the last time and the handlers are not yet those of before."""
    set_handler = signal.signal

    def send_first(changed: int, handler: Any) -> Any:
        os.kill(os.getpid(), number)
        monkeypatch.undo()
        return set_handler(changed, handler)

    with ended_in_order(), pytest.raises(error), raised_when_asked():
        monkeypatch.setattr(signal, "signal", send_first)
    raise_if_told()


def send(numbers: list[int], sent: list[int]) -> None:
    """Signals one after the other, in a loop that does not ask."""
    with raised_when_asked():
        for number in numbers:
            os.kill(os.getpid(), number)
            sent.append(number)


def test_a_second_signal_does_not_wait_for_the_loop_to_ask() -> None:
    sent: list[int] = []
    with ended_in_order(), pytest.raises(KeyboardInterrupt):
        send([signal.SIGTERM, signal.SIGINT, signal.SIGINT], sent)
    assert sent == [signal.SIGTERM]
    raise_if_told()


def test_ctrl_c_waits_for_the_loop_without_a_command_too() -> None:
    sent: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        send([signal.SIGINT], sent)
    assert sent == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
