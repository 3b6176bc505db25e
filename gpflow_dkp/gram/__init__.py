"""Gram matrices in blocks, and GPflow kernels evaluated on them."""

from .blocks import FeatureBlocks, GramBlocks, InputBlocks
from .composed import Composed
from .covariance import (
    KernelNotComputableFromGram,
    check_computable_from_gram,
    covariance,
    from_inputs,
)
from .features import FeatureKernel, ReLUFeatures
from .shifted import Shifted

__all__ = [
    "Composed",
    "FeatureBlocks",
    "FeatureKernel",
    "GramBlocks",
    "InputBlocks",
    "KernelNotComputableFromGram",
    "ReLUFeatures",
    "Shifted",
    "check_computable_from_gram",
    "covariance",
    "from_inputs",
]
