"""Gaussian Wasserstein inference with its settings chosen on held-out training data ([NeurIPS22] A.6).

`select_gwi` trains a `models.GWI` for each candidate and takes the one that gives the highest density to data
which had no part in its training. Letters: N data points, D features, P outputs.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian, Likelihood
from scipy import stats

from .checks import (
    brief,
    check_choice,
    check_flag,
    check_positive,
    check_positive_integer,
    check_positive_integers,
    check_seed,
)
from .means import Mean, as_mean
from .models import GWI
from .models.checks import check_arrays, check_likelihood
from .models.from_data import kernel_maker, logarithmic_parameters
from .models.gwi_from_data import one_for_each_output, start_kernels
from .models.marginal_likelihood import latent_targets
from .networks import ACTIVATIONS
from .training import History, TrainingFailed, fit
from .training.arguments import (
    Callback,
    check_callbacks,
    check_directory,
    check_integer,
    check_seconds,
)
from .training.schedules import Cosine, LearningRate, check_learning_rate
from .wasserstein import CrossTerm

logger = logging.getLogger(__name__)

Data = tuple[np.ndarray, np.ndarray]

VALIDATION_FRACTION = 1 / 9
"""Of the rows given: a tenth of all data where another tenth is the test part."""

MIN_ROWS = 10
"""Of which some can be held out."""

FAILURES = (TrainingFailed, FloatingPointError, tf.errors.InvalidArgumentError)
"""What a candidate may raise that is then out."""


@dataclass(frozen=True)
class Network:
    """A candidate for the mean's network.

    :param hidden_units: of each hidden layer.
    :param activation: "tanh" or "relu".
    :param weight_variance: of a normal prior on the weights, None for none.

    >>> gpflow_dkp.selection.Network(hidden_units=[50], activation="relu")
    Network(hidden_units=(50,), activation='relu', weight_variance=None)
    >>> gpflow_dkp.selection.Network(activation="sine")
    Traceback (most recent call last):
        ...
    ValueError: activation: got 'sine', ...
    """

    hidden_units: Sequence[int] = (10, 10)
    activation: Literal["tanh", "relu"] = "tanh"
    weight_variance: float | None = None

    def __post_init__(self) -> None:
        check_positive_integers("hidden_units", self.hidden_units)
        check_choice("activation", self.activation, tuple(ACTIVATIONS))
        if self.weight_variance is not None:
            check_positive("weight_variance", self.weight_variance)
        object.__setattr__(self, "hidden_units", tuple(self.hidden_units))


@dataclass(frozen=True)
class Training:
    """How each candidate is trained: arguments of `gpflow_dkp.training.fit`.

    :param num_steps: at most.
    :param batch_size: rows a step, all of them where there are no more.
    :param learning_rate: Adam's.
    :param kl_annealing_steps: over which the distance's weight rises to 1, fewer in a shorter training.

    >>> training = gpflow_dkp.selection.Training(num_steps=2000, learning_rate=1e-3)
    >>> training.num_steps, training.batch_size
    (2000, 100)
    """

    num_steps: int = 10_000
    batch_size: int = 100
    learning_rate: LearningRate = ((0.0, 1e-2), (0.5, 3e-3), (0.75, 1e-3))
    kl_annealing_steps: int = 0

    def __post_init__(self) -> None:
        check_positive_integer("num_steps", self.num_steps)
        check_positive_integer("batch_size", self.batch_size)
        check_learning_rate(self.learning_rate)
        check_integer("kl_annealing_steps", self.kl_annealing_steps)


@dataclass(frozen=True)
class CrossValidation:
    """Each of some folds of the data in turn is predicted by a model of the others; for targets only.

    The score is the density of all of them, at the one temperature that is best for them. Every candidate
    then trains on all of the data, and has that temperature.

    :param num_folds: at least 2.
    :param step_fractions: candidates for the number of steps, over `Training.num_steps`, at most 1.

    >>> gpflow_dkp.selection.CrossValidation(num_folds=10).step_fractions
    (0.05, 0.2, 1.0)
    >>> gpflow_dkp.selection.CrossValidation(num_folds=1)
    Traceback (most recent call last):
        ...
    ValueError: num_folds: got 1, needs at least 2
    """

    num_folds: int = 5
    step_fractions: Sequence[float] = (0.05, 0.2, 1.0)

    def __post_init__(self) -> None:
        check_positive_integer("num_folds", self.num_folds)
        if self.num_folds < 2:
            raise ValueError(f"num_folds: got {self.num_folds}, needs at least 2")
        check_candidates("step_fractions", self.step_fractions)
        if max(self.step_fractions) > 1:
            raise ValueError(f"step_fractions: got {max(self.step_fractions)}, needs at most 1")


@dataclass(frozen=True)
class HoldOut:
    """A ninth of the data, at random, stops the training and chooses the candidate and its temperature.

    The temperature of targets is at least what the other rows need: of all steps those were kept that fit
    the held-out rows best, whose errors are too small for that.

    :param validation_steps: training steps from one validation to the next.
    :param patience: validations without a better one after which training stops.
    :param refit_steps: for which what was chosen trains on, on all of the data, at rates that fall from a
        tenth of the first one.

    >>> protocol = gpflow_dkp.selection.HoldOut(validation_steps=50, refit_steps=500)
    >>> protocol.patience * protocol.validation_steps  # steps without a better validation
    1000
    """

    validation_steps: int = 100
    patience: int = 20
    refit_steps: int = 0

    def __post_init__(self) -> None:
        check_positive_integer("validation_steps", self.validation_steps)
        check_positive_integer("patience", self.patience)
        check_integer("refit_steps", self.refit_steps)


@dataclass(frozen=True)
class Candidate:
    """What is chosen.

    :param network: of the mean, None for a mean that is none of `Network`'s.
    :param inducing_factor: the number of inducing points over the square root of N.
    :param noise_variance: of the Gaussian likelihood; of another, of the start alone.
    :param step_fraction: the number of steps over `Training.num_steps`.

    >>> network = gpflow_dkp.selection.Network()
    >>> one = gpflow_dkp.selection.Candidate(network, inducing_factor=1.0, noise_variance=0.1)
    >>> other = gpflow_dkp.selection.Candidate(network, inducing_factor=2.0, noise_variance=0.1)
    >>> scores = {one: -1.2, other: -1.1}
    >>> max(scores, key=scores.get).inducing_factor
    2.0
    """

    network: Network | None
    inducing_factor: float
    noise_variance: float
    step_fraction: float = 1.0


@dataclass(frozen=True)
class Selection:
    """A model whose settings were chosen, and what that cost.

    :param model: the chosen one, trained and tempered.
    :param chosen: its settings.
    :param candidates: a trained and tempered model of each candidate that did not fail.
    :param scores: their mean log densities of held-out data.
    :param history: of the last training of `model`.
    :param seconds: wall-clock time of all that was done to choose and train; of trainings that went on from
        a checkpoint, with those of earlier, killed starts.
    :param num_recoveries: steps of all trainings that were retried with more jitter.

    >>> chosen = gpflow_dkp.selection.Candidate(None, inducing_factor=1.0, noise_variance=0.1)
    >>> model = gpflow_dkp.models.GWI.from_data(X, Y, mean="svgp", num_inducing=3)
    >>> selection = gpflow_dkp.selection.Selection(
    ...     model, chosen, {chosen: model}, {chosen: -1.2}, gpflow_dkp.training.History(), 3.0, 0
    ... )
    >>> selection.candidates[selection.chosen] is selection.model, selection.seconds_per_step
    (True, nan)
    """

    model: GWI
    chosen: Candidate
    candidates: dict[Candidate, GWI]
    scores: dict[Candidate, float]
    history: History
    seconds: float
    num_recoveries: int

    @property
    def seconds_per_step(self) -> float:
        """Mean wall-clock seconds a step of `history`, NaN if it is too short to tell."""
        return self.history.seconds_per_step


def select_gwi(
    X: np.ndarray,
    Y: np.ndarray,
    *,
    mean: Literal["net", "svgp"] | Mean = "net",
    likelihood: Likelihood | None = None,
    kernel: Kernel | str = "squared_exponential",
    separate_kernels: bool = False,
    covariance: Kernel | str = "svgp",
    networks: Sequence[Network] | None = None,
    noise_variances: Sequence[float] = (0.3, 0.1),
    inducing_factors: Sequence[float] = (0.5, 1.0, 2.0),
    protocol: CrossValidation | HoldOut | None = None,
    training: Training | None = None,
    distance: Literal["squared", "root", "published", "kl"] = "squared",
    cross_term: Literal["nystrom", "eigenvalues", "exact"] | CrossTerm = "nystrom",
    num_cross_points: int | None = None,
    seed: int = 0,
    checkpoint_dir: str | Path | None = None,
    checkpoint_seconds: float = 30.0,
    callbacks: Iterable[Callback] = (),
) -> Selection:
    """Choose GWI's settings, and train it on X [N, D] and Y [N, P], both normalised, or labels Y [N, 1].

    First network and number of steps are chosen, since networks need different numbers, then the noise
    variance of targets, then the number of inducing points, each with the middle candidates of those that
    come after it. The kernel is found once, by the marginal likelihood of at most 500 of the rows, those of
    `HoldOut`'s ninth left out. A candidate whose training fails, or whose density is not finite, is out, with
    a warning.

    :param mean: "net" for a network; "svgp" for a sparse GP's, whose inducing points are trained; or a
        callable as in `GWI`, of which every training gets a copy as it is.
    :param likelihood: of labels, such as `gpflow.likelihoods.MultiClass(10)`; None for targets with Gaussian
        noise.
    :param kernel: "squared_exponential", "rational_quadratic" or "relu" with ARD, or a GPflow kernel to start
        from, itself left as it is.
    :param separate_kernels: one kernel for each output or class, as in `GWI.from_data`.
    :param covariance: the posterior's, as in `GWI.from_data`; of a GPflow kernel every training gets a copy
        as it is.
    :param networks: candidates for the mean "net", default the paper's two layers of 10.
    :param noise_variances: candidates for targets.
    :param inducing_factors: candidates for the number of inducing points, in square roots of N; at most N
        are taken.
    :param protocol: what is held out, default `CrossValidation()` for targets and `HoldOut()` for labels.
    :param training: of each candidate, default `Training()`.
    :param distance: as in `GWI`.
    :param cross_term: as in `GWI`.
    :param num_cross_points: as in `GWI`, no more than a batch has rows.
    :param seed: of what is held out, and of every training.
    :param checkpoint_dir: where each training has a folder, so that a killed run goes on from there.
    :param checkpoint_seconds: least time between two checkpoints.
    :param callbacks: as in `fit`, of the step, or of the step and the present training's history; all the
        trainings count as one of `Training.num_steps` steps, so that the step tells how much is done.
    :raises ValueError: for bad data or settings, or a checkpoint of another run.
    :raises TrainingFailed: all candidates failed, or training on with `HoldOut.refit_steps` did.

    >>> selection = gpflow_dkp.selection.select_gwi(
    ...     X, Y, mean="svgp", noise_variances=[0.1], inducing_factors=[1.0],
    ...     protocol=gpflow_dkp.selection.HoldOut(validation_steps=1),
    ...     training=gpflow_dkp.selection.Training(num_steps=2),
    ... )
    >>> selection.chosen.noise_variance, selection.model.predict_y(X)[0].shape
    (0.1, TensorShape([10, 1]))
    """
    start = time.perf_counter()
    X, Y = check_arrays(X, Y)
    check_candidates("noise_variances", noise_variances)
    check_candidates("inducing_factors", inducing_factors)
    check_flag("separate_kernels", separate_kernels)
    check_seed("seed", seed)
    check_directory(checkpoint_dir)
    check_seconds("checkpoint_seconds", checkpoint_seconds)
    if protocol is None:
        protocol = CrossValidation() if likelihood is None else HoldOut()
    _check_protocol(protocol, likelihood, len(X))
    training = Training() if training is None else training
    if not isinstance(training, Training):
        raise ValueError(f"training: got {brief(training)}, needs a Training")
    if isinstance(mean, str):
        check_choice("mean", mean, ("net", "svgp"))
    else:
        mean = as_mean(mean, X.shape[1], latent_targets(likelihood, Y).shape[1])
    networks_tried = _networks_of(mean, networks)
    fractions = protocol.step_fractions if isinstance(protocol, CrossValidation) else (1.0,)
    stages: list[list[dict[str, Any]]] = [
        [{"network": network, "step_fraction": f} for network in networks_tried for f in fractions],
        [{"noise_variance": variance} for variance in noise_variances],
        [{"inducing_factor": factor} for factor in inducing_factors],
    ]
    if likelihood is not None:
        del stages[1]
    search = _Search(
        mean=mean,
        likelihood=likelihood,
        kernel=kernel,
        separate_kernels=separate_kernels,
        covariance=covariance,
        settings={"distance": distance, "cross_term": cross_term},
        num_cross_points=num_cross_points,
        training=training,
        seed=seed,
        checkpoint_dir=None if checkpoint_dir is None else Path(checkpoint_dir),
        checkpoint_seconds=checkpoint_seconds,
        callbacks=check_callbacks(callbacks),
        stages=stages,
        first=Candidate(None, _middle(inducing_factors), _middle(noise_variances)),
    )
    if isinstance(protocol, CrossValidation):
        chosen, trained = search.cross_validate((X, Y), protocol)
        last = trained[chosen]
    else:
        chosen, trained, last = search.hold_out((X, Y), protocol)
    return Selection(
        model=last.model,
        chosen=chosen,
        candidates={candidate: one.model for candidate, one in trained.items()},
        scores={candidate: one.score for candidate, one in trained.items()},
        history=last.history,
        seconds=time.perf_counter() - start + sum(h.earlier_seconds for h in search.histories),
        num_recoveries=sum(h.num_recoveries for h in search.histories),
    )


class _Trained(NamedTuple):
    """A candidate's model, trained and tempered.

    :param score: mean log density of held-out data.
    """

    model: GWI
    history: History
    score: float


@dataclass
class _Search:
    """Arguments of `select_gwi`, and what its trainings share and leave behind.

    :param stages: what is chosen one after another: for each the changes of a candidate to compare.
    :param first: the candidate that they start from.
    """

    mean: Literal["net", "svgp"] | Mean
    likelihood: Likelihood | None
    kernel: Kernel | str
    separate_kernels: bool
    covariance: Kernel | str
    settings: dict[str, Any]
    num_cross_points: int | None
    training: Training
    seed: int
    checkpoint_dir: Path | None
    checkpoint_seconds: float
    callbacks: Sequence[Callable[[int, History], Any]]
    stages: list[list[dict[str, Any]]]
    first: Candidate
    num_trainings: int = 0
    histories: list[History] = field(default_factory=list)

    def cross_validate(
        self, data: Data, protocol: CrossValidation
    ) -> tuple[Candidate, dict[Candidate, _Trained]]:
        """The candidate chosen by its density of every fold, and all that were trained."""
        X, Y = data
        num_folds = protocol.num_folds
        self.num_trainings = self._num_candidates * (num_folds + 1)
        self._find_kernel(data)
        fold_of = np.random.default_rng(self.seed).permutation(len(X)) % num_folds

        def train(number: int, candidate: Candidate) -> _Trained:
            num_steps = max(1, round(candidate.step_fraction * self.training.num_steps))
            training = replace(self.training, num_steps=num_steps)
            index = number * (num_folds + 1)
            mean, variance = np.empty(Y.shape), np.empty(Y.shape)
            for fold in range(num_folds):
                held_out = fold_of == fold
                others = X[~held_out], Y[~held_out]
                model = self._build(others, candidate)
                self._fit(index + fold, model, others, training)
                predicted = model.predict_mixture(X[held_out])
                mean[held_out], variance[held_out] = (np.asarray(part)[0] for part in predicted)
            temperature = np.mean((Y - mean) ** 2 / variance, axis=0)
            model = self._build(data, candidate)
            history = self._fit(index + num_folds, model, data, training)
            model.temperature.assign(temperature)
            log_density = stats.norm.logpdf(Y, mean, np.sqrt(temperature * variance))
            return _Trained(model, history, float(np.mean(np.sum(log_density, axis=1))))

        return self._choose(self.first, train)

    def hold_out(
        self, data: Data, protocol: HoldOut
    ) -> tuple[Candidate, dict[Candidate, _Trained], _Trained]:
        """The candidate chosen on a ninth of the data, all that were trained, and the last training."""
        self.num_trainings = self._num_candidates + (protocol.refit_steps > 0)
        rows, held_out = split_validation(data, self.seed)
        noise_variance = self._find_kernel(rows)
        first = self.first
        if self.likelihood is not None:
            first = replace(first, noise_variance=noise_variance)

        def train(number: int, candidate: Candidate) -> _Trained:
            model = self._build(rows, candidate)
            history = self._fit(
                number,
                model,
                rows,
                self.training,
                validation_data=held_out,
                validation_steps=min(protocol.validation_steps, self.training.num_steps),
                patience=protocol.patience,
            )
            return _Trained(model, history, temper(model, rows, held_out))

        chosen, trained = self._choose(first, train)
        last = trained[chosen]
        if protocol.refit_steps:
            model = gpflow.utilities.deepcopy(last.model)
            model.num_data = len(data[0])
            training = _training_on(self.training, protocol.refit_steps)
            history = self._fit(self.num_trainings - 1, model, data, training)
            last = last._replace(model=model, history=history)
        return chosen, trained, last

    @property
    def _num_candidates(self) -> int:
        """How many are trained, all being different."""
        return 1 + sum(len(stage) - 1 for stage in self.stages)

    def _choose(
        self, candidate: Candidate, train: Callable[[int, Candidate], _Trained]
    ) -> tuple[Candidate, dict[Candidate, _Trained]]:
        """The candidate of the highest score, stage by stage, and all that were trained.

        :param train: of a candidate's number, in the order in which they are tried, and the candidate.
        """
        trained: dict[Candidate, _Trained] = {}
        failures: dict[Candidate, str] = {}

        def score(candidate: Candidate) -> float:
            if candidate not in trained and candidate not in failures:
                try:
                    trained[candidate] = _finite(train(len(trained) + len(failures), candidate))
                except FAILURES as error:
                    failures[candidate] = str(error).partition("\n")[0]
                    logger.warning("%s is out: %s", candidate, failures[candidate])
            return trained[candidate].score if candidate in trained else -math.inf

        for stage in self.stages:
            candidate = max((replace(candidate, **changes) for changes in stage), key=score)
        if not trained:
            *_, why = failures.values()
            raise TrainingFailed(f"all {len(failures)} candidates failed, the last one with: {why}")
        return candidate, trained

    def _find_kernel(self, data: Data) -> float:
        """Fit the kernel, or each output's, by data's marginal likelihood, and return the noise variance."""
        X, Y = data
        targets = latent_targets(self.likelihood, Y)
        with logarithmic_parameters():
            self.kernel = kernel_maker(self.kernel)(X.shape[1])
            if self.separate_kernels:
                self.kernel = one_for_each_output(self.kernel, targets.shape[1])
            return start_kernels(self.kernel, X, targets, self.seed)

    def _build(self, data: Data, candidate: Candidate) -> GWI:
        """An untrained model."""
        X, Y = data
        settings = dict(self.settings)
        if candidate.network is not None:
            settings |= asdict(candidate.network)
        if self.num_cross_points is not None:
            rows = min(self.training.batch_size, len(X))
            settings["num_cross_points"] = min(self.num_cross_points, rows)
        num_inducing = round(candidate.inducing_factor * np.sqrt(len(X)))
        model = GWI.from_data(
            X,
            Y,
            mean=_copy(self.mean),
            num_inducing=min(max(1, num_inducing), len(X)),
            kernel=_copy(self.kernel),
            covariance=_copy(self.covariance),
            likelihood=_copy(self.likelihood),
            noise_variance=candidate.noise_variance,
            num_marginal_points=0,
            num_data=len(X),
            seed=self.seed,
            **settings,
        )
        gpflow.set_trainable(model.inducing_variable, self.mean == "svgp")
        return model

    def _fit(
        self, index: int, model: GWI, data: Data, training: Training, **choosing: Any
    ) -> History:
        """Train, with a checkpoint folder of the training's own."""
        num_steps = self.training.num_steps

        def report(step: int, history: History) -> None:
            steps = index * num_steps + step * num_steps // training.num_steps
            for callback in self.callbacks:
                callback(steps // self.num_trainings, history)

        history = fit(
            model,
            data,
            num_steps=training.num_steps,
            batch_size=training.batch_size if len(data[0]) > training.batch_size else None,
            schedule="paper",
            learning_rate=training.learning_rate,
            kl_annealing_steps=min(training.kl_annealing_steps, training.num_steps - 1),
            seed=self.seed,
            checkpoint_dir=self.checkpoint_dir and self.checkpoint_dir / f"training-{index}",
            checkpoint_seconds=self.checkpoint_seconds,
            callbacks=[report],
            progress=False,
            **choosing,
        )
        self.histories.append(history)
        return history


def split_validation(data: Data, seed: int) -> tuple[Data, Data]:
    """The rows to train on and the rows to choose by, a ninth at random by the seed.

    :raises ValueError: fewer than ten rows.

    >>> rows, held_out = gpflow_dkp.selection.split_validation((X, Y), seed=0)
    >>> rows[0].shape, held_out[0].shape
    ((9, 2), (1, 2))
    """
    X, Y = data
    if len(X) < MIN_ROWS:
        raise ValueError(f"data: got {len(X)} rows, needs at least {MIN_ROWS} to hold some out")
    # The generator whose stream NumPy promises never to change.
    order = np.random.RandomState(seed).permutation(len(X))
    held_out, rows = np.split(order, [max(1, round(VALIDATION_FRACTION * len(X)))])
    return (X[rows], Y[rows]), (X[held_out], Y[held_out])


def temper(model: GWI, training: Data, held_out: Data) -> float:
    """Temper a model on held-out data that stopped its training; their mean log density.

    For targets the temperature is at least what the training rows' errors need: of all steps the held-out
    rows chose those that fit them best, so that their errors are too small.

    >>> rows, held_out = gpflow_dkp.selection.split_validation((X, Y), seed=0)
    >>> model = gpflow_dkp.models.GWI.from_data(*rows, mean="svgp", num_inducing=3)
    >>> log_density = gpflow_dkp.selection.temper(model, rows, held_out)
    >>> np.allclose(log_density, model.held_out_log_density(held_out))
    True
    """
    log_density = model.temper(held_out)
    if not isinstance(model.likelihood, Gaussian):
        return log_density
    of_held_out = model.temperature.numpy()
    model.temper(training)
    model.temperature.assign(np.maximum(of_held_out, model.temperature.numpy()))
    return float(np.mean(model.predict_log_density(held_out)))


def check_candidates(name: str, values: Sequence[float]) -> None:
    """Raise `ValueError` unless `values` are positive numbers, and at least one.

    >>> gpflow_dkp.selection.check_candidates("noise_variances", [0.3, 0.1])
    >>> gpflow_dkp.selection.check_candidates("noise_variances", [])
    Traceback (most recent call last):
        ...
    ValueError: noise_variances: got [], needs a list of at least one number
    """
    of_values = isinstance(values, (Sequence, np.ndarray)) and not isinstance(values, (str, bytes))
    if not of_values or len(values) == 0:
        raise ValueError(f"{name}: got {brief(values)}, needs a list of at least one number")
    for value in values:
        check_positive(name, value)


def _check_protocol(
    protocol: CrossValidation | HoldOut, likelihood: Likelihood | None, num_data: int
) -> None:
    """Raise `ValueError` unless the likelihood and the number of rows are such as the protocol needs."""
    if not isinstance(protocol, (CrossValidation, HoldOut)):
        raise ValueError(f"protocol: got {brief(protocol)}, needs a CrossValidation or a HoldOut")
    if likelihood is not None:
        check_likelihood(likelihood)
    if isinstance(likelihood, Gaussian):
        raise ValueError("likelihood: got Gaussian, needs None for one, whose variance is chosen")
    if isinstance(protocol, HoldOut):
        return
    if likelihood is not None:
        raise ValueError(
            f"protocol: got CrossValidation with {type(likelihood).__name__}, needs HoldOut; folds are for "
            "targets with Gaussian noise"
        )
    if num_data < 2 * protocol.num_folds:
        raise ValueError(
            f"data: got {num_data} rows, needs two for each of {protocol.num_folds} folds"
        )


def _networks_of(
    mean: Literal["net", "svgp"] | Mean, networks: Sequence[Network] | None
) -> Sequence[Network | None]:
    """Candidates for the mean's network, None where it has none.

    :raises ValueError: networks of another mean, or what are none.
    """
    if mean != "net":
        if networks is not None:
            raise ValueError("networks: got some with another mean than 'net', which has none")
        return (None,)
    if networks is None:
        return (Network(),)
    of_networks = isinstance(networks, Sequence) and all(isinstance(n, Network) for n in networks)
    if not of_networks or not networks:
        raise ValueError(f"networks: got {brief(networks)}, needs a list of at least one Network")
    return networks


def _middle(values: Sequence[float]) -> float:
    return values[len(values) // 2]


def _copy(value: Any) -> Any:
    """A copy of a module, with parameters of its own; anything else as it is."""
    return gpflow.utilities.deepcopy(value) if isinstance(value, tf.Module) else value


def _finite(trained: _Trained) -> _Trained:
    """As given.

    :raises FloatingPointError: its score is NaN or infinite.
    """
    if not math.isfinite(trained.score):
        raise FloatingPointError(f"the log density of the held-out data is {trained.score}")
    return trained


def _training_on(training: Training, num_steps: int) -> Training:
    """Of training on, for `num_steps` at rates that fall from a tenth of the first one.

    Adam at a rate that stays leaves errors as large as its steps: a sparse GP's on naval rose by a third.
    """
    schedule = check_learning_rate(training.learning_rate)
    rate = Cosine(0.1 * (schedule[0][1] if isinstance(schedule, tuple) else schedule.rate))
    return replace(training, num_steps=num_steps, learning_rate=rate, kl_annealing_steps=0)
