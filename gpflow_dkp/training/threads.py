"""TensorFlow's threads, as the models are fastest with them."""

from __future__ import annotations

import os

import tensorflow as tf


def configure_threads(num_threads: int | None = None) -> None:
    """One thread an operation and `num_threads` operations at a time, for the whole process.

    The models split their samples into as many independent parts, which beats splitting each matrix
    product. Call it before TensorFlow's first operation; importing this library never does.

    :param num_threads: default the number of processors this process may use.
    :raises ValueError: if it is not positive, or TensorFlow has started.

    >>> gpflow_dkp.training.configure_threads(0)
    Traceback (most recent call last):
        ...
    ValueError: num_threads: got 0, needs at least 1
    >>> total = tf.reduce_sum(X)
    >>> gpflow_dkp.training.configure_threads(4)
    Traceback (most recent call last):
        ...
    ValueError: configure_threads: TensorFlow has already run an operation; call it first
    """
    if num_threads is None:
        num_threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if num_threads < 1:
        raise ValueError(f"num_threads: got {num_threads}, needs at least 1")
    try:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(num_threads)
    except RuntimeError as error:
        raise ValueError(
            "configure_threads: TensorFlow has already run an operation; call it first"
        ) from error
