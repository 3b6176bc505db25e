"""`fit` with the optimisers of Keras."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from fit_cases import numbers, toy_data, toy_model

from gpflow_dkp.training import CheckpointError, fit

DATA = toy_data()
KERAS = tf.keras.optimizers


class StoppedError(Exception):
    """Stands for a kill."""


def stop(step: int) -> None:
    if step == 100:
        raise StoppedError


OPTIMIZERS = {
    "Keras 3": lambda: KERAS.Adam(0.01),
    "momentum": lambda: KERAS.SGD(1e-3, momentum=0.9, clipnorm=10.0),
    "schedule": lambda: KERAS.RMSprop(KERAS.schedules.ExponentialDecay(0.01, 40, 0.5)),
    "tf_keras": lambda: tf_keras.optimizers.Adam(0.01),
    "legacy": lambda: tf_keras.optimizers.legacy.Adam(
        tf_keras.optimizers.schedules.PiecewiseConstantDecay([60], [0.01, 0.001])
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_raises_the_bound_and_goes_on_from_a_checkpoint(name: str, tmp_path: Path) -> None:
    settings = {"num_steps": 150, "batch_size": 7, "kl_annealing_steps": 0, "progress": False}

    def train(**more: Any) -> list:
        model = toy_model()
        before = model.elbo(DATA)
        record = numbers(model, fit(model, DATA, optimizer=OPTIMIZERS[name](), **settings, **more))
        assert model.elbo(DATA) > before + 1.0
        return record

    checkpoints = {"checkpoint_dir": tmp_path, "checkpoint_seconds": 0.0}
    with pytest.raises(StoppedError):
        train(callbacks=[stop], **checkpoints)
    assert train(**checkpoints) == train()


def test_keras_adam_is_ours() -> None:
    """With the same epsilon, at one rate throughout."""
    ours, theirs = toy_model(), toy_model()
    settings: dict[str, Any] = {"num_steps": 10, "schedule": "paper", "progress": False}
    fit(ours, DATA, learning_rate=0.01, **settings)
    fit(theirs, DATA, optimizer=KERAS.Adam(0.01, epsilon=1e-8), **settings)
    for a, b in zip(ours.trainable_variables, theirs.trainable_variables, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_a_failed_step_leaves_no_trace() -> None:
    model = toy_model()
    optimizer = KERAS.Adam(0.01)
    v = model.output_layer.v.unconstrained_variable
    v.assign(tf.fill(v.shape, tf.constant(np.nan, tf.float64)))
    with pytest.raises(ValueError, match="not finite"):
        fit(model, DATA, num_steps=2, optimizer=optimizer, progress=False)
    assert int(optimizer.iterations) == 0


def test_natural_gradients_beside_keras() -> None:
    model = toy_model()
    optimizer = KERAS.Adam(0.01)
    fit(model, DATA, num_steps=3, optimizer=optimizer, natural_gradient=0.1, progress=False)
    # Iterations, learning rate, and two moments of all but v and precision_tril.
    assert len(optimizer.variables) == 2 + 2 * (len(model.trainable_variables) - 2)


def test_a_checkpoint_of_another_optimizer(tmp_path: Path) -> None:
    settings = {"num_steps": 2, "checkpoint_dir": tmp_path, "progress": False}
    fit(toy_model(), DATA, optimizer=KERAS.Adam(0.01), **settings)
    fit(toy_model(), DATA, optimizer=KERAS.Adam(0.01), **settings)
    for other in (KERAS.Adam(0.02), KERAS.SGD(0.01), None):
        with pytest.raises(CheckpointError, match=r"of another run: its .* is"):
            fit(toy_model(), DATA, optimizer=other, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "adam"}, "optimizer: got 'adam', needs a Keras optimizer, or None for Adam"),
        ({"optimizer": KERAS.Adam}, "optimizer: got .*, needs a Keras optimizer"),
        (
            {"optimizer": KERAS.Adam(), "learning_rate": 0.1},
            "learning_rate: got 0.1 together with an optimizer",
        ),
        ({"optimizer": KERAS.Adam(use_ema=True)}, "optimizer: got use_ema=True"),
    ],
)
def test_bad_arguments(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        fit(toy_model(), DATA, num_steps=3, progress=False, **settings)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("make", [KERAS.Adam, tf_keras.optimizers.Adam])
def test_an_optimizer_of_another_model_is_refused(make: Any) -> None:
    optimizer, model = make(0.01), toy_model()
    settings = {"num_steps": 2, "progress": False, "optimizer": optimizer}
    fit(model, DATA, **settings)
    fit(model, DATA, **settings)  # goes on
    with pytest.raises(ValueError, match="was built for the variables of another model"):
        fit(toy_model(), DATA, **settings)
