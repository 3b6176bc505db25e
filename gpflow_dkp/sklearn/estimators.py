"""The estimators: each a model of `gpflow_dkp.models`, for regression or classification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from ..checks import check_choice, check_flag
from ..models import DGP, DIWP, DWP, GWI, NNGP, LatentVariableDGP, MonteCarloModel
from ..models.from_data import DeepModel, kernel_maker, logarithmic_parameters
from ..models.marginal_likelihood import latent_targets
from ..selection import Network, Training, select_gwi
from ..training import History
from .base import BUILDING_ROWS, Estimator
from .choice import candidates_of, compare
from .classification import Classifier
from .compiled import MARGINAL_POINTS, fit_by_marginal_likelihood
from .regression import Regressor


@dataclass(kw_only=True, eq=False, repr=False)
class DeepEstimator(Estimator):
    """A deep kernel process.

    :param depth: number of layers, the output layer included; or "auto".
    :param kernel: as in `Estimator`, or "auto"; default "rational_quadratic".
    :param num_inducing: inducing points; default 150 of up to 500 rows, 300 of more. No more are used than
        the training set has distinct rows.
    :param num_samples: of the hidden layers, in training. How these were chosen: docs/estimators.md.
    :param precision: as in `gpflow_dkp.models.DWP`. With single precision in the backward products alone, the
        default, training ends at the same bounds sooner, and predictions are as precise.

    With "auto" one model is trained for each depth from 1 to 3, for each kernel that all have by name, or for
    each pair of them, and that of the highest bound is kept. Each takes `num_steps`; `max_seconds` is the
    time of all of them.

    Other parameters as in `Estimator`. Further attributes after `fit`: `depth_`, `kernel_`, and of what was
    compared `comparison_`, dictionaries of "depth", "kernel", "bound" per row, "seconds" and "failure", best
    first.
    """

    depth: int | Literal["auto"] = 2
    kernel: str | Kernel = "rational_quadratic"
    num_inducing: int | None = None
    num_samples: int = 3
    precision: Literal["full", "mixed-gradient", "mixed"] = "mixed-gradient"

    model_class: ClassVar[type[DeepModel]]
    minibatch = 2_000

    def _build(
        self, X: np.ndarray, Y: np.ndarray, likelihood: Likelihood | None, seed: int
    ) -> MonteCarloModel:
        num_inducing = self.num_inducing
        if num_inducing is None:
            num_inducing = 150 if len(X) <= 500 else 300
        return self.model_class.from_data(
            *rows_to_build_from(X, Y, seed),
            depth=self.depth_,
            num_inducing=num_inducing,
            num_samples=self.num_samples,
            precision=self.precision,
            kernel=self.kernel_,
            likelihood=likelihood,
            seed=seed,
            **self._settings(),
        )

    def _settings(self) -> dict[str, Any]:
        """Further arguments of `from_data`."""
        return {}

    def _trained(
        self,
        X: np.ndarray,
        Y: np.ndarray,
        likelihood: Likelihood | None,
        seed: int,
        before: MonteCarloModel | None,
    ) -> tuple[MonteCarloModel, History]:
        """With "auto" the best of several."""
        if before is None:
            candidates = candidates_of(self.depth, self.kernel)
            self.__dict__.pop("comparison_", None)
        else:
            candidates = [(self.depth_, self.kernel_)]
        chosen, trained = candidates[0], None
        if len(candidates) > 1:
            chosen, trained, self.comparison_ = compare(self, candidates, X, Y, likelihood, seed)
        self.depth_: int = chosen[0]
        self.kernel_: str | Kernel = chosen[1]
        return trained or super()._trained(X, Y, likelihood, seed, before)


@dataclass(kw_only=True, eq=False, repr=False)
class WideEstimator(DeepEstimator):
    """A deep kernel process whose hidden layers have widths.

    :param width: of each hidden layer; default the number of features.

    Other parameters as in `DeepEstimator`.
    """

    width: int | None = None

    def _settings(self) -> dict[str, Any]:
        return {"width": self.width}


@dataclass(kw_only=True, eq=False, repr=False)
class WishartEstimator(WideEstimator):
    """A deep Wishart process.

    :param posterior: "gw", "a-gw" or "ab-gw", the most flexible.

    Other parameters as in `WideEstimator`.
    """

    posterior: Literal["gw", "a-gw", "ab-gw"] = "ab-gw"

    model_class = DWP

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "posterior": self.posterior}


@dataclass(kw_only=True, eq=False, repr=False)
class GWIEstimator(Estimator):
    """Gaussian Wasserstein inference.

    :param mean: "net", a neural network, or "svgp", the mean of a sparse GP.
    :param num_inducing: inducing points; default the square root of the number of rows.
    :param hidden_units: of each hidden layer of the network.
    :param select: choose noise, number of inducing points, steps and temperature on held-out data by
        `gpflow_dkp.selection.select_gwi`: better calibrated, at the price of many trainings, each of which
        compiles its steps. `num_steps` and `batch_size` are then those of each training, None for 10 000 and
        100; `num_inducing`, `schedule`, `max_seconds` and `warm_start` have no part in it. False trains
        one model with the noise of the marginal likelihood.

    Other parameters as in `Estimator`.
    """

    mean: Literal["net", "svgp"] = "net"
    num_inducing: int | None = None
    hidden_units: tuple[int, ...] = (10, 10)
    select: bool = False

    def _build(
        self, X: np.ndarray, Y: np.ndarray, likelihood: Likelihood | None, seed: int
    ) -> MonteCarloModel:
        check_choice("mean", self.mean, ("net", "svgp"))
        network: dict[str, Any] = {"hidden_units": self.hidden_units} if self.mean == "net" else {}
        with logarithmic_parameters():
            kernel = kernel_maker(self.kernel)(X.shape[1])
        noise_variance = fit_by_marginal_likelihood(kernel, X, latent_targets(likelihood, Y), seed)
        return GWI.from_data(
            X,
            Y,
            mean=self.mean,
            num_inducing=self.num_inducing,
            kernel=kernel,
            likelihood=likelihood,
            noise_variance=noise_variance,
            num_marginal_points=0,
            seed=seed,
            **network,
        )

    def _trained(
        self,
        X: np.ndarray,
        Y: np.ndarray,
        likelihood: Likelihood | None,
        seed: int,
        before: MonteCarloModel | None,
    ) -> tuple[MonteCarloModel, History]:
        """With `select` what `select_gwi` chooses."""
        check_flag("select", self.select)
        if not self.select:
            return super()._trained(X, Y, likelihood, seed, before)
        check_choice("mean", self.mean, ("net", "svgp"))
        networks = [Network(self.hidden_units)] if self.mean == "net" else None
        defaults = Training()
        selection = select_gwi(
            X,
            Y,
            mean=self.mean,
            likelihood=likelihood,
            kernel=self.kernel,
            networks=networks,
            training=Training(
                num_steps=defaults.num_steps if self.num_steps is None else self.num_steps,
                batch_size=defaults.batch_size if self.batch_size is None else self.batch_size,
            ),
            seed=seed,
        )
        selection.model.num_data = None
        return selection.model, selection.history

    def _goes_on(self, num_features: int | None) -> bool:
        return not self.select and super()._goes_on(num_features)


@dataclass(kw_only=True, eq=False, repr=False)
class DWPRegressor(WishartEstimator, Regressor):
    """Regression by a deep Wishart process; parameters as in `WishartEstimator` and `Regressor`.

    >>> estimator = gpflow_dkp.sklearn.DWPRegressor(num_inducing=3, num_steps=3, random_state=0)
    >>> list(estimator.fit(X, Y[:, 0]).predict_distribution(X).columns)
    ['mean', 'std', 'quantile_0.05', 'quantile_0.5', 'quantile_0.95']
    """


@dataclass(kw_only=True, eq=False, repr=False)
class DWPClassifier(WishartEstimator, Classifier):
    """Classification by a deep Wishart process; parameters as in `WishartEstimator`.

    >>> estimator = gpflow_dkp.sklearn.DWPClassifier(num_inducing=3, num_steps=3, random_state=0)
    >>> labels = np.where(Y[:, 0] > 0.0, "up", "down")
    >>> probabilities = estimator.fit(X, labels).predict_proba(X)
    >>> estimator.classes_.tolist(), np.allclose(probabilities.sum(axis=1), 1.0)
    (['down', 'up'], True)
    """


@dataclass(kw_only=True, eq=False, repr=False)
class DGPRegressor(WideEstimator, Regressor):
    """Regression by a deep GP; parameters as in `WideEstimator` and `Regressor`.

    >>> estimator = gpflow_dkp.sklearn.DGPRegressor(num_inducing=3, num_steps=3, random_state=0)
    >>> estimator.fit(X, np.hstack([Y, -Y])).predict(X).shape  # two outputs
    (10, 2)
    """

    model_class = DGP


@dataclass(kw_only=True, eq=False, repr=False)
class DIWPRegressor(DeepEstimator, Regressor):
    """Regression by a deep inverse Wishart process; parameters as in `DeepEstimator` and `Regressor`.

    >>> estimator = gpflow_dkp.sklearn.DIWPRegressor(num_inducing=3, num_steps=3, random_state=0)
    >>> estimator.fit(X, Y[:, 0]).sample_y(X, n_samples=4).shape
    (10, 4)
    """

    model_class = DIWP


@dataclass(kw_only=True, eq=False, repr=False)
class DIWPClassifier(DeepEstimator, Classifier):
    """Classification by a deep inverse Wishart process; parameters as in `DeepEstimator`.

    >>> estimator = gpflow_dkp.sklearn.DIWPClassifier(depth=1, num_inducing=3, num_steps=3)
    >>> labels = np.where(Y[:, 0] > 0.0, "up", "down")
    >>> estimator.fit(X, labels).log_density(X, labels).shape
    (10,)
    """

    model_class = DIWP


@dataclass(kw_only=True, eq=False, repr=False)
class NNGPRegressor(DeepEstimator, Regressor):
    """Regression by the infinite-width limit; parameters as in `DeepEstimator` and `Regressor`.

    >>> estimator = gpflow_dkp.sklearn.NNGPRegressor(num_inducing=3, num_steps=3, random_state=0)
    >>> estimator.fit(X, Y[:, 0]).predict(X).shape, estimator.n_iter_
    ((10,), 3)
    """

    model_class = NNGP


@dataclass(kw_only=True, eq=False, repr=False)
class LatentVariableDGPRegressor(Regressor):
    """Regression by a deep GP with latent variables, whose predictive densities can have any shape.

    :param architecture: LV and GP joined by hyphens, GP last.
    :param inference: "iwvi", importance-weighted, "vi", "iwvi-sampled" or "iwvi-independent".
    :param num_importance_samples: of "iwvi".
    :param latent_dim: of each latent-variable layer.
    :param num_inducing: inducing points of each GP layer.
    :param num_samples: estimates of the bound in a training step, of which the mean is taken.
    :param num_steps: as in `Estimator`; its steps are cheap, and it needs more of them.

    Other parameters as in `Regressor` and `Estimator`.

    >>> estimator = gpflow_dkp.sklearn.LatentVariableDGPRegressor(
    ...     architecture="LV-GP", num_inducing=3, num_steps=3, random_state=0
    ... )
    >>> estimator.fit(X, Y[:, 0]).log_density(X, Y[:, 0]).shape
    (10,)
    """

    architecture: str = "LV-GP-GP"
    inference: Literal["vi", "iwvi", "iwvi-sampled", "iwvi-independent"] = "iwvi"
    num_importance_samples: int = 5
    latent_dim: int = 1
    num_inducing: int = 100
    num_samples: int = 1
    num_steps: int | None = 5_000

    def _build(
        self, X: np.ndarray, Y: np.ndarray, likelihood: Likelihood | None, seed: int
    ) -> MonteCarloModel:
        model = LatentVariableDGP.from_architecture(
            self.architecture,
            rows_to_build_from(X, Y, seed),
            num_inducing=self.num_inducing,
            latent_dim=self.latent_dim,
            kernel=self.kernel,
            num_marginal_points=0,
            likelihood=likelihood,
            seed=seed,
            inference=self.inference,
            num_importance_samples=self.num_importance_samples,
            num_samples=self.num_samples,
        )
        if isinstance(self.kernel, str):
            model.start_at_regression(
                (X, Y),
                self.kernel,
                num_points=MARGINAL_POINTS,
                seed=seed,
                search=fit_by_marginal_likelihood,
                change_noise=likelihood is None,
            )
        for layer in model.layers:
            if getattr(layer, "projection", None) is not None:
                # The data's directions, which a compiled function would otherwise keep as a constant.
                layer.projection = tf.Variable(layer.projection, trainable=False)
        return model


@dataclass(kw_only=True, eq=False, repr=False)
class GWIRegressor(GWIEstimator, Regressor):
    """Regression by Gaussian Wasserstein inference; parameters as in `GWIEstimator` and `Regressor`.

    >>> estimator = gpflow_dkp.sklearn.GWIRegressor(mean="svgp", num_steps=3, random_state=0)
    >>> mean, std = estimator.fit(X, Y[:, 0]).predict(X, return_std=True)
    >>> mean.shape, bool(np.all(std > 0.0))
    ((10,), True)
    """


@dataclass(kw_only=True, eq=False, repr=False)
class GWIClassifier(GWIEstimator, Classifier):
    """Classification by Gaussian Wasserstein inference; parameters as in `GWIEstimator`.

    >>> estimator = gpflow_dkp.sklearn.GWIClassifier(mean="svgp", num_steps=3, random_state=0)
    >>> labels = Y[:, 0] > 0.0
    >>> set(estimator.fit(X, labels).predict(X).tolist()) <= {False, True}
    True
    """

    @property
    def _num_predicted(self) -> int:
        return 1


def rows_to_build_from(X: np.ndarray, Y: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """All rows, or a random 10 000 of more."""
    if len(X) <= BUILDING_ROWS:
        return X, Y
    rows = np.sort(np.random.default_rng(seed).choice(len(X), BUILDING_ROWS, replace=False))
    return X[rows], Y[rows]
