"""Train deep kernel processes on classification data and print how well their probabilities do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from bayesian_benchmarks.command_line import run_program
from bayesian_benchmarks.commands import classification

PROGRAM = replace(classification.PROGRAM, name="run_classification.py")


def main(argv: Sequence[str] | None = None) -> int:
    """Run `dkp-bench classification` by this name; returns the exit code."""
    return run_program(PROGRAM, argv)


if __name__ == "__main__":
    sys.exit(main())
