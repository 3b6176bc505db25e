"""`dkp-bench classification`: deep kernel processes on labels, and how well their probabilities do."""

from __future__ import annotations

from collections.abc import Sequence

from ..command_line import Program, run_program

DESCRIPTION = """\
Train models on classification datasets, and print ELBO, test log-likelihood, accuracy, Brier score
and expected calibration error (mean and standard error over splits). Each finished run is a row in a
results store; a run that is there already is not done again, and one that was interrupted, even by
SIGKILL, goes on where it was and ends with the same numbers.

With no arguments: a deep inverse Wishart process and a deep GP on the bundled iris and wine data, in
under three minutes on two cores."""

EXAMPLES = """\
examples:
  %(prog)s
      the offline demonstration (--config quick_classification)
  %(prog)s --datasets digits --models diwp:relu nngp:relu --splits 0-2 --jobs 2
      three splits with the settings of the config classification, two runs at a time
  %(prog)s --datasets mnist_10k --data-dir DIR --splits 0
      MNIST's 10 000 test images, 8 000 of them for training, from a local copy
  %(prog)s --csv flowers.csv --target species
      your own data, with the demonstration's settings; the species are numbered 0, 1, 2, ...
  %(prog)s --config classification --tables-only --paired test_log_likelihood
      differences to the best model on the same splits
  %(prog)s --config classification --tables-only --reliability reliability.png
      a reliability diagram of every finished run of that config

exit codes: 0 all runs are in the store; 1 some failed (see --retry-failed); 2 bad input;
130 interrupted with Ctrl-C: the same command goes on."""

PROGRAM = Program(
    name="dkp-bench classification",
    task="classification",
    config="quick_classification",
    config_of_datasets="classification",
    description=DESCRIPTION,
    examples=EXAMPLES,
    data_layout="DIR/mnist/..., DIR/fashion_mnist/... and DIR/cifar-10-batches-py/...",
    cache="Keras' cache, $KERAS_HOME/datasets (default ~/.keras/datasets)",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `dkp-bench classification`; returns the exit code."""
    return run_program(PROGRAM, argv)
