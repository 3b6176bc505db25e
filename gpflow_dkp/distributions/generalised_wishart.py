"""The generalised singular Wishart distributions: GW, A-GW and AB-GW."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_dkp.bijectors import Congruence, OuterProduct, RightMultiplyTriL
from gpflow_dkp.bijectors.parameters import (
    as_parameter,
    check_event_shape,
    check_lower_triangular,
    floating_dtype,
    is_variable,
    matrix_dimension,
)
from gpflow_dkp.distributions.bartlett_factor import BartlettFactor, df_event_ndims, is_number
from gpflow_dkp.distributions.wishart import Wishart, check_same_support
from gpflow_dkp.distributions.wishart_divergence import expected_log_ratio, second_moment
from gpflow_dkp.linalg import half_logdet_from_chol


class GeneralisedWishart(tfp.distributions.TransformedDistribution):
    """G = F F^T [..., P, P], F = A T B, with T [..., P, p] a `BartlettFactor`, p = min(P, df).

    It is T pushed through `RightMultiplyTriL(B)`, `OuterProduct(p)` and `Congruence(A, df)`:

    - GW, `A=None, B=None`: A is the triangular `scale_tril` and B the identity ([NeurIPS21]);
    - A-GW, with `A`: dense ([UAI23]);
    - AB-GW, with `A` and `B` ([UAI23]).

    With the default concentration, rate, loc and scale, GW is `Wishart(df, scale_tril)`. The
    density, with respect to Lebesgue measure on the lower part of the first p columns of G, is

        log q(G) = log q(T) - p log 2 - sum_j (P - j + 1) (log T_jj + 2 log |B_jj|) - df log |det A|
                   + (df - P - 1) (log |det F[:p, :]| - sum_j (log T_jj + log |B_jj|))

    where df stands for p when df > P: [UAI23] equations 13, 14, 44 and 48 to 50 with |det A|^df,
    |B_jj| and P, which the paper misprints. B is p x p, never df x df with df > P.

    G does not change with the signs of the columns of B: B and B diag(sign B_jj) are one
    distribution, and diag(B) may be negative.

    `log_prob` of an arbitrary G recovers T by the inverse of the three maps, and trusts G to have
    rank p; `experimental_sample_and_log_prob` uses the T it has drawn. `mean` and `variance` are in
    closed form; so are `entropy`, except for a dense A and df < P, where E log |det F[:p, :]| is
    not, and `tfp.distributions.kl_divergence` from a `Wishart` of the same rank.

    :param df: degrees of freedom. A Python integer >= 1; or a real > P - 1, or a tensor [...] of
        such.
    :param scale_tril: chol(S), [..., P, P]; not used, and may be `None`, when `A` is given.
    :param concentration: positive [..., p]; by default (df - j + 1) / 2.
    :param rate: positive [..., p]; by default 1/2.
    :param loc: [..., P, p], used below the diagonal; by default 0.
    :param scale: positive [..., P, p], used below the diagonal; by default 1.
    :param A: invertible matrix [..., P, P], or `None` for `scale_tril`.
    :param B: lower-triangular matrix [..., p, p] with a non-zero diagonal, or `None` for the
        identity.
    :raises ValueError: when neither `scale_tril` nor `A` is given, for a `df` that is not allowed,
        parameters of the wrong shape or of mixed dtypes, or parameters that are known and wrong.

    >>> q = gpflow_dkp.distributions.GeneralisedWishart(2, np.eye(3))
    >>> G, log_density = q.experimental_sample_and_log_prob(seed=0)
    >>> np.allclose(log_density, gpflow_dkp.distributions.Wishart(2, np.eye(3)).log_prob(G))
    True
    >>> A = np.array([[1.0, 1.0], [0.0, 1.0]])
    >>> np.allclose(gpflow_dkp.distributions.GeneralisedWishart(4, A=A).mean(), 4.0 * A @ A.T)
    True
    """

    def __init__(
        self,
        df: Any,
        scale_tril: Any = None,
        concentration: Any = None,
        rate: Any = None,
        loc: Any = None,
        scale: Any = None,
        A: Any = None,
        B: Any = None,
        *,
        validate_args: bool = False,
        name: str = "GeneralisedWishart",
    ) -> None:
        parameters = dict(locals())
        if scale_tril is None and A is None:
            raise ValueError("scale_tril and A are both None; pass scale_tril for GW, A for A-GW.")
        with tf.name_scope(name) as name:
            left = scale_tril if A is None else A
            dtype = floating_dtype(df, left, concentration, rate, loc, scale, B)
            self._scale_tril = as_parameter(scale_tril, dtype, "scale_tril")
            self._concentration = as_parameter(concentration, dtype, "concentration")
            self._rate = as_parameter(rate, dtype, "rate")
            self._loc = as_parameter(loc, dtype, "loc")
            self._scale = as_parameter(scale, dtype, "scale")
            self._A = as_parameter(A, dtype, "A")
            self._B = as_parameter(B, dtype, "B")
            if A is None:
                check_lower_triangular("scale_tril", self._scale_tril, positive_diagonal=True)
            left = self._scale_tril if A is None else self._A
            dimension = matrix_dimension("scale_tril" if A is None else "A", left)
            bartlett = BartlettFactor(
                df,
                dimension,
                self._concentration,
                self._rate,
                self._loc,
                self._scale,
                dtype=dtype,
                validate_args=validate_args,
            )
            self._congruence = Congruence(left, df, lower_triangular=A is None)
            self._outer_product = OuterProduct(rank=bartlett.rank)
            self._right_multiply = None
            chain = [self._congruence, self._outer_product]
            if B is not None:
                check_event_shape("B", self._B, [bartlett.rank] * 2, "[..., p, p], p = min(P, df)")
                check_lower_triangular("B", self._B, positive_diagonal=False)
                self._right_multiply = RightMultiplyTriL(_with_positive_diagonal(self._B))
                chain.append(self._right_multiply)
            super().__init__(
                distribution=bartlett,
                bijector=tfp.bijectors.Chain(chain),
                validate_args=validate_args,
                parameters=parameters,
                name=name,
            )

    @classmethod
    def _parameter_properties(
        cls, dtype: Any, num_classes: int | None = None
    ) -> dict[str, tfp.util.ParameterProperties]:
        def triangular() -> tfp.bijectors.Bijector:
            return tfp.bijectors.FillScaleTriL()

        def scale_tril_event_ndims(distribution: GeneralisedWishart) -> int | None:
            return 2 if distribution.A is None else tfp.util.ParameterProperties.NO_EVENT_NDIMS

        def unknown(sample_shape: Any) -> Any:
            raise NotImplementedError("the shape depends on df, which the shape of G does not give")

        bartlett = BartlettFactor.parameter_properties(dtype=dtype)
        bartlett = {
            key: properties if key == "df" else properties._replace(shape_fn=unknown)
            for key, properties in bartlett.items()
        }
        Properties = tfp.util.ParameterProperties
        return {
            **bartlett,
            "df": Properties(event_ndims=df_event_ndims, shape_fn=lambda shape: shape[:-2]),
            "scale_tril": Properties(
                event_ndims=scale_tril_event_ndims, default_constraining_bijector_fn=triangular
            ),
            "A": Properties(event_ndims=2, is_preferred=False),
            "B": Properties(
                event_ndims=2, shape_fn=unknown, default_constraining_bijector_fn=triangular
            ),
        }

    @property
    def df(self) -> Any:
        """Degrees of freedom."""
        return self.distribution.df

    @property
    def scale_tril(self) -> Any:
        """chol(S) [..., P, P], or `None`."""
        return self._scale_tril

    @property
    def concentration(self) -> Any:
        """The concentrations [..., p] of T_jj^2, or `None` for the standard Wishart's."""
        return self._concentration

    @property
    def rate(self) -> Any:
        """The rates [..., p] of T_jj^2, or `None` for the standard Wishart's."""
        return self._rate

    @property
    def loc(self) -> Any:
        """The means [..., P, p] of T below its diagonal, or `None` for 0."""
        return self._loc

    @property
    def scale(self) -> Any:
        """The standard deviations [..., P, p] of T below its diagonal, or `None` for 1."""
        return self._scale

    @property
    def A(self) -> Any:
        """The dense matrix [..., P, P] of A-GW and AB-GW, or `None`."""
        return self._A

    @property
    def B(self) -> Any:
        """The lower-triangular matrix [..., p, p] of AB-GW, or `None`."""
        return self._B

    @property
    def dimension(self) -> int:
        """The number P of rows and columns of G."""
        return self.distribution.dimension

    @property
    def rank(self) -> int:
        """The rank p = min(P, df) of G."""
        return self.distribution.rank

    def _sample_and_log_prob(self, sample_shape: Any, seed: Any) -> tuple[tf.Tensor, tf.Tensor]:
        batched = tfp.distributions.BatchBroadcast(
            self.distribution, to_shape=self.batch_shape_tensor()
        )
        bartlett, log_prob = batched.experimental_sample_and_log_prob(sample_shape, seed=seed)
        factor = bartlett
        if self._right_multiply is not None:
            factor = self._right_multiply.forward(bartlett)
            log_prob -= self._right_multiply.forward_log_det_jacobian(bartlett)
        log_prob -= self._outer_product.forward_log_det_jacobian(factor)
        log_prob -= self._congruence.factor_log_det_jacobian(factor)
        return self.bijector.forward(bartlett), log_prob

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        check_event_shape("value", value, [self.dimension] * 2, "G [..., P, P]")
        # Bijectors remember the T of a tensor they have seen, though A or B have changed since or a
        # gradient tape was not there to see it. A new tensor has no past.
        return super()._log_prob(tf.identity(value))

    def _mean(self) -> tf.Tensor:
        # E[G] = A E[T B B^T T^T] A^T
        return self._congruence.forward(second_moment(self.distribution.law, self._dense_B()))

    def _variance(self) -> tf.Tensor:
        # G_ij = sum_{s, t} Q_st x_s x_t is a quadratic form in the independent entries x_s of T,
        # s = (k, c), with Q_{kc, ld} = (A_ik A_jl + A_jk A_il) M_cd / 2, M = B B^T, so that
        #   Var G_ij = 4 sum_s g_s^2 V_s + 4 sum_s g_s Q_ss K3_s + 2 sum_{s, t} Q_st^2 V_s V_t
        #              + sum_s Q_ss^2 K4_s,   g = Q E[x],
        # V, K3 and K4 the entries' cumulants; K3 and K4 are those of the T_kk, and zero for normals.
        law, A, B = self.distribution.law, self._congruence.to_dense(), self._dense_B()
        mean, V = law.moments()
        third, fourth = law.diagonal_cumulants()
        M = tf.eye(self.rank, dtype=self.dtype) if B is None else tf.matmul(B, B, transpose_b=True)
        M_diag = tf.linalg.diag_part(M)
        R = tf.matmul(A, tf.matmul(mean, M))  # g_kc = (A_ik R_jc + A_jk R_ic) / 2
        A2, left = tf.square(A), A[..., : self.rank]
        W = tf.matmul(tf.matmul(V, tf.square(M)), V, transpose_b=True)
        # What is not symmetric in i and j is the half of its symmetric sum.
        half = tf.matmul(tf.matmul(A2, V), tf.square(R), transpose_b=True)
        by_third = tf.square(left) * (2.0 * third * M_diag)[..., tf.newaxis, :]
        half += tf.matmul(by_third, left * R, transpose_b=True)
        half += 0.5 * tf.matmul(tf.matmul(A2, W), A2, transpose_b=True)
        by_fourth = tf.square(left) * (0.5 * fourth * tf.square(M_diag))[..., tf.newaxis, :]
        half += tf.matmul(by_fourth, tf.square(left), transpose_b=True)
        pairs = tf.einsum("...ik,...jk->...ijk", A, A)
        both = tf.einsum("...ijk,...kc,...ic,...jc->...ij", pairs, V, R, R)
        both += 0.5 * tf.einsum("...ijk,...kl,...ijl->...ij", pairs, W, pairs)
        half += both
        return half + tf.linalg.matrix_transpose(half)

    def _entropy(self) -> tf.Tensor:
        of_congruence = self._congruence.constant_log_det_jacobian()
        if of_congruence is None:
            raise NotImplementedError(
                f"the entropy has no closed form for a dense A and rank {self.rank} < dimension "
                f"{self.dimension}: average -log_prob over experimental_sample_and_log_prob, or pass "
                "a triangular scale_tril instead of A."
            )
        # That of T, and the expected log-det-Jacobians of B, of the outer product and of A.
        law = self.distribution.law
        log_diagonal, B = law.mean_log_diagonal(), self._dense_B()
        if B is not None:
            log_diagonal += 2.0 * tf.math.log(tf.linalg.diag_part(B))
        exponents = tf.cast(self.dimension - tf.range(self.rank), self.dtype)
        of_factor = self.rank * math.log(2.0) + tf.reduce_sum(exponents * log_diagonal, axis=-1)
        entropy = law.entropy() + of_factor + of_congruence
        return tf.broadcast_to(entropy, self.batch_shape_tensor())

    def _dense_B(self) -> tf.Tensor | None:
        """B diag(sign B_jj) [..., p, p], or `None` for the identity."""
        return None if self._right_multiply is None else self._right_multiply.to_dense()

    def _sample_control_dependencies(self, value: tf.Tensor) -> list[tf.Operation]:
        if not self.validate_args:
            return []
        return [
            tf.debugging.assert_near(
                value, tf.linalg.matrix_transpose(value), message="G must be symmetric"
            )
        ]


@tfp.distributions.RegisterKL(GeneralisedWishart, Wishart)
def _kl_generalised_wishart(
    q: GeneralisedWishart, p: Wishart, name: str | None = None
) -> tf.Tensor:
    """KL(q || p) [...], minus the expected log ratio of docs/mathematics.md 3."""
    check_same_support(q, p)
    with tf.name_scope(name or "kl_generalised_wishart"):
        law, B = q.distribution.law, q._dense_B()
        scale_tril = tf.convert_to_tensor(p.scale_tril)
        whitened = tf.linalg.triangular_solve(scale_tril, q._congruence.to_dense())
        moved = tf.matmul(whitened, second_moment(law, B))
        return -expected_log_ratio(
            p.df if is_number(p.df) else p._df_tensor(),
            law,
            q._congruence.log_abs_det() - half_logdet_from_chol(scale_tril),
            tf.reduce_sum(moved * whitened, axis=[-2, -1]),
            B=B,
        )


def _with_positive_diagonal(B: Any) -> Any:
    """B diag(sign B_jj), which gives the same G and the positive factor that OuterProduct wants."""

    def flip(matrix: tf.Tensor) -> tf.Tensor:
        return matrix * tf.sign(tf.linalg.diag_part(matrix))[..., tf.newaxis, :]

    return tfp.util.DeferredTensor(B, flip) if is_variable(B) else flip(B)
