"""Out-of-distribution detection: how well a classifier's uncertainty tells other inputs from its own.

As in [NeurIPS22] section 5.2: a model is trained on one dataset, and its predictive uncertainty on that
dataset's test part is compared with that on inputs of another distribution.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..datasets import OodDataset
from ..settings import OodSettings, Settings
from . import classification_metrics as metrics
from .classification import predicted_probabilities
from .classification_metrics import Array
from .metrics import check_finite
from .protocol import Metric, Task, register_task

METRICS = {
    "test_log_likelihood": Metric(
        "mean log probability of the in-distribution's test labels", "higher", shown=True
    ),
    "accuracy": Metric("fraction of them that are the most probable class", "higher", shown=True),
    "auroc_entropy": Metric(
        "area under the ROC curve of the class probabilities' entropy, out is positive",
        "higher",
        shown=True,
    ),
    "auroc_max_probability": Metric(
        "the same of 1 - the largest class probability", "higher", shown=True
    ),
    "auroc_variance": Metric(
        "the same of the variance of f, mean over classes", "higher", shown=True
    ),
    "num_test_points": Metric("test points of the in-distribution"),
    "num_ood_points": Metric("points of the out-distribution"),
}


def evaluate(
    model: Any, dataset: OodDataset, *, settings: Settings, seed: int = 0
) -> dict[str, float]:
    """Scores of a trained model on the test part and `X_ood`.

    :raises FloatingPointError: a predicted probability or variance is NaN or infinite.
    """
    inside, outside = (
        predicted_probabilities(model, X, settings=settings, seed=seed)
        for X in (dataset.X_test, dataset.X_ood)
    )
    variance_inside, variance_outside = (
        latent_variance(model, X, settings=settings, seed=seed)
        for X in (dataset.X_test, dataset.X_ood)
    )
    labels = dataset.Y_test[:, 0]
    return {
        "test_log_likelihood": metrics.log_likelihood(inside, labels),
        "accuracy": metrics.accuracy(inside, labels),
        "auroc_entropy": auroc(metrics.entropy(inside), metrics.entropy(outside)),
        "auroc_max_probability": auroc(1.0 - inside.max(axis=1), 1.0 - outside.max(axis=1)),
        "auroc_variance": auroc(variance_inside, variance_outside),
        "num_test_points": float(len(dataset.X_test)),
        "num_ood_points": float(len(dataset.X_ood)),
    }


def auroc(inside: Array, outside: Array) -> float:
    """Probability that a point from outside has the larger score, a tie counting half.

    :param inside: scores [N] of points of the in-distribution.
    :param outside: scores [M] of the others, the positives of the ROC curve.
    """
    from sklearn.metrics import roc_auc_score

    is_outside = np.repeat([0, 1], [len(inside), len(outside)])
    return float(roc_auc_score(is_outside, np.concatenate([inside, outside])))


def latent_variance(model: Any, X: npt.ArrayLike, *, settings: Settings, seed: int) -> Array:
    """Variance of f under the predictive mixture, mean over classes: [N].

    :raises FloatingPointError: a variance is NaN or infinite.
    """
    _, variance = model.predict_f(X, num_samples=settings.test_samples, seed=seed)
    variance = np.asarray(variance, np.float64)
    check_finite({"a predicted variance": variance})
    return variance.mean(axis=1)


OOD = register_task(Task("ood", OodSettings, OodDataset, evaluate, METRICS))
