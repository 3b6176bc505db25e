"""`dkp-bench tune`: settings of a model, chosen by Optuna without a look at the test part."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from ..command_line import exit_code_of, import_plugins, split_numbers
from ..configs import find_config
from ..errors import ConfigError, StoreError
from ..experiment import Experiment, load_experiment
from ..models import model_source
from ..search_space import SYNTAX, search_space, words_of_file
from ..tuning import (
    OBJECTIVES,
    PRUNERS,
    Tuning,
    importances,
    mean_and_error,
    open_study,
    own_settings,
    shown,
    tasks_to_tune,
    tune,
)

NAME = "dkp-bench tune"

DESCRIPTION = """\
Choose settings of one model at one depth by Optuna. A trial trains the model on every split that is
given, a process each, and has the mean of the bound per training point, or of the log density of targets, or
log probability of labels, that are held out of the training part. No trial sees the test part. One whose
bound is below the median of the others at a tenth of the steps, two tenths and so on is pruned. Trials are
kept beside the results store; one that a kill left half-way goes on when the same command is given again."""

EXAMPLES = """\
examples:
  %(prog)s --model dgp --search num_inducing=20:100 schedule.learning_rate.rate=log:1e-2:1e-1 --out best.yaml
      on the data of --config quick; `dkp-bench uci --config best.yaml` then runs and scores the best
  %(prog)s --config ober2023 --datasets yacht boston --splits 0-2 --model dwp-ab-gw --depth 3 \\
      --search learning_rate=log:1e-3:1e-1 schedule=fast,paper --objective validation_log_likelihood
      on three splits of two datasets, by held-out rows
  %(prog)s --config quick_density --model gp --search-file ranges.yaml --trials 50 --jobs 2
      ranges from a file, such as `num_inducing: 20:100`; two trials at a time
  %(prog)s --config quick_classification --datasets iris --model mlp-map --trials 4 \\
      --search gwi.weight_variance=log:1e-3:1 --objective validation_log_likelihood
      a network's prior by the labels of held-out rows

A number for learning_rate or natural_gradient is the first or the highest rate of the schedule in use.

exit codes: 0 at least one trial is complete; 1 none is; 2 bad input; 130 interrupted with Ctrl-C: the same
command goes on."""


def main(argv: Sequence[str] | None = None, name: str = NAME) -> int:
    """Run the command line; returns the exit code.

    :param name: of the command, before its errors and in its help.
    """
    return exit_code_of(name, lambda: _run(_parser(name).parse_args(argv)))


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=name,
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_argument_group("what to search")
    what.add_argument(
        "--search",
        nargs="+",
        default=[],
        metavar="NAME=RANGE",
        help=f"settings that the model reads; a range is {SYNTAX}",
    )
    what.add_argument("--search-file", type=Path, metavar="FILE", help="YAML, ranges by name")
    what.add_argument(
        "--objective",
        choices=OBJECTIVES,
        default="elbo_per_point",
        help="what is maximised: the bound (default), or the log density of held-out training rows",
    )
    what.add_argument(
        "--validation-fraction",
        type=float,
        default=0.1,
        metavar="F",
        help="of the training part, to hold out (default 0.1)",
    )
    of = parser.add_argument_group("of what (each replaces the config's)")
    of.add_argument("--config", default="quick", metavar="FILE", help="default: quick")
    of.add_argument("--model", metavar="NAME", help="one; needed where the config has several")
    of.add_argument("--depth", type=int, metavar="L", help="one number of layers; the same")
    of.add_argument("--datasets", nargs="+", metavar="NAME")
    of.add_argument("--csv", metavar="FILE", help="your own data, as of `dkp-bench uci`")
    of.add_argument("--target", nargs="+", metavar="COLUMN", help="the column of --csv to predict")
    of.add_argument("--splits", nargs="+", metavar="K", help="such as 0 1 2, 0-4, or all")
    of.add_argument("--seeds", nargs="+", type=int, metavar="SEED")
    of.add_argument("--steps", type=int, metavar="N", help="training steps")
    of.add_argument("--plugin", nargs="+", metavar="MODULE", help="modules to import first")
    how = parser.add_argument_group("how")
    how.add_argument("--trials", type=int, default=20, metavar="N", help="in all (default 20)")
    how.add_argument("--jobs", type=int, default=1, metavar="N", help="trials at a time")
    how.add_argument("--pruner", choices=PRUNERS, default="median", help="default: median")
    how.add_argument("--data-dir", type=Path, metavar="DIR", help="a local copy of the data")
    how.add_argument(
        "--store",
        type=Path,
        default=Path("runs/results.sqlite"),
        metavar="FILE",
        help="the results store; trials are in FILE.tune beside it (default %(default)s)",
    )
    out = parser.add_argument_group("what to print")
    out.add_argument("--best", type=int, default=10, metavar="K", help="trials shown (default 10)")
    out.add_argument("--out", type=Path, metavar="FILE", help="write the best as a config, YAML")
    out.add_argument("--tables-only", action="store_true", help="print the table, run nothing")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    _check_numbers(arguments)
    import_plugins(arguments.plugin)
    experiment = _experiment(arguments)
    source = model_source(experiment.model_names[0])
    words = list(arguments.search)
    if arguments.search_file is not None:
        words += words_of_file(arguments.search_file)
    tuning = Tuning(
        experiment,
        search_space(words, source, own_settings(experiment)),
        arguments.objective,
        arguments.validation_fraction,
        arguments.data_dir,
    )
    store: Path = arguments.store
    path = store.with_name(f"{store.name}.tune")
    if arguments.tables_only and not path.exists():
        raise StoreError(f"There is no {path}; give the --store that trials were made with.")
    study = open_study(tuning, path, arguments.pruner)
    if not arguments.tables_only:
        folder = store.parent / f"tune-{tuning.name}"
        say = _print_error
        tune(tuning, study, folder, trials=arguments.trials, jobs=arguments.jobs, say=say)
    trials = study.get_trials(deepcopy=False)
    for line in _summary(trials, tuning.objective, arguments.best):
        print(line)
    done = _best_first(trials)
    if not done:
        _print_error("No trial of this study is complete.")
        return 1
    found = list(importances(study))
    if found:
        print("importance:", ", ".join(f"{name} {part:.2f}" for name, part in found))
    if arguments.out is not None:
        _write(tuning.experiment_of(done[0].params), arguments.out)
        _print_error(f"The settings of trial {done[0].number} are in {arguments.out}.")
    return 0


def _print_error(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _check_numbers(arguments: argparse.Namespace) -> None:
    for name in ("trials", "jobs", "best"):
        if (value := getattr(arguments, name)) < 1:
            raise ConfigError(f"--{name} is {value}; it must be at least 1.")
    fraction = arguments.validation_fraction
    if not 0 < fraction < 1:
        raise ConfigError(f"--validation-fraction is {fraction}; it must be between 0 and 1.")


def _experiment(arguments: argparse.Namespace) -> Experiment:
    """The config with the command line's changes, of one model and one depth."""
    experiment = load_experiment(find_config(arguments.config))
    known = tasks_to_tune()
    if experiment.task not in known:
        raise ConfigError(
            f"{arguments.config} is an experiment in {experiment.task}; tune is for "
            f"{', '.join(known)}."
        )
    models: list[Any] = list(experiment.models)
    if arguments.model is not None:
        models = [m for m in models if arguments.model in (m, getattr(m, "name", None))]
        models = models or [arguments.model]
    if len(models) > 1:
        names = ", ".join(experiment.model_names)
        raise ConfigError(f"{arguments.config} has models {names}; say which with --model.")
    depths = experiment.depths if arguments.depth is None else [arguments.depth]
    if len(depths) > 1:
        raise ConfigError(
            f"{arguments.config} has depths {', '.join(map(str, depths))}; say which with --depth."
        )
    datasets = [] if arguments.datasets is None and arguments.csv else arguments.datasets
    changed = experiment.override(
        models=models,
        depths=depths,
        datasets=datasets,
        csv=arguments.csv,
        target=arguments.target,
        splits=split_numbers(arguments.splits),
        seeds=arguments.seeds,
        plugins=arguments.plugin,
    )
    return changed if arguments.steps is None else changed.with_steps(arguments.steps)


def _best_first(trials: Sequence[Any]) -> list[Any]:
    done = [trial for trial in trials if trial.state.name == "COMPLETE"]
    return sorted(done, key=lambda trial: -trial.value)


def _summary(trials: Sequence[Any], objective: str, best: int) -> Iterator[str]:
    """The table of the best trials, and how many there are."""
    done = _best_first(trials)
    names = sorted({name for trial in done for name in trial.params})
    rows = [["trial", objective, *names, "seconds"]]
    for trial in done[:best]:
        choices = [shown(trial.params[n]) if n in trial.params else "" for n in names]
        score = mean_and_error(trial.user_attrs["values"])
        rows.append([str(trial.number), score, *choices, f"{trial.user_attrs['seconds']:.0f}"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if done:
        for row in rows:
            yield "  ".join(x.rjust(w) for x, w in zip(row, widths, strict=True))
    states = [trial.state.name for trial in trials]
    counts = {
        "complete": "COMPLETE",
        "pruned": "PRUNED",
        "failed": "FAIL",
        "left half-way": "RUNNING",
    }
    parts = [f"{states.count(state)} {name}" for name, state in counts.items() if state in states]
    yield f"{len(trials)} trials: {', '.join(parts)}" if trials else "0 trials"


def _write(experiment: Experiment, path: Path) -> None:
    """An experiment as a config, its settings written out."""
    content = experiment.model_dump(mode="json", exclude_defaults=True, exclude={"settings"})
    content["settings"] = experiment.settings.model_dump(mode="json")
    if experiment.csv is not None:
        content["csv"] = str(experiment.csv.absolute())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    except OSError as error:
        raise StoreError(f"Cannot write {path} ({error.strerror or error}).") from error
