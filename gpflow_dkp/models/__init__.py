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
from .sampled_model import SampledModel
from .sghmc_dgp import SGHMCDGP
from .sghmc_dwp import SGHMCDWP

__all__ = [
    "DGP",
    "DIWP",
    "DWP",
    "GWI",
    "NNGP",
    "SGHMCDGP",
    "SGHMCDWP",
    "ConditionalVAE",
    "DeepKernelProcess",
    "LatentSamples",
    "LatentVariableDGP",
    "MonteCarloModel",
    "NeuralNetwork",
    "Posterior",
    "SampledModel",
    "observation_distribution",
]
