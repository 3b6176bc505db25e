"""A plugin for tests: a dataset, and models that train in no time and fail on demand.

Environment: FAKE_KILL_AT, a step at which the process kills itself once (FAKE_MARKER, a file that
says it has); FAKE_STEP_SECONDS, how long a step takes; FAKE_LOG, a file with a line a training;
FAKE_HOLD, a file: no training goes on from step 20 while it is there; FAKE_LINGER, a folder: the first
process to train takes no time, and when it is done it does not end until there is a file `release` there;
FAKE_SEMAPHORE, whether a training makes a lock for processes, as tqdm does.
"""

from __future__ import annotations

import atexit
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bayesian_benchmarks.datasets import Dataset, SplitData, random_split, register_dataset
from bayesian_benchmarks.errors import DataFileError
from bayesian_benchmarks.models import register_model
from bayesian_benchmarks.settings import Settings
from bayesian_benchmarks.tasks import Metric, Task, register_task


@dataclass
class Record:
    seconds: float
    seconds_per_step: float
    num_recoveries: int = 0


class FakeModel:
    """Predicts the same mixture everywhere; `state` is what training changes."""

    def __init__(self, num_data: int, seed: int) -> None:
        self.num_data = num_data
        self.state = float(seed)

    def elbo(self, data: Any, *, num_samples: int, seed: int) -> float:
        return -self.num_data * (1.0 + 1.0 / (2.0 + self.state))

    def predict_mixture(self, X: np.ndarray, *, num_samples: int, seed: int) -> Any:
        offsets = np.linspace(-1.0, 1.0, num_samples)[:, None, None]
        means = 0.1 * np.tanh(self.state) * offsets * np.ones((1, len(X), 1))
        return means, np.ones_like(means)


def train(
    model: FakeModel,
    data: Any,
    *,
    settings: Settings,
    seed: int,
    checkpoint_dir: Path | None,
    checkpoint_seconds: float,
    report_step: Callable[[int], None],
) -> Record:
    start = 0
    file = checkpoint_dir / "state.json" if checkpoint_dir else None
    if file and file.exists():
        try:
            start, model.state = json.loads(file.read_text())
        except ValueError as error:
            from gpflow_dkp.training.checkpoint import UnusableCheckpoint

            raise UnusableCheckpoint("checkpoint state.json cannot be read") from error
    _log(f"start {start}")
    lock = multiprocessing.RLock() if "FAKE_SEMAPHORE" in os.environ else None
    pause = 0.0 if _lingers() else float(os.environ.get("FAKE_STEP_SECONDS", "0"))
    for step in range(start, settings.num_steps):
        model.state += 1.0 / (1.0 + step + model.state)
        time.sleep(pause)
        while step == 20 and Path(os.environ.get("FAKE_HOLD", "/no such file")).exists():
            time.sleep(0.02)
        if file and step % 3 == 2:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.with_suffix(".part").write_text(json.dumps([step + 1, model.state]))
            file.with_suffix(".part").replace(file)
        _fail_on_demand(step)
        report_step(step + 1)
        _die_once(step)
    _log(f"end {settings.num_steps}")
    del lock
    return Record(seconds=1.0, seconds_per_step=1.0 / settings.num_steps)


def _fail_on_demand(step: int) -> None:
    """FAKE_ERROR, a kind of error, at the step FAKE_ERROR_AT."""
    if os.environ.get("FAKE_ERROR_AT") == str(step):
        raise {"full-disk": OSError(28, "No space left on device"), "memory": MemoryError()}[
            os.environ["FAKE_ERROR"]
        ]


def _lingers() -> bool:
    """Whether this process is the one that is to end late; it says so by files in the folder."""
    if "FAKE_LINGER" not in os.environ:
        return False
    folder = Path(os.environ["FAKE_LINGER"])
    try:
        (folder / "chosen").touch(exist_ok=False)
    except FileExistsError:
        return False

    def linger() -> None:
        (folder / "lingers").touch()
        deadline = time.monotonic() + 15
        while not (folder / "release").exists():
            if time.monotonic() > deadline:
                (folder / "gave-up").touch()
                return
            time.sleep(0.02)

    atexit.register(linger)
    return True


def _log(line: str) -> None:
    if "FAKE_LOG" in os.environ:
        with open(os.environ["FAKE_LOG"], "a") as file:
            file.write(line + "\n")


def _die_once(step: int) -> None:
    if os.environ.get("FAKE_KILL_AT") == str(step):
        marker = Path(os.environ["FAKE_MARKER"])
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def evaluate(model: Any, dataset: Dataset, *, settings: Settings, seed: int) -> dict[str, float]:
    means, _ = model.predict_mixture(dataset.X_test, num_samples=settings.test_samples, seed=seed)
    scores = {f"mean_{i}": float(component.mean()) for i, component in enumerate(means[:3])}
    return scores | {"num_components": float(len(means))}


register_task(
    Task(
        "fake",
        Settings,
        Dataset,
        evaluate,
        {
            **{
                f"mean_{i}": Metric(f"mean of component {i}", "higher", shown=True)
                for i in range(3)
            },
            "num_components": Metric("components of the mixture"),
        },
    )
)


@register_dataset("fake-data", num_splits=3)
@register_dataset("fake-data", num_splits=3, task="fake")
def load_fake_data(split: int, data_dir: Path | None) -> SplitData:
    if data_dir is not None and not data_dir.is_dir():
        raise DataFileError(f"The data directory {data_dir} does not exist.")
    X = np.random.RandomState(0).normal(size=(30, 2))
    return random_split(X, X.sum(axis=1, keepdims=True), split)


@register_model("fake", train=train, uses_tensorflow=False)
def build_fake(X: Any, Y: Any, *, depth: int, settings: Settings, seed: int) -> FakeModel:
    return FakeModel(len(X), seed)


@register_model("fake-broken", train=train, uses_tensorflow=False)
def build_broken(
    X: Any, Y: Any, *, depth: int, settings: Settings, seed: int, **_: Any
) -> FakeModel:
    raise RuntimeError("this model\nnever works")


@register_model("fake-nan", train=train, uses_tensorflow=False)
def build_nan(X: Any, Y: Any, *, depth: int, settings: Settings, seed: int) -> FakeModel:
    return FakeModel(len(X), 0 if "FAKE_CURED" in os.environ else np.nan)  # type: ignore[arg-type]


class FakeClassifier(FakeModel):
    """Finds every class equally probable."""

    num_classes = 2

    def predict_mixture(self, X: np.ndarray, *, num_samples: int, seed: int) -> Any:
        mean = np.full((num_samples, len(X), self.num_classes), 1.0 / self.num_classes)
        return mean, mean * (1.0 - mean)

    def predict_f(self, X: np.ndarray, *, num_samples: int, seed: int) -> Any:
        variance = np.tile(np.square(X).mean(axis=1, keepdims=True), self.num_classes)
        return np.zeros_like(variance), variance


@register_model("fake-classes", train=train, uses_tensorflow=False)
def build_classes(
    X: Any, Y: Any, *, depth: int, settings: Settings, seed: int, num_classes: int
) -> FakeModel:
    model = FakeClassifier(len(X), seed)
    model.num_classes = num_classes
    return model
