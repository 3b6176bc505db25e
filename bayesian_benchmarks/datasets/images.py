"""MNIST, Fashion-MNIST and CIFAR-10, by Keras' loaders or from a local copy of their files."""

from __future__ import annotations

import contextlib
import gzip
import math
import os
import pickle
import re
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import DataFileError
from .dataset import SplitData, stratified_split
from .download import LOCAL_COPY_HINT, local_directory
from .registry import Loader, register_dataset

Arrays = tuple[npt.NDArray[Any], npt.NDArray[np.int64]]

PUBLISHED_SHAPES = {
    "mnist": ((60_000, 28, 28), (10_000, 28, 28)),
    "fashion_mnist": ((60_000, 28, 28), (10_000, 28, 28)),
    "cifar10": ((50_000, 32, 32, 3), (10_000, 32, 32, 3)),
}
"""Of the training and the test images."""


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """An array of bytes from an IDX file, gzipped or not: MNIST's format.

    :raises DataFileError: it cannot be read, or is none.
    """
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rb") as file:
            content = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise DataFileError(f"Cannot read {path} ({error}); copy it again.") from error
    if len(content) < 4 or content[:3] != b"\x00\x00\x08" or content[3] == 0:
        raise DataFileError(f"{path} is not an IDX file of bytes; copy it again.")
    header = 4 + 4 * content[3]
    if len(content) < header:
        raise DataFileError(
            f"{path} is cut short: {len(content)} bytes, {header} for its header alone; copy it again."
        )
    shape = tuple(np.frombuffer(content, ">u4", count=content[3], offset=4).tolist())
    values = np.frombuffer(content, np.uint8, offset=header)
    if values.size != math.prod(shape):
        raise DataFileError(
            f"{path} is cut short: {values.size} values for shape {shape}; copy it again."
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


class PickledDtype:
    """Stands for `numpy.dtype` in a pickle: a type of numbers."""

    def __init__(self, name: str, *_: object) -> None:
        if not re.fullmatch(r"[biuf]\d", name):
            raise pickle.UnpicklingError(f"an array of {name!r}, and not of numbers")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class PickledArray:
    """Stands for `numpy.ndarray` in a pickle: an array of numbers, made of their bytes."""

    def __init__(self, *_: object) -> None:
        self.array: npt.NDArray[Any] = np.empty(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, is_fortran, content = state
        content = content.encode("latin1") if isinstance(content, str) else content
        values = np.frombuffer(content, dtype.dtype)
        self.array = values.reshape(shape, order="F" if is_fortran else "C")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return self.array if dtype is None else self.array.astype(dtype)


class ArrayUnpickler(pickle.Unpickler):
    """Reads pickles of dicts, lists, text, bytes, numbers and arrays of numbers, as CIFAR-10's batches are.

    A pickle can name any function for its reader to call. This one knows three names, and NumPy is handed
    nothing that it does not check: `load` raises `pickle.UnpicklingError` for any other name, before a call.
    """

    def find_class(self, module: str, name: str) -> Any:
        """What stands for a name: of `numpy.ndarray`, its constructor, and `numpy.dtype`."""
        if module in ("numpy.core.multiarray", "numpy._core.multiarray", "numpy"):
            if name in ("_reconstruct", "ndarray"):
                return PickledArray
            if name == "dtype":
                return PickledDtype
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no array needs")


def _cifar_part(folder: Path, part: str) -> Arrays:
    names = ["test_batch"] if part == "test" else [f"data_batch_{i}" for i in range(1, 6)]
    images, labels = [], []
    for name in names:
        try:
            with (folder / name).open("rb") as file:
                batch = ArrayUnpickler(file, encoding="latin1").load()
            pixels = np.reshape(batch["data"], (-1, 3, 32, 32))
            numbers = np.asarray(batch["labels"], np.int64)
        except Exception as error:  # a damaged pickle raises nearly every kind
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise DataFileError(
                f"Cannot read {folder / name} ({reason}); copy it again."
            ) from error
        images.append(pixels.transpose(0, 2, 3, 1))
        labels.append(numbers)
    return np.concatenate(images), np.concatenate(labels)


def _from_keras(name: str) -> tuple[Arrays, Arrays]:
    """The training and test parts, downloaded once by Keras into its own cache.

    Keras checks no digest of Fashion-MNIST's files. Gzip's own checksums find one that was cut short
    or altered when it is read, the shapes one that is another file.
    """
    import tensorflow as tf

    home = os.environ.get("KERAS_HOME", "~/.keras")
    damaged = f"remove {name}'s files from {home}/datasets, where Keras keeps them"
    try:
        with contextlib.redirect_stdout(sys.stderr):  # for its progress bar
            train, test = getattr(tf.keras.datasets, name).load_data()
    except Exception as error:  # Keras raises bare Exception when a download fails
        raise DataFileError(
            f"Could not load {name} by Keras ({' '.join(str(error).split())[:200]}): check the network "
            f"and try again; if a file is damaged, {damaged}; or {LOCAL_COPY_HINT}."
        ) from error
    for (X, y), shape in zip((train, test), PUBLISHED_SHAPES[name], strict=True):
        if X.shape != shape or len(y) != len(X):
            raise DataFileError(
                f"Keras gives {name} with images of shape {X.shape} and {len(y)} labels, {shape} are "
                f"published: {damaged}, and try again."
            )
    return _with_flat_labels(*train), _with_flat_labels(*test)


def _with_flat_labels(images: npt.NDArray[Any], labels: npt.NDArray[Any]) -> Arrays:
    return images, np.asarray(labels, np.int64).reshape(-1)


def _published_parts(name: str, data_dir: Path | None) -> tuple[Arrays, Arrays]:
    directory = local_directory(data_dir)
    if directory is None:
        return _from_keras(name)
    return _local_part(directory, name, "train"), _local_part(directory, name, "test")


def published_test_part(name: str, data_dir: Path | None) -> Arrays:
    """Images and labels of the published test part alone; a local copy needs no files of the other.

    :raises DataFileError: a file is missing or damaged, or cannot be downloaded.
    """
    directory = local_directory(data_dir)
    if directory is None:
        return _from_keras(name)[1]
    return _local_part(directory, name, "test")


def _local_part(directory: Path, name: str, part: str) -> Arrays:
    """Images and labels of `part`, "train" or "test", in a local copy."""
    if name == "cifar10":
        return _cifar_part(_folder(directory, "cifar-10-batches-py"), part)
    return _idx_part(_folder(directory, name), "t10k" if part == "test" else part)


def _folder(directory: Path, name: str) -> Path:
    """The folder `name`, by which alone the files of MNIST and Fashion-MNIST are told apart."""
    if not (directory / name).is_dir():
        raise DataFileError(
            f"There is no folder {name} in the data directory {directory}; put the published files "
            f"into {directory / name}."
        )
    return directory / name


def _loader(name: str) -> Loader:
    """Split 0 is the published one, the others draw as many test images from all."""

    def load(split: int, data_dir: Path | None) -> SplitData:
        (X_train, y_train), (X_test, y_test) = _published_parts(name, data_dir)
        if split == 0:
            return SplitData(X_train, y_train, X_test, y_test)
        images, labels = np.concatenate([X_train, X_test]), np.concatenate([y_train, y_test])
        return stratified_split(images, labels, split, test_fraction=len(X_test) / len(images))

    return load


for _name in PUBLISHED_SHAPES:
    register_dataset(
        _name,
        num_splits=10,
        task="classification",
        origin="Keras; split 0 is the published one, the others are random",
    )(_loader(_name))


@register_dataset(
    "mnist_10k", num_splits=5, task="classification", origin="MNIST's test images, split 80/20"
)
def load_mnist_10k(split: int, data_dir: Path | None) -> SplitData:
    """MNIST's 10 000 test images in 8 000 for training and 2 000 for testing."""
    images, labels = published_test_part("mnist", data_dir)
    return stratified_split(images, labels, split, test_fraction=0.2)
