"""GWI's Wasserstein distance: limits with known answers, estimates, single precision."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Gaussian
from gwi_cases import (
    CROSS_JITTER,
    CROSS_TERMS,
    D,
    N,
    X,
    Y,
    Z,
    cross_terms,
    kernel_matrix,
    make_model,
    measure,
    pairs,
    prior_mean,
)
from scipy import linalg

from gpflow_dkp.models import GWI
from gpflow_dkp.training import fit
from gpflow_dkp.wasserstein import DISTANCES


class Deficient(SquaredExponential):
    """A squared exponential less 5e-7 on the diagonal: indefinite where two points coincide."""

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        K = super().K(X, X2)
        return K if X2 is not None else K - 5e-7 * tf.eye(tf.shape(X)[0], dtype=K.dtype)


@pytest.mark.parametrize("whole", [False, True])
@cross_terms
def test_prior_is_at_no_distance_from_itself(cross_term: str, whole: bool) -> None:
    """Whatever the prior's mean; also the two roots, whose gradient is finite there.

    But for the Nystrom approximation, which leaves out the jitter of each measure and output.
    """
    settings = {"cross_term": cross_term, "prior_mean": prior_mean(), "at_prior": True}
    model = make_model(**settings)
    points = X if whole else X[:1]
    most = 4.0 * CROSS_JITTER if cross_term == "nystrom" else 1e-10
    assert -1e-10 < float(model.squared_distance(points)) < 1.001 * most
    for distance in ("root", "published"):
        model = make_model(distance=distance, **settings)
        with tf.GradientTape() as tape:
            _, penalty = model.elbo_terms((points, Y[: len(points)]), seed=0)
        assert 0.0 <= -float(penalty) <= len(points) * np.sqrt(1.001 * most)
        gradients = tape.gradient(penalty, model.trainable_variables)
        assert all(np.all(np.isfinite(g)) for g in gradients if g is not None)


@pytest.mark.parametrize("distance", ["root", "published"])
def test_gradient_of_a_root_of_exactly_zero(distance: str) -> None:
    """One point that the inducing points say nothing about, with variance 1: no rounding at all."""
    model = make_model(
        kernel=SquaredExponential(),
        inducing=Z + 100.0,
        cross_term="eigenvalues",
        distance=distance,
        at_prior=True,
    )
    assert float(model.squared_distance(X[:1])) == 0.0
    with tf.GradientTape() as tape:
        _, penalty = model.elbo_terms((X[:1], Y[:1]), seed=0)
    assert float(penalty) == 0.0
    gradients = tape.gradient(penalty, model.trainable_variables)
    assert all(np.all(np.isfinite(g)) for g in gradients if g is not None)


def distance_by_numpy(model: GWI, jitter: float) -> float:
    """|m_P - m_Q|^2 + tr(k + r - 2 (k^{1/2} r k^{1/2})^{1/2}), over N and summed over outputs."""
    mean, covariance = (part.numpy() for part in model.predict_f(X, full_cov=True))
    eye = jitter * np.eye(N)
    k, total = kernel_matrix(X, X) + eye, 0.0
    root = linalg.sqrtm(k)
    for p in range(2):
        r = covariance[p] + eye
        middle = linalg.sqrtm(root @ r @ root).real
        shift = mean[:, p] - prior_mean()(X).numpy()[:, 0]
        total += (shift @ shift + np.trace(k + r - 2.0 * middle)) / N
    return total


def test_exact_distance_is_that_of_the_gaussians_at_the_points() -> None:
    """Of those with the cross term's jitter."""
    model = make_model(cross_term="exact", prior_mean=prior_mean())
    expected = distance_by_numpy(model, CROSS_JITTER)
    assert expected > 0.1
    assert float(model.squared_distance(X)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("scale", [1.0, 1e-3])
@cross_terms
def test_every_distance_at_all_points_is_that_of_the_gaussians(
    cross_term: str, scale: float
) -> None:
    """Of those without jitter; also where Sigma is small and r nearly singular, as after training."""
    model = make_model(cross_term=cross_term, prior_mean=prior_mean())
    model.q_sqrt.assign(scale * model.q_sqrt)
    expected = distance_by_numpy(model, 0.0)
    assert float(model.squared_distance(X)) == pytest.approx(expected, abs=1e-6)


def test_nystrom_distance_is_an_upper_bound() -> None:
    exact = float(make_model(cross_term="exact").squared_distance(X))
    gaps = []
    for size in (1, 3, N):
        model = make_model(num_cross_points=size)
        gaps += [float(model.squared_distance(X, seed=seed)) - exact for seed in range(3)]
    assert min(gaps) > -1e-9
    assert max(gaps) > 0.1
    assert max(gaps[-3:]) < 10.0 * CROSS_JITTER


def test_nystrom_distance_in_single_precision() -> None:
    """That of double precision, also with repeated rows and a variance that is nearly all explained."""
    x = np.random.default_rng(0).normal(size=[100, 1])
    x[50:60] = x[:10]

    def distance(dtype: type) -> float:
        with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
            points = x.astype(dtype)
            model = GWI.net(SquaredExponential(), Gaussian(0.1), points[:10], num_cross_points=50)
            model.start_at_sparse_posterior((points, np.sin(points)), 0.1)
            with tf.GradientTape() as tape:
                squared = model.squared_distance(points)
            gradient = tape.gradient(squared, model.q_sqrt.unconstrained_variable)
            assert np.all(np.isfinite(gradient))
            return float(squared)

    assert distance(np.float32) == pytest.approx(distance(np.float64), abs=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cross_terms_jitter_grows_with_the_models(dtype: type) -> None:
    """By which `fit` repeats a step whose factorisation fails; in single precision it is above rounding."""
    with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
        model = GWI(SquaredExponential(), Gaussian(0.1), Z.astype(dtype))
        measures = model.measures(Z.astype(dtype))
        before = float(measures.cross_jitter(100))
        assert before == pytest.approx(max(1e-10, 100 * np.finfo(dtype).eps), rel=1e-5)
        model.jitter.assign(1e3 * model.jitter)
        assert float(model.measures(Z.astype(dtype)).cross_jitter(100)) == pytest.approx(
            1e3 * before, rel=1e-5
        )


def test_distance_does_not_see_the_order_of_the_points() -> None:
    order = np.random.default_rng(3).permutation(N)
    for cross_term in CROSS_TERMS:
        model = make_model(cross_term=cross_term)
        shuffled = float(model.squared_distance(X[order]))
        assert shuffled == pytest.approx(float(model.squared_distance(X)), abs=1e-6)


@pairs
def test_duplicate_rows_have_finite_gradients(distance: str, cross_term: str) -> None:
    """Among the points, the inducing points and both; at random parameters and at the prior."""
    rows = [0, 0, 1, 1, 1, 2, 3, 4]
    data = X[rows], Y[rows]
    for at_prior in (False, True):
        model = make_model(
            distance=distance,
            cross_term=cross_term,
            inducing=X[[0, 0, 1, 5]],
            at_prior=at_prior,
        )
        with tf.GradientTape() as tape:
            bound = model.elbo(data, seed=0)
        gradients = tape.gradient(bound, model.trainable_variables)
        assert np.isfinite(bound)
        assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


def test_spectrum() -> None:
    """Of r k / N^2 over all points, the largest first; of 100 points at most, or as many as asked for."""
    model = make_model()
    _, r = measure(model, X)
    expected = [
        np.sort(np.linalg.eigvals(one @ kernel_matrix(X, X) / N**2).real)[::-1] for one in r
    ]
    spectrum = model.spectrum(X).numpy()
    np.testing.assert_allclose(spectrum, expected, rtol=0, atol=1e-9)
    many = np.random.default_rng(0).normal(size=[120, D])
    assert model.spectrum(many).shape == (2, 100)
    assert make_model(num_cross_points=7).spectrum(many).shape == (2, 7)
    assert model.spectrum(many, 9).shape == make_model(cross_term="exact").spectrum(many, 9).shape
    assert model.spectrum(many, 9).shape == (2, 9)
    first, second = (make_model(num_cross_points=2).spectrum(X, seed=seed) for seed in (0, 1))
    assert not np.allclose(first, second)


def test_more_cross_points_than_a_batch_of_unknown_size() -> None:
    model = make_model(num_cross_points=5)
    elbo = tf.function(
        model.elbo, autograph=False, input_signature=[(tf.TensorSpec([None, D], tf.float64),) * 2]
    )
    assert np.isfinite(elbo((X[:5], Y[:5])))
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"got 5 for the cross term of a batch of fewer rows"
    ):
        elbo((X[:4], Y[:4]))


@cross_terms
def test_distance_of_a_failed_factorisation_is_no_number(cross_term: str) -> None:
    """Rather than an error, so that `fit` can repeat the step with more jitter; roots too."""
    for distance in DISTANCES:
        model = make_model(cross_term=cross_term, distance=distance)
        model.jitter.assign(-10.0)
        assert np.isnan(model.squared_distance(X))
        assert np.isnan(model.elbo_terms((X, Y), seed=0)[1])


@pytest.mark.parametrize("mean", ["net", "svgp"])
def test_training_in_single_precision_by_defaults(mean: str) -> None:
    """Of clusters so near to each other that factorisations fail."""
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        rng = np.random.default_rng(0)
        inputs = rng.uniform(-2.0, 2.0, size=(300, 2)).astype(np.float32)
        noise = 0.1 * rng.normal(size=(300, 1))
        targets = (np.sin(2.0 * inputs[:, :1]) + noise).astype(np.float32)
        model = GWI.from_data(inputs, targets, mean=mean)
        history = fit(model, (inputs, targets), num_steps=50, kl_annealing_steps=0, progress=False)
        assert np.all(np.isfinite(history.elbo))
        assert history.elbo[-1] > history.elbo[0]


def test_a_failed_step_is_repeated_with_more_jitter() -> None:
    """Two inducing points in one place of a kernel that is indefinite without it."""
    model = make_model(kernel=Deficient(), inducing=X[[0, 0, 1, 5]], jitter=1e-7, at_prior=True)
    gpflow.set_trainable(model.inducing_variable, False)
    history = fit(model, (X, Y), num_steps=2, progress=False)
    assert history.recoveries == [0, 1]
    assert np.all(np.isfinite(history.elbo))
    assert float(model.jitter) == 1e-7


def test_measures_of_one_mean_for_all_outputs_are_refused() -> None:
    """They would broadcast."""
    model = make_model()
    measures = model.measures(X)
    measures = measures._replace(mean=measures.mean[:, :1])
    with pytest.raises(ShapeMismatchError, match="mean"):
        measures.squared_distance(model.cross_term, tf.constant([0, 0]))
