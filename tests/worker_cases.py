"""Workers of a sweep or a search that are no processes of their own: TensorFlow is imported once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bayesian_benchmarks.sweep.contract import (
    Progress,
    read_job_file,
    write_outcome,
    write_progress,
)
from bayesian_benchmarks.sweep.engines import Exit, LocalEngine
from bayesian_benchmarks.sweep.job import Notice, Step
from bayesian_benchmarks.sweep.worker import do_job


class DoneHere:
    """A worker that has done its job in this process when it is there.

    What passes between it and whoever started it goes through the files of the run's folder, as ever.
    """

    def __init__(self, path: Path) -> None:
        file = read_job_file(path)
        file.import_plugins()
        told: list[Step | Notice] = []
        # TensorFlow's threads are those of the process.
        outcome = do_job(replace(file.job(path), num_threads=None), told.append)
        steps = [message for message in told if isinstance(message, Step)] or [Step(0)]
        notices = tuple(message.text for message in told if isinstance(message, Notice))
        write_progress(path.parent, Progress(steps[-1], tuple(steps), notices))
        write_outcome(path.parent, outcome)

    def poll(self) -> Exit:
        return Exit(0)

    def stop(self, began: bool) -> None:
        pass

    def kill(self) -> None:
        pass


def do_jobs_here(patch: pytest.MonkeyPatch) -> None:
    """Let this machine's engine start no processes."""
    patch.setattr(LocalEngine, "start", lambda engine, path, job: DoneHere(path))
