"""The deep Wishart process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import tensorflow as tf
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from ..checks import check_inducing_variable
from ..layers import WishartLayer
from .checks import check_widths
from .from_data import DeepModel


class DWP(DeepModel):
    """Deep Wishart process ([NeurIPS21], [UAI23]): a Wishart layer before each kernel but the first.

    G_l ~ Wishart(K(G_{l-1}) / nu_l, nu_l), f ~ N(0, K(G_L)). A deep GP with isotropic kernels, its
    features integrated out.

    :param kernels: `kernels[0]` on the inputs (ARD, any GPflow kernel), the others on Gram matrices.
    :param widths: degrees of freedom nu of each hidden layer, one fewer than kernels; `[]` is a sparse
        GP with the global-inducing output layer.
    :param posterior: "gw", "a-gw" or "ab-gw".
    :param log_ratio: "expected" (closed form, the default) or "sampled" (as in the papers).
    :param seed: of the layers' random starting values.

    Other arguments as in `DeepKernelProcess`.
    """

    def __init__(
        self,
        kernels: Sequence[Kernel],
        likelihood: Likelihood,
        inducing_variable: InducingVariables | tf.Tensor,
        *,
        widths: Sequence[int],
        posterior: Literal["gw", "a-gw", "ab-gw"] = "ab-gw",
        log_ratio: Literal["expected", "sampled"] = "expected",
        seed: int = 0,
        **settings: Any,
    ) -> None:
        check_widths(kernels, widths)
        num_inducing = check_inducing_variable(inducing_variable).Z.shape[0]
        layers = [
            WishartLayer(num_inducing, width, posterior, log_ratio=log_ratio, seed=[seed, i])
            for i, width in enumerate(widths)
        ]
        super().__init__(kernels, likelihood, inducing_variable, layers, **settings)
