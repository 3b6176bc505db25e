"""Conditional densities: the folds, the models by name, the scores of a run, the paper's figures."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from bayesian_benchmarks import get_dataset, load_experiment, run_task
from bayesian_benchmarks.datasets import list_datasets, uci_collection
from bayesian_benchmarks.errors import ConfigError, DataFileError
from bayesian_benchmarks.models import list_models, model_source
from bayesian_benchmarks.models.sghmc import steps_of_chain
from bayesian_benchmarks.report import format_table, summarise
from bayesian_benchmarks.report.paper import paper_results
from bayesian_benchmarks.settings import Decay, DensitySettings, Settings, SGHMCSettings
from bayesian_benchmarks.store import ResultRow
from bayesian_benchmarks.sweep.run import Run
from bayesian_benchmarks.tasks.density import METRICS, predict_in_batches

SETTINGS = DensitySettings(
    num_steps=4, num_inducing=8, num_importance_samples=2, elbo_samples=3, test_samples=30
)


def test_the_collection_has_36_sets_of_two_pinned_files() -> None:
    pinned = uci_collection.pinned_files()
    assert len(pinned) == 36
    assert set(pinned) <= set(list_datasets("density"))
    digests = [digest for files in pinned.values() for digest in files.values()]
    assert {frozenset(files) for files in pinned.values()} == {
        frozenset(("data.csv.gz", "test_mask.csv.gz"))
    }
    assert len(set(digests)) == len(digests) == 72


def test_a_fold_is_what_the_mask_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    table, mask = rng.normal(size=(20, 3)), np.zeros((20, 10), int)
    mask[np.arange(20), np.arange(20) % 10] = 1
    folder = tmp_path / "uci_datasets" / "servo"
    folder.mkdir(parents=True)
    digests = {}
    for name, array, style in (("data", table, "%.17g"), ("test_mask", mask, "%d")):
        text = "\n".join(",".join(style % value for value in row) for row in array)
        path = folder / f"{name}.csv.gz"
        path.write_bytes(gzip.compress(text.encode()))
        digests[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(uci_collection, "pinned_files", lambda: {"servo": digests})
    data = get_dataset("servo", 3, data_dir=tmp_path)
    np.testing.assert_allclose(data.scaling.restore_X(data.X_test), table[[3, 13], :2])
    np.testing.assert_allclose(data.scaling.restore_Y(data.Y_test), table[[3, 13], 2:])
    kept = np.arange(20) % 10 != 3
    np.testing.assert_allclose(data.scaling.restore_X(data.X_train), table[kept, :2], atol=1e-14)


def test_real_folds(real_data: Path) -> None:
    """The sizes that the collection states; a fold is a tenth, and the folds cover the set."""
    for name, rows, features in (("forest", 517, 12), ("servo", 167, 4), ("pendulum", 630, 9)):
        folds = [get_dataset(name, fold, data_dir=real_data) for fold in range(10)]
        assert {fold.N for fold in folds} == {rows}
        assert features == folds[0].D
        assert sum(len(fold.X_test) for fold in folds) == rows


def test_names_of_both_collections(real_data: Path) -> None:
    """energy: Gal & Ghahramani's splits for regression, the collection's for densities."""
    gal = get_dataset("energy-gal", 1, data_dir=real_data, task="density")
    regression = get_dataset("energy", 1, data_dir=real_data)
    np.testing.assert_array_equal(gal.X_test, regression.X_test)
    assert "energy-gal" not in list_datasets("regression")
    assert {"kin8nm", "diabetes"} <= set(list_datasets("density"))
    with pytest.raises(DataFileError, match=r"uci_datasets/energy/data\.csv\.gz"):
        get_dataset("energy", 1, data_dir=real_data, task="density")


def test_a_set_kept_in_parts_has_its_own_address(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    def pinned_file(base_url, collection, file, sha256, data_dir, *, url):  # type: ignore[no-untyped-def]
        asked[file] = url
        raise DataFileError("stop")

    monkeypatch.setattr(uci_collection, "pinned_file", pinned_file)
    for name in ("song", "forest"):
        with pytest.raises(DataFileError):
            uci_collection.load_fold(name, 0, None)
    assert asked["song/data.csv.gz"].startswith("https://media.githubusercontent.com/")
    assert asked["forest/data.csv.gz"] is None


def test_every_arrangement_is_a_model() -> None:
    names = set(list_models())
    assert {"gp", "gp-gp", "gp-gp-gp", "lv-gp:vi", "gp-lv-gp:iwvi", "lv-lv-gp:vi"} <= names
    assert {"cvae-0", "cvae-50", "cvae-100-100"} <= names
    published = {result.model for result in paper_results("salimbeni2019")}
    assert published <= names
    assert "gp-gp:iwvi-sampled" not in names  # of latent variables' weights


@pytest.mark.parametrize("inference", ["vi", "iwvi", "iwvi-sampled"])
def test_a_name_says_layers_and_bound(inference: str) -> None:
    built = model_source(f"gp-lv-gp:{inference}").build(
        np.zeros((20, 2)) + np.arange(20)[:, None],
        np.ones((20, 1)),
        depth=0,
        settings=SETTINGS,
        seed=0,
    )
    assert [type(layer).__name__ for layer in built.layers] == [
        "SparseGP",
        "LatentVariableLayer",
        "SparseGP",
    ]
    assert (built.inference, built.num_importance_samples, built.num_data) == (inference, 2, 20)


def test_settings_give_inner_gps_kernels_and_noise_of_their_own() -> None:
    X = np.random.default_rng(0).normal(size=(20, 2))
    settings = SETTINGS.model_copy(update={"separate_kernels": True, "inner_noise": 0.25})
    source = model_source("gp-gp")
    inner, _ = source.build(X, X[:, :1], depth=0, settings=settings, seed=0).layers
    noises = [float(part.kernel.kernels[1].variance.numpy()) for part in inner.parts]
    assert noises == pytest.approx([0.25, 0.25])
    for name in ("separate_kernels", "inner_noise"):
        assert source.is_read(name)
        for other in ("gp-gp:sghmc", "dwp:sghmc", "dwp-gw", "cvae-50", "exact-gp"):
            assert not model_source(other).is_read(name)


@pytest.mark.parametrize("num_steps", [1, 4, 7, 29, 19_999, 20_000, 100_000])
def test_a_chain_has_all_the_steps_and_half_of_them_at_least_before_what_it_keeps(
    num_steps: int,
) -> None:
    settings = DensitySettings(num_steps=num_steps)
    num_burn_in, num_samples, thinning = steps_of_chain(settings)
    total = num_burn_in + num_samples * thinning
    assert total == num_steps or (num_steps, total) == (1, 2)  # one of each
    assert num_burn_in >= num_steps // 2
    if num_steps >= 20_000:
        assert (num_samples, thinning) == (2_000, 5)


def test_settings_of_the_sampler_are_of_its_models_only() -> None:
    """Others' rows are as they were, and a chain's say all of it."""
    sampled = Run("density", "servo", 0, "gp:sghmc", 0, 0, DensitySettings())
    chain = json.loads(sampled.settings_json)["sghmc"]
    assert chain["temperature"] == 1.0
    assert set(chain) == set(SGHMCSettings.model_fields)
    for name in ("gp", "gp-gp", "lv-gp:vi", "lv-gp-gp:iwvi", "cvae-0", "cvae-50"):
        other = Run("density", "servo", 0, name, 0, 0, DensitySettings())
        assert "sghmc" not in json.loads(other.settings_json), name


def test_settings_of_another_task_are_refused() -> None:
    with pytest.raises(
        ConfigError, match="lv-gp:vi is a model of density; it cannot be run in reg"
    ):
        run_task("diabetes", "lv-gp:vi", settings=Settings())


@pytest.mark.parametrize(
    "model", ["gp", "exact-gp", "lv-gp-gp:iwvi", "cvae-50", "gp-gp:sghmc", "dwp:sghmc"]
)
def test_a_short_run_has_every_metric(model: str) -> None:
    depth = 2 if model == "dwp:sghmc" else 0

    def run() -> dict[str, float]:
        return run_task("diabetes", model, task="density", depth=depth, settings=SETTINGS)

    scores = run()
    assert set(METRICS) - set(scores) <= {"seconds_per_step", "epoch_seconds"}
    log_scale = np.log(get_dataset("diabetes").scaling.Y_std[0])
    assert scores["test_log_likelihood"] == pytest.approx(
        scores["test_log_likelihood_mixture"] - log_scale
    )
    again = run()
    for name in set(scores) - {"seconds", "seconds_per_step", "epoch_seconds"}:
        assert again[name] == scores[name], name


def test_a_short_run_with_the_likelihood_in_the_weights() -> None:
    scores = run_task("diabetes", "lv-gp:iwvi-sampled", task="density", depth=0, settings=SETTINGS)
    assert np.isfinite(scores["elbo_per_point"])
    assert np.isfinite(scores["test_log_likelihood_mixture"])


def test_points_are_predicted_in_batches_of_a_bounded_size() -> None:
    sizes = []

    class Model:
        def predict_mixture(self, X, *, num_samples, seed):  # type: ignore[no-untyped-def]
            sizes.append(len(X))
            return np.tile(X, [num_samples, 1, 1]), np.ones((num_samples, len(X), 1))

    X = np.arange(60.0)[:, None]
    means, variances = predict_in_batches(Model(), X, 2000, 0)
    assert sizes == [25, 25, 10]
    np.testing.assert_array_equal(means[7], X)
    assert variances.shape == (2000, 60, 1)


def test_the_config_is_the_papers_protocol() -> None:
    experiment = load_experiment("salimbeni2019")
    assert experiment.settings == DensitySettings()
    assert experiment.settings.learning_rate == Decay(rate=0.005)
    assert experiment.settings.natural_gradient == Decay(rate=0.01)
    assert experiment.depths == (0,)
    with pytest.raises(ValidationError):
        Decay(rate=0.0)


def test_published_figures_without_a_depth_stand_beside_ours() -> None:
    row = ResultRow(
        task="density",
        dataset="forest",
        split=0,
        model="lv-gp-gp:iwvi",
        settings_hash="0",
        seed=0,
        depth=0,
        settings='{"num_steps": 10}',
        metrics={"test_log_likelihood_normalised": -1.0},
    )
    lines = summarise([row], metrics=["test_log_likelihood_normalised"], paper="salimbeni2019")
    text = format_table(lines, "markdown")
    assert "| forest | - | lv-gp-gp:iwvi | 10 | 1 | -1 | -1.02 ± 0.02 ✓ |" in text
