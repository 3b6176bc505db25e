"""Layers from features to features, one a file."""

from .base import FeatureLayer, Observed
from .latent_variable import Encoder, LatentVariableLayer
from .sparse_gp import SparseGP

__all__ = ["Encoder", "FeatureLayer", "LatentVariableLayer", "Observed", "SparseGP"]
