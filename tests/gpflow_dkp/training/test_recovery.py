"""Failed factorisations and losses that are not finite."""

import logging
from collections.abc import Callable, Iterator

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from fit_cases import toy_data, toy_model
from gpflow.kernels import SquaredExponential

from gpflow_dkp.jitter import jitters_of
from gpflow_dkp.models import DWP, DeepKernelProcess
from gpflow_dkp.random import fold_in, split
from gpflow_dkp.training import History, TrainingFailed, fit
from gpflow_dkp.training.plan import Stretch
from gpflow_dkp.training.trainer import Trainer

DATA = toy_data()


class Deficient(SquaredExponential):
    """A squared exponential less 5e-6 on the diagonal: indefinite where two points coincide."""

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        K = super().K(X, X2)
        return K if X2 is not None else K - 5e-6 * tf.eye(tf.shape(X)[0], dtype=K.dtype)

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return super().K_diag(X) - 5e-6


def indefinite_model(jitter: float = 1e-6) -> DeepKernelProcess:
    """Two inducing points in one place: no Cholesky with a jitter of 1e-6, one with 1e-5."""
    Z = np.array([[-1.0], [-1.0], [0.5], [1.5]])
    kernels = [Deficient(), SquaredExponential()]
    likelihood = gpflow.likelihoods.Gaussian(0.5)
    model = DWP(kernels, likelihood, Z, widths=[2], num_samples=3, jitter=jitter)
    gpflow.set_trainable(model.inducing_variable, False)
    return model


Steps = Callable[[float, int], History]


@pytest.fixture(scope="module")
def of_indefinite() -> Trainer:
    """Compiled steps of the indefinite model."""
    return Trainer(indefinite_model(), DATA, num_steps=3)


@pytest.fixture
def steps(of_indefinite: Trainer) -> Iterator[Steps]:
    """Steps of the indefinite model with a jitter, which is then put back to where it was."""
    model = of_indefinite.model
    before = [variable.numpy() for variable in model.variables]

    def run(jitter: float, number: int) -> History:
        model.jitter.assign(jitter)
        history = History()
        assert of_indefinite.advance(0, Stretch(number), history) == number
        return history

    yield run
    for variable, value in zip(model.variables, before, strict=True):
        variable.assign(value)


def test_failed_step_is_repeated_with_more_jitter(caplog: pytest.LogCaptureFixture) -> None:
    model = indefinite_model()
    with caplog.at_level(logging.WARNING, logger="gpflow_dkp"):
        history = fit(model, DATA, num_steps=3, progress=False)
    assert history.num_steps == 3
    assert history.recoveries == [0, 1, 2]
    assert history.num_recoveries == 3
    records = [record for record in caplog.records if record.name.startswith("gpflow_dkp")]
    assert len(records) == 3
    for step, record in enumerate(records):
        assert record.getMessage() == (
            f"step {step}: loss or gradient not finite; repeated with jitter 1.0e-05"
        )
    assert np.all(np.isfinite(history.elbo))
    assert all(np.all(np.isfinite(variable)) for variable in model.variables)
    assert float(model.jitter) == 1e-6


def test_jitter_rises_further_where_ten_times_is_not_enough(
    caplog: pytest.LogCaptureFixture, steps: Steps
) -> None:
    with caplog.at_level(logging.WARNING, logger="gpflow_dkp"):
        history = steps(1e-8, 1)
    assert history.recoveries == [0]
    assert "repeated with jitter 1.0e-05" in caplog.text


def test_no_jitter_that_is_tried_is_enough(steps: Steps, of_indefinite: Trainer) -> None:
    with pytest.raises(TrainingFailed, match=r"jitter up to 1\.0e-06: hidden layer 1 of 1"):
        steps(1e-9, 1)
    assert float(of_indefinite.model.jitter) == 1e-9


def test_recovered_step_is_the_step_with_that_jitter() -> None:
    """The same rows, the same random numbers, ten times the jitter: nothing else differs."""
    failing, with_more = indefinite_model(), indefinite_model(1e-5)
    # The failing model has no covariance to start at.
    with_more.hidden_layers[0].V.assign(failing.hidden_layers[0].V)
    history = fit(failing, DATA, num_steps=2, batch_size=7, progress=False)
    reference = fit(with_more, DATA, num_steps=2, batch_size=7, progress=False)
    assert (history.recoveries, reference.recoveries) == ([0, 1], [])
    np.testing.assert_allclose(history.elbo, reference.elbo, rtol=1e-12)
    for ours, theirs in zip(
        failing.trainable_variables, with_more.trainable_variables, strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_failed_step_leaves_no_trace_in_the_optimiser() -> None:
    """A failure in the middle of a call: the steps around it are applied once each."""
    model = toy_model("DWP", 1)
    broken = {"step": 20}
    original = model.elbo_terms

    def breaking(batch, *, seed, rows):  # type: ignore[no-untyped-def]
        expected, log_ratio = original(batch, seed=seed, rows=rows)
        # At the base jitter the bound is NaN in one step, known by its seed.
        this_step = tf.reduce_all(tf.equal(seed, broken["seed"]))
        fails = tf.logical_and(this_step, model.jitter < 5e-6)
        return tf.where(fails, tf.constant(np.nan, expected.dtype), expected), log_ratio

    broken["seed"] = fold_in(split(0, 2)[1], broken["step"])
    model.elbo_terms = breaking
    history = fit(model, DATA, num_steps=40, progress=False)
    assert history.recoveries == [20]
    assert history.num_steps == 40
    plain = toy_model("DWP", 1)
    reference = fit(plain, DATA, num_steps=40, progress=False)
    np.testing.assert_array_equal(history.elbo[:20], reference.elbo[:20])
    # Ten times the jitter in one step of forty: nothing but rounding's neighbourhood changes.
    np.testing.assert_allclose(history.elbo[20:], reference.elbo[20:], rtol=1e-4)


class Part(gpflow.Module):
    """A layer with a jitter of its own, or the model's."""

    def __init__(self, jitter: tf.Variable | float) -> None:
        super().__init__()
        self.jitter = jitter


def test_every_jitter_is_raised_and_given_back(caplog: pytest.LogCaptureFixture) -> None:
    """Also those that layers own; one that the model shares with a layer is raised once."""
    model = toy_model()
    own = [tf.Variable(value, trainable=False, dtype=tf.float64) for value in (1e-5, 0.0)]
    model.parts = [Part(own[0]), Part(own[1]), Part(model.jitter), Part(own[0]), Part(1e-6)]
    assert [id(jitter) for jitter in jitters_of(model)] == [id(j) for j in (model.jitter, *own)]
    original = model.elbo_terms
    seen: list[list[float]] = []

    def breaking(batch, *, seed, rows):  # type: ignore[no-untyped-def]
        expected, log_ratio = original(batch, seed=seed, rows=rows)

        def record(*jitters: np.ndarray) -> bool:
            seen.append([float(jitter) for jitter in jitters])
            return jitters[1] < 5e-3

        fails = tf.numpy_function(record, [model.jitter, *own], tf.bool)
        return tf.where(fails, tf.constant(np.nan, expected.dtype), expected), log_ratio

    model.elbo_terms = breaking
    with caplog.at_level(logging.WARNING, logger="gpflow_dkp"):
        history = fit(model, DATA, num_steps=1, progress=False)
    assert history.recoveries == [0]
    expected = [[f * j for j in (1e-6, 1e-5, 1e-6)] for f in (10.0, 100.0, 1000.0)]
    np.testing.assert_allclose(seen, [[1e-6, 1e-5, 0.0], *expected])
    assert [float(jitter) for jitter in (model.jitter, *own)] == [1e-6, 1e-5, 0.0]
    assert [part.jitter for part in model.parts][-1] == 1e-6


def test_failure_without_jitter_says_what_was_tried() -> None:
    """It said 0, for a run that tried a thousand times GPflow's."""
    model = toy_model("DWP", 2, jitter=0.0)
    model.kernels[1].lengthscales.unconstrained_variable.assign(np.nan)
    with pytest.raises(TrainingFailed, match=r"with jitter up to 1\.0e-03: "):
        fit(model, DATA, num_steps=1, progress=False)
    assert float(model.jitter) == 0.0


def test_recovery_with_no_jitter_at_all(steps: Steps) -> None:
    """Ten times no jitter is none: a model without jitter needs an amount to start from."""
    assert steps(0.0, 1).recoveries == [0]


@pytest.fixture(scope="module")
def deep() -> tuple[DeepKernelProcess, Trainer]:
    """A model of two hidden layers and its compiled steps, of which none changes the model."""
    model = toy_model("DWP", 3)
    return model, Trainer(model, DATA, num_steps=2)


def fill(parameter: gpflow.Parameter, value: float) -> None:
    """Also where the parameter's transform refuses it."""
    variable = parameter.unconstrained_variable
    variable.assign(tf.fill(variable.shape, tf.constant(value, tf.float64)))


def spread(model: DeepKernelProcess) -> None:
    model.inducing_variable.Z.assign(1e200 * np.array([[1.0], [2.0], [3.0], [4.0]]))


Break = Callable[[DeepKernelProcess], None]
NAMED: dict[str, tuple[Break, str]] = {
    "hidden layer of NaN": (
        lambda model: fill(model.hidden_layers[0].mu, np.nan),
        r"parameter layers\[0\]\.posterior\.mu of shape \(4, 2\)",
    ),
    "hidden layer of infinity": (
        lambda model: fill(model.hidden_layers[1].mu, np.inf),
        r"parameter layers\[1\]\.posterior\.mu of shape \(4, 2\)",
    ),
    "output layer": (
        lambda model: fill(model.output_layer.v, np.nan),
        r"parameter layers\[2\]\.v of shape \(4, 1\)",
    ),
    "kernel": (
        lambda model: fill(model.kernels[1].lengthscales, np.nan),
        r"parameter layers\[1\]\.kernel\.lengthscales of shape \(\)",
    ),
    "likelihood": (
        lambda model: fill(model.likelihood.variance, np.nan),
        r"parameter likelihood\.variance of shape \(\)",
    ),
    # Finite parameters, whose squared distances are not.
    "covariance": (spread, r"hidden layer 1 of 2 \(WishartLayer\) gets a covariance"),
    "layer that overflows": (
        lambda model: model.hidden_layers[1].V.assign(np.full((4, 4), 1e200)),
        r"hidden layer 2 of 2 \(WishartLayer\) gives values",
    ),
    "output layer that overflows": (
        lambda model: fill(model.output_layer.precision_tril, 800.0),
        "the output layer gives values",
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_failure_is_named(name: str, deep: tuple[DeepKernelProcess, Trainer]) -> None:
    (model, trainer), (break_it, pattern) = deep, NAMED[name]
    before = [variable.numpy() for variable in model.trainable_variables]
    try:
        break_it(model)
        with pytest.raises(TrainingFailed, match=pattern) as raised:
            trainer.advance(0, Stretch(2), History())
    finally:
        for variable, value in zip(model.trainable_variables, before, strict=True):
            variable.assign(value)
    message = str(raised.value)
    assert "\n" not in message
    assert message.startswith("step 0: the loss or its gradient is not finite with jitter up to")
    assert isinstance(raised.value, ValueError)


def test_failure_in_the_middle_names_the_step() -> None:
    built = toy_model("DGP", 2)
    v = built.output_layer.v.unconstrained_variable

    def break_it(step: int) -> None:
        if step == 50:
            v.assign(tf.fill(v.shape, tf.constant(np.inf, tf.float64)))

    with pytest.raises(TrainingFailed, match=r"^step 50: "):
        fit(built, DATA, num_steps=100, callbacks=[break_it], progress=False)
    assert float(built.jitter) == pytest.approx(1e-6)
