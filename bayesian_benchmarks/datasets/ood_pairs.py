"""Pairs of an in-distribution dataset and inputs of another distribution, for the task "ood"."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .dataset import SplitData, stratified_split
from .download import pinned_file
from .images import published_test_part
from .ood import OodSplitData
from .registry import Loader, dataset_source, register_dataset

Images = npt.NDArray[Any]
Outside = Callable[[SplitData, int, Path | None], Images]
"""`outside(data, split, data_dir)`: the out-distribution's images for the in-distribution's split `data`."""

NOISE_STD = 4.0
"""Of the noise on digits, whose pixels are 0 to 16."""

SVHN_ADDRESS = "http://ufldl.stanford.edu/housenumbers/"
SVHN_FILE = "test_32x32.mat"
SVHN_SHA256 = "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"
"""As TensorFlow Datasets and torchvision have it."""


def rotated(data: SplitData, split: int, data_dir: Path | None) -> Images:
    """The test images rotated by 90 degrees, anticlockwise."""
    return np.rot90(data.X_test, axes=(1, 2))


def noisy(data: SplitData, split: int, data_dir: Path | None) -> Images:
    """The test images of digits with Gaussian noise, kept between 0 and 16; the same on every machine."""
    noise = np.random.RandomState(split).normal(scale=NOISE_STD, size=data.X_test.shape)
    return np.clip(data.X_test + noise, 0.0, 16.0)


def published_images(name: str) -> Outside:
    """The published test images of another dataset."""

    def outside(data: SplitData, split: int, data_dir: Path | None) -> Images:
        return published_test_part(name, data_dir)[0]

    return outside


def svhn(data: SplitData, split: int, data_dir: Path | None) -> Images:
    """SVHN's 26 032 cropped test images [N, 32, 32, 3], in a local copy `svhn/test_32x32.mat`."""
    from scipy.io import loadmat

    path = pinned_file(
        SVHN_ADDRESS, "svhn", SVHN_FILE, SVHN_SHA256, data_dir, url=SVHN_ADDRESS + SVHN_FILE
    )
    return np.moveaxis(loadmat(path, variable_names="X")["X"], -1, 0)


def pair(inside: str, outside: Outside) -> Loader:
    """A loader of the classification dataset `inside` with an out-distribution."""

    def load(split: int, data_dir: Path | None) -> OodSplitData:
        data = dataset_source(inside, "classification").load(split, data_dir)
        return OodSplitData(**vars(data), X_ood=outside(data, split, data_dir))

    return load


for _name, _inside, _outside, _origin in (
    ("digits_rotated", "digits", rotated, "bundled with scikit-learn; out: rotated by 90 degrees"),
    ("digits_noisy", "digits", noisy, "bundled with scikit-learn; out: with noise"),
    ("mnist_vs_fashion_mnist", "mnist", published_images("fashion_mnist"), "Keras"),
    ("fashion_mnist_vs_mnist", "fashion_mnist", published_images("mnist"), "Keras"),
    ("cifar10_vs_svhn", "cifar10", svhn, f"Keras and {SVHN_ADDRESS}"),
):
    _num_splits = dataset_source(_inside, "classification").num_splits
    register_dataset(_name, num_splits=_num_splits, task="ood", origin=_origin)(
        pair(_inside, _outside)
    )


@register_dataset(
    "mnist_10k_halves", num_splits=5, task="ood", origin="MNIST's test images; out: digits 5 to 9"
)
def load_mnist_10k_halves(split: int, data_dir: Path | None) -> OodSplitData:
    """Digits 0 to 4 of MNIST's 10 000 test images, split 80/20; the others are the out-distribution."""
    images, labels = published_test_part("mnist", data_dir)
    inside = labels < 5
    data = stratified_split(images[inside], labels[inside], split, test_fraction=0.2)
    return OodSplitData(**vars(data), X_ood=images[~inside])
