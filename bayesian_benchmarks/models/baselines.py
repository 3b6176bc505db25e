"""[NeurIPS22]'s baselines: the network of `gwi-net` by other inferences, and exact GP regression.

`mlp-map`, `mlp-mean-field`, `mlp-dropout`, `mlp-laplace` and `mlp-ensemble` are
`gpflow_dkp.models.NeuralNetwork`, with the hidden layers of the settings `gwi.hidden_units` and
`gwi.activation`; `cnn-map` and so on have the layers of `gwi-cnn`, in single precision as those are, with
the curvature of the last layer alone for `cnn-laplace`. The prior of their weights has the variance
`gwi.weight_variance`. `exact-gp` is GPflow's `GPR` with an ARD squared exponential.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..errors import ConfigError
from ..settings import GWISettings, Settings
from .deep import classes_likelihood, train_with_fit
from .images import image_shape
from .registry import (
    OF_LATENT_VARIABLE_MODELS,
    OF_THE_DEEP_MODELS,
    Array,
    Builder,
    TrainingRecord,
    register_model,
)

MOST_ROWS = 5_000
"""Of an exact GP, whose cost is their cube."""

LEAST_NOISE = 1e-4
"""Variance of the exact GP's noise, of normalised targets.

Where rows come twice with equal targets, as wine's do, the marginal likelihood rises without a limit as the
noise vanishes, until K + noise has no Cholesky factor.
"""

Inference = Literal["map", "mean-field", "dropout", "laplace", "ensemble"]

_OF_NETWORK = ("hidden_units", "activation", "weight_variance")
_OF_IMAGES = ("image_activation", "weight_variance")


def _smooth_likelihood(num_classes: int | None, settings: Settings) -> Any:
    """That of the settings, which a network of given weights can learn from; of a regression the default."""
    if num_classes is None:
        return None
    if num_classes > 2 and getattr(settings, "likelihood", "softmax") == "robust-max":
        raise ConfigError(
            "likelihood: robust-max is constant in f but for jumps, and a network's f has no variance; "
            "set it to softmax for mlp- and cnn- models."
        )
    return classes_likelihood(num_classes, settings)


def _weight_variance(gwi: GWISettings) -> float:
    """Of the prior, which these networks always have."""
    return 1.0 if gwi.weight_variance is None else gwi.weight_variance


def _network(inference: Inference) -> Builder:
    def build(
        X: Array,
        Y: Array,
        *,
        depth: int,
        settings: Settings,
        seed: int,
        num_classes: int | None = None,
    ) -> Any:
        from gpflow_dkp.models import NeuralNetwork

        gwi = settings.gwi or GWISettings()
        return NeuralNetwork(
            X.shape[1],
            _smooth_likelihood(num_classes, settings),
            inference=inference,
            num_latent_gps=Y.shape[1] if num_classes is None else None,
            hidden_units=gwi.hidden_units,
            activation=gwi.activation,
            weight_variance=_weight_variance(gwi),
            num_samples=settings.train_samples,
            num_data=len(X),
            seed=seed,
        )

    return build


def _convolutional_network(inference: Inference) -> Builder:
    def build(
        X: Array,
        Y: Array,
        *,
        depth: int,
        settings: Settings,
        seed: int,
        num_classes: int | None = None,
    ) -> Any:
        from gpflow_dkp.models import NeuralNetwork

        gwi = settings.gwi or GWISettings()
        return NeuralNetwork(
            X.shape[1],
            _smooth_likelihood(num_classes, settings),
            inference=inference,
            filters=(16, 16, 16),
            image_shape=image_shape(
                X.shape[1], model=f"cnn-{inference}", instead=f"mlp-{inference}"
            ),
            hidden_units=(64,),
            activation=gwi.image_activation,
            weight_variance=_weight_variance(gwi),
            curvature="last-layer",
            precision="mixed",
            num_samples=settings.train_samples,
            num_data=len(X),
            seed=seed,
        )

    return build


def train_with_curvature(model: Any, data: tuple[Array, Array], **training: Any) -> TrainingRecord:
    """`train_with_fit`, and the curvature of the posterior where it ends."""
    record = train_with_fit(model, data, **training)
    model.find_curvature(data)
    return record


_IGNORED = (
    "sghmc",
    *OF_THE_DEEP_MODELS,
    "num_inducing",
    "natural_gradient",
    "schedule.natural_gradient",
)


def _gwi_but(names: tuple[str, ...]) -> list[str]:
    """The settings of Gaussian Wasserstein inference but for these."""
    return [f"gwi.{name}" for name in GWISettings.model_fields if name not in names]


for _inference in get_args(Inference):
    _no_samples = () if _inference in ("mean-field", "dropout") else ("train_samples",)
    _train = train_with_curvature if _inference == "laplace" else None
    register_model(
        f"mlp-{_inference}",
        train=_train,
        tasks=("regression", "classification", "ood"),
        ignores=(*_IGNORED, *_gwi_but(_OF_NETWORK), *_no_samples),
    )(_network(_inference))
    register_model(
        f"cnn-{_inference}",
        train=_train,
        tasks=("classification", "ood"),
        ignores=(*_IGNORED, *_gwi_but(_OF_IMAGES), *_no_samples),
    )(_convolutional_network(_inference))


@dataclass(frozen=True)
class Search:
    """The cost of a search by L-BFGS.

    :param seconds: of all of it.
    :param num_steps: its iterations.

    >>> from bayesian_benchmarks.models.baselines import Search
    >>> Search(seconds=3.0, num_steps=6).seconds_per_step
    0.5
    """

    seconds: float
    num_steps: int
    num_recoveries: int = 0

    @property
    def seconds_per_step(self) -> float:
        """An iteration's."""
        return self.seconds / max(self.num_steps, 1)


class ExactGP:
    """GP regression without approximation as a model of the benchmark.

    :param X: [N, D], at most 5 000 rows.
    :param Y: [N, P].
    :raises ConfigError: more rows.

    >>> from bayesian_benchmarks.models.baselines import ExactGP
    >>> ExactGP(X, Y).predict_mixture(X, num_samples=1)[0].shape
    TensorShape([1, 10, 1])
    """

    def __init__(self, X: Array, Y: Array) -> None:
        import gpflow
        import numpy as np

        from gpflow_dkp.models.marginal_likelihood import Regression

        if len(X) > MOST_ROWS:
            raise ConfigError(
                f"exact-gp: got {len(X)} rows, whose cube is its cost, needs at most {MOST_ROWS}; take svgp."
            )
        kernel = gpflow.kernels.SquaredExponential(lengthscales=np.ones(X.shape[1]))
        noise = gpflow.likelihoods.Gaussian(0.1, variance_lower_bound=LEAST_NOISE)
        self.gpr = Regression((X, Y), kernel, likelihood=noise)
        self._log_evidence: Any = None

    def predict_mixture(self, X: Array, *, num_samples: int, seed: int = 0) -> Any:
        """Mean and variance of new observations, one component [1, N, P]."""
        mean, variance = self.gpr.predict_y(X)
        return mean[None], variance[None]

    def elbo(self, data: tuple[Array, Array], **sampling: Any) -> Any:
        """The log marginal likelihood of all training data, whatever batch of them is given."""
        if self._log_evidence is None:
            self._log_evidence = self.gpr.log_marginal_likelihood()
        return self._log_evidence

    def search(self, num_steps: int) -> int:
        """Maximise the marginal likelihood by L-BFGS from each of two starts, and keep the better end.

        Of few rows of many columns it has several optima, among them poor ones at the least noise.

        :param num_steps: the most iterations of a search.
        :return: iterations of both.
        """
        import gpflow
        import numpy as np

        from gpflow_dkp.models.marginal_likelihood import assign_packed, minimise

        optimizer, variables = gpflow.optimizers.Scipy(), self.gpr.trainable_variables
        lengthscales, noise = self.gpr.kernel.lengthscales, self.gpr.likelihood.variance
        num_columns = lengthscales.shape[0]
        taken, ends = 0, []
        for lengthscale, variance in ((1.0, 0.1), (np.sqrt(num_columns), 0.01)):
            lengthscales.assign(np.full(num_columns, lengthscale))
            self.gpr.kernel.variance.assign(1.0)
            noise.assign(variance)
            taken += minimise(optimizer, self.gpr.training_loss, variables, num_steps)
            ends.append((float(self.gpr.training_loss()), optimizer.pack_tensors(variables)))
        _, best = min(ends, key=lambda end: end[0])
        assign_packed(optimizer, variables, best)
        self._log_evidence = None
        return taken


def train_by_marginal_likelihood(
    model: ExactGP, data: tuple[Array, Array], *, settings: Settings, report_step: Any, **_: Any
) -> Search:
    """`ExactGP.search`; it starts afresh after a kill."""
    start = time.perf_counter()
    num_iterations = model.search(settings.num_steps)
    report_step(settings.num_steps)
    return Search(time.perf_counter() - start, num_iterations)


@register_model(
    "exact-gp",
    train=train_by_marginal_likelihood,
    tasks=("regression", "density"),
    ignores=(
        *("gwi", "sghmc", *OF_THE_DEEP_MODELS, "num_inducing", "schedule", "learning_rate"),
        *("kl_annealing_steps", "batch_size", "train_samples", "natural_gradient", "latent_dim"),
        *("num_importance_samples", "num_inner_gps", *OF_LATENT_VARIABLE_MODELS),
    ),
    min_depth=0,
)
def build_exact_gp(X: Array, Y: Array, *, depth: int, settings: Settings, seed: int) -> ExactGP:
    """A GP regression of all rows."""
    return ExactGP(X, Y)
