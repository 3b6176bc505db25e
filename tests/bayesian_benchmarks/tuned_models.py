"""A plugin for tests of tuning: models whose bound is a formula of their settings, in no time.

Environment: TUNED_TEST_SHIFT, added to the dataset's test targets; TUNED_LOG, a file with a line a training;
TUNED_FAIL and TUNED_DIE, numbers of inducing points with which training fails, or the process kills itself;
TUNED_HOLD, a file: no training goes on from step 50 while it is there.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from bayesian_benchmarks.datasets import Dataset, SplitData, random_split, register_dataset
from bayesian_benchmarks.models import register_model
from bayesian_benchmarks.settings import Settings
from bayesian_benchmarks.tasks import Metric, Task, register_task


def bound(settings: Settings, Y: Any, step: int) -> float:
    """Best at 30 inducing points, rising with the step, and another on each split."""
    distance = math.log(settings.num_inducing / 30)
    return float(Y[0, 0]) / 10 - distance**2 - 1.0 / step


class Model:
    def __init__(self, Y: Any, settings: Settings) -> None:
        self.Y, self.settings = Y, settings

    def predict_mixture(self, X: Any, *, num_samples: int, seed: int) -> Any:
        mean = np.full((num_samples, len(X), 1), self.Y.mean())
        return mean, np.full_like(mean, 1.0 + math.log(self.settings.num_inducing / 30) ** 2)


class BoundModel(Model):
    def elbo(self, data: Any, *, num_samples: int, seed: int) -> float:
        return len(self.Y) * bound(self.settings, self.Y, self.settings.num_steps)


def train(
    model: Model,
    data: Any,
    *,
    settings: Settings,
    seed: int,
    checkpoint_dir: Path,
    checkpoint_seconds: float,
    report_step: Callable[..., None],
) -> Any:
    file = checkpoint_dir / "step"
    start = int(file.read_text()) if file.exists() else 0
    with open(os.environ.get("TUNED_LOG", os.devnull), "a") as log:
        log.write(f"{settings.num_inducing} from {start}\n")
    if os.environ.get("TUNED_FAIL") == str(settings.num_inducing):
        raise FloatingPointError("no number")
    if os.environ.get("TUNED_DIE") == str(settings.num_inducing):
        os.kill(os.getpid(), signal.SIGKILL)
    for step in range(start + 10, settings.num_steps + 1, 10):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(step))
        report_step(step, SimpleNamespace(elbo=[bound(settings, model.Y, step)]))
        while step == 50 and Path(os.environ.get("TUNED_HOLD", "/no such file")).exists():
            time.sleep(0.02)
    return SimpleNamespace(seconds=1.0, seconds_per_step=0.1, num_recoveries=0)


def evaluate(model: Any, dataset: Dataset, *, settings: Settings, seed: int) -> dict[str, float]:
    """By NumPy alone: workers need no TensorFlow."""
    mean, variance = (
        part[0] for part in model.predict_mixture(dataset.X_test, num_samples=1, seed=0)
    )
    squares = (dataset.Y_test - mean) ** 2 / variance
    density = -0.5 * (squares + np.log(2.0 * np.pi * variance)).mean()
    return {"test_log_likelihood": float(density - np.log(dataset.scaling.Y_std[0]))}


register_task(
    Task(
        "tuned", Settings, Dataset, evaluate, {"test_log_likelihood": Metric("its mean", "higher")}
    )
)
register_task(Task("untunable", Settings, Dataset, evaluate, {}))


@register_dataset("tuned-data", num_splits=3)
@register_dataset("tuned-data", num_splits=3, task="tuned")
@register_dataset("tuned-data", num_splits=3, task="untunable")
def load_data(split: int, data_dir: Path | None) -> SplitData:
    random = np.random.RandomState(0)
    X = random.normal(size=(40, 2))
    data = random_split(X, X.sum(axis=1, keepdims=True), split)
    shift = float(os.environ.get("TUNED_TEST_SHIFT", "0"))
    return SplitData(data.X_train, data.Y_train, data.X_test + shift, data.Y_test + shift)


@register_model("tuned", train=train, uses_tensorflow=False, ignores=("ard", "gwi"))
def build(X: Any, Y: Any, *, depth: int, settings: Settings, seed: int) -> Model:
    return BoundModel(Y, settings)


@register_model("tuned-without-bound", train=train, uses_tensorflow=False)
def build_without_bound(X: Any, Y: Any, *, depth: int, settings: Settings, seed: int) -> Model:
    return Model(Y, settings)
