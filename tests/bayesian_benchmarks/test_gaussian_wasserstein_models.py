"""GWI in the harness: choices are made on a validation part, and nothing sees the test part."""

from __future__ import annotations

import csv
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from bayesian_benchmarks import get_dataset, load_experiment, run_task
from bayesian_benchmarks.config import ClassificationSettings, GWISettings, MeanNetwork, Settings
from bayesian_benchmarks.errors import BadDataError, ConfigError
from bayesian_benchmarks.models import model_source, train_with_fit
from bayesian_benchmarks.models.gaussian_wasserstein import (
    VALIDATION_FRACTION,
    Candidate,
    SelectedGWI,
    split_validation,
)
from bayesian_benchmarks.results.paper import paper_results
from bayesian_benchmarks.results.tables import agrees
from bayesian_benchmarks.runs import expand
from bayesian_benchmarks.tasks.regression import METRICS

REPOSITORY = Path(__file__).resolve().parents[2]
GWI = GWISettings(
    protocol="90/10",
    inducing_factors=(0.3, 0.5),
    noise_variances=(0.1,),
    refit_steps=40,
    validation_steps=10,
    patience=2,
    hidden_units=(4,),
    num_cross_points=10,
)
ONE = GWI.model_copy(update={"inducing_factors": (0.3,), "protocol": "80/10/10"})
SETTINGS = Settings(
    num_steps=20, learning_rate=((0.0, 0.01),), kl_annealing_steps=0, batch_size=50, gwi=GWI
)


def with_gwi(**changes: Any) -> Settings:
    return SETTINGS.model_copy(update={"gwi": GWI.model_copy(update=changes)})


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 2))
    return X, np.sin(2.0 * X[:, :1]) + 0.1 * rng.normal(size=(90, 1))


def trained(model: SelectedGWI, directory: Path | None = None, **changes: Any) -> list[int]:
    """Train, and return the steps that were reported."""
    steps: list[int] = []
    model.train(
        data(),
        checkpoint_dir=directory,
        checkpoint_seconds=1e9,
        report_step=steps.append,
        **changes,
    )
    return steps


def test_the_validation_part_is_a_ninth_and_disjoint() -> None:
    X, Y = data()
    (X_train, _), (X_held_out, Y_held_out) = split_validation((X, Y), seed=3)
    assert len(X_held_out) == round(VALIDATION_FRACTION * 90) == 10
    assert not {tuple(row) for row in X_train} & {tuple(row) for row in X_held_out}
    assert len(X_train) == 80
    assert all(y == Y[np.all(x == X, 1)][0] for x, y in zip(X_held_out, Y_held_out, strict=True))
    again = split_validation((X, Y), seed=3)[1][0]
    np.testing.assert_array_equal(again, X_held_out)


def test_the_kernel_is_found_by_the_logarithms_of_its_parameters() -> None:
    """By softplus, the search took lengthscales of energy's fold 4 to 1e-36."""
    selected = SelectedGWI("net", SETTINGS, 0)
    selected.start(data())
    for parameter in selected.kernel.parameters:
        np.testing.assert_allclose(parameter.unconstrained_variable, np.log(parameter), rtol=1e-12)


def test_the_candidate_of_the_highest_validation_density_is_chosen() -> None:
    settings = with_gwi(noise_variances=(0.3, 0.03), protocol="80/10/10")
    model = SelectedGWI("net", settings, 0)
    steps = trained(model)
    _, held_out = split_validation(data(), 0)
    densities = {c: gwi.held_out_log_density(held_out) for c, gwi in model.candidates.items()}
    assert len(densities) == 3
    assert model.chosen is not None
    tried = {candidate.inducing_factor for candidate in densities}
    assert tried == {0.3, 0.5}
    assert densities[model.chosen] == max(densities.values())
    assert model.model is model.candidates[model.chosen]
    assert model.model.num_inducing == round(model.chosen.inducing_factor * np.sqrt(80))
    assert steps == sorted(steps)
    assert steps[-1] == 20


def test_90_10_trains_the_choice_on_with_all_rows_and_keeps_the_temperature() -> None:
    model = SelectedGWI("svgp", SETTINGS, 0)
    trained(model)
    assert model.chosen is not None
    chosen = model.candidates[model.chosen]
    assert model.model is not chosen
    np.testing.assert_array_equal(model.model.temperature, chosen.temperature)
    assert (chosen.num_data, model.model.num_data) == (80, 90)
    difference = model.model.q_mu.numpy() - chosen.q_mu.numpy()
    assert 0.0 < np.max(np.abs(difference)) < 0.05  # 40 steps of Adam at 0.001


CROSS_VALIDATED = {
    "protocol": "cross-validation",
    "num_folds": 2,
    "step_fractions": (0.5, 1.0),
    "noise_variances": (0.1,),
    "inducing_factors": (0.3,),
}


def test_cross_validation_chooses_by_the_density_of_the_folds() -> None:
    """The score and the temperature again from models of the folds that are built and trained here."""
    settings = with_gwi(**CROSS_VALIDATED)
    selected = SelectedGWI("net", settings, 0)
    steps = trained(selected)
    assert (steps == sorted(steps), steps[-1]) == (True, 20)
    assert len(selected.candidates) == 2
    assert selected.model is selected.candidates[selected.chosen]
    X, Y = data()
    fold_of = np.random.default_rng(0).permutation(len(X)) % 2
    scores = {}
    for candidate, model in selected.candidates.items():
        assert model.num_data == 90
        held_out = []
        for fold in (0, 1):
            rows = fold_of != fold
            part = selected.build((X[rows], Y[rows]), candidate)
            num_steps = round(20 * candidate.step_fraction)
            train_with_fit(
                part,
                (X[rows], Y[rows]),
                settings=settings.model_copy(update={"num_steps": num_steps}),
                seed=0,
                checkpoint_dir=None,
                checkpoint_seconds=1e9,
                report_step=lambda step: None,
            )
            part.temperature.assign(model.temperature)
            held_out.append(part.predict_log_density((X[~rows], Y[~rows])).numpy())
            squared = np.square(Y[~rows] - part.predict_y(X[~rows])[0])
            held_out[-1] = np.stack([held_out[-1], (squared / part.predict_y(X[~rows])[1])[:, 0]])
        density, ratio = np.concatenate(held_out, axis=1)
        assert np.mean(ratio) == pytest.approx(1.0)  # the best temperature, for all folds
        scores[candidate] = np.mean(density)
    assert max(scores, key=lambda candidate: scores[candidate]) == selected.chosen


NETWORKS = (
    MeanNetwork(hidden_units=(4,)),
    MeanNetwork(hidden_units=(3,), activation="relu", weight_variance=1.0),
    MeanNetwork(hidden_units=(3,), activation="relu", weight_variance=1e-6),
)


@pytest.mark.parametrize("protocol", ["80/10/10", "cross-validation"])
def test_the_network_is_chosen_too(protocol: str) -> None:
    settings = with_gwi(**CROSS_VALIDATED | {"protocol": protocol}, networks=NETWORKS)
    selected = SelectedGWI("net-selected", settings, 0)
    steps = trained(selected)
    assert (steps == sorted(steps), steps[-1]) == (True, 20)
    if protocol == "cross-validation":  # at every number of steps
        pairs = {(candidate.network, candidate.step_fraction) for candidate in selected.candidates}
        assert pairs == set(itertools.product(NETWORKS, (0.5, 1.0)))
        assert len(selected.candidates) == 6
    models = {candidate.network: model for candidate, model in selected.candidates.items()}
    assert set(models) == set(NETWORKS)
    assert selected.model is selected.candidates[selected.chosen]
    for network, model in models.items():
        mean = model.mean
        assert [weight.shape[1] for weight in mean.weights] == [*network.hidden_units, 1]
        assert mean.activation == network.activation
        for weight in mean.weights:
            variance = weight.prior and float(weight.prior.variance())
            assert variance == (network.weight_variance and pytest.approx(network.weight_variance))
    sizes = [np.abs(models[network].mean.weights[0]).sum() for network in NETWORKS]
    assert sizes[2] < sizes[1]  # of one start


def test_cross_validation_goes_on_from_the_trainings_that_are_done(tmp_path: Path) -> None:
    settings = with_gwi(**CROSS_VALIDATED)
    first, again = SelectedGWI("net", settings, 0), SelectedGWI("net", settings, 0)
    trained(first, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"training-{i}" for i in range(6)]
    trained(again, tmp_path)
    assert again.chosen == first.chosen
    np.testing.assert_array_equal(
        again.model.predict_y(data()[0])[0], first.model.predict_y(data()[0])[0]
    )


def test_cross_validation_is_for_targets_and_enough_rows() -> None:
    settings = with_gwi(**CROSS_VALIDATED)
    with pytest.raises(ConfigError, match=r"got cross-validation, which is for targets"):
        trained(SelectedGWI("net", settings, 0, num_classes=3))
    selected = SelectedGWI("net", with_gwi(**CROSS_VALIDATED | {"num_folds": 50}), 0)
    with pytest.raises(BadDataError, match=r"got 90 training rows, needs two for each of 50 folds"):
        trained(selected)


@pytest.mark.parametrize("factor", [3.0, 1e-3])
def test_temperature_is_at_least_what_the_training_rows_need(factor: float) -> None:
    (X, Y), selected = data(), SelectedGWI("svgp", SETTINGS, 0)
    selected.start((X, Y))
    model = selected.build((X, Y), Candidate(None, 0.5, 0.1))
    errors = model.predict_y(X)[0].numpy() - Y
    held_out = X, Y - (factor - 1.0) * errors  # errors `factor` times the rows'
    log_density = selected.temper(model, (X, Y), held_out)
    alpha = np.mean(errors**2 / (model.predict_y(X)[1] / model.temperature))
    assert float(model.temperature[0]) == pytest.approx(max(1.0, factor**2) * alpha, rel=1e-6)
    assert log_density == pytest.approx(np.mean(model.predict_log_density(held_out)))


@pytest.mark.parametrize("protocol", ["80/10/10", "90/10", "cross-validation"])
def test_what_is_chosen_does_not_depend_on_the_test_part(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither which model, nor its temperature, nor what it predicts."""
    dataset = get_dataset("diabetes", 0)
    small = replace(dataset, X_train=dataset.X_train[:90], Y_train=dataset.Y_train[:90])
    other = replace(small, X_test=-small.X_test[:5], Y_test=7.0 + small.Y_test[:5])
    changes = {"protocol": protocol, "noise_variances": (0.3, 0.03), "step_fractions": (1.0,)}
    settings = with_gwi(**CROSS_VALIDATED | changes)
    models: list[SelectedGWI] = []
    train = SelectedGWI.train

    def train_and_keep(self: SelectedGWI, *arguments: Any, **keywords: Any) -> Any:
        models.append(self)
        return train(self, *arguments, **keywords)

    monkeypatch.setattr(SelectedGWI, "train", train_and_keep)
    scores = [run_task(part, "gwi-svgp", depth=1, settings=settings) for part in (small, other)]
    assert len(models[0].candidates) == 2
    assert models[0].chosen == models[1].chosen
    np.testing.assert_array_equal(models[0].model.temperature, models[1].model.temperature)
    for ours, theirs in zip(*(m.predict_mixture(small.X_train) for m in models), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert scores[0]["test_rmse"] != scores[1]["test_rmse"]
    for score in scores:
        assert set(score) <= set(METRICS)
        assert np.isfinite(score["test_log_likelihood_best_candidate"])


@pytest.mark.parametrize(("name", "learns"), [("net", False), ("svgp", True)])
def test_inducing_points_are_learned_by_the_sparse_gps_mean_alone(name: str, learns: bool) -> None:
    model = SelectedGWI(name, with_gwi(protocol="80/10/10"), 0)
    trained(model)
    (X, Y), _ = split_validation(data(), 0)
    start = model.build((X, Y), model.chosen).inducing_variable.Z.numpy()
    moved = np.max(np.abs(model.model.inducing_variable.Z.numpy() - start))
    assert (moved > 1e-3) == learns
    assert learns or moved == 0.0


def test_a_run_goes_on_from_the_trainings_that_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bayesian_benchmarks.models import gaussian_wasserstein

    settings = SETTINGS.model_copy(update={"gwi": ONE.model_copy(update={"protocol": "90/10"})})
    whole, killed, resumed = (SelectedGWI("net", settings, 0) for _ in range(3))
    trained(whole)
    fit, count = gaussian_wasserstein.train_with_fit, 0

    def dies_in_the_second(*arguments: Any, **settings: Any) -> Any:
        nonlocal count
        count += 1
        if count == 2:
            raise KeyboardInterrupt
        return fit(*arguments, **settings)

    monkeypatch.setattr(gaussian_wasserstein, "train_with_fit", dies_in_the_second)
    with pytest.raises(KeyboardInterrupt):
        trained(killed, tmp_path)
    monkeypatch.setattr(gaussian_wasserstein, "train_with_fit", fit)
    trained(resumed, tmp_path)
    assert resumed.chosen == whole.chosen
    X, _ = data()
    for ours, theirs in zip(resumed.predict_mixture(X), whole.predict_mixture(X), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", ["gwi-net", "gwi-net-selected", "gwi-cnn", "gwi-svgp", "svgp"])
def test_classes(name: str) -> None:
    settings = ClassificationSettings(
        **{**SETTINGS.model_dump(), "gwi": ONE}, likelihood="robust-max"
    )
    dataset = get_dataset("digits", 0)
    few = replace(dataset, X_train=dataset.X_train[:120], Y_train=dataset.Y_train[:120])
    scores = run_task(few, name, depth=1, settings=settings)
    assert 0.0 <= scores["accuracy"] <= 1.0
    assert scores["test_log_likelihood"] < 0.0


@pytest.mark.parametrize("name", ["gwi-net", "gwi-svgp"])
def test_other_distributions(name: str) -> None:
    """Turned digits have the more uncertain classes, by the mean of a sparse GP at its start."""
    gwi = ONE.model_copy(update={"inducing_factors": (2.0,)})
    settings = ClassificationSettings(
        **{**SETTINGS.model_dump(), "gwi": gwi}, likelihood="robust-max"
    )
    pair = get_dataset("digits_rotated", 0, task="ood")
    few = replace(pair, X_train=pair.X_train[:200], Y_train=pair.Y_train[:200])
    scores = run_task(few, name, depth=1, settings=settings)
    names = ("auroc_entropy", "auroc_max_probability", "auroc_variance")
    assert all(0.0 <= scores[metric] <= 1.0 for metric in names)
    if name == "gwi-svgp":
        assert scores["accuracy"] > 0.5
        assert scores["auroc_entropy"] > 0.5


def test_a_convolutional_mean_needs_images_and_classes() -> None:
    X, _ = data()
    with pytest.raises(ConfigError, match=r"2 features are no square image"):
        trained(SelectedGWI("cnn", SETTINGS, 0, num_classes=3))
    with pytest.raises(ConfigError, match=r"for the classification of images; use gwi-net"):
        SelectedGWI("cnn", SETTINGS, 0)._convolutional_network(64)
    assert X.shape[1] == 2


@pytest.mark.parametrize(
    ("paper", "changes"),
    [
        ("aitchison2021", {"gwi": GWI}),
        ("aitchison2021", {"ard": False}),
        ("wild2022", {"gwi": {"networks": NETWORKS}}),
    ],
)
def test_later_settings_keep_the_keys_of_stored_rows(paper: str, changes: dict[str, Any]) -> None:
    """Rows that were stored before there were such settings are found again, unless they differ."""
    experiment = load_experiment(REPOSITORY / "configs" / f"{paper}.yaml")
    runs = {run.key: run for run in expand(experiment)}
    with (REPOSITORY / "results" / f"{paper}.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows
    for row in rows:
        key = tuple(
            row[name] for name in ("task", "dataset", "split", "model", "settings_hash", "seed")
        )
        assert (key[0], key[1], int(key[2]), key[3], key[4], int(key[5])) in runs
    if paper == "wild2022":
        changes = {"gwi": experiment.settings.gwi.model_copy(update=changes["gwi"])}
    other = experiment.override(settings=experiment.settings.model_copy(update=changes))
    assert not {run.settings_hash for run in expand(other)} & {row["settings_hash"] for row in rows}


def test_the_papers_protocol_and_figures() -> None:
    experiment = load_experiment(REPOSITORY / "configs" / "wild2022.yaml")
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
