"""`Shifted` against the kernel on shifted inputs, in models, and where it is refused."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import ArcCosine, Linear, SquaredExponential

from gpflow_dkp import gram
from gpflow_dkp.gram import KernelNotComputableFromGram, Shifted
from gpflow_dkp.models import DGP, DIWP, DWP, NNGP

D = 3
RNG = np.random.default_rng(0)
X, Z, b = RNG.normal(size=(7, D)), RNG.normal(size=(4, D)), np.array([0.5, -1.0, 2.0])


def shifted(kernel: gpflow.kernels.Kernel) -> Shifted:
    made = Shifted(kernel, D)
    made.shift.assign(b)
    return made


@pytest.mark.parametrize(
    "kernel",
    [ArcCosine(order=1, weight_variances=[1.0, 2.0, 0.5]), Linear(active_dims=[0, 2])],
    ids=["arc-cosine", "some dimensions"],
)
@pytest.mark.parametrize("full_cov", [False, True])
def test_blocks_are_the_kernel_on_shifted_inputs(
    kernel: gpflow.kernels.Kernel, full_cov: bool
) -> None:
    variable = gpflow.inducing_variables.InducingPoints(Z)
    K = gram.from_inputs(shifted(kernel), variable, X, full_cov=full_cov)
    np.testing.assert_allclose(K.ii, kernel(Z - b), rtol=0, atol=1e-12)
    np.testing.assert_allclose(K.it, kernel(Z - b, X - b), rtol=0, atol=1e-12)
    np.testing.assert_allclose(K.tt, kernel(X - b, full_cov=full_cov), rtol=0, atol=1e-12)
    both = gram.from_inputs(shifted(kernel) + Linear(), Z, X)
    np.testing.assert_allclose(both.it, kernel(Z - b, X - b) + Z @ X.T, rtol=0, atol=1e-12)


def test_stationary_kernel_does_not_see_the_shift() -> None:
    kernel = SquaredExponential()
    np.testing.assert_allclose(shifted(kernel)(Z, X), kernel(Z, X), rtol=0, atol=1e-12)


@pytest.mark.parametrize("model", [DWP, DGP, NNGP])
def test_model_with_a_bias_is_the_model_of_shifted_data(model: Any) -> None:
    Y = RNG.normal(size=(len(X), 1))
    settings = {"kernel": "relu", "num_inducing": 4, "seed": 0}
    with_bias = model.from_data(X, Y, input_bias=True, **settings)
    first = (
        with_bias.output_layer.kernel.kernels[0] if model is NNGP else with_bias.layers[0].kernel
    )
    assert isinstance(first, Shifted)
    first.shift.assign(b)
    without = model.from_data(X, Y, **settings)
    without.inducing_variable.Z.assign(with_bias.inducing_variable.Z - b)
    ours, theirs = (m.elbo((data, Y), seed=1) for m, data in ((with_bias, X), (without, X - b)))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    with tf.GradientTape() as tape:
        elbo = with_bias.elbo((X, Y), seed=1)
    gradient = tape.gradient(elbo, first.shift.unconstrained_variable)
    assert np.all(np.abs(gradient) > 0.0)


def test_inverse_wishart_model_has_its_own_shift() -> None:
    Y = X[:, :1]
    assert DIWP.from_data(X, Y, num_inducing=4).layers[0].bias is not None
    assert DIWP.from_data(X, Y, num_inducing=4, input_bias=False).layers[0].bias is None


def test_gram_matrix_has_no_inputs_to_shift() -> None:
    with pytest.raises(KernelNotComputableFromGram, match="it shifts inputs"):
        DWP([Linear(), shifted(Linear())], gpflow.likelihoods.Gaussian(), Z, widths=[2])
    with pytest.raises(ValueError, match=r"input_bias: got 1, "):
        DWP.from_data(X, X[:, :1], input_bias=1)
