"""One run of the benchmark: a model on a split of a dataset with given settings and seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path

from .config import Experiment, Settings
from .datasets import ClassificationDataset, CsvDataset, Dataset, dataset_source, get_dataset
from .datasets.registry import check_split
from .errors import ConfigError
from .models import model_source

RunKey = tuple[str, str, int, str, str, int]
"""What makes a stored row unique: task, dataset, split, model, settings hash, seed."""

LATER_SETTINGS: dict[str, object] = {"ard": True, "gwi": None}
"""Settings that are younger than the first stored rows, with these rows' values: no part of a key then."""

LATER_GWI_SETTINGS: dict[str, object] = {
    "networks": (
        {"hidden_units": (10, 10), "activation": "tanh", "weight_variance": None},
        {"hidden_units": (50, 50), "activation": "relu", "weight_variance": 1.0},
        {"hidden_units": (50, 50), "activation": "relu", "weight_variance": 0.1},
    )
}
"""The same of `gwi`."""


def _leave_out(later: dict[str, object], settings: dict[str, object]) -> None:
    for name, value in later.items():
        if name in settings and settings[name] == value:
            del settings[name]


@dataclass(frozen=True)
class Run:
    """A model, a split, a depth (output layer included), a seed and the settings."""

    task: str
    dataset: str
    split: int
    model: str
    depth: int
    seed: int
    settings: Settings
    csv: CsvDataset | None = None

    @cached_property
    def settings_json(self) -> str:
        """Everything that changes the numbers besides the other parts of the key, sorted."""
        settings = self.settings.model_dump()
        _leave_out(LATER_GWI_SETTINGS, settings["gwi"] or {})
        _leave_out(LATER_SETTINGS, settings)
        content: dict[str, object] = {"depth": self.depth, **settings}
        if self.csv is not None:
            content["csv"] = {"sha256": self.csv.sha256, "target": self.csv.target}
        return json.dumps(content, sort_keys=True)

    @cached_property
    def settings_hash(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of `settings_json`."""
        return hashlib.sha256(self.settings_json.encode()).hexdigest()[:16]

    @property
    def key(self) -> RunKey:
        """What makes the run's row unique in a store."""
        return (
            self.task,
            self.dataset,
            self.split,
            self.model,
            self.settings_hash,
            self.seed,
        )

    @property
    def directory_name(self) -> str:
        """Name of the folder of the run's checkpoints."""
        return (
            f"{self.task}-{self.dataset}-split{self.split}-{self.model}-depth{self.depth}"
            f"-seed{self.seed}-{self.settings_hash}"
        )

    def __str__(self) -> str:
        depth = f" depth {self.depth}" if self.depth else ""
        seed = f" seed {self.seed}" if self.seed else ""
        return f"{self.dataset} split {self.split} {self.model}{depth}{seed}"

    def load(self, data_dir: Path | None = None) -> Dataset | ClassificationDataset:
        """The run's data."""
        if self.csv is not None:
            return self.csv.get(self.split)
        return get_dataset(self.dataset, self.split, data_dir=data_dir, task=self.task)


def expand(experiment: Experiment) -> list[Run]:
    """All runs of an experiment, every dataset's split 0 first, so that tables fill evenly.

    :raises BenchmarkError: a name or split that does not exist, or a CSV file that cannot be used.
    """
    for module in experiment.plugins:
        import_plugin(module)
    for model in experiment.models:
        model_source(model)
    csv = None
    if experiment.csv is not None:
        csv = CsvDataset.open(experiment.csv, experiment.target, task=experiment.task)
    elif experiment.target is not None:
        raise ConfigError("A target is given but no CSV file; give both, or neither.")
    splits = dict(_splits(experiment, csv))
    if not splits:
        raise ConfigError("No dataset is given; name one, or a CSV file.")
    runs = [
        Run(
            task=experiment.task,
            dataset=dataset,
            split=split,
            model=model,
            depth=experiment.model_depth(depth),
            seed=seed,
            settings=experiment.settings,
            csv=csv if csv is not None and dataset == csv.name else None,
        )
        for seed in experiment.seeds
        for split in sorted({split for numbers in splits.values() for split in numbers})
        for dataset, numbers in splits.items()
        if split in numbers
        for depth in experiment.depths
        for model in experiment.models
    ]
    return list(dict.fromkeys(runs))


def import_plugin(module: str) -> None:
    """Import a module that registers models or datasets.

    :raises ConfigError: it cannot be imported.
    """
    try:
        import_module(module)
    except ImportError as error:
        raise ConfigError(f"Cannot import the plugin {module}: {error}") from error


def _splits(experiment: Experiment, csv: CsvDataset | None) -> Iterator[tuple[str, list[int]]]:
    """Each dataset with the numbers of its splits to run."""
    sizes = {name: dataset_source(name, experiment.task).num_splits for name in experiment.datasets}
    if csv is not None:
        sizes[csv.name] = csv.num_splits
    for name, size in sizes.items():
        numbers = list(range(size)) if experiment.splits == "all" else list(experiment.splits)
        for split in numbers:
            check_split(name, split, size)
        yield name, numbers
