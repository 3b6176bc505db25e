"""What `fit` returns."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass
class History:
    """The record of a training run.

    :param elbo: the bound per data point at each step, its KL term at full weight also while it is annealed.
    :param validation: pairs (step, mean log density per validation point).
    :param recoveries: steps that were retried with more jitter after a failed Cholesky.
    :param halvings: steps whose natural-gradient step was halved, to keep a matrix positive definite or the
        bound from falling.
    :param seconds: wall-clock time of the whole run, compilation and earlier, killed starts included.
    :param earlier_seconds: those of them that the checkpoint had from which the last start went on.
    :param clock: pairs (steps done, `seconds` then), every 50 steps or so.
    :param step_seconds: wall-clock time of the `timed_steps`, those after the call that compiles.
    :param position: the part of the schedules that is done, from 0 to 1.
    :param flat_from: the step at which the bound had stopped rising, where the run was to go on until then.
    :param ended: why the run ended, empty before.

    >>> history = gpflow_dkp.training.History(elbo=[-1.5, -1.0], validation=[(1, -2.0), (2, -3.0)])
    >>> history.num_steps, history.best_validation
    (2, (1, -2.0))
    """

    elbo: list[float] = field(default_factory=list)
    validation: list[tuple[int, float]] = field(default_factory=list)
    recoveries: list[int] = field(default_factory=list)
    halvings: list[int] = field(default_factory=list)
    seconds: float = 0.0
    earlier_seconds: float = field(default=0.0, compare=False)
    step_seconds: float = 0.0
    timed_steps: int = 0
    clock: list[tuple[int, float]] = field(default_factory=list, compare=False)
    position: float = 0.0
    flat_from: int | None = None
    ended: str = ""

    @property
    def num_steps(self) -> int:
        """Steps taken."""
        return len(self.elbo)

    @property
    def best_validation(self) -> tuple[int, float]:
        """The pair of `validation` with the highest density, the first of equals.

        :raises ValueError: there was no validation.
        """
        return max(self.validation, key=lambda pair: -math.inf if math.isnan(pair[1]) else pair[1])

    def drop_validation(self, step: int) -> None:
        """Forget the last validation if it was after `step`."""
        if self.validation and self.validation[-1][0] == step:
            self.validation.pop()

    @property
    def num_recoveries(self) -> int:
        """Number of `recoveries`."""
        return len(self.recoveries)

    @property
    def seconds_per_step(self) -> float:
        """Mean wall-clock seconds a step, without the calls that compiled; NaN if there were none."""
        return self.step_seconds / self.timed_steps if self.timed_steps else float("nan")

    def save(self, path: Path) -> None:
        """Write to a JSON file."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> History:
        """Read what `save` wrote."""
        record = json.loads(path.read_text())
        for name in ("validation", "clock"):
            record[name] = [tuple(pair) for pair in record[name]]
        return cls(**record)
