"""GlobalInducingGP against dense formulas of Q(F) = N(Sigma Lambda v, Sigma), docs/mathematics.md 6."""

from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from layer_cases import (
    HOW,
    M,
    N,
    S,
    check_conditionals,
    check_layer_gradients,
    covariance,
    gp_layer,
    output_layer,
    record,
)
from scipy import stats
from scipy.linalg import block_diag

from gpflow_dkp.gram import FeatureBlocks, GramBlocks, ReLUFeatures
from gpflow_dkp.layers import GlobalInducingGP
from gpflow_dkp.layers.gram import base, global_inducing_gp

widths = pytest.mark.parametrize("width", [1, 3, 6])
samples = pytest.mark.parametrize("samples", [None, S])
shared_precisions = pytest.mark.parametrize("shared_precision", [True, False])


class Dense(NamedTuple):
    mean: np.ndarray
    covariance: np.ndarray
    prior: np.ndarray


def dense(layer: GlobalInducingGP, K: np.ndarray) -> list[Dense]:
    """Mean [M] and covariance [M, M] of each output under Q, and its covariance under P."""
    if layer._prior_scale != 1.0:
        K = K / layer.width
    trils = np.broadcast_to(layer.precision_tril, (layer.width, M, M))
    outputs = []
    for tril, v in zip(trils, layer.v.numpy().T, strict=True):
        Sigma = np.linalg.inv(np.linalg.inv(K) + tril @ tril.T)
        outputs.append(Dense(Sigma @ tril @ tril.T @ v, Sigma, K))
    return outputs


def kl(q: Dense) -> float:
    """KL(N(m, Sigma) || N(0, K)), by the textbook."""
    inverse = np.linalg.inv(q.prior)
    logdets = [np.linalg.slogdet(matrix)[1] for matrix in (q.prior, q.covariance)]
    trace = np.trace(inverse @ q.covariance)
    return 0.5 * (trace - len(q.mean) + logdets[0] - logdets[1] + q.mean @ inverse @ q.mean)


def matrices(K: GramBlocks) -> list[np.ndarray]:
    return [K.ii.numpy()] if K.ii.shape.rank == 2 else list(K.ii.numpy())


outputs = pytest.mark.parametrize("output", [False, True])


@shared_precisions
@outputs
@samples
@widths
def test_log_ratio_is_minus_the_dense_kl(
    width: int, samples: int | None, output: bool, shared_precision: bool
) -> None:
    layer = gp_layer(width, output=output, shared_precision=shared_precision)
    K = covariance(samples)
    expected = [-sum(kl(q) for q in dense(layer, matrix)) for matrix in matrices(K)]
    log_ratio = layer.sample(K.ii, seed=0, num_samples=S).log_ratio
    np.testing.assert_allclose(log_ratio, np.broadcast_to(expected, S), rtol=0, atol=1e-9)


@shared_precisions
@outputs
@samples
@widths
def test_sampled_log_ratio_is_the_difference_of_the_densities(
    width: int, samples: int | None, output: bool, shared_precision: bool
) -> None:
    layer = gp_layer(width, "sampled", output=output, shared_precision=shared_precision)
    K = covariance(samples)
    draw = layer.sample(K.ii, seed=0, num_samples=S)
    for i in range(S):
        outputs = dense(layer, matrices(K)[i if samples else 0])
        pairs = list(zip(outputs, draw.features[i].numpy().T, strict=True))
        log_p = sum(stats.multivariate_normal(np.zeros(M), q.prior).logpdf(f) for q, f in pairs)
        log_q = sum(stats.multivariate_normal(q.mean, q.covariance).logpdf(f) for q, f in pairs)
        assert float(draw.log_ratio[i]) == pytest.approx(log_p - log_q, abs=1e-9)


def give_unit_noise(width: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Let the layer draw zeros in its first sample and in the others one unit of noise each.

    All outputs are affine in the noise, so that this gives their moments without any sampling.
    """
    of_inducing, of_data = 2 * M * width, width * N
    size = of_inducing + of_data
    unit = np.concatenate([np.zeros((1, size)), np.eye(size)])
    inducing, data = unit[:, :of_inducing], unit[:, of_inducing:]
    given = [
        (global_inducing_gp, inducing.reshape(size + 1, M, 2 * width), tf.float64),
        (base, data.reshape(size + 1, width, N), tf.float32),
    ]
    for module, noise, dtype in given:
        noise = tf.constant(noise, dtype)

        def normal(
            shape: list, seed: object, dtype: tf.DType, noise: tf.Tensor = noise, **_: object
        ) -> tf.Tensor:
            assert tuple(int(size) for size in shape) == noise.shape
            return noise

        monkeypatch.setattr(module, "normal", normal)
    return size + 1


@shared_precisions
@pytest.mark.parametrize("batched", [False, True])
@outputs
@widths
def test_draw_is_affine_in_the_noise_with_the_posteriors_moments(
    width: int,
    output: bool,
    batched: bool,
    shared_precision: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F = mean + J eps with J J^T = Sigma for each output; K with and without a sample dimension."""
    layer = gp_layer(width, output=output, shared_precision=shared_precision)
    K = covariance().ii
    num_samples = give_unit_noise(width, monkeypatch)
    K_ii = tf.tile(K[None], [num_samples, 1, 1]) if batched else K
    F = layer.sample(K_ii, num_samples=num_samples).features.numpy()
    outputs = dense(layer, K.numpy())
    np.testing.assert_allclose(F[0].T, [q.mean for q in outputs], rtol=0, atol=1e-12)
    jacobian = np.swapaxes(F[1:] - F[0], 1, 2).reshape(-1, width * M)
    expected = block_diag(*(q.covariance for q in outputs))
    np.testing.assert_allclose(jacobian.T @ jacobian, expected, rtol=0, atol=1e-12)


@shared_precisions
@outputs
@samples
def test_posterior_distribution_has_the_posteriors_moments(
    samples: int | None, output: bool, shared_precision: bool
) -> None:
    layer = gp_layer(3, output=output, shared_precision=shared_precision)
    K = covariance(samples)
    rows = layer.posterior_distribution(K.ii)
    for i, matrix in enumerate(matrices(K)):
        for p, q in enumerate(dense(layer, matrix)):
            at = (i, p) if samples else (p,)
            np.testing.assert_allclose(rows.mean()[at], q.mean, rtol=0, atol=1e-12)
            covariances = rows.distribution.covariance()
            np.testing.assert_allclose(covariances[at], q.covariance, rtol=0, atol=1e-12)


@pytest.mark.parametrize("full_cov", [False, True])
@widths
def test_drawn_data_points_have_the_moments_of_an_output_layer(
    width: int, full_cov: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inducing values and data points drawn, against the inducing values integrated out.

    A data point drawn on its own has the output layer's variance; drawn jointly, its covariances.
    """
    layer, K = gp_layer(width, output=True), covariance(full_cov=full_cov)
    num_samples = give_unit_noise(width, monkeypatch)
    draw = layer.sample(K.ii, num_samples=num_samples)
    f = layer.condition(draw, K.it, K.tt, full_cov=full_cov).data.numpy()
    marginals = output_layer(width).marginals(K)
    np.testing.assert_allclose(f[0].T, marginals.mean, rtol=0, atol=1e-11)
    jacobian = f[1:] - f[0]
    moments = np.einsum("spn,sqm->pnqm", jacobian, jacobian)
    for p in range(width):
        own = moments[p, :, p]
        own = own if full_cov else np.diag(own)
        expected = marginals.variance[p] if full_cov else marginals.variance[:, p]
        np.testing.assert_allclose(own, expected, rtol=0, atol=1e-11)
        for q in range(p):
            np.testing.assert_allclose(moments[p, :, q], np.zeros((N, N)), atol=1e-11)


@samples
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("width", "output"), [(1, False), (6, False), (3, True)])
def test_conditionals_of_the_data_points(
    width: int, output: bool, how: dict, samples: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    scale = 1.0 if output else 1.0 / width
    check_conditionals(gp_layer(width, output=output), scale, samples, how, monkeypatch)


@outputs
@samples
def test_prior_draws_are_their_covariances_factor_times_the_noise(
    output: bool, samples: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, K = gp_layer(3, output=output), covariance(samples)
    drawn = record(monkeypatch, base, "normal")
    draw = layer.prior_sample(K.ii, seed=0, num_samples=S)
    (noise,) = drawn
    for i in range(S):
        tril = np.linalg.cholesky(matrices(K)[i if samples else 0] / (1.0 if output else 3.0))
        np.testing.assert_allclose(draw.features[i], tril @ noise[i], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(draw.log_ratio, np.zeros(S))


@pytest.mark.parametrize("log_ratio", ["expected", "sampled"])
@samples
@pytest.mark.parametrize(
    ("width", "output", "shared_precision"),
    [(1, False, True), (6, False, True), (3, True, True), (3, False, False)],
)
def test_gradients_are_those_of_finite_differences(
    width: int, output: bool, shared_precision: bool, samples: int | None, log_ratio: str
) -> None:
    layer = gp_layer(width, log_ratio, output=output, shared_precision=shared_precision)
    check_layer_gradients(layer, samples, [])


@samples
@outputs
def test_gradients_of_joint_draws_are_those_of_finite_differences(
    output: bool, samples: int | None
) -> None:
    check_layer_gradients(gp_layer(3, output=output), samples, [], full_cov=True)


@samples
@outputs
def test_gradients_of_prior_draws_are_those_of_finite_differences(
    output: bool, samples: int | None
) -> None:
    check_layer_gradients(gp_layer(3, output=output), samples, [], prior=True)


@pytest.mark.parametrize("log_ratio", ["expected", "sampled"])
@shared_precisions
@outputs
def test_log_ratio_is_zero_where_posterior_is_prior(
    output: bool, shared_precision: bool, log_ratio: str
) -> None:
    """Lambda = 0 is no data at all."""
    layer = gp_layer(3, log_ratio, output=output, shared_precision=shared_precision)
    layer.precision_tril.assign(np.broadcast_to(1e-7 * np.eye(M), layer.precision_tril.shape))
    value = layer.sample(covariance(S).ii, seed=0).log_ratio
    np.testing.assert_allclose(value, np.zeros(S), rtol=0, atol=1e-9)


def test_features_of_an_infinitely_wide_layer_have_its_covariance() -> None:
    """And a kernel of features takes them."""
    K = covariance().ii
    blocks = gp_layer(3).infinite_width(K)
    assert isinstance(blocks, FeatureBlocks)
    np.testing.assert_allclose(blocks.ii, K, rtol=0, atol=1e-12)
    layer = GlobalInducingGP(M, 3, kernel=ReLUFeatures())
    assert np.all(np.linalg.eigvalsh(layer.covariance(blocks).ii) > 0.0)


def test_one_seed_gives_one_draw() -> None:
    layer, K = gp_layer(3), covariance(S)
    np.testing.assert_array_equal(*(layer.propagate(K, seed=1)[0].data for _ in range(2)))
    np.testing.assert_array_equal(*(layer.prior_sample(K.ii, seed=1).features for _ in range(2)))
    first, second = (layer.propagate(K, seed=s)[0].data for s in (1, 2))
    assert not np.any(np.equal(first, second))


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        ((M, 0), {}, "width: got 0, needs an integer of at least 1"),
        ((M, 1.5), {}, "width: got 1.5"),
        ((0, 1), {}, "num_inducing: got 0"),
        ((M, 1), {"log_ratio": "both"}, "log_ratio: got 'both'"),
        ((M, 1), {"shared_precision": 1}, "shared_precision: got 1"),
    ],
)
def test_bad_arguments(arguments: tuple, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GlobalInducingGP(*arguments, **settings)
