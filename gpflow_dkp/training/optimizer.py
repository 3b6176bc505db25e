"""The optimisers of a training step: Adam on one flat vector, or any of Keras."""

from __future__ import annotations

import abc
import json
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from ..checks import brief
from .adam import FlatAdam
from .schedules import Moment, Schedule, depends_on_num_steps, learning_rate_at


class Optimizer(tf.Module, abc.ABC):
    """Lowers a loss by its gradients; what it remembers is in its variables."""

    variables_stepped: Sequence[tf.Variable]
    of_num_steps: bool
    """Whether its steps depend on how many there will be."""

    @abc.abstractmethod
    def collect(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The gradients in `variables_stepped` as `apply` takes them."""

    @abc.abstractmethod
    def apply(self, gradients: Sequence[tf.Tensor], moment: Moment) -> None:
        """One update."""

    @abc.abstractmethod
    def reset(self) -> None:
        """Forget the updates made."""

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """What a run must agree on to go on from a checkpoint."""


class ScheduledAdam(Optimizer):
    """`FlatAdam` at the rates of a schedule."""

    def __init__(
        self,
        variables: Sequence[tf.Variable],
        schedule: Schedule,
        *,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        scales: Sequence[float] | None = None,
        clip: float | None = None,
    ) -> None:
        super().__init__()
        self.adam = FlatAdam(variables, beta_1, beta_2, scales=scales, clip=clip)
        self._settings = {
            "beta_1": beta_1,
            "beta_2": beta_2,
            "scales": list(scales or ()),
            "clip": clip,
        }
        self.variables_stepped = self.adam.variables_stepped
        self.of_num_steps = depends_on_num_steps(schedule)
        self._schedule = schedule

    def collect(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """One vector."""
        return [self.adam.flatten(gradients)]

    def apply(self, gradients: Sequence[tf.Tensor], moment: Moment) -> None:
        """One update at the step's rate."""
        (gradient,) = gradients
        rate = learning_rate_at(self._schedule, moment, gradient.dtype)
        self.adam.apply(gradient, rate, moment.step)

    def reset(self) -> None:
        """Zero moments."""
        self.adam.reset()

    def describe(self) -> dict[str, Any]:
        """Its rates."""
        return {"optimizer": "Adam", "learning_rate": repr(self._schedule), **self._settings}


class KerasOptimizer(Optimizer):
    """An optimiser of Keras 3 or tf_keras, which has its own learning rate or schedule.

    :raises ValueError: for an optimiser that was built for other variables, or averages them.
    """

    of_num_steps = False

    def __init__(self, variables: Sequence[tf.Variable], optimizer: Any) -> None:
        super().__init__()
        # In closures, which a checkpoint does not look into: the state is saved as a plain list.
        self._update = lambda pairs: optimizer.apply_gradients(pairs)
        self.variables_stepped = list(variables)
        if getattr(optimizer, "use_ema", False):
            raise ValueError("optimizer: got use_ema=True, needs one without moving averages")
        self._description = _describe(optimizer)
        try:
            if isinstance(optimizer, tf_keras.optimizers.legacy.Optimizer):
                optimizer._create_all_weights(self.variables_stepped)
            else:
                self._check_built_for(optimizer)
                optimizer.build(self.variables_stepped)
        except (KeyError, ValueError) as error:
            raise ValueError(
                f"optimizer: this {type(optimizer).__name__} was built for the variables of another "
                "model; give a new one"
            ) from error
        state = optimizer.variables
        state = state() if callable(state) else state
        self.state = [v if isinstance(v, tf.Variable) else v.value for v in state]
        start = [variable.numpy() for variable in self.state]
        self._start = lambda: start

    def _check_built_for(self, optimizer: Any) -> None:
        """Raise `KeyError` if it was built, for other variables than these."""
        # By the names of Keras 3 and of tf_keras.
        for name in ("_trainable_variables_indices", "_index_dict"):
            known = set(getattr(optimizer, name, ()))
            if known and known != {optimizer._var_key(v) for v in self.variables_stepped}:
                raise KeyError(name)

    def collect(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Dense tensors."""
        return [tf.convert_to_tensor(gradient) for gradient in gradients]

    def apply(self, gradients: Sequence[tf.Tensor], moment: Moment) -> None:
        """One update at the optimiser's own rate."""
        self._update(zip(gradients, self.variables_stepped, strict=True))

    def reset(self) -> None:
        """The state as it was built."""
        for variable, value in zip(self.state, self._start(), strict=True):
            variable.assign(value)

    def describe(self) -> dict[str, Any]:
        """Its class and settings."""
        return {"optimizer": self._description, "learning_rate": "the optimizer's"}


def is_keras_optimizer(optimizer: object) -> bool:
    """Whether it is one of Keras 3, tf_keras or tf_keras' legacy ones."""
    kinds = tf.keras.optimizers.Optimizer, tf_keras.optimizers.Optimizer
    return isinstance(optimizer, (*kinds, tf_keras.optimizers.legacy.Optimizer))


def check_optimizer(optimizer: Any, learning_rate: object) -> None:
    """Raise `ValueError` for what is no Keras optimiser, or a learning rate beside it."""
    if optimizer is None:
        return
    if not is_keras_optimizer(optimizer):
        raise ValueError(
            f"optimizer: got {brief(optimizer)}, needs a Keras optimizer, or None for Adam"
        )
    if learning_rate is not None:
        raise ValueError(
            f"learning_rate: got {brief(learning_rate)} together with an optimizer, which has its own; "
            "give one of the two"
        )


def _describe(optimizer: Any) -> str:
    """Class and settings of a Keras optimiser, but for its name, which counts those made before."""
    kind = f"{type(optimizer).__module__}.{type(optimizer).__qualname__}"
    try:
        config = {key: value for key, value in optimizer.get_config().items() if key != "name"}
    except NotImplementedError:  # a user's schedule that does not say
        return kind
    return f"{kind} {json.dumps(config, sort_keys=True, default=lambda v: str(type(v)))}"
