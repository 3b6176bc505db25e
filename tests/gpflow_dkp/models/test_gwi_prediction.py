"""GWI's predictions beside GPflow's SVGP, draws, and GPflow's and TensorFlow's tools."""

import copy
from collections.abc import Callable
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Linear, Matern32
from gwi_cases import (
    NUM_DATA,
    XNEW,
    D,
    N,
    S,
    X,
    Y,
    check_joint_moments,
    keras_network,
    kernel_matrix,
    make_model,
    prior_mean,
    se,
    svgp_of,
)

from gpflow_dkp.layers import SparseGP
from gpflow_dkp.networks import MultilayerPerceptron
from gpflow_dkp.wasserstein import as_cross_term

KERNELS: dict[str, Callable] = {
    "ARD": se,
    "Sum": lambda: Matern32(0.7, 1.1, active_dims=[0]) + Linear(0.4),
}


@pytest.mark.parametrize("with_mean", [False, True])
@pytest.mark.parametrize("num_outputs", [1, 2])
@pytest.mark.parametrize("kernel", KERNELS)
def test_predictions_are_svgps(kernel: str, num_outputs: int, with_mean: bool) -> None:
    model = make_model(
        num_outputs, kernel=KERNELS[kernel](), prior_mean=prior_mean() if with_mean else None
    )
    svgp = svgp_of(model)
    pairs = [
        (model.predict_f(XNEW), svgp.predict_f(XNEW)),
        (model.predict_f(XNEW, full_cov=True), svgp.predict_f(XNEW, full_cov=True)),
        (model.predict_y(XNEW), svgp.predict_y(XNEW)),
    ]
    for ours, theirs in pairs:
        for actual, expected in zip(ours, theirs, strict=True):
            assert actual.shape == expected.shape
            np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-8)
    data = X, Y[:, :num_outputs]
    np.testing.assert_allclose(
        model.predict_log_density(data), svgp.predict_log_density(data), rtol=0, atol=1e-8
    )


def test_predictions_in_batches_are_those_of_all_points() -> None:
    model = make_model()
    model.temperature.assign([0.5, 2.0])
    data = XNEW, np.random.default_rng(6).normal(size=(7, 2))
    for method in ("predict_f", "predict_y", "predict_mixture"):
        whole = getattr(model, method)(XNEW, batch_size=None)
        parts = getattr(model, method)(XNEW, batch_size=3)
        for actual, expected in zip(parts, whole, strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-14)
    whole = model.predict_log_density(data, batch_size=None)
    np.testing.assert_allclose(model.predict_log_density(data, batch_size=4), whole, rtol=1e-12)
    assert model.predict_mixture(XNEW)[0].shape == (1, 7, 2)
    values = [
        (model.temper(data, batch_size=size), model.temperature.numpy()) for size in (None, 4)
    ]
    assert values[0][0] == pytest.approx(values[1][0], abs=1e-12)
    np.testing.assert_allclose(values[0][1], values[1][1], rtol=1e-12)


NUM_DRAWS = 7000
"""Show an error of a tenth of a standard deviation in a mean or covariance, but for 1 chance in 1000:
(5.2 + 3.1)^2 (sqrt(2) / 0.14)^2 at the false-alarm rate below, of a product of two normals.
"""


def test_joint_draws_have_the_posteriors_moments() -> None:
    model = make_model(prior_mean=prior_mean())
    model.temperature.assign([0.5, 2.0])
    points = XNEW[:3]
    mean, covariance = (part.numpy() for part in model.predict_f(points, full_cov=True))
    draws = model.predict_f_samples(points, NUM_DRAWS, full_cov=True, seed=0).numpy()
    assert draws.shape == (NUM_DRAWS, 3, 2)
    check_joint_moments(draws, mean, covariance)
    again = model.predict_f_samples(points, NUM_DRAWS, full_cov=True, seed=0)
    np.testing.assert_array_equal(draws, again)
    assert not np.array_equal(
        *(model.predict_f_samples(points, 2, full_cov=True) for _ in range(2))
    )


def test_draws_of_each_point_have_its_moments() -> None:
    model = make_model()
    model.temperature.assign([0.5, 2.0])
    points = XNEW[:3]
    mean, variance = (part.numpy() for part in model.predict_f(points))
    draws = model.predict_f_samples(points, NUM_DRAWS, full_cov=False, seed=0).numpy()
    for point in range(3):
        own = [np.diag(column[[point]]) for column in variance.T]
        check_joint_moments(draws[:, [point]], mean[[point]], np.array(own))


def test_draws_of_the_prior() -> None:
    """Whatever the posterior."""
    model = make_model(prior_mean=prior_mean())
    points = XNEW[:3]
    draws = model.sample_prior(points, NUM_DRAWS, seed=0).numpy()
    mean = np.tile(prior_mean()(points).numpy(), [1, 2])
    covariance = np.tile(kernel_matrix(points, points), [2, 1, 1])
    check_joint_moments(draws, mean, covariance)


def test_full_output_covariances_are_not_available() -> None:
    model = make_model()
    for full_cov in (False, True):
        settings = {"full_cov": full_cov, "full_output_cov": True}
        for call in (model.predict_f, model.predict_f_samples, model.predict_y):
            with pytest.raises(NotImplementedError):
                call(XNEW, **settings)


def test_parameters_have_names(capsys: pytest.CaptureFixture) -> None:
    model = make_model(mean=MultilayerPerceptron(D, 2))
    names = set(gpflow.utilities.parameter_dict(model))
    assert {".temperature", ".likelihood.variance", ".mean.weights[2]", ".mean.offsets[0]"} < names
    parts = ("q_mu", "q_sqrt", "kernel.lengthscales", "inducing_variable.Z")
    assert {f".output_layer.{part}" for part in parts} < names
    gpflow.utilities.print_summary(model, fmt="simple")
    printed = capsys.readouterr().out
    assert ".output_layer.q_sqrt " in printed
    assert ".mean.weights[2] " in printed


def test_parameters_can_be_read_and_assigned() -> None:
    first, second = make_model(), make_model(at_prior=True)
    values = gpflow.utilities.read_values(first)
    gpflow.utilities.multiple_assign(second, values)
    assert float(first.elbo((X, Y), seed=0)) == pytest.approx(float(second.elbo((X, Y), seed=0)))


def test_copy_is_equal_and_independent() -> None:
    model = make_model(num_cross_points=S, distance="root", prior_mean=prior_mean())
    before = float(model.elbo((X, Y), seed=0))
    for copy_of in (copy.deepcopy, gpflow.utilities.deepcopy):
        copied = copy_of(model)
        assert float(copied.elbo((X, Y), seed=0)) == before
        copied.q_mu.assign(copied.q_mu + 1.0)
        copied.temperature.assign([2.0, 2.0])
        assert float(model.elbo((X, Y), seed=0)) == before
        np.testing.assert_array_equal(model.temperature, 1.0)


@pytest.mark.parametrize(
    ("cross_term", "mean"),
    [("nystrom", "keras"), ("eigenvalues", "svgp"), ("exact", "svgp")],
)
def test_compiled_for_batches_of_any_size(cross_term: str, mean: str) -> None:
    """The objective and a prediction at unknown numbers of rows."""
    given = "svgp" if mean == "svgp" else keras_network()
    term = as_cross_term(cross_term, None if cross_term == "exact" else S)
    model = make_model(mean=given, cross_term=term, num_data=NUM_DATA)
    signature = [tf.TensorSpec([None, D], tf.float64), tf.TensorSpec([None, 2], tf.float64)]
    elbo = tf.function(
        lambda x, y: model.elbo((x, y), seed=0), input_signature=signature, autograph=False
    )
    predict = tf.function(model.predict_y, input_signature=signature[:1], autograph=False)
    for size in (4, N):
        expected = float(model.elbo((X[:size], Y[:size]), seed=0))
        assert float(elbo(X[:size], Y[:size])) == pytest.approx(expected, abs=1e-6)
        for actual, value in zip(predict(X[:size]), model.predict_y(X[:size]), strict=True):
            np.testing.assert_allclose(actual, value, rtol=0, atol=1e-6)


def test_saved_model_of_predictions(tmp_path: Path) -> None:
    model = make_model(mean=MultilayerPerceptron(D, 2))
    model.temperature.assign([0.5, 2.0])
    model.compiled = tf.function(
        lambda points: model.predict_y(points),
        input_signature=[tf.TensorSpec([None, D], tf.float64)],
        autograph=False,
    )
    tf.saved_model.save(model, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    for size in (1, 7):
        expected = model.predict_y(XNEW[:size])
        for actual, value in zip(loaded.compiled(XNEW[:size]), expected, strict=True):
            np.testing.assert_allclose(actual, value, rtol=0, atol=1e-9)


def test_predictions_with_a_point_for_each_row_are_the_layers_and_svgps() -> None:
    """Full inducing points; the sparse GP layer alone, and GPflow's SVGP of the same jitter."""
    model = make_model(inducing=X, prior_mean=prior_mean())
    layer = SparseGP(se(), X, 2, mean_function=prior_mean())
    layer.q_mu.assign(model.q_mu)
    layer.q_sqrt.assign(model.q_sqrt)
    svgp = svgp_of(model)
    for full_cov in (False, True):
        of_layer = layer.marginals(tf.constant(XNEW)[None], full_cov=full_cov)
        others = [(moment[0] for moment in of_layer), svgp.predict_f(XNEW, full_cov=full_cov)]
        for other in others:
            ours = model.predict_f(XNEW, full_cov=full_cov)
            for actual, expected in zip(ours, other, strict=True):
                np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-10)


def test_a_posterior_is_left_alone_by_later_training() -> None:
    model = make_model(mean=MultilayerPerceptron(D, 2))
    posterior = model.posterior()
    before = [moment.numpy() for moment in posterior.predict_f(XNEW)]
    for variable in model.trainable_variables:
        variable.assign_add(0.1 * tf.ones_like(variable))
    for actual, expected in zip(posterior.predict_f(XNEW), before, strict=True):
        np.testing.assert_array_equal(actual, expected)
    assert not np.allclose(model.predict_f(XNEW)[0], before[0], atol=1e-3)
