"""`python -m gpflow_dkp`: the command line `gpflow-dkp`."""

import sys

from gpflow_dkp.command_line import main

if __name__ == "__main__":
    sys.exit(main())
