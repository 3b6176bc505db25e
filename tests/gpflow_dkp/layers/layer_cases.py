"""Random covariances and layers with every variational parameter away from its start."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from gpflow_dkp.gram import GramBlocks
from gpflow_dkp.layers import GlobalInducingGP, Layer, WishartLayer
from gpflow_dkp.layers.inverse_wishart import InverseWishartNoise

M, N, S = 4, 3, 5
POSTERIORS = ["gw", "a-gw", "ab-gw"]
WIDTHS = [1, 2, 4, 7]
JITTER = 1e-2


def covariance(samples: int | None = None, seed: int = 0) -> GramBlocks:
    """A covariance over M inducing and N data points, that of D = 3 features plus noise."""
    rng = np.random.default_rng(seed)
    batch = () if samples is None else (samples,)
    F = rng.normal(size=(*batch, M + N, 3))
    K = F @ np.swapaxes(F, -1, -2) + (0.5 + JITTER) * np.eye(M + N)
    return GramBlocks(
        K[..., :M, :M], K[..., :M, M:], np.diagonal(K[..., M:, M:], axis1=-2, axis2=-1)
    )


def wishart_layer(width: int, posterior: str, log_ratio: str = "expected") -> WishartLayer:
    rng = np.random.default_rng(width)
    layer = WishartLayer(M, width, posterior, log_ratio=log_ratio)
    p = min(M, width)
    layer.alpha.assign(rng.uniform(1.0, 3.0, p))
    layer.beta.assign(rng.uniform(0.5, 2.0, p))
    layer.mu.assign(rng.normal(size=(M, p)))
    layer.sigma.assign(rng.uniform(0.3, 1.5, (M, p)))
    layer.q.assign(0.3)
    layer.V.assign(rng.normal(size=(M, M)))
    if posterior != "gw":
        layer.A.assign(np.eye(M) + 0.3 * rng.normal(size=(M, M)))
    if posterior == "ab-gw":
        layer.B.assign(np.tril(0.4 * rng.normal(size=(p, p)), -1) + np.eye(p))
    return layer


def gp_layer(width: int, log_ratio: str = "expected", output: bool = False) -> GlobalInducingGP:
    rng = np.random.default_rng(width)
    layer = GlobalInducingGP(M, width, output=output, log_ratio=log_ratio)
    layer.v.assign(rng.normal(size=(M, width)))
    layer.precision_tril.assign(np.tril(rng.normal(size=(M, M)), -1) + np.diag([0.5, 1, 2, 0.8]))
    return layer


def check_gradients(function: Callable[[], tf.Tensor], variables: list[tf.Variable]) -> None:
    """d function / d variable against central differences, along a random direction of each."""
    with tf.GradientTape() as tape:
        value = function()
    gradients = tape.gradient(value, variables)
    rng = np.random.default_rng(7)
    step = 1e-5
    for variable, gradient in zip(variables, gradients, strict=True):
        assert gradient is not None, variable.name
        direction, start = rng.normal(size=variable.shape), variable.numpy()
        variable.assign(start + step * direction)
        above = float(function())
        variable.assign(start - step * direction)
        below = float(function())
        variable.assign(start)
        numerical = (above - below) / (2.0 * step)
        analytic = float(tf.reduce_sum(direction * gradient))
        assert analytic == pytest.approx(numerical, rel=1e-6, abs=1e-6), variable.name


def check_layer_gradients(layer: Layer, samples: int | None) -> None:
    """Gradients of a layer's outputs with its random numbers held, for its parameters and K.

    The random gammas are held too: what they owe to `alpha` is no pathwise derivative.
    """
    start = covariance(samples)
    blocks = [tf.Variable(block) for block in (start.ii, start.it, start.tt)]
    noise = layer.sample_noise(S, N, 0)
    rng = np.random.default_rng(3)
    weights = [rng.normal(size=(S, M, layer.width)), rng.normal(size=(S, layer.width, N))]
    weights.append(rng.normal(size=S))

    def function() -> tf.Tensor:
        ii, it, tt = blocks
        ii = 0.5 * (ii + tf.linalg.matrix_transpose(ii))
        sample, log_ratio = layer.propagate_noise(GramBlocks(ii, it, tt), noise)
        outputs = (sample.inducing, sample.data, log_ratio)
        return tf.add_n(
            [tf.reduce_sum(w * output) for w, output in zip(weights, outputs, strict=True)]
        )

    check_gradients(function, [*layer.trainable_variables, *blocks])


def check_gram_gradients(layer: Layer, samples: int | None) -> None:
    """`check_layer_gradients` for an inverse Wishart layer, and for its chi-square draws.

    Those draws are how the gradient of an expectation reaches the degrees of freedom.
    """
    start = covariance(samples)
    blocks = [tf.Variable(block) for block in (start.ii, start.it, start.tt)]
    noise, draws = with_variable_draws(layer.sample_noise(S, N, 0))
    rng = np.random.default_rng(3)
    weights = [rng.normal(size=shape) for shape in [(S, M, M), (S, M, N), (S, N), (S,)]]

    def function() -> tf.Tensor:
        ii, it, tt = blocks
        ii = 0.5 * (ii + tf.linalg.matrix_transpose(ii))
        sample, log_ratio = layer.propagate_noise(GramBlocks(ii, it, tt), noise)
        outputs = (sample.ii, sample.it, sample.tt, log_ratio)
        return tf.add_n(
            [tf.reduce_sum(w * output) for w, output in zip(weights, outputs, strict=True)]
        )

    check_gradients(function, [*layer.trainable_variables, *blocks, *draws])


def with_variable_draws(
    noise: InverseWishartNoise,
) -> tuple[InverseWishartNoise, list[tf.Variable]]:
    """The noise with its chi-square draws as variables, and these."""
    diag, chi2 = tf.Variable(noise.diag, name="diag"), tf.Variable(noise.chi2, name="chi2")
    return noise._replace(diag=diag, chi2=chi2), [diag, chi2]


def check_prior_gradients(layer: Layer, samples: int | None) -> None:
    """Gradients of a draw from the prior for K, its random numbers held by the seed."""
    start = covariance(samples)
    blocks = [tf.Variable(block) for block in (start.ii, start.it, start.tt)]
    rng = np.random.default_rng(3)
    weights = [rng.normal(size=(S, M, layer.width)), rng.normal(size=(S, layer.width, N))]

    def function() -> tf.Tensor:
        ii, it, tt = blocks
        ii = 0.5 * (ii + tf.linalg.matrix_transpose(ii))
        sample = layer.prior_sample(GramBlocks(ii, it, tt), seed=1, num_samples=S)
        return tf.reduce_sum(weights[0] * sample.inducing) + tf.reduce_sum(weights[1] * sample.data)

    check_gradients(function, blocks)


def check_conditionals(layer: Layer, samples: int | None) -> None:
    """F_t = s^T F_i + sqrt(S_tt - S_ti s) eps with S = K / nu and s = S_ii^{-1} S_it."""
    K = covariance(samples)
    noise = layer.sample_noise(S, N, 0)
    sample, _ = layer.propagate_noise(K, noise)
    eps = noise[-1].numpy().astype(float)
    assert eps.shape == (S, layer.width, N)
    for i in range(S):
        own = () if samples is None else (i,)
        S_ii, S_it = K.ii.numpy()[own] / layer.width, K.it.numpy()[own] / layer.width
        s = np.linalg.solve(S_ii, S_it)
        variance = K.tt.numpy()[own] / layer.width - np.sum(S_it * s, 0)
        F_t = sample.inducing[i].numpy().T @ s + np.sqrt(variance) * eps[i]
        np.testing.assert_allclose(sample.data[i], F_t, rtol=0, atol=1e-10)
