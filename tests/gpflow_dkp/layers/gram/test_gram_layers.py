"""What every layer from Gram matrices to Gram matrices keeps: draws, data points, seeds, parts."""

import copy
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.kernels import Matern32, SeparateIndependent
from layer_cases import M, N, S, covariance, gp_layer, output_layer, wishart_layer
from scipy.stats import multivariate_normal

from gpflow_dkp import parallel
from gpflow_dkp.distributions import InverseWishart, Wishart
from gpflow_dkp.gram import FeatureBlocks, GramBlocks
from gpflow_dkp.layers import (
    GlobalInducingGP,
    GramLayer,
    InputInverseWishart,
    InverseWishartLayer,
    WishartLayer,
    WishartPosterior,
)


def inverse_wishart_layer() -> InverseWishartLayer:
    layer = InverseWishartLayer(M, delta=3.0)
    layer.V.assign(np.random.default_rng(0).normal(size=(M, M)))
    return layer


def input_layer(num_features: int) -> InputInverseWishart:
    layer = InputInverseWishart(M, num_features)
    layer.V.assign(np.random.default_rng(0).normal(size=layer.V.shape))
    return layer


HIDDEN: dict[str, Callable[[], GramLayer]] = {
    "Wishart": lambda: wishart_layer(3, "ab-gw"),
    "Wishart wider than M": lambda: wishart_layer(7, "gw", "sampled"),
    "GP": lambda: gp_layer(3),
    "GP as output": lambda: gp_layer(2, "sampled", output=True),
    "inverse Wishart": inverse_wishart_layer,
}
LAYERS = HIDDEN | {
    "Omega": lambda: input_layer(3),
    "inputs without Omega": lambda: input_layer(9),
}
hidden = pytest.mark.parametrize("name", HIDDEN)
layers = pytest.mark.parametrize("name", LAYERS)
samples = pytest.mark.parametrize("samples", [None, S])
whole = pytest.mark.parametrize("full_cov", [False, True])


def covariance_of(layer: GramLayer, samples: int | None = None, full_cov: bool = False) -> Any:
    """A covariance, or the inputs that the input layer takes for one."""
    if not isinstance(layer, InputInverseWishart):
        return covariance(samples, full_cov=full_cov)
    rng, D = np.random.default_rng(1), layer.num_features
    Z, X = tf.constant(rng.normal(size=(M, D))), tf.constant(rng.normal(size=(D, N)))
    return layer.covariance(FeatureBlocks(Z, X, full_cov=full_cov))


def points_of(K: Any, which: list[int]) -> tuple[tf.Tensor, tf.Tensor]:
    """The blocks it and tt of some data points."""
    tt = tf.gather(K.tt, which, axis=-1)
    return tf.gather(K.it, which, axis=-1), tf.gather(tt, which, axis=-2) if K.full_cov else tt


@whole
@samples
@layers
def test_propagate_is_sample_and_condition(name: str, samples: int | None, full_cov: bool) -> None:
    """Of one seed, of which they take different numbers; the inducing points' block is the draw's."""
    layer = LAYERS[name]()
    K = covariance_of(layer, samples, full_cov)
    points, log_ratio = layer.propagate(K, seed=3, num_samples=S)
    draw = layer.sample(K.ii, seed=3, num_samples=S)
    again = layer.condition(draw, K.it, K.tt, seed=3, full_cov=full_cov)
    assert points.full_cov == again.full_cov == full_cov
    assert (points.ii.shape, points.it.shape) == ((S, M, M), (S, M, N))
    assert points.tt.shape == ((S, N, N) if full_cov else (S, N))
    assert log_ratio.shape == (S,)
    np.testing.assert_array_equal(log_ratio, draw.log_ratio)
    for block in ("ii", "it", "tt"):
        np.testing.assert_array_equal(getattr(points, block), getattr(again, block))
    inducing = draw.inducing
    np.testing.assert_allclose(inducing.ii, points.ii, rtol=0, atol=1e-12)
    assert inducing.it.shape == (S, M, 0)


@samples
@layers
@pytest.mark.parametrize("of", ["sample", "prior_sample"])
def test_tensors_of_a_draw_are_shared_or_have_the_samples_first(
    name: str, samples: int | None, of: str
) -> None:
    """So that a draw of some samples, or one for each of many functions, can be made of it."""
    layer = LAYERS[name]()
    draw = getattr(layer, of)(covariance_of(layer, samples).ii, seed=0, num_samples=S)
    shapes = [tensor.shape for tensor in tf.nest.flatten(draw)]
    assert all(shape.rank == 2 or shape[0] == S for shape in shapes)
    assert draw.log_ratio.shape == (S,)
    if of == "prior_sample":
        np.testing.assert_array_equal(draw.log_ratio, np.zeros(S))


@samples
@layers
def test_some_samples_of_a_draw(name: str, samples: int | None) -> None:
    layer = LAYERS[name]()
    K = covariance_of(layer, samples)
    draw = layer.sample(K.ii, seed=0, num_samples=S)
    chosen = [3, 0]

    def some(tensor: tf.Tensor) -> tf.Tensor:
        return tensor if tensor.shape.rank == 2 else tf.gather(tensor, chosen)

    how = {"seed": 1, "common_noise": True}
    few = tf.nest.map_structure(some, draw)
    it = K.it if samples is None or K.it.shape.rank == 2 else tf.gather(K.it, chosen)
    tt = K.tt if samples is None or K.it.shape.rank == 2 else tf.gather(K.tt, chosen)
    part = layer.condition(few, it, tt, **how)
    np.testing.assert_allclose(part.ii, tf.gather(draw.inducing.ii, chosen), rtol=0, atol=1e-12)
    assert part.it.shape == (2, M, N)


@layers
@samples
def test_common_noise_gives_a_point_the_same_whatever_stands_beside_it(
    name: str, samples: int | None
) -> None:
    layer = LAYERS[name]()
    K = covariance_of(layer, samples)
    draw = layer.sample(K.ii, seed=0, num_samples=S)
    how = {"seed": 5, "common_noise": True}
    together = layer.condition(draw, K.it, K.tt, **how)
    for which in ([0], [2], [1, 0], [2, 2, 1, 0, 1]):
        part = layer.condition(draw, *points_of(K, which), **how)
        it, tt = points_of(together, which)
        np.testing.assert_allclose(part.it, it, rtol=0, atol=1e-12)
        np.testing.assert_allclose(part.tt, tt, rtol=0, atol=1e-12)


@hidden
def test_without_common_noise_equal_points_differ(name: str) -> None:
    layer = LAYERS[name]()
    K = covariance_of(layer)
    draw = layer.sample(K.ii, seed=0, num_samples=S)
    twice = points_of(K, [0, 0])
    own = layer.condition(draw, *twice, seed=5).tt.numpy()
    common = layer.condition(draw, *twice, seed=5, common_noise=True).tt.numpy()
    assert np.all(own[:, 0] != own[:, 1])
    np.testing.assert_array_equal(common[:, 0], common[:, 1])


@hidden
def test_equal_points_drawn_jointly_are_equal(name: str) -> None:
    """Up to a jitter that lets the covariance be factorised."""
    layer = LAYERS[name]()
    K = covariance_of(layer, S, full_cov=True)
    draw = layer.sample(K.ii, seed=0)
    it, tt = points_of(K, [0, 0, 1])
    G = layer.condition(draw, it, tt + 1e-10 * np.eye(3), seed=5, full_cov=True)
    np.testing.assert_allclose(G.tt[:, 0], G.tt[:, 1], rtol=0, atol=1e-3)
    np.testing.assert_allclose(G.it[:, :, 0], G.it[:, :, 1], rtol=0, atol=1e-3)


@samples
@layers
def test_joint_draws_are_positive_definite_over_all_points(name: str, samples: int | None) -> None:
    layer = LAYERS[name]()
    K = covariance_of(layer, samples, True)
    G = layer.propagate(K, seed=0, num_samples=S)[0]
    above = np.concatenate([G.ii, G.it], -1)
    below = np.concatenate([np.swapaxes(G.it, -1, -2), G.tt], -1)
    joint = np.concatenate([above, below], -2)
    np.testing.assert_allclose(joint, np.swapaxes(joint, -1, -2), rtol=0, atol=1e-10)
    assert np.all(np.linalg.eigvalsh(joint) > -1e-10)


def test_draws_jointly_and_by_common_noise_at_once_are_refused() -> None:
    for make in (*HIDDEN.values(), LAYERS["inputs without Omega"]):
        layer = make()
        K = covariance_of(layer, full_cov=True)
        draw = layer.sample(K.ii, seed=0, num_samples=S)
        with pytest.raises(ValueError, match="common_noise: got True with full_cov=True"):
            layer.condition(draw, K.it, K.tt, seed=0, full_cov=True, common_noise=True)


@whole
@layers
def test_single_precision_data_points(name: str, full_cov: bool) -> None:
    layer = LAYERS[name]()
    K = covariance_of(layer, full_cov=full_cov)
    draw = layer.sample(K.ii, seed=0, num_samples=S)
    full = layer.condition(draw, K.it, K.tt, seed=1, full_cov=full_cov)
    single = [tf.cast(block, tf.float32) for block in (K.it, K.tt)]
    low = layer.condition(draw, *single, seed=1, full_cov=full_cov)
    assert low.ii.dtype == tf.float64
    for block in ("it", "tt"):
        expected = getattr(full, block)
        scale = float(tf.reduce_max(tf.abs(expected)))
        assert getattr(low, block).dtype == tf.float32
        np.testing.assert_allclose(getattr(low, block), expected, rtol=0, atol=1e-4 * scale)


@whole
@layers
def test_compiled_for_any_number_of_data_points(name: str, full_cov: bool) -> None:
    layer = LAYERS[name]()
    K = covariance_of(layer, full_cov=full_cov)

    draw = layer.sample(K.ii, seed=0, num_samples=S)

    def draws(it: tf.Tensor, tt: tf.Tensor) -> tuple[tf.Tensor, ...]:
        points = layer.condition(draw, it, tt, seed=1, full_cov=full_cov)
        return points.ii, points.it, points.tt

    of_tt = [None, None] if full_cov else [None]
    signature = [tf.TensorSpec(shape, tf.float64) for shape in ([K.it.shape[0], None], of_tt)]
    compiled = tf.function(draws, input_signature=signature, autograph=False)
    for which in ([0, 1, 2], [1]):
        points = points_of(K, which)
        for ours, expected in zip(compiled(*points), draws(*points), strict=True):
            np.testing.assert_allclose(ours, expected, rtol=2e-6, atol=2e-6)


PARTS = [[S], [2, 1, 2]]


@hidden
@pytest.mark.parametrize("of", ["propagate", "prior_sample"])
def test_parts_of_the_samples_have_the_numbers_and_gradients_of_all(
    name: str, of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, K = LAYERS[name](), covariance(S)
    rng = np.random.default_rng(0)

    def function(K: GramBlocks, seed: Any) -> list[tf.Tensor]:
        if of == "propagate":
            points, log_ratio = layer.propagate(K, seed=seed)
        else:
            draw = layer.prior_sample(K.ii, seed=seed)
            points, log_ratio = layer.condition(draw, K.it, K.tt, seed=seed), draw.log_ratio
        return [points.ii, points.it, points.tt, log_ratio]

    shapes = [(S, M, M), (S, M, N), (S, N), (S,)]
    weights = [rng.normal(size=shape) for shape in shapes]

    def values(*blocks: tf.Tensor) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        sources = [*blocks, *layer.trainable_variables]
        with tf.GradientTape() as tape:
            tape.watch(blocks)
            outputs = parallel.map_over_samples(function, S, GramBlocks(*blocks), 7)
            terms = [tf.reduce_sum(w * t) for w, t in zip(weights, outputs, strict=True)]
            loss = tf.add_n(terms)
        return outputs, tape.gradient(loss, sources, unconnected_gradients="zero")

    results = []
    for sizes in PARTS:
        monkeypatch.setattr(parallel, "part_sizes", lambda number, sizes=sizes: sizes)
        results.append(values(K.ii, K.it, K.tt))
    if of == "propagate" and name in ("GP", "inverse Wishart"):
        results.append(tf.function(values, autograph=False)(K.ii, K.it, K.tt))
    for result in results[1:]:
        for ours, expected in zip(
            tf.nest.flatten(result), tf.nest.flatten(results[0]), strict=True
        ):
            scale = 1.0 + np.max(np.abs(expected))
            tolerance = 1e-5 if len(results) > len(PARTS) and result is results[-1] else 1e-11
            np.testing.assert_allclose(ours, expected, rtol=0, atol=tolerance * scale)


@layers
def test_a_copy_is_a_layer_of_its_own(name: str) -> None:
    layer = LAYERS[name]()
    K = covariance_of(layer)
    other = copy.deepcopy(layer)
    first, second = (each.propagate(K, seed=0, num_samples=S) for each in (layer, other))
    np.testing.assert_array_equal(first[0].tt, second[0].tt)
    gpflow.utilities.set_trainable(other, False)
    assert not other.trainable_variables
    assert layer.trainable_variables
    names = gpflow.utilities.parameter_dict(layer)
    assert names.keys() == gpflow.utilities.parameter_dict(other).keys()
    gpflow.utilities.multiple_assign(other, names)
    assert len(names) == len(layer.trainable_variables)


def test_a_kernel_is_needed() -> None:
    for make in (InverseWishartLayer,):
        with pytest.raises(ValueError, match="kernel: got str, needs a GPflow kernel"):
            make(M, kernel="rbf")


def test_covariance_of_the_layers_kernel_with_jitter() -> None:
    layer = InverseWishartLayer(M, kernel=gpflow.kernels.Linear(0.5))
    for full_cov in (False, True):
        G = covariance(S, full_cov=full_cov)
        K = layer.covariance(G, 0.1)
        np.testing.assert_allclose(K.ii, 0.5 * G.ii + 0.1 * np.eye(M), rtol=1e-8)
        np.testing.assert_allclose(K.it, 0.5 * G.it, rtol=1e-8)
        diagonal = 0.1 * np.eye(N) if full_cov else 0.1
        np.testing.assert_allclose(K.tt, 0.5 * G.tt + diagonal, rtol=1e-8)
        # The whole block is factorised, for which single precision is too little.
        low, dtype = layer.covariance(G, 0.1, tf.float32), tf.float64 if full_cov else tf.float32
        assert (low.ii.dtype, low.it.dtype, low.tt.dtype) == (tf.float64, dtype, dtype)
        assert low.full_cov == full_cov
    np.testing.assert_array_equal(InverseWishartLayer(M).covariance(G).it, G.it)


@pytest.mark.parametrize("num_features", [3, 9])
def test_posterior_distribution_of_the_inputs_covariance(num_features: int) -> None:
    """Omega's, whether a draw forms it or not."""
    layer = input_layer(num_features)
    Q, V = layer.posterior_distribution(), layer.V.numpy()
    scale = layer.delta.numpy() * np.eye(num_features) + V @ V.T
    excess = layer.delta.numpy() + layer.gamma.numpy()
    np.testing.assert_allclose(Q.mean(), scale / excess, rtol=0, atol=1e-10)
    prior = InverseWishart(
        layer.delta + num_features + 1.0,
        tf.sqrt(tf.convert_to_tensor(layer.delta)) * tf.eye(num_features, dtype=tf.float64),
    )
    kl = tfp.distributions.kl_divergence(Q, prior)
    draw = layer.sample(covariance_of(layer).ii, seed=0)
    np.testing.assert_allclose(draw.log_ratio, [-kl], rtol=0, atol=1e-8)


@samples
@pytest.mark.parametrize("name", ["Wishart", "inverse Wishart", "GP", "GP as output"])
def test_sampled_log_ratio_is_of_the_posterior_distribution(name: str, samples: int | None) -> None:
    """log P - log Q at the draw, P by the densities of TFP and SciPy."""
    layer, K = LAYERS[name](), covariance(samples)
    layer = copy.deepcopy(layer)
    (layer.posterior if name == "Wishart" else layer).log_ratio = "sampled"
    draw = layer.sample(K.ii, seed=1, num_samples=None if samples else S)
    log_q = layer.posterior_distribution(K.ii).log_prob
    if isinstance(layer, GlobalInducingGP):
        scale = 1.0 if name == "GP as output" else 1.0 / layer.width
        each = np.broadcast_to(K.ii, (S, M, M))
        log_p = [
            multivariate_normal(np.zeros(M), scale * each[s]).logpdf(draw.features[s].numpy().T)
            for s in range(S)
        ]
        expected = np.sum(log_p, 1) - log_q(tf.linalg.matrix_transpose(draw.features))
    else:
        G = draw.inducing.ii
        if isinstance(layer, InverseWishartLayer):
            prior = InverseWishart(layer.delta + M + 1.0, tf.linalg.cholesky(layer.delta * K.ii))
        else:
            prior = Wishart(layer.width, tf.linalg.cholesky(K.ii / layer.width))
        expected = prior.log_prob(G) - log_q(G)
    np.testing.assert_allclose(draw.log_ratio, expected, rtol=0, atol=1e-8)


@samples
@pytest.mark.parametrize("separate_kernels", [False, True])
def test_kl_of_an_output_layer_is_that_of_its_posterior_distribution(
    samples: int | None, separate_kernels: bool
) -> None:
    kernel = SeparateIndependent([Matern32(), Matern32()]) if separate_kernels else None
    layer = output_layer(2, kernel=kernel, shared_precision=not separate_kernels)
    K = covariance(samples).ii
    if separate_kernels:
        K = tf.stack([K, 2.0 * K], -3)
    prior_tril = tf.linalg.cholesky(K)
    prior_tril = prior_tril if separate_kernels else prior_tril[..., None, :, :]
    zero = tf.zeros([*prior_tril.shape[:-3], 2, M], K.dtype)
    prior = tfp.distributions.Independent(
        tfp.distributions.MultivariateNormalTriL(zero, prior_tril), 1
    )
    kl = tfp.distributions.kl_divergence(layer.posterior_distribution(K), prior)
    np.testing.assert_allclose(layer.sample(K).log_ratio, -kl, rtol=0, atol=1e-9)


def test_a_layer_of_ones_own_need_not_state_its_posterior_distribution() -> None:
    class Own(WishartPosterior):
        def sample(self, K: tf.Tensor, **settings: Any) -> Any: ...

    with pytest.raises(NotImplementedError, match="Own does not state its distribution"):
        WishartLayer(M, 2, Own(M, 2)).posterior_distribution(tf.eye(M, dtype=tf.float64))
