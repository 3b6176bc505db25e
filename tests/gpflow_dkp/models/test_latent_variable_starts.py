"""Where deep GPs of latent variables start: the last kernel is that of GP regression on some of the data."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow_probability as tfp
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Bernoulli, Gaussian, Poisson, Softmax, StudentT, SwitchedLikelihood

from gpflow_dkp.models import GWI, LatentVariableDGP
from gpflow_dkp.models.architecture import FARTHEST_START
from gpflow_dkp.models.marginal_likelihood import latent_targets
from gpflow_dkp.training import fit

RNG = np.random.default_rng(0)
N, D = 60, 3
X = RNG.uniform(-2.0, 2.0, size=(N, D))
SIGNAL = np.sin(1.5 * X[:, :1]) + 0.5 * X[:, 1:2]  # the last feature does not matter
QUIET = SIGNAL + 0.05 * RNG.normal(size=(N, 1))
QUIET = (QUIET - QUIET.mean()) / QUIET.std()


def regression() -> gpflow.models.GPR:
    """The optimum of GPflow's regression on all rows."""
    model = gpflow.models.GPR((X, QUIET), SquaredExponential(1.0, np.sqrt(D) * np.ones(D)))
    model.likelihood.variance.assign(0.1)
    gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables)
    return model


def test_a_sparse_gp_starts_at_the_optimum_of_regression() -> None:
    """Its inducing points are all inputs: one natural gradient of step 1 takes the bound to the evidence."""
    expected = regression()
    model = LatentVariableDGP.from_architecture("GP", (X, QUIET), num_inducing=N, num_data=N)
    kernel = model.output_layer.kernel
    np.testing.assert_allclose(kernel.variance, expected.kernel.variance, rtol=1e-3)
    np.testing.assert_allclose(kernel.lengthscales[:2], expected.kernel.lengthscales[:2], rtol=1e-3)
    assert kernel.lengthscales[2] > 10.0
    np.testing.assert_allclose(model.likelihood.variance, expected.likelihood.variance, rtol=1e-3)
    assert 1e-4 < float(expected.likelihood.variance.numpy()) < 0.01
    settings = {"num_steps": 1, "learning_rate": 1e-12, "kl_annealing_steps": 0}
    fit(model, (X, QUIET), natural_gradient=1.0, progress=False, schedule="paper", **settings)
    own = gpflow.models.GPR((X, QUIET), kernel, likelihood=model.likelihood)
    np.testing.assert_allclose(model.elbo((X, QUIET)), own.log_marginal_likelihood(), atol=5e-3)
    # The last lengthscale is bounded, at a price of 0.03.
    best = float(expected.log_marginal_likelihood())
    assert best - 0.04 < float(own.log_marginal_likelihood()) <= best


@pytest.mark.parametrize("architecture", ["LV-GP", "GP-GP", "LV-GP-GP"])
def test_the_last_kernel_starts_so_and_the_others_as_ever(architecture: str) -> None:
    """The found values are of the observed columns; that of a latent variable is as without the search."""
    of_one_gp, model, usual = (
        LatentVariableDGP.from_architecture(letters, (X, QUIET), num_inducing=7, **settings)
        for letters, settings in (
            ("GP", {}),
            (architecture, {}),
            (architecture, {"num_marginal_points": 0}),
        )
    )
    found, last = of_one_gp.output_layer.kernel, model.output_layer.kernel
    np.testing.assert_allclose(last.variance, found.variance, rtol=1e-12)
    np.testing.assert_allclose(last.lengthscales[: D - 1], found.lengthscales[:-1], rtol=1e-12)
    kept = usual.output_layer.kernel.lengthscales
    np.testing.assert_array_equal(last.lengthscales[D:], kept[D:])
    np.testing.assert_allclose(kept, np.sqrt(len(kept.numpy())), rtol=1e-12)
    assert last.lengthscales[D - 1] > 10.0 * kept[D - 1]
    for ours, theirs in zip(model.layers[:-1], usual.layers[:-1], strict=True):
        for parameter, other in zip(ours.parameters, theirs.parameters, strict=True):
            np.testing.assert_array_equal(parameter, other)
    assert float(usual.likelihood.variance.numpy()) == pytest.approx(0.01, rel=1e-12)


def test_positive_parameters_are_trained_by_their_logarithms() -> None:
    model = LatentVariableDGP.from_architecture(
        "LV-GP-GP", (X, QUIET), num_inducing=7, amortised=False, inner_noise=0.1, num_data=N
    )
    _, inner, last = model.layers
    latent = model.layers[0]
    own, noise = inner.kernel.kernels
    positive = [own.lengthscales, noise.variance, last.kernel.variance, last.kernel.lengthscales]
    for parameter in (*positive, latent.variance):
        assert isinstance(parameter.transform, tfp.bijectors.Exp)
    likelihood = model.likelihood.variance
    np.testing.assert_allclose(np.exp(likelihood.unconstrained_variable), likelihood, atol=2e-6)


@pytest.mark.parametrize("noise", [0.0, 0.3, 2.0])
def test_other_noise_than_was_found_starts_as_ever(noise: float) -> None:
    """Small, so that latent variables explain what noise would; what is mostly noise changes no kernel."""
    targets = SIGNAL + noise * np.random.default_rng(1).normal(size=(N, 1))
    model = LatentVariableDGP.from_architecture("LV-GP", (X, targets), num_inducing=7)
    assert float(model.likelihood.variance.numpy()) == pytest.approx(0.01, rel=1e-6)
    is_usual = np.allclose(model.output_layer.kernel.lengthscales, np.sqrt(D + 1), rtol=1e-6)
    assert is_usual is (noise > 1.0)


def test_what_is_given_is_kept() -> None:
    kernel, likelihood = SquaredExponential(0.3, [0.7, 0.8, 0.9]), Gaussian(0.5)
    model = LatentVariableDGP.from_architecture(
        "GP-GP", (X, QUIET), num_inducing=7, kernel=kernel, likelihood=likelihood
    )
    for layer in model.layers:
        np.testing.assert_allclose(layer.kernel.lengthscales, [0.7, 0.8, 0.9], rtol=1e-12)
        assert float(layer.kernel.variance.numpy()) == pytest.approx(0.3)
    assert model.likelihood is likelihood
    assert float(likelihood.variance.numpy()) == pytest.approx(0.5)
    searched = LatentVariableDGP.from_architecture(
        "GP", (X, QUIET), num_inducing=7, likelihood=Gaussian(0.5)
    )
    assert float(searched.likelihood.variance.numpy()) == pytest.approx(0.5)
    assert not np.allclose(searched.output_layer.kernel.lengthscales, np.sqrt(D), rtol=0.1)


@pytest.mark.parametrize("kernel", ["squared_exponential", "rational_quadratic", "relu"])
def test_no_parameter_starts_far_away(kernel: str) -> None:
    """A constant target has no optimum; neither has the scale of a column without part in it."""
    for targets in (QUIET, np.full([N, 1], 3.0)):
        searched, usual = (
            LatentVariableDGP.from_architecture(
                "GP", (X, targets), num_inducing=7, kernel=kernel, num_marginal_points=number
            )
            for number in (500, 0)
        )
        assert np.isfinite(searched.elbo((X, targets)))
        for ours, theirs in zip(
            searched.output_layer.kernel.parameters,
            usual.output_layer.kernel.parameters,
            strict=True,
        ):
            factor = np.maximum(ours / theirs, theirs / ours)
            assert np.all(factor <= FARTHEST_START * (1.0 + 1e-9))


@pytest.mark.parametrize(
    ("likelihood", "targets"),
    [
        (Bernoulli(), SIGNAL > 0.0),
        (Softmax(3), np.digitize(SIGNAL, [-0.5, 0.5])),
        (Poisson(), np.round(np.exp(2.0 + SIGNAL))),
        (StudentT(0.1), QUIET),
    ],
)
def test_any_likelihoods_targets_say_which_features_matter(
    likelihood: gpflow.likelihoods.Likelihood, targets: np.ndarray
) -> None:
    data = X, targets.astype(float)
    model = LatentVariableDGP.from_architecture("GP", data, num_inducing=7, likelihood=likelihood)
    lengthscales = model.output_layer.kernel.lengthscales.numpy()
    assert lengthscales[2] > 3.0 * max(lengthscales[:2])
    assert np.isfinite(model.elbo(data))


def test_the_index_of_a_likelihood_is_no_target() -> None:
    """Neither here nor in `GWI`, which took it for an output."""
    likelihood = SwitchedLikelihood([Gaussian(0.1), StudentT(0.1)])
    index = np.arange(N)[:, None] % 2
    targets = np.concatenate([QUIET, index], 1)
    np.testing.assert_array_equal(latent_targets(likelihood, targets), QUIET)
    switched, plain = (
        LatentVariableDGP.from_architecture("GP", (X, Y), num_inducing=7, likelihood=of_targets)
        for Y, of_targets in ((targets, likelihood), (QUIET, StudentT(0.1)))
    )
    np.testing.assert_array_equal(
        switched.output_layer.kernel.lengthscales, plain.output_layer.kernel.lengthscales
    )
    model = GWI.from_data(X, targets, likelihood=likelihood, mean="svgp")
    assert model.predict_f(X)[0].shape == (N, 1)


def test_some_rows_are_enough_and_a_seed_says_which() -> None:
    first, again, other = (
        LatentVariableDGP.from_architecture(
            "GP", (X, QUIET), num_inducing=7, num_marginal_points=30, seed=seed
        ).output_layer.kernel.lengthscales.numpy()
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first[:2], other[:2], rtol=1e-3)


@pytest.mark.parametrize("bad", [-1, 2.5, True, "many"])
def test_numbers_of_rows_that_are_none(bad: object) -> None:
    with pytest.raises(ValueError, match=r"num_marginal_points: got .*, needs an integer"):
        LatentVariableDGP.from_architecture("GP", (X, QUIET), num_marginal_points=bad)
