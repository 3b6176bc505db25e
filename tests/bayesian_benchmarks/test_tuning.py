"""`dkp-bench tune`: trials, each once whatever is killed, by a look at the training part alone."""

from __future__ import annotations

import math
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_sweep import plugin_is_found, wait_for  # noqa: F401  (a fixture among them)
from worker_cases import do_jobs_here

from bayesian_benchmarks import ResultsStore, expand, get_dataset, load_experiment, run_experiment
from bayesian_benchmarks.commands import main
from bayesian_benchmarks.plugins import import_plugin
from bayesian_benchmarks.search_space import Choice, Interval
from bayesian_benchmarks.sweep.engines import LocalEngine
from bayesian_benchmarks.sweep.locks import RunLock
from bayesian_benchmarks.sweep.run import data_digest
from bayesian_benchmarks.tuning import TrainingPartRun, Tuning, mean_and_error, open_study, tune

optuna = pytest.importorskip("optuna")

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CONFIG = str(HERE / "tuned.yaml")
SEARCH = ("--search", "num_inducing=log:1:1000")
BY_VALIDATION = ("--objective", "validation_log_likelihood")


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNED_LOG", str(tmp_path / "log"))
    path = [str(ROOT), os.environ.get("PYTHONPATH")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))


def command(*words: str, store: str = "runs/results.sqlite") -> list[str]:
    return ["tune", "--config", CONFIG, *SEARCH, "--store", store, *words]


def trials(store: str = "runs/results.sqlite") -> list[Any]:
    storage = f"sqlite:///{store}.tune"
    (study,) = optuna.get_all_study_summaries(storage)
    found: list[Any] = optuna.load_study(study_name=study.study_name, storage=storage).trials
    return found


def what_came_out(store: str = "runs/results.sqlite") -> list[Any]:
    """What must not depend on how the trials came about."""
    return [
        (t.number, t.state.name, t.params, t.value, t.intermediate_values) for t in trials(store)
    ]


def bound(num_inducing: int, step: int = 100) -> float:
    """The mean of the model's bound over the config's splits."""
    first = [get_dataset("tuned-data", split, task="tuned").Y_train[0, 0] / 10 for split in (0, 1)]
    return float(np.mean(first)) - math.log(num_inducing / 30) ** 2 - 1.0 / step


@pytest.mark.usefixtures("workers_here")
def test_trials_a_table_and_a_config_of_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command("--trials", "7", "--out", "best.yaml", "--jobs", "2", "--best", "2")) == 0
    out, err = capsys.readouterr()
    found = trials()
    assert [t.number for t in found] == list(range(7))
    complete = [t for t in found if t.state.name == "COMPLETE"]
    for trial in complete:
        assert trial.value == pytest.approx(bound(trial.params["num_inducing"]))
    best = max(complete, key=lambda trial: trial.value)
    head, first, second, total, importance = out.splitlines()
    assert head.split() == ["trial", "elbo_per_point", "num_inducing", "seconds"]
    score = mean_and_error(best.user_attrs["values"])
    assert " ± " in score
    assert first.split() == [
        str(best.number), *score.split(), str(best.params["num_inducing"]), "2"
    ]  # fmt: skip
    assert second
    assert total.startswith(f"7 trials: {len(complete)} complete")
    assert importance == "importance: num_inducing 1.00"
    assert [line.rpartition("(")[2] for line in err.splitlines()[:7]] == [
        f"{n} of 7)" for n in range(1, 8)
    ]
    assert not list(Path("runs").glob("tune-*"))

    assert main(command("--tables-only", "--best", "2")) == 0
    assert capsys.readouterr().out == out

    assert load_experiment("best.yaml").settings.num_inducing == best.params["num_inducing"]
    store = ResultsStore("runs/results.sqlite")
    run_experiment(load_experiment("best.yaml"), store, jobs=0, progress=False)
    rows = store.rows("ok")
    values = [row.metrics["elbo_per_point"] for row in rows]
    assert values == best.user_attrs["values"]


@pytest.mark.usefixtures("workers_here")
def test_trials_go_on_as_they_would_have() -> None:
    assert main(command("--trials", "4", store="unbroken.sqlite")) == 0
    for number in ("1", "3", "4"):
        assert main(command("--trials", number)) == 0
        assert len(trials()) == int(number)
    assert what_came_out() == what_came_out("unbroken.sqlite")
    assert main(command("--trials", "4")) == 0
    assert len(trials()) == 4


def test_a_killed_command_goes_on_from_its_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is killed are real processes; what goes on and what it is compared with are done here."""
    do_jobs_here(monkeypatch)
    assert main(command("--trials", "2", store="unbroken.sqlite")) == 0
    (tmp_path / "log").unlink()
    (tmp_path / "hold").touch()
    monkeypatch.setenv("TUNED_HOLD", str(tmp_path / "hold"))
    steps = lambda: [p.read_text() for p in Path("runs").glob("tune-*/trial0/*/checkpoint/step")]  # noqa: E731
    with subprocess.Popen(
        [sys.executable, "-m", "bayesian_benchmarks", *command("--trials", "2")]
    ) as killed:
        wait_for(lambda: steps() == ["50", "50"])
        killed.send_signal(signal.SIGKILL)
    assert [trial.state.name for trial in trials()] == ["RUNNING"]
    (tmp_path / "hold").unlink()
    assert main(command("--trials", "2")) == 0
    starts = (tmp_path / "log").read_text().split("\n")
    assert [line.partition("from ")[2] for line in starts] == ["0", "0", "50", "50", "0", "0", ""]
    resumed, unbroken = what_came_out(), what_came_out("unbroken.sqlite")
    assert [found[:4] for found in resumed] == [found[:4] for found in unbroken]
    assert not list(Path("runs").glob("tune-*"))


def test_ctrl_c_leaves_a_trial_to_go_on_with(workers_here: None, tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    with subprocess.Popen(
        [sys.executable, "-m", "bayesian_benchmarks", *command("--trials", "2")],
        env=os.environ | {"TUNED_HOLD": str(tmp_path / "hold")},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        wait_for(lambda: (tmp_path / "log").exists())
        process.send_signal(signal.SIGINT)
        wait_for(lambda: not (tmp_path / "hold").unlink(missing_ok=True))
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1].endswith("the same command goes on from there.")
    assert [trial.state.name for trial in trials()] == ["RUNNING"]
    assert main(command("--trials", "2")) == 0
    assert len(trials()) == 2


def test_a_trial_that_fails_is_told_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        do_jobs_here(patch)
        assert main(command("--trials", "3", store="unbroken.sqlite")) == 0
    numbers = [str(trial.params["num_inducing"]) for trial in trials("unbroken.sqlite")]
    monkeypatch.setenv("TUNED_FAIL", numbers[0])
    monkeypatch.setenv("TUNED_DIE", numbers[1])
    capsys.readouterr()
    assert main(command("--trials", "3", "--out", "best.yaml")) == 0
    out, err = capsys.readouterr()
    assert [trial.state.name for trial in trials()] == ["FAIL", "FAIL", "COMPLETE"]
    assert re.search(
        r"^trial 0: failed on tuned-data split [01] tuned depth 2: FloatingPointError: no number, ",
        err,
    )
    assert "trial 1: failed on tuned-data split" in err
    assert "The worker process died (signal 9)" in err
    assert "3 trials: 1 complete, 2 failed" in out
    assert "no number" in trials()[0].user_attrs["error"]
    assert list(Path("runs").glob("tune-*/trial0/*/log.txt"))
    assert not list(Path("runs").glob("tune-*/trial*/*/checkpoint"))
    assert load_experiment("best.yaml").settings.num_inducing == int(numbers[2])


def test_choices_that_cannot_be_together_are_a_failed_trial(tmp_path: Path) -> None:
    of = Tuning(load_experiment(CONFIG), {"num_inducing": Choice((0,))})
    study, said = open_study(of, tmp_path / "a.sqlite"), []
    tune(of, study, tmp_path / "a", trials=2, jobs=1, say=said.append)
    assert [trial.state.name for trial in study.trials] == ["FAIL", "FAIL"]
    assert said[1].startswith("trial 1: failed: --search num_inducing: num_inducing: ")


def test_no_complete_trial_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TUNED_FAIL", "5")
    words = ["tune", "--config", CONFIG, "--search", "num_inducing=5", "--trials", "1"]
    assert main(words) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "No trial of this study is complete."


@pytest.mark.usefixtures("workers_here")
@pytest.mark.parametrize("pruner", ["median", "hyperband"])
def test_trials_are_pruned_by_the_mean_bound_of_all_splits(pruner: str) -> None:
    assert main(command("--trials", "12", "--pruner", pruner)) == 0
    found = trials()
    pruned = [trial for trial in found if trial.state.name == "PRUNED"]
    assert pruned
    best = max(found, key=lambda trial: trial.value if trial.state.name == "COMPLETE" else -1e9)
    for trial in found:
        for rung, value in trial.intermediate_values.items():
            assert 1 <= rung <= 9
            assert value == pytest.approx(bound(trial.params["num_inducing"], 10 * rung))
    for trial in pruned:
        assert bound(trial.params["num_inducing"]) < best.value


def test_the_processes_of_a_pruned_trial_are_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stand at half of their steps."""
    of = Tuning(load_experiment(CONFIG), {"num_inducing": Choice((5,))})
    study = open_study(of, tmp_path / "a.sqlite")
    better = optuna.trial.create_trial(
        params={"num_inducing": 5},
        distributions={"num_inducing": optuna.distributions.CategoricalDistribution((5,))},
        value=9.0,
        intermediate_values=dict.fromkeys(range(1, 10), 9.0),
    )
    study.add_trials(5 * [better])
    (tmp_path / "hold").touch()
    monkeypatch.setenv("TUNED_HOLD", str(tmp_path / "hold"))
    started: list[Any] = []
    start = LocalEngine.start

    def noted(*arguments: Any) -> Any:
        started.append(start(*arguments))
        return started[-1]

    monkeypatch.setattr(LocalEngine, "start", noted)
    tune(of, study, tmp_path / "a", trials=6, jobs=1, say=lambda text: None)
    assert study.trials[-1].state.name == "PRUNED"
    assert [handle.poll().code for handle in started] == 2 * [-signal.SIGKILL]


@pytest.mark.usefixtures("workers_here")
def test_nothing_is_pruned_without_a_pruner() -> None:
    assert main(command("--trials", "7", "--pruner", "none")) == 0
    assert {trial.state.name for trial in trials()} == {"COMPLETE"}


@pytest.mark.usefixtures("workers_here")
@pytest.mark.parametrize("objective", [(), BY_VALIDATION])
def test_test_rows_have_no_influence(
    objective: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither on what comes out, nor on which study it is."""
    assert main(command("--trials", "3", *objective)) == 0
    monkeypatch.setenv("TUNED_TEST_SHIFT", "100")
    import_plugin("tuned_models")
    assert main(command("--trials", "3", *objective, store="shifted.sqlite")) == 0
    assert what_came_out("shifted.sqlite") == what_came_out()
    assert main(command("--trials", "3", *objective)) == 0  # one study: `trials` finds no second
    assert len(trials()) == 3
    assert {trial.state.name for trial in trials()} == {"COMPLETE"}


def tuning(**changes: Any) -> Tuning:
    return Tuning(load_experiment(CONFIG), {"num_inducing": Interval(5, 50)}, **changes)


def test_a_trials_data_are_the_training_part(monkeypatch: pytest.MonkeyPatch) -> None:
    for changes in ({}, {"objective": BY_VALIDATION[1], "validation_fraction": 0.25}):
        of = tuning(**changes)
        run = of.runs(of.experiment)[1]
        whole, seen = get_dataset("tuned-data", 1, task="tuned"), run.load()
        rows = whole.scaling.restore_X(whole.X_train)
        used = [seen.scaling.restore_X(part) for part in (seen.X_train, seen.X_test)]
        if not changes:
            np.testing.assert_array_equal(seen.X_train, whole.X_train)
            assert {tuple(row) for row in seen.X_test} <= {tuple(row) for row in whole.X_train}
        else:
            assert [len(part) for part in used] == [27, 9]
            both = np.concatenate(used)
            np.testing.assert_allclose(both[np.lexsort(both.T)], rows[np.lexsort(rows.T)])
            np.testing.assert_allclose(seen.Y_train.mean(), 0.0, atol=1e-12)
        before = data_digest(seen), run.key
        monkeypatch.setenv("TUNED_TEST_SHIFT", "7")
        shifted = tuning(**changes).runs(of.experiment)[1]
        assert (data_digest(shifted.load()), shifted.key) == before
        monkeypatch.delenv("TUNED_TEST_SHIFT")


def test_the_data_of_many_trials_are_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []
    load = TrainingPartRun.load
    monkeypatch.setattr(
        TrainingPartRun, "load", lambda run, *given: loaded.append(run.split) or load(run, *given)
    )
    of = tuning()
    trials = [of.runs(of.experiment_of({"num_inducing": number})) for number in (10, 20, 30)]
    assert loaded == [0, 1]
    assert len({run.key for runs in trials for run in runs}) == 6
    assert [[run.data for run in runs] for runs in trials] == 3 * [[run.data for run in trials[0]]]
    assert trials[0][0].data != trials[0][1].data


def test_validation_maximises_the_log_density_of_held_out_rows() -> None:
    words = (*BY_VALIDATION, "--validation-fraction", "0.5")
    assert main(command("--model", "tuned-without-bound", "--trials", "1", *words)) == 0
    (trial,) = trials()
    of = tuning(objective=BY_VALIDATION[1], validation_fraction=0.5)
    variance = 1.0 + math.log(trial.params["num_inducing"] / 30) ** 2
    expected = []
    for run in of.runs(of.experiment):
        data = run.load()
        log_density = -0.5 * (data.Y_test**2 / variance + math.log(2.0 * math.pi * variance))
        expected.append(log_density.mean() - math.log(data.scaling.Y_std[0]))
    assert trial.user_attrs["values"] == pytest.approx(expected)


def test_best_config_means_the_runs_of_its_trial(tmp_path: Path) -> None:
    """Also where datasets have settings of their own and a rate is searched."""
    text = Path(CONFIG).read_text()
    text += "overrides: [{datasets: [tuned-data], settings: {num_inducing: 7, batch_size: 3}}]\n"
    (tmp_path / "own.yaml").write_text(text)
    words = ["--search", "num_inducing=20:30", "learning_rate=1e-3:1e-2", "schedule=fast,paper"]
    code = main(["tune", "--config", "own.yaml", *words, "--trials", "1", "--out", "best.yaml"])
    assert code == 0
    (trial,) = trials()
    for run in expand(load_experiment("best.yaml")):
        settings = run.settings
        assert settings.num_inducing == trial.params["num_inducing"]
        assert settings.batch_size == 3
        if settings.schedule is None:
            assert settings.learning_rate[0][1] == trial.params["learning_rate"]  # type: ignore[index]
        else:
            rate = settings.schedule.learning_rate.rate  # type: ignore[union-attr]
            assert rate == trial.params["learning_rate"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--search", "num_induced=1:2"], "Unknown setting to search of tuned 'num_induced'. Did"),
        (["--search", "ard=true,false"], "--search: the training of tuned does not read ard; it "),
        (["--trials", "0"], "--trials is 0; it must be at least 1."),
        (
            ["--validation-fraction", "1"],
            "--validation-fraction is 1.0; it must be between 0 and 1",
        ),
        (["--config", "quick"], "quick has models dwp-ab-gw, dgp; say which with --model."),
        (["--config", "ober2023", "--model", "dgp"], "ober2023 has depths 2, 3, 4, 5; say which "),
        (
            ["--model", "tuned-without-bound"],
            "tuned-without-bound has no elbo_per_point; give --ob",
        ),
        (["--splits", "9"], "tuned-data has no split 9"),
        (["--search-file", "none.yaml"], "Cannot read the search ranges none.yaml"),
        (["--tables-only"], "There is no runs/results.sqlite.tune; give the --store"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    start = command("--trials", "1")
    assert main([*start, *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"dkp-bench tune: {message}")
    assert err.count("\n") == 1


def test_a_task_without_the_objectives(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = Path(CONFIG).read_text().replace("task: tuned", "task: untunable")
    (tmp_path / "own.yaml").write_text(text)
    assert main(["tune", "--config", "own.yaml", *SEARCH]) == 2
    err = capsys.readouterr().err
    assert err.startswith("dkp-bench tune: own.yaml is an experiment in untunable; tune is for ")
    assert "classification, density, ood, regression" in err


def test_a_storage_that_is_none_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("text.sqlite.tune").write_text("no database, but long enough to be taken for one" * 9)
    assert main(command(store="text.sqlite")) == 2
    err = capsys.readouterr().err
    assert err.startswith("dkp-bench tune: Cannot use text.sqlite.tune as Optuna's storage (")
    assert err.count("\n") == 1


def test_one_process_at_a_time_is_at_a_study(capsys: pytest.CaptureFixture[str]) -> None:
    study = tuning().name
    lock = RunLock(Path("runs") / f"tune-{study}" / "lock")
    assert lock.acquire()
    words = ["tune", "--config", CONFIG, "--search", "num_inducing=5:50", "--trials", "1"]
    assert main(words) == 2
    assert "Another process is at this study" in capsys.readouterr().err
    lock.release()
    assert main(words) == 0


def test_without_optuna_a_line_says_how_to_have_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(command()) == 2
    err = capsys.readouterr().err
    assert err.startswith(
        "dkp-bench tune: Tuning needs Optuna, which is not installed: pip install"
    )
    assert err.count("\n") == 1


def test_a_study_is_known_by_what_is_searched(tmp_path: Path) -> None:
    names = {
        tuning().name,
        tuning(objective=BY_VALIDATION[1]).name,
        tuning(objective=BY_VALIDATION[1], validation_fraction=0.2).name,
        Tuning(load_experiment(CONFIG), {"num_inducing": Interval(5, 51)}).name,
    }
    assert len(names) == 4
    assert tuning().name in names
    study = open_study(tuning(), tmp_path / "a.sqlite")
    assert study.study_name == tuning().name


@pytest.fixture
def tuned_by_the_documentation(
    workers_here: None, capsys: pytest.CaptureFixture[str]
) -> tuple[list[str], str]:
    """The second of its commands, and what the first has printed."""
    text = (ROOT / "docs" / "benchmark.md").read_text(encoding="utf-8")
    lines = re.findall(r"^dkp-bench (tune .*|uci --config best\.yaml)$", text, re.MULTILINE)
    first, second = (shlex.split(line) for line in lines)
    assert main([*first, "--steps", "4", "--trials", "1"]) == 0
    return second, capsys.readouterr().out


@pytest.mark.slow
def test_the_documentations_example(tuned_by_the_documentation: tuple[list[str], str]) -> None:
    """A deep GP on the bundled data, tuned and then run with the best settings: the same bound."""
    second, out = tuned_by_the_documentation
    assert main([*second, "--metrics", "elbo_per_point", "--format", "csv"]) == 0
    (row,) = ResultsStore("runs/results.sqlite").rows("ok")
    (trial,) = trials()
    assert trial.user_attrs["values"] == pytest.approx([row.metrics["elbo_per_point"]], rel=1e-6)
    assert f"{trial.value:.4f}" in out


@pytest.mark.slow
@pytest.mark.usefixtures("workers_here")
def test_a_density_by_held_out_rows(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--config", "quick_density", "--model", "gp", "--steps", "3", *BY_VALIDATION]
    search = ["--search", "num_inducing=3:6", "natural_gradient=log:1e-3:1e-1"]
    assert main(["tune", *words, *search, "--trials", "1"]) == 0
    assert capsys.readouterr().out.split()[:2] == ["trial", "validation_log_likelihood"]


@pytest.mark.usefixtures("workers_here")
def test_a_networks_prior_by_held_out_labels(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--config", "quick_classification", "--datasets", "iris", "--model", "mlp-map"]
    search = ["--search", "gwi.weight_variance=1e-6,1.0", "--steps", "60", "--trials", "3"]
    assert main(["tune", *words, *search, *BY_VALIDATION, "--out", "best.yaml"]) == 0
    values = {trial.params["gwi.weight_variance"]: trial.value for trial in trials()}
    assert values[1e-6] == pytest.approx(-math.log(3.0), abs=0.03)  # nearly a constant
    assert values[1.0] > values[1e-6] + 0.1
    gwi = load_experiment("best.yaml").settings.gwi
    assert gwi is not None
    assert gwi.weight_variance == 1.0


def test_detection_by_held_out_labels() -> None:
    of = Tuning(
        load_experiment("quick_ood"), {}, objective=BY_VALIDATION[1], validation_fraction=0.2
    )
    run = of.runs(of.experiment.override(models=["mlp-map"], datasets=["digits_rotated"]))[0]
    whole, seen = get_dataset("digits_rotated", task="ood"), run.load()
    assert len(seen.X_train) + len(seen.X_test) == len(whole.X_train)
    rows = {row.tobytes() for row in whole.X_train}
    for part in (seen.X_train, seen.X_test, seen.X_ood):
        assert {row.tobytes() for row in part} <= rows
