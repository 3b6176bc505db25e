"""Densities of any shape in one dimension: points inside glyphs, and what deep GPs make of them."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from bayesian_benchmarks.errors import BenchmarkError, ConfigError
from bayesian_benchmarks.report.figures import check_picture

DESCRIPTION = """\
Points are drawn inside the glyphs of a word; x is where along the word, y how high. At many x the
density of y has several modes, which a GP cannot have and a latent variable can. The picture has the
data and, for LV-GP, GP-GP and LV-GP-GP, the fitted density with the density of y at three inputs below;
its last row has draws from the priors of GP, GP-GP, LV-GP and LV-GP-GP.

With --published the picture is figure 1 of [ICML19] by the settings of its first author's code: the pixels of
italic letters, scaled to [-3, 3], and the densities of GP, GP-GP, LV-GP and LV-GP-GP by VI, with a free
posterior of each pixel's latent variable, which all layers see, and 100 inducing points."""

ARCHITECTURES = ("LV-GP", "GP-GP", "LV-GP-GP")
PRIORS = ("GP", "GP-GP", "LV-GP", "LV-GP-GP")
STEPS, PUBLISHED_STEPS = 3_000, 62_000
PIXELS = 160
"""Across the word, of the published figure; its own picture of the letters is not known here."""
GRID = 200
"""Points on an axis at which densities are drawn."""
MARGINALS_AT = (0.2, 0.5, 0.8)
"""Quantiles of the inputs at which the density of y is drawn."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = _parse(argv)
    try:
        return _run(arguments)
    except (BenchmarkError, OSError) as error:
        print(f"demo_letters.py: {error}", file=sys.stderr)
        return 2


def _run(arguments: argparse.Namespace) -> int:
    if "steps" not in arguments:
        arguments.steps = PUBLISHED_STEPS if arguments.published else STEPS
    for name in ("points", "steps", "inducing", "importance"):
        if getattr(arguments, name) < 1:
            raise ConfigError(f"--{name} is {getattr(arguments, name)}; it must be at least 1.")
    check_picture(arguments.output)
    rng = np.random.default_rng(arguments.seed)
    if arguments.published:
        X, Y = pixels_inside(arguments.word, PIXELS)
    else:
        X, Y = points_inside(arguments.word, arguments.points, rng)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import matplotlib.figure

    from gpflow_dkp.training import configure_threads

    with contextlib.suppress(ValueError):  # TensorFlow has started: called from another program
        configure_threads()
    if arguments.published:
        return _draw_published(X, Y, arguments)
    x_grid, y_grid = (np.linspace(part.min() - 0.3, part.max() + 0.3, GRID) for part in (X, Y))
    figure = matplotlib.figure.Figure(figsize=(15.0, 10.0), layout="constrained")
    axes = figure.subplots(3, 4)
    axes[0, 0].plot(X[:, 0], Y[:, 0], "k.", markersize=2)
    axes[0, 0].set(title=f"{len(X)} points", xlim=x_grid[[0, -1]], ylim=y_grid[[0, -1]], ylabel="y")
    inputs = np.quantile(X, MARGINALS_AT)
    _histograms(axes[1, 0], X, Y, inputs)
    densities = {}
    for axis, architecture in zip(axes[1, 1:], ARCHITECTURES, strict=False):
        model = _trained(architecture, X, Y, arguments)
        densities[architecture] = _density(model, x_grid, y_grid)
        for i, marginal in enumerate(_density(model, inputs, y_grid).T):
            axis.plot(y_grid, marginal, color=f"C{i}")
        axis.set(title=f"p(y | x) of {architecture}", xlabel="y", ylim=axes[1, 0].get_ylim())
    # One scale for all; the brightest hundredth is cut off.
    highest = max(np.quantile(density, 0.99) for density in densities.values())
    for axis, (architecture, density) in zip(axes[0, 1:], densities.items(), strict=False):
        extent = (*x_grid[[0, -1]], *y_grid[[0, -1]])
        scale: dict[str, Any] = {"cmap": "magma", "vmin": 0.0, "vmax": highest}
        shown = axis.imshow(density, origin="lower", aspect="auto", extent=extent, **scale)
        axis.set_title(f"p(y | x) of {architecture}")
    figure.colorbar(shown, ax=axes[0, 3], label="density", extend="max")
    for axis, architecture in zip(axes[2], PRIORS, strict=True):
        _prior(axis, architecture, x_grid, arguments.seed)
    figure.savefig(arguments.output, dpi=110)
    print(arguments.output)
    return 0


def _draw_published(X: np.ndarray, Y: np.ndarray, arguments: argparse.Namespace) -> int:
    """The pixels and the densities of four models, on one scale."""
    import matplotlib.figure

    grid = np.linspace(-4.5, 4.5, 200)
    figure = matplotlib.figure.Figure(figsize=(20.0, 4.2), layout="constrained")
    data, *axes = figure.subplots(1, 1 + len(PRIORS), sharey=True)
    data.plot(X[:, 0], Y[:, 0], "k.", markersize=1)
    data.set(
        title=f"{len(X)} pixels", xlim=grid[[0, -1]], ylim=grid[[0, -1]], xlabel="x", ylabel="y"
    )
    densities = [
        _density(_trained_as_published(architecture, X, Y, arguments), grid, grid)
        for architecture in PRIORS
    ]
    highest = max(np.quantile(density, 0.99) for density in densities)
    for axis, architecture, density in zip(axes, PRIORS, densities, strict=True):
        extent = (*grid[[0, -1]], *grid[[0, -1]])
        shown = axis.imshow(
            density, origin="lower", aspect="auto", extent=extent, vmin=0.0, vmax=highest
        )
        axis.set(title=f"p(y | x) of {architecture}", xlabel="x")
    figure.colorbar(shown, ax=axes, label="density", extend="max")
    figure.savefig(arguments.output, dpi=110)
    print(arguments.output)
    return 0


def points_inside(
    word: str, num_points: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Uniform points inside the glyphs of a word, x and y [N, 1] each of mean 0 and deviation 1.

    :raises ConfigError: a word without a glyph.
    """
    outlines = _outlines(word)
    corners = np.concatenate([outline.vertices for outline in outlines])
    low, high = corners.min(0), corners.max(0)
    found = np.empty((0, 2))
    while len(found) < num_points:
        candidates = rng.uniform(low, high, size=(4 * num_points, 2))
        found = np.concatenate([found, candidates[_are_inside(candidates, outlines)]])
    X, Y = np.split((found - found.mean(0))[:num_points] / found.std(0), 2, axis=1)
    return X, Y


def pixels_inside(word: str, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The pixels inside the italic glyphs of a word `width` pixels wide, x and y [N, 1] from -3 to 3.

    :raises ConfigError: a word without a glyph.
    """
    outlines = _outlines(word, style="italic")
    corners = np.concatenate([outline.vertices for outline in outlines])
    low, high = corners.min(0), corners.max(0)
    height = round(width * (high - low)[1] / (high - low)[0])
    columns, rows = np.linspace(low[0], high[0], width), np.linspace(low[1], high[1], height)
    pixels = np.stack(np.meshgrid(columns, rows), -1).reshape(-1, 2)
    found = pixels[_are_inside(pixels, outlines)]
    X, Y = np.split(6.0 * (found - found.min(0)) / np.ptp(found, axis=0) - 3.0, 2, axis=1)
    return X, Y


def _outlines(word: str, style: Literal["normal", "italic"] = "normal") -> list[Any]:
    """Of a word's bold glyphs, Matplotlib's closed paths."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.path import Path
    from matplotlib.textpath import TextPath

    if not word.strip():
        raise ConfigError(f"--word: {word!r} has nothing to draw; give letters or digits.")
    font = FontProperties(family="DejaVu Sans", weight="bold", style=style)
    text = TextPath((0, 0), word, size=1, prop=font)
    return [Path(polygon) for polygon in text.to_polygons()]


def _are_inside(points: np.ndarray, outlines: list[Any]) -> np.ndarray:
    """Whether each point is inside an odd number of outlines: a hole is inside two."""
    count = sum(outline.contains_points(points).astype(int) for outline in outlines)
    return np.asarray(count) % 2 == 1


def _trained(architecture: str, X: np.ndarray, Y: np.ndarray, arguments: argparse.Namespace) -> Any:
    """The trained model; short lengthscales turn within a letter."""
    from gpflow.kernels import SquaredExponential

    from gpflow_dkp.models import LatentVariableDGP

    model = LatentVariableDGP.from_architecture(
        architecture,
        (X, Y),
        num_inducing=arguments.inducing,
        kernel=SquaredExponential(lengthscales=0.4),
        inference="iwvi",
        num_importance_samples=arguments.importance,
        seed=arguments.seed,
    )
    return _fit(model, architecture, (X, Y), arguments, batch_size=512)


def _trained_as_published(
    architecture: str, X: np.ndarray, Y: np.ndarray, arguments: argparse.Namespace
) -> Any:
    """The trained model, by the settings of the author's code."""
    from gpflow.likelihoods import Gaussian

    from gpflow_dkp.models import LatentVariableDGP

    model = LatentVariableDGP.from_architecture(
        architecture,
        (X, Y),
        num_inducing=100,
        num_inner_gps=1,
        amortised=False,
        keep_latents=True,
        num_marginal_points=0,
        likelihood=Gaussian(0.1),
        inference="vi",
        num_data=len(X),
        seed=arguments.seed,
    )
    schedule = {"schedule": "paper", "learning_rate": 0.01, "kl_annealing_steps": 0}
    return _fit(
        model, architecture, (X, Y), arguments, batch_size=1000, natural_gradient=0.1, **schedule
    )


def _fit(
    model: Any,
    architecture: str,
    data: tuple[np.ndarray, np.ndarray],
    arguments: argparse.Namespace,
    **settings: Any,
) -> Any:
    """The model, trained with a progress bar."""
    from tqdm import tqdm

    from gpflow_dkp.training import fit

    with tqdm(total=arguments.steps, desc=architecture) as bar:
        fit(
            model,
            data,
            num_steps=arguments.steps,
            seed=arguments.seed,
            callbacks=[lambda step: bar.update(step - bar.n)],
            progress=False,
            **settings,
        )
    return model


def _density(model: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """p(y | x) on a grid [len(y), len(x)]."""
    mixture = model.predict_mixture(x[:, None], num_samples=1000, batch_size=50)
    return np.exp([mixture.log_prob(np.full((len(x), 1), value)) for value in y])


def _histograms(axis: Any, X: np.ndarray, Y: np.ndarray, inputs: np.ndarray) -> None:
    """Of the data within a twentieth of the inputs' range of each input."""
    for i, x in enumerate(inputs):
        near = np.abs(X[:, 0] - x) < 0.05 * np.ptp(X)
        axis.hist(
            Y[near, 0],
            bins=30,
            density=True,
            histtype="step",
            color=f"C{i}",
            label=f"x = {round(x, 2) + 0.0:.2f}",  # no -0.00
        )
    axis.legend(frameon=False)
    axis.set(title="y of the data near x", xlabel="y", ylabel="density")


def _prior(axis: Any, architecture: str, x: np.ndarray, seed: int) -> None:
    """Draws from the prior: lines, or points where every input has a latent variable of its own."""
    import gpflow
    from gpflow.functions import Identity

    from gpflow_dkp.layers import LatentVariableLayer, SparseGP
    from gpflow_dkp.models import LatentVariableDGP

    layers: list[Any] = []
    columns = 1
    letters = architecture.split("-")
    for number, letter in enumerate(letters):
        if letter == "LV":
            layers.append(LatentVariableLayer(1, num_points=1))
            columns += 1
            continue
        kernel = gpflow.kernels.SquaredExponential(lengthscales=0.7)
        inner = number < len(letters) - 1
        mean = Identity() if inner else None
        layers.append(
            SparseGP(kernel, np.zeros((1, columns)), columns if inner else 1, mean_function=mean)
        )
    model = LatentVariableDGP(layers, gpflow.likelihoods.Gaussian())
    inputs = np.repeat(x, 10 if "LV" in letters else 1)[:, None]
    draws = model.sample_prior(inputs, 1 if "LV" in letters else 4, seed=seed).numpy()[..., 0]
    for draw in draws:
        axis.plot(inputs[:, 0], draw, "k." if "LV" in letters else "-", markersize=1.5)
    axis.set(title=f"prior of {architecture}", xlabel="x")


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="demo_letters.py",
        description=DESCRIPTION,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--word", default="DGP", help="whose glyphs hold the points")
    parser.add_argument("--points", type=int, default=1500)
    parser.add_argument("--inducing", type=int, default=64, help="inducing points of a layer")
    parser.add_argument("--importance", type=int, default=10, help="importance samples")
    parser.add_argument(
        "--published",
        action="store_true",
        help="figure 1 by its author's settings; not read: --points, --inducing, --importance",
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=argparse.SUPPRESS,
        help=f"of training (default: {STEPS}, with --published {PUBLISHED_STEPS})",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", default="letters.png", metavar="PICTURE")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
