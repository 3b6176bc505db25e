"""Natural-gradient steps of an output layer's Gaussian posterior."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from ..layers import SparseGP
from ..linalg import transpose
from ..models import MonteCarloModel
from .schedules import Schedule, learning_rate_at

MAX_HALVINGS = 20
"""How often a step that leaves no positive-definite covariance is halved before it is dropped."""


class NaturalGradient(tf.Module):
    """Steps in the natural parameters of q(u) = N(m, S), the last `SparseGP` layer of a model.

    In the natural parameters (S^{-1} m, -S^{-1} / 2) the natural gradient is the ordinary one in the
    expectations (m, S + m m^T) [Hensman et al. 2012]. A step gamma for an objective F is then

        S <- (S^{-1} - 2 gamma dF/dS)^{-1},   m <- m + gamma S dF/dm   with the new S.

    :param model: whose `output_layer` is a `SparseGP`.
    :param schedule: of the step size gamma.
    :param num_steps: number of steps the schedule is for.
    :raises ValueError: for another model.
    """

    def __init__(
        self, model: MonteCarloModel, schedule: Schedule, num_steps: int, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        self.schedule, self._num_steps = schedule, num_steps
        layer = getattr(model, "output_layer", None)
        if not isinstance(layer, SparseGP):
            raise ValueError(
                f"natural_gradient: {type(model).__name__} has no SparseGP as output layer; set it to None"
            )
        self._layer = layer
        for name_, parameter in (("q_mu", layer.q_mu), ("q_sqrt", layer.q_sqrt)):
            if not parameter.trainable:
                raise ValueError(
                    f"natural_gradient: the output layer's {name_} is not trainable; set natural_gradient "
                    "to None or make it trainable"
                )

    @property
    def variables_stepped(self) -> Sequence[tf.Variable]:
        """The variables that the steps change: of q_mu and of q_sqrt."""
        return self._layer.q_mu.unconstrained_variable, self._layer.q_sqrt.unconstrained_variable

    def apply(self, gradients: Sequence[tf.Tensor], step: tf.Tensor) -> tf.Tensor:
        """One step upwards, halved until the new covariance is positive definite; how often it was.

        :param gradients: of the objective in `variables_stepped`.
        :param step: number of steps before this one.
        """
        layer = self._layer
        d_mean, d_tril = (
            parameter.transform.forward(gradient) if parameter.transform else gradient
            for parameter, gradient in zip((layer.q_mu, layer.q_sqrt), gradients, strict=True)
        )
        mean, tril = tf.convert_to_tensor(layer.q_mu), tf.convert_to_tensor(layer.q_sqrt)
        # 2 L^T (dF/dS) L, symmetric, from the gradient in the Cholesky factor L.
        curvature = tf.linalg.band_part(tf.matmul(tril, d_tril, transpose_a=True), -1, 0)
        curvature = tf.linalg.set_diag(curvature, 0.5 * tf.linalg.diag_part(curvature))
        curvature += transpose(curvature)

        def factor(size: tf.Tensor) -> tf.Tensor:
            return _reverse_cholesky(
                tf.eye(tf.shape(tril)[-1], dtype=tril.dtype) - size * curvature
            )

        def failed(size: tf.Tensor, halvings: tf.Tensor, upper: tf.Tensor) -> tf.Tensor:
            finite = tf.reduce_all(tf.math.is_finite(upper))
            return ~finite & (halvings < MAX_HALVINGS)

        def halve(
            size: tf.Tensor, halvings: tf.Tensor, _: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            return 0.5 * size, halvings + 1, factor(0.5 * size)

        start = learning_rate_at(self.schedule, step, self._num_steps, tril.dtype)
        size, halvings, upper = tf.while_loop(failed, halve, (start, tf.constant(0), factor(start)))
        new_tril = transpose(tf.linalg.triangular_solve(upper, transpose(tril), lower=False))
        ascent = tf.linalg.matvec(new_tril, transpose(d_mean), transpose_a=True)
        new_mean = mean + size * transpose(tf.linalg.matvec(new_tril, ascent))
        accepted = tf.reduce_all(tf.math.is_finite(new_tril))
        layer.q_mu.assign(tf.where(accepted, new_mean, mean))
        layer.q_sqrt.assign(tf.where(accepted, new_tril, tril))
        return halvings


def _reverse_cholesky(matrix: tf.Tensor) -> tf.Tensor:
    """Upper U [..., M, M] with U U^T = `matrix`; NaN where it is not positive definite."""
    return tf.reverse(tf.linalg.cholesky(tf.reverse(matrix, [-2, -1])), [-2, -1])
