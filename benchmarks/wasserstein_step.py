"""Milliseconds of Gaussian Wasserstein inference's loss and gradient, by estimator of the cross term.

    python benchmarks/wasserstein_step.py
    python benchmarks/wasserstein_step.py --cases net --cross-points 200 --repeats 20

All are timed in turn in one process, `--repeats` times over, on the same batch and model. The table shows
each one's median, and how much faster it is than the eigenvalues of the paper's non-symmetric matrix: as one
would write them, r formed and TensorFlow's gradient taken ("autodiff"), and as they are here, with a gradient
in closed form ("eigenvalues").
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

if TYPE_CHECKING:
    from gpflow_dkp.wasserstein import CrossTerm

CASES = {
    "net": "GWI-net: a network's mean, kernel and inducing points fixed",
    "svgp": "GWI-SVGP: inducing points trained",
    "classes": "GWI-net, 10 classes",
}
PAPER = ("autodiff", "eigenvalues")
ESTIMATORS = (*PAPER, "nystrom", "exact")


def cross_term_of(estimator: str, num_points: int) -> CrossTerm:
    """The estimator of a name, "autodiff" with nothing done about the cost of the paper's eigenvalues."""
    import tensorflow as tf

    from gpflow_dkp.wasserstein import Measures, OfSomePoints, as_cross_term

    class Autodiff(OfSomePoints):
        def estimate(self, measures: Measures, seed: tf.Tensor) -> tf.Tensor:
            k_bs, r_bs = measures.covariances_with(self.choose(measures.points, seed))
            product = tf.matmul(r_bs.to_dense(), k_bs, transpose_a=True)
            values = tf.math.real(tf.linalg.eigvals(product))
            positive = values > 0.0
            roots = tf.where(positive, tf.sqrt(tf.where(positive, values, 1.0)), 0.0)
            size, num_chosen = k_bs.shape
            return tf.reduce_sum(roots, -1) / (size * num_chosen) ** 0.5

    if estimator == "autodiff":
        return Autodiff(num_points)
    return as_cross_term(estimator, None if estimator == "exact" else num_points)


def step_of(case: str, estimator: str, arguments: argparse.Namespace) -> Callable[[], float]:
    """One evaluation of the loss and its gradient, compiled."""
    import gpflow
    import tensorflow as tf

    from gpflow_dkp.likelihoods import RobustMax
    from gpflow_dkp.models import GWI

    rng = np.random.default_rng(0)
    X = rng.normal(size=(arguments.batch, arguments.features))
    targets = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(len(X), 1))
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    if case == "classes":
        targets = rng.integers(10, size=(len(X), 1))
        likelihood = gpflow.likelihoods.MultiClass(10, invlink=RobustMax(10))
    data = tf.constant(X), tf.constant(targets)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(X.shape[1], X.shape[1] ** 0.5))
    Z = X[: arguments.inducing].copy()
    build = GWI if case == "svgp" else GWI.net
    model = build(
        kernel,
        likelihood,
        Z,
        cross_term=cross_term_of(estimator, arguments.cross_points),
    )
    gpflow.set_trainable(kernel, False)
    model.start_at_sparse_posterior((X, np.tile(np.sin(X[:, :1]), [1, model.num_latent_gps])), 0.1)

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = -model.elbo(data)
        gradients = tape.gradient(loss, model.trainable_variables)
        return loss + 0.0 * tf.add_n([tf.reduce_sum(gradient) for gradient in gradients])

    return lambda: float(step())


def milliseconds(step: Callable[[], float], count: int) -> tuple[float, float]:
    """Wall-clock and processor milliseconds of one of `count` steps."""
    wall, processor = time.perf_counter(), time.process_time()
    for _ in range(count):
        step()
    processor = time.process_time() - processor
    return 1e3 * (time.perf_counter() - wall) / count, 1e3 * processor / count


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--features", type=int, default=8, help="D")
    parser.add_argument("--inducing", type=int, default=50, help="M")
    parser.add_argument("--batch", type=int, default=1000, help="N_B")
    parser.add_argument("--cross-points", type=int, default=100, help="N_S")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument(
        "--exact", action="store_true", help="time the exact form too, 100 times slower"
    )
    return parser.parse_args()


def main() -> None:
    """Time the estimators in turn and print the table."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    arguments = parse_arguments()
    estimators = ESTIMATORS if arguments.exact else ESTIMATORS[:3]
    steps = {(c, e): step_of(c, e, arguments) for c in arguments.cases for e in estimators}
    counts = {key: 1 if key[1] == "exact" else 20 for key in steps}
    for step in steps.values():
        step()
    measured: dict[tuple[str, str], list[tuple[float, float]]] = {key: [] for key in steps}
    for _ in track(range(arguments.repeats), description="repeats"):
        for key, step in steps.items():
            measured[key].append(milliseconds(step, counts[key]))
    table = Table("model", "cross term", "ms", "CPU ms", *(f"times as fast as {e}" for e in PAPER))
    for (case, estimator), values in measured.items():
        wall, processor = (statistics.median(part) for part in zip(*values, strict=True))
        spreads = []
        for paper in PAPER:
            ratios = [a[0] / b[0] for a, b in zip(measured[case, paper], values, strict=True)]
            spreads.append(
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            )
        table.add_row(CASES[case], estimator, f"{wall:.1f}", f"{processor:.1f}", *spreads)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
