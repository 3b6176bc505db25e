"""[ICML19] equation 7, the last function drawn too, beside equation 11 and GPflow's bound.

Their expectations where the evidence is known are claims of the paper: tests/papers/test_icml19_claims.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gpflow.functions import Linear
from gpflow.likelihoods import Bernoulli, Gaussian, Likelihood, Softmax
from latent_variable_cases import (
    check_equal_means,
    check_mean,
    make_model,
    regression_data,
    replicate,
    svgp_of,
)

X, Y = regression_data()


@pytest.mark.parametrize("architecture", ["LV-GP", "LV-GP-GP", "GP-LV-GP"])
@pytest.mark.parametrize("num_outputs", [1, 2])
def test_a_last_function_without_variance_makes_both_the_same(
    architecture: str, num_outputs: int
) -> None:
    """At the same seed: then E log p(y | f) is log p(y | E f)."""
    settings: dict[str, Any] = {"num_outputs": num_outputs, "free": True}
    settings |= {"num_importance_samples": 4, "num_samples": 2}
    targets = regression_data(num_outputs)[1]
    values = []
    for inference in ("iwvi", "iwvi-sampled"):
        model = make_model(architecture, inference=inference, **settings)
        model.output_layer.kernel.variance.assign(1e-7)
        model.output_layer.q_sqrt.assign(1e-4 * model.output_layer.q_sqrt)
        model.output_layer.jitter.assign(1e-10)
        model.output_layer.mean_function = Linear(
            np.ones([model.output_layer.input_dim, num_outputs])
        )
        values.append(float(model.elbo((X, targets), seed=3)) + float(model.prior_kl()))
    assert values[0] == pytest.approx(values[1], abs=0.05)
    assert abs(values[0]) > 1.0


@pytest.mark.parametrize("likelihood", [Gaussian(0.3), Bernoulli(), Softmax(3)])
def test_without_latent_variables_it_is_svgps_bound_in_expectation(likelihood: Likelihood) -> None:
    """f is drawn where GPflow integrates it."""
    outputs = 3 if isinstance(likelihood, Softmax) else 1
    targets = {1: Y if isinstance(likelihood, Gaussian) else (Y > 0).astype(float)}
    targets[3] = np.array([[0], [2], [1], [1]])
    model = make_model("GP", num_outputs=outputs, likelihood=likelihood, inference="iwvi-sampled")
    data = X, targets[outputs]
    draws = replicate(lambda seed: model.elbo(data, num_samples=500, seed=seed), 30)
    svgp = svgp_of(model)
    if outputs == 3:
        likelihood.num_monte_carlo_points = 5000
        expected = replicate(lambda _: svgp.elbo(data), 30)
        check_equal_means(draws, expected)
    else:
        check_mean(draws, float(svgp.elbo(data)))


def test_it_is_a_bound_with_gradients_for_all_parameters() -> None:
    model = make_model("LV-GP-GP", inference="iwvi-sampled", num_importance_samples=3)
    assert model.objective_is_bound
    with tf.GradientTape() as tape:
        bound = model.elbo((X, Y), seed=0)
    gradients = tape.gradient(bound, model.trainable_variables)
    assert all(np.any(gradient.numpy() != 0.0) for gradient in gradients)
