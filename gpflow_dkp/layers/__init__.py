"""Stochastic layers in two families: from Gram matrices to Gram matrices, and from features to features.

Each says `sample`, what its inducing points fix, and `condition`, the data points given that.
"""

from .features import (
    Encoder,
    FeatureLayer,
    IndependentGPs,
    LatentVariableLayer,
    Observed,
    SampledGP,
    SparseGP,
)
from .gram import (
    ABGWPosterior,
    AGWPosterior,
    FeatureDraw,
    GlobalInducingGP,
    GramLayer,
    GWPosterior,
    InputInverseWishart,
    InverseWishartLayer,
    Marginals,
    OutputGP,
    OutputLayer,
    SampledFeatures,
    SampledOutput,
    WishartLayer,
    WishartPosterior,
    condition_features,
)
from .sampled import SampledLayer

__all__ = [
    "ABGWPosterior",
    "AGWPosterior",
    "Encoder",
    "FeatureDraw",
    "FeatureLayer",
    "GWPosterior",
    "GlobalInducingGP",
    "GramLayer",
    "IndependentGPs",
    "InputInverseWishart",
    "InverseWishartLayer",
    "LatentVariableLayer",
    "Marginals",
    "Observed",
    "OutputGP",
    "OutputLayer",
    "SampledFeatures",
    "SampledGP",
    "SampledLayer",
    "SampledOutput",
    "SparseGP",
    "WishartLayer",
    "WishartPosterior",
    "condition_features",
]
