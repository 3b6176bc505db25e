"""Classifiers: labels of any type, probabilities that are what the model says."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn_cases import CLASSIFIERS, toy_data

from gpflow_dkp.sklearn import DWPClassifier

every_classifier = pytest.mark.parametrize("name", CLASSIFIERS)


def labels(X: np.ndarray, num_classes: int) -> np.ndarray:
    names = np.array(["red", "green", "blue"])
    return names[np.digitize(X[:, 0], [0.0] if num_classes == 2 else [-0.7, 0.7])]


@every_classifier
@pytest.mark.parametrize("num_classes", [2, 3])
def test_probabilities_of_string_labels(name: str, num_classes: int) -> None:
    X, _ = toy_data(60)
    y = labels(X, num_classes)
    classifier = clone(CLASSIFIERS[name]).set_params(num_steps=150).fit(X, y)
    assert list(classifier.classes_) == sorted(set(y))
    probability = classifier.predict_proba(X)
    np.testing.assert_allclose(probability.sum(1), 1.0, rtol=1e-12)
    assert np.all(probability >= 0.0)
    np.testing.assert_array_equal(
        classifier.predict(X), classifier.classes_[np.argmax(probability, 1)]
    )
    assert classifier.score(X, y) > 0.8
    own = probability[np.arange(60), np.searchsorted(classifier.classes_, y)]
    np.testing.assert_allclose(classifier.log_density(X, y), np.log(own), rtol=1e-12)
    again = pickle.loads(pickle.dumps(classifier)).predict_proba(X)
    np.testing.assert_allclose(again, probability, rtol=1e-12)


@every_classifier
def test_the_names_of_the_labels_change_nothing(name: str) -> None:
    X, _ = toy_data()
    y = labels(X, 3)
    one = clone(CLASSIFIERS[name]).fit(X, y)
    numbers = np.searchsorted(one.classes_, y) * 10 - 5
    other = clone(CLASSIFIERS[name]).fit(X, numbers)
    assert list(other.classes_) == [-5, 5, 15]
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


def test_bad_labels() -> None:
    X, _ = toy_data()
    with pytest.raises(ValueError, match="y: got labels of one class"):
        DWPClassifier().fit(X, np.full(30, "red"))
    classifier = clone(CLASSIFIERS["GWI"]).fit(X, labels(X, 2))
    with pytest.raises(ValueError, match=r"label .*black"):
        classifier.log_density(X[:1], ["black"])
