"""`fit`: what it lowers, records, repeats, leaves alone and refuses."""

import math

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras
from fit_cases import numbers, toy_data, toy_model
from gpflow.monitor import ExecuteCallback, Monitor, MonitorTaskGroup

from gpflow_dkp.random import as_seed, fold_in
from gpflow_dkp.training import fit
from gpflow_dkp.training.schedules import minibatch_rows

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


@pytest.mark.parametrize(
    ("depth", "batch_size", "priors"), [(1, None, False), (2, 7, False), (2, 7, True)]
)
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
        kl_annealing_steps=3,
        seed=seed,
        progress=False,
    )
    adam = tf_keras.optimizers.legacy.Adam(0.01, epsilon=1e-8)
    by_hand.num_data = len(DATA[0])
    elbos = []
    for step in range(num_steps):
        adam.learning_rate = 0.01 if step < num_steps // 2 else 0.001
        by_hand.kl_weight.assign(min(1.0, (step + 1) / 3))
        batch = DATA
        if batch_size is not None:
            rows = minibatch_rows(tf.constant(step), batch_size, len(DATA[0]), as_seed(seed))
            batch = tuple(array[rows] for array in DATA)
        with tf.GradientTape() as tape:
            elbo = by_hand.elbo(batch, seed=fold_in(seed, step)) / len(DATA[0])
            loss = -elbo - by_hand.log_prior_density() / len(DATA[0])
        elbos.append(float(elbo))
        gradients = tape.gradient(loss, by_hand.trainable_variables)
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


def test_kl_weight_is_one_at_the_end() -> None:
    model = toy_model()
    fit(model, DATA, num_steps=3, kl_annealing_steps=1000, progress=False)
    assert float(model.kl_weight) == 1.0


def test_kl_weight_is_one_after_an_interruption() -> None:
    def interrupt(step: int) -> None:
        raise KeyboardInterrupt

    model = toy_model()
    with pytest.raises(KeyboardInterrupt):
        fit(model, DATA, num_steps=100, callbacks=[interrupt], progress=False)
    assert float(model.kl_weight) == 1.0


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
        (DATA, {"num_steps": 1.5}, "num_steps: got 1.5"),
        (DATA, {"batch_size": 0}, "batch_size: got 0"),
        (DATA, {"batch_size": 2.0}, "batch_size: got 2.0"),
        (DATA, {"learning_rate": -1.0}, "learning_rate: got .*-1.0.*, needs positive rates"),
        (DATA, {"learning_rate": [(0.5, 1.0)]}, "learning_rate: got .* fractions rising from 0"),
        (DATA, {"kl_annealing_steps": -1}, "kl_annealing_steps: got -1"),
        (DATA, {"natural_gradient": -0.1}, "natural_gradient: got .*-0.1.*, needs positive rates"),
        (DATA, {"validation_data": toy_data(3), "validation_steps": 0}, "validation_steps: got 0"),
        (DATA, {"validation_data": (X, BAD_ROW)}, r"Y\[4, 0\] is nan"),
        (DATA, {"validation_data": (X[:, [0, 0]], Y)}, r"X \(20, 2\), needs 1 columns"),
        ((X, BAD_ROW), {}, r"data: Y\[4, 0\] is nan, needs finite numbers"),
        ((X, Y[:5]), {}, r"data: got X \(20, 1\) and Y \(5, 1\)"),
        ((X[:, 0], Y), {}, r"data: got X \(20,\)"),
        ((X[:1], Y[:1]), {}, "data: got 1 rows, needs at least 2"),
        ((X[:, [0, 0]], Y), {}, r"data: got X .*2\), needs 1 columns as the inducing points have"),
    ],
)
def test_bad_arguments(data: tuple, settings: dict, message: str) -> None:
    model = toy_model()
    before = model.output_layer.v.numpy()
    with pytest.raises(ValueError, match=message) as raised:
        fit(model, data, **{"num_steps": 3, "progress": False, **settings})
    assert "\n" not in str(raised.value)
    np.testing.assert_array_equal(model.output_layer.v, before)


def test_nothing_to_train() -> None:
    model = toy_model()
    gpflow.set_trainable(model, False)
    with pytest.raises(ValueError, match="no trainable variables"):
        fit(model, DATA, num_steps=3, progress=False)
