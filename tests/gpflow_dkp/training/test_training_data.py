"""Training sets in memory and on disk, and the rows of minibatches."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from fit_cases import numbers, toy_data, toy_model

from gpflow_dkp.models import LatentVariableDGP, checks
from gpflow_dkp.random import as_seed, split
from gpflow_dkp.training import fit
from gpflow_dkp.training.data import ArrayData

X, Y = toy_data(30)


def on_disk(folder: Path, name: str, array: np.ndarray) -> np.memmap:
    """The array in a file, mapped read-only."""
    path = folder / name
    stored = np.memmap(path, array.dtype, "w+", shape=array.shape)
    stored[:] = array
    stored.flush()
    return np.memmap(path, array.dtype, "r", shape=array.shape)


@pytest.mark.parametrize("batch_size", [7, None])
def test_data_on_disk_train_as_in_memory(tmp_path: Path, batch_size: int | None) -> None:
    mapped = on_disk(tmp_path, "X", X), on_disk(tmp_path, "Y", Y)
    settings = {"num_steps": 12, "batch_size": batch_size, "progress": False}
    in_memory, from_disk = toy_model(), toy_model()
    expected = numbers(in_memory, fit(in_memory, (X, Y), **settings))
    assert numbers(from_disk, fit(from_disk, mapped, **settings)) == expected


def test_single_precision_on_disk_is_read_as_the_default_float(tmp_path: Path) -> None:
    mapped = on_disk(tmp_path, "X", X.astype(np.float32)), on_disk(tmp_path, "Y", Y)
    data = ArrayData(mapped, 5, as_seed(0))
    batch = data.minibatch(tf.constant(3))
    assert batch.data[0].dtype == tf.float64
    np.testing.assert_array_equal(batch.data[0], X.astype(np.float32)[batch.rows])
    np.testing.assert_array_equal(batch.data[1], Y[batch.rows])


def test_a_bad_value_on_disk_is_named_by_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "BLOCK_ROWS", 4)
    bad = X.copy()
    bad[13, 0] = np.inf
    with pytest.raises(ValueError, match=r"X\[13, 0\] is inf"):
        ArrayData((on_disk(tmp_path, "X", bad), Y), 5, as_seed(0))


def test_the_digest_does_not_depend_on_where_the_data_are_kept(tmp_path: Path) -> None:
    mapped = on_disk(tmp_path, "X", X), on_disk(tmp_path, "Y", Y)
    seed = as_seed(0)
    digests = [ArrayData(data, 5, seed).fingerprint() for data in ((X, Y), mapped)]
    assert digests[0] == digests[1]
    other = X.copy()
    other[-1] += 1e-9
    assert ArrayData((other, Y), 5, seed).fingerprint() != digests[0]


def test_minibatches_move_the_free_latent_parameters_of_their_rows_alone() -> None:
    model = LatentVariableDGP.from_architecture("LV-GP", (X, Y), num_inducing=5, amortised=False)
    before = model.layers[0].mean.numpy()
    fit(model, (X, Y), num_steps=1, batch_size=7, seed=3, progress=False)
    rows = ArrayData((X, Y), 7, split(3, 2)[0]).minibatch(tf.constant(0)).rows.numpy()
    moved = np.flatnonzero(np.any(model.layers[0].mean.numpy() != before, 1))
    np.testing.assert_array_equal(moved, np.sort(rows))


def test_free_latent_parameters_are_for_the_rows_they_were_made_for() -> None:
    model = LatentVariableDGP.from_architecture("LV-GP", (X, Y), num_inducing=5, amortised=False)
    with pytest.raises(ValueError, match=r"got 29 rows, .* free parameters for 30"):
        fit(model, (X[1:], Y[1:]), num_steps=1, progress=False)
