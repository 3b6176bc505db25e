"""The deep Gaussian process with global inducing points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import tensorflow as tf
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from ..checks import check_inducing_variable
from ..layers import GlobalInducingGP
from .checks import check_widths
from .from_data import DeepModel


class DGP(DeepModel):
    """Deep GP with global inducing points and the prior of the deep Wishart process.

    Hidden layer l has `widths[l]` functions with covariance K / nu_l; the next kernel acts on their
    Gram matrix, as in `DWP`. The baseline of [UAI23]. With a linear kernel on the inputs and
    `gram.ReLUFeatures` after each hidden layer it is a Bayesian neural network of those widths.

    :param kernels: `kernels[0]` on the inputs (ARD, any GPflow kernel), the others on Gram matrices.
    :param widths: number of functions of each hidden layer, one fewer than kernels.
    :param log_ratio: "expected" (closed form, the default) or "sampled" (as in the papers).
    :param seed: of the layers' random starting values.

    Other arguments as in `DeepKernelProcess`.
    """

    _draws_features = True

    def __init__(
        self,
        kernels: Sequence[Kernel],
        likelihood: Likelihood,
        inducing_variable: InducingVariables | tf.Tensor,
        *,
        widths: Sequence[int],
        log_ratio: Literal["expected", "sampled"] = "expected",
        seed: int = 0,
        **settings: Any,
    ) -> None:
        check_widths(kernels, widths)
        num_inducing = check_inducing_variable(inducing_variable).Z.shape[0]
        layers = [
            GlobalInducingGP(num_inducing, width, log_ratio=log_ratio, seed=[seed, i])
            for i, width in enumerate(widths)
        ]
        super().__init__(kernels, likelihood, inducing_variable, layers, **settings)
