"""Error of Gaussian Wasserstein inference's squared distance from some points of a batch, by estimator.

    python benchmarks/wasserstein_spread.py
    python benchmarks/wasserstein_spread.py --datasets boston energy --data-dir DIR

For each kernel and batch the exact W2^2, then mean and standard deviation, over `--repeats` choices of the
points, of what the Nystrom form and the paper's eigenvalues add to it. Synthetic inputs are standard normal;
a dataset's are a batch of its first split with the kernel of its marginal likelihood.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

if TYPE_CHECKING:
    from gpflow_dkp.models import GWI

SYNTHETIC = [
    # N_B, N_S, D, lengthscale
    (300, 100, 1, 1.0),
    (300, 100, 1, 0.3),
    (300, 100, 2, 1.0),
    (300, 100, 8, 2.8),
    (100, 50, 13, 3.6),
]
ESTIMATORS = ("nystrom", "eigenvalues")


def synthetic_model(batch: int, num_features: int, lengthscale: float) -> tuple[GWI, np.ndarray]:
    """A model at the sparse GP's optimum, and its batch."""
    import gpflow

    from gpflow_dkp.models import GWI

    rng = np.random.default_rng(0)
    X = rng.normal(size=(batch, num_features))
    Y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(batch, 1))
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(num_features, lengthscale))
    model = GWI(kernel, gpflow.likelihoods.Gaussian(0.1), X[: round(batch**0.5)].copy())
    model.start_at_sparse_posterior((X, Y), 0.1)
    return model, X


def model_of_dataset(name: str, batch: int, data_dir: str | None) -> tuple[GWI, np.ndarray]:
    """The same for a dataset's first split."""
    from bayesian_benchmarks import get_dataset
    from gpflow_dkp.models import GWI

    data = get_dataset(name, 0, data_dir=data_dir)
    model = GWI.from_data(data.X_train, data.Y_train, mean="svgp", noise_variance=0.1)
    rows = np.random.default_rng(0).permutation(len(data.X_train))[:batch]
    return model, data.X_train[rows]


def errors(model: GWI, X: np.ndarray, num_points: int, repeats: int) -> list[str]:
    """The exact distance, and mean and deviation of each estimator's error, as a table's cells."""
    from gpflow_dkp.wasserstein import as_cross_term

    model.cross_term = as_cross_term("exact")
    exact = float(model.squared_distance(X))
    cells, deviations = [f"{exact:.4f}"], []
    for estimator in ESTIMATORS:
        model.cross_term = as_cross_term(estimator, num_points)
        values = [float(model.squared_distance(X, seed=seed)) for seed in range(repeats)]
        deviations.append(np.std(values))
        cells.append(f"{np.mean(values) - exact:+.4f} +- {deviations[-1]:.4f}")
    return [*cells, f"{deviations[1] / deviations[0]:.1f}"]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", nargs="*", default=[], help="regression sets, of batches")
    parser.add_argument("--batch", type=int, default=100, help="N_B of a dataset")
    parser.add_argument("--cross-points", type=int, default=50, help="N_S of a dataset")
    parser.add_argument("--data-dir", help="a local mirror of the data")
    parser.add_argument("--repeats", type=int, default=30)
    return parser.parse_args()


def main() -> None:
    """Print the table."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    arguments = parse_arguments()
    table = Table(
        "inputs", "N_B", "N_S", "exact", *ESTIMATORS, "deviation, eigenvalues over Nystrom"
    )
    for batch, num_points, num_features, lengthscale in track(SYNTHETIC, description="synthetic"):
        model, X = synthetic_model(batch, num_features, lengthscale)
        cells = errors(model, X, num_points, arguments.repeats)
        name = f"D = {num_features}, lengthscale {lengthscale}"
        table.add_row(name, str(batch), str(num_points), *cells)
    for name in track(arguments.datasets, description="datasets"):
        model, X = model_of_dataset(name, arguments.batch, arguments.data_dir)
        cells = errors(model, X, arguments.cross_points, arguments.repeats)
        table.add_row(name, str(len(X)), str(arguments.cross_points), *cells)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
