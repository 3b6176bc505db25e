"""BartlettLaw: moments, density and entropy against SciPy's chi, generalised gamma and normal."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from scipy import stats
from wishart_reference import bartlett_log_prob, bartlett_sample, parameters, standard_parameters

from gpflow_dkp.distributions import BartlettFactor, BartlettLaw
from gpflow_dkp.distributions.bartlett_law import root_gamma_moments

PI = Fraction(31415926535897932384626433832795028841971693993751058209749445923, 10**64)


def exact_moments(a: int) -> tuple[float, float]:
    """Of sqrt(Gamma(a, 1)), in rational numbers: Gamma(a + 1/2) / Gamma(a) = a C(2a, a) sqrt(pi) / 4^a."""
    square = PI * a * a * Fraction(comb(2 * a, a) ** 2, 16**a)
    return float(square) ** 0.5, float(a - square)


def law_of(P: int, df: int) -> BartlettLaw:
    return BartlettLaw(*(tf.constant(value) for value in parameters(P, df)))


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-12), (np.float32, 3e-5)])
def test_root_gamma_moments_at_integers(dtype: type, rtol: float) -> None:
    """On both sides of where the continued fraction starts, and where a - m^2 has no digits left."""
    a = [1, 2, 3, 4, 5, 9, 10, 11, 20, 100, 1000, 20_000]
    mean, variance = root_gamma_moments(tf.constant(a, dtype))
    assert mean.dtype == variance.dtype == dtype
    expected = np.array([exact_moments(value) for value in a])
    np.testing.assert_allclose(mean, expected[:, 0], rtol=rtol)
    np.testing.assert_allclose(variance, expected[:, 1], rtol=rtol)


@pytest.mark.parametrize("dtype", [tf.float64, tf.float32])
def test_root_gamma_moments_pass_smoothly_through_the_start_of_the_fraction(
    dtype: tf.DType,
) -> None:
    start = {tf.float64: 10.0, tf.float32: 4.0}[dtype]
    a = tf.constant([np.nextafter(start, 0.0), start * (1.0 + 1e-6)], dtype)
    for moment in root_gamma_moments(a):
        np.testing.assert_allclose(moment[0], moment[1], rtol=3e-5 if dtype == tf.float32 else 1e-6)


@pytest.mark.parametrize("width", [10, 2000, 200_000])
def test_variance_of_a_wide_factor_in_single_precision(width: int) -> None:
    """T_jj is chi with width - j + 1 degrees of freedom; the variance is near 1/2 at any width."""
    factor = BartlettFactor(width, 3, dtype=tf.float32)
    chi = stats.chi(width - np.arange(3))
    variance, mean = factor.variance(), factor.mean()
    assert variance.dtype == mean.dtype == tf.float32
    np.testing.assert_allclose(np.diag(variance), chi.var(), rtol=3e-5)
    np.testing.assert_allclose(np.diag(mean), chi.mean(), rtol=3e-6)


def test_gradients_of_root_gamma_moments() -> None:
    a = np.array([1e-3, 0.3, 2.0, 9.99, 10.01, 30.0, 1e4])
    tensor = tf.constant(a)
    for i in range(2):
        with tf.GradientTape() as tape:
            tape.watch(tensor)
            value = root_gamma_moments(tensor)[i]
        step = 1e-5 * a
        up, down = root_gamma_moments(a + step)[i], root_gamma_moments(a - step)[i]
        np.testing.assert_allclose(
            tape.gradient(value, tensor), (up - down) / (2 * step), rtol=1e-6, atol=1e-10
        )


@pytest.mark.parametrize(("P", "df"), [(1, 1), (3, 5), (5, 3)])
def test_law_against_scipy(P: int, df: int) -> None:
    """T_jj is a generalised gamma with power 2."""
    law, p = law_of(P, df), min(P, df)
    diagonals = [
        stats.gengamma(a, 2.0, scale=b**-0.5)
        for a, b in zip(law.concentration.numpy(), law.rate.numpy(), strict=True)
    ]
    below = np.tri(P, p, -1, dtype=bool)
    mean, variance = (np.where(below, m, 0.0) for m in (law.loc, np.square(law.scale)))
    mean[range(p), range(p)] = [d.mean() for d in diagonals]
    variance[range(p), range(p)] = [d.var() for d in diagonals]
    np.testing.assert_allclose(law.mean(), mean, rtol=1e-12)
    np.testing.assert_allclose(law.variance(), variance, rtol=1e-11)
    entropy = sum(d.entropy() for d in diagonals)
    entropy += sum(stats.norm(0.0, s).entropy() for s in law.scale.numpy()[below])
    np.testing.assert_allclose(law.entropy(), entropy, rtol=0, atol=1e-11)
    log_mean = [d.expect(np.log) for d in diagonals]
    np.testing.assert_allclose(law.mean_log_diagonal(), log_mean, rtol=0, atol=1e-8)
    third, fourth = law.diagonal_cumulants()
    skewness, kurtosis = np.array([d.stats("sk") for d in diagonals]).T
    spread = np.diag(law.variance())
    np.testing.assert_allclose(third, skewness * spread**1.5, rtol=0, atol=1e-10)
    np.testing.assert_allclose(fourth, kurtosis * spread**2, rtol=0, atol=1e-10)
    T = bartlett_sample(P, p)
    expected = bartlett_log_prob(T, parameters(P, df))
    np.testing.assert_allclose(law.log_prob(T), expected, rtol=0, atol=1e-11)


def test_law_is_that_of_the_factor() -> None:
    """Also for a batch, and for the default parameters; and what is not used has no gradient."""
    for factor in (
        BartlettFactor(3, 4, *parameters(4, 3, batch=(2,))),
        BartlettFactor(3, 4),
        BartlettFactor(tf.constant([4.5, 7.0], tf.float64), 4),
    ):
        batch = factor.batch_shape
        assert factor.mean().shape == factor.variance().shape == [*batch, 4, factor.rank]
        assert factor.entropy().shape == batch
        np.testing.assert_array_equal(factor.mean(), factor.law.mean())
        T = factor.sample(3, seed=0)
        np.testing.assert_array_equal(factor.log_prob(T), factor.law.log_prob(T))
    np.testing.assert_allclose(
        BartlettFactor(3, 4).entropy(), BartlettFactor(3, 4, *standard_parameters(4, 3)).entropy()
    )
    # Zeros on and above the diagonal of scale, as a layer may have them.
    law = law_of(4, 3)
    scale = tf.constant(np.tril(law.scale, -1))
    with tf.GradientTape() as tape:
        tape.watch(scale)
        masked = law._replace(scale=scale)
        values = masked.entropy() + masked.log_prob(bartlett_sample(4, 3))
    np.testing.assert_array_equal(masked.entropy(), law.entropy())
    np.testing.assert_array_equal(np.triu(tape.gradient(values, scale)), np.zeros((4, 3)))


def test_a_concentration_shared_by_the_columns_is_refused() -> None:
    """It would broadcast, and count once in the entropy's sum."""
    law = law_of(4, 3)
    with pytest.raises(ShapeMismatchError, match="concentration"):
        law._replace(concentration=law.concentration[:1]).entropy()
