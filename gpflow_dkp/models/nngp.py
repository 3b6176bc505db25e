"""The infinite-width limit of the deep kernel processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from .. import gram
from ..gram import GramBlocks
from .from_data import DeepModel


class NNGP(DeepModel):
    """Kernels of kernels, K_L(... K_2(K_1(X))), without a random Gram matrix between, under one GP layer.

    The limit of `DWP` and `DGP` as the widths grow, and, with a first kernel on X / sqrt(D), of `DIWP`
    as delta grows: with arc-cosine kernels the neural network Gaussian process of an infinitely wide
    network.

    :param kernels: `kernels[0]` on the inputs (ARD, any GPflow kernel), the others on Gram matrices.

    Other arguments as in `DeepKernelProcess`.
    """

    _has_widths = False

    def __init__(
        self,
        kernels: Sequence[Kernel],
        likelihood: Likelihood,
        inducing_variable: InducingVariables | tf.Tensor,
        **settings: Any,
    ) -> None:
        super().__init__(kernels, likelihood, inducing_variable, [], **settings)

    @property
    def _gram_kernels(self) -> list[Kernel]:
        """None: there are no layers between the kernels."""
        return []

    def _input_covariance(self, Z: InducingVariables | tf.Tensor, X: tf.Tensor) -> GramBlocks:
        """All kernels in turn, jitter on the last, without a sample dimension."""
        first, *rest = self.kernels
        blocks = gram.from_inputs(first, Z, X)
        for kernel in rest:
            blocks = gram.covariance(kernel, blocks)
        return blocks.with_jitter(self.jitter).with_data_dtype(self._data_dtype)
