"""Models by name: how each is built from data and trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..config import Settings
from ..errors import BenchmarkError, UnknownNameError

Array = npt.NDArray[np.float64]


class TrainingRecord(Protocol):
    """What a `Trainer` returns, as `gpflow_dkp.training.History` does."""

    @property
    def seconds(self) -> float:
        """Wall-clock time of training."""

    @property
    def seconds_per_step(self) -> float:
        """Wall-clock time a step, compilation left out; NaN if it is not known."""

    @property
    def num_recoveries(self) -> int:
        """Steps that were taken again after a failed Cholesky."""


class Builder(Protocol):
    """`build(X, Y, depth=..., settings=..., seed=...)` returns an untrained model.

    `X` [N, D] and `Y` [N, 1] are the normalised training data; `depth` counts the output layer.
    For classification `Y` [N, 1] holds labels 0, ..., C - 1, and a builder that can do it is given
    `num_classes=C`; the mean of the model's `predict_mixture` is then each class' probability, or
    that of class 1 of two. The model must have, as those of `gpflow_dkp.models`,
    `elbo(data, num_samples=..., seed=...)`, of a batch of the data scaled to all of it, and
    `predict_mixture(X, num_samples=..., seed=...)`.
    """

    def __call__(self, X: Array, Y: Array, *, depth: int, settings: Settings, seed: int) -> Any:
        """Build the model."""


class Trainer(Protocol):
    """`train(model, data, ...)` trains the model in place.

    With the same `checkpoint_dir`, training that was killed goes on and ends with the same numbers.
    `report_step` is to be called with the number of steps done, now and then.
    """

    def __call__(
        self,
        model: Any,
        data: tuple[Array, Array],
        *,
        settings: Settings,
        seed: int,
        checkpoint_dir: Path | None,
        checkpoint_seconds: float,
        report_step: Callable[[int], None],
    ) -> TrainingRecord:
        """Train the model."""


@dataclass(frozen=True)
class ModelSource:
    """A registered model: its builder, its trainer (None: `gpflow_dkp.training.fit`), what settings it reads.

    `uses_tensorflow` False spares its workers the import, which takes seconds.
    """

    name: str
    build: Builder
    train: Trainer | None
    uses_tensorflow: bool
    settings: type[Settings] = Settings


_SOURCES: dict[str, ModelSource] = {}


def register_model(
    name: str,
    *,
    train: Trainer | None = None,
    uses_tensorflow: bool = True,
    settings: type[Settings] = Settings,
) -> Callable[[Builder], Builder]:
    """Decorator that makes a `Builder` known as model `name`.

    >>> @register_model("dwp-matern")
    ... def build(X, Y, *, depth, settings, seed):
    ...     return gpflow_dkp.models.DWP(...)

    :param train: how to train it; by default `gpflow_dkp.training.fit` with the run's settings.
    :param settings: the kind that it needs, such as `DensitySettings`.
    :raises BenchmarkError: the name belongs to another builder.
    """

    def register(build: Builder) -> Builder:
        known = _SOURCES.get(name)
        if known is not None and _identity(known.build) != _identity(build):
            raise BenchmarkError(f"Model {name!r} is registered already; choose another name.")
        _SOURCES[name] = ModelSource(name, build, train, uses_tensorflow, settings)
        return build

    return register


def model_source(name: str) -> ModelSource:
    """The registration of `name`.

    :raises UnknownNameError: no such model.
    """
    if name not in _SOURCES:
        raise UnknownNameError("model", name, _SOURCES)
    return _SOURCES[name]


def list_models() -> list[str]:
    """Names of the registered models, sorted."""
    return sorted(_SOURCES)


def _identity(build: Builder) -> tuple[str, str]:
    """Module and name of a builder: a notebook cell that is run again registers the same one."""
    return getattr(build, "__module__", ""), getattr(build, "__qualname__", repr(build))
