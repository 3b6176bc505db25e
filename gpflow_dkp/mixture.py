"""Equal mixtures of Gaussians, as which the models predict: moments, quantiles, densities and scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import MeanAndVariance, TensorType

from .checks import check_positive_integer
from .random import Seed, normal, split

MAX_STEPS = 200
"""Of the search for a quantile, which takes fewer than 20 of most mixtures."""


class Mixture(NamedTuple):
    """An equal mixture of S Gaussians at each of N points, independent over P outputs given the component.

    Letters: S components, N points (any number of axes, or none), P outputs.

    :param mean: [S, N, P].
    :param variance: positive, [S, N, P].

    >>> mean, variance = np.array([[[-1.0]], [[1.0]]]), np.ones([2, 1, 1])
    >>> mixture = gpflow_dkp.mixture.Mixture(mean, variance)
    >>> [float(part[0, 0]) for part in mixture.moments()]
    [0.0, 2.0]
    >>> float(mixture.cdf([[0.0]])[0, 0]), mixture.sample(5, seed=0).shape
    (0.5, TensorShape([5, 1, 1]))
    """

    mean: tf.Tensor
    variance: tf.Tensor

    @check_shapes("return[0]: [N..., P]", "return[1]: [N..., P]")
    def moments(self) -> MeanAndVariance:
        """Mean and variance of the mixture, [N, P] each."""
        mean, variance = self._tensors()
        return (
            tf.reduce_mean(mean, 0),
            tf.reduce_mean(variance, 0) + tf.math.reduce_variance(mean, 0),
        )

    @check_shapes("return: [S, N...]")
    def component_log_prob(self, y: TensorType) -> tf.Tensor:
        """Log density of y [N, P] under each component [S, N]."""
        mean, variance = self._tensors()
        standardised = (self._at(y) - mean) / tf.sqrt(variance)
        log_normaliser = math.log(2.0 * math.pi) + tf.math.log(variance)
        return -0.5 * tf.reduce_sum(tf.square(standardised) + log_normaliser, -1)

    @check_shapes("return: [N...]")
    def log_prob(self, y: TensorType) -> tf.Tensor:
        """Log density at y [N, P], of all outputs together [N]: log-mean-exp over components.

        docs/mathematics.md 10.
        """
        density = self.component_log_prob(y)
        log_components = tf.math.log(tf.cast(tf.shape(density)[0], density.dtype))
        return tf.reduce_logsumexp(density, 0) - log_components

    @check_shapes("return: [N..., P]")
    def cdf(self, y: TensorType) -> tf.Tensor:
        """Distribution function of each output at y [N, P]: [N, P]."""
        mean, variance = self._tensors()
        return tf.reduce_mean(normal_cdf((self._at(y) - mean) / tf.sqrt(variance)), 0)

    @check_shapes("return: [L, N..., P]")
    def quantile(self, levels: Sequence[float] | np.ndarray) -> tf.Tensor:
        """Quantiles of each output [L, N, P], to rounding, differentiable in mean and variance.

        :param levels: L probabilities, each strictly between 0 and 1.
        :raises ValueError: for other levels.

        Derivatives are the implicit function's, dq = -dF / f(q), and right up to the third.
        """
        mean, variance = self._tensors()
        scale = tf.sqrt(variance)
        # The tail on the level's own side keeps its digits, where 1 - F(q) would lose them.
        probabilities = check_levels(levels)
        lower = probabilities <= 0.5
        tails = np.where(lower, probabilities, 1.0 - probabilities)
        tails = np.maximum(tails, np.finfo(mean.dtype.as_numpy_dtype).tiny)
        signs = tf.constant(np.where(lower, 1.0, -1.0), mean.dtype)

        # Outside a function TensorFlow would rewrite all that this calls, which takes seconds.
        @tf.autograph.experimental.do_not_convert
        def at_level(level: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            tail, sign = level
            return sign * _lower_quantile(sign * mean, scale, tail)

        return tf.map_fn(
            at_level, (tf.constant(tails, mean.dtype), signs), fn_output_signature=mean.dtype
        )

    @check_shapes("return: [num_samples, N..., P]")
    def sample(self, num_samples: int, seed: Seed = None) -> tf.Tensor:
        """Independent draws [num_samples, N, P]: at each point of one component for all outputs.

        :param seed: int or stateless seed; None draws fresh samples at each call.
        """
        check_positive_integer("num_samples", num_samples)
        mean, variance = self._tensors()
        for_components, for_noise = split(seed, 2)
        num_components, num_outputs = tf.shape(mean)[0], tf.shape(mean)[-1]
        points = tf.shape(mean)[1:-1]
        num_points = tf.reduce_prod(points)
        component = tf.random.stateless_uniform(
            [num_samples, num_points], for_components, maxval=num_components, dtype=tf.int32
        )
        row = tf.cast(component, tf.int64) * tf.cast(num_points, tf.int64)
        row += tf.range(tf.cast(num_points, tf.int64))
        mean, variance = (
            tf.gather(tf.reshape(part, [-1, num_outputs]), row) for part in (mean, variance)
        )
        noise = normal([num_samples, num_points, num_outputs], for_noise, mean.dtype)
        shape = tf.concat([[num_samples], points, [num_outputs]], 0)
        return tf.reshape(mean + tf.sqrt(variance) * noise, shape)

    @check_shapes("return: [N..., P]")
    def crps(self, y: TensorType) -> tf.Tensor:
        """Continuous ranked probability score of each output at y [N, P]: [N, P], in the units of y.

        E|Y - y| - E|Y - Y'| / 2, exact (Grimit et al., 2006): with A(m, v) = E|m + sqrt(v) eps|,
        mean_s A(y - m_s, v_s) - mean_st A(m_s - m_t, v_s + v_t) / 2. Time grows with S^2 N P, memory with
        S N P.
        """
        mean, variance = self._tensors()
        error = tf.reduce_mean(_mean_absolute(self._at(y) - mean, variance), 0)
        num_components = tf.shape(mean)[0]
        # Each pair but those of one component is twice in the mean: once of s and s + k, once of s + k and s.
        half = num_components // 2

        def add(shift: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            distance = mean - tf.roll(mean, shift, 0)
            pairs = _mean_absolute(distance, variance + tf.roll(variance, shift, 0))
            once = tf.equal(2 * shift, num_components)
            weight = tf.where(once, tf.constant(1.0, mean.dtype), tf.constant(2.0, mean.dtype))
            return shift + 1, total + weight * tf.reduce_mean(pairs, 0)

        same = tf.reduce_mean(tf.sqrt(variance), 0) * (2.0 / math.sqrt(math.pi))
        _, spread = tf.while_loop(
            lambda shift, _: shift <= half, add, (tf.constant(1), same), parallel_iterations=1
        )
        return error - 0.5 * spread / tf.cast(num_components, mean.dtype)

    def _tensors(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance as tensors of one type and shape.

        :raises ValueError: for different shapes, or fewer than two axes.
        """
        mean = _as_floats(self.mean)
        variance = _as_floats(self.variance, mean.dtype)
        rank = mean.shape.rank
        if not mean.shape.is_compatible_with(variance.shape) or (rank is not None and rank < 2):
            raise ValueError(
                f"Mixture: got mean {mean.shape} and variance {variance.shape}, needs [S, N, P] each"
            )
        return mean, variance

    def _at(self, y: TensorType) -> tf.Tensor:
        """Points y [N, P] in the type of the mean.

        :raises ValueError: for another shape.
        """
        mean, _ = self._tensors()
        y = _as_floats(y, mean.dtype)
        if not y.shape.is_compatible_with(mean.shape[1:]):
            raise ValueError(f"y: got shape {y.shape}, needs {mean.shape[1:]} of the mixture")
        return y


def check_levels(levels: Sequence[float] | np.ndarray) -> np.ndarray:
    """Levels of quantiles as an array [L].

    :raises ValueError: unless they are numbers strictly between 0 and 1.

    >>> gpflow_dkp.mixture.check_levels([0.25, 0.75]).tolist()
    [0.25, 0.75]
    >>> gpflow_dkp.mixture.check_levels([0.0, 1.0])
    Traceback (most recent call last):
        ...
    ValueError: levels: got [0.0, 1.0], needs numbers strictly between 0 and 1, in a list
    """
    try:
        probabilities = np.asarray(levels)
    except ValueError:  # a list of lists of different lengths
        probabilities = np.empty([0, 0])
    numbers = probabilities.ndim == 1 and probabilities.size and probabilities.dtype.kind in "iuf"
    if not numbers or not np.all((probabilities > 0) & (probabilities < 1)):
        got = " ".join(str(levels).split())
        got = got if len(got) < 80 else f"{got[:77]}..."
        raise ValueError(f"levels: got {got}, needs numbers strictly between 0 and 1, in a list")
    return probabilities.astype(np.float64)


def normal_cdf(value: tf.Tensor) -> tf.Tensor:
    """Phi, with full relative accuracy in the lower tail.

    >>> value = tf.constant([-1.96, 0.0, 1.96], tf.float64)
    >>> gpflow_dkp.mixture.normal_cdf(value).numpy().round(3).tolist()
    [0.025, 0.5, 0.975]
    """
    return 0.5 * tf.math.erfc(-value / math.sqrt(2.0))


def _as_floats(value: TensorType, dtype: tf.DType | None = None) -> tf.Tensor:
    """A tensor of `dtype`, by default of its own where that is of floats, GPflow's otherwise."""
    value = tf.convert_to_tensor(value if hasattr(value, "dtype") else np.asarray(value))
    if dtype is None:
        dtype = value.dtype if value.dtype.is_floating else gpflow.default_float()
    return tf.cast(value, dtype)


def _cdf_and_density(
    y: tf.Tensor, mean: tf.Tensor, scale: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """F and F' of mixtures [S, N, P] at y [N, P]."""
    standardised = (y - mean) / scale
    density = tf.exp(-0.5 * tf.square(standardised)) / (math.sqrt(2.0 * math.pi) * scale)
    return tf.reduce_mean(normal_cdf(standardised), 0), tf.reduce_mean(density, 0)


def _mean_absolute(mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """E|x| for x ~ N(mean, variance)."""
    scale = tf.sqrt(variance)
    z = mean / (math.sqrt(2.0) * scale)
    return math.sqrt(2.0 / math.pi) * scale * tf.exp(-tf.square(z)) + mean * tf.math.erf(z)


@check_shapes("mean: [S, N..., P]", "scale: [S, N..., P]", "tail: []", "return: [N..., P]")
def _lower_quantile(mean: tf.Tensor, scale: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
    """Where the distribution function is `tail` [], at most 1/2: [N, P], with its derivatives."""
    quantile = _solve(*(tf.stop_gradient(part) for part in (mean, scale, tail)))
    for _ in range(2):  # Newton steps of length 0: each doubles the derivatives' order
        below, slope = _cdf_and_density(quantile, mean, scale)
        change = tf.math.divide_no_nan(below - tf.stop_gradient(below), slope)
        quantile = quantile - change
    return quantile


def _solve(mean: tf.Tensor, scale: tf.Tensor, tail: tf.Tensor) -> tf.Tensor:
    """F(x) = tail [] by Newton's method on log F, which is nearly quadratic in the tail.

    A component's own quantiles enclose the mixture's. A step that leaves the enclosure, or is more than
    half the one before, is a bisection instead.
    """
    rounding = np.finfo(mean.dtype.as_numpy_dtype).eps
    component = mean + scale * tf.math.ndtri(tail)
    narrowest = tf.reduce_min(scale, 0)

    def unfinished(number: tf.Tensor, done: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
        return tf.logical_and(number < MAX_STEPS, tf.logical_not(tf.reduce_all(done)))

    def improve(
        number: tf.Tensor,
        done: tf.Tensor,
        x: tf.Tensor,
        low: tf.Tensor,
        high: tf.Tensor,
        last: tf.Tensor,
    ) -> tuple[tf.Tensor, ...]:
        below, slope = _cdf_and_density(x, mean, scale)
        low, high = tf.where(below < tail, x, low), tf.where(below < tail, high, x)
        log_excess = tf.math.log(below) - tf.math.log(tail)
        newton = -log_excess * below / slope
        exact = tf.abs(log_excess) <= 4.0 * rounding
        resolution = rounding * (tf.abs(x) + narrowest)
        done = done | exact | (high - low <= resolution) | (tf.abs(newton) <= resolution)
        done = done | tf.math.is_nan(below)
        inside = (x + newton > low) & (x + newton < high)
        step = tf.where(inside & (tf.abs(newton) < 0.5 * last), newton, 0.5 * (low + high) - x)
        x = tf.where(done, x, x + step)
        return number + 1, done, x, low, high, tf.abs(step)

    low, high = tf.reduce_min(component, 0), tf.reduce_max(component, 0)
    start = 0.5 * (low + high)
    state = (tf.constant(0), tf.zeros_like(start, tf.bool), start, low, high, high - low)
    return tf.while_loop(unfinished, improve, state, parallel_iterations=1)[2]
