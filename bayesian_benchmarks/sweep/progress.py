"""Progress of a sweep: a bar with the time left on a terminal, lines otherwise."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from importlib import resources
from types import TracebackType
from typing import TextIO

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from ..store import ResultRow
from .run import Run
from .worker import Interrupted


class Costs:
    """Seconds that runs take, by what runs like them took.

    Known are the rows given and, where there is none, what `costs.json` has of the package's own results.
    """

    def __init__(self, rows: Iterable[ResultRow]) -> None:
        self._rates: dict[tuple[str, ...], list[float]] = defaultdict(list)
        self._shipped = self.shipped()
        for row in rows:
            self.add(row)

    @staticmethod
    def shipped() -> dict[tuple[str, ...], float]:
        """Seconds a step by (dataset, model, depth), (model, depth) and (model,), on two cores."""
        text = (resources.files(__package__) / "costs.json").read_text(encoding="utf-8")
        return {tuple(key.split("|")): rate for key, rate in json.loads(text).items()}

    def add(self, row: ResultRow) -> None:
        """Count a row that has ended."""
        num_steps = json.loads(row.settings).get("num_steps")
        if row.status == "ok" and num_steps and "seconds" in row.metrics:
            rate = row.metrics["seconds"] / num_steps
            for key in _likeness(row.dataset, row.model, row.depth):
                self._rates[key].append(rate)

    def seconds(self, run: Run) -> float | None:
        """Of training the run; None where nothing is known of its model."""
        keys = list(_likeness(run.dataset, run.model, run.depth))
        for key in keys:
            if key in self._rates:
                return float(np.mean(self._rates[key])) * run.settings.num_steps
        for key in keys:
            if key in self._shipped:
                return self._shipped[key] * run.settings.num_steps
        return None

    def total(self, runs: Sequence[Run], done: dict[Run, float] | None = None) -> float | None:
        """Seconds of what is left of runs, those of no known model as long as the mean of the others.

        :param done: the part of a run that is done, 0 to 1.
        """
        known = [(run, self.seconds(run)) for run in runs]
        seconds = [value for _, value in known if value is not None]
        if not seconds:
            return None
        mean, done = float(np.mean(seconds)), done or {}
        return sum(
            (mean if value is None else value) * (1.0 - done.get(run, 0.0)) for run, value in known
        )


def _likeness(dataset: str, model: str, depth: int) -> Iterable[tuple[str, ...]]:
    """What a run is looked up by, the most alike first."""
    yield dataset, model, str(depth)
    yield model, str(depth)
    yield (model,)


class SweepProgress:
    """Says how far a sweep is, on standard error.

    :param runs: all that are due.
    :param rows: those that tell how long runs take.
    :param jobs: runs at a time.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        rows: Iterable[ResultRow] = (),
        jobs: int = 1,
        *,
        enabled: bool = True,
    ) -> None:
        self._left = dict.fromkeys(runs)
        self._num_runs = len(runs)
        self._jobs = max(1, jobs)
        self._costs = Costs(rows)
        self._steps: dict[Run, int] = {}
        self._total_steps = sum(run.settings.num_steps for run in runs)
        self._steps_finished = 0
        self._lines: TextIO | None = None
        self._bars: Progress | None = None
        self._tasks: dict[Run, TaskID] = {}
        if enabled and sys.stderr.isatty():
            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f} %"),
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
        if self._bars is not None:
            if run not in self._tasks:
                self._tasks[run] = self._bars.add_task(str(run), total=run.settings.num_steps)
            self._bars.update(self._tasks[run], completed=step)
            self._update_bars()

    def notice(self, text: str) -> None:
        """A run has something to say."""
        self._say(text)

    def finish(
        self, run: Run, outcome: ResultRow | Interrupted, *, elsewhere: bool = False
    ) -> None:
        """A run has ended, here or in another process."""
        self._left.pop(run, None)
        self._steps.pop(run, None)
        self._steps_finished += run.settings.num_steps
        if isinstance(outcome, ResultRow):
            self._costs.add(outcome)
        if self._bars is not None:
            if run in self._tasks:
                self._bars.remove_task(self._tasks.pop(run))
            self._update_bars()
        count = f"[{self._num_runs - len(self._left)}/{self._num_runs}]"
        where = ", by another process" if elsewhere else ""
        self._say(f"{count} {run}: {_outcome(outcome)}{where}{self._time_left()}")

    def _say(self, text: str) -> None:
        if self._bars is not None:
            self._bars.console.print(text, markup=False, highlight=False)
        elif self._lines is not None:
            print(text, file=self._lines, flush=True)

    def _update_bars(self) -> None:
        assert self._bars is not None
        self._bars.update(
            self._overall,
            description=f"{self._num_runs - len(self._left)} of {self._num_runs} runs{self._time_left()}",
            completed=self._steps_finished + sum(self._steps.values()),
        )

    def _time_left(self) -> str:
        done = {run: step / run.settings.num_steps for run, step in self._steps.items()}
        seconds = self._costs.total(list(self._left), done)
        if not self._left or seconds is None:
            return ""
        return f"; about {duration(seconds / min(self._jobs, len(self._left)))} left"


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


def duration(seconds: float) -> str:
    """Seconds for people, such as "45 s", "12 min" or "3.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
