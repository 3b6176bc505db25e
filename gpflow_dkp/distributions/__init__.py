"""Distributions over Gram matrices and their Bartlett factors, as TFP distributions.

Letters: P the dimension, p = min(P, df) the rank, T [..., P, p] a lower-trapezoidal Bartlett
factor, G [..., P, P] a Gram matrix. Densities of G are with respect to Lebesgue measure on the
lower part of its first p columns. Everything is reparametrised; an integer seed is stateless, so
it gives the same numbers on every call, inside and outside `tf.function`.

[UAI23] Ober, Anson, Milsom and Aitchison, An improved variational approximate posterior for the
deep Wishart process. [NeurIPS21] Ober and Aitchison, A variational approximate posterior for the
deep Wishart process. [ICML21] Aitchison, Yang and Ober, Deep kernel processes. Srivastava (2003),
Singular Wishart and multivariate beta distributions, Annals of Statistics.
"""

from gpflow_dkp.distributions.bartlett_factor import BartlettFactor
from gpflow_dkp.distributions.bartlett_law import BartlettLaw
from gpflow_dkp.distributions.generalised_wishart import GeneralisedWishart
from gpflow_dkp.distributions.inverse_wishart import InverseWishart
from gpflow_dkp.distributions.multigamma import log_multigamma, multidigamma
from gpflow_dkp.distributions.wishart import Wishart

__all__ = [
    "BartlettFactor",
    "BartlettLaw",
    "GeneralisedWishart",
    "InverseWishart",
    "Wishart",
    "log_multigamma",
    "multidigamma",
]
