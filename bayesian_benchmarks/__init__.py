"""The benchmark: datasets with published splits, tasks, a results store and tables.

>>> from bayesian_benchmarks import Settings, run_task
>>> settings = Settings(num_steps=5, num_inducing=5, elbo_samples=10)
>>> run_task("diabetes", "dwp-ab-gw", settings=settings)
{'elbo_per_point': ..., 'test_log_likelihood': ..., 'test_rmse': ..., ...}

TensorFlow is imported when a model is built or trained, not before.
"""

from .datasets import Dataset, get_dataset, list_datasets, register_dataset
from .errors import BenchmarkError
from .experiment import Experiment, load_experiment
from .models import list_models, register_model
from .report import format_table, paper_results, summarise
from .settings import Settings
from .store import ResultRow, ResultsStore, RunKey
from .sweep import Run, expand, run_experiment
from .tasks import Metric, Task, list_tasks, register_task, run_task

__all__ = [
    "BenchmarkError",
    "Dataset",
    "Experiment",
    "Metric",
    "ResultRow",
    "ResultsStore",
    "Run",
    "RunKey",
    "Settings",
    "Task",
    "expand",
    "format_table",
    "get_dataset",
    "list_datasets",
    "list_models",
    "list_tasks",
    "load_experiment",
    "paper_results",
    "register_dataset",
    "register_model",
    "register_task",
    "run_experiment",
    "run_task",
    "summarise",
]
