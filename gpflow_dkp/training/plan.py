"""How long a run is, and where in its schedules each step stands: steps, a time, or until nothing rises."""

from __future__ import annotations

import abc
import math
import time
from typing import NamedTuple

import numpy as np

from .history import History

STEPS_PER_CALL = 50

WARMUP_STEPS = 100
"""Over which a run of unknown length comes to the place where its schedule waits."""

LEAST_WINDOW = 250
"""Steps of a mean of the bound."""

MAX_WAITING_STEPS = 100_000
"""After which the rate falls though the bound still rises."""

LEAST_RISE = 1e-3
"""Nats a data point from one window to the next that are worth the steps, however little the noise is."""

NUM_BLOCKS = 10
"""Of a window: neighbouring steps are correlated, and means of blocks hardly."""


class Stretch(NamedTuple):
    """Steps that are taken in one call.

    :param size: how many.
    :param position: the part of the schedule that lies before them, from 0 to 1.
    :param pace: the part that each is.
    """

    size: int
    position: float = 0.0
    pace: float = 0.0

    def after(self, left: int) -> Stretch:
        """The last `left` steps of it."""
        return Stretch(left, self.position + (self.size - left) * self.pace, self.pace)


class Plan(abc.ABC):
    """When a run ends, and where it stands. What a resumed run has to know of it is in the history.

    Attributes: `expected_steps`, how many there will be as far as is known.
    """

    expected_steps: int | None = None

    @abc.abstractmethod
    def next(self, step: int, history: History) -> Stretch | None:
        """What follows on `step` steps; None at the end, with `history.ended` set."""


class Steps(Plan):
    """A number of steps."""

    def __init__(self, num_steps: int) -> None:
        self._num_steps = self.expected_steps = num_steps

    def next(self, step: int, history: History) -> Stretch | None:
        """To the next multiple of 50."""
        size = min(_to_next_call(step), self._num_steps - step)
        if size <= 0:
            history.ended = f"{self._num_steps} steps were taken"
            return None
        return Stretch(size, step / self._num_steps, 1.0 / self._num_steps)


class Seconds(Plan):
    """As many steps as fit into a time, the compilation included, and at most `num_steps`.

    How far the schedule moves in a call follows from the time that is left and the speed of the calls before.
    """

    def __init__(self, max_seconds: float, num_steps: int | None = None) -> None:
        self._num_steps = math.inf if num_steps is None else num_steps
        self._max_seconds = max_seconds
        self._started = time.monotonic()
        self._timed_from = 0, self._started
        self._calls = 0

    def next(self, step: int, history: History) -> Stretch | None:
        """One step that compiles, five that are timed, and then to the next multiple of 50 or the end."""
        now = time.monotonic()
        left = self._max_seconds - (history.earlier_seconds + now - self._started)
        steps_left = self._num_steps - step
        if steps_left <= 0:
            history.ended = f"{self._num_steps} steps were taken"
            return None
        if step and left <= 0:
            history.ended = f"{self._max_seconds:g} s were over"
            return None
        self._calls += 1
        if self._calls <= 2:
            self._timed_from = step, now
            size = min(1 if self._calls == 1 else 5, steps_left, _to_next_call(step))
            return Stretch(int(size), history.position)
        first, then = self._timed_from
        seconds = (now - then) / (step - first)
        steps_left = min(steps_left, max(1, round(left / seconds)))
        self.expected_steps = int(step + steps_left)
        size = int(min(_to_next_call(step), steps_left))
        return Stretch(size, history.position, (1.0 - history.position) / steps_left)


class UntilFlat(Plan):
    """Steps until the bound has stopped rising, and as many again while the rate falls.

    The schedule waits at `waiting_at` until then: a rate that has not fallen yet shows soonest that there is
    nothing left to find with it, and what it is too coarse for is found as it falls.

    :param waiting_at: position of the schedule.
    :param annealing_steps: before which the bound is not looked at, its KL term's weight still rising.
    :param falls: whether there is anything in the schedule that falls.
    """

    def __init__(self, waiting_at: float, annealing_steps: int, *, falls: bool) -> None:
        self._waiting_at, self._annealing_steps, self._falls = waiting_at, annealing_steps, falls

    def next(self, step: int, history: History) -> Stretch | None:
        """To the next multiple of 50."""
        size = _to_next_call(step)
        if history.flat_from is None:
            is_flat = has_stopped_rising(history.elbo[self._annealing_steps :])
            if is_flat or step >= MAX_WAITING_STEPS:
                history.flat_from = step
        if history.flat_from is None:
            pace = self._waiting_at / WARMUP_STEPS if step < WARMUP_STEPS else 0.0
            position = min(step / WARMUP_STEPS, 1.0) * self._waiting_at
            return Stretch(min(size, max(WARMUP_STEPS - step, 0) or size), position, pace)
        flat_from = history.flat_from
        end = self.expected_steps = 2 * flat_from if self._falls else flat_from
        if step >= end:
            rises = flat_from >= MAX_WAITING_STEPS
            how = "the bound was still rising" if rises else "the bound had stopped rising"
            history.ended = f"{how} after {flat_from} steps" + (
                f", and the rate has fallen over {end - flat_from} more" if self._falls else ""
            )
            return None
        pace = (1.0 - self._waiting_at) / flat_from
        position = self._waiting_at + (step - flat_from) * pace
        return Stretch(min(size, end - step), position, pace)


def has_stopped_rising(values: list[float]) -> bool:
    """Whether the mean of the last values is hardly above that of those before.

    By no more than two standard errors or `LEAST_RISE`. The windows are a quarter of all values each, and at
    least 250. Standard errors are of the means of ten blocks a window.
    """
    window = max(LEAST_WINDOW, len(values) // 4) // NUM_BLOCKS * NUM_BLOCKS
    if len(values) < 2 * window:
        return False
    blocks = np.reshape(values[-2 * window :], [2, NUM_BLOCKS, -1]).mean(-1)
    before, after = blocks.mean(1)
    error = math.sqrt(blocks.var(1, ddof=1).sum() / NUM_BLOCKS)
    return bool(after - before <= max(2.0 * error, LEAST_RISE))


def _to_next_call(step: int) -> int:
    return STEPS_PER_CALL - step % STEPS_PER_CALL
