"""Tasks: what is measured of a model on a dataset. Regression, so far."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..config import Settings
from ..datasets import Dataset, get_dataset
from .regression import METRICS, evaluate, run_regression

__all__ = ["METRICS", "evaluate", "run_regression", "run_task"]


def run_task(
    dataset: Dataset | str,
    model: str,
    *,
    depth: int = 2,
    split: int = 0,
    seed: int = 0,
    settings: Settings | None = None,
    data_dir: str | Path | None = None,
    **training: Any,
) -> dict[str, float]:
    """Train a registered model on a dataset in this process, and return its metrics.

    >>> run_task("diabetes", "dwp-ab-gw", settings=Settings(num_steps=500))
    {'elbo_per_point': ..., 'test_log_likelihood': ..., 'test_rmse': ..., ...}

    :param dataset: a name, of which split `split` is taken, or a `Dataset`.
    :param depth: number of layers, the output layer included.
    :param training: `checkpoint_dir`, `checkpoint_seconds` or `report_step` of `run_regression`.
    :raises BenchmarkError: an unknown name or split, or data that cannot be had.
    """
    if isinstance(dataset, str):
        dataset = get_dataset(dataset, split, data_dir=data_dir)
    return run_regression(
        dataset, model, depth=depth, settings=settings or Settings(), seed=seed, **training
    )
