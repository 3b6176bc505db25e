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

from ..checks import check_inducing_variable
from ..gram import FeatureBlocks, GramBlocks
from ..layers import InputInverseWishart, InverseWishartLayer
from ..linalg import transpose
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

    Other arguments as in `DeepKernelProcess`.
    """

    _num_input_kernels = 0
    _has_widths = False

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
        num_inducing, num_features = check_inducing_variable(inducing_variable).Z.shape
        input_layer = InputInverseWishart(
            num_inducing, num_features, delta=delta, bias=input_bias, scale=input_scale
        )
        hidden = [
            InverseWishartLayer(num_inducing, delta=delta, log_ratio=log_ratio) for _ in kernels[1:]
        ]
        super().__init__(kernels, likelihood, inducing_variable, [input_layer, *hidden], **settings)
        input_layer.jitter = self.jitter

    @classmethod
    def from_data(cls, X: np.ndarray, Y: np.ndarray, *, ard: bool = True, **settings: Any) -> Self:
        """As of the other models, with `input_bias` and, for `ard`, `input_scale`, unless given."""
        settings = {"input_bias": True, "input_scale": ard, **settings}
        return super().from_data(X, Y, ard=ard, **settings)

    def _input_covariance(self, Z: InducingVariables | tf.Tensor, X: tf.Tensor) -> GramBlocks:
        """The inputs themselves, for the layer of Omega."""
        Z = tf.convert_to_tensor(Z.Z if isinstance(Z, InducingVariables) else Z)
        return FeatureBlocks(Z, transpose(tf.cast(X, self._data_dtype)))
