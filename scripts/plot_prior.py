"""Draw prior samples through the layers of deep kernel processes, as figure 2 of [ICML21]."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Sequence

DESCRIPTION = """\
Draw samples of Gram matrices G and covariances K through the layers of a deep Wishart process (above)
and a deep inverse Wishart process (below), for inputs on a line. Both have the same mean, G's is K;
the Wishart's rank is its width, the inverse Wishart has full rank, and both tend to K as width and
delta grow."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = _parse(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import gpflow
    import matplotlib.figure
    import numpy as np

    from gpflow_dkp import gram
    from gpflow_dkp.layers import InverseWishartLayer, WishartLayer

    X = np.linspace(-3.0, 3.0, arguments.points)[:, None]
    kernels = [gpflow.kernels.SquaredExponential() for _ in range(arguments.layers + 1)]
    layers = {
        f"Wishart, width {arguments.width}": WishartLayer(arguments.points, arguments.width),
        rf"inverse Wishart, $\delta$ = {arguments.delta:g}": InverseWishartLayer(
            arguments.points, delta=arguments.delta
        ),
    }
    columns = 2 * arguments.layers + 1
    figure = matplotlib.figure.Figure(figsize=(2.1 * columns, 4.8), layout="constrained")
    axes = figure.subplots(2, columns)
    for row, (title, layer) in zip(axes, layers.items(), strict=True):
        covariance = gram.from_inputs(kernels[0], X, X[:0])
        shown = [("$K_0$", covariance.ii)]
        for number, kernel in enumerate(kernels[1:], 1):
            K = covariance.with_jitter(1e-6).ii
            G = layer.prior_sample(K, seed=arguments.seed + number).inducing
            covariance = gram.covariance(kernel, G)
            shown += [(f"$G_{number}$", G.ii), (f"$K_{number}$", covariance.ii)]
        for axis, (name, matrix) in zip(row, shown, strict=True):
            values = np.reshape(matrix, (arguments.points, arguments.points))
            limit = 2.0 if name.startswith("$G") else 1.0
            axis.imshow(values, vmin=-limit, vmax=limit, cmap="RdBu_r", extent=(-3, 3, 3, -3))
            axis.set(title=name, xticks=[-3, 0, 3], yticks=[])
        row[0].set(ylabel=title, yticks=[-3, 0, 3])
    figure.suptitle("one prior sample through the layers (K from -1 to 1, G from -2 to 2)")
    return _save(figure, arguments.output)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="plot_prior.py",
        description=DESCRIPTION,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--layers", type=int, default=3, help="hidden layers")
    parser.add_argument("--points", type=int, default=60, help="inputs between -3 and 3")
    parser.add_argument("--width", type=int, default=5, help="degrees of freedom of the Wishart")
    parser.add_argument("--delta", type=float, default=5.0, help="of the inverse Wishart")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", default="prior.png", metavar="PICTURE")
    arguments = parser.parse_args(argv)
    for name in ("layers", "points", "width", "delta"):
        if not 0 < getattr(arguments, name) < math.inf:
            parser.error(f"--{name} is {getattr(arguments, name)}; it must be positive and finite.")
    return arguments


def _save(figure: object, path: str) -> int:
    try:
        figure.savefig(path, dpi=130)  # type: ignore[attr-defined]
    except (OSError, ValueError) as error:
        print(f"plot_prior.py: cannot write the picture {path} ({error}).", file=sys.stderr)
        return 2
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
