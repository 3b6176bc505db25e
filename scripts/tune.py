"""Choose settings of a model by Optuna, without a look at the test part."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bayesian_benchmarks.commands import tune


def main(argv: Sequence[str] | None = None) -> int:
    """Run `dkp-bench tune` by this name; returns the exit code."""
    return tune.main(argv, "tune.py")


if __name__ == "__main__":
    sys.exit(main())
