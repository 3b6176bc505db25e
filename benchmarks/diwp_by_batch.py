"""A plugin: the benchmark's DIWP with the draws of the authors' code of [ICML21].

    PYTHONPATH=benchmarks dkp-bench uci --config aitchison2021 --plugin diwp_by_batch \\
        --datasets protein --splits 0 --models diwp-by-batch:squared_exponential

The part of a data point's Gram matrix that the inducing points do not fix is inverse Wishart, with
delta + M + 2 degrees of freedom where the point is drawn alone. That code draws each of the N points of a
batch alone, and yet with delta + M + N + 1, as if all N were drawn jointly: the point's noise is smaller by
the ratio of the two, and depends on the batch, so that what is trained is no bound of one model
([ICML21] equation 34a). Predictions are drawn 500 points at a time, and depend on that.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bayesian_benchmarks.models import model_source, register_model
from gpflow_dkp.layers import InverseWishartLayer
from gpflow_dkp.layers.gram.inverse_wishart import condition_inverse_wishart


class DrawnByBatch(InverseWishartLayer):
    """Data points drawn each alone, with the degrees of freedom of all; jointly they are the DIWP's.

    :raises ValueError: those of `InverseWishartLayer`.
    """

    def condition(
        self, draw: Any, K_it: Any, K_tt: Any, *, full_cov: bool = False, **how: Any
    ) -> Any:
        """Of N points, whose K_it is [..., M, N] and K_tt [..., N], or [..., N, N] of `full_cov`."""
        if full_cov:
            return super().condition(draw, K_it, K_tt, full_cov=True, **how)
        delta, K_it = tf.convert_to_tensor(self.delta), tf.convert_to_tensor(K_it)
        excess = delta + tf.cast(tf.shape(K_it)[-1], delta.dtype) - 1.0
        how = {"seed": None, "gradient_dtype": self.gradient_dtype, **how}
        return condition_inverse_wishart(draw, K_it, K_tt, delta=delta, excess=excess, **how)


def register(kernel: str) -> None:
    @register_model(f"diwp-by-batch:{kernel}")
    def build(X: Any, Y: Any, **settings: Any) -> Any:
        model = model_source(f"diwp:{kernel}").build(X, Y, **settings)
        for layer in model.layers:
            if type(layer) is InverseWishartLayer:
                layer.__class__ = DrawnByBatch  # the same parameters
        return model


for kernel in ("relu", "squared_exponential"):
    register(kernel)
