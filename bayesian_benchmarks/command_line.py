"""What the commands that run experiments share: parse, run, print the table."""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .configs import CONFIGS, find_config, list_configs
from .datasets import dataset_source, list_datasets
from .errors import BenchmarkError, ConfigError, UnknownNameError
from .experiment import Experiment, load_experiment
from .interruption import Terminated, ended_in_order
from .models import list_models
from .plugins import import_installed_plugins, import_plugin
from .report.figures import check_picture, reliability_diagram
from .report.paired import format_paired, paired_differences
from .report.ranks import average_ranks, format_ranks
from .report.tables import format_table, summarise
from .store import ResultRow, ResultsStore, check_export
from .sweep import (
    Again,
    DaskEngine,
    LocalEngine,
    Run,
    SlurmEngine,
    SweepReport,
    due_runs,
    expand,
    hand_out,
    run_experiment,
)
from .sweep.costs import Costs, duration
from .sweep.engines import Engine
from .sweep.run import UNKNOWN
from .tasks import directions, metrics_of

FORMATS = ("rich", "markdown", "csv")


@dataclass(frozen=True)
class Program:
    """What is a command's own.

    :param name: of the command, before its errors and in its help.
    :param task: whose datasets and metrics it lists.
    :param config: the config without arguments.
    :param config_of_datasets: the config when `--datasets` is given.
    :param description: the first part of its help.
    :param examples: the last part.
    :param data_layout: what `--data-dir` holds.
    :param cache: where downloads are kept.
    :param configs: the folder of named configs.
    """

    name: str
    task: str
    config: str
    config_of_datasets: str
    description: str
    examples: str
    data_layout: str
    cache: str
    configs: Path = CONFIGS


def run_program(program: Program, argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""

    def do() -> int:
        arguments = _parser(program).parse_args(argv)
        import_plugins(arguments.plugin)
        return _list(program) if arguments.list else _run(program, arguments)

    return exit_code_of(program.name, do)


def import_plugins(modules: Sequence[str] | None) -> None:
    """Import the plugins of installed packages, and those of `--plugin`."""
    import_installed_plugins()
    for module in modules or ():
        import_plugin(module)


def exit_code_of(name: str, do: Callable[[], int]) -> int:
    """What a command returns, or the exit code of its error, which is told in a line."""
    for stream in (sys.stdout, sys.stderr):  # a terminal without ± has ? there
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        with ended_in_order():
            exit_code = do()
        sys.stdout.flush()
        return exit_code
    except BenchmarkError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # such as of `| head`
        _forget_output()
        return 1
    except OSError as error:
        print(f"{name}: {error}", file=sys.stderr)
        _forget_output()
        return 1
    except (KeyboardInterrupt, Terminated) as reason:
        print(
            f"{name}: interrupted; what is finished is stored, and the same command goes on "
            "from there.",
            file=sys.stderr,
        )
        return 128 + (signal.SIGTERM if isinstance(reason, Terminated) else signal.SIGINT)


def _forget_output() -> None:
    """Let what could not be written go, so that nothing tries again at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
        help=f"YAML file, or the name of one of --list. Default: {program.config_of_datasets} when "
        f"--datasets is given, else {program.config}",
    )
    what.add_argument("--models", nargs="+", metavar="NAME", help="see --list")
    what.add_argument("--datasets", nargs="+", metavar="NAME", help="see --list")
    classes = "; its values are 0, 1, 2, ... or names" if program.task == "classification" else ""
    csv = "your own data: a CSV file with a header line and numbers, or a .parquet or .arff file"
    target = f"the column of --csv to predict{classes or ', or columns'}"
    if program.task == "ood":  # whose data are two sets
        csv = target = argparse.SUPPRESS
    what.add_argument("--csv", metavar="FILE", help=csv)
    what.add_argument("--target", nargs="+", metavar="COLUMN", help=target)
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
    how.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="runs at a time (default 1; of --slurm 100; of --dask with an address what it has room for)",
    )
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
    how.add_argument(
        "--quiet", action="store_true", help="say only what failed, and at the end what was done"
    )
    how.add_argument("--retry-failed", action="store_true", help="do runs again that failed before")
    how.add_argument(
        "--redo-changed",
        action="store_true",
        help="do runs again whose rows another version of the code made (†)",
    )
    how.add_argument(
        "--rescore",
        action="store_true",
        help="train nothing: score finished runs again, by kept models or predictions",
    )
    how.add_argument(
        "--keep-models", action="store_true", help="keep trained models, in the store's folder"
    )
    how.add_argument(
        "--tensorboard",
        metavar="DIR",
        help="write each training's bound there, for `tensorboard --logdir DIR`",
    )
    how.add_argument(
        "--max-run-seconds",
        type=float,
        metavar="S",
        help="stop a run that takes longer; it is a failure",
    )
    how.add_argument(
        "--remove",
        action="store_true",
        help="remove this experiment's rows from the store, run nothing",
    )
    _add_engines(parser)
    out = parser.add_argument_group("what to print")
    out.add_argument("--tables-only", action="store_true", help="print the table, run nothing")
    out.add_argument("--metrics", nargs="+", metavar="NAME", help="columns; see --list")
    out.add_argument(
        "--paired",
        metavar="METRIC",
        help="print differences to the best model on the same splits, with two standard errors, or one "
        "where the paper prints one",
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
    out.add_argument(
        "--across",
        action="store_true",
        help="of --paired and --ranks: with all rows of the datasets, also of other configs and depths",
    )
    out.add_argument(
        "--code",
        metavar="FINGERPRINT",
        help="show only rows whose code, the fingerprint or else the git_commit of --export, begins so",
    )
    out.add_argument("--format", choices=FORMATS, default="rich", help="of the table")
    out.add_argument("--export", metavar="CSV", help="write all of the store's rows as sorted text")
    out.add_argument(
        "--import", dest="import_", metavar="CSV", help="first add the rows of an exported file"
    )
    out.add_argument("--list", action="store_true", help="list datasets, models, metrics, configs")
    return parser


def _add_engines(parser: argparse.ArgumentParser) -> None:
    """What says where workers are."""
    where = parser.add_argument_group(
        "where to run it (by default processes of this machine; elsewhere the store's folder and the data "
        "have to be under the same paths, and this package of the same version)"
    )
    one = where.add_mutually_exclusive_group()
    one.add_argument(
        "--dask",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="on a Dask scheduler, such as tcp://host:8786, or without an address on one of this machine",
    )
    one.add_argument("--slurm", action="store_true", help="as jobs of Slurm, one a run")
    one.add_argument(
        "--print-commands",
        action="store_true",
        help="run nothing: print a shell command for each run that is due, for any scheduler or machine; "
        "when they have been run, the same command takes their rows into the store",
    )
    where.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="cores of each run (default: here its share by --jobs, of --dask with an address and --slurm "
        "1, of --print-commands all)",
    )
    where.add_argument("--slurm-partition", metavar="NAME", help="of the jobs; default Slurm's own")
    where.add_argument(
        "--slurm-minutes",
        type=int,
        default=24 * 60,
        metavar="N",
        help="of a job (default %(default)s); a run that takes longer goes on in another",
    )
    where.add_argument(
        "--slurm-option",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="more of sbatch's, by their long names, such as account=lab mem=8G",
    )


def _run(program: Program, arguments: argparse.Namespace) -> int:
    _check_numbers(arguments)
    experiment = _experiment(program, arguments)
    compared = list(filter(None, [arguments.paired, arguments.ranks]))
    _check_metrics(experiment.task, [*(arguments.metrics or ()), *compared])
    _check_comparison(arguments, compared, experiment)
    if picture := _picture(arguments):
        check_picture(picture)
    if arguments.export:
        check_export(arguments.export)
    runs_nothing = arguments.tables_only or arguments.remove
    runs = expand(experiment, arguments.data_dir, need_data=not runs_nothing)
    for note in dict.fromkeys(note for run in runs if run.csv for note in run.csv.notes):
        print(f"{program.name}: {note}", file=sys.stderr)
    store = ResultsStore(arguments.store)
    if arguments.import_:
        print(f"{store.import_(arguments.import_)} rows added to {store.path}", file=sys.stderr)
    if arguments.remove:
        keys = [row.key for row in _rows_of(runs, store.rows())]
        print(f"{store.remove(keys)} rows removed from {store.path}")
        return 0
    exit_code = 0
    if not arguments.tables_only:
        options: dict[str, Any] = {
            "data_dir": arguments.data_dir,
            "retry_failed": arguments.retry_failed,
            "redo_changed": arguments.redo_changed,
            "rescore": arguments.rescore,
            "keep_models": arguments.keep_models,
            "tensorboard": arguments.tensorboard,
            "progress": "failures" if arguments.quiet else True,
        }
        if arguments.print_commands:
            return _print_commands(experiment, store, arguments, options)
        with _engine(arguments, store) as engine:
            if not arguments.quiet:
                again = Again(arguments.retry_failed, arguments.redo_changed, arguments.rescore)
                slots = engine.num_slots
                _announce(_config_name(program, arguments), runs, store, again, slots)
            report = run_experiment(
                experiment,
                store,
                engine=engine,
                max_run_seconds=arguments.max_run_seconds,
                **options,
            )
        if arguments.quiet:
            print(f"{report.num_ok} of {len(runs)} runs were done now", file=sys.stderr)
        exit_code = _tell(report, store)
    if arguments.export:
        print(f"{store.export(arguments.export)} rows in {arguments.export}", file=sys.stderr)
    rows = store.rows("ok")
    if not arguments.across:
        rows = _rows_of(runs, rows)
    datasets = {run.dataset for run in runs}
    rows = [row for row in rows if row.task == experiment.task and row.dataset in datasets]
    if not rows:
        print(f"No finished run of this experiment in {store.path}.", file=sys.stderr)
        return exit_code
    try:
        if arguments.code is not None:
            rows = _made_by(arguments.code, rows)
        _show(rows, experiment, arguments)
    except BenchmarkError as error:
        if exit_code == 0:
            raise
        print(f"{program.name}: {error}", file=sys.stderr)  # such as a baseline whose runs failed
    return exit_code


@contextlib.contextmanager
def _engine(arguments: argparse.Namespace, store: ResultsStore) -> Iterator[Engine]:
    """Where workers are started, as the command line says, and as it tells."""
    jobs: int | None = arguments.jobs
    engine: Engine
    if arguments.dask is not None:
        engine = DaskEngine(arguments.dask or None, jobs=jobs or 1, num_threads=arguments.threads)
    elif arguments.slurm:
        engine = SlurmEngine(
            store.path.parent / "slurm",
            jobs=jobs or 100,
            partition=arguments.slurm_partition,
            minutes=arguments.slurm_minutes,
            num_threads=arguments.threads or 1,
            options=dict(option.split("=", 1) for option in arguments.slurm_option),
        )
    else:
        engine = LocalEngine(jobs or 1, num_threads=arguments.threads)
    try:
        if not arguments.quiet and not isinstance(engine, LocalEngine):
            print(engine, file=sys.stderr)
        yield engine
    finally:
        engine.close()


def _print_commands(
    experiment: Experiment,
    store: ResultsStore,
    arguments: argparse.Namespace,
    options: dict[str, Any],
) -> int:
    """Print what does the runs that are due, once the rows that are there are in the store."""
    commands, report = hand_out(experiment, store, num_threads=arguments.threads, **options)
    for command in commands:
        print(command)
    if not arguments.quiet:
        taken_in = report.num_ok + report.num_failed
        in_hand = f", {report.num_elsewhere} in hand elsewhere" if report.num_elsewhere else ""
        print(
            f"{len(commands)} runs to do{in_hand}, {taken_in} taken into {store.path}",
            file=sys.stderr,
        )
    return 0


def _rows_of(runs: list[Run], rows: list[ResultRow]) -> list[ResultRow]:
    """The rows of these runs."""
    keys = {run.key for run in runs}
    unknown = [run for run in runs if run.data == UNKNOWN]
    return [row for row in rows if row.key in keys or any(run.has_made(row) for run in unknown)]


def _made_by(code: str, rows: list[ResultRow]) -> list[ResultRow]:
    """The rows whose `code` begins so.

    :raises UnknownNameError: there are none.
    """
    made = [row for row in rows if row.code.startswith(code)]
    if not made:
        known = {row.code or "not recorded" for row in rows}
        raise UnknownNameError("code of the rows", code, known)
    return made


def _announce(config: str, runs: list[Run], store: ResultsStore, again: Again, jobs: int) -> None:
    """Say what is to be done, by whose settings, and how long it takes."""
    due = due_runs(runs, store, again).runs
    steps = sorted({run.settings.num_steps for run in runs})
    text = f"{len(runs)} runs of {' or '.join(map(str, steps))} steps (config {config}), {len(due)} due"
    seconds = None if again.rescore else Costs(store.rows("ok")).total(due)
    if due and seconds is not None:
        text += f": about {duration(seconds / min(jobs, len(due)))}"
    print(text, file=sys.stderr)


def _show(rows: list[ResultRow], experiment: Experiment, arguments: argparse.Namespace) -> None:
    """Print the table of the rows, and draw the picture if one is wanted."""
    reading: dict[str, Any] = {
        "paper": experiment.paper,
        "depth_counts_output_layer": experiment.depth_counts_output_layer,
    }
    across: bool = arguments.across
    if metric := arguments.ranks:
        baseline = arguments.baseline or experiment.model_names[0]
        ranks = average_ranks(rows, metric, baseline=baseline, across_depths=across)
        print(format_ranks(ranks, metric, baseline, arguments.format), end="")
    elif metric := arguments.paired:
        pairs = paired_differences(
            rows, metric, baseline=arguments.baseline, across_depths=across, **reading
        )
        print(format_paired(pairs, metric, arguments.format), end="")
    else:
        lines = summarise(rows, metrics=arguments.metrics, **reading)
        print(format_table(lines, arguments.format), end="")
    if picture := _picture(arguments):
        counting = experiment.depth_counts_output_layer
        num_panels = reliability_diagram(rows, picture, depth_counts_output_layer=counting)
        print(f"{num_panels} panels in {picture}", file=sys.stderr)


def _picture(arguments: argparse.Namespace) -> str | None:
    """The file of `--reliability`, which is of classification alone."""
    return getattr(arguments, "reliability", None)


def _config_name(program: Program, arguments: argparse.Namespace) -> str:
    default = program.config_of_datasets if arguments.datasets else program.config
    return arguments.config or default


def _experiment(program: Program, arguments: argparse.Namespace) -> Experiment:
    """The config with the command line's changes."""
    name = _config_name(program, arguments)
    experiment = load_experiment(find_config(name, program.configs))
    if experiment.task != program.task:
        raise ConfigError(f"{name} is an experiment in {experiment.task}, not {program.task}.")
    datasets = [] if arguments.datasets is None and arguments.csv else arguments.datasets
    changed = experiment.override(
        models=arguments.models and experiment.models_named(arguments.models),
        datasets=datasets,
        csv=arguments.csv,
        target=arguments.target,
        splits=split_numbers(arguments.splits),
        depths=arguments.depths,
        seeds=arguments.seeds,
        plugins=arguments.plugin,
    )
    return changed if arguments.steps is None else changed.with_steps(arguments.steps)


def split_numbers(words: list[str] | None) -> str | list[int] | None:
    """`0 3-5` as [0, 3, 4, 5]; `all` as it is."""
    if words is None or words == ["all"]:
        return "all" if words else None
    splits: list[int] = []
    for word in words:
        first, _, last = word.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            raise ConfigError(f"--splits: {word!r} is not a number, a range such as 0-4, or all.")
        if len(first) > 6 or len(last) > 6:
            raise ConfigError(
                f"--splits: {word[:40]!r} is too large; no dataset has so many splits."
            )
        numbers = range(int(first), int(last or first) + 1)
        if not numbers:
            raise ConfigError(f"--splits: {word!r} goes down; write {last}-{first}.")
        splits += numbers
    return splits


def _check_numbers(arguments: argparse.Namespace) -> None:
    for name in ("jobs", "threads", "slurm_minutes"):
        number = getattr(arguments, name)
        if number is not None and number < 1:
            raise ConfigError(f"--{name.replace('_', '-')} is {number}; it must be at least 1.")
    for option in arguments.slurm_option:
        if not option.partition("=")[0] or "=" not in option:
            raise ConfigError(f"--slurm-option: {option!r} is not NAME=VALUE.")
    of_slurm = {"partition": arguments.slurm_partition, "option": arguments.slurm_option}
    for name, value in of_slurm.items():
        if value and not arguments.slurm:
            raise ConfigError(f"--slurm-{name} is of --slurm, which is not given.")
    if arguments.print_commands and arguments.max_run_seconds is not None:
        raise ConfigError("--max-run-seconds is no part of --print-commands, which runs nothing.")
    limit = arguments.max_run_seconds
    if limit is not None and not (math.isfinite(limit) and limit > 0):
        raise ConfigError(f"--max-run-seconds is {limit}; it must be above 0.")


def _check_metrics(task: str, metrics: Sequence[str]) -> None:
    for metric in metrics:
        if metric not in metrics_of(task):
            raise UnknownNameError("metric", metric, metrics_of(task))


def _check_comparison(
    arguments: argparse.Namespace, metrics: list[str], experiment: Experiment
) -> None:
    """Check what `--paired`, `--ranks`, `--baseline` and `--across` say, before anything is trained."""
    baseline = arguments.baseline
    if len(metrics) > 1:
        raise ConfigError("--paired and --ranks are two tables; ask for one at a time.")
    for metric in metrics:
        if metric not in directions():
            known = set(directions()) & set(metrics_of(experiment.task))
            raise UnknownNameError("metric to compare models by", metric, known)
    for name, value in (("--baseline", baseline), ("--across", arguments.across)):
        if value and not metrics:
            raise ConfigError(f"{name} is of --paired METRIC or --ranks METRIC; neither is given.")
    if baseline is not None and baseline not in experiment.model_names and not arguments.across:
        models = experiment.model_names
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
    if report.num_interrupted:
        print(
            f"{report.num_interrupted} runs could not be done; the same command does them",
            file=sys.stderr,
        )
    return 1 if failed or report.num_interrupted else 0


def _list(program: Program) -> int:
    print("datasets:")
    for name in list_datasets(program.task):
        source = dataset_source(name, program.task)
        print(f"  {name:<28} {source.num_splits} splits; {source.origin}")
    print("models:")
    for name in list_models(program.task):
        print(f"  {name}")
    print("metrics:")
    for name, metric in metrics_of(program.task).items():
        print(f"  {name:<28} {metric.meaning}")
    print("configs:")
    for name in list_configs(program.configs):
        if load_experiment(find_config(name, program.configs)).task == program.task:
            print(f"  {name}")
    return 0
