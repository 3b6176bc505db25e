"""The deep Gaussian process with global inducing points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import tensorflow as tf
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from ..checks import check_inducing_variable, check_seed
from ..layers import GlobalInducingGP
from .checks import check_widths
from .from_data import KERNELS, KERNELS_OF_FEATURES, ModelWithWidths, kernel_maker


class DGP(ModelWithWidths):
    """Deep GP with global inducing points and the prior of the deep Wishart process.

    Hidden layer l has `widths[l]` functions with covariance K / nu_l; the next kernel acts on their
    Gram matrix, as in `DWP`. The baseline of [UAI23]. With a linear kernel on the inputs and
    `gram.ReLUFeatures` after each hidden layer it is a Bayesian neural network of those widths;
    `from_data(kernel="relu_features")`, or "erf" or "sin", makes one with biases.

    :param kernels: `kernels[0]` on the inputs (ARD, any GPflow kernel), the others on Gram matrices.
    :param widths: number of functions of each hidden layer, one fewer than kernels.
    :param log_ratio: "expected" (closed form, the default) or "sampled" (as in the papers).
    :param shared_precision: one precision Lambda of pseudo-observations for all functions of a layer, or one
        for each as in [ICML21]: nearer the posterior, at 1.2 to 3.4 times the time of a step.
    :param seed: of the layers' random starting values.

    Other arguments as in `DeepModel` and `DeepKernelProcess`.

    >>> model = gpflow_dkp.models.DGP(
    ...     [gpflow.kernels.SquaredExponential(), gpflow.kernels.SquaredExponential()],
    ...     gpflow.likelihoods.Gaussian(0.1),
    ...     X[:3],
    ...     widths=[2],
    ... )
    >>> [type(layer).__name__ for layer in model.layers]
    ['GlobalInducingGP', 'OutputGP']
    >>> model.predict_f_samples(X, num_samples=4, seed=0).shape
    TensorShape([4, 10, 1])
    """

    def __init__(
        self,
        kernels: Sequence[Kernel],
        likelihood: Likelihood,
        inducing_variable: InducingVariables | tf.Tensor,
        *,
        widths: Sequence[int],
        log_ratio: Literal["expected", "sampled"] = "expected",
        shared_precision: bool = True,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        check_widths(kernels, widths)
        check_seed("seed", seed)
        inducing_variable = check_inducing_variable(inducing_variable)
        layers = [
            GlobalInducingGP(
                inducing_variable.Z.shape[0],
                width,
                kernel=kernel,
                log_ratio=log_ratio,
                shared_precision=shared_precision,
                seed=[seed, i],
            )
            for i, (kernel, width) in enumerate(zip(kernels[:-1], widths, strict=True))
        ]
        super().__init__(
            layers,
            kernels[-1],
            likelihood,
            inducing_variable,
            shared_precision=shared_precision,
            **settings,
        )

    @classmethod
    def _kernel_maker(cls, kernel: str | Kernel) -> Callable[..., Kernel]:
        return kernel_maker(kernel, KERNELS | KERNELS_OF_FEATURES)
