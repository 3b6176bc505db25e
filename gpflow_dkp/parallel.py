"""Work on many samples in independent parts, one for each of TensorFlow's threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .random import Seed, parts_of_seed


def part_sizes(number: int | None) -> list[int]:
    """Samples a part: a part for each inter-op thread, where intra-op parallelism is off.

    One part, [-1], where the number is not known; one where operations run one after another, in eager mode.
    """
    if number is None:
        return [-1]
    if tf.executing_eagerly():
        return [number]
    threads = tf.config.threading
    parallel = threads.get_intra_op_parallelism_threads() == 1
    parts = threads.get_inter_op_parallelism_threads() if parallel else 1
    parts = max(1, min(parts, number))
    return [number // parts + (i < number % parts) for i in range(parts)]


def map_over_samples(
    function: Callable[[Any, Seed], Any], number: int | None, arguments: Any, seed: Seed
) -> Any:
    """`function(arguments, seed)` in parts that share no intermediate result, joined again.

    The parts run side by side on TensorFlow's threads, and the random numbers of a sample are the same
    however many parts there are.

    :param function: gets nests of tensors like `arguments`, and a seed for the functions of
        `gpflow_dkp.random`; returns a nest of tensors whose first axis is that of the samples.
    :param number: of samples, or of rows, None if it is not known.
    :param arguments: a nest of tensors, and of `GramBlocks`, whose first axis is that of the samples.
    :param seed: of what `function` draws with the samples along the first axis.
    """
    sizes = part_sizes(number)
    if len(sizes) == 1:
        return function(arguments, seed)
    flat = [_split(value, sizes) for value in tf.nest.flatten(arguments)]
    results = [
        function(tf.nest.pack_sequence_as(arguments, [parts[i] for parts in flat]), part)
        for i, part in enumerate(parts_of_seed(seed, sizes))
    ]
    return tf.nest.map_structure(lambda *values: tf.concat(values, 0), *results)


def _split(value: Any, sizes: list[int]) -> list[Any]:
    return tf.split(value, sizes) if tf.is_tensor(value) else value.split(sizes)
