"""The `uci_datasets` collection: 36 UCI regression sets with ten test folds each.

`uci_collection.json` pins the SHA-256 of every file. Five names are also among Gal & Ghahramani's: for
regression these keep their published splits; for conditional densities they are the collection's, and
the others are there as `energy-gal` and so on.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np

from . import uci_gal
from .dataset import Array, SplitData
from .download import pinned_file
from .registry import Loader, register_dataset

BASE_URL = (
    "https://raw.githubusercontent.com/treforevans/uci_datasets/"
    "f0737523712fe66a1640e4b980b927e8490b58eb/"
)
COLLECTION = "uci_datasets"
WHOLE_FILES = {
    "song/data.csv.gz": "https://media.githubusercontent.com/media/treforevans/uci_datasets/"
    "d5061ad458be7be9b2d7c19af525c57e2b3715ef/song/data.csv.gz"
}
"""Files that the pinned commit holds in parts: their address in one, in an earlier commit's large files."""

NUM_FOLDS = 10


@cache
def pinned_files() -> dict[str, dict[str, str]]:
    """The digests of each dataset's two files."""
    text = (resources.files(__package__) / "uci_collection.json").read_text(encoding="utf-8")
    return json.loads(text)


def load_fold(name: str, fold: int, data_dir: Path | None) -> SplitData:
    """Fold `fold` of the dataset `name`: nine tenths for training, one tenth for testing."""
    table = _table(name, "data.csv.gz", data_dir)
    is_test = _table(name, "test_mask.csv.gz", data_dir)[:, fold].astype(bool)
    X, Y = table[:, :-1], table[:, -1:]
    return SplitData(X[~is_test], Y[~is_test], X[is_test], Y[is_test])


def _table(name: str, file: str, data_dir: Path | None) -> Array:
    import pandas as pd

    path = f"{name}/{file}"
    sha256, url = pinned_files()[name][file], WHOLE_FILES.get(path)
    local = pinned_file(BASE_URL, COLLECTION, path, sha256, data_dir, url=url)
    return pd.read_csv(local, header=None).to_numpy(np.float64)


def _loader(name: str) -> Loader:
    def load(split: int, data_dir: Path | None) -> SplitData:
        return load_fold(name, split, data_dir)

    return load


def _loader_of_gal(name: str) -> Loader:
    def load(split: int, data_dir: Path | None) -> SplitData:
        return uci_gal.load_split(name, split, data_dir)

    return load


ORIGIN = "UCI, the uci_datasets collection's folds"

for _name in pinned_files():
    _shared = uci_gal.pinned_folders().get(_name)
    _task = "regression" if _shared is None else "density"
    register_dataset(_name, num_splits=NUM_FOLDS, task=_task, origin=ORIGIN, is_pinned=True)(
        _loader(_name)
    )
    if _shared is not None:
        register_dataset(
            f"{_name}-gal",
            num_splits=_shared.num_splits,
            task="density",
            origin="UCI, Gal & Ghahramani's splits",
            is_pinned=True,
        )(_loader_of_gal(_name))
