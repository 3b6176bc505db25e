"""LatentVariableLayer: densities of the latent variables, its encoder, and free parameters."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes.exceptions import ShapeMismatchError
from scipy import stats

from gpflow_dkp.layers import Encoder, LatentVariableLayer, Observed
from gpflow_dkp.layers.features.latent_variable import expected_log_ratio, sampled_log_ratio

N, K, D, P, LATENT = 5, 4, 2, 3, 2
FALSE_ALARM = 1e-5
"""Chance that a statistical test of a correct layer fails."""

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(N, D)), RNG.normal(size=(N, P))
MEAN, VARIANCE = RNG.normal(size=(N, LATENT)), RNG.uniform(0.1, 2.0, size=(N, LATENT))
DRAWS = RNG.normal(size=(N, K, LATENT))


def test_sampled_log_ratio_is_the_difference_of_the_log_densities() -> None:
    posterior = stats.norm(MEAN[:, None], np.sqrt(VARIANCE)[:, None])
    expected = np.sum(stats.norm.logpdf(DRAWS) - posterior.logpdf(DRAWS), -1)
    actual = sampled_log_ratio(*map(tf.constant, (DRAWS, MEAN, VARIANCE)))
    assert actual.shape == (N, K)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)


def test_expected_log_ratio_is_minus_the_kl() -> None:
    posterior, prior = (
        tfp.distributions.Normal(loc, scale)
        for loc, scale in [
            (tf.constant(MEAN), tf.constant(np.sqrt(VARIANCE))),
            (tf.zeros([], tf.float64), tf.ones([], tf.float64)),
        ]
    )
    expected = -tf.reduce_sum(tfp.distributions.kl_divergence(posterior, prior), -1)
    actual = expected_log_ratio(tf.constant(MEAN), tf.constant(VARIANCE))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)
    at_prior = expected_log_ratio(tf.zeros([N, 2], tf.float64), tf.ones([N, 2], tf.float64))
    np.testing.assert_allclose(at_prior, np.zeros(N), rtol=0, atol=1e-12)


def with_random_offsets(encoder: Encoder) -> Encoder:
    rng = np.random.default_rng(3)
    for offset in encoder.offsets:
        offset.assign(rng.normal(size=offset.shape))
    return encoder


@pytest.mark.parametrize(
    ("input_dim", "widths", "skips"),
    [
        (3, (4, 4, 5), [False, True, False]),
        (4, (4,), [True]),
        (5, (4, 4, 4), [False, True, True]),
        (3, (), []),
    ],
)
def test_encoder_is_the_network_in_numpy(
    input_dim: int, widths: tuple[int, ...], skips: list[bool]
) -> None:
    """Tanh layers with skips where widths agree; the last is linear, without a skip at any width."""
    encoder = with_random_offsets(Encoder(input_dim, 2, widths=widths, bias=-1.7, seed=1))
    inputs = np.random.default_rng(2).normal(size=(N, input_dim))
    *weights, last = [weight.numpy() for weight in encoder.weights]
    *offsets, last_offset = [offset.numpy() for offset in encoder.offsets]
    hidden = inputs
    for weight, offset, skip in zip(weights, offsets, skips, strict=True):
        value = np.tanh(hidden @ weight + offset)
        hidden = hidden + value if skip else value
    raw = hidden @ last + last_offset
    assert raw.shape == (N, 4)
    mean, variance = encoder(tf.constant(inputs))
    np.testing.assert_allclose(mean, raw[:, :2], rtol=0, atol=1e-12)
    np.testing.assert_allclose(variance, np.exp(raw[:, 2:] - 1.7), rtol=1e-12)


def test_encoder_starts_narrow_and_depends_on_its_seed() -> None:
    inputs = tf.constant(RNG.normal(size=(N, D)))
    first, again, other = (Encoder(D, seed=seed)(inputs) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first[0], again[0])
    assert not np.any(np.isclose(first[0], other[0], rtol=0, atol=1e-6))
    assert first[0].shape == (N, 1)
    assert np.max(first[1]) < 1.0


def test_every_weight_of_the_encoder_is_trained() -> None:
    encoder = with_random_offsets(Encoder(D + P, LATENT, widths=(4, 4)))
    layer = LatentVariableLayer(LATENT, encoder=encoder)
    with tf.GradientTape() as tape:
        mean, variance = layer.latent_posterior(Observed(tf.constant(X), tf.constant(Y)))
        value = tf.reduce_sum(tf.square(mean)) + tf.reduce_sum(variance)
    variables = layer.trainable_variables
    assert len(variables) == 6
    for gradient in tape.gradient(value, variables):
        assert np.any(gradient.numpy() != 0.0)


def test_posterior_is_the_encoder_of_x_and_y_side_by_side() -> None:
    def encoder(XY: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return XY[:, :LATENT], tf.exp(XY[:, -LATENT:])

    layer = LatentVariableLayer(LATENT, encoder=encoder)
    for rows in (None, tf.constant([4, 2, 2, 0, 1])):
        mean, variance = layer.latent_posterior(Observed(tf.constant(X), tf.constant(Y), rows))
        np.testing.assert_array_equal(mean, X)
        np.testing.assert_allclose(variance, np.exp(Y[:, -LATENT:]), rtol=1e-15)


class AffineEncoder(tf.Module):
    """A user's own encoder, of TensorFlow's own variables."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = tf.Variable(RNG.normal(size=(D + P, LATENT)))

    def __call__(self, XY: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return XY @ self.slope, tf.ones([tf.shape(XY)[0], LATENT], XY.dtype)


def test_variables_of_a_users_own_encoder_are_trained() -> None:
    encoder = AffineEncoder()
    layer = LatentVariableLayer(LATENT, encoder=encoder)
    assert [variable.ref() for variable in layer.trainable_variables] == [encoder.slope.ref()]
    with tf.GradientTape() as tape:
        mean, _ = layer.latent_posterior(Observed(tf.constant(X), tf.constant(Y)))
        value = tf.reduce_sum(mean)
    expected = np.repeat(np.hstack([X, Y]).sum(0)[:, None], LATENT, 1)
    np.testing.assert_allclose(tape.gradient(value, encoder.slope), expected, rtol=0, atol=1e-12)


def free_layer() -> LatentVariableLayer:
    layer = LatentVariableLayer(LATENT, num_points=N)
    layer.mean.assign(MEAN)
    layer.variance.assign(VARIANCE)
    return layer


def test_free_parameters_of_the_rows_given() -> None:
    rows = np.array([3, 0, 3])
    mean, variance = free_layer().latent_posterior(
        Observed(tf.constant(X[rows]), tf.constant(Y[rows]), rows)
    )
    np.testing.assert_allclose(mean, MEAN[rows], rtol=1e-14)
    np.testing.assert_allclose(variance, VARIANCE[rows], rtol=1e-14)


def test_free_parameters_of_the_whole_set_need_no_rows() -> None:
    mean, variance = free_layer().latent_posterior(Observed(tf.constant(X), tf.constant(Y)))
    np.testing.assert_allclose(mean, MEAN, rtol=1e-14)
    np.testing.assert_allclose(variance, VARIANCE, rtol=1e-14)


def test_free_parameters_start_apart_and_near_the_priors_mean() -> None:
    layer = LatentVariableLayer(LATENT, num_points=50)
    assert len(np.unique(layer.mean.numpy())) == 50 * LATENT
    assert np.max(np.abs(layer.mean.numpy())) < 0.1
    np.testing.assert_allclose(layer.variance, np.full([50, LATENT], np.exp(-5.0)), rtol=1e-12)
    assert len(layer.trainable_variables) == 2


@pytest.mark.parametrize("num_points", [1, N - 1, N + 1])
def test_points_without_free_parameters_are_refused(num_points: int) -> None:
    unseen = Observed(tf.zeros([num_points, D], tf.float64), tf.zeros([num_points, P], tf.float64))
    pattern = rf"got {num_points} data points, has free parameters for the {N} of the training set"
    with pytest.raises(ValueError, match=pattern) as raised:
        free_layer().latent_posterior(unseen)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "settings", [{}, {"encoder": Encoder(D + P, LATENT), "num_points": N}], ids=["none", "both"]
)
def test_either_an_encoder_or_free_parameters(settings: dict) -> None:
    with pytest.raises(ValueError, match=r"needs an encoder, or num_points .* not both"):
        LatentVariableLayer(LATENT, **settings)


@pytest.mark.parametrize("value", [0, -1, 2.5, "two"])
def test_numbers_that_are_no_positive_integers(value: object) -> None:
    pattern = "got .*, needs an integer of at least 1"
    with pytest.raises(ValueError, match=f"latent_dim: {pattern}"):
        LatentVariableLayer(value, num_points=N)
    with pytest.raises(ValueError, match=f"num_points: {pattern}"):
        LatentVariableLayer(LATENT, num_points=value)
    with pytest.raises(ValueError, match=f"widths.*: {pattern}"):
        Encoder(D, widths=[value])


@pytest.mark.parametrize("num_draws", [1, K])
def test_latent_variables_are_appended_to_the_features(num_draws: int) -> None:
    """Features that all K draws share are repeated; the latent variables come last."""
    features = RNG.normal(size=(N, num_draws, D))
    actual = free_layer().append(tf.constant(features), tf.constant(DRAWS)).numpy()
    assert actual.shape == (N, K, D + LATENT)
    assert free_layer().output_dim_of(D) == D + LATENT
    for n in range(N):
        for k in range(K):
            shared = features[n, 0 if num_draws == 1 else k]
            np.testing.assert_array_equal(actual[n, k], np.concatenate([shared, DRAWS[n, k]]))


def test_latent_variables_of_no_features() -> None:
    actual = free_layer().append(tf.zeros([N, 1, 0], tf.float64), tf.constant(DRAWS))
    np.testing.assert_array_equal(actual, DRAWS)


@pytest.mark.parametrize("of", ["prior_sample", "condition", "jointly"])
def test_draws_append_standard_normals_of_each_point_and_sample(of: str) -> None:
    """The posterior of a point that is not in the training set is the prior; points are independent."""
    features, layer = tf.constant(np.tile(X, [1000, 1, 1])), free_layer()

    def drawn() -> np.ndarray:
        if of == "prior_sample":
            return layer.prior_sample(features, seed=0).numpy()
        full_cov = of == "jointly"
        return layer.condition(layer.sample(), features, seed=0, full_cov=full_cov).numpy()

    sample = drawn()
    assert sample.shape == (1000, N, D + LATENT)
    np.testing.assert_array_equal(sample[..., :D], features)
    latent = sample[..., D:].reshape(1000, -1)
    assert stats.kstest(latent.ravel(), "norm").pvalue > FALSE_ALARM / 2
    products = [latent[:, i] * latent[:, j] for i in range(N * LATENT) for j in range(i)]
    p_values = stats.ttest_1samp(products, 0.0, axis=1).pvalue
    assert np.min(p_values) > FALSE_ALARM / (2 * len(products))
    np.testing.assert_array_equal(sample, drawn())


def test_common_noise_gives_a_point_the_same_whatever_stands_beside_it() -> None:
    layer, features = free_layer(), tf.constant(RNG.normal(size=(1000, N, D)))
    how = {"seed": 1, "common_noise": True}
    together = layer.condition(layer.sample(), features, **how).numpy()
    for which in ([0], [3], [2, 0, 2]):
        part = layer.condition(layer.sample(), tf.gather(features, which, axis=1), **how)
        np.testing.assert_array_equal(part, together[:, which])
    latent = together[..., D:]
    np.testing.assert_array_equal(latent, np.repeat(latent[:, :1], N, 1))
    assert stats.kstest(latent[:, 0].ravel(), "norm").pvalue > FALSE_ALARM


def test_nothing_is_fixed_by_inducing_points() -> None:
    assert float(free_layer().sample(seed=0).log_ratio) == 0.0


def test_it_may_not_come_last() -> None:
    with pytest.raises(
        ValueError, match="LatentVariableLayer has no marginals, needs another layer"
    ):
        free_layer().marginals(tf.constant(X))


def test_parameters_have_the_names_of_gpflows_tools() -> None:
    names = set(gpflow.utilities.parameter_dict(free_layer()))
    assert names == {".mean", ".variance"}
    encoder = LatentVariableLayer(1, encoder=Encoder(D, widths=(3,)))
    names = set(gpflow.utilities.parameter_dict(encoder))
    assert names == {
        f".encoder.{name}[{number}]" for name in ("weights", "offsets") for number in range(2)
    }


def test_an_encoder_that_gives_one_row_for_all_points_is_refused() -> None:
    """It would broadcast."""
    layer = LatentVariableLayer(
        LATENT, encoder=lambda XY: (tf.constant(MEAN[:1]), tf.constant(VARIANCE[:1]))
    )
    with pytest.raises(ShapeMismatchError):
        layer.latent_posterior(Observed(tf.constant(X), tf.constant(Y)))


def test_posterior_distribution_is_normal_of_the_latent_posterior() -> None:
    layer = LatentVariableLayer(LATENT, num_points=N)
    layer.mean.assign(MEAN)
    layer.variance.assign(VARIANCE)
    values = RNG.normal(size=(N, LATENT))
    expected = stats.norm(MEAN, np.sqrt(VARIANCE)).logpdf(values).sum()
    np.testing.assert_allclose(layer.posterior_distribution().log_prob(values), expected)
    rows = tf.constant([3, 1])
    some = layer.posterior_distribution(Observed(tf.constant(X[:2]), tf.constant(Y[:2]), rows))
    np.testing.assert_allclose(some.mean(), MEAN[[3, 1]])
    encoder = with_random_offsets(Encoder(D + P, LATENT))
    amortised = LatentVariableLayer(LATENT, encoder=encoder)
    observed = Observed(tf.constant(X), tf.constant(Y))
    mean, variance = amortised.latent_posterior(observed)
    expected = stats.norm(mean, np.sqrt(variance)).logpdf(values).sum()
    np.testing.assert_allclose(
        amortised.posterior_distribution(observed).log_prob(values), expected
    )
    with pytest.raises(ValueError, match="observed: got None, needs the data points"):
        amortised.posterior_distribution()
