"""Models by name: how each is built from data and trained."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from ..datasets.registry import has_classes
from ..errors import BenchmarkError, ConfigError, UnknownNameError
from ..settings import Settings

Array = npt.NDArray[np.float64]

OF_THE_DEEP_MODELS = ("ard", "input_bias", "precision", "shared_precision")
"""Settings that no model reads but dgp, dwp, nngp and diwp."""

OF_VI = ("schedule.latent_annealing",)
"""Settings that no model reads but those whose latent variables VI infers."""

OF_LATENT_VARIABLE_MODELS = ("separate_kernels", "inner_noise", "num_marginal_points", *OF_VI)
"""Settings that no model reads but those of LV and GP layers that are trained, not sampled."""


class TrainingRecord(Protocol):
    """What a `Trainer` returns, as `gpflow_dkp.training.History` does.

    >>> record = gpflow_dkp.training.History(seconds=1.5, step_seconds=1.0, timed_steps=4)
    >>> record.seconds, record.seconds_per_step, record.num_recoveries
    (1.5, 0.25, 0)
    """

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
    `predict_mixture(X, num_samples=..., seed=...)`: means and variances [S, N, P], one component where
    the prediction is one Gaussian. It may have a bound, `elbo(data, num_samples=..., seed=...)`, of a
    batch of the data scaled to all of it.

    >>> from bayesian_benchmarks import Settings
    >>> def build(X, Y, *, depth, settings, seed):
    ...     return gpflow_dkp.models.DWP.from_data(X, Y, depth=depth, num_inducing=3, seed=seed)
    >>> model = build(X, Y, depth=2, settings=Settings(), seed=0)
    >>> model.predict_mixture(X, num_samples=4, seed=0).mean.shape
    TensorShape([4, 10, 1])
    """

    def __call__(self, X: Array, Y: Array, *, depth: int, settings: Settings, seed: int) -> Any:
        """Build the model."""


class Trainer(Protocol):
    """`train(model, data, ...)` trains the model in place.

    With the same `checkpoint_dir`, training that was killed goes on and ends with the same numbers.
    `report_step` is to be called with the number of steps done, now and then.

    >>> def train(model, data, *, settings, seed, report_step, **checkpoints):
    ...     X, Y = data
    ...     model.output_layer.start_at_regression(X, Y, 0.1)
    ...     report_step(settings.num_steps)
    ...     return gpflow_dkp.training.History()
    >>> from bayesian_benchmarks import Settings
    >>> model = gpflow_dkp.models.GWI.from_data(X, Y, mean="svgp", num_inducing=3)
    >>> record = train(model, (X, Y), settings=Settings(num_steps=7), seed=0, report_step=print)
    7
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


def accept(settings: Settings) -> None:
    """Of a model that can have any settings."""


@dataclass(frozen=True)
class ModelSource:
    """A registered model: the arguments of `register_model`.

    >>> from bayesian_benchmarks.models import ModelSource
    >>> def build(X, Y, *, depth, settings, seed):
    ...     return gpflow_dkp.models.DWP.from_data(X, Y, depth=depth, seed=seed)
    >>> source = ModelSource("mine", build)
    >>> source.is_for("regression"), source.is_for("classification")  # it takes no num_classes
    (True, False)
    """

    name: str
    build: Builder
    train: Trainer | None = None
    uses_tensorflow: bool = True
    settings: type[Settings] = Settings
    tasks: tuple[str, ...] | None = None
    ignores: tuple[str, ...] = ()
    min_depth: int = 1
    check_settings: Callable[[Settings], None] = accept

    def is_for(self, task: str) -> bool:
        """Whether it can be run in a task."""
        if self.tasks is not None:
            return task in self.tasks
        return not has_classes(task) or _takes(self.build, "num_classes")

    def check(self, task: str, settings: Settings, depth: int) -> None:
        """Raise `ConfigError` unless the model can be run in a task with settings and depth."""
        if not self.is_for(task):
            named = f"of {' and '.join(self.tasks)}" if self.tasks else "of targets, not of classes"
            raise ConfigError(f"{self.name} is a model {named}; it cannot be run in {task}.")
        if not isinstance(settings, self.settings):
            raise ConfigError(
                f"{self.name} needs {self.settings.__name__}, got {type(settings).__name__}; run it in an "
                "experiment of that task."
            )
        if depth < self.min_depth:
            raise ConfigError(
                f"{self.name} has a depth of at least {self.min_depth}, got {depth}; say which with --depths."
            )
        self.check_settings(settings)

    def read(self, settings: Settings) -> Settings:
        """The settings with what the model ignores at its default: what else a run's numbers depend on."""
        changes: dict[str, Any] = {}
        for name in self.ignores:
            name, _, inner = name.partition(".")
            if name not in type(settings).model_fields:
                continue
            value = changes.get(name, getattr(settings, name))
            if inner and value is not None:
                changes[name] = value.model_copy(update={inner: _default(type(value), inner)})
            elif not inner:
                changes[name] = _default(type(settings), name)
        return settings.model_copy(update=changes)

    def is_read(self, name: str) -> bool:
        """Whether the model reads a setting, such as "ard" or "gwi.networks"."""
        return name not in self.ignores and name.partition(".")[0] not in self.ignores


_SOURCES: dict[str, ModelSource] = {}


def register_model(
    name: str,
    *,
    train: Trainer | None = None,
    uses_tensorflow: bool = True,
    settings: type[Settings] = Settings,
    tasks: tuple[str, ...] | None = None,
    ignores: tuple[str, ...] = (),
    min_depth: int = 1,
    check_settings: Callable[[Settings], None] = accept,
) -> Callable[[Builder], Builder]:
    """Decorator that makes a `Builder` known as model `name`.

    :param train: how to train it; by default `gpflow_dkp.training.fit` with the run's settings.
    :param uses_tensorflow: False spares its workers the import, which takes seconds.
    :param settings: the kind that it needs, such as `DensitySettings`.
    :param tasks: that it can be run in; by default all, those with classes if the builder takes
        `num_classes`.
    :param ignores: settings that it does not read, such as "ard" or "gwi.networks": they are at their
        defaults when it is built and trained, and another value makes no other run.
    :param min_depth: 0 where the name says the layers.
    :param check_settings: raises `ConfigError` for settings that it cannot have, before anything is trained.
    :raises BenchmarkError: the name belongs to another builder.

    >>> from bayesian_benchmarks.models import list_models, register_model
    >>> @register_model("dwp-relu")
    ... def build(X, Y, *, depth, settings, seed):
    ...     return gpflow_dkp.models.DWP.from_data(X, Y, depth=depth, kernel="relu", seed=seed)
    >>> "dwp-relu" in list_models("regression")
    True
    """

    def register(build: Builder) -> Builder:
        known = _SOURCES.get(name)
        if known is not None and _identity(known.build) != _identity(build):
            raise BenchmarkError(f"Model {name!r} is registered already; choose another name.")
        _SOURCES[name] = ModelSource(
            name,
            build,
            train,
            uses_tensorflow,
            settings,
            tasks,
            ignores,
            min_depth,
            check_settings,
        )
        return build

    return register


def model_source(name: str) -> ModelSource:
    """The registration of `name`.

    :raises UnknownNameError: no such model.

    >>> from bayesian_benchmarks.models import model_source
    >>> source = model_source("dwp-ab-gw")
    >>> source.is_for("classification"), source.is_read("num_inducing"), source.is_read("gwi")
    (True, True, False)
    """
    if name not in _SOURCES:
        raise UnknownNameError("model", name, _SOURCES)
    return _SOURCES[name]


def find_model(name: str) -> ModelSource | None:
    """The registration of `name`, if there is one.

    >>> from bayesian_benchmarks.models import find_model
    >>> find_model("dgp").name, find_model("no such model")
    ('dgp', None)
    """
    return _SOURCES.get(name)


def list_models(task: str | None = None) -> list[str]:
    """Names of the registered models, sorted: all, or those that can be run in a task.

    >>> from bayesian_benchmarks.models import list_models
    >>> "dwp-ab-gw" in list_models("regression"), "LV-GP-GP" in list_models("classification")
    (True, False)
    """
    return sorted(name for name, source in _SOURCES.items() if task is None or source.is_for(task))


def _default(model: type[BaseModel], name: str) -> Any:
    return model.model_fields[name].get_default(call_default_factory=True)


def _takes(function: Callable[..., Any], argument: str) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(p.name == argument or p.kind is p.VAR_KEYWORD for p in parameters)


def _identity(build: Builder) -> tuple[str, str]:
    """Module and name of a builder: a notebook cell that is run again registers the same one."""
    return getattr(build, "__module__", ""), getattr(build, "__qualname__", repr(build))
