"""How long runs take, by what runs like them took."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from importlib import resources

import numpy as np

from ..store import ResultRow
from .run import Run


class Costs:
    """Seconds that runs take, by what runs like them took.

    Known are the rows given and, where there is none, what `costs.json` has of the package's own results.
    """

    def __init__(self, rows: Iterable[ResultRow]) -> None:
        self._rates: dict[tuple[str, ...], list[float]] = defaultdict(list)
        self._shipped = self.shipped()
        self._found: dict[tuple[str, str, int], float | None] = {}
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
            self._found.clear()

    def seconds(self, run: Run) -> float | None:
        """Of training the run; None where nothing is known of its model."""
        kind = run.dataset, run.model, run.depth
        if kind not in self._found:  # the time left of thousands of runs is asked for every moment
            self._found[kind] = self._rate(*kind)
        rate = self._found[kind]
        return None if rate is None else rate * run.settings.num_steps

    def _rate(self, dataset: str, model: str, depth: int) -> float | None:
        """Seconds a step."""
        keys = list(_likeness(dataset, model, depth))
        for key in keys:
            if key in self._rates:
                return float(np.mean(self._rates[key]))
        for key in keys:
            if key in self._shipped:
                return self._shipped[key]
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


def duration(seconds: float) -> str:
    """Seconds for people, such as "45 s", "12 min" or "3.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
