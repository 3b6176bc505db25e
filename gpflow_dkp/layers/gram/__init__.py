"""Layers from Gram matrices to Gram matrices, one a file."""

from .base import Draw, FeatureDraw, GramLayer, condition_features
from .global_inducing_gp import GlobalInducingGP
from .input_inverse_wishart import InputInverseWishart
from .inverse_wishart import InverseWishartLayer
from .output_gp import OutputGP
from .output_layer import Marginals, OutputLayer
from .sampled_features import SampledFeatures
from .sampled_output import SampledOutput
from .wishart import WishartLayer
from .wishart_posterior import ABGWPosterior, AGWPosterior, GWPosterior, WishartPosterior

__all__ = [
    "ABGWPosterior",
    "AGWPosterior",
    "Draw",
    "FeatureDraw",
    "GWPosterior",
    "GlobalInducingGP",
    "GramLayer",
    "InputInverseWishart",
    "InverseWishartLayer",
    "Marginals",
    "OutputGP",
    "OutputLayer",
    "SampledFeatures",
    "SampledOutput",
    "WishartLayer",
    "WishartPosterior",
    "condition_features",
]
