"""GramBlocks and FeatureBlocks: shapes, jitter, precision, parts, squared distances."""

import numpy as np
import pytest
import tensorflow as tf
from gram_cases import BLOCKS, D, M, N, S, feature_blocks_of, features, gram_of

from gpflow_dkp.gram import GramBlocks

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
    ii, it = BLOCKS[blocks](inducing, data).squared_distances()
    expected_ii = ((inducing[..., :, None, :] - inducing[..., None, :, :]).numpy() ** 2).sum(-1) / D
    expected_it = ((inducing[..., :, None, :] - data[..., None, :, :]).numpy() ** 2).sum(-1) / D
    np.testing.assert_allclose(ii, expected_ii, rtol=0, atol=1e-13)
    np.testing.assert_allclose(it, expected_it, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(tf.linalg.diag_part(ii), np.zeros(ii.shape[:-1]))


@blocks
def test_squared_distances_are_never_negative(blocks: str) -> None:
    inducing, _ = features(None)
    inducing = 1e3 * tf.concat([inducing[:2], inducing[:2] * (1 + 1e-15)], 0)
    ii, it = BLOCKS[blocks](inducing, tf.concat([inducing, inducing[:2]], 0)).squared_distances()
    assert np.all(ii.numpy() >= 0)
    assert np.all(it.numpy() >= 0)


@blocks
def test_scaled_distances(blocks: str) -> None:
    G = BLOCKS[blocks](*features(S))
    scale, shift = tf.constant(0.7, tf.float64), tf.constant(-0.4, tf.float64)
    ii, it = G.scaled_distances(scale, shift)
    squared_ii, squared_it = G.squared_distances()
    np.testing.assert_allclose(ii, -0.4 - 0.35 * squared_ii, rtol=0, atol=1e-13)
    np.testing.assert_allclose(it, -0.4 - 0.35 * squared_it, rtol=0, atol=1e-13)


@blocks
def test_parts_of_the_samples(blocks: str) -> None:
    inducing, data = features(5)
    G = BLOCKS[blocks](inducing, data)
    parts = G.split([2, 3])
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
