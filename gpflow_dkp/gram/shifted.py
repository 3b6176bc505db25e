"""A kernel of inputs from a point that is learned."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.kernels import Kernel

from ..checks import check_positive_integer
from .blocks import GramBlocks, InputBlocks
from .covariance import KernelNotComputableFromGram, covariance, of_structure


class Shifted(Kernel):
    """k(x - b, x' - b) of a kernel k on inputs, with a shift b of each feature that is learned ([ICML21]).

    For the arc-cosine and linear kernels and the like: a stationary kernel does not see b.

    :param kernel: k.
    :param num_features: columns D of the inputs.

    `shift` is b [D], and starts at 0.

    >>> kernel = gpflow_dkp.gram.Shifted(gpflow.kernels.Linear(), num_features=X.shape[1])
    >>> _ = kernel.shift.assign(X[0])
    >>> bool(np.all(kernel(X)[0] == 0.0)), np.allclose(kernel(X), (X - X[0]) @ (X - X[0]).T)
    (True, True)
    """

    def __init__(self, kernel: Kernel, num_features: int, name: str | None = None) -> None:
        super().__init__(name=name)
        check_positive_integer("num_features", num_features)
        self.kernel = kernel
        self.shift = Parameter(np.zeros(num_features))

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:  # GPflow's
        """On inputs X [N, D] and X2 [N2, D]: [N, N2]."""
        return self.kernel(X - self.shift, None if X2 is None else X2 - self.shift)

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:  # GPflow's
        """The diagonal of `K(X)` [N]."""
        return self.kernel(X - self.shift, full_cov=False)


@of_structure.register(Shifted)
def _shifted(kernel: Shifted, gram: GramBlocks) -> GramBlocks:
    if not isinstance(gram, InputBlocks):
        raise KernelNotComputableFromGram(kernel, "it shifts inputs, which a Gram matrix has not")
    variable = gram.inducing_variable
    if isinstance(variable, InducingVariables) and type(variable) is not InducingPoints:
        raise KernelNotComputableFromGram(
            kernel, f"it shifts inducing points, got {type(variable).__name__}"
        )
    moved = (points - kernel.shift for points in (gram.inducing, gram.X))
    return covariance(kernel.kernel, InputBlocks(*moved, full_cov=gram.full_cov))
