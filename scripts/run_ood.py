"""Train classifiers and print how well their uncertainty tells data of another distribution apart."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from bayesian_benchmarks.command_line import run_program
from bayesian_benchmarks.commands import ood

PROGRAM = replace(ood.PROGRAM, name="run_ood.py")


def main(argv: Sequence[str] | None = None) -> int:
    """Run `dkp-bench ood` by this name; returns the exit code."""
    return run_program(PROGRAM, argv)


if __name__ == "__main__":
    sys.exit(main())
