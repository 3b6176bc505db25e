"""Training steps and predictions that are compiled once for all models of one structure.

TensorFlow needs seconds to trace a model's training step. Fits of cross-validation, searches and ensembles
differ in data, seeds and starting values alone, so a twin of each structure takes a model's values in, does
the work and gives them back.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.kernels import Kernel

from ..mixture import Mixture, check_levels
from ..models import MonteCarloModel, Posterior
from ..models.marginal_likelihood import MarginalLikelihood, least_noise, some_rows
from ..models.posterior import PREDICTION_BATCH
from ..random import split
from ..training import History
from ..training.data import ReplaceableData
from ..training.fit import run
from ..training.trainer import Trainer
from .structure import structure_of

MAX_TWINS = 32
"""Structures that are remembered, and ..."""

MAX_USES = 4
"""... of each the ways to train it, and to predict."""

MAX_POSTERIORS = 4
"""Models whose posterior's samples are kept, some 50 MB of 100 inducing points."""

MARGINAL_POINTS = 500
"""Rows of a marginal likelihood."""

PREDICTION_SEED = 0
"""Of the samples that predictions are of, the same for all models, as `model.predict_y` has it."""

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """The values that were asked for last, made where they are missing."""

    def __init__(self, size: int) -> None:
        self._size, self._values, self._lock = size, OrderedDict[Key, Value](), threading.Lock()

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of a key."""
        with self._lock:
            if key not in self._values:
                self._values[key] = make()
            self._values.move_to_end(key)
            while len(self._values) > self._size:
                self._values.popitem(last=False)
            return self._values[key]


class Predictions:
    """Compiled functions of a model's values.

    :param num_samples: S.
    """

    def __init__(self, model: MonteCarloModel, num_samples: int) -> None:
        self._model, self._num_samples = model, num_samples
        # Partials: TensorFlow counts traces by a function's code, and warns where many objects share one.
        self.sample_layers = tf.function(partial(self._sample), autograph=False, input_signature=[])
        draws = self.sample_layers.get_concrete_function().structured_outputs
        inputs = tf.TensorSpec([None, model.num_features], gpflow.default_float())
        self.moments = tf.function(
            partial(self._moments),
            autograph=False,
            input_signature=[
                tf.nest.map_structure(lambda d: tf.TensorSpec(d.shape, d.dtype), draws),
                inputs,
            ],
        )

    def posterior(self, draws: Any) -> Posterior:
        """The model's posterior of these draws."""
        return Posterior(self._model, self._num_samples, PREDICTION_SEED, draws=draws)

    def _sample(self) -> Any:
        return self._model.sample_layers(self._num_samples, split(PREDICTION_SEED, 2)[0])

    def _moments(self, draws: Any, X: tf.Tensor) -> Mixture:
        return self.posterior(draws).mixture(X, batch_size=None)


class Twin:
    """Works for the models of one structure, one at a time.

    :param model: the first of them, which is copied.
    """

    def __init__(self, model: MonteCarloModel) -> None:
        self._model = gpflow.utilities.deepcopy(model)
        self._variables = self._model.variables
        self._trainers: Recent[str, Trainer] = Recent(MAX_USES)
        self._predictions: Recent[int, Predictions] = Recent(MAX_USES)
        self._version = 0
        self._lock = threading.RLock()

    def train(
        self,
        model: MonteCarloModel,
        data: RegressionData,
        seed: int,
        *,
        batch_size: int | None,
        progress: bool,
        **settings: Any,
    ) -> History:
        """Train a model in place.

        :param data: X [N, D] and Y [N, P].
        :param batch_size: None for all rows.
        :param settings: further arguments of `Trainer`.
        """
        num_columns = [part.shape[1] for part in data]

        def make() -> Trainer:
            num_features, num_targets = num_columns
            rows = ReplaceableData(num_features, num_targets, batch_size)
            return Trainer(self._model, rows, **settings)

        with self._lock:
            self._take(model)
            trainer = self._trainers.get(repr((num_columns, batch_size, settings)), make)
            trainer.restart(data, seed)
            try:
                history = run(trainer, progress=progress)
            finally:
                self._version += 1
                trainer.release()
            for theirs, ours in zip(model.variables, self._variables, strict=True):
                theirs.assign(ours)
        return history

    def mixture(self, model: MonteCarloModel, X: np.ndarray, num_samples: int) -> Mixture:
        """New observations at X [N, D] as `Posterior.mixture` has them, as arrays [S, N, P]."""
        with self.posterior(model, num_samples) as posterior:
            moments = self._predictions_of(num_samples).moments
            batches = [X[i : i + PREDICTION_BATCH] for i in range(0, len(X), PREDICTION_BATCH)]
            parts = [moments(posterior.draws, tf.constant(batch)) for batch in batches]
        return Mixture(*(np.concatenate(part, 1) for part in zip(*parts, strict=True)))

    @contextlib.contextmanager
    def posterior(self, model: MonteCarloModel, num_samples: int) -> Iterator[Posterior]:
        """The model's posterior, while the twin works for this model."""
        with self._lock:
            self._take(model)
            predictions = self._predictions_of(num_samples)
            yield _posteriors.get(
                (self, self._version, num_samples),
                lambda: predictions.posterior(predictions.sample_layers()),
            )

    def _predictions_of(self, num_samples: int) -> Predictions:
        return self._predictions.get(num_samples, lambda: Predictions(self._model, num_samples))

    def _take(self, model: MonteCarloModel) -> None:
        """Take a model's values, in another version where they are others than those before."""
        for ours, theirs in zip(self._variables, model.variables, strict=True):
            value = theirs.numpy()
            if not np.array_equal(ours.numpy(), value):
                ours.assign(value)
                self._version += 1


_posteriors: Recent[tuple[Twin, int, int], Posterior] = Recent(MAX_POSTERIORS)
_quantiles: Recent[tuple[float, ...], Callable[..., tf.Tensor]] = Recent(MAX_USES)


def quantiles_of(mixture: Mixture, levels: Sequence[float] | np.ndarray) -> np.ndarray:
    """`Mixture.quantile` [L, N, P], compiled for the levels, some rows at a time."""
    probabilities = tuple(check_levels(levels).tolist())
    moments = tf.TensorSpec([None, None, None], gpflow.default_float())
    of_levels = _quantiles.get(
        probabilities,
        lambda: tf.function(
            lambda mean, variance: Mixture(mean, variance).quantile(probabilities),
            autograph=False,
            input_signature=[moments, moments],
        ),
    )
    starts = range(0, mixture.mean.shape[1], PREDICTION_BATCH)
    rows = [slice(start, start + PREDICTION_BATCH) for start in starts]
    parts = [of_levels(mixture.mean[:, part], mixture.variance[:, part]) for part in rows]
    return np.concatenate(parts, 1)


_searches: Recent[Hashable, MarginalLikelihood] = Recent(MAX_TWINS)


def fit_by_marginal_likelihood(kernel: Kernel, X: np.ndarray, Y: np.ndarray, seed: int) -> float:
    """`marginal_likelihood_start` for a kernel, compiled for the first of its structure."""
    X, Y = some_rows(X, Y, MARGINAL_POINTS, seed)
    # A power of two: the bound, which differs from fold to fold, is compiled in.
    least = 2.0 ** math.floor(math.log2(least_noise(Y)))
    key = structure_of(kernel), X.shape[1], Y.shape[1], least
    with _searching:
        search = _searches.get(
            key, lambda: MarginalLikelihood(gpflow.utilities.deepcopy(kernel), *key[1:])
        )
        for ours, theirs in zip(search.kernel.variables, kernel.variables, strict=True):
            ours.assign(theirs)
        noise_variance = search.maximise(X, Y, noise_variance=0.1, max_iterations=100)
        for ours, theirs in zip(search.kernel.variables, kernel.variables, strict=True):
            theirs.assign(ours)
    return noise_variance


_searching = threading.Lock()
_twins: Recent[Hashable, Twin] = Recent(MAX_TWINS)


def twin_of(model: MonteCarloModel, structure: Hashable) -> Twin:
    """The twin of all models of a structure, of which `model` is one."""
    return _twins.get(structure, lambda: Twin(model))
