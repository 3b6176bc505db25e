"""`dkp-bench ood`: classifiers, and how well their uncertainty tells data of another distribution apart."""

from __future__ import annotations

from collections.abc import Sequence

from ..command_line import Program, run_program

DESCRIPTION = """\
Train models on a classification dataset, and print ELBO, test log-likelihood and accuracy, and how well
the models' uncertainty tells that dataset's test part from data of another distribution: areas under
the ROC curve of the class probabilities' entropy, of 1 - the largest probability, and of the variance
of the latent functions (mean and standard error over splits). A dataset is a pair, such as
fashion_mnist_vs_mnist: trained on the first, the second is out. Each finished run is a row in a results
store; a run that is there already is not done again, and one that was interrupted, even by SIGKILL,
goes on where it was and ends with the same numbers.

With no arguments: two models on the bundled digits, which are then rotated or get noise, in under
three minutes on two cores."""

EXAMPLES = """\
examples:
  %(prog)s
      the offline demonstration (--config quick_ood)
  %(prog)s --datasets mnist_10k_halves --data-dir DIR --models nngp:squared_exponential --splits 0
      digits 0 to 4 of MNIST's 10 000 test images against 5 to 9, from a local copy
  %(prog)s --datasets fashion_mnist_vs_mnist
      the settings of the config wild2022_ood, beside the published figures
  %(prog)s --config wild2022_ood --tables-only --paired auroc_entropy
      differences to the best model on the same splits

exit codes: 0 all runs are in the store; 1 some failed (see --retry-failed); 2 bad input;
130 interrupted with Ctrl-C: the same command goes on."""

PROGRAM = Program(
    name="dkp-bench ood",
    task="ood",
    config="quick_ood",
    config_of_datasets="wild2022_ood",
    description=DESCRIPTION,
    examples=EXAMPLES,
    data_layout="DIR/mnist/..., DIR/fashion_mnist/..., DIR/cifar-10-batches-py/... and "
    "DIR/svhn/test_32x32.mat",
    cache="Keras' cache, $KERAS_HOME/datasets (default ~/.keras/datasets), and SVHN to "
    "$BAYESIAN_BENCHMARKS_CACHE (default: the user's cache folder)",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `dkp-bench ood`; returns the exit code."""
    return run_program(PROGRAM, argv)
