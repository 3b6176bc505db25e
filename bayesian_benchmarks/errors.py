"""What bad input raises: one line that says what was got, what is allowed and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class BenchmarkError(ValueError):
    """Bad input to the benchmark. The command lines print it as one line and exit with 2.

    >>> from bayesian_benchmarks import BenchmarkError, get_dataset
    >>> try:
    ...     get_dataset("diabetes", split=20)
    ... except BenchmarkError as error:
    ...     print(error)
    diabetes has no split 20; its 20 splits are 0 to 19.
    """


class UnknownNameError(BenchmarkError):
    """A dataset, model, metric or file name that is not known; lists those that are."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        """:param kind: what the name is of, such as "dataset"."""
        names = sorted(known)
        close = get_close_matches(str(name), names, n=2)
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        super().__init__(f"Unknown {kind} {name!r}.{hint} Known: {', '.join(names)}.")


class BadSplitError(BenchmarkError):
    """A train/test split that the dataset does not have."""


class BadDataError(BenchmarkError):
    """Data that cannot be used: missing values, text, too few rows, no target."""


class DataFileError(BenchmarkError):
    """A data file that is absent, altered, or cannot be downloaded or cached."""


class ConfigError(BenchmarkError):
    """An experiment's configuration that does not validate."""


class StoreError(BenchmarkError):
    """A results store or export file that cannot be read or written."""
