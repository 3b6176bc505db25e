"""GWI's settings chosen on held-out data: what is chosen, what it costs, and what may fail on the way."""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Matern32, SquaredExponential
from gpflow.likelihoods import Bernoulli, Gaussian, MultiClass

from gpflow_dkp import selection
from gpflow_dkp.means import KernelExpansion
from gpflow_dkp.models import GWI
from gpflow_dkp.selection import (
    Candidate,
    CrossValidation,
    HoldOut,
    Network,
    Selection,
    Training,
    select_gwi,
    split_validation,
    temper,
)
from gpflow_dkp.training import Cosine, ExponentialDecay, History, TrainingFailed, fit

NOISE = 0.1
TRAINING = Training(num_steps=20, batch_size=50, learning_rate=0.01)
HELD_OUT = HoldOut(validation_steps=10, patience=2)
REFIT = HoldOut(validation_steps=10, patience=2, refit_steps=40)
FOLDS = CrossValidation(num_folds=2, step_fractions=(0.5, 1.0))
SMALL = Network(hidden_units=(4,))
NETWORKS = (SMALL, Network(hidden_units=[3], activation="relu", weight_variance=1.0))
rng = np.random.default_rng(0)
X = rng.normal(size=(90, 2))
Y = np.sin(2.0 * X[:, :1]) + 0.1 * rng.normal(size=(90, 1))
LABELS = np.arange(90)[:, None] % 3.0


def select(targets: np.ndarray = Y, **changes: Any) -> Selection:
    settings: dict[str, Any] = {
        "networks": (SMALL,) if changes.get("mean", "net") == "net" else None,
        "noise_variances": (NOISE,),
        "inducing_factors": (0.3,),
        "protocol": HELD_OUT,
        "training": TRAINING,
        "num_cross_points": 10,
    }
    return select_gwi(X, targets, **settings | changes)


class Run(NamedTuple):
    selection: Selection
    steps: list[int]
    wall_seconds: float


def run(**changes: Any) -> Run:
    steps: list[int] = []
    start = time.perf_counter()
    chosen = select(callbacks=[steps.append], **changes)
    return Run(chosen, steps, time.perf_counter() - start)


# With training


@pytest.fixture(scope="module")
def held_out() -> Run:
    return run(noise_variances=(0.3, 0.03), inducing_factors=(0.3, 0.5))


@pytest.fixture(scope="module")
def refitted() -> Run:
    return run(mean="svgp", protocol=REFIT)


@pytest.fixture(scope="module")
def by_folds() -> Run:
    return run(protocol=FOLDS)


def test_the_validation_part_is_a_ninth_and_disjoint() -> None:
    (X_train, _), (X_held_out, Y_held_out) = split_validation((X, Y), seed=3)
    assert (len(X_train), len(X_held_out)) == (80, 10)
    assert not {tuple(row) for row in X_train} & {tuple(row) for row in X_held_out}
    assert all(y == Y[np.all(x == X, 1)][0] for x, y in zip(X_held_out, Y_held_out, strict=True))
    np.testing.assert_array_equal(split_validation((X, Y), seed=3)[1][0], X_held_out)
    assert not np.array_equal(split_validation((X, Y), seed=4)[1][0], X_held_out)


def test_the_candidate_of_the_highest_density_is_chosen(held_out: Run) -> None:
    chosen = held_out.selection
    _, validation = split_validation((X, Y), 0)
    assert len(chosen.candidates) == 3
    for candidate, model in chosen.candidates.items():
        density = np.mean(model.predict_log_density(validation))
        assert chosen.scores[candidate] == pytest.approx(density)
        assert model.num_inducing == round(candidate.inducing_factor * np.sqrt(80))
        assert float(model.likelihood.variance.numpy()) == pytest.approx(candidate.noise_variance)
    assert {candidate.inducing_factor for candidate in chosen.candidates} == {0.3, 0.5}
    assert chosen.scores[chosen.chosen] == max(chosen.scores.values())
    assert chosen.model is chosen.candidates[chosen.chosen]
    assert chosen.history.best_validation[1] == pytest.approx(
        chosen.model.held_out_log_density(validation)
    )


def test_the_kernel_is_found_by_the_logarithms_of_its_parameters(held_out: Run) -> None:
    """By softplus, the search took lengthscales of energy's fold 4 to 1e-36."""
    for parameter in held_out.selection.model.kernel.parameters:
        np.testing.assert_allclose(parameter.unconstrained_variable, np.log(parameter), rtol=1e-12)


@pytest.mark.parametrize("name", ["held_out", "refitted", "by_folds"])
def test_seconds_are_all_that_passed_and_steps_say_how_much_is_done(
    name: str, request: pytest.FixtureRequest
) -> None:
    """Kernel search, predictions and tempering too."""
    chosen, steps, wall_seconds = request.getfixturevalue(name)
    assert 0.9 * wall_seconds < chosen.seconds < wall_seconds
    assert (steps == sorted(steps), steps[-1]) == (True, 20)


@pytest.mark.parametrize(("name", "learns"), [("held_out", False), ("refitted", True)])
def test_inducing_points_are_learned_by_the_sparse_gps_mean_alone(
    name: str, learns: bool, request: pytest.FixtureRequest
) -> None:
    chosen = request.getfixturevalue(name).selection
    rows, _ = split_validation((X, Y), 0)
    num_inducing = chosen.model.num_inducing
    start = GWI.from_data(
        *rows, num_inducing=num_inducing, noise_variance=1.0, num_marginal_points=0
    )
    difference = chosen.model.inducing_variable.Z.numpy() - start.inducing_variable.Z.numpy()
    assert (np.max(np.abs(difference)) > 1e-3) == learns
    assert learns or not np.any(difference)


def test_a_refit_trains_on_with_all_rows_and_keeps_the_temperature(refitted: Run) -> None:
    chosen = refitted.selection
    before = chosen.candidates[chosen.chosen]
    assert chosen.model is not before
    np.testing.assert_array_equal(chosen.model.temperature, before.temperature)
    assert (before.num_data, chosen.model.num_data) == (80, 90)
    difference = chosen.model.q_mu.numpy() - before.q_mu.numpy()
    assert 0.0 < np.max(np.abs(difference)) < 0.05  # 40 steps of Adam at 0.001 and less
    assert chosen.history.num_steps == 40


def test_folds_choose_by_the_density_of_what_each_has_not_seen(by_folds: Run) -> None:
    """The score and the temperature again from models of the folds that are built and trained here."""
    chosen = by_folds.selection
    assert {candidate.step_fraction for candidate in chosen.candidates} == {0.5, 1.0}
    fold_of = np.random.default_rng(0).permutation(len(X)) % 2
    for candidate, model in chosen.candidates.items():
        assert model.num_data == 90
        found = []
        for fold in (0, 1):
            rows = fold_of != fold
            part = GWI.from_data(
                X[rows],
                Y[rows],
                mean="net",
                hidden_units=(4,),
                num_inducing=2,
                kernel=gpflow.utilities.deepcopy(model.kernel),
                noise_variance=NOISE,
                num_marginal_points=0,
                num_cross_points=10,
            )
            num_steps = round(20 * candidate.step_fraction)
            training = {"num_steps": num_steps, "learning_rate": 0.01, "kl_annealing_steps": 0}
            fit(part, (X[rows], Y[rows]), **training, schedule="paper", progress=False)
            part.temperature.assign(model.temperature)
            density = part.predict_log_density((X[~rows], Y[~rows])).numpy()
            mean, variance = part.predict_y(X[~rows])
            found.append(np.stack([density, (np.square(Y[~rows] - mean) / variance)[:, 0]]))
        density, ratio = np.concatenate(found, axis=1)
        assert np.mean(ratio) == pytest.approx(1.0)  # the best temperature, for all folds
        assert chosen.scores[candidate] == pytest.approx(np.mean(density))
    assert chosen.scores[chosen.chosen] == max(chosen.scores.values())


def test_a_killed_run_goes_on_and_reports_what_it_cost(
    refitted: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies_in_the_second(model: GWI, data: Any, **settings: Any) -> History:
        if settings["checkpoint_dir"].name == "training-1":
            raise KeyboardInterrupt
        return fit(model, data, **settings)

    monkeypatch.setattr(selection, "fit", dies_in_the_second)
    with pytest.raises(KeyboardInterrupt):
        select(mean="svgp", protocol=REFIT, checkpoint_dir=tmp_path)
    (record,) = tmp_path.glob("training-0/*.history.json")
    history = json.loads(record.read_text())
    record.write_text(json.dumps(history | {"seconds": history["seconds"] + 1000.0}))
    monkeypatch.setattr(selection, "fit", fit)
    resumed = run(mean="svgp", protocol=REFIT, checkpoint_dir=tmp_path)
    assert resumed.selection.chosen == refitted.selection.chosen
    for ours, theirs in zip(
        resumed.selection.model.predict_y(X), refitted.selection.model.predict_y(X), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    earlier = 1000.0 + history["seconds"]
    assert 0.9 * resumed.wall_seconds < resumed.selection.seconds - earlier < resumed.wall_seconds


@pytest.mark.parametrize("factor", [3.0, 1e-3])
def test_temperature_is_at_least_what_the_training_rows_need(factor: float) -> None:
    model = GWI.from_data(
        X, Y, mean="svgp", num_inducing=5, noise_variance=0.1, num_marginal_points=0
    )
    errors = model.predict_y(X)[0].numpy() - Y
    held_out = X, Y - (factor - 1.0) * errors  # errors `factor` times the rows'
    log_density = temper(model, (X, Y), held_out)
    alpha = np.mean(errors**2 / (model.predict_y(X)[1] / model.temperature))
    assert float(model.temperature[0]) == pytest.approx(max(1.0, factor**2) * alpha, rel=1e-6)
    assert log_density == pytest.approx(np.mean(model.predict_log_density(held_out)))


# Without: what a training does is nothing, or a failure


Fit = Callable[..., History]
Untrained = Callable[..., None]


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> Untrained:
    """Trainings do nothing, or what is given; the kernel stays as it is, with noise 0.2."""

    def use(train: Fit = lambda model, data, **settings: History()) -> None:
        monkeypatch.setattr(selection, "fit", train)

    monkeypatch.setattr(selection, "start_kernels", lambda *data: 0.2)
    use()
    return use


@pytest.mark.parametrize("protocol", [HELD_OUT, FOLDS])
def test_networks_and_steps_are_chosen_together(
    protocol: HoldOut | CrossValidation, untrained: Untrained
) -> None:
    chosen = select(networks=NETWORKS, protocol=protocol)
    fractions = (0.5, 1.0) if protocol is FOLDS else (1.0,)
    pairs = {(candidate.network, candidate.step_fraction) for candidate in chosen.candidates}
    assert pairs == set(itertools.product(NETWORKS, fractions))
    assert chosen.scores[chosen.chosen] == max(chosen.scores.values())
    for candidate, model in chosen.candidates.items():
        network, mean = candidate.network, model.mean
        assert network is not None
        assert [weight.shape[1] for weight in mean.weights] == [*network.hidden_units, 1]
        assert mean.activation == network.activation
        for weight in mean.weights:
            variance = weight.prior and float(weight.prior.variance())
            assert variance == (network.weight_variance and pytest.approx(network.weight_variance))


def test_noise_then_inducing_points_are_chosen_from_the_middle_on(untrained: Untrained) -> None:
    factors = np.array([0.2, 0.3, 0.4])
    tried = list(select(noise_variances=(0.3, 0.1, 0.01), inducing_factors=factors).candidates)
    assert [candidate.noise_variance for candidate in tried[:3]] == [0.1, 0.3, 0.01]
    assert {candidate.inducing_factor for candidate in tried[:3]} == {0.3}
    assert [candidate.inducing_factor for candidate in tried[3:]] == [0.2, 0.4]
    assert len({candidate.noise_variance for candidate in tried[3:]}) == 1


def test_the_published_grid_of_inducing_points(untrained: Untrained) -> None:
    """[NeurIPS22]'s multiples of the root of N = 80, and all of them."""
    candidates = select(inducing_factors=(0.5, 0.75, 1.0, 1.5, 2.0, 100.0)).candidates
    numbers = {key.inducing_factor: model.num_inducing for key, model in candidates.items()}
    assert numbers == {0.5: 4, 0.75: 7, 1.0: 9, 1.5: 13, 2.0: 18, 100.0: 80}


def test_a_training_has_the_settings_a_folder_and_callbacks(
    untrained: Untrained, tmp_path: Path
) -> None:
    calls: list[dict[str, Any]] = []

    def train(model: GWI, data: Any, **settings: Any) -> History:
        calls.append(settings | {"num_data": len(data[0]), "cross_term": model.cross_term})
        history = History(recoveries=[1, 2])
        (callback,) = settings["callbacks"]
        callback(settings["num_steps"], history)
        return history

    untrained(train)
    seen: list[tuple[int, History]] = []
    chosen = select(
        networks=NETWORKS,
        protocol=REFIT,
        training=Training(100, 85, ExponentialDecay(0.02), 150),
        num_cross_points=85,
        checkpoint_dir=tmp_path,
        checkpoint_seconds=7.0,
        callbacks=[lambda step, history: seen.append((step, history))],
        seed=3,
    )
    assert [call["checkpoint_dir"].name for call in calls] == [f"training-{i}" for i in range(3)]
    assert [step for step, _ in seen] == [33, 66, 100]
    assert chosen.history is seen[-1][1]
    assert chosen.num_recoveries == 6
    names = ("num_steps", "batch_size", "kl_annealing_steps", "num_data")
    assert [[call[name] for name in names] for call in calls] == [
        [100, None, 99, 80],  # no more rows than a batch
        [100, None, 99, 80],
        [40, 85, 0, 90],
    ]
    assert [call["learning_rate"] for call in calls] == [
        ExponentialDecay(0.02),
        ExponentialDecay(0.02),
        Cosine(0.1 * 0.02),  # falls: steps that stay large leave errors as large
    ]
    assert {call["cross_term"].num_points for call in calls} == {80}
    assert all((call["seed"], call["checkpoint_seconds"]) == (3, 7.0) for call in calls)
    assert (calls[0]["validation_steps"], calls[0]["patience"]) == (10, 2)


def test_a_kernel_for_each_class_is_that_of_its_indicator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by the marginal likelihood of the rows that are not held out, then fixed."""
    monkeypatch.setattr(selection, "fit", lambda model, data, **settings: History())
    monkeypatch.setattr(selection, "temper", lambda *arguments: 0.0)
    labels = (X[:, :1] > 0.0) + 1.0 * (X[:, :1] > 1.0)
    settings = {"likelihood": MultiClass(3), "mean": "svgp", "separate_kernels": True}
    model = select(labels, **settings, distance="kl").model
    (rows, of_rows), _ = split_validation((X, labels), 0)
    of_second = (3.0 * (of_rows == 1) - 1.0) / np.sqrt(2.0)
    alone = GWI.from_data(rows, of_second, mean="svgp", num_inducing=3).kernel
    first, second, _ = model.kernel.kernels
    np.testing.assert_allclose(second.lengthscales, alone.lengthscales, rtol=1e-6)
    np.testing.assert_allclose(second.variance, alone.variance, rtol=1e-6)
    assert abs(first.lengthscales.numpy() / alone.lengthscales.numpy() - 1.0).max() > 0.01
    assert not model.kernel.trainable_variables
    assert model.objective_is_bound


def test_a_covariance_of_its_own_is_trained_and_its_prior_is_not() -> None:
    given = Matern32()
    for covariance in ("prior", given):
        chosen = select(covariance=covariance, training=replace(TRAINING, num_steps=5))
        kernel, own = chosen.model.kernel, chosen.model.covariance
        start = kernel if covariance == "prior" else given
        assert isinstance(own, type(start))
        assert not kernel.trainable_variables
        moved = np.abs(np.log(own.variance / start.variance))
        assert 0.0 < moved < 5 * 0.011  # five of Adam's steps
    assert given.variance.numpy() == 1.0


@pytest.mark.parametrize(
    ("likelihood", "num_classes"), [(MultiClass(3), 3), (MultiClass(2), 2), (Bernoulli(), 2)]
)
def test_labels_start_at_the_noise_of_their_indicators(
    likelihood: Any, num_classes: int, untrained: Untrained, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, found_on = np.minimum(LABELS, num_classes - 1.0), []

    def start(kernel: Any, X: np.ndarray, targets: np.ndarray, seed: int) -> float:
        found_on.append(targets)
        return 0.25

    monkeypatch.setattr(selection, "start_kernels", start)
    monkeypatch.setattr(selection, "temper", lambda *arguments: 0.0)
    chosen = select(
        labels,
        likelihood=likelihood,
        noise_variances=(0.3, 0.2),
        inducing_factors=(0.3, 0.5),
        protocol=None,  # HoldOut()
    )
    assert {candidate.noise_variance for candidate in chosen.candidates} == {0.25}
    assert len(chosen.candidates) == 2
    (_, rows), _ = split_validation((X, labels), 0)
    indicators = np.eye(num_classes)[rows[:, 0].astype(int)]
    frequency = 1.0 / num_classes
    scaled = (indicators - frequency) / np.sqrt(frequency * (1.0 - frequency))
    columns = slice(1, 2) if isinstance(likelihood, Bernoulli) else slice(None)
    np.testing.assert_allclose(found_on, [scaled[:, columns]], rtol=1e-12)
    assert chosen.model.likelihood is not likelihood


def keras_network() -> tf.keras.Model:
    return tf.keras.Sequential([tf.keras.Input([2]), tf.keras.layers.Dense(1)])


@pytest.mark.parametrize(
    "make_mean", [lambda: KernelExpansion(SquaredExponential(), X[:5]), keras_network]
)
def test_a_mean_of_the_users_is_copied_for_each_training(
    make_mean: Callable[[], Any], untrained: Untrained
) -> None:
    mean = make_mean()
    chosen = select(mean=mean, inducing_factors=(0.3, 0.5))
    means = [model.mean for model in chosen.candidates.values()]
    variables = {v.ref() for each in means for v in each.trainable_variables}
    assert len(variables) == 2 * len(mean.trainable_variables)
    ours, theirs = (np.asarray(each(X), float) for each in (means[0], mean))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert all(candidate.network is None for candidate in chosen.candidates)


# What fails


def fails_for(noise_variance: float, error: Exception) -> Fit:
    def train(model: GWI, data: Any, **settings: Any) -> History:
        if np.isclose(float(model.likelihood.variance.numpy()), noise_variance):
            raise error
        return History()

    return train


@pytest.mark.parametrize("protocol", [HELD_OUT, FOLDS])
@pytest.mark.parametrize(
    "error",
    [
        TrainingFailed("step 3: not finite"),
        FloatingPointError("step 3: not finite"),
        tf.errors.InvalidArgumentError(None, None, "step 3: not finite\nand where"),
    ],
)
def test_a_candidate_that_fails_is_out_with_a_warning(
    error: Exception,
    protocol: HoldOut | CrossValidation,
    untrained: Untrained,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The first one too, which others start from."""
    untrained(fails_for(0.1, error))
    with caplog.at_level(logging.WARNING, "gpflow_dkp.selection"):
        chosen = select(noise_variances=(0.3, 0.1, 0.01), protocol=protocol)
    assert {candidate.noise_variance for candidate in chosen.candidates} == {0.3, 0.01}
    assert set(chosen.scores) == set(chosen.candidates)
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == (2 if protocol is FOLDS else 1)
    for warning in warnings:
        assert "Candidate(network=Network(hidden_units=(4,)" in warning
        assert warning.endswith("is out: step 3: not finite")


def test_all_candidates_failing_is_one_line(untrained: Untrained) -> None:
    untrained(fails_for(0.1, TrainingFailed("step 3: not finite")))
    line = r"^all 2 candidates failed, the last one with: step 3: not finite$"
    with pytest.raises(TrainingFailed, match=line):
        select(inducing_factors=(0.3, 0.5))


@pytest.mark.parametrize("at", [0.3, 0.1])
@pytest.mark.parametrize("worst", [np.nan, -np.inf, np.inf])
def test_a_density_that_is_not_finite_never_wins(
    worst: float,
    at: float,
    untrained: Untrained,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not even the first, which `max` would keep, be it the first of the list or the first trained."""
    scores = {0.3: -5.0, 0.1: -5.0, 0.01: -4.0} | {at: worst}

    def score(model: GWI, *data: Any) -> float:
        return scores[round(float(model.likelihood.variance.numpy()), 6)]

    monkeypatch.setattr(selection, "temper", score)
    chosen = select(noise_variances=(0.3, 0.1, 0.01))
    assert chosen.chosen == Candidate(SMALL, 0.3, 0.01)
    assert list(chosen.scores.values()) == [-5.0, -4.0]
    assert f"the log density of the held-out data is {worst}" in caplog.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mean": "mlp"}, r"mean: got 'mlp', choose one of net, svgp"),
        ({"mean": 3, "networks": None}, r"mean: got 3, needs 'svgp' or a callable .*"),
        ({"mean": "svgp", "networks": NETWORKS}, r"networks: got some with another mean than .*"),
        ({"networks": ()}, r"networks: got \(\), needs a list of at least one Network"),
        ({"networks": [(4,)]}, r"networks: got \[\(4,\)\], needs a list of at least one Network"),
        (
            {"noise_variances": ()},
            r"noise_variances: got \(\), needs a list of at least one number",
        ),
        ({"noise_variances": 0.1}, r"noise_variances: got 0.1, needs a list of at least .*"),
        ({"noise_variances": (0.1, 0.0)}, r"noise_variances: got 0.0, needs a positive finite .*"),
        ({"inducing_factors": (-1.0,)}, r"inducing_factors: got -1.0, needs a positive finite .*"),
        ({"protocol": "90/10"}, r"protocol: got '90/10', needs a CrossValidation or a HoldOut"),
        ({"training": {"num_steps": 3}}, r"training: got \{'num_steps': 3\}, needs a Training"),
        ({"likelihood": Gaussian()}, r"likelihood: got Gaussian, needs None for one, .*"),
        ({"likelihood": "softmax"}, r"likelihood: got str 'softmax', needs a GPflow likelihood .*"),
        (
            {"likelihood": MultiClass(3), "protocol": FOLDS, "targets": LABELS},
            r"protocol: got CrossValidation with MultiClass, needs HoldOut; .*",
        ),
        (
            {"protocol": CrossValidation(num_folds=50)},
            r"data: got 90 rows, needs two for each of 50 folds",
        ),
        ({"kernel": "matern"}, r"kernel: got 'matern', choose one of .*"),
        ({"distance": "W2"}, r"distance: got 'W2', choose one of .*"),
        ({"distance": "kl"}, r"distance: got 'kl' with the mean MultilayerPerceptron, .*"),
        ({"separate_kernels": 3}, r"separate_kernels: got 3, needs True or False"),
        ({"seed": -1}, r"seed: got -1, needs an integer of at least 0"),
        ({"checkpoint_dir": ""}, r"checkpoint_dir: got an empty path, .*"),
        ({"callbacks": [3]}, r"callbacks: got 3 among them, needs functions"),
        ({"targets": Y[:5]}, r"data: .*"),
    ],
)
def test_bad_arguments(changes: dict[str, Any], message: str, untrained: Untrained) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        select(**changes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Network(hidden_units=3), r"hidden_units: got 3, needs a list of integers"),
        (lambda: Network(activation="gelu"), r"activation: got 'gelu', choose one of tanh, relu"),
        (lambda: Network(weight_variance=0.0), r"weight_variance: got 0.0, needs a positive .*"),
        (lambda: Training(num_steps=0), r"num_steps: got 0, needs an integer of at least 1"),
        (lambda: Training(batch_size=0), r"batch_size: got 0, needs an integer of at least 1"),
        (lambda: Training(learning_rate=-1.0), r"learning_rate: got .*, needs positive rates"),
        (lambda: Training(kl_annealing_steps=-1), r"kl_annealing_steps: got -1, needs .*"),
        (lambda: CrossValidation(num_folds=1), r"num_folds: got 1, needs at least 2"),
        (lambda: CrossValidation(step_fractions=(1.5,)), r"step_fractions: got 1.5, needs .*"),
        (lambda: HoldOut(validation_steps=0), r"validation_steps: got 0, needs an integer .*"),
        (lambda: HoldOut(patience=0), r"patience: got 0, needs an integer of at least 1"),
        (lambda: HoldOut(refit_steps=-1), r"refit_steps: got -1, needs an integer .*"),
        (lambda: split_validation((X[:9], Y[:9]), 0), r"data: got 9 rows, needs at least 10 .*"),
    ],
)
def test_bad_settings(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        make()
