"""What changes as a run goes on: learning rate, weight of the KL term, rows of the minibatch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import NamedTuple, TypeAlias, cast

import tensorflow as tf

from ..checks import brief
from .arguments import is_real


class Moment(NamedTuple):
    """Where a run stands.

    :param step: number of steps before this one [].
    :param position: the part of the schedule that lies behind, from 0 to 1 [].
    :param pace: the part that this step is [].
    """

    step: tf.Tensor
    position: tf.Tensor
    pace: tf.Tensor


@dataclass(frozen=True)
class ExponentialDecay:
    """rate * factor^n from step n * every on, n = 0, 1, ...; factor 0.98 every 1 000 steps as in [ICML19].

    >>> decay = gpflow_dkp.training.ExponentialDecay(0.01, factor=0.5, every=100)
    >>> [decay.rate * decay.factor ** (step // decay.every) for step in (0, 99, 100, 250)]
    [0.01, 0.01, 0.005, 0.0025]
    >>> gpflow_dkp.training.Recipe(learning_rate=decay).learning_rate is decay
    True
    """

    rate: float
    factor: float = 0.98
    every: int = 1000


@dataclass(frozen=True)
class Cosine:
    """From 0 to `rate` over the part `warmup` of the steps, then down a half cosine to `floor` x `rate`.

    >>> rate = gpflow_dkp.training.Cosine(0.02)
    >>> rate
    Cosine(rate=0.02, warmup=0.05, floor=0.01)
    >>> gpflow_dkp.training.Recipe(learning_rate=rate).learning_rate is rate
    True
    """

    rate: float
    warmup: float = 0.05
    floor: float = 0.01


ROUNDING = 1e-9
"""Of positions: a step at 0.3 of the run is not before 0.3."""

LearningRate: TypeAlias = "float | Sequence[tuple[float, float]] | ExponentialDecay | Cosine"
Schedule: TypeAlias = "tuple[tuple[float, float], ...] | ExponentialDecay | Cosine"

PAPER_LEARNING_RATE: LearningRate = ((0.0, 1e-2), (0.5, 1e-3))
"""1e-2, then 1e-3 after half of the steps ([ICML21], [NeurIPS21], [UAI23])."""


def check_learning_rate(learning_rate: LearningRate, name: str = "learning_rate") -> Schedule:
    """The schedule as pairs (fraction of the steps from which it holds, rate), or a decay as it is.

    :param name: of the argument, for the error.
    :raises ValueError: unless rates are positive and fractions rise from 0 to below 1.
    """
    if isinstance(learning_rate, ExponentialDecay):
        decay = learning_rate
        numbers = (
            is_real(decay.rate) and is_real(decay.factor) and isinstance(decay.every, Integral)
        )
        if not (numbers and decay.rate > 0 and 0 < decay.factor <= 1 and decay.every >= 1):
            raise ValueError(
                f"{name}: got {decay}, needs a positive rate, a factor in (0, 1] and every of at least 1"
            )
        return decay
    if isinstance(learning_rate, Cosine):
        cosine = learning_rate
        numbers = is_real(cosine.rate) and is_real(cosine.warmup) and is_real(cosine.floor)
        if not (numbers and cosine.rate > 0 and 0 <= cosine.warmup < 1 and 0 <= cosine.floor <= 1):
            raise ValueError(
                f"{name}: got {cosine}, needs a positive rate, a warmup from 0 to below 1 and a floor from 0 "
                "to 1"
            )
        return cosine
    if isinstance(learning_rate, Real) and not isinstance(learning_rate, bool):
        learning_rate = ((0.0, float(learning_rate)),)
    try:
        pairs = [(start, rate) for start, rate in cast(Iterable, learning_rate)]
        schedule = tuple((float(start), float(rate)) for start, rate in pairs)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name}: got {brief(learning_rate)}, needs a rate, pairs (fraction of the steps, rate) or an "
            "ExponentialDecay"
        ) from error
    starts = [start for start, _ in schedule]
    rising = all(a < b for a, b in itertools.pairwise(starts))
    if not schedule or starts[0] != 0 or not rising or starts[-1] >= 1:
        raise ValueError(
            f"{name}: got {brief(learning_rate)}, needs a rate or pairs (fraction, rate) with "
            "fractions rising from 0 to below 1"
        )
    if any(not 0 < rate < math.inf for _, rate in schedule):
        raise ValueError(f"{name}: got {brief(learning_rate)}, needs positive rates")
    return schedule


def depends_on_num_steps(schedule: Schedule) -> bool:
    """Whether the rate of a step depends on how many there will be."""
    if isinstance(schedule, Cosine):
        return True
    return not isinstance(schedule, ExponentialDecay) and len(schedule) > 1


def learning_rate_at(schedule: Schedule, moment: Moment, dtype: tf.DType) -> tf.Tensor:
    """The rate of a step."""
    if isinstance(schedule, ExponentialDecay):
        periods = tf.cast(moment.step // schedule.every, dtype)
        return schedule.rate * tf.constant(schedule.factor, dtype) ** periods
    if isinstance(schedule, Cosine):
        return tf.cast(_cosine_at(schedule, moment), dtype)
    rate = tf.constant(schedule[0][1], dtype)
    for start, value in schedule[1:]:
        begun = moment.position > start - ROUNDING
        rate = tf.where(begun, tf.constant(value, dtype), rate)
    return rate


def hold_position(schedule: Schedule) -> float:
    """Where a schedule of parts of the run waits while it is not known how long the run will be."""
    return schedule.warmup if isinstance(schedule, Cosine) else 0.0


def _cosine_at(cosine: Cosine, moment: Moment) -> tf.Tensor:
    warmup, position = cosine.warmup, moment.position
    rising = tf.minimum((position + moment.pace) / (warmup or 1.0), 1.0)
    done = (position - warmup) / (1.0 - warmup)
    falling = cosine.floor + (1.0 - cosine.floor) * 0.5 * (1.0 + tf.cos(math.pi * done))
    return cosine.rate * tf.where(position < warmup - ROUNDING, rising, falling)


def kl_weight_at(
    moment: Moment, dtype: tf.DType, *, steps: int | None = None, part: float = 0.0
) -> tf.Tensor:
    """The weight of the KL term: linear to 1 over so many `steps`, or a `part` of the run; over the
    shorter of them where there are both.
    """
    one, fractions = tf.ones([], dtype), []
    if part:
        fractions.append(tf.cast((moment.position + moment.pace) / part, dtype))
    if steps:
        fractions.append(tf.cast(moment.step + 1, dtype) / tf.cast(steps, dtype))
    return tf.minimum(one, tf.reduce_max(fractions)) if fractions else one


def minibatch_rows(
    step: tf.Tensor, batch_size: int, num_data: int | tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
    """Rows of the minibatch of 0-based `step` [batch_size]: every epoch is a new permutation.

    Needs no state: row i of the stream of minibatches is item i mod N of epoch i // N's permutation.
    """
    num_data = tf.cast(num_data, tf.int64)
    position = tf.cast(step, tf.int64) * batch_size + tf.range(batch_size, dtype=tf.int64)
    epoch, item = position // num_data, position % num_data
    epoch = tf.cast(epoch, tf.int32)
    # Neighbouring seeds of the shuffle give related permutations: each epoch's seed is hashed. A
    # minibatch spans at most two epochs.
    keys = tf.stack([_epoch_key(seed, epoch[0]), _epoch_key(seed, epoch[0] + 1)])
    seeds = tf.gather(keys, epoch - epoch[0])
    # The wrapper, tf.random.experimental.index_shuffle, pads a seed for each index along the wrong axis.
    return tf.raw_ops.RandomIndexShuffle(index=item, seed=seeds, max_index=num_data - 1, rounds=4)


def _epoch_key(seed: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
    folded = tf.random.fold_in(seed, epoch)
    return tf.random.stateless_uniform([3], folded, minval=None, maxval=None, dtype=tf.int32)
