"""Baselines in the harness: networks by five inferences, and the exact GP against SciPy."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from bayesian_benchmarks import get_dataset, run_task
from bayesian_benchmarks.errors import ConfigError
from bayesian_benchmarks.models import model_source
from bayesian_benchmarks.models.baselines import (
    LEAST_NOISE,
    ExactGP,
    train_by_marginal_likelihood,
)
from bayesian_benchmarks.settings import ClassificationSettings, GWISettings, Settings
from gpflow_dkp.means import convolutional_network

INFERENCES = ("map", "mean-field", "dropout", "laplace", "ensemble")
networks = pytest.mark.parametrize("inference", INFERENCES)
GWI = GWISettings(hidden_units=(4,), activation="relu")
SETTINGS = Settings(
    num_steps=60, learning_rate=((0.0, 0.02),), kl_annealing_steps=0, train_samples=2, gwi=GWI
)


@networks
def test_networks_in_regression(inference: str) -> None:
    """Only the bound of mean-field is called one."""
    scores = run_task("diabetes", f"mlp-{inference}", depth=1, settings=SETTINGS)
    assert scores["test_rmse"] < 90.0  # the targets' deviation is 77
    assert ("elbo_per_point" in scores) == (inference == "mean-field")
    assert ("objective_per_point" in scores) == (inference != "mean-field")


@networks
def test_networks_in_classification(inference: str) -> None:
    settings = ClassificationSettings(**{**SETTINGS.model_dump(), "gwi": GWI, "num_steps": 200})
    scores = run_task("iris", f"mlp-{inference}", depth=1, settings=settings, task="classification")
    assert scores["accuracy"] > 0.6


@networks
def test_convolutional_networks(inference: str) -> None:
    """A tenth would be chance; the normals of mean-field start wide and learn slowest."""
    few = {"elbo_samples": 10, "test_samples": 10}
    settings = ClassificationSettings(
        **{**SETTINGS.model_dump(), **few, "batch_size": 50, "num_steps": 40}
    )
    scores = run_task(
        "digits", f"cnn-{inference}", depth=1, settings=settings, task="classification"
    )
    assert scores["accuracy"] > (0.3 if inference == "mean-field" else 0.6)


def test_convolutional_networks_have_the_layers_of_gwis() -> None:
    X, Y = np.zeros((12, 64)), np.arange(12)[:, None] % 10
    model = model_source("cnn-map").build(
        X, Y, depth=1, settings=ClassificationSettings(), seed=0, num_classes=10
    )
    mean = convolutional_network((8, 8, 1), 10)
    num_weights = sum(math.prod(value.shape) for value in mean.trainable_variables)
    assert sum(math.prod(value.shape) for value in model.trainable_variables) == num_weights


def test_what_networks_of_images_refuse() -> None:
    def build(name: str, num_features: int, **changes: str) -> None:
        X, Y = np.zeros((12, num_features)), np.arange(12)[:, None] % 3
        settings = ClassificationSettings(**changes)
        model_source(name).build(X, Y, depth=1, settings=settings, seed=0, num_classes=3)

    with pytest.raises(ConfigError, match=r"cnn-map: 50 features are no square .*; use mlp-map\.$"):
        build("cnn-map", 50)
    for name in ("cnn-map", "mlp-ensemble"):
        with pytest.raises(ConfigError, match=r"robust-max is constant .*set it to softmax"):
            build(name, 64, likelihood="robust-max")


def test_the_settings_make_the_network() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(30, 3)), rng.normal(size=(30, 2))
    model = model_source("mlp-map").build(X, Y, depth=1, settings=SETTINGS, seed=0)
    assert [tuple(weight.shape) for weight in model.weights] == [(1, 3, 4), (1, 4, 2)]
    assert model.activation == "relu"
    laplace = model_source("mlp-laplace")
    model = laplace.build(X, Y, depth=1, settings=SETTINGS, seed=0)
    start = model.precision_tril.numpy()
    training = {"checkpoint_dir": None, "checkpoint_seconds": 30.0, "report_step": lambda _: None}
    laplace.train(model, (X, Y), settings=SETTINGS, seed=0, **training)
    assert not np.allclose(model.precision_tril, start)


def test_the_settings_give_the_prior_and_the_units_of_images() -> None:
    X, Y = np.zeros((12, 64)), np.arange(12)[:, None] % 3
    images = model_source("cnn-map")
    for given in ("relu", "tanh"):
        settings = ClassificationSettings(gwi=GWISettings(image_activation=given))
        model = images.build(X, Y, depth=1, settings=settings, seed=0, num_classes=3)
        assert model.activation == given
    for name in ("mlp-map", "cnn-map"):
        for given, expected in ((None, 1.0), (0.01, 0.01)):
            settings = ClassificationSettings(gwi=GWISettings(weight_variance=given))
            model = model_source(name).build(
                X, Y, depth=1, settings=settings, seed=0, num_classes=3
            )
            assert model.weight_variance == expected


def test_what_the_networks_read() -> None:
    for inference in INFERENCES:
        source = model_source(f"mlp-{inference}")
        assert source.is_read("gwi.hidden_units")
        assert source.is_read("gwi.weight_variance")
        assert not source.is_read("gwi.image_activation")
        of_images = model_source(f"cnn-{inference}")
        assert of_images.is_read("gwi.image_activation")
        assert not of_images.is_read("gwi.hidden_units")
        assert of_images.is_read("gwi.weight_variance")
        assert not source.is_read("gwi.noise_variances")
        assert source.is_read("train_samples") == (inference in ("mean-field", "dropout"))


def test_exact_gp_of_rows_that_come_twice() -> None:
    """Without a least noise the search ends where K has no factor."""
    rng = np.random.default_rng(0)
    X, Y = np.repeat(rng.normal(size=(30, 2)), 3, 0), np.repeat(rng.integers(0, 3, (30, 1)), 3, 0)
    model = ExactGP(X, Y.astype(float))
    before = float(model.elbo((X, Y)))
    model.search(200)
    assert float(model.gpr.likelihood.variance.numpy()) == pytest.approx(LEAST_NOISE, rel=1e-4)
    assert float(model.gpr.log_marginal_likelihood()) > before
    assert np.all(np.isfinite(model.predict_mixture(X, num_samples=1)[0]))


def test_exact_gp() -> None:
    """Its objective is the log density of the targets, which its search raises."""
    data = get_dataset("diabetes")
    X, Y = data.X_train[:60], data.Y_train[:60]
    model = ExactGP(X, Y)
    before = float(model.elbo((X, Y)))
    steps: list[int] = []
    found = train_by_marginal_likelihood(model, (X, Y), settings=SETTINGS, report_step=steps.append)
    assert steps == [60]
    assert 0 < found.num_steps <= 2 * 60  # of two searches
    kernel, noise = model.gpr.kernel, float(model.gpr.likelihood.variance.numpy())
    scaled = X / kernel.lengthscales.numpy()
    squared = np.sum((scaled[:, None] - scaled[None]) ** 2, -1)
    covariance = kernel.variance.numpy() * np.exp(-0.5 * squared) + noise * np.eye(60)
    expected = multivariate_normal(np.zeros(60), covariance).logpdf(Y[:, 0])
    np.testing.assert_allclose(model.elbo((X, Y)), expected, rtol=1e-6)
    assert expected > before
    scores = run_task("diabetes", "exact-gp", depth=1, settings=SETTINGS)
    assert -1.2 < scores["elbo_per_point"] < -0.8


def test_exact_gp_keeps_the_better_of_two_optima(real_data: Path) -> None:
    """On this fold the search from lengthscales of 1 ends at the least noise, 0.1 nats a point below."""
    data = get_dataset("concreteslump", 0, data_dir=real_data, task="density")
    model = ExactGP(data.X_train, data.Y_train)
    model.search(5_000)
    assert float(model.gpr.likelihood.variance.numpy()) > 10.0 * LEAST_NOISE
    assert float(model.elbo((data.X_train, data.Y_train))) > 0.86 * len(data.X_train)


def test_exact_gp_goes_on_after_a_step_too_far(real_data: Path) -> None:
    """On this fold a search of L-BFGS alone ends at a kernel with no finite predictions."""
    data = get_dataset("fertility", 1, data_dir=real_data, task="density")
    model = ExactGP(data.X_train, data.Y_train)
    before = float(model.elbo((data.X_train, data.Y_train)))
    assert 0 < model.search(5_000) < 5_000
    assert float(model.gpr.log_marginal_likelihood()) > before
    assert np.all(np.isfinite(model.predict_mixture(data.X_test, num_samples=1)[0]))


def test_exact_gp_of_too_many_rows_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"exact-gp: got 5001 rows, whose cube is its cost"):
        ExactGP(np.zeros((5001, 2)), np.zeros((5001, 1)))
