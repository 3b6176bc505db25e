"""Deep GPs with latent variables as [ICML19] trains them, and the conditional VAEs it compares them with.

A model's name is its layers, and its bound where it has latent variables: `gp-gp`, `lv-gp-gp:iwvi`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

from ..settings import DensitySettings, Settings
from .deep import train_with_fit
from .registry import (
    OF_LATENT_VARIABLE_MODELS,
    OF_THE_DEEP_MODELS,
    OF_VI,
    Array,
    Builder,
    TrainingRecord,
    register_model,
)

INFERENCES = ("vi", "iwvi", "iwvi-sampled")
MAX_LAYERS = 4
HIDDEN_UNITS = ((), (50,), (100, 100))
"""Of the conditional VAEs' hidden layers."""


def architectures() -> Iterator[str]:
    """Every arrangement of up to `MAX_LAYERS` LV and GP layers with a GP last, such as "LV-GP-GP"."""
    for num_inner in range(MAX_LAYERS):
        for inner in itertools.product(("LV", "GP"), repeat=num_inner):
            yield "-".join([*inner, "GP"])


def _builder(architecture: str, inference: str) -> Builder:
    def build(X: Array, Y: Array, *, depth: int, settings: Settings, seed: int) -> Any:
        from gpflow_dkp.models import LatentVariableDGP

        own = cast(DensitySettings, settings)
        return LatentVariableDGP.from_architecture(
            architecture,
            (X, Y),
            inference=inference,
            num_importance_samples=own.num_importance_samples,
            num_samples=own.train_samples,
            num_data=len(X),
            num_inducing=own.num_inducing,
            latent_dim=own.latent_dim,
            num_inner_gps=own.num_inner_gps,
            separate_kernels=own.separate_kernels,
            inner_noise=own.inner_noise,
            num_marginal_points=own.num_marginal_points,
            seed=seed,
        )

    return build


def _cvae_builder(hidden_units: tuple[int, ...]) -> Builder:
    def build(X: Array, Y: Array, *, depth: int, settings: Settings, seed: int) -> Any:
        from gpflow_dkp.models import ConditionalVAE

        own = cast(DensitySettings, settings)
        return ConditionalVAE(
            X.shape[1],
            Y.shape[1],
            hidden_units=hidden_units,
            latent_dim=own.latent_dim,
            num_samples=own.train_samples,
            num_data=len(X),
            seed=seed,
        )

    return build


def train_with_natural_gradient(
    model: Any, data: tuple[Array, Array], *, settings: Settings, **training: Any
) -> TrainingRecord:
    """Train with `gpflow_dkp.training.fit`, the final layer by natural gradients if the settings say so."""
    decay = cast(DensitySettings, settings).natural_gradient
    return train_with_fit(model, data, settings=settings, natural_gradient=decay, **training)


_IGNORED = ("gwi", "sghmc", *OF_THE_DEEP_MODELS)
_register = partial(register_model, settings=DensitySettings, tasks=("density",), min_depth=0)
_register_trained = partial(_register, train=train_with_natural_gradient)
for _architecture in architectures():
    _name = _architecture.lower()
    if "LV" not in _architecture:
        _register_trained(_name, ignores=(*_IGNORED, *OF_VI))(_builder(_architecture, "vi"))
        continue
    for _inference in INFERENCES:
        _ignored = _IGNORED if _inference == "vi" else (*_IGNORED, *OF_VI)
        _register_trained(f"{_name}:{_inference}", ignores=_ignored)(
            _builder(_architecture, _inference)
        )
for _hidden in HIDDEN_UNITS:
    _name = f"cvae-{'-'.join(map(str, _hidden)) or 0}"
    _register(
        _name,
        ignores=(
            *_IGNORED,
            *("natural_gradient", "schedule.natural_gradient"),
            *("num_inducing", "num_importance_samples"),
            *("num_inner_gps", *OF_LATENT_VARIABLE_MODELS),
        ),
    )(_cvae_builder(_hidden))
