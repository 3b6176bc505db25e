"""GWI with a covariance of its own kernel, against SciPy's matrix roots."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import (
    ArcCosine,
    Matern32,
    SeparateIndependent,
    SharedIndependent,
    SquaredExponential,
)
from gwi_cases import CROSS_JITTER, XNEW, X, Y, Z, kernel_matrix, make_model, se
from scipy import linalg

import gpflow_dkp
from gpflow_dkp.models import GWI
from gpflow_dkp.training import fit

OWN = {
    "one for all": lambda: Matern32(0.6, 0.9),
    "one an output": lambda: SeparateIndependent([Matern32(0.6, 0.9), SquaredExponential(0.3)]),
}
own = pytest.mark.parametrize("name", OWN)


def with_own(name: str, **settings: object) -> GWI:
    model = GWI(
        se(),
        gpflow.likelihoods.Gaussian(0.3),
        Z,
        num_latent_gps=2,
        covariance=OWN[name](),
        **settings,
    )
    if model.mean is None:
        model.q_mu.assign(np.random.default_rng(1).normal(size=model.q_mu.shape))
    return model


def r_of(name: str, points: np.ndarray) -> np.ndarray:
    """[P, N, N]."""
    kernel = OWN[name]()
    children = getattr(kernel, "kernels", [kernel, kernel])
    return np.stack([child(points).numpy() for child in children])


@own
@pytest.mark.parametrize("cross_term", ["exact", "eigenvalues", "nystrom"])
def test_distance_is_that_of_the_two_kernels(name: str, cross_term: str) -> None:
    """On all points the three estimates are one, but for the jitter of the cross term."""
    model = with_own(name, cross_term=cross_term)
    k, root = kernel_matrix(X, X), linalg.sqrtm(kernel_matrix(X, X)).real
    expected = 0.0
    for p, r in enumerate(r_of(name, X)):
        mean = model.predict_f(X)[0].numpy()[:, p]
        cross = np.trace(linalg.sqrtm(root @ r @ root).real)
        expected += (np.sum(mean**2) + np.trace(k) + np.trace(r) - 2.0 * cross) / len(X)
    np.testing.assert_allclose(model.squared_distance(X), expected, rtol=0, atol=20 * CROSS_JITTER)


@own
def test_nystrom_distance_is_an_upper_bound(name: str) -> None:
    exact = with_own(name, cross_term="exact").squared_distance(X)
    for seed in range(3):
        some = with_own(name, num_cross_points=4).squared_distance(X, seed=seed)
        assert float(some) > float(exact)


@own
def test_predictions_have_the_kernels_covariance(name: str) -> None:
    model = with_own(name)
    mean, covariance = model.predict_f(XNEW, full_cov=True)
    np.testing.assert_allclose(covariance, r_of(name, XNEW), rtol=0, atol=1e-12)
    same_mean, variance = model.predict_f(XNEW)
    np.testing.assert_array_equal(mean, same_mean)
    diagonals = np.diagonal(r_of(name, XNEW), axis1=1, axis2=2).T
    np.testing.assert_allclose(variance, diagonals, rtol=0, atol=1e-12)
    expected = make_model(at_prior=True)
    expected.q_mu.assign(model.q_mu)
    np.testing.assert_allclose(mean, expected.predict_f(XNEW)[0], rtol=0, atol=1e-12)


def test_the_priors_kernel_is_at_no_distance() -> None:
    kernel = se()
    model = GWI(kernel, gpflow.likelihoods.Gaussian(0.3), Z, covariance=se(), num_latent_gps=2)
    assert abs(float(model.squared_distance(X))) < 1.001 * 4.0 * CROSS_JITTER


@own
def test_training_moves_the_covariance_and_lowers_the_loss(name: str) -> None:
    """The optimum of r for given data has less variance than the prior."""
    model = with_own(name, mean=tf.zeros_like)
    before = model.elbo((X, Y), seed=0)
    start = r_of(name, XNEW)
    history = fit(model, (X, Y), num_steps=40, learning_rate=0.03, progress=False, seed=0)
    assert history.elbo[-1] * len(X) > float(before)
    assert not np.allclose(model.predict_f(XNEW, full_cov=True)[1], start, atol=1e-3)
    layer = model.output_layer
    assert not {id(layer.q_sqrt.unconstrained_variable), id(layer.q_mu.unconstrained_variable)} & {
        id(variable) for variable in model.trainable_variables
    }


@own
def test_it_comes_back_from_its_file(name: str, tmp_path) -> None:
    model = with_own(name)
    path = tmp_path / "model.dkp"
    model.save(path)
    for ours, loaded in zip(
        model.predict_y(XNEW), gpflow_dkp.load(path).predict_y(XNEW), strict=True
    ):
        np.testing.assert_allclose(loaded, ours, rtol=0, atol=1e-12)


@pytest.mark.parametrize("distance", ["squared", "root"])
def test_gaussian_noise_leaves_the_mean_to_itself_but_for_the_root(distance: str) -> None:
    """The expected log-likelihood and W2^2 are sums of a part of the mean and a part of the covariance."""
    gradients = []
    for covariance in ("svgp", Matern32(0.6, 0.9), SquaredExponential(0.1)):
        model = GWI.net(
            se(),
            gpflow.likelihoods.Gaussian(0.3),
            Z,
            hidden_units=(3,),
            num_latent_gps=2,
            covariance=covariance,
            distance=distance,
        )
        with tf.GradientTape() as tape:
            objective = model.elbo((X, Y))
        of_mean = tape.gradient(objective, model.mean.trainable_variables)
        gradients.append(np.concatenate([np.ravel(part) for part in of_mean]))
    first, *others = gradients
    for other in others:
        assert np.allclose(other, first, rtol=1e-9) == (distance == "squared")


def test_from_data_takes_a_covariance() -> None:
    model = GWI.from_data(X, Y, covariance=Matern32(0.1), num_inducing=3, mean="svgp")
    assert isinstance(model.covariance, Matern32)
    np.testing.assert_allclose(model.predict_f(XNEW)[1], np.full((len(XNEW), 2), 0.1))


@pytest.mark.parametrize("separate_kernels", [False, True])
def test_the_priors_covariance_has_parameters_of_its_own(separate_kernels: bool) -> None:
    """It starts at the prior, whose kernel stays."""
    model = GWI.from_data(X, Y, covariance="prior", separate_kernels=separate_kernels)
    one, other = model.covariance, model.kernel
    if separate_kernels:
        one, other = one.kernels[1], other.kernels[1]
    np.testing.assert_allclose(one(XNEW), other(XNEW), rtol=1e-12)
    assert one is not other
    assert len(one.trainable_variables) == 2  # variance and lengthscales
    assert not other.trainable_variables
    variance = model.predict_f(XNEW)[1][:, 1]
    np.testing.assert_allclose(variance, other(XNEW, full_cov=False), rtol=1e-12)


def test_a_covariance_has_the_names_of_a_kernel() -> None:
    model = GWI.from_data(X, Y, covariance="relu", mean="svgp")
    assert isinstance(model.covariance, ArcCosine)
    assert model.covariance.trainable_variables
    names = "svgp, prior, squared_exponential, rational_quadratic, relu"
    with pytest.raises(ValueError, match=rf"covariance: got 'net', choose one of {names}"):
        GWI.from_data(X, Y, covariance="net")


def test_what_is_not_allowed_is_said() -> None:
    likelihood = gpflow.likelihoods.Gaussian(0.3)
    for covariance, says in (
        ("net", r"covariance: got 'net', choose one of svgp"),
        (
            SharedIndependent(Matern32(), 2),
            r"covariance: got SharedIndependent, needs a kernel of one",
        ),
        (
            SeparateIndependent([Matern32()]),
            r"covariance: got SeparateIndependent of 1 kernels, needs one for each of 2 outputs",
        ),
    ):
        with pytest.raises(ValueError, match=says):
            GWI(se(), likelihood, Z, num_latent_gps=2, covariance=covariance)
    with pytest.raises(ValueError, match=r"distance: got 'kl' with the covariance Matern32"):
        GWI(se(), likelihood, Z, covariance=Matern32(), distance="kl")
    model = with_own("one for all")
    with pytest.raises(AttributeError, match=r"q_sqrt: the covariance is a Matern32, needs 'svgp'"):
        _ = model.q_sqrt
    with pytest.raises(ValueError, match=r"prior_kl: got the covariance Matern32"):
        model.prior_kl()
