"""Bounds for TensorBoard: what the training says, step for step, and no run fails of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bayesian_benchmarks import Experiment, ResultsStore, Settings, expand, run_experiment
from bayesian_benchmarks.errors import ConfigError
from bayesian_benchmarks.store import ResultRow
from bayesian_benchmarks.sweep.worker import Job, Notice, Step, do_job

SWEEP = Experiment(
    models=("svgp",),
    datasets=("diabetes",),
    splits=(0,),
    depths=(1,),
    settings=Settings(num_steps=120, num_inducing=5, elbo_samples=1, test_samples=2),
)
(RUN,) = expand(SWEEP)


def points(folder: Path) -> dict[int, float]:
    """The scalars of a run's event files."""
    import tensorflow as tf

    found = {}
    for path in folder.glob("events.*"):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                assert value.tag == "bound"
                assert value.metadata.plugin_data.plugin_name == "scalars"
                found[event.step] = float(tf.make_ndarray(value.tensor))
    return found


@pytest.mark.usefixtures("workers_here")
def test_a_sweep_writes_the_bounds_of_its_trainings(tmp_path: Path) -> None:
    """They are the means of which the row's history is made too; a worker is told where by its job's file."""
    store = ResultsStore(tmp_path / "results.sqlite")
    assert run_experiment(SWEEP, store, tensorboard=tmp_path / "b", progress=False).num_ok == 1
    found = points(tmp_path / "b" / RUN.directory_name)
    assert sorted(found) == [50, 100, 120]
    (row,) = store.rows()
    steps, bounds = (np.asarray(row.history[name]) for name in ("step", "elbo"))
    last = bounds[steps > 70]
    assert last.min() - 1e-4 <= found[120] <= last.max() + 1e-4


def test_a_run_goes_on_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told: list[object] = []
    job = Job(RUN, tmp_path / "run", 30.0, None, None, (), tensorboard=tmp_path / "file")
    outcome = do_job(job, told.append)
    assert isinstance(outcome, ResultRow)
    assert outcome.status == "ok"
    notices = [message.text for message in told if isinstance(message, Notice)]
    assert len(notices) == 1
    assert "no more bounds for TensorBoard" in notices[0]
    assert [message.number for message in told if isinstance(message, Step)] == [50, 100, 120]


def test_a_folder_that_cannot_be_made_is_refused_before_the_sweep(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = ResultsStore(tmp_path / "results.sqlite")
    with pytest.raises(ConfigError, match=r"Cannot make the folder .*file/b for TensorBoard"):
        run_experiment(SWEEP, store, tensorboard=tmp_path / "file" / "b", progress=False)
    assert store.rows() == []
