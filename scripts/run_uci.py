"""Train deep kernel processes on UCI regression data and print the paper's table beside ours."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bayesian_benchmarks.config import Experiment, load_experiment
from bayesian_benchmarks.datasets import dataset_source, list_datasets
from bayesian_benchmarks.errors import BenchmarkError, ConfigError, UnknownNameError
from bayesian_benchmarks.models import list_models
from bayesian_benchmarks.results import ResultsStore, format_table, summarise
from bayesian_benchmarks.results.tables import DEFAULT_METRICS
from bayesian_benchmarks.runner import SweepReport, run_experiment
from bayesian_benchmarks.runs import expand, import_plugin

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
FORMATS = ("rich", "markdown", "csv")

DESCRIPTION = """\
Train models on regression datasets, and print ELBO, test log-likelihood and RMSE (mean and
standard error over splits) beside the published figures. Each finished run is a row in a results
store; a run that is there already is not done again, and one that was interrupted, even by SIGKILL,
goes on where it was and ends with the same numbers.

With no arguments: a deep Wishart process and a deep GP on data that need no download, in under
three minutes on two cores."""

EXAMPLES = """\
examples:
  %(prog)s
      the offline demonstration (configs/quick.yaml)
  %(prog)s --datasets yacht boston --models dwp-ab-gw dgp --splits 0-2 --depths 2 --jobs 2
      three splits with the paper's settings (configs/ober2023.yaml), two runs at a time
  %(prog)s --datasets yacht --splits 0 --depths 2 --steps 500
      a short look; the figures will be worse than the paper's
  %(prog)s --csv houses.csv --target price
      your own data, with the demonstration's settings
  %(prog)s --config ober2023 --tables-only --format markdown
      the table of all runs of the paper's protocol done so far
  %(prog)s --config ober2023 --import results/ober2023.csv --tables-only
      the same, of the rows that come with the source

exit codes: 0 all runs are in the store; 1 some failed (see --retry-failed); 2 bad input;
130 interrupted with Ctrl-C: the same command goes on."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = _parser().parse_args(argv)
    if arguments.plugin:
        sys.path.append(str(Path.cwd()))
    try:
        if arguments.list:
            return _list(arguments.plugin)
        return _run(arguments)
    except BenchmarkError as error:
        print(f"run_uci.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "run_uci.py: interrupted; what is finished is stored, and the same command goes on "
            "from there.",
            file=sys.stderr,
        )
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run_uci.py",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_argument_group("what to run (each replaces the config's)")
    what.add_argument(
        "--config",
        metavar="FILE",
        help="YAML file, or the name of one in configs/. Default: ober2023, the paper's protocol, "
        "when --datasets is given, else quick",
    )
    what.add_argument("--models", nargs="+", metavar="NAME", help="see --list")
    what.add_argument("--datasets", nargs="+", metavar="NAME", help="see --list")
    what.add_argument("--csv", metavar="FILE", help="your own data: a header line and numbers")
    what.add_argument("--target", metavar="COLUMN", help="the column of --csv to predict")
    what.add_argument("--splits", nargs="+", metavar="K", help="such as 0 1 2, 0-4, or all")
    what.add_argument("--depths", nargs="+", type=int, metavar="L", help="numbers of layers")
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
        help="a local copy of the data, as DIR/UCI_Datasets/...; the network is then not used. "
        "Default: $BAYESIAN_BENCHMARKS_DATA, or download once to $BAYESIAN_BENCHMARKS_CACHE",
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
    out.add_argument("--format", choices=FORMATS, default="rich", help="of the table")
    out.add_argument("--export", metavar="CSV", help="write all of the store's rows as sorted text")
    out.add_argument(
        "--import", dest="import_", metavar="CSV", help="first add the rows of an exported file"
    )
    out.add_argument("--list", action="store_true", help="list datasets, models, metrics, configs")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    if arguments.jobs < 1:
        raise ConfigError(f"--jobs is {arguments.jobs}; it must be at least 1.")
    experiment = _experiment(arguments)
    runs = expand(experiment)
    metrics = arguments.metrics or DEFAULT_METRICS
    _check_metrics(metrics)
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
    keys = {run.key for run in runs}
    lines = summarise(
        [row for row in store.rows("ok") if row.key in keys],
        metrics=metrics,
        paper=experiment.paper,
        depth_counts_output_layer=experiment.depth_counts_output_layer,
    )
    if lines:
        print(format_table(lines, arguments.format), end="")
    else:
        print(f"No finished run of this experiment in {store.path}.", file=sys.stderr)
    if arguments.export:
        print(f"{store.export(arguments.export)} rows in {arguments.export}", file=sys.stderr)
    return exit_code


def _experiment(arguments: argparse.Namespace) -> Experiment:
    """The config with the command line's changes."""
    name = arguments.config or ("ober2023" if arguments.datasets else "quick")
    packaged = CONFIGS / f"{name}.yaml"
    experiment = load_experiment(packaged if packaged.is_file() else name)
    datasets = arguments.datasets
    if datasets is None and arguments.csv:
        datasets = []
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
        splits += range(int(first), int(last or first) + 1)
    return splits


def _check_metrics(metrics: Sequence[str]) -> None:
    from bayesian_benchmarks.tasks import METRICS

    for metric in metrics:
        if metric not in METRICS:
            raise UnknownNameError("metric", metric, METRICS)


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


def _list(plugins: list[str] | None) -> int:
    from bayesian_benchmarks.tasks import METRICS

    for plugin in plugins or ():
        import_plugin(plugin)
    print("datasets:")
    for name in list_datasets():
        source = dataset_source(name)
        print(f"  {name:<28} {source.num_splits} splits; {source.origin}")
    print("models:")
    for name in list_models():
        print(f"  {name}")
    print("metrics:")
    for name, meaning in METRICS.items():
        print(f"  {name:<28} {meaning}")
    print("configs:")
    for path in sorted(CONFIGS.glob("*.yaml")):
        print(f"  {path.stem}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
