"""A kernel to start from: the marginal likelihood of GP regression on some of the data."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel

from ..layers.base import check_positive_integer


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

    [NeurIPS22] equation 76.

    :param kernel: any GPflow kernel; its trainable parameters change.
    :param X: [N, D].
    :param Y: targets [N, P].
    :param noise_variance: to start from.
    :param num_points: rows taken at random, at a cost of their cube.
    :param seed: of the choice.
    :returns: the noise variance found.
    """
    check_positive_integer("num_points", num_points)
    rows = np.random.default_rng(seed).permutation(len(X))[:num_points]
    model = gpflow.models.GPR((X[rows], Y[rows]), kernel, noise_variance=noise_variance)
    try:
        gpflow.optimizers.Scipy().minimize(
            model.training_loss,
            model.trainable_variables,
            options={"maxiter": max_iterations},
            tf_fun_args={"autograph": False},  # which would take longer than the search
        )
    except tf.errors.InvalidArgumentError as error:
        raise ValueError(
            "the marginal likelihood of the data is not finite; check their scale (a constant target has "
            "none), or give the kernel and num_marginal_points=0"
        ) from error
    return float(model.likelihood.variance.numpy())
