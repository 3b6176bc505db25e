"""`fit` with `patience`: it stops at the right step and ends with the parameters of the best validation."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from fit_cases import numbers, toy_data, toy_model

from gpflow_dkp.models import DeepKernelProcess
from gpflow_dkp.training import CheckpointError, History, fit
from gpflow_dkp.training.fit import Snapshot, check_validation, exhausted

DATA = toy_data()
X, Y = DATA
NOISIER = X, Y + np.where(np.arange(len(X)) % 2, 0.4, -0.4)[:, None]
"""What the model fits is found before its noise variance gets too small for these."""


class Stop(Exception):  # noqa: N818
    """Stands for a kill."""


def stop_at(last: int) -> Callable[[int], None]:
    def callback(step: int) -> None:
        if step >= last:
            raise Stop

    return callback


def scripted(values: list[float], **settings: Any) -> tuple[DeepKernelProcess, History, dict]:
    """A run whose validations give `values`, one every 50 steps; the parameters after each of them."""
    model = toy_model()
    remaining = list(values)
    seen: dict[int, list[np.ndarray]] = {}

    def keep(step: int) -> None:
        seen[step] = [variable.numpy() for variable in model.trainable_variables]

    model.held_out_log_density = lambda _: remaining.pop(0)  # type: ignore[method-assign]
    history = fit(
        model,
        DATA,
        **{
            "num_steps": 50 * len(values),
            "validation_data": DATA,
            "validation_steps": 50,
            "callbacks": [keep],
            "learning_rate": 0.03,
            "progress": False,
            **settings,
        },
    )
    return model, history, seen


def check_parameters(model: DeepKernelProcess, expected: list[np.ndarray]) -> None:
    for variable, value in zip(model.trainable_variables, expected, strict=True):
        np.testing.assert_array_equal(variable, value)


@pytest.mark.parametrize(
    ("values", "patience", "last", "best"),
    [
        ([0.0, 1.0, 0.5, 0.7, 2.0], 2, 200, 100),  # 2.0 comes too late
        ([1.0, 1.0, 1.0, 1.0], 2, 150, 50),  # as good as before is no better
        ([0.0, 2.0, 1.0, 3.0, 2.5, 2.9], 2, 300, 200),  # the counting starts anew
        ([0.0, 2.0, 1.0], 5, 150, 100),  # all steps taken, the best was not the last
    ],
)
def test_stops_when_patience_is_exhausted(
    values: list[float], patience: int, last: int, best: int
) -> None:
    model, history, seen = scripted(values, patience=patience)
    assert history.num_steps == last
    assert history.validation == list(zip(range(50, last + 1, 50), values, strict=False))
    assert history.best_validation == (best, values[best // 50 - 1])
    check_parameters(model, seen[best])
    assert max(seen) == last
    assert float(model.kl_weight) == 1.0


def test_without_patience_the_last_parameters_stay() -> None:
    model, history, seen = scripted([2.0, 1.0, 0.0, 0.0])
    assert history.num_steps == 200
    check_parameters(model, seen[200])
    assert not np.array_equal(seen[200][0], seen[50][0])


def test_validations_are_counted_not_steps() -> None:
    """At the steps 100, 150 and 250, the ends of the 50 steps with 75, 150 and 225."""
    model, history, seen = scripted(
        [1.0, 0.9, 0.8, 5.0], patience=2, num_steps=1000, validation_steps=75
    )
    assert history.validation == [(100, 1.0), (150, 0.9), (250, 0.8)]
    assert history.num_steps == 250
    check_parameters(model, seen[100])


def test_short_last_block_is_validated_too() -> None:
    model, history, seen = scripted([0.0, 1.0], patience=3, num_steps=70, validation_steps=1000)
    assert history.validation == [(70, 0.0)]
    check_parameters(model, seen[70])


def test_parameters_of_natural_gradients_are_kept_as_well() -> None:
    settings = {"natural_gradient": 0.1, "patience": 1}
    model, history, seen = scripted([1.0, 0.0, 0.0], **settings)
    assert history.num_steps == 100
    check_parameters(model, seen[50])
    for early, late in zip(seen[50], seen[100], strict=True):
        assert not np.array_equal(early, late)


def real(
    directory: Path | None, *, stop: int | None = None, **settings: Any
) -> tuple[DeepKernelProcess, History]:
    """A run whose best validation is at 150 of the 300 steps it takes."""
    model = toy_model(likelihood=gpflow.likelihoods.Gaussian(0.5))
    history = fit(
        model,
        DATA,
        checkpoint_dir=directory,
        checkpoint_seconds=0.0,
        callbacks=[] if stop is None else [stop_at(stop)],
        **{
            "num_steps": 1000,
            "batch_size": 7,
            "learning_rate": [(0.0, 0.02)],
            "kl_annealing_steps": 0,
            "seed": 3,
            "validation_data": NOISIER,
            "validation_steps": 50,
            "patience": 3,
            "progress": False,
            **settings,
        },
    )
    return model, history


@pytest.fixture(scope="module")
def unbroken() -> tuple[DeepKernelProcess, History]:
    return real(None)


def test_ends_with_the_best_validation(unbroken: tuple[DeepKernelProcess, History]) -> None:
    """The record, the parameters and the density that they give agree."""
    model, history = unbroken
    best, value = history.best_validation
    densities = [density for _, density in history.validation]
    assert 50 < best < history.num_steps < 1000
    assert history.num_steps == best + 3 * 50
    assert value == max(densities)
    assert value > densities[0] + 0.01
    assert value > densities[-1] + 0.01
    assert model.held_out_log_density(NOISIER) == pytest.approx(value, abs=1e-12)


def test_best_parameters_are_those_of_a_run_that_ends_there(
    unbroken: tuple[DeepKernelProcess, History],
) -> None:
    model, history = unbroken
    best, _ = history.best_validation
    shorter, _ = real(None, num_steps=best, patience=None)
    check_parameters(model, [variable.numpy() for variable in shorter.trainable_variables])


def test_resumed_run_is_the_unbroken_one(
    unbroken: tuple[DeepKernelProcess, History], tmp_path: Path
) -> None:
    """Killed before the best validation was saved, and after two worse ones."""
    best, _ = unbroken[1].best_validation
    for stop in (best, best + 150):
        with pytest.raises(Stop):
            real(tmp_path, stop=stop)
    model, history = real(tmp_path)
    assert numbers(model, history) == numbers(*unbroken)
    # Done: what is started again returns the best parameters without a step.
    again, again_history = real(tmp_path, stop=0)
    assert numbers(again, again_history) == numbers(*unbroken)
    assert again_history == history


def test_run_that_stopped_early_is_not_run_again(tmp_path: Path) -> None:
    """Its end is saved at once, as that of a run of all its steps is."""
    settings = {"num_steps": 200, "patience": 1, "checkpoint_seconds": 1e9}
    model, history, seen = scripted([1.0, 0.0], checkpoint_dir=tmp_path, **settings)
    again, again_history, again_seen = scripted([], checkpoint_dir=tmp_path, **settings)
    assert history.num_steps == 100
    assert again_history == history
    assert not again_seen
    check_parameters(model, seen[50])
    check_parameters(again, seen[50])


@pytest.mark.parametrize(("first", "second"), [(3, None), (None, 3)])
def test_checkpoint_of_another_patience(
    tmp_path: Path, first: int | None, second: int | None
) -> None:
    """It decides where the run ends."""
    model, arguments = toy_model(), {"num_steps": 1, "checkpoint_dir": tmp_path, "progress": False}
    fit(model, DATA, validation_data=DATA, patience=first, **arguments)
    pattern = f"is of another run: its patience is {first}, this one's {second}"
    with pytest.raises(CheckpointError, match=pattern) as raised:
        fit(model, DATA, validation_data=DATA, patience=second, **arguments)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"patience": 2}, r"patience: got 2, needs validation_data to judge by"),
        (
            {"patience": 0, "validation_data": DATA},
            r"patience: got 0, needs an integer of at least 1",
        ),
        ({"patience": 1.5, "validation_data": DATA}, r"patience: got 1.5, needs an integer"),
        ({"patience": True, "validation_data": DATA}, r"patience: got True, needs an integer"),
        (
            {"patience": 2, "validation_data": (X[:0], Y[:0])},
            r"validation_data: got no rows, needs at least 1",
        ),
        ({"validation_data": (X[:0], Y[:0])}, r"validation_data: got no rows, needs at least 1"),
    ],
)
def test_bad_arguments(settings: dict, message: str) -> None:
    model = toy_model()
    before = [variable.numpy() for variable in model.trainable_variables]
    with pytest.raises(ValueError, match=message) as raised:
        fit(model, DATA, num_steps=3, progress=False, **settings)
    assert "\n" not in str(raised.value)
    check_parameters(model, before)


def test_one_row_of_validation_data_is_enough() -> None:
    history = fit(
        toy_model(), DATA, num_steps=1, validation_data=(X[:1], Y[:1]), patience=1, progress=False
    )
    assert len(history.validation) == 1


def test_validation_data_become_arrays() -> None:
    checked = check_validation(toy_model(), (X.tolist(), Y.tolist()))
    for actual, expected in zip(checked, DATA, strict=True):
        np.testing.assert_array_equal(actual, expected)
    with pytest.raises(ValueError, match=r"needs 1 columns"):
        check_validation(toy_model(), (X[:, [0, 0]], Y))
    with pytest.raises(ValueError, match=r"data: got X \(20, 1\) and Y \(3, 1\)"):
        check_validation(toy_model(), (X, Y[:3]))


def test_best_validation_is_the_first_of_equals() -> None:
    history = History(validation=[(50, -1.0), (100, 2.0), (150, 2.0), (200, 1.0)])
    assert history.best_validation == (100, 2.0)
    with pytest.raises(ValueError, match=r"."):
        _ = History().best_validation


def test_a_density_that_is_no_number_is_never_the_best() -> None:
    history = History(validation=[(50, float("nan")), (100, 1.0), (150, 2.0)])
    assert history.best_validation == (150, 2.0)
    assert not exhausted(history, 1)


@pytest.mark.parametrize(
    ("densities", "patience", "expected"),
    [
        ([], 1, False),
        ([1.0], 1, False),
        ([1.0, 0.0], 1, True),
        ([1.0, 0.0], 2, False),
        ([1.0, 0.0], None, False),
        ([1.0, 0.0, 2.0], 1, False),
        ([1.0, 0.0, 0.5], 2, True),
        ([0.0, 1.0, 0.5, 0.7], 2, True),
        ([0.0, 1.0, 0.5, 0.7], 3, False),
        ([0.0, -np.inf, -1.0], 2, True),
        ([-np.inf, -np.inf], 1, True),
    ],
)
def test_exhausted(densities: list[float], patience: int | None, expected: bool) -> None:
    history = History(validation=[(50 * i + 50, value) for i, value in enumerate(densities)])
    assert exhausted(history, patience) is expected


def test_snapshot_keeps_values_of_every_type() -> None:
    variables = [tf.Variable([1.0, 2.0], dtype=tf.float64), tf.Variable(3.0, dtype=tf.float32)]
    snapshot = Snapshot(variables)
    variables[0].assign([5.0, 6.0])
    snapshot.restore()
    np.testing.assert_array_equal(variables[0], [1.0, 2.0])
    variables[1].assign(4.0)
    snapshot.take()
    variables[1].assign(7.0)
    snapshot.restore()
    assert float(variables[1]) == 4.0
    assert not snapshot.trainable_variables or snapshot.trainable_variables == tuple(variables)
