"""A likelihood's integrals over Gaussian moments of S samples: GPflow's multi-class ones take rank 2 only."""

from __future__ import annotations

from typing import Any

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import MeanAndVariance
from gpflow.likelihoods import Likelihood, MonteCarloLikelihood

from ..random import Seed, as_seed, fold_in, normal

LIKELIHOOD_ELEMENTS = 2**24
"""Numbers in a Monte Carlo likelihood's copies of X, or of f, in an eager call: 128 MiB of doubles."""


@check_shapes(
    "X: [N, D]",
    "moments[0]: [S, N, P]",
    "moments[1]: [S, N, P]",
    "Y: [N, Q]",
)
def of_likelihood(
    likelihood: Likelihood,
    method: str,
    X: tf.Tensor,
    moments: MeanAndVariance,
    seed: Seed,
    Y: tf.Tensor | None = None,
    *,
    common_noise: bool = False,
) -> Any:
    """A method of the likelihood on f's mean and variance [S, N, P], with results [S, N, ...].

    GPflow copies X for each draw of a Monte Carlo likelihood. A compiled call drops the copies that
    are not used; an eager one goes through the rows in parts.

    :param method: "variational_expectations", "predict_mean_and_var" or "predict_log_density".
    :param X: [N, D].
    :param seed: of a Monte Carlo likelihood's draws.
    :param Y: [N, P], for the first and last method.
    :param common_noise: those draws are the same for all rows.
    """
    num_samples, num_data, num_outputs = tf.unstack(tf.shape(moments[0]))
    num_rows = num_samples * num_data
    flat = [tf.reshape(value, [num_rows, num_outputs]) for value in moments]
    X = tf.cast(tf.convert_to_tensor(X), flat[0].dtype)
    data = [X] if Y is None else [X, Y]
    at_a_time = num_rows
    if tf.executing_eagerly():
        copies = getattr(likelihood, "num_monte_carlo_points", 1)
        columns = max(X.shape[-1], int(num_outputs))
        at_a_time = max(1, LIKELIHOOD_ELEMENTS // (copies * columns))
    if not tf.executing_eagerly() or num_rows <= at_a_time:
        tiled = [tf.tile(values, [num_samples, 1]) for values in data]
        result = _of_rows(likelihood, method, tiled, flat, seed, common_noise)
    else:
        parts = []
        for first in range(0, int(num_rows), at_a_time):
            rows = tf.range(first, min(first + at_a_time, int(num_rows)))
            of_data = [tf.gather(values, rows % num_data) for values in data]
            of_moments = [tf.gather(values, rows) for values in flat]
            part_seed = seed if common_noise else fold_in(seed, first)
            parts.append(_of_rows(likelihood, method, of_data, of_moments, part_seed, common_noise))
        result = tf.nest.map_structure(lambda *values: tf.concat(values, 0), *parts)

    def unflatten(value: tf.Tensor) -> tf.Tensor:
        return tf.reshape(value, tf.concat([[num_samples, num_data], tf.shape(value)[1:]], 0))

    return tf.nest.map_structure(unflatten, result)


def _of_rows(
    likelihood: Likelihood,
    method: str,
    data: list[tf.Tensor],
    moments: list[tf.Tensor],
    seed: Seed,
    common_noise: bool,
) -> Any:
    """A method of the likelihood on rows of X, and of Y if it is given, and on [rows, P] moments.

    GPflow's Monte Carlo likelihoods draw without a seed; their private methods take the draws.
    """
    arguments = [data[0], *moments, *data[1:]]
    if not isinstance(likelihood, MonteCarloLikelihood):
        return getattr(likelihood, method)(*arguments)
    num_rows, num_outputs = tf.unstack(tf.shape(moments[0]))
    draws = [likelihood.num_monte_carlo_points, 1 if common_noise else num_rows, num_outputs]
    epsilon = normal(draws, fold_in(as_seed(seed), 1), gpflow.default_float())
    return getattr(likelihood, f"_{method}")(*arguments, epsilon=epsilon)
