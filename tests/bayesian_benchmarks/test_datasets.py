"""Datasets: scaling, splits, the registry and the published sets."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from bayesian_benchmarks.datasets import (
    Dataset,
    Scaling,
    SplitData,
    get_dataset,
    list_datasets,
    random_split,
    register_dataset,
    registry,
    uci_gal,
)
from bayesian_benchmarks.errors import (
    BadDataError,
    BadSplitError,
    BenchmarkError,
    UnknownNameError,
)

GAL = ["boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht"]
SIZES = {
    "boston": (506, 13),
    "concrete": (1030, 8),
    "energy": (768, 8),
    "kin8nm": (8192, 8),
    "naval": (11934, 16),
    "power": (9568, 4),
    "protein": (45730, 9),
    "wine": (1599, 11),
    "yacht": (308, 6),
}


def test_scaling_normalises_and_restores() -> None:
    rng = np.random.default_rng(1)
    X, Y = rng.normal(3.0, 5.0, (50, 2)), rng.normal(-7.0, 0.1, (50, 1))
    scaling = Scaling.fit(X, Y)
    np.testing.assert_allclose(scaling.normalise_X(X).std(axis=0), 1.0)
    np.testing.assert_allclose(scaling.normalise_Y(Y).mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(scaling.restore_X(scaling.normalise_X(X)), X)
    np.testing.assert_allclose(scaling.restore_Y(scaling.normalise_Y(Y)), Y)
    np.testing.assert_allclose(
        scaling.restore_Y_variance(np.ones((3, 1))), np.full((3, 1), Y.var())
    )


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1 + 0.2, 1e9 / 3, -1e-9 / 7])
def test_constant_columns_have_scale_one(value: float) -> None:
    X = np.full((1000, 1), value)
    assert Scaling.fit(X, X).X_std == 1.0


def test_small_but_varying_columns_are_scaled() -> None:
    X = 1e-9 * np.random.default_rng(0).normal(size=(100, 1))
    np.testing.assert_allclose(Scaling.fit(X, X).normalise_X(X).std(), 1.0)


def test_scaling_is_fitted_on_the_training_part() -> None:
    X, Y = np.arange(20.0)[:, None], np.arange(20.0)[:, None] ** 2
    dataset = Dataset.from_split("toy", 0, SplitData(X[:15], Y[:15], X[15:], Y[15:]))
    np.testing.assert_allclose(dataset.scaling.X_mean, 7.0)
    np.testing.assert_allclose(dataset.X_train.mean(), 0.0, atol=1e-12)
    np.testing.assert_allclose(dataset.scaling.restore_Y(dataset.Y_test), Y[15:])
    assert (dataset.N, dataset.D) == (20, 1)


def test_random_splits_are_the_published_ones() -> None:
    X = np.arange(442.0)[:, None]
    split = random_split(X, X, 0)
    assert len(split.X_test) == 44
    assert split.X_test[:5, 0].tolist() == [362, 249, 271, 435, 400]
    both = np.concatenate([split.X_train, split.X_test])
    assert sorted(both[:, 0]) == list(range(442))
    assert random_split(X, X, 1).X_test[:5, 0].tolist() != split.X_test[:5, 0].tolist()


def test_diabetes_is_bundled() -> None:
    dataset = get_dataset("diabetes", 19)
    assert (dataset.N, dataset.D, dataset.split) == (442, 10, 19)
    assert dataset.Y_train.shape == (398, 1)
    assert dataset.X_train.dtype == np.float64


def test_list_has_the_published_and_bundled_sets() -> None:
    assert set(GAL) | {"diabetes"} <= set(list_datasets())
    assert list_datasets("no such task") == []


def test_unknown_dataset_names_the_close_ones() -> None:
    with pytest.raises(
        UnknownNameError, match=r"Unknown dataset 'yatch'. Did you mean yacht\? Kno"
    ):
        get_dataset("yatch")


@pytest.mark.parametrize("split", [-1, 5])
def test_bad_split_says_which_there_are(split: int) -> None:
    with pytest.raises(
        BadSplitError, match=f"protein has no split {split}; its 5 splits are 0 to 4"
    ):
        get_dataset("protein", split)


@pytest.fixture
def clean_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_SOURCES", dict(registry._SOURCES))


@pytest.mark.usefixtures("clean_registry")
def test_a_user_registers_a_dataset() -> None:
    @register_dataset("mine", num_splits=3)
    def load(split: int, data_dir: Path | None) -> SplitData:
        X = np.arange(30.0)[:, None]
        return random_split(X, X, split)

    assert "mine" in list_datasets()
    assert get_dataset("mine", 2).X_test.shape == (3, 1)
    with pytest.raises(BadSplitError):
        get_dataset("mine", 3)


@pytest.mark.usefixtures("clean_registry")
def test_a_name_is_not_taken_over() -> None:
    with pytest.raises(BenchmarkError, match="'yacht' is registered already"):
        register_dataset("yacht")(lambda split, data_dir: None)  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        (np.ones((5, 2)), np.ones(5), r"Y of shape \(5,\); \[N, D\] and \[N, P\]"),
        (np.ones((5, 2)), np.ones((5, 2)), r"2 targets in the training part and 1 in the test"),
        (np.ones((1, 2)), np.ones((1, 1)), "1 training rows; at least 2"),
        (np.full((5, 2), np.nan), np.ones((5, 1)), "10 NaN or infinite values .* X at row 0, col"),
        (np.ones((5, 2)), np.array([[1, 2, np.inf, 4, 5]]).T, "Y at row 2, column 0"),
        (np.ones((5, 3)), np.ones((5, 1)), "3 features in the training part and 2 in the test"),
    ],
)
def test_what_a_loader_returns_is_checked(X: np.ndarray, Y: np.ndarray, message: str) -> None:
    with pytest.raises(BadDataError, match=message):
        Dataset.from_split("toy", 0, SplitData(X, Y, np.ones((2, 2)), np.ones((2, 1))))


def test_every_needed_file_is_pinned() -> None:
    pinned = uci_gal.pinned_folders()
    assert sorted(pinned) == GAL
    for folder in pinned.values():
        assert len(folder.sha256) == 3 + 2 * folder.num_splits


def test_pinned_digests_are_the_real_files(real_data: Path) -> None:
    for folder in uci_gal.pinned_folders().values():
        for file, digest in folder.sha256.items():
            path = real_data / uci_gal.COLLECTION / folder.folder / "data" / file
            assert hashlib.sha256(path.read_bytes()).hexdigest() == digest, path


@pytest.mark.parametrize("name", GAL)
def test_published_sets(real_data: Path, name: str) -> None:
    dataset = get_dataset(name, 3, data_dir=real_data)
    assert SIZES[name] == (dataset.N, dataset.D)
    np.testing.assert_allclose(dataset.X_train.mean(axis=0), 0.0, atol=1e-9)
    constant = dataset.X_train.std(axis=0) < 1e-6
    assert constant.sum() == (2 if name == "naval" else 0)
    np.testing.assert_allclose(dataset.X_train.std(axis=0)[~constant], 1.0)
    np.testing.assert_allclose(dataset.Y_train.std(), 1.0)
    assert len(dataset.X_test) == pytest.approx(0.1 * dataset.N, abs=1)


def test_splits_differ_and_cover_the_data(real_data: Path) -> None:
    first, second = (get_dataset("yacht", k, data_dir=real_data) for k in (0, 19))
    restored = [
        np.sort(np.concatenate([d.scaling.restore_Y(d.Y_train), d.scaling.restore_Y(d.Y_test)]), 0)
        for d in (first, second)
    ]
    np.testing.assert_allclose(restored[0], restored[1])
    assert not np.allclose(first.Y_test, second.Y_test)
