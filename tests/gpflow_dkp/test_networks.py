"""The multilayer perceptron."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from gpflow_dkp.layers import Encoder
from gpflow_dkp.networks import MultilayerPerceptron

D = 2
XNEW = np.random.default_rng(0).uniform(-2.5, 2.5, size=(7, D))
FALSE_ALARM = 1e-5
"""Chance that a statistical test of a correct network fails."""


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_perceptron_is_its_matrix_products(activation: str) -> None:
    network = MultilayerPerceptron(D, 2, hidden_units=(5, 3), activation=activation, seed=1)
    for offset in network.offsets:
        offset.assign(np.random.default_rng(2).normal(size=offset.shape))
    hidden = XNEW
    for weight, offset in zip(network.weights, network.offsets, strict=True):
        linear = hidden @ weight.numpy() + offset.numpy()
        hidden = np.tanh(linear) if activation == "tanh" else np.maximum(linear, 0.0)
    np.testing.assert_allclose(network(XNEW), linear, rtol=1e-12)
    assert [weight.shape for weight in network.weights] == [(2, 5), (5, 3), (3, 2)]
    other = MultilayerPerceptron(D, 2, hidden_units=(5, 3), seed=3)
    assert not np.allclose(other.weights[0], network.weights[0])


def test_perceptron_starts_with_glorots_variance() -> None:
    """A sum of 10^4 squares: a false alarm has a chance of 1e-5."""
    weights = MultilayerPerceptron(100, hidden_units=(100,)).weights[0].numpy()
    statistic = np.sum(weights**2) / (2.0 / 200.0)
    low, high = stats.chi2(10_000).ppf([0.5 * FALSE_ALARM, 1.0 - 0.5 * FALSE_ALARM])
    assert low < statistic < high


def test_skip_connections_where_widths_agree() -> None:
    """Of three hidden layers the second and third; the starting values do not depend on them."""
    settings = {"hidden_units": (4, 4, 4), "seed": 5}
    network, plain = (
        MultilayerPerceptron(D, 2, skip_connections=skips, **settings) for skips in (True, False)
    )
    *weights, last = [weight.numpy() for weight in network.weights]
    hidden = np.tanh(XNEW @ weights[0])
    for weight in weights[1:]:
        hidden = np.tanh(hidden @ weight) + hidden
    np.testing.assert_allclose(network(XNEW), hidden @ last, rtol=1e-12)
    for ours, theirs in zip(network.weights, plain.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert not np.allclose(network(XNEW), plain(XNEW), atol=1e-3)


def test_the_encoder_is_such_a_network() -> None:
    encoder = Encoder(D, 2, widths=(3, 3), bias=-1.0, seed=[1, 2])
    network = MultilayerPerceptron(D, 4, hidden_units=(3, 3), skip_connections=True, seed=[1, 2])
    mean, log_variance = np.split(network(XNEW).numpy(), 2, axis=1)
    np.testing.assert_array_equal(encoder(tf.constant(XNEW))[0], mean)
    np.testing.assert_allclose(encoder(tf.constant(XNEW))[1], np.exp(log_variance - 1.0))
