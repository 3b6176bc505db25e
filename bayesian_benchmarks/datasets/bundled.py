"""Datasets that come with the dependencies, for use without a network."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .dataset import SplitData, random_split
from .registry import register_dataset


@register_dataset("diabetes", num_splits=20, origin="bundled with scikit-learn")
def load_diabetes(split: int, data_dir: Path | None) -> SplitData:
    """Diabetes progression: 442 patients, 10 features. `data_dir` is not used."""
    from sklearn import datasets

    X, y = datasets.load_diabetes(return_X_y=True, scaled=False)
    return random_split(np.asarray(X, np.float64), np.asarray(y, np.float64)[:, None], split)
