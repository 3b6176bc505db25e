"""Explicit randomness: one seed in, the same numbers out, in eager mode and inside `tf.function`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

Seed: TypeAlias = "int | tf.Tensor | PartOfSeed | None"


class PartOfSeed:
    """The seed of some of S samples, whose random numbers are theirs of all S under the whole seed.

    `split`, `fold_in`, `normal` and `gamma` take it as a seed: the last two then draw for all S once,
    whichever part asks first, and give each part its rows.

    :param seed: the whole seed [2].
    :param path: how it was derived from the seed that was parted; tells the draws apart.
    :param total: S.
    :param rows: those of this part.
    :param drawn: the draws so far, shared by all parts.

    >>> first, second = gpflow_dkp.random.parts_of_seed(0, [2, 3])
    >>> isinstance(first, gpflow_dkp.random.PartOfSeed), first.total, second.rows
    (True, 5, slice(2, 5, None))
    >>> gpflow_dkp.random.normal([2, 4], first, tf.float64).shape
    TensorShape([2, 4])
    """

    def __init__(
        self, seed: tf.Tensor, path: tuple, total: int, rows: slice, drawn: dict[tuple, tf.Tensor]
    ) -> None:
        self.seed, self.path, self.total, self.rows, self._drawn = seed, path, total, rows, drawn

    def derived(self, seed: tf.Tensor, *step: Any) -> PartOfSeed:
        """The same part of a seed that one `step` derives from this one."""
        return PartOfSeed(seed, (*self.path, step), self.total, self.rows, self._drawn)

    def draw(
        self, kind: tuple[Any, ...], function: Callable[[int, tf.Tensor], tf.Tensor]
    ) -> tf.Tensor:
        """This part's rows of `function(S, seed)`, which `kind` tells from the seed's other draws."""
        key = (*self.path, kind)
        if key not in self._drawn:
            self._drawn[key] = function(self.total, self.seed)
        return self._drawn[key][self.rows]


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
    :return: an int32 tensor [2]; a `PartOfSeed` stays what it is.
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
    if isinstance(seed, PartOfSeed):
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
    return tf.unstack(tf.random.split(as_seed(seed), num))


def fold_in(seed: Seed, data: int | tf.Tensor) -> Any:
    """The seed of item `data` under `seed`.

    >>> seeds = [gpflow_dkp.random.fold_in(0, step).numpy().tolist() for step in (1, 2, 1)]
    >>> seeds[0] == seeds[1], seeds[0] == seeds[2]
    (False, True)
    """
    if isinstance(seed, PartOfSeed):
        return seed.derived(fold_in(seed.seed, data), data if isinstance(data, int) else data.ref())
    return tf.random.fold_in(as_seed(seed), data)


def normal(shape: list[int | tf.Tensor], seed: Seed, dtype: tf.DType) -> tf.Tensor:
    """Standard normals of `shape`, by Box and Muller from single-precision uniforms.

    Three times as fast as double-precision `tf.random.stateless_normal`. The uniforms' 23 bits
    bound |x| by 5.6; the variance that this cuts off is below 1e-6.

    >>> seed = gpflow_dkp.random.as_seed(0)
    >>> draws = gpflow_dkp.random.normal([1000, 2], seed, tf.float64)
    >>> draws.shape, bool(np.all(np.abs(np.mean(draws, axis=0)) < 0.2))
    (TensorShape([1000, 2]), True)
    >>> np.array_equal(draws, gpflow_dkp.random.normal([1000, 2], seed, tf.float64))
    True
    """
    if isinstance(seed, PartOfSeed):
        kind = "normal", dtype, *map(_known, shape[1:])
        return seed.draw(kind, lambda total, whole: normal([total, *shape[1:]], whole, dtype))
    size = tf.reduce_prod(tf.stack(shape))
    half = (size + 1) // 2
    first, second = tf.split(tf.random.stateless_uniform([2 * half], seed), 2)
    radius = tf.sqrt(-2.0 * tf.math.log(1.0 - first))
    angle = 2.0 * math.pi * second
    flat = tf.concat([radius * tf.cos(angle), radius * tf.sin(angle)], 0)[:size]
    return tf.cast(tf.reshape(flat, shape), dtype)


def gamma(num_samples: int | tf.Tensor, concentration: tf.Tensor, seed: Seed) -> tf.Tensor:
    """Gamma(concentration, 1) draws [num_samples, ...], differentiable in `concentration` [...].

    For every part of a seed it must be the same concentration.

    >>> concentration = tf.constant([1.0, 4.0], tf.float64)
    >>> draws = gpflow_dkp.random.gamma(1000, concentration, gpflow_dkp.random.as_seed(0))
    >>> draws.shape, np.allclose(np.mean(draws, axis=0), concentration, rtol=0.2)
    (TensorShape([1000, 2]), True)
    """
    if isinstance(seed, PartOfSeed):
        kind = "gamma", concentration.dtype, *concentration.shape
        return seed.draw(kind, lambda total, whole: gamma(total, concentration, whole))
    shape = tf.concat([[num_samples], tf.shape(concentration)], 0)
    return tf.random.stateless_gamma(shape, seed, concentration, dtype=concentration.dtype)


def _known(size: int | tf.Tensor) -> int | None:
    """A size that is known before run time."""
    value = tf.get_static_value(size) if tf.is_tensor(size) else size
    return None if value is None else int(value)
