"""Every package's `__all__` is its table of contents."""

from __future__ import annotations

import importlib
import subprocess
import sys
import types

import pytest

import gpflow_dkp

PACKAGES = [
    "gpflow_dkp",
    "gpflow_dkp.bijectors",
    "gpflow_dkp.distributions",
    "gpflow_dkp.gram",
    "gpflow_dkp.layers",
    "gpflow_dkp.models",
    "gpflow_dkp.saving",
    "gpflow_dkp.sklearn",
    "gpflow_dkp.tables",
    "gpflow_dkp.training",
    "bayesian_benchmarks",
    "bayesian_benchmarks.datasets",
    "bayesian_benchmarks.models",
    "bayesian_benchmarks.report",
    "bayesian_benchmarks.sweep",
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


def test_one_import_reaches_every_module_of_the_contents() -> None:
    """And none of the benchmark. In a fresh process: here another test may have imported them."""
    program = (
        "import sys, gpflow_dkp; assert 'bayesian_benchmarks' not in sys.modules;"
        "modules = [getattr(gpflow_dkp, n) for n in gpflow_dkp.__all__ if n != 'load'];"
        "print(*(module.__name__ for module in modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    reached = done.stdout.split()
    assert reached == [f"gpflow_dkp.{name}" for name in gpflow_dkp.__all__ if name != "load"]
    for name in ("likelihoods", "means", "mixture", "random", "wasserstein"):
        assert f"gpflow_dkp.{name}" in reached
