"""Tasks: what is measured of a model on a dataset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..config import EXPERIMENTS, Settings
from ..datasets import ClassificationDataset, Dataset, OodDataset, get_dataset
from . import classification, density, ood, regression
from .regression import METRICS, evaluate
from .training import run

METRICS_OF = {
    "regression": regression.METRICS,
    "classification": classification.METRICS,
    "density": density.METRICS,
    "ood": ood.METRICS,
}
"""Every metric of each task, and what it is."""

_EVALUATE: dict[str, Callable[..., dict[str, float]]] = {
    "regression": regression.evaluate,
    "classification": classification.evaluate,
    "density": density.evaluate,
    "ood": ood.evaluate,
}

__all__ = [
    "METRICS",
    "METRICS_OF",
    "evaluate",
    "run",
    "run_task",
]


def run_task(
    dataset: Dataset | ClassificationDataset | str,
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

    >>> run_task("diabetes", "dwp-ab-gw", settings=Settings(num_steps=500))
    {'elbo_per_point': ..., 'test_log_likelihood': ..., 'test_rmse': ..., ...}

    :param dataset: a name, of which split `split` is taken, or a dataset's split itself.
    :param depth: number of layers, the output layer included.
    :param task: "regression", "classification", "density" or "ood"; by default what the dataset is for.
    :param training: `checkpoint_dir`, `checkpoint_seconds` or `report_step`, as of `Trainer`.
    :raises BenchmarkError: an unknown name or split, or data that cannot be had.
    """
    data = (
        get_dataset(dataset, split, data_dir=data_dir, task=task)
        if isinstance(dataset, str)
        else dataset
    )
    if task is None:
        task = _task_of(data)
    if settings is None:
        settings = EXPERIMENTS[task].model_fields["settings"].default
    return run(data, model, _EVALUATE[task], depth=depth, settings=settings, seed=seed, **training)


def _task_of(dataset: Dataset | ClassificationDataset) -> str:
    """What a dataset is for."""
    if isinstance(dataset, OodDataset):
        return "ood"
    return "classification" if isinstance(dataset, ClassificationDataset) else "regression"
