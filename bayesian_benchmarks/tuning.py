"""Settings chosen by Optuna: a trial trains a model on every split at once, and sees no test part.

One process asks Optuna and writes down what comes of it; a run of a trial is a worker process, as of a sweep.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import BenchmarkError, ConfigError, StoreError
from .experiment import Experiment
from .models import model_source
from .models.registry import ModelSource
from .search_space import RATES, Space, suggested
from .settings import OF_PAPERS_SCHEDULE, Settings
from .store import ResultRow, digest_of
from .sweep.contract import PARTS
from .sweep.coordinator import how_it_died
from .sweep.engines import Exit, LocalEngine, Worker, end_all
from .sweep.environment import available_cores
from .sweep.job import Interrupted, Job, Notice, Refused, Step
from .sweep.locks import RunLock
from .sweep.run import Run, data_digest, expand
from .sweep.worker import CHECKPOINT_NAME, UNGUARDED, in_worker
from .tasks import find_task, list_tasks, metrics_of

if TYPE_CHECKING:
    import optuna

__all__ = ["TrainingPartRun", "Tuning"]

OBJECTIVES = {
    "elbo_per_point": "elbo_per_point",
    "validation_log_likelihood": "test_log_likelihood",  # of what is held out in place of a test part
}
"""What is maximised, and the metric of a trial's runs that it is."""


def tasks_to_tune() -> list[str]:
    """Tasks whose runs have all objectives, and whose datasets a training part of their own."""
    return [
        name
        for name in list_tasks()
        if hasattr(find_task(name).dataset, "training_part")
        and set(OBJECTIVES.values()) <= set(metrics_of(name))
    ]


PRUNERS = ("median", "hyperband", "none")

RUNGS = PARTS
"""Parts of a training, after each of which a trial may be pruned."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class TrainingPartRun(Run):
    """A run that has the split's training part alone.

    :param validation_fraction: of it that is held out, in place of the test part; None for nothing.

    >>> from bayesian_benchmarks import Settings
    >>> from bayesian_benchmarks.tuning import TrainingPartRun
    >>> run = TrainingPartRun(
    ...     "regression", "diabetes", 0, "dgp", 2, 0, Settings(), validation_fraction=0.25
    ... )
    >>> dataset = run.load()  # of the 398 rows that a run trains on
    >>> len(dataset.X_train), len(dataset.X_test)
    (298, 100)
    """

    validation_fraction: float | None = None

    def load(self, data_dir: Path | None = None) -> Any:
        """The training part, as a split of its own."""
        return super().load(data_dir).training_part(self.validation_fraction)


@dataclass(frozen=True)
class Tuning:
    """What is searched.

    :param experiment: of one model and one depth.
    :param objective: of `OBJECTIVES`.
    :param validation_fraction: of the training part, that "validation_log_likelihood" is of.

    >>> from bayesian_benchmarks import Experiment
    >>> from bayesian_benchmarks.search_space import Interval
    >>> from bayesian_benchmarks.tuning import Tuning
    >>> experiment = Experiment(models=["dgp"], datasets=["diabetes"], splits=[0], depths=[2])
    >>> tuning = Tuning(experiment, {"num_inducing": Interval(10, 50)})
    >>> tuning.experiment_of({"num_inducing": 20}).settings.num_inducing
    20
    """

    experiment: Experiment
    space: Space
    objective: str = "elbo_per_point"
    validation_fraction: float = 0.1
    data_dir: Path | None = None

    @property
    def source(self) -> ModelSource:
        """The model."""
        return model_source(self.experiment.model_names[0])

    @property
    def settings(self) -> Settings:
        """Those that are not searched."""
        return own_settings(self.experiment)

    def experiment_of(self, choices: Any) -> Experiment:
        """The experiment with an Optuna trial's choices, or with some by name."""
        if isinstance(choices, dict):
            from optuna.trial import FixedTrial

            choices = FixedTrial(choices)
        settings = suggested(self.space, self.source, self.settings, choices)
        chosen = {name.partition(".")[0] for name in self.space}
        if chosen & {"schedule", *RATES}:
            chosen |= {"schedule", *OF_PAPERS_SCHEDULE}
        overrides = [
            override.model_dump() | {"settings": rest}
            for override in self.experiment.overrides
            if (rest := {k: v for k, v in override.settings.items() if k not in chosen})
        ]
        return self.experiment.override(
            models=[self.source.name], settings=settings, overrides=overrides
        )

    def runs(self, experiment: Experiment) -> list[TrainingPartRun]:
        """The runs of a trial: one for each dataset, split and seed."""
        held_out = self.objective == "validation_log_likelihood"
        fraction = self.validation_fraction if held_out else None
        found = [
            TrainingPartRun(
                **{part.name: getattr(run, part.name) for part in fields(run)},
                validation_fraction=fraction,
            )
            for run in expand(experiment, self.data_dir)
        ]
        return [replace(run, data=self._digest(run)) for run in found]

    def _digest(self, run: TrainingPartRun) -> str:
        """Of the part's arrays; "" for files that the package itself pins."""
        if not run.data:
            return ""
        part = run.dataset, run.split, run.data
        if part not in self._digests:
            self._digests[part] = data_digest(run.load(self.data_dir))
        return self._digests[part]

    @cached_property
    def _digests(self) -> dict[tuple[str, int, str], str]:
        """Those found: images take seconds to load, and every trial asks."""
        return {}

    @cached_property
    def name(self) -> str:
        """Of the study: the same for the same command."""
        runs = [
            [run.dataset, run.split, run.seed, run.validation_fraction, run.settings_json]
            for run in self.runs(self.experiment)
        ]
        evaluation = sorted(self.settings.model_dump(include=set(Settings.of_evaluation)).items())
        space = [[name, repr(found)] for name, found in sorted(self.space.items())]
        what = json.dumps([self.experiment.task, self.objective, runs, evaluation, space])
        return f"{self.source.name}-{digest_of(what)}"


def own_settings(experiment: Experiment) -> Settings:
    """The settings of an experiment's one model, without those of some datasets or depths."""
    return experiment.override(overrides=()).settings_of(experiment.models[0], "", 0)


def open_study(tuning: Tuning, path: Path, pruner: str = "median") -> optuna.Study:
    """The study in an SQLite file, new or as it was left.

    :raises BenchmarkError: Optuna is not installed, or cannot use the file.
    """
    try:
        import optuna
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError as error:
        raise BenchmarkError(
            "Tuning needs Optuna, which is not installed: pip install 'gpflow-dkp[tune]'."
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    pruners = {
        "median": optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=2),
        "hyperband": optuna.pruners.HyperbandPruner(max_resource=RUNGS),
        "none": optuna.pruners.NopPruner(),
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return optuna.create_study(
            storage=optuna.storages.RDBStorage(f"sqlite:///{path}"),
            pruner=pruners[pruner],
            study_name=tuning.name,
            direction="maximize",
            load_if_exists=True,
        )
    except (OSError, RuntimeError, SQLAlchemyError, optuna.exceptions.OptunaError) as error:
        reason = " ".join(str(error).split())[:200]
        raise StoreError(f"Cannot use {path} as Optuna's storage ({reason}).") from error


def tune(
    tuning: Tuning, study: optuna.Study, folder: Path, *, trials: int, jobs: int, say: Say
) -> None:
    """Do trials until the study has as many as `trials`, `jobs` at a time.

    One that a kill left half-way goes on from its checkpoints. One that fails is stored as that.

    :param folder: for checkpoints.
    :raises BenchmarkError: another process is at it, or the model has no such objective.
    """
    if in_worker():
        raise BenchmarkError(UNGUARDED)
    lock = RunLock(folder / "lock")
    if not lock.acquire():
        raise BenchmarkError(f"Another process is at this study: {folder} is locked; wait for it.")
    active: list[_Trial] = []
    engine = LocalEngine(jobs)
    try:
        left = _left_running(study)
        while True:
            while len(active) < jobs and (left or _count(study) < trials):
                asked = left.pop(0) if left else _ask(study)
                active.append(_Trial(tuning, asked, folder, engine))
            if not active:
                break
            if not any([trial.listen() for trial in active]):
                time.sleep(engine.poll_seconds)
            for trial in [trial for trial in active if trial.end is not None]:
                active.remove(trial)
                say(f"{trial.store(study)} ({_count(study, ended=True)} of {trials})")
    finally:
        end_all([worker for trial in active for worker in trial.working])
        lock.release()
        if not any(folder.iterdir()):
            folder.rmdir()


def _left_running(study: optuna.Study) -> list[optuna.Trial]:
    """Trials that a kill left half-way."""
    from optuna.trial import Trial, TrialState

    frozen = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    return [Trial(study, trial._trial_id) for trial in frozen]


def _count(study: optuna.Study, ended: bool = False) -> int:
    trials = study.get_trials(deepcopy=False)
    return sum(trial.state.is_finished() or not ended for trial in trials)


def _ask(study: optuna.Study) -> optuna.Trial:
    """A new trial, by random numbers of its own: a study that was left goes on as it would have."""
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.sampler = optuna.samplers.TPESampler(seed=_count(study), constant_liar=True)
    return study.ask()


@dataclass(frozen=True)
class _End:
    """How a trial ended; `text` says it."""

    state: str
    text: str
    rows: tuple[ResultRow, ...] = ()


@dataclass
class _Trial:
    """A trial under way: a worker for each run."""

    tuning: Tuning
    trial: Any
    folder: Path
    engine: LocalEngine
    end: _End | None = None
    working: list[Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._directory = self.folder / f"trial{self.trial.number}"
        self._workers: list[Worker] = []
        try:
            experiment = self.tuning.experiment_of(self.trial)
            runs = self.tuning.runs(experiment)
        except BenchmarkError as error:  # choices that are allowed each, and not together
            self.end = _End("FAIL", f"failed: {error}")
            return
        threads = max(1, available_cores() // (self.engine.num_slots * len(runs)))
        self._bounds: list[dict[int, float]] = [{} for _ in runs]
        self._told = set(self.trial.study.trials[self.trial.number].intermediate_values)
        for run in runs:
            job = Job(
                run=run,
                directory=self._directory / run.directory_name,
                checkpoint_seconds=experiment.checkpoint_seconds,
                data_dir=self.tuning.data_dir,
                num_threads=threads,
                plugins=(*experiment.plugins, __name__),  # which has the runs' class
            )
            self._workers.append(Worker(job, self.engine))
            self.working.append(self._workers[-1])

    def listen(self) -> bool:
        """Take in what workers say, and see whether the trial has ended; returns whether anything is new."""
        any_news = False
        for number, worker in enumerate(self._workers if self.end is None else ()):
            if worker not in self.working or self.end is not None:
                continue
            any_news |= worker.listen(lambda message, number=number: self._take(number, message))  # type: ignore[misc]
            if worker.ended:
                self.working.remove(worker)
                self._ended(worker)
        if self.end is None and self._is_pruned():
            self.end = _End(
                "PRUNED", f"pruned after {100 * max(self._told) // RUNGS} % of the steps"
            )
        if self.end is None and not self.working:
            rows = tuple(w.outcome for w in self._workers if isinstance(w.outcome, ResultRow))
            self.end = _End("COMPLETE", "", rows)
        if self.end is not None:
            for worker in self.working:
                worker.end(0.0)
        return any_news

    def _take(self, number: int, message: Step | Notice) -> None:
        """Note the bound of a run at a rung."""
        if isinstance(message, Step) and message.bound is not None:
            rung = RUNGS * message.number // self._workers[number].job.run.settings.num_steps
            if 0 < rung < RUNGS:
                self._bounds[number].setdefault(rung, message.bound)

    def _is_pruned(self) -> bool:
        """Tell Optuna of the rungs that all runs have reached, and ask it."""
        reached = set.intersection(*(set(bounds) for bounds in self._bounds)) - self._told
        for rung in sorted(reached):
            self.trial.report(float(np.mean([bounds[rung] for bounds in self._bounds])), rung)
            self._told.add(rung)
            if self.trial.should_prune():
                return True
        return False

    def _ended(self, worker: Worker) -> None:
        """See whether a worker's end is a failure."""
        outcome = worker.outcome
        if isinstance(outcome, ResultRow) and outcome.status == "ok":
            return
        if isinstance(outcome, ResultRow):
            error = outcome.error
        elif isinstance(outcome, Interrupted | Refused):
            error = outcome.reason
        else:
            error = how_it_died(worker.exit or Exit())
        self.end = _End("FAIL", f"failed on {worker.job.run}: {error}")

    def store(self, study: optuna.Study) -> str:
        """Write down how it ended, and say so in a line.

        :raises ConfigError: the runs have no such metric.
        """
        from optuna.trial import TrialState

        assert self.end is not None
        end, metric = self.end, OBJECTIVES[self.tuning.objective]
        if lacking := [row for row in end.rows if metric not in row.metrics]:
            end = _End("FAIL", f"failed: {lacking[0].model} has no {self.tuning.objective}")
        value, text = None, end.text
        if end.state == "COMPLETE":
            values = [row.metrics[metric] for row in end.rows]
            value = float(np.mean(values))
            seconds = sum(row.metrics["seconds"] for row in end.rows)
            self.trial.set_user_attr("values", values)
            self.trial.set_user_attr("seconds", seconds)
            text = f"{self.tuning.objective} {mean_and_error(values)} in {seconds:.0f} s"
        if end.state == "FAIL":
            self.trial.set_user_attr("error", text)
        study.tell(self.trial, value, state=TrialState[end.state])
        if end.state == "FAIL":  # its log stays
            for checkpoint in self._directory.glob(f"*/{CHECKPOINT_NAME}"):
                shutil.rmtree(checkpoint, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                shutil.rmtree(self._directory)
        if lacking:
            others = " or ".join(name for name in OBJECTIVES if name != self.tuning.objective)
            raise ConfigError(f"{text.removeprefix('failed: ')}; give --objective {others}.")
        return f"trial {self.trial.number}: {text}, {_choices(self.trial.params)}"


def mean_and_error(values: list[float]) -> str:
    """The mean with its standard error over runs, where there are several."""
    mean = f"{np.mean(values):.4f}"
    if len(values) < 2:
        return mean
    return f"{mean} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.4f}"


def _choices(params: dict[str, Any]) -> str:
    return ", ".join(f"{name} {shown(value)}" for name, value in params.items())


def shown(value: Any) -> str:
    """A setting's value in a line or table."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def importances(study: optuna.Study) -> Iterator[tuple[str, float]]:
    """How much of the objective's variance each setting explains, of those that every trial chose."""
    import optuna

    done = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    if len({trial.value for trial in done}) < 4:
        return
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    yield from optuna.importance.get_param_importances(study, evaluator=evaluator).items()
