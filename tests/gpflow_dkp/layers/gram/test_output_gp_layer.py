"""OutputGP: moments, the inducing values integrated out, against dense formulas, docs/mathematics.md 6."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import (
    Matern32,
    Matern52,
    SeparateIndependent,
    SharedIndependent,
    SquaredExponential,
)
from layer_cases import (
    M,
    N,
    S,
    check_gradients,
    covariance,
    output_layer,
    random_sum,
    record,
    symmetric,
)

from gpflow_dkp.gram import GramBlocks, InputBlocks
from gpflow_dkp.layers import OutputGP
from gpflow_dkp.layers.gram import base

P = 3
samples = pytest.mark.parametrize("samples", [None, S])
whole = pytest.mark.parametrize("full_cov", [False, True])
separate_kernels = pytest.mark.parametrize("separate_kernels", [False, True])
shared_precisions = pytest.mark.parametrize("shared_precision", [True, False])


def make_layer(separate_kernels: bool, shared_precision: bool) -> OutputGP:
    kernel = SeparateIndependent([Matern32() for _ in range(P)]) if separate_kernels else None
    return output_layer(P, kernel=kernel, shared_precision=shared_precision)


def make_covariance(separate_kernels: bool, samples: int | None, full_cov: bool) -> GramBlocks:
    """Of one kernel, or of one for each output."""
    if not separate_kernels:
        return covariance(samples, full_cov=full_cov)
    children = [covariance(samples, seed, full_cov=full_cov) for seed in range(P)]
    axes = {"ii": -3, "it": -3, "tt": -3 if full_cov else -2}
    stacked = (tf.stack([getattr(c, name) for c in children], axis) for name, axis in axes.items())
    return GramBlocks(*stacked)


def of_output(
    layer: OutputGP, K: GramBlocks, output: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The blocks of one output, its v [M] and its Lambda [M, M]."""
    blocks = [K.ii.numpy(), K.it.numpy(), K.tt.numpy()]
    if isinstance(layer.kernel, SeparateIndependent):
        blocks = [b[..., output, :, :] for b in blocks[:2]] + [
            blocks[2][..., output, :, :] if K.full_cov else blocks[2][..., output, :]
        ]
    tril = layer.precision_tril.numpy()
    tril = tril if layer.shared_precision else tril[output]
    return *blocks, layer.v.numpy()[:, output], tril @ tril.T


def dense(ii: np.ndarray, v: np.ndarray, precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean [M] and covariance [M, M] of an output's inducing values: (Sigma Lambda v, Sigma)."""
    Sigma = np.linalg.inv(np.linalg.inv(ii) + precision)
    return Sigma @ precision @ v, Sigma


def dense_marginals(
    ii: np.ndarray, it: np.ndarray, tt: np.ndarray, v: np.ndarray, precision: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean [N], covariance [N, N] (its diagonal from a diagonal tt) and KL(Q || P) of one output."""
    mean, Sigma = dense(ii, v, precision)
    w = np.linalg.solve(ii, it)
    explained = w.T @ (ii - Sigma) @ w
    inverse = np.linalg.inv(ii)
    kl = 0.5 * (
        np.trace(inverse @ Sigma)
        - len(ii)
        + np.linalg.slogdet(ii)[1]
        - np.linalg.slogdet(Sigma)[1]
        + mean @ inverse @ mean
    )
    return w.T @ mean, tt - (explained if tt.ndim == 2 else np.diag(explained)), kl


@whole
@samples
@shared_precisions
@separate_kernels
def test_marginals_are_those_of_the_dense_posterior(
    separate_kernels: bool, shared_precision: bool, samples: int | None, full_cov: bool
) -> None:
    layer = make_layer(separate_kernels, shared_precision)
    K = make_covariance(separate_kernels, samples, full_cov)
    mean, variance, log_ratio = (part.numpy() for part in layer.marginals(K))
    batch = () if samples is None else (S,)
    assert mean.shape == (*batch, N, P)
    assert variance.shape == ((*batch, P, N, N) if full_cov else (*batch, N, P))
    assert log_ratio.shape == batch
    for own in np.ndindex(batch):
        total = 0.0
        for p in range(P):
            *blocks, v, precision = of_output(layer, K, p)
            parts = dense_marginals(*(block[own] for block in blocks), v, precision)
            np.testing.assert_allclose(mean[own][:, p], parts[0], rtol=0, atol=1e-11)
            actual = variance[own][p] if full_cov else variance[own][:, p]
            np.testing.assert_allclose(actual, parts[1], rtol=0, atol=1e-11)
            total += parts[2]
        assert log_ratio[own] == pytest.approx(-total, abs=1e-9)


@whole
@shared_precisions
@separate_kernels
def test_many_outputs_are_as_many_layers_of_one(
    separate_kernels: bool, shared_precision: bool, full_cov: bool
) -> None:
    layer = make_layer(separate_kernels, shared_precision)
    K = make_covariance(separate_kernels, S, full_cov)
    together, log_ratio = layer.marginals(K), 0.0
    for p in range(P):
        *blocks, v, _ = of_output(layer, K, p)
        alone = OutputGP(M, 1)
        alone.v.assign(v[:, None])
        tril = layer.precision_tril.numpy()
        alone.precision_tril.assign(tril if shared_precision else tril[p])
        marginals = alone.marginals(GramBlocks(*blocks))
        log_ratio += marginals.log_ratio.numpy()
        np.testing.assert_allclose(together.mean[..., p : p + 1], marginals.mean, atol=1e-12)
        own = together.variance[..., p : p + 1, :, :] if full_cov else None
        own = together.variance[..., p : p + 1] if own is None else own
        np.testing.assert_allclose(own, marginals.variance, rtol=0, atol=1e-12)
    np.testing.assert_allclose(together.log_ratio, log_ratio, rtol=1e-12)


@samples
@shared_precisions
@separate_kernels
def test_diagonal_of_the_covariance_is_the_variance(
    separate_kernels: bool, shared_precision: bool, samples: int | None
) -> None:
    layer = make_layer(separate_kernels, shared_precision)
    parts = [
        layer.marginals(make_covariance(separate_kernels, samples, full_cov))
        for full_cov in (False, True)
    ]
    diagonal = np.swapaxes(tf.linalg.diag_part(parts[1].variance), -1, -2)
    np.testing.assert_allclose(diagonal, parts[0].variance, rtol=0, atol=1e-12)
    np.testing.assert_allclose(parts[1].mean, parts[0].mean, rtol=0, atol=1e-12)


@samples
@shared_precisions
@separate_kernels
def test_moments_of_the_inducing_values(
    separate_kernels: bool, shared_precision: bool, samples: int | None
) -> None:
    layer = make_layer(separate_kernels, shared_precision)
    K = make_covariance(separate_kernels, samples, False)
    mean, covariances = (part.numpy() for part in layer.inducing_moments(K.ii))
    batch = () if samples is None else (S,)
    groups = 1 if shared_precision and not separate_kernels else P
    assert mean.shape == (*batch, M, P)
    assert covariances.shape == (*batch, groups, M, M)
    for own in np.ndindex(batch):
        for p in range(P):
            ii, _, _, v, precision = of_output(layer, K, p)
            expected, Sigma = dense(ii[own], v, precision)
            np.testing.assert_allclose(mean[own][:, p], expected, rtol=0, atol=1e-11)
            np.testing.assert_allclose(
                covariances[own][0 if groups == 1 else p], Sigma, rtol=0, atol=1e-11
            )


def test_kernels_on_inputs_are_the_covariances_of_the_outputs() -> None:
    """`covariance` and `marginals` of a layer with its kernels, against those of each alone."""
    rng = np.random.default_rng(0)
    Z, X = rng.normal(size=(M, 2)), rng.normal(size=(N, 2))
    kernels = [Matern32(0.5), SquaredExponential(lengthscales=[0.4, 2.0]), Matern32(2.0)]
    layer = output_layer(P, kernel=SeparateIndependent(kernels), shared_precision=False)
    for full_cov in (False, True):
        K = layer.covariance(InputBlocks(Z, X, full_cov=full_cov), 1e-6)
        together = layer.marginals(K)
        for p, kernel in enumerate(kernels):
            alone = OutputGP(M, 1, kernel=kernel)
            alone.v.assign(layer.v[:, p : p + 1])
            alone.precision_tril.assign(layer.precision_tril[p])
            own = alone.marginals(alone.covariance(InputBlocks(Z, X, full_cov=full_cov), 1e-6))
            np.testing.assert_allclose(together.mean[:, p : p + 1], own.mean, atol=1e-12)
            actual = together.variance[p] if full_cov else together.variance[:, p]
            np.testing.assert_allclose(actual, tf.squeeze(own.variance), atol=1e-12)
    shared = output_layer(P, kernel=SharedIndependent(kernels[0], P))
    plain = output_layer(P, kernel=kernels[0])
    inputs = InputBlocks(Z, X)
    for first, second in zip(
        *(layer.marginals(layer.covariance(inputs, 1e-6)) for layer in (shared, plain)), strict=True
    ):
        np.testing.assert_array_equal(first, second)


@samples
@separate_kernels
def test_prior_draws_are_their_covariances_factor_times_the_noise(
    separate_kernels: bool, samples: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = make_layer(separate_kernels, True)
    K = make_covariance(separate_kernels, samples, False)
    drawn = record(monkeypatch, base, "normal")
    draw = layer.prior_sample(K.ii, seed=0, num_samples=S)
    noise = np.concatenate(drawn, -1)
    assert draw.features.shape == noise.shape == (S, M, P)
    assert len(np.unique(noise)) == noise.size
    for i in range(S):
        for p in range(P):
            ii = of_output(layer, K, p)[0]
            tril = np.linalg.cholesky(ii[i] if samples else ii)
            np.testing.assert_allclose(draw.features[i, :, p], tril @ noise[i, :, p], atol=1e-12)


@whole
@pytest.mark.parametrize(
    ("separate_kernels", "shared_precision", "samples"),
    [
        (False, True, None),
        (False, True, S),
        (True, True, S),
        (True, False, None),
        (False, False, S),
    ],
)
def test_gradients_are_those_of_finite_differences(
    separate_kernels: bool, shared_precision: bool, samples: int | None, full_cov: bool
) -> None:
    """Of marginals and of the inducing values' moments."""
    layer = make_layer(separate_kernels, shared_precision)
    start = make_covariance(separate_kernels, samples, full_cov)
    variables = [tf.Variable(block) for block in (start.ii, start.it, start.tt)]

    def function() -> tf.Tensor:
        ii, it, tt = variables
        K = GramBlocks(symmetric(ii), it, symmetric(tt) if full_cov else tt + 0.0)
        return random_sum([*layer.marginals(K), *layer.inducing_moments(K.ii)])

    own = [parameter.unconstrained_variable for parameter in (layer.v, layer.precision_tril)]
    check_gradients(function, [*own, *variables])


@whole
def test_marginals_without_data_are_the_priors(full_cov: bool) -> None:
    layer, K = output_layer(2), covariance(S, full_cov=full_cov)
    layer.precision_tril.assign(1e-8 * np.eye(M))
    marginals = layer.marginals(K)
    np.testing.assert_allclose(marginals.mean, np.zeros((S, N, 2)), atol=1e-12)
    expected = tf.expand_dims(K.tt, 1 if full_cov else -1)
    expected = np.broadcast_to(expected, marginals.variance.shape)
    np.testing.assert_allclose(marginals.variance, expected, rtol=0, atol=1e-12)


def test_marginals_of_noiseless_data_interpolate() -> None:
    """Lambda to infinity at the inducing points gives f = v there, with variance 0."""
    layer, K = output_layer(2), covariance()
    layer.precision_tril.assign(1e6 * np.eye(M))
    marginals = layer.marginals(GramBlocks(K.ii, K.ii, K.ii_diag))
    np.testing.assert_allclose(marginals.mean, layer.v, rtol=0, atol=1e-9)
    np.testing.assert_allclose(marginals.variance, np.zeros((M, 2)), atol=1e-9)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_variance_is_positive_where_rounding_would_take_it_below_zero(dtype: tf.DType) -> None:
    """At the inducing points of noiseless data, where it is a difference of equals."""
    layer, K = output_layer(2), covariance(S)
    layer.precision_tril.assign(1e8 * np.eye(M))
    blocks = GramBlocks(K.ii, tf.cast(K.ii, dtype), tf.cast(K.ii_diag, dtype))
    variance = layer.marginals(blocks).variance.numpy()
    assert np.all(variance > 0.0)
    assert np.all(variance < 1e-4)


def test_precision_of_any_parameters_can_be_inverted() -> None:
    """Where the bare factor's inverse has entries of 1e17, beside which double precision has no K."""
    num_inducing, num_data = 60, 5
    layer = OutputGP(num_inducing, 1)
    factor = layer.precision_tril.transform.bijectors[-1].forward(
        layer.precision_tril.unconstrained_variable
    )
    below = np.tril(-10.0 * np.ones_like(factor), -1)
    layer.precision_tril.unconstrained_variable.assign(
        layer.precision_tril.transform.bijectors[-1].inverse(factor + below)
    )
    rng = np.random.default_rng(0)
    layer.v.assign(rng.normal(size=(num_inducing, 1)))
    features = rng.normal(size=(num_inducing + num_data, 3))
    whole = features @ features.T + 0.1 * np.eye(num_inducing + num_data)
    K = GramBlocks(
        whole[:num_inducing, :num_inducing],
        whole[:num_inducing, num_inducing:],
        np.diag(whole)[num_inducing:],
    )
    # (K + E)^{-1} = L (I + L^T K L)^{-1} L^T needs no inverse of Lambda = L L^T.
    tril, v = layer.precision_tril.numpy(), layer.v.numpy()
    B = np.eye(num_inducing) + tril.T @ K.ii @ tril
    inverse = tril @ np.linalg.solve(B, tril.T)
    mean, weights = K.it.numpy().T @ inverse @ v, inverse @ v
    kl = np.trace(np.linalg.inv(B)) - num_inducing + np.linalg.slogdet(B)[1]
    kl += float(weights.T @ K.ii @ weights)
    marginals = layer.marginals(K)
    np.testing.assert_allclose(marginals.mean, mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(marginals.log_ratio, -0.5 * kl, rtol=1e-6)
    eigenvalues = np.linalg.eigvalsh(tril @ tril.T)
    assert eigenvalues[-1] / eigenvalues[0] > 1e9


def test_sample_draws_nothing() -> None:
    layer, K = output_layer(2), covariance(S)
    first, second = (layer.sample(K.ii, seed=seed) for seed in (0, 1))
    for ours, others in zip(tf.nest.flatten(first), tf.nest.flatten(second), strict=True):
        np.testing.assert_array_equal(ours, others)
    mean, variance = layer.condition(first, K.it, K.tt, seed=5)
    marginals = layer.marginals(K)
    np.testing.assert_array_equal(mean, marginals.mean)
    np.testing.assert_array_equal(variance, marginals.variance)


def test_single_precision_data_blocks() -> None:
    for full_cov in (False, True):
        layer, K = output_layer(2), covariance(S, full_cov=full_cov)
        full, low = layer.marginals(K), layer.marginals(K.with_data_dtype(tf.float32))
        np.testing.assert_array_equal(low.log_ratio, full.log_ratio)
        assert low.mean.dtype == low.variance.dtype == tf.float64
        np.testing.assert_allclose(low.mean, full.mean, rtol=0, atol=1e-5)
        np.testing.assert_allclose(low.variance, full.variance, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        ((M, 0), {}, "num_outputs: got 0, needs an integer of at least 1"),
        ((M, 1.5), {}, "num_outputs: got 1.5"),
        ((0, 1), {}, "num_inducing: got 0"),
        ((M, 1), {"kernel": "rbf"}, "kernel: got str, needs a GPflow kernel"),
        (
            (M, 3),
            {"kernel": SeparateIndependent([Matern32(), Matern32()])},
            "got SeparateIndependent of 2 kernels, needs one for each of 3 outputs",
        ),
    ],
)
def test_bad_arguments(arguments: tuple, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OutputGP(*arguments, **settings)


@pytest.mark.parametrize("constant", [1e2, 1e4, 1e6])
def test_a_covariance_with_a_large_constant_loses_no_digits_of_the_variance(
    constant: float,
) -> None:
    """Against universal kriging, which never adds the constant; K_tt is up to 3e9 times what it leaves."""
    rng, count = np.random.default_rng(0), 50
    kernel = Matern52(lengthscales=0.3)
    Z, X = np.linspace(0.0, 1.0, count)[:, None], rng.uniform(size=(200, 1))
    K_ii, K_it, K_tt = kernel(Z).numpy(), kernel(Z, X).numpy(), kernel(X, full_cov=False).numpy()
    layer, v = OutputGP(count, 1), rng.normal(size=count)
    layer.v.assign(v[:, None])
    layer.precision_tril.assign(30.0 * np.eye(count))
    noisy = K_ii + np.eye(count) / 900.0
    ones = np.linalg.solve(noisy, np.ones(count))
    of_constant = 1.0 / (np.sum(ones) + 1.0 / constant)
    trend = of_constant * (ones @ v)
    mean = trend + K_it.T @ np.linalg.solve(noisy, v - trend)
    variance = K_tt - np.sum(K_it * np.linalg.solve(noisy, K_it), 0)
    variance += of_constant * np.square(1.0 - K_it.T @ ones)

    draw = layer.sample(tf.constant(K_ii + constant))
    found = layer.condition(draw, tf.constant(K_it + constant), tf.constant(K_tt + constant))
    np.testing.assert_allclose(found[1][:, 0], variance, rtol=0, atol=5e-14 * constant)
    np.testing.assert_allclose(found[0][:, 0], mean, rtol=0, atol=3e-11 * constant)
