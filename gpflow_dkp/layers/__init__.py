"""Stochastic layers, one a file."""

from .base import Layer
from .global_inducing_gp import GlobalInducingGP, Marginals
from .wishart import WishartLayer

__all__ = ["GlobalInducingGP", "Layer", "Marginals", "WishartLayer"]
