"""Datasets: the registry, their sources (bundled, downloaded, CSV), splits and scaling."""

from . import (  # noqa: F401  (importing them registers their datasets)
    bundled,
    images,
    ood_pairs,
    uci_collection,
    uci_gal,
)
from .classification import ClassificationDataset
from .dataset import (
    Dataset,
    FeatureScaling,
    Scaling,
    SplitData,
    random_split,
    stratified_split,
)
from .ood import OodDataset, OodSplitData
from .registry import dataset_source, get_dataset, list_datasets, register_dataset
from .table import TableDataset, add_dataset

__all__ = [
    "ClassificationDataset",
    "Dataset",
    "FeatureScaling",
    "OodDataset",
    "OodSplitData",
    "Scaling",
    "SplitData",
    "TableDataset",
    "add_dataset",
    "dataset_source",
    "get_dataset",
    "list_datasets",
    "random_split",
    "register_dataset",
    "stratified_split",
]
