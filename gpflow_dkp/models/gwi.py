"""Gaussian Wasserstein inference: Gaussian measures of any mean, close to the prior."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import gpflow
import numpy as np
import scipy.optimize
import tensorflow as tf
from gpflow import Parameter, covariances
from gpflow.base import InputData, MeanAndVariance, RegressionData
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Bernoulli, Gaussian, Likelihood, MultiClass, Softmax
from gpflow.quadrature import hermgauss
from gpflow.utilities import positive, triangular
from typing_extensions import Self

from ..checks import check_choice, check_inducing_variable, check_positive, check_positive_integer
from ..layers.base import MIN_VARIANCE
from ..linalg import cholesky, inverse_triangular, outer_product
from ..means import Mean, MultilayerPerceptron, as_mean
from ..random import Seed, as_seed, normal
from ..wasserstein import (
    LowRankUpdate,
    cross_spectrum,
    eigenvalue_cross_term,
    exact_cross_term,
    nystrom_cross_term,
)
from .base import (
    EVERY_LAYER_FINITE,
    PREDICTION_BATCH,
    PREDICTION_SAMPLES,
    MonteCarloModel,
    all_finite,
)
from .checks import check_arrays, check_kernels, check_labels, check_likelihood
from .from_data import KERNELS, cluster, logarithmic_parameters
from .marginal_likelihood import marginal_likelihood_start

DISTANCES = ("squared", "root", "published")
CROSS_TERMS = ("nystrom", "eigenvalues", "exact")
CROSS_POINTS = 100
"""Most points of the cross term's estimate, unless the model is given a number."""

CROSS_JITTER = 1e-4
"""Of the model's jitter, relative to the prior variance, on the cross term's covariances.

The whole of it would change the distance by 1e-6, and by 5e-5 where Sigma is small."""

LOG_TEMPERATURE = math.log(100.0)
"""Bound of a numerical search's |log alpha|."""

TEMPERED_QUADRATURE = 100
"""Points of the quadrature over a class' function, once the classes are tempered.

Where their variances differ much its integrand is nearly a step: with GPflow's 20 points a search over alpha
finds densities that are too high by up to 0.04."""

MIN_TEMPERATURE = 1e-12
"""Least alpha of a Gaussian likelihood, for predictions without an error."""


class _AtPoints(NamedTuple):
    """What the inducing points say of N points.

    :param explained: A = chol(k_ZZ)^{-1} k_ZX [M, N].
    :param prior_mean: m_P [N, P], or one column for all outputs.
    :param prior_variance: k [N, 1], the same for all outputs.
    :param mean: m_Q [N, P].
    :param variance: r [N, P], untempered.
    """

    explained: tf.Tensor
    prior_mean: tf.Tensor
    prior_variance: tf.Tensor
    mean: tf.Tensor
    variance: tf.Tensor


class GWI(MonteCarloModel):
    """Generalised variational inference with Gaussian measures ([NeurIPS22], MATH.md 9).

    The prior is a Gaussian process N(m_P, k); the posterior one N(m_Q, r) for each output, with

        r(x, x') = k - k_Z k_ZZ^{-1} k_Z + k_Z Sigma k_Z,   k_ZZ = L L^T,   L^T Sigma L = q_sqrt q_sqrt^T,

    and any function m_Q. The objective is E_Q[log p(y | f)] - D with D the Wasserstein distance between
    the two on the inputs; it is no bound on the evidence, and is named `elbo` as the other models' is.

    D's cross term is estimated on some points of the batch: "nystrom" is at most the exact value of the
    batch, so D is an upper bound; "eigenvalues" is the paper's, noisier; "exact" takes the whole batch.

    :param kernel: k, any GPflow kernel on the inputs with one output, which all outputs share.
    :param likelihood: a GPflow likelihood with variational expectations.
    :param inducing_variable: Z [M, D].
    :param mean: m_Q: "svgp" for m_P(x) + k(x, Z) L^{-T} `q_mu`, or a callable from [N, D] to [N, P]: a
        tf.Module, a Keras model, a `gpflow_dkp.means.KernelExpansion`.
    :param prior_mean: m_P, a GPflow mean function, default zero.
    :param num_latent_gps: P, default the likelihood's number of latent functions, or 1.
    :param num_data: size of the training set when `elbo` is given minibatches.
    :param distance: "squared" for D = W2^2 (equations 61 and 71), "root" for W2 (equation 12),
        "published" for W2 times the batch size, as the published code weighs it.
    :param cross_term: "nystrom", "eigenvalues" or "exact".
    :param num_cross_points: S of the first two, default the batch's points and at most 100.
    :param jitter: added to covariances, and a ten-thousandth of it, relative to the prior variance, to those
        of the cross term (more in single precision); default GPflow's.

    Variational parameters: `q_sqrt` [P, M, M], lower triangular, and `q_mu` [M, P] for the mean "svgp":
    both of L^{-1} f(Z), as in GPflow's whitened SVGP. `temperature` [P] multiplies predictive variances;
    `temper` chooses it, training ignores it.
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: InducingVariables | tf.Tensor,
        *,
        mean: Literal["svgp"] | Mean = "svgp",
        prior_mean: MeanFunction | None = None,
        num_latent_gps: int | None = None,
        num_data: int | None = None,
        distance: Literal["squared", "root", "published"] = "squared",
        cross_term: Literal["nystrom", "eigenvalues", "exact"] = "nystrom",
        num_cross_points: int | None = None,
        jitter: float | None = None,
        name: str | None = None,
    ) -> None:
        check_choice("distance", distance, DISTANCES)
        check_choice("cross_term", cross_term, CROSS_TERMS)
        if num_cross_points is not None:
            check_positive_integer("num_cross_points", num_cross_points)
        check_likelihood(likelihood)
        if likelihood.latent_dim is not None and likelihood.latent_dim != num_latent_gps:
            if num_latent_gps is not None:
                raise ValueError(
                    f"num_latent_gps: got {num_latent_gps}, {type(likelihood).__name__} needs "
                    f"{likelihood.latent_dim}"
                )
            num_latent_gps = likelihood.latent_dim
        if isinstance(likelihood, (MultiClass, Softmax)) and likelihood.num_classes < 2:
            raise ValueError(
                f"likelihood: got {likelihood.num_classes} class, needs at least 2 to tell apart"
            )
        super().__init__(
            likelihood,
            num_latent_gps=1 if num_latent_gps is None else num_latent_gps,
            num_samples=1,
            num_data=num_data,
            jitter=jitter,
            name=name,
        )
        (self.kernel,) = check_kernels([kernel])
        if isinstance(kernel, MultioutputKernel):
            raise ValueError(
                f"kernel: got {type(kernel).__name__}, needs one of a single output, which all share"
            )
        self.inducing_variable = check_inducing_variable(inducing_variable)
        if prior_mean is not None:
            if not callable(prior_mean):
                raise ValueError(f"prior_mean: got {prior_mean!r}, needs a GPflow mean function")
            shape = prior_mean(tf.zeros([2, self.num_features], gpflow.default_float())).shape
            if shape not in ((2, 1), (2, self.num_latent_gps)):
                raise ValueError(
                    f"prior_mean: gives shape {tuple(shape)} for 2 points, needs one column, or "
                    f"{self.num_latent_gps}"
                )
        self.prior_mean = prior_mean
        self.distance = distance
        self.cross_term = cross_term
        self.num_cross_points = num_cross_points
        M, P = self.num_inducing, self.num_latent_gps
        self.q_sqrt = Parameter(np.tile(np.eye(M), [P, 1, 1]), transform=triangular())
        self.temperature = Parameter(np.ones(P), transform=positive(), trainable=False)
        self.mean: Mean | None = None
        if mean == "svgp":
            self.q_mu = Parameter(np.zeros([M, P]))
        else:
            self.mean = as_mean(mean, self.num_features, P)

    @classmethod
    def net(
        cls,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: InducingVariables | tf.Tensor,
        *,
        hidden_units: Sequence[int] = (10, 10),
        activation: str = "tanh",
        weight_variance: float | None = None,
        seed: int = 0,
        num_latent_gps: int | None = None,
        **settings: Any,
    ) -> Self:
        """GWI-net: the mean is a fully connected network, the inducing points stay where they are.

        :param inducing_variable: Z [M, D]; an `InducingVariables` is set untrainable.
        :param hidden_units: of each hidden layer; the paper's has two of 10.
        :param activation: "tanh" or "relu".
        :param weight_variance: of a normal prior on the network's weights, for a network that would
            overfit: the distance holds back the mean's values, not its weights. None, as in the paper,
            for no prior.
        :param seed: of the network's starting values.
        :param settings: further arguments of the constructor.
        """
        check_likelihood(likelihood)
        inducing_variable = check_inducing_variable(inducing_variable)
        gpflow.set_trainable(inducing_variable, False)
        num_outputs = likelihood.latent_dim or num_latent_gps or 1
        num_features = tf.convert_to_tensor(inducing_variable.Z).shape[1]
        network = MultilayerPerceptron(
            num_features,
            num_outputs,
            hidden_units=hidden_units,
            activation=activation,
            weight_variance=weight_variance,
            seed=seed,
        )
        settings = {"num_latent_gps": num_latent_gps, **settings}
        return cls(kernel, likelihood, inducing_variable, mean=network, **settings)

    @classmethod
    def from_data(
        cls,
        X: np.ndarray,
        Y: np.ndarray,
        *,
        mean: Literal["net", "svgp"] | Mean = "net",
        num_inducing: int | None = None,
        kernel: Kernel | str = "squared_exponential",
        likelihood: Likelihood | None = None,
        noise_variance: float | None = None,
        num_marginal_points: int = 500,
        train_hyperparameters: bool = False,
        seed: int = 0,
        **settings: Any,
    ) -> Self:
        """The paper's model for X [N, D] and Y [N, P], both normalised, or Y [N, 1] of labels.

        Inducing points at the centres of a k-means clustering; kernel and noise variance by the marginal
        likelihood of some of the data (`marginal_likelihood_start`; labels as one indicator a class);
        `q_sqrt`, and `q_mu` of the mean "svgp", at the optimum of the sparse GP with that noise.

        :param mean: "net", as in `net` with the inducing points fixed; "svgp", or a callable as in the
            constructor.
        :param num_inducing: M, default the square root of N.
        :param kernel: "squared_exponential" or "relu" with ARD, or a GPflow kernel to start from.
        :param likelihood: default Gaussian with the noise variance found.
        :param noise_variance: of the Gaussian likelihood and the start instead.
        :param num_marginal_points: rows for the marginal likelihood; 0 to take the kernel as it is given,
            with `noise_variance`.
        :param train_hyperparameters: leave kernel and likelihood as trainable as they are; they are fixed
            otherwise.
        :param seed: of the clustering, the subset and the network's starting values.
        :param settings: further arguments of the constructor, or of `net`.
        """
        X, Y = check_arrays(X, Y)
        if isinstance(mean, str):
            check_choice("mean", mean, ("net", "svgp"))
        if noise_variance is not None:
            check_positive("noise_variance", noise_variance)
        if likelihood is not None:
            check_labels(likelihood, Y)
        if isinstance(likelihood, (MultiClass, Softmax, Bernoulli)) and np.ptp(Y) == 0:
            raise ValueError(
                f"data: got labels of one class, {Y[0, 0]:g}, needs at least 2 to tell apart"
            )
        num_inducing = round(np.sqrt(len(X))) if num_inducing is None else num_inducing
        check_positive_integer("num_inducing", num_inducing)
        targets = Y
        if isinstance(likelihood, (MultiClass, Softmax)):
            if Y.shape[1] != 1:
                raise ValueError(f"data: got Y {Y.shape}, needs one column of labels")
            targets = np.eye(likelihood.num_classes, dtype=Y.dtype)[Y[:, 0].astype(int)]
        with logarithmic_parameters():
            if isinstance(kernel, str):
                check_choice("kernel", kernel, tuple(KERNELS))
                kernel = KERNELS[kernel](X.shape[1])
            if num_marginal_points:
                found = marginal_likelihood_start(
                    kernel, X, targets, num_points=num_marginal_points, seed=seed
                )
                noise_variance = found if noise_variance is None else noise_variance
            elif noise_variance is None:
                raise ValueError(
                    "noise_variance: got None, needs a number if num_marginal_points is 0"
                )
            likelihood = likelihood or Gaussian(noise_variance)
        if not train_hyperparameters:
            gpflow.set_trainable(kernel, False)
            gpflow.set_trainable(likelihood, False)
        centres, _ = cluster(X, targets, num_inducing, seed)
        settings = {"num_latent_gps": targets.shape[1], **settings}
        if isinstance(mean, str) and mean == "net":
            model = cls.net(kernel, likelihood, centres, seed=seed, **settings)
        else:
            model = cls(kernel, likelihood, centres, mean=mean, **settings)
        model.start_at_sparse_posterior((X, targets), noise_variance)
        return model

    @property
    def num_features(self) -> int:
        """Columns D of the inputs."""
        return tf.convert_to_tensor(self.inducing_variable.Z).shape[1]

    @property
    def num_inducing(self) -> int:
        """M."""
        return tf.convert_to_tensor(self.inducing_variable.Z).shape[0]

    def start_at_sparse_posterior(
        self, data: RegressionData, noise_variance: float, *, num_data: int | None = None
    ) -> None:
        """Set `q_sqrt`, and `q_mu` of the mean "svgp", to a sparse GP regression's optimum.

        Sigma = (k_ZZ + s2^{-1} (N / N_B) k_ZX k_XZ)^{-1}, [NeurIPS22] equation 77.

        :param data: X [N_B, D] and targets [N_B, P] of the latent functions.
        :param noise_variance: s2.
        :param num_data: N where the data are a batch, default N_B.
        """
        check_positive("noise_variance", noise_variance)
        X, targets = (tf.cast(part, gpflow.default_float()) for part in data)
        if targets.shape != (len(X), self.num_latent_gps):
            raise ValueError(
                f"data: got targets {targets.shape} for {len(X)} rows of X, needs [{len(X)}, "
                f"{self.num_latent_gps}], one column an output"
            )
        explained = self._explain(X)
        weight = (num_data or len(X)) / len(X) / noise_variance
        precision = weight * tf.matmul(explained, explained, transpose_b=True)
        precision += tf.eye(self.num_inducing, dtype=precision.dtype)
        tril = tf.linalg.cholesky(precision)
        covariance = tf.linalg.cholesky_solve(tril, tf.eye(self.num_inducing, dtype=tril.dtype))
        root = tf.linalg.cholesky(covariance)
        self.q_sqrt.assign(tf.tile(root[None], [self.num_latent_gps, 1, 1]))
        if self.mean is None:
            residual = targets - self._prior_mean(X)
            self.q_mu.assign(weight * covariance @ (explained @ residual))

    # The objective

    def elbo_terms(
        self,
        data: RegressionData,
        *,
        num_samples: int | None = None,
        seed: Seed = None,
        rows: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The two terms of `elbo`: the expected log-likelihood of the rows given, and -D."""
        X, Y = self._check_data(data)
        seed = as_seed(seed)
        at = self._at_points(X)
        moments = at.mean[None], at.variance[None]
        expected = self._of_likelihood("variational_expectations", X, moments, seed, Y)
        squared = self._squared_distance(X, at, seed)
        if self.distance == "squared":
            return tf.reduce_sum(expected), -squared
        positive_part = squared > MIN_VARIANCE[squared.dtype]
        root = tf.sqrt(tf.where(positive_part, squared, tf.ones_like(squared)))
        root = tf.where(positive_part, root, tf.zeros_like(root))
        if self.distance == "published":
            root *= tf.cast(tf.shape(X)[0], root.dtype)
        return tf.reduce_sum(expected), -root

    def prior_kl(self) -> tf.Tensor:
        """KL(q(u) || p(u)) [] of the mean "svgp", as GPflow's SVGP has it; the objective does not use it.

        :raises ValueError: another mean, for which the two measures need not have a density.
        """
        if self.mean is not None:
            raise ValueError(
                f"prior_kl: got the mean {type(self.mean).__name__}, needs 'svgp'; `squared_distance` "
                "is of any mean"
            )
        return gpflow.kullback_leiblers.gauss_kl(self.q_mu, self.q_sqrt)

    def squared_distance(self, X: InputData, *, seed: Seed = 0) -> tf.Tensor:
        """W2^2 between posterior and prior on the points X [B, D], summed over outputs [].

        :param seed: chooses the cross term's points.
        """
        X = self._check_inputs(X)
        if X.shape[0] == 0:
            raise ValueError("X: got no rows, needs at least 1")
        return self._squared_distance(X, self._at_points(X), as_seed(seed))

    def spectrum(self, X: InputData, *, seed: Seed = 0) -> tf.Tensor:
        """Eigenvalues of the paper's cross term on X [B, D], complex [P, S], the largest first.

        [NeurIPS22] figure 4; see `gpflow_dkp.wasserstein.cross_spectrum`.
        """
        X = self._check_inputs(X)
        return cross_spectrum(*self._cross_covariances(X, self._explain(X), as_seed(seed))[:2])

    def _squared_distance(self, X: tf.Tensor, at: _AtPoints, seed: tf.Tensor) -> tf.Tensor:
        if self.cross_term == "exact":
            k_bb = self.kernel(X)
            r_bb = self._update(k_bb, at.explained, at.explained).to_dense()
            jitter = self._cross_jitter(at.prior_variance, tf.shape(k_bb)[0])
            # With the jitter in both traces as in the cross term, whose 2 c is to be taken from them.
            cross = exact_cross_term(k_bb, r_bb, jitter) - jitter
        else:
            k_bs, r_bs, chosen = self._cross_covariances(X, at.explained, seed)
            if self.cross_term == "eigenvalues":
                cross = eigenvalue_cross_term(k_bs, r_bs)
            else:
                k_ss = tf.gather(k_bs, chosen)
                r_ss = r_bs._replace(prior=k_ss, left=r_bs.right).to_dense()
                jitter = self._cross_jitter(at.prior_variance, tf.shape(k_ss)[0])
                cross = nystrom_cross_term(k_bs, k_ss, r_bs, r_ss, jitter)
        terms = tf.square(at.prior_mean - at.mean) + at.prior_variance + at.variance
        return tf.reduce_sum(tf.reduce_mean(terms, 0) - 2.0 * cross)

    def _cross_jitter(self, prior_variance: tf.Tensor, num_points: tf.Tensor) -> tf.Tensor:
        """At GPflow's default jitter no less than the rounding of a covariance [S, S]."""
        dtype = prior_variance.dtype
        rounding = tf.cast(num_points, dtype) * np.finfo(dtype.as_numpy_dtype).eps
        # In proportion to the model's jitter, which `fit` raises where a factorisation fails.
        relative = self.jitter * tf.maximum(tf.cast(CROSS_JITTER, dtype), 1e6 * rounding)
        return relative * tf.stop_gradient(tf.reduce_mean(prior_variance))

    def _cross_covariances(
        self, X: tf.Tensor, explained: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, LowRankUpdate, tf.Tensor]:
        """k_BS [B, S], r_BS and which points of the batch S are [S]."""
        chosen = self._choose_points(X, seed)
        k_bs = self.kernel(X, tf.gather(X, chosen))
        return k_bs, self._update(k_bs, explained, tf.gather(explained, chosen, axis=1)), chosen

    def _choose_points(self, X: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """S rows of the batch, without repetition."""
        batch, wanted = X.shape[0], self.num_cross_points
        if wanted is not None and batch is not None and wanted > batch:
            raise ValueError(
                f"num_cross_points: got {wanted} for a batch of {batch} rows, needs at most the batch's"
            )
        size = tf.shape(X)[0]
        count = tf.minimum(CROSS_POINTS, size) if wanted is None else wanted
        needs = (
            f"num_cross_points: got {wanted} for a batch of fewer rows, needs at most the batch's"
        )
        with tf.control_dependencies([tf.debugging.Assert(count <= size, [needs])]):
            return tf.math.top_k(tf.random.stateless_uniform([size], seed), count).indices

    # The two measures

    def _tril(self) -> tf.Tensor:
        """L [M, M]."""
        covariance = covariances.Kuu(self.inducing_variable, self.kernel)
        return cholesky(
            covariance + self.jitter * tf.eye(self.num_inducing, dtype=covariance.dtype)
        )

    def _explain(self, X: tf.Tensor) -> tf.Tensor:
        """A [M, N]."""
        # A product with the inverse, whose cost does not grow with N, is faster than a solve of N columns.
        inverse = inverse_triangular(self._tril())
        return inverse @ covariances.Kuf(self.inducing_variable, self.kernel, X)

    def _at_points(self, X: tf.Tensor) -> _AtPoints:
        explained, prior_mean = self._explain(X), self._prior_mean(X)
        prior_variance = self.kernel(X, full_cov=False)[:, None]
        if self.mean is not None:
            mean = tf.cast(self.mean(X), X.dtype)
            if not mean.shape.is_compatible_with([X.shape[0], self.num_latent_gps]):
                raise ValueError(
                    f"mean: {type(self.mean).__name__} gives shape {tuple(mean.shape)} for "
                    f"{X.shape[0]} points, needs [N, {self.num_latent_gps}]"
                )
        else:
            mean = prior_mean + tf.matmul(explained, self.q_mu, transpose_a=True)
        spread = tf.matmul(self.q_sqrt, explained, transpose_a=True)
        variance = prior_variance - tf.reduce_sum(tf.square(explained), 0)[:, None]
        variance += tf.transpose(tf.reduce_sum(tf.square(spread), 1))
        variance = tf.maximum(variance, MIN_VARIANCE[variance.dtype])
        return _AtPoints(explained, prior_mean, prior_variance, mean, variance)

    def _prior_mean(self, X: tf.Tensor) -> tf.Tensor:
        """m_P [N, P]."""
        if self.prior_mean is None:
            return tf.zeros([tf.shape(X)[0], self.num_latent_gps], X.dtype)
        return self.prior_mean(X)

    def _update(self, prior: tf.Tensor, left: tf.Tensor, right: tf.Tensor) -> LowRankUpdate:
        """r between points from k [N, N'] and A [M, N], [M, N'], untempered."""
        eye = tf.eye(self.num_inducing, dtype=prior.dtype)
        return LowRankUpdate(
            prior, left, right, outer_product(tf.convert_to_tensor(self.q_sqrt)) - eye
        )

    # Prediction

    def temper(self, data: RegressionData, *, batch_size: int | None = PREDICTION_BATCH) -> float:
        """Set `temperature` to what gives held-out data the highest density, and return its mean log.

        A Gaussian likelihood's predictive variance becomes alpha (r + s2), with alpha for each output the
        mean of (m_Q - y)^2 / (r + s2) ([NeurIPS22] equation 80); other likelihoods see alpha_j r_j, with
        the alphas, from 1/100 to 100, found numerically; probabilities of `MultiClass` then add up to 1.
        The held-out data are to have no part in training or testing.

        :param data: X [N, D] and Y [N, P].
        :raises ValueError: no rows, or values that are not finite.
        """
        X, Y = self._check_held_out(data)
        if isinstance(self.likelihood, Gaussian):
            temperature, log_density = self._best_temperature(X, Y, batch_size)
            self.temperature.assign(temperature)
            return log_density
        self.temperature.assign(np.ones(self.num_latent_gps))
        self._search_temperature(X, Y, batch_size)
        return float(tf.reduce_mean(self.predict_log_density((X, Y), batch_size=batch_size)))

    def held_out_log_density(self, data: RegressionData) -> float:
        """Mean log density of held-out data, tempered on them where the likelihood is Gaussian."""
        if not isinstance(self.likelihood, Gaussian):
            return super().held_out_log_density(data)
        _, log_density = self._best_temperature(*self._check_held_out(data), PREDICTION_BATCH)
        return log_density

    def _check_held_out(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        X, Y = self._check_data(data)
        if X.shape[0] == 0:
            raise ValueError("held-out data: got no rows, needs at least 1 to choose a temperature")
        check_arrays(X, Y, min_rows=1)
        return X, Y

    def _best_temperature(
        self, X: tf.Tensor, Y: tf.Tensor, batch_size: int | None
    ) -> tuple[np.ndarray, float]:
        """alpha [P] of a Gaussian likelihood, and the mean log density it gives."""
        mean, variance = self.predict_y(X, batch_size=batch_size)
        before = self.temperature.numpy()
        found = before * np.mean(np.square(Y - mean) / variance, 0)
        temperature = np.maximum(found, MIN_TEMPERATURE)
        tempered = temperature / before * variance
        density = gpflow.logdensities.gaussian(Y, mean, tempered)
        return temperature, float(np.mean(np.sum(density, -1)))

    def _search_temperature(self, X: tf.Tensor, Y: tf.Tensor, batch_size: int | None) -> None:
        """Minimise the negative log density of held-out data over log alpha, from alpha = 1."""
        mean, variance = self._predict_moments(X, 1, 0, batch_size)
        num_data = len(X)
        size = batch_size or num_data
        batches = [
            (X[i : i + size], Y[i : i + size], mean[:, i : i + size], variance[:, i : i + size])
            for i in range(0, num_data, size)
        ]

        @tf.function(autograph=False)
        def objective(log_alpha: tf.Tensor, batch: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
            X, Y, mean, variance = batch
            with tf.GradientTape() as tape:
                tape.watch(log_alpha)
                tempered = mean, tf.exp(log_alpha) * variance
                density = self._of_tempered("predict_log_density", X, tempered, as_seed(0), Y)
                value = -tf.reduce_sum(density) / num_data
            return value, tape.gradient(value, log_alpha)

        def of_array(log_alpha: np.ndarray) -> tuple[float, np.ndarray]:
            at = tf.constant(log_alpha, mean.dtype)
            values, gradients = zip(*(objective(at, batch) for batch in batches), strict=True)
            return float(sum(values)), np.sum(gradients, 0).astype(float)

        bounds = [(-LOG_TEMPERATURE, LOG_TEMPERATURE)] * self.num_latent_gps
        start = np.zeros(self.num_latent_gps)
        found = scipy.optimize.minimize(of_array, start, jac=True, method="L-BFGS-B", bounds=bounds)
        self.temperature.assign(np.exp(found.x))

    def _output_moments(
        self, X: tf.Tensor, num_samples: int, seed: tf.Tensor, first: int = 0
    ) -> MeanAndVariance:
        at = self._at_points(X)
        return at.mean[None], (self.temperature * at.variance)[None]

    def _of_likelihood(
        self,
        method: str,
        X: tf.Tensor,
        moments: MeanAndVariance,
        seed: tf.Tensor,
        Y: tf.Tensor | None = None,
    ) -> Any:
        arguments = (method, X, moments, seed, Y)
        if method == "variational_expectations":
            return super()._of_likelihood(*arguments)
        if not isinstance(self.likelihood, MultiClass):
            return self._of_tempered(*arguments)
        of_likelihood = super()._of_likelihood
        return tf.cond(
            tf.reduce_all(tf.equal(self.temperature, 1.0)),
            lambda: of_likelihood(*arguments),
            lambda: self._of_tempered(*arguments),
        )

    def _of_tempered(
        self,
        method: str,
        X: tf.Tensor,
        moments: MeanAndVariance,
        seed: tf.Tensor,
        Y: tf.Tensor | None = None,
    ) -> Any:
        """`_of_likelihood` for predictions from moments [1, N, P] with tempered variances."""
        mean, variance = moments
        if isinstance(self.likelihood, MultiClass):
            probabilities = self._class_probabilities(mean[0], variance[0])[None]
            if method == "predict_mean_and_var":
                return probabilities, probabilities - tf.square(probabilities)
            labels = tf.cast(Y, tf.int32)[None]
            return tf.math.log(tf.gather(probabilities, labels, batch_dims=2)[..., 0])
        if not isinstance(self.likelihood, Gaussian):
            return super()._of_likelihood(method, X, moments, seed, Y)
        # The temperature is of the noise too, which the likelihood would add untempered.
        variance += self.temperature * self.likelihood.variance_at(X)
        if method == "predict_mean_and_var":
            return mean, variance
        return tf.reduce_sum(gpflow.logdensities.gaussian(Y, mean, variance), -1)

    def _class_probabilities(self, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
        """p(j) [N, J] of `MultiClass`, which add up to 1, from moments [N, J] of any variances."""
        size = PREDICTION_BATCH
        if tf.executing_eagerly() and len(mean) > size:
            # The quadrature holds many arrays [J, 100] a row.
            parts = [
                self._class_probabilities(mean[i : i + size], variance[i : i + size])
                for i in range(0, len(mean), size)
            ]
            return tf.concat(parts, 0)
        link, nodes = self.likelihood.invlink, hermgauss(TEMPERED_QUADRATURE)
        largest = [
            link.prob_is_largest(tf.fill([tf.shape(mean)[0], 1], j), mean, variance, *nodes)
            for j in range(self.likelihood.num_classes)
        ]
        share = tf.concat(largest, 1)
        share /= tf.reduce_sum(share, 1, keepdims=True)
        return (1.0 - link.epsilon) * share + link.eps_k1 * (1.0 - share)

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
        """Mean [N, P] and variance [N, P], or covariance [P, N, N], of f.

        :param Xnew: [N, D].
        :param full_cov: the covariance of all points, of each output.
        :param full_output_cov: not available, the outputs being independent.
        :param num_samples: ignored, as is `seed`: nothing is sampled.
        :param batch_size: data points at a time where `full_cov` is False.
        """
        if full_output_cov:
            raise NotImplementedError(
                "predict_f: the outputs are independent, full_output_cov is False"
            )
        if not full_cov:
            return super().predict_f(Xnew, batch_size=batch_size)
        X = self._check_inputs(Xnew)
        at = self._at_points(X)
        covariance = self._update(self.kernel(X), at.explained, at.explained).to_dense()
        return at.mean, self.temperature[:, None, None] * covariance

    def predict_f_samples(
        self,
        Xnew: InputData,
        num_samples: int = PREDICTION_SAMPLES,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        seed: Seed = None,
        batch_size: int | None = PREDICTION_BATCH,
    ) -> tf.Tensor:
        """Draws of f [S, N, P], joint over the points with `full_cov`, at O(N^3)."""
        if not full_cov or full_output_cov:
            return super().predict_f_samples(
                Xnew, num_samples, False, full_output_cov, seed=seed, batch_size=batch_size
            )
        check_positive_integer("num_samples", num_samples)
        mean, covariance = self.predict_f(Xnew, full_cov=True)
        return mean + self._joint_noise(covariance, num_samples, seed)

    def sample_prior(
        self, Xnew: InputData, num_samples: int = 1, *, seed: Seed = None
    ) -> tf.Tensor:
        """Joint draws of f from the prior [S, N, P]; costs O(N^3).

        :param Xnew: [N, D].
        """
        check_positive_integer("num_samples", num_samples)
        X = self._check_inputs(Xnew)
        covariance = tf.tile(self.kernel(X)[None], [self.num_latent_gps, 1, 1])
        return self._prior_mean(X) + self._joint_noise(covariance, num_samples, seed)

    def _joint_noise(self, covariance: tf.Tensor, num_samples: int, seed: Seed) -> tf.Tensor:
        """Draws [S, N, P] from N(0, covariance [P, N, N])."""
        num_outputs, num_points, _ = tf.unstack(tf.shape(covariance))
        tril = cholesky(covariance + self.jitter * tf.eye(num_points, dtype=covariance.dtype))
        noise = normal([num_outputs, num_points, num_samples], as_seed(seed), covariance.dtype)
        return tf.transpose(tril @ noise, [2, 1, 0])

    # For training

    def training_settings(self) -> dict[str, Any]:
        """The mean, the distance and how it is estimated."""
        return {
            "mean": "svgp" if self.mean is None else type(self.mean).__name__,
            "distance": self.distance,
            "cross_term": self.cross_term,
            "num_cross_points": self.num_cross_points,
        }

    def locate_failure(self, X: tf.Tensor, seed: tf.Tensor) -> str:
        """One clause saying which of mean, variance and distance is not finite at X [N, D]."""
        at = self._at_points(X)
        values = {
            "the mean": lambda: at.mean,
            "the variance r": lambda: at.variance,
            "the Wasserstein distance": lambda: self.squared_distance(X, seed=seed),
        }
        for what, value in values.items():
            if not all_finite(value()):
                return f"{what} gives values that are not finite"
        return EVERY_LAYER_FINITE
