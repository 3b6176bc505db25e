"""Steps a second of a run that is under way."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

SECONDS = 60.0
"""Of a run's last reports, which say how fast it is."""


class Pace:
    """How fast a run goes, by its last reports.

    The time before the first steps plays no part: a run loads its data and compiles.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reports: deque[tuple[float, int]] = deque()

    def add(self, step: int) -> None:
        """The run has done so many steps; fewer than before where it has started afresh."""
        now = self._clock()
        if self._reports and step < self._reports[-1][1]:
            self._reports.clear()
        if step > 0:
            self._reports.append((now, step))
        while len(self._reports) > 2 and now - self._reports[0][0] > SECONDS:
            self._reports.popleft()

    @property
    def steps_per_second(self) -> float | None:
        """None before the second report."""
        if not self._reports:
            return None
        (start, first), (end, last) = self._reports[0], self._reports[-1]
        return (last - first) / (end - start) if end > start and last > first else None
