"""Predictions are pure functions of a point, of a posterior that stays what it was."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from prediction_cases import CASES, WITH_DRAWS, data_of, fresh_model, model_of, predictions

from gpflow_dkp.jitter import jitters_of
from gpflow_dkp.models import Posterior
from gpflow_dkp.random import split

S, SEED = 8, 3
cases = pytest.mark.parametrize("case", CASES)


def check_same(actual: dict, expected: dict, rows: list[int], at: list[int]) -> None:
    """Rows `rows` of one set of predictions are rows `at` of another."""
    assert actual.keys() == expected.keys()
    for name, value in actual.items():
        allowed = 1e-12 * (1.0 + np.abs(expected[name][at]))
        assert np.all(np.abs(value[rows] - expected[name][at]) <= allowed), name


@cache
def posterior_of(case: str) -> Posterior:
    return model_of(case).posterior(num_samples=S, seed=SEED)


def everything(case: str, X: np.ndarray, Y: np.ndarray, **how) -> dict:  # type: ignore[no-untyped-def]
    posterior = posterior_of(case)
    found = predictions(posterior, case, X, Y, **how)
    draws = posterior.predict_f_samples(X, S + 3, full_cov=False, seed=SEED, **how)
    return found | {"draws": np.transpose(draws, [1, 0, 2])}


@cache
def whole_of(case: str) -> dict:
    return everything(case, *data_of(case))


@cases
def test_a_points_prediction_does_not_depend_on_what_stands_beside_it(case: str) -> None:
    X, Y = data_of(case)
    whole = whole_of(case)
    check_same(everything(case, X[2:3], Y[2:3]), whole, [0], [2])
    order = [4, 2, 0, 5, 3, 1]
    check_same(everything(case, X[order], Y[order]), whole, list(range(6)), order)
    beside = np.concatenate([30.0 + X[:3], X[2:3], X[2:3]]), np.concatenate([Y[:3], Y[2:3], Y[2:3]])
    check_same(everything(case, *beside), whole, [3, 4], [2, 2])


@pytest.mark.parametrize("batch_size", [1, 4])
@cases
def test_a_points_prediction_does_not_depend_on_the_batch(case: str, batch_size: int) -> None:
    rows = list(range(6 if batch_size > 1 else 2))
    X, Y = (part[rows] for part in data_of(case))
    in_batches = everything(case, X, Y, batch_size=batch_size)
    check_same(in_batches, whole_of(case), rows, rows)


@pytest.mark.parametrize("case", WITH_DRAWS)
def test_another_seed_gives_other_predictions(case: str) -> None:
    """What is the same above is not the same for want of noise."""
    X, _ = data_of(case)
    first, second = (model_of(case).predict_f(X, num_samples=S, seed=seed)[0] for seed in (1, 2))
    assert np.min(np.abs(first - second)) > 1e-6


@cases
def test_a_posterior_predicts_what_its_model_does(case: str) -> None:
    (X, Y), model = data_of(case), model_of(case)
    posterior = model.posterior(num_samples=S, seed=SEED)
    rows = list(range(6))
    ours = predictions(posterior, case, X, Y)
    check_same(ours, predictions(model, case, X, Y, num_samples=S, seed=SEED), rows, rows)
    for actual, expected in zip(
        posterior.mixture(X), model.predict_mixture(X, num_samples=S, seed=SEED), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)
    for actual, expected in zip(
        posterior.mixture_of_f(X).moments(), posterior.predict_f(X), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)
    for_layers, for_draws = split(SEED, 2)
    posterior = model.posterior(num_samples=S, seed=for_layers)
    for method in ("predict_f_samples", "predict_y_samples"):
        for full_cov in (True, False):
            drawn = getattr(posterior, method)(X, full_cov=full_cov, seed=for_draws)
            expected = getattr(model, method)(X, S, full_cov=full_cov, seed=SEED)
            np.testing.assert_array_equal(drawn, expected)


@cases
def test_a_posterior_is_of_the_parameters_as_they_were(case: str) -> None:
    (X, Y), model = data_of(case), fresh_model(case)
    posterior = model.posterior(num_samples=S, seed=SEED)
    before = predictions(posterior, case, X, Y)
    joint = posterior.predict_f_samples(X, seed=1)
    for variable in model.trainable_variables:
        variable.assign_add(0.1 * tf.ones_like(variable))
    for jitter in jitters_of(model):
        jitter.assign(0.1)
    after = predictions(posterior, case, X, Y)
    for name, value in after.items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)
    np.testing.assert_array_equal(posterior.predict_f_samples(X, seed=1), joint)
    moved = predictions(model, case, X, Y, num_samples=S, seed=SEED)
    assert not np.any(np.isclose(moved["mean of y"], before["mean of y"], rtol=0, atol=1e-9))


@pytest.mark.parametrize("case", ["DGP", "GP-LV-GP"])
def test_a_posterior_of_a_model_with_compiled_functions(case: str) -> None:
    """As models have that are trained and saved."""
    model = fresh_model(case)
    with_gradient = tf.function(lambda: model.elbo(data_of(case), seed=0), autograph=False)
    with_gradient()
    model.compiled = tf.function(
        lambda X: model.predict_y(X, num_samples=S, seed=SEED)[0], autograph=False
    )
    X, _ = data_of(case)
    expected = model.compiled(tf.constant(X))
    actual = model.posterior(num_samples=S, seed=SEED).predict_y(X)[0]
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", WITH_DRAWS)
def test_numbers_do_not_depend_on_the_parts_of_the_samples(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On as many threads as a machine has; here three, of 3, 3 and 2 samples."""
    parts = 3
    (X, Y), model = data_of(case), model_of(case)
    if "LV" in case:
        X, Y = X[:4], Y[:4]

    def numbers() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            elbo = model.elbo((X, Y), num_samples=S, seed=SEED)
        gradient = tape.gradient(elbo, model.trainable_variables)
        posterior = model.posterior(num_samples=S, seed=SEED)
        return [
            elbo,
            *gradient,
            *posterior.predict_y(X),
            *posterior.predict_f(X, full_cov=True),
            posterior.predict_f_samples(X, seed=0),
            posterior.predict_f_samples(X, S + 3, full_cov=False, seed=0),
        ]

    whole = numbers()
    asked = []

    def part_sizes(number: int | None) -> list[int]:
        asked.append(number)
        if number is None or number < parts:
            return [-1]
        return [number // parts + (i < number % parts) for i in range(parts)]

    monkeypatch.setattr("gpflow_dkp.parallel.part_sizes", part_sizes)
    for actual, expected in zip(numbers(), whole, strict=True):
        scale = 1.0 + np.max(np.abs(expected))
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-9 * scale)
    assert S in asked


@cases
def test_conditioning_on_a_single_column_is_refused(case: str) -> None:
    """`condition_layers` is behind the checks of `predict_f`, and is the user's too."""
    model, (X, _) = model_of(case), data_of(case)
    with pytest.raises(ShapeMismatchError, match="X"):
        model.condition_layers(model.sample_layers(2, 0), tf.constant(X[:, 0]), 2, 0)
