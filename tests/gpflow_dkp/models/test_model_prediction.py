"""Predictions: one mixture of Gaussians behind all of them."""

from typing import ClassVar

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from model_cases import MODELS, D, make_model, regression_data
from scipy import special, stats

from gpflow_dkp.models import DeepKernelProcess

S = 20
models = pytest.mark.parametrize("model", MODELS)
models_with_hidden_layers = pytest.mark.parametrize("model", ["DWP", "DGP", "DIWP"])
depths = pytest.mark.parametrize("depth", [1, 3])

X, Y = regression_data()
XNEW, YNEW = X[:6] + 0.1, Y[:6]


def mixture(model: DeepKernelProcess, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    mean, variance = model.predict_mixture(XNEW, num_samples=S, seed=seed)
    return mean.numpy(), variance.numpy()


@depths
@models
def test_moments_are_the_mixtures(model: str, depth: int) -> None:
    built = make_model(model, depth, num_latent_gps=2)
    mean, variance = mixture(built)
    assert mean.shape == (S if built.hidden_layers else 1, 6, 2)
    y_mean, y_variance = built.predict_y(XNEW, num_samples=S, seed=0)
    np.testing.assert_allclose(y_mean, mean.mean(0), rtol=0, atol=1e-12)
    second = (variance + mean**2).mean(0)
    np.testing.assert_allclose(y_variance, second - mean.mean(0) ** 2, rtol=0, atol=1e-12)
    f_mean, f_variance = built.predict_f(XNEW, num_samples=S, seed=0)
    np.testing.assert_allclose(f_mean, y_mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(f_variance + 0.2, y_variance, rtol=0, atol=1e-12)


@depths
@models
def test_log_density_is_the_mixtures(model: str, depth: int) -> None:
    built = make_model(model, depth)
    mean, variance = mixture(built)
    log_densities = stats.norm(mean, np.sqrt(variance)).logpdf(YNEW)[..., 0]
    expected = special.logsumexp(log_densities, axis=0) - np.log(len(mean))
    actual = built.predict_log_density((XNEW, YNEW), num_samples=S, seed=0)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)


def test_log_density_of_two_outputs_is_joint_given_the_hidden_layers() -> None:
    """The outputs are independent given the hidden layers, not in the mixture."""
    built = make_model("DWP", 2, num_latent_gps=2)
    targets = np.hstack([YNEW, -YNEW])
    mean, variance = mixture(built)
    log_densities = stats.norm(mean, np.sqrt(variance)).logpdf(targets).sum(-1)
    expected = special.logsumexp(log_densities, axis=0) - np.log(S)
    actual = built.predict_log_density((XNEW, targets), num_samples=S, seed=0)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)


@depths
@models
def test_quantiles_invert_the_mixtures_distribution_function(model: str, depth: int) -> None:
    built = make_model(model, depth, num_latent_gps=2)
    levels = [1e-6, 0.025, 0.5, 0.975, 1 - 1e-6]
    quantiles = built.predict_quantiles(XNEW, levels, num_samples=S, seed=0).numpy()
    assert quantiles.shape == (5, 6, 2)
    mean, variance = mixture(built)
    cdf = stats.norm(mean, np.sqrt(variance)).cdf(quantiles[:, None]).mean(1)
    expected = np.broadcast_to(np.reshape(levels, [5, 1, 1]), cdf.shape)
    np.testing.assert_allclose(cdf, expected, rtol=0, atol=1e-12)
    assert np.all(np.diff(quantiles, axis=0) > 0)


def test_quantiles_of_one_component_are_the_normals() -> None:
    built = make_model("DWP", 1)
    mean, variance = built.predict_y(XNEW)
    expected = stats.norm(mean, np.sqrt(variance)).ppf([[[0.1]], [[0.9]]])
    np.testing.assert_allclose(
        built.predict_quantiles(XNEW, [0.1, 0.9]), expected, rtol=0, atol=1e-10
    )


@models_with_hidden_layers
def test_one_seed_gives_one_prediction(model: str) -> None:
    built = make_model(model, 3)

    def predictions(seed: int) -> list[np.ndarray]:
        settings = {"num_samples": S, "seed": seed}
        return [
            *built.predict_f(XNEW, **settings),
            *built.predict_y(XNEW, **settings),
            built.predict_log_density((XNEW, YNEW), **settings),
            built.predict_quantiles(XNEW, [0.3], **settings),
            built.predict_f_samples(XNEW, S, seed=seed),
            built.sample_prior(XNEW, S, seed=seed),
        ]

    for first, again, other in zip(predictions(1), predictions(1), predictions(2), strict=True):
        np.testing.assert_array_equal(first, again)
        assert not np.any(np.equal(first, other))


def test_predictions_repeat_by_default_and_samples_do_not() -> None:
    built = make_model("DWP", 2)
    np.testing.assert_array_equal(*(built.predict_y(XNEW, num_samples=S)[0] for _ in range(2)))
    assert not np.any(np.equal(built.predict_f_samples(XNEW, 3), built.predict_f_samples(XNEW, 3)))
    fresh = [built.predict_y(XNEW, num_samples=S, seed=None)[0] for _ in range(2)]
    assert not np.any(np.equal(*fresh))


@pytest.mark.parametrize("batch_size", [1, 4, 6, 100, None])
def test_batches_without_hidden_layers_change_nothing(batch_size: int | None) -> None:
    built = make_model("DWP", 1)
    for actual, expected in zip(
        built.predict_y(XNEW, batch_size=batch_size), built.predict_y(XNEW), strict=True
    ):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)


@models_with_hidden_layers
def test_batches_see_the_same_inducing_samples(model: str) -> None:
    """Predictions at the inducing points need no noise: there the batches must agree."""
    built = make_model(model, 3, jitter=1e-10)
    Z = built.inducing_variable.Z.numpy()
    whole = built.predict_mixture(Z, num_samples=S, seed=0, batch_size=None)
    parts = built.predict_mixture(Z, num_samples=S, seed=0, batch_size=3)
    # The conditional variance there is the jitter: 1e-5 of standard deviation.
    for actual, expected in zip(parts, whole, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=5e-4)
    assert np.std(whole[0], axis=0).min() > 5e-3


@models_with_hidden_layers
def test_equal_points_of_two_batches_have_one_prediction(model: str) -> None:
    """All points of a sample see one noise, whichever batch they are in."""
    built = make_model(model, 2)
    twice = np.concatenate([XNEW[:2], XNEW[:2]])
    for moment in built.predict_mixture(twice, num_samples=S, seed=0, batch_size=2):
        np.testing.assert_allclose(moment[:, :2], moment[:, 2:], rtol=0, atol=1e-12)


@models
def test_compiled_predictions_are_the_eager_ones(model: str) -> None:
    built = make_model(model, 2)
    compiled = tf.function(
        lambda points: built.predict_y(points, num_samples=S, seed=0), autograph=False
    )
    for actual, expected in zip(
        compiled(tf.constant(XNEW)), built.predict_y(XNEW, num_samples=S, seed=0), strict=True
    ):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("rows", [1, 5])
@models
def test_any_number_of_points(model: str, rows: int) -> None:
    built = make_model(model, 3)
    for value in built.predict_y(XNEW[:rows], num_samples=2):
        assert value.shape == (rows, 1)


@pytest.mark.parametrize("depth", [1, 2, 4])
@models
def test_shapes_of_samples(model: str, depth: int) -> None:
    built = make_model(model, depth, num_latent_gps=2)
    assert built.predict_f_samples(XNEW, 7, seed=0).shape == (7, 6, 2)
    assert built.predict_f_samples(XNEW, 7, seed=0, batch_size=4).shape == (7, 6, 2)
    assert built.sample_prior(XNEW, 7, seed=0).shape == (7, 6, 2)
    assert built.sample_prior(XNEW, seed=0).shape == (1, 6, 2)


def test_samples_without_hidden_layers_are_independent_draws() -> None:
    samples = make_model("DWP", 1).predict_f_samples(XNEW, 5, seed=0).numpy()
    assert len(np.unique(samples)) == samples.size


@models
def test_predictions_in_lower_precision_are_close(model: str) -> None:
    full = make_model(model, 3, jitter=1e-3)
    low = make_model(model, 3, jitter=1e-3, precision="mixed")
    for actual, expected in zip(
        low.predict_y(XNEW, num_samples=S), full.predict_y(XNEW, num_samples=S), strict=True
    ):
        assert actual.dtype == tf.float64
        np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-5)


@models
def test_predictions_do_not_change_the_model(model: str) -> None:
    built = make_model(model, 2)
    before = [variable.numpy() for variable in built.variables]
    built.predict_y(XNEW, num_samples=2)
    built.sample_prior(XNEW, 2)
    for variable, value in zip(built.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_a_likelihood_of_the_inputs_in_parts_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """3 of the 30 rows at a time: five samples of the six points."""
    scale = gpflow.functions.Linear(A=0.3 * np.ones((D, 1)), b=1.5)
    model = make_model("DWP", 2, likelihood=gpflow.likelihoods.Gaussian(scale=scale))
    data = XNEW[:6], np.linspace(-1.0, 1.0, 6)[:, None]
    whole = model.predict_mixture(XNEW[:6], num_samples=5)
    density = model.predict_log_density(data, num_samples=5)
    monkeypatch.setattr("gpflow_dkp.models.sampled_likelihood.LIKELIHOOD_ELEMENTS", 3 * D)
    for part, expected in zip(model.predict_mixture(XNEW[:6], num_samples=5), whole, strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-12)
    assert np.ptp(whole[1].numpy()[0]) > 0.1
    in_parts = model.predict_log_density(data, num_samples=5)
    np.testing.assert_allclose(in_parts, density, rtol=1e-12)


def test_a_monte_carlo_likelihood_in_parts_makes_few_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Softmax(gpflow.likelihoods.Softmax):
        rows: ClassVar[list[int]] = []

        def _conditional_mean(self, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
            self.rows.append(X.shape[0])
            return super()._conditional_mean(X, F)

    likelihood = Softmax(3)
    likelihood.num_monte_carlo_points = 40_000
    model = make_model("DWP", 2, likelihood=likelihood, num_latent_gps=3)
    whole, _ = model.predict_mixture(XNEW[:6], num_samples=5)
    assert max(likelihood.rows) == 40_000 * 30
    likelihood.rows.clear()
    monkeypatch.setattr("gpflow_dkp.models.sampled_likelihood.LIKELIHOOD_ELEMENTS", 40_000 * 4 * 3)
    parts, _ = model.predict_mixture(XNEW[:6], num_samples=5)
    assert max(likelihood.rows) == 40_000 * 4
    np.testing.assert_allclose(tf.reduce_sum(parts, -1), 1.0, rtol=1e-12)
    # All points see the same draws of f, in every part.
    np.testing.assert_allclose(parts, whole, rtol=1e-12)
    # Of the bound they are independent: averages of 40 000 draws over 36 rows.
    data = X, np.digitize(Y, [-0.5, 0.5])
    model.num_samples = 3
    in_parts = float(model.elbo(data, seed=0))
    monkeypatch.undo()
    assert float(model.elbo(data, seed=0)) == pytest.approx(in_parts, abs=0.1)
    assert float(model.elbo(data, seed=0)) != in_parts


def test_quantiles_of_another_likelihood_are_refused() -> None:
    model = make_model("DWP", 2, likelihood=gpflow.likelihoods.StudentT())
    with pytest.raises(ValueError, match="likelihood StudentT, needs Gaussian"):
        model.predict_quantiles(XNEW, [0.5])


@pytest.mark.parametrize("levels", [[0.0, 0.5], [0.5, 1.0], [-0.1], [1.5], [np.nan], 0.5, [[0.5]]])
def test_bad_quantile_levels(levels: list[float]) -> None:
    with pytest.raises(ValueError, match=r"levels: got .* strictly between 0 and 1"):
        make_model("DWP", 2).predict_quantiles(XNEW, levels)


def test_quantile_levels_that_are_no_numbers() -> None:
    with pytest.raises(ValueError, match=r"half"):
        make_model("DWP", 2).predict_quantiles(XNEW, ["half"])


@pytest.mark.parametrize(
    ("method", "argument"),
    [
        ("predict_y", "full_cov"),
        ("predict_log_density", "full_cov"),
        ("predict_f", "full_output_cov"),
        ("predict_y", "full_output_cov"),
        ("predict_log_density", "full_output_cov"),
        ("predict_f_samples", "full_output_cov"),
    ],
)
def test_full_covariances_that_are_refused(method: str, argument: str) -> None:
    model = make_model("DWP", 2)
    data = (XNEW, YNEW) if method == "predict_log_density" else XNEW
    for predictor in (model, model.posterior(num_samples=2)):
        with pytest.raises(NotImplementedError, match=r"full.*(must be False|not available)"):
            getattr(predictor, method)(data, **{argument: True})


@models
def test_prior_samples_in_a_graph_of_any_number_of_points(model: str) -> None:
    built = make_model(model, 3)
    any_number = tf.TensorSpec([None, XNEW.shape[1]], tf.float64)
    compiled = tf.function(
        lambda X: built.sample_prior(X, 3, seed=0), input_signature=[any_number], autograph=False
    )
    expected = built.sample_prior(XNEW, 3, seed=0)
    np.testing.assert_allclose(compiled(XNEW), expected, rtol=1e-9, atol=1e-9)
