"""`python -m bayesian_benchmarks.worker JOB.json`: does one run of a sweep, and writes what comes of it.

What every engine starts, and a person may: the row with its history, and on the way the progress, are
written beside the job's file, and the sweep's own command takes them into its store.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .command_line import exit_code_of
from .sweep.worker import work

NAME = "bayesian_benchmarks.worker"

DESCRIPTION = """\
Do one run of a sweep: train, score, and write the row and its history to outcome.json beside JOB, and on
the way how far it is to progress.json. A run that was killed goes on from its checkpoint; one that another
worker is at is waited for; one that is done is left alone. The sweep's own command, given again, takes the
row into the store."""

EPILOG = """\
exit codes: 0 the row is written; 1 the run failed, which is a row too, or was stopped; 2 the job cannot be
used, or is of another version of this package; 75 the row could not be written."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {NAME}",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("job", type=Path, metavar="JOB", help="the job.json of a run's folder")
    parser.add_argument(
        "--until-eof",
        action="store_true",
        help="end when standard input does, which is a pipe of whoever started this",
    )
    asked = parser.parse_args(argv)
    return exit_code_of(NAME, lambda: work(asked.job, until_eof=asked.until_eof))


if __name__ == "__main__":
    sys.exit(main())
