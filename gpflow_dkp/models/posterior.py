"""A trained model's posterior: samples of what its inducing points fix, and predictions given them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import InputData, MeanAndVariance, RegressionData

from ..checks import check_positive_integer
from ..gram.blocks import with_diagonal
from ..linalg import cholesky
from ..mixture import Mixture
from ..random import Seed, as_seed, fold_in, normal, split
from .observations import sample_observations
from .sampled_likelihood import of_likelihood

if TYPE_CHECKING:
    from .base import MonteCarloModel

PREDICTION_SAMPLES = 100
"""Samples of the hidden layers in a prediction, as in the papers' tests."""

PREDICTION_BATCH = 500
"""Data points predicted at a time: 100 samples of 100 inducing points take 80 kB a point."""

JOINT_ELEMENTS = 2**25
"""Numbers in the covariances that joint draws hold at a time, about: 256 MiB of doubles."""


class Posterior:
    """S samples of a model's layers at the inducing points, with their factorisations.

    Predictions are functions of X alone: all points see the same samples and the same random numbers, so
    that a point's prediction does not depend on what is predicted beside it, and is as smooth in X as the
    kernels are. Without `full_cov` only each point's own distribution is meant.

    Letters: N points, D input features, P outputs, S samples.

    :param model: read, not copied: `model.posterior` gives a copy's, which later training leaves alone.
    :param num_samples: S; a model without hidden layers needs one.
    :param seed: int, stateless seed or None.
    :param draws: those of another posterior of the same arguments; default fresh ones.

    >>> model = gpflow_dkp.models.DWP.from_data(X, Y, num_inducing=3)
    >>> posterior = model.posterior(num_samples=4, seed=0)
    >>> posterior.mixture(X).mean.shape
    TensorShape([4, 10, 1])
    >>> of_all, of_two = posterior.predict_f(X), posterior.predict_f(X[:2])
    >>> np.allclose(of_all[0][:2], of_two[0])  # a point's prediction is its own
    True
    """

    def __init__(
        self,
        model: MonteCarloModel,
        num_samples: int = PREDICTION_SAMPLES,
        seed: Seed = 0,
        *,
        draws: Any = None,
    ) -> None:
        check_positive_integer("num_samples", num_samples)
        self.model = model
        self.num_samples = num_samples
        for_draws, self._seed = split(seed, 2)
        self._draws = model.sample_layers(num_samples, for_draws) if draws is None else draws

    @property
    def draws(self) -> Any:
        """What the inducing points fix in every layer: a nest of tensors."""
        return self._draws

    @check_shapes("return.mean: [S, N, P]", "return.variance: [S, N, P]")
    def mixture_of_f(
        self, Xnew: InputData, *, batch_size: int | None = PREDICTION_BATCH
    ) -> Mixture:
        """f at X [N, D] as a mixture of Gaussians [S, N, P]."""
        X = self.model.check_inputs(Xnew)
        return Mixture(*in_batches(self._moments, batch_size, 1, X))

    @check_shapes("return.mean: [S, N, P]", "return.variance: [S, N, P]")
    def mixture(self, Xnew: InputData, *, batch_size: int | None = PREDICTION_BATCH) -> Mixture:
        """New observations at X [N, D] as a mixture [S, N, P].

        With a Gaussian likelihood the predictive density is exactly this. For other likelihoods the
        components have its means and variances.

        :param batch_size: data points at a time, None for all at once.
        """
        X = self.model.check_inputs(Xnew)
        return Mixture(*in_batches(self._moments_of_y, batch_size, 1, X))

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
        batch_size: int | None = PREDICTION_BATCH,
    ) -> MeanAndVariance:
        """Mean [N, P] and variance [N, P] of f, or covariance [P, N, N].

        :param Xnew: [N, D].
        :param full_cov: the covariance of all points, of each output; O(S (M + N)^3).
        :param full_output_cov: not available: given a sample the outputs are independent.
        :param batch_size: data points at a time, None for all at once; not with `full_cov`.
        """
        _no_output_covariance(full_output_cov)
        if not full_cov:
            return self.mixture_of_f(Xnew, batch_size=batch_size).moments()
        X = self.model.check_inputs(Xnew)
        mean, covariance = self._joint_moments(X, self.num_samples, self._seed)
        centred = mean - tf.reduce_mean(mean, 0)
        of_means = tf.einsum("snp,smp->pnm", centred, centred)
        of_means /= tf.cast(tf.shape(mean)[0], mean.dtype)
        return tf.reduce_mean(mean, 0), tf.reduce_mean(covariance, 0) + of_means

    @check_shapes("return[0]: [N, P]", "return[1]: [N, P]")
    def predict_y(
        self,
        Xnew: InputData,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        batch_size: int | None = PREDICTION_BATCH,
    ) -> MeanAndVariance:
        """Mean and variance of new observations, [N, P] each; arguments as in `predict_f`."""
        _no_output_covariance(full_output_cov)
        if full_cov:
            raise NotImplementedError("predict_y: full_cov must be False, as in GPflow")
        return self.mixture(Xnew, batch_size=batch_size).moments()

    @check_shapes("return: [N]")
    def predict_log_density(
        self,
        data: RegressionData,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        batch_size: int | None = PREDICTION_BATCH,
    ) -> tf.Tensor:
        """log of the mixture's density at each data point [N]; arguments as in `predict_f`."""
        if full_cov or full_output_cov:
            raise NotImplementedError("predict_log_density: full covariances are not available")
        X, Y = self.model.check_data(data)
        density = in_batches(self._log_density, batch_size, 1, X, Y)
        log_samples = tf.math.log(tf.cast(tf.shape(density)[0], density.dtype))
        return tf.reduce_logsumexp(density, 0) - log_samples

    @check_shapes("return: [L, N, P]")
    def predict_quantiles(
        self,
        Xnew: InputData,
        levels: Sequence[float],
        *,
        batch_size: int | None = PREDICTION_BATCH,
    ) -> tf.Tensor:
        """Quantiles of new observations [L, N, P], of the exact mixture of Gaussians.

        :param levels: L probabilities, each strictly between 0 and 1.
        :raises ValueError: for other levels, or a likelihood that is not Gaussian.
        """
        likelihood = self.model.likelihood
        if not isinstance(likelihood, gpflow.likelihoods.Gaussian):
            raise ValueError(
                f"predict_quantiles: got likelihood {type(likelihood).__name__}, needs Gaussian, "
                "whose mixture has quantiles; use predict_f_samples for others"
            )
        return self.mixture(Xnew, batch_size=batch_size).quantile(levels)

    @check_shapes("return: [S, N, P]")
    def predict_f_samples(
        self,
        Xnew: InputData,
        num_samples: int | None = None,
        full_cov: bool = True,
        full_output_cov: bool = False,
        *,
        seed: Seed = None,
        batch_size: int | None = PREDICTION_BATCH,
    ) -> tf.Tensor:
        """Draws of f at X [num_samples, N, P].

        :param num_samples: default S; those above S see the same inducing points with other noise.
        :param full_cov: joint draws of whole functions, at O((M + N)^3) each; otherwise only each point's
            own distribution is meant.
        :param seed: of what is drawn beside the posterior's own samples; None for fresh draws.
        """
        _no_output_covariance(full_output_cov)
        num_samples = self.num_samples if num_samples is None else num_samples
        check_positive_integer("num_samples", num_samples)
        X = self.model.check_inputs(Xnew)
        return self._draw(X, num_samples, full_cov, as_seed(seed), batch_size)

    @check_shapes("return: [S, N, P]")
    def predict_y_samples(
        self,
        Xnew: InputData,
        num_samples: int | None = None,
        full_cov: bool = True,
        *,
        seed: Seed = None,
        batch_size: int | None = PREDICTION_BATCH,
    ) -> tf.Tensor:
        """Draws of new observations at X [num_samples, N, P]; arguments as in `predict_f_samples`.

        :raises ValueError: a likelihood that `observation_distribution` does not know.
        """
        for_f, for_y = split(seed, 2)
        f = self.predict_f_samples(Xnew, num_samples, full_cov, seed=for_f, batch_size=batch_size)
        likelihood = self.model.predictive_likelihood
        return sample_observations(likelihood, self.model.check_inputs(Xnew), f, for_y)

    def _moments(self, X: tf.Tensor) -> MeanAndVariance:
        return self.model.condition_layers(self._draws, X, self.num_samples, self._seed)

    def _moments_of_y(self, X: tf.Tensor) -> MeanAndVariance:
        return self._of_likelihood("predict_mean_and_var", X)

    def _log_density(self, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        return self._of_likelihood("predict_log_density", X, Y)

    def _of_likelihood(self, method: str, X: tf.Tensor, Y: tf.Tensor | None = None) -> Any:
        likelihood, moments = self.model.predictive_likelihood, self._moments(X)
        return of_likelihood(likelihood, method, X, moments, self._seed, Y, common_noise=True)

    def _joint_moments(self, X: tf.Tensor, num_samples: int, seed: Seed) -> MeanAndVariance:
        """Mean [S, N, P] and covariance [S, P, N, N] given joint draws of the layers before the last."""
        return self.model.condition_layers(self._draws, X, num_samples, seed, full_cov=True)

    def _draw(
        self, X: tf.Tensor, num_samples: int, full_cov: bool, seed: Seed, batch_size: int | None
    ) -> tf.Tensor:
        """Draws of f, as many at a time as the posterior has samples, or as fit into the memory."""
        at_a_time = self.num_samples
        if full_cov and X.shape[0] is not None:
            size = (X.shape[0] + self.model.num_inducing_points) ** 2
            at_a_time = max(1, min(at_a_time, JOINT_ELEMENTS // size))
        parts, done = [], 0
        while done < num_samples:
            start = done % self.num_samples
            count = min(at_a_time, num_samples - done, self.num_samples - start)
            draws = self.model.some_samples(self._draws, start, count)
            parts.append(
                self._draw_some(draws, X, count, full_cov, fold_in(seed, done), batch_size)
            )
            done += count
        return tf.concat(parts, 0)

    def _draw_some(
        self,
        draws: Any,
        X: tf.Tensor,
        count: int,
        full_cov: bool,
        seed: Seed,
        batch_size: int | None,
    ) -> tf.Tensor:
        model = self.model
        for_moments, for_f = split(seed, 2)
        if not full_cov:

            def moments(batch: tf.Tensor) -> MeanAndVariance:
                return model.condition_layers(draws, batch, count, for_moments)

            mean, variance = in_batches(moments, batch_size, 1, X)
            noise = normal([count, 1, mean.shape[-1]], for_f, mean.dtype)
            return mean + tf.sqrt(variance) * noise
        mean, covariance = model.condition_layers(draws, X, count, for_moments, full_cov=True)
        tril = cholesky(with_diagonal(covariance, model.jitter))
        noise = normal([count, mean.shape[-1], tf.shape(X)[0], 1], for_f, mean.dtype)
        return mean + tf.linalg.matrix_transpose((tril @ noise)[..., 0])


def _no_output_covariance(full_output_cov: bool) -> None:
    if full_output_cov:
        raise NotImplementedError(
            "full_output_cov must be False: given a sample of the hidden layers the outputs are independent"
        )


def in_batches(
    function: Callable[..., Any], batch_size: int | None, axis: int, *arrays: tf.Tensor
) -> Any:
    """`function` of the rows of `arrays`, `batch_size` at a time, its results joined along `axis`."""
    if batch_size is not None:
        check_positive_integer("batch_size", batch_size)
    num_data = arrays[0].shape[0]
    if batch_size is None or num_data is None or num_data <= batch_size:
        return function(*arrays)
    parts = [
        function(*(array[first : first + batch_size] for array in arrays))
        for first in range(0, num_data, batch_size)
    ]
    return tf.nest.map_structure(lambda *values: tf.concat(values, axis), *parts)
