"""Independent chains of work, one for each of TensorFlow's threads."""

from __future__ import annotations

import tensorflow as tf


def chain_sizes(number: int) -> list[int]:
    """Samples or rows a chain: a chain for each inter-op thread, where intra-op parallelism is off."""
    threads = tf.config.threading
    parallel = threads.get_intra_op_parallelism_threads() == 1
    chains = threads.get_inter_op_parallelism_threads() if parallel else 1
    chains = max(1, min(chains, number))
    return [number // chains + (i < number % chains) for i in range(chains)]
