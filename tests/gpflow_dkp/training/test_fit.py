"""`fit`: what it lowers, records, repeats, leaves alone and refuses."""

import contextlib
import math

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras
from fit_cases import numbers, toy_data, toy_model
from gpflow.monitor import ExecuteCallback, Monitor, MonitorTaskGroup

from gpflow_dkp.models import GWI
from gpflow_dkp.random import as_seed, fold_in, split
from gpflow_dkp.training import ExponentialDecay, History, fit
from gpflow_dkp.training.recipe import PAPER
from gpflow_dkp.training.schedules import minibatch_rows
from gpflow_dkp.training.trainer import Trainer

DATA = toy_data()


@pytest.mark.parametrize(("model", "depth"), [("DWP", 1), ("DWP", 2), ("DGP", 2)])
def test_bound_rises(model: str, depth: int) -> None:
    built = toy_model(model, depth)
    before = float(built.elbo(DATA, num_samples=50, seed=0))
    history = fit(
        built, DATA, num_steps=150, learning_rate=0.03, kl_annealing_steps=0, progress=False
    )
    after = float(built.elbo(DATA, num_samples=50, seed=0))
    assert after > before + 5.0
    assert history.num_steps == 150
    assert np.mean(history.elbo[-10:]) > np.mean(history.elbo[:10]) + 5.0 / len(DATA[0])
    # The record is the bound per data point.
    assert np.mean(history.elbo[-10:]) == pytest.approx(after / len(DATA[0]), abs=0.2)


@pytest.mark.parametrize(("depth", "batch_size", "priors"), [(1, None, False), (2, 7, True)])
def test_steps_are_adams_on_the_models_bound(
    depth: int, batch_size: int | None, priors: bool
) -> None:
    """Each step by hand: its rows, its seed, its weight of the KL term, GPflow's priors, Keras' Adam."""
    fitted, by_hand = toy_model("DWP", depth), toy_model("DWP", depth)
    if priors:
        for model in (fitted, by_hand):
            gamma = tfp.distributions.Gamma(np.float64(40.0), np.float64(2.0))
            model.likelihood.variance.prior = gamma
            for parameter in model.trainable_parameters[:2]:
                parameter.prior = tfp.distributions.Normal(np.float64(3.0), np.float64(0.1))
                parameter.prior_on = "unconstrained"
    num_steps, seed = 6, 5
    history = fit(
        fitted,
        DATA,
        num_steps=num_steps,
        batch_size=batch_size,
        schedule="paper",
        kl_annealing_steps=3,
        seed=seed,
        progress=False,
    )
    adam = tf_keras.optimizers.legacy.Adam(0.01, epsilon=1e-8)
    by_hand.num_data = len(DATA[0])
    for_rows, for_steps = split(seed, 2)
    elbos = []
    for step in range(num_steps):
        adam.learning_rate = 0.01 if step < num_steps // 2 else 0.001
        by_hand.kl_weight.assign(min(1.0, (step + 1) / 3))
        batch = DATA
        if batch_size is not None:
            rows = minibatch_rows(tf.constant(step), batch_size, len(DATA[0]), for_rows)
            batch = tuple(array[rows] for array in DATA)
        with tf.GradientTape() as tape:
            elbo = by_hand.elbo(batch, seed=fold_in(for_steps, step)) / len(DATA[0])
            loss = -elbo - by_hand.log_prior_density() / len(DATA[0])
        gradients = tape.gradient(loss, by_hand.trainable_variables)
        by_hand.kl_weight.assign(1.0)
        elbos.append(float(by_hand.elbo(batch, seed=fold_in(for_steps, step))) / len(DATA[0]))
        adam.apply_gradients(zip(gradients, by_hand.trainable_variables, strict=True))
    np.testing.assert_allclose(history.elbo, elbos, rtol=1e-6)
    for ours, theirs in zip(fitted.trainable_variables, by_hand.trainable_variables, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)


def test_one_seed_gives_one_run_and_another_another() -> None:
    runs = []
    for seed in (0, 0, 1):
        model = toy_model("DWP", 2)
        history = fit(model, DATA, num_steps=8, batch_size=7, seed=seed, progress=False)
        runs.append(numbers(model, history))
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_number_of_steps_need_not_be_a_multiple_of_the_steps_a_call() -> None:
    seen: list[int] = []
    history = fit(toy_model(), DATA, num_steps=120, callbacks=[seen.append], progress=False)
    assert seen == [50, 100, 120]
    assert history.num_steps == 120


@pytest.mark.parametrize("interrupted", [False, True])
def test_kl_weight_is_afterwards_what_it_was(interrupted: bool) -> None:
    """And annealing multiplies it."""
    model, weight = toy_model(), 0.3
    model.kl_weight.assign(weight)
    seen: list[float] = []

    def callback(step: int) -> None:
        seen.append(float(model.kl_weight))
        if interrupted:
            raise KeyboardInterrupt

    settings = {"num_steps": 150, "kl_annealing_steps": 100, "progress": False}
    with pytest.raises(KeyboardInterrupt) if interrupted else contextlib.nullcontext():
        fit(model, DATA, callbacks=[callback], **settings)
    assert float(model.kl_weight) == weight
    np.testing.assert_allclose(seen, [0.5 * weight] + ([] if interrupted else [weight] * 2))


def test_the_papers_annealing_takes_a_twentieth_of_the_steps() -> None:
    """A run ends on the true bound, whatever its length: 1 000 of the papers' 20 000 steps."""
    assert PAPER.annealing * 20_000 == 1000
    given, default = toy_model(), toy_model()
    settings = {"num_steps": 100, "schedule": "paper", "progress": False}
    histories = [fit(given, DATA, kl_annealing_steps=5, **settings), fit(default, DATA, **settings)]
    assert histories[0].elbo == histories[1].elbo
    assert float(default.kl_weight) == 1.0


def test_kl_weight_is_annealed() -> None:
    model = toy_model()
    weights: list[float] = []
    fit(
        model,
        DATA,
        num_steps=100,
        kl_annealing_steps=80,
        callbacks=[lambda step: weights.append(float(model.kl_weight))],
        progress=False,
    )
    assert weights == [50 / 80, 1.0]


@pytest.mark.parametrize("with_checkpoints", [False, True])
def test_validation_is_recorded(with_checkpoints: bool, tmp_path) -> None:  # type: ignore[no-untyped-def]
    model = toy_model()
    X, Y = toy_data(9)
    history = fit(
        model,
        DATA,
        num_steps=100,
        validation_data=(X, Y),
        validation_steps=50,
        checkpoint_dir=tmp_path if with_checkpoints else None,
        progress=False,
    )
    assert [step for step, _ in history.validation] == [50, 100]
    expected = float(np.mean(model.predict_log_density((X, Y))))
    assert history.validation[-1][1] == pytest.approx(expected, abs=1e-12)


def test_validation_is_recorded_at_the_end_of_a_short_run() -> None:
    history = fit(toy_model(), DATA, num_steps=5, validation_data=toy_data(9), progress=False)
    assert [step for step, _ in history.validation] == [5]


def test_callbacks_see_the_model_as_it_is_trained() -> None:
    model = toy_model()
    seen: list[np.ndarray] = []
    fit(
        model,
        DATA,
        num_steps=100,
        callbacks=[lambda step: seen.append(model.output_layer.v.numpy())],
        progress=False,
    )
    assert not np.array_equal(seen[0], seen[1])
    np.testing.assert_array_equal(seen[1], model.output_layer.v)


def test_callbacks_of_two_arguments_see_the_bound() -> None:
    seen: list[tuple[int, int, float]] = []

    class Recorder:
        def __call__(self, step: int, history: History) -> None:
            seen.append((step, history.num_steps, history.elbo[-1]))

    def optional(step: int, history: History | None = None) -> None:
        assert history is not None
        seen.append((step, history.num_steps, history.elbo[-1]))

    steps: list[int] = []
    closure = lambda step, other=steps: other.append(step)  # noqa: E731
    called = (callback for callback in (Recorder(), optional, closure, steps.append))
    history = fit(toy_model(), DATA, num_steps=70, callbacks=called, progress=False)
    first, last = (50, 50, history.elbo[49]), (70, 70, history.elbo[-1])
    assert seen == [first, first, last, last]
    assert steps == [50, 50, 70, 70]


def test_gpflows_monitor_is_a_callback() -> None:
    model = toy_model()
    bounds: list[float] = []
    task = ExecuteCallback(lambda: bounds.append(float(model.elbo(DATA))))
    monitor = Monitor(MonitorTaskGroup(task, period=100))
    settings = {"num_steps": 200, "kl_annealing_steps": 0, "progress": False}
    history = fit(model, DATA, callbacks=[monitor], **settings)
    # The monitor sees the model after 100 and 200 steps, the history has the bound before each.
    assert bounds[0] / len(DATA[0]) == pytest.approx(history.elbo[100], abs=1e-6)
    assert len(bounds) == 2


def test_parameters_that_are_not_trainable_stay() -> None:
    model = toy_model("DWP", 2)
    gpflow.set_trainable(model.inducing_variable, False)
    gpflow.set_trainable(model.hidden_layers[0].A, False)
    frozen = [model.inducing_variable.Z, model.hidden_layers[0].A]
    before = [parameter.numpy() for parameter in frozen]
    moving = model.hidden_layers[0].V.numpy()
    fit(model, DATA, num_steps=5, progress=False)
    for parameter, value in zip(frozen, before, strict=True):
        np.testing.assert_array_equal(parameter, value)
    assert np.min(np.abs(model.hidden_layers[0].V - moving)) > 0


def test_every_trainable_parameter_moves() -> None:
    for model in (toy_model("DWP", 2), toy_model("DGP", 2)):
        before = [variable.numpy() for variable in model.trainable_variables]
        fit(model, DATA, num_steps=5, progress=False)
        for variable, value in zip(model.trainable_variables, before, strict=True):
            assert not np.array_equal(variable, value), variable.name


def test_jitter_and_num_data_are_left() -> None:
    model = toy_model(jitter=1e-5, num_data=77)
    fit(model, DATA, num_steps=3, batch_size=5, progress=False)
    assert float(model.jitter) == 1e-5
    assert model.num_data == 77


def test_batch_larger_than_the_data_is_the_data() -> None:
    first, second = toy_model(), toy_model()
    a = fit(first, DATA, num_steps=3, progress=False)
    b = fit(second, DATA, num_steps=3, batch_size=1000, progress=False)
    assert numbers(first, a) == numbers(second, b)


LABELS = np.digitize(DATA[1], [-0.5, 0.5])
CLASSIFICATION = {
    "Bernoulli": (lambda: gpflow.likelihoods.Bernoulli(), (DATA[1] > 0).astype(float), 1),
    "integer labels": (lambda: gpflow.likelihoods.Bernoulli(), (DATA[1] > 0).astype(int), 1),
    "MultiClass": (lambda: gpflow.likelihoods.MultiClass(3), LABELS, 3),
    "Softmax": (lambda: gpflow.likelihoods.Softmax(3), LABELS, 3),
    "Poisson": (lambda: gpflow.likelihoods.Poisson(), LABELS, 1),
}


@pytest.mark.parametrize("name", CLASSIFICATION)
def test_other_likelihoods(name: str) -> None:
    make, targets, num_latent_gps = CLASSIFICATION[name]
    model = toy_model(likelihood=make(), num_latent_gps=num_latent_gps)
    before = float(model.elbo((DATA[0], targets), seed=0))
    history = fit(
        model,
        (DATA[0], targets),
        num_steps=60,
        learning_rate=0.03,
        kl_annealing_steps=0,
        progress=False,
    )
    assert np.all(np.isfinite(history.elbo))
    assert float(model.elbo((DATA[0], targets), seed=0)) > before


def test_run_with_a_random_likelihood_repeats() -> None:
    """Softmax's variational expectations are drawn: the seed governs them as well."""
    runs = []
    for global_seed in range(2):
        tf.random.set_seed(global_seed)
        model = toy_model(likelihood=gpflow.likelihoods.Softmax(3), num_latent_gps=3)
        with_labels = (DATA[0], LABELS)
        runs.append(numbers(model, fit(model, with_labels, num_steps=3, progress=False)))
    assert runs[0] == runs[1]


def test_progress_shows_the_bound_and_the_time_left(capsys: pytest.CaptureFixture) -> None:
    fit(toy_model(), DATA, num_steps=60)
    shown = capsys.readouterr().err
    assert "60/60" in shown
    assert "ELBO/N" in shown
    fit(toy_model(), DATA, num_steps=2, progress=False)
    assert "step" not in capsys.readouterr().err


def test_progress_calls_no_bound_what_is_none(capsys: pytest.CaptureFixture) -> None:
    Z = np.linspace(-2.0, 2.0, 4)[:, None]
    model = GWI(gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian(), Z)
    fit(model, DATA, num_steps=2)
    shown = capsys.readouterr().err
    assert "objective/N" in shown
    assert "ELBO" not in shown


def test_history_times_its_steps() -> None:
    history = fit(toy_model(), DATA, num_steps=120, progress=False)
    assert history.seconds > history.step_seconds > 0
    assert history.timed_steps == 70
    assert history.seconds_per_step == history.step_seconds / 70
    short = fit(toy_model(), DATA, num_steps=3, progress=False)
    assert math.isnan(short.seconds_per_step)
    assert short.num_recoveries == 0


X, Y = DATA
BAD_ROW = np.where(np.arange(20)[:, None] == 4, np.nan, Y)


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        (DATA, {"num_steps": 0}, "num_steps: got 0, needs an integer of at least 1"),
        (DATA, {"num_steps": -1}, "num_steps: got -1"),
        (DATA, {"num_steps": 1.5}, "num_steps: got 1.5"),
        (DATA, {"num_steps": True}, "num_steps: got True"),
        (DATA, {"num_steps": "10"}, "num_steps: got '10'"),
        (DATA, {"batch_size": 0}, "batch_size: got 0"),
        (DATA, {"batch_size": 2.0}, "batch_size: got 2.0"),
        (DATA, {"batch_size": "7"}, "batch_size: got '7'"),
        (DATA, {"batch_size": True}, "batch_size: got True"),
        (DATA, {"learning_rate": np.nan}, "learning_rate: got .*nan.*, needs positive rates"),
        (DATA, {"learning_rate": np.inf}, "learning_rate: got .*inf.*, needs positive rates"),
        (DATA, {"learning_rate": "fast"}, "learning_rate: got 'fast', needs a rate, pairs"),
        (DATA, {"learning_rate": True}, "learning_rate: got True, needs a rate, pairs"),
        (DATA, {"learning_rate": ExponentialDecay("0.1")}, "learning_rate: got ExponentialDecay"),
        (DATA, {"learning_rate": ExponentialDecay(0.1, every=1.5)}, "learning_rate: got Exp"),
        (DATA, {"learning_rate": -1.0}, "learning_rate: got .*-1.0.*, needs positive rates"),
        (DATA, {"learning_rate": [(0.5, 1.0)]}, "learning_rate: got .* fractions rising from 0"),
        (DATA, {"kl_annealing_steps": -1}, "kl_annealing_steps: got -1"),
        (DATA, {"kl_annealing_steps": 2.5}, "kl_annealing_steps: got 2.5, needs an integer"),
        (DATA, {"kl_annealing_steps": True}, "kl_annealing_steps: got True, needs an integer"),
        (DATA, {"kl_annealing_steps": "5"}, "kl_annealing_steps: got '5', needs an integer"),
        (
            DATA,
            {"kl_annealing_steps": 1000},
            "kl_annealing_steps: got 1000 of 3 steps, needs fewer than num_steps",
        ),
        (DATA, {"kl_annealing_steps": 3}, "kl_annealing_steps: got 3 of 3 steps"),
        (DATA, {"seed": "a"}, "seed: got 'a', needs an integer"),
        (DATA, {"seed": 1.5}, "seed: got 1.5, needs an integer"),
        (DATA, {"seed": None}, "seed: got None, needs an integer"),
        (
            DATA,
            {"seed": np.array([1.0, 2.0])},
            "seed: got an array of shape \\(2,\\), needs an integer",
        ),
        (DATA, {"checkpoint_dir": 3}, "checkpoint_dir: got 3, needs a path or None"),
        (DATA, {"checkpoint_dir": ""}, "checkpoint_dir: got an empty path"),
        (DATA, {"checkpoint_dir": __file__}, "checkpoint_dir: cannot write .*test_fit.py"),
        (DATA, {"checkpoint_seconds": -1.0}, "checkpoint_seconds: got -1.0, needs a number of sec"),
        (DATA, {"checkpoint_seconds": np.nan}, "checkpoint_seconds: got nan"),
        (DATA, {"checkpoint_seconds": "1"}, "checkpoint_seconds: got '1'"),
        (
            DATA,
            {"validation_data": X},
            r"validation_data: got ndarray of shape \(20, 1\), needs a pair",
        ),
        (
            DATA,
            {"validation_data": (X, Y, Y)},
            r"validation_data: got tuple, needs a pair \(X, Y\)",
        ),
        (DATA, {"validation_data": (X, "a")}, "validation_data: Y is of type <U1, needs numbers"),
        (DATA, {"validation_data": (3.0, 4.0)}, r"validation_data: got X \(\) and Y \(\)"),
        (DATA, {"validation_steps": 2.5}, "validation_steps: got 2.5"),
        (DATA, {"patience": "a", "validation_data": DATA}, "patience: got 'a'"),
        (DATA, {"callbacks": print}, "callbacks: got .*print.*, needs a list of functions"),
        (DATA, {"callbacks": [3]}, "callbacks: got 3 among them, needs functions"),
        (DATA, {"callbacks": "ab"}, "callbacks: got 'ab', needs a list of functions"),
        (
            DATA,
            {"callbacks": [lambda: None]},
            r"callbacks: got a function of \(\), needs \(step\) or",
        ),
        (DATA, {"callbacks": [lambda a, b, c: None]}, r"callbacks: got a function of \(a, b, c\)"),
        (DATA, {"progress": "no"}, "progress: got 'no', needs True or False"),
        (DATA, {"natural_gradient": "a"}, "natural_gradient: got 'a', needs a rate, pairs"),
        (DATA, {"natural_gradient": True}, "natural_gradient: got True, needs a rate, pairs"),
        (X, {}, r"data: got ndarray of shape \(20, 1\), needs a pair \(X, Y\)"),
        ((X, Y, Y), {}, r"data: got tuple, needs a pair \(X, Y\)"),
        ({"X": X, "Y": Y}, {}, r"data: got dict, needs a pair \(X, Y\)"),
        ((X, "a"), {}, "data: Y is of type <U1, needs numbers"),
        ((X, [[1.0], [2.0, 3.0]]), {}, "data: Y is no array of numbers"),
        (DATA, {"natural_gradient": -0.1}, "natural_gradient: got .*-0.1.*, needs positive rates"),
        (DATA, {"validation_data": toy_data(3), "validation_steps": 0}, "validation_steps: got 0"),
        (DATA, {"validation_data": (X, BAD_ROW)}, r"Y\[4, 0\] is nan"),
        (
            DATA,
            {"validation_data": (X[:, [0, 0]], Y)},
            r"validation_data: got X .*2\), needs 1 columns",
        ),
        ((X, BAD_ROW), {}, r"data: Y\[4, 0\] is nan, needs finite numbers"),
        ((X, Y[:5]), {}, r"data: got X \(20, 1\) and Y \(5, 1\)"),
        ((X[:, 0], Y), {}, r"data: got X \(20,\)"),
        ((X[:1], Y[:1]), {}, "data: got 1 rows, needs at least 2"),
        ((X[:, [0, 0]], Y), {}, r"data: got X .*2\), needs 1 columns as the inducing points have"),
    ],
)
def test_bad_arguments(data: object, settings: dict, message: str) -> None:
    model = toy_model()
    before = model.output_layer.v.numpy()
    with pytest.raises(ValueError, match=message) as raised:
        fit(model, data, **{"num_steps": 3, "progress": False, **settings})
    assert "\n" not in str(raised.value)
    np.testing.assert_array_equal(model.output_layer.v, before)


@pytest.mark.parametrize("model", ["DWP", None, gpflow.kernels.SquaredExponential()])
def test_what_is_no_model(model: object) -> None:
    with pytest.raises(
        ValueError, match=r"model: got .*, needs a model of gpflow_dkp\.models"
    ) as raised:
        fit(model, DATA, num_steps=3, progress=False)  # type: ignore[arg-type]
    assert "\n" not in str(raised.value)


def test_rows_and_layers_have_no_random_numbers_in_common() -> None:
    """The shuffle of epoch e had the seed of step e's layers, word for word."""
    trainer = Trainer(toy_model(), DATA, num_steps=10, batch_size=7)
    of_rows = [trainer.data.minibatch(tf.constant(step)).rows.numpy() for step in range(6)]
    for seed in (as_seed(0), *split(0, 2)):
        layers_are_of_it = [
            np.array_equal(fold_in(seed, step), trainer.seed_of(step)) for step in range(6)
        ]
        rows_are_of_it = [
            np.array_equal(minibatch_rows(tf.constant(step), 7, 20, seed), of_rows[step])
            for step in range(6)
        ]
        assert all(layers_are_of_it) or not any(layers_are_of_it)
        assert all(rows_are_of_it) or not any(rows_are_of_it)
        assert not (any(layers_are_of_it) and any(rows_are_of_it))


def test_nothing_to_train() -> None:
    model = toy_model()
    gpflow.set_trainable(model, False)
    with pytest.raises(ValueError, match="no trainable variables"):
        fit(model, DATA, num_steps=3, progress=False)
