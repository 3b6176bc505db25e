"""A likelihood's integrals over Gaussian moments of S samples: GPflow's multi-class ones take rank 2 only."""

from __future__ import annotations

from typing import Any

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import MeanAndVariance
from gpflow.likelihoods import Likelihood, MonteCarloLikelihood

from ..random import PartOfSeed, Seed, as_seed, fold_in, normal

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
    # A part of a seed is of all the samples and rows at once.
    at_once = not tf.executing_eagerly() or isinstance(seed, PartOfSeed)
    if not at_once:
        copies = getattr(likelihood, "num_monte_carlo_points", 1)
        columns = max(X.shape[-1], int(num_outputs))
        at_a_time = max(1, LIKELIHOOD_ELEMENTS // (copies * columns))
    if at_once or num_rows <= at_a_time:
        tiled = [tf.tile(values, [num_samples, 1]) for values in data]
        sizes = [1, 1] if common_noise else [num_samples, num_data]
        result = _of_rows(likelihood, method, tiled, flat, seed, sizes)
    else:
        parts = []
        for first in range(0, int(num_rows), at_a_time):
            rows = tf.range(first, min(first + at_a_time, int(num_rows)))
            of_data = [tf.gather(values, rows % num_data) for values in data]
            of_moments = [tf.gather(values, rows) for values in flat]
            part_seed = seed if common_noise else fold_in(seed, first)
            sizes = [1, 1 if common_noise else tf.size(rows)]
            parts.append(_of_rows(likelihood, method, of_data, of_moments, part_seed, sizes))
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
    sizes: list[int | tf.Tensor],
) -> Any:
    """A method of the likelihood on rows of X, and of Y if it is given, and on [rows, P] moments.

    GPflow's Monte Carlo likelihoods draw without a seed; their private methods take the draws.

    :param sizes: the numbers of samples and data points that are drawn for, [1, 1] for all rows at once.
    """
    arguments = [data[0], *moments, *data[1:]]
    if not isinstance(likelihood, MonteCarloLikelihood):
        return getattr(likelihood, method)(*arguments)
    num_draws, num_outputs = likelihood.num_monte_carlo_points, tf.shape(moments[0])[1]
    shape = [num_draws, *sizes, num_outputs]
    own = fold_in(as_seed(seed), 1)
    epsilon = normal(shape, own, gpflow.default_float(), samples=1, points=2)
    epsilon = tf.reshape(epsilon, [num_draws, sizes[0] * sizes[1], num_outputs])
    return getattr(likelihood, f"_{method}")(*arguments, epsilon=epsilon)
