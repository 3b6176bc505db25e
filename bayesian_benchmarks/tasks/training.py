"""What the tasks share: building and training a registered model, and its bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..config import Settings
from ..errors import ConfigError
from ..models import TrainingRecord, model_source, train_with_fit

Data = tuple[npt.NDArray[Any], npt.NDArray[Any]]


def build_and_train(
    model_name: str,
    data: Data,
    *,
    depth: int,
    settings: Settings,
    seed: int,
    num_classes: int | None = None,
    **training: Any,
) -> tuple[Any, TrainingRecord]:
    """A registered model, trained on `data`.

    :param num_classes: for classification.
    :raises ConfigError: the settings are of another task.
    :param training: further arguments of the model's `Trainer`.
    """
    source = model_source(model_name)
    if not isinstance(settings, source.settings):
        raise ConfigError(
            f"{model_name} needs {source.settings.__name__}, got {type(settings).__name__}; run it in an "
            "experiment of that task"
        )
    classes: dict[str, Any] = {} if num_classes is None else {"num_classes": num_classes}
    model = source.build(*data, depth=depth, settings=settings, seed=seed, **classes)
    train = source.train or train_with_fit
    return model, train(model, data, settings=settings, seed=seed, **training)


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
    total = 0.0
    for samples in _chunks(settings.elbo_samples, settings.train_samples):
        for rows in _chunks(len(X), settings.batch_size):
            batch = slice(rows.start, rows.stop)
            elbo = model.elbo(
                (X[batch], Y[batch]), num_samples=len(samples), seed=seed + samples[0]
            )
            total += len(samples) * len(rows) * float(elbo)
    return total / (settings.elbo_samples * len(X) ** 2)


def _chunks(total: int, size: int) -> Iterator[range]:
    """Consecutive ranges of at most `size` that cover `range(total)`."""
    for start in range(0, total, size):
        yield range(start, min(start + size, total))
