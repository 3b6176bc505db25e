"""Datasets: the registry, their sources (bundled, downloaded, CSV), splits and scaling."""

from . import bundled, uci_gal  # noqa: F401  (importing them registers their datasets)
from .csv_file import CsvDataset
from .dataset import Dataset, Scaling, SplitData, random_split
from .registry import dataset_source, get_dataset, list_datasets, register_dataset

__all__ = [
    "CsvDataset",
    "Dataset",
    "Scaling",
    "SplitData",
    "dataset_source",
    "get_dataset",
    "list_datasets",
    "random_split",
    "register_dataset",
]
