"""The infinite-width limit of the deep kernel processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel, SeparateIndependent
from gpflow.likelihoods import Likelihood

from .. import gram
from ..gram import Composed
from .checks import check_kernels
from .from_data import DeepModel


class NNGP(DeepModel):
    """Kernels of kernels, K_L(... K_2(K_1(X))), without a random Gram matrix between, under one GP layer.

    The limit of `DWP` and `DGP` as the widths grow, and, with a first kernel on X / sqrt(D), of `DIWP`
    as delta grows: with arc-cosine kernels the neural network Gaussian process of an infinitely wide
    network. Its one layer has the kernel `gram.Composed`.

    :param kernels: `kernels[0]` on the inputs (ARD, any GPflow kernel), the others on Gram matrices.

    Other arguments as in `DeepModel` and `DeepKernelProcess`.

    >>> settings = {"num_inducing": 10, "kernel": "relu"}
    >>> model = gpflow_dkp.models.NNGP.from_data(X, Y, depth=3, **settings)
    >>> type(model.output_layer.kernel).__name__, len(model.kernels)
    ('Composed', 3)
    >>> one_layer = [cls.from_data(X, Y, depth=1, **settings)
    ...              for cls in (gpflow_dkp.models.NNGP, gpflow_dkp.models.DWP)]
    >>> np.allclose(*(model.elbo((X, Y)) for model in one_layer))
    True
    """

    def __init__(
        self,
        kernels: Sequence[Kernel],
        likelihood: Likelihood,
        inducing_variable: InducingVariables | tf.Tensor,
        **settings: Any,
    ) -> None:
        kernels = check_kernels(kernels)
        if len(kernels) > 1 and any(isinstance(kernel, SeparateIndependent) for kernel in kernels):
            raise ValueError(
                "kernels: got SeparateIndependent among them, NNGP takes it alone only"
            )
        for kernel in kernels[1:]:
            gram.check_computable_from_gram(kernel)
        composed = kernels[0] if len(kernels) == 1 else Composed(*kernels)
        super().__init__([], composed, likelihood, inducing_variable, **settings)

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels that are composed."""
        kernel = self.output_layer.kernel
        return kernel.kernels if isinstance(kernel, Composed) else [kernel]
