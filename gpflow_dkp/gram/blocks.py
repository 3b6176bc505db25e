"""Gram matrices in blocks: inducing-inducing, inducing-data, and the data points' own diagonal."""

from __future__ import annotations

from functools import cached_property

import tensorflow as tf

from ..linalg import transpose


class GramBlocks:
    """A Gram matrix over M inducing and N data points, without its N x N block.

    :param ii: inducing-inducing [..., M, M].
    :param it: inducing-data [..., M, N].
    :param tt: the data points' own diagonal [..., N].

    The leading dimensions, if any, are the samples S. Shapes that do not agree raise `ValueError`.
    """

    def __init__(self, ii: tf.Tensor, it: tf.Tensor, tt: tf.Tensor) -> None:
        ii, it, tt = (tf.convert_to_tensor(block) for block in (ii, it, tt))
        shapes = ii.shape, it.shape, tt.shape
        agree = (
            ii.shape[-1:].is_compatible_with(ii.shape[-2:-1])
            and ii.shape[:-1].is_compatible_with(it.shape[:-1])
            and it.shape[-1:].is_compatible_with(tt.shape[-1:])
            and it.shape[:-2].is_compatible_with(tt.shape[:-1])
        )
        if not agree:
            raise ValueError(
                f"GramBlocks: got shapes {shapes[0]}, {shapes[1]}, {shapes[2]}; "
                "they must be ii [..., M, M], it [..., M, N], tt [..., N]"
            )
        self._blocks = ii, it, tt

    @property
    def ii(self) -> tf.Tensor:
        """Inducing-inducing block [..., M, M]."""
        return self._blocks[0]

    @property
    def it(self) -> tf.Tensor:
        """Inducing-data block [..., M, N]."""
        return self._blocks[1]

    @property
    def tt(self) -> tf.Tensor:
        """The data points' own diagonal [..., N]."""
        return self._blocks[2]

    @property
    def blocks(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """`ii`, `it` and `tt`."""
        return self.ii, self.it, self.tt

    @property
    def ii_diag(self) -> tf.Tensor:
        """Diagonal of `ii` [..., M]."""
        return tf.linalg.diag_part(self.ii)

    def with_jitter(self, jitter: tf.Tensor) -> GramBlocks:
        """G + jitter I on the inducing points, and jitter on the data points' own diagonal."""
        # Adding a constant matrix, whose gradient is the identity, beats writing the diagonal.
        ii = self.ii + jitter * tf.eye(tf.shape(self.ii)[-1], dtype=self.ii.dtype)
        return GramBlocks(ii, self.it, self.tt + tf.cast(jitter, self.tt.dtype))

    def with_data_dtype(self, dtype: tf.DType) -> GramBlocks:
        """The same blocks with those of the data points, `it` and `tt`, in `dtype`."""
        return GramBlocks(self.ii, tf.cast(self.it, dtype), tf.cast(self.tt, dtype))

    def split(self, sizes: list[int]) -> list[GramBlocks]:
        """Split the sample dimension into parts of `sizes`."""
        parts = (tf.split(block, sizes) for block in (self.ii, self.it, self.tt))
        return [GramBlocks(*part) for part in zip(*parts, strict=True)]

    def scaled_distances(self, scale: tf.Tensor, shift: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """shift - scale R_ij / 2 with R_ij = G_ii - 2 G_ij + G_jj, not clipped.

        :param scale: scalar.
        :param shift: scalar.
        :returns: the inducing-inducing [..., M, M] and inducing-data [..., M, N] blocks.
        """
        scale_it = tf.cast(scale, self.it.dtype)
        shift_it = tf.cast(shift, self.it.dtype)
        diag = 0.5 * self.ii_diag[..., :, None]
        ii = shift + scale * (self.ii - diag - transpose(diag))
        diag_it = tf.cast(diag, self.it.dtype)
        it = shift_it + scale_it * (self.it - diag_it - 0.5 * self.tt[..., None, :])
        return ii, it

    def squared_distances(self) -> tuple[tf.Tensor, tf.Tensor]:
        """R_ij = G_ii - 2 G_ij + G_jj, clipped at 0 and 0 on the diagonal of `ii`.

        :returns: the inducing-inducing [..., M, M] and inducing-data [..., M, N] blocks.
        """
        ii, it = self.scaled_distances(
            tf.constant(-2.0, self.ii.dtype), tf.zeros([], self.ii.dtype)
        )
        ii = tf.linalg.set_diag(ii, tf.zeros_like(self.ii_diag))
        return tf.nn.relu(ii), tf.nn.relu(it)


class FeatureBlocks(GramBlocks):
    """The Gram matrix of features: ii = F_i F_i^T, it = F_i F_t, tt = |F_t|^2 + own, formed when asked.

    :param inducing: F_i [..., M, D], D features of each inducing point.
    :param data: F_t [..., D, N], the features of the data points in columns.
    :param own: squared length [..., N] that each data point has beside them, in a direction of its own.
    """

    def __init__(self, inducing: tf.Tensor, data: tf.Tensor, own: tf.Tensor | None = None) -> None:
        self.inducing = inducing
        self.data = data
        self.own = own

    def split(self, sizes: list[int]) -> list[GramBlocks]:
        """Split the sample dimension into parts of `sizes`."""
        tensors = [part for part in (self.inducing, self.data, self.own) if part is not None]
        parts = zip(*(tf.split(tensor, sizes) for tensor in tensors), strict=True)
        return [FeatureBlocks(*part) for part in parts]

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
        """The data points' own diagonal [..., N]."""
        squared_norm = tf.reduce_sum(tf.square(self.data), -2)
        return squared_norm if self.own is None else squared_norm + self.own

    @cached_property
    def ii_diag(self) -> tf.Tensor:
        """Diagonal of `ii` [..., M]."""
        return tf.reduce_sum(tf.square(self.inducing), -1)

    def scaled_distances(self, scale: tf.Tensor, shift: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """As in `GramBlocks`, in one product [f, -|f|^2/2, 1] [f; 1; -|f|^2/2] a block."""
        norm_i = -0.5 * self.ii_diag[..., :, None]
        ones_i = tf.ones_like(norm_i)
        left = tf.concat([scale * self.inducing, scale * norm_i + shift, scale * ones_i], -1)
        right = tf.concat([self.inducing, ones_i, norm_i], -1)
        norm_t = -0.5 * self.tt[..., None, :]
        data = tf.concat([self.data, tf.ones_like(norm_t), norm_t], -2)
        return tf.matmul(left, right, transpose_b=True), tf.cast(left, data.dtype) @ data
