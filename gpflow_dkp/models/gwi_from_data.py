"""Gaussian Wasserstein inference from few arguments, or from data alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, Literal

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel, SeparateIndependent
from gpflow.likelihoods import Gaussian, Likelihood
from typing_extensions import Self

from ..checks import (
    check_choice,
    check_inducing_variable,
    check_positive,
    check_positive_integer,
    check_seed,
    num_points_and_features,
)
from ..means import Mean
from ..networks import MultilayerPerceptron
from .checks import (
    check_arrays,
    check_likelihood,
    check_num_latent_gps,
    kernels_of_outputs,
)
from .from_data import KERNELS, cluster, logarithmic_parameters
from .marginal_likelihood import latent_targets, marginal_likelihood_start


class GWIFromData:
    """The builders of `GWI`."""

    @classmethod
    def net(
        cls,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: InducingVariables | tf.Tensor,
        *,
        hidden_units: Sequence[int] = (10, 10),
        activation: str = "tanh",
        weight_variance: float | None = None,
        seed: int = 0,
        num_latent_gps: int | None = None,
        **settings: Any,
    ) -> Self:
        """GWI-net: the mean is a fully connected network, the inducing points stay where they are.

        :param inducing_variable: Z [M, D]; an `InducingVariables` is set untrainable.
        :param hidden_units: of each hidden layer; the paper's has two of 10.
        :param activation: "tanh" or "relu".
        :param weight_variance: of a normal prior on the network's weights, for a network that would
            overfit: the distance holds back the mean's values, not its weights. None, as in the paper,
            for no prior.
        :param seed: of the network's starting values.
        :param settings: further arguments of the constructor.
        """
        num_latent_gps = check_num_latent_gps(likelihood, num_latent_gps)
        inducing_variable = check_inducing_variable(inducing_variable)
        gpflow.set_trainable(inducing_variable, False)
        network = MultilayerPerceptron(
            num_points_and_features(inducing_variable)[1],
            num_latent_gps,
            hidden_units=hidden_units,
            activation=activation,
            weight_variance=weight_variance,
            seed=seed,
        )
        build: Callable[..., Self] = cls
        return build(
            kernel,
            likelihood,
            inducing_variable,
            mean=network,
            num_latent_gps=num_latent_gps,
            **settings,
        )

    @classmethod
    def from_data(
        cls,
        X: np.ndarray,
        Y: np.ndarray,
        *,
        mean: Literal["net", "svgp"] | Mean = "net",
        num_inducing: int | None = None,
        kernel: Kernel | str = "squared_exponential",
        likelihood: Likelihood | None = None,
        noise_variance: float | None = None,
        num_marginal_points: int = 500,
        train_hyperparameters: bool = False,
        separate_kernels: bool = False,
        covariance: Kernel | str = "svgp",
        seed: int = 0,
        **settings: Any,
    ) -> Self:
        """The paper's model for X [N, D] and Y [N, P], both normalised, or Y [N, 1] of labels.

        Inducing points at the centres of a k-means clustering; kernel and noise variance by the marginal
        likelihood of some of the data (`marginal_likelihood_start`; labels as one normalised indicator a
        class); `q_sqrt`, and `q_mu` of the mean "svgp", at the optimum of the sparse GP with that noise.

        :param mean: "net", as in `net` with the inducing points fixed; "svgp", or a callable as in the
            constructor.
        :param num_inducing: M, default the square root of N.
        :param kernel: "squared_exponential", "rational_quadratic" or "relu" with ARD, or a GPflow kernel to
            start from.
        :param likelihood: default Gaussian with the noise variance found.
        :param noise_variance: of the Gaussian likelihood and the start instead.
        :param num_marginal_points: rows for the marginal likelihood; 0 to take the kernel as it is given,
            with `noise_variance`.
        :param train_hyperparameters: leave kernel and likelihood as trainable as they are; they are fixed
            otherwise.
        :param separate_kernels: one kernel for each output or class, each by the marginal likelihood of its
            own targets ([NeurIPS22] A.6); the noise variance is their mean.
        :param covariance: "svgp", or for r a kernel of its own, which is trained ([NeurIPS22] section
            4.1): "prior" for a copy of the kernel found, a name as of `kernel`, or a GPflow kernel.
        :param seed: of the clustering, the subset and the network's starting values.
        :param settings: further arguments of the constructor, or of `net`.
        """
        X, Y = check_arrays(X, Y)
        if isinstance(mean, str):
            check_choice("mean", mean, ("net", "svgp"))
        if noise_variance is not None:
            check_positive("noise_variance", noise_variance)
        num_inducing = round(np.sqrt(len(X))) if num_inducing is None else num_inducing
        check_positive_integer("num_inducing", num_inducing)
        check_seed("seed", seed)
        if likelihood is not None:
            check_likelihood(likelihood)
        targets = latent_targets(likelihood, Y)
        with logarithmic_parameters():
            if not isinstance(kernel, Kernel):
                check_choice("kernel", kernel, tuple(KERNELS))
                kernel = KERNELS[kernel](X.shape[1])
            if separate_kernels:
                kernel = one_for_each_output(kernel, targets.shape[1])
            if num_marginal_points:
                found = start_kernels(kernel, X, targets, seed, num_points=num_marginal_points)
                noise_variance = found if noise_variance is None else noise_variance
            elif noise_variance is None:
                raise ValueError(
                    "noise_variance: got None, needs a number if num_marginal_points is 0"
                )
            likelihood = likelihood or Gaussian(noise_variance)
            own = own_covariance(covariance, kernel, X.shape[1])
        if not train_hyperparameters:
            gpflow.set_trainable(kernel, False)
            gpflow.set_trainable(likelihood, False)
        centres, _ = cluster(X, targets, num_inducing, seed)
        settings = {"num_latent_gps": targets.shape[1], "covariance": own, **settings}
        build: Callable[..., Any] = cls
        if isinstance(mean, str) and mean == "net":
            build, settings = cls.net, {"seed": seed, **settings}
        else:
            settings = {"mean": mean, **settings}
        model = build(kernel, likelihood, centres, **settings)
        model.start_at_sparse_posterior((X, targets), noise_variance)
        return model


def one_for_each_output(kernel: Kernel, num_outputs: int) -> SeparateIndependent:
    """Copies of a kernel, with parameters of their own."""
    return SeparateIndependent([deepcopy(kernel) for _ in range(num_outputs)])


def own_covariance(
    covariance: Kernel | str, kernel: Kernel, num_features: int
) -> Literal["svgp"] | Kernel:
    """r as `GWI` takes it: "svgp" or a kernel, of "prior" a copy of the prior's."""
    if isinstance(covariance, Kernel):
        return covariance
    check_choice("covariance", covariance, ("svgp", "prior", *KERNELS))
    if covariance == "svgp":
        return "svgp"
    return deepcopy(kernel) if covariance == "prior" else KERNELS[covariance](num_features)


def start_kernels(
    kernel: Kernel, X: np.ndarray, targets: np.ndarray, seed: int, *, num_points: int = 500
) -> float:
    """Fit a kernel, or each output's, in place by `marginal_likelihood_start`.

    :returns: the noise variance found, of several kernels the mean.
    """
    parts = [(kernel, targets)]
    if isinstance(kernel, SeparateIndependent):
        children = kernels_of_outputs("kernel", kernel, targets.shape[1])
        parts = [(child, targets[:, [p]]) for p, child in enumerate(children)]
    found = [
        marginal_likelihood_start(child, X, of_child, num_points=num_points, seed=seed)
        for child, of_child in parts
    ]
    return float(np.mean(found))
