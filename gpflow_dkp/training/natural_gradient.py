"""Natural-gradient steps of an output layer's Gaussian posterior."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence

import tensorflow as tf

from ..layers import GlobalInducingGP, SparseGP
from ..linalg import transpose
from ..models import DeepKernelProcess, MonteCarloModel
from .data import Minibatch
from .schedules import Schedule, learning_rate_at

MAX_HALVINGS = 20
"""How often a step that leaves no positive-definite matrix is halved before it is dropped."""


class NaturalGradient(tf.Module, abc.ABC):
    """Steps of an output layer's posterior, of sizes gamma that follow a schedule.

    :param schedule: of gamma.
    :param num_steps: number of steps the schedule is for.
    """

    def __init__(self, schedule: Schedule, num_steps: int, name: str | None = None) -> None:
        super().__init__(name=name)
        self.schedule, self._num_steps = schedule, num_steps

    @property
    @abc.abstractmethod
    def variables_stepped(self) -> Sequence[tf.Variable]:
        """The variables that the steps change, and Adam leaves."""

    @abc.abstractmethod
    def direction(
        self, gradients: Sequence[tf.Tensor], batch: Minibatch, seed: tf.Tensor, scale: float
    ) -> Sequence[tf.Tensor]:
        """What `apply` needs to know of the objective, finite if a step is possible.

        :param gradients: of the whole training set's bound in `variables_stepped`.
        :param batch: the minibatch that they are of.
        :param seed: of the random numbers that they are of.
        :param scale: rows of the training set for each of the minibatch.
        """

    @abc.abstractmethod
    def apply(self, direction: Sequence[tf.Tensor], step: tf.Tensor) -> tf.Tensor:
        """One step upwards, halved until the matrix it leaves is positive definite; how often it was.

        :param step: number of steps before this one.
        """

    def _halved_until_finite(
        self, factor: Callable[[tf.Tensor], tf.Tensor], step: tf.Tensor, dtype: tf.DType
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The step size whose Cholesky factor is finite, the factor, and the number of halvings."""

        def failed(_: tf.Tensor, halvings: tf.Tensor, matrix: tf.Tensor) -> tf.Tensor:
            finite = tf.reduce_all(tf.math.is_finite(matrix))
            return ~finite & (halvings < MAX_HALVINGS)

        def halve(
            size: tf.Tensor, halvings: tf.Tensor, _: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            return 0.5 * size, halvings + 1, factor(0.5 * size)

        start = learning_rate_at(self.schedule, step, self._num_steps, dtype)
        size, halvings, matrix = tf.while_loop(
            failed, halve, (start, tf.constant(0), factor(start))
        )
        return size, matrix, halvings


class SparseGPStep(NaturalGradient):
    """Steps of q(u) = N(m, S), the last `SparseGP` layer of a model.

    In the natural parameters (S^{-1} m, -S^{-1} / 2) the natural gradient is the ordinary one in the
    expectations (m, S + m m^T) [Hensman et al. 2012]. A step gamma for an objective F is then

        S <- (S^{-1} - 2 gamma dF/dS)^{-1},   m <- m + gamma S dF/dm   with the new S.
    """

    def __init__(self, layer: SparseGP, schedule: Schedule, num_steps: int) -> None:
        super().__init__(schedule, num_steps)
        self._layer = layer

    @property
    def variables_stepped(self) -> Sequence[tf.Variable]:
        """Those of q_mu and q_sqrt."""
        return self._layer.q_mu.unconstrained_variable, self._layer.q_sqrt.unconstrained_variable

    def direction(
        self, gradients: Sequence[tf.Tensor], batch: Minibatch, seed: tf.Tensor, scale: float
    ) -> Sequence[tf.Tensor]:
        """The gradients."""
        return gradients

    def apply(self, direction: Sequence[tf.Tensor], step: tf.Tensor) -> tf.Tensor:
        """One step from the gradients."""
        layer = self._layer
        d_mean, d_tril = (
            parameter.transform.forward(gradient) if parameter.transform else gradient
            for parameter, gradient in zip((layer.q_mu, layer.q_sqrt), direction, strict=True)
        )
        mean, tril = tf.convert_to_tensor(layer.q_mu), tf.convert_to_tensor(layer.q_sqrt)
        # 2 L^T (dF/dS) L, symmetric, from the gradient in the Cholesky factor L.
        curvature = tf.linalg.band_part(tf.matmul(tril, d_tril, transpose_a=True), -1, 0)
        curvature = tf.linalg.set_diag(curvature, 0.5 * tf.linalg.diag_part(curvature))
        curvature += transpose(curvature)
        eye = tf.eye(tf.shape(tril)[-1], dtype=tril.dtype)
        size, upper, halvings = self._halved_until_finite(
            lambda size: _reverse_cholesky(eye - size * curvature), step, tril.dtype
        )
        new_tril = transpose(tf.linalg.triangular_solve(upper, transpose(tril), lower=False))
        ascent = tf.linalg.matvec(new_tril, transpose(d_mean), transpose_a=True)
        new_mean = mean + size * transpose(tf.linalg.matvec(new_tril, ascent))
        accepted = tf.reduce_all(tf.math.is_finite(new_tril))
        layer.q_mu.assign(tf.where(accepted, new_mean, mean))
        layer.q_sqrt.assign(tf.where(accepted, new_tril, tril))
        return halvings


class GlobalInducingStep(NaturalGradient):
    """Steps of the Gaussian N(v, Lambda^{-1}) by which an output layer's prior is multiplied.

    Given the hidden layers the posterior's natural parameters are those of the prior plus (Lambda v,
    -Lambda / 2). With the model's `output_sites` in place of the latter after a whole step, a step gamma
    moves them by that part of the way, the KL's weight counted.
    """

    def __init__(self, model: DeepKernelProcess, schedule: Schedule, num_steps: int) -> None:
        super().__init__(schedule, num_steps)
        self._model, self._layer = model, model.output_layer

    @property
    def variables_stepped(self) -> Sequence[tf.Variable]:
        """Those of v and precision_tril."""
        layer = self._layer
        return layer.v.unconstrained_variable, layer.precision_tril.unconstrained_variable

    def direction(
        self, gradients: Sequence[tf.Tensor], batch: Minibatch, seed: tf.Tensor, scale: float
    ) -> Sequence[tf.Tensor]:
        """The sites of the whole training set."""
        sites = self._model.output_sites(batch.data, seed=seed, rows=batch.rows)
        return [scale * site for site in sites]

    def apply(self, direction: Sequence[tf.Tensor], step: tf.Tensor) -> tf.Tensor:
        """One step towards the sites."""
        layer, weight = self._layer, self._model.kl_weight
        linear, curvature = direction
        tril, v = tf.convert_to_tensor(layer.precision_tril), tf.convert_to_tensor(layer.v)
        precision = tf.matmul(tril, tril, transpose_b=True)
        size, new_tril, halvings = self._halved_until_finite(
            lambda size: tf.linalg.cholesky(precision + size * (curvature - weight * precision)),
            step,
            tril.dtype,
        )
        product = precision @ v
        new_v = tf.linalg.cholesky_solve(new_tril, product + size * (linear - weight * product))
        accepted = tf.reduce_all(tf.math.is_finite(new_v))
        layer.precision_tril.assign(tf.where(accepted, new_tril, tril))
        layer.v.assign(tf.where(accepted, new_v, v))
        return halvings


def natural_gradient_of(
    model: MonteCarloModel, schedule: Schedule, num_steps: int
) -> NaturalGradient:
    """The steps for a model's output layer.

    :raises ValueError: for a layer that has none, or whose parameters are not trainable.
    """
    layer = getattr(model, "output_layer", None)
    if isinstance(layer, SparseGP):
        stepper: NaturalGradient = SparseGPStep(layer, schedule, num_steps)
        names: tuple[str, ...] = ("q_mu", "q_sqrt")
    elif isinstance(layer, GlobalInducingGP) and isinstance(model, DeepKernelProcess):
        stepper, names = GlobalInducingStep(model, schedule, num_steps), ("v", "precision_tril")
    else:
        raise ValueError(
            f"natural_gradient: {type(model).__name__} has no SparseGP or GlobalInducingGP as output "
            "layer; set it to None"
        )
    for name in names:
        if not getattr(layer, name).trainable:
            raise ValueError(
                f"natural_gradient: the output layer's {name} is not trainable; set natural_gradient to "
                "None or make it trainable"
            )
    return stepper


def _reverse_cholesky(matrix: tf.Tensor) -> tf.Tensor:
    """Upper U [..., M, M] with U U^T = `matrix`; NaN where it is not positive definite."""
    return tf.reverse(tf.linalg.cholesky(tf.reverse(matrix, [-2, -1])), [-2, -1])
