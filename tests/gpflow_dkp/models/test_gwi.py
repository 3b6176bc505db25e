"""GWI: the objective by NumPy, limits with known answers, tempering, any mean, predictions, tools."""

import copy
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Linear, Matern32, SquaredExponential
from gpflow.likelihoods import Bernoulli, Gaussian, MultiClass, Softmax
from latent_variable_cases import FALSE_ALARM, check_mean
from scipy import linalg, optimize, stats

from gpflow_dkp.likelihoods import RobustMax
from gpflow_dkp.means import (
    KerasMean,
    KernelExpansion,
    MultilayerPerceptron,
    as_mean,
    convolutional_network,
)
from gpflow_dkp.models import GWI, gwi
from gpflow_dkp.models.gwi import LOG_TEMPERATURE
from gpflow_dkp.models.marginal_likelihood import marginal_likelihood_start
from gpflow_dkp.training import fit

N, D, M, S = 8, 2, 4, 3
NUM_DATA = 30
NOISE, VARIANCE, LENGTHSCALES = 0.3, 1.4, np.array([0.8, 1.3])
JITTER = 1e-6
CROSS_JITTER = 1e-4 * JITTER * VARIANCE  # on the cross term's covariances

rng = np.random.default_rng(0)
X = rng.uniform(-2.0, 2.0, size=(N, D))
Y = np.sin(2.0 * X[:, :1]) + 0.3 * rng.normal(size=(N, 2))
XNEW = rng.uniform(-2.5, 2.5, size=(7, D))
Z = rng.uniform(-2.0, 2.0, size=(M, D))
LABELS = np.arange(N)[:, None] % 3

DISTANCES = ["squared", "root", "published"]
CROSS_TERMS = ["nystrom", "eigenvalues", "exact"]
cross_terms = pytest.mark.parametrize("cross_term", CROSS_TERMS)
PAIRS = [
    ("squared", "nystrom"),
    ("squared", "eigenvalues"),
    ("squared", "exact"),
    ("root", "nystrom"),
    ("published", "nystrom"),
]
pairs = pytest.mark.parametrize(("distance", "cross_term"), PAIRS)


def se() -> SquaredExponential:
    return SquaredExponential(VARIANCE, LENGTHSCALES)


def prior_mean() -> gpflow.functions.MeanFunction:
    return gpflow.functions.Linear(np.array([[0.3], [-0.2]]), [0.1])


def make_model(
    num_outputs: int = 2,
    *,
    kernel: gpflow.kernels.Kernel | None = None,
    likelihood: gpflow.likelihoods.Likelihood | None = None,
    inducing: np.ndarray = Z,
    at_prior: bool = False,
    **settings: Any,
) -> GWI:
    """A model whose variational parameters are random, or those of the prior."""
    model = GWI(
        se() if kernel is None else kernel,
        Gaussian(NOISE) if likelihood is None else likelihood,
        inducing,
        num_latent_gps=num_outputs,
        **settings,
    )
    if at_prior:
        return model
    rng = np.random.default_rng(1)
    shape = (num_outputs, model.num_inducing, model.num_inducing)
    model.q_sqrt.assign(np.tril(0.3 * rng.normal(size=shape), -1) + 0.6 * np.eye(shape[-1]))
    if model.mean is None:
        model.q_mu.assign(rng.normal(size=(shape[-1], num_outputs)))
    return model


def classes(num_classes: int = 3) -> MultiClass:
    return MultiClass(num_classes, invlink=RobustMax(num_classes))


# The objective by NumPy


def kernel_matrix(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    differences = (x[:, None] - y[None]) / LENGTHSCALES
    return VARIANCE * np.exp(-0.5 * np.sum(differences**2, -1))


def measure(model: GWI, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """m_Q [N, P] and r [P, N, N] by explicit inverses of k_ZZ."""
    k_zz = kernel_matrix(Z, Z) + JITTER * np.eye(M)
    tril, k_xz = np.linalg.cholesky(k_zz), kernel_matrix(x, Z)
    inverse, root = np.linalg.inv(k_zz), np.linalg.inv(tril).T
    r = []
    for q_sqrt in model.q_sqrt.numpy():
        sigma = root @ q_sqrt @ q_sqrt.T @ root.T
        r.append(kernel_matrix(x, x) - k_xz @ inverse @ k_xz.T + k_xz @ sigma @ k_xz.T)
    mean = k_xz @ root @ model.q_mu.numpy()
    if model.prior_mean is not None:
        mean = mean + model.prior_mean(x).numpy()
    return mean, np.array(r)


def cross_by_numpy(name: str, k: np.ndarray, r: np.ndarray, chosen: tuple[int, ...]) -> float:
    """The cross term of one output."""
    size, few = len(k), list(chosen)
    if name == "exact":
        root = linalg.sqrtm(k + CROSS_JITTER * np.eye(size))
        middle = linalg.sqrtm(root @ (r + CROSS_JITTER * np.eye(size)) @ root)
        return np.trace(middle).real / size - CROSS_JITTER
    if name == "eigenvalues":
        values = np.linalg.eigvals(r[few] @ k[:, few]).real
        return np.sum(np.sqrt(np.maximum(values, 0.0))) / np.sqrt(size * len(few))
    eye = CROSS_JITTER * np.eye(len(few))
    phi_p, phi_q = (
        matrix[:, few] @ np.linalg.inv(np.linalg.cholesky(matrix[np.ix_(few, few)] + eye)).T
        for matrix in (k, r)
    )
    return linalg.svdvals(phi_p.T @ phi_q).sum() / size


def elbo_by_numpy(model: GWI, chosen: tuple[int, ...], kl_weight: float = 1.0) -> float:
    mean, r = measure(model, X)
    variance, k = np.diagonal(r, axis1=1, axis2=2).T, kernel_matrix(X, X)
    m_p = 0.0 if model.prior_mean is None else model.prior_mean(X).numpy()
    expected = -0.5 * np.log(2.0 * np.pi * NOISE) - ((Y - mean) ** 2 + variance) / (2.0 * NOISE)
    squared = 0.0
    for p in range(Y.shape[1]):
        cross = cross_by_numpy(model.cross_term, k, r[p], chosen)
        pointwise = (mean - m_p)[:, p] ** 2 + np.diag(k) + variance[:, p]
        squared += np.mean(pointwise) - 2.0 * cross
    root = np.sqrt(max(squared, 0.0))
    distance = {"squared": squared, "root": root, "published": N * root}[model.distance]
    return NUM_DATA / N * np.sum(expected) - kl_weight * distance


@pairs
def test_objective_of_all_points(distance: str, cross_term: str) -> None:
    model = make_model(
        distance=distance, cross_term=cross_term, prior_mean=prior_mean(), num_data=NUM_DATA
    )
    expected = elbo_by_numpy(model, tuple(range(N)))
    assert float(model.elbo((X, Y), seed=0)) == pytest.approx(expected, abs=1e-6)
    model.kl_weight.assign(0.25)
    expected = elbo_by_numpy(model, tuple(range(N)), 0.25)
    assert float(model.elbo((X, Y), seed=1)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("distance", "cross_term"), [*PAIRS[:2], PAIRS[3]])
def test_objective_of_some_points(distance: str, cross_term: str) -> None:
    """Of one of the 56 choices of three points among eight, and of another with another seed."""
    settings = {"distance": distance, "cross_term": cross_term, "num_cross_points": S}
    model = make_model(num_data=NUM_DATA, **settings)
    subsets = list(itertools.combinations(range(N), S))
    expected = np.array([elbo_by_numpy(model, subset) for subset in subsets])
    assert np.ptp(expected) > 1e-3
    found = set()
    for seed in range(5):
        errors = np.abs(expected - float(model.elbo((X, Y), seed=seed)))
        assert np.min(errors) < 1e-7
        found.add(int(np.argmin(errors)))
    assert len(found) > 2


def test_objective_repeats_with_its_seed_alone() -> None:
    model = make_model(num_cross_points=S)
    assert float(model.elbo((X, Y), seed=3)) == float(model.elbo((X, Y), seed=3))
    assert len({float(model.elbo((X, Y))) for _ in range(5)}) > 1


@pairs
def test_gradient_of_the_objective_is_the_finite_difference(distance: str, cross_term: str) -> None:
    """Along random directions of all unconstrained parameters."""
    model = make_model(distance=distance, cross_term=cross_term, num_cross_points=S)
    variables = model.trainable_variables
    start = [variable.numpy() for variable in variables]
    with tf.GradientTape() as tape:
        bound = model.elbo((X, Y), seed=0)
    gradients = tape.gradient(bound, variables)
    rng = np.random.default_rng(2)
    directions = [rng.normal(size=value.shape) for value in start]

    def at(distance: float) -> float:
        for variable, value, direction in zip(variables, start, directions, strict=True):
            variable.assign(value + distance * direction)
        return float(model.elbo((X, Y), seed=0))

    near, far = at(1e-4) - at(-1e-4), at(2e-4) - at(-2e-4)
    actual = sum(np.sum(g * d) for g, d in zip(gradients, directions, strict=True))
    assert actual == pytest.approx((8.0 * near - far) / 12e-4, rel=1e-5)


# The distance


@pytest.mark.parametrize("whole", [False, True])
@cross_terms
def test_prior_is_at_no_distance_from_itself(cross_term: str, whole: bool) -> None:
    """Whatever the prior's mean; also the two roots, whose gradient is finite there.

    But for the Nystrom approximation, which leaves out the jitter of each measure and output.
    """
    settings = {"cross_term": cross_term, "prior_mean": prior_mean(), "at_prior": True}
    model = make_model(**settings)
    points = X if whole else X[:1]
    most = 4.0 * CROSS_JITTER if cross_term == "nystrom" else 1e-10
    assert -1e-10 < float(model.squared_distance(points)) < 1.001 * most
    for distance in ("root", "published"):
        model = make_model(distance=distance, **settings)
        with tf.GradientTape() as tape:
            _, penalty = model.elbo_terms((points, Y[: len(points)]), seed=0)
        assert 0.0 <= -float(penalty) <= len(points) * np.sqrt(1.001 * most)
        gradients = tape.gradient(penalty, model.trainable_variables)
        assert all(np.all(np.isfinite(g)) for g in gradients if g is not None)


@pytest.mark.parametrize("distance", ["root", "published"])
def test_gradient_of_a_root_of_exactly_zero(distance: str) -> None:
    """One point that the inducing points say nothing about, with variance 1: no rounding at all."""
    model = make_model(
        kernel=SquaredExponential(),
        inducing=Z + 100.0,
        cross_term="eigenvalues",
        distance=distance,
        at_prior=True,
    )
    assert float(model.squared_distance(X[:1])) == 0.0
    with tf.GradientTape() as tape:
        _, penalty = model.elbo_terms((X[:1], Y[:1]), seed=0)
    assert float(penalty) == 0.0
    gradients = tape.gradient(penalty, model.trainable_variables)
    assert all(np.all(np.isfinite(g)) for g in gradients if g is not None)


def distance_by_numpy(model: GWI, jitter: float) -> float:
    """|m_P - m_Q|^2 + tr(k + r - 2 (k^{1/2} r k^{1/2})^{1/2}), over N and summed over outputs."""
    mean, covariance = (part.numpy() for part in model.predict_f(X, full_cov=True))
    eye = jitter * np.eye(N)
    k, total = kernel_matrix(X, X) + eye, 0.0
    root = linalg.sqrtm(k)
    for p in range(2):
        r = covariance[p] + eye
        middle = linalg.sqrtm(root @ r @ root).real
        shift = mean[:, p] - prior_mean()(X).numpy()[:, 0]
        total += (shift @ shift + np.trace(k + r - 2.0 * middle)) / N
    return total


def test_exact_distance_is_that_of_the_gaussians_at_the_points() -> None:
    """Of those with the cross term's jitter."""
    model = make_model(cross_term="exact", prior_mean=prior_mean())
    expected = distance_by_numpy(model, CROSS_JITTER)
    assert expected > 0.1
    assert float(model.squared_distance(X)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("scale", [1.0, 1e-3])
@cross_terms
def test_every_distance_at_all_points_is_that_of_the_gaussians(
    cross_term: str, scale: float
) -> None:
    """Of those without jitter; also where Sigma is small and r nearly singular, as after training."""
    model = make_model(cross_term=cross_term, prior_mean=prior_mean())
    model.q_sqrt.assign(scale * model.q_sqrt)
    expected = distance_by_numpy(model, 0.0)
    assert float(model.squared_distance(X)) == pytest.approx(expected, abs=1e-6)


def test_nystrom_distance_is_an_upper_bound() -> None:
    exact = float(make_model(cross_term="exact").squared_distance(X))
    gaps = []
    for size in (1, 3, N):
        model = make_model(num_cross_points=size)
        gaps += [float(model.squared_distance(X, seed=seed)) - exact for seed in range(3)]
    assert min(gaps) > -1e-9
    assert max(gaps) > 0.1
    assert max(gaps[-3:]) < 10.0 * CROSS_JITTER


def test_nystrom_distance_in_single_precision() -> None:
    """That of double precision, also with repeated rows and a variance that is nearly all explained."""
    x = np.random.default_rng(0).normal(size=[100, 1])
    x[50:60] = x[:10]

    def distance(dtype: type) -> float:
        with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
            points = x.astype(dtype)
            model = GWI.net(SquaredExponential(), Gaussian(0.1), points[:10], num_cross_points=50)
            model.start_at_sparse_posterior((points, np.sin(points)), 0.1)
            with tf.GradientTape() as tape:
                squared = model.squared_distance(points)
            gradient = tape.gradient(squared, model.q_sqrt.unconstrained_variable)
            assert np.all(np.isfinite(gradient))
            return float(squared)

    assert distance(np.float32) == pytest.approx(distance(np.float64), abs=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cross_terms_jitter_grows_with_the_models(dtype: type) -> None:
    """By which `fit` repeats a step whose factorisation fails; in single precision it is above rounding."""
    with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
        model = GWI(SquaredExponential(), Gaussian(0.1), Z.astype(dtype))
        variance = tf.constant([[0.5], [1.5]], dtype)
        before = float(model._cross_jitter(variance, 100))
        assert before == pytest.approx(max(1e-10, 100 * np.finfo(dtype).eps), rel=1e-5)
        model.jitter.assign(1e3 * model.jitter)
        assert float(model._cross_jitter(variance, 100)) == pytest.approx(1e3 * before, rel=1e-5)


def test_distance_does_not_see_the_order_of_the_points() -> None:
    order = np.random.default_rng(3).permutation(N)
    for cross_term in CROSS_TERMS:
        model = make_model(cross_term=cross_term)
        shuffled = float(model.squared_distance(X[order]))
        assert shuffled == pytest.approx(float(model.squared_distance(X)), abs=1e-6)


@pairs
def test_duplicate_rows_have_finite_gradients(distance: str, cross_term: str) -> None:
    """Among the points, the inducing points and both; at random parameters and at the prior."""
    rows = [0, 0, 1, 1, 1, 2, 3, 4]
    data = X[rows], Y[rows]
    for at_prior in (False, True):
        model = make_model(
            distance=distance,
            cross_term=cross_term,
            inducing=X[[0, 0, 1, 5]],
            at_prior=at_prior,
        )
        with tf.GradientTape() as tape:
            bound = model.elbo(data, seed=0)
        gradients = tape.gradient(bound, model.trainable_variables)
        assert np.isfinite(bound)
        assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


def test_spectrum() -> None:
    """Of r k / N^2 over all points, the largest first; of 100 points at most, or as many as asked for."""
    model = make_model()
    _, r = measure(model, X)
    expected = [
        np.sort(np.linalg.eigvals(one @ kernel_matrix(X, X) / N**2).real)[::-1] for one in r
    ]
    spectrum = model.spectrum(X).numpy()
    np.testing.assert_allclose(spectrum, expected, rtol=0, atol=1e-9)
    many = np.random.default_rng(0).normal(size=[120, D])
    assert model.spectrum(many).shape == (2, 100)
    assert make_model(num_cross_points=7).spectrum(many).shape == (2, 7)
    first, second = (make_model(num_cross_points=2).spectrum(X, seed=seed) for seed in (0, 1))
    assert not np.allclose(first, second)


# GWI-SVGP is SVGP with another penalty


def svgp_of(model: GWI, num_data: int | None = None) -> gpflow.models.SVGP:
    svgp = gpflow.models.SVGP(
        model.kernel,
        model.likelihood,
        model.inducing_variable,
        mean_function=model.prior_mean,
        num_latent_gps=model.num_latent_gps,
        whiten=True,
        num_data=num_data,
    )
    svgp.q_mu, svgp.q_sqrt = model.q_mu, model.q_sqrt
    return svgp


KERNELS: dict[str, Callable] = {
    "ARD": se,
    "Sum": lambda: Matern32(0.7, 1.1, active_dims=[0]) + Linear(0.4),
}


@pytest.mark.parametrize("with_mean", [False, True])
@pytest.mark.parametrize("num_outputs", [1, 2])
@pytest.mark.parametrize("kernel", KERNELS)
def test_predictions_are_svgps(kernel: str, num_outputs: int, with_mean: bool) -> None:
    model = make_model(
        num_outputs, kernel=KERNELS[kernel](), prior_mean=prior_mean() if with_mean else None
    )
    svgp = svgp_of(model)
    pairs = [
        (model.predict_f(XNEW), svgp.predict_f(XNEW)),
        (model.predict_f(XNEW, full_cov=True), svgp.predict_f(XNEW, full_cov=True)),
        (model.predict_y(XNEW), svgp.predict_y(XNEW)),
    ]
    for ours, theirs in pairs:
        for actual, expected in zip(ours, theirs, strict=True):
            assert actual.shape == expected.shape
            np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-8)
    data = X, Y[:, :num_outputs]
    np.testing.assert_allclose(
        model.predict_log_density(data), svgp.predict_log_density(data), rtol=0, atol=1e-8
    )


LIKELIHOODS: dict[str, tuple[Callable, np.ndarray]] = {
    "Gaussian": (lambda: Gaussian(NOISE), Y),
    "Bernoulli": (Bernoulli, (Y[:, :1] > 0).astype(float)),
    "StudentT": (lambda: gpflow.likelihoods.StudentT(scale=0.3, df=4.0), Y),
    "MultiClass": (lambda: MultiClass(3), LABELS.astype(float)),
}


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_expected_log_likelihood_is_svgps(name: str) -> None:
    """Its bound plus its KL term, of a minibatch."""
    make, targets = LIKELIHOODS[name]
    likelihood = make()
    num_outputs = likelihood.latent_dim or targets.shape[1]
    model = make_model(num_outputs, likelihood=likelihood, num_data=NUM_DATA)
    svgp = svgp_of(model, NUM_DATA)
    expected = float(svgp.elbo((X, targets)) + svgp.prior_kl())
    model.kl_weight.assign(0.0)
    assert float(model.elbo((X, targets))) == pytest.approx(expected, abs=1e-8)


def test_default_number_of_outputs() -> None:
    assert GWI(se(), Gaussian(), Z).num_latent_gps == 1
    assert GWI(se(), classes(), Z).num_latent_gps == 3
    assert GWI.net(se(), classes(), Z).num_latent_gps == 3
    assert GWI.net(se(), Gaussian(), Z, num_latent_gps=2).predict_f(X)[0].shape == (N, 2)


# The start at a sparse posterior


@pytest.mark.parametrize("with_mean", [False, True])
def test_start_is_the_optimum_of_sparse_regression(with_mean: bool) -> None:
    """GPflow's SGPR, at the noise variance given and not the likelihood's."""
    mean = prior_mean() if with_mean else None
    model = make_model(likelihood=Gaussian(0.9), prior_mean=mean)
    model.start_at_sparse_posterior((X, Y), NOISE)
    sgpr = gpflow.models.SGPR((X, Y), se(), Z, mean_function=mean, noise_variance=NOISE)
    ours = model.predict_f(XNEW, full_cov=True)
    for actual, expected in zip(ours, sgpr.predict_f(XNEW, full_cov=True), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)
    whole = gpflow.models.GPR((X, Y), se(), mean_function=mean, noise_variance=NOISE)
    model = make_model(inducing=X, prior_mean=mean, jitter=1e-10)
    model.start_at_sparse_posterior((X, Y), NOISE)
    for actual, expected in zip(model.predict_f(XNEW), whole.predict_f(XNEW), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)


def test_start_of_a_batch_is_equation_77() -> None:
    """Sigma = (k_ZZ + s2^{-1} (N / N_B) k_ZX k_XZ)^{-1}, and the mean that goes with it."""
    model = make_model()
    model.start_at_sparse_posterior((X, Y), NOISE, num_data=NUM_DATA)
    k_zz, k_zx = kernel_matrix(Z, Z) + JITTER * np.eye(M), kernel_matrix(Z, X)
    weight = NUM_DATA / N / NOISE
    sigma = np.linalg.inv(k_zz + weight * k_zx @ k_zx.T)
    tril = np.linalg.cholesky(k_zz)
    for q_sqrt in model.q_sqrt.numpy():
        np.testing.assert_allclose(q_sqrt @ q_sqrt.T, tril.T @ sigma @ tril, atol=1e-9)
    np.testing.assert_allclose(model.q_mu, tril.T @ sigma @ k_zx @ Y * weight, atol=1e-9)


def test_start_leaves_another_mean_alone() -> None:
    model = make_model(mean=lambda x: tf.concat([x[:, :1], 0.0 * x[:, :1]], 1))
    model.start_at_sparse_posterior((X, Y), NOISE)
    assert not hasattr(model, "q_mu")
    mean, covariance = model.predict_f(XNEW, full_cov=True)
    np.testing.assert_array_equal(mean[:, 0], XNEW[:, 0])
    sgpr = gpflow.models.SGPR((X, Y), se(), Z, noise_variance=NOISE)
    expected = sgpr.predict_f(XNEW, full_cov=True)[1]
    np.testing.assert_allclose(covariance, expected, rtol=0, atol=1e-6)


def test_predictions_are_calibrated_on_draws_of_the_prior() -> None:
    """90% intervals of new targets, one from each of 2000 functions so that they are independent.

    The count is Binomial(2000, 0.9) up to the jitter; a false alarm has a chance of 1e-5, and a
    coverage of 0.85 or 0.95 goes unseen less often than that.
    """
    num_functions, rng = 2000, np.random.default_rng(4)
    points = rng.uniform(-2.0, 2.0, size=(21, D))
    tril = np.linalg.cholesky(kernel_matrix(points, points) + 1e-10 * np.eye(21))
    functions = tril @ rng.normal(size=(21, num_functions))
    targets = functions + np.sqrt(NOISE) * rng.normal(size=functions.shape)
    inputs = points[:-1]
    model = make_model(num_functions, inducing=inputs, at_prior=True)
    model.start_at_sparse_posterior((inputs, targets[:-1]), NOISE)
    low, high = model.predict_quantiles(points[-1:], [0.05, 0.95]).numpy()[:, 0]
    covered = int(np.sum((low < targets[-1]) & (targets[-1] < high)))
    assert stats.binomtest(covered, num_functions, 0.9).pvalue > FALSE_ALARM
    for wrong in (0.85, 0.95):
        assert stats.binomtest(round(wrong * num_functions), num_functions, 0.9).pvalue < 1e-10
    # On so many targets the best temperature is 1: alpha is a mean of squares of variance 2.
    alphas = (targets[-1:] - model.predict_y(points[-1:])[0]) ** 2 / model.predict_y(points[-1:])[1]
    check_mean(np.asarray(alphas)[0], 1.0)


# Kernel expansions


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


# Tempering


def log_density(mean: np.ndarray, variance: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return stats.norm.logpdf(targets, mean, np.sqrt(variance))


def held_out() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(6)
    return XNEW, np.array([2.0, 0.3]) * rng.normal(size=(7, 2))


def test_temperature_of_a_gaussian_minimises_the_negative_log_density() -> None:
    """Each output's alone, by a scalar search over moments at temperature 1."""
    model = make_model()
    inputs, targets = held_out()
    mean, variance = (part.numpy() for part in model.predict_y(inputs))
    model.temperature.assign([3.0, 5.0])
    value = model.temper((inputs, targets))
    for p in range(2):
        found = optimize.minimize_scalar(
            lambda log_alpha, p=p: (
                -np.mean(log_density(mean[:, p], np.exp(log_alpha) * variance[:, p], targets[:, p]))
            ),
            bounds=(-8.0, 8.0),
            method="bounded",
            options={"xatol": 1e-9},
        )
        assert float(model.temperature[p]) == pytest.approx(np.exp(found.x), rel=1e-5)
    alpha = model.temperature.numpy()
    np.testing.assert_allclose(alpha, np.mean((targets - mean) ** 2 / variance, 0), rtol=1e-9)
    expected = log_density(mean, alpha * variance, targets).sum(1)
    assert value == pytest.approx(np.mean(expected), abs=1e-9)
    np.testing.assert_allclose(model.predict_log_density((inputs, targets)), expected, atol=1e-9)


def test_temperature_multiplies_predictive_variances() -> None:
    model = make_model()
    mean, variance = (part.numpy() for part in model.predict_f(XNEW))
    covariance = model.predict_f(XNEW, full_cov=True)[1].numpy()
    alpha = np.array([0.4, 3.0])
    model.temperature.assign(alpha)
    np.testing.assert_allclose(model.predict_f(XNEW)[0], mean, rtol=1e-12)
    np.testing.assert_allclose(model.predict_f(XNEW)[1], alpha * variance, rtol=1e-9)
    full = model.predict_f(XNEW, full_cov=True)[1]
    np.testing.assert_allclose(full, alpha[:, None, None] * covariance, rtol=1e-9)
    actual_mean, actual = model.predict_y(XNEW)
    np.testing.assert_allclose(actual_mean, mean, rtol=1e-12)
    np.testing.assert_allclose(actual, alpha * (variance + NOISE), rtol=1e-9)
    density = model.predict_log_density((X, Y))
    moments = (part.numpy() for part in model.predict_y(X))
    np.testing.assert_allclose(density, log_density(*moments, Y).sum(1), rtol=1e-9)
    quantile = model.predict_quantiles(XNEW, [0.9])[0]
    expected = stats.norm.ppf(0.9, mean, np.sqrt(alpha * (variance + NOISE)))
    np.testing.assert_allclose(quantile, expected, atol=1e-9)


def test_temperature_multiplies_noise_that_varies_with_the_input() -> None:
    noise = gpflow.functions.Polynomial(degree=2, input_dim=D, output_dim=1)
    noise.w.assign(np.full([1, noise.w.shape[1]], 0.2))
    model = make_model(likelihood=Gaussian(variance=noise))
    before = model.predict_y(XNEW)[1].numpy()
    assert np.ptp(model.likelihood.variance_at(XNEW)) > 0.1
    model.temperature.assign([0.4, 3.0])
    np.testing.assert_allclose(model.predict_y(XNEW)[1], np.array([0.4, 3.0]) * before, rtol=1e-9)


@pytest.mark.parametrize("name", ["Gaussian", "MultiClass"])
def test_training_ignores_the_temperature(name: str) -> None:
    make, targets = LIKELIHOODS[name]
    model = make_model(2 if name == "Gaussian" else 3, likelihood=make())
    before = float(model.elbo((X, targets), seed=0)), float(model.squared_distance(X))
    model.temperature.assign(np.linspace(0.2, 4.0, model.num_latent_gps))
    after = float(model.elbo((X, targets), seed=0)), float(model.squared_distance(X))
    assert after == before
    assert model.temperature.unconstrained_variable.ref() not in [
        variable.ref() for variable in model.trainable_variables
    ]


def few_draws() -> Softmax:
    softmax = Softmax(3)
    softmax.num_monte_carlo_points = 20
    return softmax


CLASSIFIERS: dict[str, Callable] = {
    "MultiClass": classes,
    "Softmax": lambda _: few_draws(),
    "Bernoulli": lambda _: Bernoulli(),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_tempering_of_classes_does_not_lower_the_density(name: str) -> None:
    """And no temperature a step away, within the search's bounds, is better than the one found."""
    binary = name == "Bernoulli"
    model = make_model(1 if binary else 3, likelihood=CLASSIFIERS[name](3))
    # Right at six points and wrong at two, so that a best temperature exists.
    mean = model.predict_f(X)[0].numpy()
    right = (mean > 0).astype(int) if binary else np.argmax(mean, 1)[:, None]
    wrong = np.arange(N)[:, None] < 2
    data = X, np.where(wrong, (right + 1) % (2 if binary else 3), right)
    before = float(np.mean(model.predict_log_density(data)))
    assert model.held_out_log_density(data) == pytest.approx(before, abs=1e-12)
    np.testing.assert_array_equal(model.temperature, 1.0)
    model.temperature.assign(np.linspace(0.1, 9.0, model.num_latent_gps))
    value = model.temper(data)
    assert value >= before
    assert value == pytest.approx(float(np.mean(model.predict_log_density(data))), abs=1e-9)
    best = model.temperature.numpy()
    assert np.max(np.abs(np.log(best))) > 0.1
    for p, factor in itertools.product(range(model.num_latent_gps), (0.8, 1.25)):
        nearby = best.copy()
        nearby[p] = np.clip(factor * best[p], *np.exp([-LOG_TEMPERATURE, LOG_TEMPERATURE]))
        model.temperature.assign(nearby)
        assert float(np.mean(model.predict_log_density(data))) < value + 1e-5


def class_probabilities(mean: np.ndarray, variance: np.ndarray, epsilon: float) -> np.ndarray:
    """p(j) [N, J] by a sum over 12 000 values: of the chance that f_j is there and all others are below."""
    scale, share = np.sqrt(variance), np.empty_like(mean)
    for n in range(len(mean)):
        values = np.sort(np.ravel(mean[n] + scale[n] * np.linspace(-9.0, 9.0, 4001)[:, None]))
        below = stats.norm.cdf(0.5 * (values[1:] + values[:-1])[:, None], mean[n], scale[n])
        there = np.diff(stats.norm.cdf(values[:, None], mean[n], scale[n]), axis=0)
        for j in range(mean.shape[1]):
            share[n, j] = np.sum(there[:, j] * np.prod(np.delete(below, j, 1), 1))
    return (1.0 - epsilon) * share + epsilon / (mean.shape[1] - 1) * (1.0 - share)


def test_tempered_probabilities_are_of_tempered_variances() -> None:
    """The likelihood has no noise to temper. Untempered, they are the likelihood's own."""
    model = make_model(3, likelihood=classes())
    mean, variance = (part.numpy() for part in model.predict_f(XNEW))
    expected, _ = model.likelihood.predict_mean_and_var(XNEW, mean, variance)
    np.testing.assert_allclose(model.predict_y(XNEW)[0], expected, rtol=1e-12)
    for alpha, error in (([0.2, 1.5, 4.0], 1e-5), ([0.01, 1.0, 100.0], 1e-2)):
        model.temperature.assign(alpha)
        epsilon = float(model.likelihood.invlink.epsilon.numpy())
        expected = class_probabilities(mean, np.array(alpha) * variance, epsilon)
        probabilities, spread = model.predict_y(XNEW)
        np.testing.assert_allclose(probabilities, expected, rtol=0, atol=error)
        np.testing.assert_allclose(np.sum(probabilities, 1), 1.0, rtol=1e-12)
        np.testing.assert_allclose(spread, probabilities * (1.0 - probabilities), rtol=1e-12)
        labels = np.arange(len(XNEW))[:, None] % 3
        density = np.log(np.take_along_axis(probabilities.numpy(), labels, 1))[:, 0]
        np.testing.assert_allclose(model.predict_log_density((XNEW, labels)), density, rtol=1e-9)


def test_tempering_of_classes_goes_through_the_rows_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the temperature and probabilities of all rows at once: the memory does not grow with them."""
    inputs = np.random.default_rng(0).uniform(-2.0, 2.0, size=(30, D))
    model = make_model(3, likelihood=classes())
    labels = np.argmax(model.predict_f(inputs)[0], 1)[:, None]
    labels[::4] = (labels[::4] + 1) % 3
    model.temper((inputs, labels), batch_size=None)
    temperature, probabilities = model.temperature.numpy(), model.predict_y(inputs)[0].numpy()
    link, rows = model.likelihood.invlink, []
    whole = link.prob_is_largest

    def recorded(chosen: tf.Tensor, *arguments: Any) -> tf.Tensor:
        rows.append(chosen.shape[0])
        return whole(chosen, *arguments)

    monkeypatch.setattr(link, "prob_is_largest", recorded)
    monkeypatch.setattr(gwi, "PREDICTION_BATCH", 12)
    model.temper((inputs, labels), batch_size=12)
    np.testing.assert_allclose(model.temperature, temperature, rtol=1e-9)
    model.temperature.assign(temperature)
    np.testing.assert_allclose(model.predict_y(inputs)[0], probabilities, rtol=1e-12)
    assert max(rows) == 12


@pytest.mark.parametrize("seed", range(4))
def test_tempered_density_of_classes_is_no_error_of_the_quadrature(seed: int) -> None:
    """Of labels that are drawn with other variances, so that the best ones differ much."""
    rng = np.random.default_rng(seed)
    inputs = rng.uniform(-2.0, 2.0, size=(60, D))
    model = make_model(3, likelihood=classes())
    mean, variance = (part.numpy() for part in model.predict_f(inputs))
    drawn = mean + np.sqrt(variance * [0.01, 1.0, 30.0]) * rng.normal(size=mean.shape)
    labels = np.argmax(drawn, 1)[:, None]
    reported = model.temper((inputs, labels))
    assert reported == pytest.approx(
        float(np.mean(model.predict_log_density((inputs, labels)))), abs=1e-9
    )
    tempered = variance * model.temperature.numpy()
    probabilities = class_probabilities(
        mean, tempered, float(model.likelihood.invlink.epsilon.numpy())
    )
    expected = np.mean(np.log(np.take_along_axis(probabilities, labels, 1)))
    assert reported == pytest.approx(expected, abs=3e-3)


def test_held_out_density_is_tempered_and_leaves_the_temperature() -> None:
    model = make_model()
    model.temperature.assign([2.0, 0.7])
    untempered = float(np.mean(model.predict_log_density(held_out())))
    value = model.held_out_log_density(held_out())
    np.testing.assert_allclose(model.temperature, [2.0, 0.7], rtol=1e-12)
    assert value > untempered + 0.01
    assert value == pytest.approx(model.temper(held_out()), abs=1e-12)


# Predictions


def test_predictions_in_batches_are_those_of_all_points() -> None:
    model = make_model()
    model.temperature.assign([0.5, 2.0])
    data = held_out()
    for method in ("predict_f", "predict_y", "predict_mixture"):
        whole = getattr(model, method)(XNEW, batch_size=None)
        parts = getattr(model, method)(XNEW, batch_size=3)
        for actual, expected in zip(parts, whole, strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-14)
    whole = model.predict_log_density(data, batch_size=None)
    np.testing.assert_allclose(model.predict_log_density(data, batch_size=4), whole, rtol=1e-12)
    assert model.predict_mixture(XNEW)[0].shape == (1, 7, 2)
    values = [
        (model.temper(data, batch_size=size), model.temperature.numpy()) for size in (None, 4)
    ]
    assert values[0][0] == pytest.approx(values[1][0], abs=1e-12)
    np.testing.assert_allclose(values[0][1], values[1][1], rtol=1e-12)


NUM_DRAWS = 7000
"""Show an error of a tenth of a standard deviation in a mean or covariance, but for 1 chance in 1000:
(5.2 + 3.1)^2 (sqrt(2) / 0.14)^2 at the false-alarm rate below, of a product of two normals.
"""


def check_joint_moments(draws: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> None:
    """Of draws [n, N, P], with means [N, P] and covariances [P, N, N]; outputs are independent."""
    flat = np.swapaxes(draws, 1, 2).reshape(len(draws), -1)
    expected_mean = mean.T.reshape(-1)
    check_mean(flat, expected_mean)
    expected = linalg.block_diag(*covariance)
    rows, columns = np.tril_indices(len(expected))
    centred = flat - expected_mean
    check_mean(centred[:, rows] * centred[:, columns], expected[rows, columns])


def test_joint_draws_have_the_posteriors_moments() -> None:
    model = make_model(prior_mean=prior_mean())
    model.temperature.assign([0.5, 2.0])
    points = XNEW[:3]
    mean, covariance = (part.numpy() for part in model.predict_f(points, full_cov=True))
    draws = model.predict_f_samples(points, NUM_DRAWS, full_cov=True, seed=0).numpy()
    assert draws.shape == (NUM_DRAWS, 3, 2)
    check_joint_moments(draws, mean, covariance)
    again = model.predict_f_samples(points, NUM_DRAWS, full_cov=True, seed=0)
    np.testing.assert_array_equal(draws, again)
    assert not np.array_equal(
        *(model.predict_f_samples(points, 2, full_cov=True) for _ in range(2))
    )


def test_draws_of_each_point_are_independent() -> None:
    model = make_model()
    model.temperature.assign([0.5, 2.0])
    points = XNEW[:3]
    mean, variance = (part.numpy() for part in model.predict_f(points))
    draws = model.predict_f_samples(points, NUM_DRAWS, seed=0).numpy()
    check_joint_moments(draws, mean, np.array([np.diag(column) for column in variance.T]))


def test_draws_of_the_prior() -> None:
    """Whatever the posterior."""
    model = make_model(prior_mean=prior_mean())
    points = XNEW[:3]
    draws = model.sample_prior(points, NUM_DRAWS, seed=0).numpy()
    mean = np.tile(prior_mean()(points).numpy(), [1, 2])
    covariance = np.tile(kernel_matrix(points, points), [2, 1, 1])
    check_joint_moments(draws, mean, covariance)


def test_full_output_covariances_are_not_available() -> None:
    model = make_model()
    for full_cov in (False, True):
        settings = {"full_cov": full_cov, "full_output_cov": True}
        for call in (model.predict_f, model.predict_f_samples, model.predict_y):
            with pytest.raises(NotImplementedError):
                call(XNEW, **settings)


# Means


def keras_network(*layers: Any, num_inputs: int = D, num_outputs: int = 2) -> Any:
    keras = tf.keras
    keras.utils.set_random_seed(0)
    parts = [keras.Input([num_inputs]), keras.layers.Dense(4, activation="tanh"), *layers]
    return keras.Sequential([*parts, keras.layers.Dense(num_outputs)])


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


def test_keras_mean_is_deterministic_and_keeps_its_averages() -> None:
    layers = tf.keras.layers
    network, model = with_keras(layers.Dropout(0.5), layers.BatchNormalization())
    first, second = (float(model.elbo((X, Y), seed=0)) for _ in range(2))
    assert first == second
    trained = {id(variable) for variable in model.trainable_variables}
    assert len(network.non_trainable_variables) > 0
    for variable in network.weights:
        assert (id(variable.value) in trained) == variable.trainable
    network.predict_on_batch(XNEW)
    averages = [variable.numpy() for variable in network.non_trainable_variables]
    with tf.GradientTape():
        model.elbo((X, Y), seed=0)
    for variable, value in zip(network.non_trainable_variables, averages, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


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


def test_a_mean_enters_the_likelihood_and_the_distance() -> None:
    """Against the mean "svgp" of the same values."""
    base = make_model()
    other = make_model(mean=lambda x: base.predict_f(x, batch_size=None)[0])
    ours, theirs = other.elbo_terms((X, Y), seed=0), base.elbo_terms((X, Y), seed=0)
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)


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


def test_perceptron_starts_with_glorots_variance() -> None:
    """A sum of 10^4 squares: a false alarm has a chance of 1e-5."""
    weights = MultilayerPerceptron(100, hidden_units=(100,)).weights[0].numpy()
    statistic = np.sum(weights**2) / (2.0 / 200.0)
    low, high = stats.chi2(10_000).ppf([0.5 * FALSE_ALARM, 1.0 - 0.5 * FALSE_ALARM])
    assert low < statistic < high


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


# From data


def many_data(num_data: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    inputs = rng.uniform(-2.0, 2.0, size=(num_data, D))
    return inputs, np.sin(2.0 * inputs[:, :1]) + 0.2 * rng.normal(size=(num_data, 1))


def test_regression_from_data() -> None:
    """The paper's: a network of 10 and 10, the noise of the marginal likelihood, fixed kernel and points."""
    inputs, targets = many_data()
    model = GWI.from_data(inputs, targets)
    assert isinstance(model.mean, MultilayerPerceptron)
    assert [weight.shape for weight in model.mean.weights] == [(2, 10), (10, 10), (10, 1)]
    assert model.num_inducing == 8  # the square root of 60
    assert model.num_latent_gps == 1
    assert isinstance(model.kernel, SquaredExponential)
    assert model.kernel.lengthscales.shape == (D,)
    assert not model.inducing_variable.Z.trainable
    assert len(model.trainable_parameters) == 7  # q_sqrt, and three layers' weights and offsets
    assert (model.distance, model.cross_term) == ("squared", "nystrom")
    noise = float(model.likelihood.variance.numpy())
    assert 0.01 < noise < 0.1
    sgpr = gpflow.models.SGPR(
        (inputs, targets), model.kernel, model.inducing_variable, noise_variance=noise
    )
    expected = sgpr.predict_f(XNEW, full_cov=True)[1]
    np.testing.assert_allclose(model.predict_f(XNEW, full_cov=True)[1], expected, atol=1e-6)
    assert np.isfinite(model.elbo((inputs, targets), seed=0))


def test_sparse_regression_from_data() -> None:
    inputs, targets = many_data()
    targets = np.hstack([targets, targets**2])
    settings = {"mean": "svgp", "num_inducing": 5, "noise_variance": 0.07, "distance": "root"}
    model = GWI.from_data(inputs, targets, train_hyperparameters=True, kernel="relu", **settings)
    assert model.distance == "root"
    assert model.num_inducing == 5
    assert model.num_latent_gps == 2
    assert isinstance(model.kernel, gpflow.kernels.ArcCosine)
    assert float(model.likelihood.variance.numpy()) == pytest.approx(0.07, rel=1e-9)
    sgpr = gpflow.models.SGPR(
        (inputs, targets), model.kernel, model.inducing_variable, noise_variance=0.07
    )
    for actual, expected in zip(model.predict_f(XNEW), sgpr.predict_f(XNEW), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)
    assert model.likelihood.variance.trainable
    assert model.kernel.weight_variances.trainable
    assert model.inducing_variable.Z.trainable


FROM_KERNEL: dict[str, Any] = {"num_marginal_points": 0, "noise_variance": 0.1}
"""Kernels stay where they start, which takes no time."""


def test_labels_from_data() -> None:
    """The latent functions start at regressions on the classes' indicators."""
    inputs, targets = many_data()
    labels = np.digitize(targets, [-0.4, 0.4])
    model = GWI.from_data(
        inputs, labels, likelihood=classes(), mean="svgp", num_inducing=20, **FROM_KERNEL
    )
    assert model.num_latent_gps == 3
    assert not model.likelihood.trainable_variables
    mean, _ = model.predict_f(inputs)
    np.testing.assert_allclose(np.sum(mean, 1), 1.0, atol=0.2)
    correct = np.mean(np.argmax(mean, 1) == labels[:, 0])
    assert correct > 0.75
    assert np.isfinite(model.elbo((inputs, labels), seed=0))
    net = GWI.from_data(
        inputs, labels, likelihood=Softmax(3), num_inducing=5, hidden_units=(4,), **FROM_KERNEL
    )
    assert [weight.shape for weight in net.mean.weights] == [(2, 4), (4, 3)]
    binary = GWI.from_data(
        inputs, labels > 0, likelihood=Bernoulli(), num_inducing=5, **FROM_KERNEL
    )
    assert binary.num_latent_gps == 1
    assert np.isfinite(binary.elbo((inputs, (labels > 0).astype(float)), seed=0))


def test_training_hyperparameters_leaves_the_label_noise_fixed() -> None:
    inputs, targets = many_data(20)
    labels, likelihood = np.digitize(targets, [-0.4, 0.4]), classes()
    GWI.from_data(
        inputs,
        labels,
        likelihood=likelihood,
        train_hyperparameters=True,
        num_inducing=3,
        **FROM_KERNEL,
    )
    assert not likelihood.invlink.epsilon.trainable


def test_one_seed_gives_one_start() -> None:
    inputs, targets = many_data()
    settings = {"num_inducing": 4, "kernel": SquaredExponential(1.0, [0.7, 0.6]), **FROM_KERNEL}
    first, again, other = (
        GWI.from_data(inputs, targets, seed=seed, **copy.deepcopy(settings)) for seed in (0, 0, 1)
    )
    np.testing.assert_allclose(first.kernel.lengthscales, [0.7, 0.6])
    assert float(first.likelihood.variance.numpy()) == pytest.approx(0.1)
    points = [model.inducing_variable.Z.numpy() for model in (first, again, other)]
    np.testing.assert_array_equal(points[0], points[1])
    assert not np.allclose(points[0], points[2])
    np.testing.assert_array_equal(first.predict_f(XNEW)[0], again.predict_f(XNEW)[0])


def test_marginal_likelihood_start_is_at_the_optimum() -> None:
    """No kernel parameter or noise variance a tenth away has a higher marginal likelihood."""
    inputs, targets = many_data(40)
    kernel = SquaredExponential(1.0, [1.0, 1.0])
    gpflow.set_trainable(kernel.variance, False)
    noise = marginal_likelihood_start(kernel, inputs, targets)
    assert float(kernel.variance.numpy()) == 1.0

    def evidence(lengthscales: np.ndarray, noise: float) -> float:
        other = SquaredExponential(1.0, lengthscales)
        return float(
            gpflow.models.GPR(
                (inputs, targets), other, noise_variance=noise
            ).log_marginal_likelihood()
        )

    found = kernel.lengthscales.numpy()
    best = evidence(found, noise)
    for factor in (0.9, 1.1):
        assert evidence(found, factor * noise) < best
        assert evidence(found * [factor, 1.0], noise) < best
        assert evidence(found * [1.0, factor], noise) < best + 1e-3  # a feature that says nothing
    # Of five rows only, another optimum.
    few = SquaredExponential(1.0, [1.0, 1.0])
    marginal_likelihood_start(few, inputs, targets, num_points=5)
    assert not np.allclose(few.lengthscales, found, rtol=1e-2)


def test_marginal_likelihood_start_goes_on_after_a_step_too_far() -> None:
    """Of a kernel whose covariance is NaN beyond a lengthscale that the search would step over."""

    class Walled(SquaredExponential):
        wall = 0.5

        def K_r2(self, r2: tf.Tensor) -> tf.Tensor:
            inside = tf.cast(self.lengthscales < self.wall, r2.dtype)
            return super().K_r2(r2) + 0.0 * tf.math.log(inside)

    inputs = np.linspace(-2.0, 2.0, 30)[:, None]
    targets = np.sin(2.0 * inputs) + 0.1 * np.cos(31.0 * inputs)
    free, kernel = SquaredExponential(1.0, 0.05), Walled(1.0, 0.05)
    marginal_likelihood_start(free, inputs, targets)
    assert float(free.lengthscales.numpy()) > Walled.wall
    marginal_likelihood_start(kernel, inputs, targets)
    assert 0.8 * Walled.wall < float(kernel.lengthscales.numpy()) < Walled.wall
    # No search gets past the first step: the kernel is as it was.
    Walled.wall = 0.06
    stuck = Walled(1.0, 0.05)
    noise = marginal_likelihood_start(stuck, inputs, targets)
    assert (float(stuck.lengthscales.numpy()), noise) == pytest.approx((0.05, 0.1))


@pytest.mark.parametrize("make", [classes, lambda: Softmax(3)], ids=["MultiClass", "Softmax"])
def test_from_labels_in_single_precision(make: Callable) -> None:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32, jitter=1e-5)):
        inputs, labels = X.astype(np.float32), LABELS.astype(np.float32)
        model = GWI.from_data(inputs, labels, likelihood=make())
        assert model.elbo((inputs, labels), seed=0).dtype == tf.float32
        assert np.isfinite(model.elbo((inputs, labels), seed=0))


# GPflow's and TensorFlow's tools


def test_parameters_have_names(capsys: pytest.CaptureFixture) -> None:
    model = make_model(mean=MultilayerPerceptron(D, 2))
    names = set(gpflow.utilities.parameter_dict(model))
    assert {".q_sqrt", ".temperature", ".kernel.lengthscales", ".likelihood.variance"} < names
    assert {".inducing_variable.Z", ".mean.weights[2]", ".mean.offsets[0]"} < names
    assert ".q_mu" in gpflow.utilities.parameter_dict(make_model())
    gpflow.utilities.print_summary(model, fmt="simple")
    printed = capsys.readouterr().out
    assert ".q_sqrt " in printed
    assert ".mean.weights[2] " in printed


def test_parameters_can_be_read_and_assigned() -> None:
    first, second = make_model(), make_model(at_prior=True)
    values = gpflow.utilities.read_values(first)
    gpflow.utilities.multiple_assign(second, values)
    assert float(first.elbo((X, Y), seed=0)) == pytest.approx(float(second.elbo((X, Y), seed=0)))


def test_copy_is_equal_and_independent() -> None:
    model = make_model(num_cross_points=S, distance="root", prior_mean=prior_mean())
    before = float(model.elbo((X, Y), seed=0))
    for copy_of in (copy.deepcopy, gpflow.utilities.deepcopy):
        copied = copy_of(model)
        assert float(copied.elbo((X, Y), seed=0)) == before
        copied.q_mu.assign(copied.q_mu + 1.0)
        copied.temperature.assign([2.0, 2.0])
        assert float(model.elbo((X, Y), seed=0)) == before
        np.testing.assert_array_equal(model.temperature, 1.0)


@pytest.mark.parametrize(
    ("cross_term", "mean"),
    [("nystrom", "keras"), ("eigenvalues", "svgp"), ("exact", "svgp")],
)
def test_compiled_for_batches_of_any_size(cross_term: str, mean: str) -> None:
    """The objective and a prediction at unknown numbers of rows."""
    given = "svgp" if mean == "svgp" else keras_network()
    model = make_model(mean=given, cross_term=cross_term, num_cross_points=S, num_data=NUM_DATA)
    signature = [tf.TensorSpec([None, D], tf.float64), tf.TensorSpec([None, 2], tf.float64)]
    elbo = tf.function(
        lambda x, y: model.elbo((x, y), seed=0), input_signature=signature, autograph=False
    )
    predict = tf.function(model.predict_y, input_signature=signature[:1], autograph=False)
    for size in (4, N):
        expected = float(model.elbo((X[:size], Y[:size]), seed=0))
        assert float(elbo(X[:size], Y[:size])) == pytest.approx(expected, abs=1e-6)
        for actual, value in zip(predict(X[:size]), model.predict_y(X[:size]), strict=True):
            np.testing.assert_allclose(actual, value, rtol=0, atol=1e-6)


def test_saved_model_of_predictions(tmp_path: Path) -> None:
    model = make_model(mean=MultilayerPerceptron(D, 2))
    model.temperature.assign([0.5, 2.0])
    model.compiled = tf.function(
        lambda points: model.predict_y(points),
        input_signature=[tf.TensorSpec([None, D], tf.float64)],
        autograph=False,
    )
    tf.saved_model.save(model, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    for size in (1, 7):
        expected = model.predict_y(XNEW[:size])
        for actual, value in zip(loaded.compiled(XNEW[:size]), expected, strict=True):
            np.testing.assert_allclose(actual, value, rtol=0, atol=1e-9)


def test_training_settings_say_what_the_objective_is() -> None:
    model = make_model(distance="root", cross_term="eigenvalues", num_cross_points=5)
    expected = {
        "mean": "svgp",
        "distance": "root",
        "cross_term": "eigenvalues",
        "num_cross_points": 5,
    }
    assert model.training_settings() == expected
    assert make_model(mean=Cubic()).training_settings()["mean"] == "Cubic"


def test_what_is_not_finite_is_named() -> None:
    model = make_model(mean=lambda x: x / tf.reduce_sum(tf.square(x), 1, keepdims=True))
    # Anything goes at the two points of zeros where a mean is tried out.
    points, seed = np.vstack([X, np.zeros([1, D])]), tf.constant([0, 0])
    assert model.locate_failure(tf.constant(points), seed) == (
        "the mean gives values that are not finite"
    )
    model.q_sqrt.unconstrained_variable.assign_add(
        np.inf * tf.ones_like(model.q_sqrt.unconstrained_variable)
    )
    assert model.locate_failure(tf.constant(X), seed).startswith("the variance r gives")
    assert make_model().locate_failure(tf.constant(X), seed).startswith("every layer is finite")


def test_perfect_predictions_have_a_density() -> None:
    model = make_model(1, at_prior=True)
    value = model.temper((X, np.zeros([N, 1])))
    assert value > 10.0
    assert np.all(model.predict_y(X)[1] > 0.0)


# Errors, one line each


class OwnKerasModel(tf.keras.Model):
    """Without what Keras needs to make another one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden, self.out = tf.keras.layers.Dense(width), tf.keras.layers.Dense(2)

    def call(self, X: tf.Tensor) -> tf.Tensor:
        return self.out(self.hidden(X))


ERRORS: dict[str, tuple[Callable[[], Any], str]] = {
    "distance": (
        lambda: make_model(distance="W2"),
        r"distance: got 'W2', choose one of squared, root, published",
    ),
    "cross term": (
        lambda: make_model(cross_term="svd"),
        r"cross_term: got 'svd', choose one of nystrom, eigenvalues, exact",
    ),
    "no cross points": (
        lambda: make_model(num_cross_points=0),
        r"num_cross_points: got 0, needs an integer of at least 1",
    ),
    "more cross points than rows": (
        lambda: make_model(num_cross_points=9).elbo((X, Y), seed=0),
        r"num_cross_points: got 9 for a batch of 8 rows, needs at most the batch's",
    ),
    "mean of another shape": (
        lambda: make_model(mean=lambda x: x[:, :1]),
        r"mean: function gives shape \(2, 1\) for 2 points, needs \[N, 2\]: one column",
    ),
    "mean of one axis": (
        lambda: make_model(mean=lambda x: x[:, 0]),
        r"mean: function gives shape \(2,\) for 2 points",
    ),
    "network of another width": (
        lambda: make_model(3, mean=keras_network()),
        r"mean: KerasMean gives shape \(2, 2\) for 2 points, needs \[N, 3\]",
    ),
    "mean of a fixed number of points": (
        lambda: make_model(mean=lambda x: tf.zeros([2, 2], x.dtype)).elbo((X, Y)),
        r"mean: function gives shape \(2, 2\) for 8 points, needs \[N, 2\]",
    ),
    "mean of another precision": (
        lambda: make_model(mean=lambda x: x @ tf.ones([2, 2], tf.float32)),
        r"mean: function fails on 2 points of 2 columns in float64 \(\w+\), needs a callable",
    ),
    "mean of nothing": (
        lambda: make_model(mean=lambda x: None),
        r"mean: function fails on 2 points of 2 columns in float64 \(ValueError\), needs",
    ),
    "network of another input": (
        lambda: make_model(mean=keras_network(num_inputs=3)),
        r"mean: Sequential fails on 2 points of 2 columns in float64 \(\w+\), needs a callable",
    ),
    "mean from data": (
        lambda: GWI.from_data(X, Y, mean="nett"),
        r"mean: got 'nett', choose one of net, svgp",
    ),
    "kernel of several outputs": (
        lambda: make_model(kernel=gpflow.kernels.SharedIndependent(se(), 2)),
        r"kernel: got SharedIndependent, needs one of a single output, which all share",
    ),
    "labels of one class": (
        lambda: GWI.from_data(X, np.ones([N, 1]), likelihood=classes()),
        r"data: got labels of one class, 1, needs at least 2 to tell apart",
    ),
    "NaN to temper on": (
        lambda: make_model().temper((X, np.where(Y[1, 0] == Y, np.nan, Y))),
        r"data: Y\[1, 0\] is nan, needs finite numbers",
    ),
    "divergence of another mean": (
        lambda: make_model(mean=keras_network()).prior_kl(),
        r"prior_kl: got the mean KerasMean, needs 'svgp'; `squared_distance` is of any mean",
    ),
    "mean that cannot be called": (
        lambda: make_model(mean=3.0),
        r"mean: got 3.0, needs 'svgp' or a callable from \[N, 2\] to \[N, 2\]",
    ),
    "name of no mean": (lambda: make_model(mean="net"), r"mean: got 'net', needs 'svgp' or a"),
    "one class": (
        lambda: GWI(se(), MultiClass(1), Z),
        r"likelihood: got 1 class, needs at least 2",
    ),
    "one class of softmax": (
        lambda: GWI(se(), Softmax(1), Z),
        r"likelihood: got 1 class, needs at least 2 to tell apart",
    ),
    "outputs that the likelihood has not": (
        lambda: GWI(se(), MultiClass(3), Z, num_latent_gps=2),
        r"num_latent_gps: got 2, MultiClass needs 3",
    ),
    "jitter": (lambda: make_model(jitter=-1.0), r"jitter: got -1.0, needs a finite number"),
    "inducing points": (
        lambda: make_model(inducing=Z[0]),
        r"inducing_variable: got shape \(2,\), needs \[M, D\]",
    ),
    "kernel": (lambda: make_model(kernel="rbf"), r"kernels: got str 'rbf' among them"),
    "nothing to temper on": (
        lambda: make_model().temper((X[:0], Y[:0])),
        r"held-out data: got no rows, needs at least 1 to choose a temperature",
    ),
    "nothing held out": (
        lambda: make_model().held_out_log_density((X[:0], Y[:0])),
        r"held-out data: got no rows",
    ),
    "columns of the inputs": (
        lambda: make_model().elbo((X[:, :1], Y)),
        r"data: got X \(8, 1\), needs 2 columns as the inducing points have",
    ),
    "columns of the targets": (
        lambda: make_model().elbo((X, Y[:, :1])),
        r"data: got Y \(8, 1\), needs 2 columns for",
    ),
    "label": (
        lambda: make_model(3, likelihood=classes()).elbo((X, LABELS + 1)),
        r"data: got a label 3, MultiClass needs integers from 0 to 2",
    ),
    "label from data": (
        lambda: GWI.from_data(X, LABELS + 1, likelihood=classes()),
        r"data: got a label 3, MultiClass needs integers from 0 to 2",
    ),
    "negative noise to start from": (
        lambda: make_model().start_at_sparse_posterior((X, Y), -0.1),
        r"noise_variance: got -0.1, needs a positive finite number",
    ),
    "negative noise from data": (
        lambda: GWI.from_data(X, Y, noise_variance=-0.1),
        r"noise_variance: got -0.1, needs a positive finite number",
    ),
    "no noise to start from": (
        lambda: GWI.from_data(X, Y, num_marginal_points=0),
        r"noise_variance: got None, needs a number if num_marginal_points is 0",
    ),
    "kernel from data": (
        lambda: GWI.from_data(X, Y, kernel="matern"),
        r"kernel: got 'matern', choose one of squared_exponential, relu",
    ),
    "inducing points from data": (
        lambda: GWI.from_data(X, Y, num_inducing=0),
        r"num_inducing: got 0, needs an integer of at least 1",
    ),
    "NaN in the data": (
        lambda: GWI.from_data(X, np.where(np.arange(2 * N).reshape(N, 2) == 5, np.nan, Y)),
        r"data: Y\[2, 1\] is nan, needs finite numbers",
    ),
    "points of a marginal likelihood": (
        lambda: marginal_likelihood_start(se(), X, Y, num_points=0),
        r"num_points: got 0, needs an integer of at least 1",
    ),
    "number of draws": (
        lambda: make_model().predict_f_samples(X, 0, full_cov=True),
        r"num_samples: got 0, needs an integer of at least 1",
    ),
    "draws of the prior": (lambda: make_model().sample_prior(X, 0), r"num_samples: got 0"),
    "hidden units": (
        lambda: MultilayerPerceptron(2, hidden_units=(3, 0)),
        r"hidden_units and output_dim: got 0, needs an integer of at least 1",
    ),
    "activation": (
        lambda: MultilayerPerceptron(2, activation="gelu"),
        r"activation: got 'gelu', choose one of tanh, relu",
    ),
    "weight variance": (
        lambda: GWI.net(se(), Gaussian(), Z, weight_variance=0.0),
        r"weight_variance: got 0.0, needs a positive finite number",
    ),
    "no likelihood": (
        lambda: make_model(likelihood="gauss"),
        r"likelihood: got str 'gauss', needs a GPflow likelihood",
    ),
    "no likelihood of a network": (
        lambda: GWI.net(se(), None, Z),
        r"likelihood: got NoneType None, needs a GPflow likelihood",
    ),
    "prior mean that cannot be called": (
        lambda: make_model(prior_mean=3.0),
        r"prior_mean: got 3.0, needs a GPflow mean function",
    ),
    "distance on no points": (
        lambda: make_model().squared_distance(X[:0]),
        r"X: got no rows, needs at least 1",
    ),
    "one hidden layer, not a list": (
        lambda: GWI.net(se(), Gaussian(), Z, hidden_units=10),
        r"hidden_units: got 10, needs a list of integers",
    ),
    "noise of an expansion": (
        lambda: KernelExpansion(se(), X, 2).interpolate(Y, -1.0),
        r"noise_variance: got -1.0, needs a positive finite number",
    ),
    "targets of an expansion": (
        lambda: KernelExpansion(se(), X, 2).interpolate(Y[:5], 0.1),
        r"data: got Y \(5, 2\), needs \(8, 2\), a row a point",
    ),
    "copy of a Keras model of a class of one's own": (
        lambda: copy.deepcopy(make_model(mean=OwnKerasModel(4))),
        r"mean: Keras cannot copy a OwnKerasModel, which needs get_config",
    ),
    "outputs of an expansion": (
        lambda: KernelExpansion(se(), X, 0),
        r"output_dim: got 0, needs an integer of at least 1",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_one_clear_line(name: str) -> None:
    call, message = ERRORS[name]
    with pytest.raises(ValueError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)


def test_more_cross_points_than_a_batch_of_unknown_size() -> None:
    model = make_model(num_cross_points=5)
    elbo = tf.function(
        model.elbo, autograph=False, input_signature=[(tf.TensorSpec([None, D], tf.float64),) * 2]
    )
    assert np.isfinite(elbo((X[:5], Y[:5])))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"got 5 for a batch of fewer rows"):
        elbo((X[:4], Y[:4]))


def test_prior_kl_is_svgps() -> None:
    model = make_model()
    svgp = gpflow.models.SVGP(
        se(), Gaussian(NOISE), Z, q_mu=model.q_mu, q_sqrt=model.q_sqrt, num_latent_gps=2
    )
    assert float(model.prior_kl()) == pytest.approx(float(svgp.prior_kl()), rel=1e-12)
    assert float(make_model(at_prior=True).prior_kl()) == pytest.approx(0.0, abs=1e-12)
