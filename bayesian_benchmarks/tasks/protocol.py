"""What a task is: whose settings, what data, how a trained model is scored, and what the scores mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ..datasets.registry import SplitType, declare_task
from ..errors import BenchmarkError, UnknownNameError
from ..settings import Settings


@dataclass(frozen=True)
class Metric:
    """What a number of a run means.

    :param meaning: one line, with its units.
    :param better: "higher" or "lower"; None for what is never called better, such as a coverage.
    :param shown: whether it is a column of the task's table.

    >>> from bayesian_benchmarks.tasks import Metric
    >>> Metric("mean absolute error, original units", "lower", shown=True).better
    'lower'
    """

    meaning: str
    better: Literal["higher", "lower"] | None = None
    shown: bool = False


class Evaluate(Protocol):
    """`evaluate(model, dataset, settings=..., seed=...)`: the scores of a trained model, by metric.

    A score may be absent, such as one that the model cannot give. What it asks of the model's
    `predict_...` methods about the test part is kept with the run, so that it can be scored again.
    """

    def __call__(
        self, model: Any, dataset: Any, *, settings: Settings, seed: int
    ) -> dict[str, float]:
        """Score the model."""


@dataclass(frozen=True)
class Task:
    """A kind of experiment.

    :param name: such as "regression".
    :param settings: what its models are built, trained and evaluated by; the defaults are the task's.
    :param dataset: the type of a split of its datasets, with `from_split(name, split, data)`.
    :param evaluate: the scores of a trained model. The bound and the costs of training are added.
    :param metrics: what each score is. Rows and tables have these in their order.
    :param datasets_of: other tasks whose datasets are this one's too.
    :param default_depths: of an experiment that names none; () where it must.

    >>> from bayesian_benchmarks import Settings
    >>> from bayesian_benchmarks.datasets import Dataset
    >>> from bayesian_benchmarks.tasks import Metric, Task
    >>> def evaluate(model, dataset, *, settings, seed):
    ...     mean = model.predict_mixture(dataset.X_test, num_samples=2, seed=seed)[0]
    ...     return {"mae": float(np.mean(np.abs(np.mean(mean, axis=0) - dataset.Y_test)))}
    >>> metrics = {"mae": Metric("mean absolute error, normalised targets", "lower", shown=True)}
    >>> Task("absolute", Settings, Dataset, evaluate, metrics, datasets_of=("regression",)).name
    'absolute'
    """

    name: str
    settings: type[Settings]
    dataset: SplitType
    evaluate: Evaluate
    metrics: Mapping[str, Metric]
    datasets_of: tuple[str, ...] = ()
    default_depths: tuple[int, ...] = ()

    @property
    def shown(self) -> tuple[str, ...]:
        """Columns of its table."""
        return tuple(name for name, metric in metrics_of(self.name).items() if metric.shown)


BOUND_METRICS = {
    "elbo_per_point": Metric(
        "evidence lower bound per training point, normalised targets", "higher", shown=True
    ),
    "objective_per_point": Metric(
        "of models that maximise no bound on the evidence: their objective per training point"
    ),
}
"""Of every task, where the model has one."""

COST_METRICS = {
    "seconds_per_step": Metric(
        "seconds a training step; none for a run too short to tell", "lower"
    ),
    "epoch_seconds": Metric(
        "seconds an epoch: those a step times the batches that the training points are", "lower"
    ),
    "seconds": Metric("seconds of training, choices by trial included", "lower"),
    "num_recoveries": Metric("training steps that were taken again after a failed Cholesky"),
}
"""Of every task."""

_TASKS: dict[str, Task] = {}


def register_task(task: Task) -> Task:
    """Make a task known by its name, to experiments and to `register_dataset(task=...)`.

    :raises BenchmarkError: the name belongs to a task that is defined elsewhere.

    >>> from bayesian_benchmarks import Settings
    >>> from bayesian_benchmarks.datasets import Dataset
    >>> from bayesian_benchmarks.tasks import Task, list_tasks, register_task
    >>> def evaluate(model, dataset, *, settings, seed):
    ...     return {}
    >>> task = register_task(Task("costs", Settings, Dataset, evaluate, metrics={}))
    >>> "costs" in list_tasks()
    True
    """
    known = _TASKS.get(task.name)
    if known is not None and known.evaluate.__module__ != task.evaluate.__module__:
        raise BenchmarkError(f"Task {task.name!r} is registered already; choose another name.")
    declare_task(task.name, task.dataset, task.datasets_of)
    _TASKS[task.name] = task
    return task


def find_task(name: str) -> Task:
    """The task of a name.

    :raises UnknownNameError: no such task.

    >>> from bayesian_benchmarks.tasks import find_task
    >>> find_task("regression").shown
    ('elbo_per_point', 'test_log_likelihood', 'test_rmse')
    """
    if name not in _TASKS:
        raise UnknownNameError("task", name, _TASKS)
    return _TASKS[name]


def list_tasks() -> list[str]:
    """Names of the registered tasks, sorted.

    >>> from bayesian_benchmarks.tasks import list_tasks
    >>> {"classification", "density", "ood", "regression"} <= set(list_tasks())
    True
    """
    return sorted(_TASKS)


def metrics_of(task: str) -> dict[str, Metric]:
    """Every metric of a task's rows: the bound, its own scores, and the costs of training.

    >>> from bayesian_benchmarks.tasks import metrics_of
    >>> metrics_of("regression")["test_rmse"].meaning
    'root mean squared error of the predictive mean, original units'
    """
    return BOUND_METRICS | dict(find_task(task).metrics) | COST_METRICS


def directions() -> dict[str, bool]:
    """Whether higher is better, of every metric of any task that has a direction.

    >>> from bayesian_benchmarks.tasks import directions
    >>> directions()["test_log_likelihood"], directions()["test_rmse"]
    (True, False)
    """
    return {
        name: metric.better == "higher"
        for task in _TASKS
        for name, metric in metrics_of(task).items()
        if metric.better is not None
    }
