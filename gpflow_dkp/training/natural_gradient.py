"""Natural-gradient steps of an output layer's Gaussian posterior."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import TypeAlias

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.models import BayesianModel

from ..layers import OutputGP, SparseGP
from ..linalg import transpose
from ..models import DeepKernelProcess
from ..random import Seed
from .schedules import Moment, Schedule, learning_rate_at

MAX_HALVINGS = 20
"""How often a step that is not possible is halved before it is dropped."""

LEAST_PRECISION = 1e-6
"""Of pseudo-observations, relative to the posterior precision of the inducing values, in any direction."""

Objective: TypeAlias = "Callable[[], tf.Tensor]"


class NaturalGradient(tf.Module, abc.ABC):
    """Steps of an output layer's posterior, of sizes gamma that follow a schedule.

    :param schedule: of gamma.
    """

    def __init__(self, schedule: Schedule, name: str | None = None) -> None:
        super().__init__(name=name)
        self.schedule = schedule

    @property
    @abc.abstractmethod
    def variables_stepped(self) -> Sequence[tf.Variable]:
        """The variables that the steps change, and Adam leaves."""

    @abc.abstractmethod
    def direction(self, gradients: Sequence[tf.Tensor], seed: Seed) -> Sequence[tf.Tensor]:
        """What `apply` needs to know of the objective, finite if a step is possible.

        :param gradients: of the whole training set's objective in `variables_stepped`.
        :param seed: of the random numbers that they are of.
        """

    @abc.abstractmethod
    def apply(
        self,
        direction: Sequence[tf.Tensor],
        moment: Moment,
        before: tf.Tensor,
        objective: Objective,
    ) -> tf.Tensor:
        """One step upwards, halved until it is possible; how often it was.

        :param moment: where the run stands.
        :param before: the objective that `direction` is of [].
        :param objective: the same with the variables as they are when it is called.
        """

    def _halved_until_finite(
        self, factor: Callable[[tf.Tensor], tf.Tensor], moment: Moment, dtype: tf.DType
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The step size whose Cholesky factor is finite, the factor, and the number of halvings."""

        def failed(_: tf.Tensor, halvings: tf.Tensor, matrix: tf.Tensor) -> tf.Tensor:
            finite = tf.reduce_all(tf.math.is_finite(matrix))
            return ~finite & (halvings < MAX_HALVINGS)

        def halve(
            size: tf.Tensor, halvings: tf.Tensor, _: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            return 0.5 * size, halvings + 1, factor(0.5 * size)

        start = learning_rate_at(self.schedule, moment, dtype)
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

    def __init__(self, layer: SparseGP, schedule: Schedule) -> None:
        super().__init__(schedule)
        self._layer = layer

    @property
    def variables_stepped(self) -> Sequence[tf.Variable]:
        """Those of q_mu and q_sqrt."""
        return self._layer.q_mu.unconstrained_variable, self._layer.q_sqrt.unconstrained_variable

    def direction(self, gradients: Sequence[tf.Tensor], seed: Seed) -> Sequence[tf.Tensor]:
        """The gradients."""
        return gradients

    def apply(
        self,
        direction: Sequence[tf.Tensor],
        moment: Moment,
        before: tf.Tensor,
        objective: Objective,
    ) -> tf.Tensor:
        """One step from the gradients, halved until the covariance it leaves is positive definite."""
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
            lambda size: _reverse_cholesky(eye - size * curvature), moment, tril.dtype
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

    Given sample s of the hidden layers the natural parameters of the P outputs' posteriors are theta =
    (Lambda v_p, -Lambda / 2), Lambda shared, added to those of the prior. The bound's gradients in theta are

        g_1 = Lambda^{-1} dF/dv,   g_2 = -2 (dF/dLambda - sym(Lambda^{-1} dF/dv v^T)).

    The expectations that belong to theta are m_p and sum_p (S + m_p m_p^T), of Gaussians N(m_p, S) that
    change with the sample. The Fisher matrix, their derivative in theta, is that of one Gaussian with the
    samples' mean m and covariance S: positive definite, so that the steps end where the gradient does, and
    exact without hidden layers. The change of theta that changes the expectations by g is

        dS = (g_2 - g_1 m^T - m g_1^T) / P,
        dLambda = -S^{-1} dS S^{-1},   d(Lambda v) = S^{-1} g_1 + dLambda m.

    A step that would leave Lambda indefinite ends at the nearest matrix that is not, in the metric of the
    Fisher matrix: with S = L L^T, the eigenvalues of L^T Lambda L are raised to `LEAST_PRECISION`. It leaves
    d(Lambda v) - dLambda m, which is orthogonal to dLambda in that metric. A step is halved until the
    objective of the same minibatch and random numbers is no lower than before.
    """

    def __init__(self, model: DeepKernelProcess, schedule: Schedule) -> None:
        super().__init__(schedule)
        self._model, self._layer = model, model.output_layer

    @property
    def variables_stepped(self) -> Sequence[tf.Variable]:
        """Those of v and precision_tril."""
        layer = self._layer
        return layer.v.unconstrained_variable, layer.precision_tril.unconstrained_variable

    def direction(self, gradients: Sequence[tf.Tensor], seed: Seed) -> Sequence[tf.Tensor]:
        """S^{-1} g_1 [M, P], dLambda [M, M], m [M, P], and the Cholesky factor of S [M, M]."""
        layer = self._layer
        mean, covariance = self._model.output_layer_moments(seed=seed)
        v, tril = tf.convert_to_tensor(layer.v), tf.convert_to_tensor(layer.precision_tril)
        d_v, d_tril = (
            _gradient_in_value(parameter, gradient)
            for parameter, gradient in zip((layer.v, layer.precision_tril), gradients, strict=True)
        )
        g_1 = tf.linalg.cholesky_solve(tril, d_v)
        d_precision = _gradient_of_cholesky(tril, d_tril) - _symmetric_product(g_1, v)
        num_outputs = tf.cast(tf.shape(v)[1], v.dtype)
        d_covariance = -2.0 * (d_precision + _symmetric_product(g_1, mean)) / num_outputs
        chol = tf.linalg.cholesky(covariance)
        left = tf.linalg.cholesky_solve(chol, d_covariance)
        change = -tf.linalg.cholesky_solve(chol, transpose(left))
        change = 0.5 * (change + transpose(change))
        return [tf.linalg.cholesky_solve(chol, g_1), change, mean, chol]

    def apply(
        self,
        direction: Sequence[tf.Tensor],
        moment: Moment,
        before: tf.Tensor,
        objective: Objective,
    ) -> tf.Tensor:
        """One step, or none if no size raises the objective."""
        layer = self._layer
        ascent, change, mean, chol = direction
        tril, v = tf.convert_to_tensor(layer.precision_tril), tf.convert_to_tensor(layer.v)
        precision = tf.matmul(tril, tril, transpose_b=True)
        start = learning_rate_at(self.schedule, moment, v.dtype)
        lowest = before - _rounding(before)

        def attempt(halvings: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            size = start * tf.constant(0.5, v.dtype) ** tf.cast(halvings, v.dtype)
            new_precision = _project(precision + size * change, chol)
            new_tril = tf.linalg.cholesky(new_precision)
            linear = precision @ (v - mean) + size * ascent + new_precision @ mean
            new_v = tf.linalg.cholesky_solve(new_tril, linear)

            def is_no_lower() -> tf.Tensor:
                layer.precision_tril.assign(new_tril)
                layer.v.assign(new_v)
                return objective() >= lowest

            finite = tf.reduce_all(tf.math.is_finite(new_v))
            accepted = tf.cond(finite, is_no_lower, lambda: tf.constant(False))
            return halvings + tf.cast(~accepted, tf.int32), accepted

        halvings, accepted = tf.while_loop(
            lambda halvings, accepted: ~accepted & (halvings <= MAX_HALVINGS),
            attempt,
            (tf.constant(0), tf.constant(False)),
            parallel_iterations=1,
        )

        def undo() -> tf.Tensor:
            layer.precision_tril.assign(tril)
            layer.v.assign(v)
            return tf.constant(MAX_HALVINGS)

        return tf.cond(accepted, lambda: halvings, undo)


def natural_gradient_of(model: BayesianModel, schedule: Schedule) -> NaturalGradient:
    """The steps for a model's output layer.

    :raises ValueError: for a layer that has none, or whose parameters are not trainable.
    """
    layer = getattr(model, "output_layer", None)
    if isinstance(layer, SparseGP):
        stepper: NaturalGradient = SparseGPStep(layer, schedule)
        names: tuple[str, ...] = ("q_mu", "q_sqrt")
    elif isinstance(layer, OutputGP) and isinstance(model, DeepKernelProcess):
        if not layer.shared_covariance:
            raise ValueError(
                "natural_gradient: the outputs have covariances of their own, needs one kernel for all and "
                "shared_precision=True; set it to None"
            )
        stepper, names = GlobalInducingStep(model, schedule), ("v", "precision_tril")
    else:
        raise ValueError(
            f"natural_gradient: {type(model).__name__} has no SparseGP or OutputGP as output "
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


def _gradient_in_value(parameter: gpflow.Parameter, gradient: tf.Tensor) -> tf.Tensor:
    """The gradient in a parameter's value from that in its unconstrained variable, of as many numbers."""
    if parameter.transform is None:
        return gradient
    # A copy: the bijector knows what the parameter's own value came from, and would not invert it.
    value = tf.identity(tf.convert_to_tensor(parameter))
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(value)
        unconstrained = parameter.transform.inverse(value)
    return tape.gradient(unconstrained, value, output_gradients=gradient)


def _gradient_of_cholesky(tril: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    """The symmetric gradient in R R^T from that in its lower factor R [Murray 2016].

    R^{-T} sym(Phi(R^T dR)) R^{-1}, where Phi takes the lower triangle and half of the diagonal.
    """
    inner = tf.linalg.band_part(tf.matmul(tril, gradient, transpose_a=True), -1, 0)
    inner = tf.linalg.set_diag(inner, 0.5 * tf.linalg.diag_part(inner))
    inner = 0.5 * (inner + transpose(inner))
    left = tf.linalg.triangular_solve(tril, inner, adjoint=True)
    return tf.linalg.triangular_solve(tril, transpose(left), adjoint=True)


def _symmetric_product(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """sym(a b^T)."""
    product = tf.matmul(a, b, transpose_b=True)
    return 0.5 * (product + transpose(product))


def _project(precision: tf.Tensor, chol: tf.Tensor) -> tf.Tensor:
    """The matrix nearest to `precision` [M, M] with L^T Lambda L >= `LEAST_PRECISION`, L = `chol`."""
    eye = tf.eye(tf.shape(chol)[0], dtype=chol.dtype)
    least = tf.constant(LEAST_PRECISION, chol.dtype)
    margin = tf.linalg.cholesky(precision - least * tf.linalg.cholesky_solve(chol, eye))

    def projected() -> tf.Tensor:
        whitened = tf.matmul(chol, precision @ chol, transpose_a=True)
        values, vectors = tf.linalg.eigh(0.5 * (whitened + transpose(whitened)))
        vectors = tf.linalg.triangular_solve(chol, vectors, adjoint=True)
        return tf.matmul(vectors * tf.maximum(values, least), vectors, transpose_b=True)

    return tf.cond(tf.reduce_all(tf.math.is_finite(margin)), lambda: precision, projected)


def _rounding(value: tf.Tensor) -> tf.Tensor:
    """By how much two evaluations of an objective may differ where nothing changed."""
    return value.dtype.as_numpy_dtype(np.finfo(value.dtype.as_numpy_dtype).eps ** (2 / 3)) * (
        1.0 + tf.abs(value)
    )
