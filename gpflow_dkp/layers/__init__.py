"""Stochastic layers, one a file."""

from .base import Layer
from .global_inducing_gp import GlobalInducingGP, Marginals
from .input_inverse_wishart import InputInverseWishart
from .inverse_wishart import InverseWishartLayer
from .wishart import WishartLayer

__all__ = [
    "GlobalInducingGP",
    "InputInverseWishart",
    "InverseWishartLayer",
    "Layer",
    "Marginals",
    "WishartLayer",
]
