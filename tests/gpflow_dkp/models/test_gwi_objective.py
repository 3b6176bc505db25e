"""GWI's objective by NumPy and beside GPflow's SVGP, its gradient, natural gradients."""

import itertools
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import Gaussian
from gwi_cases import (
    CROSS_JITTER,
    LIKELIHOODS,
    NOISE,
    NUM_DATA,
    PAIRS,
    D,
    N,
    S,
    X,
    Y,
    Z,
    classes,
    kernel_matrix,
    make_model,
    measure,
    pairs,
    prior_mean,
    se,
    svgp_of,
)
from scipy import linalg

from gpflow_dkp.models import GWI
from gpflow_dkp.networks import MultilayerPerceptron
from gpflow_dkp.training import fit
from gpflow_dkp.wasserstein import (
    CrossTerm,
    Eigenvalues,
    Exact,
    Measures,
    Nystrom,
    as_cross_term,
)


def cross_by_numpy(term: CrossTerm, k: np.ndarray, r: np.ndarray, chosen: tuple[int, ...]) -> float:
    """The cross term of one output."""
    size, few = len(k), list(chosen)
    if isinstance(term, Exact):
        root = linalg.sqrtm(k + CROSS_JITTER * np.eye(size))
        middle = linalg.sqrtm(root @ (r + CROSS_JITTER * np.eye(size)) @ root)
        return np.trace(middle).real / size - CROSS_JITTER
    if isinstance(term, Eigenvalues):
        values = np.linalg.eigvals(r[few] @ k[:, few]).real
        return np.sum(np.sqrt(np.maximum(values, 0.0))) / np.sqrt(size * len(few))
    eye = CROSS_JITTER * np.eye(len(few))
    phi_p, phi_q = (
        matrix[:, few] @ np.linalg.inv(np.linalg.cholesky(matrix[np.ix_(few, few)] + eye)).T
        for matrix in (k, r)
    )
    return linalg.svdvals(phi_p.T @ phi_q).sum() / size


def elbo_by_numpy(model: GWI, chosen: tuple[int, ...], kl_weight: float = 1.0) -> float:
    mean, r = measure(model, X)
    variance, k = np.diagonal(r, axis1=1, axis2=2).T, kernel_matrix(X, X)
    m_p = 0.0 if model.prior_mean is None else model.prior_mean(X).numpy()
    expected = -0.5 * np.log(2.0 * np.pi * NOISE) - ((Y - mean) ** 2 + variance) / (2.0 * NOISE)
    squared = 0.0
    for p in range(Y.shape[1]):
        cross = cross_by_numpy(model.cross_term, k, r[p], chosen)
        pointwise = (mean - m_p)[:, p] ** 2 + np.diag(k) + variance[:, p]
        squared += np.mean(pointwise) - 2.0 * cross
    root = np.sqrt(max(squared, 0.0))
    distance = {"squared": squared, "root": root, "published": N * root}[model.distance]
    return NUM_DATA / N * np.sum(expected) - kl_weight * distance


def test_objective_is_no_bound_on_the_evidence() -> None:
    """At the exact posterior the evidence is E[log p(y | f)] - KL, and the distance is less than the KL."""
    targets = Y[:, :1]
    exact = gpflow.models.GPR((X, targets), se(), likelihood=Gaussian(NOISE))
    model = make_model(1, likelihood=Gaussian(NOISE), inducing=X, cross_term="exact")
    model.start_at_sparse_posterior((X, targets), NOISE)
    assert model.elbo((X, targets)) > exact.log_marginal_likelihood() + 1.0
    assert not model.objective_is_bound


@pairs
def test_objective_of_all_points(distance: str, cross_term: str) -> None:
    model = make_model(
        distance=distance, cross_term=cross_term, prior_mean=prior_mean(), num_data=NUM_DATA
    )
    expected = elbo_by_numpy(model, tuple(range(N)))
    assert float(model.elbo((X, Y), seed=0)) == pytest.approx(expected, abs=1e-6)
    model.kl_weight.assign(0.25)
    expected = elbo_by_numpy(model, tuple(range(N)), 0.25)
    assert float(model.elbo((X, Y), seed=1)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("distance", "cross_term"), [*PAIRS[:2], PAIRS[3]])
def test_objective_of_some_points(distance: str, cross_term: str) -> None:
    """Of one of the 56 choices of three points among eight, and of another with another seed."""
    term = as_cross_term(cross_term, S)
    model = make_model(num_data=NUM_DATA, distance=distance, cross_term=term)
    subsets = list(itertools.combinations(range(N), S))
    expected = np.array([elbo_by_numpy(model, subset) for subset in subsets])
    assert np.ptp(expected) > 1e-3
    found = set()
    for seed in range(5):
        errors = np.abs(expected - float(model.elbo((X, Y), seed=seed)))
        assert np.min(errors) < 1e-7
        found.add(int(np.argmin(errors)))
    assert len(found) > 2


def test_objective_repeats_with_its_seed_alone() -> None:
    model = make_model(num_cross_points=S)
    assert float(model.elbo((X, Y), seed=3)) == float(model.elbo((X, Y), seed=3))
    assert len({float(model.elbo((X, Y))) for _ in range(5)}) > 1


@pairs
def test_gradient_of_the_objective_is_the_finite_difference(distance: str, cross_term: str) -> None:
    """Along random directions of all unconstrained parameters."""
    points = None if cross_term == "exact" else S
    model = make_model(distance=distance, cross_term=as_cross_term(cross_term, points))
    variables = model.trainable_variables
    start = [variable.numpy() for variable in variables]
    with tf.GradientTape() as tape:
        bound = model.elbo((X, Y), seed=0)
    gradients = tape.gradient(bound, variables)
    rng = np.random.default_rng(2)
    directions = [rng.normal(size=value.shape) for value in start]

    def at(distance: float) -> float:
        for variable, value, direction in zip(variables, start, directions, strict=True):
            variable.assign(value + distance * direction)
        return float(model.elbo((X, Y), seed=0))

    near, far = at(1e-4) - at(-1e-4), at(2e-4) - at(-2e-4)
    actual = sum(np.sum(g * d) for g, d in zip(gradients, directions, strict=True))
    assert actual == pytest.approx((8.0 * near - far) / 12e-4, rel=1e-5)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_expected_log_likelihood_is_svgps(name: str) -> None:
    """Its bound plus its KL term, of a minibatch."""
    make, targets = LIKELIHOODS[name]
    likelihood = make()
    num_outputs = likelihood.latent_dim or targets.shape[1]
    model = make_model(num_outputs, likelihood=likelihood, num_data=NUM_DATA)
    svgp = svgp_of(model, NUM_DATA)
    expected = float(svgp.elbo((X, targets)) + svgp.prior_kl())
    model.kl_weight.assign(0.0)
    assert float(model.elbo((X, targets))) == pytest.approx(expected, abs=1e-8)


def test_a_mean_enters_the_likelihood_and_the_distance() -> None:
    """Against the mean "svgp" of the same values."""
    base = make_model()
    other = make_model(mean=lambda x: base.predict_f(x, batch_size=None)[0])
    ours, theirs = other.elbo_terms((X, Y), seed=0), base.elbo_terms((X, Y), seed=0)
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)


def test_prior_kl_is_svgps() -> None:
    model = make_model()
    svgp = gpflow.models.SVGP(
        se(), Gaussian(NOISE), Z, q_mu=model.q_mu, q_sqrt=model.q_sqrt, num_latent_gps=2
    )
    assert float(model.prior_kl()) == pytest.approx(float(svgp.prior_kl()), rel=1e-12)
    assert float(make_model(at_prior=True).prior_kl()) == pytest.approx(0.0, abs=1e-12)


def test_default_number_of_outputs() -> None:
    assert GWI(se(), Gaussian(), Z).num_latent_gps == 1
    assert GWI(se(), classes(), Z).num_latent_gps == 3
    assert GWI.net(se(), classes(), Z).num_latent_gps == 3
    assert GWI.net(se(), Gaussian(), Z, num_latent_gps=2).predict_f(X)[0].shape == (N, 2)


def test_training_settings_say_what_the_objective_is() -> None:
    model = make_model(distance="root", cross_term="eigenvalues", num_cross_points=5)
    expected = {"mean": "svgp", "covariance": "svgp", "distance": "root"}
    expected["cross_term"] = "Eigenvalues(num_points=5)"
    assert model.training_settings() == expected
    network = MultilayerPerceptron(D, 2)
    assert make_model(mean=network).training_settings()["mean"] == "MultilayerPerceptron"
    assert make_model(cross_term=Half()).training_settings()["cross_term"] == "Half()"


def test_what_is_not_finite_is_named() -> None:
    model = make_model(mean=lambda x: x / tf.reduce_sum(tf.square(x), 1, keepdims=True))
    # Anything goes at the two points of zeros where a mean is tried out.
    points, seed = np.vstack([X, np.zeros([1, D])]), tf.constant([0, 0])
    assert model.locate_failure(tf.constant(points), seed) == (
        "the mean gives values that are not finite"
    )
    model.q_sqrt.unconstrained_variable.assign_add(
        np.inf * tf.ones_like(model.q_sqrt.unconstrained_variable)
    )
    assert model.locate_failure(tf.constant(X), seed).startswith("the variance r gives")
    assert make_model().locate_failure(tf.constant(X), seed).startswith("every layer is finite")


# Estimates of the distance


class Half(CrossTerm):
    """Half of what r and k would have in common if both were constant."""

    def estimate(self, measures: Measures, seed: tf.Tensor) -> tf.Tensor:
        return 0.5 * tf.reduce_mean(tf.sqrt(measures.prior_variance * measures.variance), 0)


def test_an_estimate_of_ones_own_enters_the_objective() -> None:
    model = make_model(cross_term=Half())
    measures = model.measures(X)
    terms = (measures.mean**2 + measures.prior_variance + measures.variance).numpy()
    both = np.sqrt(measures.prior_variance.numpy() * measures.variance.numpy())
    expected = np.sum(np.mean(terms - both, 0))
    assert float(model.squared_distance(X)) == pytest.approx(expected, rel=1e-12)
    assert float(model.elbo_terms((X, Y), seed=0)[1]) == pytest.approx(-expected, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "term"),
    [("nystrom", Nystrom(S)), ("eigenvalues", Eigenvalues(S)), ("exact", Exact())],
)
def test_an_object_is_its_name(name: str, term: CrossTerm) -> None:
    points = None if name == "exact" else S
    named = make_model(cross_term=name, num_cross_points=points)
    assert named.cross_term == term
    assert float(named.elbo((X, Y), seed=2)) == float(
        make_model(cross_term=term).elbo((X, Y), seed=2)
    )


# Natural gradients


def natural_model(**settings: Any) -> GWI:
    """Without random numbers, and with nothing but the output layer's posterior to train."""
    model = make_model(cross_term="exact", **settings)
    for part in (model.kernel, model.likelihood, model.inducing_variable):
        gpflow.set_trainable(part, False)
    return model


def natural_step(model: GWI, size: float, num_steps: int = 1) -> None:
    settings = {"kl_annealing_steps": 0, "natural_gradient": size, "progress": False}
    fit(model, (X, Y), num_steps=num_steps, **settings)


def covariance(model: GWI) -> np.ndarray:
    return model.q_sqrt.numpy() @ np.swapaxes(model.q_sqrt.numpy(), 1, 2)


@pytest.mark.parametrize("size", [0.1, 0.7])
def test_a_natural_step_is_gpflows(size: float) -> None:
    """Of GWI's objective, whose penalty is the Wasserstein distance and not the layer's divergence."""
    ours, theirs = natural_model(), natural_model()
    natural_step(ours, size)
    optimizer = gpflow.optimizers.NaturalGradient(size)
    optimizer.minimize(lambda: theirs.training_loss((X, Y)), [(theirs.q_mu, theirs.q_sqrt)])
    assert not np.allclose(ours.q_mu, make_model().q_mu, atol=1e-3)
    np.testing.assert_allclose(ours.q_mu, theirs.q_mu, rtol=1e-7)
    np.testing.assert_allclose(covariance(ours), covariance(theirs), rtol=1e-7, atol=1e-9)


def test_natural_steps_raise_the_objective() -> None:
    model = natural_model()
    before = float(model.elbo((X, Y)))
    natural_step(model, 0.3, num_steps=20)
    assert float(model.elbo((X, Y))) > before + 1.0


def test_natural_steps_need_a_posterior_mean() -> None:
    """Another mean has no `q_mu`: refused, or of the covariance alone where it is left trainable."""
    network = MultilayerPerceptron(D, 2, seed=1)
    model = natural_model(mean=network)
    with pytest.raises(ValueError, match=r"the output layer's q_mu is not trainable; set"):
        natural_step(model, 0.1)
    gpflow.set_trainable(network, False)
    gpflow.set_trainable(model.output_layer.q_mu, True)
    before, mean = float(model.elbo((X, Y))), model.predict_f(X)[0].numpy()
    natural_step(model, 0.3, num_steps=20)
    assert float(model.elbo((X, Y))) > before + 0.1
    np.testing.assert_array_equal(model.predict_f(X)[0], mean)
    np.testing.assert_array_equal(model.output_layer.q_mu, 0.0)


def test_the_model_and_its_output_layer_share_their_parts() -> None:
    model = make_model(prior_mean=prior_mean())
    layer = model.output_layer
    for name in ("kernel", "inducing_variable", "q_mu", "q_sqrt", "num_inducing"):
        assert getattr(model, name) is getattr(layer, name)
    assert model.jitter is layer.jitter
    assert model.prior_mean is layer.mean_function
    jitters = {id(part.jitter) for part in (model, *model.submodules) if hasattr(part, "jitter")}
    assert jitters == {id(model.jitter)}


@pytest.mark.parametrize("rows", [slice(None), slice(0, 4)], ids=["all rows", "a batch"])
def test_with_the_kullback_leibler_divergence_it_is_gpflows_bound(rows: slice) -> None:
    model = make_model(distance="kl", num_data=NUM_DATA, prior_mean=prior_mean())
    data = X[rows], Y[rows]
    np.testing.assert_allclose(model.elbo(data), svgp_of(model, NUM_DATA).elbo(data), rtol=1e-10)
    assert model.objective_is_bound
    np.testing.assert_allclose(model.elbo_terms(data)[1], -model.prior_kl(), rtol=0, atol=0)


def test_kullback_leibler_divergence_of_another_mean_is_refused() -> None:
    with pytest.raises(ValueError, match=r"distance: got 'kl' with the mean MultilayerPerceptron"):
        GWI.net(se(), Gaussian(NOISE), Z, num_latent_gps=2, distance="kl")
