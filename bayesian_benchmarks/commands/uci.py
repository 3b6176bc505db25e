"""`dkp-bench uci`: deep kernel processes on regression data, with the paper's table beside ours."""

from __future__ import annotations

from collections.abc import Sequence

from ..command_line import Program, run_program

DESCRIPTION = """\
Train models on regression datasets, and print ELBO, test log-likelihood and RMSE (mean and
standard error over splits) beside the published figures. Each finished run is a row in a results
store; a run that is there already is not done again, and one that was interrupted, even by SIGKILL,
goes on where it was and ends with the same numbers.

With no arguments: a deep Wishart process and a deep GP on data that need no download, in under
three minutes on two cores."""

EXAMPLES = """\
examples:
  %(prog)s
      the offline demonstration (--config quick)
  %(prog)s --datasets yacht boston --models dwp-ab-gw dgp --splits 0-2 --depths 2 --jobs 2
      three splits with the paper's settings (--config ober2023), two runs at a time
  %(prog)s --datasets yacht --splits 0 --depths 2 --steps 500
      a short look; the figures will be worse than the paper's
  %(prog)s --csv houses.csv --target price
      your own data, with the demonstration's settings
  %(prog)s --config ober2023 --tables-only --format markdown
      the table of all runs of the paper's protocol done so far
  %(prog)s --config ober2023 --import results/archive/ober2023.csv --tables-only
      the same, of the rows that come with the source

  %(prog)s --config aitchison2021 --tables-only --paired test_log_likelihood
      differences to the best model on the same splits, as in Table 1 of that paper

exit codes: 0 all runs are in the store; 1 some failed (see --retry-failed); 2 bad input;
130 interrupted with Ctrl-C: the same command goes on."""

PROGRAM = Program(
    name="dkp-bench uci",
    task="regression",
    config="quick",
    config_of_datasets="ober2023",
    description=DESCRIPTION,
    examples=EXAMPLES,
    data_layout="DIR/UCI_Datasets/...",
    cache="$BAYESIAN_BENCHMARKS_CACHE (default: the user's cache folder)",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `dkp-bench uci`; returns the exit code."""
    return run_program(PROGRAM, argv)
