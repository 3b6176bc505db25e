"""The deep Wishart process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import tensorflow as tf
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from ..checks import check_inducing_variable, check_seed
from ..layers import WishartLayer
from .checks import check_widths
from .from_data import ModelWithWidths


class DWP(ModelWithWidths):
    """Deep Wishart process ([NeurIPS21], [UAI23]): a Wishart layer before each kernel but the first.

    G_l ~ Wishart(K(G_{l-1}) / nu_l, nu_l), f ~ N(0, K(G_L)). A deep GP with isotropic kernels, its
    features integrated out.

    :param kernels: `kernels[0]` on the inputs (ARD, any GPflow kernel), the others on Gram matrices.
    :param widths: degrees of freedom nu of each hidden layer, one fewer than kernels; `[]` is a sparse
        GP with the global-inducing output layer.
    :param posterior: "gw", "a-gw" or "ab-gw"; for one of your own see docs/extending.md.
    :param log_ratio: "expected" (closed form, the default) or "sampled" (as in the papers).
    :param seed: of the layers' random starting values.

    Other arguments as in `DeepModel` and `DeepKernelProcess`.

    >>> model = gpflow_dkp.models.DWP.from_data(X, Y, depth=2, num_inducing=3)
    >>> history = gpflow_dkp.training.fit(model, (X, Y), num_steps=3, progress=False)
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
        widths: Sequence[int],
        posterior: Literal["gw", "a-gw", "ab-gw"] = "ab-gw",
        log_ratio: Literal["expected", "sampled"] = "expected",
        seed: int = 0,
        **settings: Any,
    ) -> None:
        check_widths(kernels, widths)
        check_seed("seed", seed)
        inducing_variable = check_inducing_variable(inducing_variable)
        layers = [
            WishartLayer(
                inducing_variable.Z.shape[0],
                width,
                posterior,
                kernel=kernel,
                log_ratio=log_ratio,
                seed=[seed, i],
            )
            for i, (kernel, width) in enumerate(zip(kernels[:-1], widths, strict=True))
        ]
        super().__init__(layers, kernels[-1], likelihood, inducing_variable, **settings)
