"""GramBlocks and FeatureBlocks: shapes, laziness, jitter, precision, parts, squared distances."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints
from gram_cases import BLOCKS, D, M, N, S, feature_blocks_of, features, gram_of

from gpflow_dkp.gram import FeatureBlocks, GramBlocks, InputBlocks

blocks = pytest.mark.parametrize("blocks", BLOCKS)
samples = pytest.mark.parametrize("samples", [None, S])


@pytest.mark.parametrize(
    ("ii", "it", "tt"),
    [
        ([4, 3], [4, 6], [6]),
        ([4, 4], [3, 6], [6]),
        ([4, 4], [4, 6], [5]),
        ([2, 4, 4], [4, 6], [6]),
        ([2, 4, 4], [2, 4, 6], [6]),
        ([2, 4, 4], [3, 4, 6], [2, 6]),
        ([2, 4, 4], [2, 4, 6], [3, 6]),
        ([4, 4], [4, 6], [6, 1]),
        ([4, 4], [4, 6], [4, 4]),
        ([4, 4], [4, 6], [6, 5]),
        ([2, 4, 4], [2, 4, 6], [3, 6, 6]),
        ([4], [4, 6], [6]),
        ([4, 4], [6], [6]),
    ],
)
def test_blocks_that_do_not_agree_are_refused(ii: list[int], it: list[int], tt: list[int]) -> None:
    with pytest.raises(ValueError, match=r"GramBlocks: got shapes .*\[\.\.\., M, N\]"):
        GramBlocks(tf.zeros(ii), tf.zeros(it), tf.zeros(tt))


@pytest.mark.parametrize("batch", [[], [2], [2, 3]])
def test_blocks_that_agree_are_kept(batch: list[int]) -> None:
    G = GramBlocks(tf.zeros([*batch, 4, 4]), tf.zeros([*batch, 4, 6]), tf.zeros([*batch, 6]))
    assert G.ii.shape == [*batch, 4, 4]
    assert G.it.shape == [*batch, 4, 6]
    assert G.tt.shape == [*batch, 6]
    assert G.ii_diag.shape == [*batch, 4]


@samples
def test_features_give_their_gram_matrix(samples: int | None) -> None:
    gram, of_features = gram_of(*features(samples)), feature_blocks_of(*features(samples))
    for name in ("ii", "it", "tt", "ii_diag"):
        np.testing.assert_allclose(
            getattr(of_features, name), getattr(gram, name), rtol=0, atol=1e-14
        )


@pytest.mark.parametrize("batch", [[], [2], [2, 3]])
def test_whole_blocks_that_agree_are_kept(batch: list[int]) -> None:
    whole = tf.zeros([*batch, 6, 6])
    G = GramBlocks(tf.zeros([*batch, 4, 4]), tf.zeros([*batch, 4, 6]), whole)
    assert G.full_cov
    assert G.tt.shape == [*batch, 6, 6]
    assert not GramBlocks(G.ii, G.it, tf.zeros([*batch, 6])).full_cov


@samples
def test_features_give_their_gram_matrix_with_the_whole_block(samples: int | None) -> None:
    gram, of_features = (of(*features(samples), full_cov=True) for of in BLOCKS.values())
    assert gram.full_cov
    assert of_features.full_cov
    for name in ("ii", "it", "tt", "ii_diag"):
        np.testing.assert_allclose(
            getattr(of_features, name), getattr(gram, name), rtol=0, atol=1e-14
        )


def test_features_with_lengths_of_their_own_have_no_whole_block() -> None:
    inducing, data = features(None)
    with pytest.raises(ValueError, match="got own with full_cov=True, needs one of them"):
        FeatureBlocks(inducing, tf.transpose(data), tf.ones([N], tf.float64), full_cov=True)


def test_lengths_of_their_own_are_added_to_the_data_points_diagonal() -> None:
    """As of a feature for each data point that no other point has."""
    inducing, data = (part.numpy() for part in features(None))
    own = np.linspace(0.5, 2.0, N)
    G = FeatureBlocks(tf.constant(inducing), tf.constant(data.T), tf.constant(own))
    wide_inducing = np.hstack([inducing, np.zeros((M, N))])
    wide_data = np.hstack([data, np.diag(np.sqrt(own))])
    wide = FeatureBlocks(tf.constant(wide_inducing), tf.constant(wide_data.T))
    for name in ("ii", "it", "tt"):
        np.testing.assert_allclose(getattr(G, name), getattr(wide, name), rtol=0, atol=1e-13)
    np.testing.assert_allclose(
        G.squared_distances_it(), wide.squared_distances_it(), rtol=0, atol=1e-13
    )


@samples
@blocks
def test_points_joined_and_parted_again(blocks: str, samples: int | None) -> None:
    """`jointly` gives its function all M + N points as inducing points."""
    G = BLOCKS[blocks](*features(samples), full_cov=True)
    seen = []

    def doubled(joint: GramBlocks) -> GramBlocks:
        seen.append(joint)
        return GramBlocks.of_inducing(2.0 * joint.ii)

    twice = G.jointly(doubled)
    assert seen[0].ii.shape[-2:] == [M + N, M + N]
    assert seen[0].it.shape[-1] == seen[0].tt.shape[-1] == 0
    assert twice.full_cov
    for name in ("ii", "it", "tt"):
        np.testing.assert_allclose(getattr(twice, name), 2.0 * getattr(G, name), atol=1e-13)


def counted(block: tf.Tensor, calls: list[int]) -> Callable[[], tf.Tensor]:
    def function() -> tf.Tensor:
        calls.append(1)
        return block

    return function


@pytest.mark.parametrize("full_cov", [False, True])
def test_a_block_given_as_a_function_is_computed_once_when_it_is_needed(full_cov: bool) -> None:
    """Jitter, precision and kernels keep it so; `ii` is nothing that `it` needs."""
    G = gram_of(*features(S), full_cov=full_cov)
    calls: dict[str, list[int]] = {"ii": [], "it": []}
    ii, it = (counted(getattr(G, name), calls[name]) for name in calls)
    lazy = GramBlocks(ii, it, G.tt, full_cov=full_cov)
    jittered = lazy.with_jitter(tf.constant(0.1, tf.float64)).with_data_dtype(tf.float32)
    assert calls == {"ii": [], "it": []}
    assert jittered.full_cov == full_cov
    for _ in range(2):
        np.testing.assert_allclose(jittered.it, G.it, rtol=1e-6)
    assert calls == {"ii": [], "it": [1]}
    np.testing.assert_allclose(jittered.ii, G.ii + 0.1 * np.eye(M), rtol=1e-14)
    assert calls == {"ii": [1], "it": [1]}


def test_a_whole_block_given_as_a_function() -> None:
    G = gram_of(*features(S), full_cov=True)
    lazy = GramBlocks(lambda: G.ii, lambda: G.it, lambda: G.tt)
    assert lazy.full_cov
    jittered = lazy.with_jitter(tf.constant(0.25, tf.float64))
    np.testing.assert_allclose(jittered.tt, G.tt + 0.25 * np.eye(N), rtol=0, atol=1e-15)


def test_inducing_points_alone() -> None:
    F = features(S)[0]
    for G in (
        GramBlocks.of_inducing(tf.matmul(F, F, transpose_b=True)),
        FeatureBlocks.of_inducing(F),
    ):
        assert (G.ii.shape, G.it.shape, G.tt.shape) == ((S, M, M), (S, M, 0), (S, 0))
        assert not G.full_cov


@pytest.mark.parametrize("full_cov", [False, True])
def test_inputs_are_their_inner_products(full_cov: bool) -> None:
    Z, X = features(None)
    for points in (Z, InducingPoints(Z)):
        inputs = InputBlocks(points, X, full_cov=full_cov)
        G = gram_of(Z, X, full_cov=full_cov)
        for name in ("ii", "it", "tt"):
            np.testing.assert_allclose(getattr(inputs, name), D * getattr(G, name), atol=1e-13)
        assert inputs.full_cov == full_cov
        assert InputBlocks(points).tt.shape == (0,)


@samples
@blocks
def test_jitter_of_a_whole_block_is_on_its_diagonal(blocks: str, samples: int | None) -> None:
    G = BLOCKS[blocks](*features(samples), full_cov=True)
    jittered = G.with_jitter(tf.constant(0.25, tf.float64))
    assert jittered.full_cov
    np.testing.assert_allclose(jittered.ii, G.ii + 0.25 * np.eye(M), rtol=0, atol=1e-15)
    np.testing.assert_allclose(jittered.tt, G.tt + 0.25 * np.eye(N), rtol=0, atol=1e-15)


@samples
@blocks
def test_jitter_is_on_the_diagonals(blocks: str, samples: int | None) -> None:
    G = BLOCKS[blocks](*features(samples))
    jittered = G.with_jitter(tf.constant(0.25, tf.float64))
    np.testing.assert_allclose(jittered.ii, G.ii + 0.25 * np.eye(M), rtol=0, atol=1e-15)
    np.testing.assert_array_equal(jittered.it, G.it)
    np.testing.assert_allclose(jittered.tt, G.tt + 0.25, rtol=0, atol=1e-15)


@samples
@blocks
def test_squared_distances_are_those_of_the_features(blocks: str, samples: int | None) -> None:
    inducing, data = features(samples)
    G = BLOCKS[blocks](inducing, data)
    ii, it = G.squared_distances_ii(), G.squared_distances_it()
    expected_ii = ((inducing[..., :, None, :] - inducing[..., None, :, :]).numpy() ** 2).sum(-1) / D
    expected_it = ((inducing[..., :, None, :] - data[..., None, :, :]).numpy() ** 2).sum(-1) / D
    np.testing.assert_allclose(ii, expected_ii, rtol=0, atol=1e-13)
    np.testing.assert_allclose(it, expected_it, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(tf.linalg.diag_part(ii), np.zeros(ii.shape[:-1]))


@blocks
def test_squared_distances_are_never_negative(blocks: str) -> None:
    inducing, _ = features(None)
    inducing = 1e3 * tf.concat([inducing[:2], inducing[:2] * (1 + 1e-15)], 0)
    G = BLOCKS[blocks](inducing, tf.concat([inducing, inducing[:2]], 0))
    ii, it = G.squared_distances_ii(), G.squared_distances_it()
    assert np.all(ii.numpy() >= 0)
    assert np.all(it.numpy() >= 0)


@blocks
def test_scaled_distances(blocks: str) -> None:
    G = BLOCKS[blocks](*features(S))
    scale, shift = tf.constant(0.7, tf.float64), tf.constant(-0.4, tf.float64)
    ii, it = G.scaled_distances_ii(scale, shift), G.scaled_distances_it(scale, shift)
    squared_ii, squared_it = G.squared_distances_ii(), G.squared_distances_it()
    np.testing.assert_allclose(ii, -0.4 - 0.35 * squared_ii, rtol=0, atol=1e-13)
    np.testing.assert_allclose(it, -0.4 - 0.35 * squared_it, rtol=0, atol=1e-13)


@pytest.mark.parametrize("full_cov", [False, True])
@blocks
def test_parts_of_the_samples(blocks: str, full_cov: bool) -> None:
    inducing, data = features(5)
    G = BLOCKS[blocks](inducing, data, full_cov=full_cov)
    parts = G.split([2, 3])
    assert all(part.full_cov == full_cov for part in parts)
    assert [part.ii.shape[0] for part in parts] == [2, 3]
    for name in ("ii", "it", "tt"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_allclose(joined, getattr(G, name), rtol=0, atol=1e-14)


@blocks
def test_data_blocks_in_single_precision(blocks: str) -> None:
    G = BLOCKS[blocks](*features(S)).with_data_dtype(tf.float32)
    assert (G.ii.dtype, G.it.dtype, G.tt.dtype) == (tf.float64, tf.float32, tf.float32)
    assert G.with_jitter(tf.constant(1e-3, tf.float64)).tt.dtype == tf.float32
    assert G.it.shape == [S, M, N]
