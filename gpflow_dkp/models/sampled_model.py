"""Models whose inducing values are sampled from their posterior, not approximated."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import RegressionData

from ..random import Seed
from .base import MonteCarloModel


class SampledModel(MonteCarloModel):
    """A model of layers whose whitened inducing values v `gpflow_dkp.training.sample` draws from

        p(v) prod_n exp E[log p(y_n | f_n)],

    the expectation over the functions given v. Predictions are mixtures over the samples that are kept,
    `num_samples` of them evenly over the chain; before there are any they are of the chain's start.

    `elbo` is the logarithm of the density above where the chain stands: no bound on the evidence.

    >>> model = gpflow_dkp.models.SGHMCDWP.from_data(X, Y, num_inducing=3)
    >>> isinstance(model, gpflow_dkp.models.SampledModel), model.objective_is_bound
    (True, False)
    """

    layers: list[Any]
    """`SampledLayer`s."""

    @property
    def objective_is_bound(self) -> bool:
        """No: it is a density at one value of v."""
        return False

    @abc.abstractmethod
    @check_shapes("values[all]: [S, ., .]", "return[0]: [S]", "return[1]: [S]")
    def log_joint_terms(
        self, data: RegressionData, values: Sequence[tf.Tensor], *, seed: Seed = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Expected log-likelihood [S] of the rows given and log p(v) [S], at S values of v.

        :param data: X [N, D] and Y [N, P].
        :param values: v [S, M, L] of each layer.
        :param seed: of the inner functions, drawn for each point of each value.
        """

    @inherit_check_shapes
    def elbo_terms(
        self,
        data: RegressionData,
        *,
        num_samples: int | None = None,
        seed: Seed = None,
        rows: tf.Tensor | None = None,
        values: Sequence[tf.Tensor] | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The two terms of `elbo`: the expected log-likelihood of the rows given, and log p(v).

        :param values: v [M, L] of each layer, in the place of where the chain stands.
        """
        S = self._number_of_samples(num_samples)
        values = [layer.values for layer in self.layers] if values is None else values
        repeated = [tf.tile(value[None], [S, 1, 1]) for value in values]
        expected, log_prior = self.log_joint_terms(data, repeated, seed=seed)
        return tf.reduce_mean(expected), tf.reduce_mean(log_prior)
