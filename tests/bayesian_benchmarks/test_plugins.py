"""Plugins of installed packages are known wherever a user's own are."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bayesian_benchmarks import Experiment, ResultsStore, list_models, run_experiment, run_task
from bayesian_benchmarks.errors import ConfigError
from bayesian_benchmarks.experiment import load_experiment
from bayesian_benchmarks.models import registry
from bayesian_benchmarks.plugins import import_installed_plugins

HERE = Path(__file__).resolve().parent
SOURCE = """
from pathlib import Path

from bayesian_benchmarks import register_model
from fake_models import build_fake, train

Path(__file__).with_name("imports").open("a").write("x")
register_model("installed", train=train, uses_tensorflow=False)(build_fake)
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages, this process' and the workers'; what it registers is forgotten."""
    folder = tmp_path / "site"
    folder.mkdir()
    path = [str(folder), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.syspath_prepend(folder)
    importlib.import_module("fake_models")  # whose registrations other tests need too
    monkeypatch.setattr(registry, "_SOURCES", dict(registry._SOURCES))
    import_installed_plugins.cache_clear()
    yield folder
    import_installed_plugins.cache_clear()
    sys.modules.pop("installed_plugin", None)


def install(site: Path, package: str, value: str, source: str = SOURCE) -> None:
    (site / "installed_plugin.py").write_text(source)
    info = site / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[bayesian_benchmarks.plugins]\nmine = {value}\n")


@pytest.mark.parametrize("jobs", [0, 1])
def test_an_installed_packages_model_runs_without_being_named(
    site: Path, tmp_path: Path, jobs: int
) -> None:
    install(site, "some-models", "installed_plugin")
    assert "installed" not in list_models()
    experiment = Experiment(
        models=("installed",),
        datasets=("diabetes",),
        splits=(0,),
        depths=(2,),
        settings={"num_steps": 3, "test_samples": 5, "elbo_samples": 5},
    )
    store = ResultsStore(tmp_path / "results.sqlite")
    report = run_experiment(experiment, store, jobs=jobs, progress=False)
    assert report.num_ok == 1, store.rows()[0].error
    assert (site / "imports").read_text() == "x" * (1 + jobs)  # once a process


def test_run_task_knows_it_too(site: Path) -> None:
    install(site, "some-models", "installed_plugin")
    assert "test_rmse" in run_task("diabetes", "installed")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("installed_plugin", "RuntimeError: no licence found"),
        ("no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("json:nothing", "AttributeError: module 'json' has no attribute 'nothing'"),
    ],
)
def test_a_broken_one_is_one_line_with_its_package(
    site: Path, tmp_path: Path, value: str, reason: str
) -> None:
    install(site, "broken-models", value, "raise RuntimeError('no licence\\nfound')")
    config = tmp_path / "a.yaml"
    config.write_text("models: [dgp]\ndatasets: [diabetes]\n")
    for _ in range(2):  # it stays broken
        with pytest.raises(ConfigError) as caught:
            load_experiment(config)
        assert str(caught.value) == (
            f"{config}: Cannot import the plugin {value} of broken-models ({reason}); mend it, or "
            "uninstall broken-models."
        )
    with pytest.raises(ConfigError, match="of broken-models"):
        run_task("diabetes", "dgp")
