"""map_over_samples: the same values, random numbers and gradients however many parts there are."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_dkp import parallel
from gpflow_dkp.gram import FeatureBlocks, GramBlocks
from gpflow_dkp.parallel import map_over_samples, part_sizes
from gpflow_dkp.random import Seed, fold_in, gamma, normal, split

S = 6
SIZES = [[6], [3, 3], [2, 1, 3]]
parted = pytest.mark.parametrize("sizes", SIZES)
RNG = np.random.default_rng(0)
X, Y = tf.constant(RNG.normal(size=(S, 2))), tf.constant(RNG.normal(size=(S, 3)))
ALPHA = tf.Variable(1.7, dtype=tf.float64)


def function(arguments: dict[str, tf.Tensor], seed: Seed) -> dict[str, Any]:
    """Random numbers of nested seeds, with a variable that all parts share."""
    x, y = arguments["x"], arguments["y"]
    first, second = split(seed, 2)
    size = x.shape[0]
    noise = normal([size, 2], first, x.dtype)
    scale = gamma(size, ALPHA[None], fold_in(second, 4))
    inner = normal([size], split(fold_in(first, 1), 2)[1], x.dtype)
    return {"a": x * noise * scale, "b": (tf.reduce_sum(y, -1) + inner, y**2)}


def values() -> tuple[Any, list[tf.Tensor]]:
    with tf.GradientTape() as tape:
        tape.watch([X, Y])
        result = map_over_samples(function, S, {"x": X, "y": Y}, 3)
        flat = tf.nest.flatten(result)
        loss = tf.add_n([tf.reduce_sum(tf.sin(part)) for part in flat])
    return result, tape.gradient(loss, [X, Y, ALPHA])


@parted
def test_parts_have_the_values_and_gradients_of_the_whole(
    sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "part_sizes", lambda number: [number])
    expected = values()
    monkeypatch.setattr(parallel, "part_sizes", lambda number: sizes)
    for actual in (values(), tf.function(values, autograph=False)()):
        tf.nest.assert_same_structure(actual, expected)
        for ours, whole in zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True):
            np.testing.assert_allclose(ours, whole, rtol=1e-6, atol=1e-7)
    for ours, whole in zip(tf.nest.flatten(values()), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(ours, whole, rtol=1e-13)


@parted
@pytest.mark.parametrize("full_cov", [False, True])
def test_blocks_of_gram_matrices_are_parted(
    sizes: list[int], full_cov: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tf.constant(RNG.normal(size=(S, 4, 3)))
    features = FeatureBlocks(X[:, :, None] * tf.ones([1, 1, 4], X.dtype), data, full_cov=full_cov)
    blocks = GramBlocks(features.ii, features.it, features.tt)
    monkeypatch.setattr(parallel, "part_sizes", lambda number: sizes)
    seen = []

    def function(given: list[GramBlocks], seed: Seed) -> list[tf.Tensor]:
        seen.append([type(part) for part in given])
        assert all(part.full_cov == full_cov for part in given)
        return [block for part in given for block in (part.ii, part.it, part.tt)]

    actual = map_over_samples(function, S, [features, blocks], 0)
    expected = [part for _ in range(2) for part in (features.ii, features.it, features.tt)]
    for ours, whole in zip(actual, expected, strict=True):
        np.testing.assert_allclose(ours, whole, rtol=0, atol=1e-13)
    assert seen == [[FeatureBlocks, GramBlocks]] * len(sizes)


class Threads:
    """What TensorFlow says of its threads."""

    def __init__(self, inter: int, intra: int) -> None:
        self.inter, self.intra = inter, intra

    def get_inter_op_parallelism_threads(self) -> int:
        return self.inter

    def get_intra_op_parallelism_threads(self) -> int:
        return self.intra


@pytest.mark.parametrize(
    ("inter", "intra", "number", "expected"),
    [
        (2, 1, 5, [3, 2]),
        (3, 1, 7, [3, 2, 2]),
        (4, 1, 2, [1, 1]),
        (0, 1, 5, [5]),
        (4, 0, 5, [5]),
        (4, 2, 5, [5]),
        (2, 1, None, [-1]),
    ],
)
def test_a_part_for_each_thread_where_operations_have_one(
    inter: int,
    intra: int,
    number: int | None,
    expected: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tf.config, "threading", Threads(inter, intra))
    with tf.Graph().as_default():
        assert part_sizes(number) == expected
    # Eager operations run one after another.
    assert part_sizes(number) == [-1 if number is None else number]


def test_an_unknown_number_of_samples_is_one_part() -> None:
    whole = map_over_samples(lambda x, seed: 2.0 * x, None, X, 0)
    np.testing.assert_array_equal(whole, 2.0 * X)
