"""Layers from features to features, one a file."""

from .base import FeatureLayer, Observed
from .independent_gps import IndependentGPs
from .latent_variable import Encoder, LatentVariableLayer
from .sampled_gp import SampledGP
from .sparse_gp import SparseGP

__all__ = [
    "Encoder",
    "FeatureLayer",
    "IndependentGPs",
    "LatentVariableLayer",
    "Observed",
    "SampledGP",
    "SparseGP",
]
