"""Where a report's rows come from: stores and exports, each with the config that says of which paper."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import StoreError
from ..experiment import Experiment, load_experiment
from ..store import ResultRow, ResultsStore


@dataclass(frozen=True)
class Source:
    """Rows of one experiment.

    :param name: of the file, without its ending.
    :param path: of the file.
    :param experiment: its config; None where there is none.
    """

    name: str
    path: Path
    rows: Sequence[ResultRow]
    experiment: Experiment | None

    @property
    def paper(self) -> str | None:
        """Whose figures are beside ours."""
        return None if self.experiment is None else self.experiment.paper

    @property
    def counts_output_layer(self) -> bool:
        """Whether the paper's depth does."""
        return self.experiment is None or self.experiment.depth_counts_output_layer


def open_source(path: Path, configs: Path, config: str | None = None) -> Source:
    """A results store, or a CSV export of one.

    :param configs: the folder of configs; that of the file's name is taken, or of its beginning, as
        ober2023.yaml of ober2023_fast_2.csv.
    :param config: a file, or a name in `configs`, instead.
    :raises BenchmarkError: a file that is neither, or a config that cannot be read.
    """
    if not path.is_file():
        raise StoreError(f"Cannot read {path}; give a results store or an export of one.")
    if path.suffix.lower() == ".csv":
        with tempfile.TemporaryDirectory() as folder:
            store = ResultsStore(Path(folder) / "rows.sqlite")
            store.import_(path)
            rows = store.rows()
    else:
        rows = ResultsStore(path).rows()
    found = _find_config(path.stem if config is None else config, configs, config is not None)
    return Source(path.stem, path, rows, None if found is None else load_experiment(found))


def _find_config(name: str, configs: Path, must_be: bool) -> Path | None:
    if must_be:
        packaged = configs / f"{name}.yaml"
        return packaged if packaged.is_file() else Path(name)
    words = name.split("_")
    for end in range(len(words), 0, -1):
        packaged = configs / f"{'_'.join(words[:end])}.yaml"
        if packaged.is_file():
            return packaged
    return None
