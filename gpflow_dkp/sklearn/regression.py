"""Regression: what `GaussianProcessRegressor` gives, and quantiles and densities of the exact mixtures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from gpflow.likelihoods import Gaussian, Likelihood
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    validate_data,
)
from typing_extensions import Self

from ..checks import check_positive_integer
from ..mixture import Mixture
from ..models.checks import Support, check_likelihood, target_support
from .base import Estimator, copy_of, refuse_weights
from .compiled import quantiles_of
from .scaling import Scaling

if TYPE_CHECKING:
    import pandas as pd

LEVELS = (0.05, 0.5, 0.95)
"""Of the quantiles that describe a distribution."""


@dataclass(kw_only=True, eq=False, repr=False)
class Regressor(MultiOutputMixin, RegressorMixin, Estimator):
    """Targets of one or more outputs.

    Letters: N rows, D features, P outputs, L levels. Where y was 1-D results have no axis of outputs.

    :param likelihood: of standardised targets, a GPflow likelihood such as `StudentT`, which is copied; of
        targets as they are where it is for some only, as `Poisson`. None for Gaussian noise.

    Attributes after `fit`: those of `Estimator`, and `target_scaling_`.
    """

    likelihood: Likelihood | None = None

    def fit(self, X: Any, y: Any, sample_weight: None = None) -> Self:
        """Train a model.

        :param X: [N, D], an array or a data frame, at least two rows.
        :param y: [N] or [N, P].
        :param sample_weight: must be None.
        :raises ValueError: for bad data or parameters, or a training that fails.
        """
        refuse_weights(sample_weight)
        self._check_parameters()
        if self.likelihood is not None:
            check_likelihood(self.likelihood)
        names = [str(name) for name in getattr(y, "columns", ())]
        before = getattr(self, "n_features_in_", None)
        X, y = validate_data(
            self,
            X,
            y,
            multi_output=True,
            y_numeric=True,
            ensure_min_samples=2,
            dtype=np.float64,
            order="C",  # sums do not depend on whether X was a frame
        )
        Y = np.asarray(y, np.float64).reshape(len(y), -1)
        goes_on = self._goes_on(before) and len(self.target_scaling_.mean) == Y.shape[1]
        if not goes_on:
            scaled = self.likelihood is None or target_support(self.likelihood) == Support()
            scaling = Scaling.of(Y) if scaled else Scaling.none(Y.shape[1])
            self.target_scaling_: Scaling = scaling
        self._one_output = y.ndim == 1
        self._outputs = names or [f"y{i}" for i in range(Y.shape[1])]
        targets = self.target_scaling_.standardise(Y)
        return self._fit(X, targets, copy_of(self.likelihood), goes_on=goes_on)

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Mean of new observations [N, P], and their standard deviation [N, P] or covariance [N, N, P].

        :param X: [N, D].
        :param return_std: with the standard deviation, noise included.
        :param return_cov: with the covariance of the rows, noise included, at O(N^3).
        :raises ValueError: for both at once, or `return_cov` of a likelihood that is not Gaussian.
        """
        if return_std and return_cov:
            raise ValueError("return_std, return_cov: got both, needs one of them")
        inputs = self._inputs(X)
        mean, std = map(self._shaped, self._moments(self._mixture(inputs)))
        if return_std:
            return mean, std
        return (mean, self._covariance(inputs)) if return_cov else mean

    def predict_quantiles(self, X: Any, levels: Sequence[float] = LEVELS) -> np.ndarray:
        """Quantiles of new observations [N, L], or [N, L, P], of the exact mixture of Gaussians.

        :param levels: L probabilities, each strictly between 0 and 1.
        :raises ValueError: for other levels, or a likelihood that is not Gaussian.
        """
        inputs = self._inputs(X)
        quantiles = self._quantiles(inputs, self._mixture(inputs), levels)
        return quantiles[..., 0] if self._one_output else quantiles

    def predict_distribution(self, X: Any, levels: Sequence[float] = LEVELS) -> pd.DataFrame:
        """Mean, standard deviation and quantiles of each row, with the index of X.

        Columns are "mean", "std" and "quantile_0.05", ...; of several outputs each has the output's name
        before it: "y0_mean", or as the columns of y were named.

        :param levels: as in `predict_quantiles`.
        :raises ValueError: as `predict_quantiles`.
        """
        import pandas as pd

        inputs = self._inputs(X)
        mixture = self._mixture(inputs)
        mean, std = self._moments(mixture)
        quantiles = self._quantiles(inputs, mixture, levels)
        columns = {}
        for i, output in enumerate(self._outputs):
            prefix = f"{output}_" if len(self._outputs) > 1 else ""
            columns[f"{prefix}mean"] = mean[:, i]
            columns[f"{prefix}std"] = std[:, i]
            for j, level in enumerate(levels):
                columns[f"{prefix}quantile_{level:g}"] = quantiles[:, j, i]
        return pd.DataFrame(columns, index=X.index if isinstance(X, pd.DataFrame) else None)

    def log_density(self, X: Any, y: Any) -> np.ndarray:
        """log p(y | x) of each row [N], in the units of y; of several outputs that of all together.

        :param X: [N, D].
        :param y: [N] or [N, P].
        """
        inputs = self._inputs(X)
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        check_consistent_length(X, y)
        Y = y.reshape(len(y), -1)
        if Y.shape[1] != len(self._outputs):
            raise ValueError(f"y: got {Y.shape[1]} outputs, needs {len(self._outputs)} as in fit")
        targets = self.target_scaling_.standardise(Y)
        if isinstance(self.model_.likelihood, Gaussian):
            density = np.asarray(self._mixture(inputs).log_prob(targets))
        else:
            with self._twin.posterior(self.model_, self.prediction_samples) as posterior:
                density = posterior.predict_log_density((inputs, targets)).numpy()
        return density - np.sum(np.log(self.target_scaling_.scale))

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0
    ) -> np.ndarray:
        """Joint draws of new observations [N, n_samples], or [N, P, n_samples], at O(N^3) each.

        :param X: [N, D].
        :param random_state: as the estimator's.
        """
        check_positive_integer("n_samples", n_samples)
        inputs = self._inputs(X)
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        with self._twin.posterior(self.model_, self.prediction_samples) as posterior:
            draws = posterior.predict_y_samples(inputs, n_samples, seed=seed).numpy()
        draws = np.moveaxis(self.target_scaling_.restore(draws), 0, -1)
        return draws[:, 0] if self._one_output else draws

    def _moments(self, mixture: Mixture) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation [N, P], in original units."""
        mean, variance = (np.asarray(part) for part in mixture.moments())
        return self.target_scaling_.restore(mean), self.target_scaling_.scale * np.sqrt(variance)

    def _covariance(self, inputs: np.ndarray) -> np.ndarray:
        """Covariance of new observations [N, N, P]."""
        likelihood = self.model_.predictive_likelihood
        if not isinstance(likelihood, Gaussian):
            raise ValueError(
                f"return_cov: got likelihood {type(likelihood).__name__}, needs Gaussian, whose noise adds "
                "to the covariance; use sample_y for others"
            )
        with self._twin.posterior(self.model_, self.prediction_samples) as posterior:
            _, covariance = posterior.predict_f(inputs, full_cov=True)
            noise = posterior.model.predictive_likelihood.variance_at(inputs)
        covariance = np.moveaxis(covariance.numpy(), 0, -1)
        rows = np.arange(len(inputs))
        covariance[rows, rows] += noise.numpy()
        covariance *= np.square(self.target_scaling_.scale)
        return covariance[..., 0] if self._one_output else covariance

    def _quantiles(
        self, inputs: np.ndarray, mixture: Mixture, levels: Sequence[float]
    ) -> np.ndarray:
        """Quantiles in original units [N, L, P]."""
        if isinstance(self.model_.likelihood, Gaussian):
            quantiles = quantiles_of(mixture, levels)
        else:  # which says that it has none
            with self._twin.posterior(self.model_, self.prediction_samples) as posterior:
                quantiles = posterior.predict_quantiles(inputs, levels)
        return np.moveaxis(self.target_scaling_.restore(np.asarray(quantiles)), 0, 1)

    def _shaped(self, value: np.ndarray) -> np.ndarray:
        """A result [N, P], or [N] where y was."""
        return value[:, 0] if self._one_output else value
