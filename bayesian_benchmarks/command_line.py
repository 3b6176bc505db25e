"""The command line that the benchmark's scripts share: parse, run, print the table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .config import Experiment, load_experiment
from .datasets import dataset_source, list_datasets
from .errors import BenchmarkError, ConfigError, UnknownNameError
from .models import list_models
from .results import ResultRow, ResultsStore, format_table, summarise
from .results.figures import check_picture, reliability_diagram
from .results.paired import format_paired, paired_differences
from .results.ranks import average_ranks, format_ranks
from .results.tables import DEFAULT_METRICS, HIGHER_IS_BETTER
from .runner import SweepReport, run_experiment
from .runs import expand, import_plugin

FORMATS = ("rich", "markdown", "csv")


@dataclass(frozen=True)
class Program:
    """What is a script's own.

    :param name: of the script.
    :param task: whose datasets and metrics it lists.
    :param configs: the folder of named configs.
    :param config: the config without arguments.
    :param config_of_datasets: the config when `--datasets` is given.
    :param description: the first part of its help.
    :param examples: the last part.
    :param data_layout: what `--data-dir` holds.
    :param cache: where downloads are kept.
    """

    name: str
    task: str
    configs: Path
    config: str
    config_of_datasets: str
    description: str
    examples: str
    data_layout: str
    cache: str


def run_program(program: Program, argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = _parser(program).parse_args(argv)
    if arguments.plugin:
        sys.path.append(str(Path.cwd()))
    try:
        if arguments.list:
            return _list(program, arguments.plugin)
        return _run(program, arguments)
    except BenchmarkError as error:
        print(f"{program.name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            f"{program.name}: interrupted; what is finished is stored, and the same command goes on "
            "from there.",
            file=sys.stderr,
        )
        return 130


def _parser(program: Program) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program.name,
        description=program.description,
        epilog=program.examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_argument_group("what to run (each replaces the config's)")
    what.add_argument(
        "--config",
        metavar="FILE",
        help=f"YAML file, or the name of one in configs/. Default: {program.config_of_datasets} when "
        f"--datasets is given, else {program.config}",
    )
    what.add_argument("--models", nargs="+", metavar="NAME", help="see --list")
    what.add_argument("--datasets", nargs="+", metavar="NAME", help="see --list")
    classes = "; its values are 0, 1, 2, ..." if program.task == "classification" else ""
    csv = "your own data: a header line and numbers"
    target = f"the column of --csv to predict{classes}"
    if program.task == "ood":  # whose data are two sets
        csv = target = argparse.SUPPRESS
    what.add_argument("--csv", metavar="FILE", help=csv)
    what.add_argument("--target", metavar="COLUMN", help=target)
    what.add_argument("--splits", nargs="+", metavar="K", help="such as 0 1 2, 0-4, or all")
    names = ", for models whose name does not say them" if program.task == "density" else ""
    what.add_argument(
        "--depths", nargs="+", type=int, metavar="L", help=f"numbers of layers{names}"
    )
    what.add_argument("--seeds", nargs="+", type=int, metavar="SEED")
    what.add_argument(
        "--steps",
        type=int,
        metavar="N",
        help="training steps; the KL annealing is then at most a quarter of them",
    )
    what.add_argument(
        "--plugin",
        nargs="+",
        metavar="MODULE",
        help="Python modules to import first, which register models or datasets of yours",
    )
    how = parser.add_argument_group("how to run it")
    how.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time (default 1)")
    how.add_argument(
        "--data-dir",
        metavar="DIR",
        help=f"a local copy of the data, as {program.data_layout}; the network is then not used. "
        f"Default: $BAYESIAN_BENCHMARKS_DATA, or download once to {program.cache}",
    )
    how.add_argument(
        "--store",
        default="runs/results.sqlite",
        metavar="FILE",
        help="the results store, with checkpoints beside it (default %(default)s)",
    )
    how.add_argument("--retry-failed", action="store_true", help="do runs again that failed before")
    out = parser.add_argument_group("what to print")
    out.add_argument("--tables-only", action="store_true", help="print the table, run nothing")
    out.add_argument("--metrics", nargs="+", metavar="NAME", help="columns; see --list")
    out.add_argument(
        "--paired",
        metavar="METRIC",
        help="print differences to the best model on the same splits, with two standard errors",
    )
    out.add_argument(
        "--ranks",
        metavar="METRIC",
        help="print average ranks over all datasets and the median difference to --baseline",
    )
    out.add_argument(
        "--baseline",
        metavar="MODEL",
        help="of --paired, in place of the best model of each line; of --ranks, default the first model",
    )
    if program.task == "classification":
        out.add_argument(
            "--reliability", metavar="PICTURE", help="draw a reliability diagram, such as a.png"
        )
    out.add_argument("--format", choices=FORMATS, default="rich", help="of the table")
    out.add_argument("--export", metavar="CSV", help="write all of the store's rows as sorted text")
    out.add_argument(
        "--import", dest="import_", metavar="CSV", help="first add the rows of an exported file"
    )
    out.add_argument("--list", action="store_true", help="list datasets, models, metrics, configs")
    return parser


def _run(program: Program, arguments: argparse.Namespace) -> int:
    if arguments.jobs < 1:
        raise ConfigError(f"--jobs is {arguments.jobs}; it must be at least 1.")
    experiment = _experiment(program, arguments)
    runs = expand(experiment)
    compared = list(filter(None, [arguments.paired, arguments.ranks]))
    _check_metrics(experiment.task, [*(arguments.metrics or ()), *compared])
    _check_comparison(compared, arguments.baseline, experiment.models)
    if picture := _picture(arguments):
        check_picture(picture)
    store = ResultsStore(arguments.store)
    if arguments.import_:
        print(f"{store.import_(arguments.import_)} rows added to {store.path}", file=sys.stderr)
    exit_code = 0
    if not arguments.tables_only:
        print(f"{len(runs)} runs of {experiment.settings.num_steps} steps", file=sys.stderr)
        report = run_experiment(
            experiment,
            store,
            jobs=arguments.jobs,
            data_dir=arguments.data_dir,
            retry_failed=arguments.retry_failed,
        )
        exit_code = _tell(report, store)
    if arguments.export:
        print(f"{store.export(arguments.export)} rows in {arguments.export}", file=sys.stderr)
    keys = {run.key for run in runs}
    rows = [row for row in store.rows("ok") if row.key in keys]
    if not rows:
        print(f"No finished run of this experiment in {store.path}.", file=sys.stderr)
        return exit_code
    try:
        _show(rows, experiment, arguments)
    except BenchmarkError as error:
        if exit_code == 0:
            raise
        print(f"{program.name}: {error}", file=sys.stderr)  # such as a baseline whose runs failed
    return exit_code


def _show(rows: list[ResultRow], experiment: Experiment, arguments: argparse.Namespace) -> None:
    """Print the table of the rows, and draw the picture if one is wanted."""
    reading: dict[str, Any] = {
        "paper": experiment.paper,
        "depth_counts_output_layer": experiment.depth_counts_output_layer,
    }
    if arguments.ranks:
        baseline = arguments.baseline or experiment.models[0]
        ranks = average_ranks(rows, arguments.ranks, baseline=baseline)
        print(format_ranks(ranks, baseline, arguments.format), end="")
    elif arguments.paired:
        pairs = paired_differences(rows, arguments.paired, baseline=arguments.baseline, **reading)
        print(format_paired(pairs, arguments.format), end="")
    else:
        metrics = arguments.metrics or DEFAULT_METRICS[experiment.task]
        lines = summarise(rows, metrics=metrics, **reading)
        print(format_table(lines, arguments.format), end="")
    if picture := _picture(arguments):
        counting = experiment.depth_counts_output_layer
        num_panels = reliability_diagram(rows, picture, depth_counts_output_layer=counting)
        print(f"{num_panels} panels in {picture}", file=sys.stderr)


def _picture(arguments: argparse.Namespace) -> str | None:
    """The file of `--reliability`, which is of classification alone."""
    return getattr(arguments, "reliability", None)


def _experiment(program: Program, arguments: argparse.Namespace) -> Experiment:
    """The config with the command line's changes."""
    default = program.config_of_datasets if arguments.datasets else program.config
    name = arguments.config or default
    packaged = program.configs / f"{name}.yaml"
    experiment = load_experiment(packaged if packaged.is_file() else name)
    if experiment.task != program.task:
        raise ConfigError(f"{name} is an experiment in {experiment.task}, not {program.task}.")
    datasets = [] if arguments.datasets is None and arguments.csv else arguments.datasets
    settings = experiment.settings
    return experiment.override(
        models=arguments.models,
        datasets=datasets,
        csv=arguments.csv,
        target=arguments.target,
        splits=_splits(arguments.splits),
        depths=arguments.depths,
        seeds=arguments.seeds,
        settings=None if arguments.steps is None else settings.with_steps(arguments.steps),
        plugins=arguments.plugin,
    )


def _splits(words: list[str] | None) -> str | list[int] | None:
    """`0 3-5` as [0, 3, 4, 5]; `all` as it is."""
    if words is None or words == ["all"]:
        return "all" if words else None
    splits: list[int] = []
    for word in words:
        first, _, last = word.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            raise ConfigError(f"--splits: {word!r} is not a number, a range such as 0-4, or all.")
        numbers = range(int(first), int(last or first) + 1)
        if not numbers:
            raise ConfigError(f"--splits: {word!r} goes down; write {last}-{first}.")
        splits += numbers
    return splits


def _check_metrics(task: str, metrics: Sequence[str]) -> None:
    from .tasks import METRICS_OF

    for metric in metrics:
        if metric not in METRICS_OF[task]:
            raise UnknownNameError("metric", metric, METRICS_OF[task])


def _check_comparison(metrics: list[str], baseline: str | None, models: Sequence[str]) -> None:
    """Check what `--paired`, `--ranks` and `--baseline` say, before anything is trained."""
    if len(metrics) > 1:
        raise ConfigError("--paired and --ranks are two tables; ask for one at a time.")
    for metric in metrics:
        if metric not in HIGHER_IS_BETTER:
            raise UnknownNameError("metric to compare models by", metric, HIGHER_IS_BETTER)
    if baseline is not None and not metrics:
        raise ConfigError("--baseline is of --paired METRIC or --ranks METRIC; neither is given.")
    if baseline is not None and baseline not in models:
        raise UnknownNameError("baseline among the models of this experiment", baseline, models)


def _tell(report: SweepReport, store: ResultsStore) -> int:
    """Say what was skipped and what failed; returns the exit code."""
    if report.num_stored_before:
        print(f"{report.num_stored_before} runs were in {store.path} already", file=sys.stderr)
    failed = report.num_failed + report.num_failed_before
    if failed:
        print(
            f"{failed} runs failed and are not in the table: see {store.path.parent}/*/log.txt; "
            "--retry-failed does them again",
            file=sys.stderr,
        )
    return 1 if failed else 0


def _list(program: Program, plugins: list[str] | None) -> int:
    from .tasks import METRICS_OF

    for plugin in plugins or ():
        import_plugin(plugin)
    print("datasets:")
    for name in list_datasets(program.task):
        source = dataset_source(name, program.task)
        print(f"  {name:<28} {source.num_splits} splits; {source.origin}")
    print("models:")
    for name in list_models():
        print(f"  {name}")
    print("metrics:")
    for name, meaning in METRICS_OF[program.task].items():
        print(f"  {name:<28} {meaning}")
    print("configs:")
    for path in sorted(program.configs.glob("*.yaml")):
        print(f"  {path.stem}")
    return 0
