"""`fit`: Adam with the papers' schedules, made to survive kills and failed factorisations."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import gpflow
import tensorflow as tf
from gpflow.base import RegressionData
from tqdm.auto import tqdm

from ..checks import check_positive_integer
from ..models import MonteCarloModel
from ..models.checks import check_arrays, check_labels
from ..random import as_seed, fold_in
from .adam import FlatAdam
from .checkpoint import Checkpoints
from .data import Minibatch, TrainingData, fingerprint
from .diagnosis import describe_failure
from .history import History
from .natural_gradient import natural_gradient_of
from .schedules import (
    PAPER_LEARNING_RATE,
    LearningRate,
    check_learning_rate,
    kl_weight_at,
    learning_rate_at,
)

logger = logging.getLogger(__name__)

STEPS_PER_CALL = 50
JITTER_FACTORS = (10.0, 100.0, 1000.0)
"""By how much a step whose loss or gradient is not finite is retried with more jitter."""


class TrainingFailed(ValueError):  # noqa: N818  # says what happened
    """A step's loss or gradient is not finite with any jitter that was tried."""


def fit(
    model: MonteCarloModel,
    data: RegressionData,
    *,
    num_steps: int,
    batch_size: int | None = None,
    learning_rate: LearningRate = PAPER_LEARNING_RATE,
    kl_annealing_steps: int = 1000,
    natural_gradient: LearningRate | None = None,
    seed: int = 0,
    checkpoint_dir: str | Path | None = None,
    checkpoint_seconds: float = 30.0,
    validation_data: RegressionData | None = None,
    validation_steps: int = 1000,
    patience: int | None = None,
    callbacks: Iterable[Callable[[int], Any]] = (),
    progress: bool = True,
) -> History:
    """Maximise the model's bound by Adam, and natural gradients for the output layer where asked for.

    The log densities of GPflow priors on trainable parameters are added to the bound, as in GPflow's
    `training_loss`: those parameters go to their maximum a posteriori. The history's bound is without.

    Every random number follows from `seed` and the step, so a run that was killed and is started
    again with the same `checkpoint_dir` ends with the numbers of an unbroken one.

    A step whose loss or gradient is not finite (a covariance that has no Cholesky factor) is not
    applied: it is repeated with 10, 100 and 1000 times the jitter, logged and counted in the history.

    :param model: trained in place; its `kl_weight` is 1 afterwards, also when `fit` is interrupted.
    :param data: X [N, D] and Y [N, P]; where one is a `numpy.memmap`, minibatches are read from the disk.
    :param num_steps: number of steps.
    :param batch_size: rows a step, default and at most N.
    :param learning_rate: Adam's: a rate, pairs (fraction of the steps from which it holds, rate), or an
        `ExponentialDecay`.
    :param kl_annealing_steps: the KL term's weight rises from 0 to 1 over these steps; 0 for none.
    :param natural_gradient: step size, given as `learning_rate` is, of natural-gradient steps of the
        output layer's posterior, which Adam then leaves; both are of the same minibatch. A step that
        leaves no positive-definite matrix is halved until it does, counted in the history's `halvings`.
    :param checkpoint_dir: where the state is kept, one run a directory.
    :param checkpoint_seconds: least time between two checkpoints.
    :param validation_data: its mean log density is recorded every `validation_steps` steps, at the end of
        the 50 steps that contain one, and at the last.
    :param patience: stop when so many validations in a row were no better than one before, and end with
        the parameters of the best, also when all the steps were taken.
    :param callbacks: called with the number of steps done, every 50 steps; a `gpflow.monitor.Monitor`
        is one.
    :param progress: show a bar with the bound per point and the time left.
    :raises ValueError: for bad data or settings, or a checkpoint of another run.
    :raises TrainingFailed: when no jitter makes a step finite, naming the layer.
    """
    trainer = Trainer(
        model,
        data,
        num_steps=num_steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        kl_annealing_steps=kl_annealing_steps,
        natural_gradient=natural_gradient,
        seed=seed,
    )
    check_positive_integer("validation_steps", validation_steps)
    if validation_data is not None:
        validation_data = check_validation(model, validation_data)
    items: dict[str, tf.Module] = {"model": model, "optimizer": trainer.optimizer}
    best = None
    if patience is not None:
        check_positive_integer("patience", patience)
        if validation_data is None:
            raise ValueError(f"patience: got {patience}, needs validation_data to judge by")
        best = items["best"] = Snapshot(model.trainable_variables)
        # With patience, what is validated decides the result.
        trainer.settings["patience"] = patience
        trainer.settings["validation"] = [validation_steps, fingerprint(validation_data)]
    checkpoints = None
    if checkpoint_dir is not None:
        checkpoints = Checkpoints(checkpoint_dir, trainer.settings, **items)
    step, history = (checkpoints.restore() if checkpoints else None) or (0, History())
    bar = tqdm(total=num_steps, initial=step, disable=not progress, unit="step", dynamic_ncols=True)
    last_saved = time.monotonic()
    try:
        with bar:
            while step < num_steps and not exhausted(history, patience):
                size = min(STEPS_PER_CALL - step % STEPS_PER_CALL, num_steps - step)
                step, done = trainer.advance(step, size, history)
                bar.update(done)
                bar.set_postfix_str(f"ELBO/N {history.elbo[-1]:.4f}", refresh=False)
                if validation_data is not None and (
                    step % validation_steps < done or step == num_steps
                ):
                    history.validation.append((step, model.held_out_log_density(validation_data)))
                    if best is not None and history.best_validation[0] == step:
                        best.take()
                for callback in callbacks:
                    callback(step)
                if checkpoints and (
                    step == num_steps
                    or exhausted(history, patience)
                    or time.monotonic() - last_saved >= checkpoint_seconds
                ):
                    checkpoints.save(step, history)
                    last_saved = time.monotonic()
        if best is not None:
            best.restore()
    finally:
        model.kl_weight.assign(1.0)
    return history


def check_validation(model: MonteCarloModel, data: RegressionData) -> RegressionData:
    """Held-out data as arrays.

    :raises ValueError: for no rows, or data that the model does not take.
    """
    if len(data[0]) == 0:
        raise ValueError("validation_data: got no rows, needs at least 1")
    checked = check_arrays(*data, min_rows=1)
    model._check_data(checked)
    return checked


def exhausted(history: History, patience: int | None) -> bool:
    """Whether the last `patience` validations were no better than one before them."""
    if patience is None or not history.validation:
        return False
    steps = [step for step, _ in history.validation]
    return len(steps) - 1 - steps.index(history.best_validation[0]) >= patience


def describe_parameter(parameter: gpflow.Parameter) -> list[Any]:
    """Shape and transform, and of a prior its name and its density somewhere, which tells two apart."""
    description = [list(parameter.shape), getattr(parameter.transform, "name", None)]
    if parameter.prior is not None:
        somewhere = tf.fill(parameter.shape, tf.constant(0.5, parameter.dtype))
        density = float(tf.reduce_sum(parameter.prior.log_prob(somewhere)))
        description += [parameter.prior.name, repr(density)]
    return description


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


class Trainer:
    """The compiled steps of `fit`, whose arguments these are."""

    def __init__(
        self,
        model: MonteCarloModel,
        data: RegressionData,
        *,
        num_steps: int,
        batch_size: int | None = None,
        learning_rate: LearningRate = PAPER_LEARNING_RATE,
        kl_annealing_steps: int = 1000,
        natural_gradient: LearningRate | None = None,
        seed: int = 0,
    ) -> None:
        check_positive_integer("num_steps", num_steps)
        if batch_size is not None:
            check_positive_integer("batch_size", batch_size)
        if kl_annealing_steps < 0:
            raise ValueError(f"kl_annealing_steps: got {kl_annealing_steps}, needs at least 0")
        self.model = model
        self.num_steps = num_steps
        self.kl_annealing_steps = kl_annealing_steps
        self.schedule = check_learning_rate(learning_rate)
        self.seed = as_seed(seed)
        self.data = TrainingData(data, batch_size, self.seed)
        check_labels(model.likelihood, self.data.labels)
        model.check_num_data(self.data.num_data)
        if not model.trainable_variables:
            raise ValueError("fit: the model has no trainable variables")
        self.with_priors = [p for p in model.trainable_parameters if p.prior is not None]
        self.natural = None
        if natural_gradient is not None:
            schedule = check_learning_rate(natural_gradient, "natural_gradient")
            self.natural = natural_gradient_of(model, schedule, num_steps)
        stepped = [] if self.natural is None else [v.ref() for v in self.natural.variables_stepped]
        self.optimizer = FlatAdam([v for v in model.trainable_variables if v.ref() not in stepped])
        self.settings = {
            "num_steps": num_steps,
            "batch_size": self.data.batch_size,
            "learning_rate": repr(self.schedule),
            "natural_gradient": repr(self.natural and self.natural.schedule),
            "kl_annealing_steps": kl_annealing_steps,
            "seed": self.seed.numpy().tolist(),
            "model": [type(model).__name__, float(model.jitter), model.training_settings()],
            "data": self.data.fingerprint(),
            "parameters": [describe_parameter(p) for p in model.trainable_parameters],
        }
        self._steps = tf.function(self._run_steps, autograph=False)
        self._compiled = False

    def advance(self, step: int, size: int, history: History) -> tuple[int, int]:
        """Take up to `size` steps, at least one; the step reached and the number taken."""
        start = time.perf_counter()
        done, elbos, halvings = self.steps(step, size)
        history.elbo += elbos[:done]
        history.halvings += [step + i for i in range(done) if halvings[i]]
        if done == size or not self._compiled:
            elapsed = time.perf_counter() - start
            history.seconds += elapsed
            if self._compiled:
                history.step_seconds += elapsed
                history.timed_steps += done
            self._compiled = True
        if done < size:
            self._recover(step + done, history)
            done += 1
        return step + done, done

    def steps(self, first: int, size: int) -> tuple[int, list[float], list[int]]:
        """Steps from `first` on until `size` are done or one is not finite.

        :returns: the number applied, and of each that was tried the bound per data point and how often
            its natural-gradient step was halved.
        """
        done, elbos, halvings = self._steps(tf.constant(first), tf.constant(size))
        return int(done), elbos.numpy().tolist(), halvings.numpy().tolist()

    def _recover(self, step: int, history: History) -> None:
        """Repeat a failed step with more jitter."""
        jitter = float(self.model.jitter)
        start = jitter or gpflow.default_jitter()
        for factor in JITTER_FACTORS:
            self.model.jitter.assign(start * factor)
            done, elbos, halvings = self.steps(step, 1)
            self.model.jitter.assign(jitter)
            if done:
                logger.warning(
                    "step %d: loss or gradient not finite; repeated with jitter %.1e",
                    step,
                    start * factor,
                )
                history.recoveries.append(step)
                history.elbo += elbos
                history.halvings += [step] if halvings[0] else []
                return
        X, _ = self.data.minibatch(tf.constant(step)).data
        raise TrainingFailed(
            f"step {step}: the loss or its gradient is not finite with jitter up to "
            f"{jitter * JITTER_FACTORS[-1]:.1e}: {describe_failure(self.model, X, self._seed(step))}; "
            "lower the learning rate, raise the jitter, or check the data's scale"
        )

    def _seed(self, step: tf.Tensor) -> tf.Tensor:
        return fold_in(self.seed, step)

    def _run_steps(
        self, first: tf.Tensor, size: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Steps until `size` are done or one is not finite; the number applied, their bounds and halvings."""
        dtype = self.model.kl_weight.dtype
        records = (
            tf.TensorArray(dtype, size=size, element_shape=[]),
            tf.TensorArray(tf.int32, size=size, element_shape=[]),
        )

        def unfinished(count: tf.Tensor, finite: tf.Tensor, *_: tf.TensorArray) -> tf.Tensor:
            return tf.logical_and(finite, count < size)

        def body(
            count: tf.Tensor, _: tf.Tensor, elbos: tf.TensorArray, halvings: tf.TensorArray
        ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray, tf.TensorArray]:
            finite, elbo, halved = self._step(first + count)
            written = elbos.write(count, elbo), halvings.write(count, halved)
            return count + tf.cast(finite, tf.int32), finite, *written

        count, _, elbos, halvings = tf.while_loop(
            unfinished,
            body,
            (tf.constant(0), tf.constant(True), *records),
            parallel_iterations=1,
        )
        return count, elbos.stack(), halvings.stack()

    def _step(self, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """One step, applied if it is finite.

        :returns: whether it is, the bound per data point, and the halvings of its natural-gradient step.
        """
        model, optimizer, natural = self.model, self.optimizer, self.natural
        dtype = model.kl_weight.dtype
        model.kl_weight.assign(kl_weight_at(self.kl_annealing_steps, step, dtype))
        variables = optimizer.variables_stepped
        stepped_naturally = () if natural is None else natural.variables_stepped
        batch = self.data.minibatch(step)
        scale = tf.constant(1.0 / self.data.num_data, dtype)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([*variables, *stepped_naturally])
            elbo = self._elbo(batch, self._seed(step))
            loss = -scale * tf.add_n([elbo, *(p.log_prior_density() for p in self.with_priors)])
        gradients = tape.gradient(
            loss,
            [*variables, *stepped_naturally],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        gradient = optimizer.flatten(gradients[: len(variables)])
        direction: Sequence[tf.Tensor] = ()
        if natural is not None:
            rows_for_each = self.data.num_data / self.data.batch_size
            of_bound = [-part / scale for part in gradients[len(variables) :]]
            direction = natural.direction(of_bound, batch, self._seed(step), rows_for_each)
        finite = tf.math.is_finite(loss)
        for part in (gradient, *direction):
            finite &= tf.reduce_all(tf.math.is_finite(part))

        def apply() -> tuple[tf.Tensor, tf.Tensor]:
            rate = learning_rate_at(self.schedule, step, self.num_steps, dtype)
            optimizer.apply(gradient, rate, step)
            if natural is None:
                return tf.constant(True), tf.constant(0)
            return tf.constant(True), natural.apply(direction, step)

        finite, halvings = tf.cond(finite, apply, lambda: (tf.constant(False), tf.constant(0)))
        return finite, scale * elbo, halvings

    def _elbo(self, batch: Minibatch, seed: tf.Tensor) -> tf.Tensor:
        """The bound of the whole data set from a minibatch, whatever the model's `num_data`."""
        model = self.model
        expected, log_ratio = model.elbo_terms(batch.data, seed=seed, rows=batch.rows)
        factor = self.data.num_data / self.data.batch_size
        return expected * factor + model.kl_weight * log_ratio
