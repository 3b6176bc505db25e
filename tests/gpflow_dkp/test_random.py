"""Seeds: the same numbers for the same seed, eagerly and compiled, and other numbers for another."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from gpflow_dkp.random import (
    MirroredSeed,
    PartOfSeed,
    Points,
    Seed,
    as_seed,
    fold_in,
    gamma,
    mirrored,
    normal,
    part_of_seed,
    parts_of_seed,
    split,
)

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
    compiled = tf.function(draw, autograph=False)(tf.constant(3))
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
    np.testing.assert_array_equal(as_seed([5, 6]), [5, 6])
    np.testing.assert_array_equal(as_seed(np.array([5, 6])), [5, 6])
    np.testing.assert_array_equal(as_seed(lambda: 5), [5, 0])
    for seed in (5, tf.constant(5, tf.int64), tf.constant([5, 6], tf.int64), None):
        assert as_seed(seed).dtype == tf.int32
        assert as_seed(seed).shape == [2]


@pytest.mark.parametrize("integer", [7, -1, 2**31, 2**40, -(2**50)])
def test_integer_and_scalar_tensor_are_one_seed(integer: int) -> None:
    tensor = tf.constant(integer, tf.int64)
    np.testing.assert_array_equal(as_seed(tensor), as_seed(integer))
    np.testing.assert_array_equal(tf.function(as_seed, autograph=False)(tensor), as_seed(integer))


@pytest.mark.parametrize("seed", [[1, 2, 3], [[1, 2]], 1.5, [0.5, 1.5]])
def test_other_seeds(seed: object) -> None:
    with pytest.raises(ValueError, match=r"seed has shape .* it must be an integer, None, or"):
        as_seed(seed)


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
    compiled = tf.function(lambda n: normal([2, n], as_seed(0), tf.float64), autograph=False)
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


S = 6
SIZES = [[6], [2, 4], [1, 3, 2]]
parted = pytest.mark.parametrize("sizes", SIZES)


def draws_of(size: int, seed: Seed) -> list[tf.Tensor]:
    """Nested seeds, two draws of one of them in other shapes and types, and gammas."""
    first, second, third = split(seed, 3)
    inner = split(fold_in(second, 7), 2)
    return [
        normal([size, 3], first, tf.float64),
        normal([size, 2, 2], first, tf.float64),
        normal([size, 3], first, tf.float32),
        normal([size], inner[0], tf.float64),
        normal([size], inner[1], tf.float64),
        normal([size], fold_in(inner[1], 1), tf.float64),
        normal([size], fold_in(second, 1), tf.float64),
        gamma(size, CONCENTRATION, third),
        gamma(size, 2.0 * CONCENTRATION[:, None], fold_in(third, 0)),
    ]


@parted
def test_parts_of_a_seed_draw_their_rows_of_the_whole(sizes: list[int]) -> None:
    """Of every seed derived from it, however nested; eagerly and compiled."""
    expected = draws_of(S, 3)

    def joined() -> list[tf.Tensor]:
        parts = [
            draws_of(size, seed) for size, seed in zip(sizes, parts_of_seed(3, sizes), strict=True)
        ]
        return [tf.concat(rows, 0) for rows in zip(*parts, strict=True)]

    for whole, rows, compiled in zip(
        expected, joined(), tf.function(joined, autograph=False)(), strict=True
    ):
        np.testing.assert_array_equal(rows, whole)
        np.testing.assert_allclose(compiled, whole, rtol=1e-6, atol=1e-7)


@parted
def test_parts_draw_once(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole of the random numbers is drawn for the first part that asks, and for no other."""
    calls = []
    uniform = tf.random.stateless_uniform

    def counting(*args: object) -> tf.Tensor:
        calls.append(1)
        return uniform(*args)

    monkeypatch.setattr(tf.random, "stateless_uniform", counting)
    for size, seed in zip(sizes, parts_of_seed(3, sizes), strict=True):
        normal([size, 3], split(seed, 2)[1], tf.float64)
    assert len(calls) == 1


@parted
def test_gradient_of_gammas_in_parts(sizes: list[int]) -> None:
    def gradient(sizes: list[int], seeds: list[Seed]) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(CONCENTRATION)
            parts = [gamma(*pair, seed) for *pair, seed in zip(sizes, same, seeds, strict=True)]
            value = tf.reduce_sum(tf.concat(parts, 0) * weights)
        return tape.gradient(value, CONCENTRATION)

    weights = np.random.default_rng(0).normal(size=(S, 2))
    same = [CONCENTRATION]
    expected = gradient([S], [as_seed(3)])
    same = [CONCENTRATION] * len(sizes)
    np.testing.assert_allclose(gradient(sizes, parts_of_seed(3, sizes)), expected, rtol=1e-12)


def test_an_item_under_a_tensor() -> None:
    """`fold_in` of a number known at run time only."""
    item = tf.constant(5)
    parts = parts_of_seed(3, [2, 4])
    rows = [
        normal([size], fold_in(seed, item), tf.float64)
        for size, seed in zip([2, 4], parts, strict=True)
    ]
    np.testing.assert_array_equal(tf.concat(rows, 0), normal([6], fold_in(3, 5), tf.float64))


def test_part_of_a_seed_stays_what_it_is() -> None:
    (part,) = parts_of_seed(3, [4])
    assert as_seed(part) is part
    assert all(isinstance(seed, PartOfSeed) for seed in (*split(part, 2), fold_in(part, 0)))


def test_data_points_of_a_part_have_their_numbers_of_the_whole() -> None:
    def draws(samples: int, points: int, seed: Seed) -> list[tf.Tensor]:
        first, second, third = split(seed, 3)
        alpha = tf.constant(0.7, tf.float64)
        return [
            normal([samples, 2, points], first, tf.float32, points=2),
            normal([3, samples, points], fold_in(second, 1), tf.float64, samples=1, points=2),
            gamma(samples, alpha, third, num_points=points),
        ]

    seed = as_seed(1)
    first, second, third = draws(4, 7, seed)
    expected = [first[2:3, :, 3:5], second[:, 2:3, 3:5], third[2:3, 3:5]]
    part = part_of_seed(seed, slice(2, 3), 4, Points(3, 5, 7))
    for ours, whole in zip(draws(1, 2, part), expected, strict=True):
        np.testing.assert_array_equal(ours, whole)
    # Parts of the part take the points as they are.
    (inner,) = parts_of_seed(part, [1])
    for ours, whole in zip(draws(1, 2, inner), expected, strict=True):
        np.testing.assert_array_equal(ours, whole)


def test_a_part_whose_first_axis_has_more_than_samples() -> None:
    seed = as_seed(1)
    whole = normal([4 * 7, 2], seed, tf.float64)
    part = part_of_seed(seed, slice(2, 3), 4, Points(3, 5, 7)).of_rows(2)
    np.testing.assert_array_equal(normal([2, 2], part, tf.float64), whole[2 * 7 + 3 : 2 * 7 + 5])
    part = part_of_seed(seed, slice(1, 3), 4).of_rows(7)
    np.testing.assert_array_equal(normal([14, 2], part, tf.float64), whole[7:21])
    part = part_of_seed(seed, slice(1, 3), 4).repeated(7)
    np.testing.assert_array_equal(normal([14, 2], part, tf.float64), whole[7:21])


@pytest.mark.parametrize("num_samples", [1, 2, 5])
def test_mirrored_normals_come_in_pairs(num_samples: int) -> None:
    """Along the axis of the samples, of every seed derived from it, eagerly and compiled; gammas do not."""
    seed = mirrored(3)
    first, second = split(seed, 2)
    inner = fold_in(second, 4)
    assert all(isinstance(each, MirroredSeed) for each in (as_seed(seed), first, inner))

    def draws() -> list[tf.Tensor]:
        return [
            normal([num_samples, 4], first, tf.float64),
            tf.transpose(normal([4, num_samples], inner, tf.float64, samples=1)),
        ]

    pairs, half = num_samples // 2, (num_samples + 1) // 2
    for whole in (*draws(), *tf.function(draws, autograph=False)()):
        np.testing.assert_array_equal(whole[half:], -whole[:pairs])
        assert len(np.unique(np.abs(whole))) == 4 * half
    first_half = normal([half, 4], split(3, 2)[0], tf.float64)
    np.testing.assert_array_equal(draws()[0][:half], first_half)
    np.testing.assert_array_equal(
        gamma(6, CONCENTRATION, seed), gamma(6, CONCENTRATION, as_seed(3))
    )


def test_mirrored_normals_are_normal() -> None:
    """Each half of the samples alone, and every pair once."""
    draws = normal([20_000], mirrored(1), tf.float64).numpy()
    assert stats.kstest(draws[:10_000], "norm").pvalue > 1e-4
    assert stats.kstest(draws[10_000:], "norm").pvalue > 1e-4


@parted
def test_parts_of_a_mirrored_seed_draw_their_rows_of_the_whole(sizes: list[int]) -> None:
    expected = draws_of(S, mirrored(3))
    parts = [
        draws_of(size, seed)
        for size, seed in zip(sizes, parts_of_seed(mirrored(3), sizes), strict=True)
    ]
    for whole, rows in zip(expected, zip(*parts, strict=True), strict=True):
        np.testing.assert_array_equal(tf.concat(rows, 0), whole)
