"""NeuralNetwork with convolutions: against NumPy loops, Keras, all dropout masks, linear regression."""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import Gaussian, Softmax

import gpflow_dkp
from gpflow_dkp.means import convolutional_network
from gpflow_dkp.models import NeuralNetwork
from gpflow_dkp.models.neural_network import INFERENCES
from gpflow_dkp.training import fit

SHAPE = 5, 4, 2
NOISE, PRIOR = 0.3, 0.7
rng = np.random.default_rng(0)
X = rng.normal(size=(12, math.prod(SHAPE)))
Y = X[:, :1] - X[:, 3:4] + 0.3 * rng.normal(size=(12, 1))


def make(inference: str = "map", **settings: Any) -> NeuralNetwork:
    given = {"filters": [3, 2], "image_shape": SHAPE, "hidden_units": [4], "activation": "relu"}
    return NeuralNetwork(
        X.shape[1], Gaussian(NOISE), inference=inference, weight_variance=PRIOR, **given | settings
    )


def hidden_of_loops(image: np.ndarray, weights: list[np.ndarray], offsets: list[np.ndarray]) -> Any:
    """The convolutions' outputs for one image [H, W, C], pixel by pixel."""
    for W, b in zip(weights, offsets, strict=True):
        height, width, channels = image.shape
        filters = W.reshape(3, 3, channels, -1)
        values = np.zeros([height, width, filters.shape[-1]])
        for row, column in np.ndindex(height, width):
            values[row, column] = b
            for i, j in itertools.product(range(3), repeat=2):
                r, c = row + i - 1, column + j - 1
                if 0 <= r < height and 0 <= c < width:
                    values[row, column] += image[r, c] @ filters[i, j]
        values = np.maximum(values, 0.0)
        image = np.array(
            [
                [values[r : r + 2, c : c + 2].max((0, 1)) for c in range(0, width, 2)]
                for r in range(0, height, 2)
            ]
        )
    return image.ravel()


def randomise(model: NeuralNetwork) -> None:
    """Offsets that are not zero."""
    for number, offset in enumerate(model.offsets):
        offset.assign(np.random.default_rng(number).normal(size=offset.shape))


def test_it_is_the_function_of_slow_loops() -> None:
    model = make()
    randomise(model)
    weights, offsets = ([v.numpy()[0] for v in vs] for vs in (model.weights, model.offsets))
    hidden = np.array([hidden_of_loops(x.reshape(SHAPE), weights[:2], offsets[:2]) for x in X])
    hidden = np.maximum(hidden @ weights[2] + offsets[2], 0.0)
    expected = hidden @ weights[3] + offsets[3]
    np.testing.assert_allclose(model.predict_f(X)[0], expected, rtol=0, atol=1e-12)


def test_it_is_the_network_of_the_mean() -> None:
    """`gwi-cnn` and its baselines have one architecture."""
    keras = convolutional_network((8, 8, 1), 3, seed=1)
    images = np.random.default_rng(1).normal(size=(6, 64))
    model = NeuralNetwork(
        64,
        Softmax(3),
        filters=(16, 16, 16),
        image_shape=(8, 8, 1),
        hidden_units=(64,),
        activation="relu",
        inference="map",
    )
    values = iter(keras.get_weights())
    for weight, offset in zip(model.weights, model.offsets, strict=True):
        weight.assign(next(values).reshape(weight.shape))
        offset.assign(next(values).reshape(offset.shape))
    np.testing.assert_allclose(model.predict_f(images)[0], keras(images), rtol=0, atol=2e-6)


def test_each_draw_of_the_weights_is_a_network_of_its_own() -> None:
    model = make("mean-field")
    randomise(model)
    draws, _ = model.sample_layers(3, 0)
    together = model.condition_layers((draws, []), tf.constant(X), 3, 0)[0]
    for number in range(3):
        alone = make()
        values = [tensor[number : number + 1] for pair in draws for tensor in pair]
        for parameter, value in zip(alone._values(), values, strict=True):
            parameter.assign(value)
        np.testing.assert_allclose(together[number], alone.predict_f(X)[0], rtol=0, atol=1e-12)


def test_dropout_leaves_out_filters_at_places() -> None:
    """Mean and variance over the 2^4 masks of one filter's four pixels, which hold for all images alike."""
    rate, S = 0.3, 20_000
    model = NeuralNetwork(
        4,
        inference="dropout",
        filters=[1],
        image_shape=(2, 2, 1),
        hidden_units=[],
        activation="relu",
        dropout_rate=rate,
        seed=2,
    )
    model.offsets[0].assign([[[0.8]]])
    images = np.random.default_rng(3).normal(size=(3, 4))
    W, V = (weight.numpy()[0] for weight in model.weights)
    padded = np.pad(images.reshape(3, 2, 2), [(0, 0), (1, 1), (1, 1)])
    units = np.stack(
        [
            (padded[:, r : r + 3, c : c + 3].reshape(3, 9) @ W)[:, 0] + 0.8
            for r, c in itertools.product(range(2), repeat=2)
        ],
        -1,
    )
    masks = np.array(list(itertools.product([0.0, 1.0], repeat=4)))
    probabilities = np.prod(np.where(masks > 0, 1.0 - rate, rate), 1)
    kept = np.maximum(units, 0.0) * masks[:, None] / (1.0 - rate)
    outputs = kept.max(-1) * V[0, 0]
    draws = np.asarray(model.predict_mixture(images, num_samples=S, seed=1).mean)[..., 0]
    expected = probabilities @ outputs
    spread = probabilities @ outputs**2 - expected**2
    assert spread.min() > 1e-3
    np.testing.assert_allclose(draws.mean(0), expected, atol=5 * np.sqrt(spread.max() / S))
    np.testing.assert_allclose(draws.var(0), spread, rtol=0.05)


@pytest.mark.parametrize("filters", [[3, 2], []])
@pytest.mark.parametrize("full_cov", [False, True])
def test_laplace_of_the_last_layer_is_linear_regression(filters: list[int], full_cov: bool) -> None:
    """On the hidden units as they are: the exact posterior's covariance."""
    model = make("laplace", curvature="last-layer", filters=filters)
    randomise(model)
    model.find_curvature((X, Y))
    weights, offsets = ([v.numpy()[0] for v in vs] for vs in (model.weights, model.offsets))
    images = [hidden_of_loops(x.reshape(SHAPE), weights[:-2], offsets[:-2]) for x in X]
    hidden = np.maximum(np.array(images) @ weights[-2] + offsets[-2], 0.0)
    A = np.hstack([hidden, np.ones([len(X), 1])])
    expected = A @ np.linalg.inv(A.T @ A / NOISE + np.eye(5) / PRIOR) @ A.T
    mean, variance = model.predict_f(X, full_cov=full_cov)
    expected = expected[None] if full_cov else np.diag(expected)[:, None]
    np.testing.assert_allclose(variance, expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(mean, A @ np.vstack([weights[-1], offsets[-1]]), atol=1e-10)


def test_curvature_of_convolutions_is_that_of_finite_differences() -> None:
    model = make("laplace", filters=[2], hidden_units=[2])
    randomise(model)
    model.find_curvature((X, Y))
    values = model._values()
    start = [value.numpy() for value in values]
    columns = []
    for value, at in zip(values, start, strict=True):
        for index in np.ndindex(*at.shape):
            sides = []
            for step in (1e-6, -1e-6):
                moved = at.copy()
                moved[index] += step
                value.assign(moved)
                sides.append(model._network(tf.constant(X), model._draw_weights(1, 0), [])[0])
            columns.append((sides[0] - sides[1]) / 2e-6)
            value.assign(at)
    J = np.concatenate(columns, -1)
    tril = model.precision_tril.numpy()
    expected = J.T @ J / NOISE + np.eye(J.shape[1]) / PRIOR
    np.testing.assert_allclose(tril @ tril.T, expected, rtol=0, atol=1e-6 * expected.max())


@pytest.mark.parametrize("inference", INFERENCES)
def test_training_raises_the_objective_and_a_file_keeps_the_model(
    inference: str, tmp_path: Path
) -> None:
    model = make(inference, curvature="last-layer", num_samples=2)
    history = fit(model, (X, Y), num_steps=60, learning_rate=0.02, progress=False, seed=0)
    assert np.mean(history.elbo[-10:]) > np.mean(history.elbo[:10])
    if inference == "laplace":
        model.find_curvature((X, Y))
    model.save(tmp_path / "network.dkp")
    loaded = gpflow_dkp.load(tmp_path / "network.dkp")
    for ours, theirs in zip(model.predict_y(X, seed=1), loaded.predict_y(X, seed=1), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-12)
    assert model.sample_prior(X, 3, seed=0).shape == (3, 12, 1)


def test_what_is_not_allowed_is_said() -> None:
    for settings, says in (
        ({"image_shape": None}, r"filters: image_shape is None, needs height, width and channels"),
        ({"image_shape": (5, 4, 1)}, r"image_shape: got \(5, 4, 1\), needs .* num_features, 40"),
        ({"image_shape": (40,)}, r"image_shape: got \(40,\), needs height, width and channels"),
        ({"image_shape": 5}, r"image_shape: got 5, needs a list of integers"),
        ({"filters": [0]}, r"filters: got 0"),
        ({"curvature": "kfac"}, r"curvature: got 'kfac', choose one of full, last-layer"),
    ):
        with pytest.raises(ValueError, match=says):
            make(**settings)


@pytest.mark.parametrize("inference", INFERENCES)
def test_mixed_precision_agrees_with_double(inference: str) -> None:
    """The objective and its gradient agree as float32 lets them, and what comes out is double."""
    values, gradients = [], []
    for precision in ("full", "mixed"):
        model = make(inference, precision=precision)
        randomise(model)
        with tf.GradientTape() as tape:
            value = model.elbo((X, Y), num_samples=2, seed=3)
        values.append(value)
        gradients.append(tape.gradient(value, [v.unconstrained_variable for v in model.weights]))
        mean, variance = model.predict_f(X)
        assert {value.dtype, mean.dtype, variance.dtype} == {tf.float64}
    assert 0 < abs(values[0] - values[1]) < 2e-7 * abs(values[0])
    for full, mixed in zip(*gradients, strict=True):
        np.testing.assert_allclose(mixed, full, rtol=0, atol=1e-6 * np.abs(full).max())
        assert np.any(full != mixed)


def test_precision_has_two_values() -> None:
    with pytest.raises(ValueError, match=r"precision: got 'single', choose one of full, mixed"):
        make(precision="single")
