"""Depth and kernel chosen by the bound: what `depth="auto"` and `kernel="auto"` do."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from sklearn.base import clone

from ..checks import brief
from ..models.from_data import KERNELS
from ..training import History, TrainingFailed
from .base import copy_of

if TYPE_CHECKING:
    from ..models import MonteCarloModel
    from .estimators import DeepEstimator

DEPTHS = 1, 2, 3
"""That are compared."""

Candidate = tuple[int, str | Kernel]


def candidates_of(depth: int | str, kernel: str | Kernel) -> list[Candidate]:
    """The depths and kernels that an estimator's parameters stand for, "auto" for several.

    :raises ValueError: for another text as the depth.
    """
    if isinstance(depth, str) and depth != "auto":
        raise ValueError(f"depth: got {brief(depth)}, needs a number of layers or 'auto'")
    depths = DEPTHS if isinstance(depth, str) else (depth,)
    kernels = tuple(KERNELS) if isinstance(kernel, str) and kernel == "auto" else (kernel,)
    return list(itertools.product(depths, kernels))


def compare(
    estimator: DeepEstimator,
    candidates: list[Candidate],
    X: np.ndarray,
    Y: np.ndarray,
    likelihood: Likelihood | None,
    seed: int,
) -> tuple[Candidate, tuple[MonteCarloModel, History], list[dict[str, Any]]]:
    """Train each candidate, an equal part of `max_seconds` each: the best, its model, and what was compared.

    :raises TrainingFailed: when all fail.
    """
    lines: list[dict[str, Any]] = []
    best: tuple[Candidate, tuple[MonteCarloModel, History]] | None = None
    highest = -np.inf
    for depth, kernel in candidates:
        one = clone(estimator).set_params(depth=depth, kernel=kernel)
        if estimator.max_seconds is not None:
            one.max_seconds = estimator.max_seconds / len(candidates)
        started = time.monotonic()
        bound, failure = -np.inf, ""
        try:
            trained = one._trained(X, Y, copy_of(likelihood), seed, None)
            bound = final_bound(trained[1])
        except TrainingFailed as error:
            failure = str(error)
        lines.append(
            {
                "depth": depth,
                "kernel": kernel,
                "bound": bound,
                "seconds": time.monotonic() - started,
                "failure": failure,
            }
        )
        if estimator.verbose:
            print(describe(lines[-1]))
        if bound > highest:
            highest, best = bound, ((depth, kernel), trained)
    if best is None:
        raise TrainingFailed(f"no depth and kernel could be trained; the last: {failure}")
    return *best, sorted(lines, key=lambda line: -line["bound"])


def final_bound(history: History) -> float:
    """The bound per row where a training ended: the mean of its last twentieth, at least 50 steps."""
    return float(np.mean(history.elbo[-max(50, len(history.elbo) // 20) :]))


def describe(line: dict[str, Any]) -> str:
    """One of `comparison_` as a sentence."""
    kernel = line["kernel"] if isinstance(line["kernel"], str) else type(line["kernel"]).__name__
    found = line["failure"] or f"bound {line['bound']:.3f} per row in {line['seconds']:.0f} s"
    return f"depth {line['depth']}, {kernel}: {found}"
