"""FlatAdam against Keras' Adam."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from gpflow_dkp.training.adam import FlatAdam

SHAPES = [(), (3,), (2, 4), (1, 1)]


def start() -> list[tf.Variable]:
    rng = np.random.default_rng(0)
    return [tf.Variable(rng.normal(size=shape)) for shape in SHAPES]


def gradients_of(variables: list[tf.Variable], step: int) -> list[tf.Tensor]:
    """Of a function that changes from step to step; large, small and zero entries."""
    rng = np.random.default_rng(step)
    return [
        tf.constant(rng.normal(size=v.shape) * 10.0 ** rng.integers(-6, 3)) * tf.sin(v)
        for v in variables
    ]


@pytest.mark.parametrize("compiled", [False, True])
def test_equals_kerass(compiled: bool) -> None:
    # Keras keeps its settings in single precision: these are the same numbers there.
    beta_1, beta_2, rates = 0.875, 1.0 - 2.0**-10, (2.0**-6, 2.0**-9)
    ours, theirs = start(), start()
    flat = FlatAdam(ours, beta_1, beta_2)
    reference = tf_keras.optimizers.legacy.Adam(rates[0], beta_1, beta_2, epsilon=1e-8)
    apply = tf.function(flat.apply, autograph=False) if compiled else flat.apply
    for step in range(12):
        rate = rates[step // 6]
        reference.learning_rate = rate
        gradient = flat.flatten(gradients_of(ours, step))
        apply(gradient, tf.constant(rate, tf.float64), tf.constant(step))
        reference.apply_gradients(zip(gradients_of(theirs, step), theirs, strict=True))
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


def test_defaults_are_the_papers() -> None:
    """[Kingma & Ba 2015] section 2, in the order of its last paragraph, with beta 0.9 and 0.999."""
    variables = [tf.Variable(np.array([0.5, -2.0]))]
    theta, m, v = variables[0].numpy(), 0.0, 0.0
    flat = FlatAdam(variables)
    for step in range(10):
        g = np.cos(theta + step)
        flat.apply(tf.constant(g), tf.constant(0.01, tf.float64), tf.constant(step))
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        rate = 0.01 * np.sqrt(1 - 0.999 ** (step + 1)) / (1 - 0.9 ** (step + 1))
        theta = theta - rate * m / (np.sqrt(v) + 1e-8)
        np.testing.assert_allclose(variables[0], theta, rtol=0, atol=1e-14)


def test_first_step_is_the_learning_rate_against_the_gradients_sign() -> None:
    variables = start()
    before = [variable.numpy() for variable in variables]
    flat = FlatAdam(variables)
    gradient = tf.constant(np.random.default_rng(1).normal(size=13))
    flat.apply(gradient, tf.constant(0.1, tf.float64), tf.constant(0))
    moved = np.concatenate([np.ravel(v - b) for v, b in zip(variables, before, strict=True)])
    np.testing.assert_allclose(moved, -0.1 * np.sign(gradient), rtol=1e-4)


def test_flat_gradient_is_in_the_variables_order() -> None:
    variables = start()
    gradients = [
        tf.fill(v.shape, tf.constant(float(i), tf.float64)) for i, v in enumerate(variables)
    ]
    np.testing.assert_array_equal(
        FlatAdam(variables).flatten(gradients), [0.0] + [1.0] * 3 + [2.0] * 8 + [3.0]
    )


def test_scales_multiply_the_rates_of_their_variables() -> None:
    plain, scaled = start(), start()
    before = [variable.numpy() for variable in plain]
    scales = [1.0, 3.0, 0.5, 2.0]
    one, other = FlatAdam(plain), FlatAdam(scaled, scales=scales)
    gradient = tf.constant(np.random.default_rng(1).normal(size=13))
    for flat in (one, other):
        flat.apply(gradient, tf.constant(0.1, tf.float64), tf.constant(0))
    for start_at, a, b, scale in zip(before, plain, scaled, scales, strict=True):
        np.testing.assert_allclose(b - start_at, scale * (a - start_at), rtol=1e-12)


def test_a_long_gradient_is_shortened_to_the_running_length() -> None:
    """Against the same Adam on gradients that NumPy has shortened."""
    clipped, reference = start(), start()
    one, other = FlatAdam(clipped, clip=2.0), FlatAdam(reference)
    rng, running = np.random.default_rng(2), 0.0
    for step, size in enumerate([1.0, 1.5, 100.0, 1.0, 0.0, 3.0]):
        gradient = size * rng.normal(size=13)
        length = np.linalg.norm(gradient)
        kept = length if step == 0 else min(length, 2.0 * running)
        running = kept if step == 0 else 0.95 * running + 0.05 * kept
        rate, count = tf.constant(0.1, tf.float64), tf.constant(step)
        one.apply(tf.constant(gradient), rate, count)
        other.apply(tf.constant(gradient * (kept / length if length else 1.0)), rate, count)
        for a, b in zip(clipped, reference, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
    assert float(one.norm) == pytest.approx(running)
