"""`fit`: any number of steps, with checkpoints, validation, and callbacks in between."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes.exceptions import CheckShapesError
from gpflow.base import RegressionData
from gpflow.models import BayesianModel
from tqdm.auto import tqdm

from ..checks import check_positive_integer
from ..models import MonteCarloModel
from ..models.checks import check_arrays, check_targets
from .agreement import fingerprint
from .arguments import (
    Callback,
    check_callbacks,
    check_directory,
    check_pair,
    check_patience,
    check_progress,
    check_seconds,
)
from .checkpoint import CheckpointError, Checkpoints
from .history import History
from .plan import STEPS_PER_CALL
from .recipe import Recipe
from .schedules import LearningRate
from .trainer import Trainer

logger = logging.getLogger(__name__)


def fit(
    model: BayesianModel,
    data: RegressionData | tf.data.Dataset | None = None,
    *,
    num_steps: int | None = None,
    max_seconds: float | None = None,
    batch_size: int | None = None,
    schedule: str | Recipe = "fast",
    learning_rate: LearningRate | None = None,
    optimizer: Any = None,
    kl_annealing_steps: int | None = None,
    natural_gradient: LearningRate | None = None,
    seed: int = 0,
    strategy: tf.distribute.Strategy | None = None,
    checkpoint_dir: str | Path | None = None,
    checkpoint_seconds: float = 30.0,
    validation_data: RegressionData | None = None,
    validation_steps: int = 1000,
    patience: int | None = None,
    callbacks: Iterable[Callback] = (),
    progress: bool = True,
) -> History:
    """Maximise the model's bound by Adam, and natural gradients for the output layer where asked for.

    The log densities of GPflow priors on trainable parameters are added to the bound, as in GPflow's
    `training_loss`: those parameters go to their maximum a posteriori. The history's bound is without.

    Every random number follows from `seed` and the step, so a run that was killed and is started
    again with the same `checkpoint_dir` ends with the numbers of an unbroken one. A longer run goes on from
    the end of a shorter one, unless a schedule is of fractions of the steps, or `patience` is set.

    A step whose loss or gradient is not finite (a covariance that has no Cholesky factor) is not
    applied: it is repeated with 10, 100 and 1000 times the jitters of the model and its layers, logged and
    counted in the history.

    GPflow's own models, as `SVGP`, `SGPR` and `GPR`, are trained by their `training_loss`, priors included,
    without annealing and more jitter; the history's bound is its negative.

    :param model: trained in place; its `kl_weight` is afterwards what it was, also when `fit` is interrupted.
    :param data: X [N, D] and Y [N, P]; where one is a `numpy.memmap`, minibatches are read from the disk. Or
        a `tf.data.Dataset` of batches (X, Y), taken in its order and from its beginning when they end; its
        number of rows is the model's `num_data`, or counted where the dataset ends. None for a GPflow model
        that has its data inside.
    :param num_steps: number of steps; None for as many as fit into `max_seconds`, or with neither until the
        bound has stopped rising: training then goes on at the schedule's highest rate until the mean bound of
        a quarter of the steps is hardly above that of the quarter before, and for as many steps again while
        the rate falls. The history's `ended` says how it was.
    :param max_seconds: time of the run, compilation included.
    :param batch_size: rows a step, default and at most N; None where the data come in batches.
    :param schedule: how Adam steps and the KL term is annealed: "fast", high rates that fall smoothly and an
        annealing over half of the steps, 2 500 at most, of a `LatentVariableDGP` over a tenth of them where
        VI infers latent variables, and none otherwise; "paper", as in [ICML21], [NeurIPS21] and [UAI23]; or a
        `Recipe`.
    :param learning_rate: Adam's, in place of the schedule's: a rate, pairs (fraction of the steps from which
        it holds, rate), an `ExponentialDecay` or a `Cosine`. None with an optimizer.
    :param optimizer: of Keras 3 or tf_keras, with its own rate or schedule; default Adam.
    :param kl_annealing_steps: the KL term's weight rises from 0 to the model's `kl_weight` over these steps,
        and with it to 1 that of the latent variables of a `LatentVariableDGP`; 0 for none, None for the
        schedule's part of the steps and no more than its limit, 1 000 where their number is not known.
    :param natural_gradient: step size, given as `learning_rate` is, of natural-gradient steps of the
        output layer's posterior, which the optimizer then leaves; both are of the same minibatch. Default the
        schedule's, where there is no `optimizer`: none but for a `LatentVariableDGP`. A step
        that leaves no positive-definite matrix, or with global inducing points lowers the minibatch's
        bound, is halved until it does not, counted in the history's `halvings`.
    :param seed: an integer.
    :param strategy: whose devices share each step's work, as `tf.distribute.MirroredStrategy()`: samples, and
        where there are more devices than samples rows too. The run is the same but for rounding. The model
        is made outside of its scope; `GWI` and GPflow's models but for `SVGP` cannot be shared.
    :param checkpoint_dir: where the state is kept, one run a directory.
    :param checkpoint_seconds: least time between two checkpoints.
    :param validation_data: its mean log density is recorded every `validation_steps` steps, at the end of
        the 50 steps that contain one, and at the last.
    :param patience: stop when so many validations in a row were no better than one before, and end with
        the parameters of the best, also when all the steps were taken.
    :param callbacks: called every 50 steps with the number of steps done, as a `gpflow.monitor.Monitor` is,
        or where they take two arguments with (step, history); `history.elbo[-1]` is the bound of the last
        step per data point.
    :param progress: show a bar with the bound per point, named objective where it is none, and the time
        left.
    :raises ValueError: for bad data or settings, or a checkpoint of another run.
    :raises TrainingFailed: when no jitter makes a step finite, naming the layer.

    >>> model = gpflow_dkp.models.DGP.from_data(X, Y, num_inducing=3)
    >>> before = model.trainable_variables[0].numpy()
    >>> history = gpflow_dkp.training.fit(model, (X, Y), num_steps=5, batch_size=4, progress=False)
    >>> history.num_steps, np.allclose(model.trainable_variables[0], before)
    (5, False)
    """
    trainer = Trainer(
        model,
        data,
        num_steps=num_steps,
        max_seconds=max_seconds,
        batch_size=batch_size,
        schedule=schedule,
        learning_rate=learning_rate,
        optimizer=optimizer,
        kl_annealing_steps=kl_annealing_steps,
        natural_gradient=natural_gradient,
        seed=seed,
        strategy=strategy,
    )
    return run(
        trainer,
        checkpoint_dir=checkpoint_dir,
        checkpoint_seconds=checkpoint_seconds,
        validation_data=validation_data,
        validation_steps=validation_steps,
        patience=patience,
        callbacks=callbacks,
        progress=progress,
    )


def run(
    trainer: Trainer,
    *,
    checkpoint_dir: str | Path | None = None,
    checkpoint_seconds: float = 30.0,
    validation_data: RegressionData | None = None,
    validation_steps: int = 1000,
    patience: int | None = None,
    callbacks: Iterable[Callback] = (),
    progress: bool = True,
) -> History:
    """Take a trainer's steps, from its first or a checkpoint's to its plan's last; arguments as in `fit`."""
    model, num_steps, max_seconds = trainer.model, trainer.num_steps, trainer.max_seconds
    check_directory(checkpoint_dir)
    check_seconds("checkpoint_seconds", checkpoint_seconds)
    check_positive_integer("validation_steps", validation_steps)
    if validation_data is not None:
        validation_data = check_validation(model, validation_data)
    check_patience(patience, validation_data)
    called = check_callbacks(callbacks)
    check_progress(progress)
    items: dict[str, tf.Module] = {"model": model, **trainer.state}
    best = None
    of_num_steps = list(trainer.of_num_steps)
    trainer.settings["patience"] = patience
    if patience is not None and validation_data is not None:
        best = items["best"] = Snapshot(model.trainable_variables)
        # With patience, what is validated decides the result, and the last step is validated.
        trainer.settings["validation"] = [validation_steps, fingerprint(validation_data)]
        of_num_steps.append("patience")
    reasons: dict[str, str] = {}
    if of_num_steps:
        because = f"on which {' and '.join(of_num_steps)} depends"
        trainer.settings |= {"num_steps": num_steps, "max_seconds": max_seconds}
        reasons |= {"num_steps": because, "max_seconds": because}
    checkpoints = None
    if checkpoint_dir is not None:
        checkpoints = Checkpoints(checkpoint_dir, trainer.settings, reasons, **items)
    step, history = (checkpoints.restore() if checkpoints else None) or (0, History())
    history.earlier_seconds = history.seconds
    if num_steps is not None and step > num_steps:
        trainer.objective.finish()
        raise CheckpointError(
            f"num_steps: got {num_steps}, the checkpoint in {checkpoint_dir} has {step} steps already; give "
            "at least as many, or another directory"
        )
    plan, history.ended = trainer.plan, ""
    stretch = plan.next(step, history)
    if stretch is not None and not due(step, validation_steps):
        history.drop_validation(step)  # of the end of a shorter run
    trainer.data.start_at(step)
    shown = "ELBO" if getattr(model, "objective_is_bound", True) else "objective"
    bar = tqdm(
        total=plan.expected_steps,
        initial=step,
        disable=not progress,
        unit="step",
        dynamic_ncols=True,
    )
    last_saved = time.monotonic()
    try:
        with bar:
            while stretch is not None and not exhausted(history, patience):
                bar.total = plan.expected_steps
                step = trainer.advance(step, stretch, history)
                bar.update(stretch.size)
                bar.set_postfix_str(f"{shown}/N {history.elbo[-1]:.4f}", refresh=False)
                stretch = plan.next(step, history)
                is_last = stretch is None
                if validation_data is not None and (is_last or due(step, validation_steps)):
                    history.validation.append((step, held_out_log_density(model, validation_data)))
                    if best is not None and history.best_validation[0] == step:
                        best.take()
                try:
                    for callback in called:
                        callback(step, history)
                except KeyboardInterrupt:
                    if checkpoints:
                        checkpoints.save(step, history)
                    raise
                if checkpoints and (
                    is_last
                    or exhausted(history, patience)
                    or time.monotonic() - last_saved >= checkpoint_seconds
                ):
                    checkpoints.save(step, history)
                    last_saved = time.monotonic()
        if exhausted(history, patience):
            history.ended = f"{patience} validations in a row were no better than one before"
        if num_steps is None:
            logger.info("%s", history.ended)
            if progress:
                tqdm.write(f"Training is over: {history.ended}.", file=sys.stderr)
        if best is not None:
            best.restore()
    finally:
        trainer.objective.finish()
    return history


def due(step: int, validation_steps: int) -> bool:
    """Whether there is a validation after `step`: after a call that contains one."""
    start = (step - 1) // STEPS_PER_CALL * STEPS_PER_CALL
    return step % STEPS_PER_CALL == 0 and step // validation_steps > start // validation_steps


def held_out_log_density(model: BayesianModel, data: RegressionData) -> float:
    """Mean log density of held-out data, as the model itself takes it if it says how."""
    if isinstance(model, MonteCarloModel):
        return model.held_out_log_density(data)
    return float(np.mean(model.predict_log_density(data)))


def check_validation(model: BayesianModel, data: RegressionData) -> RegressionData:
    """Held-out data as arrays.

    :raises ValueError: for no rows, or data that the model does not take.
    """
    X, Y = check_pair("validation_data", data)
    if np.ndim(X) and np.shape(X)[0] == 0:
        raise ValueError("validation_data: got no rows, needs at least 1")
    try:
        X, Y = check_arrays(X, Y, min_rows=1)
        check_targets(getattr(model, "likelihood", None), Y)
        model.predict_log_density((X[:1], Y[:1]))
    except (ValueError, CheckShapesError, tf.errors.InvalidArgumentError) as error:
        first, *_ = str(error).splitlines()
        raise ValueError(f"validation_data: {first.removeprefix('data: ')}") from error
    return X, Y


def exhausted(history: History, patience: int | None) -> bool:
    """Whether the last `patience` validations were no better than one before them."""
    if patience is None or not history.validation:
        return False
    steps = [step for step, _ in history.validation]
    return len(steps) - 1 - steps.index(history.best_validation[0]) >= patience


class Snapshot(tf.Module):
    """Values of variables, kept to return to."""

    def __init__(self, variables: Sequence[tf.Variable], name: str | None = None) -> None:
        super().__init__(name=name)
        self._variables = tuple(variables)
        self.values = [tf.Variable(variable, trainable=False) for variable in variables]

    def take(self) -> None:
        """Keep the variables' values."""
        for value, variable in zip(self.values, self._variables, strict=True):
            value.assign(variable)

    def restore(self) -> None:
        """Set the variables to the values kept."""
        for value, variable in zip(self.values, self._variables, strict=True):
            variable.assign(value)
