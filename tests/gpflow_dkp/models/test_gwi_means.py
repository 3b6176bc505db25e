"""GWI's means: kernel expansions, Keras models, modules, functions, networks with priors."""

import copy
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import Gaussian
from gwi_cases import (
    JITTER,
    NOISE,
    NUM_DATA,
    XNEW,
    D,
    M,
    N,
    X,
    Y,
    Z,
    keras_network,
    kernel_matrix,
    make_model,
    prior_mean,
    se,
)
from scipy import stats

from gpflow_dkp.means import KerasMean, KernelExpansion, as_mean, convolutional_network
from gpflow_dkp.models import GWI
from gpflow_dkp.networks import MultilayerPerceptron
from gpflow_dkp.training import fit


@pytest.mark.parametrize("with_mean", [False, True])
def test_kernel_expansion_interpolates_as_regression_does(with_mean: bool) -> None:
    """Over all the points, whitened or not: the posterior mean of GPflow's GPR."""
    mean = prior_mean() if with_mean else None
    gpr = gpflow.models.GPR((X, Y), se(), mean_function=mean, noise_variance=NOISE)
    expected, _ = gpr.predict_f(XNEW)
    expansions = []
    for whiten in (True, False):
        expansion = KernelExpansion(se(), X, 2, prior_mean=mean, whiten=whiten)
        before = expansion(tf.constant(XNEW))
        assert before.shape[0] == 7
        np.testing.assert_allclose(before - (mean(XNEW) if with_mean else 0.0), 0.0, atol=1e-15)
        expansion.interpolate(Y, NOISE)
        np.testing.assert_allclose(expansion(tf.constant(XNEW)), expected, rtol=0, atol=1e-9)
        expansions.append(expansion)
    whitened, plain = (expansion.weights.numpy() for expansion in expansions)
    beta = np.linalg.solve(
        kernel_matrix(X, X) + NOISE * np.eye(N), Y - (mean(X).numpy() if with_mean else 0.0)
    )
    np.testing.assert_allclose(plain, beta, atol=1e-9)
    tril = np.linalg.cholesky(kernel_matrix(X, X) + JITTER * np.eye(N))
    np.testing.assert_allclose(whitened, tril.T @ beta, atol=1e-9)


def test_expansion_over_more_points_than_the_variance_has() -> None:
    kernel = se()
    expansion = KernelExpansion(kernel, X, 2)
    model = make_model(kernel=kernel, mean=expansion)
    expansion.interpolate(Y, NOISE)
    gpr = gpflow.models.GPR((X, Y), kernel, noise_variance=NOISE)
    np.testing.assert_allclose(model.predict_f(XNEW)[0], gpr.predict_f(XNEW)[0], atol=1e-9)
    assert not model.mean.points.Z.trainable
    # The kernel is one for both, in a copy too.
    copied = copy.deepcopy(model)
    copied.kernel.lengthscales.assign([0.5, 0.5])
    assert not np.allclose(copied.predict_f(XNEW)[0], model.predict_f(XNEW)[0], atol=1e-3)


def with_keras(*layers: Any) -> tuple[Any, GWI]:
    network = keras_network(*layers)
    return network, make_model(mean=network, at_prior=True)


def test_keras_mean_is_its_network() -> None:
    """A single-precision network under a double-precision model."""
    network, model = with_keras()
    assert network.weights[0].dtype == "float32"
    mean, _ = model.predict_f(XNEW)
    assert mean.dtype == tf.float64
    np.testing.assert_allclose(mean, network(XNEW.astype(np.float32)), rtol=1e-6)
    names = [variable.shape for variable in model.trainable_variables]
    assert sorted(map(tuple, names), key=str) == sorted(
        [(2, 10), (M, D), (), (), (2,), (2, 4), (4,), (4, 2), (2,)], key=str
    )


def test_keras_weights_are_trained() -> None:
    network, model = with_keras()
    before, bound = network.get_weights(), float(model.elbo((X, Y), seed=0))
    fit(model, (X, Y), num_steps=30, learning_rate=0.03, kl_annealing_steps=0, progress=False)
    for old, new in zip(before, network.get_weights(), strict=True):
        assert np.all(old != new)
    assert float(model.elbo((X, Y), seed=0)) > bound + 1.0


def test_frozen_keras_layers_stay() -> None:
    network = keras_network()
    network.layers[0].trainable = False
    model = make_model(mean=network, at_prior=True)
    trained = {id(variable) for variable in model.trainable_variables}
    assert [id(weight.value) in trained for weight in network.weights] == [False, False, True, True]


@pytest.mark.parametrize("copy_of", [copy.deepcopy, gpflow.utilities.deepcopy])
def test_copy_of_a_keras_mean_is_equal_and_independent(copy_of: Callable) -> None:
    network, model = with_keras()
    copied = copy_of(model)
    before = model.predict_f(XNEW)[0].numpy()
    np.testing.assert_array_equal(copied.predict_f(XNEW)[0], before)
    assert len(copied.trainable_variables) == len(model.trainable_variables)
    for variable in copied.mean.network_variables:
        variable.assign(variable + 0.1)
    np.testing.assert_array_equal(model.predict_f(XNEW)[0], before)
    assert not np.allclose(copied.predict_f(XNEW)[0], before, atol=1e-6)
    assert isinstance(copied.mean, KerasMean)
    assert copied.mean.network is not network


class Cubic(tf.Module):
    """A mean that nothing but TensorFlow knows."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.Variable([[0.5, -0.5], [0.2, 0.1]], dtype=tf.float64)

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return x**3 @ self.weight


def test_a_module_as_mean_is_trained() -> None:
    model = make_model(mean=Cubic(), num_data=NUM_DATA)
    weight = model.mean.weight
    np.testing.assert_allclose(model.predict_f(XNEW)[0], XNEW**3 @ weight.numpy())
    assert any(variable is weight for variable in model.trainable_variables)
    with tf.GradientTape() as tape:
        bound = model.elbo((X, Y), seed=0)
    residual = NUM_DATA / N * (Y - X**3 @ weight.numpy()) / NOISE - 2.0 / N * X**3 @ weight.numpy()
    np.testing.assert_allclose(tape.gradient(bound, weight), (X**3).T @ residual, rtol=1e-9)


def test_a_function_as_mean_has_nothing_to_train() -> None:
    model = make_model(mean=lambda x: tf.cast(x, tf.float32))
    mean, _ = model.predict_f(XNEW)
    assert mean.dtype == tf.float64
    np.testing.assert_allclose(mean, XNEW, rtol=1e-6)
    assert len(model.trainable_variables) == len(make_model().trainable_variables) - 1


def test_weights_have_a_normal_prior_and_offsets_none() -> None:
    network = MultilayerPerceptron(D, 2, hidden_units=(5,), weight_variance=0.3, seed=1)
    network = gpflow.utilities.deepcopy(network)
    expected = sum(np.sum(stats.norm.logpdf(w.numpy(), 0.0, 0.3**0.5)) for w in network.weights)
    priors = [parameter.log_prior_density() for parameter in network.trainable_parameters]
    assert float(sum(priors)) == pytest.approx(expected, rel=1e-12)
    assert all(offset.prior is None for offset in network.offsets)
    assert all(w.prior is None for w in MultilayerPerceptron(D, 2).weights)


def test_linear_network_with_a_weight_prior_is_ridge_regression() -> None:
    """Without hidden layers the optimum is known: the distance adds mean(m_Q^2), the prior the ridge."""
    noise, weight_variance = 0.3, 0.05
    model = GWI.net(
        se(),
        Gaussian(noise),
        Z,
        hidden_units=(),
        weight_variance=weight_variance,
        cross_term="exact",
        num_latent_gps=2,
    )
    gpflow.set_trainable(model, False)
    gpflow.set_trainable(model.mean, True)
    fit(
        model,
        (X, Y),
        num_steps=2_000,
        learning_rate=[(0.0, 0.02), (0.7, 0.001)],
        kl_annealing_steps=0,
        progress=False,
    )
    inputs = np.column_stack([X, np.ones(N)])
    ridge = np.diag([1.0 / weight_variance] * D + [0.0])
    gram = (1.0 / noise + 2.0 / N) * inputs.T @ inputs + ridge
    expected = np.linalg.solve(gram, inputs.T @ Y / noise)
    found = np.vstack([model.mean.weights[0], model.mean.offsets[0]])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_convolutional_network_is_a_mean() -> None:
    network = convolutional_network((6, 6, 1), 3, filters=(2,), dense_units=(4,), seed=0)
    again = convolutional_network((6, 6, 1), 3, filters=(2,), dense_units=(4,), seed=0)
    other = convolutional_network((6, 6, 1), 3, filters=(2,), dense_units=(4,), seed=1)
    images = np.random.default_rng(0).normal(size=[5, 36])
    mean = as_mean(network, 36, 3)
    assert isinstance(mean, KerasMean)
    value = mean(tf.constant(images))
    assert value.shape == (5, 3)
    np.testing.assert_array_equal(value, as_mean(again, 36, 3)(tf.constant(images)))
    assert not np.allclose(value, as_mean(other, 36, 3)(tf.constant(images)))


# Networks that are another function in training


def normalised(frozen: bool = False) -> Any:
    layer = tf.keras.layers.BatchNormalization()
    layer.trainable = not frozen
    return keras_network(layer)


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras_network(tf.keras.layers.Dropout(0.01)),
        lambda: keras_network(tf.keras.layers.GaussianNoise(0.1)),
        normalised,
        lambda: keras_network(keras_network(tf.keras.layers.Dropout(0.5), num_inputs=4)),
    ],
    ids=["dropout", "noise", "batch normalisation", "nested"],
)
def test_networks_that_differ_in_training_are_refused(make: Callable) -> None:
    network = make()
    before = [variable.numpy() for variable in network.variables]
    with pytest.raises(ValueError, match="mean: Sequential is another function in training, as"):
        make_model(mean=network)
    for variable, value in zip(network.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_frozen_batch_normalisation_keeps_its_averages() -> None:
    network = normalised(frozen=True)
    model = make_model(mean=network, at_prior=True)
    first, second = (float(model.elbo((X, Y), seed=0)) for _ in range(2))
    assert first == second
    averages = [variable.numpy() for variable in network.non_trainable_variables]
    fit(model, (X, Y), num_steps=5, progress=False)
    assert len(averages) >= 2
    for variable, value in zip(network.non_trainable_variables, averages, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


# The jitter of a kernel expansion


def test_an_expansion_sees_a_raised_jitter() -> None:
    """Where `fit` looks for one: an attribute of the model's parts, and no parameter."""
    expansion = KernelExpansion(se(), X, 2)
    model = make_model(mean=expansion)
    assert any(getattr(part, "jitter", None) is expansion.jitter for part in model.submodules)
    assert all(variable is not expansion.jitter for variable in model.trainable_variables)
    assert float(expansion.jitter) == gpflow.default_jitter()
    expansion.weights.assign(np.ones([N, 2]))
    compiled = tf.function(expansion, autograph=False)
    before = compiled(tf.constant(XNEW)).numpy()
    expansion.jitter.assign(0.1)
    tril = np.linalg.cholesky(kernel_matrix(X, X) + 0.1 * np.eye(N))
    expected = kernel_matrix(XNEW, X) @ np.linalg.inv(tril).T @ np.ones([N, 2])
    assert not np.allclose(before, expected, atol=1e-3)
    np.testing.assert_allclose(compiled(tf.constant(XNEW)), expected, rtol=1e-9)
    assert float(KernelExpansion(se(), X, 2, jitter=1e-3).jitter) == 1e-3
