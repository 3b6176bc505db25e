"""Explicit randomness: one seed in, the same numbers out, in eager mode and inside `tf.function`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

Seed: TypeAlias = "int | tf.Tensor | PartOfSeed | MirroredSeed | None"
Shape: TypeAlias = "list[int | tf.Tensor]"


class Points(NamedTuple):
    """Some of N data points: from `start` up to `stop` of `total`.

    >>> points = gpflow_dkp.random.Points(start=5, stop=10, total=10)
    >>> X[points.start : points.stop].shape
    (5, 2)
    """

    start: int | tf.Tensor
    stop: int | tf.Tensor
    total: int | tf.Tensor


class MirroredSeed(NamedTuple):
    """A seed whose normals come in pairs: of the second half of the samples they are minus the first half's.

    A mean over the samples so has no error from what is odd in the normals, and a gradient less noise. Each
    sample alone is as of any seed. `split`, `fold_in`, `normal` and `gamma` take it; gammas have no pairs.

    :param seed: [2].

    >>> seed = gpflow_dkp.random.mirrored(0)
    >>> draws = gpflow_dkp.random.normal([5, 2], seed, tf.float64)
    >>> np.array_equal(draws[3:], -draws[:2]), bool(np.all(np.abs(draws[2]) < 6.0))
    (True, True)
    """

    seed: tf.Tensor


def mirrored(seed: Seed) -> MirroredSeed:
    """The seed whose normals come in pairs of opposite sign.

    >>> isinstance(gpflow_dkp.random.mirrored(0), gpflow_dkp.random.MirroredSeed)
    True
    """
    return MirroredSeed(as_seed(seed))


class PartOfSeed:
    """The seed of some of S samples, whose random numbers are theirs of all S under the whole seed.

    `split`, `fold_in`, `normal` and `gamma` take it as a seed: the last two then draw for all S once,
    whichever part asks first, and give each part its rows.

    :param seed: the whole seed [2].
    :param path: how it was derived from the seed that was parted; tells the draws apart.
    :param total: S.
    :param rows: those of this part.
    :param drawn: the draws so far, shared by all parts.
    :param points: the data points of this part, None for all.

    >>> first, second = gpflow_dkp.random.parts_of_seed(0, [2, 3])
    >>> isinstance(first, gpflow_dkp.random.PartOfSeed), first.total, second.rows
    (True, 5, slice(2, 5, None))
    >>> gpflow_dkp.random.normal([2, 4], first, tf.float64).shape
    TensorShape([2, 4])
    """

    def __init__(
        self,
        seed: tf.Tensor,
        path: tuple,
        total: int | tf.Tensor,
        rows: slice,
        drawn: dict[tuple, tf.Tensor],
        points: Points | None = None,
    ) -> None:
        self.seed, self.path, self.total, self.rows, self._drawn = seed, path, total, rows, drawn
        self.points = points

    def derived(self, seed: tf.Tensor, *step: Any) -> PartOfSeed:
        """The same part of a seed that one `step` derives from this one."""
        return PartOfSeed(seed, (*self.path, step), self.total, self.rows, self._drawn, self.points)

    def draw(
        self,
        kind: tuple[Any, ...],
        shape: Shape,
        function: Callable[[Shape, tf.Tensor], tf.Tensor],
        *,
        samples: int = 0,
        points: int | None = None,
    ) -> tf.Tensor:
        """This part's entries, of `shape`, of `function(shape of the whole, seed)`.

        :param kind: tells the draws of one seed apart, with their shapes.
        :param samples: the axis of the samples.
        :param points: the axis of the data points, None where there is none.
        """
        whole, index = list(shape), [slice(None)] * len(shape)
        whole[samples], index[samples] = self.total, self.rows
        if points is not None and self.points is not None:
            start, stop, whole[points] = self.points
            index[points] = slice(start, stop)
        key = (*self.path, *kind, *map(_known, whole))
        if key not in self._drawn:
            self._drawn[key] = function(whole, self.seed)
        return self._drawn[key][tuple(index)]

    def repeated(self, num_draws: int) -> PartOfSeed:
        """The same part where each sample has `num_draws` places of the first axis [S `num_draws`, ...]."""
        rows = slice(self.rows.start * num_draws, self.rows.stop * num_draws)
        path = *self.path, ("repeated", num_draws)
        return PartOfSeed(self.seed, path, self.total * num_draws, rows, self._drawn, self.points)

    def of_rows(self, num_points: int | tf.Tensor) -> PartOfSeed:
        """The same part where the first axis goes through the data points of each sample [S N, ...].

        :param num_points: of this part; where they are not all of N, it is of one sample.
        """
        first, last = self.rows.start, self.rows.stop - 1
        start, stop, total = self.points or Points(0, num_points, num_points)
        rows = slice(first * total + start, last * total + stop)
        path = *self.path, ("rows",)
        return PartOfSeed(self.seed, path, self.total * total, rows, self._drawn)


def part_of_seed(
    seed: Seed, samples: slice, total: int, points: Points | None = None
) -> PartOfSeed:
    """The seed of some of `total` samples, and of some data points of one sample, drawn apart from the rest.

    >>> normal, seed = gpflow_dkp.random.normal, gpflow_dkp.random.as_seed(0)
    >>> points = gpflow_dkp.random.Points(start=1, stop=3, total=4)
    >>> part = gpflow_dkp.random.part_of_seed(seed, slice(2, 3), 5, points)
    >>> whole = normal([5, 4], seed, tf.float64)
    >>> np.array_equal(normal([1, 2], part, tf.float64, points=1), whole[2:3, 1:3])
    True
    """
    return PartOfSeed(as_seed(seed), (), total, samples, {}, points)


def parts_of_seed(seed: Seed, sizes: list[int]) -> list[PartOfSeed]:
    """Seeds for parts of the samples, as many in each as `sizes` says.

    >>> normal, seed = gpflow_dkp.random.normal, gpflow_dkp.random.as_seed(0)
    >>> first, second = gpflow_dkp.random.parts_of_seed(seed, [2, 3])
    >>> parts = [normal([2, 4], first, tf.float64), normal([3, 4], second, tf.float64)]
    >>> np.array_equal(np.concatenate(parts), normal([5, 4], seed, tf.float64))
    True
    """
    whole = as_seed(seed)
    drawn: dict[tuple, tf.Tensor] = {}
    ends = np.cumsum(sizes).tolist()
    rows = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    return [PartOfSeed(whole, (), ends[-1], part, drawn) for part in rows]


def as_seed(seed: Seed | Callable[[], Seed]) -> Any:
    """A seed [2] for `tf.random.stateless_*` that depends on `seed` alone.

    TFP draws the seed behind an integer from TensorFlow's global generator, so that the second
    call with it gives other numbers than the first. Here an integer is the seed itself.

    :param seed: an integer, a stateless seed (integer tensor, array or pair of shape [2]), a
        callable that returns one of these, or `None` for a fresh seed at every call, governed by
        `tf.random.set_seed`.
    :return: an int32 tensor [2]; a `PartOfSeed` or `MirroredSeed` stays what it is.
    :raises ValueError: for a seed of another shape, or of numbers that are not integers.

    >>> gpflow_dkp.random.as_seed(3).numpy().tolist()
    [3, 0]
    >>> seed = tf.constant([1, 2])
    >>> gpflow_dkp.random.as_seed(seed).numpy().tolist()
    [1, 2]
    """
    if callable(seed):
        seed = seed()
    if seed is None:
        return tf.random.uniform([2], maxval=2**31 - 1, dtype=tf.int32)
    if isinstance(seed, (PartOfSeed, MirroredSeed)):
        return seed
    if isinstance(seed, (int, np.integer)):
        # Both words of an integer of 64 bits: no seed is another one's alias.
        words = np.array([int(seed) % 2**64], dtype=np.uint64).view(np.int32)
        return tf.constant(words)
    tensor = tf.convert_to_tensor(seed)
    fits = tensor.shape.is_compatible_with([]) or tensor.shape.is_compatible_with([2])
    if not (fits and tensor.dtype.is_integer):
        raise ValueError(
            f"seed has shape {tensor.shape} and dtype {tensor.dtype.name}; it must be an integer, "
            "None, or an integer tensor of shape [2] such as tf.random.split returns"
        )
    if tensor.shape.rank == 0:
        return tf.bitcast(tf.cast(tensor, tf.int64), tf.int32)
    return tf.cast(tensor, tf.int32)


def split(seed: Seed, num: int) -> list[Any]:
    """`num` independent seeds.

    >>> for_gamma, for_normal = gpflow_dkp.random.split(0, 2)
    >>> for_gamma.shape, np.array_equal(for_gamma, for_normal)
    (TensorShape([2]), False)
    """
    if isinstance(seed, PartOfSeed):
        return [seed.derived(part, num, i) for i, part in enumerate(split(seed.seed, num))]
    if isinstance(seed, MirroredSeed):
        return [MirroredSeed(part) for part in split(seed.seed, num)]
    return tf.unstack(tf.random.split(as_seed(seed), num))


def fold_in(seed: Seed, data: int | tf.Tensor) -> Any:
    """The seed of item `data` under `seed`.

    >>> seeds = [gpflow_dkp.random.fold_in(0, step).numpy().tolist() for step in (1, 2, 1)]
    >>> seeds[0] == seeds[1], seeds[0] == seeds[2]
    (False, True)
    """
    if isinstance(seed, PartOfSeed):
        return seed.derived(fold_in(seed.seed, data), data if isinstance(data, int) else data.ref())
    if isinstance(seed, MirroredSeed):
        return MirroredSeed(fold_in(seed.seed, data))
    return tf.random.fold_in(as_seed(seed), data)


def normal(
    shape: Shape, seed: Seed, dtype: tf.DType, *, samples: int = 0, points: int | None = None
) -> tf.Tensor:
    """Standard normals of `shape`, by Box and Muller from single-precision uniforms.

    Three times as fast as double-precision `tf.random.stateless_normal`. The uniforms' 23 bits
    bound |x| by 5.6; the variance that this cuts off is below 1e-6.

    :param samples: the axis of the samples, of which a part of a seed has some.
    :param points: the axis of the data points, if there is one: the seed's part may have some of them too.

    >>> seed = gpflow_dkp.random.as_seed(0)
    >>> draws = gpflow_dkp.random.normal([1000, 2], seed, tf.float64)
    >>> draws.shape, bool(np.all(np.abs(np.mean(draws, axis=0)) < 0.2))
    (TensorShape([1000, 2]), True)
    >>> np.array_equal(draws, gpflow_dkp.random.normal([1000, 2], seed, tf.float64))
    True
    """
    if isinstance(seed, PartOfSeed):

        def draw_all(shape: Shape, whole: tf.Tensor) -> tf.Tensor:
            return normal(shape, whole, dtype, samples=samples, points=points)

        return seed.draw(("normal", dtype), shape, draw_all, samples=samples, points=points)
    if isinstance(seed, MirroredSeed):
        half_shape = list(shape)
        half_shape[samples] = (shape[samples] + 1) // 2
        first = normal(half_shape, seed.seed, dtype, samples=samples, points=points)
        rest = shape[samples] - half_shape[samples]
        mirror = -tf.gather(first, tf.range(rest), axis=samples)
        return tf.concat([first, mirror], samples)
    size = tf.reduce_prod(tf.stack(shape))
    half = (size + 1) // 2
    first, second = tf.split(tf.random.stateless_uniform([2 * half], seed), 2)
    radius = tf.sqrt(-2.0 * tf.math.log(1.0 - first))
    angle = 2.0 * math.pi * second
    flat = tf.concat([radius * tf.cos(angle), radius * tf.sin(angle)], 0)[:size]
    return tf.cast(tf.reshape(flat, shape), dtype)


def gamma(
    num_samples: int | tf.Tensor,
    concentration: tf.Tensor,
    seed: Seed,
    *,
    num_points: int | tf.Tensor | None = None,
) -> tf.Tensor:
    """Gamma(concentration, 1) draws [num_samples, ...], differentiable in `concentration` [...].

    For every part of a seed it must be the same concentration.

    :param num_points: N: draws [num_samples, N] for each of the data points, of one concentration [].

    >>> concentration = tf.constant([1.0, 4.0], tf.float64)
    >>> draws = gpflow_dkp.random.gamma(1000, concentration, gpflow_dkp.random.as_seed(0))
    >>> draws.shape, np.allclose(np.mean(draws, axis=0), concentration, rtol=0.2)
    (TensorShape([1000, 2]), True)
    """
    if isinstance(seed, PartOfSeed):
        own = [] if num_points is None else [num_points]

        def draw_all(shape: Shape, whole: tf.Tensor) -> tf.Tensor:
            return gamma(shape[0], concentration, whole, num_points=shape[1] if own else None)

        shape = [num_samples, *own, *concentration.shape]
        kind = "gamma", concentration.dtype
        return seed.draw(kind, shape, draw_all, points=1 if own else None)
    if isinstance(seed, MirroredSeed):
        seed = seed.seed
    if num_points is not None:
        concentration *= tf.ones([num_points], concentration.dtype)
    shape = tf.concat([[num_samples], tf.shape(concentration)], 0)
    return tf.random.stateless_gamma(shape, seed, concentration, dtype=concentration.dtype)


def _known(size: int | tf.Tensor | None) -> int | None:
    """A size that is known before run time."""
    value = tf.get_static_value(size) if tf.is_tensor(size) else size
    return None if value is None else int(value)
