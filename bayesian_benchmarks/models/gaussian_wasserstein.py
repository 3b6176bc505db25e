"""Gaussian Wasserstein inference as [NeurIPS22] trains it, by `gpflow_dkp.selection.select_gwi`.

`gwi-net` has the paper's neural network as its mean, `gwi-net-selected` one of several, `gwi-cnn` a
convolutional one for images, `gwi-svgp` the mean of a sparse GP; `svgp` is the sparse GP itself, by its
evidence lower bound. Network, noise variance, number of inducing points, number of steps and the
temperature of the predictive variance are chosen on part of the training data.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from ..errors import ConfigError
from ..settings import GWISettings, Settings
from .deep import as_rate, classes_likelihood
from .images import image_shape
from .registry import OF_THE_DEEP_MODELS, Array, Builder, TrainingRecord, register_model

Data = tuple[Array, Array]
MeanName = Literal["net", "net-selected", "cnn", "svgp"]


class SelectedGWI:
    """A GWI model whose settings are chosen by training; predictions are the chosen model's.

    :param mean: "net", "net-selected", "cnn" or "svgp".
    :param num_classes: for labels, None for targets.

    Attributes: `selection`, what `train` chose, a `gpflow_dkp.selection.Selection`; None before.
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
        self.selection: Any = None

    @property
    def gwi(self) -> GWISettings:
        """What the settings say of GWI."""
        return self.settings.gwi or GWISettings()

    def train(
        self,
        data: Data,
        *,
        checkpoint_dir: Path | None,
        checkpoint_seconds: float,
        report_step: Callable[[int], None],
    ) -> TrainingRecord:
        """Choose, and train what was chosen.

        :raises ConfigError: a protocol or mean for other data than these.
        """
        from gpflow_dkp.selection import select_gwi
        from gpflow_dkp.wasserstein import as_cross_term

        gwi = self.gwi
        self.selection = select_gwi(
            *data,
            mean=self._mean(data[0].shape[1]),
            likelihood=self._likelihood(),
            networks=self._networks(),
            noise_variances=gwi.noise_variances,
            inducing_factors=gwi.inducing_factors,
            protocol=self._protocol(),
            training=self._training(),
            separate_kernels=gwi.separate_kernels,
            covariance=gwi.covariance,
            distance=gwi.distance,
            cross_term=gwi.cross_term,
            # "exact" takes all points of a batch.
            num_cross_points=None if gwi.cross_term == "exact" else gwi.num_cross_points,
            seed=self.seed,
            checkpoint_dir=checkpoint_dir,
            checkpoint_seconds=checkpoint_seconds,
            callbacks=[report_step],
        )
        # Of all rows, also where a ninth was held out, on as many points as a batch of the evaluation allows.
        self.selection.model.num_data = len(data[0])
        self.selection.model.cross_term = as_cross_term(gwi.cross_term)
        return self.selection

    def _mean(self, num_features: int) -> Any:
        """As `select_gwi` takes it: a Keras network for square images of one channel or three."""
        from gpflow_dkp.means import convolutional_network

        if self.mean != "cnn":
            return "svgp" if self.mean == "svgp" else "net"
        if self.num_classes is None:
            raise ConfigError(
                "gwi-cnn is for the classification of images; use gwi-net for targets."
            )
        shape = image_shape(num_features, model="gwi-cnn", instead="gwi-net")
        return convolutional_network(shape, self.num_classes, seed=self.seed)

    def _networks(self) -> list[Any] | None:
        """Candidates for the mean's network, None where it is another."""
        from gpflow_dkp.selection import Network

        gwi = self.gwi
        if self.mean == "net-selected":
            return [Network(**network.model_dump()) for network in gwi.networks]
        return (
            [Network(gwi.hidden_units, gwi.activation, gwi.weight_variance)]
            if self.mean == "net"
            else None
        )

    def _likelihood(self) -> Any:
        """As the settings say, by quadrature where they say robust-max, also of two classes."""
        import gpflow

        from gpflow_dkp.likelihoods import RobustMax

        if self.num_classes is None:
            return None
        if getattr(self.settings, "likelihood", "robust-max") != "robust-max":
            return classes_likelihood(self.num_classes, self.settings)
        link = RobustMax(self.num_classes, epsilon=self.gwi.epsilon)
        return gpflow.likelihoods.MultiClass(self.num_classes, invlink=link)

    def _protocol(self) -> Any:
        """What is held out."""
        from gpflow_dkp.selection import CrossValidation, HoldOut

        gwi = self.gwi
        if gwi.protocol != "cross-validation":
            refit_steps = gwi.refit_steps if gwi.protocol == "90/10" else 0
            return HoldOut(gwi.validation_steps, gwi.patience, refit_steps)
        if self.num_classes is not None:
            raise ConfigError(
                "gwi protocol: got cross-validation, which is for targets; use 80/10/10 or 90/10 for classes"
            )
        return CrossValidation(gwi.num_folds, gwi.step_fractions)

    def _training(self) -> Any:
        """How each candidate is trained."""
        from gpflow_dkp.selection import Training

        settings = self.settings
        return Training(
            settings.num_steps,
            settings.batch_size,
            as_rate(settings.learning_rate),
            settings.kl_annealing_steps,
        )

    @property
    def candidates(self) -> dict[Any, Any]:
        """The trained candidates."""
        return self.selection.candidates

    @property
    def objective_is_bound(self) -> bool:
        """Whether `elbo` bounds the evidence: with the distance "kl" alone."""
        return self.selection.model.objective_is_bound

    def elbo(self, data: Data, **sampling: Any) -> Any:
        """The chosen model's objective."""
        return self.selection.model.elbo(data, **sampling)

    def predict_mixture(self, X: Array, **sampling: Any) -> Any:
        """The chosen model's prediction, one component."""
        return self.selection.model.predict_mixture(X, **sampling)

    def predict_f(self, X: Array, **sampling: Any) -> Any:
        """The chosen model's latent functions."""
        return self.selection.model.predict_f(X, **sampling)


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


def _refuse_kl(name: str) -> Callable[[Settings], None]:
    """A check of a model whose mean is a network, at an infinite divergence from the prior."""

    def check(settings: Settings) -> None:
        if settings.gwi is not None and settings.gwi.distance == "kl":
            raise ConfigError(
                f"{name}: got the distance kl, which is infinite for a network; choose one of "
                f"{_finite_distances()}, or gwi-svgp."
            )

    return check


def _refuse_kl_of_own_covariance(settings: Settings) -> None:
    gwi = settings.gwi
    if gwi is not None and gwi.distance == "kl" and gwi.covariance != "svgp":
        raise ConfigError(
            f"gwi-svgp: got the distance kl with the covariance {gwi.covariance}, of which it is infinite; "
            f"choose one of {_finite_distances()}, or the covariance svgp."
        )


def _finite_distances() -> str:
    """Names of the distances that any mean and covariance have."""
    allowed = get_args(GWISettings.model_fields["distance"].annotation)
    return ", ".join(distance for distance in allowed if distance != "kl")


_UNREAD = (
    *("sghmc", *OF_THE_DEEP_MODELS, "num_inducing", "schedule"),
    "gwi.image_activation",
)
_NETWORK = ("gwi.hidden_units", "gwi.activation", "gwi.weight_variance")
_register = partial(register_model, train=train_and_choose)
_register("gwi-net", ignores=(*_UNREAD, "gwi.networks"), check_settings=_refuse_kl("gwi-net"))(
    _builder("net")
)
_register(
    "gwi-net-selected",
    ignores=(*_UNREAD, *_NETWORK),
    check_settings=_refuse_kl("gwi-net-selected"),
)(_builder("net-selected"))
_register(
    "gwi-cnn",
    ignores=(*_UNREAD, *_NETWORK, "gwi.networks"),
    tasks=("classification", "ood"),
    check_settings=_refuse_kl("gwi-cnn"),
)(_builder("cnn"))
_register(
    "gwi-svgp",
    ignores=(*_UNREAD, *_NETWORK, "gwi.networks"),
    check_settings=_refuse_kl_of_own_covariance,
)(_builder("svgp"))


@register_model("svgp", ignores=("gwi", "sghmc", *OF_THE_DEEP_MODELS))
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
        num_marginal_points=0,
        num_data=len(X),
        seed=seed,
    )
