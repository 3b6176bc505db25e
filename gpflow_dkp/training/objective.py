"""What a training step raises: a model's bound, its KL term annealed, or minus a GPflow model's loss."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes.exceptions import CheckShapesError
from gpflow.models import SVGP, BayesianModel

from ..models import MonteCarloModel
from ..random import Seed
from .data import InternalData, Minibatch, TrainingData
from .devices import Share
from .schedules import Moment


class Value(NamedTuple):
    """An objective's value for one minibatch, of the whole training set.

    :param bound: the evidence lower bound, its KL term with the weight that it will have in the end [].
    :param total: what is maximised: the bound with the KL term's weight of now, and the log densities of the
        parameters' priors [].
    """

    bound: tf.Tensor
    total: tf.Tensor


class Objective(abc.ABC):
    """What is maximised, as a function of a minibatch and a seed."""

    dtype: tf.DType

    def start(self, moment: Moment) -> None:  # noqa: B027  # not all have something to set
        """Set what depends on where the run stands."""

    def finish(self) -> None:  # noqa: B027
        """Leave the model as it was but for what was trained."""

    @abc.abstractmethod
    def samples_to_share(self) -> int:
        """How many samples devices can share, and the rows of each.

        :raises ValueError: where the objective is no such sum.
        """

    @abc.abstractmethod
    def __call__(self, batch: Minibatch, seed: Seed, share: Share) -> Value:
        """The value at a minibatch, or of a share of it: the values of all shares add up."""


class BoundObjective(Objective):
    """The bound of a model of this package and GPflow's log prior densities.

    :param annealing: by what the KL term's weight is multiplied at a moment, in a dtype.
    """

    def __init__(
        self,
        model: MonteCarloModel,
        num_data: int | tf.Variable,
        annealing: Callable[[Moment, tf.DType], tf.Tensor],
    ) -> None:
        self._model, self._num_data, self._annealing = model, num_data, annealing
        self._with_priors = [p for p in model.trainable_parameters if p.prior is not None]
        self._weight = float(model.kl_weight)
        self.dtype = model.kl_weight.dtype
        self._part_of_weight = tf.Variable(1.0, dtype=self.dtype, trainable=False)

    def start(self, moment: Moment) -> None:
        """Set the weights of the KL terms, that of latent variables among them."""
        self._part_of_weight.assign(self._annealing(moment, self.dtype))
        self._model.kl_weight.assign(self._weight * self._part_of_weight)

    def finish(self) -> None:
        """Give the KL term its weight back."""
        self._model.kl_weight.assign(self._weight)

    def samples_to_share(self) -> int:
        """The model's."""
        return self._model.samples_to_share()

    def __call__(self, batch: Minibatch, seed: Seed, share: Share, **given: Any) -> Value:
        """The bound of the whole training set from a minibatch, whatever the model's `num_data`.

        :param given: further arguments of the model's `elbo_terms`, for a share that is whole.
        """
        model = self._model
        if share.is_whole:
            expected, log_ratio, annealed = model.annealed_terms(
                batch.data, self._part_of_weight, seed=seed, rows=batch.rows, **given
            )
        else:
            expected, log_ratio, annealed = self._terms_of(share, batch, seed)
        num_data, size = (tf.cast(n, expected.dtype) for n in (self._num_data, batch.size))
        factor = num_data / size
        of_data = factor * expected
        annealed = factor * annealed + model.kl_weight * log_ratio
        priors = [parameter.log_prior_density() for parameter in self._with_priors]
        if not share.is_whole:
            priors = [share.of_work(batch, self.dtype) * prior for prior in priors]
        return Value(of_data + self._weight * log_ratio, tf.add_n([annealed, *priors]))

    def _terms_of(
        self, share: Share, batch: Minibatch, seed: Seed
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """What a share adds to the model's terms: means over samples, all but the second a sum over rows."""
        own = share.part_of(batch)
        expected, log_ratio, annealed = self._model.annealed_terms(
            own.data,
            self._part_of_weight,
            num_samples=share.stop - share.start,
            seed=share.seed_of(seed, batch),
            rows=own.rows,
        )
        return (
            share.of_samples(expected.dtype) * expected,
            share.of_work(batch, log_ratio.dtype) * log_ratio,
            share.of_samples(annealed.dtype) * annealed,
        )


class LossObjective(Objective):
    """The negative `training_loss` of a GPflow model, priors included.

    :raises ValueError: for minibatches of a model that does not know how many data points there are, or
        data that the model does not take.
    """

    def __init__(self, model: BayesianModel, data: TrainingData) -> None:
        self._model = model
        self._internal = isinstance(data, InternalData)
        self.dtype = gpflow.default_float()
        if not self._internal and data.batch_size != data.num_data:
            name = type(model).__name__
            if getattr(model, "num_data", data.num_data) is None:
                raise ValueError(
                    f"model: {name}'s num_data is None, needs {data.num_data} to scale a minibatch's "
                    f"likelihood; build it with num_data={data.num_data}"
                )
        if not self._internal:
            self._try(data.example())

    def _try(self, batch: tuple[tf.Tensor, tf.Tensor]) -> None:
        """Evaluate the loss: GPflow's errors of shapes are pages long."""
        try:
            self._model.training_loss(batch)
        except (CheckShapesError, ValueError, tf.errors.InvalidArgumentError) as error:
            X, Y = (np.shape(part) for part in batch)
            raise ValueError(
                f"data: {type(self._model).__name__} does not take X {X} and Y {Y}; it needs as many "
                "columns as its inducing points, kernel and likelihood have"
            ) from error

    def samples_to_share(self) -> int:
        """1 of an `SVGP`, whose loss of some rows is an estimate of that of all."""
        name = type(self._model).__name__
        if self._internal or not isinstance(self._model, SVGP):
            raise ValueError(
                f"strategy: the loss of {name} is of all rows together, which devices cannot share; set it "
                "to None"
            )
        if self._model.num_data is None:
            raise ValueError(
                f"model: {name}'s num_data is None, needs the number of rows to scale those of a device; "
                "build it with num_data"
            )
        return 1

    def __call__(self, batch: Minibatch, seed: Seed, share: Share) -> Value:
        """Minus the loss."""
        own = share.part_of(batch)
        loss = self._model.training_loss(*(() if self._internal else (own.data,)))
        if not share.is_whole:
            loss *= share.of_work(batch, loss.dtype)
        return Value(-loss, -loss)
