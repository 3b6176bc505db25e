"""An experiment's configuration: YAML files checked by pydantic, and command-line overrides."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from .errors import ConfigError
from .results.paper import paper_results


class Decay(BaseModel):
    """rate * factor^n from step n * every on: `gpflow_dkp.training.ExponentialDecay`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rate: float = Field(gt=0)
    factor: float = Field(default=0.98, gt=0, le=1)
    every: int = Field(default=1_000, ge=1)


class MeanNetwork(BaseModel):
    """The mean of a Gaussian Wasserstein inference, a network."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    hidden_units: tuple[int, ...] = (10, 10)
    """Of the hidden layers."""
    activation: Literal["tanh", "relu"] = "tanh"
    weight_variance: float | None = Field(default=None, gt=0)
    """Of a normal prior on the weights; null for none."""


class GWISettings(BaseModel):
    """How Gaussian Wasserstein inference chooses and trains, beside what every model's `Settings` say.

    A run's choices are made on parts of the training data that are held out; nothing sees the test part.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    protocol: Literal["80/10/10", "90/10", "cross-validation"] = "80/10/10"
    """Training, validation and test parts. With 90/10 what was chosen trains on, on both of the first.
    With cross-validation, for targets only, each fold of the training part is held out in turn."""
    refit_steps: int = Field(default=500, ge=1)
    """Steps of training on with 90/10, at a tenth of the learning rate."""
    num_folds: int = Field(default=5, ge=2)
    """Of cross-validation."""
    step_fractions: tuple[float, ...] = Field(default=(1.0,), min_length=1)
    """Candidates of cross-validation for the number of steps, over `num_steps`."""
    inducing_factors: tuple[float, ...] = Field(default=(0.5, 1.0, 2.0), min_length=1)
    """Candidates for the number of inducing points, in square roots of the number of training points."""
    noise_variances: tuple[float, ...] = Field(default=(0.3, 0.1, 0.01), min_length=1)
    """Candidates for the Gaussian likelihood's variance, normalised targets."""
    validation_steps: int = Field(default=100, ge=1)
    """Training steps from one validation to the next."""
    patience: int = Field(default=20, ge=1)
    """Validations without a better one after which training stops."""
    hidden_units: tuple[int, ...] = (10, 10)
    """Of the hidden layers of `gwi-net`'s mean."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Of the same."""
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
    distance: Literal["squared", "root", "published"] = "squared"
    """Wasserstein distance of the objective, as in `gpflow_dkp.models.GWI`."""
    cross_term: Literal["nystrom", "eigenvalues", "exact"] = "nystrom"
    """Its estimator."""
    num_cross_points: int = Field(default=50, ge=1)
    """Points of the estimate, at most a batch's."""

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


class Settings(BaseModel):
    """How a model is built, trained and evaluated: all that changes a run's numbers.

    The defaults are the protocol of `configs/ober2023.yaml`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    num_steps: int = Field(default=20_000, ge=1)
    """Adam steps."""
    learning_rate: tuple[tuple[float, float], ...] | Decay = ((0.0, 1e-2), (0.5, 1e-3))
    """Pairs (fraction of the steps done, rate from there on), the first fraction 0; or a decay."""
    kl_annealing_steps: int = Field(default=1_000, ge=0)
    """Steps over which the KL's weight grows from 0 to 1."""
    num_inducing: int = Field(default=100, ge=1)
    batch_size: int = Field(default=1_000, ge=1)
    """Points a step; all of them where the training part is smaller."""
    train_samples: int = Field(default=10, ge=1)
    """Samples of the hidden layers a training step."""
    precision: Literal["full", "mixed-gradient", "mixed"] = "mixed-gradient"
    """Of the data points' blocks, as in `gpflow_dkp.models`."""
    elbo_samples: int = Field(default=100, ge=1)
    """Samples that the reported ELBO is averaged over."""
    test_samples: int = Field(default=100, ge=2)
    """Components of the predictive mixture."""
    ard: bool = True
    """Whether dgp, dwp, nngp and diwp learn a scale of each input feature."""
    gwi: GWISettings | None = None
    """Of Gaussian Wasserstein inference; null for the defaults."""

    @field_validator("learning_rate")
    @classmethod
    def _check_schedule(
        cls, schedule: tuple[tuple[float, float], ...] | Decay
    ) -> tuple[tuple[float, float], ...] | Decay:
        if isinstance(schedule, Decay):
            return schedule
        fractions = [fraction for fraction, _ in schedule]
        if not fractions or fractions[0] != 0 or fractions != sorted(set(fractions)):
            raise ValueError("fractions must start at 0 and increase")
        if fractions[-1] >= 1 or min(rate for _, rate in schedule) <= 0:
            raise ValueError("fractions must be below 1 and rates above 0")
        return schedule

    def with_steps(self, num_steps: int) -> Settings:
        """The same for a run of `num_steps`, the KL annealing capped at a quarter of them.

        A short run so ends on the true objective.
        """
        annealing = min(self.kl_annealing_steps, num_steps // 4)
        return _validated(
            type(self),
            self.model_dump() | {"num_steps": num_steps, "kl_annealing_steps": annealing},
            "--steps",
        )


class ClassificationSettings(Settings):
    """The same for classification.

    The defaults are the protocol of `configs/classification.yaml`.
    """

    num_steps: int = Field(default=8_000, ge=1)
    """Adam steps."""
    precision: Literal["full", "mixed-gradient", "mixed"] = "full"
    """Single precision breaks the training of arc-cosine kernels with large biases."""
    likelihood: Literal["softmax", "robust-max"] = "softmax"
    """Of more than two classes; two have GPflow's Bernoulli."""
    likelihood_samples: int = Field(default=10, ge=1)
    """Monte Carlo draws of the softmax's expectation for each sample of the hidden layers."""


class OodSettings(ClassificationSettings):
    """The same for out-of-distribution detection.

    The defaults are the protocol of `configs/wild2022_ood.yaml`.
    """

    train_samples: int = Field(default=1, ge=1)
    """Samples of the hidden layers a training step."""


class DensitySettings(Settings):
    """The same for conditional densities by deep GPs with latent variables.

    The defaults are the protocol of `configs/salimbeni2019.yaml`.
    """

    num_steps: int = Field(default=100_000, ge=1)
    """Steps of Adam and of the natural gradient."""
    learning_rate: tuple[tuple[float, float], ...] | Decay = Decay(rate=5e-3)
    natural_gradient: Decay | None = Decay(rate=1e-2)
    """Step size of the final layer's natural gradient; null to leave that layer to Adam."""
    kl_annealing_steps: int = Field(default=0, ge=0)
    """Steps over which the KL's weight grows from 0 to 1."""
    num_inducing: int = Field(default=128, ge=1)
    batch_size: int = Field(default=512, ge=1)
    """Points a step; all of them where the training part is smaller."""
    train_samples: int = Field(default=1, ge=1)
    """Independent estimates of the bound a training step."""
    precision: Literal["full", "mixed-gradient", "mixed"] = "full"
    """Of models with global inducing points."""
    num_importance_samples: int = Field(default=5, ge=1)
    """Draws of a point's latent variables in an importance-weighted bound."""
    latent_dim: int = Field(default=1, ge=1)
    """Latent variables of each latent-variable layer."""
    num_inner_gps: int = Field(default=5, ge=1)
    """GPs of an inner layer, in the inputs' leading principal directions."""
    test_samples: int = Field(default=2_000, ge=2)
    """Components of the predictive mixture, and samples of its kernel density estimate."""


class Experiment(BaseModel):
    """What to run: models x datasets x splits x depths x seeds, with one `Settings`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str = "regression"
    paper: str | None = None
    """The paper whose figures the table prints beside ours, as in `paper_results.csv`."""
    models: tuple[str, ...] = Field(min_length=1)
    datasets: tuple[str, ...] = ()
    csv: Path | None = None
    """A CSV file of the user's, in addition to `datasets`."""
    target: str | None = None
    """Its target column; may be left out when it is called target or y."""
    splits: Literal["all"] | tuple[int, ...] = "all"
    depths: tuple[int, ...] = Field(min_length=1)
    depth_counts_output_layer: bool = True
    """Whether `depths`, and the paper's, count the output layer. Stored rows always count it."""
    seeds: tuple[int, ...] = Field(default=(0,), min_length=1)
    settings: Settings = Settings()
    checkpoint_seconds: float = Field(default=30.0, ge=0)
    """Least time between two checkpoints; changes no result."""
    plugins: tuple[str, ...] = ()
    """Modules to import first, here and in workers: they register models and datasets."""

    @field_validator("paper")
    @classmethod
    def _check_paper(cls, paper: str | None) -> str | None:
        known = sorted({result.paper for result in paper_results()})
        if paper not in (None, *known):
            raise ValueError(f"no figures of such a paper; known are {', '.join(known)}")
        return paper

    @field_validator("seeds")
    @classmethod
    def _check_seeds(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if min(seeds) < 0:
            raise ValueError("a seed is at least 0")
        return seeds

    @field_validator("depths")
    @classmethod
    def _check_depths(cls, depths: tuple[int, ...]) -> tuple[int, ...]:
        if min(depths) < 1:
            raise ValueError("a depth is at least 1")
        return depths

    def model_depth(self, depth: int) -> int:
        """The number of layers, output layer included, for a depth as this experiment counts."""
        return depth if self.depth_counts_output_layer else depth + 1

    def override(self, **changes: Any) -> Experiment:
        """A copy with the fields that are not None replaced and checked.

        :raises ConfigError: a value is not allowed.
        """
        changes = {name: value for name, value in changes.items() if value is not None}
        return _validated(type(self), dict(self) | changes, "command line")


class ClassificationExperiment(Experiment):
    """The same for classification."""

    task: str = "classification"
    settings: ClassificationSettings = ClassificationSettings()


class OodExperiment(Experiment):
    """The same for out-of-distribution detection."""

    task: str = "ood"
    settings: OodSettings = OodSettings()


class DensityExperiment(Experiment):
    """The same for conditional densities, where a model's name says its layers."""

    task: str = "density"
    depths: tuple[int, ...] = Field(default=(0,), min_length=1)
    """0 for models whose name says their layers; the others' depth."""
    settings: DensitySettings = DensitySettings()

    @field_validator("depths")
    @classmethod
    def _check_depths(cls, depths: tuple[int, ...]) -> tuple[int, ...]:
        if min(depths) < 0:
            raise ValueError("a depth is at least 0")
        return depths


EXPERIMENTS: dict[str, type[Experiment]] = {
    "regression": Experiment,
    "classification": ClassificationExperiment,
    "density": DensityExperiment,
    "ood": OodExperiment,
}
"""The kind of experiment of each task."""


def load_experiment(path: str | Path) -> Experiment:
    """Read and check a YAML file.

    :raises ConfigError: it cannot be read or does not validate; one line says where and why.
    """
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"Cannot read the config {path} ({error.strerror or error}).") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold named fields, such as 'models: [dgp]'.")
    task = content.get("task", "regression")
    if task not in EXPERIMENTS:
        known = " or ".join(repr(name) for name in EXPERIMENTS)
        raise ConfigError(f"{path}: task: input should be {known} (got {task!r})")
    return _validated(EXPERIMENTS[task], content, str(path))


def _validated(model: type[Any], values: dict[str, Any], source: str) -> Any:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = [_describe(problem, model) for problem in error.errors()]
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        raise ConfigError(f"{source}: {'; '.join(problems[:3])}{more}") from error


def _describe(problem: Any, model: type[Any]) -> str:
    """One pydantic error as `settings.num_steps: must be ... (got ...)`."""
    location = [str(part) for part in problem["loc"] if "[" not in str(part)]
    where = ".".join(location)
    if problem["type"] == "extra_forbidden":
        of_settings = location[0] == "settings"
        fields = model.model_fields["settings"].annotation if of_settings else model
        close = difflib.get_close_matches(location[-1], fields.model_fields, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        return f"{where}: no such field{hint}"
    if problem["type"] == "missing":
        return f"{where}: is required"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{where}: {message[:1].lower()}{message[1:]} (got {problem['input']!r})"
