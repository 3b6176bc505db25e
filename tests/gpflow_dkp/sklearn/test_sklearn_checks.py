"""scikit-learn's own checks of all estimators, with settings as small as the checks allow.

Nearly all of their time is TensorFlow's, which traces the steps of each number of features and outputs: one
layer is enough, and estimators that share all but the building of their model with another that has every
check are checked where that can matter. `GWI`'s sparse GP starts at its optimum for targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from gpflow_dkp.sklearn import (
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

TINY: dict[str, Any] = {"num_inducing": 5, "prediction_samples": 5, "random_state": 0}
DEEP: dict[str, Any] = {**TINY, "num_samples": 2, "num_steps": 100}

ESTIMATORS = [
    DWPRegressor(**DEEP, depth=1),
    DWPClassifier(**DEEP, depth=1),
]

OTHER_MODELS = [
    DGPRegressor(**DEEP, depth=1),
    DIWPRegressor(**DEEP, depth=1),
    NNGPRegressor(**DEEP, depth=1),
    DIWPClassifier(**DEEP, depth=1),
    LatentVariableDGPRegressor(**TINY, architecture="LV-GP", num_steps=100),
    GWIRegressor(**TINY, mean="svgp", num_steps=5),
    GWIClassifier(**TINY, mean="svgp", num_steps=5),
]
"""What `DWPRegressor` and `DWPClassifier` do, with other models and other parameters."""

OF_PARAMETERS_AND_MODELS = {
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
    "check_estimators_overwrite_params",
    "check_dict_unchanged",
    "check_estimators_pickle",
    "check_fit_idempotent",
    "check_regressors_train",
    "check_classifiers_train",
    # Numbers of rows, features, outputs and classes for which a model is built
    "check_fit2d_1sample",
    "check_fit2d_1feature",
    "check_regressor_multioutput",
    "check_regressors_int",
    "check_classifiers_one_label",
    "check_classifiers_classes",
}

WEIGHTS_ARE_REFUSED = "the bound weighs all rows alike: a sample_weight other than None is an error"
WITH_WEIGHTS = (
    "check_sample_weights_pandas_series",
    "check_sample_weights_not_an_array",
    "check_sample_weights_list",
    "check_all_zero_sample_weights_error",
    "check_sample_weights_shape",
    "check_sample_weights_not_overwritten",
    "check_sample_weight_equivalence_on_dense_data",
)
OF_CLASSIFIERS = ("check_classifiers_one_label_sample_weights",)


def expected_failures(estimator: BaseEstimator) -> dict[str, str]:
    names = WITH_WEIGHTS + (OF_CLASSIFIERS if is_classifier(estimator) else ())
    return dict.fromkeys(names, WEIGHTS_ARE_REFUSED)


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
def test_scikit_learn_check(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)


def all_of_other_models() -> Iterator[tuple[BaseEstimator, Any]]:
    for estimator in OTHER_MODELS:
        for _, check in estimator_checks_generator(estimator):
            yield estimator, check


def of_other_models() -> Iterator[Any]:
    for estimator, check in all_of_other_models():
        name, is_variant = check.func.__name__, bool(check.keywords)  # of memory maps and types
        if name in OF_PARAMETERS_AND_MODELS and not is_variant:
            yield pytest.param(estimator, check, id=f"{type(estimator).__name__}-{name}")


@pytest.mark.parametrize(("estimator", "check"), of_other_models())
def test_scikit_learn_check_of_other_models(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)


def test_no_check_was_renamed() -> None:
    assert {check.func.__name__ for _, check in all_of_other_models()} >= OF_PARAMETERS_AND_MODELS
