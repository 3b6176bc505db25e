"""The registered deep models, built and trained for a few steps by TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesian_benchmarks import (
    Experiment,
    ResultsStore,
    Settings,
    get_dataset,
    list_models,
    run_experiment,
    run_task,
)
from bayesian_benchmarks.models import model_source, train_with_fit
from bayesian_benchmarks.tasks import list_tasks, metrics_of
from bayesian_benchmarks.tasks.regression import evaluate
from bayesian_benchmarks.tasks.training import elbo_per_point

SETTINGS = Settings(
    num_steps=4,
    kl_annealing_steps=1,
    num_inducing=8,
    train_samples=2,
    elbo_samples=4,
    test_samples=5,
    batch_size=120,
)


def build(name: str, depth: int = 2, **changes: Any) -> Any:
    dataset = get_dataset("diabetes")
    settings = SETTINGS.model_copy(update=changes)
    source = model_source(name)
    return source.build(dataset.X_train, dataset.Y_train, depth=depth, settings=settings, seed=0)


def test_the_papers_models_are_registered() -> None:
    assert {"dgp", "dwp-gw", "dwp-a-gw", "dwp-ab-gw"} <= set(list_models())


@pytest.mark.parametrize("name", ["dgp", "dwp-gw", "dwp-a-gw", "dwp-ab-gw"])
def test_builders_follow_the_protocol(name: str) -> None:
    model = build(name, depth=3)
    assert len(model.kernels) == 3
    assert len(model.hidden_layers) == 2
    assert model.kernels[0].ard
    assert not build(name, depth=3, ard=False).kernels[0].ard
    assert model.inducing_variable.num_inducing == 8
    assert model.num_data == 398
    assert model.num_samples == 2


@pytest.mark.parametrize("name", ["relu_features", "erf", "sin"])
def test_networks_of_finite_width_are_deep_gps(name: str) -> None:
    """Hidden layers as wide as the data have features, whose units the next kernel is made of."""
    model = build(f"dgp:{name}", depth=3)
    assert [layer.width for layer in model.hidden_layers] == [10, 10]
    activations = [kernel.kernels[0].activation for kernel in model.kernels[1:]]
    assert activations == [name.removesuffix("_features")] * 2
    assert (model.num_data, model.num_samples) == (398, 2)
    scores = run_task("diabetes", f"dgp:{name}", settings=SETTINGS)
    assert np.isfinite(scores["elbo_per_point"])
    assert {"regression", "classification"} <= {
        task for task in list_tasks() if f"dgp:{name}" in list_models(task)
    }


def test_a_bound_that_is_compiled_is_the_eager_one(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = get_dataset("diabetes")
    data = dataset.X_train, dataset.Y_train
    model = build("dwp-ab-gw")
    eager = elbo_per_point(model, data, settings=SETTINGS, seed=3)
    monkeypatch.setattr("bayesian_benchmarks.tasks.training.WORTH_COMPILING", 8)
    assert elbo_per_point(model, data, settings=SETTINGS, seed=3) == pytest.approx(eager, rel=1e-10)
    compiled = []
    monkeypatch.setattr("tensorflow.function", lambda f, **_: compiled.append(f) or f)
    elbo_per_point(model, data, settings=SETTINGS, seed=3)
    assert compiled == [model.elbo]


@pytest.mark.parametrize(("spread", "calls"), [(0.0, 2 + 2), (1.0, 2 + 12)])
def test_a_bound_without_draws_is_taken_once(spread: float, calls: int) -> None:
    """400 points in batches of 200, 11 samples two at a time; the weights of both are in the mean."""

    seeds: list[int] = []

    class Bound:
        def elbo(self, data: Any, *, num_samples: int, seed: int) -> float:
            seeds.append(seed)
            return 400.0 * (data[0].mean() + spread * num_samples * (seed - 3))

    X = np.concatenate([np.zeros(200), np.full(200, 3.0)])[:, None]
    settings = SETTINGS.model_copy(update={"elbo_samples": 11, "batch_size": 200})
    samples = np.array([2.0, 2.0, 2.0, 2.0, 2.0, 1.0])
    mean = 1.5 + spread * (samples**2) @ [0.0, 2.0, 4.0, 6.0, 8.0, 10.0] / 11
    assert elbo_per_point(Bound(), (X, X), settings=settings, seed=3) == pytest.approx(mean)
    assert len(seeds) == calls


@pytest.mark.parametrize(("spread", "draws"), [(1e-4, 10), (4e-3, 17), (1.0, 40)])
def test_a_bound_ends_when_its_error_is_small(spread: float, draws: int) -> None:
    """Draws are `spread` above and below in turn: their standard error is near spread / sqrt(n - 1)."""
    seeds: list[int] = []

    class Bound:
        def elbo(self, data: Any, *, num_samples: int, seed: int) -> float:
            seeds.append(seed)
            return len(data[0]) * (2.0 + spread * (-1.0) ** (seed // num_samples))

    settings = SETTINGS.model_copy(update={"elbo_samples": 80, "batch_size": 200})
    X = np.zeros([200, 1])
    assert settings.train_samples == 2
    value = elbo_per_point(Bound(), (X, X), settings=settings)
    np.testing.assert_allclose(value, 2.0, atol=4e-3 / 16)
    assert len(set(seeds)) == draws


def test_a_short_run_has_every_metric(tmp_path: Path) -> None:
    scores = run_task("diabetes", "dwp-ab-gw", settings=SETTINGS, checkpoint_dir=tmp_path)
    # A run this short has no step that was timed after compilation; a DWP has no candidates, and a bound.
    optional = {
        "seconds_per_step",
        "epoch_seconds",
        "test_log_likelihood_best_candidate",
        "objective_per_point",
    }
    assert set(metrics_of("regression")) - set(scores) <= optional
    again = run_task("diabetes", "dwp-ab-gw", settings=SETTINGS, checkpoint_dir=tmp_path)
    for name in set(scores) - {"seconds", "seconds_per_step", "epoch_seconds"}:
        assert again[name] == scores[name], name


def test_several_runs_in_one_process(tmp_path: Path) -> None:
    experiment = Experiment(
        models=("dgp",), datasets=("diabetes",), splits=(0, 1), depths=(1,), settings=SETTINGS
    )
    store = ResultsStore(tmp_path / "results.sqlite")
    assert run_experiment(experiment, store, jobs=0, progress=False).num_ok == 2


def test_scores_agree_with_the_models_own_predictions() -> None:
    model, dataset = build("dgp"), get_dataset("diabetes")
    scores = evaluate(model, dataset, settings=SETTINGS, seed=3)
    sampling: dict[str, Any] = {"num_samples": 5, "seed": 3}
    X, Y = dataset.X_test, dataset.Y_test
    log_density = model.predict_log_density((X, Y), **sampling).numpy().mean()
    assert scores["nlpd"] == pytest.approx(-log_density, rel=1e-10)
    mean, _ = model.predict_y(X, **sampling)
    rmse = np.sqrt(np.mean((mean.numpy() - Y) ** 2)) * dataset.scaling.Y_std[0]
    assert scores["test_rmse"] == pytest.approx(rmse, rel=1e-10)
    low, high = model.predict_quantiles(X, [0.05, 0.95], **sampling).numpy()
    assert scores["coverage_90"] == pytest.approx(np.mean((low <= Y) & (high >= Y)))


def test_steps_are_reported() -> None:
    steps: list[int] = []
    dataset = get_dataset("diabetes")
    train_with_fit(
        build("dgp"),
        (dataset.X_train, dataset.Y_train),
        settings=SETTINGS,
        seed=0,
        checkpoint_dir=None,
        checkpoint_seconds=30.0,
        report_step=steps.append,
    )
    assert steps[-1] == 4


def test_diwp_learns_a_shift_of_the_inputs_whatever_the_settings_say() -> None:
    """It did before there was the setting, so that its runs are those of the rows that are there."""
    for value in (False, True):
        assert build("diwp:relu", input_bias=value).layers[0].bias is not None
    assert not model_source("diwp:relu").is_read("input_bias")


@pytest.mark.parametrize("name", ["dgp", "dgp:relu", "dwp-gw"])
def test_a_precision_for_each_function_of_a_deep_gp(name: str) -> None:
    layer = build(name, shared_precision=False).hidden_layers[0]
    assert getattr(layer, "shared_precision", None) is (False if "dgp" in name else None)


@pytest.mark.parametrize("name", ["dgp", "dwp-ab-gw", "nngp:relu"])
def test_a_learned_shift_of_the_inputs(name: str) -> None:
    """One more number for each of the ten columns."""
    without, with_bias = (build(name, input_bias=value) for value in (False, True))
    sizes = [
        sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
        for model in (without, with_bias)
    ]
    assert sizes[1] - sizes[0] == 10
