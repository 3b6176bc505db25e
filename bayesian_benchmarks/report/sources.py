"""Where a report's rows come from: stores and exports, each with the config that says of which paper."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..configs import CONFIGS, find_config
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
    def other_papers(self) -> Sequence[str]:
        """That print figures of the same runs."""
        return () if self.experiment is None else self.experiment.same_as

    @property
    def counts_output_layer(self) -> bool:
        """Whether the paper's depth does."""
        return self.experiment is None or self.experiment.depth_counts_output_layer


def open_source(path: Path, config: str | None = None) -> Source:
    """A results store, or a CSV export of one.

    :param config: whose rows they are, a file or the name of a packaged one. By default the packaged one
        of the file's name, or of its beginning, as ober2023 of ober2023_2.csv; none where there is none.
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
    found = _named_like(path.stem) if config is None else find_config(config)
    return Source(path.stem, path, rows, None if found is None else load_experiment(found))


def _named_like(name: str) -> Path | None:
    """The packaged config of a name, or of its longest beginning."""
    words = name.split("_")
    for end in range(len(words), 0, -1):
        packaged = CONFIGS / f"{'_'.join(words[:end])}.yaml"
        if packaged.is_file():
            return packaged
    return None
