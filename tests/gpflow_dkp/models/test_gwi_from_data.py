"""GWI from data: the start at a sparse posterior, kernels by the marginal likelihood."""

import copy
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Bernoulli, Gaussian, MultiClass, Softmax
from gwi_cases import (
    JITTER,
    LABELS,
    NOISE,
    NUM_DATA,
    XNEW,
    D,
    M,
    N,
    X,
    Y,
    Z,
    classes,
    kernel_matrix,
    make_model,
    many_data,
    prior_mean,
    se,
)
from latent_variable_cases import FALSE_ALARM, check_mean
from scipy import stats
from sklearn.datasets import load_digits

from gpflow_dkp.likelihoods import RobustMax
from gpflow_dkp.models import GWI
from gpflow_dkp.models.marginal_likelihood import (
    MarginalLikelihood,
    marginal_likelihood_start,
)
from gpflow_dkp.networks import MultilayerPerceptron
from gpflow_dkp.sklearn.compiled import fit_by_marginal_likelihood
from gpflow_dkp.training import Recipe, fit
from gpflow_dkp.wasserstein import Nystrom


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
    assert not model.output_layer.q_mu.trainable
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
    assert (model.distance, model.cross_term) == ("squared", Nystrom())
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
    """The latent functions start at regressions on the classes' normalised indicators."""
    inputs, targets = many_data()
    labels = np.digitize(targets, [-0.4, 0.4])
    model = GWI.from_data(
        inputs, labels, likelihood=classes(), mean="svgp", num_inducing=20, **FROM_KERNEL
    )
    assert model.num_latent_gps == 3
    assert not model.likelihood.trainable_variables
    mean, _ = model.predict_f(inputs)
    np.testing.assert_allclose(np.sum(mean, 1), 0.0, atol=0.2)
    correct = np.mean(np.argmax(mean, 1) == labels[:, 0])
    assert correct > 0.75
    assert np.isfinite(model.elbo((inputs, labels), seed=0))
    net = GWI.from_data(
        inputs, labels, likelihood=Softmax(3), num_inducing=5, hidden_units=(4,), **FROM_KERNEL
    )
    assert [weight.shape for weight in net.mean.weights] == [(2, 4), (4, 3)]
    binary = GWI.from_data(
        inputs, labels > 0, likelihood=Bernoulli(), mean="svgp", num_inducing=20, **FROM_KERNEL
    )
    assert binary.num_latent_gps == 1
    assert np.mean((binary.predict_f(inputs)[0] > 0.0) == (labels > 0)) > 0.75
    assert np.isfinite(binary.elbo((inputs, (labels > 0).astype(float)), seed=0))


def test_a_network_predicts_every_class_from_the_start() -> None:
    """With indicators of variance 0.09 the network never predicts some, for want of a slope."""
    inputs, labels = load_digits(return_X_y=True)
    data = (inputs - np.mean(inputs)) / np.std(inputs), labels[:, None].astype(float)
    train, test = (tuple(part[rows] for part in data) for rows in (slice(600), slice(600, None)))
    model = GWI.from_data(
        *train,
        likelihood=MultiClass(10, invlink=RobustMax(10, epsilon=0.01)),
        num_inducing=20,
        num_marginal_points=200,
        hidden_units=(50,),
        activation="relu",
    )
    recipe = Recipe(learning_rate=1e-2, annealing=0.0)
    fit(model, train, num_steps=60, batch_size=100, schedule=recipe, progress=False)
    predicted = np.argmax(model.predict_f(test[0])[0], 1)
    assert set(predicted) == set(range(10))
    assert np.mean(predicted == test[1][:, 0]) > 0.85


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


def test_a_lengthscale_is_at_least_a_hundredth_of_its_columns_spread() -> None:
    """Also in a sum, unless it is fixed; the least of all columns' for a lengthscale of several."""
    inputs, targets = many_data(20)
    inputs = inputs * [1.0, 5.0]
    least = 0.01 * np.std(inputs, 0)
    ard, single, fixed = (
        SquaredExponential(1.0, [1e-6, 0.7]),
        SquaredExponential(1.0, 1e-6),
        SquaredExponential(1.0, [1e-6, 0.7]),
    )
    gpflow.set_trainable(fixed.lengthscales, False)
    second = SquaredExponential(1.0, 1e-6, active_dims=[1])
    marginal_likelihood_start(ard + single + fixed + second, inputs, targets, max_iterations=1)
    np.testing.assert_allclose(ard.lengthscales[0], least[0])
    assert ard.lengthscales[1] > 10 * least[1]
    np.testing.assert_allclose(single.lengthscales, min(least))
    np.testing.assert_allclose(fixed.lengthscales, [1e-6, 0.7])
    np.testing.assert_allclose(second.lengthscales, least[1])


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


@pytest.mark.parametrize(
    ("num_features", "num_data", "seed", "passes_through"), [(8, 40, 3, False), (32, 100, 2, True)]
)
def test_marginal_likelihood_start_keeps_the_better_of_two_optima(
    num_features: int, num_data: int, seed: int, passes_through: bool
) -> None:
    """Of few targets of many features one passes through all: once the worse, once the better."""
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((num_data, num_features))
    targets = np.sin(2.0 * inputs[:, :1]) * inputs[:, 1:2]
    targets += 0.2 * rng.standard_normal(targets.shape)
    targets = (targets - np.mean(targets)) / np.std(targets)

    def kernel() -> SquaredExponential:
        return SquaredExponential(1.0, np.full(num_features, np.sqrt(num_features)))

    def evidence(kernel: SquaredExponential, noise: float) -> float:
        model = gpflow.models.GPR((inputs, targets), kernel, noise_variance=noise)
        return float(model.log_marginal_likelihood()) / num_data

    def by_gpflow(noise: float) -> tuple[float, float]:
        likelihood = gpflow.likelihoods.Gaussian(noise, variance_lower_bound=1e-4)
        model = gpflow.models.GPR((inputs, targets), kernel(), likelihood=likelihood)
        gpflow.optimizers.Scipy().minimize(
            model.training_loss, model.trainable_variables, options={"maxiter": 100}
        )
        found = float(likelihood.variance.numpy())
        return evidence(model.kernel, found), found

    optima = [by_gpflow(noise) for noise in (0.1, 0.5)]
    assert optima[0][1] < 1.1e-4  # the first passes through the targets
    own = kernel()
    noise = marginal_likelihood_start(own, inputs, targets)
    assert (noise < 1.1e-4) == passes_through  # no digit of the other noise: its optimum is flat
    assert evidence(own, noise) > max(optima)[0] - 1e-4
    assert abs(optima[0][0] - optima[1][0]) > 0.1


@pytest.mark.parametrize("smooth", [True, False])
@pytest.mark.parametrize("start", [marginal_likelihood_start, fit_by_marginal_likelihood])
def test_a_search_tries_again_where_each_value_of_a_column_is_its_own_function(
    start: Callable[..., float], smooth: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As naval's split 0 ended, 245 nats below another optimum; the better of the two stays."""
    rng = np.random.default_rng(0)
    column = np.repeat(np.arange(10.0), 4)[:, None]
    targets = np.sin(0.5 * column) if smooth else rng.standard_normal((10, 1)).repeat(4, 0)
    targets = targets + 0.1 * rng.standard_normal(targets.shape)
    lengthscales = {0.1: 1e-6, 0.02: 3.0}
    seen: list[float] = []

    def search(self: MarginalLikelihood, noise_variance: float, max_iterations: int) -> float:
        seen.append(noise_variance)
        self.kernel.lengthscales.assign(lengthscales[round(noise_variance, 12)])
        self._model.likelihood.variance.assign(0.01)
        return 0.01

    monkeypatch.setattr(MarginalLikelihood, "_search", search)
    kernel = SquaredExponential(1.0, 1.0)
    start(kernel, column, targets, seed=0)
    assert seen == pytest.approx([0.1, 0.02])
    expected = 3.0 if smooth else 0.01 * np.std(column)
    np.testing.assert_allclose(kernel.lengthscales, expected)


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


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("mean", ["net", "svgp"])
def test_targets_without_noise(mean: str, power: int) -> None:
    """Of a function as smooth as can be: noise and kernel stay where the model can be trained."""
    inputs = np.random.default_rng(0).uniform(-2.0, 2.0, size=(200, 2))
    targets = np.sum(inputs, 1, keepdims=True) ** power
    model = GWI.from_data(inputs, targets, mean=mean)
    noise = float(model.likelihood.variance.numpy())
    assert 0.99e-4 * np.var(targets) < noise < 2e-4 * np.var(targets)
    assert float(model.kernel.variance.numpy()) < 1e9
    if mean == "svgp":
        error = model.predict_f(inputs)[0] - targets
        assert np.mean(np.square(error)) < 1e-3 * np.var(targets)
    history = fit(model, (inputs, targets), num_steps=20, kl_annealing_steps=0, progress=False)
    assert np.all(np.isfinite(history.elbo))


def test_least_noise_is_of_the_targets_scale() -> None:
    """And never below what GPflow's likelihood takes."""
    inputs = np.linspace(-2.0, 2.0, 40)[:, None]
    for scale in (1e-3, 1.0, 1e3):
        targets = scale * np.sin(inputs)
        noise = marginal_likelihood_start(SquaredExponential(scale**2), inputs, targets)
        assert noise == pytest.approx(max(1e-4 * np.var(targets), 2e-6), rel=0.05)
