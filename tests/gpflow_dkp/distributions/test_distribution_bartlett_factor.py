"""BartlettFactor: density, moments, samples and their gradients, shapes, seeds, errors."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import integrate, stats
from wishart_reference import (
    CASES,
    Parameters,
    bartlett_log_prob,
    bartlett_sample,
    check_mean,
    parameters,
    sample_size,
    standard_parameters,
)

from gpflow_dkp.distributions import BartlettFactor


@pytest.mark.parametrize(("P", "df"), CASES)
def test_log_prob(P: int, df: int) -> None:
    q, T = parameters(P, df), bartlett_sample(P, min(P, df))
    actual = BartlettFactor(df, P, *q).log_prob(T)
    np.testing.assert_allclose(actual, bartlett_log_prob(T, q), rtol=0, atol=1e-11)


@pytest.mark.parametrize(("P", "df"), [*CASES, (3, 2.5)])
def test_the_defaults_are_the_standard_wisharts(P: int, df: float) -> None:
    q = standard_parameters(P, df)
    T = bartlett_sample(P, len(q.rate))
    np.testing.assert_allclose(
        BartlettFactor(df, P).log_prob(T), bartlett_log_prob(T, q), rtol=0, atol=1e-11
    )


def test_only_what_is_below_the_diagonal_is_used_of_loc_and_scale() -> None:
    q, T = parameters(4, 3), bartlett_sample(4, 3)
    rubbish = np.where(np.tri(4, 3, -1, dtype=bool), 0.0, np.nan)
    distribution = BartlettFactor(3, 4, q.concentration, q.rate, q.loc + rubbish, q.scale + rubbish)
    np.testing.assert_allclose(
        distribution.log_prob(T), bartlett_log_prob(T, q), rtol=0, atol=1e-11
    )
    assert np.all(np.isfinite(distribution.sample(seed=0)))
    assert np.all(np.isfinite(distribution.mean()))
    assert np.all(np.isfinite(distribution.variance()))


def test_moments_by_quadrature() -> None:
    q = parameters(3, 2)
    distribution = BartlettFactor(2, 3, *q)
    mean, variance = distribution.mean().numpy(), distribution.variance().numpy()
    below = np.tri(3, 2, -1, dtype=bool)
    np.testing.assert_array_equal(mean[below], q.loc[below])
    np.testing.assert_allclose(variance[below], q.scale[below] ** 2, rtol=1e-15)
    assert np.all(mean[np.triu_indices(3, 1, 2)] == 0.0)
    assert np.all(variance[np.triu_indices(3, 1, 2)] == 0.0)
    for j in range(2):
        gamma = stats.gamma(q.concentration[j], scale=1.0 / q.rate[j])
        root, _ = integrate.quad(lambda u, g=gamma: np.sqrt(u) * g.pdf(u), 0, np.inf, epsabs=1e-12)
        np.testing.assert_allclose(mean[j, j], root, rtol=1e-8)
        np.testing.assert_allclose(variance[j, j], gamma.mean() - root**2, rtol=1e-7)
    np.testing.assert_allclose(distribution.stddev(), np.sqrt(variance), rtol=1e-15)


def test_the_variance_of_a_large_concentration() -> None:
    """Var sqrt(Gamma(a, 1)) -> 1/4 - 1/(32 a): two terms of order a cancel."""
    variance = BartlettFactor(1, 1, concentration=[1e4]).variance().numpy()[0, 0] * 0.5
    np.testing.assert_allclose(variance, 0.25 - 1.0 / 32e4, rtol=1e-9)


@pytest.mark.parametrize(("P", "df"), [(3, 5), (5, 3)])
def test_sampled_moments(P: int, df: int) -> None:
    distribution = BartlettFactor(df, P, *parameters(P, df))
    mean, variance = distribution.mean().numpy(), distribution.variance().numpy()
    samples = distribution.sample(sample_size(mean.size, 1e-6, bias=0.05), seed=1).numpy()
    check_mean(samples, mean, false_alarm=1e-6)
    check_mean((samples - mean) ** 2, variance, false_alarm=1e-6)


def test_the_law_of_every_entry() -> None:
    """Kolmogorov-Smirnov tests, 1e-6 in all, of the diagonal and of the entries below it."""
    q = parameters(3, 2, seed=2)
    samples = BartlettFactor(2, 3, *q).sample(4000, seed=2).numpy()
    p_values = [
        stats.kstest(samples[:, j, j] ** 2, stats.gamma(a, scale=1.0 / b).cdf).pvalue
        for j, (a, b) in enumerate(zip(q.concentration, q.rate, strict=True))
    ]
    p_values += [
        stats.kstest(samples[:, i, j], stats.norm(q.loc[i, j], q.scale[i, j]).cdf).pvalue
        for i, j in [(1, 0), (2, 0), (2, 1)]
    ]
    assert min(p_values) > 1e-6 / len(p_values)


def test_gradients_of_samples() -> None:
    """With the seed fixed, T_ij = loc + scale n, T_jj = sqrt(g / rate), and g follows its quantile.

    Of a Gamma draw the gradient is implicit: that of the quantile function at a fixed level.
    """
    q = parameters(3, 2, seed=3)
    variables = [tf.Variable(value) for value in q]
    distribution = BartlettFactor(2, 3, *variables)
    assert distribution.reparameterization_type == tfp.distributions.FULLY_REPARAMETERIZED
    weights = np.random.default_rng(0).normal(size=(3, 2))
    with tf.GradientTape() as tape:
        T = distribution.sample(seed=4)
        total = tf.reduce_sum(weights * T)
    gradients = tape.gradient(total, variables)
    T = T.numpy()
    below = np.tri(3, 2, -1, dtype=bool)
    diagonal, diagonal_weights = T[[0, 1], [0, 1]], weights[[0, 1], [0, 1]]
    np.testing.assert_allclose(
        gradients[1], -diagonal_weights * diagonal / (2 * q.rate), rtol=1e-12
    )
    np.testing.assert_allclose(gradients[2], np.where(below, weights, 0.0), rtol=1e-12)
    noise = np.where(below, (T - q.loc) / q.scale, 0.0)
    np.testing.assert_allclose(gradients[3], weights * noise, rtol=1e-10, atol=1e-14)

    level = stats.gamma(q.concentration).cdf(diagonal**2 * q.rate)
    step = 1e-5
    up, down = (
        np.sqrt(stats.gamma(q.concentration + sign * step).ppf(level) / q.rate)
        for sign in (1.0, -1.0)
    )
    expected = diagonal_weights * (up - down) / (2 * step)
    np.testing.assert_allclose(gradients[0], expected, rtol=1e-6)


def test_gradients_of_log_prob() -> None:
    q, T = parameters(4, 3, seed=5), bartlett_sample(4, 3, seed=5)
    tensors = [tf.constant(value) for value in (*q, T)]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = BartlettFactor(3, 4, *tensors[:4]).log_prob(tensors[4])
    gradients = tape.gradient(value, tensors)
    step = 1e-6
    lower = np.tri(4, 3, dtype=bool)
    for k, gradient in enumerate(gradients):
        for index in np.ndindex(*gradient.shape):
            values = []
            for sign in (1.0, -1.0):
                arrays = [np.array(tensor) for tensor in tensors]
                arrays[k][index] += sign * step
                # The reference reads no entry above the diagonal, as the density does not.
                values.append(
                    bartlett_log_prob(np.where(lower, arrays[4], 0), Parameters(*arrays[:4]))
                )
            np.testing.assert_allclose(
                gradient[index], (values[0] - values[1]) / (2 * step), rtol=1e-6, atol=1e-6
            )


def test_gradients_of_the_mean_reach_the_concentration() -> None:
    concentration = tf.Variable([0.7, 30.0], dtype=tf.float64)
    distribution = BartlettFactor(2, 2, concentration)

    def total() -> tf.Tensor:
        return tf.reduce_sum(distribution.mean()) + tf.reduce_sum(distribution.variance())

    with tf.GradientTape() as tape:
        value = total()
    gradient = tape.gradient(value, concentration).numpy()
    step = 1e-5
    for j in range(2):
        values = []
        for sign in (1.0, -1.0):
            shifted = np.array([0.7, 30.0])
            shifted[j] += sign * step
            concentration.assign(shifted)
            values.append(total().numpy())
        np.testing.assert_allclose(gradient[j], (values[0] - values[1]) / (2 * step), rtol=1e-7)


def test_batches_are_their_members() -> None:
    q = parameters(4, 2, batch=(3,))
    T = bartlett_sample(4, 2, batch=(5, 3))
    distribution = BartlettFactor(2, 4, *q)
    assert distribution.batch_shape == [3]
    assert distribution.event_shape == [4, 2]
    assert distribution.sample([6, 5], seed=0).shape == [6, 5, 3, 4, 2]
    assert distribution.mean().shape == distribution.variance().shape == [3, 4, 2]
    log_prob = distribution.log_prob(T).numpy()
    for s in range(5):
        for b in range(3):
            member = Parameters(*(value[b] for value in q))
            np.testing.assert_allclose(
                log_prob[s, b], bartlett_log_prob(T[s, b], member), rtol=1e-13
            )
    member = distribution[1]
    assert member.batch_shape == []
    np.testing.assert_allclose(member.log_prob(T[:, 1]), log_prob[:, 1], rtol=1e-14)
    assert distribution.copy(loc=q.loc[0]).batch_shape == [3]


def test_parameters_of_different_batch_shapes_broadcast() -> None:
    q = parameters(3, 2)
    loc = np.stack([q.loc] * 4)
    distribution = BartlettFactor(2, 3, q.concentration, q.rate, loc, q.scale)
    assert distribution.batch_shape == [4]
    samples = distribution.sample(seed=0).numpy()
    assert len(np.unique(samples[:, 0, 0])) == 4, "members of the batch must be independent"
    np.testing.assert_array_equal(distribution.mean(), np.stack([distribution[0].mean()] * 4))


def test_a_tensor_of_degrees_of_freedom() -> None:
    df = tf.Variable([2.5, 7.0], dtype=tf.float64)
    distribution = BartlettFactor(df, 3)
    T = bartlett_sample(3, 3)
    assert distribution.batch_shape == [2]
    assert distribution[0].batch_shape == []
    with tf.GradientTape() as tape:
        log_prob = distribution.log_prob(T)
    for value, member in zip(log_prob, (2.5, 7.0), strict=True):
        np.testing.assert_allclose(value, BartlettFactor(member, 3).log_prob(T), rtol=1e-14)
    assert np.all(tape.gradient(log_prob, df).numpy() != 0.0)


@pytest.mark.parametrize("seed", [0, 3, 2**40 + 7, -1, np.int64(5), (1, 2), "tensor"])
def test_a_seed_gives_the_same_numbers_everywhere(seed: object) -> None:
    seed = tf.constant([3, 4]) if seed == "tensor" else seed
    distribution = BartlettFactor(3, 4)
    first = distribution.sample(2, seed=seed)
    tf.random.normal([1])
    np.testing.assert_array_equal(distribution.sample(2, seed=seed), first)
    compiled = tf.function(lambda: distribution.sample(2, seed=seed), autograph=False)
    np.testing.assert_array_equal(compiled(), first)
    np.testing.assert_array_equal(compiled(), first)
    together, log_prob = distribution.experimental_sample_and_log_prob(2, seed=seed)
    np.testing.assert_array_equal(together, first)
    np.testing.assert_array_equal(log_prob, distribution.log_prob(first))


def test_different_seeds_give_different_numbers() -> None:
    distribution = BartlettFactor(1, 1)
    seeds = [None, None, 0, 1, 2**32, -1, (5, 1), (1, 5)]
    samples = {float(distribution.sample(seed=seed)[0, 0]) for seed in seeds}
    assert len(samples) == len(seeds)


def test_the_graph_takes_a_symbolic_seed_and_sample_shape() -> None:
    distribution = BartlettFactor(2, 3)
    draw = tf.function(lambda n, seed: distribution.sample([n], seed=seed), autograph=False)
    np.testing.assert_array_equal(
        draw(tf.constant(4), tf.constant([1, 2])), distribution.sample(4, seed=[1, 2])
    )


def test_float32() -> None:
    q = Parameters(*(value.astype(np.float32) for value in parameters(4, 3)))
    T = bartlett_sample(4, 3)
    distribution = BartlettFactor(3, 4, *q)
    sample, log_prob = distribution.experimental_sample_and_log_prob(seed=0)
    assert {distribution.dtype, sample.dtype, log_prob.dtype} == {tf.float32}
    assert distribution.mean().dtype == distribution.variance().dtype == tf.float32
    np.testing.assert_allclose(
        distribution.log_prob(T.astype(np.float32)), bartlett_log_prob(T, q), rtol=1e-5
    )
    assert BartlettFactor(3, 4, dtype=tf.float32).sample(seed=0).dtype == tf.float32
    assert BartlettFactor(3, 4).dtype == tf.float64


def test_small_concentrations_do_not_give_zero() -> None:
    """A zero on the diagonal would make log_prob infinite."""
    distribution = BartlettFactor(1, 1, tf.constant([0.01], tf.float32))
    T, log_prob = distribution.experimental_sample_and_log_prob(1000, seed=0)
    assert np.all(T.numpy() > 0.0)
    assert np.all(np.isfinite(log_prob))


def test_parameter_properties() -> None:
    shapes = BartlettFactor.param_shapes([5, 4, 2])
    np.testing.assert_array_equal(shapes["concentration"], [5, 2])
    np.testing.assert_array_equal(shapes["loc"], [5, 4, 2])
    properties = BartlettFactor.parameter_properties(dtype=tf.float64)
    bijector = properties["rate"].default_constraining_bijector_fn()
    assert np.all(bijector.forward(tf.constant([-50.0, 3.0], tf.float64)) > 0.0)


@pytest.mark.parametrize(
    ("df", "dimension", "message"),
    [
        (2.5, 5, r"df is 2\.5 for dimension 5; it must be an integer >= 1 .* or a real > 4"),
        (0, 5, "df is 0 for dimension 5"),
        (-1, 1, "df is -1 for dimension 1"),
        (0, 1, "df is 0 for dimension 1"),
        (np.nan, 5, "df is nan"),
        (np.inf, 5, "df is inf"),
        (3, 0, "dimension is 0; it must be an integer >= 1"),
        (3, 2.0, r"dimension is 2\.0"),
        (tf.constant([6.0, 3.0]), 5, r"smallest value 3\.0; a tensor must be > dimension - 1 = 4"),
    ],
)
def test_degrees_of_freedom_are_checked(df: object, dimension: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BartlettFactor(df, dimension)


def test_df_may_be_a_numpy_number() -> None:
    assert BartlettFactor(np.int32(2), np.int64(4)).event_shape == [4, 2]
    assert BartlettFactor(np.float32(3.5), 4).event_shape == [4, 4]
    assert BartlettFactor(2.0, 4).event_shape == [4, 2]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("concentration", np.ones(3), r"concentration has shape \(3,\); its last 1 must be \(2,\)"),
        ("rate", 1.0, r"rate has shape \(\)"),
        ("loc", np.ones((4, 4)), r"loc has shape \(4, 4\); its last 2 must be \(4, 2\)"),
        ("scale", np.ones(2), r"scale has shape \(2,\)"),
        ("concentration", [1.0, 0.0], r"concentration has the value 0\.0; .* finite and > 0"),
        ("rate", [np.nan, 1.0], "rate has the value nan"),
        ("loc", np.full((4, 2), np.inf), "loc has the value inf"),
        ("scale", -np.ones((4, 2)), r"scale has the value -1\.0"),
    ],
)
def test_parameters_are_checked(name: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BartlettFactor(2, 4, **{name: value})


def test_dtypes_are_checked() -> None:
    with pytest.raises(ValueError, match="float32, float64; cast them"):
        BartlettFactor(2, 4, concentration=tf.ones([2]), rate=np.ones(2))
    with pytest.raises(ValueError, match="must be floating"):
        BartlettFactor(2, 4, dtype=tf.int32)


def test_values_and_seeds_are_checked() -> None:
    with pytest.raises(ValueError, match=r"value has shape \(4, 3\); .* pass T \[\.\.\., P, p\]"):
        BartlettFactor(2, 4).log_prob(np.ones((4, 3)))
    with pytest.raises(ValueError, match=r"seed has shape \(3,\)"):
        BartlettFactor(2, 4).sample(seed=[1, 2, 3])


def test_validate_args_checks_variables_when_they_are_used() -> None:
    rate = tf.Variable([1.0, 1.0], dtype=tf.float64)
    distribution = BartlettFactor(2, 4, rate=rate, validate_args=True)
    distribution.sample(seed=0)
    rate.assign([1.0, -1.0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="rate must be positive"):
        distribution.sample(seed=0)
    rate.assign([1.0, 1.0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="positive diagonal"):
        distribution.log_prob(-bartlett_sample(4, 2))
    with pytest.raises(tf.errors.InvalidArgumentError, match="zero above"):
        distribution.log_prob(np.ones((4, 2)))
    df = tf.Variable(2.0, dtype=tf.float64)
    with pytest.raises(tf.errors.InvalidArgumentError, match="df must be > dimension - 1"):
        BartlettFactor(df, 4, validate_args=True).sample(seed=0)
