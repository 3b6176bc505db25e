"""An experiment: what to run, from YAML files checked by pydantic and command-line overrides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from .configs import find_config
from .errors import ConfigError
from .plugins import import_installed_plugins, import_plugin
from .report.paper import paper_results
from .settings import MAX_SEED, Settings, validated
from .tasks import find_task

MAX_DEPTH = 1_000
"""Layers."""
Number = Annotated[int, Field(strict=True)]
"""No true, which YAML means otherwise than 1."""


class ModelSettings(BaseModel):
    """A model with settings of its own: `{name: gwi-net, num_steps: 5000, patience: 10}`.

    They replace the experiment's; a name that is not among these is looked for in `gwi`.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str

    @property
    def changes(self) -> dict[str, Any]:
        """The settings, by name."""
        return dict(self.__pydantic_extra__ or {})

    def __hash__(self) -> int:
        return hash(self.model_dump_json())


class Override(BaseModel):
    """Settings of some datasets or depths, in place of the experiment's and the models' own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    datasets: tuple[str, ...] | None = None
    """Null for all."""
    depths: tuple[Number, ...] | None = None
    """As the experiment counts; null for all."""
    settings: dict[str, Any]

    def is_for(self, dataset: str, depth: int) -> bool:
        """Whether it is of a dataset and depth."""
        of_dataset = self.datasets is None or dataset in self.datasets
        return of_dataset and (self.depths is None or depth in self.depths)

    def __hash__(self) -> int:
        return hash(self.model_dump_json())


class Experiment(BaseModel):
    """What to run: models x datasets x splits x depths x seeds, with the task's `Settings`.

    >>> from bayesian_benchmarks import Experiment
    >>> experiment = Experiment(models=["dgp", "dwp-gw"], datasets=["diabetes"], depths=[2, 3])
    >>> experiment.model_names, experiment.settings.num_steps
    (('dgp', 'dwp-gw'), 20000)
    >>> experiment.with_steps(100).settings.num_steps
    100
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    plugins: tuple[str, ...] = ()
    """Modules to import first, here and in workers: they register models, datasets and tasks.
    Those of installed packages are imported without being named."""
    task: str = "regression"
    paper: str | None = None
    """The paper whose figures the table prints beside ours, as in `paper_results.csv`."""
    same_as: tuple[str, ...] = ()
    """Other papers that print figures of these runs: a report has tables beside them too."""
    models: tuple[str | ModelSettings, ...] = Field(min_length=1)
    """Names, or names with settings of their own."""
    datasets: tuple[str, ...] = ()
    csv: Path | None = None
    """A CSV file of the user's, in addition to `datasets`."""
    target: str | tuple[str, ...] | None = None
    """Its target column, or columns; may be left out when one is called target or y."""
    splits: Literal["all"] | tuple[Number, ...] = "all"
    depths: tuple[Number, ...] = Field(default=(), validate_default=True)
    """Numbers of layers; 0 for models whose names say them, the default where a task has those."""
    depth_counts_output_layer: bool = True
    """Whether `depths`, and the paper's, count the output layer. Stored rows always count it."""
    seeds: tuple[Number, ...] = Field(default=(0,), min_length=1)
    settings: Settings = Field(default_factory=dict, validate_default=True)
    """Of the task's type; its defaults where nothing is said."""
    overrides: tuple[Override, ...] = ()
    """Of some datasets or depths; the last that says something holds."""
    checkpoint_seconds: float = Field(default=30.0, ge=0)
    """Least time between two checkpoints; changes no result."""

    @model_validator(mode="before")
    @classmethod
    def _import_installed_plugins(cls, values: Any) -> Any:
        import_installed_plugins()
        return values

    @field_validator("paper", "same_as")
    @classmethod
    def _check_paper(cls, paper: Any) -> Any:
        known = sorted({result.paper for result in paper_results()})
        named = paper if isinstance(paper, tuple) else [paper]
        if not {*named} <= {None, *known}:
            raise ValueError(f"no figures of such a paper; known are {', '.join(known)}")
        return paper

    @field_validator("plugins")
    @classmethod
    def _import_plugins(cls, plugins: tuple[str, ...]) -> tuple[str, ...]:
        for module in plugins:
            import_plugin(module)
        return plugins

    @field_validator("task")
    @classmethod
    def _check_task(cls, task: str) -> str:
        return find_task(task).name

    @field_validator("settings", mode="plain")
    @classmethod
    def _check_settings(cls, settings: Any, info: ValidationInfo) -> Settings:
        if "task" not in info.data:  # which is a problem of its own
            return Settings()
        wanted = find_task(info.data["task"]).settings
        if isinstance(settings, Settings):
            if not isinstance(settings, wanted):
                raise ValueError(
                    f"{info.data['task']} needs {wanted.__name__}, got {type(settings).__name__}"
                )
            return settings
        return validated(wanted, settings, "settings.")

    @field_validator("seeds")
    @classmethod
    def _check_seeds(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if not 0 <= min(seeds) <= max(seeds) <= MAX_SEED:
            raise ValueError(f"a seed is from 0 to {MAX_SEED}")
        return seeds

    @field_validator("depths")
    @classmethod
    def _check_depths(cls, depths: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        if not depths and "task" in info.data:
            depths = find_task(info.data["task"]).default_depths
        if not depths:
            raise ValueError("at least one is needed")
        if not 0 <= min(depths) <= max(depths) <= MAX_DEPTH:
            raise ValueError(f"a depth is from 0 to {MAX_DEPTH}")
        return depths

    @property
    def model_names(self) -> tuple[str, ...]:
        """Names of the models, each once."""
        names = (model if isinstance(model, str) else model.name for model in self.models)
        return tuple(dict.fromkeys(names))

    def models_named(self, names: Sequence[str]) -> list[str | ModelSettings]:
        """Models by name, those of this experiment with their own settings."""
        own: dict[str, list[str | ModelSettings]] = {}
        for model in self.models:
            own.setdefault(model if isinstance(model, str) else model.name, []).append(model)
        return [model for name in dict.fromkeys(names) for model in own.get(name, [name])]

    @model_validator(mode="after")
    def _check_overrides(self) -> Experiment:
        for override in self.overrides:
            changed = self.settings.model_dump() | override.settings
            validated(type(self.settings), changed, "overrides")
        return self

    def settings_of(self, model: str | ModelSettings, dataset: str, depth: int) -> Settings:
        """The experiment's settings with those of the model's own, and of the dataset's and depth's.

        :param depth: as the experiment counts.
        :raises ConfigError: no such setting, or a value that is not allowed.
        """
        settings = self._settings_of_model(model)
        changes: dict[str, Any] = {}
        for override in self.overrides:
            if override.is_for(dataset, depth):
                changes |= override.settings
        if not changes:
            return settings
        return validated(type(settings), settings.model_dump() | changes, "overrides")

    def _settings_of_model(self, model: str | ModelSettings) -> Settings:
        if isinstance(model, str):
            return self.settings
        merged: dict[str, Any] = self.settings.model_dump()
        inner = dict(merged.get("gwi") or {})
        for name, value in model.changes.items():
            if name in type(self.settings).model_fields:
                merged[name] = value
            else:
                merged["gwi"] = inner = inner | {name: value}
        return validated(type(self.settings), merged, f"models: {model.name}")

    def with_steps(self, num_steps: int) -> Experiment:
        """The same with this number of training steps for every model.

        The KL annealing is capped at a quarter of them, so that a short run ends on the true objective.
        """
        models = [
            model
            if isinstance(model, str)
            else {
                "name": model.name,
                **{k: v for k, v in model.changes.items() if k != "num_steps"},
            }
            for model in self.models
        ]
        overrides = [
            {**override.model_dump(), "settings": rest}
            for override in self.overrides
            if (rest := {k: v for k, v in override.settings.items() if k != "num_steps"})
        ]
        settings = self.settings.with_steps(num_steps)
        return self.override(settings=settings, models=models, overrides=overrides)

    def model_depth(self, depth: int) -> int:
        """The number of layers, output layer included, for a depth as this experiment counts."""
        return depth if self.depth_counts_output_layer else depth + 1

    def override(self, **changes: Any) -> Experiment:
        """A copy with the fields that are not None replaced and checked.

        :raises ConfigError: a value is not allowed.
        """
        changes = {name: value for name, value in changes.items() if value is not None}
        return validated(type(self), dict(self) | changes, "command line")


def load_experiment(path: str | Path) -> Experiment:
    """Read and check a YAML file; its plugins are imported first.

    :param path: of the file, or the name of one that comes with the package, such as "ober2023".
    :raises ConfigError: it cannot be read or does not validate; one line says where and why.

    >>> import pathlib, tempfile
    >>> from bayesian_benchmarks import load_experiment
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "mine.yaml")
    ...     _ = path.write_text("{models: [dgp], datasets: [diabetes], depths: [2, 3]}")
    ...     load_experiment(path).depths
    (2, 3)
    """
    path = find_config(path)
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)
    except OSError as error:
        raise ConfigError(f"Cannot read the config {path} ({error.strerror or error}).") from error
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())[:300]}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold named fields, such as 'models: [dgp]'.")
    return validated(Experiment, content, str(path))


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML in which a key that stands twice is an error: the second would hide the first."""


def _mapping(loader: _UniqueKeyLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    names = [key.value for key, _ in node.value]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(
            f"{repeated[0]} stands twice, at line {node.start_mark.line + 1} and after"
        )
    return loader.construct_mapping(node, deep=True)


_UniqueKeyLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
