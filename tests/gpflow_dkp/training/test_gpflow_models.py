"""`fit` of GPflow's own models."""

from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from fit_cases import toy_data, toy_model

from gpflow_dkp.random import split
from gpflow_dkp.training import TrainingFailed, fit
from gpflow_dkp.training.schedules import minibatch_rows

X, Y = toy_data(30)


def svgp(num_data: int | None = 30) -> gpflow.models.SVGP:
    kernel, likelihood = gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian(0.5)
    return gpflow.models.SVGP(kernel, likelihood, X[:5].copy(), num_data=num_data)


def gpr() -> gpflow.models.GPR:
    return gpflow.models.GPR((X, Y), gpflow.kernels.SquaredExponential(), noise_variance=0.5)


def sgpr() -> gpflow.models.SGPR:
    return gpflow.models.SGPR(
        (X, Y), gpflow.kernels.SquaredExponential(), X[:5].copy(), noise_variance=0.5
    )


@pytest.mark.parametrize("batch_size", [None, 7])
def test_steps_are_adams_on_the_training_loss(batch_size: int | None) -> None:
    ours, theirs = svgp(), svgp()
    settings = {"num_steps": 5, "learning_rate": 0.02, "progress": False, "seed": 3}
    history = fit(ours, (X, Y), batch_size=batch_size, schedule="paper", **settings)
    adam = tf_keras.optimizers.legacy.Adam(0.02, epsilon=1e-8)
    losses = []
    for step in range(5):
        batch = (X, Y)
        if batch_size:
            rows = minibatch_rows(tf.constant(step), batch_size, 30, split(3, 2)[0])
            batch = (X[rows], Y[rows])
        losses.append(float(theirs.training_loss(batch)))
        adam.minimize(lambda b=batch: theirs.training_loss(b) / 30, theirs.trainable_variables)
    np.testing.assert_allclose(history.elbo, -np.array(losses) / 30, rtol=1e-6)
    for a, b in zip(ours.trainable_variables, theirs.trainable_variables, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("make", [gpr, sgpr])
def test_models_with_their_data_inside(make, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    model = make()
    settings = {"num_steps": 100, "learning_rate": 0.03, "progress": False}
    history = fit(model, checkpoint_dir=tmp_path, validation_data=(X[:3], Y[:3]), **settings)
    assert history.elbo[-1] > history.elbo[0] + 0.1
    assert history.elbo[-1] == pytest.approx(-float(model.training_loss()) / 30, abs=0.01)
    expected = np.mean(model.predict_log_density((X[:3], Y[:3])))
    assert history.validation == [(100, pytest.approx(expected))]
    again = make()
    assert fit(again, (X, Y), checkpoint_dir=tmp_path, **settings).elbo == history.elbo
    np.testing.assert_array_equal(again.kernel.lengthscales, model.kernel.lengthscales)


def test_a_failure_is_not_repeated_with_more_jitter() -> None:
    model = gpr()
    model.kernel.variance.unconstrained_variable.assign(np.nan)
    with pytest.raises(TrainingFailed, match=r"not finite: parameter kernel\.variance") as raised:
        fit(model, num_steps=3, progress=False)
    assert "with jitter" not in str(raised.value)


@pytest.mark.parametrize(
    ("make", "data", "settings", "message"),
    [
        (
            svgp,
            (X, Y),
            {"kl_annealing_steps": 1},
            "kl_annealing_steps: got 1, but SVGP has no weight",
        ),
        (svgp, (X, Y), {"natural_gradient": 0.1}, "natural_gradient: SVGP has no SparseGP"),
        (svgp, None, {}, r"data: got NoneType, needs a pair \(X, Y\)"),
        (svgp, (X[:, [0, 0]], Y), {}, r"data: SVGP does not take X \(2, 2\) and Y \(2, 1\)"),
        (lambda: svgp(None), (X, Y), {"batch_size": 5}, "SVGP's num_data is None, needs 30"),
        (gpr, (X, Y + 1.0), {}, "data: GPR has its data inside, and these are others; give None"),
        (gpr, X, {}, r"data: got ndarray of shape \(30, 1\), needs a pair"),
        (gpr, None, {"batch_size": 5}, "batch_size: got 5, but GPR has its data inside"),
        (lambda: "svgp", (X, Y), {}, "model: got 'svgp', needs a model of gpflow_dkp.models"),
        (lambda: svgp().kernel, (X, Y), {}, "model: got SquaredExponential, needs a model"),
        (toy_model, None, {}, "data: got NoneType, needs a pair"),
    ],
)
def test_bad_arguments(make, data: object, settings: dict, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message) as raised:
        fit(make(), data, num_steps=3, progress=False, **settings)
    assert "\n" not in str(raised.value)
