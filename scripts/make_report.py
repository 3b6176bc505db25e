"""Make a report of results stores, or exports of them, beside the papers' figures."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bayesian_benchmarks.commands import report


def main(argv: Sequence[str] | None = None) -> int:
    """Run `dkp-bench report` by this name; returns the exit code."""
    return report.main(argv, "make_report.py")


if __name__ == "__main__":
    sys.exit(main())
