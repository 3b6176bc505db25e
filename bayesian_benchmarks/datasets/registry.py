"""Datasets by name: registration, look-up, and the list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..errors import BadSplitError, BenchmarkError, UnknownNameError
from .classification import ClassificationDataset
from .dataset import Dataset, SplitData
from .ood import OodDataset

Loader = Callable[[int, Path | None], SplitData]
"""`load(split, data_dir)`: the split in original units, from `data_dir` when it is not None."""


class SplitType(Protocol):
    """A type of dataset: checks, scales and wraps a split in original units.

    One with `training_part`, as those of the package, can be tuned on: see `Dataset.training_part`.
    """

    def from_split(self, name: str, split: int, data: SplitData) -> Any:
        """The split."""


@dataclass(frozen=True)
class DatasetSource:
    """A registered dataset: how to load a split of it, how many there are, where it comes from.

    `is_pinned` says that its files are checked against a digest that the package holds.
    """

    name: str
    load: Loader
    num_splits: int
    task: str
    origin: str
    is_pinned: bool = False


_TYPES: dict[str, SplitType] = {
    "regression": Dataset,
    "classification": ClassificationDataset,
    "density": Dataset,
    "ood": OodDataset,
}
_SHARED: dict[str, tuple[str, ...]] = {"density": ("regression",)}
"""Tasks whose datasets are a task's too, unless another has its name there."""

_SOURCES: dict[tuple[str, str], DatasetSource] = {}
"""By name and task: wine is a dataset of both."""


def declare_task(task: str, dataset: SplitType, datasets_of: tuple[str, ...] = ()) -> None:
    """Make a task known to `register_dataset` and `get_dataset`; `register_task` does."""
    _TYPES[task], _SHARED[task] = dataset, datasets_of


def split_type(task: str) -> SplitType:
    """The type of a task's datasets."""
    return _TYPES[task]


def has_classes(task: str) -> bool:
    """Whether a task's targets are labels."""
    found = _TYPES[task]
    return isinstance(found, type) and issubclass(found, ClassificationDataset)


def register_dataset(
    name: str,
    *,
    num_splits: int = 20,
    task: str = "regression",
    origin: str = "user",
    is_pinned: bool = False,
) -> Callable[[Loader], Loader]:
    """Decorator that makes a loader known as dataset `name`.

    Worker processes know it too when the module is named in the experiment's `plugins`.

    :param task: "regression", "classification" for integer labels [N] in place of targets,
        "density" for conditional densities alone, "ood" for labels and an out-distribution
        (`OodSplitData`), or one of `register_task`'s.
    :param is_pinned: whether the loader checks its files against digests; the data of other datasets
        are part of a run's key, so that results of altered data are never taken for these.
    :raises BenchmarkError: the name belongs to another loader.

    >>> from bayesian_benchmarks.datasets import get_dataset, random_split, register_dataset
    >>> @register_dataset("mine", num_splits=5)
    ... def load_mine(split, data_dir):
    ...     return random_split(X, Y, split)  # [N, D] and [N, 1], original units
    >>> get_dataset("mine", split=4).X_train.shape
    (9, 2)
    """

    if task not in _TYPES:
        raise UnknownNameError("task", task, _TYPES)

    def register(load: Loader) -> Loader:
        known = _SOURCES.get((name, task))
        if known is not None and _identity(known.load) != _identity(load):
            raise BenchmarkError(f"Dataset {name!r} is registered already; choose another name.")
        _SOURCES[name, task] = DatasetSource(name, load, num_splits, task, origin, is_pinned)
        return load

    return register


def dataset_source(name: str, task: str | None = None) -> DatasetSource:
    """The registration of `name`, for regression where it is a dataset of several tasks.

    :raises UnknownNameError: no such dataset, or none of the task.

    >>> from bayesian_benchmarks.datasets import dataset_source
    >>> source = dataset_source("diabetes")
    >>> source.num_splits, source.task, source.origin
    (20, 'regression', 'bundled with scikit-learn')
    """
    for known in _TYPES if task is None else _tasks_of(task):
        if (name, known) in _SOURCES:
            return _SOURCES[name, known]
    raise UnknownNameError("dataset", name, list_datasets(task))


def list_datasets(task: str | None = "regression") -> list[str]:
    """Names of the datasets of a task (of all tasks with None), sorted.

    >>> from bayesian_benchmarks.datasets import list_datasets
    >>> "diabetes" in list_datasets(), "iris" in list_datasets("classification")
    (True, True)
    """
    tasks = tuple(_TYPES) if task is None else _tasks_of(task)
    return sorted({s.name for s in _SOURCES.values() if s.task in tasks})


def get_dataset(
    name: str,
    split: int = 0,
    *,
    data_dir: str | Path | None = None,
    task: str | None = None,
) -> Any:
    """Split number `split` of the dataset `name`, normalised.

    :param data_dir: a local copy of the data, laid out as their public address is; the network is
        then never used. Defaults to the environment variable `BAYESIAN_BENCHMARKS_DATA`. Without
        either, files are downloaded once and cached.
    :param task: such as "regression" or "classification", for a name of several; default the first.
    :returns: the task's type of dataset, such as `Dataset` or `ClassificationDataset`.
    :raises UnknownNameError: no such dataset.
    :raises BadSplitError: no such split.
    :raises DataFileError: a file is missing or altered, or cannot be downloaded or cached.

    >>> from bayesian_benchmarks.datasets import get_dataset
    >>> dataset = get_dataset("diabetes", split=3)
    >>> dataset.X_train.shape, dataset.X_test.shape
    ((398, 10), (44, 10))
    >>> get_dataset("diabetis")
    Traceback (most recent call last):
        ...
    bayesian_benchmarks.errors.UnknownNameError: ... Did you mean diabetes? ...
    """
    source = dataset_source(name, task)
    check_split(name, split, source.num_splits)
    data = source.load(split, None if data_dir is None else Path(data_dir))
    return _TYPES[source.task].from_split(name, split, data)


def _tasks_of(task: str) -> tuple[str, ...]:
    """The tasks whose datasets a task takes, its own first."""
    return task, *_SHARED.get(task, ())


def check_split(name: str, split: int, num_splits: int) -> None:
    """Raise `BadSplitError` unless `split` is one of `num_splits`."""
    if not 0 <= split < num_splits:
        raise BadSplitError(
            f"{name} has no split {split}; its {num_splits} splits are 0 to {num_splits - 1}."
        )


def _identity(load: Loader) -> tuple[str, str]:
    """Module and name of a loader: a notebook cell that is run again registers the same one."""
    return load.__module__, getattr(load, "__qualname__", repr(load))
