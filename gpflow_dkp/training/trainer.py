"""The compiled steps of `fit`, repeated with more jitter where one fails."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import gpflow
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import BayesianModel

from ..checks import check_positive_integer
from ..jitter import jitters_of
from ..models import DeepKernelProcess, MonteCarloModel
from ..random import Seed, fold_in, mirrored, split
from .agreement import describe_model
from .arguments import check_annealing, check_model, check_seconds, check_seed
from .data import Minibatch, ReplaceableData, training_data
from .devices import Share, check_variables, devices_of, shares_of
from .diagnosis import describe_failure
from .history import History
from .natural_gradient import natural_gradient_of
from .objective import BoundObjective, LossObjective, Objective, Value
from .optimizer import KerasOptimizer, Optimizer, ScheduledAdam, check_optimizer
from .plan import Plan, Seconds, Steps, Stretch, UntilFlat
from .recipe import Recipe, check_recipe, names_of
from .release import release
from .schedules import (
    LearningRate,
    Moment,
    check_learning_rate,
    depends_on_num_steps,
    hold_position,
    kl_weight_at,
)

logger = logging.getLogger(__name__)

JITTER_FACTORS = (10.0, 100.0, 1000.0)
"""By how much a step whose loss or gradient is not finite is retried with more jitter."""


class TrainingFailed(ValueError):  # noqa: N818  # says what happened
    """A step's loss or gradient is not finite with any jitter that was tried.

    >>> model = gpflow_dkp.models.NNGP.from_data(X, Y, num_inducing=3)
    >>> _ = model.likelihood.variance.unconstrained_variable.assign(np.nan)
    >>> gpflow_dkp.training.fit(model, (X, Y), num_steps=1, progress=False)
    Traceback (most recent call last):
        ...
    gpflow_dkp.training.trainer.TrainingFailed: ... likelihood.variance ... is not finite...
    """


class Trainer:
    """The compiled steps of `fit`, whose arguments these are; `data` may be `TrainingData` too.

    Attributes: `plan`, when it ends; `settings`, what a run must agree on to go on from a checkpoint; and
    `of_num_steps`, which arguments make it depend on how long it is.
    """

    _check = staticmethod(check_model)

    def __init__(
        self,
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
    ) -> None:
        self._check(model)
        if num_steps is not None:
            check_positive_integer("num_steps", num_steps)
        if max_seconds is not None:
            check_seconds("max_seconds", max_seconds)
        check_annealing(kl_annealing_steps, num_steps)
        check_optimizer(optimizer, learning_rate)
        devices = devices_of(strategy)
        recipe = check_recipe(schedule, model)
        self._antithetic = recipe.antithetic and isinstance(model, DeepKernelProcess)
        if natural_gradient is None and optimizer is None:
            natural_gradient = recipe.natural_gradient
        rates = check_learning_rate(
            recipe.learning_rate if learning_rate is None else learning_rate
        )
        key = check_seed(seed)
        rows_seed, steps_seed = seeds_of_run(key)
        self._steps_seed = tf.Variable(steps_seed, trainable=False)
        self.model = model
        self.num_steps, self.max_seconds = num_steps, max_seconds
        self.data = training_data(model, data, batch_size, rows_seed)
        self.objective: Objective
        self._jitters: list[tf.Variable] = []
        self.of_num_steps: list[str] = []
        annealing_steps = kl_annealing_steps or 0
        if isinstance(model, MonteCarloModel):
            if kl_annealing_steps is not None:
                annealing = partial(kl_weight_at, steps=kl_annealing_steps)
            elif max_seconds is not None:
                at_most = recipe.max_annealing_steps if recipe.annealing else None
                annealing = partial(kl_weight_at, part=recipe.annealing, steps=at_most)
            else:
                annealing_steps = recipe.annealing_steps(num_steps)
                annealing = partial(kl_weight_at, steps=annealing_steps)
            self.objective = BoundObjective(model, self.data.num_data, annealing)
            self._jitters = jitters_of(model)
            if kl_annealing_steps is None:
                self.of_num_steps.append("kl_annealing_steps")
        else:
            if kl_annealing_steps is not None:
                raise ValueError(
                    f"kl_annealing_steps: got {kl_annealing_steps}, but {type(model).__name__} has no weight "
                    "of its KL term; set it to None"
                )
            self.objective = LossObjective(model, self.data)
        self._shares = [Share(devices[0] if devices else None)]
        if len(devices) > 1:
            check_variables(model)
            samples = self.objective.samples_to_share()
            self._shares = shares_of(devices, samples, self.data.batch_size)
        self.natural = None
        if natural_gradient is not None:
            natural_schedule = check_learning_rate(natural_gradient, "natural_gradient")
            self.natural = natural_gradient_of(model, natural_schedule)
            if depends_on_num_steps(natural_schedule):
                self.of_num_steps.append("natural_gradient")
        stepped = [] if self.natural is None else [v.ref() for v in self.natural.variables_stepped]
        variables = [v for v in model.trainable_variables if v.ref() not in stepped]
        self.optimizer: Optimizer = (
            ScheduledAdam(
                variables,
                rates,
                beta_1=recipe.beta_1,
                beta_2=recipe.beta_2,
                scales=[recipe.scales.get(name, 1.0) for name in names_of(model, variables)],
                clip=recipe.clip,
            )
            if optimizer is None
            else KerasOptimizer(variables, optimizer)
        )
        if self.optimizer.of_num_steps:
            self.of_num_steps.append("learning_rate")
        falls = {"learning_rate", "natural_gradient"} & set(self.of_num_steps)
        self._until_flat = partial(
            UntilFlat, hold_position(rates), annealing_steps, falls=bool(falls)
        )
        self.plan = self._new_plan()
        self.settings = {
            "batch_size": self.data.batch_size,
            "natural_gradient": repr(self.natural and self.natural.schedule),
            "kl_annealing_steps": kl_annealing_steps,
            "seed": key.numpy().tolist(),
            "antithetic": self._antithetic,
            "data": self.data.fingerprint(),
            **self.optimizer.describe(),
            **describe_model(model),
        }
        # A partial: TensorFlow counts traces by a function's code, and warns where many objects share one.
        self._steps = tf.function(partial(self._run_steps), autograph=False)
        self._compiled = False

    def _new_plan(self) -> Plan:
        if self.max_seconds is not None:
            return Seconds(self.max_seconds, self.num_steps)
        return self._until_flat() if self.num_steps is None else Steps(self.num_steps)

    @property
    def state(self) -> dict[str, tf.Module]:
        """What a checkpoint has beside the model."""
        return {"optimizer": self.optimizer}

    def restart(self, data: RegressionData, seed: int) -> None:
        """Begin another run of the model, whose parameters have other values, with nothing compiled again.

        :param data: in place of those of a trainer with `ReplaceableData`.
        :param seed: an integer.
        """
        assert isinstance(self.data, ReplaceableData)
        rows_seed, steps_seed = seeds_of_run(check_seed(seed))
        self.data.replace(data, rows_seed)
        self._steps_seed.assign(steps_seed)
        self.optimizer.reset()
        self.plan = self._new_plan()

    def release(self) -> None:
        """Let go of the data that `restart` was given."""
        assert isinstance(self.data, ReplaceableData)
        self.data.clear()

    def advance(self, step: int, stretch: Stretch, history: History) -> int:
        """Take a stretch of steps after `step` others, with more jitter where one fails; the step reached.

        :raises TrainingFailed: when no jitter makes a step finite, naming the layer.
        """
        end = step + stretch.size
        while step < end:
            rest = stretch.after(end - step)
            start = time.perf_counter()
            done, elbos, halvings = self.steps(step, rest)
            history.elbo += elbos[:done]
            history.halvings += [step + i for i in range(done) if halvings[i]]
            step += done
            if step == end or not self._compiled:
                elapsed = time.perf_counter() - start
                history.seconds += elapsed
                if self._compiled:
                    history.step_seconds += elapsed
                    history.timed_steps += done
                self._compiled = True
            if step < end:
                self._recover(step, stretch.after(end - step), history)
                step += 1
        history.position = stretch.position + stretch.size * stretch.pace
        history.clock.append((end, history.seconds))
        return step

    def steps(self, first: int, stretch: Stretch) -> tuple[int, list[float], list[int]]:
        """Steps from `first` on until all of a stretch are done or one is not finite.

        :returns: the number applied, and of each that was tried the bound per data point and how often
            its natural-gradient step was halved.
        """
        size, position, pace = stretch
        moment = Moment(tf.constant(first), *(tf.constant(x, tf.float64) for x in (position, pace)))
        if self._steps.experimental_get_tracing_count() == 0:
            release(self._steps.get_concrete_function(moment, tf.constant(size)).graph)
        done, elbos, halvings = self._steps(moment, tf.constant(size))
        return int(done), elbos.numpy().tolist(), halvings.numpy().tolist()

    def _recover(self, step: int, stretch: Stretch, history: History) -> None:
        """Repeat a failed step with more of every jitter."""
        before = [jitter.numpy() for jitter in self._jitters]
        starts = [float(value) or gpflow.default_jitter() for value in before]
        for factor in JITTER_FACTORS if self._jitters else ():
            try:
                for jitter, start in zip(self._jitters, starts, strict=True):
                    jitter.assign(start * factor)
                done, elbos, halvings = self.steps(step, stretch._replace(size=1))
            finally:
                for jitter, value in zip(self._jitters, before, strict=True):
                    jitter.assign(value)
            if done:
                logger.warning(
                    "step %d: loss or gradient not finite; repeated with jitter %.1e",
                    step,
                    max(starts) * factor,
                )
                history.recoveries.append(step)
                history.elbo += elbos
                history.halvings += [step] if halvings[0] else []
                return
        tried = f" with jitter up to {max(starts) * JITTER_FACTORS[-1]:.1e}" if starts else ""
        batch = self._batch(tf.constant(step))
        raise TrainingFailed(
            f"step {step}: the loss or its gradient is not finite{tried}: "
            f"{describe_failure(self.model, batch.data, self.seed_of(step))}; "
            "lower the learning rate, raise the jitter, or check the data's scale"
        )

    def seed_of(self, step: int | tf.Tensor) -> Seed:
        """The seed of a step's random numbers."""
        seed = fold_in(self._steps_seed, step)
        return mirrored(seed) if self._antithetic else seed

    def _batch(self, step: tf.Tensor) -> Minibatch:
        return self.data.minibatch(step)

    def _run_steps(self, first: Moment, size: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Steps until `size` are done or one is not finite; the number applied, their bounds and halvings."""
        records = (
            tf.TensorArray(self.objective.dtype, size=size, element_shape=[]),
            tf.TensorArray(tf.int32, size=size, element_shape=[]),
        )

        def unfinished(count: tf.Tensor, finite: tf.Tensor, *_: tf.TensorArray) -> tf.Tensor:
            return tf.logical_and(finite, count < size)

        def body(
            count: tf.Tensor, _: tf.Tensor, elbos: tf.TensorArray, halvings: tf.TensorArray
        ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray, tf.TensorArray]:
            moved = tf.cast(count, first.position.dtype) * first.pace
            moment = Moment(first.step + count, first.position + moved, first.pace)
            finite, elbo, halved = self._step(moment)
            written = elbos.write(count, elbo), halvings.write(count, halved)
            return count + tf.cast(finite, tf.int32), finite, *written

        count, _, elbos, halvings = tf.while_loop(
            unfinished,
            body,
            (tf.constant(0), tf.constant(True), *records),
            parallel_iterations=1,
        )
        return count, elbos.stack(), halvings.stack()

    def _step(self, moment: Moment) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """One step, applied if it is finite.

        :returns: whether it is, the bound per data point, and the halvings of its natural-gradient step.
        """
        objective, optimizer, natural = self.objective, self.optimizer, self.natural
        step = moment.step
        objective.start(moment)
        batch, seed = self._batch(step), self.seed_of(step)
        scale = 1.0 / tf.cast(self.data.num_data, objective.dtype)
        value, gradient, of_total = _add_up(
            [self._gradients(share, batch, seed, scale) for share in self._shares]
        )
        direction: Sequence[tf.Tensor] = ()
        if natural is not None:
            direction = natural.direction(of_total, seed)
        finite = tf.math.is_finite(scale * value.total)
        for part in (*gradient, *direction):
            finite &= tf.reduce_all(tf.math.is_finite(part))

        def apply() -> tuple[tf.Tensor, tf.Tensor]:
            halvings = tf.constant(0)
            if natural is not None:
                halvings = natural.apply(
                    direction, moment, value.total, lambda: self._total(batch, seed)
                )
            # The gradients are of the variables before either step.
            with tf.control_dependencies([halvings]):
                optimizer.apply(gradient, moment)
            return tf.constant(True), halvings

        finite, halvings = tf.cond(finite, apply, lambda: (tf.constant(False), tf.constant(0)))
        return finite, scale * value.bound, halvings

    def _gradients(
        self, share: Share, batch: Minibatch, seed: Seed, scale: tf.Tensor
    ) -> tuple[Value, list[tf.Tensor], list[tf.Tensor]]:
        """A share's value, the optimiser's gradients of -`scale` times it, and the natural step's of it."""
        variables = self.optimizer.variables_stepped
        stepped_naturally = () if self.natural is None else self.natural.variables_stepped
        with share.on_device():
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch([*variables, *stepped_naturally])
                value = self.objective(batch, seed, share)
                loss = -scale * value.total
            gradients = tape.gradient(
                loss,
                [*variables, *stepped_naturally],
                unconnected_gradients=tf.UnconnectedGradients.ZERO,
            )
            gradient = self.optimizer.collect(gradients[: len(variables)])
            return value, gradient, [-part / scale for part in gradients[len(variables) :]]

    def _total(self, batch: Minibatch, seed: Seed) -> tf.Tensor:
        """What is maximised, of all shares [], with the variables as they are."""
        totals = []
        for share in self._shares:
            with share.on_device():
                totals.append(self.objective(batch, seed, share).total)
        return _add_up(totals)


def _add_up(of_shares: list[Any]) -> Any:
    """The sum of nests of tensors."""
    if len(of_shares) == 1:
        return of_shares[0]
    return tf.nest.map_structure(lambda *parts: tf.add_n(parts), *of_shares)


def seeds_of_run(key: tf.Tensor) -> list[tf.Tensor]:
    """Seeds of the order of the rows and of the steps.

    The rows of epoch e and the random numbers of step e are to have nothing in common.
    """
    return split(key, 2)
