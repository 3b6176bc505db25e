"""LatentVariableDGP: limits with known answers, the bounds and their gradients, predictions, tools."""

import copy
from collections.abc import Callable
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.expectations import expectation
from gpflow.functions import Linear
from gpflow.kernels import Constant, SquaredExponential
from gpflow.likelihoods import Gaussian
from gpflow.probability_distributions import DiagonalGaussian
from latent_variable_cases import (
    FALSE_ALARM,
    D,
    M,
    N,
    RecordingLayer,
    check_equal_means,
    check_mean,
    make_gp,
    make_model,
    regression_data,
    replicate,
    svgp_of,
)
from scipy import special, stats

from gpflow_dkp.jitter import jitters_of
from gpflow_dkp.layers import (
    Encoder,
    FeatureLayer,
    IndependentGPs,
    LatentVariableLayer,
    Observed,
    SparseGP,
)
from gpflow_dkp.models import LatentVariableDGP
from gpflow_dkp.training.data import Minibatch
from gpflow_dkp.training.devices import Share
from gpflow_dkp.training.objective import BoundObjective
from gpflow_dkp.training.schedules import Moment

X, Y = regression_data()
INFERENCES = ["vi", "iwvi", "iwvi-independent"]
ARCHITECTURES = ["GP", "LV-GP", "LV-GP-GP", "GP-LV-GP", "LV-GP-LV-GP"]
architectures = pytest.mark.parametrize("architecture", ARCHITECTURES)
with_latents = pytest.mark.parametrize("architecture", ["LV-GP", "LV-GP-GP", "GP-LV-GP"])


# One GP layer is GPflow's SVGP


def labels(Y: np.ndarray) -> np.ndarray:
    return np.digitize(Y[:, :1], [-0.4, 0.4]).astype(float)


LIKELIHOODS: dict[str, tuple[Callable, int, Callable]] = {
    "Gaussian": (lambda: Gaussian(0.3), 2, lambda Y: Y),
    "Bernoulli": (gpflow.likelihoods.Bernoulli, 1, lambda Y: (Y[:, :1] > 0).astype(float)),
    "StudentT": (lambda: gpflow.likelihoods.StudentT(scale=0.3, df=4.0), 1, lambda Y: Y[:, :1]),
    "MultiClass": (lambda: gpflow.likelihoods.MultiClass(3), 3, labels),
}
NUM_DATA = 50


def one_layer(likelihood: str, whiten: bool, **settings):  # type: ignore[no-untyped-def]
    make, num_outputs, observations = LIKELIHOODS[likelihood]
    model = make_model(
        "GP",
        num_outputs=num_outputs,
        likelihood=make(),
        whiten=whiten,
        num_data=NUM_DATA,
        **settings,
    )
    return model, svgp_of(model, NUM_DATA), (X, observations(regression_data(2)[1]))


@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_one_layer_is_svgp(likelihood: str, whiten: bool) -> None:
    """Bound of a minibatch, moments and densities."""
    model, svgp, data = one_layer(likelihood, whiten)
    assert float(model.elbo(data)) == pytest.approx(float(svgp.elbo(data)), abs=1e-8)
    for method in ("predict_f", "predict_y"):
        moments = zip(getattr(model, method)(X), getattr(svgp, method)(X), strict=True)
        for ours, theirs in moments:
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-8)
    ours, theirs = model.predict_log_density(data), svgp.predict_log_density(data)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-8)


@pytest.mark.parametrize("inference", INFERENCES)
def test_without_latent_variables_every_inference_is_svgps_bound(inference: str) -> None:
    """Whatever the numbers of samples: there is nothing to sample."""
    model, svgp, data = one_layer(
        "Gaussian", True, inference=inference, num_importance_samples=7, num_samples=3
    )
    assert float(model.elbo(data)) == pytest.approx(float(svgp.elbo(data)), abs=1e-8)


@pytest.mark.parametrize("whiten", [True, False])
def test_gradient_of_one_layer_is_svgps(whiten: bool) -> None:
    model, svgp, data = one_layer("Gaussian", whiten)
    variables = model.trainable_variables
    assert len(variables) == 6
    gradients = []
    for built in (model, svgp):
        with tf.GradientTape() as tape:
            bound = built.elbo(data)
        gradients.append(tape.gradient(bound, variables))
    for ours, theirs in zip(*gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8)


def test_one_layer_with_softmax_is_svgp() -> None:
    """GPflow's Softmax draws f: the moments agree, and the bounds in expectation."""
    likelihood = gpflow.likelihoods.Softmax(3)
    likelihood.num_monte_carlo_points = 200
    model = make_model("GP", num_outputs=3, likelihood=likelihood)
    svgp, data = svgp_of(model), (X, labels(Y).astype(int))
    for ours, theirs in zip(model.predict_f(X), svgp.predict_f(X), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-8)
    tf.random.set_seed(0)
    ours = replicate(lambda seed: model.elbo(data, seed=seed), 50)
    theirs = replicate(lambda _: svgp.elbo(data), 50)
    check_equal_means(ours, theirs)
    assert 0.01 < np.std(ours) < 0.5


@pytest.mark.parametrize("architecture", ["LV-GP", "GP-GP", "LV-GP-GP"])
def test_a_likelihood_that_draws_f_has_the_bound_in_closed_form(architecture: str) -> None:
    """The draws of a Monte Carlo likelihood are independent of those of the layers."""

    likelihood = gpflow.likelihoods.GaussianMC(0.3)
    likelihood.num_monte_carlo_points = 1
    settings = {"num_outputs": 2, "free": True, "inference": "vi", "num_samples": 50}
    drawn = make_model(architecture, likelihood=likelihood, **settings)
    exact = make_model(architecture, **settings)
    for built in (drawn, exact):
        # Inner values that move the last layer's mean, which moves with them.
        built.output_layer.mean_function = Linear(np.ones([built.output_layer.input_dim, 2]))
    data = X, regression_data(2)[1]
    differences = replicate(
        lambda seed: drawn.elbo(data, seed=seed) - exact.elbo(data, seed=seed), 60
    )
    check_mean(differences, 0.0)


# The two bounds


@pytest.mark.parametrize("num_samples", [1, 3])
@pytest.mark.parametrize("free", [False, True])
@with_latents
def test_one_importance_sample_is_vi_with_a_sampled_kl(
    architecture: str, free: bool, num_samples: int
) -> None:
    """At the same draws w: log p(w) - log q(w) takes the place of its expectation."""
    weighted, plain = (
        make_model(architecture, free=free, kind=RecordingLayer, **settings)
        for settings in ({"num_importance_samples": 1}, {"inference": "vi"})
    )
    bounds = [
        float(built.elbo((X, Y), num_samples=num_samples, seed=3)) for built in (weighted, plain)
    ]
    layer, other = (
        next(layer for layer in built.layers if isinstance(layer, RecordingLayer))
        for built in (weighted, plain)
    )
    np.testing.assert_array_equal(layer.drawn, other.drawn)
    if free:
        mean, variance = layer.mean.numpy(), layer.variance.numpy()
    else:
        mean, variance = (moment.numpy() for moment in layer.encoder(np.hstack([X, Y])))
    mean, scale = np.tile(mean, [num_samples, 1]), np.tile(np.sqrt(variance), [num_samples, 1])
    w = layer.drawn[:, 0]
    sampled = stats.norm.logpdf(w) - stats.norm(mean, scale).logpdf(w)
    expected = 0.5 * (1.0 + np.log(scale**2) - scale**2 - mean**2)
    difference = np.sum(sampled - expected) / num_samples
    assert abs(difference) > 0.01
    assert bounds[0] - bounds[1] == pytest.approx(difference, abs=1e-9)


def test_draws_of_the_latent_variables_are_of_their_posterior() -> None:
    """w = a + sqrt(b) eps, independent over points, samples and layers."""
    model = make_model("LV-LV-GP", free=True, kind=RecordingLayer, num_importance_samples=10)
    model.elbo((X, Y), num_samples=200, seed=0)
    white = []
    for layer in model.layers[:-1]:
        drawn = layer.drawn.reshape(200, N, 10)
        deviation = drawn - layer.mean.numpy()
        white.append(deviation / np.sqrt(layer.variance.numpy()))
    assert stats.kstest(np.ravel(white), "norm").pvalue > FALSE_ALARM / 2
    vectors = np.concatenate([part.transpose(0, 2, 1).reshape(2000, N) for part in white], 1)
    products = [vectors[:, i] * vectors[:, j] for i in range(2 * N) for j in range(i)]
    p_values = stats.ttest_1samp(products, 0.0, axis=1).pvalue
    assert np.min(p_values) > FALSE_ALARM / (2 * len(products))


SLOPE, NOISE = 1.5, 0.4


def linear_gaussian(**settings) -> LatentVariableDGP:  # type: ignore[no-untyped-def]
    """y = c w + noise, with a posterior of w that is not the true one."""
    latents = LatentVariableLayer(num_points=N)
    latents.mean.assign(np.full([N, 1], 0.5))
    latents.variance.assign(np.full([N, 1], 0.5))
    final = SparseGP(
        SquaredExponential(variance=1e-10),
        np.zeros([1, 2]),
        1,
        mean_function=Linear(A=[[0.0], [SLOPE]], b=[0.0]),
    )
    return LatentVariableDGP([latents, final], Gaussian(NOISE), jitter=1e-12, **settings)


EVIDENCE = float(np.sum(stats.norm(0.0, np.sqrt(SLOPE**2 + NOISE)).logpdf(Y)))


def weights_in_numpy(num_draws: int) -> np.ndarray:
    """log p(y | w) p(w) / q(w) [num_draws, N]."""
    w = 0.5 + np.sqrt(0.5) * np.random.default_rng(1).normal(size=(num_draws, N))
    log_q = stats.norm(0.5, np.sqrt(0.5)).logpdf(w)
    log_likelihood = stats.norm(SLOPE * w, np.sqrt(NOISE)).logpdf(Y[:, 0])
    return log_likelihood + stats.norm.logpdf(w) - log_q


def test_importance_weighted_bound_rises_to_the_log_marginal_likelihood() -> None:
    """log p(y_n) = log N(y_n; 0, c^2 + s2), and at every K the bound is NumPy's."""
    data, bounds, errors = (X[:, :1], Y), np.zeros(4), np.zeros(4)
    for number, K in enumerate((1, 3, 10, 100)):
        model = linear_gaussian(num_importance_samples=K, num_samples=100)
        draws = replicate(lambda seed, model=model: model.elbo(data, seed=seed), 30)
        log_weights = weights_in_numpy(2000 * K).reshape(2000, K, N)
        reference = np.sum(special.logsumexp(log_weights, axis=1) - np.log(K), -1)
        check_equal_means(draws, reference)
        bounds[number] = np.mean(draws)
        standard_error = np.std(draws, ddof=1) / np.sqrt(30)
        errors[number] = stats.t(29).isf(FALSE_ALARM / 8) * standard_error
    assert np.all(np.diff(bounds) > errors[1:] + errors[:-1]), (bounds, errors)
    assert np.all(bounds < EVIDENCE + errors), (bounds, errors)
    assert bounds[-1] > EVIDENCE - 0.1


def test_vi_bound_of_a_linear_gaussian_model_in_closed_form() -> None:
    """E_q log p(y | w) - KL, with nothing but the Gaussian moments of q(w) = N(0.5, 0.5)."""
    model = linear_gaussian(inference="vi", num_samples=100)
    draws = replicate(lambda seed: model.elbo((X[:, :1], Y), seed=seed), 30)
    squares = (Y - SLOPE * 0.5) ** 2 + SLOPE**2 * 0.5
    log_likelihood = -0.5 * np.log(2.0 * np.pi * NOISE) - 0.5 * squares / NOISE
    kl = 0.5 * (0.5 + 0.25 - 1.0 - np.log(0.5))
    check_mean(draws, np.sum(log_likelihood - kl))


SMALL_NOISE = 0.1


def constant_function(q_sqrt: float, **settings) -> LatentVariableDGP:  # type: ignore[no-untyped-def]
    """y_n = g + noise with one g ~ N(0, 1) for all n, whatever x and w are."""
    latents = LatentVariableLayer(num_points=2)
    latents.mean.assign(np.zeros([2, 1]))
    latents.variance.assign(np.ones([2, 1]))
    inner = SparseGP(Constant(1.0), np.zeros([1, 2]), 1, q_sqrt_scale=q_sqrt)
    final = SparseGP(
        SquaredExponential(variance=1e-10),
        np.zeros([1, 1]),
        1,
        mean_function=Linear(A=[[1.0]], b=[0.0]),
    )
    layers = [latents, inner, final]
    return LatentVariableDGP(layers, Gaussian(SMALL_NOISE), jitter=1e-8, **settings)


def test_joint_draws_give_a_bound_and_independent_ones_do_not() -> None:
    """docs/mathematics.md 8: (y_1, y_2) = (1, -1) share g, and have covariance [[1 + s, 1], [1, 1 + s]].

    At the prior of g the joint bound is sum_n E_g log N(y_n; g, s), at its posterior the log marginal
    likelihood. Independent draws of g for each of the K are as if every point had its own g.
    """
    data = np.zeros([2, 1]), np.array([[1.0], [-1.0]])
    covariance = np.ones([2, 2]) + SMALL_NOISE * np.eye(2)
    evidence = stats.multivariate_normal(np.zeros(2), covariance).logpdf([1.0, -1.0])

    def draws(inference: str, q_sqrt: float) -> np.ndarray:
        model = constant_function(
            q_sqrt, inference=inference, num_importance_samples=30, num_samples=50
        )
        return replicate(lambda seed: model.elbo(data, seed=seed), 30)

    at_prior = -np.log(2.0 * np.pi * SMALL_NOISE) - 2.0 / SMALL_NOISE
    assert at_prior < evidence - 5.0
    check_mean(draws("iwvi", 1.0), at_prior)
    check_mean(draws("iwvi", (1.0 + 2.0 / SMALL_NOISE) ** -0.5), evidence)
    independent = draws("iwvi-independent", 1.0)
    assert constant_function(1.0, inference="iwvi").objective_is_bound
    assert not constant_function(1.0, inference="iwvi-independent").objective_is_bound
    error = stats.t(29).isf(FALSE_ALARM) * np.std(independent, ddof=1) / np.sqrt(30)
    assert np.mean(independent) - error > evidence + 5.0


def test_latent_variables_alone_are_gpflows_bayesian_gplvm() -> None:
    """Its bound is that of VI at the optimum of q(u), in closed form by the psi statistics."""
    rng = np.random.default_rng(2)
    num_data, num_inducing, latent_dim, noise = 6, 4, 2, 0.3
    targets = rng.normal(size=(num_data, 2))
    mean = rng.normal(size=(num_data, latent_dim))
    variance = rng.uniform(0.2, 0.8, size=(num_data, latent_dim))
    Z = rng.normal(size=(num_inducing, latent_dim))
    kernel = SquaredExponential(variance=1.3, lengthscales=[0.8, 1.4])
    gplvm = gpflow.models.BayesianGPLVM(targets, mean, variance, kernel, inducing_variable=Z)
    gplvm.likelihood.variance.assign(noise)

    Kuu = kernel(Z).numpy() + gpflow.default_jitter() * np.eye(num_inducing)
    q, u = DiagonalGaussian(mean, variance), (kernel, gpflow.inducing_variables.InducingPoints(Z))
    psi1, psi2 = expectation(q, u).numpy(), np.sum(expectation(q, u, u), 0)
    solved = np.linalg.solve(Kuu + psi2 / noise, np.hstack([Kuu, psi1.T @ targets / noise]))
    covariance, q_mu = Kuu @ solved[:, :num_inducing], Kuu @ solved[:, num_inducing:]

    latents = LatentVariableLayer(latent_dim, num_points=num_data)
    latents.mean.assign(mean)
    latents.variance.assign(variance)
    final = SparseGP(kernel, Z, 2, whiten=False)
    final.q_mu.assign(q_mu)
    final.q_sqrt.assign(np.tile(np.linalg.cholesky(covariance), [2, 1, 1]))
    model = LatentVariableDGP([latents, final], Gaussian(noise), inference="vi", num_samples=300)
    data = np.zeros([num_data, 0]), targets
    draws = replicate(lambda seed: model.elbo(data, seed=seed), 30)
    assert np.std(draws) < 0.5
    check_mean(draws, float(gplvm.elbo()))


def test_kl_of_all_gp_layers_enters_once_with_its_weight() -> None:
    model = make_model("LV-GP-LV-GP", whiten=False)
    expected = 0.0
    for layer in (model.layers[1], model.layers[3]):
        Kuu = layer.kernel(layer.inducing_variable.Z).numpy()
        Kuu += gpflow.default_jitter() * np.eye(M)
        for column in range(layer.num_latent_gps):
            tril = layer.q_sqrt.numpy()[column]
            mean = layer.q_mu.numpy()[:, column]
            expected += 0.5 * (
                np.trace(np.linalg.solve(Kuu, tril @ tril.T))
                + mean @ np.linalg.solve(Kuu, mean)
                - M
                + np.linalg.slogdet(Kuu)[1]
                - 2.0 * np.sum(np.log(np.diag(tril)))
            )
    assert float(model.prior_kl()) == pytest.approx(expected, rel=1e-9)
    data_term, log_ratio = model.elbo_terms((X, Y), seed=0)
    assert float(log_ratio) == pytest.approx(-expected, rel=1e-9)
    for weight in (1.0, 0.3):
        model.kl_weight.assign(weight)
        bound = float(model.elbo((X, Y), seed=0))
        assert bound == pytest.approx(float(data_term) - weight * expected, rel=1e-10)


def test_data_terms_of_the_parts_of_one_layer_add_up() -> None:
    model = make_model("GP", num_data=N)
    whole, kl = (float(term) for term in model.elbo_terms((X, Y)))
    parts = [float(model.elbo_terms((X[part], Y[part]))[0]) for part in ([0], [1, 2, 3])]
    assert sum(parts) == pytest.approx(whole, abs=1e-10)
    for rows, part in zip(([0], [1, 2, 3]), parts, strict=True):
        bound = float(model.elbo((X[rows], Y[rows])))
        assert bound == pytest.approx(N / len(rows) * part + kl, abs=1e-10)


@pytest.mark.parametrize("free", [False, True])
def test_data_terms_of_the_parts_add_up_in_expectation(free: bool) -> None:
    """Of minibatches, each with the latent variables of its own rows, in any order."""
    model = make_model("LV-GP-GP", free=free, num_samples=20, num_importance_samples=3)

    def data_term(seed: tf.Tensor, rows: list[int]) -> tf.Tensor:
        part = tf.constant(X[rows]), tf.constant(Y[rows])
        return model.elbo_terms(part, seed=seed, rows=tf.constant(rows))[0]

    whole = replicate(lambda seed: model.elbo_terms((X, Y), seed=seed)[0], 40)
    halves = replicate(
        lambda seed: data_term(1000 + seed, [3, 1]) + data_term(2000 + seed, [0, 2]), 40
    )
    check_equal_means(whole, halves)
    assert np.std(whole) < 1.0


@pytest.mark.parametrize(
    ("architecture", "inference"),
    [("LV-GP", "vi"), ("LV-GP-GP", "iwvi"), ("GP-LV-GP", "iwvi-independent")],
)
def test_samples_of_the_bound_are_averaged(architecture: str, inference: str) -> None:
    """S leaves the expectation and divides the variance."""
    model = make_model(architecture, inference=inference, num_importance_samples=2)
    one, many = (
        replicate(lambda seed, S=S: model.elbo((X, Y), num_samples=S, seed=seed), num_replicates)
        for S, num_replicates in ((1, 400), (25, 40))
    )
    check_equal_means(one, many)
    ratio = np.var(one, ddof=1) / np.var(many, ddof=1)
    # For Gaussians an F distribution; twice as wide for heavier tails.
    low, high = stats.f(399, 39).ppf([FALSE_ALARM / 2, 1.0 - FALSE_ALARM / 2])
    assert 25.0 * low / 2.0 < ratio < 25.0 * high * 2.0


# The doubly reparametrised gradient


def doubly(architecture: str, free: bool = False, **settings):  # type: ignore[no-untyped-def]
    """The same model with the ordinary gradient and the doubly reparametrised one."""
    return tuple(
        make_model(architecture, free=free, doubly_reparametrised=on, **settings)
        for on in (False, True)
    )


def bound_and_gradient(
    model: LatentVariableDGP, seed: int | tf.Tensor, weight: float = 1.0
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Bound and gradient, by the names of the parameters; latent variables' log p - log q times `weight`."""
    parameters = gpflow.utilities.parameter_dict(model)
    variables = {
        name: parameter.unconstrained_variable
        for name, parameter in parameters.items()
        if parameter.trainable
    }
    with tf.GradientTape() as tape:
        if weight == 1.0:
            bound = model.elbo((X, Y), seed=seed)
        else:
            terms = model.annealed_terms((X, Y), tf.constant(weight, tf.float64), seed=seed)
            bound = terms[1] + terms[2]
    return bound, tape.gradient(bound, variables)


@pytest.mark.parametrize("inference", ["vi", "iwvi", "iwvi-sampled"])
def test_annealed_terms_weigh_what_the_latent_variables_cost(inference: str) -> None:
    """With one draw the mean cost is KL(q || p)."""
    model = make_model("LV-GP-GP", inference=inference, num_importance_samples=1)
    mean, variance = model.layers[0].latent_posterior(Observed(tf.constant(X), tf.constant(Y)))
    divergence = 0.5 * np.sum(variance + mean**2 - 1.0 - np.log(variance))

    def cost(seed: tf.Tensor) -> tf.Tensor:
        weight = tf.constant(0.25, tf.float64)
        terms = model.elbo_terms((X, Y), seed=seed)
        expected, log_ratio, of_rows = model.annealed_terms((X, Y), weight, seed=seed)
        tf.debugging.assert_near(expected, terms[0], rtol=1e-12)
        tf.debugging.assert_equal(log_ratio, terms[1])
        return (of_rows - expected) / 0.75

    check_mean(replicate(cost, 200), divergence)


def test_training_anneals_the_latent_variables_too() -> None:
    model = make_model("LV-GP-GP")
    objective = BoundObjective(model, N, lambda moment, dtype: tf.constant(0.25, dtype))
    objective.start(Moment(*tf.zeros([3])))
    bound, total = objective(Minibatch((X, Y), None, N), 3, Share(None))
    objective.finish()
    _, log_ratio, of_rows = model.annealed_terms((X, Y), tf.constant(0.25, tf.float64), seed=3)
    assert float(bound) == pytest.approx(float(model.elbo((X, Y), seed=3)), rel=1e-12)
    assert float(total) == pytest.approx(float(of_rows + 0.25 * log_ratio), rel=1e-12)
    assert float(total) > float(bound)


def of_the_posterior(model: LatentVariableDGP) -> list[str]:
    """Names of the parameters of q(w)."""
    parts = [
        f".layers[{i}]." for i, layer in enumerate(model.layers) if layer in model._latent_layers
    ]
    return [
        name
        for name in gpflow.utilities.parameter_dict(model)
        if any(name.startswith(part) for part in parts)
    ]


@with_latents
def test_doubly_reparametrised_bound_and_other_gradients_are_the_ordinary_ones(
    architecture: str,
) -> None:
    """With one seed: only the gradient in the parameters of q(w) is another estimate."""
    ordinary, other = doubly(architecture, num_importance_samples=4, num_samples=2)
    (bound, expected), (value, actual) = (
        bound_and_gradient(model, 5) for model in (ordinary, other)
    )
    assert float(value) == pytest.approx(float(bound), abs=1e-10)
    names = of_the_posterior(ordinary)
    assert len(names) == 4
    assert expected.keys() == actual.keys()
    for name, gradient in expected.items():
        if name in names:
            assert not np.allclose(actual[name], gradient, rtol=1e-3, atol=1e-6), name
        else:
            np.testing.assert_allclose(actual[name], gradient, rtol=0, atol=1e-10, err_msg=name)


@pytest.mark.parametrize(
    ("architecture", "weight"),
    [("LV-GP", 1.0), ("LV-GP", 0.3), ("LV-GP-GP", 1.0), ("LV-GP-GP", 0.3), ("LV-GP-LV-GP-GP", 1.0)],
)
def test_doubly_reparametrised_gradient_has_the_ordinary_ones_expectation(
    architecture: str, weight: float
) -> None:
    """In the encoder's parameters, through joint draws of inner layers where there are any."""
    models = doubly(architecture, num_importance_samples=3, num_samples=50)
    names = of_the_posterior(models[0])
    for model in models:
        # Where the output follows the inner values, what a draw owes to the others' matters most.
        steep = Linear(np.full([model.output_layer.input_dim, 1], 2.0))
        gpflow.set_trainable(steep, False)
        model.output_layer.mean_function = steep

    def gradients(seed: tf.Tensor) -> tf.Tensor:
        return tf.stack(
            [
                tf.concat(
                    [
                        tf.reshape(gradient, [-1])
                        for name, gradient in bound_and_gradient(model, seed, weight)[1].items()
                        if name in names
                    ],
                    0,
                )
                for model in models
            ]
        )

    draws = replicate(gradients, 50)
    check_mean(draws[:, 1] - draws[:, 0], 0.0)


@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_doubly_reparametrised_gradient_of_one_gp_is_the_classical_one(weight: float) -> None:
    """[Tucker et al. 2019]: sum_k v_k^2 d(log weight_k)/dw_k dw_k/dphi, with GPflow's SVGP and q fixed.

    Where log p - log q counts b times, v_k (1 - b (1 - v_k)) is in the place of v_k^2.
    """
    model = make_model(
        "LV-GP",
        free=True,
        kind=RecordingLayer,
        num_importance_samples=4,
        doubly_reparametrised=True,
    )
    layer = model.layers[0]
    with tf.GradientTape() as tape:
        whole, _, bound = model.annealed_terms((X, Y), tf.constant(weight, tf.float64), seed=6)
    variables = [layer.mean.unconstrained_variable, layer.variance.unconstrained_variable]
    actual = tape.gradient(bound, variables)

    a, b, w = layer.mean.numpy(), layer.variance.numpy(), tf.constant(layer.drawn)
    repeated = [np.repeat(part, 4, 0) for part in (X, Y)]
    with tf.GradientTape() as tape:
        tape.watch(w)
        inputs = tf.concat([repeated[0], tf.reshape(w, [-1, 1])], 1)
        mean, variance = svgp_of(model).predict_f(inputs)
        expected = model.likelihood.variational_expectations(
            repeated[0], mean, variance, repeated[1]
        )
        log_q = gpflow.logdensities.gaussian(w[..., 0], a, b)
        log_p = gpflow.logdensities.gaussian(w[..., 0], np.zeros_like(a), np.ones_like(b))
        of_data = tf.reshape(expected, [N, 4])
        log_weights = of_data + weight * (log_p - log_q)
    slopes = tape.gradient(log_weights, w).numpy()[..., 0]
    shares = special.softmax(log_weights.numpy(), axis=-1)
    by_draw = shares * (1.0 - weight * (1.0 - shares)) * slopes
    # d w / d a = 1; the variance's parameter is log b, with d w / d log b = (w - a) / 2.
    np.testing.assert_allclose(actual[0], by_draw.sum(1, keepdims=True), rtol=0, atol=1e-10)
    in_log_variance = np.sum(by_draw * 0.5 * (w.numpy()[..., 0] - a), 1, keepdims=True)
    np.testing.assert_allclose(actual[1], in_log_variance, rtol=0, atol=1e-10)
    for value, logarithms in ((bound, log_weights), (whole, of_data + log_p - log_q)):
        by_hand = np.sum(special.logsumexp(logarithms, axis=-1) - np.log(4))
        np.testing.assert_allclose(float(value), by_hand, rtol=0, atol=1e-9)


# Predictions

XNEW, YNEW = X + 0.1, Y + 0.2
S = 20


def by_quadrature(model: LatentVariableDGP) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of "LV-GP", SVGP's means [Q, N] and variances of y at nodes of w ~ N(0, 1), with weights [Q]."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    inputs = np.hstack([np.tile(XNEW, [80, 1]), np.repeat(nodes, N)[:, None]])
    moments = svgp_of(model).predict_y(inputs)
    means, variances = (np.reshape(moment, [80, N]) for moment in moments)
    return means, variances, weights / np.sum(weights)


@pytest.mark.parametrize("free", [False, True])
def test_predictions_integrate_over_the_prior_of_the_latent_variables(free: bool) -> None:
    """Not over their posterior, whatever it is: against quadrature of GPflow's SVGP."""
    model = make_model("LV-GP", free=free)
    means, variances, weights = by_quadrature(model)
    components = model.predict_mixture(XNEW, num_samples=10_000, seed=0)
    mean, variance = (component.numpy()[..., 0] for component in components)
    check_mean(mean, weights @ means)
    check_mean(mean**2 + variance, weights @ (means**2 + variances))
    densities = stats.norm(means, np.sqrt(variances)).pdf(YNEW[:, 0])
    check_mean(stats.norm(mean, np.sqrt(variance)).pdf(YNEW[:, 0]), weights @ densities)
    assert np.max(np.std(mean, 0)) > 0.1


@architectures
def test_moments_and_density_are_the_mixtures(architecture: str) -> None:
    model = make_model(architecture, num_outputs=2)
    mean, variance = (
        moment.numpy() for moment in model.predict_mixture(XNEW, num_samples=S, seed=1)
    )
    assert mean.shape == (1 if architecture == "GP" else S, N, 2)
    settings = {"num_samples": S, "seed": 1}
    y_mean, y_variance = model.predict_y(XNEW, **settings)
    np.testing.assert_allclose(y_mean, mean.mean(0), rtol=0, atol=1e-12)
    second = np.mean(variance + mean**2, 0)
    np.testing.assert_allclose(y_variance, second - mean.mean(0) ** 2, rtol=0, atol=1e-12)
    f_mean, f_variance = model.predict_f(XNEW, **settings)
    np.testing.assert_allclose(f_mean, y_mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(f_variance + 0.3, y_variance, rtol=0, atol=1e-12)
    targets = np.hstack([YNEW, -YNEW])
    log_densities = stats.norm(mean, np.sqrt(variance)).logpdf(targets).sum(-1)
    expected = special.logsumexp(log_densities, axis=0) - np.log(len(mean))
    actual = model.predict_log_density((XNEW, targets), **settings)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("architecture", ["GP", "GP-LV-GP"])
def test_quantiles_invert_the_mixtures_distribution_function(architecture: str) -> None:
    model, levels = make_model(architecture), [0.025, 0.5, 0.99]
    quantiles = model.predict_quantiles(XNEW, levels, num_samples=S, seed=2).numpy()
    assert quantiles.shape == (3, N, 1)
    moments = model.predict_mixture(XNEW, num_samples=S, seed=2)
    mean, variance = (moment.numpy() for moment in moments)
    cdf = stats.norm(mean, np.sqrt(variance)).cdf(quantiles[:, None]).mean(1)
    expected = np.broadcast_to(np.reshape(levels, [3, 1, 1]), cdf.shape)
    np.testing.assert_allclose(cdf, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("architecture", ["LV-GP", "GP-GP"])
def test_one_seed_gives_one_prediction(architecture: str) -> None:
    model = make_model(architecture)

    def predictions(seed: int) -> list[tf.Tensor]:
        settings = {"num_samples": 5, "seed": seed}
        return [
            *model.predict_y(XNEW, **settings),
            model.predict_log_density((XNEW, YNEW), **settings),
            model.predict_f_samples(XNEW, **settings),
            model.sample_prior(XNEW, **settings),
            model.elbo((X, Y), **settings),
        ]

    for first, again, other in zip(predictions(1), predictions(1), predictions(2), strict=True):
        np.testing.assert_array_equal(first, again)
        assert not np.any(np.equal(first, other))


@pytest.mark.parametrize("architecture", ["GP", "LV-GP-LV-GP"])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_shapes_of_predictions_in_batches(architecture: str, batch_size: int) -> None:
    model, settings = make_model(architecture), {"num_samples": 5, "batch_size": batch_size}
    for moment in (*model.predict_f(XNEW, **settings), *model.predict_y(XNEW, **settings)):
        assert moment.shape == (N, 1)
    assert model.predict_f_samples(XNEW, **settings).shape == (5, N, 1)
    assert model.predict_log_density((XNEW, YNEW), **settings).shape == (N,)
    assert model.predict_quantiles(XNEW, [0.2, 0.7], **settings).shape == (2, N, 1)
    assert model.sample_prior(XNEW, 5).shape == (5, N, 1)


def test_equal_points_have_one_prediction_and_latent_variables_of_their_own_in_joint_draws() -> (
    None
):
    """Each point's own mixture is over the same draws; the function drawn at both sees two of them."""
    model, twice = make_model("LV-GP"), np.repeat(XNEW[:1], 4, 0)
    mean, variance = model.predict_mixture(twice, num_samples=S, batch_size=3)
    for moment in (mean, variance):
        np.testing.assert_allclose(
            moment, np.broadcast_to(moment[:, :1], moment.shape), rtol=0, atol=1e-12
        )
    values = model.predict_f_samples(twice, S, seed=0).numpy()[..., 0].T
    differences = [np.abs(values[i] - values[j]) for i in range(4) for j in range(i)]
    assert np.min(np.max(differences, 1)) > 0.01


# The prior


def test_prior_of_two_gp_layers_is_that_of_numpy() -> None:
    """E f f^T at two points is E k_2(F_1), F_1 = m(X) + W g(X) being drawn by NumPy."""
    model, points, size = make_model("GP-GP"), X[:2], 4000
    inner, final = model.layers
    rng = np.random.default_rng(4)
    K = inner.kernel(points).numpy() + gpflow.default_jitter() * np.eye(2)
    g = np.linalg.cholesky(K) @ rng.normal(size=(size, 2, 2))
    A, b = inner.mean_function.A.numpy(), inner.mean_function.b.numpy()
    F = points @ A + b + g @ inner.projection.T
    distance = np.sum(((F[:, 0] - F[:, 1]) / final.kernel.lengthscales.numpy()) ** 2, -1)
    covariances = final.kernel.variance.numpy() * np.exp(-0.5 * distance)
    draws = model.sample_prior(points, size, seed=0).numpy()[..., 0]
    check_mean(draws, np.zeros(2))
    check_mean(draws**2, 1.2 + gpflow.default_jitter())
    check_equal_means(draws[:, 0] * draws[:, 1], covariances)
    assert 0.1 < np.mean(covariances) < 1.1


def test_prior_gives_each_point_latent_variables_of_its_own() -> None:
    """E k((x, w), (x', w')) over independent w and w' is k(x, x') / sqrt(1 + 2 / l_w^2)."""
    model, size = make_model("LV-GP"), 4000
    kernel = model.output_layer.kernel
    points = np.array([[0.0, 0.0], [0.0, 0.0], [0.5, -0.3]])
    draws = model.sample_prior(points, size, seed=1).numpy()[..., 0]
    scaled = points / kernel.lengthscales.numpy()[:D]
    over_x = 1.2 * np.exp(-0.5 * np.sum((scaled[:, None] - scaled) ** 2, -1))
    shrunk = over_x / np.sqrt(1.0 + 2.0 / kernel.lengthscales.numpy()[D] ** 2)
    expected = shrunk + (1.2 - shrunk) * np.eye(3)
    check_mean(draws[:, :, None] * draws[:, None], expected)


# Models for data


def toy_data(num_data: int = 40, num_features: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(num_data, num_features)) @ rng.normal(size=(num_features, num_features))
    return X, X[:, :1] + 0.1 * rng.normal(size=(num_data, 1))


TOY = toy_data()


@pytest.mark.parametrize(
    ("architecture", "columns"),
    [
        ("GP", [3]),
        ("LV-GP", [None, 4]),
        ("GP-LV-GP", [3, None, 4]),
        ("LV-GP-GP-GP", [None, 4, 3, 3]),
        ("LV-LV-GP-LV-GP", [None, None, 5, None, 4]),
    ],
)
def test_layers_of_an_architecture(architecture: str, columns: list[int | None]) -> None:
    model = LatentVariableDGP.from_architecture(
        architecture, TOY, num_inducing=6, num_marginal_points=0
    )
    assert len(model.layers) == len(columns)
    assert model.num_features == 3
    for layer, width in zip(model.layers, columns, strict=True):
        if width is None:
            assert isinstance(layer, LatentVariableLayer)
            assert isinstance(layer.encoder, Encoder)
            assert layer.latent_dim == 1
            assert layer.encoder.input_dim == 4
            continue
        inner = layer is not model.layers[-1]
        assert layer.inducing_variable.Z.shape == (6, width)
        lengthscales = layer.kernel.lengthscales.numpy()
        np.testing.assert_allclose(lengthscales, np.full(width, np.sqrt(width)), rtol=1e-12)
        assert layer.kernel.variance.trainable is not inner
        np.testing.assert_array_equal(layer.q_mu, np.zeros([6, 3 if inner else 1]))
        scale = 1e-5 if inner else 1.0
        expected = np.tile(scale * np.eye(6), [3 if inner else 1, 1, 1])
        np.testing.assert_allclose(layer.q_sqrt, expected, rtol=1e-12)
    assert float(model.likelihood.variance.numpy()) == pytest.approx(0.01, rel=1e-12)
    assert np.isfinite(model.elbo(TOY, seed=0))


def test_inner_layers_add_principal_directions_to_the_identity() -> None:
    """Of the inputs about their mean, the leading ones first; the latent variables are left out."""
    data = TOY[0] + 10.0, TOY[1]
    settings = {"num_inducing": 6, "num_inner_gps": 2}
    model = LatentVariableDGP.from_architecture("LV-GP-GP", data, **settings)
    inner = model.layers[1]
    assert inner.num_latent_gps == 2
    assert inner.projection.shape == (3, 2)
    np.testing.assert_allclose(inner.projection.T @ inner.projection, np.eye(2), rtol=0, atol=1e-12)
    directions = np.linalg.eigh(np.cov(TOY[0].T))[1][:, ::-1][:, :2]
    cosines = np.sum(directions * inner.projection, 0)
    np.testing.assert_allclose(np.abs(cosines), np.ones(2), rtol=0, atol=1e-9)
    points = np.random.default_rng(0).normal(size=(5, 4))
    mean, _ = inner.marginals(tf.constant(points))
    np.testing.assert_allclose(mean, points[:, :3], rtol=0, atol=1e-12)
    trainable = {v.ref() for v in model.trainable_variables}
    assert inner.mean_function.A.unconstrained_variable.ref() not in trainable


def test_inducing_points_are_the_centres_of_clusters() -> None:
    model = LatentVariableDGP.from_architecture("LV-GP-GP", TOY, num_inducing=6)
    first, second = (layer.inducing_variable.Z.numpy() for layer in model.layers[1:])
    np.testing.assert_array_equal(first[:, :3], second)
    nearest = np.argmin(np.sum((TOY[0][:, None] - second) ** 2, -1), 1)
    for number, centre in enumerate(second):
        np.testing.assert_allclose(centre, TOY[0][nearest == number].mean(0), rtol=0, atol=1e-12)
    assert np.std(first[:, 3]) > 0.1


def test_more_inducing_points_than_distinct_inputs() -> None:
    """They serve the latent dimensions: no two are one."""
    inputs = np.repeat(np.eye(3), 10, 0)
    data = inputs, inputs[:, :1]
    model = LatentVariableDGP.from_architecture("LV-GP", data, num_inducing=8)
    Z = model.output_layer.inducing_variable.Z.numpy()
    assert Z.shape == (8, 4)
    assert len(np.unique(Z, axis=0)) == 8
    assert np.isfinite(model.elbo(data, seed=0))


def test_an_architecture_is_repeatable_and_depends_on_its_seed() -> None:
    def values(seed: int) -> np.ndarray:
        model = LatentVariableDGP.from_architecture("LV-GP-GP", TOY, num_inducing=6, seed=seed)
        return np.concatenate([np.ravel(variable) for variable in model.trainable_variables])

    np.testing.assert_array_equal(values(0), values(0))
    assert not np.allclose(values(0), values(1))


def test_two_latent_variable_layers_start_with_encoders_of_their_own() -> None:
    model = LatentVariableDGP.from_architecture("LV-LV-GP", TOY, num_inducing=6)
    first, second = (layer.encoder.weights[0].numpy() for layer in model.layers[:2])
    assert not np.any(np.isclose(first, second, rtol=0, atol=1e-6))


def test_free_parameters_instead_of_an_encoder() -> None:
    model = LatentVariableDGP.from_architecture(
        "LV-GP", TOY, num_inducing=6, amortised=False, latent_dim=2, num_data=40
    )
    layer = model.layers[0]
    assert layer.encoder is None
    assert layer.mean.shape == (40, 2)
    assert layer.variance.shape == (40, 2)
    rows = np.array([3, 17])
    part = TOY[0][rows], TOY[1][rows]
    with tf.GradientTape() as tape:
        bound = model.elbo(part, seed=0, rows=rows)
    gradient = tf.convert_to_tensor(tape.gradient(bound, layer.mean.unconstrained_variable))
    assert set(np.flatnonzero(np.any(gradient.numpy() != 0.0, 1))) == set(rows)
    assert model.predict_y(TOY[0][:7], num_samples=3)[0].shape == (7, 1)
    with pytest.raises(ValueError, match="got 2 data points, has free parameters for the 40"):
        model.elbo(part)
    model.check_num_data(40)
    with pytest.raises(ValueError, match=r"data: got 39 rows, .* free parameters for 40"):
        model.check_num_data(39)


def test_inner_gps_with_kernels_and_noise_of_their_own() -> None:
    """As one kernel until they differ; far from the inducing points the noise is added to the prior's 1."""
    inputs = np.random.default_rng(0).normal(size=(40, 2))
    far = tf.constant(inputs + 100.0)

    def inner(**settings: object) -> FeatureLayer:
        data = inputs, TOY[1]
        model = LatentVariableDGP.from_architecture("GP-GP", data, num_inducing=6, **settings)
        assert np.isfinite(model.elbo(data, seed=0))
        return model.layers[0]

    shared, separate = inner(), inner(separate_kernels=True)
    assert isinstance(separate, IndependentGPs)
    assert [part.num_latent_gps for part in separate.parts] == [1, 1]
    first, second = (part.kernel for part in separate.parts)
    assert first.lengthscales is not second.lengthscales
    assert not first.variance.trainable
    for features in (tf.constant(inputs), far):
        for ours, expected in zip(
            separate.marginals(features), shared.marginals(features), strict=True
        ):
            np.testing.assert_allclose(ours, expected, rtol=1e-10, atol=1e-12)
    first.lengthscales.assign([0.3, 3.0])
    assert not np.allclose(separate.marginals(far - 99.9)[1], shared.marginals(far - 99.9)[1])
    for is_separate in (False, True):
        noisy = inner(separate_kernels=is_separate, inner_noise=0.25)
        np.testing.assert_allclose(noisy.marginals(far)[1], np.full([40, 2], 1.25), rtol=1e-10)
        kernels = [part.kernel for part in noisy.parts] if is_separate else [noisy.kernel]
        assert all(kernel.kernels[1].variance.trainable for kernel in kernels)


@pytest.mark.parametrize("separate_kernels", [False, True])
def test_inner_layers_pass_latent_variables_on_where_they_are_kept(separate_kernels: bool) -> None:
    inputs = np.random.default_rng(0).normal(size=(40, 2))
    settings = {"num_inducing": 6, "separate_kernels": separate_kernels, "latent_dim": 3}
    for is_kept, columns in ((False, 2), (True, 5)):
        model = LatentVariableDGP.from_architecture(
            "LV-GP-GP", (inputs, TOY[1]), keep_latents=is_kept, **settings
        )
        _, inner, last = model.layers
        assert (inner.input_dim, last.input_dim) == (5, columns)
        features = tf.random.normal([40, 5], dtype=tf.float64, seed=0)
        mean, variance = inner.marginals(features)
        np.testing.assert_allclose(mean, features[:, :columns])  # the GPs' own mean starts at 0
        np.testing.assert_array_equal(variance[:, 2:], np.zeros([40, columns - 2]))
        assert np.all(variance.numpy()[:, :2] > 0.0)
        assert np.isfinite(model.elbo((inputs, TOY[1]), seed=0))


def test_architecture_of_classes_has_an_output_for_each() -> None:
    data = TOY[0], labels(TOY[1])
    model = LatentVariableDGP.from_architecture(
        "LV-GP-GP", data, num_inducing=6, likelihood=gpflow.likelihoods.Softmax(3)
    )
    assert model.output_layer.num_latent_gps == 3
    assert np.isfinite(model.elbo(data, seed=0))
    probabilities = model.predict_y(TOY[0], num_samples=5)[0]
    np.testing.assert_allclose(np.sum(probabilities, 1), np.ones(40), rtol=0, atol=1e-9)


@pytest.mark.parametrize("amortised", [False, True])
def test_latent_variables_start_at_a_variance(amortised: bool) -> None:
    """exp(-5) is a variance, not the standard deviation that [ICML19] says; that is e^-10."""
    settings = {"num_inducing": 6, "amortised": amortised}
    variances = []
    for given in ({}, {"latent_variance": np.exp(-10.0)}):
        model = LatentVariableDGP.from_architecture("LV-GP", TOY, **settings, **given)
        layer = model.layers[0]
        if amortised:
            for weight in layer.encoder.weights:
                weight.assign(np.zeros(weight.shape))
        variances.append(layer.latent_posterior(Observed(*map(tf.constant, TOY)))[1].numpy())
    for variance, expected in zip(variances, (np.exp(-5.0), np.exp(-5.0) ** 2), strict=True):
        np.testing.assert_allclose(variance, np.full([40, 1], expected), rtol=1e-12)


@pytest.mark.parametrize("depth", [1, 3])
def test_depth_from_data_counts_the_gp_layers(depth: int) -> None:
    model = LatentVariableDGP.from_data(*TOY, depth=depth, num_inducing=6, inference="vi")
    kinds = [type(layer) for layer in model.layers]
    assert kinds == [LatentVariableLayer] + [SparseGP] * depth
    assert model.inference == "vi"


def test_settings_reach_the_model() -> None:
    settings = {
        "inference": "iwvi",
        "num_importance_samples": 7,
        "num_samples": 2,
        "doubly_reparametrised": True,
    }
    model = make_model("LV-GP", **settings)
    described = {**settings, "layers": ["LatentVariableLayer", "SparseGP"]}
    assert model.training_settings() == described


# Errors


def check_refused(function: Callable[[], object], pattern: str) -> None:
    with pytest.raises(ValueError, match=pattern) as raised:
        function()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("architecture", ["LV-XX-GP", "", "GP-", "gp", "LV GP", None])
def test_unknown_letters_of_an_architecture(architecture: object) -> None:
    check_refused(
        lambda: LatentVariableDGP.from_architecture(architecture, TOY),
        r"architecture: got .*, needs LV and GP joined by hyphens, such as LV-GP-GP",
    )


@pytest.mark.parametrize("architecture", ["GP-LV", "LV"])
def test_latent_variables_last_in_an_architecture(architecture: str) -> None:
    check_refused(
        lambda: LatentVariableDGP.from_architecture(architecture, TOY),
        f"architecture: got '{architecture}', needs a GP as the last layer",
    )


@pytest.mark.parametrize("name", ["num_inducing", "num_inner_gps", "latent_dim"])
def test_bad_numbers_for_an_architecture(name: str) -> None:
    check_refused(
        lambda: LatentVariableDGP.from_architecture("LV-GP-GP", TOY, **{name: 0}),
        rf"{name}.*: got 0, needs an integer of at least 1",
    )


@pytest.mark.parametrize("value", [0.0, -1.0, np.inf])
def test_bad_variances_to_start_at(value: float) -> None:
    check_refused(
        lambda: LatentVariableDGP.from_architecture("LV-GP", TOY, latent_variance=value),
        "latent_variance: got .*, needs a positive finite number",
    )
    check_refused(
        lambda: LatentVariableLayer(num_points=3, start_variance=value),
        "start_variance: got .*, needs a positive finite number",
    )


def bad_data() -> list[tuple[tuple[np.ndarray, np.ndarray], str]]:
    inputs, targets = TOY
    broken = targets.copy()
    broken[3] = np.nan
    return [
        ((inputs[:5], targets), r"data: got X \(5, 3\) and Y \(40, 1\), needs"),
        ((inputs, broken), r"data: Y\[3, 0\] is nan, needs finite numbers"),
        ((inputs[:1], targets[:1]), "data: got 1 rows, needs at least 2"),
        ((inputs, targets[:, 0]), r"data: got X \(40, 3\) and Y \(40,\), needs"),
    ]


@pytest.mark.parametrize(("data", "pattern"), bad_data())
def test_bad_data_for_an_architecture(data: tuple[np.ndarray, np.ndarray], pattern: str) -> None:
    check_refused(lambda: LatentVariableDGP.from_architecture("LV-GP", data), pattern)


RNG = np.random.default_rng(0)
LATENTS = LatentVariableLayer(num_points=N)


@pytest.mark.parametrize(
    ("layers", "pattern"),
    [
        ([], "layers: needs a list of LatentVariableLayer and SparseGP, got none"),
        (make_gp(2, 1, RNG), "layers: needs a list of LatentVariableLayer and SparseGP"),
        ([LATENTS], "layers: the last is a LatentVariableLayer, needs a SparseGP last"),
        (
            [make_gp(2, 1, RNG), LATENTS],
            "layers: the last is a LatentVariableLayer, needs a SparseGP",
        ),
        ([SquaredExponential()], "layers: got SquaredExponential among them, needs"),
        (
            [LATENTS, make_gp(3, 2, RNG), make_gp(3, 1, RNG)],
            "layers: layer 3 takes 3 columns, those before it give 2",
        ),
        (
            [make_gp(2, 2, RNG), LATENTS, make_gp(2, 1, RNG)],
            "layers: layer 3 takes 2 columns, those before it give 3",
        ),
        (
            [LATENTS, LATENTS, make_gp(1, 1, RNG)],
            "layers: layer 3 takes 1 columns, fewer than the latent variables before it",
        ),
    ],
)
def test_layers_that_do_not_fit(layers: object, pattern: str) -> None:
    check_refused(lambda: LatentVariableDGP(layers, Gaussian()), pattern)


def test_outputs_that_the_likelihood_does_not_take() -> None:
    likelihood = gpflow.likelihoods.HeteroskedasticTFPConditional()
    check_refused(
        lambda: LatentVariableDGP([make_gp(2, 1, RNG)], likelihood),
        "layers: the last gives 1 outputs, HeteroskedasticTFPConditional needs 2",
    )


@pytest.mark.parametrize(
    ("settings", "pattern"),
    [
        (
            {"inference": "mcmc"},
            "inference: got 'mcmc', choose one of vi, iwvi, iwvi-sampled, iwvi-independent",
        ),
        ({"num_importance_samples": 0}, "num_importance_samples: got 0, needs an integer of at"),
        (
            {"num_importance_samples": 2.0},
            "num_importance_samples: got 2.0, needs an integer of at",
        ),
        ({"num_samples": 0}, "num_samples: got 0, needs an integer of at least 1"),
        ({"num_data": 0}, "num_data: got 0, needs an integer of at least 1"),
        ({"jitter": -1e-6}, "jitter: got -1e-06, needs a finite number of at least 0"),
        (
            {"inference": "vi", "doubly_reparametrised": True},
            "doubly_reparametrised: it is for inference 'iwvi', got 'vi'",
        ),
        (
            {"inference": "iwvi-independent", "doubly_reparametrised": True},
            "doubly_reparametrised: it is for inference 'iwvi', got 'iwvi-independent'",
        ),
    ],
)
def test_settings_that_are_refused(settings: dict, pattern: str) -> None:
    check_refused(lambda: make_model("LV-GP", **settings), pattern)


def test_data_that_do_not_fit() -> None:
    model = make_model("LV-GP")
    check_refused(lambda: model.elbo((X[:, :1], Y)), r"got X \(4, 1\), needs 2 columns")
    check_refused(lambda: model.elbo((X, Y[:2])), r"needs X \[N, D\] and Y \[N, P\]")
    check_refused(
        lambda: model.elbo((X, np.hstack([Y, Y]))), r"got Y \(4, 2\), needs 1 column for gaussian"
    )
    check_refused(lambda: model.predict_f(np.zeros([2, 3])), r"\(2, 3\), needs 2 columns")
    check_refused(lambda: model.elbo((X, Y), num_samples=0), "num_samples: got 0, needs an integer")


# GPflow's and TensorFlow's tools


def test_deepcopy_is_equal_and_independent() -> None:
    original = make_model("LV-GP-GP")
    before = float(original.elbo((X, Y), seed=0))
    copied = copy.deepcopy(original)
    assert float(copied.elbo((X, Y), seed=0)) == before
    for variable in copied.trainable_variables:
        variable.assign_add(0.1 * tf.ones_like(variable))
    changed = float(copied.elbo((X, Y), seed=0))
    for jitter in jitters_of(copied):
        jitter.assign(0.1)
    assert float(original.elbo((X, Y), seed=0)) == before
    assert float(copied.elbo((X, Y), seed=0)) != changed


def test_parameters_by_their_names(capsys: pytest.CaptureFixture) -> None:
    first, second = make_model("LV-GP-GP"), make_model("LV-GP-GP")
    for variable in second.trainable_variables:
        variable.assign_add(0.1 * tf.ones_like(variable))
    expected = float(first.elbo((X, Y), seed=0))
    assert float(second.elbo((X, Y), seed=0)) != expected
    gpflow.utilities.multiple_assign(second, gpflow.utilities.read_values(first))
    assert float(second.elbo((X, Y), seed=0)) == pytest.approx(expected, abs=1e-9)
    names = [f".layers[0].encoder.{part}[{i}]" for part in ("weights", "offsets") for i in (0, 1)]
    names += [
        f".layers[{i}].{part}"
        for i in (1, 2)
        for part in ("q_mu", "q_sqrt", "kernel.lengthscales", "inducing_variable.Z")
    ]
    assert set(names) < set(gpflow.utilities.parameter_dict(first))
    gpflow.utilities.print_summary(first, fmt="simple")
    printed = capsys.readouterr().out
    for name in names:
        assert f"{name} " in printed


def test_jitter_and_kl_weight_are_never_trained() -> None:
    model = make_model("LV-GP-GP")
    trained = {variable.ref() for variable in model.trainable_variables}
    assert model.jitter.ref() not in trained
    assert model.kl_weight.ref() not in trained
    gpflow.set_trainable(model, False)
    assert model.trainable_variables == ()


def test_checkpoint(tmp_path: Path) -> None:
    original, restored = make_model("LV-GP-GP"), make_model("LV-GP-GP")
    original.kl_weight.assign(0.25)
    for variable in restored.trainable_variables:
        variable.assign_add(0.1 * tf.ones_like(variable))
    path = tf.train.Checkpoint(model=original).write(str(tmp_path / "model"))
    tf.train.Checkpoint(model=restored).read(path).assert_consumed()
    assert float(restored.kl_weight) == 0.25
    assert float(restored.elbo((X, Y), seed=0)) == float(original.elbo((X, Y), seed=0))


@pytest.mark.parametrize(
    "settings",
    [{"inference": "vi"}, {"inference": "iwvi-sampled"}, {"doubly_reparametrised": True}],
    ids=["vi", "iwvi-sampled", "doubly"],
)
def test_compiled_bound_of_any_number_of_rows_is_the_eager_one(settings: dict) -> None:
    model = make_model("LV-GP-GP", num_samples=2, num_data=10, **settings)
    signature = [tf.TensorSpec([None, D], tf.float64), tf.TensorSpec([None, 1], tf.float64)]
    compiled = tf.function(
        lambda *data: model.elbo(data, seed=0), input_signature=signature, autograph=False
    )
    for rows in (1, N):
        expected = float(model.elbo((X[:rows], Y[:rows]), seed=0))
        assert float(compiled(X[:rows], Y[:rows])) == pytest.approx(expected, abs=1e-7)


def test_clear_words_on_the_layer_that_fails() -> None:
    model = make_model("LV-GP-GP")
    seed = tf.constant([0, 0])
    assert model.locate_failure(tf.constant(X), seed).startswith("every layer is finite")
    model.layers[2].q_mu.unconstrained_variable.assign(np.full([M, 1], np.nan))
    assert model.locate_failure(tf.constant(X), seed) == (
        "layer 3 of 3 (SparseGP) gives values that are not finite"
    )


@pytest.mark.parametrize("free", [False, True])
def test_set_trainable_off_and_on_leaves_what_was_trained(free: bool) -> None:
    model = make_model("LV-GP-GP", free=free)
    gpflow.set_trainable(model.layers[1].mean_function, True)
    trained = {variable.ref() for variable in model.trainable_variables}
    gpflow.set_trainable(model, False)
    assert model.trainable_variables == ()
    gpflow.set_trainable(model, True)
    assert {variable.ref() for variable in model.trainable_variables} == trained
    others = [model.kl_weight, *jitters_of(model)]
    assert len(others) == 4
    assert not any(variable.ref() in trained for variable in others)


def test_models_that_share_layers_keep_their_jitters() -> None:
    """Building a second model changes no number of the first."""
    first = make_model("LV-GP-GP", jitter=1e-3)
    jitters = [float(jitter) for jitter in jitters_of(first)]
    assert jitters == [1e-3, 1e-3, 1e-3]
    before = float(first.elbo((X, Y), seed=0))
    predicted = first.predict_f(X, full_cov=True, num_samples=3)
    second = LatentVariableDGP(first.layers, Gaussian(0.3))
    assert [float(jitter) for jitter in jitters_of(first)] == jitters
    assert float(first.elbo((X, Y), seed=0)) == before
    assert float(second.elbo((X, Y), seed=0)) == before
    for actual, value in zip(
        first.predict_f(X, full_cov=True, num_samples=3), predicted, strict=True
    ):
        np.testing.assert_array_equal(actual, value)


def test_training_raises_the_jitters_of_the_layers() -> None:
    """Two inducing points in one place have no Cholesky factor without."""
    layer = make_gp(2, 1, np.random.default_rng(0))
    layer.inducing_variable.Z.assign(np.array([[0.5, 0.5], [0.5, 0.5], [1.0, -1.0]]))
    gpflow.set_trainable(layer.inducing_variable, False)
    layer.kernel.variance.assign(1e6)
    layer.jitter.assign(1e-14)
    model = LatentVariableDGP([layer], Gaussian(0.3))
    model.jitter.assign(1e-6)
    assert not np.isfinite(model.elbo((X, Y)))
    for jitter in jitters_of(model):
        jitter.assign(1e3 * jitter)
    assert [float(jitter) for jitter in jitters_of(model)] == pytest.approx([1e-3, 1e-11])
    layer.jitter.assign(1e-4)
    assert np.isfinite(model.elbo((X, Y)))


def test_copies_keep_the_predictions(tmp_path: Path) -> None:
    original, restored = make_model("LV-GP-GP"), make_model("LV-GP-GP")
    for variable in original.trainable_variables:
        variable.assign_add(0.1 * tf.ones_like(variable))
    tf.function(lambda: original.elbo((X, Y), seed=0), autograph=False)()

    def predictions(model: LatentVariableDGP, points: tf.Tensor = X) -> list[tf.Tensor]:
        settings = {"num_samples": 5, "seed": 0}
        return [
            *model.predict_y(points, **settings),
            *model.predict_f(points, full_cov=True, **settings),
            model.predict_f_samples(points, 3, seed=0),
        ]

    path = tf.train.Checkpoint(model=original).write(str(tmp_path / "model"))
    tf.train.Checkpoint(model=restored).read(path).assert_consumed()
    expected = predictions(original)
    for copied in (gpflow.utilities.deepcopy(original), copy.deepcopy(original), restored):
        for actual, value in zip(predictions(copied), expected, strict=True):
            np.testing.assert_array_equal(actual, value)
    compiled = tf.function(
        lambda points: predictions(original, points),
        input_signature=[tf.TensorSpec([None, D], tf.float64)],
        autograph=False,
    )
    for actual, value in zip(compiled(X), expected, strict=True):
        np.testing.assert_allclose(actual, value, rtol=0, atol=1e-9)


@pytest.mark.parametrize("architecture", ["GP", "LV-GP-GP"])
def test_saved_model_of_predictions(architecture: str, tmp_path: Path) -> None:
    """For any number of points: the batch is not known when the model is saved."""
    built = make_model(architecture)
    points = np.random.default_rng(3).normal(size=(7, built.num_features))
    expected = {n: built.predict_y(points[:n], num_samples=5, seed=0) for n in (1, 7)}
    built.predict_y_compiled = tf.function(
        lambda points: built.predict_y(points, num_samples=5, seed=0),
        input_signature=[tf.TensorSpec([None, built.num_features], tf.float64)],
        autograph=False,
    )
    tf.saved_model.save(built, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    for n, moments in expected.items():
        for actual, value in zip(loaded.predict_y_compiled(points[:n]), moments, strict=True):
            np.testing.assert_allclose(actual, value, rtol=0, atol=1e-8)
