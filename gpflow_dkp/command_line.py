"""`gpflow-dkp`: models of one's own table, from the command line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from .tables import TableModel

REGRESSORS = {
    "dwp": "DWPRegressor",
    "dgp": "DGPRegressor",
    "diwp": "DIWPRegressor",
    "lv-gp-gp": "LatentVariableDGPRegressor",
    "nngp": "NNGPRegressor",
    "gwi": "GWIRegressor",
}
CLASSIFIERS = {"dwp": "DWPClassifier", "diwp": "DIWPClassifier", "gwi": "GWIClassifier"}

SETTINGS = {
    "depth": "depth",
    "inducing": "num_inducing",
    "steps": "num_steps",
    "seconds": "max_seconds",
    "seed": "random_state",
}
"""Options that are an estimator's parameters."""

LEAST_HELD_OUT = 10
"""Rows, of which a coverage says something."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `gpflow-dkp`; the exit status is 2 for bad input, with one line on standard error."""
    parsed = build_parser().parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        parsed.run(parsed)
    except (ValueError, OSError) as error:
        first, *_ = str(error).splitlines() or [type(error).__name__]
        print(f"gpflow-dkp: {first}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("gpflow-dkp: interrupted", file=sys.stderr)
        return 130
    return 0


def build_parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    parser = argparse.ArgumentParser(
        prog="gpflow-dkp",
        description="Predictive distributions for a table of your own, by deep kernel processes.",
    )
    commands = parser.add_subparsers(required=True, metavar="command")

    fit = commands.add_parser("fit", help="train a model on a table, and say how good it is")
    fit.add_argument("table", type=Path, help="a CSV file with a header line, .parquet or .arff")
    fit.add_argument("--target", nargs="+", required=True, metavar="COLUMN")
    fit.add_argument("--model", choices=sorted(REGRESSORS), default="dwp", help="default dwp")
    fit.add_argument("--out", type=Path, required=True, metavar="FILE", help="such as model.dkp")
    fit.add_argument(
        "--classes", action="store_true", help="the target's numbers are classes, as text always is"
    )
    fit.add_argument("--depth", type=_depth, help="number of layers, or auto: the best of 1 to 3")
    fit.add_argument(
        "--kernel",
        help="squared_exponential, rational_quadratic, relu, or auto: the best of them; of dgp also "
        "relu_features, erf and sin",
    )
    fit.add_argument("--inducing", type=int, help="number of inducing points")
    fit.add_argument("--steps", type=int, help="of training, at most")
    fit.add_argument("--seconds", type=float, help="of training")
    fit.add_argument("--seed", type=int, default=0)
    fit.add_argument(
        "--hold-out",
        type=float,
        default=0.1,
        metavar="FRACTION",
        help="of the rows, on which the model is judged; they have no part in it (default 0.1; 0 for none)",
    )
    _add_drop(fit)
    _add_picture(fit, "default: the name of --out with .png")
    fit.set_defaults(run=run_fit)

    predict = commands.add_parser("predict", help="predict the rows of another table")
    predict.add_argument("model", type=Path, help="a file that fit wrote")
    predict.add_argument("table", type=Path)
    predict.add_argument("--quantiles", nargs="+", type=float, default=[0.05, 0.5, 0.95])
    predict.add_argument("--out", type=Path, metavar="CSV", help="default: standard output")
    _add_drop(predict)
    predict.set_defaults(run=run_predict)

    evaluate = commands.add_parser("evaluate", help="compare predictions with a table's targets")
    evaluate.add_argument("model", type=Path)
    evaluate.add_argument("table", type=Path)
    _add_drop(evaluate)
    _add_picture(evaluate, "default: none")
    evaluate.set_defaults(run=run_evaluate)

    info = commands.add_parser("info", help="what is in a file that fit wrote")
    info.add_argument("model", type=Path)
    info.set_defaults(run=run_info)
    return parser


def run_fit(arguments: argparse.Namespace) -> None:
    """Train a model on all rows but those held out, and save it."""
    from .sklearn.choice import describe
    from .tables import Columns, TableError, TableModel
    from .tables.columns import check_target, is_text

    table = _read(arguments)
    targets = _check_targets(arguments, table)
    if not 0.0 <= arguments.hold_out < 1.0:
        raise ValueError(
            f"--hold-out: got {arguments.hold_out:g}, needs a fraction from 0 to below 1"
        )
    if not arguments.out.parent.is_dir():
        raise ValueError(
            f"--out: got {arguments.out}, make the folder {arguments.out.parent} first"
        )
    for target in targets:
        check_target(table, target, str(arguments.table))
    text = [target for target in targets if is_text(table[target])]
    if text and len(targets) > 1:
        raise TableError(
            f"{arguments.table}: the target {text[0]!r} is text; classes are one target alone."
        )
    of_classes = bool(text) or arguments.classes
    columns = Columns.of(table.drop(columns=targets), str(arguments.table))
    print(f"{len(table)} rows; features: {columns.describe()}")
    training, held_out = _part(table, arguments)
    estimator = _estimator(arguments, of_classes)
    model = TableModel.fit(estimator, training, targets, str(arguments.table), columns)
    history = estimator.history_
    for line in getattr(estimator, "comparison_", ()):
        print(f"Compared: {describe(line)}")
    print(f"Trained on {len(training)} rows in {history.seconds:.0f} s: {history.ended}.")
    if len(held_out):
        model.held_out = model.evaluate(held_out, str(arguments.table))
        print(model.held_out.sentence())
        _draw(model, held_out, arguments.picture or arguments.out.with_suffix(".png"))
    model.save(arguments.out)
    print(f"The model is in {arguments.out}.")


def run_predict(arguments: argparse.Namespace) -> None:
    """Write the predictive distribution of each row."""
    model, table = _load(arguments.model), _read(arguments)
    predicted = model.predict(table, arguments.quantiles, str(arguments.table))
    if arguments.out is None:
        predicted.to_csv(sys.stdout, index=False)
        return
    predicted.to_csv(arguments.out, index=False)
    print(f"{len(predicted)} rows of predictions are in {arguments.out}.")


def run_evaluate(arguments: argparse.Namespace) -> None:
    """Say how good the predictions of a table are."""
    model, table = _load(arguments.model), _read(arguments)
    print(model.evaluate(table, str(arguments.table)).sentence())
    if arguments.picture is not None:
        _draw(model, table, arguments.picture)


def run_info(arguments: argparse.Namespace) -> None:
    """Say what a file has."""
    from .saving.container import read_metadata

    data = arguments.model.read_bytes()
    model = _load(arguments.model)
    versions = read_metadata(data, str(arguments.model))
    estimator = model.estimator
    print(f"{type(estimator).__name__} of {', '.join(model.targets)}, {len(data) / 1e3:.0f} kB")
    print(f"Trained on {model.num_rows} rows; features: {model.columns.describe()}")
    print(f"{estimator.n_iter_} steps, {estimator.history_.ended}")
    if model.held_out is not None:
        print(model.held_out.sentence())
    shown = ("gpflow_dkp", "gpflow", "tensorflow")
    print("Saved with " + ", ".join(f"{name} {versions[name]}" for name in shown))


def _depth(text: str) -> int | str:
    """A number of layers, or "auto"."""
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"got {text!r}, needs a number of layers or auto"
        ) from error


def _add_drop(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--drop", nargs="+", default=[], metavar="COLUMN", help="leave these out")


def _add_picture(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--picture", type=Path, metavar="FILE", help=f"of calibration and predictions; {default}"
    )


def _read(arguments: argparse.Namespace) -> pd.DataFrame:
    """The table without the columns to be dropped."""
    from .tables import TableError, read_table

    try:
        table = read_table(arguments.table)
    except OSError as error:
        raise TableError(f"Cannot read {arguments.table} ({error.strerror or error}).") from error
    _check_names("--drop", arguments.drop, table)
    return table.drop(columns=arguments.drop)


def _check_targets(arguments: argparse.Namespace, table: pd.DataFrame) -> list[str]:
    targets = list(dict.fromkeys(arguments.target))
    _check_names("--target", targets, table)
    return targets


def _check_names(option: str, names: Sequence[str], table: pd.DataFrame) -> None:
    unknown = [name for name in names if name not in table.columns]
    if unknown:
        raise ValueError(
            f"{option}: there is no column {unknown[0]!r}; the columns are {', '.join(table.columns)}"
        )


def _part(table: pd.DataFrame, arguments: argparse.Namespace) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows to train on, and those held out: none, or at least ten."""
    number = round(arguments.hold_out * len(table))
    if number < LEAST_HELD_OUT:
        if arguments.hold_out:
            print(
                f"{len(table)} rows are too few to hold {LEAST_HELD_OUT} out; the model is not judged."
            )
        return table, table[:0]
    shuffled = table.sample(frac=1.0, random_state=arguments.seed)
    return shuffled[number:], shuffled[:number]


def _estimator(arguments: argparse.Namespace, of_classes: bool) -> Any:
    """The estimator that the options say, untrained."""
    from . import sklearn

    names = CLASSIFIERS if of_classes else REGRESSORS
    if arguments.model not in names:
        raise ValueError(
            f"--model: got {arguments.model} for a target with classes, needs one of {', '.join(names)}"
        )
    estimator = getattr(sklearn, names[arguments.model])(verbose=sys.stderr.isatty())
    given = {"kernel": arguments.kernel}
    given |= {name: getattr(arguments, option) for option, name in SETTINGS.items()}
    given = {name: value for name, value in given.items() if value is not None}
    unknown = sorted(set(given) - set(estimator.get_params()))
    if unknown:
        options = {name: option for option, name in SETTINGS.items()} | {"kernel": "kernel"}
        raise ValueError(f"--{options[unknown[0]]}: the model {arguments.model} does not take it")
    return estimator.set_params(**given)


def _load(path: Path) -> TableModel:
    from .saving import load
    from .tables import TableModel

    model = load(path)
    if not isinstance(model, TableModel):
        raise ValueError(
            f"{path} has a {type(model).__name__}, not a model of a table; gpflow_dkp.load reads it"
        )
    return model


def _draw(model: TableModel, table: pd.DataFrame, path: Path) -> None:
    from .tables.picture import draw_quality

    draw_quality(model, table, path)
    print(f"A picture of it is in {path}.")
