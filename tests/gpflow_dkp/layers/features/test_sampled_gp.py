"""The layer at given inducing values: the limit of a sparse GP whose posterior has no width, side by side."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from gpflow_dkp.layers import IndependentGPs, SampledGP, SparseGP

RNG = np.random.default_rng(0)
M, L, S, N, D = 4, 2, 3, 5, 2
Z, X = RNG.normal(size=(M, D)), RNG.normal(size=(S, N, D))
VALUES = RNG.normal(size=(S, M, L))
MEAN = gpflow.functions.Linear(RNG.normal(size=(D, 3)), RNG.normal(size=3))
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "projected": {"mean_function": MEAN, "projection": RNG.normal(size=(3, L))},
}
WIDTH = 1e-9
"""Of a posterior that stands for a value."""


def kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern52(variance=1.3, lengthscales=[0.7, 1.2])


def sparse(value: np.ndarray, **options: Any) -> SparseGP:
    layer = SparseGP(kernel(), Z, L, q_sqrt_scale=WIDTH, **options)
    layer.q_mu.assign(value)
    return layer


@pytest.mark.parametrize("full_cov", [False, True])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_each_value_is_a_posterior_without_width(options: dict[str, Any], full_cov: bool) -> None:
    layer = SampledGP(kernel(), Z, L, **options)
    mean, variance = layer.marginals(X, layer.at(VALUES), full_cov=full_cov)
    for s in range(S):
        expected = sparse(VALUES[s], **options).marginals(X[s : s + 1], full_cov=full_cov)
        np.testing.assert_allclose(mean[s : s + 1], expected[0], atol=1e-10)
        np.testing.assert_allclose(variance[s : s + 1], expected[1], atol=1e-10)


@pytest.mark.parametrize("full_cov", [False, True])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_draws_given_one_value_are_those_of_that_posterior(
    options: dict[str, Any], full_cov: bool
) -> None:
    layer, other = SampledGP(kernel(), Z, L, **options), sparse(VALUES[0], **options)
    layer.values.assign(VALUES[0])
    ours, theirs = (
        gp.condition(gp.sample(), X, seed=3, full_cov=full_cov) for gp in (layer, other)
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-7)


def test_what_a_joint_draw_s_gradient_needs_is_there() -> None:
    """`own_gradient`, of latent-variable models, has the same values and reads `excess`."""
    layer = SampledGP(kernel(), Z, L)
    draw = layer.at(VALUES)
    ours, plain = (
        layer.condition(draw, X, seed=0, full_cov=True, own_gradient=own) for own in (True, False)
    )
    np.testing.assert_allclose(ours, plain, atol=1e-8)
    np.testing.assert_array_equal(draw.excess, np.tile(-np.eye(M), [L, 1, 1]))


def test_the_prior_of_the_values_is_standard_normal() -> None:
    log_prior = SampledGP(kernel(), Z, L).at(VALUES).log_ratio
    np.testing.assert_allclose(log_prior, stats.norm.logpdf(VALUES).sum((1, 2)))


def test_kept_values_are_taken_evenly() -> None:
    layer = SampledGP(kernel(), Z, L)
    kept = np.arange(6.0)[:, None, None] * np.ones([M, L])
    layer.keep(kept)
    for number, expected in (
        (6, [0, 1, 2, 3, 4, 5]),
        (3, [0, 2, 4]),
        (4, [0, 1, 3, 4]),
        (9, [0, 0, 1, 2, 2, 3, 4, 4, 5]),
    ):
        taken = layer.sample(num_samples=number).whitened
        np.testing.assert_array_equal(taken[:, 0, 0], expected)
    np.testing.assert_array_equal(layer.sample().whitened, np.zeros([1, M, L]))


def test_it_starts_at_the_mean_of_a_sparse_gp() -> None:
    other = SparseGP(kernel(), Z, L, whiten=False, **OPTIONS["projected"])
    other.start_at_regression(X[0], RNG.normal(size=(N, L)), 0.1)
    layer = SampledGP.of(other)
    assert layer.kernel is other.kernel
    assert layer.inducing_variable is other.inducing_variable
    mean, _ = layer.marginals(X)
    np.testing.assert_allclose(mean, other.marginals(X)[0], atol=1e-8)
    kept, _ = layer.marginals(X, layer.sample(num_samples=S))
    np.testing.assert_allclose(kept, mean, atol=1e-12)


def test_values_are_no_parameters_to_train() -> None:
    layer = SampledGP(kernel(), Z, L)
    trained = {variable.ref() for variable in layer.trainable_variables}
    of_parts = (*layer.kernel.trainable_variables, *layer.inducing_variable.trainable_variables)
    assert trained == {variable.ref() for variable in of_parts}
    with tf.GradientTape() as tape:
        tape.watch(layer.values)
        value = tf.reduce_sum(layer.marginals(X)[0])
    assert tape.gradient(value, layer.values) is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel": "se"}, "kernel: got str, needs a GPflow kernel"),
        ({"num_latent_gps": 0}, "num_latent_gps: got 0, needs an integer of at least 1"),
        ({"inducing_variable": np.zeros(3)}, r"inducing_variable: got shape \(3,\)"),
        ({"projection": np.ones([3, L + 1])}, r"projection: got shape \(3, 3\), needs \[P, 2\]"),
    ],
)
def test_bad_arguments_get_one_line(change: dict[str, Any], message: str) -> None:
    good = {"kernel": kernel(), "inducing_variable": Z, "num_latent_gps": L}
    with pytest.raises(ValueError, match=message) as raised:
        SampledGP(**(good | change))
    assert "\n" not in str(raised.value)


def test_it_stands_in_no_layer_of_independent_parts() -> None:
    with pytest.raises(ValueError, match=r"parts: got .*, needs a list of SparseGP"):
        IndependentGPs([SampledGP(kernel(), Z, L)])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="num_samples: got 0"):
        SampledGP(kernel(), Z, L).sample(num_samples=0)
    with pytest.raises(NotImplementedError, match="SampledGP does not state its posterior_dist"):
        SampledGP(kernel(), Z, L).posterior_distribution()
