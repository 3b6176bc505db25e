"""What all models share: a bound and predictions that average over samples of what the output needs."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import InputData, MeanAndVariance, RegressionData
from gpflow.likelihoods import Likelihood
from gpflow.models import BayesianModel, ExternalDataTrainingLossMixin
from typing_extensions import Self

from ..checks import check_positive_integer
from ..jitter import IGNORING_JITTER, jitter_variable
from ..mixture import Mixture
from ..random import Seed, split
from ..saving import save
from ..saving.export import export
from .checks import check_num_latent_gps, check_target_columns, check_targets
from .posterior import PREDICTION_BATCH, PREDICTION_SAMPLES, Posterior

EVERY_LAYER_FINITE = "every layer is finite, the likelihood or the gradient is not"
"""What `locate_failure` says when it finds nothing."""


class MonteCarloModel(BayesianModel, ExternalDataTrainingLossMixin, abc.ABC):
    """A model whose outputs are Gaussian at every data point given a sample of all that lies before.

    Any GPflow likelihood with variational expectations applies, and predictions are mixtures over the
    samples. Subclasses say how a sample is drawn.

    Letters: N data points, D input features, P outputs, S samples.

    :param likelihood: a GPflow likelihood with variational expectations.
    :param num_latent_gps: P, None for what the likelihood needs.
    :param num_samples: S of the training objective.
    :param num_data: size of the training set when `elbo` is given minibatches.
    :param jitter: added to covariance matrices; default GPflow's.

    >>> model = gpflow_dkp.models.DGP.from_data(X, Y, num_inducing=3)
    >>> isinstance(model, gpflow_dkp.models.MonteCarloModel)
    True
    >>> bool(model.elbo((X, Y), seed=0) == model.elbo((X, Y), seed=0))
    True
    >>> model.predict_mixture(X, num_samples=4).mean.shape, model.predict_log_density((X, Y)).shape
    (TensorShape([4, 10, 1]), TensorShape([10]))
    """

    _TF_MODULE_IGNORED_PROPERTIES = IGNORING_JITTER | {"kl_weight"}

    def __init__(
        self,
        likelihood: Likelihood,
        *,
        num_latent_gps: int | None,
        num_samples: int,
        num_data: int | None,
        jitter: float | None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        num_latent_gps = check_num_latent_gps(likelihood, num_latent_gps)
        check_positive_integer("num_samples", num_samples)
        if num_data is not None:
            check_positive_integer("num_data", num_data)
        self.likelihood = likelihood
        self.num_latent_gps = num_latent_gps
        self.num_samples = num_samples
        self.num_data = num_data
        dtype = gpflow.default_float()
        self.jitter = jitter_variable(jitter)
        self.kl_weight = tf.Variable(1.0, dtype=dtype, trainable=False, name="kl_weight")

    # What a subclass says

    @property
    def objective_is_bound(self) -> bool:
        """Whether `elbo`, at a `kl_weight` of 1, is in expectation a lower bound on the log evidence."""
        return True

    @property
    @abc.abstractmethod
    def num_features(self) -> int:
        """Columns D of the inputs."""

    @abc.abstractmethod
    @check_shapes("return[0]: []", "return[1]: []")
    def elbo_terms(
        self,
        data: RegressionData,
        *,
        num_samples: int | None = None,
        seed: Seed = None,
        rows: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The two terms of `elbo`: one that grows with the rows given, and the global log P - log Q."""

    @check_shapes("weight: []", "return[0]: []", "return[1]: []", "return[2]: []")
    def annealed_terms(
        self, data: RegressionData, weight: tf.Tensor, **given: Any
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """`elbo_terms`, and the first of them with the KL of the rows' own latent variables times `weight`.

        That is the first again of a model whose rows have none, or that does best by its whole KL.

        :param given: arguments of `elbo_terms`.
        """
        expected, log_ratio = self.elbo_terms(data, **given)
        return expected, log_ratio, expected

    @abc.abstractmethod
    def sample_layers(self, num_samples: int, seed: Seed) -> Any:
        """What the inducing points fix in every layer, for S samples: a nest of tensors."""

    @abc.abstractmethod
    @check_shapes(
        "X: [N, D]",
        "return[0]: [S, N, P]",
        "return[1]: [S, N, P] if not full_cov",
        "return[1]: [S, P, N, N] if full_cov",
    )
    def condition_layers(
        self, draws: Any, X: tf.Tensor, num_samples: int, seed: Seed, *, full_cov: bool = False
    ) -> MeanAndVariance:
        """Mean [S, N, P] and positive variance [S, N, P] of the outputs at X given each sample.

        All points of X get the same random numbers. S is 1 if nothing differs between samples.

        :param draws: of `sample_layers`.
        :param full_cov: draw the points jointly, and give their covariance [S, P, N, N].
        """

    def some_samples(self, draws: Any, start: int, count: int) -> Any:
        """The draws of samples `start`, ..., `start` + `count` - 1."""
        return draws

    @property
    def num_inducing_points(self) -> int:
        """M, the most of a layer, by which joint draws are kept within the memory."""
        return 0

    @property
    def predictive_likelihood(self) -> Likelihood:
        """The likelihood that predictions take."""
        return self.likelihood

    def check_num_data(self, num_data: int) -> None:  # most have nothing to check
        """Raise `ValueError` unless a training set of `num_data` rows is the one the model is for."""

    def samples_to_share(self) -> int:
        """How many samples S of the training objective devices can share, and the rows of each.

        `elbo_terms` is then, as a mean over samples, a sum over rows in its first term, and draws by
        `gpflow_dkp.random`, so that a part of a seed (`random.PartOfSeed`) gives it a part's numbers.

        :raises ValueError: for a model of which that is not known.
        """
        raise ValueError(
            f"strategy: got a {type(self).__name__}, which does not say how devices can share its work "
            "(`samples_to_share`); set it to None"
        )

    @abc.abstractmethod
    def training_settings(self) -> dict[str, Any]:
        """What a training run must agree on, beside the parameters, to go on from a checkpoint."""

    @abc.abstractmethod
    def locate_failure(self, X: tf.Tensor, seed: tf.Tensor) -> str:
        """One clause naming the first layer whose values are not finite at X [N, D]."""

    # The bound

    @check_shapes("return: []")
    def elbo(
        self,
        data: RegressionData,
        *,
        num_samples: int | None = None,
        seed: Seed = None,
        rows: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Monte Carlo estimate of the evidence lower bound, of the whole training set [].

        (N / |B|) sum_n E_Q[log p(y_n | f_n)] + `kl_weight` E_Q[log P - log Q].

        :param data: X [B, D] and Y [B, P], a minibatch when `num_data` is set.
        :param num_samples: S, default the model's.
        :param seed: int or stateless seed; None draws fresh samples at each call.
        :param rows: which rows of the training set these are [B]; only models with parameters of
            their own for each data point ask for it.
        """
        expected, log_ratio = self.elbo_terms(data, num_samples=num_samples, seed=seed, rows=rows)
        scale = 1.0
        if self.num_data is not None:
            scale = self.num_data / tf.cast(tf.shape(data[0])[0], expected.dtype)
        return scale * expected + self.kl_weight * log_ratio

    @inherit_check_shapes
    # GPflow's compiled closures would convert the whole model, which takes longer than all else in them.
    @tf.autograph.experimental.do_not_convert
    def maximum_log_likelihood_objective(self, data: RegressionData) -> tf.Tensor:
        """The `elbo` of fresh samples."""
        return self.elbo(data)

    # Files

    def save(self, path: str | Path) -> None:
        """Write the model to one file, for `gpflow_dkp.load`.

        :param path: any name, in the place of a file that is there.
        :raises gpflow_dkp.saving.SavingError: for a part that has no way to be saved, or a bad path.
        """
        save(self, path)

    def export(
        self,
        path: str | Path,
        *,
        num_samples: int = PREDICTION_SAMPLES,
        seed: Seed = 0,
        levels: Sequence[float] = (0.05, 0.5, 0.95),
    ) -> None:
        """Write predictions as a TensorFlow SavedModel, for processes that have TensorFlow alone.

        `tf.saved_model.load(path)` has `predict_y(X)` with "mean" and "variance" [N, P],
        `predict_log_density(X, Y)` with "log_density" [N] and, with a Gaussian likelihood,
        `predict_quantiles(X)` with "quantiles" [L, N, P], for any number of rows, and signatures of the same
        names. They are those of `posterior(num_samples, seed)`.

        :param path: of a folder.
        :param levels: of the quantiles, L probabilities.
        :raises gpflow_dkp.saving.SavingError: for a path that cannot be written to.
        """
        export(self, path, num_samples=num_samples, seed=seed, levels=levels)

    # Prediction

    def posterior(self, num_samples: int = PREDICTION_SAMPLES, seed: Seed = 0) -> Posterior:
        """Samples of the layers with their factorisations, from which predictions cost little.

        It is of the parameters as they are now: in eager mode later training leaves it alone.

        :param num_samples: S.
        :param seed: int or stateless seed, so that a prediction repeats; None for a fresh one.
        """
        model = self._copy() if tf.executing_eagerly() else self
        return Posterior(model, num_samples, seed)

    def _copy(self) -> Self:
        """A copy with parameters of its own; compiled functions, which cannot be copied, are shared."""
        modules = [self, *self.submodules]
        attributes = [value for module in modules for value in vars(module).values()]
        compiled = [
            v for v in attributes if isinstance(v, tf.types.experimental.PolymorphicFunction)
        ]
        return gpflow.utilities.deepcopy(self, {id(function): function for function in compiled})

    @check_shapes(
        "return[0]: [N, P]",
        "return[1]: [N, P] if not full_cov",
        "return[1]: [P, N, N] if full_cov",
    )
    def predict_f(
        self,
        Xnew: InputData,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        num_samples: int = PREDICTION_SAMPLES,
        seed: Seed = 0,
        batch_size: int | None = PREDICTION_BATCH,
    ) -> MeanAndVariance:
        """Mean [N, P] and variance [N, P], or covariance [P, N, N], of f: `Posterior.predict_f`."""
        posterior = Posterior(self, num_samples, seed)
        return posterior.predict_f(Xnew, full_cov, full_output_cov, batch_size=batch_size)

    @check_shapes("return[0]: [N, P]", "return[1]: [N, P]")
    def predict_y(
        self,
        Xnew: InputData,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        num_samples: int = PREDICTION_SAMPLES,
        seed: Seed = 0,
        batch_size: int | None = PREDICTION_BATCH,
    ) -> MeanAndVariance:
        """Mean and variance of new observations, [N, P] each: `Posterior.predict_y`."""
        posterior = Posterior(self, num_samples, seed)
        return posterior.predict_y(Xnew, full_cov, full_output_cov, batch_size=batch_size)

    @check_shapes("return.mean: [S, N, P]", "return.variance: [S, N, P]")
    def predict_mixture(
        self,
        Xnew: InputData,
        *,
        num_samples: int = PREDICTION_SAMPLES,
        seed: Seed = 0,
        batch_size: int | None = PREDICTION_BATCH,
    ) -> Mixture:
        """New observations as a mixture of Gaussians [S, N, P]: `Posterior.mixture`."""
        return Posterior(self, num_samples, seed).mixture(Xnew, batch_size=batch_size)

    @check_shapes("return: [N]")
    def predict_log_density(
        self,
        data: RegressionData,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        num_samples: int = PREDICTION_SAMPLES,
        seed: Seed = 0,
        batch_size: int | None = PREDICTION_BATCH,
    ) -> tf.Tensor:
        """log density of each observation [N]: `Posterior.predict_log_density`."""
        posterior = Posterior(self, num_samples, seed)
        return posterior.predict_log_density(data, full_cov, full_output_cov, batch_size=batch_size)

    def held_out_log_density(self, data: RegressionData) -> float:
        """Mean of `predict_log_density` over held-out data, by which training may choose."""
        return float(np.mean(self.predict_log_density(data)))

    @check_shapes("return: [L, N, P]")
    def predict_quantiles(
        self,
        Xnew: InputData,
        levels: Sequence[float],
        *,
        num_samples: int = PREDICTION_SAMPLES,
        seed: Seed = 0,
        batch_size: int | None = PREDICTION_BATCH,
    ) -> tf.Tensor:
        """Quantiles of new observations [L, N, P]: `Posterior.predict_quantiles`."""
        posterior = Posterior(self, num_samples, seed)
        return posterior.predict_quantiles(Xnew, levels, batch_size=batch_size)

    @check_shapes("return: [S, N, P]")
    def predict_f_samples(
        self,
        Xnew: InputData,
        num_samples: int = PREDICTION_SAMPLES,
        full_cov: bool = True,
        full_output_cov: bool = False,
        *,
        seed: Seed = None,
        batch_size: int | None = PREDICTION_BATCH,
    ) -> tf.Tensor:
        """Draws of f [S, N, P], of whole functions by default: `Posterior.predict_f_samples`."""
        for_layers, for_f = split(seed, 2)
        return Posterior(self, num_samples, for_layers).predict_f_samples(
            Xnew, num_samples, full_cov, full_output_cov, seed=for_f, batch_size=batch_size
        )

    @check_shapes("return: [S, N, P]")
    def predict_y_samples(
        self,
        Xnew: InputData,
        num_samples: int = PREDICTION_SAMPLES,
        full_cov: bool = True,
        *,
        seed: Seed = None,
        batch_size: int | None = PREDICTION_BATCH,
    ) -> tf.Tensor:
        """Draws of new observations [S, N, P]: `Posterior.predict_y_samples`."""
        for_layers, for_y = split(seed, 2)
        return Posterior(self, num_samples, for_layers).predict_y_samples(
            Xnew, num_samples, full_cov, seed=for_y, batch_size=batch_size
        )

    @abc.abstractmethod
    @check_shapes("return: [S, N, P]")
    def sample_prior(
        self, Xnew: InputData, num_samples: int = 1, *, seed: Seed = None
    ) -> tf.Tensor:
        """Joint draws of f from the prior [S, N, P]; costs O(N^3) a sample and layer.

        :param Xnew: [N, D].
        """

    def _number_of_samples(self, num_samples: int | None) -> int:
        """S of the objective: as given, or the model's."""
        if num_samples is None:
            return self.num_samples
        check_positive_integer("num_samples", num_samples)
        return num_samples

    def check_data(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        """X [N, D] and Y [N, P] as tensors that the kernels and the likelihood take."""
        X, Y = (tf.convert_to_tensor(part) for part in data)
        if (
            X.shape.rank != 2
            or Y.shape.rank != 2
            or not X.shape[:1].is_compatible_with(Y.shape[:1])
        ):
            raise ValueError(f"data: got X {X.shape} and Y {Y.shape}, needs X [N, D] and Y [N, P]")
        check_target_columns(self.likelihood, self.num_latent_gps, Y)
        check_targets(self.likelihood, Y)
        # GPflow's Softmax indexes with the labels, its MultiClass compares them.
        softmax = isinstance(self.likelihood, gpflow.likelihoods.Softmax)
        return self.check_inputs(X), tf.cast(Y, tf.int64 if softmax else gpflow.default_float())

    def check_inputs(self, X: InputData) -> tf.Tensor:
        """X [N, D] as a tensor in GPflow's default float, with as many columns as the inducing points."""
        X = tf.convert_to_tensor(X)
        if X.shape.rank != 2:
            raise ValueError(f"data: got X {X.shape}, needs X [N, D]")
        if not X.shape[1:].is_compatible_with([self.num_features]):
            raise ValueError(
                f"data: got X {X.shape}, needs {self.num_features} columns as the inducing points have"
            )
        return tf.cast(X, gpflow.default_float())


def all_finite(value: tf.Tensor) -> bool:
    """Whether no entry is NaN or infinite."""
    return bool(tf.reduce_all(tf.math.is_finite(value)))
