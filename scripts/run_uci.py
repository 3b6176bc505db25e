"""Train deep kernel processes on UCI regression data and print the paper's table beside ours."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from bayesian_benchmarks.command_line import run_program
from bayesian_benchmarks.commands import uci

PROGRAM = replace(uci.PROGRAM, name="run_uci.py")


def main(argv: Sequence[str] | None = None) -> int:
    """Run `dkp-bench uci` by this name; returns the exit code."""
    return run_program(PROGRAM, argv)


if __name__ == "__main__":
    sys.exit(main())
