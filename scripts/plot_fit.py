"""Train models on data with one feature, and draw their predictive bands or densities."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bayesian_benchmarks.datasets import TableDataset
from bayesian_benchmarks.errors import BadDataError, BenchmarkError, ConfigError
from bayesian_benchmarks.models import ModelSource, list_models, model_source, train_with_fit
from bayesian_benchmarks.plugins import import_installed_plugins
from bayesian_benchmarks.report.figures import check_picture
from bayesian_benchmarks.settings import DensitySettings, GWISettings, Settings

if TYPE_CHECKING:
    import numpy as np

    from gpflow_dkp.mixture import Mixture

DESCRIPTION = """\
Train models on data with one feature and draw, for each, the predictive median and the central 50, 90
and 95 % intervals; where a model's predictive density has several modes, which a median lies between,
the density itself and its modes. Without --csv: a noisy sine with a step and a gap."""

LEVELS = (0.95, 0.9, 0.5)
TASKS = ("regression", "density")
"""Whose models predict a target."""
NUM_SAMPLES = 1000
"""Components of the predictive mixture. The models give every x the same random numbers: its quantiles are
smooth in x."""
GRID = 300
"""Values of x, and of y."""
DIP = 0.5
"""Two maxima of a density are two modes where it falls between them below this part of the lower one."""
FAINT = 0.1
"""A maximum below this part of the highest one is no mode."""
SEVERAL = 0.02
"""Part of the x from which on several modes are worth another picture."""
SHADES = 6.0
"""Nats below the largest log density at which a picture of densities turns white."""


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
    import_installed_plugins()
    sources = [model_source(name) for name in arguments.models]
    for source in sources:
        task = next((task for task in TASKS if source.is_for(task)), TASKS[0])
        source.check(task, _settings(source, arguments), arguments.depth)
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
    grid = np.linspace(X.min() - margin, X.max() + margin, GRID)[:, None]
    span = np.ptp(Y)
    limits = Y.min() - 0.6 * span, Y.max() + 0.6 * span
    figure = matplotlib.figure.Figure(figsize=(5.2 * len(sources), 4.0), layout="constrained")
    axes = figure.subplots(1, len(sources), squeeze=False, sharey=True)[0]
    for axis, source in zip(axes, sources, strict=True):
        settings = _settings(source, arguments, len(X))
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
        mixture = _in_units(_predict(model, (grid - x_mean) / x_scale), y_mean, y_scale)
        _draw(axis, grid[:, 0], np.linspace(*limits, GRID), mixture)
        axis.plot(X[:, 0], Y[:, 0], "k.", markersize=3)
        axis.set(title=_title(source, model, arguments.depth), xlabel="x", ylim=limits)
        axis.legend(frameon=False, fontsize="small")
    axes[0].set_ylabel("y")
    try:
        figure.savefig(arguments.output, dpi=130)
    except ValueError as error:
        raise OSError(f"cannot write the picture {arguments.output} ({error})") from error
    print(arguments.output)
    return 0


def _settings(source: ModelSource, arguments: argparse.Namespace, num_data: int = 1) -> Settings:
    """The model's defaults for so many steps and inducing points, and few candidates where it chooses."""
    gwi = GWISettings(
        noise_variances=(0.1, 0.01), inducing_factors=(arguments.inducing / math.sqrt(num_data),)
    )
    settings = source.settings().with_steps(arguments.steps)
    return settings.model_copy(update={"num_inducing": arguments.inducing, "gwi": gwi})


def _title(source: ModelSource, model: Any, depth: int) -> str:
    """The model's name, and its depth where it has one that the name does not say."""
    has_depth = (
        len(getattr(model, "layers", ())) >= depth and source.settings is not DensitySettings
    )
    return f"{source.name}, {depth} layer{'s' * (depth > 1)}" if has_depth else source.name


def _predict(model: Any, X: np.ndarray) -> Mixture:
    """New observations at X [N, 1] as a mixture [S, N, 1]."""
    from gpflow_dkp.mixture import Mixture

    return Mixture(*model.predict_mixture(X, num_samples=NUM_SAMPLES, seed=0))


def _in_units(mixture: Mixture, shift: float, scale: float) -> Mixture:
    """The mixture of `shift + scale * y`."""
    return type(mixture)(shift + scale * mixture.mean, scale**2 * mixture.variance)


def _draw(axis: Any, x: np.ndarray, y: np.ndarray, mixture: Mixture) -> None:
    """Bands, or the density on the grid of x and y where it has several modes."""
    import numpy as np

    density = _log_density(mixture, y)
    modes = _modes(density)
    if (modes.sum(0) > 1).mean() < SEVERAL:
        _draw_bands(axis, x, mixture)
        return
    top = density.max()
    shades = {"vmin": top - SHADES, "vmax": top, "cmap": "Blues", "shading": "nearest"}
    image = axis.pcolormesh(x, y, density, rasterized=True, **shades)
    axis.figure.colorbar(image, ax=axis, label="log density")
    rows, columns = np.nonzero(modes)
    axis.plot(x[columns], y[rows], ".", color="C1", markersize=3, label="modes")


def _draw_bands(axis: Any, x: np.ndarray, mixture: Mixture) -> None:
    import numpy as np

    tails = [(1.0 - level) / 2.0 for level in LEVELS]
    quantiles = mixture.quantile([*tails, *(1.0 - tail for tail in tails), 0.5])
    bands = np.asarray(quantiles)[..., 0]  # [2 len(LEVELS) + 1, N]
    for i, (level, opacity) in enumerate(zip(LEVELS, (0.15, 0.2, 0.35), strict=True)):
        lower, upper = bands[i], bands[i + len(LEVELS)]
        label = f"{100 * level:.0f} %"
        axis.fill_between(x, lower, upper, color="C0", alpha=opacity, linewidth=0, label=label)
    axis.plot(x, bands[-1], color="C0", linewidth=1.2, label="median")


def _log_density(mixture: Mixture, y: np.ndarray) -> np.ndarray:
    """Log density at each of M values y and N points [M, N]."""
    import numpy as np

    column = np.ones((mixture.mean.shape[1], 1))
    return np.stack([mixture.log_prob(value * column) for value in y])


def _modes(log_density: np.ndarray) -> np.ndarray:
    """Which of M values is a mode, by column [M, N]: a maximum, none too faint, with dips between."""
    import numpy as np
    from scipy.signal import find_peaks

    modes = np.zeros(log_density.shape, bool)
    for column, values in zip(modes.T, log_density.T, strict=True):
        faintest = values.max() + math.log(FAINT)
        peaks, _ = find_peaks(
            np.pad(values, 1, constant_values=-np.inf), faintest, prominence=-math.log(DIP)
        )
        column[peaks - 1] = True
    return modes


def _made_up() -> tuple[np.ndarray, np.ndarray]:
    import numpy as np

    rng = np.random.default_rng(0)
    X = np.sort(np.concatenate([rng.uniform(-3.0, -0.5, 70), rng.uniform(1.0, 3.0, 50)]))[:, None]
    return X, np.sin(3.0 * X) + 1.5 * (X > 2.0) + 0.15 * rng.normal(size=X.shape)


def _of_csv(path: str, target: str | None) -> tuple[np.ndarray, np.ndarray]:
    """All rows of a CSV file of two columns, in its own units."""
    import numpy as np

    table = TableDataset.open(path, target)
    X, Y = table.X, table.Y
    if X.shape[1] != 1:
        raise BadDataError(f"{path} has {X.shape[1]} features; one is needed to draw bands.")
    if np.ptp(X) == 0:
        raise BadDataError(f"{path}: the feature is {X[0, 0]:g} in every row; it must vary.")
    return X, Y


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="plot_fit.py",
        description=DESCRIPTION,
        epilog=f"models: {', '.join(sorted({name for task in TASKS for name in list_models(task)}))}",
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
