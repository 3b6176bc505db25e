"""Predictions as a TensorFlow SavedModel, which a process with TensorFlow alone can serve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gpflow
import tensorflow as tf

from ..checks import check_positive_integer
from ..models.checks import num_target_columns
from ..random import Seed
from .container import SavingError

if TYPE_CHECKING:
    from ..models.base import MonteCarloModel


def export(
    model: MonteCarloModel,
    path: str | Path,
    *,
    num_samples: int,
    seed: Seed,
    levels: Sequence[float],
) -> None:
    """`MonteCarloModel.export`, whose arguments these are."""
    check_positive_integer("num_samples", num_samples)
    posterior = model.posterior(num_samples, seed)
    dtype = gpflow.default_float()
    inputs = tf.TensorSpec([None, model.num_features], dtype, name="X")
    num_columns = num_target_columns(model.likelihood, model.num_latent_gps)
    targets = tf.TensorSpec([None, num_columns], dtype, name="Y")

    def predict_y(X: tf.Tensor) -> dict[str, tf.Tensor]:
        mean, variance = posterior.predict_y(X, batch_size=None)
        return {"mean": mean, "variance": variance}

    def predict_quantiles(X: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"quantiles": posterior.predict_quantiles(X, levels, batch_size=None)}

    def predict_log_density(X: tf.Tensor, Y: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"log_density": posterior.predict_log_density((X, Y), batch_size=None)}

    module: Any = tf.Module()
    module.model = posterior.model
    module.predict_y = tf.function(predict_y, [inputs], autograph=False)
    module.predict_log_density = tf.function(
        predict_log_density, [inputs, targets], autograph=False
    )
    signatures = {
        "serving_default": module.predict_y,
        "predict_y": module.predict_y,
        "predict_log_density": module.predict_log_density,
    }
    if isinstance(model.likelihood, gpflow.likelihoods.Gaussian):
        module.levels = tf.constant(levels, dtype)
        module.predict_quantiles = tf.function(predict_quantiles, [inputs], autograph=False)
        signatures["predict_quantiles"] = module.predict_quantiles
    try:
        tf.saved_model.save(module, str(path), signatures)
    except (OSError, tf.errors.OpError) as error:
        raise SavingError(f"path: cannot write {path} ({error}); choose another place") from error
