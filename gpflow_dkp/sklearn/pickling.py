"""How a fitted estimator's model goes into a pickle, and out of it."""

from __future__ import annotations

import pickle

import gpflow

from ..models import MonteCarloModel


def dump_model(model: MonteCarloModel) -> bytes:
    """The model without what its bijectors remember of their last tensors."""
    return pickle.dumps(gpflow.utilities.reset_cache_bijectors(model))


def load_model(data: bytes) -> MonteCarloModel:
    """What `dump_model` gave."""
    return pickle.loads(data)
