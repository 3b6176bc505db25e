"""SGHMC on densities whose law, and whose error of discretisation, are known in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from chain_cases import NUM_CHAINS, check_law, relative_error

from gpflow_dkp.training import SGHMC
from gpflow_dkp.training.sghmc import LEAST_MASS

MEAN = np.array([1.0, -2.0, 0.5])
ROOT = np.array([[1.0, 0.0, 0.0], [0.8, 0.7, 0.0], [-0.3, 0.4, 0.5]])
COVARIANCE = ROOT @ ROOT.T
PRECISION = np.linalg.inv(COVARIANCE)
MASS = np.sqrt(np.diag(PRECISION))
"""What the masses of a long burn-in tend to: the mean square of the gradient is the precision's diagonal."""

STIFFNESS = np.linalg.eigvalsh(PRECISION / np.sqrt(np.outer(MASS, MASS)))
"""Of the least stiff direction to the stiffest."""

NUM_KEPT = 20


def gaussian(variable: tf.Variable) -> Any:
    """The log density of a correlated Gaussian for each of the chains that are rows of a variable."""

    def log_density(seed: tf.Tensor) -> tf.Tensor:
        centred = variable - MEAN
        return -0.5 * tf.reduce_sum(centred * (centred @ PRECISION))

    return log_density


def draws_of(step_size: float, friction: float = 0.2, temperature: float = 1.0) -> np.ndarray:
    """Positions [NUM_KEPT, NUM_CHAINS, 3] of chains side by side, with masses that are known."""
    chains = tf.Variable(np.zeros([NUM_CHAINS, 3]))
    how = {"step_size": step_size, "friction": friction, "temperature": temperature}
    sampler = SGHMC([chains], **how)
    sampler.scales[0].square.assign(np.tile(MASS**2, [NUM_CHAINS, 1]))
    # Of the slowest direction, under- or overdamped.
    rate = min(0.5 * friction, step_size**2 * STIFFNESS[0] / friction)
    relaxation = int(np.ceil(1.0 / rate))
    sampler.chain(gaussian(chains), 1, thinning=20 * relaxation, seed=0)
    (draws,) = sampler.chain(gaussian(chains), NUM_KEPT, thinning=2 * relaxation, seed=1)
    return draws.numpy()


def law_at(step_size: float, friction: float, temperature: float) -> np.ndarray:
    """The covariance of a chain of finite step: docs/mathematics.md 11."""
    of_step = step_size**2 / (2.0 * (2.0 - friction))
    return temperature * np.linalg.inv(PRECISION - of_step * PRECISION / MASS @ PRECISION)


def test_the_masses_of_these_tests_are_no_smaller_than_the_least() -> None:
    assert np.all(MASS >= LEAST_MASS)


@pytest.mark.parametrize(
    ("step_size", "friction", "temperature"), [(0.8, 0.2, 1.0), (0.6, 0.5, 1.0), (0.8, 0.2, 0.25)]
)
def test_a_coarse_chain_has_the_law_of_its_step(
    step_size: float, friction: float, temperature: float
) -> None:
    draws = draws_of(step_size, friction, temperature)
    law = law_at(step_size, friction, temperature)
    check_law(draws, MEAN, law)
    with pytest.raises(AssertionError):  # the error of this step is one that the test sees
        check_law(draws, MEAN, temperature * COVARIANCE)


def test_a_fine_chain_has_the_density_s_own_law_and_half_its_step_too() -> None:
    """The step's error is a tenth of the statistical one; its friction damps the slowest critically."""
    error = 0.1 * relative_error(NUM_CHAINS * NUM_KEPT)
    step_size = np.sqrt(error * 2.0 / STIFFNESS[-1])  # with 1 for 2 - friction, which is more
    for size in (step_size, 0.5 * step_size):
        friction = 2.0 * size * np.sqrt(STIFFNESS[0])
        bias = np.diag(law_at(size, friction, 1.0) / COVARIANCE) - 1.0
        assert np.all((bias > 0.0) & (bias < error))
        check_law(draws_of(size, friction), MEAN, COVARIANCE)


def test_steps_are_those_of_a_slow_computation() -> None:
    """Without noise, in NumPy, the masses learnt and then held."""
    scale = np.array([3.0, 0.2])
    step_size, friction = 0.3, 0.1
    v = tf.Variable([1.0, -1.0], dtype=tf.float64)
    sampler = SGHMC([v], step_size=step_size, friction=friction, temperature=1e-30)

    def log_density(seed: tf.Tensor) -> tf.Tensor:
        return -0.25 * tf.reduce_sum(scale * v**4)

    learnt = sampler.chain(log_density, 6, seed=0, adapt=True)[0].numpy()
    held = sampler.chain(log_density, 4, seed=1)[0].numpy()
    x, p = np.array([1.0, -1.0]), np.zeros(2)
    average, square, memory = np.zeros(2), np.zeros(2), np.zeros(2)
    for number, position in enumerate([*learnt, *held]):
        gradient = -scale * x**3
        if number < len(learnt):
            rate = 1.0 / (memory + 1.0)
            average = (1.0 - rate) * average + rate * gradient
            square = (1.0 - rate) * square + rate * gradient**2
            memory = 1.0 + memory * (1.0 - average**2 / square)
        mass = np.maximum(np.sqrt(square), LEAST_MASS)
        p = (1.0 - friction) * p + step_size**2 * gradient / mass
        x = x + p
        np.testing.assert_allclose(position, x, rtol=1e-10, atol=1e-12)


def test_masses_are_learnt_only_where_they_are_to_adapt() -> None:
    v = tf.Variable(np.ones([5]))
    sampler = SGHMC([v], step_size=0.1)

    def log_density(seed: tf.Tensor) -> tf.Tensor:
        return -8.0 * tf.reduce_sum(v**2)

    def state() -> np.ndarray:
        return np.concatenate([x.numpy() for x in sampler.scales[0].variables])

    start = state()
    sampler.chain(log_density, 3, seed=0, adapt=True)
    learnt = state()
    assert not np.any(learnt == start)
    sampler.chain(log_density, 3, seed=1)
    np.testing.assert_array_equal(state(), learnt)


def test_a_gradient_of_zero_leaves_the_noise_of_the_least_mass() -> None:
    v = tf.Variable(np.zeros([2]))
    SGHMC([v], step_size=0.1).chain(lambda seed: tf.reduce_sum(0.0 * v), 1, seed=0, adapt=True)
    assert np.all(np.abs(v) < 0.2)  # the noise is bounded by 5.6 of its deviations, 0.03
    assert np.all(v != 0.0)


def test_the_same_seed_is_the_same_chain() -> None:
    def chain(seed: int) -> np.ndarray:
        v = tf.Variable(np.zeros([3]))
        sampler = SGHMC([v], step_size=0.3)

        def noisy(seed: tf.Tensor) -> tf.Tensor:
            shift = tf.random.stateless_normal([3], seed, dtype=tf.float64)
            return -0.5 * tf.reduce_sum((v - shift) ** 2)

        return sampler.chain(noisy, 4, thinning=3, seed=seed)[0].numpy()

    np.testing.assert_array_equal(chain(1), chain(1))
    assert not np.any(chain(1) == chain(2))


def test_thinning_keeps_every_so_many() -> None:
    def chain(num_samples: int, thinning: int) -> np.ndarray:
        v = tf.Variable(np.zeros([2]))
        return (
            SGHMC([v])
            .chain(lambda seed: -tf.reduce_sum(v**2), num_samples, thinning=thinning, seed=3)[0]
            .numpy()
        )

    np.testing.assert_array_equal(chain(4, 3), chain(12, 1)[2::3])


V = tf.Variable(np.zeros([2]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"variables": V}, "variables: got an array of shape .*, needs a list of tf.Variable"),
        ({"variables": [np.zeros(2)]}, "variables: got .*, needs a list of tf.Variable"),
        ({"step_size": 0.0}, "step_size: got 0.0, needs a positive finite number"),
        ({"friction": 1.0}, "friction: got 1.0, needs a number between 0 and 1"),
        ({"friction": "high"}, "friction: got 'high', needs a number between 0 and 1"),
        ({"temperature": -1.0}, "temperature: got -1.0, needs a positive finite number"),
    ],
)
def test_bad_arguments_get_one_line(change: dict[str, Any], message: str) -> None:
    arguments = {"variables": [V]} | change
    with pytest.raises(ValueError, match=message) as raised:
        SGHMC(arguments.pop("variables"), **arguments)
    assert "\n" not in str(raised.value)


def test_a_chain_has_a_length() -> None:
    with pytest.raises(ValueError, match="num_samples: got 0, needs an integer of at least 1"):
        SGHMC([V]).chain(lambda seed: tf.reduce_sum(V), 0, seed=0)
    with pytest.raises(ValueError, match=r"thinning: got 1\.5, needs an integer"):
        SGHMC([V]).chain(lambda seed: tf.reduce_sum(V), 1, thinning=1.5, seed=0)  # type: ignore[arg-type]
