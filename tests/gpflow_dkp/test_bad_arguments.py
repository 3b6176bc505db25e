"""Every argument of every constructor: what it does not take is one line of ours."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_dkp import layers, models, training

rng = np.random.default_rng(0)
X = rng.normal(size=(20, 2))
Z = X[:5].copy()
DATA = X, np.sin(X[:, :1])


def kernels(number: int) -> list[gpflow.kernels.Kernel]:
    return [gpflow.kernels.SquaredExponential() for _ in range(number)]


def noise() -> gpflow.likelihoods.Likelihood:
    return gpflow.likelihoods.Gaussian(0.5)


GOOD: dict[str, tuple[Callable[..., Any], Callable[[], dict[str, Any]]]] = {
    **{
        model.__name__: (
            model,
            lambda: {
                "kernels": kernels(2),
                "likelihood": noise(),
                "inducing_variable": Z,
                "widths": [2],
            },
        )
        for model in (models.DWP, models.DGP)
    },
    **{
        model.__name__: (
            model,
            lambda: {"kernels": kernels(2), "likelihood": noise(), "inducing_variable": Z},
        )
        for model in (models.DIWP, models.NNGP)
    },
    "GWI": (
        models.GWI,
        lambda: {"kernel": kernels(1)[0], "likelihood": noise(), "inducing_variable": Z},
    ),
    "GWI.from_data": (
        models.GWI.from_data,
        lambda: {"X": X, "Y": DATA[1], "num_marginal_points": 0, "noise_variance": 0.1},
    ),
    "LatentVariableDGP.from_architecture": (
        models.LatentVariableDGP.from_architecture,
        lambda: {
            "architecture": "LV-GP",
            "data": DATA,
            "num_inducing": 4,
            "num_marginal_points": 0,
        },
    ),
    "SGHMCDGP": (
        models.SGHMCDGP,
        lambda: {
            "layers": [layers.SampledGP(kernels(1)[0], Z, num_latent_gps=1)],
            "likelihood": noise(),
        },
    ),
    "SGHMCDGP.from_data": (
        models.SGHMCDGP.from_data,
        lambda: {"X": X, "Y": DATA[1], "num_inducing": 4},
    ),
    "SGHMCDWP": (
        models.SGHMCDWP,
        lambda: {
            "kernels": kernels(2),
            "likelihood": noise(),
            "inducing_variable": Z,
            "widths": [2],
        },
    ),
    "ConditionalVAE": (models.ConditionalVAE, lambda: {"num_features": 2}),
    **{
        layer.__name__: (layer, lambda: {"num_inducing": 5, "width": 2})
        for layer in (layers.WishartLayer, layers.GlobalInducingGP, layers.SampledFeatures)
    },
    **{
        layer.__name__: (layer, lambda: {"num_inducing": 5, "width": 2})
        for layer in (layers.GWPosterior, layers.AGWPosterior, layers.ABGWPosterior)
    },
    "SparseGP": (
        layers.SparseGP,
        lambda: {"kernel": kernels(1)[0], "inducing_variable": Z, "num_latent_gps": 2},
    ),
    "SampledGP": (
        layers.SampledGP,
        lambda: {"kernel": kernels(1)[0], "inducing_variable": Z, "num_latent_gps": 2},
    ),
    "SGHMC": (training.SGHMC, lambda: {"variables": [tf.Variable(np.zeros(3))]}),
    "Encoder": (layers.Encoder, lambda: {"input_dim": 3}),
}

BAD = [
    *(None, "x", -1, 1.5, float("nan"), [], [1, "a"], object()),
    *(np.full((3, 2), np.nan), np.zeros((2, 3, 4))),
]


def arguments(case: str) -> list[str]:
    function, _ = GOOD[case]
    parameters = inspect.signature(function).parameters.values()
    named = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    return [p.name for p in named if p.name != "name"]


@pytest.mark.parametrize("case", GOOD)
def test_an_argument_is_taken_or_refused_in_one_line(case: str) -> None:
    function, good = GOOD[case]
    function(**good())
    messages = []
    for name in arguments(case):
        for value in BAD:
            try:
                function(**(good() | {name: value}))
            except ValueError as error:
                where = traceback.extract_tb(error.__traceback__)[-1].filename
                messages.append((name, str(error), where))
    assert len(messages) > len(BAD) / 2
    assert [message for message in messages if "\n" in message[1]] == []
    assert [message for message in messages if "gpflow_dkp" not in message[2]] == []
