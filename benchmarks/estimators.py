"""Estimators with no setting changed, beside what else there is for predictive distributions of a table.

    pip install ngboost quantile-forest
    python benchmarks/estimators.py --data-dir DIR --rows rows.csv
    python benchmarks/estimators.py --rows rows.csv --tables-only

Nine datasets with Gal & Ghahramani's splits and five of the `uci_datasets` collection, splits 0 to 2. Each
method is as its library makes it: this package's `DWPRegressor`; scikit-learn's `GaussianProcessRegressor`
with an ARD squared exponential and noise on 2 000 rows at most, standardised; a quantile forest; gradient
boosting with a quantile loss for each of 21 levels; NGBoost. Forests and boosting give quantiles: their
density is a Gaussian kernel density estimate from them, of Silverman's bandwidth. A row is written when it is
finished, and not computed again.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

GAL = ("boston", "concrete", "energy-gal", "kin8nm", "naval", "power", "protein", "wine", "yacht")
COLLECTION = ("airfoil", "autompg", "concreteslump", "pendulum", "servo")
LEVELS = np.array([0.01, *np.arange(0.05, 0.96, 0.05), 0.99])
"""Of boosting's quantiles."""

INTERVAL = 0.05, 0.95
MOST_ROWS_OF_GP = 2_000

Distribution = dict[str, np.ndarray]
"""Of test rows: mean [N], interval [N, 2] of 90 % and log_density [N] of their targets."""


def dwp(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> Distribution:
    from gpflow_dkp.sklearn import DWPRegressor

    estimator = DWPRegressor(random_state=0).fit(X, y)
    return {
        "mean": estimator.predict(X_test),
        "interval": estimator.predict_quantiles(X_test, INTERVAL),
        "log_density": estimator.log_density(X_test, y_test),
    }


def gaussian_process(
    X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray
) -> Distribution:
    from scipy import stats
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.preprocessing import StandardScaler

    rows = np.random.default_rng(0).permutation(len(X))[:MOST_ROWS_OF_GP]
    scaler = StandardScaler().fit(X[rows])
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel()
    model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    model.fit(scaler.transform(X[rows]), y[rows])
    mean, std = model.predict(scaler.transform(X_test), return_std=True)
    normal = stats.norm(mean, std)
    return {
        "mean": mean,
        "interval": np.stack([normal.ppf(level) for level in INTERVAL], 1),
        "log_density": normal.logpdf(y_test),
    }


def quantile_forest(
    X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray
) -> Distribution:
    from quantile_forest import RandomForestQuantileRegressor

    model = RandomForestQuantileRegressor(random_state=0).fit(X, y)
    quantiles = model.predict(X_test, quantiles=list(np.arange(0.01, 1.0, 0.01)))
    return {
        "mean": model.predict(X_test, quantiles="mean"),
        "interval": model.predict(X_test, quantiles=list(INTERVAL)),
        "log_density": density_of_quantiles(quantiles, y_test),
    }


def boosting(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> Distribution:
    from sklearn.ensemble import HistGradientBoostingRegressor

    def predict(**loss: Any) -> np.ndarray:
        return HistGradientBoostingRegressor(random_state=0, **loss).fit(X, y).predict(X_test)

    quantiles = np.stack([predict(loss="quantile", quantile=level) for level in LEVELS], 1)
    quantiles.sort(axis=1)
    return {
        "mean": predict(),
        "interval": quantiles[:, [1, -2]],
        "log_density": density_of_quantiles(quantiles, y_test),
    }


def ngboost(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> Distribution:
    from ngboost import NGBRegressor

    predicted = NGBRegressor(verbose=False, random_state=0).fit(X, y).pred_dist(X_test)
    return {
        "mean": predicted.mean(),
        "interval": np.stack([predicted.ppf(level) for level in INTERVAL], 1),
        "log_density": predicted.logpdf(y_test),
    }


def density_of_quantiles(quantiles: np.ndarray, y: np.ndarray) -> np.ndarray:
    """log density of y [N] by a kernel density estimate from quantiles [N, L]."""
    from scipy.special import logsumexp

    number = quantiles.shape[1]
    spread = np.maximum(quantiles.std(1), 1e-6 * np.abs(y).max())
    bandwidth = (1.06 * spread * number**-0.2)[:, None]
    standardised = (y[:, None] - quantiles) / bandwidth
    log_kernel = -0.5 * standardised**2 - np.log(bandwidth) - 0.5 * np.log(2.0 * np.pi)
    return logsumexp(log_kernel, axis=1) - np.log(number)


METHODS: dict[str, Callable[..., Distribution]] = {
    "DWPRegressor": dwp,
    "GaussianProcessRegressor": gaussian_process,
    "quantile forest": quantile_forest,
    "boosted quantiles": boosting,
    "NGBoost": ngboost,
}


def measure(dataset: str, split: int, method: str, data_dir: Path | None) -> dict[str, Any]:
    """Scores of one method on one split, in original units."""
    from bayesian_benchmarks import get_dataset

    data = get_dataset(dataset, split, data_dir=data_dir)
    X, X_test = (data.scaling.restore_X(part) for part in (data.X_train, data.X_test))
    y, y_test = (data.scaling.restore_Y(part)[:, 0] for part in (data.Y_train, data.Y_test))
    start = time.perf_counter()
    found = METHODS[method](X, y, X_test, y_test)
    lower, upper = found["interval"].T
    return {
        "dataset": dataset,
        "split": split,
        "method": method,
        "log_density": float(np.mean(found["log_density"])),
        "rmse": float(np.sqrt(np.mean((found["mean"] - y_test) ** 2))),
        "coverage_90": float(np.mean((lower <= y_test) & (y_test <= upper))),
        "seconds": time.perf_counter() - start,
    }


def show(rows: pd.DataFrame) -> None:
    """A table a score: means over splits, ± the standard error of the first."""
    for score in ("log_density", "rmse", "coverage_90", "seconds"):
        table = Table(title=score)
        for name in ("dataset", *METHODS):
            table.add_column(name, justify="left" if name == "dataset" else "right")
        for dataset, group in rows.groupby("dataset"):
            values = {name: part[score] for name, part in group.groupby("method")}
            cells = [
                f"{values[name].mean():.3g} ± {values[name].sem():.2g}" if name in values else ""
                for name in METHODS
            ]
            table.add_row(str(dataset), *cells)
        Console(width=160).print(table)
    first = next(iter(METHODS))
    best, covered, number = 0, 0, 0
    for _, group in rows.groupby("dataset"):
        means = group.groupby("method")["log_density"].mean()
        if first not in means:
            continue
        errors = group.groupby("method")["log_density"].sem()
        coverage = group[group["method"] == first]["coverage_90"].mean()
        number += 1
        best += bool(means[first] >= means.max() - errors[first])
        covered += bool(0.86 <= coverage <= 0.94)
    print(
        f"{first}: best or within one standard error on {best} of {number}; 90 % "
        f"intervals hold 86 to 94 % on {covered}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--rows", type=Path, default=Path("estimators.csv"), metavar="CSV")
    parser.add_argument("--datasets", nargs="+", default=[*GAL, *COLLECTION])
    parser.add_argument("--splits", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--tables-only", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    warnings.filterwarnings("ignore")
    rows = pd.read_csv(arguments.rows) if arguments.rows.exists() else pd.DataFrame()
    done = (
        set()
        if rows.empty
        else set(zip(rows["dataset"], rows["split"], rows["method"], strict=True))
    )
    for dataset in () if arguments.tables_only else arguments.datasets:
        for split in arguments.splits:
            for method in arguments.methods:
                if (dataset, split, method) in done:
                    continue
                row = measure(dataset, split, method, arguments.data_dir)
                print(
                    ", ".join(
                        f"{k} {v:.4g}" if isinstance(v, float) else str(v) for k, v in row.items()
                    )
                )
                rows = pd.concat([rows, pd.DataFrame([row])], ignore_index=True)
                rows.to_csv(arguments.rows, index=False)
    show(rows)


if __name__ == "__main__":
    main()
