"""MNIST, Fashion-MNIST and CIFAR-10, by Keras' loaders or from a local copy of their files."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import DataFileError
from .dataset import SplitData, stratified_split
from .download import LOCAL_COPY_HINT, local_directory
from .registry import Loader, register_dataset

Arrays = tuple[npt.NDArray[Any], npt.NDArray[np.int64]]


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """An array of bytes from an IDX file, gzipped or not: MNIST's format.

    :raises DataFileError: it cannot be read, or is none.
    """
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rb") as file:
            content = file.read()
    except (OSError, EOFError) as error:
        raise DataFileError(f"Cannot read {path} ({error}); copy it again.") from error
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise DataFileError(f"{path} is not an IDX file of bytes; copy it again.")
    shape = np.frombuffer(content, ">u4", count=content[3], offset=4).astype(int)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * content[3])
    if values.size != np.prod(shape):
        raise DataFileError(
            f"{path} is cut short: {values.size} values for shape {tuple(shape)}; copy it again."
        )
    return values.reshape(shape)


def _idx_part(folder: Path, part: str) -> Arrays:
    """Images and labels of `part`, "train" or "t10k"."""
    arrays = []
    for kind in ("images-idx3", "labels-idx1"):
        plain = folder / f"{part}-{kind}-ubyte"
        zipped = plain.with_name(f"{plain.name}.gz")
        if not (plain.exists() or zipped.exists()):
            raise DataFileError(
                f"There is no {zipped.name} in {folder}; a local copy needs the four published files."
            )
        arrays.append(read_idx(plain if plain.exists() else zipped))
    images, labels = arrays
    if len(images) != len(labels):
        raise DataFileError(f"{folder}: {len(images)} {part} images and {len(labels)} labels.")
    return images, labels.astype(np.int64)


def _cifar_part(folder: Path, part: str) -> Arrays:
    names = ["test_batch"] if part == "test" else [f"data_batch_{i}" for i in range(1, 6)]
    images, labels = [], []
    for name in names:
        try:
            with (folder / name).open("rb") as file:
                batch = pickle.load(file, encoding="latin1")
        except (OSError, pickle.UnpicklingError, EOFError) as error:
            raise DataFileError(f"Cannot read {folder / name} ({error}); copy it again.") from error
        images.append(batch["data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        labels.append(np.asarray(batch["labels"], np.int64))
    return np.concatenate(images), np.concatenate(labels)


def _from_keras(name: str) -> tuple[Arrays, Arrays]:
    """The training and test parts, downloaded once by Keras into its own cache."""
    import tensorflow as tf

    try:
        parts = getattr(tf.keras.datasets, name).load_data()
    except Exception as error:  # Keras raises bare Exception when a download fails
        raise DataFileError(
            f"Could not download {name} ({' '.join(str(error).split())[:200]}): check the network and "
            f"try again, or {LOCAL_COPY_HINT}."
        ) from error
    return tuple((X, np.asarray(y, np.int64).reshape(-1)) for X, y in parts)  # type: ignore[return-value]


def _published_parts(name: str, data_dir: Path | None) -> tuple[Arrays, Arrays]:
    directory = local_directory(data_dir)
    if directory is None:
        return _from_keras(name)
    if name == "cifar10":
        folder = _folder(directory, "cifar-10-batches-py")
        return _cifar_part(folder, "train"), _cifar_part(folder, "test")
    folder = _folder(directory, name)
    return _idx_part(folder, "train"), _idx_part(folder, "t10k")


def _folder(directory: Path, name: str) -> Path:
    return directory / name if (directory / name).is_dir() else directory


def _loader(name: str) -> Loader:
    def load(split: int, data_dir: Path | None) -> SplitData:
        (X_train, y_train), (X_test, y_test) = _published_parts(name, data_dir)
        return SplitData(X_train, y_train, X_test, y_test)

    return load


for _name in ("mnist", "fashion_mnist", "cifar10"):
    register_dataset(_name, num_splits=1, task="classification", origin="Keras, published split")(
        _loader(_name)
    )


@register_dataset(
    "mnist_10k", num_splits=5, task="classification", origin="MNIST's test images, split 80/20"
)
def load_mnist_10k(split: int, data_dir: Path | None) -> SplitData:
    """MNIST's 10 000 test images in 8 000 for training and 2 000 for testing."""
    directory = local_directory(data_dir)
    if directory is None:
        images, labels = _from_keras("mnist")[1]
    else:
        images, labels = _idx_part(_folder(directory, "mnist"), "t10k")
    return stratified_split(images, labels, split, test_fraction=0.2)
