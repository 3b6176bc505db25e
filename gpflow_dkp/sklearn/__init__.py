"""Estimators with scikit-learn's interface: results in the data's own units, scaling inside.

`estimators` has the classes, `base`, `regression` and `classification` what they share; `choice` compares
depths and kernels; `compiled` keeps traced training steps and predictions for the fits that follow.
"""

from .estimators import (
    DGPRegressor,
    DIWPClassifier,
    DIWPRegressor,
    DWPClassifier,
    DWPRegressor,
    GWIClassifier,
    GWIRegressor,
    LatentVariableDGPRegressor,
    NNGPRegressor,
)

__all__ = [
    "DGPRegressor",
    "DIWPClassifier",
    "DIWPRegressor",
    "DWPClassifier",
    "DWPRegressor",
    "GWIClassifier",
    "GWIRegressor",
    "LatentVariableDGPRegressor",
    "NNGPRegressor",
]
