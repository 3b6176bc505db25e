"""Classification: probabilities of labels of any type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gpflow.likelihoods import Bernoulli, Likelihood, Softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d, validate_data
from typing_extensions import Self

from ..checks import brief
from .base import Estimator, refuse_weights

SOFTMAX_DRAWS = 1_000
"""Of a softmax's expectation, over all samples of the hidden layers."""


@dataclass(kw_only=True, eq=False, repr=False)
class Classifier(ClassifierMixin, Estimator):
    """Labels: a probit of one function for two classes, a softmax of one function each for more.

    Attributes after `fit`: those of `Estimator`, and `classes_`.
    """

    def fit(self, X: Any, y: Any, sample_weight: None = None) -> Self:
        """Train a model.

        :param X: [N, D], an array or a data frame.
        :param y: labels [N], numbers or strings.
        :param sample_weight: must be None.
        :raises ValueError: for bad data or parameters, labels of one class, or a training that fails.
        """
        refuse_weights(sample_weight)
        self._check_parameters()
        before, classes = getattr(self, "n_features_in_", None), getattr(self, "classes_", ())
        X, y = validate_data(self, X, y, ensure_min_samples=2, dtype=np.float64, order="C")
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y: got labels of one class, {brief(self.classes_[0])}, needs at least 2 to tell apart"
            )
        goes_on = self._goes_on(before) and np.array_equal(classes, self.classes_)
        Y = labels.reshape(-1, 1).astype(np.float64)
        return self._fit(X, Y, self._likelihood(), goes_on=goes_on)

    def _likelihood(self) -> Likelihood:
        if len(self.classes_) == 2:
            return Bernoulli()
        likelihood = Softmax(len(self.classes_))
        likelihood.num_monte_carlo_points = max(10, SOFTMAX_DRAWS // self._num_predicted)
        return likelihood

    @property
    def _num_predicted(self) -> int:
        """Samples over which predictions average."""
        return self.prediction_samples

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes [N, C], in the order of `classes_`.

        :param X: [N, D].
        """
        probability = np.mean(self._mixture(self._inputs(X)).mean, axis=0)
        if probability.shape[1] == 1:
            return np.hstack([1.0 - probability, probability])
        return probability / np.sum(probability, axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each row [N].

        :param X: [N, D].
        """
        most_probable = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[most_probable]

    def log_density(self, X: Any, y: Any) -> np.ndarray:
        """log probability of each row's label [N].

        :param X: [N, D].
        :param y: labels [N], of those in `classes_`.
        """
        probability = self.predict_proba(X)
        y = column_or_1d(y)
        check_consistent_length(probability, y)
        unknown = y[~np.isin(y, self.classes_)]
        if unknown.size:
            raise ValueError(
                f"y: got the label {brief(unknown[0])}, needs one of {brief(self.classes_)}"
            )
        own = probability[np.arange(len(y)), np.searchsorted(self.classes_, y)]
        return np.log(np.maximum(own, np.finfo(float).tiny))
