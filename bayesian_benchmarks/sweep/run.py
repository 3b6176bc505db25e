"""One run of the benchmark: a model on a split of a dataset with given settings and seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..datasets import TableDataset, dataset_source, get_dataset
from ..datasets.registry import check_split
from ..errors import ConfigError, DataFileError
from ..experiment import Experiment
from ..models import model_source
from ..settings import OF_PAPERS_SCHEDULE, Settings
from ..store import ResultRow, RunKey, digest_of
from ..tasks import find_task
from .environment import code_digest

UNKNOWN = "unknown"
"""The digest of data that cannot be had."""

NOT_IN_OLDER_KEYS = {
    "input_bias": False,
    "shared_precision": True,
    "schedule.beta_1": 0.9,
    "schedule.antithetic": False,
    "schedule.latent_annealing": None,
    "gwi.separate_kernels": False,
    "gwi.weight_variance": None,
    "gwi.image_activation": "relu",
    "gwi.covariance": "svgp",
    "separate_kernels": False,
    "inner_noise": None,
    "num_marginal_points": 0,
}
"""Settings that a key leaves out where they have these values, as in rows from before there were such."""


@dataclass(frozen=True)
class Run:
    """A model, a split, a depth (output layer included), a seed and the settings.

    :param data: digest of the split's arrays; "" for files that the package itself pins.
    :param code: digest of the sources of models, datasets and tasks that are not the package's; "" for none.

    >>> from bayesian_benchmarks import Settings
    >>> from bayesian_benchmarks.sweep import Run
    >>> run = Run("regression", "diabetes", 0, "dgp", 2, 0, Settings())
    >>> str(run), run.load().N
    ('diabetes split 0 dgp depth 2', 442)
    >>> longer = Run("regression", "diabetes", 0, "dgp", 2, 0, Settings(num_steps=30_000))
    >>> run.key == longer.key
    False
    """

    kinds: ClassVar[dict[str, type[Run]]] = {}
    """This class and those of it, by name: what a worker can be told to do."""

    task: str
    dataset: str
    split: int
    model: str
    depth: int
    seed: int
    settings: Settings
    data: str = ""
    code: str = ""
    csv: TableDataset | None = None

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        Run.kinds[cls.__name__] = cls

    @cached_property
    def settings_json(self) -> str:
        """Everything that training depends on besides the other parts of the key, sorted."""
        source = model_source(self.model)
        settings = self.settings.model_dump()
        for name in self.settings.of_evaluation:
            settings.pop(name, None)
        for name, value in list(settings.items()):
            if not source.is_read(name):
                del settings[name]
            elif isinstance(value, dict):
                settings[name] = {k: v for k, v in value.items() if source.is_read(f"{name}.{k}")}
        # The schedule stands in place of the two that it replaces.
        unread = ("schedule",) if settings.get("schedule") is None else OF_PAPERS_SCHEDULE
        for name in unread:
            settings.pop(name, None)
        schedule = self.settings.schedule
        if schedule is not None and not schedule.is_limited(self.settings.num_steps):
            settings.get("schedule", {}).pop("max_annealing_steps", None)
        for name, value in NOT_IN_OLDER_KEYS.items():
            outer, _, inner = name.rpartition(".")
            holder = (settings.get(outer) or {}) if outer else settings
            if inner in holder and holder[inner] == value:
                del holder[inner]
        content: dict[str, object] = {"depth": self.depth, **settings}
        if self.data:
            content["data"] = self.data
        if self.code:
            content["code"] = self.code
        return json.dumps(content, sort_keys=True)

    @cached_property
    def evaluation_json(self) -> str:
        """What the scores depend on, and training does not, sorted."""
        values = self.settings.model_dump(include=set(self.settings.of_evaluation))
        return json.dumps(values, sort_keys=True)

    @cached_property
    def key(self) -> RunKey:
        """What makes the run's row unique in a store."""
        return RunKey(
            self.task,
            self.dataset,
            self.split,
            self.model,
            digest_of(self.settings_json),
            self.seed,
        )

    @property
    def directory_name(self) -> str:
        """Name of the folder of the run's checkpoints and predictions."""
        return (
            f"{self.task}-{self.dataset}-split{self.split}-{self.model}-depth{self.depth}"
            f"-seed{self.seed}-{self.key.settings_hash}"
        )

    def has_made(self, row: ResultRow) -> bool:
        """Whether a row is of this run, on any data where these are unknown."""
        if self.data != UNKNOWN:
            return row.key == self.key
        theirs = {k: v for k, v in json.loads(row.settings).items() if k != "data"}
        ours = {k: v for k, v in json.loads(self.settings_json).items() if k != "data"}
        same = row.key._replace(settings_hash="") == self.key._replace(settings_hash="")
        return same and theirs == ours

    def __str__(self) -> str:
        depth = f" depth {self.depth}" if self.depth else ""
        seed = f" seed {self.seed}" if self.seed else ""
        return f"{self.dataset} split {self.split} {self.model}{depth}{seed}"

    def load(self, data_dir: Path | None = None) -> Any:
        """The run's split of its dataset."""
        if self.csv is not None:
            return self.csv.get(self.split)
        return get_dataset(self.dataset, self.split, data_dir=data_dir, task=self.task)


Run.kinds[Run.__name__] = Run


def expand(
    experiment: Experiment, data_dir: str | Path | None = None, *, need_data: bool = True
) -> list[Run]:
    """All runs of an experiment, every dataset's split 0 first, so that tables fill evenly.

    :param data_dir: a local copy of the data, see `get_dataset`.
    :param need_data: False to be content with runs whose `data` is `UNKNOWN` where data cannot be had: they
        can find their rows, and are not to be done.
    :raises BenchmarkError: a name or split that does not exist, a model that is none of the task's or
        cannot have a depth or settings that are asked for, or a CSV file that cannot be used.

    >>> from bayesian_benchmarks import Experiment
    >>> from bayesian_benchmarks.sweep import expand
    >>> experiment = Experiment(
    ...     models=["dgp", "dwp-gw"], datasets=["diabetes"], splits=[0], depths=[2]
    ... )
    >>> [str(run) for run in expand(experiment)]
    ['diabetes split 0 dgp depth 2', 'diabetes split 0 dwp-gw depth 2']
    """
    directory = None if data_dir is None else Path(data_dir)
    csv = None
    if experiment.csv is not None:
        csv = TableDataset.open(experiment.csv, experiment.target, task=experiment.task)
    elif experiment.target is not None:
        raise ConfigError("A target is given but no CSV file; give both, or neither.")
    splits = dict(_splits(experiment, csv))
    if not splits:
        raise ConfigError("No dataset is given; name one, or a CSV file.")

    for override in experiment.overrides:
        for dataset in set(override.datasets or ()) - set(splits):
            dataset_source(
                dataset, experiment.task
            )  # of another call's --datasets, but not a misprint
    sources = [
        (model, model_source(model if isinstance(model, str) else model.name))
        for model in experiment.models
    ]
    choices = {
        (dataset, depth): [
            (source, experiment.settings_of(model, dataset, depth)) for model, source in sources
        ]
        for dataset in splits
        for depth in experiment.depths
    }
    for (_, depth), chosen in choices.items():
        for source, settings in chosen:
            source.check(experiment.task, settings, experiment.model_depth(depth))

    not_to_be_had: set[str] = set()  # asked for once: each time may be a download that fails

    def digest(dataset: str, split: int) -> str:
        if dataset in not_to_be_had:
            return UNKNOWN
        try:
            return _data_digest(experiment.task, dataset, split, directory, csv)
        except DataFileError:
            if need_data:
                raise
            not_to_be_had.add(dataset)
            return UNKNOWN

    runs = [
        Run(
            task=experiment.task,
            dataset=dataset,
            split=split,
            model=source.name,
            depth=experiment.model_depth(depth),
            seed=seed,
            settings=source.read(settings),
            data=digest(dataset, split),
            code=plugin_code(experiment.task, dataset, source.name),
            csv=csv if csv is not None and dataset == csv.name else None,
        )
        for seed in experiment.seeds
        for split in sorted({split for numbers in splits.values() for split in numbers})
        for dataset, numbers in splits.items()
        if split in numbers
        for depth in experiment.depths
        for source, settings in choices[dataset, depth]
    ]
    return list({run.key: run for run in runs}.values())


def _splits(experiment: Experiment, csv: TableDataset | None) -> Iterator[tuple[str, list[int]]]:
    """Each dataset with the numbers of its splits to run."""
    sizes = {name: dataset_source(name, experiment.task).num_splits for name in experiment.datasets}
    if csv is not None:
        sizes[csv.name] = csv.num_splits
    for name, size in sizes.items():
        numbers = list(range(size)) if experiment.splits == "all" else list(experiment.splits)
        for split in numbers:
            check_split(name, split, size)
        yield name, numbers


@lru_cache(maxsize=100_000)
def _data_digest(
    task: str, dataset: str, split: int, data_dir: Path | None, csv: TableDataset | None
) -> str:
    """Digest of the arrays of a split; "" for files that the package itself pins."""
    if csv is not None and dataset == csv.name:
        return data_digest(csv.get(split))
    if dataset_source(dataset, task).is_pinned:
        return ""
    return data_digest(get_dataset(dataset, split, data_dir=data_dir, task=task))


def data_digest(dataset: Any) -> str:
    """First 16 hexadecimal digits of the SHA-256 of a split's arrays, types and shapes included."""
    found = hashlib.sha256()
    for name, value in sorted(vars(dataset).items()):
        if isinstance(value, np.ndarray):
            found.update(f"{name} {value.dtype} {value.shape}".encode())
            found.update(np.ascontiguousarray(value).tobytes())
    return found.hexdigest()[:16]


@lru_cache(maxsize=10_000)
def plugin_code(task: str, dataset: str, model: str) -> str:
    """Digest of the sources of what is registered from outside the package."""
    source = model_source(model)
    functions = [source.build, source.train, find_task(task).evaluate]
    return code_digest([function for function in functions if function is not None])
