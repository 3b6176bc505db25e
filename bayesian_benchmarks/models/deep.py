"""The deep models of `gpflow_dkp` as [UAI23] and [ICML21] train them.

Squared-exponential kernels with ARD in the first layer, unless the name says another, hidden layers
as wide as the data have features, a Gaussian likelihood. TensorFlow is imported when a model is
built, not before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ..settings import CosineDecay, Decay, Rates, RecipeSettings, Settings
from .registry import OF_LATENT_VARIABLE_MODELS, Array, Builder, register_model

KERNELS = ("squared_exponential", "relu")
KERNELS_OF_FEATURES = ("relu_features", "erf", "sin")
"""With which a deep GP is a Bayesian neural network of finite width."""


def _builder(cls: str, **fixed: Any) -> Builder:
    """Builder of a model of `gpflow_dkp.models` from data, by class name."""

    def build(
        X: Array,
        Y: Array,
        *,
        depth: int,
        settings: Settings,
        seed: int,
        num_classes: int | None = None,
    ) -> Any:
        from gpflow_dkp import models

        likelihood = None if num_classes is None else classes_likelihood(num_classes, settings)
        return getattr(models, cls).from_data(
            X,
            Y,
            depth=depth,
            likelihood=likelihood,
            num_inducing=settings.num_inducing,
            num_samples=settings.train_samples,
            num_data=len(X),
            precision=settings.precision,
            ard=settings.ard,
            seed=seed,
            **({"input_bias": True} if settings.input_bias else {}),  # else the model's own default
            **({"shared_precision": settings.shared_precision} if cls == "DGP" else {}),
            **fixed,
        )

    return build


def classes_likelihood(num_classes: int, settings: Settings) -> Any:
    """GPflow's likelihood of labels: Bernoulli for two classes, else as the settings say."""
    import gpflow

    if num_classes == 2:
        return gpflow.likelihoods.Bernoulli()
    if getattr(settings, "likelihood", "softmax") == "robust-max":
        return gpflow.likelihoods.MultiClass(num_classes)
    likelihood = gpflow.likelihoods.Softmax(num_classes)
    likelihood.num_monte_carlo_points = getattr(settings, "likelihood_samples", 10)
    return likelihood


_UNREAD = (
    *("gwi", "sghmc", "natural_gradient", "schedule.natural_gradient"),
    *("num_importance_samples", "latent_dim"),
    *("num_inner_gps", *OF_LATENT_VARIABLE_MODELS),
)
_register_dgp = partial(register_model, ignores=_UNREAD)
_register = partial(register_model, ignores=(*_UNREAD, "shared_precision"))
# Deep GP with global inducing points and the deep Wishart process' prior.
_register_dgp("dgp")(_builder("DGP"))
for _posterior in ("gw", "a-gw", "ab-gw"):
    _register(f"dwp-{_posterior}")(_builder("DWP", posterior=_posterior))
# [ICML21]'s comparison, by its names.
for _kernel in KERNELS:
    _register_dgp(f"dgp:{_kernel}")(_builder("DGP", kernel=_kernel))
    _register(f"nngp:{_kernel}")(_builder("NNGP", kernel=_kernel))
    # It always learns a shift.
    register_model(f"diwp:{_kernel}", ignores=(*_UNREAD, "shared_precision", "input_bias"))(
        _builder("DIWP", kernel=_kernel)
    )
for _kernel in KERNELS_OF_FEATURES:
    _register_dgp(f"dgp:{_kernel}")(_builder("DGP", kernel=_kernel))


def train_with_fit(
    model: Any,
    data: tuple[Array, Array],
    *,
    settings: Settings,
    seed: int,
    checkpoint_dir: Path | None,
    checkpoint_seconds: float,
    report_step: Callable[[int], None],
    natural_gradient: Decay | None = None,
) -> Any:
    """Train with `gpflow_dkp.training.fit`, and return its `History`.

    :param natural_gradient: step size of natural gradients for the output layer, None for Adam; not read
        where there is a schedule.

    >>> from bayesian_benchmarks import Settings
    >>> from bayesian_benchmarks.models import train_with_fit
    >>> model = gpflow_dkp.models.NNGP.from_data(X, Y, num_inducing=3)
    >>> how = {"checkpoint_dir": None, "checkpoint_seconds": 30.0, "report_step": print}
    >>> train_with_fit(model, (X, Y), settings=Settings(num_steps=3), seed=0, **how).num_steps
    3
    3
    """
    from gpflow_dkp.training import fit

    how: dict[str, Any] = {
        "schedule": "paper",
        "learning_rate": as_rate(settings.learning_rate),
        "kl_annealing_steps": min(settings.kl_annealing_steps, settings.num_steps - 1),
    }
    if natural_gradient is not None:
        how["natural_gradient"] = as_rate(natural_gradient)
    if settings.schedule is not None:
        how = {"schedule": as_recipe(settings.schedule)}
    return fit(
        model,
        data,
        num_steps=settings.num_steps,
        batch_size=settings.batch_size if len(data[0]) > settings.batch_size else None,
        seed=seed,
        checkpoint_dir=checkpoint_dir,
        checkpoint_seconds=checkpoint_seconds,
        callbacks=[report_step],
        progress=False,
        **how,
    )


def as_rate(rate: Rates | Decay | CosineDecay) -> Any:
    """A rate of the settings as `fit` takes it."""
    from gpflow_dkp.training import Cosine, ExponentialDecay

    if isinstance(rate, Decay):
        return ExponentialDecay(**rate.model_dump())
    return Cosine(**rate.model_dump()) if isinstance(rate, CosineDecay) else rate


def as_recipe(recipe: RecipeSettings) -> Any:
    """A recipe of the settings as `fit` takes it."""
    from gpflow_dkp.training import Recipe

    rates = {"learning_rate": as_rate(recipe.learning_rate)}
    if recipe.natural_gradient is not None:
        rates["natural_gradient"] = as_rate(recipe.natural_gradient)
    return Recipe(**dict(recipe) | rates)
