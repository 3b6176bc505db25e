"""Models whose inducing values are sampled: deep GPs ([NeurIPS18]), which [ICML19] Table 2 compares with.

A model's name is its layers and the sampler: `gp:sghmc`, `gp-gp:sghmc`. `dwp:sghmc`, of any depth, is the
deep GP that a deep Wishart process is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from ..settings import DensitySettings, Settings
from .latent_variable import MAX_LAYERS
from .registry import (
    OF_LATENT_VARIABLE_MODELS,
    OF_THE_DEEP_MODELS,
    Array,
    Builder,
    TrainingRecord,
    register_model,
)


def _builder(num_layers: int) -> Builder:
    def build(X: Array, Y: Array, *, depth: int, settings: Settings, seed: int) -> Any:
        from gpflow_dkp.models import SGHMCDGP

        return SGHMCDGP.from_data(
            X,
            Y,
            depth=num_layers,
            num_inducing=settings.num_inducing,
            num_inner_gps=cast(DensitySettings, settings).num_inner_gps,
            num_samples=settings.train_samples,
            num_data=len(X),
            seed=seed,
        )

    return build


def steps_of_chain(settings: DensitySettings) -> tuple[int, int, int]:
    """Burn-in, values that are kept, and steps from one to the next, of a chain of `num_steps` in all.

    A chain that is too short for its values has half of its steps for the burn-in, and keeps fewer.

    >>> from bayesian_benchmarks.models.sghmc import steps_of_chain
    >>> from bayesian_benchmarks.settings import DensitySettings
    >>> steps_of_chain(DensitySettings()), steps_of_chain(DensitySettings(num_steps=5_000))
    ((90000, 2000, 5), (2500, 500, 5))
    """
    own, half = settings.sghmc, max(1, settings.num_steps // 2)
    thinning = min(own.thinning, half)
    num_samples = min(own.num_samples, half // thinning)
    return max(1, settings.num_steps - num_samples * thinning), num_samples, thinning


def train_by_sampling(
    model: Any,
    data: tuple[Array, Array],
    *,
    settings: Settings,
    seed: int,
    checkpoint_dir: Path | None,
    checkpoint_seconds: float,
    report_step: Callable[[int], None],
) -> TrainingRecord:
    """Draw the model's inducing values with `gpflow_dkp.training.sample`, and return its `History`."""
    from gpflow_dkp.training import sample

    settings = cast(DensitySettings, settings)
    own = settings.sghmc
    num_burn_in, num_samples, thinning = steps_of_chain(settings)
    return sample(
        model,
        data,
        num_burn_in=num_burn_in,
        num_samples=num_samples,
        thinning=thinning,
        batch_size=settings.batch_size if len(data[0]) > settings.batch_size else None,
        step_size=own.step_size,
        friction=own.friction,
        temperature=own.temperature,
        window_size=own.window_size,
        learning_rate=own.learning_rate,
        seed=seed,
        checkpoint_dir=checkpoint_dir,
        checkpoint_seconds=checkpoint_seconds,
        callbacks=[report_step],
        progress=False,
    )


def _build_dwp(X: Array, Y: Array, *, depth: int, settings: Settings, seed: int) -> Any:
    from gpflow_dkp.models import SGHMCDWP

    return SGHMCDWP.from_data(
        X,
        Y,
        depth=depth,
        num_inducing=settings.num_inducing,
        num_samples=settings.train_samples,
        num_data=len(X),
        precision=settings.precision,
        ard=settings.ard,
        input_bias=settings.input_bias,
        seed=seed,
    )


_OF_OTHER_TRAININGS = (
    *("gwi", "schedule", "learning_rate", "natural_gradient", "kl_annealing_steps"),
    *("num_importance_samples", "latent_dim", *OF_LATENT_VARIABLE_MODELS),
)
register_model(
    "dwp:sghmc",
    train=train_by_sampling,
    settings=DensitySettings,
    tasks=("density",),
    ignores=(*_OF_OTHER_TRAININGS, "num_inner_gps", "shared_precision"),
)(_build_dwp)
for _num_layers in range(1, MAX_LAYERS + 1):
    register_model(
        f"{'-'.join(['gp'] * _num_layers)}:sghmc",
        train=train_by_sampling,
        settings=DensitySettings,
        tasks=("density",),
        ignores=(*_OF_OTHER_TRAININGS, *OF_THE_DEEP_MODELS),
        min_depth=0,
    )(_builder(_num_layers))
