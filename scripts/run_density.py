"""Train deep GPs with latent variables on regression data and score their predictive densities."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from bayesian_benchmarks.command_line import run_program
from bayesian_benchmarks.commands import density

PROGRAM = replace(density.PROGRAM, name="run_density.py")


def main(argv: Sequence[str] | None = None) -> int:
    """Run `dkp-bench density` by this name; returns the exit code."""
    return run_program(PROGRAM, argv)


if __name__ == "__main__":
    sys.exit(main())
