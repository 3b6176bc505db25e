"""What the tasks share: a run of a registered model, and its bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..config import Settings
from ..datasets import ClassificationDataset, Dataset
from ..errors import ConfigError
from ..models import TrainingRecord, model_source, train_with_fit

Data = tuple[npt.NDArray[Any], npt.NDArray[Any]]

WORTH_COMPILING = 20
"""Calls of a model's bound from which compiling it, some ten of its eager calls, pays."""


def run(
    dataset: Dataset | ClassificationDataset,
    model_name: str,
    evaluate: Callable[..., dict[str, float]],
    *,
    depth: int,
    settings: Settings,
    seed: int = 0,
    checkpoint_dir: Path | None = None,
    checkpoint_seconds: float = 30.0,
    report_step: Callable[[int], None] = lambda step: None,
) -> dict[str, float]:
    """Build, train and score a registered model.

    :param evaluate: a task's scores of the trained model on the dataset.
    :param depth: number of layers, the output layer included; 0 where the model's name says it.
    :raises ConfigError: the settings are of another task.
    :raises FloatingPointError: a metric is NaN or infinite.
    """
    source = model_source(model_name)
    if not isinstance(settings, source.settings):
        raise ConfigError(
            f"{model_name} needs {source.settings.__name__}, got {type(settings).__name__}; run it in an "
            "experiment of that task"
        )
    data: Data = dataset.X_train, dataset.Y_train
    classes: dict[str, Any] = {}
    if isinstance(dataset, ClassificationDataset):
        classes["num_classes"] = dataset.num_classes
    model = source.build(*data, depth=depth, settings=settings, seed=seed, **classes)
    record = (source.train or train_with_fit)(
        model,
        data,
        settings=settings,
        seed=seed,
        checkpoint_dir=checkpoint_dir,
        checkpoint_seconds=checkpoint_seconds,
        report_step=report_step,
    )
    scores = evaluate(model, dataset, settings=settings, seed=seed)
    check_finite(scores)
    return scores | training_metrics(record)


def check_finite(values: Mapping[str, npt.ArrayLike]) -> None:
    """Raise `FloatingPointError` if a score or prediction is NaN or infinite, or has such a part."""
    bad = [name for name, value in values.items() if not np.all(np.isfinite(value))]
    if bad:
        raise FloatingPointError(f"{', '.join(bad)} of the trained model is NaN or infinite")


def training_metrics(record: TrainingRecord) -> dict[str, float]:
    """What training cost."""
    costs = {"seconds": float(record.seconds), "num_recoveries": float(record.num_recoveries)}
    if np.isfinite(record.seconds_per_step):
        costs["seconds_per_step"] = float(record.seconds_per_step)
    return costs


def elbo_per_point(model: Any, data: Data, *, settings: Settings, seed: int = 0) -> float:
    """ELBO of the training part over its number of points, averaged over `elbo_samples`.

    Taken `train_samples` samples and `batch_size` points at a time, as in training: the model
    scales a batch's ELBO to all points, and the batch weighs as many points as it has.
    """
    X, Y = data
    draws = list(_chunks(settings.elbo_samples, settings.train_samples))
    batches = list(_chunks(len(X), settings.batch_size))
    elbo = _bound(model, len(draws) * len(batches))
    total = 0.0
    for samples in draws:
        for rows in batches:
            batch = X[rows.start : rows.stop], Y[rows.start : rows.stop]
            value = elbo(batch, len(samples), seed + samples[0])
            total += len(samples) * len(rows) * value
    return total / (settings.elbo_samples * len(X) ** 2)


def _bound(model: Any, num_calls: int) -> Callable[[Data, int, int], float]:
    """The model's `elbo` of data, number of samples and seed, compiled if it will be called often."""
    if num_calls >= WORTH_COMPILING:
        import tensorflow as tf

        from gpflow_dkp.random import as_seed

        if isinstance(model, tf.Module):
            compiled = tf.function(model.elbo, autograph=False)
            return lambda data, num_samples, seed: float(
                compiled(data, num_samples=num_samples, seed=as_seed(seed))
            )
    return lambda data, num_samples, seed: float(
        model.elbo(data, num_samples=num_samples, seed=seed)
    )


def _chunks(total: int, size: int) -> Iterator[range]:
    """Consecutive ranges of at most `size` that cover `range(total)`."""
    for start in range(0, total, size):
        yield range(start, min(start + size, total))
