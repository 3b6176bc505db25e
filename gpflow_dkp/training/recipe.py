"""How `fit` raises a bound: the rates of Adam, step sizes of parameter groups, clipping, annealing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import tensorflow as tf
from gpflow.models import BayesianModel

from ..checks import brief, check_flag, check_positive_integer
from ..layers import SparseGP
from ..models import LatentVariableDGP
from .arguments import is_real
from .schedules import PAPER_LEARNING_RATE, Cosine, LearningRate, check_learning_rate

FAST_LEARNING_RATE = Cosine(5e-2)

ANNEALING_STEPS = 1_000
"""Over which a run of unknown length anneals its KL term."""


@dataclass(frozen=True)
class Recipe:
    """What `fit(schedule=...)` takes.

    :param learning_rate: Adam's, as of `fit`.
    :param beta_2: decay of Adam's second moment.
    :param scales: multiples of the rate for parameters of these names, such as {"mu": 3.0}: a parameter's
        name is the attribute of the layer, kernel or likelihood that it is.
    :param clip: a gradient longer than so many times the running mean of its length (of the last 20 steps or
        so) is shortened to that; None for no clipping.
    :param annealing: the part of the steps over which the KL term's weight rises to its value.
    :param natural_gradient: step size of the output layer's natural gradients, as of `fit`.
    :param antithetic: whether a step's samples of a `DeepKernelProcess` come in pairs whose normal draws have
        opposite signs, which leaves less noise in the gradient.
    :param beta_1: decay of Adam's first moment: nearer to 1 the noise of more minibatches averages out.
    :param max_annealing_steps: the KL term's weight rises over no more steps; None for no such limit.
    :param latent_annealing: stands in place of `annealing` for a `LatentVariableDGP` that infers latent
        variables by VI, which may leave them unused where their KL has its whole weight from the start; None
        for `annealing`.
    :raises ValueError: for values that are none of these.

    >>> recipe = gpflow_dkp.training.Recipe(learning_rate=0.01, scales={"mu": 3.0}, annealing=0.0)
    >>> model = gpflow_dkp.models.NNGP.from_data(X, Y, num_inducing=3)
    >>> arguments = {"schedule": recipe, "num_steps": 3, "progress": False}
    >>> gpflow_dkp.training.fit(model, (X, Y), **arguments).num_steps
    3
    >>> gpflow_dkp.training.Recipe(annealing=1.0)
    Traceback (most recent call last):
        ...
    ValueError: annealing: got 1.0, needs a part of the steps from 0 to below 1
    """

    learning_rate: LearningRate = FAST_LEARNING_RATE
    beta_2: float = 0.99
    scales: Mapping[str, float] = field(default_factory=dict)
    clip: float | None = None
    annealing: float = 0.5
    natural_gradient: LearningRate | None = None
    antithetic: bool = False
    beta_1: float = 0.9
    max_annealing_steps: int | None = None
    latent_annealing: float | None = None

    def __post_init__(self) -> None:
        check_learning_rate(self.learning_rate)
        if self.natural_gradient is not None:
            check_learning_rate(self.natural_gradient, "natural_gradient")
        for name, beta in (("beta_1", self.beta_1), ("beta_2", self.beta_2)):
            if not is_real(beta) or not 0 <= beta < 1:
                raise ValueError(f"{name}: got {brief(beta)}, needs a number from 0 to below 1")
        if self.clip is not None and not (is_real(self.clip) and self.clip > 0):
            raise ValueError(f"clip: got {brief(self.clip)}, needs a positive number or None")
        of_latents = 0.0 if self.latent_annealing is None else self.latent_annealing
        for name, part in (("annealing", self.annealing), ("latent_annealing", of_latents)):
            if not is_real(part) or not 0 <= part < 1:
                raise ValueError(
                    f"{name}: got {brief(part)}, needs a part of the steps from 0 to below 1"
                )
        if self.max_annealing_steps is not None:
            check_positive_integer("max_annealing_steps", self.max_annealing_steps)
        check_flag("antithetic", self.antithetic)
        for name, scale in self.scales.items():
            if not isinstance(name, str) or not (is_real(scale) and scale > 0):
                raise ValueError(
                    f"scales: got {brief(scale)} for {brief(name)}, needs positive numbers by names"
                )

    def annealing_steps(self, num_steps: int | None) -> int:
        """Steps over which the KL term's weight rises in a run of `num_steps`, None where that is unknown."""
        steps = ANNEALING_STEPS if num_steps is None else round(self.annealing * num_steps)
        return min(steps, self.max_annealing_steps or steps) if self.annealing else 0


PAPER = Recipe(PAPER_LEARNING_RATE, beta_2=0.999, scales={}, clip=None, annealing=0.05)
"""[ICML21], [NeurIPS21], [UAI23]: 1e-2 and then 1e-3, KL annealed over 1 000 of 20 000 steps."""

FAST = Recipe(clip=2.0, max_annealing_steps=2_500)
"""The default: high rates that fall smoothly, and an annealing that keeps clear of poor optima, long in
a short run and not too long in a long one."""

FAST_OF_SPARSE_GP = Recipe(
    clip=2.0,
    annealing=0.0,
    natural_gradient=((0.0, 0.01), (0.05, 0.03), (0.1, 0.1)),
    latent_annealing=0.1,
)
"""The same for a `LatentVariableDGP`, whose output layer is a sparse GP: steps of its natural gradient that
grow, and an annealing where VI infers latent variables."""

RECIPES = {"fast": FAST, "paper": PAPER}


def check_recipe(schedule: str | Recipe, model: BayesianModel) -> Recipe:
    """The recipe of a name, or one that is given, with the annealing that is a model's.

    :raises ValueError: for another name or type.
    """
    recipe = _recipe_of(schedule, model)
    if recipe.latent_annealing is None or not _infers_latents_by_vi(model):
        return recipe
    return replace(recipe, annealing=recipe.latent_annealing)


def _recipe_of(schedule: str | Recipe, model: BayesianModel) -> Recipe:
    if schedule == "fast" and _steps_naturally(model):
        return FAST_OF_SPARSE_GP
    if isinstance(schedule, Recipe):
        return schedule
    if not isinstance(schedule, str) or schedule not in RECIPES:
        names = " or ".join(map(repr, RECIPES))
        raise ValueError(f"schedule: got {brief(schedule)}, needs {names}, or a Recipe")
    return RECIPES[schedule]


def names_of(model: tf.Module, variables: Sequence[tf.Variable]) -> list[str]:
    """Of each variable the attribute that it, or the parameter that it belongs to, is."""
    names: dict[object, str] = {}
    for path, value in model._flatten(predicate=_is_variable, with_path=True):
        words = [word for word in path if isinstance(word, str) and not word.startswith("_")]
        names.setdefault(value.ref(), words[-1] if words else "")
    return [names.get(variable.ref(), "") for variable in variables]


def _steps_naturally(model: BayesianModel) -> bool:
    """Whether the fast recipe of a model has natural gradients: its last layer's posterior is trained."""
    if not isinstance(model, LatentVariableDGP):
        return False
    layer = model.output_layer
    return isinstance(layer, SparseGP) and layer.q_mu.trainable and layer.q_sqrt.trainable


def _infers_latents_by_vi(model: BayesianModel) -> bool:
    if not isinstance(model, LatentVariableDGP):
        return False
    return model.inference == "vi" and any(layer.latent_dim for layer in model.layers)


def _is_variable(value: object) -> bool:
    return isinstance(value, tf.Variable)
