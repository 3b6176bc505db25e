"""Models from data alone: the papers' kernels, inducing points and starting values."""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager
from typing import Any

import gpflow
import numpy as np
from gpflow.kernels import ArcCosine, Kernel, SquaredExponential
from gpflow.likelihoods import Likelihood
from sklearn.cluster import KMeans
from typing_extensions import Self

from ..checks import check_choice, check_positive_integer
from .checks import check_arrays, check_labels
from .deep_kernel_process import DeepKernelProcess


class DeepModel(DeepKernelProcess):
    """A deep kernel process that can be built from data alone."""

    _has_widths = True
    """Whether the constructor takes the hidden layers' `widths`, and a `seed` for their start."""

    @classmethod
    def from_data(
        cls,
        X: np.ndarray,
        Y: np.ndarray,
        *,
        depth: int = 2,
        num_inducing: int = 100,
        width: int | None = None,
        kernel: str = "squared_exponential",
        ard: bool = True,
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
        :param kernel: "squared_exponential" or "relu", the arc-cosine kernel of order 1.
        :param ard: learn a scale of each input feature: a lengthscale or weight variance, or `DIWP`'s
            `input_scale`. Of images they can overfit.
        :param seed: chooses the inducing points and the layers' random starting values.
        :param settings: further arguments of the constructor.
        """
        check_positive_integer("depth", depth)
        check_positive_integer("num_inducing", num_inducing)
        check_choice("kernel", kernel, tuple(KERNELS))
        X, Y = check_arrays(X, Y)
        num_features = X.shape[1]
        if cls._has_widths:
            widths = [num_features if width is None else width] * (depth - 1)
            settings = {"widths": widths, "seed": seed, **settings}
        elif width is not None:
            raise ValueError(f"width: got {width}, {cls.__name__} has no widths")
        centres, targets = cluster(X, Y, num_inducing, seed)
        make_kernel, on_inputs = KERNELS[kernel], cls._num_input_kernels
        with logarithmic_parameters():
            likelihood = likelihood or gpflow.likelihoods.Gaussian(0.1)
            check_labels(likelihood, Y)
            kernels = [make_kernel(num_features, ard=ard) for _ in range(on_inputs)]
            kernels += [make_kernel() for _ in range(depth - on_inputs)]
        settings = {"num_latent_gps": likelihood.latent_dim or Y.shape[1], **settings}
        model = cls(kernels, likelihood, centres, **settings)
        if isinstance(model.likelihood, gpflow.likelihoods.Gaussian):
            model.output_layer.v.assign(targets)
        return model


def logarithmic_parameters() -> AbstractContextManager[None]:
    """A context in which new positive parameters are trained by their logarithms.

    With GPflow's softplus, 1 000 steps of 0.01 move a lengthscale by at most 10, and a search that goes too
    far ends at 1e-36.
    """
    logarithmic = dataclasses.replace(gpflow.config.config(), positive_bijector="exp")
    return gpflow.config.as_context(logarithmic)


def squared_exponential(num_features: int | None = None, *, ard: bool = True) -> Kernel:
    """On Gram matrices, or on inputs with one lengthscale a feature, or one for all of them."""
    if num_features is None:
        return SquaredExponential()
    shape = num_features if ard else ()
    return SquaredExponential(lengthscales=np.full(shape, np.sqrt(num_features)))


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


KERNELS = {"squared_exponential": squared_exponential, "relu": relu}


def cluster(
    X: np.ndarray, Y: np.ndarray, num_clusters: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Centres [M, D] of a k-means clustering of X [N, D], and each cluster's mean of Y [M, P]."""
    num_clusters = min(num_clusters, len(np.unique(X, axis=0)))
    clustering = KMeans(num_clusters, n_init=1, random_state=seed).fit(X)
    members = np.equal(clustering.labels_, np.arange(num_clusters)[:, None])
    return clustering.cluster_centers_, members @ Y / np.sum(members, 1, keepdims=True)
