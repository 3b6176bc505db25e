"""Make a report of results stores, or exports of them, beside the papers' figures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

DESCRIPTION = """\
Make a report of results stores, or of exports: the papers' tables with ours beside, paired differences,
ranks, training curves, calibration, times, failures, and which code made the rows. The HTML page needs
nothing else."""

EXAMPLES = """\
examples:
  python scripts/make_report.py runs/results.sqlite --out report.html
  python scripts/make_report.py results/*.csv --markdown docs/results.md
  python scripts/make_report.py results/ober2023_fast.csv --latex tables/ --csv tables/"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "stores", nargs="+", type=Path, metavar="STORE", help="SQLite, or CSV exports"
    )
    parser.add_argument(
        "--config", help="whose rows they are; default: the file in configs/ with the store's name"
    )
    parser.add_argument("--title", default="Results")
    parser.add_argument(
        "--out", type=Path, metavar="HTML", help="default: report.html, if nothing else"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("--latex", type=Path, metavar="DIR", help="a .tex file a table")
    parser.add_argument("--csv", type=Path, metavar="DIR", help="a .csv file a table")
    arguments = parser.parse_args(argv)
    from bayesian_benchmarks import BenchmarkError
    from bayesian_benchmarks.report import assemble, render
    from bayesian_benchmarks.report.sources import open_source

    try:
        sources = [
            open_source(path, root / "configs", arguments.config) for path in arguments.stores
        ]
        others = arguments.markdown, arguments.latex, arguments.csv
        out = arguments.out or (None if any(others) else Path("report.html"))
        document = assemble.report(sources, arguments.title, with_figures=out is not None)
        if out:
            _write(out, render.to_html(document))
        if arguments.markdown:
            _write(arguments.markdown, render.to_markdown(document))
        for folder, make in ((arguments.latex, render.to_latex), (arguments.csv, render.to_csv)):
            for table in render.tables_of(document) if folder else ():
                ending = "tex" if make is render.to_latex else "csv"
                _write(folder / f"{table.name}.{ending}", make(table))
    except (BenchmarkError, OSError) as error:
        print(f"make_report.py: {error}", file=sys.stderr)
        return 2
    return 0


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"{path}: {len(text.encode()) / 1e3:.0f} kB")


if __name__ == "__main__":
    sys.exit(main())
