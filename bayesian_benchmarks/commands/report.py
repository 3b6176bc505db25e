"""`dkp-bench report`: a report of results stores, or exports of them, beside the papers' figures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import BenchmarkError

NAME = "dkp-bench report"

DESCRIPTION = """\
Make a report of results stores, or of exports: the papers' tables with ours beside, paired differences,
ranks, training curves, calibration, times, failures, and which code made the rows. The HTML page needs
nothing else."""

EXAMPLES = """\
examples:
  %(prog)s runs/results.sqlite --out report.html
  %(prog)s results/*.csv --markdown docs/results.md
  %(prog)s results/ober2023_fast.csv --latex tables/ --csv tables/"""


def main(argv: Sequence[str] | None = None, name: str = NAME) -> int:
    """Run the command line; returns the exit code.

    :param name: of the command, before its errors and in its help.
    """
    arguments = _parser(name).parse_args(argv)
    from ..report.files import write_report
    from ..report.sources import open_source

    others = arguments.markdown, arguments.latex, arguments.csv
    try:
        paths = write_report(
            [open_source(path, arguments.config) for path in arguments.stores],
            arguments.title,
            html=arguments.out or (None if any(others) else Path("report.html")),
            markdown=arguments.markdown,
            latex=arguments.latex,
            csv=arguments.csv,
        )
        for path in paths:
            print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")
    except (BenchmarkError, OSError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    return 0


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=name,
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "stores", nargs="+", type=Path, metavar="STORE", help="SQLite, or CSV exports"
    )
    parser.add_argument(
        "--config", help="whose rows they are; default: the packaged one with the store's name"
    )
    parser.add_argument("--title", default="Results")
    parser.add_argument(
        "--out", type=Path, metavar="HTML", help="default: report.html, if nothing else"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("--latex", type=Path, metavar="DIR", help="a .tex file a table")
    parser.add_argument("--csv", type=Path, metavar="DIR", help="a .csv file a table")
    return parser
