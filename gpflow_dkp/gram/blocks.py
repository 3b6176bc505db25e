"""Gram matrices in blocks: inducing-inducing, inducing-data, and the data points' own diagonal."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeAlias

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.inducing_variables import InducingVariables

from ..linalg import transpose

Block: TypeAlias = "tf.Tensor | Callable[[], tf.Tensor]"


class GramBlocks:
    """A Gram matrix over M inducing and N data points, without its N x N block unless it is asked for.

    :param ii: inducing-inducing [..., M, M].
    :param it: inducing-data [..., M, N].
    :param tt: the data points' own diagonal [..., N], or the whole of their block [..., N, N].
    :param full_cov: whether `tt` is the whole block; by default its rank says, which computes `ii`.

    Each is a tensor, or a function that returns it when it is first needed. The leading dimensions, if
    any, are the samples S. Shapes that do not agree raise `ValueError`.

    >>> Z = X[:3]
    >>> G = gpflow_dkp.gram.GramBlocks(Z @ Z.T, Z @ X.T, np.sum(X**2, axis=1))
    >>> G.ii.shape, G.it.shape, G.tt.shape
    (TensorShape([3, 3]), TensorShape([3, 10]), TensorShape([10]))
    >>> np.allclose(G.squared_distances_it()[0, 5], np.sum((Z[0] - X[5]) ** 2))
    True
    """

    def __init__(self, ii: Block, it: Block, tt: Block, *, full_cov: bool | None = None) -> None:
        self._full_cov = full_cov
        self._given: tuple[Any, ...] = tuple(
            block if callable(block) else tf.convert_to_tensor(block) for block in (ii, it, tt)
        )
        if any(callable(block) for block in self._given):
            return
        shapes: list[Any] = [block.shape for block in self._given]
        ii, it, tt = shapes
        whole = tt.rank is not None and tt.rank == ii.rank
        agree = (
            ii[-1:].is_compatible_with(ii[-2:-1])
            and ii[:-1].is_compatible_with(it[:-1])
            and it[-1:].is_compatible_with(tt[-1:])
            and it[:-2].is_compatible_with(tt[:-2] if whole else tt[:-1])
            and (not whole or tt[-1:].is_compatible_with(tt[-2:-1]))
        )
        if not agree:
            raise ValueError(
                f"GramBlocks: got shapes {ii}, {it}, {tt}; they must be ii [..., M, M], "
                "it [..., M, N], tt [..., N] or [..., N, N]"
            )

    @classmethod
    def of_inducing(cls, ii: tf.Tensor) -> GramBlocks:
        """A Gram matrix of M inducing points and no data points."""
        ii = tf.convert_to_tensor(ii)
        return cls(ii, ii[..., :0], ii[..., 0, :0])

    @cached_property
    def ii(self) -> tf.Tensor:
        """Inducing-inducing block [..., M, M]."""
        return _value(self._given[0])

    @cached_property
    def it(self) -> tf.Tensor:
        """Inducing-data block [..., M, N]."""
        return _value(self._given[1])

    @cached_property
    def tt(self) -> tf.Tensor:
        """The data points' own diagonal [..., N], or the whole block [..., N, N]."""
        return _value(self._given[2])

    @property
    def full_cov(self) -> bool:
        """Whether the data points' whole block is held."""
        if self._full_cov is None:
            self._full_cov = self.tt.shape.rank == self.ii.shape.rank
        return self._full_cov

    @cached_property
    def ii_diag(self) -> tf.Tensor:
        """Diagonal of `ii` [..., M]."""
        return tf.linalg.diag_part(self.ii)

    def with_jitter(self, jitter: tf.Tensor) -> GramBlocks:
        """G + jitter I on the inducing points, and on the data points' own diagonal."""
        own = with_diagonal if self.full_cov else lambda tt, value: tt + value
        return GramBlocks(
            lambda: with_diagonal(self.ii, jitter),
            lambda: self.it,
            own(self.tt, tf.cast(jitter, self.tt.dtype)),
            full_cov=self.full_cov,
        )

    def with_data_dtype(self, dtype: tf.DType) -> GramBlocks:
        """The same blocks with those of the data points, `it` and `tt`, in `dtype`."""
        return GramBlocks(
            lambda: self.ii,
            lambda: tf.cast(self.it, dtype),
            tf.cast(self.tt, dtype),
            full_cov=self.full_cov,
        )

    def split(self, sizes: list[int]) -> list[GramBlocks]:
        """Split the sample dimension into parts of `sizes`."""
        parts = (tf.split(block, sizes) for block in (self.ii, self.it, self.tt))
        return [GramBlocks(*part) for part in zip(*parts, strict=True)]

    def jointly(self, function: Callable[[GramBlocks], GramBlocks]) -> GramBlocks:
        """`function` of the M + N points as inducing points, parted again with the whole of `tt`."""
        whole = function(self._joined()).ii
        M = tf.shape(self.ii)[-1]
        return GramBlocks(whole[..., :M, :M], whole[..., :M, M:], whole[..., M:, M:])

    def _joined(self) -> GramBlocks:
        """The blocks, the data points' whole one among them, with all points as inducing points."""
        above = tf.concat([self.ii, tf.cast(self.it, self.ii.dtype)], -1)
        below = tf.cast(tf.concat([transpose(self.it), self.tt], -1), self.ii.dtype)
        return GramBlocks.of_inducing(tf.concat([above, below], -2))

    def scaled_distances_ii(self, scale: tf.Tensor, shift: tf.Tensor) -> tf.Tensor:
        """shift - scale R_ij / 2 with R_ij = G_ii - 2 G_ij + G_jj, not clipped [..., M, M].

        :param scale: scalar.
        :param shift: scalar.
        """
        diag = 0.5 * self.ii_diag[..., :, None]
        return shift + scale * (self.ii - diag - transpose(diag))

    def scaled_distances_it(self, scale: tf.Tensor, shift: tf.Tensor) -> tf.Tensor:
        """As `scaled_distances_ii`, between inducing and data points [..., M, N]."""
        dtype = self.it.dtype
        diag = tf.cast(0.5 * self.ii_diag[..., :, None], dtype)
        distances = self.it - diag - 0.5 * self.tt[..., None, :]
        return tf.cast(shift, dtype) + tf.cast(scale, dtype) * distances

    def squared_distances_ii(self) -> tf.Tensor:
        """R_ij = G_ii - 2 G_ij + G_jj [..., M, M], clipped at 0 and 0 on the diagonal."""
        minus_two = tf.constant(-2.0, self.ii_diag.dtype)
        squared = self.scaled_distances_ii(minus_two, tf.zeros_like(minus_two))
        return tf.nn.relu(tf.linalg.set_diag(squared, tf.zeros_like(self.ii_diag)))

    def squared_distances_it(self) -> tf.Tensor:
        """As `squared_distances_ii`, between inducing and data points [..., M, N]."""
        minus_two = tf.constant(-2.0, self.ii_diag.dtype)
        return tf.nn.relu(self.scaled_distances_it(minus_two, tf.zeros_like(minus_two)))


class FeatureBlocks(GramBlocks):
    """The Gram matrix of features: ii = F_i F_i^T, it = F_i F_t, tt = |F_t|^2 + own, formed when asked.

    :param inducing: F_i [..., M, D], D features of each inducing point.
    :param data: F_t [..., D, N], the features of the data points in columns.
    :param own: squared length [..., N] that each data point has beside them, in a direction of its own.
    :param full_cov: whether `tt` is the whole block F_t^T F_t [..., N, N]; not with `own`.

    >>> G = gpflow_dkp.gram.FeatureBlocks(X[:3], X.T)
    >>> np.allclose(G.it, X[:3] @ X.T), np.allclose(G.tt, np.sum(X**2, axis=1))
    (True, True)
    >>> np.allclose(G.squared_distances_ii()[0, 1], np.sum((X[0] - X[1]) ** 2))
    True
    """

    def __init__(
        self,
        inducing: tf.Tensor,
        data: tf.Tensor,
        own: tf.Tensor | None = None,
        *,
        full_cov: bool = False,
    ) -> None:
        if full_cov and own is not None:
            raise ValueError("FeatureBlocks: got own with full_cov=True, needs one of them")
        self.inducing = inducing
        self.data = data
        self.own = own
        self._full_cov = full_cov

    @classmethod
    def of_inducing(cls, inducing: tf.Tensor) -> FeatureBlocks:
        """The features [..., M, D] of inducing points and no data points."""
        inducing = tf.convert_to_tensor(inducing)
        return cls(inducing, transpose(inducing)[..., :0])

    @property
    def full_cov(self) -> bool:
        """Whether the data points' whole block is held."""
        return bool(self._full_cov)

    def with_data_dtype(self, dtype: tf.DType) -> FeatureBlocks:
        """The same features with those of the data points in `dtype`."""
        own = None if self.own is None else tf.cast(self.own, dtype)
        data = tf.cast(self.data, dtype)
        return FeatureBlocks(self.inducing, data, own, full_cov=self.full_cov)

    def split(self, sizes: list[int]) -> list[GramBlocks]:
        """Split the sample dimension into parts of `sizes`."""
        tensors = [part for part in (self.inducing, self.data, self.own) if part is not None]
        parts = zip(*(tf.split(tensor, sizes) for tensor in tensors), strict=True)
        return [FeatureBlocks(*part, full_cov=self.full_cov) for part in parts]

    def _joined(self) -> FeatureBlocks:
        data = tf.cast(transpose(self.data), self.inducing.dtype)
        return FeatureBlocks.of_inducing(tf.concat([self.inducing, data], -2))

    @cached_property
    def ii(self) -> tf.Tensor:
        """Inducing-inducing block [..., M, M]."""
        return tf.matmul(self.inducing, self.inducing, transpose_b=True)

    @cached_property
    def it(self) -> tf.Tensor:
        """Inducing-data block [..., M, N]."""
        return tf.cast(self.inducing, self.data.dtype) @ self.data

    @cached_property
    def tt(self) -> tf.Tensor:
        """The data points' own diagonal [..., N], or the whole block [..., N, N]."""
        if self.full_cov:
            return tf.matmul(self.data, self.data, transpose_a=True)
        squared_norm = tf.reduce_sum(tf.square(self.data), -2)
        return squared_norm if self.own is None else squared_norm + self.own

    @cached_property
    def ii_diag(self) -> tf.Tensor:
        """Diagonal of `ii` [..., M]."""
        return tf.reduce_sum(tf.square(self.inducing), -1)

    def scaled_distances_ii(self, scale: tf.Tensor, shift: tf.Tensor) -> tf.Tensor:
        """As in `GramBlocks`, in one product [f, -|f|^2/2, 1] [f; 1; -|f|^2/2]."""
        norms = -0.5 * self.ii_diag[..., :, None]
        right = tf.concat([self.inducing, tf.ones_like(norms), norms], -1)
        return tf.matmul(self._scaled(scale, shift), right, transpose_b=True)

    def scaled_distances_it(self, scale: tf.Tensor, shift: tf.Tensor) -> tf.Tensor:
        """As in `GramBlocks`, in one product."""
        norms = -0.5 * self.tt[..., None, :]
        data = tf.concat([self.data, tf.ones_like(norms), norms], -2)
        return tf.cast(self._scaled(scale, shift), data.dtype) @ data

    def _scaled(self, scale: tf.Tensor, shift: tf.Tensor) -> tf.Tensor:
        """[scale f, -scale |f|^2/2 + shift, scale] of the inducing points."""
        norms = -0.5 * self.ii_diag[..., :, None]
        parts = [scale * self.inducing, scale * norms + shift, scale * tf.ones_like(norms)]
        return tf.concat(parts, -1)


class InputBlocks(FeatureBlocks):
    """The inputs themselves: what a kernel on inputs turns into a covariance.

    As `FeatureBlocks` they are the inputs' inner products, for a layer that has no kernel.

    :param inducing_variable: Z [M, D], an array or a GPflow inducing variable.
    :param X: [N, D], default no data points.
    :param full_cov: whether the data points' whole block is meant.

    >>> kernel = gpflow.kernels.SquaredExponential(lengthscales=[1.0, 2.0])
    >>> inputs = gpflow_dkp.gram.InputBlocks(X[:3], X)
    >>> np.allclose(gpflow_dkp.gram.covariance(kernel, inputs).it, kernel(X[:3], X))
    True
    """

    def __init__(
        self,
        inducing_variable: InducingVariables | tf.Tensor,
        X: tf.Tensor | None = None,
        *,
        full_cov: bool = False,
    ) -> None:
        given = isinstance(inducing_variable, InducingVariables)
        Z = tf.convert_to_tensor(inducing_variable.Z if given else inducing_variable)
        self.inducing_variable = inducing_variable
        self.X = Z[:0] if X is None else tf.convert_to_tensor(X)
        super().__init__(Z, transpose(self.X), full_cov=full_cov)


@check_shapes("matrix: [batch..., M, M]", "return: [batch..., M, M]")
def with_diagonal(matrix: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    """`matrix` [..., M, M] with `value` added to its diagonal."""
    # Adding a constant matrix, whose gradient is the identity, beats writing the diagonal.
    return matrix + value * tf.eye(tf.shape(matrix)[-1], dtype=matrix.dtype)


def _value(block: Block) -> tf.Tensor:
    return block() if callable(block) else block
