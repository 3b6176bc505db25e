"""Every package's `__all__` is its table of contents."""

from __future__ import annotations

import importlib
import types

import pytest

PACKAGES = [
    "gpflow_dkp",
    "gpflow_dkp.bijectors",
    "gpflow_dkp.distributions",
    "gpflow_dkp.gram",
    "gpflow_dkp.layers",
    "gpflow_dkp.models",
    "gpflow_dkp.training",
    "bayesian_benchmarks",
    "bayesian_benchmarks.datasets",
    "bayesian_benchmarks.models",
    "bayesian_benchmarks.results",
    "bayesian_benchmarks.tasks",
]


@pytest.mark.parametrize("name", PACKAGES)
def test_all_names_what_the_package_imports(name: str) -> None:
    package = importlib.import_module(name)
    assert package.__doc__
    assert len(set(package.__all__)) == len(package.__all__)
    imported = {
        key
        for key, value in vars(package).items()
        if not key.startswith("_")
        and not isinstance(value, types.ModuleType)
        and getattr(value, "__module__", "").startswith(name)
    }
    assert imported <= set(package.__all__)
    for exported in package.__all__:
        assert hasattr(package, exported)
