"""How far a sweep is, at a moment: what its views show and other processes are told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from .costs import duration


@dataclass(frozen=True)
class RunState:
    """A run under way.

    :param step: steps done, 0 before the first are.
    :param bound: per training point, the mean over the last steps; None where it is not known.
    :param steps_per_second: None where it is not known.
    :param seconds_left: of training, without the scores; None where it is not known.
    """

    name: str
    step: int
    num_steps: int
    bound: float | None = None
    steps_per_second: float | None = None
    seconds_left: float | None = None

    @property
    def is_scored(self) -> bool:
        """Whether its training is over."""
        return self.step >= self.num_steps

    def __str__(self) -> str:
        parts = [f"step {self.step} of {self.num_steps}"]
        if self.bound is not None:
            parts.append(f"bound {self.bound:.4f}")
        if self.steps_per_second is not None:
            parts.append(f"{self.steps_per_second:.3g} steps a second")
        if self.is_scored:
            parts.append("being scored")
        elif self.seconds_left is not None:
            parts.append(f"about {duration(self.seconds_left)} left")
        return f"{self.name}: {', '.join(parts)}"


@dataclass(frozen=True)
class SweepState:
    """A sweep under way.

    :param num_runs: that were due.
    :param num_ended: of them, failed and interrupted ones included.
    :param num_interrupted: runs that something outside ended, such as a full disk; they stay due.
    :param part: of all steps that is done, 0 to 1.
    :param seconds_left: None where nothing is known of the models.
    """

    num_runs: int
    num_ended: int
    num_failed: int
    num_interrupted: int
    running: tuple[RunState, ...]
    part: float
    seconds_left: float | None

    @property
    def total(self) -> str:
        """The sweep in one line."""
        text = f"{self.num_ended} of {self.num_runs} runs"
        if self.num_failed:
            text += f", {self.num_failed} failed"
        if self.num_interrupted:
            text += f", {self.num_interrupted} not done"
        if self.num_ended < self.num_runs and self.seconds_left is not None:
            text += f"; about {duration(self.seconds_left)} left"
        return text

    def lines(self) -> Iterator[str]:
        """The total, and each run under way."""
        yield self.total
        for run in self.running:
            yield f"  {run}"

    def as_json(self) -> dict[str, Any]:
        """What `from_json` makes a state of again."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> SweepState:
        """The state that `as_json` was of.

        :raises TypeError, KeyError: these are no state's values.
        """
        running = tuple(RunState(**run) for run in values["running"])
        return cls(**(values | {"running": running}))
