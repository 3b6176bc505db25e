"""A kernel to start from: the marginal likelihood of GP regression on some of the data."""

from __future__ import annotations

import contextlib

import gpflow
import numpy as np
import scipy.optimize
import tensorflow as tf
from gpflow.kernels import Kernel

from ..checks import check_positive_integer

ATTEMPTS = 5
"""Searches, where one ends because it tried a point with no finite marginal likelihood."""

MIN_NOISE = 1e-4
"""Least noise variance of a search, relative to the targets'.

Without it, targets without noise that a smooth function gives lead to kernels of variance 1e20."""


def marginal_likelihood_start(
    kernel: Kernel,
    X: np.ndarray,
    Y: np.ndarray,
    *,
    noise_variance: float = 0.1,
    num_points: int = 500,
    max_iterations: int = 100,
    seed: int = 0,
) -> float:
    """Fit a kernel in place to some of the data by GP regression's marginal likelihood.

    A search that fails leaves the best kernel that it saw.

    [NeurIPS22] equation 76.

    :param kernel: any GPflow kernel; its trainable parameters change.
    :param X: [N, D].
    :param Y: targets [N, P].
    :param noise_variance: to start from, at least ten times the least.
    :param num_points: rows taken at random, at a cost of their cube.
    :param seed: of the choice.
    :returns: the noise variance found, at least 1e-4 of the targets' variance.
    :raises ValueError: the marginal likelihood is not finite at the start.
    """
    check_positive_integer("num_points", num_points)
    rows = np.random.default_rng(seed).permutation(len(X))[:num_points]
    least = max(MIN_NOISE * float(np.mean(np.var(Y[rows], 0))), 2.0 * _least_of_gpflow())
    likelihood = gpflow.likelihoods.Gaussian(
        max(noise_variance, 10.0 * least), variance_lower_bound=least
    )
    model = gpflow.models.GPR((X[rows], Y[rows]), kernel, likelihood=likelihood)
    optimizer, variables = gpflow.optimizers.Scipy(), model.trainable_variables
    best = _loss(model), optimizer.pack_tensors(variables)
    if not np.isfinite(best[0]):
        raise ValueError(
            "the marginal likelihood of the data is not finite; check their scale (a constant target has "
            "none), or give the kernel and num_marginal_points=0"
        )

    def keep_best(intermediate_result: scipy.optimize.OptimizeResult) -> None:
        nonlocal best
        if intermediate_result.fun < best[0]:
            best = intermediate_result.fun, intermediate_result.x.copy()

    for _ in range(ATTEMPTS):
        with contextlib.suppress(tf.errors.InvalidArgumentError):  # no Cholesky factor
            found = optimizer.minimize(
                model.training_loss,
                variables,
                callback=keep_best,
                options={"maxiter": max_iterations},
                tf_fun_args={"autograph": False},  # which would take longer than the search
            )
            if np.isfinite(found.fun):
                break
        # A step too far, as towards a singular kernel: on from the best point, by its gradient at first.
        optimizer.assign_tensors(variables, optimizer.unpack_tensors(variables, best[1]))
    return float(model.likelihood.variance.numpy())


def _least_of_gpflow() -> float:
    """What a Gaussian likelihood's variance has to exceed."""
    return gpflow.config.default_likelihood_positive_minimum()


def _loss(model: gpflow.models.GPR) -> float:
    try:
        return float(model.training_loss())
    except tf.errors.InvalidArgumentError:
        return float("nan")
