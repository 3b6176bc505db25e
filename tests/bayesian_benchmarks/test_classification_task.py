"""Models trained and scored on labels, by TensorFlow, and the reliability diagram."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

from bayesian_benchmarks import (
    Experiment,
    ResultsStore,
    get_dataset,
    load_experiment,
    run_experiment,
    run_task,
)
from bayesian_benchmarks.errors import BenchmarkError, ConfigError, StoreError
from bayesian_benchmarks.models import model_source
from bayesian_benchmarks.report.figures import reliability_diagram
from bayesian_benchmarks.settings import ClassificationSettings
from bayesian_benchmarks.tasks.classification import METRICS

SETTINGS = ClassificationSettings(
    num_steps=6,
    kl_annealing_steps=1,
    num_inducing=8,
    train_samples=2,
    elbo_samples=4,
    test_samples=5,
    batch_size=70,
    likelihood_samples=3,
)


# A model's two tests in one process, so that it has the scores already.
every_model = pytest.mark.parametrize(
    "model",
    [
        pytest.param(name, marks=pytest.mark.xdist_group(f"classification-{name}"))
        for name in ("dwp-ab-gw", "dgp:relu", "diwp:relu", "nngp:squared_exponential")
    ],
)


@functools.cache
def scores_of_a_short_run(model: str) -> dict[str, float]:
    return run_task("wine", model, settings=SETTINGS, task="classification")


@every_model
def test_a_short_run_has_every_metric(model: str) -> None:
    scores = scores_of_a_short_run(model)
    assert set(METRICS) <= set(scores)
    assert scores["elbo_per_point"] < 0.0
    assert sum(scores[f"reliability_count_{i}"] for i in range(10)) == 18


@every_model
def test_a_run_again_has_the_same_scores(model: str) -> None:
    scores = scores_of_a_short_run(model)
    again = run_task("wine", model, settings=SETTINGS, task="classification")
    for name in set(scores) - {"seconds", "seconds_per_step", "epoch_seconds"}:
        assert again[name] == scores[name], name


@pytest.mark.parametrize(
    ("name", "likelihood", "expected"),
    [
        ("breast_cancer", "softmax", "Bernoulli"),
        ("iris", "softmax", "Softmax"),
        ("iris", "robust-max", "MultiClass"),
    ],
)
def test_likelihoods(name: str, likelihood: str, expected: str) -> None:
    data = get_dataset(name)
    settings = SETTINGS.model_copy(update={"likelihood": likelihood})
    model = model_source("diwp:relu").build(
        data.X_train,
        data.Y_train,
        depth=2,
        settings=settings,
        seed=0,
        num_classes=data.num_classes,
    )
    assert type(model.likelihood).__name__ == expected
    scores = run_task(name, "nngp:relu", settings=settings)
    assert 0.0 <= scores["accuracy"] <= 1.0


def test_training_separates_the_classes() -> None:
    settings = SETTINGS.model_copy(
        update={"num_steps": 200, "kl_annealing_steps": 50, "num_inducing": 20}
    )
    scores = run_task("wine", "nngp:squared_exponential", settings=settings, task="classification")
    assert scores["accuracy"] > 0.9
    assert scores["test_log_likelihood"] > -0.4


def test_sweep_and_diagram(tmp_path: Path) -> None:
    experiment = Experiment(
        task="classification",
        models=("nngp:relu",),
        datasets=("iris",),
        splits=(0, 1),
        depths=(2,),
        settings=SETTINGS,
    )
    store = ResultsStore(tmp_path / "store.sqlite")
    report = run_experiment(experiment, store, jobs=0, progress=False)
    assert (report.num_ok, report.num_failed) == (2, 0)
    picture = tmp_path / "reliability.png"
    assert reliability_diagram(store.rows(), picture) == 1
    assert picture.read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(StoreError, match="Cannot write the picture"):
        reliability_diagram(store.rows(), tmp_path / "nowhere" / "a.png")
    with pytest.raises(BenchmarkError, match="No finished classification run"):
        reliability_diagram([], picture)


def test_packaged_configs() -> None:
    experiment = load_experiment("classification")
    assert isinstance(experiment.settings, ClassificationSettings)
    assert experiment.settings == ClassificationSettings()
    assert experiment.override(splits=[1]).task == "classification"
    assert load_experiment("quick_classification").settings.num_steps == 500
    images = load_experiment("classification_images")
    assert images.models == experiment.models
    assert images.settings.train_samples == 1
    paper = load_experiment("aitchison2021")
    assert (paper.model_depth(2), paper.settings.num_steps) == (3, 8000)


def test_a_field_of_the_other_task(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("models: [dgp]\ndepths: [2]\nsettings: {likelihood: softmax}")
    with pytest.raises(ConfigError, match=r"settings.likelihood: no such field"):
        load_experiment(path)
    path.write_text(f"task: classification\n{path.read_text().replace('softmax', 'probit')}")
    with pytest.raises(ConfigError, match=r"settings.likelihood: .*'softmax' or 'robust-max'"):
        load_experiment(path)


def test_probabilities_are_averaged_over_the_samples() -> None:
    from bayesian_benchmarks.tasks.classification import evaluate

    data = get_dataset("iris")

    class Model:
        def elbo(self, *_: object, **__: object) -> float:
            return -1.0

        def predict_mixture(self, X: np.ndarray, **_: object) -> tuple[np.ndarray, np.ndarray]:
            first = np.tile([0.8, 0.1, 0.1], (len(X), 1))
            second = np.tile([0.2, 0.7, 0.1], (len(X), 1))
            mean = np.stack([first, second])
            return mean, mean

    scores = evaluate(Model(), data, settings=SETTINGS, seed=0)
    chosen = np.array([0.5, 0.4, 0.1])[data.Y_test[:, 0]]
    assert scores["test_log_likelihood"] == pytest.approx(np.log(chosen).mean())


def test_probabilities_that_are_not_finite_are_said_so() -> None:
    from bayesian_benchmarks.tasks.classification import evaluate

    class Model:
        def predict_mixture(self, X: np.ndarray, **_: object) -> tuple[np.ndarray, np.ndarray]:
            mean = np.full((2, len(X), 3), 1.0 / 3.0)
            mean[0, 4] = np.nan
            return mean, mean

    with pytest.raises(FloatingPointError, match="a predicted probability of the trained model is"):
        evaluate(Model(), get_dataset("iris"), settings=SETTINGS)
