"""The deep inverse Wishart process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from typing_extensions import Self

from ..checks import check_flag, check_inducing_variable
from ..layers import InputInverseWishart, InverseWishartLayer
from .checks import check_kernels
from .from_data import DeepModel


class DIWP(DeepModel):
    """Deep inverse Wishart process ([ICML21]): G_1 = X Omega X^T / N_0, then an inverse Wishart layer
    before each kernel but the first.

    G_l ~ IW(delta K(G_{l-1}), delta + M + 1), f ~ N(0, K(G_L)), Omega ~ IW(delta I, delta + N_0 + 1).

    :param kernels: all on Gram matrices; `kernels[0]` acts on G_1, then one after each hidden layer.
    :param log_ratio: of the hidden layers, "expected" (closed form, the default) or "sampled" (as in
        the paper); Omega's is always in closed form.
    :param delta: starting value, above 0, of every layer's own delta. The larger, the nearer the layer is to
        its mean, which it passes on where delta is infinite, as `NNGP` does.
    :param input_bias: learn a shift of each input feature, as `from_data` does.
    :param input_scale: learn a scale of each input feature, as `from_data` does with `ard`.

    Other arguments as in `DeepModel` and `DeepKernelProcess`.

    >>> model = gpflow_dkp.models.DIWP.from_data(X, Y, depth=2, num_inducing=3)
    >>> [type(layer).__name__ for layer in model.layers]
    ['InputInverseWishart', 'InverseWishartLayer', 'OutputGP']
    >>> mean, variance = model.predict_y(X, num_samples=4)
    >>> mean.shape, bool(np.all(variance > 0.0))
    (TensorShape([10, 1]), True)
    """

    def __init__(
        self,
        kernels: Sequence[Kernel],
        likelihood: Likelihood,
        inducing_variable: InducingVariables | tf.Tensor,
        *,
        log_ratio: Literal["expected", "sampled"] = "expected",
        delta: float = 5.0,
        input_bias: bool = False,
        input_scale: bool = False,
        **settings: Any,
    ) -> None:
        kernels = check_kernels(kernels)
        check_flag("input_bias", input_bias)
        check_flag("input_scale", input_scale)
        inducing_variable = check_inducing_variable(inducing_variable)
        num_inducing, num_features = inducing_variable.Z.shape
        input_layer = InputInverseWishart(
            num_inducing, num_features, delta=delta, bias=input_bias, scale=input_scale
        )
        hidden = [
            InverseWishartLayer(num_inducing, kernel=kernel, delta=delta, log_ratio=log_ratio)
            for kernel in kernels[:-1]
        ]
        layers = [input_layer, *hidden]
        super().__init__(layers, kernels[-1], likelihood, inducing_variable, **settings)
        input_layer.jitter = self.jitter  # it forms the covariance of the first Gram matrix itself

    @classmethod
    def from_data(
        cls,
        X: np.ndarray,
        Y: np.ndarray,
        *,
        ard: bool = True,
        input_bias: bool = True,
        **settings: Any,
    ) -> Self:
        """As of the other models, with `input_bias` and, for `ard`, `input_scale`, unless given."""
        settings = {"input_scale": ard, **settings}
        return super().from_data(X, Y, ard=ard, input_bias=input_bias, **settings)

    @classmethod
    def _with_input_bias(cls, kernels: list, num_features: int) -> dict[str, Any]:
        """The input layer's."""
        return {"input_bias": True}

    @classmethod
    def _kernels_from_data(cls, make_kernel: Any, num_features: int, depth: int, ard: bool) -> list:
        """All on Gram matrices: the scale of each input is the input layer's."""
        return [make_kernel() for _ in range(depth)]
