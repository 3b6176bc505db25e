"""The sparse Gaussian-process layer: inducing values with a free Gaussian posterior."""

from __future__ import annotations

from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import Parameter, covariances
from gpflow.base import MeanAndVariance
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.kullback_leiblers import gauss_kl
from gpflow.utilities import triangular

from ..chains import chain_sizes
from ..checks import check_inducing_variable, check_positive, check_positive_integer
from ..linalg import cholesky, outer_product, quadratic_forms, transpose
from ..random import Seed, as_seed, normal
from .base import MIN_VARIANCE


class WhitenedPosterior(NamedTuple):
    """q(L^{-1} u) of the L GPs' inducing values u, with the factor L of the inducing covariance.

    :param tril: L [M, M].
    :param mean: [M, L].
    :param excess: covariance minus the prior's, the identity: [L, M, M].
    """

    tril: tf.Tensor
    mean: tf.Tensor
    excess: tf.Tensor


class SparseGP(gpflow.Module):
    """L independent GPs of one kernel, with inducing values u ~ q(u) = N(q_mu, q_sqrt q_sqrt^T).

    Their outputs, or a fixed linear projection of them to P columns, are added to the mean function:
    f(x) = m(x) + W g(x) ([ICML19] section 2, MATH.md 8). One L is GPflow's SVGP.

    The Cholesky factor of the inducing covariance and the solves have no sample dimension: points and
    their samples stand side by side.

    :param kernel: any GPflow kernel on the layer's inputs, shared by the L GPs.
    :param inducing_variable: Z [M, D], an array or GPflow inducing points.
    :param num_latent_gps: L.
    :param mean_function: m, a GPflow mean function of P columns; default zero.
    :param projection: W [P, L], fixed; default the identity.
    :param whiten: q is of L^{-1} u with L the factor of the inducing covariance, rather than of u.
    :param q_sqrt_scale: starting value of `q_sqrt`, as a multiple of the identity.

    Variational parameters: `q_mu` [M, L] and lower-triangular `q_sqrt` [L, M, M], as in GPflow. `jitter`
    is added to the inducing covariance and to that of the samples of one point; a model sets it.
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
        super().__init__(name=name)
        check_positive_integer("num_latent_gps", num_latent_gps)
        check_positive("q_sqrt_scale", q_sqrt_scale)
        if not isinstance(kernel, Kernel):
            raise ValueError(f"kernel: got {type(kernel).__name__}, needs a GPflow kernel")
        if projection is not None:
            projection = np.asarray(projection, dtype=gpflow.default_float())
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
        self.whiten = whiten
        self.jitter: tf.Variable | float = gpflow.default_jitter()
        eye = np.tile(np.eye(self.num_inducing), [num_latent_gps, 1, 1])
        self.q_mu = Parameter(np.zeros([self.num_inducing, num_latent_gps]))
        self.q_sqrt = Parameter(q_sqrt_scale * eye, transform=triangular())

    @property
    def num_inducing(self) -> int:
        """M."""
        return tf.convert_to_tensor(self.inducing_variable.Z).shape[0]

    @property
    def input_dim(self) -> int:
        """Columns of the inducing points."""
        return tf.convert_to_tensor(self.inducing_variable.Z).shape[1]

    def output_dim_of(self, input_dim: int) -> int:
        """P."""
        return self.num_latent_gps if self.projection is None else self.projection.shape[0]

    def posterior(self) -> WhitenedPosterior:
        """q of L^{-1} u, whatever `whiten` says, to be shared by the calls of one pass."""
        tril = cholesky(self._inducing_covariance())
        mean, root = tf.convert_to_tensor(self.q_mu), tf.convert_to_tensor(self.q_sqrt)
        if not self.whiten:
            mean = tf.linalg.triangular_solve(tril, mean)
            root = tf.linalg.triangular_solve(tf.broadcast_to(tril, tf.shape(root)), root)
        eye = tf.eye(self.num_inducing, dtype=root.dtype)
        parts = tf.split(root, chain_sizes(self.num_latent_gps))
        covariance = tf.concat([outer_product(part) for part in parts], 0)
        return WhitenedPosterior(tril, mean, covariance - eye)

    def marginals(
        self, features: tf.Tensor, posterior: WhitenedPosterior | None = None
    ) -> MeanAndVariance:
        """Mean and variance of f at each of features [..., D]: [..., P] each.

        :param posterior: of `posterior()`, where it is there already.
        """
        flat = _flatten(features)
        mean, variance = self._latent_marginals(flat, posterior or self.posterior())
        mean = self._outputs(mean, flat)
        if self.projection is not None:
            variance = tf.matmul(variance, np.square(self.projection), transpose_b=True)
        return _unflatten(mean, features), _unflatten(variance, features)

    def sample_noise(
        self, num_points: int | tf.Tensor, num_samples: int | tf.Tensor, seed: Seed
    ) -> tf.Tensor:
        """Standard normals of one pass over K samples of each of N points [N, L, K]."""
        shape = [num_points, self.num_latent_gps, num_samples]
        return normal(shape, as_seed(seed), gpflow.default_float())

    def propagate(
        self, features: tf.Tensor, *, seed: Seed, joint: bool = True, own_gradient: bool = False
    ) -> tf.Tensor:
        """Draw f at features [N, K, D], K samples of each of N points, from the posterior: [N, K, P].

        :param joint: one function for the K samples of a point, rather than one for each sample.
        :param own_gradient: of a joint draw, the gradient of f at a sample reaches the features of that
            sample only, though the other samples' features shape its value too.
        """
        num_points, num_samples, _ = tf.unstack(tf.shape(features))
        noise = self.sample_noise(num_points, num_samples, seed)
        return self.propagate_noise(
            features, noise, self.posterior(), joint=joint, own_gradient=own_gradient
        )

    def propagate_noise(
        self,
        features: tf.Tensor,
        noise: tf.Tensor,
        posterior: WhitenedPosterior,
        *,
        joint: bool = True,
        own_gradient: bool = False,
    ) -> tf.Tensor:
        """`propagate` with the random numbers of `sample_noise` and `posterior()` given."""
        flat = _flatten(features)
        if joint and features.shape[1] != 1:
            mean, tril = self._joint_latent(features, posterior, own_gradient)
            draw = _flatten(mean + transpose(tf.linalg.matvec(tril, noise)))
        else:
            mean, variance = self._latent_marginals(flat, posterior)
            draw = mean + tf.sqrt(variance) * _flatten(transpose(noise))
        return _unflatten(self._outputs(draw, flat), features)

    def prior_kl(self) -> tf.Tensor:
        """KL(q(u) || p(u)) summed over the L GPs []."""
        if self.whiten:
            return gauss_kl(self.q_mu, self.q_sqrt)
        return gauss_kl(self.q_mu, self.q_sqrt, self._inducing_covariance())

    def prior_sample(self, features: tf.Tensor, *, seed: Seed) -> tf.Tensor:
        """Joint draws of f from the prior at features [S, N, D]: [S, N, P]; costs O(S N^3)."""
        tril = cholesky(self._with_jitter(self.kernel(features)))
        shape = tf.concat([tf.shape(features)[:-1], [self.num_latent_gps]], 0)
        draw = tril @ normal(tf.unstack(shape), as_seed(seed), tril.dtype)
        return _unflatten(self._outputs(_flatten(draw), _flatten(features)), features)

    def _inducing_covariance(self) -> tf.Tensor:
        return self._with_jitter(covariances.Kuu(self.inducing_variable, self.kernel))

    def _with_jitter(self, covariance: tf.Tensor) -> tf.Tensor:
        return covariance + self.jitter * tf.eye(tf.shape(covariance)[-1], dtype=covariance.dtype)

    def _explain(self, flat: tf.Tensor, posterior: WhitenedPosterior) -> tf.Tensor:
        """A^T = k(x, Z) L^{-T} [R, M] at points [R, D]: f's mean is its product with the whitened mean."""
        cross = covariances.Kuf(self.inducing_variable, self.kernel, flat)
        return transpose(tf.linalg.triangular_solve(posterior.tril, cross))

    def _latent_marginals(self, flat: tf.Tensor, posterior: WhitenedPosterior) -> MeanAndVariance:
        """Mean and variance of the L GPs at points [R, D]: [R, L] each."""
        explained = self._explain(flat, posterior)
        variance = self.kernel(flat, full_cov=False)[:, None]
        variance += quadratic_forms(explained[:, None], posterior.excess)[..., 0, 0]
        return explained @ posterior.mean, tf.maximum(variance, MIN_VARIANCE[variance.dtype])

    def _joint_latent(
        self, features: tf.Tensor, posterior: WhitenedPosterior, own_gradient: bool
    ) -> MeanAndVariance:
        """Means [N, K, L] of the L GPs at K samples of N points, and covariance factors [N, L, K, K]."""
        flat = self._explain(_flatten(features), posterior)
        explained = _unflatten(flat, features)
        covariance = self.kernel(features)[:, None]
        covariance += quadratic_forms(explained, posterior.excess)
        tril = cholesky(self._with_jitter(covariance))
        mean = _unflatten(flat @ posterior.mean, features)
        if not own_gradient:
            return mean, tril
        # GPflow's kernels take batches of one set of points, not of two.
        num_draws = features.shape[1]
        others = tf.stop_gradient(features)
        cross = self.kernel(tf.concat([features, others], 1))[:, None, :num_draws, num_draws:]
        constant = tf.stop_gradient(explained)
        products = tf.einsum("nkm,lmi->nlik", constant, posterior.excess)
        cross += tf.matmul(explained[:, None], products)
        return mean, _tril_of_own_rows(tril, cross, tf.linalg.diag_part(covariance) + self.jitter)

    def _outputs(self, latent: tf.Tensor, flat: tf.Tensor) -> tf.Tensor:
        """m(x) + W g(x) [R, P] of g [R, L] at points [R, D]."""
        if self.projection is not None:
            latent = tf.matmul(latent, self.projection, transpose_b=True)
        return latent if self.mean_function is None else latent + self.mean_function(flat)


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
