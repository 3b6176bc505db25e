"""`sample`: inducing values of a deep GP from their posterior, hyperparameters by moving-window EM."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import tensorflow as tf
from gpflow.base import RegressionData

from ..checks import check_positive_integer
from ..models import SampledModel
from ..random import split
from .arguments import Callback, check_sampled_model
from .data import Minibatch
from .fit import run
from .history import History
from .objective import BoundObjective, Value
from .recipe import PAPER, Recipe
from .schedules import LearningRate, Moment
from .sghmc import FRICTION, SGHMC, STEP_SIZE
from .trainer import Trainer

NUM_BURN_IN = 10_000
"""Steps before the first sample, as in [NeurIPS18]'s code."""

NUM_SAMPLES, THINNING = 2_000, 5
"""Samples that are kept, and steps from one to the next: those of [ICML19]'s comparison."""

WINDOW_SIZE = 300
"""Samples of the moving window: [NeurIPS18]'s; its code has 1, [ICML19]'s 100."""

LEARNING_RATE = 0.01
"""Of the hyperparameters, in [NeurIPS18]'s code."""


def sample(
    model: SampledModel,
    data: RegressionData | tf.data.Dataset,
    *,
    num_burn_in: int = NUM_BURN_IN,
    num_samples: int = NUM_SAMPLES,
    thinning: int = THINNING,
    batch_size: int | None = None,
    step_size: float = STEP_SIZE,
    friction: float = FRICTION,
    temperature: float = 1.0,
    window_size: int = WINDOW_SIZE,
    learning_rate: LearningRate | None = LEARNING_RATE,
    seed: int = 0,
    checkpoint_dir: str | Path | None = None,
    checkpoint_seconds: float = 30.0,
    callbacks: Iterable[Callback] = (),
    progress: bool = True,
) -> History:
    """Draw a model's inducing values from their posterior, and keep the draws in it for predictions.

    The chain is `SGHMC`'s (docs/mathematics.md 11). In the burn-in its masses are learnt, and with each step
    the hyperparameters take one of Adam, up the density at a random one of the last `window_size` values:
    Monte Carlo EM over a moving window. Then both are held, and each `thinning`-th value is kept.

    It stands beside `fit`, which maximises: schedules, annealing, natural gradients and patience mean nothing
    to a chain, nor burn-in, thinning and friction to an optimiser. Minibatches, seeds, checkpoints,
    callbacks, the history and what becomes of a step that is not finite are `fit`'s.

    :param model: whose `samples` are replaced at the end; an interrupted run leaves them.
    :param data: X [N, D] and Y [N, P], or a `tf.data.Dataset` of batches, as in `fit`.
    :param num_burn_in: steps before those that are kept.
    :param num_samples: values that are kept; there are `num_burn_in` + `num_samples` x `thinning` steps.
    :param thinning: steps from one that is kept to the next.
    :param batch_size: rows a step, default and at most N.
    :param step_size: of the chain, as `SGHMC`'s. Its error grows with the square.
    :param friction: as `SGHMC`'s.
    :param temperature: as `SGHMC`'s: 1 for the posterior.
    :param window_size: values from which the hyperparameters' step has one.
    :param learning_rate: of the hyperparameters, as in `fit`; None leaves them as they are.
    :param seed: an integer; the same seed, the same chain.
    :param checkpoint_dir: where the state is kept, one run a directory.
    :param checkpoint_seconds: least time between two checkpoints.
    :param callbacks: as in `fit`.
    :param progress: show a bar with the log density per point, and the time left.
    :returns: its `elbo` is log p(y, v) per data point where the chain stood, a minibatch's estimate.
    :raises ValueError: for bad data or settings, another model, or a checkpoint of another run.
    :raises TrainingFailed: when no jitter makes a step finite, naming the layer.

    >>> layer = gpflow_dkp.layers.SampledGP(gpflow.kernels.SquaredExponential(), X[:3], 1)
    >>> model = gpflow_dkp.models.SGHMCDGP([layer], gpflow.likelihoods.Gaussian(0.1))
    >>> few = {"num_burn_in": 20, "num_samples": 6, "thinning": 2, "progress": False}
    >>> history = gpflow_dkp.training.sample(model, (X, Y), batch_size=4, **few)
    >>> history.num_steps, layer.samples.shape[1:], len(layer.samples.numpy())
    (32, TensorShape([3, 1]), 6)
    """
    sampler = Sampler(
        model,
        data,
        num_burn_in=num_burn_in,
        num_samples=num_samples,
        thinning=thinning,
        batch_size=batch_size,
        step_size=step_size,
        friction=friction,
        temperature=temperature,
        window_size=window_size,
        learning_rate=learning_rate,
        seed=seed,
    )
    history = run(
        sampler,
        checkpoint_dir=checkpoint_dir,
        checkpoint_seconds=checkpoint_seconds,
        callbacks=callbacks,
        progress=progress,
    )
    sampler.hand_over()
    return history


class Record(tf.Module):
    """So many values of each of some variables, by their numbers.

    :param variables: whose values it is to have.
    :param size: how many of each.
    """

    def __init__(
        self, variables: Sequence[tf.Variable], size: int, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        self._variables = tuple(variables)
        self.values = [
            tf.Variable(tf.zeros([size, *v.shape], v.dtype), trainable=False) for v in variables
        ]

    def write(self, number: tf.Tensor) -> None:
        """Put what the variables are now at a number [] below its size."""
        for values, variable in zip(self.values, self._variables, strict=True):
            values.scatter_nd_update([[number]], variable.read_value()[None])

    def read(self, number: tf.Tensor) -> list[tf.Tensor]:
        """The values at a number []."""
        return [tf.gather(values, number) for values in self.values]


class Sampler(Trainer):
    """The compiled steps of `sample`, whose arguments these are."""

    objective: BoundObjective
    model: SampledModel

    _check = staticmethod(check_sampled_model)

    def __init__(
        self,
        model: SampledModel,
        data: RegressionData | tf.data.Dataset,
        *,
        num_burn_in: int,
        num_samples: int,
        thinning: int,
        batch_size: int | None,
        step_size: float,
        friction: float,
        temperature: float,
        window_size: int,
        learning_rate: LearningRate | None,
        seed: int,
    ) -> None:
        settings = {
            "num_burn_in": num_burn_in,
            "num_samples": num_samples,
            "thinning": thinning,
            "window_size": window_size,
        }
        for name, value in settings.items():
            check_positive_integer(name, value)
        self._moves = learning_rate is not None
        super().__init__(
            model,
            data,
            num_steps=num_burn_in + num_samples * thinning,
            batch_size=batch_size,
            schedule=Recipe(
                LEARNING_RATE if learning_rate is None else learning_rate,
                beta_2=PAPER.beta_2,
                annealing=0.0,
            ),
            kl_annealing_steps=0,
            seed=seed,
        )
        values = [layer.values for layer in model.layers]
        self.sghmc = SGHMC(values, step_size=step_size, friction=friction, temperature=temperature)
        self.window, self.kept = Record(values, window_size), Record(values, num_samples)
        self._num_burn_in, self._thinning, self._window_size = num_burn_in, thinning, window_size
        of_chain = {"step_size": step_size, "friction": friction, "temperature": temperature}
        self.settings |= settings | of_chain | {"moves_hyperparameters": self._moves}

    @property
    def state(self) -> dict[str, tf.Module]:
        """What a checkpoint has beside the model."""
        of_chain = {"sghmc": self.sghmc, "window": self.window, "kept": self.kept}
        return super().state | of_chain

    def hand_over(self) -> None:
        """Give the model the values that were kept."""
        for layer, values in zip(self.model.layers, self.kept.values, strict=True):
            layer.keep(values)

    def _step(self, moment: Moment) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """A step of the chain, in the burn-in one of Adam too, if they are finite; returns as `Trainer`'s."""
        step = moment.step
        self.objective.start(moment)
        batch, values = self._batch(step), self.sghmc.variables_sampled
        for_values, for_window, for_parameters, for_noise = split(self.seed_of(step), 4)
        scale = 1.0 / tf.cast(self.data.num_data, self.objective.dtype)
        value, gradient = self._gradient(batch, for_values, values, values)
        burning = step < self._num_burn_in
        moving = burning & self._moves
        self.window.write(step % self._window_size)

        def of_parameters() -> list[tf.Tensor]:
            stepped = self.optimizer.variables_stepped
            chosen = self.window.read(self._number_in_window(step, for_window))
            _, gradient = self._gradient(batch, for_parameters, chosen, stepped)
            return self.optimizer.collect([-scale * part for part in gradient])

        def of_none() -> list[tf.Tensor]:
            stepped = self.optimizer.variables_stepped
            return self.optimizer.collect([tf.zeros_like(variable) for variable in stepped])

        descent = tf.cond(moving, of_parameters, of_none)
        finite = tf.math.is_finite(value.total)
        for part in (*gradient, *descent):
            finite &= tf.reduce_all(tf.math.is_finite(part))

        def apply() -> tf.Tensor:
            self.sghmc.step(gradient, for_noise, adapt=burning)
            call_if(moving, lambda: self.optimizer.apply(descent, moment))
            done = step + 1 - self._num_burn_in
            number, left = done // self._thinning - 1, done % self._thinning
            call_if((number >= 0) & (left == 0), lambda: self.kept.write(number))
            return tf.constant(True)

        finite = tf.cond(finite, apply, lambda: tf.constant(False))
        return finite, scale * value.bound, tf.constant(0)

    def _gradient(
        self,
        batch: Minibatch,
        seed: tf.Tensor,
        values: Sequence[tf.Tensor],
        variables: Sequence[tf.Variable],
    ) -> tuple[Value, list[tf.Tensor]]:
        """log p(y, v) at `values` of the whole training set, and its gradient in `variables`."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            value = self.objective(batch, seed, self._shares[0], values=values)
        gradient = tape.gradient(
            value.total, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        return value, gradient

    def _number_in_window(self, step: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """One of the numbers [] at which the window has values, the current ones among them."""
        filled = tf.minimum(step + 1, self._window_size)
        return tf.random.stateless_uniform([], seed, maxval=filled, dtype=tf.int32)


def call_if(condition: tf.Tensor, function: Callable[[], None]) -> None:
    """Call a function where a condition [] holds."""

    def call() -> tf.Tensor:
        function()
        return tf.constant(True)

    tf.cond(condition, call, lambda: tf.constant(False))
