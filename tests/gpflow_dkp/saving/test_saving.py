"""What is saved comes back: predictions, parameters and all that training needs; what is damaged does not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import kernels, likelihoods

import gpflow_dkp
from gpflow_dkp import layers, models
from gpflow_dkp.saving import SavingError, dumps, load, loads, save
from gpflow_dkp.saving.container import LENGTH, pack, unpack
from gpflow_dkp.training import fit

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 3))
Y = np.sin(X[:, :1]) + 0.1 * RNG.normal(size=(30, 1))
LABELS = (X[:, :1] > 0.0) + (X[:, 1:2] > 0.0).astype(float)
XNEW = RNG.normal(size=(5, 3))


class MyKernel(kernels.SquaredExponential):
    """A user's own."""

    def __init__(self, steepness: float) -> None:
        super().__init__()
        self.steepness = steepness

    def K_r2(self, r2: tf.Tensor) -> tf.Tensor:
        return self.variance * tf.exp(-self.steepness * r2)


def doubled(f: tf.Tensor) -> tf.Tensor:
    return tf.exp(2.0 * f)


def deep(name: str, **settings: Any) -> Callable[[], models.MonteCarloModel]:
    def build() -> models.MonteCarloModel:
        family = getattr(models, name)
        return family.from_data(X, Y, depth=3, num_inducing=6, num_samples=2, **settings)

    return build


def of_labels(likelihood: Callable[[], likelihoods.Likelihood]) -> Callable[[], Any]:
    return lambda: models.DWP.from_data(X, LABELS, num_inducing=6, likelihood=likelihood())


def architecture(name: str, **settings: Any) -> Callable[[], Any]:
    return lambda: models.LatentVariableDGP.from_architecture(
        name, (X, Y), num_inducing=6, **settings
    )


def sampled(name: str) -> Callable[[], Any]:
    def make() -> models.SampledModel:
        model = getattr(models, name).from_data(X, Y, num_inducing=6)
        for layer in model.layers:
            layer.values.assign(RNG.normal(size=layer.values.shape))
            layer.keep(RNG.normal(size=[5, *layer.values.shape]))
        return model

    return make


MODELS: dict[str, Callable[[], Any]] = {
    "dwp-gw": deep("DWP", posterior="gw"),
    "dwp-a-gw": deep("DWP", posterior="a-gw"),
    "dwp-ab-gw": deep("DWP"),
    "dwp, mixed": deep("DWP", precision="mixed"),
    "dgp": deep("DGP"),
    "diwp": deep("DIWP", kernel="relu"),
    "nngp": deep("NNGP"),
    "softmax": of_labels(lambda: likelihoods.Softmax(3)),
    "robust-max": of_labels(lambda: likelihoods.MultiClass(3)),
    "lv-gp-gp": architecture("LV-GP-GP"),
    "latent variables of each row": architecture("LV-GP", amortised=False),
    "sghmc": sampled("SGHMCDGP"),
    "sghmc of a dwp": sampled("SGHMCDWP"),
    "cvae": lambda: models.ConditionalVAE(3, 1, hidden_units=[4]),
    "gwi-net": lambda: models.GWI.from_data(X, Y),
    "gwi-svgp": lambda: models.GWI.from_data(X, Y, mean="svgp"),
}


def read_back(model: Any, **custom_objects: Any) -> Any:
    return loads(dumps(model), custom_objects)


def assert_same_predictions(model: Any, other: Any) -> None:
    for ours, theirs in zip(model.predict_y(XNEW), other.predict_y(XNEW), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(model.predict_f(XNEW), other.predict_f(XNEW), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-12, atol=1e-12)


def unconstrained(parameter: gpflow.Parameter | tf.Variable) -> tf.Variable:
    return getattr(parameter, "unconstrained_variable", parameter)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_back(name: str) -> None:
    model = MODELS[name]()
    for variable in model.trainable_variables:
        variable.assign_add(0.05 * RNG.normal(size=variable.shape))
    gpflow.set_trainable(model.likelihood, False)
    other = read_back(model)
    assert type(other) is type(model)
    assert_same_predictions(model, other)
    before, after = (gpflow.utilities.parameter_dict(m) for m in (model, other))
    assert before.keys() == after.keys()
    for path, parameter in before.items():
        np.testing.assert_array_equal(unconstrained(after[path]), unconstrained(parameter))
        assert after[path].trainable == parameter.trainable
        assert after[path].name == parameter.name
    assert len(other.trainable_variables) == len(model.trainable_variables)
    data = X, LABELS if name in ("softmax", "robust-max") else Y
    for ours, theirs in zip(
        model.elbo_terms(data, seed=3), other.elbo_terms(data, seed=3), strict=True
    ):
        np.testing.assert_allclose(theirs, ours, rtol=1e-12)


def test_training_goes_on_as_it_would_have() -> None:
    model = models.DWP.from_data(X, Y, num_inducing=6, num_samples=2)
    fit(model, (X, Y), num_steps=3, progress=False)
    other = read_back(model)
    ours, theirs = (fit(m, (X, Y), num_steps=3, progress=False).elbo for m in (model, other))
    np.testing.assert_allclose(theirs, ours, rtol=1e-10)


def test_a_fresh_process_predicts_the_same(tmp_path: Path) -> None:
    model = models.DWP.from_data(X, Y, num_inducing=6)
    path = tmp_path / "model.dkp"
    model.save(path)
    np.save(tmp_path / "X.npy", XNEW)
    program = (
        "import sys, numpy as np, gpflow_dkp;"
        "model = gpflow_dkp.load(sys.argv[1]);"
        "np.save(sys.argv[3], np.stack(model.predict_y(np.load(sys.argv[2]))))"
    )
    arguments = [str(path), str(tmp_path / "X.npy"), str(tmp_path / "y.npy")]
    subprocess.run([sys.executable, "-c", program, *arguments], check=True, capture_output=True)
    expected = np.stack(model.predict_y(XNEW))
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "kernel",
    [
        kernels.Matern52(active_dims=[0, 2]) + kernels.Linear() * kernels.Cosine(),
        kernels.Periodic(kernels.SquaredExponential(lengthscales=[1.0, 2.0, 3.0])),
        kernels.ArcCosine(order=2, weight_variances=[1.0, 2.0, 3.0]),
        kernels.RationalQuadratic(alpha=0.3) + kernels.White(1e-3) + kernels.Constant(),
        kernels.Polynomial(degree=2),
        kernels.ChangePoints([kernels.Matern12(), kernels.Matern32()], [0.3]),
        kernels.Exponential(active_dims=slice(1, 3)),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_a_kernel_comes_back(kernel: kernels.Kernel) -> None:
    inputs = XNEW[:, :1] if isinstance(kernel, kernels.ChangePoints) else XNEW
    np.testing.assert_array_equal(read_back(kernel)(inputs), kernel(inputs))


@pytest.mark.parametrize(
    "likelihood",
    [
        likelihoods.Gaussian(scale=0.3),
        likelihoods.StudentT(df=4.0),
        likelihoods.Bernoulli(),
        likelihoods.Poisson(binsize=2.0),
        likelihoods.Gamma(),
        likelihoods.Beta(),
        likelihoods.Exponential(),
        likelihoods.Ordinal(np.array([-0.5, 0.5])),
        likelihoods.MultiClass(3, invlink=likelihoods.RobustMax(3, epsilon=0.01)),
    ],
    ids=lambda likelihood: type(likelihood).__name__,
)
def test_a_likelihood_comes_back(likelihood: likelihoods.Likelihood) -> None:
    num_latent = likelihood.latent_dim or 1
    moments = tf.constant(X[:, :num_latent]), tf.constant(np.exp(X[:, :num_latent]))
    targets = tf.constant(
        np.full((30, 1), 0.5 if isinstance(likelihood, likelihoods.Beta) else 1.0)
    )
    np.testing.assert_array_equal(
        read_back(likelihood).variational_expectations(X, *moments, targets),
        likelihood.variational_expectations(X, *moments, targets),
    )


def test_transforms_priors_and_trainability_come_back() -> None:
    kernel = kernels.SquaredExponential()
    kernel.variance = gpflow.Parameter(
        2.0,
        transform=gpflow.utilities.positive(lower=0.1),
        prior=tfp.distributions.Gamma(np.float64(2.0), np.float64(3.0)),
        prior_on="unconstrained",
        trainable=False,
    )
    other = read_back(kernel)
    assert not other.variance.trainable
    np.testing.assert_array_equal(
        other.variance.log_prior_density(), kernel.variance.log_prior_density()
    )
    other.variance.assign(0.100001)  # positive(lower=0.1) has come with it
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        other.variance.assign(0.05)


def test_what_layers_share_is_shared_again() -> None:
    kernel = kernels.Matern52()
    model = models.DWP(
        [kernels.SquaredExponential(), kernel, kernel], likelihoods.Gaussian(), X[:4], widths=[2, 2]
    )
    other = read_back(model)
    assert other.layers[1].kernel is other.layers[2].kernel
    assert len(other.trainable_variables) == len(model.trainable_variables)


def test_own_layers_in_any_order_come_back() -> None:
    model = models.DeepKernelProcess(
        [
            layers.WishartLayer(4, 3, kernel=kernels.Matern32()),
            layers.InverseWishartLayer(4, kernel=kernels.Matern52()),
            layers.OutputGP(4, 1, kernel=kernels.SquaredExponential()),
        ],
        likelihoods.StudentT(),
        X[:4],
        mean_function=gpflow.functions.Linear(np.ones((3, 1)), np.zeros(1)),
    )
    assert_same_predictions(model, read_back(model))


def test_own_classes_and_functions_come_by_name() -> None:
    likelihood = likelihoods.Poisson(invlink=doubled)
    model = models.NNGP([MyKernel(0.7)], likelihood, X[:4])
    assert_same_predictions(model, read_back(model, MyKernel=MyKernel, doubled=doubled))
    with pytest.raises(SavingError, match=r"the data has a MyKernel.*custom_objects=\{'MyKernel'"):
        read_back(model, doubled=doubled)
    with pytest.raises(SavingError, match=r"the data has a function doubled"):
        read_back(model, MyKernel=MyKernel)
    with pytest.raises(ValueError, match="custom_objects: got list, needs"):
        loads(dumps(model), [MyKernel])  # type: ignore[arg-type]


def test_what_cannot_be_saved_says_where_it_is() -> None:
    network = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model = models.GWI.from_data(X, Y, mean=network)
    with pytest.raises(SavingError, match=r"mean.*keras.*cannot be saved; allowed are"):
        dumps(model)
    model = models.NNGP([MyKernel(0.7)], likelihoods.Poisson(invlink=lambda f: tf.exp(f)), X[:4])
    with pytest.raises(SavingError, match=r"likelihood\.invlink: got the function"):
        dumps(model)


def test_paths_that_are_none_say_so(tmp_path: Path) -> None:
    kernel = kernels.SquaredExponential()
    with pytest.raises(SavingError, match=r"cannot write .*nowhere"):
        save(kernel, tmp_path / "nowhere" / "kernel.dkp")
    with pytest.raises(SavingError, match=r"cannot read .*nothing\.dkp"):
        load(tmp_path / "nothing.dkp")
    with pytest.raises(SavingError, match="cannot read"):
        load(tmp_path)
    save(kernel, tmp_path / "kernel.dkp")
    assert [path.name for path in tmp_path.iterdir()] == ["kernel.dkp"]
    assert gpflow_dkp.load(tmp_path / "kernel.dkp").variance.numpy() == 1.0


@pytest.fixture(scope="module")
def saved() -> bytes:
    model = models.DWP.from_data(X[:8], Y[:8], num_inducing=4)
    return dumps(model)


def test_damaged_files_never_predict_otherwise(saved: bytes) -> None:
    """Bytes flipped, cut, swapped and inserted: an error of one line, or the same predictions."""
    rng = np.random.default_rng(1)
    expected = np.stack(loads(saved).predict_y(XNEW))
    (header,) = LENGTH.unpack_from(saved)
    messages = []
    for trial in range(200):
        damaged = bytearray(saved)
        # The header is most of so small a file: half of the damage is to be in the numbers.
        low = 0 if trial % 2 else header + LENGTH.size
        place, other = np.sort(rng.integers(low, len(saved), 2))
        kind = trial // 2 % 4
        if kind == 0:
            damaged[place] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            del damaged[place:]
        elif kind == 2:
            damaged[place], damaged[other] = damaged[other], damaged[place]
        else:
            damaged[place:place] = rng.bytes(3)
        try:
            model = loads(bytes(damaged))
        except SavingError as error:
            messages.append(str(error))
        else:
            np.testing.assert_array_equal(np.stack(model.predict_y(XNEW)), expected)
    assert len(messages) > 150
    assert "\n" not in "".join(messages)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04" + bytes(200), bytes(8), b"\xff" * 64])
def test_files_from_elsewhere_are_refused(data: bytes) -> None:
    with pytest.raises(SavingError, match="no model that gpflow_dkp saved"):
        loads(data)


def test_a_safetensors_file_of_another_is_refused() -> None:
    import safetensors.numpy

    with pytest.raises(SavingError, match="no model that gpflow_dkp saved"):
        loads(safetensors.numpy.save({"weight": np.zeros(3)}, {"format": "pt"}))


def test_a_later_version_is_refused(saved: bytes) -> None:
    later = saved.replace(b'"version":"1"', b'"version":"9"')
    assert later != saved
    with pytest.raises(SavingError, match=r"format 9.*reads formats up to 1: upgrade"):
        loads(later)


@pytest.mark.parametrize(
    "change",
    [
        {"class": "os.system"},
        {"class": "subprocess.Popen"},
        {"class": "gpflow_dkp.saving.saved.os"},
        {"class": "gpflow.base.tf"},
        {"class": "tfp.bijectors.np"},
        {"class": "builtins.eval"},
        {"attributes": {"__class__": None}},
        {"attributes": {"K": {"function": "os.system"}}},
        {"attributes": {"K": {"nothing of the sort": 1}}},
        {"attributes": {"K": {"object": 10**6}}},
        {"class": "tfp.bijectors.Exp", "arguments": {"no_such_argument": 1}},
        {"class": "gpflow.kernels.SquaredExponential", "arguments": {"variance": 1}},
    ],
    ids=str,
)
def test_a_forged_description_runs_nothing(change: dict[str, Any]) -> None:
    """Even with the digest made right: only GPflow's, TFP's and this package's classes are reached."""
    arrays, description = unpack(dumps(kernels.SquaredExponential()), "file")
    description["objects"][description["root"]["object"]].update(change)
    with pytest.raises(SavingError) as raised:
        loads(pack(arrays, json.loads(json.dumps(description))))
    assert "\n" not in str(raised.value)


def test_another_default_float_is_refused(saved: bytes) -> None:
    config = gpflow.config.Config(float=np.float32)
    with gpflow.config.as_context(config), pytest.raises(SavingError, match="set_default_float"):
        loads(saved)
