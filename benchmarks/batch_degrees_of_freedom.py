"""What the authors' code of [ICML21] gains on images by degrees of freedom that grow with the batch.

    python benchmarks/batch_degrees_of_freedom.py --data-dir DIR
    python benchmarks/batch_degrees_of_freedom.py --data-dir DIR --dataset mnist --steps 8000

What that is stands in `diwp_by_batch`, a plugin, which also trains it on UCI's sets. The table shows the
right degrees of freedom and those beside the NNGP, whose layers have no noise: ReLU kernels and the settings
of the config `classification_images`. The bound is scored in batches of the size of training.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

CASES = {
    "nngp:relu": "NNGP",
    "diwp:relu": "DIWP, delta + M + 2",
    "diwp-by-batch:relu": "DIWP, delta + M + N + 1",
}
SHOWN = ("elbo_per_point", "accuracy", "test_log_likelihood", "seconds")


def measure(name: str, batch_size: int, arguments: argparse.Namespace) -> dict[str, float]:
    """Scores of one training."""
    from bayesian_benchmarks import load_experiment
    from bayesian_benchmarks.datasets import get_dataset
    from bayesian_benchmarks.tasks import find_task, run

    changes = {
        "num_steps": arguments.steps,
        "kl_annealing_steps": min(1000, arguments.steps // 4),
        "num_inducing": arguments.num_inducing,
        "batch_size": batch_size,
        "elbo_samples": 10,
        "test_samples": 50,
    }
    settings = load_experiment("classification_images").settings.model_copy(update=changes)
    dataset = get_dataset(arguments.dataset, 0, data_dir=arguments.data_dir)
    outcome = run(dataset, name, find_task("classification"), depth=3, settings=settings, seed=0)
    return outcome.metrics


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="mnist_10k")
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--models", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[250, 1000])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--num-inducing", type=int, default=100)
    parser.add_argument("--threads", type=int, default=None)
    arguments = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from gpflow_dkp.training import configure_threads

    configure_threads(arguments.threads)
    import diwp_by_batch  # noqa: F401  # registers the model

    table = Table(title=f"{arguments.dataset}, {arguments.steps} steps")
    for column in ("model", "batch", *SHOWN):
        table.add_column(column, justify="right")
    cases = [(name, size) for size in arguments.batch_sizes for name in arguments.models]
    for name, size in track(cases, description="measuring", console=Console(stderr=True)):
        scores = measure(name, size, arguments)
        table.add_row(CASES[name], str(size), *(f"{scores[metric]:.4f}" for metric in SHOWN))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
