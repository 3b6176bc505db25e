"""Random covariances and layers with every variational parameter away from its start."""

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_dkp.gram import FeatureBlocks, GramBlocks
from gpflow_dkp.layers import GlobalInducingGP, GramLayer, OutputGP, WishartLayer
from gpflow_dkp.layers.gram import base

M, N, S = 4, 3, 5
POSTERIORS = ["gw", "a-gw", "ab-gw"]
WIDTHS = [1, 2, 4, 7]
JITTER = 1e-2


def covariance(samples: int | None = None, seed: int = 0, *, full_cov: bool = False) -> GramBlocks:
    """A covariance over M inducing and N data points, that of D = 3 features plus noise."""
    rng = np.random.default_rng(seed)
    batch = () if samples is None else (samples,)
    F = rng.normal(size=(*batch, M + N, 3))
    K = F @ np.swapaxes(F, -1, -2) + (0.5 + JITTER) * np.eye(M + N)
    tt = K[..., M:, M:]
    tt = tt if full_cov else np.diagonal(tt, axis1=-2, axis2=-1)
    return GramBlocks(K[..., :M, :M], K[..., :M, M:], tt)


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


def gp_layer(width: int, log_ratio: str = "expected", **settings: Any) -> GlobalInducingGP:
    """Of separate precisions each is its own multiple of the shared one."""
    rng = np.random.default_rng(width)
    layer = GlobalInducingGP(M, width, log_ratio=log_ratio, **settings)
    layer.v.assign(rng.normal(size=(M, width)))
    tril = np.tril(rng.normal(size=(M, M)), -1) + np.diag([0.5, 1, 2, 0.8])
    if not layer.shared_precision:
        tril = tril * np.linspace(0.5, 2.0, width)[:, None, None]
    layer.precision_tril.assign(tril)
    return layer


def output_layer(num_outputs: int, **settings: Any) -> OutputGP:
    """The parameters of `gp_layer`."""
    layer = OutputGP(M, num_outputs, **settings)
    like = gp_layer(num_outputs, shared_precision=layer.shared_precision)
    layer.v.assign(like.v)
    layer.precision_tril.assign(like.precision_tril)
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


def record(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> list[np.ndarray]:
    """What the function `name` of `module` returns from now on, call by call."""
    function, returned = getattr(module, name), []

    def recording(*args: Any, **settings: Any) -> tf.Tensor:
        value = function(*args, **settings)
        returned.append(value.numpy())
        return value

    monkeypatch.setattr(module, name, recording)
    return returned


def hold_gammas(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> list[tf.Variable]:
    """Gamma draws that do not change with their concentrations, as variables.

    What they owe to the concentrations is no pathwise derivative of a held seed. As variables their own
    gradients are looked at: those are how the gradient of an expectation reaches the concentrations.
    """
    gamma, held = module.gamma, {}
    variables: list[tf.Variable] = []

    def holding(num_samples: Any, concentration: tf.Tensor, seed: Any, **sizes: Any) -> tf.Variable:
        key = tuple(tf.convert_to_tensor(seed).numpy()), tuple(concentration.shape)
        if key not in held:
            draws = gamma(num_samples, concentration, seed, **sizes)
            held[key] = tf.Variable(draws, name="gamma")
            variables.append(held[key])
        return held[key]

    monkeypatch.setattr(module, "gamma", holding)
    return variables


def symmetric(matrix: tf.Tensor) -> tf.Tensor:
    return 0.5 * (matrix + tf.linalg.matrix_transpose(matrix))


def variable_blocks(
    samples: int | None, full_cov: bool = False
) -> tuple[list[tf.Variable], Callable[[], GramBlocks]]:
    """Variables ii, it and tt, and the covariance of their present values, made symmetric."""
    start = covariance(samples, full_cov=full_cov)
    variables = [tf.Variable(block) for block in (start.ii, start.it, start.tt)]

    def blocks() -> GramBlocks:
        ii, it, tt = variables
        return GramBlocks(symmetric(ii), it, symmetric(tt) if full_cov else tt + 0.0)

    return variables, blocks


def random_sum(tensors: Iterable[tf.Tensor]) -> tf.Tensor:
    """A random linear function of all entries, the same at every call."""
    rng = np.random.default_rng(3)
    return tf.add_n([tf.reduce_sum(rng.normal(size=t.shape) * t) for t in tensors])


def check_layer_gradients(
    layer: GramLayer,
    samples: int | None,
    gammas: list[tf.Variable],
    *,
    full_cov: bool = False,
    prior: bool = False,
) -> None:
    """Gradients of all outputs, the random numbers held, for the parameters, K and the gamma draws.

    :param gammas: of `hold_gammas`.
    """
    variables, blocks = variable_blocks(samples, full_cov)

    def function() -> tf.Tensor:
        K = blocks()
        if prior:
            draw = layer.prior_sample(K.ii, seed=1, num_samples=S)
            points, log_ratio = layer.condition(draw, K.it, K.tt, seed=1, full_cov=full_cov), None
        else:
            points, log_ratio = layer.propagate(K, seed=0, num_samples=S)
        if isinstance(points, FeatureBlocks) and points.own is None:
            outputs = [points.inducing, points.data]
        else:
            outputs = [points.ii, points.it, points.tt]
        return random_sum(outputs if prior else [*outputs, log_ratio])

    function()
    trained = [layer.delta.unconstrained_variable] if hasattr(layer, "delta") else []
    trained = trained if prior else list(layer.trainable_variables)
    check_gradients(function, [*trained, *variables, *gammas])


def own_covariance(K: GramBlocks, sample: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The blocks ii, it and tt of one sample."""
    own = () if K.ii.shape.rank == 2 else (sample,)
    return K.ii.numpy()[own], K.it.numpy()[own], K.tt.numpy()[own]


HOW = [{}, {"common_noise": True}, {"full_cov": True}]


def check_conditionals(
    layer: GramLayer, scale: float, samples: int | None, how: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F_t = s^T F_i + C eps with S = scale K, s = S_ii^{-1} S_it and C C^T = S_tt - S_ti s.

    C is the diagonal's root, or jointly the Cholesky factor; common noise is one eps for all points.
    """
    K = covariance(samples, full_cov="full_cov" in how)
    draw = layer.sample(K.ii, seed=0, num_samples=S)
    normals = record(monkeypatch, base, "normal")
    points = layer.condition(draw, K.it, K.tt, seed=0, **how)
    (eps,) = (noise.astype(float) for noise in normals)
    assert eps.shape == (S, layer.width, 1 if "common_noise" in how else N)
    for i in range(S):
        S_ii, S_it, S_tt = (scale * block for block in own_covariance(K, i))
        s = np.linalg.solve(S_ii, S_it)
        if "full_cov" in how:
            scatter = eps[i] @ np.linalg.cholesky(S_tt - S_it.T @ s).T
        else:
            scatter = np.sqrt(S_tt - np.sum(S_it * s, 0)) * eps[i]
        F_t = points.inducing[i].numpy().T @ s + scatter
        np.testing.assert_allclose(points.data[i], F_t, rtol=0, atol=1e-10)
