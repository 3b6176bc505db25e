"""Divergences and log ratios of the Wishart family: identities, limits, Monte Carlo, gradients."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes.exceptions import ShapeMismatchError
from scipy.special import digamma, gammaln, multigammaln
from test_distribution_generalised_wishart import KINDS, left_and_right, make, matrices
from wishart_reference import (
    CASES,
    check_mean,
    cholesky_factor,
    dense_matrix,
    mixed_sign_triangle,
    parameters,
    sample_size,
    standard_parameters,
)

from gpflow_dkp.distributions import (
    BartlettFactor,
    GeneralisedWishart,
    InverseWishart,
    Wishart,
    inverse_wishart_divergence,
    wishart_divergence,
)

kl_divergence = tfp.distributions.kl_divergence


def reference(q: Any, A: np.ndarray, B: np.ndarray, df: float, L: np.ndarray) -> float:
    """E_Q[log P - log Q] as docs/mathematics.md 3 has it, term by term."""
    alpha, beta, mu, sigma = q
    P, p = mu.shape
    below, j = np.tri(P, p, -1, dtype=bool), np.arange(1, p + 1)
    root = np.exp(gammaln(alpha + 0.5) - gammaln(alpha)) / np.sqrt(beta)
    mean, V = np.where(below, mu, 0.0), np.where(below, sigma**2, 0.0)
    mean[range(p), range(p)], V[range(p), range(p)] = root, alpha / beta - root**2
    M = np.linalg.solve(L, A)
    quadratic = np.sum((M @ mean @ B) ** 2)
    quadratic += np.sum(np.diag(M.T @ M)[:, None] * V * np.diag(B @ B.T))
    log_T = (digamma(alpha) - np.log(beta)) / 2
    n = -np.sum((np.log(2 * np.pi) / 2 + np.log(sigma) + 0.5)[below])
    g = np.sum(alpha * np.log(beta) - gammaln(alpha) + (alpha - 1) * 2 * log_T - alpha)
    value = df * (p - P) / 2 * np.log(np.pi) - df * P / 2 * np.log(2) - multigammaln(df / 2, p)
    value += df * (np.linalg.slogdet(A)[1] - np.sum(np.log(np.diag(L)))) - quadratic / 2
    value += np.sum((df - j - 1) * log_T + (df + P - 2 * j + 1) * np.log(np.abs(np.diag(B))))
    return float(value - g - n)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("P", "df"), CASES)
def test_generalised_wishart_is_math_md_3(P: int, df: int, kind: str) -> None:
    p, L = min(P, df), cholesky_factor(P, seed=3)
    q, arguments = parameters(P, df), matrices(kind, P, p)
    A, B = left_and_right(arguments, p)
    expected = -reference(q, A, B, df, L)
    actual = kl_divergence(make(df, q, arguments), Wishart(df, L))
    np.testing.assert_allclose(actual, expected, rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("P", "df"), [(2, 4), (4, 2)])
def test_generalised_wishart_by_monte_carlo(P: int, df: int, kind: str) -> None:
    q, p = make(df, parameters(P, df), matrices(kind, P, min(P, df))), Wishart(df, np.eye(P))
    G, log_q = q.experimental_sample_and_log_prob(sample_size(1, 1e-6, bias=0.05), seed=1)
    ratios = (log_q - p.log_prob(G)).numpy()
    check_mean(ratios, kl_divergence(q, p).numpy(), false_alarm=1e-6)


def test_generalised_wishart_of_another_real_df() -> None:
    """The posterior's own df does not matter where the rank is full; the prior's may be a tensor."""
    q_df, P = 5, 3
    q, L = parameters(P, q_df), cholesky_factor(P, seed=3)
    A, B = dense_matrix(P), mixed_sign_triangle(P)
    posterior = make(q_df, q, {"A": A, "B": B})
    df = [2.5, 4.0, 9.5]
    expected = [-reference(q, A, B, value, L) for value in df]
    np.testing.assert_allclose(
        kl_divergence(posterior, Wishart(tf.constant(df, tf.float64), L)), expected, rtol=1e-11
    )
    for value, kl in zip(df, expected, strict=True):
        np.testing.assert_allclose(kl_divergence(posterior, Wishart(value, L)), kl, rtol=1e-11)


@pytest.mark.parametrize("signs", [1.0, -1.0])
@pytest.mark.parametrize(("P", "df"), [*CASES, (3, 2.5), (20, 7), (7, 300)])
def test_no_divergence_where_the_posterior_is_the_prior(P: int, df: float, signs: float) -> None:
    p, L = (P if df > P - 1 else int(df)), cholesky_factor(P)
    q = standard_parameters(P, df)
    prior = Wishart(df, L)
    for arguments in ({"scale_tril": L}, {"A": L, "B": signs * np.eye(p)}):
        np.testing.assert_allclose(kl_divergence(make(df, q, arguments), prior), 0.0, atol=1e-9)
    np.testing.assert_allclose(kl_divergence(GeneralisedWishart(df, L), prior), 0.0, atol=1e-9)
    np.testing.assert_allclose(kl_divergence(prior, prior), 0.0, atol=1e-9)


@pytest.mark.parametrize(("P", "df"), CASES)
def test_wisharts_are_sums_of_normals(P: int, df: int) -> None:
    """G is sufficient for the scale: KL is df times that of Normal(0, S), singular or not."""
    q, p = cholesky_factor(P), cholesky_factor(P, seed=1)
    normals = [tfp.distributions.MultivariateNormalTriL(np.zeros(P), tril) for tril in (q, p)]
    actual = kl_divergence(Wishart(df, q), Wishart(df, p))
    np.testing.assert_allclose(actual, df * kl_divergence(*normals), rtol=1e-11)
    np.testing.assert_allclose(
        kl_divergence(GeneralisedWishart(df, q), Wishart(df, p)), actual, rtol=1e-11
    )


def test_wisharts_are_inverses_of_inverse_wisharts() -> None:
    """A divergence does not change under inversion of both. Also in batches of df."""
    q_df, p_df = np.array([[3.5], [8.0]]), np.array([5.0, 2.7, 4.0])
    q, p = cholesky_factor(3), cholesky_factor(3, seed=1)
    inverse_q, inverse_p = (np.linalg.cholesky(np.linalg.inv(L @ L.T)) for L in (q, p))
    actual = kl_divergence(Wishart(q_df, q), Wishart(p_df, p))
    assert actual.shape == [2, 3]
    expected = kl_divergence(InverseWishart(q_df, inverse_q), InverseWishart(p_df, inverse_p))
    np.testing.assert_allclose(actual, expected, rtol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("P", "df"), [(2, 3), (4, 2)])
def test_batches_are_their_members(P: int, df: int, kind: str) -> None:
    p, L = min(P, df), cholesky_factor(P, seed=3, batch=(2, 1, 1))
    q, arguments = parameters(P, df, batch=(3,)), matrices(kind, P, p, batch=(4, 1))
    kl = kl_divergence(make(df, q, arguments), Wishart(df, L))
    assert kl.shape == [2, 4, 3]
    for i, j, k in np.ndindex(2, 4, 3):
        member = make(
            df, [value[k] for value in q], {key: value[j, 0] for key, value in arguments.items()}
        )
        np.testing.assert_allclose(
            kl[i, j, k], kl_divergence(member, Wishart(df, L[i, 0, 0])), rtol=1e-11
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("P", "df"), [(3, 5), (4, 2)])
def test_gradients(P: int, df: int, kind: str) -> None:
    q = parameters(P, df, seed=8)
    values = {**matrices(kind, P, min(P, df)), **q._asdict(), "L": cholesky_factor(P, seed=3)}

    def divergence(values: dict[str, Any]) -> tf.Tensor:
        posterior = {key: value for key, value in values.items() if key != "L"}
        return kl_divergence(GeneralisedWishart(df, **posterior), Wishart(df, values["L"]))

    tensors = {name: tf.constant(value) for name, value in values.items()}
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = divergence(tensors)
    gradients = tape.gradient(value, tensors)
    rng, step = np.random.default_rng(1), 1e-6
    for name in values:
        direction = rng.normal(size=values[name].shape)
        if name in ("scale_tril", "B", "L"):
            direction = np.tril(direction)
        up, down = (
            divergence({**values, name: values[name] + s * step * direction}) for s in (1.0, -1.0)
        )
        np.testing.assert_allclose(
            tf.reduce_sum(gradients[name] * direction), (up - down) / (2 * step), rtol=2e-6
        )


def test_other_supports() -> None:
    q = GeneralisedWishart(2, np.eye(4))
    for p, message in (
        (Wishart(3, np.eye(4)), "dimensions 4 and 4 and of ranks 2 and 3"),
        (Wishart(2, np.eye(3)), "dimensions 4 and 3 and of ranks 2 and 2"),
        (Wishart(5, np.eye(4)), "the same rank: singular ones have the same df"),
    ):
        with pytest.raises(ValueError, match=message):
            kl_divergence(q, p)
        with pytest.raises(ValueError, match=message):
            kl_divergence(Wishart(2, np.eye(4)), p)


@pytest.mark.parametrize("divisor", [1.0, 7.0])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("P", "df"), CASES)
def test_sampled_log_ratio_is_the_difference_of_the_densities(
    P: int, df: int, kind: str, divisor: float
) -> None:
    """With S = K / divisor, and what depends on K given for K."""
    p, L = min(P, df), cholesky_factor(P, seed=3)
    q, arguments = parameters(P, df), matrices(kind, P, p)
    A, B = left_and_right(arguments, p)
    factor = BartlettFactor(df, P, *q)
    T = factor.sample(3, seed=0)
    F = A @ T.numpy() @ B
    G = F @ np.swapaxes(F, -1, -2)
    actual = wishart_divergence.sampled_log_ratio(
        df,
        factor.law,
        T,
        np.linalg.slogdet(A)[1] - np.sum(np.log(np.diag(L))),
        np.sum(np.linalg.solve(L, F) ** 2, axis=(-2, -1)),
        B=B,
        divisor=divisor,
    )
    prior = Wishart(df, L / np.sqrt(divisor))
    expected = prior.log_prob(G) - make(df, q, arguments).log_prob(G)
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize(("P", "df"), CASES)
def test_divisor_of_the_expected_log_ratio(P: int, df: int) -> None:
    """K / df given as K and df is S; a unit diagonal of B need not be given."""
    q, L, A = parameters(P, df), cholesky_factor(P, seed=3), dense_matrix(P)
    B = np.tril(mixed_sign_triangle(min(P, df)), -1) + np.eye(min(P, df))
    law = BartlettFactor(df, P, *q).law
    moment = A @ wishart_divergence.second_moment(law, B).numpy() @ A.T
    log_det = np.linalg.slogdet(A)[1] - np.sum(np.log(np.diag(L)))
    trace = np.trace(np.linalg.solve(L @ L.T, moment))
    actual = wishart_divergence.expected_log_ratio(df, law, log_det, trace, divisor=float(df))
    expected = reference(q, A, B, df, L / np.sqrt(df))
    np.testing.assert_allclose(actual, expected, rtol=1e-11, atol=1e-10)


def test_expected_log_ratio_in_single_precision() -> None:
    """The constant, thousands of nats, loses no more than its last rounding."""
    P, df = 30, 2000
    standard = standard_parameters(P, df)
    q = standard._replace(loc=standard.loc + 0.1, scale=0.9 * standard.scale)
    L = cholesky_factor(P, seed=3)
    expected = -reference(q, L, np.eye(P), df, L)
    single = [np.asarray(value, np.float32) for value in (L, *q)]
    actual = kl_divergence(GeneralisedWishart(df, *single), Wishart(df, single[0]))
    constant = abs(multigammaln(df / 2, P) + df * P / 2 * np.log(2))
    assert actual.dtype == tf.float32
    np.testing.assert_allclose(actual, expected, rtol=0, atol=4 * constant * 2.0**-23)


def test_inverse_wishart_log_ratios() -> None:
    """At a draw the difference of the densities, in expectation minus the KL divergence."""
    P, prior_df, excess = 3, 6.0, 1.5
    V, p_tril = dense_matrix(P), cholesky_factor(P)
    q_tril = np.linalg.cholesky(p_tril @ p_tril.T + V @ V.T)
    prior, posterior = InverseWishart(prior_df, p_tril), InverseWishart(prior_df + excess, q_tril)
    half_logdet_ratio = np.sum(np.log(np.diag(p_tril) / np.diag(q_tril)))
    whitened = np.linalg.solve(q_tril, V)
    numbers = [tf.constant(value, tf.float64) for value in (prior_df, excess)]
    expected = inverse_wishart_divergence.expected_log_ratio(
        P, *numbers, half_logdet_ratio, np.sum(whitened**2)
    )
    np.testing.assert_allclose(expected, -kl_divergence(posterior, prior), rtol=1e-11)
    T = BartlettFactor(prior_df + excess, P).sample(4, seed=0).numpy()
    U = q_tril @ np.linalg.inv(np.swapaxes(T, -1, -2))
    G = U @ np.swapaxes(U, -1, -2)
    sampled = inverse_wishart_divergence.sampled_log_ratio(
        P,
        *numbers,
        half_logdet_ratio,
        np.sum(np.log(np.diagonal(T, axis1=-2, axis2=-1)), -1),
        np.sum((np.swapaxes(T, -1, -2) @ whitened) ** 2, axis=(-2, -1)),
    )
    difference = prior.log_prob(G) - posterior.log_prob(G)
    np.testing.assert_allclose(sampled, difference, rtol=0, atol=1e-9)


def test_a_factor_of_another_rank_than_the_law_is_refused() -> None:
    """B [1, 1] would broadcast over the columns of T."""
    law = BartlettFactor(tf.constant(7.0, tf.float64), 4).law
    zero = tf.zeros([], law.loc.dtype)
    with pytest.raises(ShapeMismatchError, match="B"):
        wishart_divergence.expected_log_ratio(7, law, zero, zero, B=tf.ones([1, 1], law.loc.dtype))
