"""A step that devices share is that of one: its shares, and whole runs in a process with two devices."""

import multiprocessing
from collections.abc import Callable, Iterator
from multiprocessing.pool import Pool
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import device_cases
import gpflow
import numpy as np
import pytest
import tensorflow as tf
from device_cases import Draws, dgp, diwp, dwp, latent_variable_dgp, nngp, svgp
from fit_cases import toy_data
from gpflow.models import BayesianModel

from gpflow_dkp.models import GWI, ConditionalVAE, MonteCarloModel
from gpflow_dkp.training import fit
from gpflow_dkp.training.data import Minibatch
from gpflow_dkp.training.devices import Share, devices_of, shares_of
from gpflow_dkp.training.trainer import Trainer

DATA = toy_data()
ONE = tf.distribute.OneDeviceStrategy("CPU:0")


class TwoDevices(tf.distribute.OneDeviceStrategy):
    """A strategy that says it has other devices than it has."""

    def __init__(self, *devices: str) -> None:
        super().__init__("CPU:0")
        self._devices = devices

    @property
    def extended(self) -> Any:
        return SimpleNamespace(worker_devices=self._devices)


TWICE = TwoDevices("/CPU:0", "/CPU:0")
"""Shares a step without a second device."""

# Shares


@pytest.mark.parametrize(
    ("number", "samples", "rows", "expected"),
    [
        (1, 1, 5, [Share("0", 0, 1, 1, 0, 1)]),
        (2, 5, 5, [Share("0", 0, 2, 5), Share("1", 2, 5, 5)]),
        (2, 1, None, [Share("0", 0, 1, 1, 0, 2), Share("1", 0, 1, 1, 1, 2)]),
        (2, 1, 1, [Share("0", 0, 1, 1, 0, 1)]),
        (
            3,
            2,
            9,
            [
                Share("0", 0, 1, 2, 0, 2),
                Share("2", 0, 1, 2, 1, 2),
                Share("1", 1, 2, 2, 0, 1),
            ],
        ),
    ],
)
def test_samples_are_shared_first_and_then_their_rows(
    number: int, samples: int, rows: int | None, expected: list[Share]
) -> None:
    assert shares_of([str(i) for i in range(number)], samples, rows) == expected


@pytest.mark.parametrize("rows", [5, 7])
@pytest.mark.parametrize(("number", "samples"), [(1, 1), (2, 3), (3, 3), (5, 2), (4, 1)])
def test_all_work_is_shared_once(number: int, samples: int, rows: int) -> None:
    work = np.zeros([samples, rows], int)
    X = tf.reshape(tf.range(rows), [rows, 1])
    batch, parts = Minibatch((X, X), None, rows), []
    for share in shares_of([str(i) for i in range(number)], samples, rows):
        part = share.part_of(batch)
        for s in range(share.start, share.stop):
            work[s, np.ravel(part.data[0])] += 1
        parts.append(float(share.of_work(batch, tf.float64)))
    assert np.all(work == 1)
    assert sum(parts) == pytest.approx(1.0, abs=1e-15)


MODELS: dict[str, Callable[[], BayesianModel]] = {
    "DWP": dwp,
    "DGP": lambda: dgp(likelihood=Draws()),
    "DIWP": lambda: diwp(num_samples=3, depth=2),
    "NNGP": nngp,
    "LatentVariableDGP": lambda: latent_variable_dgp(num_samples=3, likelihood=Draws()),
    "VI": lambda: latent_variable_dgp(num_samples=2, inference="vi", amortised=False),
    "last function drawn": lambda: latent_variable_dgp(num_samples=2, inference="iwvi-sampled"),
    "doubly reparametrised": lambda: latent_variable_dgp(
        num_samples=2, amortised=False, doubly_reparametrised=True
    ),
    "CVAE": lambda: ConditionalVAE(1, hidden_units=[4], num_samples=2),
    "SVGP": svgp,
}


@pytest.mark.parametrize("name", MODELS)
def test_shares_add_up_to_the_whole(name: str) -> None:
    model = MODELS[name]()
    trainer = Trainer(model, DATA, num_steps=1)
    objective, batch = trainer.objective, Minibatch(DATA, None, len(DATA[0]))
    variables, samples = model.trainable_variables, objective.samples_to_share()

    def evaluate(*shares: Share) -> tuple[tf.Tensor, ...]:
        with tf.GradientTape() as tape:
            values = [objective(batch, tf.constant([3, 4]), share) for share in shares]
            bound, total = (tf.add_n(parts) for parts in zip(*values, strict=True))
        zero = tf.UnconnectedGradients.ZERO
        gradients = tape.gradient(total, variables, unconnected_gradients=zero)
        return bound, total, *map(tf.convert_to_tensor, gradients)

    whole = evaluate(Share())
    for number in (2, 5):
        shares = shares_of(["CPU:0"] * number, samples, len(DATA[0]))
        assert len(shares) == (number if number > samples else min(number, samples))
        for ours, expected in zip(evaluate(*shares), whole, strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-9)


# Runs on two devices


@pytest.fixture(scope="module", autouse=True)
def process() -> Iterator[Pool]:
    """A process with two devices, which must be asked for before TensorFlow starts.

    It imports TensorFlow while the tests that need none run.
    """
    with multiprocessing.get_context("spawn").Pool(1, device_cases.start) as pool:
        yield pool


@pytest.mark.parametrize("case", device_cases.RUNS)
def test_a_run_on_two_devices_is_that_of_one(case: str, process: Pool) -> None:
    first, second = process.apply(device_cases.compare, [case])
    # The first device has what is not shared too.
    assert 0 < second <= first


def test_a_run_goes_on_with_a_strategy_or_without(process: Pool, tmp_path: Path) -> None:
    process.apply(device_cases.resume, [str(tmp_path)])


def test_one_device_shares_nothing() -> None:
    with_one, without = (
        fit(svgp(), DATA, num_steps=2, strategy=strategy, progress=False).elbo
        for strategy in (ONE, None)
    )
    assert with_one == without
    assert devices_of(tf.distribute.get_strategy()) == []


def test_a_time_limit_with_a_strategy() -> None:
    history = fit(svgp(), DATA, max_seconds=0.5, strategy=TWICE, progress=False)
    assert history.num_steps > 0


# What is refused


@pytest.mark.parametrize(
    ("strategy", "got"),
    [
        ("mirrored", "got 'mirrored'"),
        (["CPU:0"], r"got \['CPU:0'\]"),
        (tf.distribute.MirroredStrategy, "got type"),
        (object.__new__(tf.distribute.TPUStrategy), "got a TPUStrategyV2, of TPUs"),
        (
            object.__new__(tf.distribute.MultiWorkerMirroredStrategy),
            "got a CollectiveAllReduceStrategy, of TPUs or several machines",
        ),
        (TwoDevices("/CPU:0", "/CPU:7"), "got one with the device /CPU:7"),
        (TwoDevices("/CPU:0", "/TPU:0"), "got one with the device /TPU:0"),
        (TwoDevices("/CPU:0", "/task:1/CPU:0"), "got one with the device /task:1/CPU:0"),
    ],
)
def test_strategies_of_other_devices(strategy: object, got: str) -> None:
    needs = "needs a tf.distribute strategy of CPUs or GPUs of this process"
    with pytest.raises(ValueError, match=f"^strategy: {got}.*, {needs}.*$"):
        devices_of(strategy)  # type: ignore[arg-type]


class Own(ConditionalVAE):
    """A user's model."""

    samples_to_share = MonteCarloModel.samples_to_share


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        (
            lambda: GWI.from_data(*DATA, num_inducing=4),
            DATA,
            "strategy: the distance of GWI is of all",
        ),
        (lambda: Own(1), DATA, "strategy: got a Own, which does not say how"),
        (
            lambda: gpflow.models.GPR(DATA, gpflow.kernels.Matern52()),
            None,
            "strategy: the loss of GPR is of all rows together",
        ),
        (
            lambda: gpflow.models.SVGP(
                gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(), DATA[0][:3]
            ),
            DATA,
            "model: SVGP's num_data is None",
        ),
    ],
)
def test_models_that_devices_cannot_share(
    model: Callable[[], BayesianModel], data: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}") as error:
        fit(model(), data, num_steps=1, strategy=TWICE, progress=False)
    assert "\n" not in str(error.value)
    history = fit(model(), data, num_steps=1, strategy=ONE, progress=False)
    assert history.num_steps == 1


def test_a_model_of_a_strategys_scope() -> None:
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = svgp()
    with pytest.raises(ValueError, match="strategy: the model was made in a strategy's"):
        fit(model, DATA, num_steps=1, strategy=TWICE, progress=False)
