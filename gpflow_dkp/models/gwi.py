"""Gaussian Wasserstein inference: Gaussian measures of any mean, close to the prior."""

from __future__ import annotations

from typing import Any, Literal

import gpflow
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow import Parameter
from gpflow.base import InputData, MeanAndVariance, RegressionData
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel, SeparateIndependent
from gpflow.likelihoods import Likelihood

from ..checks import (
    check_choice,
    check_inducing_variable,
    check_positive_integer,
    check_single_output_kernel,
)
from ..layers import IndependentGPs, SparseGP
from ..layers.features.independent_gps import IndependentDraws
from ..layers.features.sparse_gp import WhitenedPosterior
from ..linalg import cholesky
from ..means import Mean, as_mean, as_prior_mean
from ..random import Seed, as_seed, normal
from ..wasserstein import (
    DISTANCES,
    CrossTerm,
    Measures,
    MeasuresOfOutputs,
    OwnKernel,
    UpdatedPrior,
    as_cross_term,
    choose_points,
    cross_spectrum,
)
from .base import EVERY_LAYER_FINITE, all_finite
from .checks import kernels_of_outputs
from .gwi_from_data import GWIFromData
from .sampled_likelihood import of_likelihood
from .tempering import TemperedModel


class GWI(GWIFromData, TemperedModel):
    """Generalised variational inference with Gaussian measures ([NeurIPS22], docs/mathematics.md 9).

    The prior is a Gaussian process N(m_P, k); the posterior one N(m_Q, r) for each output, with

        r(x, x') = k - k_Z k_ZZ^{-1} k_Z + k_Z Sigma k_Z,   k_ZZ = L L^T,   L^T Sigma L = q_sqrt q_sqrt^T,

    or any kernel of its own, and any function m_Q. The objective is E_Q[log p(y | f)] - D with D the
    Wasserstein distance between the two on the inputs; it is no bound on the evidence, and is named `elbo` as
    the other models' is. With the mean "svgp" D can be the Kullback-Leibler divergence: then it is the bound
    of GPflow's SVGP.

    D's cross term is estimated on some points of the batch: "nystrom" is at most the exact value of the
    batch, so D is an upper bound; "eigenvalues" is the paper's, noisier; "exact" takes the whole batch.

    :param kernel: k, any GPflow kernel on the inputs with one output, which all outputs share, or
        `SeparateIndependent` of one for each output ([NeurIPS22] A.6).
    :param likelihood: a GPflow likelihood with variational expectations.
    :param inducing_variable: Z [M, D].
    :param mean: m_Q: "svgp" for m_P(x) + k(x, Z) L^{-T} `q_mu`, or a callable from [N, D] to [N, P]: a
        tf.Module, a Keras model, a `gpflow_dkp.means.KernelExpansion`.
    :param prior_mean: m_P, a GPflow mean function, default zero.
    :param covariance: r: "svgp" as above, or a GPflow kernel with one output ([NeurIPS22] section 4.1), or
        `SeparateIndependent` of one for each output.
    :param num_latent_gps: P, default the likelihood's number of latent functions, or 1.
    :param num_data: size of the training set when `elbo` is given minibatches.
    :param distance: "squared" for D = W2^2 (equations 61 and 71), "root" for W2 (equation 12),
        "published" for W2 times the batch size, as the published code weighs it; "kl" for the
        Kullback-Leibler divergence, of the mean and covariance "svgp" alone.
    :param cross_term: "nystrom", "eigenvalues" or "exact", or an object of `gpflow_dkp.wasserstein` such as
        `Nystrom(50)`.
    :param num_cross_points: S of the first two, default the batch's points and at most 100.
    :param jitter: added to covariances, and a ten-thousandth of it, relative to the prior variance, to those
        of the cross term (more in single precision); default GPflow's.

    Attributes: `output_layer` is the sparse GP of variance r, with the variational parameters `q_sqrt`
    [P, M, M], lower triangular, and `q_mu` [M, P] for the mean "svgp", both of L^{-1} f(Z), as in GPflow's
    whitened SVGP; of several kernels it is `IndependentGPs` of such layers. `mean` is m_Q and `covariance` r,
    None for "svgp". `temperature` [P] multiplies predictive variances; `temper` chooses it, training ignores
    it.

    >>> kernel, likelihood = gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian(0.1)
    >>> model = gpflow_dkp.models.GWI(kernel, likelihood, X[:3])
    >>> bool(model.squared_distance(X) < 1e-3)  # it starts at the prior
    True
    >>> model.start_at_sparse_posterior((X, Y), noise_variance=0.1)
    >>> bool(model.squared_distance(X) > 0.1), model.objective_is_bound
    (True, False)
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: InducingVariables | tf.Tensor,
        *,
        mean: Literal["svgp"] | Mean = "svgp",
        prior_mean: MeanFunction | None = None,
        covariance: Literal["svgp"] | Kernel = "svgp",
        num_latent_gps: int | None = None,
        num_data: int | None = None,
        distance: Literal["squared", "root", "published", "kl"] = "squared",
        cross_term: Literal["nystrom", "eigenvalues", "exact"] | CrossTerm = "nystrom",
        num_cross_points: int | None = None,
        jitter: float | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(
            likelihood,
            num_latent_gps=num_latent_gps,
            num_samples=1,
            num_data=num_data,
            jitter=jitter,
            name=name,
        )
        check_choice("distance", distance, (*DISTANCES, "kl"))
        with_svgp = isinstance(mean, str) and mean == "svgp"
        if distance == "kl" and not with_svgp:
            raise ValueError(
                f"distance: got 'kl' with the mean {type(mean).__name__}, of which it is infinite; "
                f"choose one of {', '.join(DISTANCES)}, or the mean 'svgp'"
            )
        if distance == "kl" and isinstance(covariance, Kernel):
            raise ValueError(
                f"distance: got 'kl' with the covariance {type(covariance).__name__}, of which it is "
                f"infinite; choose one of {', '.join(DISTANCES)}, or the covariance 'svgp'"
            )
        inducing_variable = check_inducing_variable(inducing_variable)
        num_outputs = self.num_latent_gps
        parts = [
            SparseGP(of_part, inducing_variable, num_gps)
            for of_part, num_gps in _parts(kernel, inducing_variable, num_outputs)
        ]
        for part in parts:
            part.jitter = self.jitter
        self.output_layer = IndependentGPs(parts) if len(parts) > 1 else parts[0]
        if prior_mean is not None:
            mean_function = as_prior_mean(prior_mean, self.num_features, num_outputs)
            self.output_layer.mean_function = mean_function
        self.distance = distance
        self.cross_term = as_cross_term(cross_term, num_cross_points)
        self.mean: Mean | None = None
        if not with_svgp:
            self.mean = as_mean(mean, self.num_features, num_outputs)
            for part in parts:
                gpflow.set_trainable(part.q_mu, False)
        self.covariance: Kernel | None = None
        if isinstance(covariance, Kernel):
            _ = kernels_of_outputs("covariance", covariance, num_outputs)
            self.covariance = covariance
            for part in parts:
                gpflow.set_trainable(part.q_sqrt, False)
        else:
            check_choice("covariance", covariance, ("svgp",))

    # The parts of the output layer, by the names of GPflow's SVGP

    @property
    def kernel(self) -> Kernel:
        """The prior's covariance k."""
        if isinstance(self.output_layer, SparseGP):
            return self.output_layer.kernel
        return SeparateIndependent([part.kernel for part in self.output_layer.parts])

    @property
    def inducing_variable(self) -> InducingVariables:
        """Z."""
        return self._parts[0].inducing_variable

    @property
    def prior_mean(self) -> MeanFunction | None:
        """m_P, None for zero."""
        return self.output_layer.mean_function

    @property
    def q_mu(self) -> Parameter:
        """Of the mean "svgp" [M, P]; another mean has none."""
        if self.mean is not None:
            raise AttributeError(f"q_mu: the mean is a {type(self.mean).__name__}, needs 'svgp'")
        return self._only_part("q_mu").q_mu

    @property
    def q_sqrt(self) -> Parameter:
        """[P, M, M]; a covariance of its own kernel has none."""
        if self.covariance is not None:
            raise AttributeError(
                f"q_sqrt: the covariance is a {type(self.covariance).__name__}, needs 'svgp'"
            )
        return self._only_part("q_sqrt").q_sqrt

    @property
    def _parts(self) -> list[SparseGP]:
        """The sparse GPs, one of all outputs or one for each."""
        layer = self.output_layer
        return [layer] if isinstance(layer, SparseGP) else layer.parts

    def _only_part(self, name: str) -> SparseGP:
        if isinstance(self.output_layer, SparseGP):
            return self.output_layer
        raise AttributeError(
            f"{name}: each output has its own, in `output_layer.parts`; needs one kernel for all"
        )

    def _columns(self) -> list[slice]:
        """Those of each part among the outputs."""
        if isinstance(self.output_layer, SparseGP):
            return [slice(0, self.num_latent_gps)]
        return [slice(p, p + 1) for p in range(self.num_latent_gps)]

    @property
    def num_features(self) -> int:
        """Columns D of the inputs."""
        return self.output_layer.input_dim

    @property
    def num_inducing(self) -> int:
        """M."""
        return self.output_layer.num_inducing

    @property
    def num_inducing_points(self) -> int:
        """M."""
        return self.num_inducing

    def start_at_sparse_posterior(
        self, data: RegressionData, noise_variance: float, *, num_data: int | None = None
    ) -> None:
        """Set `q_sqrt`, and `q_mu` of the mean "svgp", to a sparse GP regression's optimum (equation 77).

        :param data: X [N_B, D] and targets [N_B, P] of the latent functions.
        :param noise_variance: s2.
        :param num_data: N where the data are a batch, default N_B.
        """
        X, targets = (tf.cast(part, gpflow.default_float()) for part in data)
        if targets.shape != (len(X), self.num_latent_gps):
            raise ValueError(
                f"data: got targets {targets.shape} for {len(X)} rows of X, needs [{len(X)}, "
                f"{self.num_latent_gps}], one column an output"
            )
        residual = targets if self.prior_mean is None else targets - self.prior_mean(X)
        for part, columns in zip(self._parts, self._columns(), strict=True):
            part.start_at_regression(X, residual[:, columns], noise_variance, num_data=num_data)

    # The objective

    @property
    def objective_is_bound(self) -> bool:
        """Whether the objective has the Kullback-Leibler divergence, as a bound on the evidence has."""
        return self.distance == "kl"

    @inherit_check_shapes
    def elbo_terms(
        self,
        data: RegressionData,
        *,
        num_samples: int | None = None,
        seed: Seed = None,
        rows: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The two terms of `elbo`: the expected log-likelihood of the rows given, and -D."""
        X, Y = self.check_data(data)
        seed = as_seed(seed)
        measures = self.measures(X)
        moments = measures.mean[None], measures.variance[None]
        expected = of_likelihood(self.likelihood, "variational_expectations", X, moments, seed, Y)
        if self.distance == "kl":
            return tf.reduce_sum(expected), -self.prior_kl()
        squared = measures.squared_distance(self.cross_term, seed)
        return tf.reduce_sum(expected), -DISTANCES[self.distance](squared, tf.shape(X)[0])

    @check_shapes("return.points: [B, D]", "return.mean: [B, P]", "return.variance: [B, P]")
    def measures(self, X: InputData) -> Measures | MeasuresOfOutputs:
        """Prior and posterior at X [B, D], untempered; of the outputs one by one where priors differ."""
        X = self.check_inputs(X)
        prior_mean = tf.zeros([tf.shape(X)[0], self.num_latent_gps], X.dtype)
        if self.prior_mean is not None:
            prior_mean += self.prior_mean(X)
        mean = None if self.mean is None else self._mean_at(X)
        parts = []
        for part, columns in zip(self._parts, self._columns(), strict=True):
            draw = part.sample()
            latent = part.latent_marginals(X, draw)
            variance = latent.variance
            posterior: UpdatedPrior | OwnKernel = UpdatedPrior(latent.basis, draw.excess)
            if self.covariance is not None:
                posterior = OwnKernel(self._own_covariance().kernels[columns])
                variance = posterior.variance(X)
            of_part = Measures(
                points=X,
                kernel=part.kernel,
                prior_mean=prior_mean[:, columns],
                prior_variance=latent.prior_variance,
                mean=prior_mean[:, columns] + latent.mean if mean is None else mean[:, columns],
                variance=variance,
                posterior=posterior,
                jitter=self.jitter,
            )
            parts.append(of_part)
        return parts[0] if len(parts) == 1 else MeasuresOfOutputs(tuple(parts))

    def _own_covariance(self) -> OwnKernel:
        """r of a kernel of its own."""
        assert self.covariance is not None
        return OwnKernel(kernels_of_outputs("covariance", self.covariance, self.num_latent_gps))

    def _mean_at(self, X: tf.Tensor) -> tf.Tensor:
        """m_Q [N, P] of another mean than "svgp"."""
        assert self.mean is not None
        mean = tf.cast(self.mean(X), X.dtype)
        if not mean.shape.is_compatible_with([X.shape[0], self.num_latent_gps]):
            raise ValueError(
                f"mean: {type(self.mean).__name__} gives shape {tuple(mean.shape)} for {X.shape[0]} "
                f"points, needs [N, {self.num_latent_gps}]"
            )
        return mean

    @check_shapes("return: []")
    def prior_kl(self) -> tf.Tensor:
        """KL(q(u) || p(u)) [] of the mean "svgp", as GPflow's SVGP has it; for the distance "kl".

        :raises ValueError: another mean or covariance, for which the two measures need not have a density.
        """
        for name, given in (("mean", self.mean), ("covariance", self.covariance)):
            if given is not None:
                raise ValueError(
                    f"prior_kl: got the {name} {type(given).__name__}, needs 'svgp'; `squared_distance` "
                    f"is of any {name}"
                )
        return tf.add_n([part.prior_kl() for part in self._parts])

    @check_shapes("return: []")
    def squared_distance(self, X: InputData, *, seed: Seed = 0) -> tf.Tensor:
        """W2^2 between posterior and prior on the points X [B, D], summed over outputs [].

        :param seed: chooses the cross term's points.
        """
        measures = self.measures(X)
        if measures.points.shape[0] == 0:
            raise ValueError("X: got no rows, needs at least 1")
        return measures.squared_distance(self.cross_term, as_seed(seed))

    @check_shapes("return: [P, S]")
    def spectrum(self, X: InputData, num_points: int | None = None, *, seed: Seed = 0) -> tf.Tensor:
        """Eigenvalues of the paper's cross term on X [B, D], complex [P, S], the largest first.

        [NeurIPS22] figure 4; see `gpflow_dkp.wasserstein.cross_spectrum`.

        :param num_points: S, default that of the cross term, or B and at most 100.
        """
        if num_points is None:
            num_points = getattr(self.cross_term, "num_points", None)
        measures = self.measures(X)
        chosen = choose_points(measures.points, num_points, as_seed(seed))
        parts = getattr(measures, "parts", (measures,))
        return tf.concat([cross_spectrum(*part.covariances_with(chosen)) for part in parts], 0)

    # Prediction

    def sample_layers(self, num_samples: int, seed: Seed) -> WhitenedPosterior | IndependentDraws:
        """The output layer's factorisation; nothing is drawn."""
        return self.output_layer.sample()

    @inherit_check_shapes
    def condition_layers(
        self, draws: Any, X: tf.Tensor, num_samples: int, seed: Seed, *, full_cov: bool = False
    ) -> MeanAndVariance:
        """Mean [1, N, P] and variance [1, N, P], or covariance [1, P, N, N], tempered."""
        mean, variance = self.output_layer.marginals(X[None], draws, full_cov=full_cov)
        if self.mean is not None:
            mean = self._mean_at(X)[None]
        if self.covariance is not None:
            own = self._own_covariance()
            variance = own.joint(X)[None] if full_cov else own.variance(X)[None]
        temperature = tf.convert_to_tensor(self.temperature)
        return mean, (temperature[:, None, None] if full_cov else temperature) * variance

    @inherit_check_shapes
    def sample_prior(
        self, Xnew: InputData, num_samples: int = 1, *, seed: Seed = None
    ) -> tf.Tensor:
        """Joint draws of f from the prior [S, N, P]; costs O(N^3).

        :param Xnew: [N, D].
        """
        check_positive_integer("num_samples", num_samples)
        X = self.check_inputs(Xnew)
        num_data = tf.shape(X)[0]
        noise = normal([num_samples, num_data, self.num_latent_gps], as_seed(seed), X.dtype)
        jitter = self.jitter * tf.eye(num_data, dtype=X.dtype)
        draws = tf.concat(
            [
                cholesky(part.kernel(X) + jitter) @ noise[..., columns]
                for part, columns in zip(self._parts, self._columns(), strict=True)
            ],
            -1,
        )
        return draws if self.prior_mean is None else draws + self.prior_mean(X)

    # For training

    def samples_to_share(self) -> int:
        """None can be: the distance is of the whole batch."""
        raise ValueError(
            f"strategy: the distance of {type(self).__name__} is of all rows of a batch together, which "
            "devices cannot share; set it to None"
        )

    def training_settings(self) -> dict[str, Any]:
        """The mean, the covariance, the distance and how it is estimated."""
        return {
            "mean": "svgp" if self.mean is None else type(self.mean).__name__,
            "covariance": "svgp" if self.covariance is None else type(self.covariance).__name__,
            "distance": self.distance,
            "cross_term": repr(self.cross_term),
        }

    def locate_failure(self, X: tf.Tensor, seed: tf.Tensor) -> str:
        """One clause saying which of mean, variance and distance is not finite at X [N, D]."""
        measures = self.measures(X)
        values = {
            "the mean": lambda: measures.mean,
            "the variance r": lambda: measures.variance,
            "the Wasserstein distance": lambda: measures.squared_distance(self.cross_term, seed),
        }
        for what, value in values.items():
            if not all_finite(value()):
                return f"{what} gives values that are not finite"
        return EVERY_LAYER_FINITE


def _parts(
    kernel: Kernel, inducing_variable: InducingVariables, num_outputs: int
) -> list[tuple[Kernel, int]]:
    """The kernels of the prior, and how many outputs each has."""
    if not isinstance(kernel, SeparateIndependent):
        check_single_output_kernel(kernel, inducing_variable)
        return [(kernel, num_outputs)]
    kernels = kernels_of_outputs("kernel", kernel, num_outputs)
    for child in kernels:
        check_single_output_kernel(child, inducing_variable)
    return [(child, 1) for child in kernels]
