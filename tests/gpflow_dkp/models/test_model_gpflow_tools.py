"""GPflow's and TensorFlow's tools on the models."""

import copy
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from model_cases import MODELS, D, make_model, regression_data

X, Y = regression_data()
models = pytest.mark.parametrize("model", MODELS)


def elbo(model) -> float:  # type: ignore[no-untyped-def]
    return float(model.elbo((X, Y), seed=0))


@models
def test_deepcopy_is_equal_and_independent(model: str) -> None:
    original = make_model(model, 3)
    before = elbo(original)
    copied = copy.deepcopy(original)
    assert elbo(copied) == before
    assert gpflow.utilities.deepcopy(original).precision == original.precision
    for variable in copied.trainable_variables:
        variable.assign_add(0.1 * tf.ones_like(variable))
    copied.kl_weight.assign(0.5)
    assert elbo(original) == before
    assert elbo(copied) != before


@models
def test_print_summary_names_every_parameter(model: str, capsys: pytest.CaptureFixture) -> None:
    gpflow.utilities.print_summary(make_model(model, 3), fmt="simple")
    printed = capsys.readouterr().out
    num_hidden, parameters, first_kernel = {
        "DWP": (2, ["q", "V", "A", "B", "alpha", "beta", "mu", "sigma"], "layers[0].kernel"),
        "DGP": (2, ["v", "precision_tril"], "layers[0].kernel"),
        "DIWP": (3, ["delta", "gamma", "V"], "layers[1].kernel"),
        "NNGP": (0, [], "layers[0].kernel.kernels[0]"),
    }[model]
    last = f"layers[{num_hidden}]"
    names = [f"{last}.v", f"{last}.precision_tril", "inducing_variable.Z", "likelihood.variance"]
    names += [f"{first_kernel}.lengthscales"]
    own = "posterior." if model == "DWP" else ""
    names += [f"layers[{i}].{own}{name}" for i in range(num_hidden) for name in parameters]
    for name in names:
        assert f".{name} " in printed


@models
def test_parameter_dict_and_multiple_assign(model: str) -> None:
    first, second = make_model(model, 3), make_model(model, 3)
    for variable in second.trainable_variables:
        variable.assign_add(0.1 * tf.ones_like(variable))
    assert elbo(second) != elbo(first)
    parameters = gpflow.utilities.read_values(first)
    gpflow.utilities.multiple_assign(second, parameters)
    assert elbo(second) == pytest.approx(elbo(first), abs=1e-9)


def test_assigned_values_are_read_back() -> None:
    """Every transform is invertible: what a user assigns is what the parameter is."""
    model = make_model("DWP", 2)
    layer = model.hidden_layers[0]
    rng = np.random.default_rng(0)
    p, M = layer.rank, layer.num_inducing
    values = {
        "alpha": rng.uniform(0.5, 3.0, p),
        "beta": rng.uniform(0.5, 3.0, p),
        "mu": rng.normal(size=(M, p)),
        "sigma": rng.uniform(0.5, 3.0, (M, p)),
        "q": 0.123,
        "V": rng.normal(size=(M, M)),
        "A": rng.normal(size=(M, M)),
        "B": np.eye(p) + np.tril(rng.normal(size=(p, p)), -1),
    }
    for name, value in values.items():
        getattr(layer, name).assign(value)
        np.testing.assert_allclose(getattr(layer, name), value, rtol=1e-12, atol=1e-14)
    tril = np.tril(rng.normal(size=(M, M)), -1) + np.diag(rng.uniform(0.5, 2.0, M))
    model.output_layer.precision_tril.assign(tril)
    np.testing.assert_allclose(model.output_layer.precision_tril, tril, rtol=1e-12, atol=1e-14)


@models
def test_set_trainable(model: str) -> None:
    built = make_model(model, 2)
    number = len(built.trainable_variables)
    gpflow.set_trainable(built.inducing_variable, False)
    gpflow.set_trainable(built.kernels[0], False)
    assert len(built.trainable_variables) == number - 3
    gpflow.set_trainable(built, False)
    assert built.trainable_variables == ()
    gpflow.set_trainable(built, True)
    # The jitter and the weight of the KL are no parameters.
    assert len(built.trainable_variables) == number


def test_jitter_and_kl_weight_are_never_trained() -> None:
    model = make_model("DWP", 2)
    trained = {variable.ref() for variable in model.trainable_variables}
    assert model.jitter.ref() not in trained
    assert model.kl_weight.ref() not in trained


@models
def test_checkpoint(model: str, tmp_path: Path) -> None:
    original, restored = make_model(model, 2), make_model(model, 2)
    original.kl_weight.assign(0.25)
    for variable in restored.trainable_variables:
        variable.assign_add(0.1 * tf.ones_like(variable))
    path = tf.train.Checkpoint(model=original).write(str(tmp_path / "model"))
    tf.train.Checkpoint(model=restored).read(path).assert_consumed()
    assert float(restored.kl_weight) == 0.25
    assert elbo(restored) == elbo(original)


@models
def test_copies_keep_the_predictions(model: str, tmp_path: Path) -> None:
    """Of a model that a compiled function has used: Python's copy, GPflow's and a checkpoint."""
    original, restored = make_model(model, 2), make_model(model, 2)
    for variable in original.trainable_variables:
        variable.assign_add(0.1 * tf.ones_like(variable))
    tf.function(lambda: original.elbo((X, Y), seed=0), autograph=False)()
    settings = {"num_samples": 5, "seed": 0}

    def predictions(built):  # type: ignore[no-untyped-def]
        return [
            *built.predict_y(X, **settings),
            *built.predict_f(X, full_cov=True, **settings),
            built.predict_f_samples(X, 3, seed=0),
        ]

    expected = predictions(original)
    path = tf.train.Checkpoint(model=original).write(str(tmp_path / "model"))
    tf.train.Checkpoint(model=restored).read(path).assert_consumed()
    for copied in (gpflow.utilities.deepcopy(original), copy.deepcopy(original), restored):
        for actual, value in zip(predictions(copied), expected, strict=True):
            np.testing.assert_array_equal(actual, value)


@models
def test_compiled_predictions_of_any_number_of_points(model: str) -> None:
    """Of moments, covariances and joint draws; the batch is not known when they are compiled."""
    built = make_model(model, 2)

    @tf.function(input_signature=[tf.TensorSpec([None, D], tf.float64)], autograph=False)
    def compiled(points: tf.Tensor):  # type: ignore[no-untyped-def]
        return predictions(points)

    def predictions(points: tf.Tensor):  # type: ignore[no-untyped-def]
        return [
            *built.predict_y(points, num_samples=5, seed=0),
            *built.predict_f(points, full_cov=True, num_samples=5, seed=0),
            built.predict_f_samples(points, 3, seed=0),
            built.predict_y_samples(points, 3, seed=0),
        ]

    for number in (1, 7):
        for actual, value in zip(compiled(X[:number]), predictions(X[:number]), strict=True):
            np.testing.assert_allclose(actual, value, rtol=0, atol=1e-6)


@models
def test_saved_model_of_predictions(model: str, tmp_path: Path) -> None:
    built = make_model(model, 2)
    expected = {n: built.predict_y(X[:n], num_samples=5, seed=0) for n in (1, 7)}
    built.predict_y_compiled = tf.function(
        lambda points: built.predict_y(points, num_samples=5, seed=0),
        input_signature=[tf.TensorSpec([None, D], tf.float64)],
        autograph=False,
    )
    tf.saved_model.save(built, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    for n, moments in expected.items():
        for actual, value in zip(loaded.predict_y_compiled(X[:n]), moments, strict=True):
            np.testing.assert_allclose(actual, value, rtol=0, atol=1e-6)


@models
def test_scipy_with_held_random_numbers(model: str) -> None:
    """With its seed held the bound is a function that L-BFGS can climb."""
    built = make_model(model, 2)
    if model == "DWP":
        # The gammas' implicit derivative is not that of the draw.
        gpflow.set_trainable(built.hidden_layers[0].alpha, False)
    before = elbo(built)
    loss = tf.function(lambda: -built.elbo((X, Y), seed=0), autograph=False)
    result = gpflow.optimizers.Scipy().minimize(
        loss, built.trainable_variables, options={"maxiter": 15}
    )
    assert elbo(built) == pytest.approx(-result.fun, abs=1e-6)
    assert elbo(built) > before + 1.0


def test_training_loss_closure() -> None:
    model = make_model("DWP", 2, num_data=len(X))
    data = tf.data.Dataset.from_tensor_slices((X, Y)).repeat().shuffle(12).batch(5)
    closure = model.training_loss_closure(iter(data))
    optimizer = tf.keras.optimizers.Adam(0.01)
    before = [variable.numpy() for variable in model.trainable_variables]
    with tf.GradientTape() as tape:
        loss = closure()
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    assert np.isfinite(loss)
    assert any(
        not np.array_equal(variable, value)
        for variable, value in zip(model.trainable_variables, before, strict=True)
    )
    eager = model.training_loss_closure((X, Y), compile=False)
    tf.random.set_seed(0)
    first = float(eager())
    tf.random.set_seed(0)
    assert first == float(model.training_loss((X, Y)))


def test_priors_on_parameters_enter_the_objective() -> None:
    """GPflow's `training_loss` is minus the bound minus the log prior density of parameters."""
    import tensorflow_probability as tfp

    model = make_model("DWP", 1)
    plain = float(model.training_loss((X, Y)))
    model.likelihood.variance.prior = tfp.distributions.Gamma(
        tf.constant(2.0, tf.float64), tf.constant(3.0, tf.float64)
    )
    log_prior = float(model.log_prior_density())
    assert log_prior != 0.0
    assert float(model.training_loss((X, Y))) == pytest.approx(plain - log_prior, abs=1e-9)


@models
def test_from_data(model: str) -> None:
    from gpflow_dkp import models as package

    cls = getattr(package, model)
    built = cls.from_data(X, Y, depth=3, num_inducing=5, seed=3)
    assert len(built.kernels) == 3
    if model in ("DWP", "DGP"):
        assert [layer.width for layer in built.hidden_layers] == [D, D]
    Z = built.inducing_variable.Z.numpy()
    nearest = np.argmin(np.sum(np.square(X[:, None] - Z), -1), 1)
    for cluster in range(5):
        centre, target = (np.mean(part[nearest == cluster], 0) for part in (X, Y))
        np.testing.assert_allclose(Z[cluster], centre, rtol=0, atol=1e-12)
        np.testing.assert_allclose(built.output_layer.v[cluster], target, rtol=0, atol=1e-12)
    again = cls.from_data(X, Y, depth=3, num_inducing=5, seed=3)
    assert elbo(built) == elbo(again)
    other = cls.from_data(X, Y, depth=3, num_inducing=5, seed=4)
    assert not np.array_equal(other.inducing_variable.Z, Z)
    assert cls.from_data(X, Y, num_inducing=100).output_layer.num_inducing == len(X)
    twice = cls.from_data(np.vstack([X, X]), np.vstack([Y, Y]), num_inducing=100)
    assert twice.output_layer.num_inducing == len(X)
    assert cls.from_data(X, np.hstack([Y, Y]), num_inducing=5).num_latent_gps == 2
    assert np.isfinite(elbo(cls.from_data(X, Y, depth=1, num_inducing=5)))


@pytest.mark.parametrize("kernel", ["squared_exponential", "relu"])
@models
def test_starting_values_of_from_data(model: str, kernel: str) -> None:
    """ARD on the inputs, which the kernels of a DIWP do not see, and one scale on Gram matrices."""
    built = MODELS[model].from_data(X, Y, depth=3, num_inducing=5, kernel=kernel)
    assert built.likelihood.variance.numpy() == pytest.approx(0.1, abs=1e-12)
    num_on_inputs = 0 if model == "DIWP" else 1
    for number, own in enumerate(built.kernels):
        on_inputs = number < num_on_inputs
        assert own.variance.numpy() == pytest.approx(1.0, abs=1e-12)
        if kernel == "relu":
            assert own.bias_variance.numpy() == pytest.approx(0.5, abs=1e-12)
            expected = np.full(D, 1.0 / D) if on_inputs else 1.0
            actual = own.weight_variances
        else:
            expected = np.full(D, np.sqrt(D)) if on_inputs else 1.0
            actual = own.lengthscales
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)
        assert actual.shape == np.shape(expected)


@models
def test_from_data_trains_the_logarithms_of_positive_parameters(model: str) -> None:
    from gpflow_dkp import models as package

    built = getattr(package, model).from_data(X, Y, num_inducing=5)
    for kernel in built.kernels:
        for parameter in (kernel.lengthscales, kernel.variance):
            expected = np.log(parameter.numpy())
            np.testing.assert_allclose(parameter.unconstrained_variable, expected, atol=1e-12)
    variance = built.likelihood.variance
    assert float(variance.unconstrained_variable) == pytest.approx(np.log(variance.numpy()), 1e-4)
    assert type(gpflow.kernels.Matern12().variance.transform).__name__ != "Exp"


@models
def test_from_data_with_arc_cosine_kernels(model: str) -> None:
    """Every bias is trained; weight variances only on inputs, where the kernel's variance differs."""
    from gpflow_dkp import models as package

    built = getattr(package, model).from_data(X, Y, depth=2, num_inducing=5, kernel="relu")
    for kernel in built.kernels:
        assert kernel.order == 1
        assert kernel.bias_variance.trainable
        on_inputs = kernel.weight_variances.shape == (D,)
        assert kernel.weight_variances.trainable == on_inputs
    assert kernel.weight_variances.shape == ()
    assert (built.kernels[0].weight_variances.shape == (D,)) == (model != "DIWP")


def test_from_data_learns_the_shift_and_the_scale_of_a_diwps_inputs() -> None:
    from gpflow_dkp.models import DIWP

    layer = DIWP.from_data(X, Y, num_inducing=5).hidden_layers[0]
    assert layer.bias.trainable
    assert layer.bias.shape == (D,)
    assert layer.scale.trainable
    assert layer.scale.shape == (D,)
    plain = DIWP.from_data(X, Y, num_inducing=5, input_bias=False, input_scale=False)
    assert plain.hidden_layers[0].bias is None
    assert plain.hidden_layers[0].scale is None
