"""Models whose work devices share, and runs with and without a strategy in a process with two devices."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from fit_cases import numbers, toy_data, toy_model
from gpflow.kernels import SquaredExponential
from gpflow.models import BayesianModel
from tensorflow.python.eager import context

from gpflow_dkp import models
from gpflow_dkp.training import fit

DEVICES = ["CPU:0", "CPU:1"]
JITTER = 1e-4
"""So that rounding is not magnified by nearly singular covariances."""


class Draws(gpflow.likelihoods.MonteCarloLikelihood):
    """Gaussian noise, its expectations by draws."""

    def __init__(self) -> None:
        super().__init__(input_dim=None, latent_dim=1, observation_dim=1)
        self.num_monte_carlo_points = 5

    def _log_prob(self, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        return -tf.reduce_sum(tf.square(F - Y), -1)

    def _conditional_mean(self, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
        return F

    def _conditional_variance(self, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
        return tf.ones_like(F)


class Deficient(SquaredExponential):
    """A squared exponential less 5e-6 on the diagonal."""

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        K = super().K(X, X2)
        return K if X2 is not None else K - 5e-6 * tf.eye(tf.shape(X)[0], dtype=K.dtype)


def with_prior(model: BayesianModel, kernel: gpflow.kernels.Kernel) -> BayesianModel:
    one = tf.constant(1.0, tf.float64)
    kernel.lengthscales.prior = tfp.distributions.LogNormal(one, one)
    return model


def dwp() -> BayesianModel:
    model = toy_model("DWP", 2, jitter=JITTER)
    return with_prior(model, model.kernels[0])


def dgp(depth: int = 2, **settings: Any) -> BayesianModel:
    return toy_model("DGP", depth, jitter=JITTER, **settings)


def diwp(**settings: Any) -> BayesianModel:
    model = models.DIWP.from_data(*toy_data(), num_inducing=4, jitter=JITTER, **settings)
    # Its gradient is 0 but for rounding, which Adam would magnify.
    gpflow.set_trainable(model.layers[0].bias, False)
    return model


def nngp() -> BayesianModel:
    return models.NNGP.from_data(*toy_data(), depth=2, num_inducing=4, jitter=JITTER)


def latent_variable_dgp(**settings: Any) -> BayesianModel:
    return models.LatentVariableDGP.from_data(
        *toy_data(), depth=2, num_inducing=4, num_importance_samples=2, jitter=JITTER, **settings
    )


def svgp() -> BayesianModel:
    Z = np.linspace(-2.0, 2.0, 4)[:, None]
    kernel, likelihood = SquaredExponential(), gpflow.likelihoods.Gaussian(0.5)
    return with_prior(gpflow.models.SVGP(kernel, likelihood, Z, num_data=20), kernel)


def indefinite() -> BayesianModel:
    """Two inducing points in one place: no Cholesky with its jitter, one with ten times that."""
    model = toy_model(kernels=[Deficient()], jitter=1e-6)
    model.inducing_variable.Z.assign(np.array([[-1.0], [-1.0], [0.5], [1.5]]))
    gpflow.set_trainable(model.inducing_variable, False)
    return model


RUNS: dict[str, tuple[Callable[[], BayesianModel], dict[str, Any]]] = {
    "DWP": (dwp, {"batch_size": 7}),
    "DGP": (dgp, {"batch_size": 7}),
    "DIWP": (lambda: diwp(num_samples=3), {"batch_size": 7}),
    "LatentVariableDGP": (latent_variable_dgp, {"batch_size": 7}),
    "NNGP": (nngp, {"batch_size": 7, "optimizer": "sgd"}),
    "natural gradients": (lambda: dgp(1), {"batch_size": 7, "natural_gradient": 0.1}),
    "SVGP": (svgp, {"batch_size": 7, "schedule": "paper"}),
    "more jitter": (indefinite, {}),
    "batches of a dataset": (lambda: dgp(1), {"data": "batches"}),
}
"""Models with the arguments of a run."""

NUM_STEPS = 6


def start() -> None:
    """Give this process two CPU devices; before TensorFlow has run an operation."""
    cpu, *_ = tf.config.list_physical_devices("CPU")
    two = [tf.config.LogicalDeviceConfiguration() for _ in DEVICES]
    tf.config.set_logical_device_configuration(cpu, two)


def run(case: str, shared: bool, num_steps: int = NUM_STEPS, **settings: Any) -> list[Any]:
    """The numbers that two runs must agree in."""
    make, arguments = RUNS[case]
    arguments = {"num_steps": num_steps, "seed": 3, "progress": False, **arguments, **settings}
    if arguments.get("optimizer") == "sgd":
        arguments["optimizer"] = tf.keras.optimizers.SGD(0.01, momentum=0.5)
    data: Any = toy_data()
    if arguments.pop("data", None) == "batches":  # the last of one row, for the second device
        data = tf.data.Dataset.from_tensor_slices(toy_data(21)).batch(5)
    strategy = tf.distribute.MirroredStrategy(DEVICES) if shared else None
    model = make()
    return numbers(model, fit(model, data, strategy=strategy, **arguments))


def compare(case: str) -> list[int]:
    """Assert that a run on two devices is that of one; how many products and factors each device computes."""
    expected = run(case, shared=False)
    context.context().enable_graph_collection()
    shared = run(case, shared=True)
    graphs = context.context().export_run_metadata().partition_graphs
    context.context().disable_graph_collection()
    assert_same(shared, expected)
    heavy = [
        node.device[-len("CPU:0") :]
        for graph in graphs
        for node in graph.node
        if node.op in ("MatMul", "BatchMatMulV2", "Cholesky", "MatrixTriangularSolve")
    ]
    return [heavy.count(device) for device in DEVICES]


def assert_same(ours: list[Any], expected: list[Any]) -> None:
    """Of `numbers` of two runs."""
    for one, other in zip(ours, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


def resume(directory: str) -> None:
    """Assert that a run goes on from a checkpoint with a strategy, and from that without one."""
    unbroken = run("SVGP", shared=False, learning_rate=0.01)
    for num_steps, shared in ((2, False), (4, True), (NUM_STEPS, False)):
        settings = {"learning_rate": 0.01, "checkpoint_dir": directory}
        resumed = run("SVGP", shared=shared, num_steps=num_steps, **settings)
    assert_same(resumed, unbroken)
