"""What the layers hold: Gram matrices at any points, and the output layer's inducing values."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from model_cases import MODELS, M, make_model, regression_data
from prediction_cases import NUM_FEATURES, diwp_of_many_features
from scipy import stats

from gpflow_dkp.models import DeepKernelProcess
from gpflow_dkp.random import split

FALSE_ALARM = 1e-5
SIZE = 4000
X = regression_data()[0][:5]
models = pytest.mark.parametrize("model", ["DWP", "DGP", "DIWP"])


def check_mean(draws: np.ndarray, expected: np.ndarray | float, rounding: float = 1e-9) -> None:
    """The mean of independent draws [n, ...]."""
    error = np.abs(draws.mean(0) - expected)
    quantile = stats.t(len(draws) - 1).isf(0.5 * FALSE_ALARM / draws[0].size)
    allowed = quantile * draws.std(0, ddof=1) / np.sqrt(len(draws)) + rounding
    assert np.all(error <= allowed), np.max(error / allowed)


@pytest.mark.parametrize("posterior", [True, False])
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("model", MODELS)
def test_shapes_and_positive_semi_definiteness(model: str, depth: int, posterior: bool) -> None:
    built = make_model(model, depth)
    pairs = built.sample_grams(X, 4, posterior=posterior, seed=0)
    assert len(pairs) == len(built.layers)
    for number, (K, G) in enumerate(pairs):
        last = number == len(built.layers) - 1
        assert K.shape == ((5, 5) if number == 0 else (4, 5, 5))
        assert (G is None) == last
        for matrix in (K,) if last else (K, G):
            transposed = np.swapaxes(matrix, -1, -2)
            np.testing.assert_allclose(matrix, transposed, rtol=0, atol=1e-10)
            scale = 1.0 + np.max(np.abs(matrix))
            assert np.min(np.linalg.eigvalsh(matrix)) > -1e-10 * scale
        if not last and model in ("DWP", "DGP"):
            # Three functions' Gram matrix.
            assert np.max(np.linalg.eigvalsh(G)[:, :-3]) < 1e-9


def test_one_seed_gives_one_draw() -> None:
    built = make_model("DWP", 3)
    first, again, other, prior = (
        built.sample_grams(X, 3, posterior=posterior, seed=seed)[1][1].numpy()
        for seed, posterior in ((1, True), (1, True), (2, True), (1, False))
    )
    np.testing.assert_array_equal(first, again)
    for different in (other, prior, built.sample_grams(X, 3)[1][1].numpy()):
        assert not np.any(np.isclose(first, different, rtol=0, atol=1e-9))


@models
def test_the_prior_law_has_mean_k(model: str) -> None:
    """E[G | K] = K in every layer, for the inverse Wishart too."""
    built = make_model(model, 3)
    if model == "DIWP":
        for layer in built.hidden_layers:
            layer.delta.assign(9.0)
    pairs = built.sample_grams(X, SIZE, posterior=False, seed=0)
    for K, G in pairs[:-1]:
        check_mean(G.numpy() - K.numpy(), 0.0)
    # The law of a Wishart with 3 degrees of freedom: Var G_ii = 2 K_ii^2 / 3.
    if model != "DIWP":
        K, G = (part.numpy() for part in pairs[0])
        squares = (np.diagonal(G, axis1=-2, axis2=-1) - np.diag(K)) ** 2
        check_mean(squares, 2.0 * np.diag(K) ** 2 / 3.0)


def test_the_prior_law_of_many_features_has_mean_k() -> None:
    built = diwp_of_many_features()
    for layer in built.hidden_layers:
        layer.delta.assign(9.0)
    points = np.random.default_rng(3).normal(size=(3, NUM_FEATURES))
    for K, G in built.sample_grams(points, SIZE, posterior=False, seed=0)[:-1]:
        check_mean(G.numpy() - K.numpy(), 0.0, rounding=1e-5)


def test_the_prior_in_the_data_is_that_of_the_inducing_points() -> None:
    """At the inducing inputs both are one Gram matrix, up to the jitter."""
    built = make_model("DWP", 2, jitter=1e-10)
    Z = built.inducing_variable.Z
    draw = built.sample_layers(50, 3)[0]
    (_, G), _ = built.sample_grams(Z, 50, seed=3)
    np.testing.assert_allclose(G, draw.inducing.ii, rtol=0, atol=1e-3)


@pytest.mark.parametrize("posterior", ["gw", "a-gw", "ab-gw"])
def test_the_posterior_mean_of_the_first_layer_is_in_closed_form(posterior: str) -> None:
    """E_Q[G] of the generalised singular Wishart, narrower and wider than the inducing points."""
    for width in (3, 6):
        built = make_model("DWP", 2, width=width, posterior=posterior, jitter=1e-9)
        Z = built.inducing_variable.Z
        (K, G), _ = built.sample_grams(Z, SIZE, seed=1)
        expected = built.layers[0].posterior.distribution(K).mean().numpy()
        assert expected.shape == (M, M)
        check_mean(G.numpy(), expected, rounding=1e-5)
        assert np.max(np.abs(expected - K)) > 0.1


@models
def test_the_outputs_kernel_is_that_of_the_predictions(model: str) -> None:
    """The last K is GPflow's kernel on features of the last G."""
    built = make_model(model, 2)
    *_, (K, _) = built.sample_grams(X, 6, posterior=False, seed=0)
    *_, (_, G), _ = built.sample_grams(X, 6, posterior=False, seed=0)
    features = np.linalg.cholesky(G + 1e-12 * np.eye(5))
    expected = np.stack([built.kernels[-1](each) for each in features])
    np.testing.assert_allclose(K, expected + float(built.jitter) * np.eye(5), rtol=0, atol=1e-5)


def test_bad_arguments() -> None:
    built = make_model("DWP", 2)
    for arguments, pattern in (
        ((X[:, :1],), r"\(5, 1\), needs 2 columns"),
        ((X[0],), r"needs X \[N, D\]"),
        ((X, 0), "num_samples: got 0"),
        ((X, 2.5), "num_samples: got 2.5"),
    ):
        with pytest.raises(ValueError, match=pattern) as error:
            built.sample_grams(*arguments)
        assert "\n" not in str(error.value)


# The output layer's inducing values


def dense_moments(model: DeepKernelProcess, K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sigma Lambda v and Sigma = (K^{-1} + Lambda)^{-1}."""
    tril, v = model.output_layer.precision_tril.numpy(), model.output_layer.v.numpy()
    precision = tril @ tril.T
    Sigma = np.linalg.inv(np.linalg.inv(K) + precision)
    return Sigma @ precision @ v, Sigma


@pytest.mark.parametrize("num_outputs", [1, 2])
def test_inducing_values_of_one_layer_are_in_closed_form(num_outputs: int) -> None:
    model = make_model("DWP", 1, num_latent_gps=num_outputs)
    K = model.kernels[0](model.inducing_variable.Z).numpy() + float(model.jitter) * np.eye(M)
    for actual, expected in zip(model.output_layer_moments(), dense_moments(model, K), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-9)


@models
def test_inducing_values_of_deep_models_average_over_the_gram_matrices(model: str) -> None:
    """NumPy's formulas on the very Gram matrices that were drawn."""
    built = make_model(model, 2)
    for_draws, _ = split(4, 2)
    draws = built.sample_layers(7, for_draws)
    K = built.layers[-1].covariance(draws[-2].inducing, built.jitter).ii.numpy()
    assert K.shape == (7, M, M)
    each = [dense_moments(built, matrix) for matrix in K]
    expected = [np.mean(part, 0) for part in zip(*each, strict=True)]
    moments = built.output_layer_moments(num_samples=7, seed=for_draws)
    for actual, value in zip(moments, expected, strict=True):
        np.testing.assert_allclose(actual, value, rtol=0, atol=1e-8)


@models
def test_predictions_at_the_inducing_points_are_the_inducing_values(model: str) -> None:
    built = make_model(model, 2, jitter=1e-10)
    Z = built.inducing_variable.Z
    for_draws, for_points = split(4, 2)
    mean, covariance = built.output_layer_moments(num_samples=50, seed=for_draws)
    draws = built.sample_layers(50, for_draws)
    means, covariances = built.condition_layers(
        draws, tf.convert_to_tensor(Z), 50, for_points, full_cov=True
    )
    np.testing.assert_allclose(np.mean(means, 0), mean, rtol=0, atol=1e-3)
    np.testing.assert_allclose(np.mean(covariances, 0)[0], covariance, rtol=0, atol=1e-3)
    predicted, _ = built.predict_f(Z, num_samples=50, seed=4)
    np.testing.assert_allclose(predicted, mean, rtol=0, atol=1e-3)


def test_covariances_of_each_output_are_refused() -> None:
    built = make_model("DWP", 2, num_latent_gps=2, shared_precision=False)
    with pytest.raises(
        ValueError, match=r"^output_layer_moments: .*shared_precision=True"
    ) as error:
        built.output_layer_moments()
    assert "\n" not in str(error.value)
