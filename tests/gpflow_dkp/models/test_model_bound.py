"""The bound of deep models: limits, gradients, shapes of every kind, likelihoods, precision."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods
from gpflow.kernels import IsotropicStationary, Matern12, SquaredExponential
from model_cases import MODELS, D, M, gradient_of, make_kernels, make_model, regression_data

from gpflow_dkp import gram, parallel
from gpflow_dkp.layers import InputInverseWishart, InverseWishartLayer, WishartLayer
from gpflow_dkp.models import DGP, DWP, DeepKernelProcess

models = pytest.mark.parametrize("model", MODELS)
models_with_hidden_layers = pytest.mark.parametrize("model", ["DWP", "DGP", "DIWP"])


def check_finite_bound_and_gradient(model: DeepKernelProcess, data: tuple) -> None:
    elbo = model.elbo(data, seed=0)
    assert elbo.shape == ()
    assert np.isfinite(elbo)
    for variable, gradient in zip(model.trainable_variables, gradient_of(model, data), strict=True):
        assert gradient is not None, variable.name
        assert np.all(np.isfinite(gradient)), variable.name


@pytest.mark.parametrize(
    ("model", "depth", "width", "posterior"),
    [
        ("DWP", 1, 3, "ab-gw"),
        ("DWP", 2, 1, "gw"),
        ("DWP", 2, 7, "a-gw"),
        ("DWP", 3, 4, "ab-gw"),
        ("DWP", 4, 2, "ab-gw"),
        ("DWP", 4, 6, "gw"),
        ("DGP", 1, 3, None),
        ("DGP", 3, 2, None),
        ("DGP", 4, 7, None),
        ("DIWP", 1, None, None),
        ("DIWP", 4, None, None),
        ("NNGP", 1, None, None),
        ("NNGP", 4, None, None),
    ],
)
def test_every_depth_and_width(
    model: str, depth: int, width: int | None, posterior: str | None
) -> None:
    settings = {} if posterior is None else {"posterior": posterior}
    built = make_model(model, depth, width=width or 3, **settings)
    # The deep inverse Wishart process has one more, on the inputs; the NNGP none.
    num_hidden = {"DIWP": depth, "NNGP": 0}.get(model, depth - 1)
    assert len(built.hidden_layers) == num_hidden
    check_finite_bound_and_gradient(built, regression_data())
    mean, variance = built.predict_y(regression_data()[0][:5], num_samples=4)
    assert mean.shape == variance.shape == (5, 1)
    assert np.all(variance > 0)


def test_layers_of_different_widths() -> None:
    Z = regression_data()[0][:M]
    for model in (DWP, DGP):
        built = model(make_kernels(3), likelihoods.Gaussian(), Z, widths=[2, 6])
        assert [layer.width for layer in built.hidden_layers] == [2, 6]
        check_finite_bound_and_gradient(built, regression_data())


LIKELIHOODS = {
    "Gaussian": (lambda: likelihoods.Gaussian(0.2), 1, lambda y: y),
    "Gaussian of two outputs": (lambda: likelihoods.Gaussian(0.2), 2, lambda y: np.hstack([y, -y])),
    "StudentT": (lambda: likelihoods.StudentT(scale=0.5, df=4.0), 1, lambda y: y),
    "Bernoulli": (lambda: likelihoods.Bernoulli(), 1, lambda y: (y > 0).astype(float)),
    "Bernoulli of integer labels": (
        lambda: likelihoods.Bernoulli(),
        1,
        lambda y: (y > 0).astype(np.int64),
    ),
    "Poisson": (lambda: likelihoods.Poisson(), 1, lambda y: np.floor(np.exp(y))),
    "Poisson of integer counts": (
        lambda: likelihoods.Poisson(),
        1,
        lambda y: np.floor(np.exp(y)).astype(np.int64),
    ),
    "MultiClass": (
        lambda: likelihoods.MultiClass(3),
        3,
        lambda y: np.digitize(y, [-0.5, 0.5]).astype(np.int64),
    ),
    "MultiClass of float labels": (
        lambda: likelihoods.MultiClass(3),
        3,
        lambda y: np.digitize(y, [-0.5, 0.5]).astype(float),
    ),
    "Softmax": (
        lambda: likelihoods.Softmax(3),
        3,
        lambda y: np.digitize(y, [-0.5, 0.5]).astype(np.int64),
    ),
    "HeteroskedasticTFPConditional": (
        lambda: likelihoods.HeteroskedasticTFPConditional(),
        2,
        lambda y: y,
    ),
}


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_every_likelihood(name: str) -> None:
    make, num_latent_gps, target = LIKELIHOODS[name]
    X, Y = regression_data()
    Y = target(Y)
    model = make_model("DWP", 2, likelihood=make(), num_latent_gps=num_latent_gps)
    check_finite_bound_and_gradient(model, (X, Y))
    columns = 3 if "Softmax" in name or "MultiClass" in name else Y.shape[1]
    mean, variance = model.predict_y(X[:5], num_samples=4)
    assert mean.shape == variance.shape == (5, columns)
    assert np.all(np.isfinite(mean))
    assert np.all(variance > 0)
    mean, variance = model.predict_f(X[:5], num_samples=4)
    assert mean.shape == variance.shape == (5, num_latent_gps)
    density = model.predict_log_density((X[:5], Y[:5]), num_samples=4)
    assert density.shape == (5,)
    assert np.all(np.isfinite(density))
    assert model.predict_f_samples(X[:5], 4, seed=0).shape == (4, 5, num_latent_gps)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_one_seed_gives_one_bound(name: str) -> None:
    make, num_latent_gps, target = LIKELIHOODS[name]
    X, Y = regression_data()
    data = (X, target(Y))
    model = make_model("DWP", 2, likelihood=make(), num_latent_gps=num_latent_gps)
    first = float(model.elbo(data, seed=1))
    assert float(model.elbo(data, seed=1)) == first
    assert float(model.elbo(data, seed=2)) != first


@models_with_hidden_layers
def test_no_seed_gives_a_fresh_draw(model: str) -> None:
    built, data = make_model(model), regression_data()
    assert float(built.elbo(data)) != float(built.elbo(data))
    assert float(built.training_loss(data)) != float(built.training_loss(data))
    tf.random.set_seed(3)
    first = float(built.training_loss(data))
    tf.random.set_seed(3)
    assert (
        first
        == float(built.training_loss(data))
        == -float(_after_set_seed(lambda: built.maximum_log_likelihood_objective(data)))
    )


def _after_set_seed(function):  # type: ignore[no-untyped-def]
    tf.random.set_seed(3)
    return function()


@models
def test_gradient_is_that_of_finite_differences(model: str) -> None:
    """Of every parameter but those that gamma draws depend on, which have no pathwise derivative."""
    built, data = make_model(model, 3), regression_data()
    of_gammas = [
        getattr(layer, name).unconstrained_variable.ref()
        for layer in built.hidden_layers
        for name in ("alpha", "delta", "gamma")
        if hasattr(layer, name)
    ]
    gradients = gradient_of(built, data)
    rng = np.random.default_rng(4)
    step = 1e-5
    bound = tf.function(lambda: built.elbo(data, seed=0), autograph=False)
    for variable, gradient in zip(built.trainable_variables, gradients, strict=True):
        if variable.ref() in of_gammas:
            continue
        direction, start = rng.normal(size=variable.shape), variable.numpy()
        variable.assign(start + step * direction)
        above = float(bound())
        variable.assign(start - step * direction)
        below = float(bound())
        variable.assign(start)
        numerical = (above - below) / (2 * step)
        analytic = float(tf.reduce_sum(direction * gradient))
        assert analytic == pytest.approx(numerical, rel=2e-6, abs=2e-6), variable.name


@models_with_hidden_layers
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_kl_is_zero_where_posterior_is_prior(model: str, depth: int) -> None:
    for log_ratio in ("expected", "sampled"):
        built = make_model(model, depth, width=3, log_ratio=log_ratio)
        _set_to_prior(built)
        assert float(built.prior_kl(seed=0)) == pytest.approx(0.0, abs=1e-8)
        # With no KL the bound is the expected log-likelihood under the prior.
        data_term, _ = built.elbo_terms(regression_data(), seed=0)
        elbo = float(built.elbo(regression_data(), seed=0))
        assert elbo == pytest.approx(float(data_term), abs=1e-8)


@pytest.mark.parametrize("log_ratio", ["expected", "sampled"])
def test_equal_precisions_of_a_deep_gps_functions_are_a_shared_one(log_ratio: str) -> None:
    settings: dict[str, Any] = {"width": 3, "num_latent_gps": 2, "log_ratio": log_ratio}
    shared, separate = (
        make_model("DGP", 3, shared_precision=value, **settings) for value in (True, False)
    )
    rng = np.random.default_rng(0)
    for layer, like in zip(separate.layers, shared.layers, strict=True):
        like.precision_tril.assign(np.tril(rng.normal(size=(M, M)), -1) + 2.0 * np.eye(M))
        layer.v.assign(like.v)
        tril = np.broadcast_to(like.precision_tril, layer.precision_tril.shape)
        assert tril.shape == (layer.v.shape[1], M, M)
        layer.precision_tril.assign(tril)
    X, Y = regression_data()
    data = (X, np.hstack([Y, Y]))
    bounds = [float(model.elbo(data, seed=0)) for model in (shared, separate)]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-12)


@models_with_hidden_layers
def test_every_layer_has_its_share_of_the_kl(model: str) -> None:
    for number in range(len(make_model(model, 3).hidden_layers) + 1):
        built = make_model(model, 3)
        _set_to_prior(built)
        layer = [*built.hidden_layers, built.output_layer][number]
        if isinstance(layer, WishartLayer):
            layer.beta.assign(0.8 * layer.beta.numpy())
        elif isinstance(layer, InverseWishartLayer | InputInverseWishart):
            layer.gamma.assign(3.0)
        else:
            layer.precision_tril.assign(2.0 * np.eye(M))
        assert float(built.prior_kl(seed=0)) > 0.05, number


def _set_to_prior(model: DeepKernelProcess) -> None:
    for layer in model.hidden_layers:
        if isinstance(model, DGP):
            layer.precision_tril.assign(1e-7 * np.eye(M))
            continue
        if isinstance(layer, InverseWishartLayer | InputInverseWishart):
            layer.gamma.assign(1e-12)
            layer.V.assign(np.zeros(layer.V.shape))
            continue
        p = layer.rank
        layer.alpha.assign((layer.width - np.arange(p)) / 2)
        layer.beta.assign(np.full(p, 0.5))
        layer.mu.assign(np.zeros((M, p)))
        layer.sigma.assign(np.ones((M, p)))
        layer.q.assign(1e-16)
        layer.A.assign(np.eye(M))
        layer.B.assign(np.eye(p))
    model.output_layer.precision_tril.assign(1e-7 * np.eye(M))


@models
def test_prior_kl_is_positive_away_from_the_prior(model: str) -> None:
    built = make_model(model, 3)
    assert float(built.prior_kl(num_samples=50, seed=0)) > 1.0
    log_ratio = built.elbo_terms(regression_data(), num_samples=50, seed=0)[1]
    # The same draws of the inducing points, whatever the data.
    assert float(built.prior_kl(num_samples=50, seed=0)) == pytest.approx(
        -float(log_ratio), abs=1e-9
    )


@models_with_hidden_layers
def test_expected_and_sampled_log_ratio_share_the_data_term(model: str) -> None:
    data = regression_data()
    expected = make_model(model, 3, log_ratio="expected")
    sampled = make_model(model, 3, log_ratio="sampled")
    gpflow.utilities.multiple_assign(sampled, gpflow.utilities.parameter_dict(expected))
    first, second = (built.elbo_terms(data, seed=0) for built in (expected, sampled))
    assert float(first[0]) == pytest.approx(float(second[0]), abs=1e-10)
    assert float(first[1]) != float(second[1])


@models
def test_compiled_bound_is_the_eager_one(model: str) -> None:
    built, data = make_model(model, 3), regression_data()

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, D], tf.float64),
            tf.TensorSpec([None, 1], tf.float64),
            tf.TensorSpec([], tf.int32),
        ],
        autograph=False,
    )
    def compiled(X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return built.elbo((X, Y), seed=seed)

    for seed in (0, 1):
        eager = float(built.elbo(data, seed=seed))
        assert float(compiled(*data, tf.constant(seed))) == pytest.approx(eager, rel=1e-7)


@models_with_hidden_layers
def test_number_of_chains_changes_nothing(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built, data = make_model(model, 3, num_samples=5), regression_data()
    alone = float(built.elbo(data, seed=0))
    threading = tf.config.threading
    monkeypatch.setattr(threading, "get_intra_op_parallelism_threads", lambda: 1)
    monkeypatch.setattr(threading, "get_inter_op_parallelism_threads", lambda: 3)
    parts = []
    taken = parallel.part_sizes
    monkeypatch.setattr(parallel, "part_sizes", lambda n: parts.append(taken(n)) or taken(n))
    compiled = tf.function(lambda: built.elbo(data, seed=0), autograph=False)
    assert float(compiled()) == pytest.approx(alone, abs=1e-10)
    assert {len(sizes) for sizes in parts} == {3}


class RationalDecay(IsotropicStationary):
    def K_r2(self, r2: tf.Tensor) -> tf.Tensor:
        return self.variance / (1.0 + r2)


class PlainInnerProduct(gpflow.kernels.Kernel):
    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        return tf.matmul(X, X if X2 is None else X2, transpose_b=True)

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.square(X), -1)


@pytest.mark.parametrize("first", [RationalDecay, PlainInnerProduct, Matern12])
def test_kernels_of_a_users_own(first: type) -> None:
    @gram.covariance.register(PlainInnerProduct)
    def _(kernel: PlainInnerProduct, blocks: gram.GramBlocks) -> gram.GramBlocks:
        return blocks

    kernels = [first(), RationalDecay(), PlainInnerProduct() + gpflow.kernels.Constant(0.1)]
    Z = regression_data()[0][:M]
    model = DWP(kernels, likelihoods.Gaussian(), Z, widths=[2, 2])
    check_finite_bound_and_gradient(model, regression_data())


def test_shared_kernel_has_one_set_of_parameters() -> None:
    kernel = SquaredExponential()
    Z = regression_data()[0][:M]
    model = DWP([kernel, kernel], likelihoods.Gaussian(), Z, widths=[2])
    separate = DWP(
        [SquaredExponential(), SquaredExponential()], likelihoods.Gaussian(), Z, widths=[2]
    )
    assert len(separate.trainable_variables) - len(model.trainable_variables) == 2
    check_finite_bound_and_gradient(model, regression_data())


def test_inducing_points_at_the_data_and_twice_the_same_one() -> None:
    """The Gram matrix is then singular but for the jitter."""
    X, Y = regression_data()
    Z = np.concatenate([X[:3], X[:1]])
    for kernel in (SquaredExponential, Matern12):
        model = DWP([kernel(), kernel()], likelihoods.Gaussian(), Z, widths=[2])
        check_finite_bound_and_gradient(model, (X, Y))


# Single precision has 6e-8 of rounding; the test blocks have a condition number of about 1e3, the
# bound is a sum over 12 points of order 10 nats.
PRECISIONS = {"mixed-gradient": (0.0, 2e-5), "mixed": (2e-5, 1e-4)}


@pytest.mark.parametrize("precision", PRECISIONS)
@models
def test_lower_precision_is_close_to_full(model: str, precision: str) -> None:
    elbo_tolerance, gradient_tolerance = PRECISIONS[precision]
    data = regression_data()
    full = make_model(model, 3, jitter=1e-3)
    low = make_model(model, 3, jitter=1e-3, precision=precision)
    assert low.precision == precision
    elbo = float(full.elbo(data, seed=0))
    assert float(low.elbo(data, seed=0)) == pytest.approx(elbo, rel=elbo_tolerance, abs=1e-10)
    different = False
    for ours, others in zip(gradient_of(low, data), gradient_of(full, data), strict=True):
        assert ours.dtype == others.dtype == tf.float64
        scale = float(tf.reduce_max(tf.abs(others)))
        np.testing.assert_allclose(ours, others, rtol=0, atol=gradient_tolerance * (1 + scale))
        different |= not np.array_equal(ours, others)
    assert different
    low.precision = "full"
    assert float(low.elbo(data, seed=0)) == elbo


def test_single_precision_throughout() -> None:
    """`gpflow.config` in float32, where a user asks for it."""
    X, Y = regression_data()
    config = gpflow.config.Config(float=np.float32, jitter=1e-4)
    with gpflow.config.as_context(config):
        for model in ("DWP", "DGP"):
            built = make_model(model, 2)
            data = (X.astype(np.float32), Y.astype(np.float32))
            elbo = built.elbo(data, seed=0)
            assert elbo.dtype == tf.float32
            assert np.isfinite(elbo)
            assert all(np.all(np.isfinite(g)) for g in gradient_of(built, data))
            assert built.predict_y(data[0], num_samples=3)[0].dtype == tf.float32


def test_jitter_is_gpflows_unless_given() -> None:
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-5)):
        assert float(make_model().jitter) == 1e-5
    assert float(make_model(jitter=1e-3).jitter) == 1e-3


@models
def test_data_as_arrays_and_tensors_of_either_precision(model: str) -> None:
    built = make_model(model, 2)
    X, Y = regression_data()
    X, Y = X.astype(np.float32), Y.astype(np.float32)
    expected = float(built.elbo((X.astype(float), Y.astype(float)), seed=0))
    assert float(built.elbo((X, Y), seed=0)) == expected
    assert float(built.elbo((tf.constant(X), tf.constant(Y)), seed=0)) == expected


def test_more_samples_scatter_less() -> None:
    model, data = make_model("DWP", 2), regression_data()
    few = [float(model.elbo(data, num_samples=1, seed=seed)) for seed in range(15)]
    many = [float(model.elbo(data, num_samples=100, seed=seed)) for seed in range(15)]
    # A tenth of the standard deviation; a ratio of 15 draws' above 0.4 has probability 1e-6.
    assert np.std(many) < 0.4 * np.std(few)


def test_more_jitter_mends_a_diwp_whose_inputs_have_more_features_than_inducing_points() -> None:
    rng = np.random.default_rng(0)
    X, Y = 1e5 * rng.normal(size=(12, 30)), rng.normal(size=(12, 1))
    Z = np.repeat(X[:4], 2, axis=0)
    kernels = [SquaredExponential(lengthscales=1e5), SquaredExponential()]
    built = MODELS["DIWP"](kernels, likelihoods.Gaussian(), Z, num_samples=2)
    assert not np.isfinite(built.elbo((X, Y), seed=0))
    built.jitter.assign(1.0)
    assert np.isfinite(built.elbo((X, Y), seed=0))


@models
@pytest.mark.parametrize("kernel", ["squared_exponential", "relu"])
def test_from_data_without_ard_starts_alike_with_one_scale(model: str, kernel: str) -> None:
    data = regression_data()
    both = [
        MODELS[model].from_data(*data, num_inducing=4, kernel=kernel, ard=ard)
        for ard in (True, False)
    ]
    bounds = [float(built.elbo(data, seed=0)) for built in both]
    np.testing.assert_allclose(bounds[0], bounds[1], rtol=1e-12)
    sizes = [sum(int(tf.size(v)) for v in built.trainable_variables) for built in both]
    assert sizes[0] - sizes[1] == (D if model == "DIWP" else D - 1)
    check_finite_bound_and_gradient(both[1], data)
