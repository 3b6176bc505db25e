"""GWI in the harness: its settings are what `select_gwi` is given, and nothing sees the test part."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gpflow
import numpy as np
import pytest
from pydantic import ValidationError

from bayesian_benchmarks import get_dataset, load_experiment, run_task
from bayesian_benchmarks.errors import ConfigError
from bayesian_benchmarks.models import model_source
from bayesian_benchmarks.models.gaussian_wasserstein import SelectedGWI
from bayesian_benchmarks.report.paper import paper_results
from bayesian_benchmarks.report.tables import agrees
from bayesian_benchmarks.settings import (
    ClassificationSettings,
    Decay,
    GWISettings,
    MeanNetwork,
    Settings,
)
from bayesian_benchmarks.sweep.run import expand
from bayesian_benchmarks.tasks import metrics_of
from gpflow_dkp import selection
from gpflow_dkp.selection import CrossValidation, HoldOut, Network, Training
from gpflow_dkp.training import ExponentialDecay

REPOSITORY = Path(__file__).resolve().parents[2]
NETWORKS = (
    MeanNetwork(hidden_units=(4,)),
    MeanNetwork(hidden_units=(3,), activation="relu", weight_variance=1.0),
)
GWI = GWISettings(
    inducing_factors=(0.3,),
    noise_variances=(0.3, 0.1),
    refit_steps=40,
    validation_steps=10,
    patience=2,
    hidden_units=(4,),
    networks=NETWORKS,
    num_cross_points=10,
)
SETTINGS = Settings(
    num_steps=20,
    learning_rate=((0.0, 0.01),),
    kl_annealing_steps=0,
    batch_size=50,
    elbo_samples=2,
    gwi=GWI,
)
CLASSES = ClassificationSettings(**{**SETTINGS.model_dump(), "gwi": GWI}, likelihood="robust-max")


def with_gwi(**changes: Any) -> Settings:
    return SETTINGS.model_copy(update={"gwi": GWI.model_copy(update=changes)})


def train(model: SelectedGWI, num_features: int = 2) -> Any:
    data = np.zeros((5, num_features)), np.zeros((5, 1))
    return model.train(data, checkpoint_dir=None, checkpoint_seconds=7.0, report_step=print)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """The arguments that a model gives to `select_gwi`, which does nothing."""

    def arguments(name: Any, settings: Settings, num_classes: int | None = None) -> dict[str, Any]:
        seen: dict[str, Any] = {}

        def select(*data: Any, **arguments: Any) -> Any:
            seen.update(arguments)
            return SimpleNamespace(model=SimpleNamespace())

        monkeypatch.setattr(selection, "select_gwi", select)
        train(SelectedGWI(name, settings, 3, num_classes), num_features=64)
        return seen

    return arguments


def test_settings_are_arguments(given: Callable[..., dict[str, Any]]) -> None:
    settings = with_gwi(distance="root", cross_term="eigenvalues")
    assert given("net", settings) == {
        "mean": "net",
        "likelihood": None,
        "networks": [Network((4,))],
        "noise_variances": (0.3, 0.1),
        "inducing_factors": (0.3,),
        "protocol": HoldOut(validation_steps=10, patience=2),
        "training": Training(20, 50, ((0.0, 0.01),), 0),
        "separate_kernels": False,
        "covariance": "svgp",
        "distance": "root",
        "cross_term": "eigenvalues",
        "num_cross_points": 10,
        "seed": 3,
        "checkpoint_dir": None,
        "checkpoint_seconds": 7.0,
        "callbacks": [print],
    }
    with_prior = given("net", with_gwi(weight_variance=0.1))["networks"]
    assert with_prior == [Network((4,), weight_variance=0.1)]
    networks = [Network((4,)), Network((3,), activation="relu", weight_variance=1.0)]
    assert given("net-selected", settings)["networks"] == networks
    sparse = given("svgp", settings)
    assert (sparse["mean"], sparse["networks"]) == ("svgp", None)
    assert given("net", with_gwi(cross_term="exact"))["num_cross_points"] is None
    separate = given("svgp", with_gwi(separate_kernels=True, distance="kl"), 3)
    assert (separate["separate_kernels"], separate["distance"]) == (True, "kl")
    assert given("net", with_gwi(covariance="prior"))["covariance"] == "prior"


def test_protocols_and_schedules_are_arguments(given: Callable[..., dict[str, Any]]) -> None:
    assert given("net", with_gwi(protocol="90/10"))["protocol"] == HoldOut(10, 2, refit_steps=40)
    folds = with_gwi(protocol="cross-validation", num_folds=3, step_fractions=(0.1, 1.0))
    assert given("net", folds)["protocol"] == CrossValidation(3, (0.1, 1.0))
    decay = SETTINGS.model_copy(update={"learning_rate": Decay(rate=0.02, every=7)})
    assert given("net", decay)["training"].learning_rate == ExponentialDecay(0.02, 0.98, 7)


def test_classes_are_a_likelihood_and_images_a_convolutional_mean(
    given: Callable[..., dict[str, Any]],
) -> None:
    images = given("cnn", CLASSES, 3)
    assert images["networks"] is None
    assert images["mean"](np.zeros((2, 64))).shape == (2, 3)
    link = images["likelihood"].invlink
    assert (link.num_classes, float(link.epsilon.numpy())) == (3, 0.01)
    softmax = CLASSES.model_copy(update={"likelihood": "softmax"})
    names = [type(given("net", softmax, number)["likelihood"]).__name__ for number in (2, 3)]
    assert names == ["Bernoulli", "Softmax"]


def test_what_is_for_other_data_is_refused() -> None:
    folds = with_gwi(protocol="cross-validation")
    with pytest.raises(ConfigError, match=r"got cross-validation, which is for targets"):
        train(SelectedGWI("net", folds, 0, num_classes=3))
    with pytest.raises(ConfigError, match=r"2 features are no square image"):
        train(SelectedGWI("cnn", SETTINGS, 0, num_classes=3))
    with pytest.raises(ConfigError, match=r"for the classification of images; use gwi-net"):
        train(SelectedGWI("cnn", SETTINGS, 0))


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[SelectedGWI]:
    """Those that are trained."""
    found: list[SelectedGWI] = []
    train = SelectedGWI.train

    def train_and_keep(self: SelectedGWI, *arguments: Any, **keywords: Any) -> Any:
        found.append(self)
        return train(self, *arguments, **keywords)

    monkeypatch.setattr(SelectedGWI, "train", train_and_keep)
    return found


def test_what_is_chosen_does_not_depend_on_the_test_part(models: list[SelectedGWI]) -> None:
    """Neither which model, nor its temperature, nor what it predicts."""
    dataset = get_dataset("diabetes", 0)
    small = replace(dataset, X_train=dataset.X_train[:90], Y_train=dataset.Y_train[:90])
    other = replace(small, X_test=-small.X_test[:5], Y_test=7.0 + small.Y_test[:5])
    scores = [run_task(part, "gwi-svgp", depth=1, settings=SETTINGS) for part in (small, other)]
    ours, theirs = (model.selection for model in models)
    assert len(ours.candidates) == 2
    assert ours.chosen == theirs.chosen
    np.testing.assert_array_equal(ours.model.temperature, theirs.model.temperature)
    predictions = (model.predict_mixture(small.X_train) for model in models)
    for one, another in zip(*predictions, strict=True):
        np.testing.assert_array_equal(one, another)
    assert scores[0]["test_rmse"] != scores[1]["test_rmse"]
    for score in scores:
        assert set(score) <= set(metrics_of("regression"))
        assert np.isfinite(score["test_log_likelihood_best_candidate"])
    assert scores[0]["seconds"] == ours.seconds
    assert not models[0].objective_is_bound


def test_the_kullback_leibler_divergence_gives_the_bound_of_gpflow(
    models: list[SelectedGWI],
) -> None:
    dataset = get_dataset("diabetes", 0)
    data = dataset.X_train[:90], dataset.Y_train[:90]
    small = replace(dataset, X_train=data[0], Y_train=data[1])
    scores = run_task(small, "gwi-svgp", depth=1, settings=with_gwi(distance="kl"))
    chosen = models[0].selection.model
    svgp = gpflow.models.SVGP(
        chosen.kernel,
        chosen.likelihood,
        chosen.inducing_variable,
        q_mu=chosen.q_mu,
        q_sqrt=chosen.q_sqrt,
    )
    assert scores["elbo_per_point"] == pytest.approx(float(svgp.elbo(data)) / 90, rel=1e-9)
    assert models[0].objective_is_bound
    assert "objective_per_point" not in scores


def test_classes_with_a_kernel_each(models: list[SelectedGWI]) -> None:
    gwi = GWI.model_copy(update={"separate_kernels": True})
    changes = {"gwi": gwi, "num_steps": 1, "likelihood": "softmax"}
    settings = CLASSES.model_copy(update=changes)
    scores = run_task("iris", "gwi-svgp", depth=1, settings=settings)
    assert scores["accuracy"] > 0.5
    lengthscales = [k.lengthscales.numpy() for k in models[0].selection.model.kernel.kernels]
    assert np.shape(lengthscales) == (3, 4)
    assert all(np.min(np.ptp(pair, 0)) > 0 for pair in itertools.combinations(lengthscales, 2))


def of_three_classes(dataset: Any, num_train: int) -> Any:
    """Of digits 0, 1 and 2: the probabilities of ten classes take far longer to compile."""
    parts = {}
    for name, most in (("train", num_train), ("test", None)):
        X, Y = getattr(dataset, f"X_{name}"), getattr(dataset, f"Y_{name}")
        rows = np.flatnonzero(Y[:, 0] < 3)[:most]
        parts |= {f"X_{name}": X[rows], f"Y_{name}": Y[rows]}
    return replace(dataset, num_classes=3, **parts)


@pytest.mark.parametrize("name", ["gwi-cnn", "svgp"])
def test_classes(name: str) -> None:
    few = of_three_classes(get_dataset("digits", 0), 120)
    scores = run_task(few, name, depth=1, settings=CLASSES)
    assert 0.0 <= scores["accuracy"] <= 1.0
    assert scores["test_log_likelihood"] < 0.0


def test_other_distributions() -> None:
    """Turned digits have the more uncertain classes, by the mean of a sparse GP at its start."""
    gwi = GWI.model_copy(update={"inducing_factors": (2.0,)})
    pair = get_dataset("digits_rotated", 0, task="ood")
    few = of_three_classes(pair, 200)
    settings = CLASSES.model_copy(update={"gwi": gwi})
    scores = run_task(few, "gwi-svgp", depth=1, settings=settings)
    names = ("auroc_entropy", "auroc_max_probability", "auroc_variance")
    assert all(0.0 <= scores[metric] <= 1.0 for metric in names)
    assert scores["accuracy"] > 0.5
    assert scores["auroc_entropy"] > 0.5


@pytest.mark.parametrize(
    ("paper", "changes", "readers"),
    [
        ("aitchison2021", {"gwi": GWI}, set()),
        ("aitchison2021", {"ard": False}, {"all"}),
        ("wild2022", {"gwi": {"networks": NETWORKS}}, {"gwi-net-selected"}),
        ("wild2022", {"gwi": {"num_folds": 3}}, {"gwi-net", "gwi-net-selected", "gwi-svgp"}),
        ("wild2022", {"gwi": {"separate_kernels": False}}, set()),
    ],
)
def test_rows_are_found_by_the_settings_that_their_model_reads(
    paper: str, changes: dict[str, Any], readers: set[str]
) -> None:
    """Stored before there were such settings, or with other values of those that it ignores."""
    experiment = load_experiment(paper)
    if paper == "aitchison2021":  # its rows are from before there was such a setting
        settings = experiment.settings.model_copy(update={"input_bias": False})
        experiment = experiment.override(settings=settings)
    folder = "results/archive" if paper == "aitchison2021" else "results"
    with (REPOSITORY / folder / f"{paper}.csv").open() as file:
        rows = {(row["model"], row["settings_hash"]) for row in csv.DictReader(file)}
    models = {model for model, _ in rows}
    if paper == "wild2022":
        changes = {"gwi": experiment.settings.gwi.model_copy(update=changes["gwi"])}
    settings = experiment.settings.model_copy(update=changes)
    before, after = (
        {(run.key.model, run.key.settings_hash) for run in expand(changed)}
        for changed in (experiment, experiment.override(settings=settings))
    )
    assert rows <= before
    assert {model for model, _ in rows - after} == (models if readers == {"all"} else readers)


def test_the_papers_protocol_and_figures() -> None:
    experiment = load_experiment("wild2022")
    assert experiment.settings.gwi is not None
    assert experiment.settings.gwi.protocol == "cross-validation"
    for model in experiment.models:
        assert model_source(model).name == model
    figures = {(r.dataset, r.model): r for r in paper_results("wild2022") if r.dataset == "boston"}
    published = figures["boston", "gwi-net"]
    assert (published.metric, published.value, published.error) == (
        "test_log_likelihood",
        -2.27,
        0.06,
    )
    assert agrees(-2.39, published)
    assert not agrees(-2.40, published)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("inducing_factors", ()),
        ("noise_variances", (0.1, 0.0)),
        ("protocol", "70/30"),
        ("step_fractions", (0.5, 1.5)),
        ("networks", ()),
        ("networks", ({"weight_variance": 0.0},)),
    ],
)
def test_bad_settings(field: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=field):
        GWISettings(**{field: value})
