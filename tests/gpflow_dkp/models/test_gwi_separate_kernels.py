"""GWI with a kernel for each output: as many models of one output, side by side."""

from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Matern32, SeparateIndependent, SharedIndependent, SquaredExponential
from gwi_cases import XNEW, X, Y, Z, classes, many_data, prior_mean, se

import gpflow_dkp
from gpflow_dkp.models import GWI

KERNELS = (se, lambda: Matern32(0.7, [0.9, 2.0]))
cross_terms = pytest.mark.parametrize("cross_term", ["nystrom", "eigenvalues", "exact"])


def separate(kernels: tuple = KERNELS, **settings: object) -> GWI:
    """Random variational parameters."""
    kernel = SeparateIndependent([make() for make in kernels])
    model = GWI(kernel, gpflow.likelihoods.Gaussian(0.3), Z, num_latent_gps=2, **settings)
    randomise(model)
    return model


def randomise(model: GWI) -> None:
    rng = np.random.default_rng(3)
    M = model.num_inducing
    for part in model.output_layer.parts:
        part.q_sqrt.assign(np.tril(0.3 * rng.normal(size=(1, M, M)), -1) + 0.6 * np.eye(M))
        if model.mean is None:
            part.q_mu.assign(rng.normal(size=(M, 1)))


def alone(model: GWI, output: int, **settings: object) -> GWI:
    part = model.output_layer.parts[output]
    one = GWI(part.kernel, model.likelihood, Z, num_latent_gps=1, **settings)
    one.output_layer.q_sqrt.assign(part.q_sqrt)
    one.output_layer.q_mu.assign(part.q_mu)
    return one


@cross_terms
def test_objective_is_the_sum_over_the_outputs(cross_term: str) -> None:
    model = separate(cross_term=cross_term)
    ones = [alone(model, p, cross_term=cross_term) for p in range(2)]
    expected = [one.elbo_terms((X, Y[:, [p]]), seed=0) for p, one in enumerate(ones)]
    terms = model.elbo_terms((X, Y), seed=0)
    np.testing.assert_allclose(terms, np.sum(expected, 0), rtol=1e-12)
    spectrum = np.concatenate([one.spectrum(X, 4) for one in ones])
    np.testing.assert_allclose(model.spectrum(X, 4), spectrum, rtol=0, atol=1e-12)


def test_divergence_is_the_sum_over_the_outputs() -> None:
    model = separate(distance="kl")
    expected = sum(float(alone(model, p).prior_kl()) for p in range(2))
    np.testing.assert_allclose(model.prior_kl(), expected, rtol=1e-12)
    np.testing.assert_allclose(-model.elbo_terms((X, Y))[1], expected, rtol=1e-12)


@pytest.mark.parametrize("full_cov", [False, True])
def test_predictions_are_those_of_the_outputs(full_cov: bool) -> None:
    model = separate()
    mean, variance = model.predict_f(XNEW, full_cov=full_cov)
    axis = 0 if full_cov else 1
    expected = [alone(model, p).predict_f(XNEW, full_cov=full_cov) for p in range(2)]
    np.testing.assert_allclose(mean, np.concatenate([m for m, _ in expected], 1), rtol=1e-12)
    variances = np.concatenate([v for _, v in expected], axis)
    np.testing.assert_allclose(variance, variances, rtol=1e-11, atol=1e-14)


def test_with_one_kernel_twice_it_is_the_model_of_one_kernel() -> None:
    """Prior mean, start at data and prior draws included."""
    model = separate((se, se), prior_mean=prior_mean())
    shared = GWI(
        se(), gpflow.likelihoods.Gaussian(0.3), Z, num_latent_gps=2, prior_mean=prior_mean()
    )
    for either in (model, shared):
        either.start_at_sparse_posterior((X, Y), 0.2)
    np.testing.assert_allclose(model.elbo((X, Y), seed=1), shared.elbo((X, Y), seed=1), rtol=1e-11)
    draws, expected = (either.sample_prior(XNEW, 3, seed=0) for either in (model, shared))
    np.testing.assert_allclose(draws, expected, rtol=0, atol=1e-12)
    assert [type(child) for child in model.kernel.kernels] == [SquaredExponential] * 2


def test_a_network_for_the_mean_leaves_the_parts_means_alone() -> None:
    model = separate(mean=tf.zeros_like)
    trained = {id(variable) for variable in model.trainable_variables}
    for part in model.output_layer.parts:
        assert id(part.q_mu.unconstrained_variable) not in trained
        assert id(part.q_sqrt.unconstrained_variable) in trained
    own = separate(covariance=SeparateIndependent([Matern32(0.2), Matern32(0.4)]))
    expected = np.tile([0.2, 0.4], [len(XNEW), 1])
    np.testing.assert_allclose(own.predict_f(XNEW)[1], expected)


def test_a_kernel_for_each_class() -> None:
    """Each is what the marginal likelihood of its class' normalised indicator finds."""
    X_many, _ = many_data(60)
    labels = (X_many[:, :1] > 0.5).astype(float) + (X_many[:, :1] > 1.0)
    settings = {"likelihood": classes(), "num_inducing": 5, "mean": "svgp"}
    model = GWI.from_data(X_many, labels, separate_kernels=True, **settings)
    variances = [child.variance.numpy().item() for child in model.kernel.kernels]
    assert len(set(variances)) == 3
    indicator = (3.0 * (labels == 1) - 1.0) / np.sqrt(2.0)
    alone = GWI.from_data(X_many, indicator, num_inducing=5, mean="svgp")
    np.testing.assert_allclose(variances[1], alone.kernel.variance, rtol=1e-6)
    probabilities = model.predict_y(X_many)[0].numpy()
    assert np.mean(np.argmax(probabilities, 1) == labels[:, 0]) > 0.8


def test_it_comes_back_from_its_file(tmp_path: Path) -> None:
    model, path = separate(), tmp_path / "model.dkp"
    model.save(path)
    loaded = gpflow_dkp.load(path)
    for ours, theirs in zip(model.predict_y(XNEW), loaded.predict_y(XNEW), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-12)


def test_what_is_not_allowed_is_said() -> None:
    likelihood = gpflow.likelihoods.Gaussian(0.3)
    for kernel, says in (
        (
            SharedIndependent(se(), 2),
            r"kernel: got SharedIndependent, needs one of a single output",
        ),
        (
            SeparateIndependent([se()]),
            r"kernel: got SeparateIndependent of 1 kernels, needs one for each of 2 outputs",
        ),
    ):
        with pytest.raises(ValueError, match=says):
            GWI(kernel, likelihood, Z, num_latent_gps=2)
    with pytest.raises(
        ValueError, match=r"SeparateIndependent of 3 kernels, needs one for each of 2"
    ):
        GWI.from_data(X, Y, kernel=SeparateIndependent([se() for _ in range(3)]))
    model = separate()
    for name in ("q_mu", "q_sqrt"):
        with pytest.raises(AttributeError, match=f"{name}: each output has its own"):
            getattr(model, name)
