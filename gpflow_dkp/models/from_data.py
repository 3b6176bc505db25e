"""Models from data alone: the papers' kernels, inducing points and starting values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import (
    ArcCosine,
    Constant,
    Kernel,
    Linear,
    RationalQuadratic,
    SquaredExponential,
    Stationary,
)
from gpflow.likelihoods import Likelihood
from sklearn.cluster import KMeans
from typing_extensions import Self

from ..checks import (
    brief,
    check_choice,
    check_flag,
    check_inducing_variable,
    check_positive_integer,
    check_seed,
)
from ..gram import FeatureBlocks, FeatureKernel, GramBlocks, InputBlocks, Shifted
from ..layers import GramLayer, OutputGP, OutputLayer
from .checks import check_arrays, check_num_latent_gps, check_targets, num_latent_gps_for
from .deep_kernel_process import DeepKernelProcess


class DeepModel(DeepKernelProcess):
    """A deep kernel process built from kernels, or from data alone.

    :param layers: hidden, with their kernels.
    :param kernel: of the output layer; GPflow's `SharedIndependent` and `SeparateIndependent` too.
    :param likelihood: a GPflow likelihood with variational expectations.
    :param inducing_variable: Z [M, D], an array or GPflow inducing points.
    :param num_latent_gps: P, default what the likelihood needs.
    :param shared_precision: as in `OutputGP`.

    Other arguments as in `DeepKernelProcess`.
    """

    def __init__(
        self,
        layers: Sequence[GramLayer],
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: InducingVariables | tf.Tensor,
        *,
        num_latent_gps: int | None = None,
        shared_precision: bool = True,
        **settings: Any,
    ) -> None:
        inducing_variable = check_inducing_variable(inducing_variable)
        check_flag("shared_precision", shared_precision)
        output_layer = self._make_output_layer(
            inducing_variable.Z.shape[0],
            check_num_latent_gps(likelihood, num_latent_gps),
            kernel,
            shared_precision,
        )
        super().__init__([*layers, output_layer], likelihood, inducing_variable, **settings)

    def _make_output_layer(
        self, num_inducing: int, num_outputs: int, kernel: Kernel, shared_precision: bool
    ) -> OutputLayer:
        """The last layer."""
        return OutputGP(num_inducing, num_outputs, kernel=kernel, shared_precision=shared_precision)

    @classmethod
    def from_data(
        cls,
        X: np.ndarray,
        Y: np.ndarray,
        *,
        depth: int = 2,
        num_inducing: int = 100,
        width: int | None = None,
        kernel: str | Kernel = "squared_exponential",
        ard: bool = True,
        input_bias: bool = False,
        likelihood: Likelihood | None = None,
        seed: int = 0,
        **settings: Any,
    ) -> Self:
        """The papers' model for X [N, D] and Y [N, P], both normalised.

        One kind of kernel in every layer, with ARD where it acts on inputs, and a Gaussian likelihood,
        both trained by the logarithms of their parameters, inducing points at the centres of a k-means
        clustering of the data, and as pseudo-observations there the mean targets of the clusters.

        :param depth: number of layers including the output layer.
        :param num_inducing: M; no more are used than X has distinct rows.
        :param width: of each hidden layer, default the number of features D; for models with widths.
        :param kernel: "squared_exponential", "rational_quadratic" or "relu", the arc-cosine kernel of order
            1; of `DGP` also "relu_features", "erf" or "sin", a Bayesian neural network whose hidden layers
            have `width` units; or a GPflow kernel, of which every layer gets a copy as it is.
        :param ard: learn a scale of each input feature: a lengthscale or weight variance, or `DIWP`'s
            `input_scale`. Of images they can overfit.
        :param input_bias: learn a shift of each input feature, as [ICML21] does; a stationary kernel
            on inputs does not see it. `DIWP` has one unless told otherwise.
        :param seed: chooses the inducing points and the layers' random starting values.
        :param settings: further arguments of the constructor.
        """
        check_positive_integer("depth", depth)
        check_positive_integer("num_inducing", num_inducing)
        check_flag("ard", ard)
        check_flag("input_bias", input_bias)
        check_seed("seed", seed)
        X, Y = check_arrays(X, Y)
        settings = cls._settings_from_data(X.shape[1], depth, width, seed) | settings
        centres, targets = cluster(X, Y, num_inducing, seed)
        with logarithmic_parameters():
            likelihood = likelihood or gpflow.likelihoods.Gaussian(0.1)
            check_targets(likelihood, Y)
            make_kernel = cls._kernel_maker(kernel)
            kernels = cls._kernels_from_data(make_kernel, X.shape[1], depth, ard)
            if input_bias:
                settings = cls._with_input_bias(kernels, X.shape[1]) | settings
        settings = {"num_latent_gps": num_latent_gps_for(likelihood, Y), **settings}
        model = cls(kernels, likelihood, centres, **settings)
        if isinstance(model.likelihood, gpflow.likelihoods.Gaussian):
            mean = 0.0 if model.mean_function is None else model.mean_function(centres)
            model._start_output_near(targets - mean)
        model._start_near_inputs(centres)
        return model

    @classmethod
    def _with_input_bias(cls, kernels: list[Kernel], num_features: int) -> dict[str, Any]:
        """Have the inputs shifted: by the first kernel, or by the arguments of the constructor returned."""
        kernels[0] = Shifted(kernels[0], num_features)
        return {}

    def _start_output_near(self, targets: np.ndarray) -> None:
        """Start the output layer from targets at the inducing points [M, P]."""
        self.output_layer.v.assign(targets)

    def _start_near_inputs(self, inputs: np.ndarray) -> None:  # most start as they are
        """Start the hidden layers near a Gram matrix of inputs at the inducing points [M, D]."""

    @classmethod
    def _settings_from_data(
        cls, num_features: int, depth: int, width: int | None, seed: int
    ) -> dict[str, Any]:
        """Arguments of the constructor that follow from the data."""
        if width is not None:
            raise ValueError(f"width: got {brief(width)}, {cls.__name__} has no widths")
        return {}

    @classmethod
    def _kernel_maker(cls, kernel: str | Kernel) -> Callable[..., Kernel]:
        """As `kernel_maker`, by the names of the kernels that the model can have."""
        return kernel_maker(kernel)

    @classmethod
    def _kernels_from_data(
        cls, make_kernel: Callable[..., Kernel], num_features: int, depth: int, ard: bool
    ) -> list[Kernel]:
        """One on the inputs, the others on Gram matrices."""
        return [make_kernel(num_features, ard=ard), *(make_kernel() for _ in range(depth - 1))]


class ModelWithWidths(DeepModel):
    """A deep kernel process whose hidden layers have widths.

    Its layers start at random, or of data near the inputs, but for GW's: each layer's Gram matrix is near
    Z Z^T / D, in no more directions than it has functions.
    """

    @classmethod
    def _settings_from_data(
        cls, num_features: int, depth: int, width: int | None, seed: int
    ) -> dict[str, Any]:
        widths = [num_features if width is None else width] * (depth - 1)
        return {"widths": widths, "seed": seed}

    def _start_near_inputs(self, inputs: np.ndarray) -> None:
        blocks: GramBlocks = InputBlocks(self.inducing_variable)
        for layer in self.hidden_layers:
            K_ii = self._covariance(layer, blocks).ii
            features = principal_features(inputs, layer.width)
            layer.start_near(K_ii, features)
            blocks = FeatureBlocks.of_inducing(tf.constant(features, K_ii.dtype))


def principal_features(inputs: np.ndarray, width: int) -> np.ndarray:
    """Features [M, width] whose Gram matrix is that of inputs [M, D], divided by D, or the nearest to it."""
    left, values, _ = np.linalg.svd(inputs, full_matrices=False)
    rank = min(width, len(values))
    features = np.zeros([len(inputs), width])
    features[:, :rank] = left[:, :rank] * values[:rank] / np.sqrt(inputs.shape[1])
    return features


def logarithmic_parameters() -> AbstractContextManager[None]:
    """A context in which new positive parameters are trained by their logarithms.

    With GPflow's softplus, 1 000 steps of 0.01 move a lengthscale by at most 10, and a search that goes too
    far ends at 1e-36.
    """
    logarithmic = dataclasses.replace(gpflow.config.config(), positive_bijector="exp")
    return gpflow.config.as_context(logarithmic)


def stationary(cls: type[Stationary]) -> Callable[..., Kernel]:
    """Kernels on Gram matrices, or on inputs with one lengthscale a feature, or one for all of them."""

    def make(num_features: int | None = None, *, ard: bool = True) -> Kernel:
        if num_features is None:
            return cls()
        shape = num_features if ard else ()
        return cls(lengthscales=np.full(shape, np.sqrt(num_features)))

    return make


def relu(num_features: int | None = None, *, ard: bool = True) -> Kernel:
    """Arc-cosine of order 1, on Gram matrices, or on inputs with a weight variance a feature, or one for all.

    The biases matter: without them every function of the prior is homogeneous, f(c x) = c f(x). On Gram
    matrices the weight variance is fixed: the kernel's variance does the same.
    """
    weights: Any = 1.0
    if num_features is not None:
        weights = np.full(num_features if ard else (), 1.0 / num_features)
    kernel = ArcCosine(order=1, weight_variances=weights, bias_variance=0.5)
    gpflow.set_trainable(kernel.weight_variances, num_features is not None)
    return kernel


def units(activation: str) -> Callable[..., Kernel]:
    """Weights and biases of a network, on inputs or on units of the layer before ([ICML21] section 4).

    Many units of "relu" are the kernel `relu`, whose bias these have too.
    """

    def make(num_features: int | None = None, *, ard: bool = True) -> Kernel:
        weights: Kernel = FeatureKernel(activation)
        if num_features is not None:
            weights = Linear(np.full(num_features if ard else (), 1.0 / num_features))
        return weights + Constant(0.5)

    return make


KERNELS = {
    "squared_exponential": stationary(SquaredExponential),
    "rational_quadratic": stationary(RationalQuadratic),
    "relu": relu,
}

KERNELS_OF_FEATURES = {"relu_features": units("relu"), "erf": units("erf"), "sin": units("sin")}
"""Of layers that draw features."""


def kernel_maker(
    kernel: str | Kernel, kernels: Mapping[str, Callable[..., Kernel]] = KERNELS
) -> Callable[..., Kernel]:
    """A function of the number of features, or of nothing for a kernel on Gram matrices.

    :param kernel: a name, or a kernel to copy.
    :param kernels: by name.
    """
    if isinstance(kernel, Kernel):
        return lambda num_features=None, *, ard=True: gpflow.utilities.deepcopy(kernel)
    check_choice("kernel", kernel, tuple(kernels))
    return kernels[kernel]


def cluster(
    X: np.ndarray, Y: np.ndarray, num_clusters: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Centres [M, D] of a k-means clustering of X [N, D], and each cluster's mean of Y [M, P]."""
    num_clusters = min(num_clusters, len(np.unique(X, axis=0)))
    clustering = KMeans(num_clusters, n_init=1, random_state=seed).fit(X)
    members = np.equal(clustering.labels_, np.arange(num_clusters)[:, None])
    return clustering.cluster_centers_, members @ Y / np.sum(members, 1, keepdims=True)
