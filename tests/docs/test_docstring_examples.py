"""Every public name has an example in its docstring, and every example runs to the result it shows."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import inspect
import re
import socket
from pathlib import Path
from types import ModuleType
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from bayesian_benchmarks.datasets import registry as datasets
from bayesian_benchmarks.models import registry as models
from bayesian_benchmarks.tasks import protocol as tasks

pytest.importorskip("sphinx", reason="the documentation's own code imports it")

DOCS = Path(__file__).resolve().parents[2] / "docs"


def of_docs(path: str) -> ModuleType:
    """A module of the documentation's, which is no package."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, DOCS / path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


docstrings = of_docs("_ext/docstrings.py")
MODULES = (
    *of_docs("check_links.py").PACKAGES,
    "bayesian_benchmarks",
    "bayesian_benchmarks.search_space",
    "bayesian_benchmarks.tuning",
    "gpflow_dkp.likelihoods",
    "gpflow_dkp.mixture",
    "gpflow_dkp.networks",
    "gpflow_dkp.random",
    "gpflow_dkp.selection",
    "gpflow_dkp.sklearn",
    "gpflow_dkp.wasserstein",
)

WITHOUT_DOCSTRING = {
    "gpflow_dkp.means.Mean": "an alias, whose docstring is that of typing's Callable",
    "gpflow_dkp.saving.FORMAT_VERSION": "a number, whose docstring is that of int",
}
"""Public names that can have no docstring of their own, and why."""

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def namespace() -> dict[str, Any]:
    """What examples take as given: docs/api/index.md says it in a block of code."""
    text = (DOCS / "api" / "index.md").read_text(encoding="utf-8")
    (given,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(given, names)
    return names


def public_values(module: str) -> dict[str, Any]:
    """What has examples, by name; what several modules have, of the one that defines it."""
    package = importlib.import_module(module)
    values = {}
    for name in docstrings.public_names(package):
        full = f"{module}.{name}"
        if full in WITHOUT_DOCSTRING:
            continue
        value = inspect.unwrap(getattr(package, name))  # check_shapes writes docstrings of its own
        of_module = [m for m in MODULES if f"{value.__module__}.".startswith(f"{m}.")]
        if max(of_module, key=len, default=module) == module:
            values[full] = value
    return values


def examples(module: str) -> dict[str, list[doctest.DocTest]]:
    """The examples of each public name, a class' own first and then those of its methods."""
    found = {}
    for full, value in public_values(module).items():
        of_docstrings = doctest.DocTestFinder().find(value, full, globs=namespace())
        found[full] = [example for example in of_docstrings if example.examples]
    return found


@pytest.fixture
def own_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A current folder of its own, registries that last for a test, and no network."""

    def refuse(*arguments: object) -> None:
        raise OSError("an example uses the network")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("BAYESIAN_BENCHMARKS_CACHE", str(tmp_path / "cache"))
    for name in ("DATA", "MIRROR"):
        monkeypatch.delenv(f"BAYESIAN_BENCHMARKS_{name}", raising=False)
    for module, names in (
        (datasets, ("_SOURCES", "_TYPES", "_SHARED")),
        (models, ("_SOURCES",)),
        (tasks, ("_TASKS",)),
    ):
        for name in names:
            monkeypatch.setattr(module, name, dict(getattr(module, name)))
    return tmp_path


NAMES = [(module, name) for module in MODULES for name in ("", *public_values(module))]
"""Each module and its public names; "" for its own docstring."""


@pytest.mark.parametrize(("module", "name"), NAMES, ids=[name or module for module, name in NAMES])
def test_examples_run(module: str, name: str, own_surroundings: Path) -> None:
    settings = gpflow.config.config()
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    value = public_values(module)[name] if name else importlib.import_module(module)
    finder = doctest.DocTestFinder(recurse=bool(name))
    for example in finder.find(value, name or module, globs=namespace()):
        tf.random.set_seed(0)
        np.random.seed(0)  # noqa: NPY002  # of libraries that take it
        runner.run(example, out=report.append)
    if report:
        pytest.fail("".join(report), pytrace=False)
    assert gpflow.config.config() == settings
    assert not list(own_surroundings.iterdir())


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_an_example(module: str) -> None:
    missing = [
        name
        for name, found in examples(module).items()
        if not any(example.name == name for example in found)
    ]
    assert not missing


@pytest.mark.parametrize("module", MODULES)
def test_the_documentation_shows_examples_as_they_are(module: str) -> None:
    """None of the marks that make reStructuredText of the rest of a docstring."""
    values = public_values(module)
    for full, found in examples(module).items():
        assert found
        lines = inspect.cleandoc(values[full].__doc__).split("\n")
        text = "\n".join(docstrings.converted(lines, module.partition(".")[0]))
        shown = doctest.DocTestParser().get_examples(text)
        assert [(x.source, x.want) for x in shown] == [
            (x.source, x.want) for x in found[0].examples
        ]


def test_examples_have_the_toy_data_that_the_documentation_says() -> None:
    given = namespace()
    assert {"np", "tf", "gpflow", "gpflow_dkp"} < set(given)
    assert (given["X"].shape, given["Y"].shape) == ((10, 2), (10, 1))


def test_names_without_a_docstring_are_public_and_no_more_than_that() -> None:
    for full in WITHOUT_DOCSTRING:
        module, _, name = full.rpartition(".")
        assert module in MODULES
        value = getattr(importlib.import_module(module), name)
        assert name in docstrings.public_names(importlib.import_module(module))
        assert not inspect.isclass(value)
        assert not inspect.isfunction(value)
