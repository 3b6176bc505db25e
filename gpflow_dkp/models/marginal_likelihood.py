"""A kernel to start from: the marginal likelihood of GP regression on some of the data."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import gpflow
import numpy as np
import scipy.optimize
import tensorflow as tf
from gpflow.kernels import Combination, Kernel, Stationary
from gpflow.likelihoods import Bernoulli, Likelihood, MultiClass, Softmax
from gpflow.utilities import add_likelihood_noise_cov

from ..checks import check_positive_integer
from ..linalg import half_logdet, positive_definite, solve
from .checks import check_arrays, check_targets, num_index_columns
from .from_data import kernel_maker, logarithmic_parameters

MIN_NOISE = 1e-4
"""Least noise variance of a search, relative to the targets'.

Without it, targets without noise that a smooth function gives lead to kernels of variance 1e20."""

NEAR_LEAST = 2.0
"""A noise below so many times the least is none found: the function passes through every target."""

MORE_NOISE = 5.0
"""A second search starts with so many times the noise."""

MIN_LENGTHSCALE = 0.01
"""Least lengthscale that is kept, in standard deviations of its column.

A column of few values, such as a pixel, may have one without limit, and covariances a rounding error that
grows with its inverse square: at 1e-5 they have eigenvalues of -1e-6."""

LESS_NOISE = 0.2
"""A search after one that ended with a shorter lengthscale starts with so many times the noise."""


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

    A search that fails leaves the best kernel that it saw; one that ends at the least noise is tried again
    with more, and one that ends with a shorter lengthscale than is kept with less. Lengthscales are at least
    a hundredth of their column's standard deviation.

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
    X, Y = some_rows(X, Y, num_points, seed)
    search = MarginalLikelihood(kernel, X.shape[1], Y.shape[1], least_noise(Y))
    return search.maximise(X, Y, noise_variance=noise_variance, max_iterations=max_iterations)


def _too_short(kernel: Kernel, X: np.ndarray) -> Iterator[tuple[Stationary, np.ndarray]]:
    """Kernels with a trainable lengthscale below the least that is kept, and the least for each."""
    if isinstance(kernel, Combination):
        for child in kernel.kernels:
            yield from _too_short(child, X)
    elif isinstance(kernel, Stationary) and kernel.lengthscales.trainable:
        columns, _ = kernel.slice(X)
        least = MIN_LENGTHSCALE * np.std(columns, 0)
        found = kernel.lengthscales.numpy()
        least = least if found.ndim else np.min(least)
        if np.any(found < least):
            yield kernel, least


def some_rows(
    X: np.ndarray, Y: np.ndarray, num_points: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """At most so many rows, in an order of the seed."""
    check_positive_integer("num_points", num_points)
    rows = np.random.default_rng(seed).permutation(len(X))[:num_points]
    return X[rows], Y[rows]


def least_noise(Y: np.ndarray) -> float:
    """The least noise variance of a search on targets [N, P]."""
    of_gpflow = gpflow.config.default_likelihood_positive_minimum()
    return max(MIN_NOISE * float(np.mean(np.var(Y, 0))), 2.0 * of_gpflow)


def latent_targets(likelihood: Likelihood | None, Y: np.ndarray) -> np.ndarray:
    """What the latent functions start to regress on [N, P]: Y [N, P], or one normalised indicator a class.

    The mean of an indicator of J equally frequent classes is 0 and its variance 1, as of other targets: at
    scales below that the probability that a class' function is the largest has no slope far from the truth,
    and a network's class that starts wrong is never predicted. Of `Bernoulli` it is -1 or 1. The index of a
    `SwitchedLikelihood` is no target.

    :param likelihood: None for a Gaussian one.
    :raises ValueError: for targets that the likelihood does not take, or labels of one class.
    """
    if likelihood is None:
        return Y
    check_targets(likelihood, Y)
    if isinstance(likelihood, (MultiClass, Softmax, Bernoulli)) and np.ptp(Y) == 0:
        raise ValueError(
            f"data: got labels of one class, {Y[0, 0]:g}, needs at least 2 to tell apart"
        )
    if isinstance(likelihood, Bernoulli):
        return 2.0 * Y - 1.0
    if not isinstance(likelihood, (MultiClass, Softmax)):
        return Y[:, : Y.shape[1] - num_index_columns(likelihood)]
    if Y.shape[1] != 1:
        raise ValueError(f"data: got Y {Y.shape}, needs one column of labels")
    num_classes = likelihood.num_classes
    indicators = np.eye(num_classes, dtype=Y.dtype)[Y[:, 0].astype(int)]
    return (num_classes * indicators - 1.0) / np.sqrt(num_classes - 1.0)


def regression_start(
    kernel: str,
    likelihood: Likelihood,
    X: np.ndarray,
    Y: np.ndarray,
    *,
    num_points: int,
    seed: int,
    search: Callable[..., float] | None = None,
) -> tuple[Kernel, float]:
    """A kernel of X [N, D] by the marginal likelihood of some of the data, and its noise variance.

    Whatever the likelihood, it is that of GP regression, on the normalised `latent_targets` of Y [N, P].

    :param kernel: a name in `KERNELS`.
    :param num_points: rows taken at random.
    :param search: of (kernel, X, Y, seed=), in the place of `marginal_likelihood_start`.
    :raises ValueError: for targets that the likelihood does not take, or labels of one class.
    """
    with logarithmic_parameters():
        found = kernel_maker(kernel)(X.shape[1])
    rows = some_rows(X, latent_targets(likelihood, Y), num_points, seed)
    X, Y = check_arrays(*rows, min_rows=1)
    Y = (Y - np.mean(Y, 0)) / np.where(np.ptp(Y, 0) > 0.0, np.std(Y, 0), 1.0)
    search = search or partial(marginal_likelihood_start, num_points=num_points)
    return found, search(found, X, Y, seed=seed)


class Regression(gpflow.models.GPR):
    """GPflow's `GPR`, whose marginal likelihood has its gradient at 500 points in less than half the time.

    It takes K^{-1} in the place of the Cholesky factor's derivative. There are no second derivatives.
    Arguments, predictions and errors are `GPR`'s.

    >>> from gpflow_dkp.models.marginal_likelihood import Regression
    >>> Regression((X, Y), SquaredExponential()).log_marginal_likelihood().shape
    TensorShape([])
    """

    def log_marginal_likelihood(self) -> tf.Tensor:
        """log p(Y | X) [], summed over the outputs."""
        X, Y = self.data
        covariance = add_likelihood_noise_cov(self.kernel(X), self.likelihood, X)
        prior = positive_definite(covariance)
        error = Y - self.mean_function(X)
        exponent = 0.5 * tf.reduce_sum(error * solve(prior, error))
        num_data, num_outputs = tf.unstack(tf.cast(tf.shape(Y), error.dtype))
        log_scale = half_logdet(prior) + 0.5 * num_data * np.log(2.0 * np.pi)
        return -exponent - num_outputs * log_scale


class MarginalLikelihood:
    """GP regression's marginal likelihood of some data after others, compiled once.

    :param kernel: any GPflow kernel; its trainable parameters change.
    :param num_features: D.
    :param num_outputs: P.
    :param least: noise variance.
    """

    def __init__(self, kernel: Kernel, num_features: int, num_outputs: int, least: float) -> None:
        self.kernel, self._least = kernel, least
        dtype = gpflow.default_float()
        self._data = tuple(
            tf.Variable(tf.zeros([0, columns], dtype), trainable=False, shape=[None, columns])
            for columns in (num_features, num_outputs)
        )
        likelihood = gpflow.likelihoods.Gaussian(10.0 * least, variance_lower_bound=least)
        self._model = Regression(self._data, kernel, likelihood=likelihood)
        self._optimizer = gpflow.optimizers.Scipy()
        # One object, by which the optimizer knows what it has compiled.
        self._loss = self._model.training_loss

    def maximise(
        self, X: np.ndarray, Y: np.ndarray, *, noise_variance: float, max_iterations: int
    ) -> float:
        """Fit the kernel to X [N, D] and Y [N, P], and return the noise variance found.

        If that is the least, a second search starts with more, and the better of the two stays: a kernel that
        passes through every target is an optimum, and of few targets of many features often a poor one. So is
        one that takes each value of a column for a function of its own. Lengthscales are raised to the least
        that is kept.
        """
        for variable, part in zip(self._data, (X, Y), strict=True):
            variable.assign(part)
        noise_variance = max(noise_variance, 10.0 * self._least)
        start = self._optimizer.pack_tensors(self._model.trainable_variables)
        found = self._search(noise_variance, max_iterations)
        if found < NEAR_LEAST * self._least:
            found = self._better(found, start, MORE_NOISE * noise_variance, max_iterations)
        if any(_too_short(self.kernel, X)):
            found = self._better(found, start, LESS_NOISE * noise_variance, max_iterations)
        for kernel, least in _too_short(self.kernel, X):
            kernel.lengthscales.assign(np.maximum(kernel.lengthscales.numpy(), least))
        return found

    def _better(
        self, found: float, start: np.ndarray, noise_variance: float, max_iterations: int
    ) -> float:
        """The noise variance of the better optimum, of the one found and one from another noise."""
        variables = self._model.trainable_variables
        loss, first = float(self._loss()), self._optimizer.pack_tensors(variables)
        assign_packed(self._optimizer, variables, start)
        again = self._search(noise_variance, max_iterations)
        if float(self._loss()) < loss:
            return again
        assign_packed(self._optimizer, variables, first)
        return found

    def _search(self, noise_variance: float, max_iterations: int) -> float:
        variance = self._model.likelihood.variance
        variance.assign(noise_variance)
        minimise(self._optimizer, self._loss, self._model.trainable_variables, max_iterations)
        return float(variance.numpy())


def assign_packed(
    optimizer: gpflow.optimizers.Scipy, variables: Sequence[tf.Variable], packed: np.ndarray
) -> None:
    """The values that `pack_tensors` gave."""
    optimizer.assign_tensors(variables, optimizer.unpack_tensors(variables, packed))


def minimise(
    optimizer: gpflow.optimizers.Scipy,
    loss: Callable[[], tf.Tensor],
    variables: Sequence[tf.Variable],
    max_iterations: int,
) -> int:
    """Minimise a loss by L-BFGS, and return how many iterations it took.

    Where a step goes too far, as towards a singular kernel, the search starts again from the best point, by
    its gradient at first, as long as that helps.

    :raises ValueError: the loss is not finite at the start.
    """
    best, taken = (_finite(loss), optimizer.pack_tensors(variables)), 0

    def after_iteration(intermediate_result: scipy.optimize.OptimizeResult) -> None:
        nonlocal best, taken
        taken += 1
        if intermediate_result.fun < best[0]:
            best = intermediate_result.fun, intermediate_result.x.copy()

    while taken < max_iterations:
        start = best[0]
        with contextlib.suppress(tf.errors.InvalidArgumentError):  # no Cholesky factor
            found = optimizer.minimize(
                loss,
                variables,
                callback=after_iteration,
                options={"maxiter": max_iterations - taken},
                tf_fun_args={"autograph": False},  # which would take longer than the search
            )
            if found.fun <= best[0]:  # also not NaN
                break
        assign_packed(optimizer, variables, best[1])
        if best[0] == start:  # another search would be the same
            break
    return taken


def _finite(loss: Callable[[], tf.Tensor]) -> float:
    """The loss.

    :raises ValueError: it is not finite.
    """
    with contextlib.suppress(tf.errors.InvalidArgumentError):
        value = float(loss())
        if np.isfinite(value):
            return value
    raise ValueError(
        "the marginal likelihood of the data is not finite; check their scale (a constant target has "
        "none), or give the kernel and num_marginal_points=0"
    )
