"""Train models on data with one feature, and draw their predictive bands."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bayesian_benchmarks.config import DensitySettings
from bayesian_benchmarks.datasets import CsvDataset
from bayesian_benchmarks.errors import BadDataError, BenchmarkError, ConfigError
from bayesian_benchmarks.models import ModelSource, list_models, model_source, train_with_fit
from bayesian_benchmarks.results.figures import check_picture

if TYPE_CHECKING:
    import numpy as np

DESCRIPTION = """\
Train models on data with one feature and draw, for each, the predictive median and the central 50, 90
and 95 % intervals. Without --csv: a noisy sine with a step and a gap."""

LEVELS = (0.95, 0.9, 0.5)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = _parse(argv)
    try:
        return _run(arguments)
    except (BenchmarkError, OSError) as error:
        print(f"plot_fit.py: {error}", file=sys.stderr)
        return 2


def _run(arguments: argparse.Namespace) -> int:
    _check(arguments)
    sources = [model_source(name) for name in arguments.models]
    X, Y = _made_up() if arguments.csv is None else _of_csv(arguments.csv, arguments.target)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import matplotlib.figure
    import numpy as np
    from tqdm import tqdm

    from gpflow_dkp.training import configure_threads

    with contextlib.suppress(ValueError):  # TensorFlow has started: called from another program
        configure_threads()
    (x_mean, y_mean), (x_scale, y_scale) = zip(*((v.mean(), v.std()) for v in (X, Y)), strict=True)
    data = ((X - x_mean) / x_scale, (Y - y_mean) / y_scale)
    margin = 0.4 * np.ptp(X)
    grid = np.linspace(X.min() - margin, X.max() + margin, 300)[:, None]
    figure = matplotlib.figure.Figure(figsize=(5.2 * len(sources), 4.0), layout="constrained")
    axes = figure.subplots(1, len(sources), squeeze=False, sharey=True)[0]
    for axis, source in zip(axes, sources, strict=True):
        settings = source.settings().with_steps(arguments.steps)
        settings = settings.model_copy(update={"num_inducing": arguments.inducing})
        model = source.build(*data, depth=arguments.depth, settings=settings, seed=arguments.seed)
        with tqdm(total=arguments.steps, desc=source.name) as bar:
            (source.train or train_with_fit)(
                model,
                data,
                settings=settings,
                seed=arguments.seed,
                checkpoint_dir=None,
                checkpoint_seconds=0.0,
                report_step=lambda step, bar=bar: bar.update(step - bar.n),  # type: ignore[misc]
            )
        bands = _bands(model, (grid - x_mean) / x_scale)
        _draw(axis, grid[:, 0], y_mean + y_scale * bands)
        axis.plot(X[:, 0], Y[:, 0], "k.", markersize=3)
        axis.set(title=_title(source, arguments.depth), xlabel="x")
        span = np.ptp(Y)
        axis.set_ylim(Y.min() - 0.6 * span, Y.max() + 0.6 * span)
    axes[0].set_ylabel("y")
    axes[-1].legend(frameon=False, fontsize="small")
    try:
        figure.savefig(arguments.output, dpi=130)
    except ValueError as error:
        raise OSError(f"cannot write the picture {arguments.output} ({error})") from error
    print(arguments.output)
    return 0


def _title(source: ModelSource, depth: int) -> str:
    """The model's name, and its depth where the name does not say it."""
    return source.name if source.settings is DensitySettings else f"{source.name}, {depth} layers"


def _bands(model: Any, X: np.ndarray) -> np.ndarray:
    """The lower and upper ends of each of `LEVELS`, and the median [2 len(LEVELS) + 1, N]."""
    import numpy as np

    tails = [(1.0 - level) / 2.0 for level in LEVELS]
    levels = [*tails, *(1.0 - tail for tail in tails), 0.5]
    quantiles = model.predict_quantiles(X, levels, num_samples=500)
    return np.asarray(quantiles)[..., 0]


def _draw(axis: Any, x: np.ndarray, bands: np.ndarray) -> None:
    for i, (level, opacity) in enumerate(zip(LEVELS, (0.15, 0.2, 0.35), strict=True)):
        lower, upper = bands[i], bands[i + len(LEVELS)]
        label = f"{100 * level:.0f} %"
        axis.fill_between(x, lower, upper, color="C0", alpha=opacity, linewidth=0, label=label)
    axis.plot(x, bands[-1], color="C0", linewidth=1.2, label="median")


def _made_up() -> tuple[np.ndarray, np.ndarray]:
    import numpy as np

    rng = np.random.default_rng(0)
    X = np.sort(np.concatenate([rng.uniform(-3.0, -0.5, 70), rng.uniform(1.0, 3.0, 50)]))[:, None]
    return X, np.sin(3.0 * X) + 1.5 * (X > 2.0) + 0.15 * rng.normal(size=X.shape)


def _of_csv(path: str, target: str | None) -> tuple[np.ndarray, np.ndarray]:
    """All rows of a CSV file of two columns, in its own units."""
    import numpy as np

    X, Y = CsvDataset.open(path, target).arrays()
    if X.shape[1] != 1:
        raise BadDataError(f"{path} has {X.shape[1]} features; one is needed to draw bands.")
    if np.ptp(X) == 0:
        raise BadDataError(f"{path}: the feature is {X[0, 0]:g} in every row; it must vary.")
    return X, Y


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="plot_fit.py",
        description=DESCRIPTION,
        epilog=f"models: {', '.join(list_models())}",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--models", nargs="+", default=["dwp-ab-gw", "diwp:squared_exponential"])
    parser.add_argument("--csv", metavar="FILE", help="a header line, and one feature and a target")
    parser.add_argument("--target", metavar="COLUMN", help="the column of --csv to predict")
    parser.add_argument("--depth", type=int, default=2, help="layers, the output layer included")
    parser.add_argument("--inducing", type=int, default=40, help="inducing points")
    parser.add_argument("--steps", type=int, default=2000, help="of training")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", default="fit.png", metavar="PICTURE")
    return parser.parse_args(argv)


def _check(arguments: argparse.Namespace) -> None:
    """Refuse what would otherwise fail in the middle, or only after training."""
    for name in ("depth", "inducing", "steps"):
        if getattr(arguments, name) < 1:
            raise ConfigError(f"--{name} is {getattr(arguments, name)}; it must be at least 1.")
    if not 0 <= arguments.seed < 2**32:
        raise ConfigError(f"--seed is {arguments.seed}; it must be from 0 to {2**32 - 1}.")
    if arguments.target is not None and arguments.csv is None:
        raise ConfigError("--target is of --csv FILE, which is not given.")
    check_picture(arguments.output)


if __name__ == "__main__":
    sys.exit(main())
