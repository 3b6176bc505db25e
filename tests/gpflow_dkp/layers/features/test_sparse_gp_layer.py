"""SparseGP: one layer is GPflow's SVGP; joint draws, their gradients, and draws from the prior."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes.exceptions import ShapeMismatchError
from gpflow.inducing_variables import InducingPoints, SharedIndependentInducingVariables
from gpflow.kernels import LinearCoregionalization, SquaredExponential
from gpflow.likelihoods import Gaussian
from gpflow.models import SVGP
from scipy import stats

from gpflow_dkp.layers import SparseGP

D, M, L, P = 2, 5, 3, 4
FALSE_ALARM = 1e-5
"""Chance that a statistical test of a correct layer fails."""

RNG = np.random.default_rng(0)
Z = RNG.uniform(-2.0, 2.0, size=(M, D))
Q_MU = RNG.normal(size=(M, L))
Q_SQRT = np.tril(0.4 * RNG.normal(size=(L, M, M)), -1)
Q_SQRT += np.eye(M) * RNG.uniform(0.3, 1.2, size=(L, M, 1))
W = RNG.normal(size=(P, L))
FEATURES = RNG.uniform(-2.0, 2.0, size=(6, 3, D))

whitenings = pytest.mark.parametrize("whiten", [True, False])
projections = pytest.mark.parametrize("projected", [False, True])


def make_kernel() -> SquaredExponential:
    return SquaredExponential(variance=1.3, lengthscales=[0.7, 1.4])


def make_mean() -> gpflow.functions.Linear:
    rng = np.random.default_rng(1)
    return gpflow.functions.Linear(A=rng.normal(size=(D, P)), b=rng.normal(size=P))


def make_layer(whiten: bool, projected: bool = False) -> SparseGP:
    """Every parameter away from its start."""
    settings = {"mean_function": make_mean(), "projection": W} if projected else {}
    layer = SparseGP(make_kernel(), Z, L, whiten=whiten, **settings)
    layer.q_mu.assign(Q_MU)
    layer.q_sqrt.assign(Q_SQRT)
    return layer


def joint(layer: SparseGP, features: tf.Tensor, seed: int, own_gradient: bool = False) -> tf.Tensor:
    """A draw of one function for the points of each sample."""
    how = {"seed": seed, "full_cov": True, "own_gradient": own_gradient}
    return layer.condition(layer.sample(), features, **how)


def alone(layer: SparseGP, features: tf.Tensor, seed: int) -> tf.Tensor:
    """A draw of each point on its own."""
    return layer.condition(layer.sample(), features, seed=seed)


def make_svgp(whiten: bool, projected: bool = False) -> SVGP:
    kernel, inducing, mean = make_kernel(), InducingPoints(Z), None
    if projected:
        kernel = LinearCoregionalization([kernel] * L, W)
        inducing, mean = SharedIndependentInducingVariables(inducing), make_mean()
    return SVGP(
        kernel,
        Gaussian(),
        inducing,
        mean_function=mean,
        num_latent_gps=L,
        q_mu=Q_MU,
        q_sqrt=Q_SQRT,
        whiten=whiten,
    )


@projections
@whitenings
def test_marginals_are_svgps(whiten: bool, projected: bool) -> None:
    mean, variance = make_layer(whiten, projected).marginals(tf.constant(FEATURES))
    svgp_mean, svgp_variance = make_svgp(whiten, projected).predict_f(FEATURES.reshape(-1, D))
    shape = (6, 3, P if projected else L)
    np.testing.assert_allclose(mean, np.reshape(svgp_mean, shape), rtol=0, atol=1e-8)
    np.testing.assert_allclose(variance, np.reshape(svgp_variance, shape), rtol=0, atol=1e-8)


@whitenings
def test_jitter_is_added_to_the_inducing_covariance(whiten: bool) -> None:
    """A jitter that shows, given to the layer and by GPflow's configuration."""
    layer = make_layer(whiten)
    layer.jitter.assign(0.05)
    with gpflow.config.as_context(gpflow.config.Config(jitter=0.05)):
        svgp = make_svgp(whiten)
        expected = [*svgp.predict_f(FEATURES[0]), svgp.prior_kl()]
    actual = [*layer.marginals(tf.constant(FEATURES[0])), layer.prior_kl()]
    for ours, theirs in zip(actual, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-8)


def test_variance_is_positive_where_rounding_would_take_it_below_zero() -> None:
    layer = SparseGP(make_kernel(), Z, L, q_sqrt_scale=1e-9)
    layer.jitter.assign(0.0)
    _, variance = layer.marginals(tf.constant(Z))
    assert np.all(variance.numpy() > 0.0)
    assert np.all(variance.numpy() < 1e-8)


@whitenings
def test_prior_kl_is_svgps(whiten: bool) -> None:
    expected = float(make_svgp(whiten).prior_kl())
    assert float(make_layer(whiten).prior_kl()) == pytest.approx(expected, abs=1e-8)


@whitenings
def test_prior_kl_vanishes_at_the_prior_only(whiten: bool) -> None:
    layer = SparseGP(make_kernel(), Z, L, whiten=whiten)
    if not whiten:
        covariance = make_kernel()(Z).numpy() + gpflow.default_jitter() * np.eye(M)
        layer.q_sqrt.assign(np.tile(np.linalg.cholesky(covariance), [L, 1, 1]))
    assert float(layer.prior_kl()) == pytest.approx(0.0, abs=1e-9)
    layer.q_mu.assign(np.full([M, L], 0.1))
    assert float(layer.prior_kl()) > 1e-3


def covariances(features: np.ndarray, whiten: bool) -> tuple[np.ndarray, np.ndarray]:
    """SVGP's means [N, K, L] and covariances [N, L, K, K] over the K features of each point."""
    svgp = make_svgp(whiten)
    moments = [svgp.predict_f(point, full_cov=True) for point in features]
    means, covs = zip(*moments, strict=True)
    return np.stack(means), np.stack(covs)


@pytest.mark.parametrize(("whiten", "projected"), [(True, True), (True, False), (False, False)])
def test_whole_covariances_are_svgps(whiten: bool, projected: bool) -> None:
    """[S, P, N, N], its diagonal the variances; with a projection that of the latent GPs, mixed."""
    layer, svgp = make_layer(whiten, projected), make_svgp(whiten, projected)
    features = FEATURES[:2]
    mean, covariance = layer.marginals(tf.constant(features), full_cov=True)
    assert covariance.shape == (2, P if projected else L, 3, 3)
    for point, ours, own in zip(features, mean, covariance, strict=True):
        svgp_mean, svgp_covariance = svgp.predict_f(point, full_cov=True)
        np.testing.assert_allclose(ours, svgp_mean, rtol=0, atol=1e-8)
        np.testing.assert_allclose(own, svgp_covariance, rtol=0, atol=1e-8)
    variance = layer.marginals(tf.constant(features))[1]
    diagonal = np.swapaxes(tf.linalg.diag_part(covariance), 1, 2)
    np.testing.assert_allclose(diagonal, variance, rtol=0, atol=1e-10)


@whitenings
def test_factor_of_own_gradients_is_of_svgps_covariance(whiten: bool) -> None:
    layer, features = make_layer(whiten), tf.constant(FEATURES)
    draw = layer.sample()
    _, covariance = layer.marginals(features, draw, full_cov=True)
    tril = tf.linalg.cholesky(covariance + layer.jitter * tf.eye(3, dtype=tf.float64))
    own = layer._own_tril(features, draw, covariance, tril).numpy()
    np.testing.assert_array_equal(own, np.tril(own))
    _, svgp_covariance = covariances(FEATURES, whiten)
    actual = own @ own.swapaxes(-1, -2) - gpflow.default_jitter() * np.eye(3)
    np.testing.assert_allclose(actual, svgp_covariance, rtol=0, atol=1e-8)


@whitenings
def test_log_ratio_of_the_draw_is_minus_the_prior_kl(whiten: bool) -> None:
    layer = make_layer(whiten)
    assert float(layer.sample().log_ratio) == pytest.approx(-float(layer.prior_kl()), abs=1e-12)
    given = layer.marginals(tf.constant(FEATURES), layer.sample())
    for ours, own in zip(given, layer.marginals(tf.constant(FEATURES)), strict=True):
        np.testing.assert_array_equal(ours, own)


@projections
def test_common_noise_gives_a_point_the_same_whatever_stands_beside_it(projected: bool) -> None:
    """And the law of its marginals."""
    layer, features = make_layer(True, projected), tf.constant(np.tile(FEATURES[0], [4000, 1, 1]))
    draw, how = layer.sample(), {"seed": 5, "common_noise": True}
    together = layer.condition(draw, features, **how).numpy()
    for which in ([0], [2], [1, 0], [2, 2, 1]):
        part = layer.condition(draw, tf.gather(features, which, axis=1), **how)
        np.testing.assert_allclose(part, together[:, which], rtol=0, atol=1e-12)
    mean, variance = make_svgp(True, projected).predict_f(FEATURES[0])
    deviation = together - mean.numpy()
    p_values = [
        stats.ttest_1samp(deviation, 0.0).pvalue,
        stats.ttest_1samp(deviation**2, variance.numpy()).pvalue,
    ]
    assert min(p.min() for p in p_values) > FALSE_ALARM / sum(p.size for p in p_values)


def test_draws_jointly_and_by_common_noise_at_once_are_refused() -> None:
    layer, both = make_layer(True), {"seed": 0, "full_cov": True, "common_noise": True}
    for draw_at in (
        lambda: layer.condition(layer.sample(), tf.constant(FEATURES), **both),
        lambda: layer.condition_copies(layer.sample(), tf.constant(FEATURES[0]), 4, **both),
    ):
        with pytest.raises(ValueError, match="common_noise: got True with full_cov=True"):
            draw_at()


@projections
@pytest.mark.parametrize("num_points", [1, 3])
@pytest.mark.parametrize("how", [{}, {"common_noise": True}, {"full_cov": True}])
def test_copies_of_points_are_drawn_as_one_by_one(
    how: dict[str, bool], num_points: int, projected: bool
) -> None:
    layer, X = make_layer(True, projected), tf.constant(FEATURES[0, :num_points])
    expected = layer.condition(layer.sample(), tf.tile(X[None], [4, 1, 1]), seed=5, **how)
    copies = layer.condition_copies(layer.sample(), X, 4, seed=5, **how)
    np.testing.assert_allclose(copies, expected, rtol=0, atol=1e-12)


@projections
def test_joint_draws_have_svgps_mean_and_covariance(projected: bool) -> None:
    """Whitened by SVGP's moments the draws of f are independent standard normals."""
    features = np.random.default_rng(3).uniform(-2.0, 2.0, size=(10, 3, D))
    rows = np.tile(features, [200, 1, 1])
    draws = joint(make_layer(True, projected), tf.constant(rows), 1).numpy()
    if projected:
        draws = draws - make_mean()(tf.constant(rows)).numpy()
        # f lies in the L directions of W, which give back the latent GPs.
        latent = draws @ np.linalg.pinv(W).T
        np.testing.assert_allclose(latent @ W.T, draws, rtol=0, atol=1e-8)
        draws = latent
    mean, covariance = covariances(features, whiten=True)
    tril = np.linalg.cholesky(covariance + gpflow.default_jitter() * np.eye(3))
    deviation = draws.reshape(200, 10, 3, L) - mean
    white = np.linalg.solve(tril, deviation.transpose(0, 1, 3, 2)[..., None])[..., 0]
    assert stats.kstest(white.ravel(), "norm").pvalue > FALSE_ALARM / 2
    # The products of different whitened values have mean zero: no correlation is missing.
    vectors = white.reshape(-1, L * 3)
    products = [vectors[:, i] * vectors[:, j] for i in range(L * 3) for j in range(i)]
    p_values = stats.ttest_1samp(products, 0.0, axis=1).pvalue
    assert np.min(p_values) > FALSE_ALARM / (2 * len(products))


def test_points_are_drawn_independently() -> None:
    """The samples of one point share a function, those of two points do not."""
    twice = tf.constant(np.repeat(FEATURES[:1], 2, 0))
    first, second = joint(make_layer(True), twice, 0).numpy()
    assert np.min(np.abs(first - second)) > 1e-4


@projections
@whitenings
def test_own_gradient_leaves_the_draw(whiten: bool, projected: bool) -> None:
    layer, features = make_layer(whiten, projected), tf.constant(FEATURES)
    draws = [joint(layer, features, 2, own) for own in (False, True)]
    np.testing.assert_allclose(draws[1], draws[0], rtol=0, atol=1e-10)


OUTPUTS = 2
"""Columns of f whose Jacobian is looked at."""


def jacobian(layer: SparseGP, features: np.ndarray, own_gradient: bool) -> np.ndarray:
    """d f[n, k, p] / d features[m, j, d]: [N, K, OUTPUTS, N, K, D]."""
    points = tf.constant(features)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(points)
        draw = joint(layer, points, 2, own_gradient)[..., :OUTPUTS]
    return tape.jacobian(draw, points, experimental_use_pfor=False).numpy()


def differences(layer: SparseGP, features: np.ndarray) -> np.ndarray:
    """`jacobian` by central differences of the draw."""
    step = 1e-5
    columns = []
    for place in np.ndindex(features.shape):
        move = np.zeros(features.shape)
        move[place] = step
        above, below = (
            joint(layer, tf.constant(features + sign * move), 2).numpy()[..., :OUTPUTS]
            for sign in (1, -1)
        )
        columns.append((above - below) / (2.0 * step))
    stacked = np.stack(columns, -1)
    return stacked.reshape(*stacked.shape[:-1], *features.shape)


@pytest.mark.parametrize(("whiten", "projected"), [(True, True), (False, False)])
def test_own_gradient_reaches_the_features_of_its_own_sample_alone(
    whiten: bool, projected: bool
) -> None:
    """Against finite differences of the draw, whose other samples' features do matter."""
    layer, features = make_layer(whiten, projected), FEATURES[:2]
    expected = differences(layer, features)
    np.testing.assert_allclose(jacobian(layer, features, False), expected, rtol=0, atol=1e-6)
    own = np.einsum("nm,kj->nkmj", np.eye(2), np.eye(3))[:, :, None, :, :, None]
    actual = jacobian(layer, features, True)
    np.testing.assert_array_equal(actual * (1.0 - own), np.zeros(actual.shape))
    np.testing.assert_allclose(actual * own, expected * own, rtol=0, atol=1e-6)
    np.testing.assert_allclose(
        actual * own, jacobian(layer, features, False) * own, rtol=0, atol=1e-9
    )
    # The other samples' features shape the draw, so that there is something to stop.
    assert np.max(np.abs(expected * (1.0 - own))) > 0.1


@projections
def test_one_sample_a_point_is_a_draw_of_the_marginal(projected: bool) -> None:
    """With K = 1 joint and independent draws are one, with mean and variance of `marginals`."""
    layer = make_layer(True, projected)
    features = tf.constant(np.tile(FEATURES[:2, :1], [2000, 1, 1]))
    draws = joint(layer, features, 3)
    assert draws.shape == (4000, 1, P if projected else L)
    np.testing.assert_array_equal(draws, alone(layer, features, 3))
    mean, variance = (moment.numpy() for moment in layer.marginals(features))
    white = ((draws - mean) / np.sqrt(variance)).numpy()
    assert stats.kstest(
        white.ravel() if not projected else white[..., 0].ravel(), "norm"
    ).pvalue > (FALSE_ALARM)


@whitenings
def test_joint_draws_at_one_input_are_one_value(whiten: bool) -> None:
    """Up to the jitter, whose standard deviation is 0.001; independent draws are not."""
    layer = make_layer(whiten)
    features = tf.constant(np.repeat(FEATURES[:, :1], 4, 1))
    jointly = joint(layer, features, 4).numpy()
    independent = alone(layer, features, 4).numpy()
    assert np.max(np.ptp(jointly, axis=1)) < 0.01
    assert np.min(np.ptp(independent, axis=1)) > 0.02


@projections
def test_independent_draws_are_of_the_marginals(projected: bool) -> None:
    """Draws of f without their correlations: each has SVGP's mean and variance."""
    rows = tf.constant(np.tile(FEATURES[:2], [3000, 1, 1]))
    draws = alone(make_layer(True, projected), rows, 5).numpy()
    mean, variance = make_svgp(True, projected).predict_f(FEATURES[:2].reshape(-1, D))
    deviation = draws.reshape(3000, 6, -1) - mean.numpy()
    p_values = [
        stats.ttest_1samp(deviation, 0.0).pvalue,
        stats.ttest_1samp(deviation**2, variance.numpy()).pvalue,
        stats.ttest_1samp(deviation[:, :3] * deviation[:, [1, 2, 0]], 0.0).pvalue,
    ]
    assert min(p.min() for p in p_values) > FALSE_ALARM / sum(p.size for p in p_values)


def test_prior_samples_at_one_input_are_one_value() -> None:
    layer = make_layer(True, projected=True)
    features = np.repeat(FEATURES[:, :1], 4, 1)
    draws = layer.prior_sample(tf.constant(features), seed=6).numpy()
    assert draws.shape == (6, 4, P)
    assert np.max(np.ptp(draws, axis=1)) < 0.05
    assert np.min(np.ptp(draws, axis=0)) > 0.05


@projections
def test_prior_samples_have_the_kernels_covariance(projected: bool) -> None:
    """Cov f = W W^T (x) K about the mean function, whatever q is."""
    layer, points = make_layer(True, projected), FEATURES[0]
    draws = layer.prior_sample(tf.constant(np.tile(points, [4000, 1, 1])), seed=7).numpy()
    mean = make_mean()(tf.constant(points)).numpy() if projected else 0.0
    vectors = (draws - mean).transpose(0, 2, 1).reshape(4000, -1)
    outputs = W @ W.T if projected else np.eye(L)
    jittered = make_kernel()(points).numpy() + gpflow.default_jitter() * np.eye(3)
    expected = np.kron(outputs, jittered)
    products = vectors[:, :, None] * vectors[:, None, :]
    p_values = stats.ttest_1samp(products, expected).pvalue
    assert np.min(p_values) > FALSE_ALARM / expected.size


def test_a_kernel_is_needed() -> None:
    with pytest.raises(ValueError, match="kernel: got str, needs a GPflow kernel"):
        SparseGP("rbf", Z, L)


@pytest.mark.parametrize("shape", [(P, L + 1), (L,), (P, L, 1)])
def test_projection_needs_a_column_for_each_latent_gp(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=rf"projection: got shape .*needs \[P, {L}\]"):
        SparseGP(make_kernel(), Z, L, projection=np.ones(shape))


@pytest.mark.parametrize("num_latent_gps", [0, -1, 1.5, True])
def test_bad_number_of_latent_gps(num_latent_gps: object) -> None:
    with pytest.raises(ValueError, match=r"num_latent_gps: got .*, needs an integer of at least 1"):
        SparseGP(make_kernel(), Z, num_latent_gps)


@pytest.mark.parametrize("scale", [0.0, -1.0, np.inf, np.nan])
def test_bad_scale_of_q_sqrt(scale: float) -> None:
    with pytest.raises(ValueError, match=r"q_sqrt_scale: got .*, needs a positive finite number"):
        SparseGP(make_kernel(), Z, L, q_sqrt_scale=scale)


def test_features_without_samples_are_refused() -> None:
    layer = make_layer(True)
    with pytest.raises(ShapeMismatchError, match="features"):
        layer.prior_sample(tf.constant(FEATURES[0]), seed=0)


@whitenings
def test_posterior_distribution_is_of_the_inducing_values(whiten: bool) -> None:
    """Its moments are those of SVGP at Z, its divergence from the prior the layer's."""
    layer = make_layer(whiten)
    Q = layer.posterior_distribution()
    assert Q.event_shape == (L, M)
    svgp = SVGP(
        make_kernel(), Gaussian(), Z, num_latent_gps=L, whiten=whiten, q_mu=Q_MU, q_sqrt=Q_SQRT
    )
    mean, covariance = svgp.predict_f(Z, full_cov=True)
    np.testing.assert_allclose(Q.mean(), np.transpose(mean), atol=3e-5)  # SVGP's Z has no jitter
    of_each = Q.distribution
    np.testing.assert_allclose(of_each.covariance(), covariance, atol=3e-5)
    K = make_kernel()(Z).numpy() + layer.jitter.numpy() * np.eye(M)
    prior = tfp.distributions.MultivariateNormalTriL(np.zeros(M), np.linalg.cholesky(K))
    divergence = tf.reduce_sum(tfp.distributions.kl_divergence(of_each, prior))
    np.testing.assert_allclose(divergence, layer.prior_kl(), rtol=1e-8)
