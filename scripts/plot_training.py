"""Draw a training's bound against seconds and epochs, a line for each model, as figure 1 of [NeurIPS21]."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bayesian_benchmarks.errors import BenchmarkError, StoreError

if TYPE_CHECKING:
    from bayesian_benchmarks.store import ResultRow

DESCRIPTION = """\
Draw the bound per data point of finished runs against the seconds and the epochs of their training,
from a results store or an export of one. An epoch is as many steps as batches cover the training
part; where a row does not know, steps are drawn in its place."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = _parse(argv)
    try:
        _draw(arguments)
    except BenchmarkError as error:
        print(f"plot_training.py: {error}", file=sys.stderr)
        return 2
    print(arguments.output)
    return 0


def _draw(arguments: argparse.Namespace) -> None:
    from matplotlib.figure import Figure

    from bayesian_benchmarks.report.figures import check_picture, draw_training
    from bayesian_benchmarks.report.sources import open_source

    check_picture(arguments.output)
    rows = _chosen(open_source(arguments.rows).rows, arguments)
    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    draw_training(rows, *figure.subplots(1, 2, sharey=True))
    figure.suptitle(f"{arguments.dataset}, split {arguments.split}, depth {arguments.depth}")
    figure.savefig(arguments.output, dpi=130)


def _chosen(rows: Sequence[ResultRow], arguments: argparse.Namespace) -> list[ResultRow]:
    """The runs with a history of one dataset, split and depth; of a model's settings the latest.

    :raises StoreError: there are none.
    """
    place = arguments.dataset, arguments.split, arguments.depth
    found: dict[tuple[str, int], ResultRow] = {}
    for row in sorted(rows, key=lambda row: row.recorded_at):
        wanted = arguments.models is None or row.model in arguments.models
        drawn = row.status == "ok" and len(row.history.get("seconds", ())) > 1
        if (row.dataset, row.split, row.depth) == place and wanted and drawn:
            found[row.model, row.seed] = row
    if not found:
        of = "" if arguments.models is None else f" of {', '.join(arguments.models)}"
        raise StoreError(
            f"{arguments.rows} has no finished run{of} with its training's history on {place[0]}, split "
            f"{place[1]}, at depth {place[2]}; choose another with --dataset, --split and --depth."
        )
    return [found[key] for key in sorted(found)]


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="plot_training.py",
        description=DESCRIPTION,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("rows", type=Path, help="a results store, or a CSV export of one")
    parser.add_argument("--dataset", default="boston")
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--depth", type=int, default=5, help="layers, the output layer included")
    parser.add_argument("--models", nargs="+", metavar="NAME", help="default: all that are there")
    parser.add_argument("--output", default="training.png", metavar="PICTURE")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
