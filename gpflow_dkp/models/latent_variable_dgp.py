"""Deep Gaussian processes with latent variables, by (importance-weighted) variational inference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import InputData, MeanAndVariance, RegressionData
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from typing_extensions import Self

from ..checks import brief, check_choice, check_flag, check_positive_integer
from ..jitter import jitters_of
from ..layers import FeatureLayer, Observed, SampledGP
from ..layers.features.latent_variable import (
    START_VARIANCE,
    expected_log_ratio,
    sampled_log_ratio,
)
from ..parallel import map_over_samples
from ..random import PartOfSeed, Seed, as_seed, fold_in, normal, split
from .architecture import build_layers, start_kernel
from .base import EVERY_LAYER_FINITE, MonteCarloModel, all_finite
from .checks import check_outputs_of_layers, check_targets, num_latent_gps_for
from .checks import check_shapes as check_data_shapes
from .from_data import logarithmic_parameters
from .latent_samples import LatentSamples, resample
from .marginal_likelihood import MIN_NOISE, NEAR_LEAST, regression_start
from .posterior import PREDICTION_BATCH, in_batches
from .sampled_likelihood import of_likelihood

INFERENCES = ("vi", "iwvi", "iwvi-sampled", "iwvi-independent")

START_NOISE = 0.01
"""Variance of the Gaussian likelihood at the start, at most."""

MOST_NOISE = 0.5
"""Of the targets' variance, with which GP regression still says how the functions start."""

LATENT_CANDIDATES = 100
"""Draws of a point's latent variables of which a posterior sample is one."""


class LatentVariableDGP(MonteCarloModel):
    """Layers of latent variables (LV) and sparse GPs in any order, a GP last.

    It is the model of [ICML19]; see docs/mathematics.md 8.

    A latent-variable layer gives each data point unobserved inputs, so that predictive densities can
    have any shape. The last layer's inducing values are integrated out, the others' are too but for
    one draw a point.

    "vi" bounds log p(y) by the expected log-likelihood minus the KL of the latent variables; "iwvi" by
    the logarithm of the mean of K importance weights, K draws of a point's latent variables which one
    draw of the inner functions maps on (equation 11). "iwvi-sampled" draws the last function too, and has
    the likelihood itself in the weights (equation 7): in expectation a bound at least as high, of noisier
    gradients. The published code draws the inner functions anew for each of the K; that is
    "iwvi-independent", which is no bound, to compare with.

    :param layers: `LatentVariableLayer`s, `SparseGP`s and other `FeatureLayer`s, one with `marginals` last.
    :param likelihood: a GPflow likelihood with variational expectations.
    :param inference: "vi", "iwvi", "iwvi-sampled" or "iwvi-independent".
    :param num_importance_samples: K.
    :param num_samples: S independent estimates of the bound, of which the mean is taken.
    :param num_data: size of the training set when `elbo` is given minibatches.
    :param doubly_reparametrised: the encoder's gradient by [Tucker et al. 2019, arXiv:1810.04152], of
        lower variance for many importance samples at up to three times the cost; for "iwvi".
    :param jitter: added to covariances, of all the layers; default each layer's own.

    >>> model = gpflow_dkp.models.LatentVariableDGP.from_architecture(
    ...     "LV-GP", (X, Y), num_inducing=3, num_importance_samples=2
    ... )
    >>> [type(layer).__name__ for layer in model.layers]
    ['LatentVariableLayer', 'SparseGP']
    >>> model.predict_mixture(X, num_samples=4).mean.shape
    TensorShape([4, 10, 1])
    """

    def __init__(
        self,
        layers: Sequence[FeatureLayer],
        likelihood: Likelihood,
        *,
        inference: Literal["vi", "iwvi", "iwvi-sampled", "iwvi-independent"] = "iwvi",
        num_importance_samples: int = 5,
        num_samples: int = 1,
        num_data: int | None = None,
        doubly_reparametrised: bool = False,
        jitter: float | None = None,
        name: str | None = None,
    ) -> None:
        check_choice("inference", inference, INFERENCES)
        check_positive_integer("num_importance_samples", num_importance_samples)
        check_flag("doubly_reparametrised", doubly_reparametrised)
        if doubly_reparametrised and inference != "iwvi":
            raise ValueError(
                f"doubly_reparametrised: it is for inference 'iwvi', got {inference!r}"
            )
        num_features = check_layers(layers)
        if any(isinstance(layer, SampledGP) for layer in layers):
            raise ValueError(
                "layers: got SampledGP among them, needs SparseGP; or take an SGHMCDGP"
            )
        num_outputs = layers[-1].output_dim_of(num_features)
        check_outputs_of_layers(likelihood, num_outputs)
        super().__init__(
            likelihood,
            num_latent_gps=num_outputs,
            num_samples=num_samples,
            num_data=num_data,
            jitter=jitter,
            name=name,
        )
        self.layers = list(layers)
        self.inference = inference
        self.num_importance_samples = num_importance_samples
        self.doubly_reparametrised = doubly_reparametrised
        self._num_features = num_features
        if jitter is not None:
            for layer in self.layers:
                for of_layer in jitters_of(layer):
                    of_layer.assign(jitter)

    @classmethod
    def from_architecture(
        cls,
        architecture: str,
        data: RegressionData,
        *,
        num_inducing: int = 128,
        latent_dim: int = 1,
        latent_variance: float = START_VARIANCE,
        num_inner_gps: int = 5,
        amortised: bool = True,
        whiten: bool = True,
        kernel: str | Kernel = "squared_exponential",
        separate_kernels: bool = False,
        inner_noise: float | None = None,
        keep_latents: bool = False,
        num_marginal_points: int = 500,
        likelihood: Likelihood | None = None,
        seed: int = 0,
        **settings: Any,
    ) -> Self:
        """The paper's model for X [N, D] and Y [N, P], both normalised.

        Kernels with ARD, those of inner layers with a fixed variance, inducing points at the centres of
        a k-means clustering of the inputs, inner GP layers that map D columns to D through
        `num_inner_gps` GPs in the inputs' leading principal directions, added to the identity, and start
        nearly deterministic; a Gaussian likelihood of variance 0.01 or less. The logarithms of these
        positive parameters are trained.

        Unlike the paper's, the last kernel starts as that of GP regression on some of the data, by its
        marginal likelihood: where few of many features matter, training alone often misses them. It does
        not where regression finds more noise than function.

        :param architecture: LV and GP joined by hyphens, such as "LV-GP-GP"; GP last.
        :param data: X and Y; of more than 10 000 rows a random 10 000 are clustered.
        :param num_inducing: M of each GP layer.
        :param latent_dim: d of each latent-variable layer.
        :param latent_variance: of q(w) at the start, about; the paper says standard deviations of e^-5.
        :param num_inner_gps: at most; no more than X has columns.
        :param kernel: "squared_exponential", "rational_quadratic" or "relu", with a scale of each column; or
            a GPflow kernel, of which every GP layer gets a copy as it is.
        :param separate_kernels: each GP of an inner layer has a kernel and inducing points of its own.
        :param inner_noise: starting variance of noise that is added to each GP of an inner layer, of a
            kernel's own, and learned; None for none.
        :param keep_latents: an inner layer passes the latent variables before it on, and not the moved inputs
            alone: as the code of the paper's figure 1 does, that of its table 1 does not.
        :param num_marginal_points: rows for the marginal likelihood; 0 for the paper's start, lengthscales of
            the square root of the number of columns. A GPflow kernel is taken as it is.
        :param likelihood: default Gaussian, of the noise variance found if it is below 0.01, and of 0.01
            otherwise: a larger one would explain away what latent variables are for. It is 0.01 too where the
            search ends at its least noise.
        :param amortised: an encoder for each latent-variable layer, else free parameters of each point.
        :param seed: of the clustering and the random starting values.
        :param settings: further arguments of the constructor.
        :raises ValueError: for data that the likelihood does not take, or labels of one class to search by.
        """
        if not isinstance(data, (tuple, list)) or len(data) != 2:
            raise ValueError(f"data: got {brief(data)}, needs a pair (X, Y)")
        X, Y = data
        check_data_shapes(X, Y)
        check_targets(likelihood or gpflow.likelihoods.Gaussian(), Y)
        if not np.array_equal(num_marginal_points, 0):
            check_positive_integer("num_marginal_points", num_marginal_points)
        with logarithmic_parameters():
            own_likelihood = likelihood or gpflow.likelihoods.Gaussian(START_NOISE)
            layers = build_layers(
                architecture,
                X,
                Y,
                num_outputs=num_latent_gps_for(own_likelihood, Y),
                num_inducing=num_inducing,
                latent_dim=latent_dim,
                latent_variance=latent_variance,
                num_inner_gps=num_inner_gps,
                amortised=amortised,
                whiten=whiten,
                kernel=kernel,
                separate_kernels=separate_kernels,
                inner_noise=inner_noise,
                keep_latents=keep_latents,
                seed=seed,
            )
        model = cls(layers, own_likelihood, **settings)
        if num_marginal_points and isinstance(kernel, str):
            model.start_at_regression(
                (X, Y),
                kernel,
                num_points=num_marginal_points,
                seed=seed,
                change_noise=likelihood is None,
            )
        return model

    def start_at_regression(
        self, data: RegressionData, kernel: str, *, change_noise: bool, **how: Any
    ) -> None:
        """Start at the optimum of GP regression on some of the data ([NeurIPS22] equation 76).

        The last kernel takes the values of the observed columns, within a factor of 1 000 of its own. What is
        mostly noise to regression, such as several modes, says little of the functions, and changes nothing.

        :param data: X [N, D] and Y [N, P].
        :param kernel: the last one's name.
        :param change_noise: the Gaussian likelihood takes the noise found if it is below 0.01. At the
            search's least none was found, only that the rows have a function through them.
        :param how: `num_points`, `seed` and `search` of `regression_start`.
        :raises ValueError: the labels are of one class.
        """
        found, noise_variance = regression_start(kernel, self.likelihood, *data, **how)
        if noise_variance > MOST_NOISE:
            return
        start_kernel(self.output_layer.kernel, found)
        if change_noise and NEAR_LEAST * MIN_NOISE < noise_variance < START_NOISE:
            self.likelihood.variance.assign(noise_variance)

    @classmethod
    def from_data(cls, X: np.ndarray, Y: np.ndarray, *, depth: int = 2, **settings: Any) -> Self:
        """`from_architecture` with one latent-variable layer before `depth` GP layers."""
        check_positive_integer("depth", depth)
        return cls.from_architecture("-".join(["LV"] + ["GP"] * depth), (X, Y), **settings)

    @property
    def num_features(self) -> int:
        """Columns D of the inputs."""
        return self._num_features

    @property
    def output_layer(self) -> FeatureLayer:
        """The last layer."""
        return self.layers[-1]

    # The bound

    @property
    def objective_is_bound(self) -> bool:
        """Whether `elbo` is a bound on the log evidence: all but "iwvi-independent" are."""
        return self.inference != "iwvi-independent"

    @inherit_check_shapes
    def elbo_terms(
        self,
        data: RegressionData,
        *,
        num_samples: int | None = None,
        seed: Seed = None,
        rows: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The two terms of `elbo`: the sum over the rows given, latent variables included; -KL of the GPs."""
        how = {"num_samples": num_samples, "seed": seed, "rows": rows}
        whole = tf.ones([], gpflow.default_float())
        _, log_ratio, of_rows = self.annealed_terms(data, whole, **how)
        return of_rows, log_ratio

    @inherit_check_shapes
    def annealed_terms(
        self,
        data: RegressionData,
        weight: tf.Tensor,
        *,
        num_samples: int | None = None,
        seed: Seed = None,
        rows: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """`elbo_terms`, and the first with log p - log q of the latent variables times `weight`."""
        X, Y = self.check_data(data)
        S = self._number_of_samples(num_samples)
        observed = Observed(X, tf.cast(Y, X.dtype), rows)
        posteriors = [
            tuple(tf.tile(moment, [S, 1]) for moment in layer.latent_posterior(observed))
            for layer in self._latent_layers
        ]
        for_latents, for_layers = split(seed, 2)
        num_draws = 1 if self.inference == "vi" else self.num_importance_samples
        latents = _draw_each(posteriors, num_draws, for_latents, X)
        if self.inference == "vi":
            of_data = self._expected_log_likelihoods((X, Y), S, latents, for_layers)[:, 0]
            log_ratio = sum(expected_log_ratio(*posterior) for posterior in posteriors)
            local, annealed = of_data + log_ratio, of_data + weight * log_ratio
        elif self.doubly_reparametrised and latents:
            local, annealed = self._doubly_reparametrised(
                (X, Y), S, posteriors, latents, for_layers, weight
            )
        else:
            of_data, log_ratio = self._log_weights((X, Y), S, posteriors, latents, for_layers)
            local = _log_mean_exp(of_data + log_ratio)
            annealed = _log_mean_exp(of_data + weight * log_ratio)
        return tf.reduce_sum(local) / S, -self.prior_kl(), tf.reduce_sum(annealed) / S

    @check_shapes("return: []")
    def prior_kl(self) -> tf.Tensor:
        """KL(Q || P) of the GP layers' inducing values []."""
        return -tf.add_n([draw.log_ratio for draw in self.sample_layers(1, 0)])

    def _log_weights(
        self,
        data: RegressionData,
        num_samples: int,
        posteriors: Sequence[MeanAndVariance],
        latents: Sequence[tf.Tensor],
        seed: tf.Tensor,
        **how: bool,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The log of the importance weights [S N, K] in two: of the data, and log p / q of the latents.

        :param how: as in `_expected_log_likelihoods`.
        """
        sampled = self.inference == "iwvi-sampled"
        of_data = self._sampled_log_likelihoods if sampled else self._expected_log_likelihoods
        value = of_data(data, num_samples, latents, seed, **how)
        log_ratio = tf.zeros_like(value)
        for latent, (mean, variance) in zip(latents, posteriors, strict=True):
            log_ratio += sampled_log_ratio(latent, mean, variance)
        return value, log_ratio

    def _doubly_reparametrised(
        self,
        data: RegressionData,
        num_samples: int,
        posteriors: Sequence[MeanAndVariance],
        latents: Sequence[tf.Tensor],
        seed: tf.Tensor,
        weight: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The log mean weight [S N], and that with log p / q of the latents times `weight` [].

        The second has another estimate of its gradient in the posteriors' parameters. With v_k the normalised
        weights and b the factor of log p / q in them, the gradient in the parameters phi of q is the
        expectation of sum_k c_k dw_k/dphi with
        c_k = (1 + b v_k) d(log mean weight)/dw_k - b v_k d(log weight_k)/dw_k, all derivatives holding the
        density q constant: v_k's own derivative takes the place of the score in [Tucker et al. 2019], whose
        weights depend on one w_k each and for whom, b being 1, c_k = v_k^2 d(log weight_k)/dw_k. Here a joint
        draw of the functions makes each weight depend on every w_j.
        """
        constant = [tuple(tf.stop_gradient(part) for part in parts) for parts in posteriors]
        free = [tf.stop_gradient(latent) for latent in latents]
        with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
            tape.watch(free)
            of_data, log_ratio = self._log_weights(data, num_samples, constant, free, seed)
            log_weights = of_data + weight * log_ratio
            value = _log_mean_exp(log_weights)
            share = weight * tf.stop_gradient(tf.nn.softmax(log_weights, -1))
            of_data_alone, _ = self._log_weights(
                data, num_samples, constant, free, seed, own_gradient=True
            )
            own = share * (of_data_alone + weight * log_ratio)
        whole, own = tape.gradient(value, free), tape.gradient(own, free)
        del tape
        for latent, at, d_value, d_own in zip(latents, free, whole, own, strict=True):
            coefficient = tf.stop_gradient((1.0 + share[..., None]) * d_value - d_own)
            value += tf.reduce_sum(coefficient * (latent - at), [-2, -1])
        return _log_mean_exp(of_data + log_ratio), value

    def _expected_log_likelihoods(
        self,
        data: RegressionData,
        num_samples: int,
        latents: Sequence[tf.Tensor],
        seed: Seed,
        **how: bool,
    ) -> tf.Tensor:
        """E[log p(y_n | f)] over the last layer, for each draw of what lies before it [S N, K].

        :param how: `full_cov=False` for inner functions drawn anew for each of the K, `own_gradient`.
        """
        X, Y = data
        given: dict[str, Any] = {"full_cov": self.inference != "iwvi-independent", **how}
        moments = self._through_layers(X, num_samples, latents, seed, **given)
        num_draws = moments[0].shape[1]
        shape = [num_samples, -1, num_draws]
        by_draw = tuple(_draws_first(moment, shape) for moment in moments)
        for_likelihood = fold_in(seed, len(self.layers))
        if isinstance(for_likelihood, PartOfSeed):
            for_likelihood = for_likelihood.repeated(num_draws)
        expected = of_likelihood(
            self.likelihood, "variational_expectations", X, by_draw, for_likelihood, Y
        )
        expected = tf.reshape(expected, [num_samples, num_draws, -1])
        return tf.reshape(tf.transpose(expected, [0, 2, 1]), [-1, num_draws])

    def _sampled_log_likelihoods(
        self,
        data: RegressionData,
        num_samples: int,
        latents: Sequence[tf.Tensor],
        seed: Seed,
        **how: bool,
    ) -> tf.Tensor:
        """log p(y_n | f) at one draw of every function, the last among them [S N, K]."""
        how = {"full_cov": True} | how
        f = self._through_layers(data[0], num_samples, latents, seed, last="condition", **how)
        num_draws = f.shape[1]
        X, Y = (tf.repeat(tf.tile(part, [num_samples, 1]), num_draws, 0) for part in data)
        log_prob = self.likelihood.log_prob(X, tf.reshape(f, [-1, f.shape[-1]]), Y)
        return tf.reshape(log_prob, [-1, num_draws])

    def _through_layers(
        self,
        X: tf.Tensor,
        num_samples: int,
        latents: Sequence[tf.Tensor],
        seed: Seed,
        *,
        last: Literal["marginals", "condition"] = "marginals",
        **how: bool,
    ) -> Any:
        """The last layer at S copies of X [N, D] and K latent variables each.

        Its mean and variance [S N, K, P], or a joint draw of it for the K. The rows go through the layers in
        independent parts; what those share is computed once.

        :param latents: latent variables [S N, K, d] of each latent-variable layer.
        :param last: of the last layer, its `marginals` or a draw by `condition`.
        :param how: arguments of the inner layers' `condition`.
        """
        draws = self.sample_layers(num_samples, seed)
        points = tf.tile(X, [num_samples, 1])[:, None]

        def part(arguments: tuple[tf.Tensor, ...], seed: Seed) -> Any:
            features, *remaining = arguments
            for number, layer in enumerate(self.layers[:-1]):
                if layer.latent_dim:
                    features = layer.append(features, remaining.pop(0))
                else:
                    features = layer.condition(
                        draws[number], features, seed=fold_in(seed, number), **how
                    )
            if last == "marginals":
                return self.output_layer.marginals(features, draws[-1])
            for_f = fold_in(seed, len(self.layers) - 1)
            return self.output_layer.condition(draws[-1], features, seed=for_f, full_cov=True)

        arguments = points, *latents
        return map_over_samples(part, points.shape[0], arguments, _of_rows(seed, X))

    # Prediction

    def sample_layers(self, num_samples: int, seed: Seed) -> list[Any]:
        """Each layer's factorisations; the inducing values are integrated out."""
        return [
            layer.sample(seed=fold_in(seed, number), num_samples=num_samples)
            for number, layer in enumerate(self.layers)
        ]

    @inherit_check_shapes
    def condition_layers(
        self, draws: Any, X: tf.Tensor, num_samples: int, seed: Seed, *, full_cov: bool = False
    ) -> MeanAndVariance:
        """Mean [S, N, P] and variance [S, N, P] at X, or covariance [S, P, N, N]: see the base class."""
        num_samples = 1 if len(self.layers) == 1 else num_samples

        how = {"full_cov": full_cov, "common_noise": not full_cov}

        def part(samples: tf.Tensor, seed: Seed) -> MeanAndVariance:
            features = X[None]
            for number, (layer, draw) in enumerate(zip(self.layers[:-1], draws[:-1], strict=True)):
                of_layer = {"seed": fold_in(seed, number), **how}
                if number == 0:
                    features = layer.condition_copies(draw, X, samples.shape[0], **of_layer)
                else:
                    features = layer.condition(draw, features, **of_layer)
            return self.output_layer.marginals(features, draws[-1], full_cov=full_cov)

        return map_over_samples(part, num_samples, tf.range(num_samples), as_seed(seed))

    @check_shapes("return.latents: [S, N, d]", "return.effective_sample_size: [N]")
    def sample_latents(
        self,
        data: RegressionData,
        num_samples: int = 1,
        *,
        num_importance_samples: int = LATENT_CANDIDATES,
        seed: Seed = None,
        rows: tf.Tensor | None = None,
        batch_size: int | None = PREDICTION_BATCH,
    ) -> LatentSamples:
        """Posterior draws of the latent variables of data points, by importance resampling.

        Each is one of K draws w_k from q(w), taken in proportion to e^{L_k} p(w_k) / q(w_k), where L_k is the
        expected log-likelihood of the point given w_k and one draw of the inner functions ([ICML19] section
        3.4, docs/mathematics.md 8). Its law tends to the posterior of w given y and the trained functions as
        K grows, by whichever bound the model was trained; with K = 1 it is q(w). For "iwvi-sampled" the
        likelihood at a draw of the last function stands in the place of e^{L_k}.

        :param data: X [N, D] and Y [N, P].
        :param num_samples: S; each has its own K draws, and its own functions.
        :param num_importance_samples: K.
        :param seed: int, stateless seed or None for fresh draws.
        :param rows: which rows of the training set these are [N], for free parameters of each point.
        :param batch_size: points at a time, counted once for each of the S, None for all at once.
        :raises ValueError: for a model without latent variables.
        """
        check_positive_integer("num_samples", num_samples)
        check_positive_integer("num_importance_samples", num_importance_samples)
        if not self._latent_layers:
            raise ValueError(
                "sample_latents: got a model without latent variables, needs a layer that has some"
            )
        X, Y = self.check_data(data)
        observed = Observed(X, tf.cast(Y, X.dtype), rows)
        posteriors = [layer.latent_posterior(observed) for layer in self._latent_layers]
        seed = as_seed(seed)

        def part(
            numbers: tf.Tensor, X: tf.Tensor, Y: tf.Tensor, *moments: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor]:
            posteriors = list(zip(moments[::2], moments[1::2], strict=True))
            part_seed = fold_in(seed, numbers[0])
            return self._resample((X, Y), posteriors, num_importance_samples, part_seed)

        repeated = [
            tf.tile(values, [num_samples, 1]) for values in tf.nest.flatten([X, Y, posteriors])
        ]
        numbers = tf.range(tf.shape(repeated[0])[0])
        numbers.set_shape(repeated[0].shape[:1])
        latents, sizes = in_batches(part, batch_size, 0, numbers, *repeated)
        shape = [num_samples, -1]
        return LatentSamples(
            tf.reshape(latents, [*shape, latents.shape[-1]]),
            tf.reduce_mean(tf.reshape(sizes, shape), 0),
        )

    def _resample(
        self,
        data: RegressionData,
        posteriors: Sequence[MeanAndVariance],
        num_draws: int,
        seed: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """One of K weighted draws of each point's latent variables [N, d], effective sample sizes [N]."""
        for_latents, for_layers, for_choice = split(seed, 3)
        latents = _draw_each(posteriors, num_draws, for_latents, data[0])
        log_weights = sum(
            self._log_weights(data, 1, posteriors, latents, for_layers, full_cov=True)
        )
        return resample(tf.concat(latents, -1), log_weights, for_choice)

    @property
    def num_inducing_points(self) -> int:
        """M, the most of a layer."""
        return max(getattr(layer, "num_inducing", 0) for layer in self.layers)

    @inherit_check_shapes
    def sample_prior(
        self, Xnew: InputData, num_samples: int = 1, *, seed: Seed = None
    ) -> tf.Tensor:
        """Joint draws of f from the prior [S, N, P]; costs O(N^3) a sample and layer.

        :param Xnew: [N, D].
        """
        check_positive_integer("num_samples", num_samples)
        return prior_through(self.layers, self.check_inputs(Xnew), num_samples, seed)

    # For training

    def samples_to_share(self) -> int:
        """S."""
        return self.num_samples

    def check_num_data(self, num_data: int) -> None:
        """Raise `ValueError` for another number of rows than there are free latent parameters."""
        for layer in self._latent_layers:
            num_points = getattr(layer, "num_points", None)
            if num_points not in (None, num_data):
                raise ValueError(
                    f"data: got {num_data} rows, the {type(layer).__name__} has free parameters for "
                    f"{num_points}: train on the rows it was made for, or use an encoder"
                )

    def training_settings(self) -> dict[str, Any]:
        """The layers, the inference and its numbers of samples."""
        return {
            "layers": [type(layer).__name__ for layer in self.layers],
            "inference": self.inference,
            "num_samples": self.num_samples,
            "num_importance_samples": self.num_importance_samples,
            "doubly_reparametrised": self.doubly_reparametrised,
        }

    def locate_failure(self, X: tf.Tensor, seed: Seed) -> str:
        """One clause naming the first layer whose values at X [N, D] are not finite."""
        return failing_layer(self.layers, X, seed)

    @property
    def _latent_layers(self) -> list[Any]:
        return [layer for layer in self.layers if layer.latent_dim]


def check_layers(layers: Sequence[FeatureLayer]) -> int:
    """The number of input columns D that the layers take.

    :raises ValueError: for none, a last layer without marginals, or columns that do not agree.
    """
    if not isinstance(layers, Sequence) or not layers:
        raise ValueError("layers: needs a list of LatentVariableLayer and SparseGP, got none")
    for layer in layers:
        if not isinstance(layer, FeatureLayer):
            raise ValueError(
                f"layers: got {type(layer).__name__} among them, needs LatentVariableLayer, SparseGP or "
                "another FeatureLayer"
            )
    if type(layers[-1]).marginals is FeatureLayer.marginals:
        raise ValueError(
            f"layers: the last is a {type(layers[-1]).__name__}, needs a SparseGP last"
        )
    taken = ((i, layer.input_dim) for i, layer in enumerate(layers))
    first, takes = next(((i, dim) for i, dim in taken if dim is not None), (None, None))
    if first is None or takes is None:
        raise ValueError("layers: none says how many columns it takes, needs input_dim of one")
    columns = takes - sum(layer.output_dim_of(0) for layer in layers[:first])
    if columns < 0:
        raise ValueError(
            f"layers: layer {first + 1} takes {takes} columns, fewer than the latent "
            "variables before it"
        )
    num_features = columns
    for number, layer in enumerate(layers, 1):
        if layer.input_dim not in (None, columns):
            raise ValueError(
                f"layers: layer {number} takes {layer.input_dim} columns, those before it give {columns}"
            )
        columns = layer.output_dim_of(columns)
    return num_features


def prior_through(
    layers: Sequence[FeatureLayer], X: tf.Tensor, num_samples: int, seed: Seed
) -> tf.Tensor:
    """Joint draws of the last layer's function from the prior at X [N, D]: [S, N, P]."""
    features = tf.tile(X[None], [num_samples, 1, 1])
    for layer, layer_seed in zip(layers, split(seed, len(layers)), strict=True):
        features = layer.prior_sample(features, seed=layer_seed)
    return features


def failing_layer(layers: Sequence[FeatureLayer], X: tf.Tensor, seed: Seed) -> str:
    """One clause naming the first of the layers whose values at X [N, D] are not finite."""
    features = X[:, None]
    for number, layer in enumerate(layers, 1):
        where = f"layer {number} of {len(layers)} ({type(layer).__name__})"
        draw = layer.sample(seed=seed)
        if layer is layers[-1]:
            values = layer.marginals(features, draw)
        else:
            features = layer.condition(draw, features, seed=seed)
            values = (features,)
        if not all(all_finite(value) for value in values):
            return f"{where} gives values that are not finite"
    return EVERY_LAYER_FINITE


def _draw_each(
    posteriors: Sequence[MeanAndVariance], num_draws: int, seed: tf.Tensor, X: tf.Tensor
) -> list[tf.Tensor]:
    """Latent variables [R, K, d] of each layer from their posteriors, for copies of X."""
    return [
        _draw(posterior, num_draws, _of_rows(fold_in(seed, i), X))
        for i, posterior in enumerate(posteriors)
    ]


def _draw(posterior: MeanAndVariance, num_draws: int, seed: tf.Tensor) -> tf.Tensor:
    """Latent variables [R, K, d] from N(a, diag b) for a and b [R, d]."""
    mean, variance = posterior
    num_points, latent_dim = tf.unstack(tf.shape(mean))
    noise = normal([num_points, num_draws, latent_dim], seed, mean.dtype)
    noise.set_shape([None, num_draws, None])
    return mean[:, None] + tf.sqrt(variance)[:, None] * noise


def _of_rows(seed: Seed, X: tf.Tensor) -> Seed:
    """The seed of draws whose first axis goes through the rows of X of each sample [S N, ...]."""
    return seed.of_rows(tf.shape(X)[0]) if isinstance(seed, PartOfSeed) else seed


def _draws_first(value: tf.Tensor, shape: list[int]) -> tf.Tensor:
    """[S N, K, P] to [S K, N, P] for `shape` [S, N, K]."""
    columns = value.shape[-1]
    by_draw = tf.transpose(tf.reshape(value, [*shape, columns]), [0, 2, 1, 3])
    return tf.reshape(by_draw, [shape[0] * shape[2], -1, columns])


def _log_mean_exp(log_weights: tf.Tensor) -> tf.Tensor:
    """log of the mean over the last axis."""
    return tf.reduce_logsumexp(log_weights, -1) - math.log(log_weights.shape[-1])
