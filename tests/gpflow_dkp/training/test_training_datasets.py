"""`fit` from a `tf.data.Dataset`."""

from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from fit_cases import numbers, toy_data, toy_model

from gpflow_dkp.models import DeepKernelProcess, LatentVariableDGP
from gpflow_dkp.training import History, fit
from gpflow_dkp.training.data import DatasetData
from gpflow_dkp.training.plan import Stretch
from gpflow_dkp.training.trainer import Trainer

X, Y = toy_data(30)


def dataset(batch_size: int = 7) -> tf.data.Dataset:
    """Four batches of seven rows and one of two."""
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(batch_size)


class StoppedError(Exception):
    """Stands for a kill."""


def train(
    data: Any, *, stop: int | None = None, **settings: Any
) -> tuple[DeepKernelProcess, History]:
    def callback(step: int) -> None:
        if step == stop:
            raise StoppedError

    model = toy_model(num_data=settings.pop("num_data", None))
    settings = {"num_steps": 120, "checkpoint_seconds": 0.0, "progress": False, **settings}
    return model, fit(model, data, callbacks=[callback], **settings)


def test_batches_come_in_order_and_again() -> None:
    data = DatasetData(dataset(), None)
    assert data.num_data == 30
    minibatch = tf.function(data.minibatch, autograph=False)
    for step in [0, 1, 1, 2, 3, 4, 4, 5, 6]:  # twice where a step is repeated
        batch = minibatch(tf.constant(step))
        rows = slice(7 * (step % 5), 7 * (step % 5) + 7)
        np.testing.assert_array_equal(batch.data[0], X[rows])
        np.testing.assert_array_equal(batch.data[1], Y[rows])
        assert int(batch.size) == len(X[rows])
    data.start_at(7)
    np.testing.assert_array_equal(data.minibatch(tf.constant(7)).data[0], X[14:21])


def test_one_batch_is_the_arrays() -> None:
    in_memory, from_dataset = train((X, Y)), train(dataset(30))
    np.testing.assert_allclose(in_memory[1].elbo, from_dataset[1].elbo, rtol=1e-10)


def test_each_batch_is_scaled_to_the_whole_set() -> None:
    model = toy_model()
    trainer = Trainer(model, dataset(), num_steps=20, kl_annealing_steps=0, learning_rate=1e-12)
    _, elbos, _ = trainer.steps(0, Stretch(5))
    model.num_data = 30
    for i, elbo in enumerate(elbos):
        batch = X[7 * i : 7 * i + 7], Y[7 * i : 7 * i + 7]
        expected = model.elbo(batch, seed=trainer.seed_of(i)) / 30
        assert elbo == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize(("num_data", "endless"), [(None, False), (30, True)])
def test_a_run_goes_on_from_its_checkpoint(
    tmp_path: Path, num_data: int | None, endless: bool
) -> None:
    def data() -> tf.data.Dataset:
        return dataset().repeat() if endless else dataset().shuffle(5, seed=3)

    unbroken = numbers(*train(data(), num_data=num_data))
    with pytest.raises(StoppedError):
        train(data(), num_data=num_data, stop=100, checkpoint_dir=tmp_path)
    assert numbers(*train(data(), num_data=num_data, checkpoint_dir=tmp_path)) == unbroken
    with pytest.raises(ValueError, match="of another run: its data"):
        train(dataset(6), num_data=num_data, checkpoint_dir=tmp_path)


def test_single_precision_and_generators() -> None:
    def batches() -> Any:
        yield X[:10].astype(np.float32), Y[:10].astype(np.float32)
        yield X[10:13].astype(np.float32), Y[10:13].astype(np.float32)

    signature = (tf.TensorSpec([None, 1], tf.float32), tf.TensorSpec([None, 1], tf.float32))
    data = tf.data.Dataset.from_generator(batches, output_signature=signature)
    _, history = train(data, num_data=30, num_steps=5)
    assert np.all(np.isfinite(history.elbo))
    kernel, likelihood = gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian(0.5)
    svgp = gpflow.models.SVGP(kernel, likelihood, X[:5].copy(), num_data=30)
    assert fit(svgp, data, num_steps=5, progress=False).num_steps == 5
    with pytest.raises(
        ValueError, match=r"Dataset of unknown size, needs the number of data points"
    ):
        train(data)


def test_a_failed_step_is_repeated_with_its_own_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is NaN in one step at the base jitter; no batch is lost or seen twice."""
    failing, plain = toy_model(), toy_model()
    original = failing.elbo_terms
    key = Trainer(plain, dataset(), num_steps=9).seed_of(3)

    def breaking(batch, *, seed, rows):  # type: ignore[no-untyped-def]
        expected, log_ratio = original(batch, seed=seed, rows=rows)
        fails = tf.reduce_all(seed == key) & (failing.jitter < 5e-6)
        return tf.where(fails, tf.constant(np.nan, expected.dtype), expected), log_ratio

    failing.elbo_terms = breaking
    history = fit(failing, dataset(), num_steps=9, progress=False)
    reference = fit(plain, dataset(), num_steps=9, progress=False)
    assert history.recoveries == [3]
    np.testing.assert_allclose(history.elbo, reference.elbo, rtol=1e-3)


BAD = np.where(np.arange(30)[:, None] == 20, np.nan, Y)


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        (
            dataset(),
            {"batch_size": 5},
            "batch_size: got 5, but a tf.data.Dataset has its own batches",
        ),
        (
            dataset().repeat(),
            {},
            "Dataset without end, needs the number of data points; give num_data",
        ),
        (dataset().take(0), {}, "Dataset without a batch"),
        (
            tf.data.Dataset.from_tensor_slices((X, Y)),
            {},
            r"other elements than pairs .* by \.batch",
        ),
        (tf.data.Dataset.from_tensor_slices(X).batch(3), {}, "other elements than pairs"),
        (tf.data.Dataset.from_tensor_slices((X, BAD)).batch(7), {}, r"Y\[6, 0\] is nan"),
        (dataset().map(lambda x, y: (tf.concat([x, x], 1), y)), {}, "needs 1 columns"),
    ],
)
def test_bad_datasets(data: tf.data.Dataset, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        train(data, **settings)
    assert "\n" not in str(raised.value)


def test_parameters_of_each_data_point_need_arrays() -> None:
    model = LatentVariableDGP.from_architecture("LV-GP", (X, Y), num_inducing=5, amortised=False)
    with pytest.raises(ValueError, match=r"has parameters for each data point .* give arrays"):
        fit(model, dataset(), num_steps=1, progress=False)
