"""What all estimators share: data in their own units, a model of standardised ones, training, pickling."""

from __future__ import annotations

import abc
import numbers
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import gpflow
import numpy as np
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from typing_extensions import Self

from ..checks import brief, check_flag, check_positive_integer
from ..mixture import Mixture
from ..models import MonteCarloModel
from ..saving import save
from ..training import History, Recipe
from .compiled import Twin, twin_of
from .pickling import dump_model, load_model
from .scaling import Scaling
from .structure import structure_of

BUILDING_ROWS = 10_000
"""Rows, at random, that are clustered for a deep model's start where there are more."""


@dataclass(kw_only=True, eq=False, repr=False)
class Estimator(BaseEstimator, abc.ABC):
    """A model, its training and its predictions.

    Inputs and targets are scaled to mean 0 and standard deviation 1 over the training rows. A feature that is
    constant there is left out, unless the kernel is given as an object, which knows its columns.

    :param kernel: "squared_exponential", "rational_quadratic" or "relu", the arc-cosine kernel of order 1;
        of `DGPRegressor` also "relu_features", "erf" or "sin", a network of `width` units a layer; or a
        GPflow kernel on standardised inputs, of which the model gets copies.
    :param num_steps: of training, at most; None for as many as fit into `max_seconds`, or with neither until
        the bound has stopped rising.
    :param max_seconds: time of the training, the compilation of its first run included.
    :param batch_size: rows a step; default all of up to 2 000, `minibatch` of more.
    :param schedule: "fast", "paper" or a `gpflow_dkp.training.Recipe`.
    :param prediction_samples: of the hidden layers, over which predictions average.
    :param warm_start: a second `fit` goes on from the parameters and the scaling of the first, if the model
        has the same structure.
    :param verbose: show a progress bar.
    :param random_state: of the inducing points, the starting values and the training: an integer, a
        `numpy.random.RandomState`, or None for others in each fit.

    Attributes after `fit`: `model_`, the model of standardised data; `history_`, a
    `gpflow_dkp.training.History`; `n_iter_`, training steps; `input_scaling_`; `n_features_in_` and, of data
    frames, `feature_names_in_`.
    """

    kernel: str | Kernel = "squared_exponential"
    num_steps: int | None = 2_000
    max_seconds: float | None = None
    batch_size: int | None = None
    schedule: str | Recipe = "fast"
    prediction_samples: int = 100
    warm_start: bool = False
    verbose: bool = False
    random_state: int | np.random.RandomState | None = None

    full_batch: ClassVar[int] = 2_000
    """Rows up to which a training step takes all of them."""

    minibatch: ClassVar[int] = 1_000
    """Rows of a step where there are more, and `batch_size` says nothing."""

    NOT_SAVED: ClassVar[tuple[str, ...]] = ("_structure",)

    @abc.abstractmethod
    def _build(
        self, X: np.ndarray, Y: np.ndarray, likelihood: Likelihood | None, seed: int
    ) -> MonteCarloModel:
        """An untrained model of standardised X [N, D] and Y [N, P], or labels [N, 1].

        :param likelihood: None for a Gaussian one.
        """

    def _trained(
        self,
        X: np.ndarray,
        Y: np.ndarray,
        likelihood: Likelihood | None,
        seed: int,
        before: MonteCarloModel | None,
    ) -> tuple[MonteCarloModel, History]:
        """A trained model, and the record of its training; arguments as of `_build`.

        :param before: whose parameters to go on from, without annealing, if its structure is the same.
        """
        model = self._build(X, Y, likelihood, seed)
        structure = structure_of(model)
        goes_on = before is not None and structure == structure_of(before)
        if before is not None and goes_on:
            for variable, value in zip(model.variables, before.variables, strict=True):
                variable.assign(value)
        history = twin_of(model, structure).train(
            model,
            (X, Y),
            seed,
            batch_size=self._rows_of_step(len(X)),
            progress=bool(self.verbose),
            num_steps=self.num_steps,
            max_seconds=self.max_seconds,
            schedule=self.schedule,
            kl_annealing_steps=0 if goes_on else None,
        )
        return model, history

    def _fit(
        self, X: np.ndarray, Y: np.ndarray, likelihood: Likelihood | None, *, goes_on: bool
    ) -> Self:
        """Build and train a model of inputs [N, D] in their own units and targets as the model takes them.

        :param goes_on: keep the input scaling, and the parameters where the structure is the same.
        """
        # A fit that fails leaves no model of other data.
        before = self.__dict__.pop("model_", None)
        self.__dict__.pop("_structure", None)
        if not goes_on:
            of_columns = isinstance(self.kernel, Kernel)
            self.input_scaling_ = Scaling.of(X, drop_constant=not of_columns)
        X = self.input_scaling_.standardise(X)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        model, self.history_ = self._trained(X, Y, likelihood, seed, before if goes_on else None)
        self.model_: MonteCarloModel = model
        self._structure: Hashable = structure_of(model)
        self.n_iter_ = self.history_.num_steps
        return self

    def _rows_of_step(self, num_rows: int) -> int | None:
        """Rows of a training step, None for all."""
        batch_size = self.batch_size or (self.minibatch if num_rows > self.full_batch else num_rows)
        return batch_size if batch_size < num_rows else None

    def _check_parameters(self) -> None:
        """Raise `ValueError` for parameters that the models and their training do not check."""
        check_positive_integer("prediction_samples", self.prediction_samples)
        if self.batch_size is not None:
            check_positive_integer("batch_size", self.batch_size)
        for name in ("warm_start", "verbose"):
            value = getattr(self, name)
            if not isinstance(value, numbers.Integral) or value not in (0, 1):
                check_flag(name, value)

    def _goes_on(self, num_features: int | None) -> bool:
        """Whether a fit is to go on from the one before, which was of so many features."""
        before = self.warm_start and hasattr(self, "model_")
        return bool(before and self.n_features_in_ == num_features)

    def _inputs(self, X: Any) -> np.ndarray:
        """Standardised inputs [N, D'] of a fitted estimator."""
        check_is_fitted(self, "model_")
        X = validate_data(self, X, reset=False, dtype=np.float64, order="C")
        return self.input_scaling_.standardise(X)

    @property
    def _twin(self) -> Twin:
        if "_structure" not in vars(self):  # of a file
            self._structure = structure_of(self.model_)
        return twin_of(self.model_, self._structure)

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one file, for `gpflow_dkp.load`.

        :param path: any name, in the place of a file that is there.
        :raises gpflow_dkp.saving.SavingError: for a part that has no way to be saved, or a bad path.
        """
        check_is_fitted(self, "model_")
        save(self, path)

    def _mixture(self, inputs: np.ndarray) -> Mixture:
        """New observations at standardised inputs, standardised, as a mixture [S, N, P] of arrays."""
        return self._twin.mixture(self.model_, inputs, self.prediction_samples)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "model_" in state:
            state["model_"] = dump_model(state["model_"])
        for name in self.NOT_SAVED:
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        if "model_" in state:
            state["model_"] = load_model(state["model_"])
        super().__setstate__(state)


def refuse_weights(sample_weight: object) -> None:
    """Raise `ValueError` for weights."""
    if sample_weight is not None:
        raise ValueError(
            f"sample_weight: got {brief(sample_weight)}, needs None: the bound weighs all rows alike"
        )


def copy_of(likelihood: Likelihood | None) -> Likelihood | None:
    """A likelihood that training may change."""
    return None if likelihood is None else gpflow.utilities.deepcopy(likelihood)
