"""Stochastic layers, one a file."""

from .base import Layer
from .global_inducing_gp import GlobalInducingGP, Marginals
from .input_inverse_wishart import InputInverseWishart
from .inverse_wishart import InverseWishartLayer
from .latent_variable import Encoder, LatentVariableLayer, Observed
from .sparse_gp import SparseGP
from .wishart import WishartLayer

__all__ = [
    "Encoder",
    "GlobalInducingGP",
    "InputInverseWishart",
    "InverseWishartLayer",
    "LatentVariableLayer",
    "Layer",
    "Marginals",
    "Observed",
    "SparseGP",
    "WishartLayer",
]
