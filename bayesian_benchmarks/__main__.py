"""`python -m bayesian_benchmarks`: the command line `dkp-bench`."""

import sys

from bayesian_benchmarks.commands import main

if __name__ == "__main__":
    sys.exit(main())
