"""The models: GPflow's interface over chains of kernels and layers."""

from .base import DeepKernelProcess
from .dgp import DGP
from .dwp import DWP

__all__ = ["DGP", "DWP", "DeepKernelProcess"]
