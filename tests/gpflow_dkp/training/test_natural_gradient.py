"""Natural-gradient steps: GPflow's, the optimum in one step, and what happens to a step too long."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from fit_cases import numbers, toy_data, toy_model
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Bernoulli, Gaussian, Likelihood

from gpflow_dkp.layers import SparseGP
from gpflow_dkp.models import DWP, LatentVariableDGP
from gpflow_dkp.random import as_seed
from gpflow_dkp.training import ExponentialDecay, History, fit

X, Y = toy_data(30)
Y = np.hstack([Y, 1.0 - Y])
LABELS = (Y > 0.5).astype(float)
M = 6


def model(whiten: bool = True, likelihood: Likelihood | None = None) -> LatentVariableDGP:
    """One sparse GP of two outputs, q away from the prior."""
    rng = np.random.default_rng(0)
    layer = SparseGP(SquaredExponential(), np.linspace(-2, 2, M)[:, None], 2, whiten=whiten)
    layer.q_mu.assign(0.3 * rng.normal(size=(M, 2)))
    layer.q_sqrt.assign(np.eye(M) + 0.1 * np.tril(rng.normal(size=(2, M, M))))
    return LatentVariableDGP([layer], likelihood or Gaussian(0.3), inference="vi")


def only_q(built: LatentVariableDGP) -> LatentVariableDGP:
    """The model with nothing trainable but q."""
    for part in (built.likelihood, built.output_layer.kernel, built.output_layer.inducing_variable):
        gpflow.set_trainable(part, False)
    return built


def covariance(built: LatentVariableDGP) -> np.ndarray:
    tril = built.output_layer.q_sqrt.numpy()
    return tril @ np.swapaxes(tril, -1, -2)


def step(built: LatentVariableDGP, size: float, targets: np.ndarray = Y) -> History:
    return fit(
        built,
        (X, targets),
        num_steps=1,
        kl_annealing_steps=0,
        natural_gradient=size,
        progress=False,
    )


@pytest.mark.parametrize("whiten", [True, False])
def test_one_unit_step_reaches_the_collapsed_bound_of_a_gaussian_model(whiten: bool) -> None:
    built = only_q(model(whiten))
    layer = built.output_layer
    collapsed = gpflow.models.SGPR(
        (X, Y), layer.kernel, layer.inducing_variable, noise_variance=0.3
    ).elbo()
    assert built.elbo((X, Y)) < collapsed - 1.0
    step(built, 1.0)
    np.testing.assert_allclose(built.elbo((X, Y)), collapsed, rtol=1e-9)


@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("size", [0.1, 0.7])
@pytest.mark.parametrize("targets", [Y, LABELS], ids=["gaussian", "bernoulli"])
def test_a_step_is_gpflows(whiten: bool, size: float, targets: np.ndarray) -> None:
    def make() -> LatentVariableDGP:
        return only_q(model(whiten, Bernoulli() if targets is LABELS else None))

    ours, theirs = make(), make()
    step(ours, size, targets)
    layer = theirs.output_layer
    optimizer = gpflow.optimizers.NaturalGradient(size)
    optimizer.minimize(lambda: theirs.training_loss((X, targets)), [(layer.q_mu, layer.q_sqrt)])
    np.testing.assert_allclose(ours.output_layer.q_mu, layer.q_mu, rtol=1e-8)
    np.testing.assert_allclose(covariance(ours), covariance(theirs), rtol=1e-8, atol=1e-10)


def test_a_step_too_long_is_halved_until_the_covariance_is_positive_definite() -> None:
    """From a covariance below the optimum the precision falls: a long step makes it negative."""
    long, short = only_q(model()), only_q(model())
    for built in (long, short):
        built.output_layer.q_sqrt.assign(np.tile(0.01 * np.eye(M), [2, 1, 1]))
    history = step(long, 1.5)
    assert history.halvings == [0]
    assert step(short, 0.75).halvings == []
    np.testing.assert_allclose(covariance(long), covariance(short), rtol=1e-10)
    np.testing.assert_allclose(long.output_layer.q_mu, short.output_layer.q_mu, rtol=1e-10)


def test_adam_trains_the_rest_and_leaves_q() -> None:
    """With a step size of next to nothing q stays, and the other parameters go as without it."""
    natural, frozen = model(), model()
    before = natural.output_layer.q_mu.numpy()
    gpflow.set_trainable(frozen.output_layer.q_mu, False)
    gpflow.set_trainable(frozen.output_layer.q_sqrt, False)
    settings = {"num_steps": 5, "progress": False}
    fit(natural, (X, Y), natural_gradient=1e-12, **settings)
    fit(frozen, (X, Y), **settings)
    np.testing.assert_allclose(natural.output_layer.q_mu, before, atol=1e-8)
    np.testing.assert_allclose(
        natural.output_layer.kernel.lengthscales, frozen.output_layer.kernel.lengthscales, rtol=1e-6
    )
    assert natural.output_layer.kernel.lengthscales.numpy() != 1.0


def test_the_step_size_follows_its_schedule() -> None:
    """Ten steps of 0.1, then of 0.05: the same as two runs with these sizes."""
    whole, parts = only_q(model()), only_q(model())
    settings = {"kl_annealing_steps": 0, "progress": False}
    decay = ExponentialDecay(0.1, factor=0.5, every=10)
    fit(whole, (X, Y), num_steps=20, natural_gradient=decay, **settings)
    for size in (0.1, 0.05):
        fit(parts, (X, Y), num_steps=10, natural_gradient=size, **settings)
    np.testing.assert_allclose(whole.output_layer.q_mu, parts.output_layer.q_mu, rtol=1e-10)


def test_a_run_goes_on_from_its_checkpoint_to_the_same_numbers(tmp_path) -> None:  # type: ignore[no-untyped-def]
    class StoppedError(Exception):
        pass

    def stop(done: int) -> None:
        if done == 100:
            raise StoppedError

    settings = {
        "num_steps": 150,
        "batch_size": 10,
        "learning_rate": ExponentialDecay(5e-3, every=40),
        "natural_gradient": ExponentialDecay(1e-2, every=40),
        "progress": False,
    }
    unbroken = model()
    expected = numbers(unbroken, fit(unbroken, (X, Y), **settings))
    settings |= {"checkpoint_dir": tmp_path, "checkpoint_seconds": 0.0}
    with pytest.raises(StoppedError):
        fit(model(), (X, Y), callbacks=[stop], **settings)
    resumed = model()
    assert numbers(resumed, fit(resumed, (X, Y), **settings)) == expected


# Output layers with global inducing points


def global_model(depth: int = 1, num_samples: int = 3) -> DWP:
    built = toy_model("DWP", depth, num_latent_gps=2, num_samples=num_samples)
    built.output_layer.v.assign(np.random.default_rng(0).normal(size=(4, 2)))
    return built


def test_one_unit_step_of_pseudo_observations_reaches_the_collapsed_bound() -> None:
    """Without hidden layers, from any start: DWP's optimum is SGPR's, of the same jitter."""
    built = global_model()
    for part in (built.likelihood, built.kernels[0], built.inducing_variable):
        gpflow.set_trainable(part, False)
    collapsed = gpflow.models.SGPR(
        (X, Y), built.kernels[0], built.inducing_variable, noise_variance=0.5
    ).elbo()
    assert built.elbo((X, Y)) < collapsed - 1.0
    assert step(built, 1.0).halvings == []
    np.testing.assert_allclose(built.elbo((X, Y)), collapsed, rtol=1e-6)
    # and stays there
    step(built, 0.5)
    np.testing.assert_allclose(built.elbo((X, Y)), collapsed, rtol=1e-6)


def test_sites_are_the_gradients_in_the_expectations() -> None:
    """Of E = -((y - a^T m)^2 + a^T S a) / (2 noise) a point: sums of y a and of a a^T over noise."""
    built = global_model(depth=2)
    linear, curvature = (site.numpy() for site in built.output_sites((X, Y), seed=1))
    chains = built._output_covariances(tf.constant(X), built.num_samples, as_seed(1))
    expected_linear, expected_curvature = 0.0, 0.0
    for covariance, _ in chains:
        K, cross = covariance.ii.numpy(), covariance.it.numpy()
        for s in range(len(K)):
            weights = np.linalg.solve(K[s], cross[s])
            expected_linear += weights @ Y / 0.5
            expected_curvature += weights @ weights.T / 0.5
    np.testing.assert_allclose(linear, expected_linear / 3, rtol=1e-8)
    np.testing.assert_allclose(curvature, expected_curvature / 3, rtol=1e-8)


@pytest.mark.parametrize("model_name", ["DWP", "DGP"])
def test_natural_steps_of_a_deep_model_raise_its_bound(model_name: str) -> None:
    built = toy_model(model_name, 2, num_samples=20)
    for layer in (*built.kernels, built.likelihood, built.inducing_variable, *built.hidden_layers):
        gpflow.set_trainable(layer, False)
    targets = Y[:, :1]
    before = built.elbo((X, targets), num_samples=200, seed=0)
    settings = {"kl_annealing_steps": 0, "natural_gradient": 0.3, "progress": False}
    history = fit(built, (X, targets), num_steps=30, **settings)
    assert built.elbo((X, targets), num_samples=200, seed=0) > before + 1.0
    assert history.halvings == []


def test_q_that_is_not_trainable_is_refused() -> None:
    built = model()
    gpflow.set_trainable(built.output_layer.q_sqrt, False)
    with pytest.raises(ValueError, match=r"the output layer's q_sqrt is not trainable"):
        step(built, 0.1)
