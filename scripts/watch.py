"""Show what a sweep that another process does is doing."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bayesian_benchmarks.commands import watch


def main(argv: Sequence[str] | None = None) -> int:
    """Run `dkp-bench watch` by this name; returns the exit code."""
    return watch.main(argv, "watch.py")


if __name__ == "__main__":
    sys.exit(main())
