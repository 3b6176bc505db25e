"""Stochastic gradient Hamiltonian Monte Carlo: a chain in the variables of any density."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from ..checks import brief, check_positive, check_positive_integer
from ..random import Seed, as_seed, fold_in, normal, split
from .arguments import is_real
from .release import release

STEP_SIZE = 0.01
"""[NeurIPS18]'s, in its code."""

FRICTION = 0.05
"""The part of the momentum that a step takes away: [NeurIPS18]'s, [NIPS16]'s V^{-1/2} C."""

LEAST_MASS = 1.0
"""That of a standard normal variable: no whitened posterior has less curvature than its prior on average, and
where a gradient is still zero the noise, of variance by the inverse mass, stays bounded."""


class Scale(tf.Module):
    """The mass of each entry of a variable: the root of the mean square of its gradient ([NIPS16]).

    The mean has a memory of its own: long where the gradient is noise, short where it has a direction.
    """

    def __init__(self, variable: tf.Variable, name: str | None = None) -> None:
        super().__init__(name=name)
        self.gradient, self.square, self.memory = (
            tf.Variable(tf.zeros_like(variable), trainable=False) for _ in range(3)
        )

    @property
    def mass(self) -> tf.Tensor:
        """At least `LEAST_MASS`."""
        return tf.maximum(tf.sqrt(self.square), LEAST_MASS)

    def observe(self, gradient: tf.Tensor, adapt: bool | tf.Tensor) -> None:
        """Move the averages, if they are to adapt."""
        rate = 1.0 / (self.memory + 1.0)
        mean = self.gradient + rate * (gradient - self.gradient)
        square = self.square + rate * (tf.square(gradient) - self.square)
        directed = tf.math.divide_no_nan(tf.square(mean), square)
        moved = mean, square, 1.0 + self.memory * (1.0 - directed)
        for variable, value in zip((self.gradient, self.square, self.memory), moved, strict=True):
            variable.assign(tf.where(adapt, value, variable))


class SGHMC(tf.Module):
    """Scale-adapted stochastic gradient Hamiltonian Monte Carlo of [NeurIPS18]; docs/mathematics.md 11.

    A step of variables v with momentum p, for an unbiased estimate of the gradient of log p(v):

        p <- (1 - friction) p + step_size^2 m^{-1} grad + N(0, 2 temperature friction step_size^2 m^{-1}),
        v <- v + p.

    The mass m of each entry is the root mean square of its gradient, learnt in the steps that `adapt` and
    held in those that are kept. The chain's law is p(v)^{1 / temperature} up to an error of the order of
    the squared `step_size`, and that of the gradient's noise, which nothing corrects for.

    :param variables: the v, unconstrained, in which p is a density; trainable or not.
    :param step_size: in units of the inverse root of the gradient's size.
    :param friction: between 0 and 1.
    :param temperature: 1 for p itself.
    :raises ValueError: in one line, for other values.

    >>> v = tf.Variable(np.zeros([100, 2]))  # a hundred chains side by side
    >>> sampler = gpflow_dkp.training.SGHMC([v], step_size=0.3, friction=0.3)
    >>> def log_density(seed):
    ...     return -0.5 * tf.reduce_sum((v - 1.0) ** 2)
    >>> _ = sampler.chain(log_density, 100, seed=0, adapt=True)
    >>> (draws,) = sampler.chain(log_density, 50, thinning=10, seed=1)
    >>> draws.shape, np.allclose(np.mean(draws, (0, 1)), 1.0, atol=0.1)
    (TensorShape([50, 100, 2]), True)
    """

    def __init__(
        self,
        variables: Sequence[tf.Variable],
        *,
        step_size: float = STEP_SIZE,
        friction: float = FRICTION,
        temperature: float = 1.0,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        if not isinstance(variables, (list, tuple)) or not all(
            isinstance(variable, tf.Variable) for variable in variables
        ):
            raise ValueError(f"variables: got {brief(variables)}, needs a list of tf.Variable")
        check_positive("step_size", step_size)
        if not is_real(friction) or not 0.0 < friction < 1.0:
            raise ValueError(
                f"friction: got {brief(friction)}, needs a number between 0 and 1, such as {FRICTION}"
            )
        check_positive("temperature", temperature)
        self.step_size, self.friction, self.temperature = step_size, friction, temperature
        self.variables_sampled = list(variables)
        self.momenta = [tf.Variable(tf.zeros_like(v), trainable=False) for v in variables]
        self.scales = [Scale(v) for v in variables]

    def step(
        self, gradients: Sequence[tf.Tensor], seed: Seed, *, adapt: bool | tf.Tensor = False
    ) -> None:
        """One step of all the variables.

        :param gradients: of the log density, in each variable.
        :param seed: of the step's noise.
        :param adapt: whether the masses learn from these gradients.
        """
        parts = zip(self.variables_sampled, gradients, self.momenta, self.scales, strict=True)
        for number, (variable, gradient, momentum, scale) in enumerate(parts):
            scale.observe(gradient, adapt)
            reach = self.step_size**2 / scale.mass
            noise = normal(tf.unstack(tf.shape(variable)), fold_in(seed, number), variable.dtype)
            spread = tf.sqrt(2.0 * self.temperature * self.friction * reach)
            variable.assign_add(
                momentum.assign(
                    (1.0 - self.friction) * momentum + reach * gradient + spread * noise
                )
            )

    def chain(
        self,
        log_density: Callable[[tf.Tensor], tf.Tensor],
        num_samples: int,
        *,
        thinning: int = 1,
        seed: Seed = None,
        adapt: bool = False,
    ) -> list[tf.Tensor]:
        """Take `num_samples` x `thinning` steps; each `thinning`-th of each variable [num_samples, ...].

        :param log_density: of a seed; an estimate of log p(v) [], with an unbiased gradient, at the variables
            as they are.
        :param seed: int, stateless seed or None; the same seed and state, the same chain.
        :param adapt: learn the masses; what is kept then is of no fixed law.
        """
        check_positive_integer("num_samples", num_samples)
        check_positive_integer("thinning", thinning)

        def move(step: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
            for_density, for_noise = split(fold_in(seed, step), 2)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(self.variables_sampled)
                value = log_density(for_density)
            gradients = tape.gradient(
                value, self.variables_sampled, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            self.step(gradients, for_noise, adapt=adapt)
            return step + 1

        def keep(
            sample: tf.Tensor, kept: list[tf.TensorArray], seed: tf.Tensor
        ) -> tuple[tf.Tensor, list[tf.TensorArray]]:
            first = sample * thinning
            _ = tf.while_loop(
                lambda step: step < first + thinning, lambda step: move(step, seed), [first]
            )
            written = [
                array.write(sample, variable.read_value())
                for array, variable in zip(kept, self.variables_sampled, strict=True)
            ]
            return sample + 1, written

        @tf.function(autograph=False)
        def run(seed: tf.Tensor) -> list[tf.Tensor]:
            kept = [
                tf.TensorArray(v.dtype, num_samples, element_shape=v.shape)
                for v in self.variables_sampled
            ]
            _, kept = tf.while_loop(
                lambda sample, _: sample < num_samples,
                lambda sample, kept: keep(sample, kept, seed),
                (tf.constant(0), kept),
                parallel_iterations=1,
            )
            return [array.stack() for array in kept]

        seed = as_seed(seed)
        compiled = run.get_concrete_function(seed)
        release(compiled.graph)
        return list(compiled(seed))
