"""Progress of a sweep: a bar with the time left on a terminal, lines otherwise."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from .results import ResultRow
from .runs import Run

REPORTED_STEPS = 50
"""`fit` reports after so many: what a run reports above them at first was done before it was killed."""


class SweepProgress:
    """Says how far a sweep is, on standard error. Units are training steps of all runs due."""

    def __init__(self, runs: list[Run], *, enabled: bool = True) -> None:
        self._num_runs = len(runs)
        self._total_steps = sum(run.settings.num_steps for run in runs)
        self._num_done = 0
        self._steps: dict[Run, int] = {}
        self._steps_before: dict[Run, int] = {}
        self._started = time.monotonic()
        self._lines: TextIO | None = None
        self._bars: Progress | None = None
        self._tasks: dict[Run, TaskID] = {}
        if enabled and sys.stderr.isatty():
            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f} %"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._overall = self._bars.add_task("", total=self._total_steps)
            self._update_bars()
        elif enabled:
            self._lines = sys.stderr

    def __enter__(self) -> SweepProgress:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def step(self, run: Run, step: int) -> None:
        """A run has done `step` steps."""
        self._steps[run] = step
        if step > 0:
            self._steps_before.setdefault(run, max(0, step - REPORTED_STEPS))
        if self._bars is not None:
            if run not in self._tasks:
                self._tasks[run] = self._bars.add_task(str(run), total=run.settings.num_steps)
            self._bars.update(self._tasks[run], completed=step)
            self._update_bars()

    def finish(self, run: Run, row: ResultRow | None) -> None:
        """A run has ended: with a row, or, when None, in another process."""
        self._num_done += 1
        self._steps[run] = run.settings.num_steps
        self._steps_before.setdefault(run, run.settings.num_steps if row is None else 0)
        if self._bars is not None:
            if run in self._tasks:
                self._bars.remove_task(self._tasks.pop(run))
            self._update_bars()
            self._bars.console.print(f"{run}: {_outcome(row)}", markup=False, highlight=False)
        elif self._lines is not None:
            count = f"[{self._num_done}/{self._num_runs}]"
            print(
                f"{count} {run}: {_outcome(row)}{self._time_left()}", file=self._lines, flush=True
            )

    def _update_bars(self) -> None:
        assert self._bars is not None
        self._bars.update(
            self._overall,
            description=f"{self._num_done} of {self._num_runs} runs",
            completed=sum(self._steps.values()),
        )

    def _time_left(self) -> str:
        if self._num_done == self._num_runs:
            return ""
        reached = sum(self._steps.values())
        done_here = reached - sum(self._steps_before.values())
        if done_here == 0:
            return ""
        seconds = (time.monotonic() - self._started) * (self._total_steps - reached) / done_here
        return f"; about {_duration(seconds)} left"


def _outcome(row: ResultRow | None) -> str:
    if row is None:
        return "done by another process"
    if row.status == "failed":
        return f"FAILED: {row.error}"
    names = ("elbo_per_point", "test_log_likelihood", "test_rmse")
    figures = ", ".join(f"{name} {row.metrics[name]:.4g}" for name in names if name in row.metrics)
    return f"{figures}, {_duration(row.metrics.get('seconds', 0.0))} of training"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
