"""Maps between vectors, Bartlett factors and Gram matrices, each with its log-det-Jacobian.

Letters: P the dimension of a Gram matrix, p = min(P, df) its rank, T and Lambda lower-trapezoidal
P x p matrices, C and G Gram matrices. A rank-p Gram matrix is determined by its first p columns;
its measure is Lebesgue measure on their lower part, P p - p (p - 1) / 2 numbers.
"""

from gpflow_dkp.bijectors.congruence import Congruence
from gpflow_dkp.bijectors.fill_trapezoidal import FillTrapezoidal
from gpflow_dkp.bijectors.outer_product import OuterProduct
from gpflow_dkp.bijectors.relative_tril import RelativeTriL
from gpflow_dkp.bijectors.right_multiply_tril import RightMultiplyTriL
from gpflow_dkp.bijectors.well_conditioned_tril import WellConditionedTriL

__all__ = [
    "Congruence",
    "FillTrapezoidal",
    "OuterProduct",
    "RelativeTriL",
    "RightMultiplyTriL",
    "WellConditionedTriL",
]
