"""Every argument of every constructor, of a wrong type, shape, sign or value: one line of `ValueError`."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels as k
from gpflow.inducing_variables import InducingPoints, SharedIndependentInducingVariables
from gpflow.likelihoods import Gaussian, Softmax
from model_cases import MODELS

from gpflow_dkp.layers import (
    GlobalInducingGP,
    InputInverseWishart,
    InverseWishartLayer,
    LatentVariableLayer,
    OutputGP,
    SparseGP,
    WishartLayer,
)
from gpflow_dkp.models import DeepKernelProcess, LatentVariableDGP

Z = np.random.default_rng(0).normal(size=(4, 2))


def check_refused(function: Any, name: str) -> None:
    with pytest.raises(ValueError, match=name) as error:
        function()
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 300


def of_kernels(kind: str, **changes: Any) -> Any:
    """A model of two kernels."""
    arguments: dict[str, Any] = {
        "kernels": [k.SquaredExponential(), k.SquaredExponential()],
        "likelihood": Gaussian(),
        "inducing_variable": Z,
    }
    if kind in ("DWP", "DGP"):
        arguments["widths"] = [2]
    return MODELS[kind](**arguments | changes)


def chain() -> list:
    return [WishartLayer(4, 2, kernel=k.Matern32()), OutputGP(4, 1, kernel=k.Matern32())]


def of_layers(**changes: Any) -> DeepKernelProcess:
    arguments = {"layers": chain(), "likelihood": Gaussian(), "inducing_variable": Z}
    return DeepKernelProcess(**arguments | changes)


def sparse_gp(columns: int = 3, num_outputs: int = 1) -> SparseGP:
    return SparseGP(k.SquaredExponential(), np.ones((4, columns)), num_outputs)


def of_feature_layers(**changes: Any) -> LatentVariableDGP:
    layers = [LatentVariableLayer(num_points=5), sparse_gp()]
    return LatentVariableDGP(**{"layers": layers, "likelihood": Gaussian()} | changes)


COUNTS: list[Any] = [0, -1, 1.0, 2.5, True, "two", [1], np.nan]
FLAGS: list[Any] = ["yes", 1, None, [True]]
OF_ALL: dict[str, list[Any]] = {
    "likelihood": [None, "gaussian", Gaussian, 0.1, k.Matern32(), Softmax(1)],
    "num_samples": [*COUNTS, None],
    "num_data": COUNTS,
    "jitter": [-1e-6, np.nan, np.inf, "small", True, [1e-6], 1j],
    "name": ["two words", ""],
}
OF_DEEP: dict[str, list[Any]] = OF_ALL | {
    "inducing_variable": [
        None,
        "points",
        1.0,
        np.zeros(4),
        np.zeros((0, 2)),
        np.zeros((4, 0)),
        np.zeros((4, 2, 1)),
        np.full((4, 2), np.nan),
        np.full((4, 2), np.inf),
        np.zeros((4, 2), complex),
        [["a", "b"]],
        [[0.0], [0.0, 1.0]],
        SharedIndependentInducingVariables(InducingPoints(Z)),
    ],
    "mean_function": [
        0.0,
        "zero",
        lambda X: X,
        gpflow.functions.Linear(A=np.ones((3, 1))),
        gpflow.functions.Constant([1.0, 2.0]),
    ],
    "precision": ["half", None, 32, tf.float32],
}
OF_KERNELS: dict[str, list[Any]] = OF_DEEP | {
    "kernels": [
        None,
        [],
        "rbf",
        k.Matern32(),
        [k.Matern32(), "rbf"],
        [k.Matern32(), None],
        [k.Matern32, k.Matern32],
        [k.Matern32(), k.Cosine()],
        [k.SeparateIndependent([k.Matern32(), k.Matern32()]), k.Matern32()],
        [k.Matern32(), k.SeparateIndependent([k.Matern32(), k.Matern32(), k.Matern32()])],
    ],
    "num_latent_gps": COUNTS,
    "shared_precision": FLAGS,
}
WRONG_ARD = [k.Matern32(lengthscales=[1.0, 1.0, 1.0]), k.Matern32()]
OF_WIDTHS: dict[str, list[Any]] = OF_KERNELS | {
    "widths": [None, 2, "2", [], [2, 2], [0], [-1], [2.0], [True], [None], [[2]], ["2"]],
    "log_ratio": ["both", None, 1, ["expected"]],
    "seed": [-1, 1.5, "zero", None, [1], True],
    "kernels": [*OF_KERNELS["kernels"], WRONG_ARD],
}
ARGUMENTS: dict[str, dict[str, list[Any]]] = {
    "DWP": OF_WIDTHS | {"posterior": ["gww", None, 1, ["gw"]]},
    "DGP": OF_WIDTHS,
    "DIWP": OF_KERNELS
    | {
        "log_ratio": ["both", None, 1],
        "delta": [0.0, -1.0, np.nan, np.inf, "five", None, [5.0], 1j],
        "input_bias": FLAGS,
        "input_scale": FLAGS,
    },
    "NNGP": OF_KERNELS | {"kernels": [*OF_KERNELS["kernels"], WRONG_ARD]},
}


def cases() -> list[Any]:
    return [
        pytest.param(kind, argument, id=f"{kind}-{argument}")
        for kind, arguments in ARGUMENTS.items()
        for argument in arguments
    ]


def called(argument: str) -> str:
    """What the message calls it: a kernel has a name of its own."""
    return {"kernels": "[Kk]ernel", "widths": "width", "name": "name"}.get(argument, argument)


@pytest.mark.parametrize(("kind", "argument"), cases())
def test_arguments_of_models_of_kernels(kind: str, argument: str) -> None:
    for value in ARGUMENTS[kind][argument]:
        check_refused(lambda value=value: of_kernels(kind, **{argument: value}), called(argument))


@pytest.mark.parametrize("argument", OF_DEEP)
def test_arguments_of_a_chain_of_layers(argument: str) -> None:
    for value in OF_DEEP[argument]:
        check_refused(lambda value=value: of_layers(**{argument: value}), called(argument))


BAD_CHAINS: dict[str, Any] = {
    "none": None,
    "no layers": [],
    "one that is no list": chain()[1],
    "a kernel": [k.Matern32(), chain()[1]],
    "a class": [WishartLayer, chain()[1]],
    "a layer of features": [sparse_gp(), chain()[1]],
    "no output layer": chain()[:1],
    "two output layers": [chain()[1], chain()[1]],
    "other inducing points": [WishartLayer(3, 2, kernel=k.Matern32()), chain()[1]],
    "an output layer of other inducing points": [chain()[0], OutputGP(5, 1, kernel=k.Matern32())],
    "other features": [InputInverseWishart(4, 3), chain()[1]],
    "inputs not first": [chain()[0], InputInverseWishart(4, 2), chain()[1]],
    "a kernel of no Gram matrix": [chain()[0], OutputGP(4, 1, kernel=k.Cosine())],
    "kernels of outputs within": [
        GlobalInducingGP(4, 2, kernel=k.SeparateIndependent([k.Matern32(), k.Matern32()])),
        chain()[1],
    ],
    "an ARD kernel of other columns": [WishartLayer(4, 2, kernel=WRONG_ARD[0]), chain()[1]],
    "outputs for another likelihood": None,
}


@pytest.mark.parametrize("name", BAD_CHAINS)
def test_chains_that_do_not_fit(name: str) -> None:
    if name == "outputs for another likelihood":
        check_refused(lambda: of_layers(likelihood=Softmax(3)), "^layers: the last gives 1 outputs")
        return
    check_refused(lambda: of_layers(layers=BAD_CHAINS[name]), "^layers: |^kernel ")


def test_chains_that_fit() -> None:
    """Beside those that the models build."""
    data = np.random.default_rng(1).normal(size=(6, 2)), np.ones((6, 1))
    for layers in (
        chain()[1:],
        [GlobalInducingGP(4, 2, kernel=k.Matern32()), *chain()],
        [InputInverseWishart(4, 2), InverseWishartLayer(4, kernel=k.Matern32()), *chain()],
        [InverseWishartLayer(4, kernel=k.Matern32(lengthscales=[1.0, 2.0])), *chain()],
    ):
        assert np.isfinite(of_layers(layers=layers).elbo(data, seed=0))


@pytest.mark.parametrize("kind", MODELS)
def test_no_jitter_is_allowed(kind: str) -> None:
    settings = {"kernels": [k.Matern12(), k.Matern12(), k.Matern12()], "jitter": 0.0}
    if kind in ("DWP", "DGP"):
        settings["widths"] = [4, 4]
    data = np.random.default_rng(1).normal(size=(6, 2)), np.ones((6, 1))
    assert np.isfinite(of_kernels(kind, **settings).elbo(data, seed=0))


@pytest.mark.parametrize("kind", ["DWP", "DGP", "DIWP"])
def test_a_covariance_without_a_cholesky_factor_is_left_to_training(kind: str) -> None:
    """Which raises the jitter: the model can be built."""
    twice = np.array([[0.5, 0.5], [0.5, 0.5], [1.0, -1.0]])
    kernels = [k.SquaredExponential(variance=1e6), k.Matern12()]
    model = of_kernels(kind, kernels=kernels, inducing_variable=twice, jitter=0.0)
    assert all(np.all(np.isfinite(variable)) for variable in model.trainable_variables)


OF_LATENTS: dict[str, list[Any]] = OF_ALL | {
    "inference": ["mcmc", None, 1, ["vi"]],
    "num_importance_samples": [*COUNTS, None],
    "doubly_reparametrised": FLAGS,
    "layers": [
        None,
        [],
        sparse_gp(),
        [sparse_gp, sparse_gp()],
        [LatentVariableLayer(num_points=5)],
        [k.Matern32(), sparse_gp()],
        [sparse_gp(2, 2), sparse_gp(3)],
        chain(),
        [sparse_gp(2, 1), LatentVariableLayer(num_points=5)],
    ],
}


@pytest.mark.parametrize("argument", OF_LATENTS)
def test_arguments_of_latent_variable_models(argument: str) -> None:
    for value in OF_LATENTS[argument]:
        check_refused(lambda value=value: of_feature_layers(**{argument: value}), called(argument))


def test_outputs_of_feature_layers_for_another_likelihood() -> None:
    check_refused(
        lambda: of_feature_layers(likelihood=Softmax(3)),
        "^layers: the last gives 1 outputs, Softmax needs 3",
    )


def test_unknown_arguments() -> None:
    for kind in MODELS:
        with pytest.raises(TypeError, match="widht"):
            of_kernels(kind, widht=[2])
    for build in (of_layers, of_feature_layers):
        with pytest.raises(TypeError, match="widht"):
            build(widht=[2])


X, Y = np.random.default_rng(2).normal(size=(12, 2)), np.ones((12, 1))


@pytest.mark.parametrize("kind", [*MODELS, "LatentVariableDGP"])
def test_arguments_of_from_data(kind: str) -> None:
    cls = MODELS.get(kind, LatentVariableDGP)
    for argument, values in {
        "depth": COUNTS,
        "num_inducing": COUNTS,
        "seed": [-1, 1.5, "zero", True, [1]],
    }.items():
        for value in values:
            settings = {"num_inducing": 4, argument: value}
            check_refused(
                lambda settings=settings: cls.from_data(X, Y, **settings), f"^{argument}: got"
            )
    if kind != "LatentVariableDGP":
        for value in FLAGS:
            check_refused(
                lambda value=value: cls.from_data(X, Y, ard=value), "^ard: got|input_scale"
            )
    for likelihood in ("gaussian", Gaussian):
        check_refused(
            lambda likelihood=likelihood: cls.from_data(X, Y, likelihood=likelihood),
            "^likelihood: got",
        )
