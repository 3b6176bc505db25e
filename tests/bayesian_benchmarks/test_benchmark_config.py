"""Configurations: the shipped ones, validation, and the runs that they expand to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bayesian_benchmarks import (
    Experiment,
    Settings,
    expand,
    load_experiment,
    register_dataset,
    run_task,
)
from bayesian_benchmarks.datasets import registry
from bayesian_benchmarks.errors import (
    BenchmarkError,
    ConfigError,
    DataFileError,
    UnknownNameError,
)
from bayesian_benchmarks.models.deep import as_recipe
from bayesian_benchmarks.settings import DensitySettings, GWISettings, schedule_name
from bayesian_benchmarks.sweep.run import UNKNOWN
from bayesian_benchmarks.tasks import find_task

LARGE = ("kin8nm", "naval", "power", "protein")
UCI = ("boston", "concrete", "energy", "wine", "yacht", *LARGE)


def experiment(**changes: Any) -> Experiment:
    base = Experiment(models=("dgp",), datasets=("diabetes",), depths=(2,), splits=(0,))
    return base.override(**changes)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return path


def test_the_papers_protocol() -> None:
    config = load_experiment("ober2023")
    assert config.settings == Settings()
    assert config.settings.num_steps == 20_000
    assert config.settings.learning_rate == ((0.0, 1e-2), (0.5, 1e-3))
    # (8 sets of 20 splits + protein's 5) x 4 depths x 4 models
    assert len(expand(config)) == (8 * 20 + 5) * 4 * 4


def test_the_five_layer_networks_are_runs_of_the_same_protocol() -> None:
    config = load_experiment("ober2021")
    runs = {run.key for run in expand(config)}
    assert len(runs) == (8 * 20 + 5) * 2
    assert runs < {run.key for run in expand(load_experiment("ober2023"))}


def test_samples_in_training_of_deep_kernel_processes() -> None:
    """[ICML21]: ten, energy's too; one on the four large sets."""
    config = load_experiment("aitchison2021")
    samples = {
        run.dataset: run.settings.train_samples
        for run in expand(config.override(datasets=UCI, splits=(0,)))
    }
    assert samples == dict.fromkeys(UCI, 10) | dict.fromkeys(LARGE, 1)


def test_the_offline_default_needs_no_download() -> None:
    config = load_experiment("quick")
    assert {run.dataset for run in expand(config)} == {"diabetes"}
    assert {run.model for run in expand(config)} == {"dwp-ab-gw", "dgp"}


BASE = "models: [dgp]\ndatasets: [yacht]\ndepths: [2]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BASE + "model: dgp", r"model: no such field; did you mean models\?"),
        (BASE + "settings: {num_step: 3}", r"settings.num_step: no such field; did you mean num_s"),
        (BASE + "settings: {num_steps: 0}", r"settings.num_steps: .* equal to 1 \(got 0\)"),
        (BASE + "settings: {num_steps: many}", r"settings.num_steps: .* valid integer.*'many'"),
        (BASE + "settings: {test_samples: 1}", r"settings.test_samples: .* equal to 2 \(got 1\)"),
        (BASE + "settings: {learning_rate: [[0.1, 0.01]]}", r"learning_rate: fractions must start"),
        (BASE + "settings: {learning_rate: [[0, 0.01], [0, 1]]}", r"fractions must start at 0 and"),
        (BASE + "settings: {learning_rate: [[0, -1]]}", r"rates above 0"),
        (
            BASE + "settings: {schedule: slow}",
            r"settings.schedule: needs fast or paper, or a recipe",
        ),
        (
            BASE + "settings: {schedule: {clip: 2}}",
            r"settings.schedule.learning_rate: is required",
        ),
        (
            BASE + "settings: {schedule: {learning_rate: {rate: 0, floor: 0}}}",
            r"settings.schedule.learning_rate",
        ),
        (
            BASE + "settings: {schedule: {learning_rate: {rate: 0.05}}}",
            r"settings.schedule.learning_rate: a rate alone may be either decay; needs factor or every",
        ),
        (
            BASE
            + "settings: {schedule: {learning_rate: {rate: 1, floor: 0}, natural_gradient: {rate: 1}}}",
            r"settings.schedule.natural_gradient: a rate alone may be either decay; needs factor",
        ),
        (BASE + "overrides: [{settings: {num_steps: 0}}]", r"overrides: num_steps: .* equal to 1"),
        (BASE + "splits: some", r"config.yaml: splits: input should be 'all' \(got 'some'\)"),
        (BASE + "paper: ober2032", r"paper: no figures of such a paper; known are aitchison2021"),
        (BASE + "same_as: [ober2032]", r"same_as: no figures of such a paper; known are aitchison"),
        (BASE + "seeds: [-1]", r"seeds: a seed is from 0 to 2147483647"),
        (BASE + "seeds: [99999999999999999999]", r"seeds: a seed is from 0 to"),
        (BASE + "settings: {num_steps: true}", r"settings.num_steps: .*valid integer \(got True\)"),
        (BASE + "seeds: [true]", r"seeds.0: .*valid integer \(got True\)"),
        (BASE + "splits: [true]", r"splits.* \(got \[True\]\)"),
        ("models: [dgp]\ndepths: [true]", r"depths.0: .*valid integer \(got True\)"),
        (BASE + "overrides: [{depths: [true], settings: {}}]", r"depths.0: .*valid integer"),
        (BASE + "settings: {num_steps: 1e400}", r"settings.num_steps: .*valid integer"),
        (BASE + "settings: {num_steps: 99999999999}", r"settings.num_steps: .*less than or equal"),
        (BASE + "settings: {learning_rate: [[0, .nan]]}", r"learning_rate.*finite number"),
        (BASE + "settings: {learning_rate: {rate: .inf}}", r"learning_rate.*finite number"),
        (BASE + "seeds: [0]\nseeds: [1]", r"is not YAML: seeds stands twice, at line 1 and"),
        (BASE + "settings: {gwi: {patience: 1, patience: 2}}", r"patience stands twice"),
        (BASE + "plugins: [../../evil]", r"The plugin '../../evil' is no module's name"),
        (BASE + "plugins: ['']", r"The plugin '' is no module's name"),
        (
            BASE + "task: clustering",
            r"Unknown task 'clustering'.* Known: classification, .*regression",
        ),
        ("models: []\ndepths: [2]", r"models: .* at least 1 item"),
        ("models: [dgp]", r"depths: at least one is needed"),
        ("models: [dgp]\ndepths: [-1]", r"depths: a depth is from 0 to 1000"),
        ("a: 1\nb: 2\nc: 3\nd: 4", r"\(and 3 more\)"),
        ("- dgp", r"must hold named fields"),
        ("models: [dgp", r"is not YAML: "),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_experiment(write(tmp_path, text))
    assert "\n" not in str(caught.value)
    assert "config.yaml" in str(caught.value) or "plugin" in str(caught.value)


def test_the_fast_schedule_is_the_librarys() -> None:
    """Written out, so that a row says how it was made when the library's has changed."""
    from gpflow_dkp.training.recipe import FAST, FAST_OF_SPARSE_GP

    density = DensitySettings(schedule="fast")  # type: ignore[arg-type]
    assert density.schedule is not None
    assert as_recipe(density.schedule) == FAST_OF_SPARSE_GP
    assert schedule_name(density.model_dump_json()) == "fast"
    fast = Settings(schedule="fast")  # type: ignore[arg-type]
    assert fast.schedule is not None
    assert as_recipe(fast.schedule) == FAST
    assert Settings(schedule="paper") == Settings()  # type: ignore[arg-type]
    assert schedule_name(fast.model_dump_json()) == "fast"
    assert schedule_name(Settings().model_dump_json()) == "paper"
    own = fast.model_copy(update={"schedule": fast.schedule.model_copy(update={"clip": 3.0})})
    assert schedule_name(own.model_dump_json()) == "own"


def test_naval_and_protein_have_the_recipe_of_the_documentation() -> None:
    """A rate alone, without a cosine's warm-up and floor, would be an exponential decay."""
    from gpflow_dkp.training import Cosine, Recipe

    recipe = Recipe(Cosine(2e-2), clip=2.0, annealing=0.2, beta_1=0.97, antithetic=True)
    runs = [run for run in expand(load_experiment("ober2023_fast")) if run.split == 0]
    for run in runs:
        assert run.settings.schedule is not None
        is_quiet = as_recipe(run.settings.schedule) == recipe
        assert is_quiet == (run.dataset in ("naval", "protein"))
        # At their defaults they are not in the key, as in rows from before there were these.
        in_key = {"beta_1", "antithetic"} & set(json.loads(run.settings_json)["schedule"])
        assert len(in_key) == (2 if is_quiet else 0)


@pytest.mark.parametrize(
    ("name", "default", "not_read_by"),
    [("input_bias", False, ["svgp"]), ("shared_precision", True, ["svgp", "dwp-gw", "nngp:relu"])],
)
def test_a_later_setting_is_in_the_key_where_it_is_asked_for(
    name: str, default: bool, not_read_by: list[str]
) -> None:
    """So that rows from before it could be asked for are found."""
    without, asked_for = (
        expand(experiment(models=["dgp"], settings={name: value}))[0]
        for value in (default, not default)
    )
    assert name not in without.settings_json
    assert json.loads(asked_for.settings_json)[name] is not default
    for model in not_read_by:
        (run,) = expand(experiment(models=[model], settings={name: not default}))
        assert name not in run.settings_json


@pytest.mark.parametrize(
    ("model", "name", "default", "other"),
    [
        ("gwi-svgp", "separate_kernels", False, True),
        ("gwi-net", "covariance", "svgp", "prior"),
        ("gwi-net", "weight_variance", None, 0.1),
        ("mlp-map", "weight_variance", None, 0.1),
    ],
)
def test_later_settings_of_gwi_are_in_the_key_where_they_are_asked_for(
    model: str, name: str, default: Any, other: Any
) -> None:
    without, asked_for, unsaid = (
        json.loads(expand(experiment(models=[model], settings={"gwi": gwi}))[0].settings_json)
        for gwi in ({name: default}, {name: other}, {})
    )
    assert without == unsaid
    assert name not in without["gwi"]
    assert asked_for["gwi"] == without["gwi"] | {name: other}
    dgp = expand(experiment(settings={"gwi": {name: other}}))[0]
    assert dgp.key == expand(experiment())[0].key


def test_later_settings_of_latent_variables_are_in_the_key_where_they_are_asked_for() -> None:
    of_density = {"task": "density", "depths": [0]}
    without, unsaid, asked_for = (
        json.loads(
            expand(experiment(models=["lv-gp-gp:vi"], settings=settings, **of_density))[
                0
            ].settings_json
        )
        for settings in (
            {"separate_kernels": False, "inner_noise": None},
            {},
            {"separate_kernels": True, "inner_noise": 0.01},
        )
    )
    assert without == unsaid
    assert asked_for == without | {"separate_kernels": True, "inner_noise": 0.01}


@pytest.mark.parametrize(
    ("model", "task", "dataset"),
    [
        ("gwi-net", "regression", "diabetes"),
        ("gwi-net-selected", "regression", "diabetes"),
        ("gwi-cnn", "classification", "digits"),
    ],
)
def test_a_divergence_that_is_infinite_is_refused_before_anything_is_trained(
    model: str, task: str, dataset: str
) -> None:
    line = (
        f"^{model}: got the distance kl, which is infinite for a network; choose one of squared, root, "
        "published, or gwi-svgp\\.$"
    )
    given: dict[str, Any] = {
        "task": task,
        "datasets": [dataset],
        "settings": {"gwi": {"distance": "kl"}},
    }
    with pytest.raises(ConfigError, match=line):
        expand(experiment(models=[model], **given))
    with pytest.raises(ConfigError, match=line):
        run_task(dataset, model, settings=find_task(task).settings(**given["settings"]))
    (run,) = expand(experiment(models=["gwi-svgp"], **given))
    given["settings"]["gwi"]["covariance"] = "prior"
    own = (
        "^gwi-svgp: got the distance kl with the covariance prior, of which it is infinite; choose"
    )
    with pytest.raises(ConfigError, match=own):
        expand(experiment(models=["gwi-svgp"], **given))
    assert json.loads(run.settings_json)["gwi"]["distance"] == "kl"


def test_a_schedule_stands_in_place_of_what_it_replaces_in_a_runs_key() -> None:
    (paper,) = expand(experiment())
    assert "schedule" not in paper.settings_json  # the key of rows that know of none
    fast = expand(experiment(settings={"schedule": "fast"}))[0]
    other = expand(experiment(settings={"schedule": "fast", "kl_annealing_steps": 3}))[0]
    assert fast.key == other.key != paper.key
    assert not {"learning_rate", "kl_annealing_steps"} & set(json.loads(fast.settings_json))
    density = {"task": "density", "depths": [0], "settings": {"schedule": "fast"}}
    gp, cvae = (expand(experiment(models=[name], **density))[0] for name in ("gp-gp", "cvae-50"))
    assert "natural_gradient" in json.loads(gp.settings_json)["schedule"]
    assert "natural_gradient" not in cvae.settings_json
    assert schedule_name(gp.settings_json) == schedule_name(cvae.settings_json) == "fast"
    assert "natural_gradient" not in fast.settings_json
    # Gaussian Wasserstein inference has a schedule of its own.
    gwi = [
        expand(experiment(models=["gwi-net"], depths=[1], settings={"schedule": name}))[0]
        for name in ("fast", "paper")
    ]
    assert gwi[0].key == gwi[1].key


@pytest.mark.parametrize(("num_steps", "limited"), [(5_000, False), (5_001, True)])
def test_a_limit_is_in_the_key_of_runs_that_it_limits(num_steps: int, limited: bool) -> None:
    """Rows from before there was one are found, but for those that would be others now."""
    settings = {"schedule": "fast", "num_steps": num_steps}
    run = expand(experiment(settings=settings))[0]
    schedule = json.loads(run.settings_json)["schedule"]
    assert ("max_annealing_steps" in schedule) == limited
    assert schedule_name(run.settings_json) == "fast"
    values = json.loads(run.settings_json)
    values["schedule"].pop("max_annealing_steps", None)
    assert schedule_name(json.dumps(values)) == ("own" if limited else "fast")


def test_an_annealing_of_latent_variables_is_in_the_key_of_vi_alone() -> None:
    """Rows of models that do not read it are found from before there was one."""
    density: dict[str, Any] = {"task": "density", "settings": {"schedule": "fast"}}
    runs = [
        *expand(
            experiment(
                models=["lv-gp-gp:vi", "lv-gp-gp:iwvi", "gp-gp", "cvae-50"], depths=[0], **density
            )
        ),
        *expand(experiment(models=["dwp-gw"], **density)),
    ]
    found = {run.model: json.loads(run.settings_json)["schedule"] for run in runs}
    assert found.pop("lv-gp-gp:vi")["latent_annealing"] == 0.1
    assert len(found) == 4
    assert not any("latent_annealing" in schedule for schedule in found.values())
    # And with it what limits it.
    recipe = {"learning_rate": [[0, 0.01]], "annealing": 0.0, "latent_annealing": 0.5}
    keys = [
        run.key
        for limit in (100, 200, 10_000, None)
        for run in expand(
            experiment(
                models=["lv-gp-gp:vi"],
                depths=[0],
                task="density",
                settings={"num_steps": 1_000, "schedule": recipe | {"max_annealing_steps": limit}},
            )
        )[:1]
    ]
    assert len(set(keys)) == 3
    assert keys[2] == keys[3]


def test_datasets_and_depths_have_settings_of_their_own() -> None:
    config = experiment(
        datasets=["diabetes", "wine"],
        depths=[2, 5],
        models=["dgp", {"name": "dwp-gw", "num_inducing": 7}],
        overrides=[
            {"datasets": ["wine"], "settings": {"num_steps": 40}},
            {"depths": [5], "settings": {"num_steps": 60, "train_samples": 3}},
        ],
    )
    found = {(run.dataset, run.depth, run.model): run.settings for run in expand(config)}
    steps = {key: settings.num_steps for key, settings in found.items()}
    assert steps["diabetes", 2, "dgp"] == 20_000
    assert steps["wine", 2, "dgp"] == 40
    assert steps["wine", 5, "dwp-gw"] == steps["diabetes", 5, "dgp"] == 60
    assert found["wine", 5, "dwp-gw"].num_inducing == 7
    assert {s.train_samples for (_, depth, _), s in found.items() if depth == 2} == {10}
    short = config.with_steps(5)
    assert {run.settings.num_steps for run in expand(short)} == {5}
    assert {run.settings.train_samples for run in expand(short)} == {3, 10}
    with pytest.raises(UnknownNameError, match=r"Unknown dataset 'yachtt'.*mean yacht"):
        expand(experiment(overrides=[{"datasets": ["yachtt"], "settings": {"num_steps": 3}}]))
    elsewhere = experiment(overrides=[{"datasets": ["yacht"], "settings": {"num_steps": 3}}])
    assert {run.settings.num_steps for run in expand(elsewhere)} == {20_000}
    with pytest.raises(ConfigError, match=r"overrides: num_step: no such field; did you mean"):
        experiment(overrides=[{"settings": {"num_step": 3}}])


def test_no_such_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Cannot read the config .*no.yaml \(No such file"):
        load_experiment(tmp_path / "no.yaml")


def test_overrides_replace_and_are_checked() -> None:
    changed = experiment(models=["dwp-gw"], splits=[1, 2], depths=None)
    assert (changed.models, changed.splits, changed.depths) == (("dwp-gw",), (1, 2), (2,))
    with pytest.raises(ConfigError, match="command line: seeds"):
        experiment(seeds=["one"])


@pytest.mark.parametrize(("steps", "annealing"), [(20_000, 1000), (4000, 1000), (500, 125), (1, 0)])
def test_a_short_run_ends_on_the_true_objective(steps: int, annealing: int) -> None:
    settings = Settings().with_steps(steps)
    assert (settings.num_steps, settings.kl_annealing_steps) == (steps, annealing)


def test_steps_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"--steps: num_steps: .*greater than or equal to 1"):
        Settings().with_steps(0)


def test_runs_are_every_combination_once_and_split_by_split() -> None:
    runs = expand(
        experiment(models=["dgp", "dwp-gw", "dgp"], splits=[1, 0], depths=[2, 3], seeds=[0, 1])
    )
    assert len(runs) == 2 * 2 * 2 * 2
    assert [run.split for run in runs[:8]] == [0] * 4 + [1] * 4
    assert len({run.key for run in runs}) == len(runs)
    assert len({run.directory_name for run in runs}) == len(runs)


def test_all_splits_are_each_datasets_own() -> None:
    runs = expand(experiment(datasets=["diabetes", "protein"], splits="all"))
    assert sum(run.dataset == "protein" for run in runs) == 5
    assert sum(run.dataset == "diabetes" for run in runs) == 20


def test_depth_counts_the_output_layer_or_not() -> None:
    with_output = expand(experiment(depths=[3]))
    without = expand(experiment(depths=[2], depth_counts_output_layer=False))
    assert with_output == without
    assert with_output[0].depth == 3


def test_the_hash_is_of_what_changes_the_numbers() -> None:
    run = expand(experiment())[0]
    same: list[dict[str, Any]] = [
        {"checkpoint_seconds": 7, "paper": "wild2022"},
        {"settings": Settings(test_samples=200, elbo_samples=3)},
        {"settings": Settings(gwi=GWISettings(patience=3))},  # which the model does not read
    ]
    for changes in same:
        assert expand(experiment(**changes))[0].key == run.key
    for changes in ({"depths": [3]}, {"settings": Settings(num_inducing=99)}):
        assert expand(experiment(**changes))[0].key != run.key
    # Stored rows are found again by it: it must not change with the version of the software.
    (published,) = expand(experiment(datasets=["yacht"]))
    assert published.key.settings_hash == "d9a26db6208d0025"


def test_csv_runs_are_told_apart_by_content_and_target(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("a,b\n" + "\n".join(f"{i},{i * i}" for i in range(12)))
    by_a, by_b = (
        expand(experiment(datasets=[], csv=path, target=target, splits="all")) for target in "ab"
    )
    assert len(by_a) == 20
    assert by_a[0].dataset == "mine.csv"
    assert by_a[0].key != by_b[0].key
    assert str(tmp_path) not in by_a[0].settings_json
    assert by_a[0].load().D == 1


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"models": ["dwp"]}, UnknownNameError, "Unknown model 'dwp'"),
        ({"datasets": ["bostn"]}, UnknownNameError, "Did you mean boston"),
        ({"datasets": []}, ConfigError, "No dataset is given"),
        ({"target": "a"}, ConfigError, "no CSV file"),
        ({"splits": [20]}, BenchmarkError, "has no split 20"),
        ({"plugins": ["no_such_module"]}, ConfigError, "Cannot import the plugin no_such_module"),
    ],
)
def test_bad_names(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        expand(experiment(**changes))


def test_a_model_has_settings_of_its_own() -> None:
    config = experiment(
        models=["svgp", {"name": "gwi-net", "patience": 20, "num_steps": 30}],
        settings=Settings(num_steps=50, gwi=GWISettings(num_folds=3)),
        depths=[1],
    )
    svgp, gwi = expand(config)
    assert (svgp.settings.num_steps, gwi.settings.num_steps) == (50, 30)
    assert gwi.settings.gwi is not None
    assert (gwi.settings.gwi.patience, gwi.settings.gwi.num_folds) == (20, 3)
    assert svgp.key == expand(experiment(models=["svgp"], settings=Settings(num_steps=50)))[
        0
    ].key._replace(settings_hash=svgp.key.settings_hash)
    assert "gwi" not in svgp.settings_json
    assert {run.settings.num_steps for run in expand(config.with_steps(7))} == {7}
    with pytest.raises(
        ConfigError, match=r"models: gwi-net: gwi.patiense: no such .*mean patience"
    ):
        expand(experiment(models=[{"name": "gwi-net", "patiense": 20}], depths=[1]))


def test_models_that_are_named_keep_their_settings() -> None:
    config = experiment(
        models=[{"name": "dgp", "num_inducing": 7}, "dwp-gw", {"name": "dgp", "num_inducing": 8}]
    )
    chosen = config.override(models=config.models_named(["dwp-ab-gw", "dgp", "dgp"]))
    assert [(run.key.model, run.settings.num_inducing) for run in expand(chosen)] == [
        ("dwp-ab-gw", config.settings.num_inducing),
        ("dgp", 7),
        ("dgp", 8),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "clasification"}, r"Unknown task 'clasification'.* Did you mean classification"),
        ({"models": ["cvae-50"]}, r"cvae-50 is a model of density; it cannot be run in regression"),
        ({"models": ["gwi-cnn"]}, r"gwi-cnn is a model of classification and ood"),
        (
            {"task": "density", "depths": [0], "settings": DensitySettings()},
            r"dgp has a depth of at least 1, got 0; say which with --depths",
        ),
        ({"task": "classification"}, r"classification needs ClassificationSettings, got Settings"),
    ],
)
def test_bad_combinations_are_refused_at_the_door(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        expand(experiment(**changes))
    assert "\n" not in str(caught.value)


def test_the_data_and_a_plugins_source_are_part_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "from bayesian_benchmarks import register_model\n@register_model('{}')\ndef b(X, Y): {}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    keys = []
    for name, body in (("plugin_a", "pass"), ("plugin_b", "return 1")):
        (tmp_path / f"{name}.py").write_text(source.format(name, body))
        (run,) = expand(experiment(models=[name], plugins=[name]))
        assert run.code
        assert run.data
        keys.append(run.key.settings_hash)
    assert keys[0] != keys[1]
    ours, theirs = (expand(experiment(splits=[split]))[0].data for split in (0, 1))
    assert ours != theirs
    assert expand(experiment(datasets=["yacht"]))[0].data == ""


def test_data_that_cannot_be_had_are_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time may be a download that waits for its time limit."""
    monkeypatch.setattr(registry, "_SOURCES", dict(registry._SOURCES))
    asked = []

    @register_dataset("far_away", num_splits=3)
    def load(split: int, data_dir: Path | None) -> Any:
        asked.append(split)
        raise DataFileError("no network")

    far = experiment(datasets=["far_away"], splits="all", depths=[1, 2])
    assert {run.data for run in expand(far, need_data=False)} == {UNKNOWN}
    assert asked == [0]
    with pytest.raises(DataFileError, match="no network"):
        expand(far)
