"""The same start and the same noise give the bounds that the first release gave.

`reference_bounds.json` holds the first release's bound at every tenth of 200 Adam steps, so that results
stored by it stay comparable: where a change of the library is meant to change no number, none changes here.
`python tests/gpflow_dkp/models/test_training_reference.py` prints the bounds of the code at hand.
"""

from __future__ import annotations

import json
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.kernels import ArcCosine, Linear, Matern52, SquaredExponential

from gpflow_dkp.layers import Encoder, LatentVariableLayer, SparseGP
from gpflow_dkp.models import DGP, DIWP, DWP, GWI, NNGP, LatentVariableDGP

tfb = tfp.bijectors

REFERENCE = Path(__file__).with_name("reference_bounds.json")
NUM_STEPS = 200
RECORDED = slice(0, NUM_STEPS, 10)
VARIATIONAL = [
    *("q", "V", "A", "B", "alpha", "beta", "mu", "sigma"),
    *("v", "precision_tril", "delta", "gamma", "bias", "scale"),
    *("q_mu", "q_sqrt"),
]


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(20, 2))
    return X, np.sin(2.0 * X[:, :1]) * X[:, 1:] + 0.1 * rng.normal(size=(20, 1))


def kernels(depth: int) -> list[gpflow.kernels.Kernel]:
    """ARD on the inputs, then kernels of three kinds."""
    hidden = [
        SquaredExponential(variance=1.2, lengthscales=0.9),
        Matern52(variance=0.8) + Linear(0.3),
        ArcCosine(order=1, bias_variance=0.4),
    ]
    return [SquaredExponential(lengthscales=[0.8, 1.2]), *hidden[: depth - 1]]


def deep(cls: type, depth: int, **settings: object) -> gpflow.models.BayesianModel:
    """A deep kernel process with every variational parameter away from its start."""
    Z = np.random.default_rng(1).uniform(-2.0, 2.0, size=(6, 2))
    if cls is DIWP:
        of_grams = [SquaredExponential(lengthscales=0.8), *kernels(depth)[1:]]
        model = cls(of_grams, gpflow.likelihoods.Gaussian(0.2), Z, num_samples=3, **settings)
    else:
        likelihood = (
            gpflow.likelihoods.StudentT() if cls is DGP else gpflow.likelihoods.Gaussian(0.2)
        )
        model = cls(kernels(depth), likelihood, Z, num_samples=3, **settings)
    scatter([*model.hidden_layers, model.output_layer])
    return model


def latent_variables() -> LatentVariableDGP:
    Z = np.random.default_rng(1).uniform(-2.0, 2.0, size=(6, 3))
    inner = SparseGP(
        SquaredExponential(lengthscales=[1.0, 1.2, 0.9]),
        Z,
        2,
        projection=np.array([[1.0, 0.2], [0.3, 1.0]]),
        q_sqrt_scale=0.3,
        whiten=False,
    )
    last = SparseGP(Matern52(), Z[:, :2], 1)
    layers = [LatentVariableLayer(1, encoder=Encoder(3, 1, bias=-1.0)), inner, last]
    scatter([inner, last])
    return LatentVariableDGP(
        layers, gpflow.likelihoods.Gaussian(0.1), inference="iwvi", num_importance_samples=3
    )


def wasserstein() -> GWI:
    model = GWI(
        SquaredExponential(lengthscales=[0.9, 1.1]),
        gpflow.likelihoods.Gaussian(0.1),
        np.random.default_rng(1).uniform(-2.0, 2.0, size=(6, 2)),
        num_cross_points=12,
    )
    rng = np.random.default_rng(2)
    model.q_mu.assign(0.3 * rng.normal(size=(6, 1)))
    model.q_sqrt.assign(0.5 * np.eye(6)[None])
    return model


def scatter(layers: list[tf.Module]) -> None:
    """Move the layers' variational parameters by random amounts, found by name."""
    rng = np.random.default_rng(2)
    for layer in layers:
        for name in VARIATIONAL:
            parameter = getattr(layer, name, None)
            if parameter is None:
                continue
            variable = parameter.unconstrained_variable
            if name == "V":  # starts where the release put it
                variable.assign(0.5 * np.eye(*variable.shape))
            if name == "precision_tril":  # is trained as the release did
                filled = tfb.FillScaleTriL(diag_bijector=tfb.Exp(), diag_shift=None)
                layer.precision_tril = gpflow.Parameter(parameter, transform=filled)
                variable = layer.precision_tril.unconstrained_variable
            variable.assign_add(0.3 * rng.normal(size=variable.shape))


CASES = {
    "DWP AB-GW": lambda: deep(DWP, 3, widths=[3, 9], posterior="ab-gw"),
    "DWP A-GW": lambda: deep(DWP, 2, widths=[3], posterior="a-gw"),
    "DWP GW, sampled": lambda: deep(DWP, 2, widths=[8], posterior="gw", log_ratio="sampled"),
    "DGP": lambda: deep(DGP, 3, widths=[3, 2]),
    "DGP, sampled": lambda: deep(DGP, 2, widths=[3], log_ratio="sampled"),
    "DIWP": lambda: deep(DIWP, 3, input_bias=True, input_scale=True),
    "DIWP, sampled": lambda: deep(DIWP, 2, log_ratio="sampled"),
    "NNGP": lambda: deep(NNGP, 4),
    "LV-GP-GP": latent_variables,
    "GWI": wasserstein,
}


def bounds(case: str) -> list[float]:
    """The bound before each of 200 steps of Adam, step i seeing the noise of seed i."""
    model, (X, Y) = CASES[case](), data()
    variables = model.trainable_variables
    moments = [[tf.Variable(tf.zeros_like(v)) for v in variables] for _ in range(2)]

    @tf.function(autograph=False)
    def step(number: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            elbo = model.elbo((X, Y), seed=tf.stack([number, 7]))
        gradients = tape.gradient(elbo, variables)
        count = tf.cast(number + 1, elbo.dtype)
        rate = 0.01 * tf.sqrt(1.0 - 0.999**count) / (1.0 - 0.9**count)
        for variable, first, second, gradient in zip(variables, *moments, gradients, strict=True):
            first.assign_add(0.1 * (gradient - first))
            second.assign_add(0.001 * (gradient**2 - second))
            variable.assign_add(rate * first / (tf.sqrt(second) + 1e-8))
        return elbo

    return [float(step(tf.constant(number))) for number in range(NUM_STEPS)]


@pytest.mark.parametrize("case", CASES)
def test_bounds_of_the_first_release(case: str) -> None:
    reference = json.loads(REFERENCE.read_text())[case]
    np.testing.assert_allclose(bounds(case)[RECORDED], reference, rtol=0, atol=1e-6)


if __name__ == "__main__":
    print(json.dumps({case: bounds(case)[RECORDED] for case in CASES}, indent=1))
