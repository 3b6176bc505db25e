"""Gram matrices in blocks, and GPflow kernels evaluated on them."""

from .blocks import FeatureBlocks, GramBlocks
from .covariance import (
    KernelNotComputableFromGram,
    check_computable_from_gram,
    covariance,
    from_inputs,
)
from .features import ReLUFeatures

__all__ = [
    "FeatureBlocks",
    "GramBlocks",
    "KernelNotComputableFromGram",
    "ReLUFeatures",
    "check_computable_from_gram",
    "covariance",
    "from_inputs",
]
