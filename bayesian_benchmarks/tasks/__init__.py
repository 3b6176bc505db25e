"""Tasks: what is measured of a model on a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..datasets import ClassificationDataset, Dataset, OodDataset, get_dataset
from ..plugins import import_installed_plugins
from ..settings import Settings
from . import classification, density, ood, regression  # noqa: F401  (importing them registers them)
from .protocol import Metric, Task, directions, find_task, list_tasks, metrics_of, register_task
from .training import Outcome, rescore, run

__all__ = [
    "Metric",
    "Outcome",
    "Task",
    "directions",
    "find_task",
    "list_tasks",
    "metrics_of",
    "register_task",
    "rescore",
    "run",
    "run_task",
]


def run_task(
    dataset: Any,
    model: str,
    *,
    depth: int = 2,
    split: int = 0,
    seed: int = 0,
    settings: Settings | None = None,
    data_dir: str | Path | None = None,
    task: str | None = None,
    **training: Any,
) -> dict[str, float]:
    """Train a registered model on a dataset in this process, and return its metrics.

    :param dataset: a name, of which split `split` is taken, or a dataset's split itself.
    :param depth: number of layers, the output layer included.
    :param task: such as "regression" or "classification"; by default what the dataset is for.
    :param training: `checkpoint_dir`, `checkpoint_seconds` or `report_step`, as of `Trainer`.
    :raises BenchmarkError: an unknown name or split, or data that cannot be had.

    >>> from bayesian_benchmarks import Settings, run_task
    >>> settings = Settings(num_steps=2, num_inducing=3, elbo_samples=1, test_samples=2)
    >>> metrics = run_task("diabetes", "nngp:relu", split=3, depth=1, settings=settings)
    >>> list(metrics)[:3]
    ['elbo_per_point', 'test_log_likelihood', 'test_log_likelihood_mc_error']
    """
    import_installed_plugins()
    data = (
        get_dataset(dataset, split, data_dir=data_dir, task=task)
        if isinstance(dataset, str)
        else dataset
    )
    found = find_task(_task_of(data) if task is None else task)
    settings = found.settings() if settings is None else settings
    return run(data, model, found, depth=depth, settings=settings, seed=seed, **training).metrics


def _task_of(dataset: Dataset | ClassificationDataset) -> str:
    """What a dataset is for."""
    if isinstance(dataset, OodDataset):
        return "ood"
    return "classification" if isinstance(dataset, ClassificationDataset) else "regression"
