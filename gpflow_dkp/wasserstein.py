"""The Wasserstein distance between Gaussian measures, from covariances at a batch of points.

With P = N(m_P, k) and Q = N(m_Q, r) on the square-integrable functions under the inputs' distribution,

    W2^2 = mean_b[(m_P - m_Q)^2 + k + r] - 2 c,    c = tr (k^{1/2} r k^{1/2})^{1/2} on the batch.

`Nystrom`, `Eigenvalues` and `Exact` estimate c ([NeurIPS22] equations 12-16, docs/mathematics.md 9); write a
`CrossTerm` for an estimate of your own. Letters: B points of the batch, S of them for the estimate, M
functions in which the posterior differs from the prior, P outputs.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.functions import Zero
from gpflow.kernels import Kernel

from .checks import brief, check_positive_integer
from .layers.base import MIN_VARIANCE
from .linalg import cholesky, inverse_triangular, transpose

NEGLIGIBLE = 1e-8
"""Singular values below this fraction of the largest have no gradient."""

CROSS_POINTS = 100
"""Most points of an estimate, unless it is given a number."""

CROSS_JITTER = 1e-4
"""Of the model's jitter, relative to the prior variance, on the cross term's covariances.

The whole of it would change the distance by 1e-6, and by 5e-5 where Sigma is small."""


class LowRankUpdate(NamedTuple):
    """Covariances r_BS = k_BS + A_B E A_S^T of P outputs, which need not be formed to be multiplied.

    :param prior: k_BS [B, S].
    :param left: A_B [B, M].
    :param right: A_S [S, M].
    :param excess: symmetric E [P, M, M].

    >>> prior, A = X @ X.T, X
    >>> r = gpflow_dkp.wasserstein.LowRankUpdate(prior, A, A, np.eye(2)[None])
    >>> np.allclose(r.to_dense(), 2.0 * prior)
    True
    >>> np.allclose(r.multiplied_by(X.T), X.T @ r.to_dense())
    True
    """

    prior: tf.Tensor
    left: tf.Tensor
    right: tf.Tensor
    excess: tf.Tensor

    @check_shapes(
        "self.prior: [B, S]",
        "self.left: [B, M]",
        "self.right: [S, M]",
        "self.excess: [P, M, M]",
        "return: [P, B, S]",
    )
    def to_dense(self) -> tf.Tensor:
        """r_BS [P, B, S]."""
        return self.prior + self.left @ self._excess_at_right()

    @check_shapes(
        "matrix: [R, B]",
        "self.prior: [B, S]",
        "self.left: [B, M]",
        "self.right: [S, M]",
        "self.excess: [P, M, M]",
        "return: [P, R, S]",
    )
    def multiplied_by(self, matrix: tf.Tensor) -> tf.Tensor:
        """`matrix` [R, B] times r_BS: [P, R, S]."""
        return matrix @ self.prior + (matrix @ self.left) @ self._excess_at_right()

    def of_rows(self, chosen: tf.Tensor) -> LowRankUpdate:
        """r at rows [R] of the first points."""
        return self._replace(prior=tf.gather(self.prior, chosen), left=tf.gather(self.left, chosen))

    def _excess_at_right(self) -> tf.Tensor:
        return tf.matmul(self.excess, self.right, transpose_b=True)


class DenseCovariance(NamedTuple):
    """Covariances r_BS of P outputs as they are.

    :param matrix: [P, B, S].

    >>> r = gpflow_dkp.wasserstein.DenseCovariance((X @ X.T)[None])
    >>> np.allclose(r.multiplied_by(X.T), X.T @ X @ X.T)
    True
    """

    matrix: tf.Tensor

    def to_dense(self) -> tf.Tensor:
        """r_BS [P, B, S]."""
        return self.matrix

    @check_shapes("matrix: [R, B]", "self.matrix: [P, B, S]", "return: [P, R, S]")
    def multiplied_by(self, matrix: tf.Tensor) -> tf.Tensor:
        """`matrix` [R, B] times r_BS: [P, R, S]."""
        return matrix @ self.matrix

    def of_rows(self, chosen: tf.Tensor) -> DenseCovariance:
        """r at rows [R] of the first points."""
        return DenseCovariance(tf.gather(self.matrix, chosen, axis=1))


class UpdatedPrior(NamedTuple):
    """r = k + A E A^T at a batch, of a sparse GP.

    :param basis: A [B, M].
    :param excess: symmetric E [P, M, M].

    >>> prior = (X @ X.T)[:, [0, 3]]
    >>> r = gpflow_dkp.wasserstein.UpdatedPrior(X, np.zeros((1, 2, 2)))
    >>> np.allclose(r.between(prior, X, np.array([0, 3])).to_dense(), prior)
    True
    """

    basis: tf.Tensor
    excess: tf.Tensor

    def between(self, prior: tf.Tensor, points: tf.Tensor, chosen: tf.Tensor) -> LowRankUpdate:
        """r_BS between the batch's points [B, D] and rows S [S] of them, k_BS [B, S] given."""
        return LowRankUpdate(prior, self.basis, tf.gather(self.basis, chosen), self.excess)


class OwnKernel(NamedTuple):
    """r of a kernel for each output, whatever the prior's is.

    :param kernels: P GPflow kernels; one may be there more than once.

    >>> kernel = gpflow.kernels.SquaredExponential()
    >>> r = gpflow_dkp.wasserstein.OwnKernel((kernel, kernel))
    >>> r.between(kernel(X), X, np.array([0, 3])).to_dense().shape
    TensorShape([2, 10, 2])
    """

    kernels: tuple[Kernel, ...]

    def between(self, prior: tf.Tensor, points: tf.Tensor, chosen: tf.Tensor) -> DenseCovariance:
        """r_BS between the batch's points [B, D] and rows S [S] of them."""
        others = tf.gather(points, chosen)
        return DenseCovariance(tf.stack([kernel(points, others) for kernel in self.kernels]))

    @check_shapes("X: [N, D]", "return: [N, P]")
    def variance(self, X: tf.Tensor) -> tf.Tensor:
        """r(x, x)."""
        return tf.stack([kernel(X, full_cov=False) for kernel in self.kernels], -1)

    @check_shapes("X: [N, D]", "return: [P, N, N]")
    def joint(self, X: tf.Tensor) -> tf.Tensor:
        """r(x, x') among the points."""
        return tf.stack([kernel(X) for kernel in self.kernels])


class Measures(NamedTuple):
    """The prior N(m_P, k) and the posterior N(m_Q, r) of P outputs at a batch.

    :param points: [B, D].
    :param kernel: k, a GPflow kernel.
    :param prior_mean: m_P [B, P], or one column for all outputs.
    :param prior_variance: k [B, 1], the same for all outputs.
    :param mean: m_Q [B, P].
    :param variance: r [B, P].
    :param posterior: r between points of the batch.
    :param jitter: of the model [].

    >>> kernel, likelihood = gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian(0.1)
    >>> measures = gpflow_dkp.models.GWI(kernel, likelihood, X[:3]).measures(X)
    >>> k, r = measures.covariances()
    >>> np.allclose(k, kernel(X)), np.allclose(r.to_dense()[0], k)  # GWI starts at the prior
    (True, True)
    >>> shifted = measures._replace(mean=measures.mean + 2.0)
    >>> exact, seed = gpflow_dkp.wasserstein.Exact(), gpflow_dkp.random.as_seed(0)
    >>> np.allclose(shifted.squared_distance(exact, seed), 4.0)
    True
    """

    points: tf.Tensor
    kernel: Callable[..., tf.Tensor]
    prior_mean: tf.Tensor
    prior_variance: tf.Tensor
    mean: tf.Tensor
    variance: tf.Tensor
    posterior: UpdatedPrior | OwnKernel
    jitter: tf.Tensor

    @check_shapes("return[0]: [B, B]")
    def covariances(self) -> tuple[tf.Tensor, LowRankUpdate | DenseCovariance]:
        """k_BB [B, B] and r_BB."""
        prior = self.kernel(self.points)
        return prior, self.posterior.between(prior, self.points, tf.range(tf.shape(prior)[0]))

    @check_shapes("chosen: [S]", "return[0]: [B, S]")
    def covariances_with(
        self, chosen: tf.Tensor
    ) -> tuple[tf.Tensor, LowRankUpdate | DenseCovariance]:
        """k_BS [B, S] and r_BS for rows S of the batch [S]."""
        prior = self.kernel(self.points, tf.gather(self.points, chosen))
        return prior, self.posterior.between(prior, self.points, chosen)

    @check_shapes(
        "self.prior_mean: [broadcast B, broadcast P]",
        "self.prior_variance: [B, 1]",
        "self.mean: [B, P]",
        "self.variance: [B, P]",
        "return: []",
    )
    def squared_distance(self, cross_term: CrossTerm, seed: tf.Tensor) -> tf.Tensor:
        """W2^2 on the batch, summed over outputs [].

        :param seed: stateless seed [2] of what the cross term chooses at random.
        """
        shift = tf.square(self.prior_mean - self.mean)
        terms = shift + self.prior_variance + self.variance
        return tf.reduce_sum(tf.reduce_mean(terms, 0) - 2.0 * cross_term.estimate(self, seed))

    def cross_jitter(self, num_points: tf.Tensor | int) -> tf.Tensor:
        """What is added to covariances of `num_points` points before they are factorised [].

        At GPflow's default jitter no less than their rounding.
        """
        dtype = self.prior_variance.dtype
        rounding = tf.cast(num_points, dtype) * np.finfo(dtype.as_numpy_dtype).eps
        # In proportion to the model's jitter, which `fit` raises where a factorisation fails.
        relative = self.jitter * tf.maximum(tf.cast(CROSS_JITTER, dtype), 1e6 * rounding)
        return relative * tf.stop_gradient(tf.reduce_mean(self.prior_variance))


class MeasuresOfOutputs(NamedTuple):
    """Priors and posteriors of outputs whose priors differ, independent of each other.

    :param parts: `Measures` at one batch, whose outputs stand side by side.

    >>> kernel, likelihood = gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian(0.1)
    >>> measures = gpflow_dkp.models.GWI(kernel, likelihood, X[:3]).measures(X)
    >>> gpflow_dkp.wasserstein.MeasuresOfOutputs((measures, measures)).mean.shape
    TensorShape([10, 2])
    """

    parts: tuple[Measures, ...]

    @property
    def points(self) -> tf.Tensor:
        """[B, D]."""
        return self.parts[0].points

    @property
    def mean(self) -> tf.Tensor:
        """m_Q [B, P]."""
        return tf.concat([part.mean for part in self.parts], -1)

    @property
    def variance(self) -> tf.Tensor:
        """The posteriors' [B, P]."""
        return tf.concat([part.variance for part in self.parts], -1)

    @check_shapes("return: []")
    def squared_distance(self, cross_term: CrossTerm, seed: tf.Tensor) -> tf.Tensor:
        """W2^2 on the batch, summed over outputs []; arguments as of `Measures`."""
        return tf.add_n([part.squared_distance(cross_term, seed) for part in self.parts])


class CrossTerm(abc.ABC):
    """How c is estimated.

    >>> class OfTraces(gpflow_dkp.wasserstein.CrossTerm):  # right for one covariance
    ...     def estimate(self, measures, seed):
    ...         return tf.reduce_mean(tf.sqrt(measures.prior_variance * measures.variance), 0)
    >>> kernel, likelihood = gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian(0.1)
    >>> model = gpflow_dkp.models.GWI(kernel, likelihood, X[:3], cross_term=OfTraces())
    >>> np.allclose(model.squared_distance(X), 0.0)
    True
    """

    @abc.abstractmethod
    @check_shapes("measures.points: [B, D]", "measures.mean: [B, P]", "return: [P]")
    def estimate(self, measures: Measures, seed: tf.Tensor) -> tf.Tensor:
        """c [P] of the measures at a batch.

        :param seed: stateless seed [2] of what is chosen at random.
        """

    def __repr__(self) -> str:
        """By which a training run knows its objective."""
        return f"{type(self).__name__}()"


@dataclass(frozen=True)
class OfSomePoints(CrossTerm, abc.ABC):
    """An estimate from covariances between the batch and some of its points.

    :param num_points: S, default the batch's and at most 100.

    >>> cross_term = gpflow_dkp.wasserstein.Nystrom(num_points=4)
    >>> isinstance(cross_term, gpflow_dkp.wasserstein.OfSomePoints)
    True
    >>> cross_term.choose(X, gpflow_dkp.random.as_seed(0)).shape
    TensorShape([4])
    """

    num_points: int | None = None

    def __post_init__(self) -> None:
        if self.num_points is not None:
            check_positive_integer("num_points", self.num_points)

    def choose(self, points: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """S rows of the batch [B, D], without repetition [S]."""
        return choose_points(points, self.num_points, seed)


@dataclass(frozen=True)
class Nystrom(OfSomePoints):
    """Of the Nystrom approximations of both covariances: never above the batch's c, so that W2 is a bound.

    >>> model = gpflow_dkp.models.GWI.from_data(X, Y, mean="svgp", num_inducing=3)
    >>> seed, measures = gpflow_dkp.random.as_seed(0), model.measures(X)
    >>> of_some = gpflow_dkp.wasserstein.Nystrom(4).estimate(measures, seed)
    >>> bool(of_some[0] <= gpflow_dkp.wasserstein.Exact().estimate(measures, seed)[0])
    True
    """

    @inherit_check_shapes
    def estimate(self, measures: Measures, seed: tf.Tensor) -> tf.Tensor:
        """c [P], `nystrom_cross_term`."""
        chosen = self.choose(measures.points, seed)
        k_bs, r_bs = measures.covariances_with(chosen)
        k_ss, r_ss = tf.gather(k_bs, chosen), r_bs.of_rows(chosen).to_dense()
        jitter = measures.cross_jitter(tf.shape(k_ss)[0])
        return nystrom_cross_term(k_bs, k_ss, r_bs, r_ss, jitter)


@dataclass(frozen=True)
class Eigenvalues(OfSomePoints):
    """[NeurIPS22]'s estimate, noisier than `Nystrom`.

    >>> kernel, likelihood = gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian(0.1)
    >>> measures = gpflow_dkp.models.GWI(kernel, likelihood, X[:3]).measures(X)
    >>> estimate = gpflow_dkp.wasserstein.Eigenvalues(10).estimate(
    ...     measures, gpflow_dkp.random.as_seed(0)
    ... )
    >>> np.allclose(estimate, 1.0)  # of the prior and itself, on all points: its mean variance
    True
    """

    @inherit_check_shapes
    def estimate(self, measures: Measures, seed: tf.Tensor) -> tf.Tensor:
        """c [P], `eigenvalue_cross_term`."""
        return eigenvalue_cross_term(*measures.covariances_with(self.choose(measures.points, seed)))


@dataclass(frozen=True)
class Exact(CrossTerm):
    """Of the whole batch, at the cost of its cube.

    >>> kernel, likelihood = gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian(0.1)
    >>> measures = gpflow_dkp.models.GWI(kernel, likelihood, X[:3]).measures(X)
    >>> estimate = gpflow_dkp.wasserstein.Exact().estimate(measures, gpflow_dkp.random.as_seed(0))
    >>> np.allclose(estimate, 1.0)  # of the prior and itself: its mean variance
    True
    """

    @inherit_check_shapes
    def estimate(self, measures: Measures, seed: tf.Tensor) -> tf.Tensor:
        """c [P], `exact_cross_term`."""
        k_bb, r_bb = measures.covariances()
        jitter = measures.cross_jitter(tf.shape(k_bb)[0])
        # With the jitter in both traces as in the cross term, whose 2 c is to be taken from them.
        return exact_cross_term(k_bb, r_bb.to_dense(), jitter) - jitter


CROSS_TERMS: dict[str, type[CrossTerm]] = {
    "nystrom": Nystrom,
    "eigenvalues": Eigenvalues,
    "exact": Exact,
}


def as_cross_term(cross_term: str | CrossTerm, num_points: int | None = None) -> CrossTerm:
    """The estimate of a name, on `num_points` points, or as given.

    :raises ValueError: for another name or type, or a number of points for an estimate that has its own.

    >>> gpflow_dkp.wasserstein.as_cross_term("nystrom", 50)
    Nystrom(num_points=50)
    >>> gpflow_dkp.wasserstein.as_cross_term("exact", 50)
    Traceback (most recent call last):
        ...
    ValueError: num_cross_points: got 50 with the cross term 'exact', which takes none; leave it out
    """
    if num_points is not None:
        check_positive_integer("num_cross_points", num_points)
    kind = CROSS_TERMS.get(cross_term) if isinstance(cross_term, str) else None
    if kind is not None and num_points is None:
        return kind()
    if kind is not None and issubclass(kind, OfSomePoints):
        return kind(num_points)
    if kind is None and not isinstance(cross_term, CrossTerm):
        raise ValueError(
            f"cross_term: got {brief(cross_term)}, choose one of {', '.join(CROSS_TERMS)}, or an object such "
            "as gpflow_dkp.wasserstein.Nystrom(50)"
        )
    if num_points is not None:
        raise ValueError(
            f"num_cross_points: got {num_points} with the cross term {cross_term!r}, which takes none; "
            "leave it out"
        )
    assert isinstance(cross_term, CrossTerm)
    return cross_term


@check_shapes("points: [B, D]", "return: [S]")
def choose_points(points: tf.Tensor, wanted: int | None, seed: tf.Tensor) -> tf.Tensor:
    """S rows of points [B, D], without repetition [S].

    :param wanted: S, default B and at most 100.
    :raises ValueError: more than B; `tf.errors.InvalidArgumentError` where B is not known beforehand.

    >>> seed = gpflow_dkp.random.as_seed(0)
    >>> chosen = gpflow_dkp.wasserstein.choose_points(X, 4, seed).numpy()
    >>> chosen.shape, len(set(chosen))
    ((4,), 4)
    """
    batch, size = points.shape[0], tf.shape(points)[0]
    needs = f"num_points: got {wanted} for the cross term of a batch of"
    if wanted is not None and batch is not None and wanted > batch:
        raise ValueError(f"{needs} {batch} rows, needs at most the batch's")
    count = tf.minimum(CROSS_POINTS, size) if wanted is None else wanted
    enough = tf.debugging.Assert(count <= size, [f"{needs} fewer rows, needs at most the batch's"])
    with tf.control_dependencies([enough]):
        return tf.math.top_k(tf.random.stateless_uniform([size], seed), count).indices


Process: TypeAlias = "Kernel | tuple[Callable[[tf.Tensor], tf.Tensor], Kernel] | Any"
"""A Gaussian process: a kernel, of mean zero; a mean function and a kernel; or what has `predict_f`."""


@check_shapes("X: [N, D]", "return: []")
def squared_distance(p: Process, q: Process, X: tf.Tensor) -> tf.Tensor:
    """W2^2 between two Gaussian processes on the points X, summed over outputs [] ([NeurIPS22] equation 11).

    As measures on the square-integrable functions under the points' distribution:

        mean_n (m_p - m_q)^2 + (tr K_p + tr K_q - 2 tr (K_p^{1/2} K_q K_p^{1/2})^{1/2}) / N.

    Costs O(P N^3) for P outputs.

    :param p: a GPflow kernel, for a mean of zero; a pair of a mean function and a kernel; or a model, such as
        `gpflow.models.GPR` or `GWI`, whose `predict_f(X, full_cov=True)` gives mean [N, P] and covariance
        [P, N, N].
    :param q: as p.
    :param X: [N, D].
    :raises ValueError: no rows; something else than a process; numbers of outputs other than 1 that differ.

    >>> k, zero = gpflow.kernels.SquaredExponential(), gpflow.functions.Zero()
    >>> np.allclose(gpflow_dkp.wasserstein.squared_distance(k, k, X), 0.0, atol=1e-6)
    True
    >>> shifted = gpflow.functions.Constant(2.0), k
    >>> np.allclose(gpflow_dkp.wasserstein.squared_distance(shifted, (zero, k), X), 4.0, atol=1e-6)
    True
    """
    X = tf.cast(X, gpflow.default_float())
    if X.shape[0] == 0:
        raise ValueError("X: got no rows, needs at least 1")
    (mean_p, K_p), (mean_q, K_q) = (
        _moments_of(name, process, X) for name, process in (("p", p), ("q", q))
    )
    outputs = sorted({mean_p.shape[1], mean_q.shape[1]} - {1})
    if len(outputs) > 1:
        raise ValueError(f"p and q: got {outputs[0]} and {outputs[1]} outputs, needs as many")
    traces = tf.linalg.trace(K_p) + tf.linalg.trace(K_q)
    roots = nuclear_norm(tf.matmul(_root(K_p), _root(K_q)))
    num_points = tf.cast(tf.shape(X)[0], X.dtype)
    shift = tf.reduce_sum(tf.square(mean_p - mean_q), 0)
    return tf.reduce_sum(shift + traces - 2.0 * roots) / num_points


def _moments_of(name: str, process: Process, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean [N, P] and covariance [P, N, N]."""
    if isinstance(process, Kernel):
        process = (Zero(), process)
    if isinstance(process, tuple) and len(process) == 2 and isinstance(process[1], Kernel):
        mean, kernel = process
        return tf.cast(mean(X), X.dtype), kernel(X)[None]
    if not callable(getattr(process, "predict_f", None)):
        raise ValueError(
            f"{name}: got {brief(process)}, needs a GPflow kernel, a mean function and a kernel, or a model "
            "with predict_f"
        )
    return process.predict_f(X, full_cov=True)


def _root(covariance: tf.Tensor) -> tf.Tensor:
    """Symmetric square root [..., N, N]; what rounding makes negative counts as zero."""
    values, vectors = tf.linalg.eigh(covariance)
    roots = tf.sqrt(tf.maximum(values, 0.0))
    return tf.matmul(vectors * roots[..., None, :], vectors, transpose_b=True)


@check_shapes("squared: []", "return: []")
def root_distance(squared: tf.Tensor) -> tf.Tensor:
    """W2 of W2^2 []; 0, with a gradient of 0, where rounding leaves no positive number.

    >>> squared = tf.constant([4.0, -1e-15], tf.float64)  # the second by rounding
    >>> [float(gpflow_dkp.wasserstein.root_distance(value)) for value in squared]
    [2.0, 0.0]
    """
    positive_part = squared > MIN_VARIANCE[squared.dtype]
    root = tf.sqrt(tf.where(positive_part, squared, tf.ones_like(squared)))
    root = tf.where(positive_part, root, tf.zeros_like(root))
    return tf.where(tf.math.is_nan(squared), squared, root)


DISTANCES: dict[str, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "squared": lambda squared, batch_size: squared,
    "root": lambda squared, batch_size: root_distance(squared),
    "published": lambda squared, batch_size: (
        root_distance(squared) * tf.cast(batch_size, squared.dtype)
    ),
}
"""Penalties [] of W2^2 [] and the batch's number of rows."""


class _Singular(NamedTuple):
    """Singular values and vectors of A [..., R, C], from the eigenvectors of A^T A.

    Values down to 1e-8 of the largest lose nothing to the square, being the norms of A V's columns; faster
    than `tf.linalg.svd`.

    :param values: [..., C].
    :param left: U [..., R, C], zero where the value is negligible, so that gradients are finite.
    :param right: V [..., C, C].
    """

    values: tf.Tensor
    left: tf.Tensor
    right: tf.Tensor


def _singular(matrix: tf.Tensor) -> _Singular:
    square, finite = _finite_or_identity(tf.matmul(matrix, matrix, transpose_a=True))
    _, right = tf.linalg.eigh(square)
    left = matrix @ right
    values = tf.linalg.norm(left, axis=-2)
    values = tf.where(finite[..., 0], values, tf.cast(np.nan, values.dtype))
    floor = NEGLIGIBLE * tf.reduce_max(values, -1, keepdims=True)
    scale = tf.where(values > floor, tf.math.reciprocal_no_nan(values), tf.zeros_like(values))
    return _Singular(values, left * scale[..., None, :], right)


def _finite_or_identity(matrix: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Matrices [..., S, S] that TensorFlow can decompose, and which [..., 1, 1] are those given.

    Of a NaN, as a failed Cholesky gives, it would raise, and no more jitter be tried.
    """
    finite = tf.reduce_all(tf.math.is_finite(matrix), [-2, -1], keepdims=True)
    return tf.where(finite, matrix, tf.eye(tf.shape(matrix)[-1], dtype=matrix.dtype)), finite


@check_shapes("matrix: [batch..., R, C]", "return: [batch...]")
@tf.custom_gradient
def nuclear_norm(
    matrix: tf.Tensor,
) -> tf.Tensor | tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """Sum of the singular values [...] of A [..., R, C]; the gradient is U V^T.

    >>> matrix = tf.constant([[3.0, 0.0], [0.0, -4.0], [0.0, 0.0]], tf.float64)
    >>> round(float(gpflow_dkp.wasserstein.nuclear_norm(matrix)), 6)
    7.0
    """
    values, left, right = _singular(matrix)

    def grad(d_value: tf.Tensor) -> tf.Tensor:
        return d_value[..., None, None] * tf.matmul(left, right, transpose_b=True)

    return tf.reduce_sum(values, -1), grad


@check_shapes(
    "matrix: [batch..., R, S]",
    "covariance: [broadcast batch..., S, S]",
    "return: [batch...]",
)
@tf.custom_gradient
def whitened_nuclear_norm(
    matrix: tf.Tensor, covariance: tf.Tensor
) -> tf.Tensor | tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
    """Sum of the singular values of A L^{-T} [...] with a covariance C = L L^T.

    With A L^{-T} = U diag(s) V^T and F = L^{-T} V the gradients are U F^T with respect to A and
    -F diag(s) F^T / 2 with respect to C, which differentiate neither solve nor factorisation.

    :param matrix: A [..., R, S].
    :param covariance: C [..., S, S].

    >>> matrix = tf.constant([[3.0, 0.0], [0.0, -4.0]], tf.float64)
    >>> covariance = 4.0 * tf.eye(2, dtype=tf.float64)
    >>> round(float(gpflow_dkp.wasserstein.whitened_nuclear_norm(matrix, covariance)), 6)
    3.5
    """
    tril = tf.linalg.cholesky(covariance)
    values, left, right = _singular(transpose(tf.linalg.triangular_solve(tril, transpose(matrix))))

    def grad(d_value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        factor = tf.linalg.triangular_solve(tril, right, adjoint=True)
        d_value = d_value[..., None, None]
        weights = -0.5 * d_value * values[..., None, :]
        return (
            d_value * tf.matmul(left, factor, transpose_b=True),
            tf.matmul(weights * factor, factor, transpose_b=True),
        )

    return tf.reduce_sum(values, -1), grad


@check_shapes("k_bs: [B, S]", "k_ss: [S, S]", "r_ss: [P, S, S]", "return: [P]")
def nystrom_cross_term(
    k_bs: tf.Tensor,
    k_ss: tf.Tensor,
    r_bs: tf.Tensor | LowRankUpdate | DenseCovariance,
    r_ss: tf.Tensor,
    jitter: tf.Tensor | float,
) -> tf.Tensor:
    """c of the Nystrom approximations of k and r on S points: never above the exact c of the batch.

    ||Phi_P^T Phi_Q||_* / B with Phi_P = k_BS chol(k_SS)^{-T} and Phi_Q = r_BS chol(r_SS)^{-T}.

    :param k_bs: [B, S].
    :param k_ss: [S, S].
    :param r_bs: [P, B, S], dense or not.
    :param r_ss: [P, S, S].
    :param jitter: added to the diagonals of k_ss and r_ss.
    :returns: [P].

    >>> k = gpflow.kernels.SquaredExponential()(X)
    >>> k_bs, k_ss = k[:, :4], k[:4, :4]
    >>> c = gpflow_dkp.wasserstein.nystrom_cross_term(k_bs, k_ss, k_bs[None], k_ss[None], 1e-6)
    >>> bool(0.0 < c[0] < gpflow_dkp.wasserstein.exact_cross_term(k, k[None], 1e-6)[0])
    True
    """
    num_points = tf.cast(tf.shape(k_bs)[0], k_bs.dtype)
    eye = jitter * tf.eye(tf.shape(k_ss)[-1], dtype=k_ss.dtype)
    # Phi_P before the product: solved for after it, rounding would be amplified by the inverse of the
    # jitter, and where r is the small difference of large covariances outgrow the distance.
    phi_p = tf.matmul(inverse_triangular(cholesky(k_ss + eye)), k_bs, transpose_b=True)
    return whitened_nuclear_norm(_multiply(phi_p, r_bs), r_ss + eye) / num_points


@check_shapes("k_bb: [B, B]", "r_bb: [P, B, B]", "return: [P]")
def exact_cross_term(k_bb: tf.Tensor, r_bb: tf.Tensor, jitter: tf.Tensor | float) -> tf.Tensor:
    """c on the whole batch, ||F_K^T F_R||_* / B with Cholesky factors F; costs O(P B^3).

    :param k_bb: [B, B].
    :param r_bb: [P, B, B].
    :param jitter: added to the diagonals.
    :returns: [P].

    >>> k = gpflow.kernels.SquaredExponential()(X)
    >>> c = gpflow_dkp.wasserstein.exact_cross_term(k, 4.0 * k[None], jitter=1e-8)
    >>> np.allclose(c, 2.0, atol=1e-4)  # tr(k^(1/2) 4 k k^(1/2))^(1/2) / B
    True
    """
    num_points = tf.cast(tf.shape(k_bb)[-1], k_bb.dtype)
    eye = jitter * tf.eye(tf.shape(k_bb)[-1], dtype=k_bb.dtype)
    tril_k, tril_r = cholesky(k_bb + eye), cholesky(r_bb + eye)
    return nuclear_norm(tf.matmul(tril_k, tril_r, transpose_a=True)) / num_points


def _multiply(matrix: tf.Tensor, r_bs: tf.Tensor | LowRankUpdate | DenseCovariance) -> tf.Tensor:
    """`matrix` [R, B] times r_BS: [P, R, S]."""
    dense = tf.is_tensor(r_bs) or isinstance(r_bs, np.ndarray)
    return matrix @ r_bs if dense else r_bs.multiplied_by(matrix)


@check_shapes("k_bs: [B, S]", "return: [P]")
def eigenvalue_cross_term(
    k_bs: tf.Tensor, r_bs: tf.Tensor | LowRankUpdate | DenseCovariance
) -> tf.Tensor:
    """[NeurIPS22]'s estimate of c, sum_s sqrt(max(Re lambda_s, 0)) / sqrt(B S).

    lambda_s are the eigenvalues of r_SB k_BS, which is not symmetric, so that they can be complex where S
    are not all the points of B.

    :param k_bs: [B, S].
    :param r_bs: [P, B, S], dense or not.
    :returns: [P].

    >>> k = gpflow.kernels.SquaredExponential()(X)
    >>> np.allclose(gpflow_dkp.wasserstein.eigenvalue_cross_term(k, 4.0 * k[None]), 2.0)
    True
    """
    num_points, num_chosen = (tf.cast(size, k_bs.dtype) for size in tf.unstack(tf.shape(k_bs)))
    roots = _sum_of_root_eigenvalues(_multiply(transpose(k_bs), r_bs))
    return roots / tf.sqrt(num_points * num_chosen)


@check_shapes("k_bs: [B, S]", "return: [P, S]")
def cross_spectrum(k_bs: tf.Tensor, r_bs: tf.Tensor | LowRankUpdate | DenseCovariance) -> tf.Tensor:
    """Eigenvalues of r_SB k_BS / (B S), complex [P, S], the largest real part first.

    [NeurIPS22] figure 4: how fast they decay, and how far from real and positive they are. The sum of
    their roots is `eigenvalue_cross_term`, whose arguments these are.

    >>> k = gpflow.kernels.SquaredExponential()(X)
    >>> spectrum = gpflow_dkp.wasserstein.cross_spectrum(k, 4.0 * k[None])
    >>> spectrum.shape, np.allclose(tf.reduce_sum(tf.sqrt(spectrum)), 2.0, atol=1e-4)
    (TensorShape([1, 10]), True)
    """
    num_points, num_chosen = (tf.cast(size, k_bs.dtype) for size in tf.unstack(tf.shape(k_bs)))
    product = _multiply(transpose(k_bs), r_bs) / (num_points * num_chosen)
    product, finite = _finite_or_identity(product)
    values = tf.linalg.eigvals(product)
    values = tf.where(finite[..., 0], values, tf.cast(np.nan, values.dtype))
    order = tf.argsort(tf.math.real(values), axis=-1, direction="DESCENDING")
    return tf.gather(values, order, batch_dims=values.shape.rank - 1)


@tf.custom_gradient
def _sum_of_root_eigenvalues(
    matrix: tf.Tensor,
) -> tf.Tensor | tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """sum_s sqrt(max(Re lambda_s, 0)) [...] of matrices [..., S, S] that need not be symmetric.

    dlambda_s = u_s^H dA v_s with right eigenvectors v_s and the rows u_s^H of their inverse. Eigenvalues
    that vanish to rounding, S times the machine's epsilon of the largest, whose root has an infinite slope,
    and eigenvectors without an inverse count as constants.
    """
    matrix, finite = _finite_or_identity(matrix)
    values, right = tf.linalg.eig(matrix)
    real = tf.where(finite[..., 0], tf.math.real(values), tf.cast(np.nan, matrix.dtype))
    rounding = tf.cast(tf.shape(real)[-1], real.dtype) * np.finfo(real.dtype.as_numpy_dtype).eps
    floor = rounding * tf.reduce_max(real, -1, keepdims=True)
    matters = real > floor
    root = tf.sqrt(tf.where(matters, real, tf.ones_like(real)))
    total = tf.reduce_sum(tf.sqrt(tf.maximum(real, 0.0)), -1)

    def grad(d_total: tf.Tensor) -> tf.Tensor:
        slope = tf.where(matters, 0.5 / root, tf.zeros_like(root)) * d_total[..., None]
        # A little noise keeps an exactly singular matrix of eigenvectors from raising.
        ridge = tf.cast(1e-14 * tf.eye(tf.shape(right)[-1], dtype=real.dtype), right.dtype)
        scaled = tf.cast(slope, right.dtype)[..., None] * tf.linalg.adjoint(right)
        d_matrix = tf.linalg.solve(tf.linalg.adjoint(right) + ridge, scaled)
        d_matrix = tf.where(finite, tf.math.real(d_matrix), tf.zeros_like(matrix))
        return tf.where(tf.math.is_finite(d_matrix), d_matrix, tf.zeros_like(d_matrix))

    return total, grad
