"""Without hidden layers the model is a Gaussian process: GPR at Z = X, SGPR at M < N."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Gaussian, Likelihood

from gpflow_dkp.models import DGP, DWP

NOISE = 0.1
JITTER = 1e-10


@pytest.fixture(autouse=True)
def _little_jitter():  # type: ignore[no-untyped-def]
    with gpflow.config.as_context(gpflow.config.Config(jitter=JITTER)):
        yield


def make_data(num_data: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.0, 3.0, size=(num_data, 1)), 0)
    return X, np.sin(3.0 * X) + np.sqrt(NOISE) * rng.normal(size=(num_data, 1))


def make_kernel() -> SquaredExponential:
    return SquaredExponential(variance=1.3, lengthscales=0.6)


def make_gpr(num_data: int) -> gpflow.models.GPR:
    return gpflow.models.GPR(make_data(num_data), make_kernel(), noise_variance=NOISE)


def make_model(Z: np.ndarray, model: type = DWP) -> DWP:
    return model([make_kernel()], Gaussian(NOISE), Z, widths=[])


def with_optimum_of_gpr(model: DWP, Y: np.ndarray) -> DWP:
    """Pseudo-observations at the data with the likelihood's noise are the data."""
    model.output_layer.v.assign(Y)
    model.output_layer.precision_tril.assign(np.eye(len(Y)) / np.sqrt(NOISE))
    return model


@pytest.mark.parametrize("model", [DWP, DGP])
def test_optimum_at_the_data_is_gprs_marginal_likelihood(model: type) -> None:
    X, Y = make_data(20)
    optimum = with_optimum_of_gpr(make_model(X, model), Y)
    evidence = float(make_gpr(20).log_marginal_likelihood())
    assert float(optimum.elbo((X, Y))) == pytest.approx(evidence, abs=1e-6)


def test_gradient_at_the_optimum_is_zero_and_every_step_lowers_the_bound() -> None:
    X, Y = make_data(8)
    model = with_optimum_of_gpr(make_model(X), Y)
    variables = [model.output_layer.v, model.output_layer.precision_tril]
    variables = [parameter.unconstrained_variable for parameter in variables]
    with tf.GradientTape() as tape:
        best = model.elbo((X, Y))
    for gradient in tape.gradient(best, variables):
        np.testing.assert_allclose(gradient, np.zeros(gradient.shape), atol=1e-6)
    rng = np.random.default_rng(1)
    for variable in variables:
        start = variable.numpy()
        variable.assign_add(0.1 * rng.normal(size=start.shape))
        assert model.elbo((X, Y)) < best - 1e-4
        variable.assign(start)


def test_optimised_bound_at_the_data_is_gprs_marginal_likelihood() -> None:
    X, Y = make_data(10)
    model = make_model(X)
    gpflow.set_trainable(model.kernels[0], False)
    gpflow.set_trainable(model.likelihood, False)
    gpflow.set_trainable(model.inducing_variable, False)
    gpflow.optimizers.Scipy().minimize(
        tf.function(model.training_loss_closure((X, Y), compile=False), autograph=False),
        model.trainable_variables,
        options={"maxiter": 2000, "maxfun": 4000, "ftol": 1e-12, "gtol": 1e-6},
    )
    evidence = float(make_gpr(10).log_marginal_likelihood())
    assert evidence - 1e-3 < float(model.elbo((X, Y))) < evidence + 1e-6


def test_predictions_at_the_optimum_are_gprs() -> None:
    X, Y = make_data(15)
    model, gpr = with_optimum_of_gpr(make_model(X), Y), make_gpr(15)
    Xnew = np.linspace(-1.0, 4.0, 7)[:, None]
    for actual, expected in zip(model.predict_f(Xnew), gpr.predict_f(Xnew), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-7)
    for actual, expected in zip(model.predict_y(Xnew), gpr.predict_y(Xnew), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-7)
    Ynew = np.cos(Xnew)
    np.testing.assert_allclose(
        model.predict_log_density((Xnew, Ynew)),
        np.ravel(gpr.predict_log_density((Xnew, Ynew))),
        rtol=0,
        atol=1e-6,
    )


def with_optimum_of_sgpr(model: DWP, X: np.ndarray, Y: np.ndarray, Z: np.ndarray) -> DWP:
    """Lambda = B B^T / s2 and Lambda v = B y / s2 with B = K_ZZ^{-1} K_ZX ([Titsias 2009])."""
    kernel = make_kernel()
    B = np.linalg.solve(kernel(Z).numpy(), kernel(Z, X).numpy())
    precision = B @ B.T / NOISE
    model.output_layer.v.assign(np.linalg.solve(precision, B @ Y / NOISE))
    model.output_layer.precision_tril.assign(np.linalg.cholesky(precision))
    return model


def test_optimum_with_fewer_inducing_points_is_sgprs_bound() -> None:
    X, Y = make_data(30)
    Z = np.linspace(0.2, 2.8, 5)[:, None]
    sgpr = gpflow.models.SGPR((X, Y), make_kernel(), Z, noise_variance=NOISE)
    model = with_optimum_of_sgpr(make_model(Z), X, Y, Z)
    bound = float(sgpr.elbo())
    assert float(model.elbo((X, Y))) == pytest.approx(bound, abs=1e-6)
    assert bound < float(make_gpr(30).log_marginal_likelihood())
    Xnew = np.linspace(-1.0, 4.0, 7)[:, None]
    for actual, expected in zip(model.predict_f(Xnew), sgpr.predict_f(Xnew), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)


def test_bound_with_fewer_inducing_points_is_never_above_sgprs() -> None:
    X, Y = make_data(30)
    Z = np.linspace(0.2, 2.8, 5)[:, None]
    bound = float(gpflow.models.SGPR((X, Y), make_kernel(), Z, noise_variance=NOISE).elbo())
    model = with_optimum_of_sgpr(make_model(Z), X, Y, Z)
    parameters = [model.output_layer.precision_tril, model.output_layer.v]
    variables = [parameter.unconstrained_variable for parameter in parameters]
    start = [variable.numpy() for variable in variables]
    rng = np.random.default_rng(0)
    for scale in np.geomspace(1e-3, 1.0, 20):
        for variable, value in zip(variables, start, strict=True):
            variable.assign(value + scale * rng.normal(size=value.shape))
        assert float(model.elbo((X, Y))) < bound + 1e-8


def with_svgp(likelihood: Likelihood, num_latent_gps: int) -> tuple[DWP, gpflow.models.SVGP]:
    """A random model, and its q(u) = N(Sigma Lambda v, Sigma) handed to SVGP."""
    Z = np.linspace(0.2, 2.8, 4)[:, None]
    model = DWP([make_kernel()], likelihood, Z, widths=[], num_latent_gps=num_latent_gps)
    v = np.random.default_rng(3).normal(size=(4, num_latent_gps))
    model.output_layer.v.assign(v)
    K = make_kernel()(Z).numpy() + JITTER * np.eye(4)
    tril = model.output_layer.precision_tril.numpy()
    precision = tril @ tril.T
    Sigma = np.linalg.inv(np.linalg.inv(K) + precision)
    svgp = gpflow.models.SVGP(
        make_kernel(),
        likelihood,
        Z,
        num_latent_gps=num_latent_gps,
        q_mu=Sigma @ precision @ v,
        q_sqrt=np.tile(np.linalg.cholesky(Sigma), [num_latent_gps, 1, 1]),
        whiten=False,
    )
    return model, svgp


def three_classes(Y: np.ndarray) -> np.ndarray:
    return np.digitize(Y, [-0.4, 0.4]).astype(float)


LIKELIHOODS = {
    "Bernoulli": (gpflow.likelihoods.Bernoulli, 1, lambda Y: (Y > 0).astype(float)),
    "Poisson": (gpflow.likelihoods.Poisson, 1, lambda Y: np.round(2.0 + 2.0 * Y)),
    "StudentT": (lambda: gpflow.likelihoods.StudentT(scale=0.3, df=4.0), 1, lambda Y: Y),
    "MultiClass": (lambda: gpflow.likelihoods.MultiClass(3), 3, three_classes),
    "HeteroskedasticTFPConditional": (
        gpflow.likelihoods.HeteroskedasticTFPConditional,
        2,
        lambda Y: Y,
    ),
}


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_bound_and_predictions_are_svgps_with_the_same_posterior(likelihood: str) -> None:
    make, num_latent_gps, observations = LIKELIHOODS[likelihood]
    X, Y = make_data(20)
    data = X, observations(Y)
    model, svgp = with_svgp(make(), num_latent_gps)
    assert float(model.elbo(data)) == pytest.approx(float(svgp.elbo(data)), abs=1e-6)
    for actual, expected in zip(model.predict_y(X), svgp.predict_y(X), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)
    actual, expected = model.predict_log_density(data), svgp.predict_log_density(data)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("num_outputs", [1, 2])
def test_full_covariance_is_svgps(num_outputs: int) -> None:
    """And is that of the joint draws, in as many standard errors as 12 comparisons take."""
    model, svgp = with_svgp(Gaussian(NOISE), num_outputs)
    X = make_data(4)[0]
    mean, covariance = model.predict_f(X, full_cov=True)
    expected_mean, expected = svgp.predict_f(X, full_cov=True)
    np.testing.assert_allclose(mean, expected_mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(covariance, expected, rtol=0, atol=1e-8)
    size = 4000
    draws = model.predict_f_samples(X, size, seed=0).numpy() - mean.numpy()
    for p in range(num_outputs):
        moments = draws[..., p].T @ draws[..., p] / size
        K = expected.numpy()[p]
        error = np.sqrt((np.outer(np.diag(K), np.diag(K)) + K**2) / size)
        assert np.all(np.abs(moments - K) < 5.0 * error)


def test_bound_and_predictions_are_svgps_with_softmax() -> None:
    """Both are means over draws of f."""
    X, Y = make_data(20)
    data = X, three_classes(Y)
    labels = data[1].astype(int)
    model, svgp = with_svgp(gpflow.likelihoods.Softmax(3), 3)
    model.likelihood.num_monte_carlo_points = 2_000
    tf.random.set_seed(0)
    ours = [float(model.elbo(data, seed=seed)) for seed in range(50)]
    theirs = [float(svgp.elbo((X, labels))) for _ in range(50)]
    error = np.sqrt((np.var(ours, ddof=1) + np.var(theirs, ddof=1)) / 50)
    assert abs(np.mean(ours) - np.mean(theirs)) < 5.0 * error
    assert error < 0.02
    # A class probability lies in [0, 1]: its standard deviation is at most 1 / 2.
    bound = 5.0 * 0.5 * np.sqrt(2 / 2_000)
    actual, expected = model.predict_y(X, seed=0)[0], svgp.predict_y(X)[0]
    np.testing.assert_allclose(actual, expected, rtol=0, atol=bound)


def test_two_outputs_are_two_models() -> None:
    X, Y = make_data(9)
    both = DWP([make_kernel()], Gaussian(NOISE), X, widths=[], num_latent_gps=2)
    targets = np.hstack([Y, np.cos(X)])
    both.output_layer.v.assign(targets)
    both.output_layer.precision_tril.assign(np.eye(9) / np.sqrt(NOISE))
    alone = sum(
        float(with_optimum_of_gpr(make_model(X), column[:, None]).elbo((X, column[:, None])))
        for column in targets.T
    )
    assert float(both.elbo((X, targets))) == pytest.approx(alone, abs=1e-9)


def test_minibatches_add_up_to_the_whole() -> None:
    X, Y = make_data(12)
    model = with_optimum_of_gpr(make_model(X), Y)
    whole = float(model.elbo((X, Y)))
    model.num_data = 12
    parts = [float(model.elbo((X[i : i + 3], Y[i : i + 3]))) for i in range(0, 12, 3)]
    assert np.mean(parts) == pytest.approx(whole, abs=1e-9)


def test_kl_weight_weighs_the_kl() -> None:
    X, Y = make_data(9)
    model = make_model(X[:4])
    data_term, log_ratio = model.elbo_terms((X, Y))
    assert float(-log_ratio) == pytest.approx(float(model.prior_kl()), abs=1e-10)
    assert float(log_ratio) < -0.1
    for weight in (0.0, 0.3, 1.0):
        model.kl_weight.assign(weight)
        expected = float(data_term) + weight * float(log_ratio)
        assert float(model.elbo((X, Y))) == pytest.approx(expected, abs=1e-10)
