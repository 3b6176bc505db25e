"""How a model is built, trained and evaluated, checked by pydantic: what a run's numbers depend on."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
)

from .errors import BenchmarkError, ConfigError

MAX_SEED = 2**31 - 1
MAX_COUNT = 10**9
"""Of steps, points, samples: whatever is counted."""

Count = Annotated[int, Field(strict=True, ge=1, le=MAX_COUNT)]
CountOrNone = Annotated[int, Field(strict=True, ge=0, le=MAX_COUNT)]
"""0 is allowed."""


class Decay(BaseModel):
    """rate * factor^n from step n * every on: `gpflow_dkp.training.ExponentialDecay`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    rate: float = Field(gt=0)
    factor: float = Field(default=0.98, gt=0, le=1)
    every: Count = 1_000


class CosineDecay(BaseModel):
    """From 0 to `rate`, then down a half cosine to `floor` x `rate`: `gpflow_dkp.training.Cosine`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    rate: float = Field(gt=0)
    warmup: float = Field(default=0.05, ge=0, lt=1)
    floor: float = Field(default=0.01, ge=0, le=1)


Rates = tuple[tuple[float, float], ...]
"""Pairs (fraction of the steps done, rate from there on), the first fraction 0."""


def check_rates(rates: Any) -> Any:
    """Raise `ValueError` for pairs that are no schedule."""
    if not isinstance(rates, tuple):
        return rates
    fractions = [fraction for fraction, _ in rates]
    if not fractions or fractions[0] != 0 or fractions != sorted(set(fractions)):
        raise ValueError("fractions must start at 0 and increase")
    if fractions[-1] >= 1 or min(rate for _, rate in rates) <= 0:
        raise ValueError("fractions must be below 1 and rates above 0")
    return rates


def check_kind(rates: Any) -> Any:
    """Raise `ValueError` for what may be either decay."""
    if isinstance(rates, Mapping) and set(rates) == {"rate"}:
        raise ValueError(
            "a rate alone may be either decay; needs factor or every for an exponential one, warmup or floor "
            "for a cosine"
        )
    return rates


RecipeRates = Annotated[
    Rates | Decay | CosineDecay, BeforeValidator(check_kind), AfterValidator(check_rates)
]


class RecipeSettings(BaseModel):
    """How Adam raises a bound: `gpflow_dkp.training.Recipe`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    learning_rate: RecipeRates
    beta_1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of Adam's first moment."""
    beta_2: float = Field(default=0.99, ge=0, lt=1)
    """Of its second."""
    scales: dict[str, Annotated[float, Field(gt=0)]] = {}
    """Multiples of the rate for parameters of these names."""
    clip: float | None = Field(default=None, gt=0)
    """A gradient longer than so many times the mean of those before is shortened."""
    annealing: float = Field(default=0.5, ge=0, lt=1)
    """Part of the steps over which the KL's weight grows from 0 to 1."""
    max_annealing_steps: Count | None = None
    """Over no more steps than these; null for no such limit."""
    latent_annealing: float | None = Field(default=None, ge=0, lt=1)
    """In place of `annealing` for deep GPs whose latent variables VI infers; null for the same."""
    natural_gradient: RecipeRates | None = None
    """Step size of the final layer's natural gradient; null to leave that layer to Adam."""
    antithetic: bool = False
    """Whether a step's samples come in pairs of opposite normals."""

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    def is_limited(self, num_steps: int) -> bool:
        """Whether a run of so many steps is annealed over fewer of them than without the limit."""
        most, part = self.max_annealing_steps, max(self.annealing, self.latent_annealing or 0.0)
        return most is not None and part * num_steps > most


FAST = RecipeSettings(learning_rate=CosineDecay(rate=5e-2), clip=2.0, max_annealing_steps=2_500)
"""The library's default, its values written out: a row says how it was made after that has changed."""

FAST_OF_SPARSE_GP = RecipeSettings(
    learning_rate=CosineDecay(rate=5e-2),
    clip=2.0,
    annealing=0.0,
    natural_gradient=((0.0, 0.01), (0.05, 0.03), (0.1, 0.1)),
    latent_annealing=0.1,
)
"""That of deep GPs with latent variables."""


class MeanNetwork(BaseModel):
    """The mean of a Gaussian Wasserstein inference, a network."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    hidden_units: tuple[Count, ...] = (10, 10)
    """Of the hidden layers."""
    activation: Literal["tanh", "relu"] = "tanh"
    weight_variance: float | None = Field(default=None, gt=0)
    """Of a normal prior on the weights; null for none."""


class GWISettings(BaseModel):
    """How Gaussian Wasserstein inference chooses and trains, beside what every model's `Settings` say.

    A run's choices are made on parts of the training data that are held out; nothing sees the test part.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    protocol: Literal["80/10/10", "90/10", "cross-validation"] = "80/10/10"
    """Training, validation and test parts. With 90/10 what was chosen trains on, on both of the first.
    With cross-validation, for targets only, each fold of the training part is held out in turn."""
    refit_steps: Count = 500
    """Steps of training on with 90/10, at rates that fall from a tenth of the first one."""
    num_folds: Annotated[Count, Field(ge=2)] = 5
    """Of cross-validation."""
    step_fractions: tuple[float, ...] = Field(default=(1.0,), min_length=1)
    """Candidates of cross-validation for the number of steps, over `num_steps`."""
    inducing_factors: tuple[float, ...] = Field(default=(0.5, 1.0, 2.0), min_length=1)
    """Candidates for the number of inducing points, in square roots of the number of training points."""
    noise_variances: tuple[float, ...] = Field(default=(0.3, 0.1, 0.01), min_length=1)
    """Candidates for the Gaussian likelihood's variance, normalised targets."""
    validation_steps: Count = 100
    """Training steps from one validation to the next."""
    patience: Count = 20
    """Validations without a better one after which training stops."""
    hidden_units: tuple[Count, ...] = (10, 10)
    """Of the hidden layers of `gwi-net`'s mean."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Of the same."""
    weight_variance: float | None = Field(default=None, gt=0)
    """Of a normal prior on the weights of `gwi-net`'s mean, null for none; of `mlp-` and `cnn-` models, which
    always have one, null for 1."""
    image_activation: Literal["relu", "tanh"] = "relu"
    """Of the hidden layers of `cnn-` models."""
    networks: tuple[MeanNetwork, ...] = Field(
        default=(
            MeanNetwork(),
            *(
                MeanNetwork(hidden_units=(50, 50), activation="relu", weight_variance=variance)
                for variance in (1.0, 0.1)
            ),
        ),
        min_length=1,
    )
    """Candidates for the mean of `gwi-net-selected`."""
    epsilon: float = Field(default=0.01, gt=0, lt=1)
    """Of the robust-max likelihood of classes."""
    distance: Literal["squared", "root", "published", "kl"] = "squared"
    """Of the objective, as in `gpflow_dkp.models.GWI`; "kl" for `gwi-svgp` alone."""
    cross_term: Literal["nystrom", "eigenvalues", "exact"] = "nystrom"
    """Its estimator."""
    num_cross_points: Count = 50
    """Points of the estimate, at most a batch's."""
    separate_kernels: bool = False
    """Whether each class, or each of several targets, has a kernel of its own."""
    covariance: Literal["svgp", "prior", "squared_exponential", "rational_quadratic", "relu"] = (
        "svgp"
    )
    """Of the posterior, as in `gpflow_dkp.models.GWI.from_data`: the sparse GP's or a kernel of its own."""

    @field_validator("inducing_factors", "noise_variances", "step_fractions")
    @classmethod
    def _check_positive(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if min(values) <= 0:
            raise ValueError("must be above 0")
        return values

    @field_validator("step_fractions")
    @classmethod
    def _check_fractions(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if max(values) > 1:
            raise ValueError("must be at most 1")
        return values


class SGHMCSettings(BaseModel):
    """How `gpflow_dkp.training.sample` draws inducing values: of `gp:sghmc`, deeper ones, `dwp:sghmc`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    num_samples: Count = 2_000
    """Values that are kept, the last ones; fewer of a chain that is too short to spend half on them."""
    thinning: Count = 5
    """Steps from one that is kept to the next."""
    step_size: float = Field(default=0.01, gt=0)
    friction: float = Field(default=0.05, gt=0, lt=1)
    """Part of the momentum that a step takes away."""
    temperature: float = Field(default=1.0, gt=0)
    """1 for the posterior."""
    window_size: Count = 300
    """Values of which one gives the hyperparameters' gradient."""
    learning_rate: float | None = Field(default=5e-3, gt=0)
    """Adam's for the hyperparameters, in the burn-in, as in [ICML19]'s code; null to leave them."""


OF_PAPERS_SCHEDULE = ("learning_rate", "kl_annealing_steps", "natural_gradient")
"""Settings that are not read where there is a schedule."""


def schedule_name(settings: str) -> str:
    """How a row's `settings` train: "paper", "fast", or "own" for another recipe."""
    values = json.loads(settings)
    schedule = values.get("schedule")
    if schedule is None:
        return "paper"
    if "annealing" in schedule and FAST.is_limited(values["num_steps"]):
        schedule = {"max_annealing_steps": None} | schedule
    # A row leaves out what its model does not read.
    known = (json.loads(recipe.model_dump_json()) for recipe in (FAST, FAST_OF_SPARSE_GP))
    same = (all(of.get(name) == value for name, value in schedule.items()) for of in known)
    return "fast" if any(same) else "own"


class Settings(BaseModel):
    """How a model is built, trained and evaluated: all that changes a run's numbers.

    The defaults are the protocol of the config `ober2023`.

    >>> from bayesian_benchmarks import Settings
    >>> settings = Settings(num_inducing=50, schedule="fast")
    >>> settings.num_steps, settings.num_inducing, settings.schedule.clip
    (20000, 50, 2.0)
    >>> Settings().with_steps(100).kl_annealing_steps
    25
    """

    of_evaluation: ClassVar[frozenset[str]] = frozenset({"elbo_samples", "test_samples"})
    """What training does not depend on: another value scores again, and trains nothing."""

    schedules: ClassVar[dict[str, RecipeSettings | None]] = {"fast": FAST, "paper": None}
    """Names that a config may give."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    num_steps: Count = 20_000
    """Adam steps."""
    schedule: RecipeSettings | None = None
    """How the bound is raised: "fast", the library's default, or a recipe; null, or "paper", for the next
    two."""
    learning_rate: Annotated[Rates | Decay, AfterValidator(check_rates)] = (
        (0.0, 1e-2),
        (0.5, 1e-3),
    )
    """Pairs (fraction of the steps done, rate from there on), the first fraction 0; or a decay. Not read
    where there is a `schedule`."""
    kl_annealing_steps: CountOrNone = 1_000
    """Steps over which the KL's weight grows from 0 to 1. Not read where there is a `schedule`."""
    num_inducing: Count = 100
    batch_size: Count = 1_000
    """Points a step; all of them where the training part is smaller."""
    train_samples: Count = 10
    """Samples of the hidden layers a training step."""
    precision: Literal["full", "mixed-gradient", "mixed"] = "mixed-gradient"
    """Of the data points' blocks, as in `gpflow_dkp.models`."""
    elbo_samples: Count = 100
    """Samples of the reported ELBO; fewer once its standard error per training point is below 1e-3."""
    test_samples: Annotated[Count, Field(ge=2)] = 100
    """Components of the predictive mixture."""
    ard: bool = True
    """Whether dgp, dwp, nngp and diwp learn a scale of each input feature."""
    input_bias: bool = False
    """Whether dgp, dwp and nngp learn a shift of each input feature too, as diwp always does."""
    shared_precision: bool = True
    """Whether the functions of a layer of dgp share a precision, as in `gpflow_dkp.models.DGP`."""
    gwi: GWISettings | None = None
    """Of Gaussian Wasserstein inference; null for the defaults."""

    @field_validator("schedule", mode="before")
    @classmethod
    def _find_schedule(cls, schedule: Any) -> Any:
        if not isinstance(schedule, str):
            return schedule
        if schedule not in cls.schedules:
            raise ValueError(f"needs {' or '.join(cls.schedules)}, or a recipe")
        return cls.schedules[schedule]

    def with_steps(self, num_steps: int) -> Settings:
        """The same for a run of `num_steps`, the KL annealing capped at a quarter of them.

        A short run so ends on the true objective.
        """
        annealing = min(self.kl_annealing_steps, num_steps // 4)
        return validated(
            type(self),
            self.model_dump() | {"num_steps": num_steps, "kl_annealing_steps": annealing},
            "--steps",
        )


class ClassificationSettings(Settings):
    """The same for classification.

    The defaults are the protocol of the config `classification`.
    """

    num_steps: Count = 8_000
    """Adam steps."""
    precision: Literal["full", "mixed-gradient", "mixed"] = "full"
    """Single precision breaks the training of arc-cosine kernels with large biases."""
    likelihood: Literal["softmax", "robust-max"] = "softmax"
    """Of more than two classes; two have GPflow's Bernoulli."""
    likelihood_samples: Count = 10
    """Monte Carlo draws of the softmax's expectation for each sample of the hidden layers."""


class OodSettings(ClassificationSettings):
    """The same for out-of-distribution detection.

    The defaults are the protocol of the config `wild2022_ood`.
    """

    train_samples: Count = 1
    """Samples of the hidden layers a training step."""


class DensitySettings(Settings):
    """The same for conditional densities by deep GPs with latent variables.

    The defaults are the protocol of the config `salimbeni2019`.
    """

    schedules: ClassVar[dict[str, RecipeSettings | None]] = {
        "fast": FAST_OF_SPARSE_GP,
        "paper": None,
    }

    num_steps: Count = 100_000
    """Steps of Adam and of the natural gradient, or of a chain, burn-in included."""
    learning_rate: tuple[tuple[float, float], ...] | Decay = Decay(rate=5e-3)
    natural_gradient: Decay | None = Decay(rate=1e-2)
    """Step size of the final layer's natural gradient; null to leave that layer to Adam. Not read where there
    is a `schedule`."""
    kl_annealing_steps: CountOrNone = 0
    """Steps over which the KL's weight grows from 0 to 1."""
    num_inducing: Count = 128
    batch_size: Count = 512
    """Points a step; all of them where the training part is smaller."""
    train_samples: Count = 1
    """Independent estimates of the bound a training step."""
    precision: Literal["full", "mixed-gradient", "mixed"] = "full"
    """Of models with global inducing points."""
    num_importance_samples: Count = 5
    """Draws of a point's latent variables in an importance-weighted bound."""
    latent_dim: Count = 1
    """Latent variables of each latent-variable layer."""
    num_inner_gps: Count = 5
    """GPs of an inner layer, in the inputs' leading principal directions."""
    separate_kernels: bool = False
    """Whether each of them has a kernel and inducing points of its own; not read by sampled models."""
    inner_noise: float | None = Field(default=None, gt=0)
    """Starting variance of noise that is added to each of them, null for none; not read by sampled models."""
    num_marginal_points: CountOrNone = 0
    """Rows by whose marginal likelihood a trained model's last kernel starts; 0 for none."""
    test_samples: Annotated[Count, Field(ge=2)] = 2_000
    """Components of the predictive mixture, and samples of its kernel density estimate."""
    sghmc: SGHMCSettings = SGHMCSettings()
    """Of the models whose inducing values are sampled."""


def validated(model: type[Any], values: Any, source: str) -> Any:
    """The values as a model of pydantic's.

    :param source: where they are from; one that ends in a dot is the first part of the fields' names.
    :raises ConfigError: they do not validate; one line with the source says where and why.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = [_describe(problem, model) for problem in error.errors()]
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        separator = "" if source.endswith(".") else ": "
        raise ConfigError(f"{source}{separator}{'; '.join(problems[:3])}{more}") from error


def _describe(problem: Any, model: type[Any]) -> str:
    """One pydantic error as `num_steps: must be ... (got ...)`."""
    cause = (problem.get("ctx") or {}).get("error")
    if isinstance(cause, BenchmarkError):
        return str(cause)
    location = [str(part) for part in problem["loc"] if "[" not in str(part)]
    where = ".".join(location)
    if problem["type"] == "extra_forbidden":
        close = difflib.get_close_matches(location[-1], _fields(model, location[:-1]), n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        return f"{where}: no such field{hint}"
    if problem["type"] == "missing":
        return f"{where}: is required"
    message = problem["msg"].removeprefix("Value error, ")
    got = repr(problem["input"])
    got = got if len(got) < 100 else f"{got[:97]}..."
    return f"{where}: {message[:1].lower()}{message[1:]} (got {got})"


def _fields(model: type[BaseModel], location: list[str]) -> list[str]:
    """Names of the fields at a location, as far as they are known."""
    for name in location:
        field = model.model_fields.get(name)
        inner = [field.annotation, *get_args(field.annotation)] if field else []
        found = [t for t in inner if isinstance(t, type) and issubclass(t, BaseModel)]
        if not found:
            return []
        model = found[0]
    return list(model.model_fields)
