"""Kernels of kernels: an infinitely wide layer between each two."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import tensorflow as tf
from gpflow.kernels import Kernel

from .blocks import GramBlocks
from .covariance import covariance, from_inputs, of_structure


def _listed(kernels: tuple[Any, ...]) -> list[Kernel]:
    if len(kernels) == 1 and isinstance(kernels[0], Sequence):
        kernels = tuple(kernels[0])
    wrong = [type(kernel).__name__ for kernel in kernels if not isinstance(kernel, Kernel)]
    if wrong or not kernels:
        raise ValueError(
            f"kernels: got {wrong[0] if wrong else 'none'}, needs one or more GPflow kernels, "
            "one after the other or as a list"
        )
    return list(kernels)


class Composed(Kernel):
    """K_L(... K_2(K_1(.))): each kernel but the first acts on the Gram matrix that is the one before it.

    With arc-cosine kernels that of an infinitely wide neural network. On inputs the first kernel may be any
    GPflow kernel; the others, and on Gram matrices all of them, must be computable from one.

    :param kernels: K_1, ..., K_L, one after the other or as one sequence, as of `gpflow.kernels.Sum`.

    :raises ValueError: no kernels, or what is none.

    >>> kernels = [gpflow.kernels.SquaredExponential(), gpflow.kernels.Linear(variance=2.0)]
    >>> kernel = gpflow_dkp.gram.Composed(*kernels)
    >>> np.allclose(kernel(X), 2.0 * kernels[0](X))
    True
    """

    def __init__(self, *kernels: Kernel | Sequence[Kernel], name: str | None = None) -> None:
        super().__init__(name=name)
        self.kernels = _listed(kernels)

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:  # GPflow's
        """On inputs X [N, D] and X2 [N2, D]: [N, N2]."""
        return from_inputs(self, X, X).ii if X2 is None else from_inputs(self, X, X2).it

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:  # GPflow's
        """The diagonal of `K(X)` [N]."""
        return from_inputs(self, X[:1], X).tt


@of_structure.register(Composed)
def _composed(kernel: Composed, gram: GramBlocks) -> GramBlocks:
    return reduce(lambda blocks, child: covariance(child, blocks), kernel.kernels, gram)
