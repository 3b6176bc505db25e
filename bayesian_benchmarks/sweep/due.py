"""Which runs of an experiment are due."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ..store import ResultRow, ResultsStore, RunKey
from .environment import fingerprint
from .run import Run


@dataclass(frozen=True)
class Again:
    """Which of the runs that have a row are done again.

    :param failed: those that failed.
    :param changed: those that other code made than is here now.
    :param rescore: those that are "ok" are scored again, without training.

    >>> from bayesian_benchmarks.sweep import Again
    >>> Again(failed=True)
    Again(failed=True, changed=False, rescore=False)
    """

    failed: bool = False
    changed: bool = False
    rescore: bool = False


@dataclass
class Due:
    """What is to be done: `runs`, of which `rows` has the rows that are there already, by key.

    `done` are other runs that are stored as "ok"; `num_failed` is the number of those stored as failed.
    """

    runs: list[Run] = field(default_factory=list)
    rows: dict[RunKey, ResultRow] = field(default_factory=dict)
    done: list[Run] = field(default_factory=list)
    num_failed: int = 0


def due_runs(runs: Iterable[Run], store: ResultsStore, again: Again | None = None) -> Due:
    """The runs that the store has no row of, and those that are to be done again.

    >>> import pathlib, tempfile
    >>> from bayesian_benchmarks import Experiment, ResultsStore
    >>> from bayesian_benchmarks.sweep import due_runs, expand
    >>> experiment = Experiment(models=["dgp"], datasets=["diabetes"], splits=[0, 1], depths=[2])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = ResultsStore(pathlib.Path(folder, "results.sqlite"))
    ...     [str(run) for run in due_runs(expand(experiment), store).runs]
    ['diabetes split 0 dgp depth 2', 'diabetes split 1 dgp depth 2']
    """
    again, due = again or Again(), Due()
    rows = {row.key: row for row in store.rows()}
    for run in runs:
        row = rows.get(run.key)
        if row is None:
            if not again.rescore:
                due.runs.append(run)
        elif is_due(row, again):
            due.runs.append(run)
            due.rows[run.key] = row
        elif row.status == "failed":
            due.num_failed += 1
        else:
            due.done.append(run)
    return due


def is_due(row: ResultRow, again: Again) -> bool:
    """Whether a run that has this row is done again."""
    if again.rescore:
        return row.status == "ok"
    if again.changed and row.fingerprint != fingerprint():
        return True
    return again.failed and row.status == "failed"


def check_data(runs: Iterable[Run], data_dir: Path | None) -> None:
    """Load every split that is due, so that data that cannot be had end a sweep at its start.

    Those whose arrays are part of their key have been loaded for it.
    """
    for run in {(run.dataset, run.split): run for run in runs if not run.data}.values():
        run.load(data_dir)
