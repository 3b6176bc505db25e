"""The models: GPflow's interface over chains of kernels and layers."""

from .base import MonteCarloModel
from .conditional_vae import ConditionalVAE
from .deep_kernel_process import DeepKernelProcess
from .dgp import DGP
from .diwp import DIWP
from .dwp import DWP
from .gwi import GWI
from .latent_samples import LatentSamples
from .latent_variable_dgp import LatentVariableDGP
from .neural_network import NeuralNetwork
from .nngp import NNGP
from .observations import observation_distribution
from .posterior import Posterior
from .sghmc_dgp import SGHMCDGP

__all__ = [
    "DGP",
    "DIWP",
    "DWP",
    "GWI",
    "NNGP",
    "SGHMCDGP",
    "ConditionalVAE",
    "DeepKernelProcess",
    "LatentSamples",
    "LatentVariableDGP",
    "MonteCarloModel",
    "NeuralNetwork",
    "Posterior",
    "observation_distribution",
]
