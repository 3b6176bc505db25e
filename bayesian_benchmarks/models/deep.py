"""The deep models of `gpflow_dkp` as [UAI23] trains them.

Squared-exponential kernels with ARD in the first layer, hidden layers as wide as the data have
features, a Gaussian likelihood. TensorFlow is imported when a model is built, not before.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..config import Settings
from .registry import Array, Builder, TrainingRecord, register_model


@register_model("dgp")
def build_dgp(X: Array, Y: Array, *, depth: int, settings: Settings, seed: int) -> Any:
    """Deep GP with global inducing points and the deep Wishart process' prior."""
    from gpflow_dkp.models import DGP

    return DGP.from_data(
        X,
        Y,
        depth=depth,
        num_inducing=settings.num_inducing,
        num_samples=settings.train_samples,
        num_data=len(X),
        precision=settings.precision,
        seed=seed,
    )


def _dwp_builder(posterior: str) -> Builder:
    """Builder of the deep Wishart process with one of the approximate posteriors."""

    def build_dwp(X: Array, Y: Array, *, depth: int, settings: Settings, seed: int) -> Any:
        from gpflow_dkp.models import DWP

        return DWP.from_data(
            X,
            Y,
            depth=depth,
            num_inducing=settings.num_inducing,
            posterior=posterior,
            num_samples=settings.train_samples,
            num_data=len(X),
            precision=settings.precision,
            seed=seed,
        )

    return build_dwp


for _posterior in ("gw", "a-gw", "ab-gw"):
    register_model(f"dwp-{_posterior}")(_dwp_builder(_posterior))


def train_with_fit(
    model: Any,
    data: tuple[Array, Array],
    *,
    settings: Settings,
    seed: int,
    checkpoint_dir: Path | None,
    checkpoint_seconds: float,
    report_step: Callable[[int], None],
) -> TrainingRecord:
    """Train with `gpflow_dkp.training.fit`."""
    from gpflow_dkp.training import fit

    return fit(
        model,
        data,
        num_steps=settings.num_steps,
        batch_size=settings.batch_size if len(data[0]) > settings.batch_size else None,
        learning_rate=list(settings.learning_rate),
        kl_annealing_steps=settings.kl_annealing_steps,
        seed=seed,
        checkpoint_dir=checkpoint_dir,
        checkpoint_seconds=checkpoint_seconds,
        callbacks=[report_step],
        progress=False,
    )
