"""What the output layer can be: with a mean function, kernels and precisions of each output."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.functions import Constant, Linear
from gpflow.kernels import SeparateIndependent, SharedIndependent, SquaredExponential
from gpflow.likelihoods import Gaussian, Poisson
from model_cases import MODELS, D, M, make_model, regression_data, scatter

from gpflow_dkp.gram import KernelNotComputableFromGram
from gpflow_dkp.models import DWP, DeepKernelProcess, LatentVariableDGP

X, Y = regression_data()
XNEW, YNEW = X[:5] + 0.1, Y[:5]
Z = np.random.default_rng(1).uniform(-2.0, 2.0, size=(M, D))
BOTH = np.hstack([Y, np.cos(X[:, :1])])


# Mean functions

MEANS = {
    "Constant": lambda: Constant([1.7]),
    "Linear": lambda: Linear(A=[[0.6], [-1.1]], b=[0.4]),
}


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Constant", "DWP"),
        ("Linear", "DWP"),
        ("Linear", "DGP"),
        ("Linear", "DIWP"),
        ("Linear", "NNGP"),
    ],
)
def test_a_mean_function_is_training_on_what_it_leaves(name: str, kind: str, depth: int) -> None:
    """Bound, gradient of all that both have, predictions, draws."""
    mean_function = MEANS[name]()
    with_mean = make_model(kind, depth, mean_function=mean_function)
    without = make_model(kind, depth)
    rest, rest_new = (Y - mean_function(X)).numpy(), (YNEW - mean_function(XNEW)).numpy()

    variables = without.trainable_variables
    with tf.GradientTape() as tape:
        expected = without.elbo((X, rest), seed=0)
    of_rest = tape.gradient(expected, variables)
    of_mean = {v.ref() for v in mean_function.trainable_variables}
    others = [v for v in with_mean.trainable_variables if v.ref() not in of_mean]
    with tf.GradientTape() as tape:
        actual = with_mean.elbo((X, Y), seed=0)
    gradient, of_function = tape.gradient(actual, [others, list(mean_function.trainable_variables)])
    assert float(actual) == pytest.approx(float(expected), abs=1e-9)
    for ours, theirs in zip(gradient, of_rest, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8)
    assert all(np.any(np.abs(part) > 1e-3) for part in of_function)

    moved = mean_function(XNEW).numpy()
    settings = {"num_samples": 5, "seed": 0}
    for full_cov in (False, True):
        mean, variance = with_mean.predict_f(XNEW, full_cov=full_cov, **settings)
        plain, plain_variance = without.predict_f(XNEW, full_cov=full_cov, **settings)
        np.testing.assert_allclose(mean, plain + moved, rtol=0, atol=1e-10)
        np.testing.assert_allclose(variance, plain_variance, rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        with_mean.predict_log_density((XNEW, YNEW), **settings),
        without.predict_log_density((XNEW, rest_new), **settings),
        rtol=0,
        atol=1e-9,
    )
    for method in ("predict_f_samples", "sample_prior"):
        ours, theirs = (getattr(m, method)(XNEW, 3, seed=1) for m in (with_mean, without))
        np.testing.assert_allclose(ours, theirs + moved, rtol=0, atol=1e-10)


def test_a_mean_function_of_each_output() -> None:
    mean_function = Linear(A=np.array([[0.5, -0.2], [0.3, 1.0]]), b=np.array([1.0, 2.0]))
    with_mean = make_model("DWP", 2, num_latent_gps=2, mean_function=mean_function)
    without = make_model("DWP", 2, num_latent_gps=2)
    bound = float(without.elbo((X, BOTH - mean_function(X)), seed=0))
    assert float(with_mean.elbo((X, BOTH), seed=0)) == pytest.approx(bound, abs=1e-9)


@pytest.mark.parametrize("kind", MODELS)
def test_from_data_starts_at_what_the_mean_function_leaves(kind: str) -> None:
    settings = {"num_inducing": 4}
    mean_function = Linear(A=[[0.6], [-1.1]], b=[0.4])
    with_mean = MODELS[kind].from_data(X, Y, mean_function=mean_function, **settings)
    centres = with_mean.inducing_variable.Z
    plain = MODELS[kind].from_data(X, Y, **settings)
    expected = plain.output_layer.v - mean_function(centres)
    np.testing.assert_allclose(with_mean.output_layer.v, expected, rtol=0, atol=1e-12)


# Kernels of each output


def two_kernels() -> list[SquaredExponential]:
    return [
        SquaredExponential(variance=1.3, lengthscales=0.9),
        SquaredExponential(variance=0.4, lengthscales=2.0),
    ]


def one_layer(kernel: gpflow.kernels.Kernel, num_outputs: int, **settings) -> DWP:  # type: ignore[no-untyped-def]
    settings = {"num_latent_gps": num_outputs, "widths": [], **settings}
    return DWP([kernel], Gaussian(0.2), Z, **settings)


@pytest.mark.parametrize("shared_precision", [True, False])
def test_separate_kernels_are_models_of_each_output(shared_precision: bool) -> None:
    """One layer: bound, predictions and full covariance."""
    kernels = two_kernels()
    kernel = SeparateIndependent(two_kernels())
    both = scatter(one_layer(kernel, 2, shared_precision=shared_precision))
    layer, bound = both.output_layer, 0.0
    for p in range(2):
        alone = one_layer(kernels[p], 1)
        alone.output_layer.v.assign(layer.v[:, p : p + 1])
        tril = layer.precision_tril if shared_precision else layer.precision_tril[p]
        alone.output_layer.precision_tril.assign(tril)
        bound += float(alone.elbo((X, BOTH[:, p : p + 1])))
        for full_cov in (False, True):
            own = alone.predict_f(XNEW, full_cov=full_cov)
            mean, variance = both.predict_f(XNEW, full_cov=full_cov)
            np.testing.assert_allclose(mean[:, p], own[0][:, 0], rtol=0, atol=1e-10)
            ours = variance[p] if full_cov else variance[:, p]
            theirs = own[1][0] if full_cov else own[1][:, 0]
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10)
    assert float(both.elbo((X, BOTH))) == pytest.approx(bound, abs=1e-9)
    prior = both.sample_prior(XNEW, 6000, seed=0).numpy()
    for p in range(2):
        # 5 standard errors: a false alarm for one seed in 20 000 of 30 comparisons.
        K = kernels[p](XNEW).numpy()
        error = 5.0 * np.sqrt((np.outer(np.diag(K), np.diag(K)) + K**2) / 6000)
        moments = prior[..., p].T @ prior[..., p] / 6000
        assert np.all(np.abs(moments - K) < error + 1e-5)


@pytest.mark.parametrize("kind", ["DWP", "DGP", "DIWP"])
def test_separate_kernels_that_agree_are_one_kernel_in_deep_models(kind: str) -> None:
    """And `SharedIndependent` is the kernel itself."""

    def build(wrap) -> DeepKernelProcess:  # type: ignore[no-untyped-def]
        kernels = [SquaredExponential(lengthscales=0.8), wrap(SquaredExponential)]
        widths = {} if kind == "DIWP" else {"widths": [3]}
        model = MODELS[kind](kernels, Gaussian(0.2), Z, num_latent_gps=2, num_samples=3, **widths)
        return scatter(model)

    plain = build(lambda kernel: kernel(lengthscales=1.4))
    bound = float(plain.elbo((X, BOTH), seed=0))
    moments = [plain.predict_f(XNEW, full_cov=c, num_samples=5) for c in (False, True)]
    for wrap in (
        lambda kernel: SeparateIndependent([kernel(lengthscales=1.4), kernel(lengthscales=1.4)]),
        lambda kernel: SharedIndependent(kernel(lengthscales=1.4), output_dim=2),
    ):
        other = build(wrap)
        assert float(other.elbo((X, BOTH), seed=0)) == pytest.approx(bound, abs=1e-8)
        for full_cov, expected in zip((False, True), moments, strict=True):
            found = other.predict_f(XNEW, full_cov=full_cov, num_samples=5)
            for ours, theirs in zip(found, expected, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)
        assert other.predict_f_samples(XNEW, 4, seed=0).shape == (4, 5, 2)
        assert other.sample_prior(XNEW, 4, seed=0).shape == (4, 5, 2)


def test_kernels_of_outputs_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"^kernel: got SeparateIndependent of 2 kernels") as error:
        one_layer(SeparateIndependent(two_kernels()), 3)
    assert "\n" not in str(error.value)
    mixing = gpflow.kernels.LinearCoregionalization(two_kernels(), W=np.ones((2, 2)))
    with pytest.raises(KernelNotComputableFromGram, match="mixes outputs"):
        DWP([SquaredExponential(), mixing], Gaussian(), Z, widths=[2], num_latent_gps=2)
    with pytest.raises(ValueError, match=r"kernel.*mixes outputs") as error:
        one_layer(mixing, 2)
    assert "\n" not in str(error.value)
    for position in (0, 1):
        kernels = [SquaredExponential(), SquaredExponential()]
        kernels[position] = SeparateIndependent(two_kernels())
        kernels.append(SquaredExponential())
        with pytest.raises(ValueError, match=r"SeparateIndependent") as error:
            DWP(kernels, Gaussian(), Z, widths=[2, 2])
        assert "\n" not in str(error.value)


# Precisions of each output


def climb(model: DeepKernelProcess, data: tuple) -> float:
    """The bound at an optimum of the output layer's `v` and Lambda."""
    layer = model.output_layer
    variables = [p.unconstrained_variable for p in (layer.v, layer.precision_tril)]
    loss = tf.function(model.training_loss_closure(data, compile=False), autograph=False)
    gpflow.optimizers.Scipy().minimize(loss, variables, options={"maxiter": 100})
    return float(model.elbo(data))


def test_precisions_of_each_output_reach_at_least_the_shared_ones_bound() -> None:
    """Counts of one output are large, and say more of its function."""
    counts = np.hstack([np.round(40.0 + 20.0 * Y), (Y > 0.3).astype(float)])
    settings = {"widths": [], "num_latent_gps": 2}
    shared, separate = (
        DWP([SquaredExponential()], Poisson(), Z[:2], shared_precision=on, **settings)
        for on in (True, False)
    )
    assert separate.output_layer.precision_tril.shape == (2, 2, 2)
    best = climb(shared, (X, counts))
    separate.output_layer.v.assign(shared.output_layer.v)
    separate.output_layer.precision_tril.assign(
        np.tile(shared.output_layer.precision_tril, [2, 1, 1])
    )
    assert float(separate.elbo((X, counts))) == pytest.approx(best, abs=1e-8)
    assert climb(separate, (X, counts)) > best + 0.1


# From data


@pytest.mark.parametrize("kind", MODELS)
def test_from_data_takes_a_kernel_object(kind: str) -> None:
    """Each layer gets a copy of its own, as it is."""
    kernel = gpflow.kernels.Matern32(variance=0.7, lengthscales=1.3)
    gpflow.set_trainable(kernel.variance, False)
    model = MODELS[kind].from_data(X, Y, depth=3, num_inducing=4, kernel=kernel)
    assert len(model.kernels) == 3
    for own in model.kernels:
        assert isinstance(own, gpflow.kernels.Matern32)
        assert own is not kernel
        assert own.lengthscales.numpy() == pytest.approx(1.3, abs=1e-12)
        assert not own.variance.trainable
    assert len({id(own) for own in model.kernels}) == 3
    model.kernels[1].lengthscales.assign(2.0)
    assert kernel.lengthscales.numpy() == pytest.approx(1.3, abs=1e-12)
    assert np.isfinite(model.elbo((X, Y), seed=0))
    summed = gpflow.kernels.Linear() + gpflow.kernels.White(0.1)
    model = MODELS[kind].from_data(X, Y, num_inducing=4, kernel=summed)
    assert np.isfinite(model.elbo((X, Y), seed=0))


def test_from_data_takes_a_kernel_object_for_latent_variables() -> None:
    kernel = gpflow.kernels.Matern32(variance=0.7, lengthscales=1.3)
    model = LatentVariableDGP.from_data(X, Y, num_inducing=4, kernel=kernel)
    for layer in model.layers[1:]:
        assert isinstance(layer.kernel, gpflow.kernels.Matern32)
        assert layer.kernel is not kernel
        assert layer.kernel.variance.trainable
        assert layer.kernel.lengthscales.numpy() == pytest.approx(1.3, abs=1e-12)
    assert model.layers[1].kernel is not model.layers[2].kernel
    assert np.isfinite(model.elbo((X, Y), seed=0))
    relu = LatentVariableDGP.from_data(X, Y, num_inducing=4, kernel="relu")
    assert isinstance(relu.output_layer.kernel, gpflow.kernels.ArcCosine)


@pytest.mark.parametrize("kernel", ["rbf", None, SquaredExponential, 3.0, ["relu"]])
@pytest.mark.parametrize("kind", [*MODELS, "LatentVariableDGP"])
def test_from_data_of_what_is_no_kernel(kind: str, kernel: object) -> None:
    cls = MODELS.get(kind, LatentVariableDGP)
    with pytest.raises(ValueError, match=r"^kernel: got .*, choose one of squared_exp") as error:
        cls.from_data(X, Y, num_inducing=4, kernel=kernel)
    assert "\n" not in str(error.value)


# The start


def one_dimensional() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    inputs = np.sort(rng.uniform(-2.0, 2.0, size=(100, 1)), 0)
    return inputs, np.sin(3.0 * inputs) + 0.1 * rng.normal(size=(100, 1))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("DWP", {"posterior": "gw"}),
        ("DWP", {"posterior": "a-gw", "width": 5}),
        ("DWP", {"posterior": "ab-gw"}),
        ("DWP", {"posterior": "ab-gw", "width": 20}),
        ("DWP", {"kernel": "relu"}),
        ("DGP", {}),
        ("DGP", {"width": 5}),
        ("DIWP", {}),
    ],
)
def test_no_layer_starts_far_below_its_prior(kind: str, settings: dict) -> None:
    """On one feature with 50 inducing points, whose covariance is singular but for the jitter."""
    inputs, targets = one_dimensional()
    model = MODELS[kind].from_data(inputs, targets, depth=3, num_inducing=50, **settings)
    num_entries = 50 * (50 if kind == "DIWP" else settings.get("width", 1))
    for draw in model.sample_layers(10, 0):
        assert float(tf.reduce_min(draw.log_ratio)) > -10.0 * num_entries
