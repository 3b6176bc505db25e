"""GP regression's marginal likelihood and its gradient, beside GPflow's."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import functions
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, Linear, Matern32, SquaredExponential
from gpflow.likelihoods import Gaussian

from gpflow_dkp.models.marginal_likelihood import Regression, minimise

KERNELS = {
    "ARD": lambda: SquaredExponential(variance=1.3, lengthscales=[0.6, 1.5]),
    "sum": lambda: Matern32(lengthscales=0.8) + Linear(variance=0.5),
}


def models(
    kernel: Kernel,
    num_outputs: int,
    likelihood: Gaussian,
    mean_function: MeanFunction | None = None,
) -> list[gpflow.models.GPR]:
    """Ours and GPflow's, which share their parameters."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(30, 2)), rng.normal(size=(30, num_outputs))
    return [
        model(data, kernel, mean_function, likelihood=likelihood)
        for model in (Regression, gpflow.models.GPR)
    ]


def value_and_gradient(model: gpflow.models.GPR) -> tuple[float, np.ndarray]:
    with tf.GradientTape() as tape:
        value = model.training_loss()
    gradients = tape.gradient(value, model.trainable_variables)
    return float(value), np.concatenate([np.ravel(gradient) for gradient in gradients])


@pytest.mark.parametrize("num_outputs", [1, 3])
@pytest.mark.parametrize("kernel", KERNELS)
def test_value_and_gradient_are_gpflows(kernel: str, num_outputs: int) -> None:
    (value, gradient), (expected, slope) = map(
        value_and_gradient, models(KERNELS[kernel](), num_outputs, Gaussian(0.1))
    )
    assert value == pytest.approx(expected, rel=1e-13)
    np.testing.assert_allclose(gradient, slope, rtol=1e-12, atol=1e-12)


def test_mean_function_prior_and_noise_that_depends_on_inputs() -> None:
    kernel = KERNELS["ARD"]()
    kernel.variance.prior = tfp.distributions.LogNormal(np.float64(0.0), np.float64(1.0))
    line = functions.Linear(A=[[0.3], [-0.2]], b=[0.5])
    noise = Gaussian(scale=functions.Linear(A=[[0.1], [0.0]], b=[1.0]))
    (value, gradient), (expected, slope) = map(value_and_gradient, models(kernel, 1, noise, line))
    assert len(gradient) == 3 + 3 + 3
    assert value == pytest.approx(expected, rel=1e-13)
    np.testing.assert_allclose(gradient, slope, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("has_error", [False, True])
def test_a_search_ends_at_the_best_point_where_others_have_no_value(has_error: bool) -> None:
    x = tf.Variable(0.0, dtype=tf.float64)
    nothing = tf.constant(np.nan, tf.float64)

    def loss() -> tf.Tensor:
        has_value = x < 3.0
        value = tf.where(has_value, tf.exp(-tf.where(has_value, x, 0.0)), nothing)
        return tf.debugging.check_numerics(value, "no value") if has_error else value

    assert 0 < minimise(gpflow.optimizers.Scipy(), loss, [x], 50) <= 50
    assert 2.5 < float(x) < 3.0


def test_a_search_that_ends_above_its_best_point_goes_on_from_there() -> None:
    """As on a loss that rounding makes higher than its gradient says."""

    class Search(gpflow.optimizers.Scipy):
        searches = 0

        def minimize(self, closure, variables, **settings):  # type: ignore[no-untyped-def]
            found = super().minimize(closure, variables, **settings)
            self.searches += 1
            if self.searches == 1:
                variables[0].assign(9.0)
                found.fun = 49.0
            return found

    x, search = tf.Variable(0.0, dtype=tf.float64), Search()
    minimise(search, lambda: tf.square(x - 2.0), [x], 50)
    assert search.searches == 2
    assert float(x) == pytest.approx(2.0, abs=1e-6)


def test_a_search_takes_no_more_iterations_than_it_may() -> None:
    x = tf.Variable(0.0, dtype=tf.float64)
    assert minimise(gpflow.optimizers.Scipy(), lambda: tf.exp(-x), [x], 3) == 3
