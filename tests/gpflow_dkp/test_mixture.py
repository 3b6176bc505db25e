"""Mixtures of Gaussians against scipy, quadrature and finite differences."""

from __future__ import annotations

import itertools

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from scipy import integrate, optimize, special, stats

from gpflow_dkp import mixture
from gpflow_dkp.mixture import Mixture, check_levels, normal_cdf

S, N, P = 7, 5, 2
LEVELS = [1e-12, 0.025, 0.3, 0.5, 0.9, 0.975, 1.0 - 1e-12]

FALSE_ALARM = 1e-5
"""Chance that a statistical test of a correct program fails, over the seeds it could be given."""


def moments(shape: tuple[int, ...] = (S, N, P), seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape), rng.gamma(2.0, 0.3, size=shape)


def targets(shape: tuple[int, ...] = (N, P)) -> np.ndarray:
    return np.random.default_rng(9).normal(scale=1.5, size=shape)


def components(mean: np.ndarray, variance: np.ndarray):  # type: ignore[no-untyped-def]
    return stats.norm(mean, np.sqrt(variance))


# Moments, densities, distribution functions


def test_moments_are_those_of_a_mixture() -> None:
    mean, variance = moments()
    actual = Mixture(mean, variance).moments()
    second = np.mean(variance + mean**2, 0)
    np.testing.assert_allclose(actual[0], np.mean(mean, 0), rtol=1e-14)
    np.testing.assert_allclose(actual[1], second - np.mean(mean, 0) ** 2, rtol=1e-12)


def test_log_prob_is_the_log_of_the_mean_density_of_all_outputs() -> None:
    mean, variance = moments()
    y = targets()
    density = np.prod(components(mean, variance).pdf(y), -1)
    mixture = Mixture(mean, variance)
    np.testing.assert_allclose(mixture.log_prob(y), np.log(np.mean(density, 0)), rtol=1e-12)
    np.testing.assert_allclose(mixture.component_log_prob(y), np.log(density), rtol=1e-12)


@pytest.mark.parametrize("variance", [1e-12, 1.0, 1e12])
def test_log_prob_far_away_does_not_underflow(variance: float) -> None:
    far = 1.0 + 100.0 * np.sqrt(variance)
    ones = np.ones([3, 1, 1])
    actual = Mixture(ones, variance * ones).log_prob([[far]])
    expected = stats.norm.logpdf((far - 1.0) / np.sqrt(variance)) - 0.5 * np.log(variance)
    np.testing.assert_allclose(actual, [expected], rtol=1e-12)


def test_cdf_is_the_mean_of_the_components() -> None:
    mean, variance = moments()
    y = targets()
    expected = np.mean(components(mean, variance).cdf(y), 0)
    np.testing.assert_allclose(Mixture(mean, variance).cdf(y), expected, rtol=1e-12)


def test_normal_cdf_keeps_its_digits_in_the_lower_tail() -> None:
    value = np.linspace(-37.0, 8.0, 901)
    np.testing.assert_allclose(normal_cdf(tf.constant(value)), special.ndtr(value), rtol=1e-12)
    value = np.linspace(-12.0, 5.0, 100, dtype=np.float32)
    np.testing.assert_allclose(normal_cdf(tf.constant(value)), special.ndtr(value), rtol=2e-5)


# Quantiles


def quantile(mean: np.ndarray, scale: np.ndarray, level: float) -> float:
    """Of one mixture [S], by scipy's root finder on the nearer tail."""
    tail, sign = (level, 1.0) if level <= 0.5 else (1.0 - level, -1.0)
    component = sign * mean + scale * special.ndtri(tail)

    def log_excess(x: float) -> float:
        below = special.log_ndtr((x - sign * mean) / scale)
        return special.logsumexp(below) - np.log(len(mean)) - np.log(tail)

    ends = np.min(component) - 1e-6, np.max(component) + 1e-6
    return sign * optimize.brentq(log_excess, *ends, xtol=1e-14, rtol=1e-15)


def test_quantiles_are_the_roots_of_the_distribution_function() -> None:
    mean, variance = moments()
    actual = Mixture(mean, variance).quantile(LEVELS)
    assert actual.shape == (len(LEVELS), N, P)
    for (i, level), n, p in itertools.product(enumerate(LEVELS), range(N), range(P)):
        expected = quantile(mean[:, n, p], np.sqrt(variance[:, n, p]), level)
        assert float(actual[i, n, p]) == pytest.approx(expected, rel=1e-12, abs=1e-13)


def test_quantiles_of_one_component_are_its_own() -> None:
    mean, variance = moments((1, N, P))
    levels = [1e-100, 1e-9, 0.2, 0.5, 0.8]
    expected = components(mean, variance).ppf(np.reshape(levels, [-1, 1, 1]))
    np.testing.assert_allclose(Mixture(mean, variance).quantile(levels), expected, rtol=1e-12)


def test_quantiles_of_components_of_every_size() -> None:
    """Means and standard deviations over twelve decades: the tail on either side of the root."""
    rng = np.random.default_rng(1)
    shape = (6, 1000, 1)
    mean = 10.0 ** rng.uniform(-6.0, 6.0, size=shape) * rng.choice([-1.0, 1.0], size=shape)
    variance = 10.0 ** rng.uniform(-12.0, 6.0, size=shape)
    scale = np.sqrt(variance)
    for level in LEVELS:
        root = Mixture(mean, variance).quantile([level])[0].numpy()
        tail, sign = (level, 1.0) if level <= 0.5 else (1.0 - level, -1.0)
        step = sign * 1e-14 * (np.abs(root) + np.min(scale, 0))
        below = np.mean(special.ndtr(sign * (root - step - mean) / scale), 0)
        above = np.mean(special.ndtr(sign * (root + step - mean) / scale), 0)
        assert np.all(below <= tail * (1.0 + 1e-14))
        assert np.all(above >= tail * (1.0 - 1e-14))


@pytest.mark.parametrize("variance", [1e-12, 1e-4])
def test_quantiles_between_narrow_components_that_lie_apart(variance: float) -> None:
    mean = np.array([-3.0, 1.0, 4.0]).reshape([3, 1, 1])
    actual = Mixture(mean, np.full([3, 1, 1], variance)).quantile([1 / 6, 0.5, 5 / 6])
    np.testing.assert_allclose(actual[:, 0, 0], mean[:, 0, 0], rtol=0, atol=1e-12)


def test_the_median_of_two_distant_halves_lies_between_them() -> None:
    """Where the distribution function is flat and the density is zero; gradients stay finite."""
    mean = tf.constant([[[-1.0]], [[1.0]]], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(mean)
        median = Mixture(mean, tf.fill([2, 1, 1], tf.constant(1e-12, tf.float64))).quantile([0.5])
    assert -1.0 < float(median[0, 0, 0]) < 1.0
    assert np.all(np.isfinite(tape.gradient(median, mean)))


def test_quantile_and_cdf_are_inverse_to_each_other() -> None:
    mean, variance = moments((20, 30, P), seed=2)
    mixture = Mixture(mean, variance)
    for level in (1e-8, 0.1, 0.5, 0.99):
        back = mixture.cdf(mixture.quantile([level])[0])
        np.testing.assert_allclose(back, np.full([30, P], level), rtol=1e-12)


def test_the_search_for_a_quantile_takes_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    mean, variance = moments((50, 200, 1), seed=4)
    calls: list[int] = []
    evaluate = mixture._cdf_and_density

    def counted(*args: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        calls.append(1)
        return evaluate(*args)

    monkeypatch.setattr(mixture, "_cdf_and_density", counted)
    Mixture(mean, variance).quantile([0.025])
    assert len(calls) <= 25


def test_a_nan_stays_where_it_is() -> None:
    mean, variance = moments()
    expected = Mixture(mean, variance).quantile([0.1, 0.9]).numpy()
    mean[2, 1, 0] = np.nan
    expected[:, 1, 0] = np.nan
    np.testing.assert_allclose(Mixture(mean, variance).quantile([0.1, 0.9]), expected, rtol=1e-12)


@pytest.mark.parametrize("level", [1e-9, 0.1, 0.5, 0.975, 1.0 - 1e-9])
def test_gradients_of_quantiles_are_finite_differences(level: float) -> None:
    parts = moments((4, 3, P), seed=3)
    rng = np.random.default_rng(6)
    tensors = [tf.constant(part) for part in parts]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = Mixture(*tensors).quantile([level])
    gradients = tape.gradient(value, tensors)
    for which in range(2):
        direction = rng.normal(size=parts[which].shape)
        ends = []
        for sign in (1.0, -1.0):
            moved = list(parts)
            moved[which] = moved[which] + sign * 1e-6 * direction
            ends.append(np.sum(Mixture(*moved).quantile([level])))
        expected = (ends[0] - ends[1]) / 2e-6
        assert np.sum(gradients[which] * direction) == pytest.approx(expected, rel=1e-6, abs=1e-8)


def test_a_shift_of_all_components_shifts_quantiles_alike() -> None:
    """So that the derivatives in the means sum to one: a gradient of the bisection's ends would, too, but for
    one component each."""
    mean, variance = (tf.constant(part) for part in moments())
    with tf.GradientTape() as tape:
        tape.watch(mean)
        value = Mixture(mean, variance).quantile([0.2])
    gradient = tape.gradient(value, mean)
    np.testing.assert_allclose(np.sum(gradient, 0), np.ones([N, P]), rtol=1e-12)
    assert np.all(gradient > 0.0)


@pytest.mark.parametrize("level", [0.05, 0.7])
def test_second_derivatives_of_quantiles_are_finite_differences(level: float) -> None:
    parts = [part[:, 0, 0] for part in moments((3, 1, 1), seed=8)]
    theta = np.concatenate(parts)

    def gradient(theta: np.ndarray) -> np.ndarray:
        values = tf.constant(theta)
        with tf.GradientTape() as tape:
            tape.watch(values)
            mean, variance = (tf.reshape(part, [3, 1, 1]) for part in tf.split(values, 2))
            value = Mixture(mean, variance).quantile([level])
        return tape.gradient(value, values).numpy()

    values = tf.constant(theta)
    with tf.GradientTape() as outer:
        outer.watch(values)
        with tf.GradientTape() as inner:
            inner.watch(values)
            mean, variance = (tf.reshape(part, [3, 1, 1]) for part in tf.split(values, 2))
            value = Mixture(mean, variance).quantile([level])
        first = inner.gradient(value, values)
    hessian = outer.jacobian(first, values)
    steps = 1e-5 * np.eye(6)
    expected = [(gradient(theta + step) - gradient(theta - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(hessian, expected, rtol=1e-6, atol=1e-8)


BAD_LEVELS = {
    "zero": [0.0],
    "one": [0.5, 1.0],
    "percent": [5, 95],
    "not a number": [np.nan],
    "a number": 0.5,
    "text": ["median"],
    "a truth value": [True],
    "complex": [0.5j],
    "a table": np.full([30, 2], 0.5),
    "ragged": [[0.1], [0.1, 0.2]],
    "none": [],
    "nothing": None,
}


@pytest.mark.parametrize("levels", BAD_LEVELS.values(), ids=BAD_LEVELS.keys())
def test_bad_levels(levels: object) -> None:
    pattern = "levels: got .*, needs numbers strictly between 0 and 1"
    with pytest.raises(ValueError, match=pattern) as raised:
        Mixture(*moments()).quantile(levels)  # type: ignore[arg-type]
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 160


def test_levels_in_any_order_and_type() -> None:
    np.testing.assert_array_equal(check_levels((0.9, 0.1)), [0.9, 0.1])
    np.testing.assert_array_equal(check_levels(np.float32([0.5])), [0.5])


# Draws


def test_draws_have_the_mixtures_distribution() -> None:
    mean, variance = moments((3, 4, P))
    draws = Mixture(mean, variance).sample(20_000, seed=0)
    assert draws.shape == (20_000, 4, P)
    for n, p in itertools.product(range(4), range(P)):
        component = components(mean[:, n, p, None], variance[:, n, p, None])
        result = stats.kstest(draws[:, n, p], lambda y, c=component: np.mean(c.cdf(y), 0))
        assert result.pvalue > FALSE_ALARM / (4 * P)


def test_a_draw_takes_one_component_for_all_outputs_and_its_own_at_each_point() -> None:
    """Of narrow components the draws tell which they are of."""
    num_samples = 2000
    mean = np.arange(3.0).reshape([3, 1, 1]) * np.ones([3, 2, P]) + [[0.0, 10.0], [20.0, 30.0]]
    draws = Mixture(mean, np.full(mean.shape, 1e-10)).sample(num_samples, seed=1).numpy()
    component = np.round(draws - [[0.0, 10.0], [20.0, 30.0]]).astype(int)
    np.testing.assert_array_equal(component[..., 0], component[..., 1])
    counts = np.zeros([3, 3])
    np.add.at(counts, (component[:, 0, 0], component[:, 1, 0]), 1)
    assert stats.chisquare(counts.ravel()).pvalue > FALSE_ALARM


def test_one_seed_gives_the_same_draws_everywhere() -> None:
    mixture = Mixture(*(tf.constant(part) for part in moments()))
    first = mixture.sample(3, seed=5)
    np.testing.assert_array_equal(mixture.sample(3, seed=5), first)
    compiled = tf.function(
        lambda mean, variance: Mixture(mean, variance).sample(3, seed=5), autograph=False
    )
    np.testing.assert_allclose(compiled(*mixture), first, rtol=1e-12)
    assert not np.any(mixture.sample(3, seed=6) == first)
    assert not np.any(mixture.sample(3) == mixture.sample(3))
    with pytest.raises(ValueError, match="num_samples: got 0, needs an integer"):
        mixture.sample(0)


# The continuous ranked probability score


@pytest.mark.parametrize("num_components", [1, 2, 3, 6, 7])
def test_crps_is_the_integral_of_the_squared_difference(num_components: int) -> None:
    mean, variance = moments((num_components, 2, P))
    y = targets((2, P))
    actual = Mixture(mean, variance).crps(y)
    for n, p in itertools.product(range(2), range(P)):
        mixed = components(mean[:, n, p, None], variance[:, n, p, None])
        below, _ = integrate.quad_vec(lambda x, c=mixed: np.mean(c.cdf(x)) ** 2, -12.0, y[n, p])
        above, _ = integrate.quad_vec(lambda x, c=mixed: np.mean(c.sf(x)) ** 2, y[n, p], 12.0)
        assert float(actual[n, p]) == pytest.approx(below + above, rel=1e-7)


def test_crps_is_the_double_sum() -> None:
    """Grimit et al. (2006), every pair of components at once."""
    mean, variance = moments()
    y = targets()

    def absolute(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        z = mean / np.sqrt(variance)
        return 2.0 * np.sqrt(variance) * stats.norm.pdf(z) + mean * (2.0 * stats.norm.cdf(z) - 1.0)

    pairs = absolute(mean[:, None] - mean[None], variance[:, None] + variance[None])
    expected = np.mean(absolute(y - mean, variance), 0) - 0.5 * np.mean(pairs, (0, 1))
    np.testing.assert_allclose(Mixture(mean, variance).crps(y), expected, rtol=1e-12)


def test_crps_of_nearly_certain_predictions_is_the_absolute_error() -> None:
    y = targets()
    actual = Mixture(np.zeros([1, N, P]), np.full([1, N, P], 1e-24)).crps(y)
    np.testing.assert_allclose(actual, np.abs(y), rtol=1e-10)


def test_crps_moves_with_the_scale_and_not_with_a_shift() -> None:
    mean, variance = moments()
    y = targets()
    expected = 3.0 * Mixture(mean, variance).crps(y).numpy()
    actual = Mixture(3.0 * (mean + 5.0), 9.0 * variance).crps(3.0 * (y + 5.0))
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


@pytest.mark.parametrize("method", ["crps", "log_prob", "cdf"])
def test_gradients_of_scores_are_finite_differences(method: str) -> None:
    parts = moments((4, 3, P), seed=3)
    y = targets((3, P))
    tensors = [tf.constant(part) for part in (*parts, y)]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = getattr(Mixture(*tensors[:2]), method)(tensors[2])
    rng = np.random.default_rng(7)
    for which, gradient in enumerate(tape.gradient(value, tensors)):
        direction = rng.normal(size=gradient.shape)
        ends = []
        for sign in (1.0, -1.0):
            moved = [*parts, y]
            moved[which] = moved[which] + sign * 1e-6 * direction
            ends.append(np.sum(getattr(Mixture(*moved[:2]), method)(moved[2])))
        expected = (ends[0] - ends[1]) / 2e-6
        assert np.sum(gradient * direction) == pytest.approx(expected, rel=1e-6, abs=1e-8)


# Types, shapes, compiled functions

METHODS = {
    "moments": lambda mixture, y: mixture.moments()[1],
    "log_prob": lambda mixture, y: mixture.log_prob(y),
    "cdf": lambda mixture, y: mixture.cdf(y),
    "quantile": lambda mixture, y: mixture.quantile([0.1, 0.95]),
    "crps": lambda mixture, y: mixture.crps(y),
    "sample": lambda mixture, y: mixture.sample(3, seed=0),
}
each_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())


@each_method
@pytest.mark.parametrize("batch", [(), (3, 4)])
def test_any_number_of_axes_of_points(method, batch: tuple[int, ...]) -> None:  # type: ignore[no-untyped-def]
    mean, variance = moments((S, *batch, P))
    y = targets((*batch, P))
    actual = method(Mixture(mean, variance), y)
    size = int(np.prod(batch))
    rows = [part.reshape([S, size, P]) for part in (mean, variance)]
    expected = method(Mixture(*rows), y.reshape([size, P]))
    np.testing.assert_allclose(np.reshape(actual, expected.shape), expected, rtol=1e-12)
    if method is not METHODS["log_prob"]:
        assert actual.shape[-1 - len(batch) :] == (*batch, P)
    else:
        assert actual.shape == batch


@each_method
def test_single_precision(method) -> None:  # type: ignore[no-untyped-def]
    mean, variance = moments()
    y = targets()
    single = Mixture(mean.astype(np.float32), variance.astype(np.float32))
    actual, expected = method(single, y), method(Mixture(mean, variance), y)
    assert actual.dtype == tf.float32
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@each_method
def test_in_a_compiled_function_of_unknown_shapes(method) -> None:  # type: ignore[no-untyped-def]
    tensors = [tf.constant(part) for part in (*moments(), targets())]
    signature = [tf.TensorSpec([None] * part.shape.rank, part.dtype) for part in tensors]

    @tf.function(input_signature=signature, autograph=False)
    def compiled(mean: tf.Tensor, variance: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(mean)
            value = method(Mixture(mean, variance), y)
        return value, tape.gradient(value, mean)

    with tf.GradientTape() as tape:
        tape.watch(tensors[0])
        expected = method(Mixture(*tensors[:2]), tensors[2])
    value, gradient = compiled(*tensors)
    np.testing.assert_allclose(value, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(gradient, tape.gradient(expected, tensors[0]), rtol=1e-9, atol=1e-12)


@each_method
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_finite_values_and_gradients_at_any_variance(method, dtype: type) -> None:  # type: ignore[no-untyped-def]
    """Of one component that is nearly certain, one that is wide, and targets that are far away."""
    mean = tf.constant(np.array([[[0.0]], [[1e3]], [[-2.0]]]), dtype)
    variance = tf.constant(np.array([[[1e-12]], [[1e-12]], [[1e8]]]), dtype)
    for y in (0.0, 3e-7, 1e3, -1e7):
        with tf.GradientTape() as tape:
            tape.watch([mean, variance])
            value = method(Mixture(mean, variance), [[y]])
        assert np.all(np.isfinite(value))
        assert all(np.all(np.isfinite(part)) for part in tape.gradient(value, [mean, variance]))


def test_a_mixture_is_a_pair_of_tensors() -> None:
    mixture = Mixture(*(tf.constant(part) for part in moments()))
    mean, variance = tf.function(lambda mixture: mixture, autograph=False)(mixture)
    np.testing.assert_array_equal(mean, mixture.mean)
    np.testing.assert_array_equal(variance, mixture.variance)


def test_lists_and_integers_are_of_gpflows_default_float() -> None:
    actual = Mixture([[[0], [1]]], [[[1], [4]]]).log_prob([[0], [3]])
    assert actual.dtype == gpflow.default_float()
    np.testing.assert_allclose(actual, stats.norm([0.0, 1.0], [1.0, 2.0]).logpdf([0.0, 3.0]))


def test_shapes_that_do_not_fit() -> None:
    mean, variance = moments()
    with pytest.raises(ValueError, match=r"Mixture: got mean \(7, 5, 2\) and variance \(6, 5, 2\)"):
        Mixture(mean, variance[:6]).moments()
    with pytest.raises(ValueError, match=r"Mixture: got mean \(7,\) .* needs \[S, N, P\] each"):
        Mixture(mean[:, 0, 0], variance[:, 0, 0]).moments()
    with pytest.raises(ValueError, match=r"y: got shape \(5,\), needs \(5, 1\)"):
        Mixture(mean[..., :1], variance[..., :1]).log_prob(np.zeros(5))


def test_a_scale_shared_by_the_outputs_is_refused() -> None:
    """It would broadcast."""
    mean, variance = (tf.constant(part) for part in moments())
    with pytest.raises(ShapeMismatchError, match="scale"):
        mixture._lower_quantile(mean, variance[..., :1], tf.constant(0.1, mean.dtype))
