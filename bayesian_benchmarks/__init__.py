"""The benchmark: datasets with published splits, tasks, a results store and tables.

>>> from bayesian_benchmarks import Settings, run_task
>>> run_task("diabetes", "dwp-ab-gw", settings=Settings(num_steps=500))

TensorFlow is imported when a model is built or trained, not before.
"""

from .config import Experiment, Settings, load_experiment
from .datasets import Dataset, get_dataset, list_datasets, register_dataset
from .errors import BenchmarkError
from .models import list_models, register_model
from .results import ResultsStore, format_table, paper_results, summarise
from .runner import run_experiment
from .runs import Run, expand
from .tasks import run_task

__all__ = [
    "BenchmarkError",
    "Dataset",
    "Experiment",
    "ResultsStore",
    "Run",
    "Settings",
    "expand",
    "format_table",
    "get_dataset",
    "list_datasets",
    "list_models",
    "load_experiment",
    "paper_results",
    "register_dataset",
    "register_model",
    "run_experiment",
    "run_task",
    "summarise",
]
