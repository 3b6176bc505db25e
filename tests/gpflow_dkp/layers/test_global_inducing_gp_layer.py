"""GlobalInducingGP against dense formulas of Q(F) = N(Sigma Lambda v, Sigma), MATH.md 6."""

from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from layer_cases import (
    M,
    N,
    S,
    check_conditionals,
    check_gradients,
    check_layer_gradients,
    check_prior_gradients,
    covariance,
    gp_layer,
)
from scipy import stats

from gpflow_dkp.gram import GramBlocks
from gpflow_dkp.layers import GlobalInducingGP

widths = pytest.mark.parametrize("width", [1, 3, 6])
samples = pytest.mark.parametrize("samples", [None, S])


class Dense(NamedTuple):
    mean: np.ndarray
    covariance: np.ndarray
    prior: np.ndarray


def dense(layer: GlobalInducingGP, K: np.ndarray) -> Dense:
    """Mean [M, P] and covariance [M, M] of each output under Q, and its covariance under P."""
    if layer._prior_scale != 1.0:
        K = K / layer.width
    precision = layer.precision_tril.numpy() @ layer.precision_tril.numpy().T
    Sigma = np.linalg.inv(np.linalg.inv(K) + precision)
    return Dense(Sigma @ precision @ layer.v.numpy(), Sigma, K)


def kl(q: Dense) -> float:
    """KL(N(m, Sigma) || N(0, K)) summed over the outputs, by the textbook."""
    inverse = np.linalg.inv(q.prior)
    shared = (
        np.trace(inverse @ q.covariance)
        - len(q.mean)
        + np.linalg.slogdet(q.prior)[1]
        - np.linalg.slogdet(q.covariance)[1]
    )
    return 0.5 * sum(shared + m @ inverse @ m for m in q.mean.T)


def matrices(K: GramBlocks) -> list[np.ndarray]:
    return [K.ii.numpy()] if K.ii.shape.rank == 2 else list(K.ii.numpy())


@pytest.mark.parametrize("output", [False, True])
@samples
@widths
def test_log_ratio_is_minus_the_dense_kl(width: int, samples: int | None, output: bool) -> None:
    layer, K = gp_layer(width, output=output), covariance(samples)
    expected = [-kl(dense(layer, matrix)) for matrix in matrices(K)]
    _, log_ratio = layer.propagate(K, seed=0, num_samples=S)
    np.testing.assert_allclose(log_ratio, np.broadcast_to(expected, S), rtol=0, atol=1e-9)
    if output:
        marginals = layer.marginals(K)
        np.testing.assert_allclose(np.atleast_1d(marginals.log_ratio), expected, rtol=0, atol=1e-9)


def test_marginals_of_a_hidden_layer_are_refused() -> None:
    message = "marginals: for output layers; use propagate for a hidden one"
    with pytest.raises(ValueError, match=message):
        gp_layer(3).marginals(covariance())


@pytest.mark.parametrize("output", [False, True])
@samples
@widths
def test_sampled_log_ratio_is_the_difference_of_the_densities(
    width: int, samples: int | None, output: bool
) -> None:
    layer, K = gp_layer(width, "sampled", output=output), covariance(samples)
    sample, log_ratio = layer.propagate(K, seed=0, num_samples=S)
    for i in range(S):
        q = dense(layer, matrices(K)[i if samples else 0])
        F = sample.inducing[i].numpy()
        log_p = sum(stats.multivariate_normal(np.zeros(M), q.prior).logpdf(f) for f in F.T)
        log_q = sum(
            stats.multivariate_normal(m, q.covariance).logpdf(f)
            for m, f in zip(q.mean.T, F.T, strict=True)
        )
        assert float(log_ratio[i]) == pytest.approx(log_p - log_q, abs=1e-9)


@samples
@widths
def test_marginals_are_those_of_the_dense_posterior(width: int, samples: int | None) -> None:
    layer, K = gp_layer(width, output=True), covariance(samples)
    marginals = layer.marginals(K)
    for i, matrix in enumerate(matrices(K)):
        own = () if samples is None else (i,)
        q = dense(layer, matrix)
        w = np.linalg.solve(q.prior, K.it.numpy()[own])
        variance = (
            K.tt.numpy()[own] - np.sum(w * (q.prior @ w), 0) + np.sum(w * (q.covariance @ w), 0)
        )
        np.testing.assert_allclose(marginals.mean[own], w.T @ q.mean, rtol=0, atol=1e-11)
        np.testing.assert_allclose(marginals.variance[own], variance, rtol=0, atol=1e-11)


@pytest.mark.parametrize("output", [False, True])
@widths
def test_draw_is_affine_in_the_noise_with_the_posteriors_moments(width: int, output: bool) -> None:
    """F = mean + J eps with J J^T = Sigma for each output: the moments without any sampling."""
    layer, K = gp_layer(width, output=output), covariance()
    size = 2 * M * width
    data_noise = tf.zeros([size + 1, width, N], tf.float32)
    unit = np.concatenate([np.zeros((1, size)), np.eye(size)]).reshape(size + 1, M, 2 * width)
    F = layer.propagate_noise(K, (tf.constant(unit), data_noise))[0].inducing.numpy()
    q = dense(layer, K.ii.numpy())
    np.testing.assert_allclose(F[0], q.mean, rtol=0, atol=1e-12)
    jacobian = (F[1:] - F[0]).reshape(size, M * width)
    expected = np.einsum("ij,pq->ipjq", q.covariance, np.eye(width)).reshape(M * width, -1)
    np.testing.assert_allclose(jacobian.T @ jacobian, expected, rtol=0, atol=1e-12)


@samples
@widths
def test_conditionals_of_the_data_points(width: int, samples: int | None) -> None:
    check_conditionals(gp_layer(width), samples)


@pytest.mark.parametrize("log_ratio", ["expected", "sampled"])
@samples
@pytest.mark.parametrize("width", [1, 6])
def test_gradients_are_those_of_finite_differences(
    width: int, samples: int | None, log_ratio: str
) -> None:
    check_layer_gradients(gp_layer(width, log_ratio), samples)


@samples
@pytest.mark.parametrize("output", [False, True])
def test_gradients_of_prior_draws_are_those_of_finite_differences(
    output: bool, samples: int | None
) -> None:
    check_prior_gradients(gp_layer(3, output=output), samples)


@samples
@widths
def test_gradients_of_marginals_are_those_of_finite_differences(
    width: int, samples: int | None
) -> None:
    layer = gp_layer(width, output=True)
    start = covariance(samples)
    blocks = [tf.Variable(block) for block in (start.ii, start.it, start.tt)]
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=part.shape) for part in layer.marginals(start)]

    def function() -> tf.Tensor:
        ii = 0.5 * (blocks[0] + tf.linalg.matrix_transpose(blocks[0]))
        marginals = layer.marginals(GramBlocks(ii, *blocks[1:]))
        return tf.add_n(
            [tf.reduce_sum(w * part) for w, part in zip(weights, marginals, strict=True)]
        )

    check_gradients(function, [*layer.trainable_variables, *blocks])


@pytest.mark.parametrize("log_ratio", ["expected", "sampled"])
@pytest.mark.parametrize("output", [False, True])
def test_log_ratio_is_zero_where_posterior_is_prior(output: bool, log_ratio: str) -> None:
    """Lambda = 0 is no data at all."""
    layer = gp_layer(3, log_ratio, output=output)
    layer.precision_tril.assign(1e-7 * np.eye(M))
    _, value = layer.propagate(covariance(S), seed=0)
    np.testing.assert_allclose(value, np.zeros(S), rtol=0, atol=1e-9)


def test_marginals_without_data_are_the_priors() -> None:
    layer, K = gp_layer(2, output=True), covariance(S)
    layer.precision_tril.assign(1e-8 * np.eye(M))
    marginals = layer.marginals(K)
    np.testing.assert_allclose(marginals.mean, np.zeros((S, N, 2)), atol=1e-12)
    np.testing.assert_allclose(marginals.variance, K.tt, rtol=0, atol=1e-12)


def test_marginals_of_noiseless_data_interpolate() -> None:
    """Lambda to infinity at the inducing points gives f = v there, with variance 0."""
    layer, K = gp_layer(2, output=True), covariance()
    layer.precision_tril.assign(1e6 * np.eye(M))
    at_inducing = GramBlocks(K.ii, K.ii, K.ii_diag)
    marginals = layer.marginals(at_inducing)
    np.testing.assert_allclose(marginals.mean, layer.v, rtol=0, atol=1e-9)
    np.testing.assert_allclose(marginals.variance, np.zeros(M), atol=1e-9)


def test_one_seed_gives_one_draw() -> None:
    layer, K = gp_layer(3), covariance(S)
    np.testing.assert_array_equal(*(layer.propagate(K, seed=1)[0].data for _ in range(2)))
    np.testing.assert_array_equal(*(layer.prior_sample(K, seed=1).data for _ in range(2)))
    first, second = (layer.propagate(K, seed=s)[0].data for s in (1, 2))
    assert not np.any(np.equal(first, second))


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        ((M, 0), {}, "width: got 0, needs an integer of at least 1"),
        ((M, 1.5), {}, "width: got 1.5"),
        ((0, 1), {}, "num_inducing: got 0"),
        ((M, 1), {"log_ratio": "both"}, "log_ratio: got 'both'"),
    ],
)
def test_bad_arguments(arguments: tuple, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GlobalInducingGP(*arguments, **settings)


def test_single_precision_data_blocks() -> None:
    layer, K = gp_layer(2, output=True), covariance(S)
    full, low = layer.marginals(K), layer.marginals(K.with_data_dtype(tf.float32))
    np.testing.assert_array_equal(low.log_ratio, full.log_ratio)
    assert low.mean.dtype == low.variance.dtype == tf.float64
    np.testing.assert_allclose(low.mean, full.mean, rtol=0, atol=1e-5)
    np.testing.assert_allclose(low.variance, full.variance, rtol=0, atol=1e-5)
