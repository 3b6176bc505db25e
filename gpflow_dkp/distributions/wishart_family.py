"""What the Wishart and the inverse Wishart distributions have in common."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_dkp.bijectors.parameters import (
    as_parameter,
    check_event_shape,
    check_lower_triangular,
    floating_dtype,
    is_variable,
    matrix_dimension,
)
from gpflow_dkp.distributions.bartlett_factor import BartlettFactor, df_event_ndims


class WishartFamily(tfp.distributions.Distribution):
    """A distribution over G = F F^T, with F a function of a standard Wishart's Bartlett factor.

    A subclass gives F in `_factor` and the density in `_log_prob` and `_factor_log_prob`.

    :param df: degrees of freedom. A Python integer >= 1; or a real > P - 1, or a tensor [...] of
        such.
    :param scale_tril: Cholesky factor of the scale matrix, [..., P, P].
    :raises ValueError: for a `df` that is not allowed, a `scale_tril` that is not square, or is
        known and not a Cholesky factor.
    """

    def __init__(
        self,
        df: Any,
        scale_tril: Any,
        *,
        validate_args: bool,
        allow_nan_stats: bool,
        parameters: dict[str, Any],
        name: str,
    ) -> None:
        with tf.name_scope(name) as name:
            dtype = floating_dtype(df, scale_tril)
            self._scale_tril = as_parameter(scale_tril, dtype, "scale_tril")
            self._dimension = matrix_dimension("scale_tril", self._scale_tril)
            check_lower_triangular("scale_tril", self._scale_tril, positive_diagonal=True)
            self._bartlett = BartlettFactor(
                df, self._dimension, dtype=dtype, validate_args=validate_args
            )
            super().__init__(
                dtype=dtype,
                reparameterization_type=tfp.distributions.FULLY_REPARAMETERIZED,
                validate_args=validate_args,
                allow_nan_stats=allow_nan_stats,
                parameters=parameters,
                name=name,
            )

    @property
    def df(self) -> Any:
        """Degrees of freedom."""
        return self._bartlett.df

    @property
    def scale_tril(self) -> Any:
        """Cholesky factor of the scale matrix, [..., P, P]."""
        return self._scale_tril

    @property
    def dimension(self) -> int:
        """The number P of rows and columns of G."""
        return self._dimension

    @property
    def rank(self) -> int:
        """The rank p = min(P, df) of G."""
        return self._bartlett.rank

    def _factor(self, scale_tril: tf.Tensor, bartlett: tf.Tensor) -> tf.Tensor:
        """F [..., P, p] of a Bartlett factor T [..., P, p]."""
        raise NotImplementedError

    def _factor_log_prob(self, scale_tril: tf.Tensor, bartlett: tf.Tensor) -> tf.Tensor:
        """log p(F F^T) [...] for F made from the Bartlett factor T [..., P, p]."""
        raise NotImplementedError

    def _sample_n(self, n: Any, seed: Any = None) -> tf.Tensor:
        bartlett = self._sample_bartlett([n], seed)
        factor = self._factor(tf.convert_to_tensor(self.scale_tril), bartlett)
        return tf.matmul(factor, factor, transpose_b=True)

    def _sample_and_log_prob(self, sample_shape: Any, seed: Any) -> tuple[tf.Tensor, tf.Tensor]:
        scale_tril = tf.convert_to_tensor(self.scale_tril)
        bartlett = self._sample_bartlett(sample_shape, seed)
        factor = self._factor(scale_tril, bartlett)
        gram = tf.matmul(factor, factor, transpose_b=True)
        return gram, self._factor_log_prob(scale_tril, bartlett)

    def _sample_bartlett(self, sample_shape: Any, seed: Any) -> tf.Tensor:
        """Independent Bartlett factors for every member of the batch."""
        batch_shape = self.batch_shape_tensor()
        batched = tfp.distributions.BatchBroadcast(self._bartlett, to_shape=batch_shape)
        return batched.sample(sample_shape, seed=seed)

    def _df_tensor(self) -> tf.Tensor:
        return tf.convert_to_tensor(self.df, dtype=self.dtype)

    def _event_shape(self) -> tf.TensorShape:
        return tf.TensorShape([self._dimension, self._dimension])

    def _event_shape_tensor(self) -> tf.Tensor:
        return tf.constant([self._dimension, self._dimension], dtype=tf.int32)

    def _check_value(self, value: tf.Tensor) -> None:
        check_event_shape("value", value, self.event_shape, "G [..., P, P]")

    def _parameter_control_dependencies(self, is_init: bool) -> list[tf.Operation]:
        if not self.validate_args or is_init == is_variable(self.scale_tril):
            return []
        diagonal = tf.linalg.diag_part(tf.convert_to_tensor(self.scale_tril))
        return [tf.debugging.assert_positive(diagonal, "scale_tril must have a positive diagonal")]

    def _sample_control_dependencies(self, value: tf.Tensor) -> list[tf.Operation]:
        if not self.validate_args:
            return []
        return [
            tf.debugging.assert_near(
                value, tf.linalg.matrix_transpose(value), message="G must be symmetric"
            )
        ]


def wishart_parameter_properties() -> dict[str, tfp.util.ParameterProperties]:
    """Properties of `df` and `scale_tril`, which TFP wants every subclass to state itself."""
    return {
        "df": tfp.util.ParameterProperties(
            event_ndims=df_event_ndims, shape_fn=lambda shape: shape[:-2]
        ),
        "scale_tril": tfp.util.ParameterProperties(
            event_ndims=2, default_constraining_bijector_fn=lambda: tfp.bijectors.FillScaleTriL()
        ),
    }
