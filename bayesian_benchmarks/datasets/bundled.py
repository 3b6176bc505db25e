"""Datasets that come with the dependencies, for use without a network."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .dataset import SplitData, random_split, stratified_split
from .registry import Loader, register_dataset


@register_dataset("diabetes", num_splits=20, origin="bundled with scikit-learn")
def load_diabetes(split: int, data_dir: Path | None) -> SplitData:
    """Diabetes progression: 442 patients, 10 features. `data_dir` is not used."""
    from sklearn import datasets

    X, y = datasets.load_diabetes(return_X_y=True, scaled=False)
    return random_split(np.asarray(X, np.float64), np.asarray(y, np.float64)[:, None], split)


def _classification_loader(function: str) -> Loader:
    def load(split: int, data_dir: Path | None) -> SplitData:
        from sklearn import datasets

        bunch = getattr(datasets, function)()
        labels = np.asarray(bunch.target, np.int64)
        X = bunch.images if "images" in bunch else bunch.data
        return stratified_split(X, labels, split)

    return load


for _name in ("breast_cancer", "digits", "iris", "wine"):
    register_dataset(_name, task="classification", origin="bundled with scikit-learn")(
        _classification_loader(f"load_{_name}")
    )
