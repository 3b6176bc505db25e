"""`dkp-bench density`: deep GPs with latent variables on regression data, scored by their densities."""

from __future__ import annotations

from collections.abc import Sequence

from ..command_line import Program, run_program

DESCRIPTION = """\
Train models of conditional densities, and print the bound, the test log-likelihood of normalised targets
by the paper's kernel density estimate and by the exact mixture, RMSE, CRPS and the Shapiro-Wilk statistic
of the predictive samples (mean and standard error over splits) beside the published figures. A model
is named by its layers, LV for latent variables and GP, and by its bound: gp-gp, lv-gp-gp:iwvi. Each
finished run is a row in a results store; a run that is there already is not done again, and one that
was interrupted, even by SIGKILL, goes on where it was and ends with the same numbers.

With no arguments: a GP and a deep GP with latent variables on data that need no download, in under
three minutes on two cores."""

EXAMPLES = """\
examples:
  %(prog)s
      the offline demonstration (--config quick_density)
  %(prog)s --datasets forest solar --models gp lv-gp-gp:vi lv-gp-gp:iwvi --splits 0 --steps 10000 --jobs 2
      one split with the paper's settings (--config salimbeni2019) but fewer steps, two runs at a time
  %(prog)s --csv houses.csv --target price
      your own data, with the demonstration's settings
  %(prog)s --config salimbeni2019 --tables-only --ranks test_log_likelihood_normalised
      average ranks and median differences to the single-layer GP, as in the paper's Table 1

exit codes: 0 all runs are in the store; 1 some failed (see --retry-failed); 2 bad input;
130 interrupted with Ctrl-C: the same command goes on."""

PROGRAM = Program(
    name="dkp-bench density",
    task="density",
    config="quick_density",
    config_of_datasets="salimbeni2019",
    description=DESCRIPTION,
    examples=EXAMPLES,
    data_layout="DIR/uci_datasets/... and DIR/UCI_Datasets/...",
    cache="$BAYESIAN_BENCHMARKS_CACHE (default: the user's cache folder)",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `dkp-bench density`; returns the exit code."""
    return run_program(PROGRAM, argv)
