"""The process that does one run: loads its data, trains, scores, and reports through a pipe.

A fresh process for each run: no state of an earlier run can change its numbers, its memory goes
back to the system, and if it is killed only its run is lost.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from multiprocessing import connection
from pathlib import Path

from .results import ResultRow
from .results.environment import git_commit, hardware, versions
from .runs import Run, import_plugin

LOG_NAME = "log.txt"
"""Beside a run's checkpoint: its warnings and traceback, removed with it when the run is done."""


@dataclass(frozen=True)
class Job:
    """A run, and what it needs besides: nothing here changes its numbers.

    `directory` is for its checkpoint and log; `num_threads` is the number of cores that it may use,
    None to leave TensorFlow's threads as they are.
    """

    run: Run
    directory: Path
    checkpoint_seconds: float
    data_dir: Path | None
    num_threads: int | None
    plugins: tuple[str, ...]


def work(job: Job, pipe: connection.Connection) -> None:
    """Do a job in a worker process; sends step counts (int, 0 at once), then the `ResultRow`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe.send(0)
    _send_errors_to(job.directory / LOG_NAME)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    pipe.send(do_job(job, pipe.send))
    pipe.close()


def do_job(job: Job, report_step: Callable[[int], None]) -> ResultRow:
    """Do a job in this process. An exception becomes a row of status "failed"."""
    code = (versions(), git_commit())
    try:
        metrics = _measure(job, report_step)
    except Exception as error:
        traceback.print_exc()
        message = f"{type(error).__name__}: {error}"
        return result_row(job.run, code, hardware(), error=message)
    return result_row(job.run, code, hardware(), metrics=metrics)


def result_row(
    run: Run,
    code: tuple[str, str],
    hardware: str,
    *,
    metrics: dict[str, float] | None = None,
    error: str = "",
) -> ResultRow:
    """The row of a run that has ended now: failed if there is an error.

    :param code: package versions and git commit.
    """
    return ResultRow(
        task=run.task,
        dataset=run.dataset,
        split=run.split,
        model=run.model,
        settings_hash=run.settings_hash,
        seed=run.seed,
        depth=run.depth,
        settings=run.settings_json,
        status="failed" if error else "ok",
        error=" ".join(error.split())[:500],
        metrics=metrics or {},
        recorded_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        hardware=hardware,
        versions=code[0],
        git_commit=code[1],
    )


def _measure(job: Job, report_step: Callable[[int], None]) -> dict[str, float]:
    """The run's metrics."""
    from .models import model_source
    from .tasks import run_task

    for plugin in job.plugins:
        import_plugin(plugin)
    run = job.run
    dataset = run.load(job.data_dir)
    if job.num_threads is not None and model_source(run.model).uses_tensorflow:
        from gpflow_dkp.training import configure_threads

        configure_threads(job.num_threads)
    return run_task(
        dataset,
        run.model,
        task=run.task,
        depth=run.depth,
        seed=run.seed,
        settings=run.settings,
        checkpoint_dir=job.directory / "checkpoint",
        checkpoint_seconds=job.checkpoint_seconds,
        report_step=report_step,
    )


def _send_errors_to(path: Path) -> None:
    """Append to a file what this process, TensorFlow's C++ part included, writes to stderr."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())


def _die_with_parent() -> None:
    """End this process when its parent ends, so that nothing goes on after a SIGKILL of it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
