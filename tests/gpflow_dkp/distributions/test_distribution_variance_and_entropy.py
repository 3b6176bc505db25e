"""Variances and entropies of the Wishart family: SciPy, limits, and Monte Carlo."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats
from scipy.special import digamma
from test_distribution_generalised_wishart import KINDS, make, matrices
from wishart_reference import (
    CASES,
    check_mean,
    cholesky_factor,
    dense_matrix,
    parameters,
    sample_size,
)

from gpflow_dkp.distributions import GeneralisedWishart, InverseWishart, Wishart


@pytest.mark.parametrize(("P", "df"), [(1, 2), (3, 3), (3, 6.5), (5, 7)])
def test_wishart_against_scipy(P: int, df: float) -> None:
    L = cholesky_factor(P)
    ours, scipys = Wishart(df, L), stats.wishart(df, L @ L.T)
    np.testing.assert_allclose(ours.variance(), scipys.var(), rtol=1e-12)
    np.testing.assert_allclose(ours.entropy(), scipys.entropy(), rtol=0, atol=1e-10)


@pytest.mark.parametrize(("P", "df"), [(1, 6), (3, 7), (3, 8.5), (5, 9)])
def test_inverse_wishart_against_scipy(P: int, df: float) -> None:
    L = cholesky_factor(P)
    ours, scipys = InverseWishart(df, L), stats.invwishart(df, L @ L.T)
    np.testing.assert_allclose(ours.variance(), scipys.var(), rtol=1e-12)
    # With W = G^{-1} a Wishart, log |dG / dW| = -(P + 1) logdet W. SciPy 1.17's invwishart.entropy has
    # log 2 for P log 2 in it, and agrees at P = 1 only.
    log_det = np.sum(digamma(0.5 * (df - np.arange(P)))) + P * np.log(2.0)
    log_det -= np.linalg.slogdet(L @ L.T)[1]
    expected = stats.wishart(df, np.linalg.inv(L @ L.T)).entropy() - (P + 1) * log_det
    np.testing.assert_allclose(ours.entropy(), expected, rtol=0, atol=1e-10)
    if P == 1:
        np.testing.assert_allclose(ours.entropy(), scipys.entropy(), rtol=0, atol=1e-10)


def test_entropy_of_an_inverse_wishart() -> None:
    """By SciPy's density."""
    L = cholesky_factor(3)
    distribution = InverseWishart(7.0, L)
    samples = distribution.sample(sample_size(1, 1e-6, bias=0.05), seed=1).numpy()
    log_prob = stats.invwishart(7.0, L @ L.T).logpdf(np.moveaxis(samples, 0, -1))
    check_mean(-log_prob, distribution.entropy().numpy(), false_alarm=1e-6)


def test_the_inverse_wishart_variance_needs_more_degrees_of_freedom() -> None:
    distribution = InverseWishart(np.array([6.0, 6.5]), cholesky_factor(3))
    variance = distribution.variance().numpy()
    assert np.all(np.isnan(variance[0]))
    assert np.all(variance[1] > 0.0)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"df > dimension \+ 3"):
        distribution.copy(allow_nan_stats=False).variance()


@pytest.mark.parametrize(("P", "df"), [(5, 3), (4, 1)])
def test_entropy_of_a_singular_wishart(P: int, df: int) -> None:
    distribution = Wishart(df, cholesky_factor(P))
    _, log_prob = distribution.experimental_sample_and_log_prob(
        sample_size(1, 1e-6, bias=0.05), seed=1
    )
    check_mean(-log_prob.numpy(), distribution.entropy().numpy(), false_alarm=1e-6)


@pytest.mark.parametrize(("P", "df"), [*CASES, (3, 2.5)])
def test_the_defaults_are_the_wishart(P: int, df: float) -> None:
    """The variance of a quadratic form in T, and that of a sum of Gaussian outer products."""
    L = cholesky_factor(P)
    general, wishart = GeneralisedWishart(df, L), Wishart(df, L)
    np.testing.assert_allclose(general.variance(), wishart.variance(), rtol=1e-11)
    np.testing.assert_allclose(general.stddev(), wishart.stddev(), rtol=1e-11)
    np.testing.assert_allclose(general.entropy(), wishart.entropy(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("P", "df"), [(2, 4), (4, 2)])
def test_variance(P: int, df: int, kind: str) -> None:
    distribution = make(df, parameters(P, df, seed=6), matrices(kind, P, min(P, df)))
    samples = distribution.sample(sample_size(P * P, 1e-6, bias=0.05), seed=6).numpy()
    squares = (samples - distribution.mean().numpy()) ** 2
    check_mean(squares, distribution.variance().numpy(), false_alarm=1e-6)


@pytest.mark.parametrize(
    ("P", "df", "kind"),
    [(2, 4, "gw"), (2, 4, "a-gw"), (2, 4, "ab-gw"), (4, 2, "gw"), (4, 2, "b-gw")],
)
def test_entropy(P: int, df: int, kind: str) -> None:
    distribution = make(df, parameters(P, df, seed=6), matrices(kind, P, min(P, df)))
    _, log_prob = distribution.experimental_sample_and_log_prob(
        sample_size(1, 1e-6, bias=0.05), seed=7
    )
    check_mean(-log_prob.numpy(), distribution.entropy().numpy(), false_alarm=1e-6)


def test_a_dense_matrix_and_a_singular_gram_have_no_closed_form_entropy() -> None:
    distribution = make(2, parameters(4, 2), matrices("ab-gw", 4, 2))
    with pytest.raises(NotImplementedError, match=r"dense A and rank 2 < dimension 4: average"):
        distribution.entropy()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("P", "df"), [(2, 3), (4, 2)])
def test_batches_are_their_members(P: int, df: int, kind: str) -> None:
    p = min(P, df)
    q, arguments = parameters(P, df, batch=(3,)), matrices(kind, P, p, batch=(2, 1))
    distribution = make(df, q, arguments)
    variance = distribution.variance()
    assert variance.shape == [2, 3, P, P]
    for i, j in np.ndindex(2, 3):
        member = make(
            df, [value[j] for value in q], {key: value[i, 0] for key, value in arguments.items()}
        )
        np.testing.assert_allclose(variance[i, j], member.variance(), rtol=1e-12)
        if kind in ("gw", "b-gw") or df >= P:
            assert distribution.entropy().shape == [2, 3]
            np.testing.assert_allclose(distribution.entropy()[i, j], member.entropy(), rtol=1e-12)


@pytest.mark.parametrize("distribution", [Wishart, InverseWishart])
def test_batches_of_degrees_of_freedom(distribution: Any) -> None:
    df, L = np.array([[7.5], [9.0]]), cholesky_factor(3, batch=(4,))
    batch = distribution(df, L)
    assert batch.variance().shape == [2, 4, 3, 3]
    assert batch.entropy().shape == [2, 4]
    for i, j in np.ndindex(2, 4):
        member = distribution(df[i, 0], L[j])
        np.testing.assert_allclose(batch.variance()[i, j], member.variance(), rtol=1e-12)
        np.testing.assert_allclose(batch.entropy()[i, j], member.entropy(), rtol=1e-12)


@pytest.mark.parametrize(("P", "df"), [(3, 5), (4, 2)])
def test_gradients(P: int, df: int) -> None:
    q = parameters(P, df, seed=8)
    values = {"scale_tril": cholesky_factor(P), "A": dense_matrix(P), **q._asdict()}
    weights = np.random.default_rng(0).normal(size=(P, P))

    def total(values: dict[str, Any]) -> tf.Tensor:
        triangular = {key: value for key, value in values.items() if key != "A"}
        total = GeneralisedWishart(df, **triangular).entropy()
        return total + tf.reduce_sum(weights * GeneralisedWishart(df, **values).variance())

    tensors = {name: tf.constant(value) for name, value in values.items()}
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = total(tensors)
    gradients = tape.gradient(value, tensors)
    rng, step = np.random.default_rng(1), 1e-6
    for name in values:
        direction = rng.normal(size=values[name].shape)
        if name == "scale_tril":
            direction = np.tril(direction)
        up, down = (
            total({**values, name: values[name] + s * step * direction}) for s in (1.0, -1.0)
        )
        np.testing.assert_allclose(
            tf.reduce_sum(gradients[name] * direction), (up - down) / (2 * step), rtol=1e-6
        )
