"""Gaussian Wasserstein inference as [NeurIPS22] trains it, every choice made on a validation part.

`gwi-net` has the paper's neural network as its mean, `gwi-net-selected` one of several, `gwi-cnn` a
convolutional one for images, `gwi-svgp` the mean of a sparse GP; `svgp` is the sparse GP itself, by its
evidence lower bound. Network, noise variance, number of inducing points, number of steps and the
temperature of the predictive variance are chosen on part of the training data.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy import stats

from ..config import Decay, GWISettings, MeanNetwork, Settings
from ..datasets import random_split
from ..errors import BadDataError, ConfigError
from .deep import classes_likelihood, train_with_fit
from .registry import Array, Builder, TrainingRecord, register_model

VALIDATION_FRACTION = 1 / 9
"""Of the training part: a tenth of all data where the test part is a tenth."""

Data = tuple[Array, Array]
MeanName = Literal["net", "net-selected", "cnn", "svgp"]


@dataclass(frozen=True)
class Candidate:
    """What is chosen: the network if the mean is one, the number of inducing points in square roots of N,
    the noise variance, and by cross-validation the number of steps over the settings'.
    """

    network: MeanNetwork | None
    inducing_factor: float
    noise_variance: float
    step_fraction: float = 1.0


@dataclass
class Record:
    """What all of a selection's trainings cost, with the last one's time a step."""

    seconds: float = 0.0
    seconds_per_step: float = float("nan")
    num_recoveries: int = 0

    def add(self, record: TrainingRecord) -> None:
        """Count another training."""
        self.seconds += record.seconds
        self.seconds_per_step = record.seconds_per_step
        self.num_recoveries += record.num_recoveries


class SelectedGWI:
    """A GWI model whose settings are chosen by training; predictions are the chosen model's.

    :param mean: "net", "net-selected", "cnn" or "svgp".
    :param num_classes: for labels, None for targets.
    """

    def __init__(
        self,
        mean: MeanName,
        settings: Settings,
        seed: int,
        num_classes: int | None = None,
    ) -> None:
        self.mean, self.settings, self.seed = mean, settings, seed
        self.num_classes = num_classes
        self.kernel: Any = None
        self.chosen: Candidate | None = None
        self.model: Any = None
        self.candidates: dict[Candidate, Any] = {}

    @property
    def gwi(self) -> GWISettings:
        """What the settings say of GWI."""
        return self.settings.gwi or GWISettings()

    def start(self, data: Data) -> float:
        """Find the kernel by the marginal likelihood of the training data, and return its noise variance."""
        from gpflow_dkp.models.from_data import logarithmic_parameters, squared_exponential
        from gpflow_dkp.models.marginal_likelihood import marginal_likelihood_start

        X, Y = data
        targets = Y if self.num_classes is None else np.eye(self.num_classes)[Y[:, 0].astype(int)]
        with logarithmic_parameters():
            self.kernel = squared_exponential(X.shape[1])
            return marginal_likelihood_start(self.kernel, X, targets, seed=self.seed)

    def build(self, data: Data, candidate: Candidate) -> Any:
        """An untrained model."""
        import gpflow

        from gpflow_dkp.models import GWI

        X, Y = data
        settings: dict[str, Any] = {"noise_variance": candidate.noise_variance}
        if self.gwi.cross_term != "exact":  # which takes all points of a batch
            most = min(self.settings.batch_size, len(X))
            settings["num_cross_points"] = min(self.gwi.num_cross_points, most)
        if self.num_classes is not None:
            settings["likelihood"] = self._likelihood(self.num_classes)
        mean: Any = self.mean
        if self.mean == "cnn":
            mean = self._convolutional_network(X.shape[1])
        if candidate.network is not None:
            mean = "net"
            settings |= candidate.network.model_dump()
        model = GWI.from_data(
            X,
            Y,
            mean=mean,
            num_inducing=max(1, round(candidate.inducing_factor * np.sqrt(len(X)))),
            kernel=gpflow.utilities.deepcopy(self.kernel),
            num_marginal_points=0,
            num_data=len(X),
            distance=self.gwi.distance,
            cross_term=self.gwi.cross_term,
            seed=self.seed,
            **settings,
        )
        gpflow.set_trainable(model.inducing_variable, self.mean == "svgp")
        return model

    def _likelihood(self, num_classes: int) -> Any:
        """As the settings say, by quadrature where they say robust-max, also of two classes."""
        import gpflow

        from gpflow_dkp.likelihoods import RobustMax

        if getattr(self.settings, "likelihood", "robust-max") != "robust-max":
            return classes_likelihood(num_classes, self.settings)
        link = RobustMax(num_classes, epsilon=self.gwi.epsilon)
        return gpflow.likelihoods.MultiClass(num_classes, invlink=link)

    def _convolutional_network(self, num_features: int) -> Any:
        """A network for square images of one channel or three."""
        from gpflow_dkp.means import convolutional_network

        if self.num_classes is None:
            raise ConfigError(
                "gwi-cnn is for the classification of images; use gwi-net for targets."
            )
        for channels in (1, 3):
            side = math.isqrt(num_features // channels)
            if side**2 * channels == num_features:
                return convolutional_network(
                    (side, side, channels), self.num_classes, seed=self.seed
                )
        raise ConfigError(
            f"gwi-cnn: {num_features} features are no square image of 1 or 3 channels; use gwi-net."
        )

    def train(
        self,
        data: Data,
        *,
        checkpoint_dir: Path | None,
        checkpoint_seconds: float,
        report_step: Callable[[int], None],
    ) -> TrainingRecord:
        """Choose, and train what was chosen on. Every training has a checkpoint folder of its own."""
        from gpflow_dkp.wasserstein import as_cross_term

        record, count, self.candidates = Record(), 0, {}
        num_trainings = self._num_trainings()

        def fit(model: Any, data: Data, settings: Settings, **choosing: Any) -> None:
            nonlocal count
            num_steps, before = self.settings.num_steps, count * self.settings.num_steps
            history = train_with_fit(
                model,
                data,
                settings=settings,
                seed=self.seed,
                checkpoint_dir=checkpoint_dir and checkpoint_dir / f"training-{count}",
                checkpoint_seconds=checkpoint_seconds,
                report_step=lambda step: report_step(
                    (before + step * num_steps // settings.num_steps) // num_trainings
                ),
                **choosing,
            )
            record.add(history)
            count += 1

        if self.gwi.protocol == "cross-validation":
            self._cross_validate(data, fit)
        else:
            self._hold_out(data, fit)
        # On as many points as a batch of the evaluation allows.
        self.model.cross_term = as_cross_term(self.gwi.cross_term)
        return record

    @property
    def _networks(self) -> tuple[MeanNetwork | None, ...]:
        """Candidates for the network."""
        if self.mean == "net-selected":
            return self.gwi.networks
        if self.mean == "net":
            network = MeanNetwork(
                hidden_units=self.gwi.hidden_units, activation=self.gwi.activation
            )
            return (network,)
        return (None,)

    @property
    def _stages(self) -> list[list[dict[str, Any]]]:
        """What is chosen one after another: for each stage the changes of a candidate to compare."""
        gwi = self.gwi
        fractions = gwi.step_fractions if gwi.protocol == "cross-validation" else (1.0,)
        # Networks need different numbers of steps, so that both are chosen at once.
        pairs = itertools.product(self._networks, fractions)
        stages: list[list[dict[str, Any]]] = [
            [{"network": network, "step_fraction": fraction} for network, fraction in pairs]
        ]
        if self.num_classes is None:
            stages.append([{"noise_variance": variance} for variance in gwi.noise_variances])
        return [*stages, [{"inducing_factor": factor} for factor in gwi.inducing_factors]]

    def _num_trainings(self) -> int:
        """How many trainings `train` makes, all candidates being different."""
        candidates = 1 + sum(len(stage) - 1 for stage in self._stages)
        if self.gwi.protocol == "cross-validation":
            return candidates * (self.gwi.num_folds + 1)
        return candidates + (self.gwi.protocol == "90/10")

    def _choose(self, score: Callable[[Candidate], float], noise_variance: float) -> None:
        """Take the candidate of the highest score, stage by stage, whose model `score` leaves behind."""
        score = cache(score)
        best = Candidate(None, _middle(self.gwi.inducing_factors), noise_variance)
        for stage in self._stages:
            best = max((replace(best, **changes) for changes in stage), key=score)
        self.chosen, self.model = best, self.candidates[best]

    def _hold_out(self, data: Data, fit: Callable[..., None]) -> None:
        """Choose on a ninth of the data: the candidate, when its training stops, and its temperature."""
        import gpflow

        gwi = self.gwi
        training, validation = split_validation(data, self.seed)
        label_noise = self.start(training)
        noise_variance = _middle(gwi.noise_variances) if self.num_classes is None else label_noise

        def score(candidate: Candidate) -> float:
            model = self.candidates[candidate] = self.build(training, candidate)
            fit(
                model,
                training,
                self.settings,
                validation_data=validation,
                validation_steps=min(gwi.validation_steps, self.settings.num_steps),
                patience=gwi.patience,
            )
            return self.temper(model, training, validation)

        self._choose(score, noise_variance)
        if gwi.protocol == "90/10":
            self.model = gpflow.utilities.deepcopy(self.model)
            self.model.num_data = len(data[0])
            fit(self.model, data, refit_settings(self.settings, gwi.refit_steps))

    def _cross_validate(self, data: Data, fit: Callable[..., None]) -> None:
        """Choose by the density of every fold under the model of the others, all folds at one temperature.

        That temperature is the best for them all. Every candidate also trains on all of the data, so that the
        task can say how much better the best of them on the test part is than the chosen one.

        :raises ConfigError: for labels.
        :raises BadDataError: fewer than two rows a fold.
        """
        if self.num_classes is not None:
            raise ConfigError(
                "gwi protocol: got cross-validation, which is for targets; use 80/10/10 or 90/10 for classes"
            )
        gwi, (X, Y) = self.gwi, data
        if len(X) < 2 * gwi.num_folds:
            raise BadDataError(
                f"cross-validation: got {len(X)} training rows, needs two for each of {gwi.num_folds} folds"
            )
        self.start(data)
        fold_of = np.random.default_rng(self.seed).permutation(len(X)) % gwi.num_folds

        def score(candidate: Candidate) -> float:
            num_steps = max(1, round(candidate.step_fraction * self.settings.num_steps))
            settings = self.settings.model_copy(update={"num_steps": num_steps})
            mean, variance = np.empty(Y.shape), np.empty(Y.shape)
            for fold in range(gwi.num_folds):
                held_out = fold_of == fold
                others = X[~held_out], Y[~held_out]
                model = self.build(others, candidate)
                fit(model, others, settings)
                predicted = model.predict_mixture(X[held_out])
                mean[held_out], variance[held_out] = (np.asarray(part)[0] for part in predicted)
            temperature = np.mean((Y - mean) ** 2 / variance, axis=0)
            model = self.candidates[candidate] = self.build(data, candidate)
            fit(model, data, settings)
            model.temperature.assign(temperature)
            log_density = stats.norm.logpdf(Y, mean, np.sqrt(temperature * variance))
            return float(np.mean(np.sum(log_density, axis=1)))

        self._choose(score, _middle(gwi.noise_variances))

    def temper(self, model: Any, training: Data, validation: Data) -> float:
        """Temper a model on the validation rows, and return their mean log density.

        Of all the steps the validation rows chose those that fit them best, so that their errors are
        too small; for targets the temperature is at least what the training rows' errors need.
        """
        log_density = model.temper(validation)
        if self.num_classes is not None:
            return log_density
        held_out = model.temperature.numpy()
        model.temper(training)
        model.temperature.assign(np.maximum(held_out, model.temperature.numpy()))
        return float(np.mean(model.predict_log_density(validation)))

    def elbo(self, data: Data, **sampling: Any) -> Any:
        """The chosen model's objective, which is no bound on the evidence."""
        return self.model.elbo(data, **sampling)

    def predict_mixture(self, X: Array, **sampling: Any) -> Any:
        """The chosen model's prediction, one component."""
        return self.model.predict_mixture(X, **sampling)

    def predict_f(self, X: Array, **sampling: Any) -> Any:
        """The chosen model's latent functions."""
        return self.model.predict_f(X, **sampling)


def _middle(values: Sequence[float]) -> float:
    return values[len(values) // 2]


def refit_settings(settings: Settings, num_steps: int) -> Settings:
    """Of training on from what was chosen, for `num_steps` at a tenth of the first learning rate."""
    rate = settings.learning_rate
    first = rate.rate if isinstance(rate, Decay) else rate[0][1]
    changes = {
        "num_steps": num_steps,
        "learning_rate": [(0.0, 0.1 * first)],
        "kl_annealing_steps": 0,
    }
    return settings.model_copy(update=changes)


def split_validation(data: Data, seed: int) -> tuple[Data, Data]:
    """The rows to train on and the rows to choose by, at random by the seed.

    :raises BadDataError: fewer than ten rows.
    """
    parts = random_split(*data, seed, test_fraction=VALIDATION_FRACTION)
    return (parts.X_train, parts.Y_train), (parts.X_test, parts.Y_test)


def _builder(mean: MeanName) -> Builder:
    def build(
        X: Array,
        Y: Array,
        *,
        depth: int,
        settings: Settings,
        seed: int,
        num_classes: int | None = None,
    ) -> SelectedGWI:
        return SelectedGWI(mean, settings, seed, num_classes)

    return build


def train_and_choose(
    model: SelectedGWI, data: Data, *, settings: Settings, seed: int, **training: Any
) -> TrainingRecord:
    """`SelectedGWI.train`, whose settings and seed the model has already."""
    return model.train(data, **training)


register_model("gwi-net", train=train_and_choose)(_builder("net"))
register_model("gwi-net-selected", train=train_and_choose)(_builder("net-selected"))
register_model("gwi-cnn", train=train_and_choose)(_builder("cnn"))
register_model("gwi-svgp", train=train_and_choose)(_builder("svgp"))


@register_model("svgp")
def build_svgp(
    X: Array,
    Y: Array,
    *,
    depth: int,
    settings: Settings,
    seed: int,
    num_classes: int | None = None,
) -> Any:
    """A sparse GP, equal to GPflow's SVGP, with inducing points at k-means centres."""
    import gpflow

    from gpflow_dkp.models import LatentVariableDGP

    likelihood = gpflow.likelihoods.Gaussian(0.1)
    if num_classes is not None:
        likelihood = classes_likelihood(num_classes, settings)
    return LatentVariableDGP.from_architecture(
        "GP",
        (X, Y),
        inference="vi",
        num_inducing=settings.num_inducing,
        likelihood=likelihood,
        num_data=len(X),
        seed=seed,
    )
