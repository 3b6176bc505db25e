"""The conditional VAE: a linear one is Gaussian, and has its marginal likelihood in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from scipy import stats

from gpflow_dkp.models import ConditionalVAE


def vae(hidden_units: tuple[int, ...] = ()) -> ConditionalVAE:
    model = ConditionalVAE(2, 1, hidden_units=hidden_units, seed=3)
    rng = np.random.default_rng(0)
    for offset in (*model.decoder.offsets, *model.encoder.offsets):
        offset.assign(rng.normal(size=offset.shape))
    return model


def test_linear_vae_stays_below_its_marginal_likelihood_and_reaches_it() -> None:
    """y = a z + b x + c + noise: p(y | x) is Gaussian, and so is the exact posterior of z."""
    model = vae()
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(6, 2)), rng.normal(size=(6, 1))
    a, b = np.split(model.decoder.weights[0].numpy(), [1])
    noise = float(model.likelihood.variance.numpy())
    mean, total = X @ b + model.decoder.offsets[0].numpy(), float(a[0, 0]) ** 2 + noise
    exact = stats.norm.logpdf(Y, mean, np.sqrt(total)).sum()
    assert model.elbo((X, Y), num_samples=500, seed=0) < exact - 0.1
    # the posterior N(a (y - m) / total, noise / total), linear in x and y
    gain = float(a[0, 0]) / total
    weight = np.zeros((3, 2))
    weight[:, 0] = [*(-gain * b[:, 0]), gain]
    model.encoder.weights[0].assign(weight)
    offset = -gain * model.decoder.offsets[0].numpy()[0]
    model.encoder.offsets[0].assign([offset, np.log(noise / total)])
    bound = model.elbo((X, Y), num_samples=20_000, seed=0)
    np.testing.assert_allclose(bound, exact, atol=0.05)


def test_vae_decoder_is_a_tanh_network() -> None:
    model = vae((4, 3))
    X = np.random.default_rng(1).normal(size=(5, 2))
    means, variances = model.predict_mixture(X, num_samples=3, seed=1)
    latent = np.zeros((3, 5, 1))
    decoded, _ = model._decode(tf.constant(X), tf.constant(latent))
    hidden = np.concatenate([latent, np.tile(X, [3, 1, 1])], -1)
    for weight, offset in list(zip(model.decoder.weights, model.decoder.offsets, strict=True))[:-1]:
        hidden = np.tanh(hidden @ weight.numpy() + offset.numpy())
    expected = hidden @ model.decoder.weights[-1].numpy() + model.decoder.offsets[-1].numpy()
    np.testing.assert_allclose(decoded, expected, rtol=1e-12)
    assert means.shape == (3, 5, 1)
    np.testing.assert_allclose(variances, model.likelihood.variance.numpy(), rtol=1e-9)


def test_vae_draws_one_latent_variable_a_prediction_and_one_a_point_jointly() -> None:
    model = vae((3,))
    X = np.ones((4, 2))  # g differs between points by their latent variables alone
    together = model.predict_mixture(X, num_samples=5, seed=0)[0].numpy()
    np.testing.assert_allclose(together, np.broadcast_to(together[:, :1], together.shape))
    apart = model.sample_prior(X, 5, seed=0)
    assert apart.shape == (5, 4, 1)
    assert np.std(apart, axis=1).min() > 1e-3
    _, covariance = model.condition_layers((), tf.constant(X), 5, 0, full_cov=True)
    assert covariance.shape == (5, 1, 4, 4)


def test_vae_bound_is_of_rows_alone_and_is_one() -> None:
    model = vae()
    X, Y = np.ones((3, 2)), np.ones((3, 1))
    local, shared = model.elbo_terms((X, Y), num_samples=2, seed=0)
    assert shared == 0.0
    np.testing.assert_allclose(model.elbo((X, Y), num_samples=2, seed=0), local)
    assert model.objective_is_bound


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_features": 0}, r"num_features: got 0, needs an integer of at least 1"),
        ({"num_features": 2.0}, r"num_features: got 2.0, needs an integer of at least 1"),
        ({"num_outputs": -1}, r"num_outputs: got -1, needs an integer of at least 1"),
        ({"hidden_units": 10}, r"hidden_units: got 10, needs a list of integers"),
        ({"hidden_units": "10"}, r"hidden_units: got '10', needs a list of integers"),
        ({"hidden_units": (5, 0)}, r"hidden_units: got 0, needs an integer of at least 1"),
        ({"latent_dim": 0}, r"latent_dim: got 0, needs an integer of at least 1"),
        ({"num_samples": 0}, r"num_samples: got 0, needs an integer of at least 1"),
        ({"num_data": 0}, r"num_data: got 0, needs an integer of at least 1"),
        ({"seed": -1}, r"seed: got -1, needs an integer of at least 0"),
        ({"seed": None}, r"seed: got None, needs an integer of at least 0"),
    ],
)
def test_vae_refuses_bad_arguments_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        ConditionalVAE(**{"num_features": 2, **changes})


def test_conditioning_on_a_single_column_is_refused() -> None:
    with pytest.raises(ShapeMismatchError, match="X"):
        vae().condition_layers((), tf.zeros([4], tf.float64), 3, 0)
