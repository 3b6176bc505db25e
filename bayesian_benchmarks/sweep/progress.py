"""Progress of a sweep: a table of the runs on a terminal, lines otherwise, and a file for other processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Literal

from rich.console import Console
from rich.live import Live

from ..store import ResultRow
from .costs import Costs, duration
from .job import Interrupted, Step
from .pace import Pace
from .run import Run
from .shared import SharedState
from .state import RunState, SweepState
from .table import table_of

Shown = bool | Literal["failures"]
"""What a sweep says on standard error: all, nothing, or only runs that failed or could not be done."""

SHOW_SECONDS = 0.25
"""Least time between two states on a terminal."""
SHARE_SECONDS = 2.0
"""Least time between two states in the file."""


class SweepProgress:
    """Says how far a sweep is, on standard error, and shares it with other processes.

    :param runs: all that are due.
    :param rows: those that tell how long runs take.
    :param jobs: runs at a time.
    :param shown: what is said.
    :param shared: the file for other processes, None for none; it is closed at the end.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        rows: Iterable[ResultRow] = (),
        jobs: int = 1,
        *,
        shown: Shown = True,
        shared: SharedState | None = None,
    ) -> None:
        self._left = dict.fromkeys(runs)
        self._num_runs = len(runs)
        self._num_failed = self._num_interrupted = 0
        self._jobs = max(1, jobs)
        self._costs = Costs(rows)
        self._steps: dict[Run, Step] = {}
        self._paces: dict[Run, Pace] = {}
        self._total_steps = sum(run.settings.num_steps for run in runs)
        self._steps_finished = 0
        self._shown = shown
        self._shared = shared
        self._shown_at = self._shared_at = -float("inf")
        self._live: Live | None = None
        if shown is True and sys.stderr.isatty():
            self._live = Live(
                console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty()
            )

    def __enter__(self) -> SweepProgress:
        if self._live is not None:
            self._live.start()
        self.refresh()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._live is not None:
                self._live.stop()
        finally:
            if self._shared is not None:
                self._shared.close()

    def step(self, run: Run, step: Step) -> None:
        """A run has gone on."""
        self._steps[run] = step
        self._paces.setdefault(run, Pace()).add(step.number)
        self.refresh()

    def notice(self, text: str) -> None:
        """A run has something to say."""
        self._say(text)

    def finish(
        self, run: Run, outcome: ResultRow | Interrupted, *, elsewhere: bool = False
    ) -> None:
        """A run has ended, here or in another process."""
        self._left.pop(run, None)
        self._steps.pop(run, None)
        self._paces.pop(run, None)
        self._steps_finished += run.settings.num_steps
        if isinstance(outcome, ResultRow):
            self._costs.add(outcome)
            self._num_failed += outcome.status == "failed"
        else:
            self._num_interrupted += 1
        count = f"[{self._num_runs - len(self._left)}/{self._num_runs}]"
        where = ", by another process" if elsewhere else ""
        seconds = self._seconds_left()
        left = f"; about {duration(seconds)} left" if seconds is not None else ""
        is_failure = isinstance(outcome, Interrupted) or outcome.status == "failed"
        self._say(f"{count} {run}: {_outcome(outcome)}{where}{left}", is_failure)
        self.refresh()

    def refresh(self) -> None:
        """Show and share the present state, if the last is old enough."""
        now = time.monotonic()
        if self._live is not None and now - self._shown_at >= SHOW_SECONDS:
            self._shown_at = now
            self._live.update(table_of(self.state))
        if self._shared is not None and now - self._shared_at >= SHARE_SECONDS:
            self._shared_at = now
            self._shared.write(self.state)

    @property
    def state(self) -> SweepState:
        """How far the sweep is now."""
        steps = self._steps_finished + sum(step.number for step in self._steps.values())
        return SweepState(
            num_runs=self._num_runs,
            num_ended=self._num_runs - len(self._left),
            num_failed=self._num_failed,
            num_interrupted=self._num_interrupted,
            running=tuple(self._state_of(run, step) for run, step in self._steps.items()),
            part=steps / self._total_steps if self._total_steps else 0.0,
            seconds_left=self._seconds_left(),
        )

    def _state_of(self, run: Run, step: Step) -> RunState:
        """By the run's own pace where it is known, else by what runs like it took."""
        num_steps, pace = run.settings.num_steps, self._paces[run].steps_per_second
        remaining = max(0, num_steps - step.number)
        known = self._costs.seconds(run)
        if pace is not None:
            left: float | None = remaining / pace
        else:
            left = None if known is None else known * remaining / num_steps
        return RunState(str(run), step.number, num_steps, step.bound, pace, left)

    def _say(self, text: str, is_failure: bool = False) -> None:
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)
        elif self._shown is True or (self._shown == "failures" and is_failure):
            print(text, file=sys.stderr, flush=True)

    def _seconds_left(self) -> float | None:
        """Of all runs that are left, by what runs like them took."""
        done = {run: step.number / run.settings.num_steps for run, step in self._steps.items()}
        seconds = self._costs.total(list(self._left), done)
        if not self._left or seconds is None:
            return None
        return seconds / min(self._jobs, len(self._left))


def _outcome(outcome: ResultRow | Interrupted) -> str:
    if isinstance(outcome, Interrupted):
        return f"not done: {outcome.reason}"
    if outcome.status == "failed":
        return f"FAILED: {outcome.error}"
    names = (
        "elbo_per_point",
        "objective_per_point",
        "test_log_likelihood",
        "test_rmse",
        "accuracy",
    )
    figures = ", ".join(
        f"{name} {outcome.metrics[name]:.4g}" for name in names if name in outcome.metrics
    )
    return f"{figures}, {duration(outcome.metrics.get('seconds', 0.0))} of training"
