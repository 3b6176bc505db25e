"""Gaussian-process layers with inducing points; the one whose inducing values have a Gaussian posterior."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes, inherit_check_shapes
from gpflow import Parameter, covariances
from gpflow.base import MeanAndVariance
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.kullback_leiblers import gauss_kl
from gpflow.utilities import triangular

from ...checks import (
    brief,
    check_inducing_variable,
    check_positive,
    check_positive_integer,
    num_points_and_features,
)
from ...jitter import IGNORING_JITTER, jitter_variable
from ...linalg import cholesky, outer_product, quadratic_forms, transpose
from ...parallel import part_sizes
from ...random import Seed, as_seed, normal
from ..base import MIN_VARIANCE, check_noise
from .base import FeatureLayer, Observed


class WhitenedPosterior(NamedTuple):
    """q(L^{-1} u) of the L GPs' inducing values u, with the factor L of the inducing covariance.

    :param tril: L [M, M].
    :param mean: [M, L].
    :param excess: covariance minus the prior's, the identity: [L, M, M].
    :param log_ratio: -KL(q || p), summed over the GPs [].
    """

    tril: tf.Tensor
    mean: tf.Tensor
    excess: tf.Tensor
    log_ratio: tf.Tensor

    @check_shapes("basis: [R, M]", "return: [R, L]")
    def mean_at(self, basis: tf.Tensor) -> tf.Tensor:
        """Mean [R, L] of the L GPs at points of this basis [R, M]."""
        return basis @ self.mean

    @check_shapes("basis: [N, K, M]", "return: [N, L, K, K]")
    def excess_at(self, basis: tf.Tensor) -> tf.Tensor:
        """Covariance of the L GPs at N sets of K points, minus the prior's."""
        return quadratic_forms(basis, self.excess)


class LatentMarginals(NamedTuple):
    """What inducing points say of the L GPs at each of R points.

    :param basis: k(x, Z) L^{-T} [R, M], in which mean and variance are linear and quadratic.
    :param prior_variance: k(x, x) [R, 1].
    :param mean: [R, L], without the mean function.
    :param variance: positive [R, L].
    """

    basis: tf.Tensor
    prior_variance: tf.Tensor
    mean: tf.Tensor
    variance: tf.Tensor


class InducingGP(FeatureLayer):
    """L independent GPs of one kernel given their inducing values; a subclass says how these are drawn.

    Their outputs, or a fixed linear projection of them to P columns, are added to the mean function:
    f(x) = m(x) + W g(x) ([ICML19] section 2, docs/mathematics.md 8).

    The Cholesky factor of the inducing covariance and the solves have no sample dimension: points and
    their samples stand side by side. A draw of the inducing values has the factor `tril`, `log_ratio`, and
    what it says of points by `mean_at` and `excess_at`, as `WhitenedPosterior`.

    :param kernel: any GPflow kernel on the layer's inputs, shared by the L GPs.
    :param inducing_variable: Z [M, D], an array or GPflow inducing points.
    :param num_latent_gps: L.
    :param mean_function: m, a GPflow mean function of P columns; default zero.
    :param projection: W [P, L], fixed; default the identity.

    `jitter` is added to the inducing covariance and to that of points drawn jointly.
    """

    _TF_MODULE_IGNORED_PROPERTIES = IGNORING_JITTER

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: InducingVariables | tf.Tensor,
        num_latent_gps: int,
        *,
        mean_function: MeanFunction | None = None,
        projection: np.ndarray | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        check_positive_integer("num_latent_gps", num_latent_gps)
        if not isinstance(kernel, Kernel):
            raise ValueError(f"kernel: got {type(kernel).__name__}, needs a GPflow kernel")
        if projection is not None:
            try:
                projection = np.asarray(projection, dtype=gpflow.default_float())
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"projection: got {brief(projection)}, needs numbers [P, {num_latent_gps}]"
                ) from error
            if projection.ndim != 2 or projection.shape[1] != num_latent_gps:
                raise ValueError(
                    f"projection: got shape {projection.shape}, needs [P, {num_latent_gps}], one column "
                    "a latent GP"
                )
        self.kernel = kernel
        self.inducing_variable = check_inducing_variable(inducing_variable)
        self.num_latent_gps = num_latent_gps
        self.mean_function = mean_function
        self.projection = projection
        self.jitter = jitter_variable()

    @property
    def num_inducing(self) -> int:
        """M."""
        return num_points_and_features(self.inducing_variable)[0]

    @property
    def input_dim(self) -> int:
        """Columns of the inducing points."""
        return num_points_and_features(self.inducing_variable)[1]

    def output_dim_of(self, input_dim: int) -> int:
        """P."""
        return self.num_latent_gps if self.projection is None else self.projection.shape[0]

    @abc.abstractmethod
    def sample(self, *, seed: Seed = None, num_samples: int | None = None) -> Any:
        """What stands for the inducing values: a named tuple of `tril`, `log_ratio` and more."""

    @inherit_check_shapes
    def marginals(
        self,
        features: tf.Tensor,
        draw: Any = None,
        *,
        full_cov: bool = False,
    ) -> MeanAndVariance:
        """Mean and variance of f [..., N, P] at features [..., N, D], or covariance [..., P, N, N].

        :param draw: of `sample`, where it is there already.
        :param full_cov: the covariance of the N points, for features [S, N, D].
        """
        draw = self.sample() if draw is None else draw
        flat = _flatten(features)
        if full_cov:
            mean, variance = self._joint_latent(features, draw)
            mean = _flatten(mean)
            if self.projection is not None:
                squared = tf.square(self.projection)
                variance = tf.einsum("pl,slnm->spnm", squared, variance)
            return _unflatten(self._outputs(mean, flat), features), variance
        latent = self.latent_marginals(flat, draw)
        mean, variance = self._outputs(latent.mean, flat), latent.variance
        if self.projection is not None:
            variance = tf.matmul(variance, tf.square(self.projection), transpose_b=True)
        return _unflatten(mean, features), _unflatten(variance, features)

    @inherit_check_shapes
    def condition(
        self,
        draw: Any,
        features: tf.Tensor,
        *,
        seed: Seed = None,
        full_cov: bool = False,
        common_noise: bool = False,
        own_gradient: bool = False,
    ) -> tf.Tensor:
        """Draw f at features [S, N, D] from the posterior: [S, N, P].

        :param full_cov: one function for the N points of a sample, rather than one for each point.
        :param own_gradient: of a joint draw, the gradient of f at a point reaches the features of that
            point only, though the other points' features shape its value too.
        """
        num_samples = tf.shape(features)[0]
        how = {"full_cov": full_cov, "common_noise": common_noise}
        value = self._draw(draw, features, num_samples, seed, **how, own_gradient=own_gradient)
        return _unflatten(self._outputs(_flatten(value), _flatten(features)), features)

    def _draw(
        self,
        draw: Any,
        features: tf.Tensor,
        num_samples: tf.Tensor | int,
        seed: Seed,
        *,
        full_cov: bool,
        common_noise: bool,
        own_gradient: bool = False,
    ) -> tf.Tensor:
        """Draws of the L GPs [S, N, L] at features [S, N, D], or [1, N, D] for all of the S samples."""
        check_noise(full_cov, common_noise)
        num_points = tf.shape(features)[1]
        shape = [num_samples, self.num_latent_gps, 1 if common_noise else num_points]
        noise = normal(shape, as_seed(seed), gpflow.default_float())
        if full_cov and features.shape[1] != 1:
            mean, covariance = self._joint_latent(features, draw)
            tril = cholesky(self._with_jitter(covariance))
            if own_gradient:
                tril = self._own_tril(features, draw, covariance, tril)
            return mean + transpose(tf.linalg.matvec(tril, noise))
        latent = self.latent_marginals(_flatten(features), draw)
        scatter = tf.sqrt(_unflatten(latent.variance, features)) * transpose(noise)
        return _unflatten(latent.mean, features) + scatter

    @check_shapes(
        "points: [R, D]",
        "draw.tril: [M, M]",
        "return.basis: [R, M]",
        "return.prior_variance: [R, 1]",
        "return.mean: [R, L]",
        "return.variance: [R, L]",
    )
    def latent_marginals(self, points: tf.Tensor, draw: Any) -> LatentMarginals:
        """Mean and variance of the L GPs at points [R, D], with what they are made of."""
        basis = self._whitened_cross(points, draw)
        prior_variance = self.kernel(points, full_cov=False)[:, None]
        variance = prior_variance + draw.excess_at(basis[:, None])[..., 0, 0]
        variance = tf.maximum(variance, MIN_VARIANCE[variance.dtype])
        return LatentMarginals(basis, prior_variance, draw.mean_at(basis), variance)

    @inherit_check_shapes
    def prior_sample(self, features: tf.Tensor, *, seed: Seed = None) -> tf.Tensor:
        """Joint draws of f from the prior at features [S, N, D]: [S, N, P]; costs O(S N^3)."""
        tril = cholesky(self._with_jitter(self.kernel(features)))
        shape = tf.concat([tf.shape(features)[:-1], [self.num_latent_gps]], 0)
        draw = tril @ normal(tf.unstack(shape), as_seed(seed), tril.dtype)
        return _unflatten(self._outputs(_flatten(draw), _flatten(features)), features)

    def _inducing_covariance(self) -> tf.Tensor:
        return self._with_jitter(covariances.Kuu(self.inducing_variable, self.kernel))

    def _with_jitter(self, covariance: tf.Tensor) -> tf.Tensor:
        return covariance + self.jitter * tf.eye(tf.shape(covariance)[-1], dtype=covariance.dtype)

    def _whitened_cross(self, flat: tf.Tensor, draw: Any) -> tf.Tensor:
        """A^T = k(x, Z) L^{-T} [R, M] at points [R, D]: f's mean is its product with the whitened mean."""
        cross = covariances.Kuf(self.inducing_variable, self.kernel, flat)
        return transpose(tf.linalg.triangular_solve(draw.tril, cross))

    def _joint_latent(self, features: tf.Tensor, draw: Any) -> MeanAndVariance:
        """Means [S, N, L] of the L GPs at N points of S samples, and covariances [S, L, N, N]."""
        flat = self._whitened_cross(_flatten(features), draw)
        covariance = self.kernel(features)[:, None]
        covariance += draw.excess_at(_unflatten(flat, features))
        return _unflatten(draw.mean_at(flat), features), covariance

    def _own_tril(
        self,
        features: tf.Tensor,
        draw: Any,
        covariance: tf.Tensor,
        tril: tf.Tensor,
    ) -> tf.Tensor:
        """The factor of a covariance whose row k has the gradient of the k-th point's features alone."""
        # GPflow's kernels take batches of one set of points, not of two.
        num_points = features.shape[1]
        others = tf.stop_gradient(features)
        cross = self.kernel(tf.concat([features, others], 1))[:, None, :num_points, num_points:]
        whitened = _unflatten(self._whitened_cross(_flatten(features), draw), features)
        products = tf.einsum("nkm,lmi->nlik", tf.stop_gradient(whitened), draw.excess)
        cross += tf.matmul(whitened[:, None], products)
        return _tril_of_own_rows(tril, cross, tf.linalg.diag_part(covariance) + self.jitter)

    def _outputs(self, latent: tf.Tensor, flat: tf.Tensor) -> tf.Tensor:
        """m(x) + W g(x) [..., R, P] of g [..., R, L] at points [R, D]."""
        if self.projection is not None:
            latent = tf.matmul(latent, self.projection, transpose_b=True)
        return latent if self.mean_function is None else latent + self.mean_function(flat)


class SparseGP(InducingGP):
    """L independent GPs of one kernel, with inducing values u ~ q(u) = N(q_mu, q_sqrt q_sqrt^T).

    Their outputs, or a fixed linear projection of them to P columns, are added to the mean function:
    f(x) = m(x) + W g(x) ([ICML19] section 2, docs/mathematics.md 8). One L is GPflow's SVGP.

    :param kernel: any GPflow kernel on the layer's inputs, shared by the L GPs.
    :param inducing_variable: Z [M, D], an array or GPflow inducing points.
    :param num_latent_gps: L.
    :param mean_function: m, a GPflow mean function of P columns; default zero.
    :param projection: W [P, L], fixed; default the identity.
    :param whiten: q is of L^{-1} u with L the factor of the inducing covariance, rather than of u.
    :param q_sqrt_scale: starting value of `q_sqrt`, as a multiple of the identity.

    Variational parameters: `q_mu` [M, L] and lower-triangular `q_sqrt` [L, M, M], as in GPflow. `jitter`
    is added to the inducing covariance and to that of points drawn jointly.

    >>> layer = gpflow_dkp.layers.SparseGP(gpflow.kernels.SquaredExponential(), X[:3], 2)
    >>> mean, variance = layer.marginals(X)
    >>> mean.shape, np.allclose(variance, 1.0)  # q starts at the prior
    (TensorShape([10, 2]), True)
    >>> layer.start_at_regression(X, np.hstack([Y, -Y]), noise_variance=0.1)
    >>> mean, variance = layer.marginals(X)
    >>> np.allclose(mean[:, 0], -mean[:, 1]), bool(np.all(variance < 1.0))
    (True, True)
    """

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: InducingVariables | tf.Tensor,
        num_latent_gps: int,
        *,
        mean_function: MeanFunction | None = None,
        projection: np.ndarray | None = None,
        whiten: bool = True,
        q_sqrt_scale: float = 1.0,
        name: str | None = None,
    ) -> None:
        super().__init__(
            kernel,
            inducing_variable,
            num_latent_gps,
            mean_function=mean_function,
            projection=projection,
            name=name,
        )
        check_positive("q_sqrt_scale", q_sqrt_scale)
        self.whiten = whiten
        eye = np.tile(np.eye(self.num_inducing), [num_latent_gps, 1, 1])
        self.q_mu = Parameter(np.zeros([self.num_inducing, num_latent_gps]))
        self.q_sqrt = Parameter(q_sqrt_scale * eye, transform=triangular())

    @inherit_check_shapes
    def condition_copies(
        self,
        draw: WhitenedPosterior,
        X: tf.Tensor,
        num_samples: int,
        *,
        seed: Seed = None,
        full_cov: bool = False,
        common_noise: bool = False,
    ) -> tf.Tensor:
        """S draws of f at X [N, D], whose moments are computed once: [S, N, P]."""
        how = {"full_cov": full_cov, "common_noise": common_noise}
        return self._outputs(self._draw(draw, X[None], num_samples, seed, **how), X)

    @check_shapes(
        "return.tril: [M, M]",
        "return.mean: [M, L]",
        "return.excess: [L, M, M]",
        "return.log_ratio: []",
    )
    def sample(self, *, seed: Seed = None, num_samples: int | None = None) -> WhitenedPosterior:
        """q of L^{-1} u, whatever `whiten` says; u is integrated out, nothing is drawn."""
        tril = cholesky(self._inducing_covariance())
        mean, root = tf.convert_to_tensor(self.q_mu), tf.convert_to_tensor(self.q_sqrt)
        if not self.whiten:
            mean = tf.linalg.triangular_solve(tril, mean)
            root = tf.linalg.triangular_solve(tf.broadcast_to(tril, tf.shape(root)), root)
        eye = tf.eye(self.num_inducing, dtype=root.dtype)
        parts = tf.split(root, part_sizes(self.num_latent_gps))
        covariance = tf.concat([outer_product(part) for part in parts], 0)
        return WhitenedPosterior(tril, mean, covariance - eye, -gauss_kl(mean, root))

    @check_shapes("X: [N_B, D]", "targets: [N_B, L]")
    def start_at_regression(
        self,
        X: tf.Tensor,
        targets: tf.Tensor,
        noise_variance: float,
        *,
        num_data: int | None = None,
    ) -> None:
        """Set q to the optimum of a sparse GP regression on targets [N_B, L] of the L GPs.

        Sigma = (k_ZZ + s2^{-1} (N / N_B) k_ZX k_XZ)^{-1}, [NeurIPS22] equation 77.

        :param X: [N_B, D].
        :param noise_variance: s2.
        :param num_data: N where the data are a batch, default N_B.
        """
        check_positive("noise_variance", noise_variance)
        num_rows = len(X)
        if num_data is not None:
            check_positive_integer("num_data", num_data)
        draw = self.sample()
        basis = self._whitened_cross(X, draw)
        weight = (num_data or num_rows) / num_rows / noise_variance
        eye = tf.eye(self.num_inducing, dtype=basis.dtype)
        precision = eye + weight * tf.matmul(basis, basis, transpose_a=True)
        covariance = tf.linalg.cholesky_solve(tf.linalg.cholesky(precision), eye)
        mean = weight * covariance @ tf.matmul(basis, targets, transpose_a=True)
        root = tf.linalg.cholesky(covariance)
        if not self.whiten:
            mean, root = draw.tril @ mean, draw.tril @ root
        self.q_mu.assign(mean)
        self.q_sqrt.assign(tf.tile(root[None], [self.num_latent_gps, 1, 1]))

    def posterior_distribution(
        self, observed: Observed | None = None
    ) -> tfp.distributions.Distribution:
        """q(u) of the L GPs' inducing values, as rows [L, M]."""
        mean, root = tf.convert_to_tensor(self.q_mu), tf.convert_to_tensor(self.q_sqrt)
        if self.whiten:
            tril = cholesky(self._inducing_covariance())
            mean, root = tril @ mean, tril @ root
        of_each = tfp.distributions.MultivariateNormalTriL(transpose(mean), root)
        return tfp.distributions.Independent(of_each, reinterpreted_batch_ndims=1)

    @check_shapes("return: []")
    def prior_kl(self) -> tf.Tensor:
        """KL(q(u) || p(u)) summed over the L GPs []."""
        return -self.sample().log_ratio


def _tril_of_own_rows(tril: tf.Tensor, cross: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """A Cholesky factor whose row k has the gradient of the k-th point's covariances alone.

    Row k is the conditional of point k on those before it: their rows are held constant.

    :param tril: the factor [..., K, K].
    :param cross: the covariance [..., K, K], differentiable in the points of its rows.
    :param variance: its diagonal [..., K], differentiable in full.
    """
    solved = tf.linalg.triangular_solve(tf.stop_gradient(tril), transpose(cross))
    below = tf.linalg.band_part(transpose(solved), -1, 0)
    below = tf.linalg.set_diag(below, tf.zeros_like(variance))
    residual = variance - tf.reduce_sum(tf.square(below), -1)
    return tf.linalg.set_diag(below, tf.sqrt(tf.maximum(residual, MIN_VARIANCE[residual.dtype])))


def _flatten(features: tf.Tensor) -> tf.Tensor:
    """[..., D] to [R, D]."""
    return tf.reshape(features, [-1, features.shape[-1]])


def _unflatten(flat: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """[R, P] to [..., P], as `like` [..., D]."""
    return tf.reshape(flat, tf.concat([tf.shape(like)[:-1], tf.shape(flat)[-1:]], 0))
