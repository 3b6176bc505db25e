"""A compiled training goes when nothing refers to it, and takes nothing from the functions that it calls."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_dkp import linalg, models
from gpflow_dkp.training import fit
from gpflow_dkp.training.release import release
from gpflow_dkp.training.sghmc import SGHMC

K = tf.constant([[2.0, 0.5], [0.5, 1.0]], tf.float64)


@pytest.fixture(autouse=True)
def only_what_a_test_makes_is_collected() -> Iterator[None]:
    """What the process has from other tests, some millions of objects, takes seconds to look through."""
    gc.freeze()
    yield
    gc.unfreeze()


def of_bijector(K: tf.Tensor) -> tf.Tensor:
    """By the cache, which `tests/conftest.py` spares elsewhere."""
    return tfp.bijectors.Exp()._cache.forward(K)


def looped(function: Callable[[tf.Tensor], tf.Tensor]) -> Callable[[tf.Tensor], tf.Tensor]:
    """In a branch of a loop's body, of a tensor from outside."""

    def whole(K: tf.Tensor) -> tf.Tensor:
        def body(step: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return step + 1, tf.cond(step > 0, lambda: total + function(K), lambda: total)

        return tf.while_loop(lambda step, _: step < 2, body, (tf.constant(0), K))[1]

    return whole


@pytest.mark.parametrize("function", [linalg.cholesky, of_bijector])
@pytest.mark.parametrize("wrapped", [lambda function: function, looped])
def test_a_graph_goes_that_was_released(function: Callable, wrapped: Callable) -> None:
    def trace() -> tuple[weakref.ref, weakref.ref]:
        concrete = tf.function(wrapped(function), autograph=False).get_concrete_function(K)
        other = tf.function(wrapped(function), autograph=False).get_concrete_function(K)
        release(concrete.graph)
        return weakref.ref(concrete.graph), weakref.ref(other.graph)

    released, kept = trace()
    gc.collect()
    assert released() is None
    graph = kept()
    assert graph is not None  # else there is nothing to release any more
    release(graph)


def train() -> None:
    X = np.random.default_rng(0).normal(size=(8, 1))
    fit(models.NNGP.from_data(X, X, num_inducing=3), (X, X), num_steps=2, progress=False)


def take_a_chain() -> None:
    variable = tf.Variable([0.0])

    def log_density(seed: tf.Tensor) -> tf.Tensor:
        return -tf.reduce_sum(linalg.cholesky(of_bijector(variable + 0.0)[:, None]))

    SGHMC([variable]).chain(log_density, 2, seed=0)


@pytest.mark.parametrize("compile_and_run", [train, take_a_chain])
def test_trainings_and_chains_leave_no_graphs(compile_and_run: Callable[[], None]) -> None:
    def num_graphs() -> int:
        compile_and_run()
        gc.collect()
        return sum(isinstance(x, tf.__internal__.FuncGraph) for x in gc.get_objects())

    num_graphs()
    assert num_graphs() == num_graphs()


def test_a_function_that_a_released_one_calls_has_its_gradient() -> None:
    called = tf.function(linalg.cholesky)
    concrete = tf.function(lambda K: called(K)).get_concrete_function(K)
    release(concrete.graph)
    with tf.GradientTape() as tape:
        tape.watch(K)
        value = called(K)
    with tf.GradientTape() as expected_tape:
        expected_tape.watch(K)
        expected = tf.linalg.cholesky(K)
    np.testing.assert_allclose(
        tape.gradient(value, K), expected_tape.gradient(expected, K), rtol=0, atol=1e-15
    )
