"""What the tasks share: a run of a registered model, and its bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..datasets import ClassificationDataset
from ..models import TrainingRecord, model_source, train_with_fit
from ..settings import Settings
from .metrics import check_finite
from .protocol import Task
from .recorded import Arrays, KeptModel, RecordedModel

Data = tuple[npt.NDArray[Any], npt.NDArray[Any]]

HISTORY_POINTS = 50
"""That are kept of a training."""

ELBO_ERROR = 1e-3
"""Standard error of the bound per training point below which no further samples are taken."""

DRAWS_OF_AN_ERROR = 10
"""Fewest draws of the bound whose scatter is taken for its error."""

WORTH_COMPILING = 20
"""Calls of a model's bound from which compiling it, some ten of its eager calls, pays."""


@dataclass(frozen=True)
class Outcome:
    """What a run leaves behind.

    :param metrics: scores and costs.
    :param history: up to 50 points of the training: "step", "seconds" until then, and "elbo", the mean over
        the steps between of the bound per data point; empty for a model that does not tell.
    :param predictions: what was asked of the model about the test part, in single precision.

    >>> from bayesian_benchmarks.tasks import Outcome
    >>> outcome = Outcome(metrics={"test_rmse": 55.0}, history={}, predictions={})
    >>> outcome.metrics["test_rmse"]
    55.0
    """

    metrics: dict[str, float]
    history: dict[str, list[float]]
    predictions: Arrays


def run(
    dataset: Any,
    model_name: str,
    task: Task,
    *,
    depth: int,
    settings: Settings,
    seed: int = 0,
    checkpoint_dir: Path | None = None,
    checkpoint_seconds: float = 30.0,
    report_step: Callable[[int], None] = lambda step: None,
) -> Outcome:
    """Build, train and score a registered model.

    :param dataset: a split.
    :param depth: number of layers, the output layer included; 0 where the model's name says it.
    :raises ConfigError: the model is none of the task's, or the settings are of another task.
    :raises FloatingPointError: a metric is NaN or infinite.

    >>> from bayesian_benchmarks import Settings
    >>> from bayesian_benchmarks.datasets import get_dataset
    >>> from bayesian_benchmarks.tasks import find_task, run
    >>> settings = Settings(num_steps=2, num_inducing=3, elbo_samples=1, test_samples=2)
    >>> data, task = get_dataset("diabetes"), find_task("regression")
    >>> outcome = run(data, "nngp:relu", task, depth=1, settings=settings)
    >>> "test_rmse" in outcome.metrics, outcome.history["step"]
    (True, [1, 2])
    """
    source = model_source(model_name)
    source.check(task.name, settings, depth)
    settings = source.read(settings)
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
    recorded = RecordedModel(model)
    scores = bound(model, data, settings=settings, seed=seed)
    scores |= task.evaluate(recorded, dataset, settings=settings, seed=seed)
    check_finite(scores)
    history = summarised(getattr(record, "history", record))
    costs = training_metrics(record, len(data[0]), settings.batch_size)
    return Outcome(scores | costs, history, recorded.predictions)


def rescore(
    predictions: Arrays, dataset: Any, task: Task, *, settings: Settings, seed: int
) -> dict[str, float]:
    """Scores of kept predictions.

    :raises NotKept: the task asks for what was not kept.

    >>> from bayesian_benchmarks import Settings
    >>> from bayesian_benchmarks.datasets import get_dataset
    >>> from bayesian_benchmarks.tasks import find_task, rescore, run
    >>> settings = Settings(num_steps=2, num_inducing=3, elbo_samples=1, test_samples=2)
    >>> data, task = get_dataset("diabetes"), find_task("regression")
    >>> outcome = run(data, "nngp:relu", task, depth=1, settings=settings)
    >>> scores = rescore(outcome.predictions, data, task, settings=settings, seed=0)
    >>> np.allclose(scores["test_rmse"], outcome.metrics["test_rmse"])
    True
    """
    scores = task.evaluate(KeptModel(predictions), dataset, settings=settings, seed=seed)
    check_finite(scores)
    return scores


def summarised(record: Any) -> dict[str, list[float]]:
    """A training's `History`, or what has its `elbo` and `clock`, as `Outcome.history`."""
    elbo = getattr(record, "elbo", ())
    if not len(elbo):
        return {}
    parts = np.array_split(np.asarray(elbo, np.float64), min(HISTORY_POINTS, len(elbo)))
    steps = np.cumsum([len(part) for part in parts])
    means = [float(f"{part.mean():.6g}") for part in parts]
    history: dict[str, list[float]] = {"step": [int(step) for step in steps], "elbo": means}
    if clock := getattr(record, "clock", None):
        known, seconds = zip((0, 0.0), *clock, strict=True)
        history["seconds"] = [float(f"{x:.4g}") for x in np.interp(steps, known, seconds)]
    return history


def bound(model: Any, data: Data, *, settings: Settings, seed: int = 0) -> dict[str, float]:
    """The model's bound on the evidence per training point, or its objective if that is none.

    Empty for a model without `elbo`.
    """
    if not hasattr(model, "elbo"):
        return {}
    is_bound = getattr(model, "objective_is_bound", True)
    name = "elbo_per_point" if is_bound else "objective_per_point"
    return {name: elbo_per_point(model, data, settings=settings, seed=seed)}


def training_metrics(record: TrainingRecord, num_data: int, batch_size: int) -> dict[str, float]:
    """What training cost; an epoch is as many steps as batches cover the `num_data` training points."""
    costs = {"seconds": float(record.seconds), "num_recoveries": float(record.num_recoveries)}
    if np.isfinite(record.seconds_per_step):
        costs["seconds_per_step"] = float(record.seconds_per_step)
        costs["epoch_seconds"] = costs["seconds_per_step"] * math.ceil(num_data / batch_size)
    return costs


def elbo_per_point(model: Any, data: Data, *, settings: Settings, seed: int = 0) -> float:
    """ELBO of the training part over its number of points, averaged over at most `elbo_samples`.

    Taken `train_samples` samples and `batch_size` points at a time, as in training: the model
    scales a batch's ELBO to all points, and the batch weighs as many points as it has. An ELBO
    that is the same for two seeds has no random draws, and is taken once. Of many points few samples
    are enough: it ends when the mean's standard error is below `ELBO_ERROR`.
    """
    X, Y = data
    draws = list(_chunks(settings.elbo_samples, settings.train_samples))
    batches = list(_chunks(len(X), settings.batch_size))
    elbo = _bound(model, len(draws) * len(batches))

    def value(rows: range, samples: range) -> float:
        batch = X[rows.start : rows.stop], Y[rows.start : rows.stop]
        return elbo(batch, len(samples), seed + samples[0])

    if len(draws) > 2 and value(batches[0], draws[0]) == value(batches[0], draws[1]):
        draws = draws[:1]
    estimates: list[float] = []
    for samples in draws:
        total = sum(len(rows) * value(rows, samples) for rows in batches)
        estimates.append(total / len(X) ** 2)
        enough = len(estimates) >= DRAWS_OF_AN_ERROR
        if enough and np.std(estimates, ddof=1) < ELBO_ERROR * math.sqrt(len(estimates)):
            break
    weights = [len(samples) for samples in draws[: len(estimates)]]
    return float(np.average(estimates, weights=weights))


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
