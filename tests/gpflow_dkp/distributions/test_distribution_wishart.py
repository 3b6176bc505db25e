"""Wishart and InverseWishart: densities against SciPy and changes of variables, means, samples."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import integrate, stats
from scipy.special import multigammaln
from wishart_reference import (
    CASES,
    bartlett_sample,
    check_mean,
    cholesky_factor,
    gram_log_prob,
    sample_size,
    standard_parameters,
)

from gpflow_dkp.distributions import (
    BartlettFactor,
    InverseWishart,
    Wishart,
    log_multigamma,
    multidigamma,
)


def positive_definite(P: int, seed: int = 0) -> np.ndarray:
    L = cholesky_factor(P, seed + 10)
    return L @ L.T


@pytest.mark.parametrize(("P", "df"), [(1, 1), (1, 3), (3, 3), (3, 5), (5, 5), (4, 3.5)])
def test_wishart_against_scipy(P: int, df: float) -> None:
    L, G = cholesky_factor(P), positive_definite(P)
    expected = stats.wishart(df, L @ L.T).logpdf(G)
    np.testing.assert_allclose(Wishart(df, L).log_prob(G), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("P", "df"), CASES)
def test_wishart_by_a_change_of_variables(P: int, df: int) -> None:
    """Singular or not: T is standard, G = L T T^T L^T."""
    p = min(P, df)
    L, T = cholesky_factor(P), bartlett_sample(P, p)
    expected = gram_log_prob(T, standard_parameters(P, df), L, np.eye(p))
    G = L @ T @ T.T @ L.T
    np.testing.assert_allclose(Wishart(df, L).log_prob(G), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("P", "df"), [(1, 1), (1, 2.5), (3, 3), (3, 6.5), (5, 5)])
def test_inverse_wishart_against_scipy(P: int, df: float) -> None:
    L, G = cholesky_factor(P), positive_definite(P)
    expected = stats.invwishart(df, L @ L.T).logpdf(G)
    np.testing.assert_allclose(InverseWishart(df, L).log_prob(G), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("make", [Wishart, InverseWishart])
@pytest.mark.parametrize(("P", "df"), [(1, 1), (3, 5), (5, 5)])
def test_sample_and_log_prob(make: Any, P: int, df: int) -> None:
    distribution = make(df, cholesky_factor(P))
    G, log_prob = distribution.experimental_sample_and_log_prob([3, 2], seed=0)
    np.testing.assert_array_equal(G, distribution.sample([3, 2], seed=0))
    np.testing.assert_allclose(log_prob, distribution.log_prob(G), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("P", "df"), [(5, 3), (4, 1)])
def test_singular_samples(P: int, df: int) -> None:
    distribution = Wishart(df, cholesky_factor(P))
    G, log_prob = distribution.experimental_sample_and_log_prob(20, seed=0)
    np.testing.assert_array_equal(np.linalg.matrix_rank(G, hermitian=True), df)
    np.testing.assert_array_equal(G, tf.linalg.matrix_transpose(G))
    np.testing.assert_allclose(log_prob, distribution.log_prob(G), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("P", "df"), [(3, 5), (4, 2)])
def test_wishart_moments(P: int, df: int) -> None:
    L = cholesky_factor(P)
    S = L @ L.T
    distribution = Wishart(df, L)
    np.testing.assert_allclose(distribution.mean(), df * S, rtol=1e-14)
    samples = distribution.sample(sample_size(P * P, 1e-6, bias=0.05), seed=1).numpy()
    check_mean(samples, df * S, false_alarm=1e-6)
    variance = df * (S**2 + np.outer(np.diag(S), np.diag(S)))
    check_mean((samples - df * S) ** 2, variance, false_alarm=1e-6)


def test_inverse_wishart_moments() -> None:
    P, df = 3, 20.5
    L = cholesky_factor(P)
    distribution = InverseWishart(df, L)
    np.testing.assert_allclose(distribution.mean(), L @ L.T / (df - P - 1), rtol=1e-14)
    samples = distribution.sample(sample_size(P * P, 1e-6, bias=0.05), seed=2).numpy()
    check_mean(samples, distribution.mean().numpy(), false_alarm=1e-6)
    check_mean(np.linalg.inv(samples), df * np.linalg.inv(L @ L.T), false_alarm=1e-6)


def test_the_inverse_wishart_mean_needs_more_degrees_of_freedom() -> None:
    distribution = InverseWishart(np.array([4.0, 4.5]), cholesky_factor(3))
    mean = distribution.mean().numpy()
    assert np.all(np.isnan(mean[0]))
    assert np.all(np.isfinite(mean[1]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="df > dimension"):
        distribution.copy(allow_nan_stats=False).mean()


def test_importance_weights_average_to_one() -> None:
    """E_q[p(G) / q(G)] = 1, which ties the sampler of q to both densities."""
    P = 3
    q, p = InverseWishart(11.0, cholesky_factor(P)), InverseWishart(12.0, 1.1 * cholesky_factor(P))
    G, log_q = q.experimental_sample_and_log_prob(sample_size(1, 1e-6, bias=0.05), seed=3)
    weights = tf.exp(p.log_prob(G) - log_q).numpy()
    assert weights.std() > 0.1
    check_mean(weights, np.array(1.0), false_alarm=1e-6)


@pytest.mark.parametrize("m", [(3.5, 5.0), (5.0, 3.5), (4.0, 4.0)])
def test_kl_of_inverse_gammas(m: tuple[float, float]) -> None:
    """At P = 1 they are inverse gammas, and the KL divergence an integral."""
    q, p = InverseWishart(m[0], [[1.3]]), InverseWishart(m[1], [[0.8]])
    q_density = stats.invgamma(m[0] / 2, scale=1.3**2 / 2)
    p_density = stats.invgamma(m[1] / 2, scale=0.8**2 / 2)

    def integrand(log_g: float) -> float:
        g = np.exp(log_g)
        return q_density.pdf(g) * (q_density.logpdf(g) - p_density.logpdf(g)) * g

    expected, _ = integrate.quad(integrand, -8.0, 25.0, epsabs=1e-12, limit=200)
    np.testing.assert_allclose(q.kl_divergence(p), expected, rtol=0, atol=1e-9)


def test_kl_of_inverse_wisharts() -> None:
    P = 3
    q = InverseWishart(np.array([9.0, 7.5]), cholesky_factor(P))
    p = InverseWishart(8.0, cholesky_factor(P, seed=1))
    G, log_q = q.experimental_sample_and_log_prob(sample_size(2, 1e-6, bias=0.05), seed=4)
    check_mean((log_q - p.log_prob(G)).numpy(), q.kl_divergence(p).numpy(), false_alarm=1e-6)
    np.testing.assert_allclose(q.kl_divergence(q), np.zeros(2), atol=1e-12)
    with pytest.raises(ValueError, match="dimensions 3 and 2"):
        q.kl_divergence(InverseWishart(5.0, np.eye(2)))


@pytest.mark.parametrize(("make", "df"), [(Wishart, 2), (Wishart, 4), (InverseWishart, 5.5)])
def test_batches_are_their_members(make: Any, df: float) -> None:
    L = cholesky_factor(3, batch=(4,))
    distribution = make(df, L)
    assert distribution.batch_shape == [4]
    assert distribution.event_shape == [3, 3]
    G, log_prob = distribution.experimental_sample_and_log_prob([2], seed=0)
    assert G.shape == [2, 4, 3, 3]
    assert log_prob.shape == [2, 4]
    for b in range(4):
        member = make(df, L[b])
        np.testing.assert_allclose(distribution.mean()[b], member.mean(), rtol=1e-14)
        np.testing.assert_allclose(
            distribution.log_prob(G)[:, b], member.log_prob(G[:, b]), rtol=1e-12
        )
        np.testing.assert_allclose(
            distribution[b].log_prob(G[:, b]), member.log_prob(G[:, b]), rtol=1e-14
        )


@pytest.mark.parametrize("make", [Wishart, InverseWishart])
def test_members_of_a_batch_are_independent(make: Any) -> None:
    distribution = make(5, np.stack([cholesky_factor(2)] * 3))
    assert len(np.unique(distribution.sample(seed=0).numpy()[:, 0, 0])) == 3


@pytest.mark.parametrize("make", [Wishart, InverseWishart])
def test_batches_of_degrees_of_freedom(make: Any) -> None:
    df = np.array([[2.5], [6.0]])
    L, G = cholesky_factor(3, batch=(4,)), positive_definite(3)
    distribution = make(df, L)
    assert distribution.batch_shape == [2, 4]
    assert distribution.sample([5], seed=0).shape == [5, 2, 4, 3, 3]
    log_prob = distribution.log_prob(G).numpy()
    for i, j in np.ndindex(2, 4):
        np.testing.assert_allclose(log_prob[i, j], make(df[i, 0], L[j]).log_prob(G), rtol=1e-13)


@pytest.mark.parametrize(("make", "df"), [(Wishart, 2), (Wishart, 5.5), (InverseWishart, 5.5)])
def test_gradients(make: Any, df: float) -> None:
    """Of log_prob at a fixed G, of a sample at a fixed seed, and of its log_prob."""
    G = make(df, cholesky_factor(3)).sample(seed=5).numpy()
    weights = np.random.default_rng(0).normal(size=(3, 3))

    def total(scale_tril: Any) -> tf.Tensor:
        distribution = make(df, scale_tril)
        sample, log_prob = distribution.experimental_sample_and_log_prob(seed=6)
        return distribution.log_prob(G) + log_prob + tf.reduce_sum(weights * sample)

    L = tf.constant(cholesky_factor(3))
    with tf.GradientTape() as tape:
        tape.watch(L)
        value = total(L)
    gradient = tape.gradient(value, L).numpy()
    step = 1e-6
    for i, j in zip(*np.tril_indices(3), strict=True):
        shift = np.zeros((3, 3))
        shift[i, j] = step
        difference = (total(L.numpy() + shift) - total(L.numpy() - shift)) / (2 * step)
        np.testing.assert_allclose(gradient[i, j], difference, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("make", [Wishart, InverseWishart])
def test_gradients_with_respect_to_df(make: Any) -> None:
    L, G = cholesky_factor(3), positive_definite(3)
    df = tf.Variable(4.5, dtype=tf.float64)
    distribution = make(df, L)
    with tf.GradientTape() as tape:
        value = distribution.log_prob(G)
    step = 1e-5
    difference = (make(4.5 + step, L).log_prob(G) - make(4.5 - step, L).log_prob(G)) / (2 * step)
    np.testing.assert_allclose(tape.gradient(value, df), difference, rtol=1e-7)


@pytest.mark.parametrize("make", [Wishart, InverseWishart])
def test_seeds_in_a_graph(make: Any) -> None:
    distribution = make(4, cholesky_factor(3, batch=(2,)))
    for seed in (7, tf.constant([1, 2])):
        compiled = tf.function(lambda seed=seed: distribution.sample(2, seed=seed), autograph=False)
        np.testing.assert_allclose(compiled(), distribution.sample(2, seed=seed), rtol=1e-14)
    assert np.any(distribution.sample(seed=0) != distribution.sample(seed=1))


@pytest.mark.parametrize(("make", "df"), [(Wishart, 2), (InverseWishart, 4)])
def test_float32(make: Any, df: int) -> None:
    L = cholesky_factor(3)
    double, single = make(df, L), make(df, L.astype(np.float32))
    G = double.sample(3, seed=0).numpy()
    sample, log_prob = single.experimental_sample_and_log_prob(seed=0)
    assert {sample.dtype, log_prob.dtype, single.mean().dtype} == {tf.float32}
    # A condition number times the precision of float32.
    np.testing.assert_allclose(
        single.log_prob(G.astype(np.float32)), double.log_prob(G), rtol=1e-3, atol=1e-3
    )


def test_log_multigamma() -> None:
    a = np.array([2.3, 7.0])
    expected = [multigammaln(value, 4) for value in a]
    np.testing.assert_allclose(log_multigamma(tf.constant(a), 4), expected, rtol=1e-13)
    tensor = tf.constant(a)
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        value = log_multigamma(tensor, 4)
    np.testing.assert_allclose(multidigamma(tensor, 4), tape.gradient(value, tensor), rtol=1e-13)


def test_the_distributions_say_what_they_are() -> None:
    distribution = Wishart(2, cholesky_factor(4))
    assert (distribution.rank, distribution.dimension, distribution.df) == (2, 4, 2)
    assert distribution.reparameterization_type == tfp.distributions.FULLY_REPARAMETERIZED
    assert "batch_shape=[], event_shape=[4, 4]" in str(distribution)
    np.testing.assert_array_equal(Wishart.param_shapes([5, 3, 3])["scale_tril"], [5, 3, 3])


@pytest.mark.parametrize(
    ("df", "scale_tril", "message"),
    [
        (1.5, np.eye(4), r"df is 1\.5 for dimension 4"),
        (0, np.eye(1), "df is 0"),
        (5, np.eye(4)[:3], r"scale_tril has shape \(3, 4\); it must be \[\.\.\., P, P\]"),
        (5, np.ones(3), r"scale_tril has shape \(3,\)"),
        (5, np.ones((2, 2)), "above the diagonal; .* pass the output of tf.linalg.cholesky"),
        (5, -np.eye(2), r"-1\.0 on its diagonal; every value there must be > 0"),
        (5, np.diag([1.0, np.nan]), "scale_tril has the value nan"),
        (tf.constant(5.0), np.eye(2), "float32, float64"),
    ],
)
@pytest.mark.parametrize("make", [Wishart, InverseWishart])
def test_parameters_are_checked(make: Any, df: Any, scale_tril: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(df, scale_tril)


def test_values_are_checked() -> None:
    with pytest.raises(ValueError, match=r"df > dimension - 1 = 3"):
        InverseWishart(2, np.eye(4))
    for distribution in (Wishart(2, np.eye(4)), InverseWishart(4, np.eye(4))):
        with pytest.raises(ValueError, match=r"value has shape \(3, 3\).* pass G \[\.\.\., P, P\]"):
            distribution.log_prob(np.eye(3))
    L = tf.Variable(np.eye(2))
    distribution = Wishart(3, L, validate_args=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="symmetric"):
        distribution.log_prob(np.array([[1.0, 0.2], [0.0, 1.0]]))
    L.assign(-np.eye(2))
    with pytest.raises(tf.errors.InvalidArgumentError, match="scale_tril must have a positive"):
        distribution.sample(seed=0)


def test_the_wishart_of_a_symbolic_scale() -> None:
    """Inside a graph the values are not known; the shape is."""
    L, G = cholesky_factor(3), positive_definite(3)
    log_prob = tf.function(lambda scale_tril: Wishart(2, scale_tril).log_prob(G), autograph=False)
    np.testing.assert_allclose(log_prob(tf.constant(L)), Wishart(2, L).log_prob(G), rtol=1e-14)
    assert BartlettFactor(2, 3).event_shape == [3, 2]
