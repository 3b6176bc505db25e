"""Congruence transformations of Gram matrices."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_dkp.bijectors.parameters import (
    as_parameter,
    check_event_shape,
    check_finite_values,
    check_lower_triangular,
    floating_dtype,
    gram_rank,
    matrix_dimension,
)
from gpflow_dkp.linalg import half_logdet_from_chol


class Congruence(tfp.bijectors.Bijector):
    """Compute `G = A C A^T` for Gram matrices C [..., P, P] of rank p = min(P, df).

    For p < P the log-det-Jacobian depends on C. It is [UAI23] equation 13 with |det A|^nu, which
    the paper misprints.

    :param A: invertible matrix [..., P, P].
    :param df: degrees of freedom of C, which fix its rank: an integer >= 1, or a real > P - 1.
    :param lower_triangular: whether A is lower triangular. Solves are then cheaper, the
        log-det-Jacobian constant, and what is above the diagonal of A is ignored when A is a
        variable, and an error otherwise.
    :raises ValueError: when A is not square, or not triangular though said to be, or `df` is not
        allowed.

    >>> bijector = gpflow_dkp.bijectors.Congruence(2.0 * np.eye(3), df=1)
    >>> C = np.ones([3, 3])  # of rank 1: three free entries, each times 4
    >>> np.allclose(bijector.forward(C), 4.0 * C)
    True
    >>> np.allclose(bijector.forward_log_det_jacobian(C), 3.0 * np.log(4.0))
    True
    """

    def __init__(
        self,
        A: Any,
        df: Any,
        *,
        lower_triangular: bool = False,
        validate_args: bool = False,
        name: str = "congruence",
    ) -> None:
        parameters = dict(locals())
        dtype = floating_dtype(A)
        self._A = as_parameter(A, dtype, "A")
        self._dimension = matrix_dimension("A", self._A)
        self._rank = gram_rank(df, self._dimension)
        self._lower_triangular = lower_triangular
        if lower_triangular:
            check_lower_triangular("A", self._A, positive_diagonal=False)
        else:
            check_finite_values("A", self._A)
        super().__init__(
            forward_min_event_ndims=2,
            is_constant_jacobian=lower_triangular or self._rank == self._dimension,
            dtype=dtype,
            validate_args=validate_args,
            parameters=parameters,
            name=name,
        )

    @classmethod
    def _parameter_properties(cls, dtype: Any) -> dict[str, Any]:
        return {"A": tfp.util.ParameterProperties(event_ndims=2)}

    @property
    def A(self) -> Any:
        """The matrix [..., P, P]."""
        return self._A

    @property
    def rank(self) -> int:
        """The rank p = min(P, df) of C and G."""
        return self._rank

    def factor_log_det_jacobian(self, factor: tf.Tensor) -> tf.Tensor:
        """The forward log-det-Jacobian at `C = factor factor^T`, without factorising C.

        :param factor: any factor of C, [..., P, p].
        :return: the log-det-Jacobian [...].
        :raises ValueError: when `factor` has another shape.
        """
        check_event_shape("factor", factor, [self._dimension, self._rank], "[..., P, p]")
        constant = self.constant_log_det_jacobian()
        if constant is not None:
            return constant
        transformed = self._operator().matmul(factor)
        return self._log_det_jacobian(
            _log_abs_det(transformed[..., : self._rank, :])
            - _log_abs_det(factor[..., : self._rank, :])
        )

    def constant_log_det_jacobian(self) -> tf.Tensor | None:
        """The forward log-det-Jacobian [...] where no C enters it, else `None`."""
        constant = self._constant_log_det_change()
        return None if constant is None else self._log_det_jacobian(constant)

    def log_abs_det(self) -> tf.Tensor:
        """log |det A| [...]."""
        return self._log_abs_det_leading(self._dimension)

    def to_dense(self) -> tf.Tensor:
        """A [..., P, P], zero above the diagonal when it is lower triangular."""
        return self._operator().to_dense()

    def _operator(self) -> tf.linalg.LinearOperator:
        A = tf.convert_to_tensor(self.A)
        if self._lower_triangular:
            return tf.linalg.LinearOperatorLowerTriangular(A)
        return tf.linalg.LinearOperatorFullMatrix(A, is_square=True)

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        check_event_shape("C", x, [self._dimension, self._dimension], "[..., P, P]")
        operator = self._operator()
        return operator.matmul(operator.matmul(x), adjoint_arg=True)

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        check_event_shape("G", y, [self._dimension, self._dimension], "[..., P, P]")
        operator = self._operator()
        return operator.solve(operator.solve(y), adjoint_arg=True)

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        constant = self.constant_log_det_jacobian()
        if constant is not None:
            return constant
        return self._log_det_jacobian(self._half_log_det(self._forward(x)) - self._half_log_det(x))

    def _half_log_det(self, gram: tf.Tensor) -> tf.Tensor:
        top = tf.linalg.cholesky(gram[..., : self._rank, : self._rank])
        return half_logdet_from_chol(top)

    def _constant_log_det_change(self) -> tf.Tensor | None:
        """The change of logdet G[:p, :p] / 2 where it does not depend on C, else `None`."""
        # A block of the leading p rows and columns is transformed by itself: by the leading block
        # of a triangular A, and, for p = P, by the whole of any A.
        if self._lower_triangular or self._rank == self._dimension:
            return self._log_abs_det_leading(self._rank)
        return None

    def _log_abs_det_leading(self, size: int) -> tf.Tensor:
        """log |det A[:size, :size]|."""
        leading = tf.convert_to_tensor(self.A)[..., :size, :size]
        if self._lower_triangular:
            return half_logdet_from_chol(tf.abs(leading))
        return _log_abs_det(leading)

    def _log_det_jacobian(self, half_log_det_change: tf.Tensor) -> tf.Tensor:
        # Let F = R O be any P x p matrix, R lower trapezoidal with a positive diagonal and O
        # orthogonal, and G = F F^T = R R^T. Writing (dX) for Lebesgue measure on the free entries,
        #   (dF) = prod_j R_jj^{p - j} (dR) (dO),            the LQ decomposition,
        #   (dG) = 2^p prod_j R_jj^{P - j + 1} (dR),         see OuterProduct,
        # so that (dF) = 2^{-p} |G[:p, :p]|^{(p - P - 1) / 2} (dG) (dO).
        # F -> A F takes G to A G A^T and multiplies (dF) by |det A|^p, one factor a column.
        # Hence, with C before and G after the map,
        #   |G[:p, :p]|^{(p - P - 1) / 2} (dG) = |det A|^p |C[:p, :p]|^{(p - P - 1) / 2} (dC),
        #   log |dG / dC| = p log |det A| + (P + 1 - p) (logdet G[:p, :p] - logdet C[:p, :p]) / 2.
        # At p = P the bracket is 2 log |det A|, which gives the familiar (P + 1) log |det A|.
        log_abs_det = self._log_abs_det_leading(self._dimension)
        return self._rank * log_abs_det + (self._dimension + 1 - self._rank) * half_log_det_change


def _log_abs_det(matrix: tf.Tensor) -> tf.Tensor:
    return tf.linalg.slogdet(matrix)[1]
