"""The lower-trapezoidal random factor from which the Wishart family is built."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_dkp.bijectors.parameters import (
    as_parameter,
    check_event_shape,
    check_finite_values,
    check_positive_values,
    floating_dtype,
    gram_rank,
    is_variable,
)
from gpflow_dkp.distributions.bartlett_law import BartlettLaw
from gpflow_dkp.random import as_seed


def is_number(df: Any) -> bool:
    """Whether `df` is a plain number, which may be below the dimension, and not a tensor."""
    return isinstance(df, numbers.Real)


def df_event_ndims(distribution: tfp.distributions.Distribution) -> int | None:
    """`event_ndims` of `df`: a plain number takes no part in batch shapes and slicing."""
    return tfp.util.ParameterProperties.NO_EVENT_NDIMS if is_number(distribution.df) else 0


class BartlettFactor(tfp.distributions.Distribution):
    """Lower-trapezoidal T [..., P, p], p = min(P, df), with independent entries:

        T_jj > 0, T_jj^2 ~ Gamma(concentration_j, rate_j),   T_ij ~ Normal(loc_ij, scale_ij), i > j.

    With the default parameters, (df - j + 1) / 2, 1/2, 0 and 1, T T^T is a standard Wishart matrix
    with `df` degrees of freedom (Bartlett's decomposition, for p < P that of Srivastava 2003). With
    free ones it is the generalised singular Wishart of [NeurIPS21] and [UAI23].

    The density is with respect to Lebesgue measure on the entries on and below the diagonal:

        log q(T) = sum_j [log 2 + log T_jj + log Gamma(T_jj^2; concentration_j, rate_j)]
                   + sum_{i > j} log Normal(T_ij; loc_ij, scale_ij).

    T_11 is positive, so (T_11 + n)^2 is not the non-central chi-square that [UAI23] equations 18 to
    22 make of it. `scale` is a standard deviation and `rate` the inverse of a scale.

    :param df: degrees of freedom, which fix p and the default concentration. A Python integer >= 1;
        or, for p = P, a real > P - 1, or a tensor [...] of such.
    :param dimension: P, a Python integer >= 1.
    :param concentration: positive [..., p].
    :param rate: positive [..., p].
    :param loc: [..., P, p]; only what is below the diagonal is used.
    :param scale: positive below the diagonal, [..., P, p]; the rest is not used.
    :param dtype: by default that of the parameters, and float64 when none of them has one.
    :raises ValueError: for a `df` that is not allowed, parameters of the wrong shape, parameters
        that are known and not positive or not finite, mixed dtypes.

    >>> factor = gpflow_dkp.distributions.BartlettFactor(df=2, dimension=3)
    >>> factor.sample(5, seed=0).shape
    TensorShape([5, 3, 2])
    >>> second_moment = np.sum(factor.mean() ** 2 + factor.variance())
    >>> round(float(second_moment), 6)  # the trace of a standard Wishart's mean: df x dimension
    6.0
    """

    def __init__(
        self,
        df: Any,
        dimension: int,
        concentration: Any = None,
        rate: Any = None,
        loc: Any = None,
        scale: Any = None,
        *,
        dtype: Any = None,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "BartlettFactor",
    ) -> None:
        parameters = dict(locals())
        with tf.name_scope(name) as name:
            dtype = floating_dtype(df, concentration, rate, loc, scale, dtype=dtype)
            self._rank = gram_rank(df, dimension)
            self._dimension = int(dimension)
            self._df = df if is_number(df) else as_parameter(df, dtype, "df")
            self._concentration = as_parameter(concentration, dtype, "concentration")
            self._rate = as_parameter(rate, dtype, "rate")
            self._loc = as_parameter(loc, dtype, "loc")
            self._scale = as_parameter(scale, dtype, "scale")
            self._below = np.tri(self._dimension, self._rank, -1, dtype=bool)
            self._check_parameters()
            super().__init__(
                dtype=dtype,
                reparameterization_type=tfp.distributions.FULLY_REPARAMETERIZED,
                validate_args=validate_args,
                allow_nan_stats=allow_nan_stats,
                parameters=parameters,
                name=name,
            )

    @classmethod
    def _parameter_properties(
        cls, dtype: Any, num_classes: int | None = None
    ) -> dict[str, tfp.util.ParameterProperties]:
        def columns(sample_shape: Any) -> Any:
            return tf.concat([sample_shape[:-2], sample_shape[-1:]], axis=0)

        def positive() -> tfp.bijectors.Bijector:
            return tfp.bijectors.Softplus(low=np.finfo(tf.as_dtype(dtype).as_numpy_dtype).eps)

        Properties = tfp.util.ParameterProperties
        return {
            "df": Properties(event_ndims=df_event_ndims, shape_fn=lambda shape: shape[:-2]),
            "concentration": Properties(
                event_ndims=1, shape_fn=columns, default_constraining_bijector_fn=positive
            ),
            "rate": Properties(
                event_ndims=1, shape_fn=columns, default_constraining_bijector_fn=positive
            ),
            "loc": Properties(event_ndims=2),
            "scale": Properties(event_ndims=2, default_constraining_bijector_fn=positive),
        }

    @property
    def df(self) -> Any:
        """Degrees of freedom."""
        return self._df

    @property
    def dimension(self) -> int:
        """The number P of rows."""
        return self._dimension

    @property
    def rank(self) -> int:
        """The number p = min(P, df) of columns."""
        return self._rank

    @property
    def concentration(self) -> tf.Tensor:
        """The Gamma distributions' concentrations [..., p]."""
        if self._concentration is not None:
            return tf.convert_to_tensor(self._concentration)
        df = tf.convert_to_tensor(self._df, dtype=self.dtype)
        return 0.5 * (df[..., tf.newaxis] - tf.range(self._rank, dtype=self.dtype))

    @property
    def rate(self) -> tf.Tensor:
        """The Gamma distributions' rates [..., p]."""
        if self._rate is not None:
            return tf.convert_to_tensor(self._rate)
        return tf.fill([self._rank], tf.constant(0.5, self.dtype))

    @property
    def loc(self) -> tf.Tensor:
        """The means [..., P, p] of the entries below the diagonal, and 0 elsewhere."""
        shape = [self._dimension, self._rank]
        if self._loc is None:
            return tf.zeros(shape, self.dtype)
        loc = tf.convert_to_tensor(self._loc)
        return tf.where(self._below, loc, tf.zeros([], loc.dtype))

    @property
    def scale(self) -> tf.Tensor:
        """The standard deviations [..., P, p] below the diagonal, and 1 elsewhere."""
        shape = [self._dimension, self._rank]
        if self._scale is None:
            return tf.ones(shape, self.dtype)
        scale = tf.convert_to_tensor(self._scale)
        return tf.where(self._below, scale, tf.ones([], scale.dtype))

    @property
    def law(self) -> BartlettLaw:
        """The parameters as tensors, with the moments and the density that follow from them."""
        return BartlettLaw(self.concentration, self.rate, self.loc, self.scale)

    def _event_shape(self) -> tf.TensorShape:
        return tf.TensorShape([self._dimension, self._rank])

    def _event_shape_tensor(self) -> tf.Tensor:
        return tf.constant([self._dimension, self._rank], dtype=tf.int32)

    def _sample_n(self, n: Any, seed: Any = None) -> tf.Tensor:
        normal_seed, gamma_seed = tfp.random.split_seed(as_seed(seed), n=2)
        batch_shape = tf.concat([[n], self.batch_shape_tensor()], axis=0)
        gamma = tf.random.stateless_gamma(
            tf.concat([batch_shape, [self._rank]], axis=0),
            gamma_seed,
            alpha=self.concentration,
            dtype=self.dtype,
        )
        normal = tf.random.stateless_normal(
            tf.concat([batch_shape, self._event_shape_tensor()], axis=0),
            normal_seed,
            dtype=self.dtype,
        )
        return self._assemble(tf.sqrt(gamma / self.rate), self.loc + self.scale * normal)

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        check_event_shape("value", value, self.event_shape, "T [..., P, p]")
        return self.law.log_prob(value)

    def _mean(self) -> tf.Tensor:
        return self._broadcast(self.law.mean(), self._event_shape_tensor())

    def _variance(self) -> tf.Tensor:
        return self._broadcast(self.law.variance(), self._event_shape_tensor())

    def _entropy(self) -> tf.Tensor:
        return self._broadcast(self.law.entropy(), tf.constant([], tf.int32))

    def _broadcast(self, value: tf.Tensor, event_shape: tf.Tensor) -> tf.Tensor:
        shape = tf.concat([self.batch_shape_tensor(), event_shape], axis=0)
        return tf.broadcast_to(value, shape)

    def _assemble(self, diagonal: tf.Tensor, entries: tf.Tensor) -> tf.Tensor:
        """A lower-trapezoidal matrix with this diagonal, and `entries` below it."""
        entries = tf.where(self._below, entries, tf.zeros([], self.dtype))
        batch_shape = tf.broadcast_dynamic_shape(
            tf.broadcast_dynamic_shape(tf.shape(diagonal)[:-1], tf.shape(entries)[:-2]),
            self.batch_shape_tensor(),
        )
        return tf.linalg.set_diag(
            tf.broadcast_to(entries, tf.concat([batch_shape, self._event_shape_tensor()], axis=0)),
            tf.broadcast_to(diagonal, tf.concat([batch_shape, [self._rank]], axis=0)),
        )

    def _check_parameters(self) -> None:
        matrix = [self._dimension, self._rank]
        for name, value in (("concentration", self._concentration), ("rate", self._rate)):
            check_event_shape(name, value, [self._rank], "[..., p] with p = min(P, df)")
            check_positive_values(name, value)
        for name, value in (("loc", self._loc), ("scale", self._scale)):
            check_event_shape(name, value, matrix, "[..., P, p] with p = min(P, df)")
        if self._loc is not None and not is_variable(self._loc):
            check_finite_values("loc", self.loc)
        if self._scale is not None and not is_variable(self._scale):
            check_positive_values("scale", self.scale)

    def _parameter_control_dependencies(self, is_init: bool) -> list[tf.Operation]:
        if not self.validate_args:
            return []
        assertions = []
        if is_init != is_variable(self._df) and not is_number(self._df):
            message = "df must be > dimension - 1"
            assertions.append(
                tf.debugging.assert_greater(
                    tf.convert_to_tensor(self._df),
                    tf.constant(self._dimension - 1, self.dtype),
                    message=message,
                )
            )
        for name in ("concentration", "rate", "scale"):
            value = getattr(self, f"_{name}")
            if value is not None and is_init != is_variable(value):
                assertions.append(
                    tf.debugging.assert_positive(getattr(self, name), f"{name} must be positive")
                )
        return assertions

    def _sample_control_dependencies(self, value: tf.Tensor) -> list[tf.Operation]:
        if not self.validate_args:
            return []
        above = value - tf.linalg.band_part(value, -1, 0)
        return [
            tf.debugging.assert_positive(
                tf.linalg.diag_part(value), "T must have a positive diagonal"
            ),
            tf.debugging.assert_equal(
                above, tf.zeros_like(above), "T must be zero above its diagonal"
            ),
        ]
