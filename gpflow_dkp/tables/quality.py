"""How good predictive distributions are on rows that had no part in the training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

LEVELS = np.array([0.1, 0.25, 0.5, 0.75, 0.9, 0.95])
"""Probabilities of the central intervals of which the coverage is counted."""

STATED = 4
"""Which of them is told: 90 %."""


@dataclass
class Quality:
    """Scores on N rows.

    :param num_rows: N.
    :param log_density: mean, of all targets together, in their units; or log probability of the class.
    :param baseline_log_density: of one Gaussian for all rows, or the classes' frequencies, of the training.
    :param error: root mean squared error [P], or the fraction of classes that are wrong [1].
    :param scale: standard deviation of the targets [P], or what the most frequent class would have wrong [1].
    :param coverage: fraction of targets within each of the central intervals of `LEVELS`; empty for classes.

    >>> quality = gpflow_dkp.tables.Quality(
    ...     num_rows=10, log_density=-0.5, baseline_log_density=-0.75,
    ...     error=np.array([0.1]), scale=np.array([0.4]), coverage=np.empty(0),
    ... )
    >>> print(quality.sentence())
    On 10 rows that had no part in the training, 90 % of the classes are right ...
    """

    num_rows: int
    log_density: float
    baseline_log_density: float
    error: np.ndarray
    scale: np.ndarray
    coverage: np.ndarray

    @classmethod
    def of_numbers(
        cls, estimator: Any, X: np.ndarray, y: np.ndarray, baseline: np.ndarray
    ) -> Quality:
        """Of targets y [N, P] and an estimator that gives quantiles.

        :param baseline: mean and standard deviation [2, P] of the training targets.
        """
        tails = np.concatenate([(1.0 - LEVELS) / 2.0, (1.0 + LEVELS) / 2.0])
        quantiles = estimator.predict_quantiles(X, tails).reshape(len(X), len(tails), -1)
        lower, upper = np.split(quantiles, 2, axis=1)
        inside = (lower <= y[:, None]) & (y[:, None] <= upper)
        error = estimator.predict(X).reshape(y.shape) - y
        mean, std = baseline
        standardised = (y - mean) / std
        density = -0.5 * (standardised**2 + np.log(2.0 * np.pi)) - np.log(std)
        targets = y if y.shape[1] > 1 else y[:, 0]
        return cls(
            len(y),
            float(np.mean(estimator.log_density(X, targets))),
            float(np.mean(density.sum(1))),
            np.sqrt(np.mean(error**2, axis=0)),
            np.std(y, axis=0),
            inside.mean((0, 2)),
        )

    @classmethod
    def of_classes(
        cls, estimator: Any, X: np.ndarray, y: np.ndarray, baseline: np.ndarray
    ) -> Quality:
        """Of labels y [N] and an estimator that gives probabilities.

        :param baseline: the frequency of each class in the training data.
        """
        number = np.argmax(y[:, None].astype(str) == estimator.classes_.astype(str), axis=1)
        probability = estimator.predict_proba(X)
        wrong = np.argmax(probability, axis=1) != number
        return cls(
            len(y),
            float(np.mean(np.log(probability[np.arange(len(y)), number]))),
            float(np.mean(np.log(baseline[number]))),
            np.array([wrong.mean()]),
            np.array([np.mean(number != np.argmax(baseline))]),
            np.empty(0),
        )

    def sentence(self) -> str:
        """What they say, in a sentence or two."""
        rows = f"On {self.num_rows} rows that had no part in the training"
        gain = self.log_density - self.baseline_log_density
        better = f"{abs(gain):.2f} nats a row {'better' if gain >= 0 else 'worse'} than"
        if not len(self.coverage):
            return (
                f"{rows}, {100 * (1 - self.error[0]):.0f} % of the classes are right (the most frequent "
                f"class: {100 * (1 - self.scale[0]):.0f} %), and the log probability is "
                f"{self.log_density:.3f}, {better} the classes' frequencies."
            )
        errors = ", ".join(f"{e:.3g}" for e in self.error)
        scales = ", ".join(f"{s:.3g}" for s in self.scale)
        return (
            f"{rows}, the log density is {self.log_density:.3f} a row, {better} one Gaussian for all rows; "
            f"the 90 % intervals hold {100 * self.coverage[STATED]:.0f} % of the targets; the root mean "
            f"squared error is {errors}, where the targets' standard deviation is {scales}."
        )
