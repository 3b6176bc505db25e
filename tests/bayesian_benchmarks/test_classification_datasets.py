"""Classification datasets: splits, standardisation, local copies of image files, bad input."""

from __future__ import annotations

import gzip
import io
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bayesian_benchmarks.datasets import (
    ClassificationDataset,
    Dataset,
    SplitData,
    get_dataset,
    images,
    list_datasets,
    register_dataset,
    stratified_split,
)
from bayesian_benchmarks.errors import BadDataError, DataFileError, UnknownNameError

BUNDLED = {"breast_cancer": 2, "digits": 10, "iris": 3, "wine": 3}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3))
LABELS = np.arange(12) % 3


def make(**changes: Any) -> ClassificationDataset:
    parts = {"X_train": X[:9], "Y_train": LABELS[:9], "X_test": X[9:], "Y_test": LABELS[9:]}
    return ClassificationDataset.from_split("made-up", 0, SplitData(**(parts | changes)))


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled(name: str) -> None:
    data = get_dataset(name, 1, task="classification")
    assert isinstance(data, ClassificationDataset)
    assert data.num_classes == BUNDLED[name]
    assert data.X_train.shape == (len(data.Y_train), data.D)
    assert data.Y_train.dtype == np.int64
    fraction = len(data.Y_test) / data.N
    assert 0.08 < fraction < 0.12
    for label in range(data.num_classes):
        assert np.mean(data.Y_test == label) == pytest.approx(
            np.mean(data.Y_train == label), abs=0.03
        )
    again, other = (get_dataset(name, split, task="classification") for split in (1, 2))
    np.testing.assert_array_equal(again.X_test, data.X_test)
    assert not np.array_equal(other.X_test, data.X_test)
    assert name in list_datasets("classification")


def test_wine_is_a_dataset_of_both_tasks() -> None:
    assert isinstance(get_dataset("digits"), ClassificationDataset)
    assert "wine" in list_datasets("regression")
    with pytest.raises(DataFileError, match="does not exist"):
        get_dataset("wine", data_dir="nowhere")
    assert isinstance(get_dataset("diabetes"), Dataset)
    with pytest.raises(UnknownNameError, match=r"dataset 'yacht'.*Known: breast_cancer"):
        get_dataset("yacht", task="classification")


def test_features_are_standardised_column_by_column_and_images_as_a_whole() -> None:
    data = make()
    np.testing.assert_allclose(data.X_train.mean(0), 0.0, atol=1e-12)
    np.testing.assert_allclose(data.X_train.std(0), 1.0, atol=1e-12)
    np.testing.assert_allclose(data.X_test, (X[9:] - X[:9].mean(0)) / X[:9].std(0), atol=1e-12)
    pixels = RNG.integers(0, 256, size=(12, 4, 5)).astype(np.uint8)
    pixels[:, 0, 0] = 7
    pictures = make(X_train=pixels[:9], X_test=pixels[9:])
    assert pictures.X_train.shape == (9, 20)
    assert pictures.X_train.mean() == pytest.approx(0.0, abs=1e-12)
    assert pictures.X_train.std() == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_array_equal(pictures.X_train[:, 0], pictures.X_train[0, 0])


def test_scaling_leads_back_to_original_units() -> None:
    data = make()
    np.testing.assert_allclose(data.scaling.X_mean, X[:9].mean(0))
    np.testing.assert_allclose(data.scaling.X_std, X[:9].std(0))
    np.testing.assert_allclose(data.scaling.restore_X(data.X_test), X[9:])
    pixels = RNG.integers(0, 256, size=(12, 4, 5)).astype(np.uint8)
    pictures = make(X_train=pixels[:9], X_test=pixels[9:])
    assert pictures.scaling.X_mean == pytest.approx(pixels[:9].mean())
    assert pictures.scaling.X_std == pytest.approx(pixels[:9].std())
    restored = pictures.scaling.restore_X(pictures.X_test).reshape(3, 4, 5)
    np.testing.assert_allclose(restored, pixels[9:], atol=1e-10)


def test_stratified_split_covers_every_row_once() -> None:
    rows = np.arange(100.0)[:, None]
    labels = np.repeat([0, 1, 2], [60, 30, 10])
    data = stratified_split(rows, labels, 3, test_fraction=0.2)
    everything = np.sort(np.concatenate([data.X_train, data.X_test])[:, 0])
    np.testing.assert_array_equal(everything, rows[:, 0])
    np.testing.assert_array_equal(np.bincount(data.Y_test), [12, 6, 2])


def test_the_training_part_as_a_split_of_its_own() -> None:
    """No row of the test part, each class in proportion, the features' scaling as it was."""
    whole = get_dataset("iris", 1, task="classification")
    part = whole.training_part(0.2)
    assert type(part) is ClassificationDataset
    both = np.concatenate([part.X_train, part.X_test])
    assert sorted(map(tuple, both)) == sorted(map(tuple, whole.X_train))
    assert np.bincount(part.Y_test[:, 0]).tolist() == [9, 9, 9]
    labels = {tuple(x): y for x, y in zip(whole.X_train, whole.Y_train[:, 0], strict=True)}
    for x, y in zip(part.X_test, part.Y_test[:, 0], strict=True):
        assert labels[tuple(x)] == y
    without = whole.training_part()
    np.testing.assert_array_equal(without.X_train, whole.X_train)
    assert {tuple(x) for x in without.X_test} <= set(labels)


def test_every_class_of_a_stratified_split_is_in_both_parts() -> None:
    labels = np.array([0] * 10 + [1] * 2)
    for fraction in (0.1, 0.9):
        data = stratified_split(np.arange(12.0)[:, None], labels, 0, test_fraction=fraction)
        assert set(data.Y_train) == set(data.Y_test) == {0, 1}
    with pytest.raises(BadDataError, match=r"Class 1 has 1 row; each class needs at least 2") as e:
        stratified_split(np.arange(11.0)[:, None], labels[:-1], 0)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Y_train": LABELS[:9].astype(float)}, "training labels are of type float64; integers"),
        ({"Y_test": np.array(["a", "b", "c"])}, "test labels are of type <U1; integers"),
        ({"Y_train": LABELS[:9] - 1}, "a training label is -1; labels start at 0"),
        (
            {"Y_test": np.array([0, 1, 7])},
            "no row of class 3, and there are labels up to 7; number the classes from 0 without",
        ),
        (
            {"Y_train": 2 * LABELS[:9], "Y_test": 2 * LABELS[9:]},
            "no row of class 1, and there are labels up to 4",
        ),
        (
            {"Y_train": np.where(LABELS[:9] == 2, 10**11, LABELS[:9])},
            "no row of class 3, and there are labels up to 100000000000; number the classes",
        ),
        (
            {"Y_train": LABELS[:9] % 2},
            "class 2 is only in the test part; put rows of it into the training part",
        ),
        ({"Y_train": np.zeros(9, int)}, "every training label is 0; at least two classes"),
        ({"Y_train": LABELS[:8]}, r"9 rows and labels of shape \(8,\); one label a row"),
        (
            {"X_train": X[:9, :2]},
            r"shape \(2,\) in the training part and of shape \(3,\) in the test",
        ),
        ({"X_test": np.full((3, 3), np.nan)}, "9 NaN or infinite values in the test part"),
        ({"X_train": X[:9, 0]}, r"X of shape \(9,\); \[N, D\], \[N, height, width\]"),
        (
            {"X_train": [np.zeros((2, 2))] * 8 + [np.zeros((2, 3))]},
            r"images of several shapes in the training part, such as \(2, 2\) and \(2, 3\)",
        ),
        ({"X_train": np.full((9, 3), "x")}, "the training part has features that are no numbers"),
    ],
)
def test_bad_data_is_said_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadDataError, match=message) as caught:
        make(**changes)
    assert "\n" not in str(caught.value)
    assert "made-up" in str(caught.value)


def test_unknown_task_of_a_registration() -> None:
    with pytest.raises(UnknownNameError, match="Unknown task 'clustering'"):
        register_dataset("x", task="clustering")


def write_idx(path: Path, values: np.ndarray) -> None:
    head = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
    content = head + values.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.fixture
def local_mnist(tmp_path: Path) -> Path:
    """100 test images and 50 training images in MNIST's format."""
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    for part, size, suffix in (("t10k", 100, ".gz"), ("train", 50, "")):
        pixels = RNG.integers(0, 256, size=(size, 6, 6))
        write_idx(folder / f"{part}-images-idx3-ubyte{suffix}", pixels)
        write_idx(folder / f"{part}-labels-idx1-ubyte{suffix}", np.arange(size) % 10)
    return folder


def test_further_splits_of_images_draw_from_all(local_mnist: Path) -> None:
    def pixels(split: int) -> tuple[set[bytes], set[bytes]]:
        data = images._loader("mnist")(split, local_mnist.parent)
        return {row.tobytes() for row in data.X_train}, {row.tobytes() for row in data.X_test}

    train, test = pixels(0)
    assert train == {
        row.tobytes() for row in images.read_idx(local_mnist / "train-images-idx3-ubyte")
    }
    first, second = pixels(1), pixels(2)
    for other_train, other_test in (first, second):
        assert (len(other_train), len(other_test)) == (50, 100)
        assert other_train | other_test == train | test
        assert other_test & train
    assert first[1] != second[1]
    assert pixels(1) == first


def test_local_idx_files(local_mnist: Path) -> None:
    data = get_dataset("mnist", data_dir=local_mnist.parent)
    assert data.X_train.shape == (50, 36)
    assert data.X_test.shape == (100, 36)
    other = get_dataset("mnist", 3, data_dir=local_mnist.parent)
    assert (other.X_train.shape, other.X_test.shape) == ((50, 36), (100, 36))
    assert np.all(np.bincount(other.Y_test[:, 0]) == 10)
    part = get_dataset("mnist_10k", 2, data_dir=local_mnist.parent)
    assert (len(part.X_train), len(part.X_test), part.num_classes) == (80, 20, 10)


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("mnist", "mnist"),
        ("mnist_10k", "mnist"),
        ("fashion_mnist", "fashion_mnist"),
        ("cifar10", "cifar-10-batches-py"),
    ],
)
def test_files_that_are_not_in_the_named_folder_are_not_taken(
    local_mnist: Path, name: str, folder: str
) -> None:
    with pytest.raises(DataFileError, match=f"no folder {folder} in the data directory") as caught:
        get_dataset(name, data_dir=local_mnist)
    assert str(caught.value).endswith(f"put the published files into {local_mnist / folder}.")
    assert "\n" not in str(caught.value)


def test_damaged_idx_files(local_mnist: Path) -> None:
    labels = local_mnist / "t10k-labels-idx1-ubyte.gz"
    labels.write_bytes(gzip.compress(gzip.decompress(labels.read_bytes())[:-1]))
    with pytest.raises(
        DataFileError, match=r"cut short: 99 values for shape \(100,\); copy it again"
    ):
        get_dataset("mnist_10k", data_dir=local_mnist.parent)
    labels.write_bytes(b"no gzip")
    with pytest.raises(DataFileError, match=r"Cannot read .*labels.*copy it again"):
        get_dataset("mnist_10k", data_dir=local_mnist.parent)
    damaged = bytearray(gzip.compress(np.arange(100, dtype=np.uint8).tobytes()))
    damaged[10:20] = b"\xff" * 10
    labels.write_bytes(damaged)
    with pytest.raises(DataFileError, match=r"Cannot read .*labels.*copy it again"):
        get_dataset("mnist_10k", data_dir=local_mnist.parent)
    labels.write_bytes(gzip.compress(b"\x00\x00\x08\x01\x00"))
    with pytest.raises(DataFileError, match="cut short: 5 bytes, 8 for its header alone; copy it"):
        get_dataset("mnist_10k", data_dir=local_mnist.parent)
    for content in (b"abcdefg", b"\x00\x00\x08\x00\x07"):
        labels.write_bytes(gzip.compress(content))
        with pytest.raises(DataFileError, match="is not an IDX file"):
            get_dataset("mnist_10k", data_dir=local_mnist.parent)
    labels.unlink()
    with pytest.raises(
        DataFileError, match=r"no t10k-labels-idx1-ubyte.gz in .*four published files"
    ):
        get_dataset("mnist_10k", data_dir=local_mnist.parent)


def test_local_cifar(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name in ["test_batch", *(f"data_batch_{i}" for i in range(1, 6))]:
        batch = {
            "data": RNG.integers(0, 256, size=(20, 3072)),
            "labels": (np.arange(20) % 10).tolist(),
        }
        (folder / name).write_bytes(pickle.dumps(batch))
    data = get_dataset("cifar10", data_dir=tmp_path)
    assert data.X_train.shape == (100, 3072)
    assert data.X_test.shape == (20, 3072)
    whole = (folder / "data_batch_3").read_bytes()
    for content in (
        b"",
        whole[:1000],
        b"no pickle",
        b"cno_such_module\nName\n.",
        pickle.dumps([1, 2]),
        pickle.dumps({"data": np.zeros((20, 3072))}),
        pickle.dumps({"data": np.zeros((20, 3000)), "labels": [0] * 20}),
        pickle.dumps({"data": np.zeros((20, 3072)), "labels": ["a"] * 20}),
    ):
        (folder / "data_batch_3").write_bytes(content)
        with pytest.raises(DataFileError, match=r"Cannot read .*data_batch_3 \(\w+: ") as caught:
            get_dataset("cifar10", data_dir=tmp_path)
        assert "\n" not in str(caught.value)
    (folder / "data_batch_3").unlink()
    with pytest.raises(DataFileError, match=r"Cannot read .*data_batch_3"):
        get_dataset("cifar10", data_dir=tmp_path)


class Malicious:
    """Its unpickling makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_malicious_cifar_file_executes_nothing(tmp_path: Path) -> None:
    folder, made = tmp_path / "cifar-10-batches-py", tmp_path / "made"
    folder.mkdir()
    batch = {"data": np.zeros((20, 3072), np.uint8), "labels": [0] * 20}
    pickle.loads(pickle.dumps(Malicious(made)))
    assert made.exists()  # so would it be
    made.unlink()
    contents = [
        *(pickle.dumps(batch | {"more": Malicious(made)}, protocol) for protocol in range(5)),
        pickle.dumps({**batch, "data": np.array([Malicious(made)], object)}),
        b"cos\nsystem\n(S'touch " + str(made).encode() + b"'\ntR.",
        b"cnumpy\nload\n(S'" + str(made).encode() + b"'\ntR.",
        b"cnumpy.core.multiarray\nfromfile\n(S'" + str(made).encode() + b"'\ntR.",
    ]
    for content in contents:
        for name in ["test_batch", *(f"data_batch_{i}" for i in range(1, 6))]:
            (folder / name).write_bytes(content)
        with pytest.raises(DataFileError, match=r"Cannot read .*\(UnpicklingError: ") as caught:
            get_dataset("cifar10", data_dir=tmp_path)
        assert "\n" not in str(caught.value)
        assert not made.exists()


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["u1", ">i4", "<f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_unpickled_as_they_are(protocol: int, dtype: str, order: Any) -> None:
    values = np.arange(12).reshape(3, 4).astype(dtype, order=order)
    content = pickle.dumps({"data": values, b"names": ["a", "ü"]}, protocol)
    if protocol == 2:  # Python 2 has its bytes as text, Python 3 as a call that makes them
        content = python_2_pickle(values)
    found = images.ArrayUnpickler(io.BytesIO(content), encoding="latin1").load()
    np.testing.assert_array_equal(np.asarray(found["data"]), values)
    assert np.asarray(found["data"]).dtype == values.dtype


def python_2_pickle(values: np.ndarray) -> bytes:
    """What Python 2's NumPy wrote, as in CIFAR's published files: protocol 2, bytes as its str."""
    *_, is_fortran, content = values.__reduce__()[2]
    order, name = values.dtype.__reduce__()[2][1], values.dtype.str[1:]
    return b"".join(
        [
            b"\x80\x02}U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n",
            b"K\x00\x85U\x01b\x87R(K\x01K\x03K\x04\x86cnumpy\ndtype\nU\x02" + name.encode(),
            b"K\x00K\x01\x87R(K\x03U\x01" + order.encode() + b"NNNJ\xff\xff\xff\xffJ",
            b"\xff\xff\xff\xffK\x00tb" + (b"\x88" if is_fortran else b"\x89"),
            b"U" + bytes([len(content)]) + content + b"tbs.",
        ]
    )


def with_keras(monkeypatch: pytest.MonkeyPatch, load_data: Callable[[], Any]) -> None:
    """Put `load_data` in place of Keras' loader of Fashion-MNIST."""
    loader = SimpleNamespace(load_data=load_data)
    keras = SimpleNamespace(datasets=SimpleNamespace(fashion_mnist=loader))
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(keras=keras))
    monkeypatch.setenv("KERAS_HOME", "/keras")


def fashion(num_test: int) -> Any:
    """Blank images in Fashion-MNIST's shapes."""
    sizes = (60_000, num_test)
    return tuple((np.zeros((n, 28, 28), np.uint8), np.arange(n)[:, None] % 10) for n in sizes)


@pytest.mark.parametrize(
    "error",
    [
        Exception("URL fetch failure on https://somewhere:\nNone -- refused"),
        EOFError("Compressed file ended before the end-of-stream marker was reached"),
    ],
)
def test_failed_download_and_damaged_cache_are_one_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail() -> Any:
        raise error

    with_keras(monkeypatch, fail)
    with pytest.raises(DataFileError, match="Could not load fashion_mnist by Keras") as caught:
        get_dataset("fashion_mnist")
    message = str(caught.value)
    assert " ".join(str(error).split()) in message
    assert "remove fashion_mnist's files from /keras/datasets, where Keras keeps them" in message
    assert "--data-dir" in message
    assert "\n" not in message


def test_what_keras_gives_is_checked_and_its_progress_is_no_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load_data() -> Any:
        print("11490434/11490434 0s 0us/step")
        return fashion(10_000)

    with_keras(monkeypatch, load_data)
    (_, y_train), (X_test, _) = images._from_keras("fashion_mnist")
    assert (y_train.shape, X_test.shape) == ((60_000,), (10_000, 28, 28))
    out, err = capsys.readouterr()
    assert (out, err) == ("", "11490434/11490434 0s 0us/step\n")
    with_keras(monkeypatch, lambda: fashion(9_000))
    with pytest.raises(
        DataFileError,
        match=r"shape \(9000, 28, 28\) and 9000 labels, \(10000, 28, 28\) are published: remove",
    ):
        get_dataset("fashion_mnist")


def test_real_mnist(real_data: Path) -> None:
    data = get_dataset("mnist_10k", data_dir=real_data)
    assert data.X_train.shape == (8000, 784)
    assert data.X_test.shape == (2000, 784)
    assert data.num_classes == 10
