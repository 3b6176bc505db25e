"""A model whose predictions are kept, and one that has nothing but kept predictions."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import BenchmarkError

Arrays = dict[str, npt.NDArray[Any]]

MAX_COMPONENTS = 100
"""Of a mixture that is kept."""


class RecordedModel:
    """A trained model that keeps what its `predict_...` methods return; all else is the model's own.

    :param model: the trained model.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self.predictions: Arrays = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._model, name)
        if not (name.startswith("predict_") and callable(found)):
            return found

        def predict(X: Any, **sampling: Any) -> Any:
            result = found(X, **sampling)
            parts = result if isinstance(result, tuple) else (result,)
            for i, part in enumerate(parts):
                values = np.asarray(part, np.float32)
                kept = values[:MAX_COMPONENTS] if values.ndim == 3 else values
                self.predictions[f"{_name(name, X)}:{i}"] = kept
            return result

        return predict


class KeptModel:
    """Predictions of a model that is gone, for evaluating them again.

    A prediction that was not kept, or with fewer components than asked for, raises `NotKept`.
    """

    def __init__(self, predictions: Arrays) -> None:
        self._predictions = predictions

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("predict_"):
            raise AttributeError(name)

        def predict(X: Any, *, num_samples: int, **sampling: Any) -> Any:
            prefix = _name(name, X)
            parts: list[npt.NDArray[np.float64]] = []
            while f"{prefix}:{len(parts)}" in self._predictions:
                values = self._predictions[f"{prefix}:{len(parts)}"].astype(np.float64)
                if values.ndim == 3 and 1 < len(values) < num_samples:
                    raise NotKept(f"{len(values)} components are kept, {num_samples} are asked for")
                parts.append(values[:num_samples] if values.ndim == 3 else values)
            if not parts:
                raise NotKept(f"no such prediction ({name})")
            return tuple(parts) if len(parts) > 1 else parts[0]

        return predict


class NotKept(BenchmarkError):  # noqa: N818  # says what happened
    """What is asked of a `KeptModel` was not kept."""


def save_predictions(path: Path, predictions: Arrays) -> None:
    """Write predictions to a compressed file, whole or not at all."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.savez_compressed(file, **predictions)
    partial.replace(path)


def load_predictions(path: Path) -> Arrays:
    """Predictions of `save_predictions`.

    :raises NotKept: the file is absent or damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except Exception as error:  # a damaged archive raises nearly every kind
        raise NotKept(f"no predictions in {path}") from error


def _name(method: str, X: Any) -> str:
    """A method's name, and a digest of the inputs that it is asked about."""
    content = np.ascontiguousarray(X, np.float64).tobytes()
    return f"{method}:{hashlib.sha256(content).hexdigest()[:12]}"
