"""Seeds: the same numbers for the same seed, eagerly and compiled, and other numbers for another."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_dkp.random import as_seed, fold_in, gamma, normal, split

CONCENTRATION = tf.constant([0.7, 3.0], tf.float64)


def draw(seed: tf.Tensor) -> list[tf.Tensor]:
    first, second, third = split(seed, 3)
    return [
        normal([4, 3], first, tf.float64),
        normal([5], fold_in(second, 7), tf.float32),
        gamma(6, CONCENTRATION, third),
    ]


def test_same_seed_gives_same_numbers_eagerly_and_compiled() -> None:
    eager, again = draw(tf.constant(3)), draw(tf.constant(3))
    compiled = tf.function(draw)(tf.constant(3))
    for a, b, c in zip(eager, again, compiled, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, c, rtol=2e-7 if a.dtype == tf.float32 else 1e-13)


def test_python_integer_and_tensor_are_one_seed() -> None:
    for a, b in zip(draw(3), draw(tf.constant(3)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_other_seed_gives_other_numbers() -> None:
    for a, b in zip(draw(3), draw(4), strict=True):
        assert not np.any(np.equal(a, b))


def test_seed_forms() -> None:
    np.testing.assert_array_equal(as_seed(5), [5, 0])
    np.testing.assert_array_equal(as_seed(np.int64(5)), [5, 0])
    np.testing.assert_array_equal(as_seed(tf.constant([5, 6])), [5, 6])
    assert as_seed(tf.constant(5, tf.int64)).dtype == tf.int32


def test_no_seed_is_governed_by_tensorflows() -> None:
    tf.random.set_seed(1)
    first = [as_seed(None).numpy() for _ in range(2)]
    tf.random.set_seed(1)
    second = [as_seed(None).numpy() for _ in range(2)]
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first[0], first[1])


def test_no_integer_seed_is_another_ones_alias() -> None:
    integers = [0, 1, -1, 2**31, 2**32, 2**40, 2**63]
    assert len({tuple(as_seed(integer).numpy()) for integer in integers}) == len(integers)


def test_split_and_fold_in_give_distinct_seeds() -> None:
    seeds = [*split(3, 20), *split(4, 20), *[fold_in(3, i) for i in range(20)]]
    assert len({tuple(seed.numpy()) for seed in seeds}) == len(seeds)


@pytest.mark.parametrize("shape", [[1], [3], [2, 5], [0], [2, 0]])
def test_normal_has_the_shape_and_type_asked(shape: list[int]) -> None:
    for dtype in (tf.float32, tf.float64):
        draws = normal(shape, as_seed(0), dtype)
        assert draws.shape == shape
        assert draws.dtype == dtype


def test_normal_of_a_shape_known_at_run_time() -> None:
    compiled = tf.function(lambda n: normal([2, n], as_seed(0), tf.float64))
    np.testing.assert_allclose(
        compiled(tf.constant(3)), normal([2, 3], as_seed(0), tf.float64), rtol=1e-6
    )


def test_normal_is_finite_at_the_ends_of_the_uniforms(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = tf.constant([0.0, 0.0, 1.0 - 2.0**-23, 1.0 - 2.0**-23, 0.0, 0.5, 0.0, 0.5], tf.float32)
    monkeypatch.setattr(tf.random, "stateless_uniform", lambda shape, seed: ends)
    draws = normal([8], as_seed(0), tf.float64)
    assert np.all(np.isfinite(draws))
    assert np.max(np.abs(draws)) <= 5.65


def test_gamma_with_batch_of_concentrations() -> None:
    concentration = tf.constant(np.full((2, 3), 4.0))
    assert gamma(5, concentration, as_seed(0)).shape == [5, 2, 3]
    assert gamma(tf.constant(5), concentration, as_seed(0)).shape == [5, 2, 3]
