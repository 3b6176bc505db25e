"""Draw Gaussian Wasserstein inference's bands and spectrum beside other models', on made-up data."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bayesian_benchmarks.errors import BenchmarkError, ConfigError
from bayesian_benchmarks.report.figures import check_picture

DESCRIPTION = """\
Three pictures of Gaussian Wasserstein inference (GWI), from made-up data. They show what figures 1, 2
and 4 of [NeurIPS22] show, with other data and models; the gallery's plot_14_neurips22.py redraws those.
fits: GWI with a network as mean (GWI-net), GWI with SVGP's mean (GWI-SVGP) and GPflow's SVGP on a line
with a gap; the bands widen in the gap and beyond the data.
plane: inputs in two clusters of the plane; the predictive deviation of GWI-net, of Monte Carlo dropout
and of exact GP regression, with the slice through both clusters below.
spectrum: the eigenvalues of the Wasserstein distance's cross term, which decay fast, and are neither
real nor positive where the distance's points are a part of the batch."""

EPILOG = """\
A fifth of the data is held out, drawn as open circles: GWI chooses its temperature by it, dropout its
noise. Bands are of the predictive distribution of y, noise included. GWI has the square root of the
data's number of inducing points, as in the paper, and SVGP as many. --steps counts Adam's steps; SVGP
takes as many of L-BFGS, at most 200."""

Predictor = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""From inputs [N, D] to the predictive mean and standard deviation of y [N], all in the data's units."""

LEARNING_RATE = 1e-2
NO_AUTOGRAPH = {"autograph": False}
"""GPflow's models need none of it, and it takes longer than the rest of their compilation."""
GAP = (2.5, 5.5)
"""Where the line's inputs, from 0 to 8, are none."""
CENTRE = 1.5
"""Distance of the plane's clusters from the origin, along the diagonal."""
DIAGONAL = np.array([1.0, 1.0]) / np.sqrt(2.0)


class Data:
    """Data X [N, D] and Y [N, 1] with a fifth held out at random; models see them normalised."""

    def __init__(self, X: np.ndarray, Y: np.ndarray, seed: int) -> None:
        self.X, self.Y = X, Y
        self.held_out = np.random.default_rng(seed).permutation(len(X)) < len(X) // 5
        (self._x_mean, self._x_scale), (self._y_mean, self._y_scale) = (
            (part[~self.held_out].mean(0), part[~self.held_out].std(0)) for part in (X, Y)
        )

    @property
    def training(self) -> tuple[np.ndarray, np.ndarray]:
        """Normalised."""
        return self._normalised(~self.held_out)

    @property
    def validation(self) -> tuple[np.ndarray, np.ndarray]:
        """The fifth, normalised."""
        return self._normalised(self.held_out)

    def inputs(self, Z: Any) -> np.ndarray:
        """Normalised inputs [M, D] in the data's units."""
        return np.asarray(Z) * self._x_scale + self._x_mean

    def predictor(self, predict: Callable[[np.ndarray], Any]) -> Predictor:
        """A model's mean and variance of y [N, 1], both of normalised data, in the data's units."""

        def in_units(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            moments = predict((X - self._x_mean) / self._x_scale)
            mean, variance = (np.asarray(moment)[:, 0] for moment in moments)
            return self._y_mean + self._y_scale * mean, self._y_scale * np.sqrt(variance)

        return in_units

    def _normalised(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        X, Y = self.X[rows], self.Y[rows]
        return (X - self._x_mean) / self._x_scale, (Y - self._y_mean) / self._y_scale


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = _parse(argv)
    try:
        return _run(arguments)
    except (BenchmarkError, OSError) as error:
        print(f"plot_gwi.py: {error}", file=sys.stderr)
        return 2


def _run(arguments: argparse.Namespace) -> int:
    pictures = _pictures(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import matplotlib.figure

    from gpflow_dkp.training import configure_threads

    with contextlib.suppress(ValueError):  # TensorFlow has started: called from another program
        configure_threads()
    for name, path in pictures.items():
        figure = matplotlib.figure.Figure(layout="constrained")
        FIGURES[name](figure, arguments.steps, arguments.seed)
        figure.savefig(path, dpi=130)
        print(path, flush=True)
    return 0


# A line with a gap


def line_data(seed: int) -> Data:
    """150 inputs on both sides of `GAP`, a smooth function of them, and noise of deviation 0.2."""
    rng = np.random.default_rng(seed)
    X = np.concatenate([rng.uniform(0.0, GAP[0], 75), rng.uniform(GAP[1], 8.0, 75)])[:, None]
    Y = np.sin(2.4 * X) + 0.5 * np.cos(1.1 * X) + 0.2 * rng.normal(size=X.shape)
    return Data(X, Y, seed)


def draw_fits(figure: Any, steps: int, seed: int) -> None:
    """Three models side by side: mean, bands of one and two deviations, data and inducing points."""
    data = line_data(seed)
    figure.set_size_inches(13.0, 4.4)
    axes = figure.subplots(1, 3, sharey=True)
    x = np.linspace(-3.0, 11.0, 400)
    models: dict[str, Callable[[], tuple[Predictor, Any]]] = {
        "GWI-net": lambda: gwi("net", data, steps, seed),
        "GWI-SVGP": lambda: gwi("svgp", data, steps, seed),
        "SVGP": lambda: svgp(data, steps, seed),
    }
    for axis, (name, trained) in zip(axes, models.items(), strict=True):
        predict, model = trained()
        _draw_bands(axis, x, *predict(x[:, None]))
        _draw_data(axis, data, data.X[:, 0])
        Z = data.inputs(model.inducing_variable.Z)
        _draw_inducing(axis, np.hstack([Z, np.full_like(Z, -4.6)]))
        axis.set(title=name, xlabel="x", xlim=x[[0, -1]], ylim=(-5.0, 5.0))
    axes[0].set_ylabel("y")
    _draw_legend(figure, axes[0])


# Two clusters of the plane


def plane_data(seed: int) -> Data:
    """Inputs in two clusters on the plane's diagonal, 75 points each, and noise of deviation 0.1."""
    rng = np.random.default_rng(seed)
    centres = CENTRE * np.repeat([-DIAGONAL, DIAGONAL], 75, axis=0)
    X = centres + 0.25 * rng.normal(size=centres.shape)
    along, across = X @ DIAGONAL, X @ (DIAGONAL * [1.0, -1.0])
    Y = np.sin(3.5 * along) + 0.5 * np.cos(2.5 * across) + 0.1 * rng.normal(size=len(X))
    return Data(X, Y[:, None], seed)


def slice_inputs(t: np.ndarray) -> np.ndarray:
    """Points [N, 2] of the line through both clusters, t [N] from the origin; the clusters at +-1.2."""
    return t[:, None] * DIAGONAL


def draw_plane(figure: Any, steps: int, seed: int) -> None:
    """Predictive deviations over the plane, all on one scale, and the slice through the clusters."""
    data = plane_data(seed)
    figure.set_size_inches(12.5, 7.8)
    upper, lower = figure.subplots(2, 3, sharey="row", height_ratios=(1.7, 1.0))
    side = np.linspace(-2.8, 2.8, 80)
    plane = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    t = np.linspace(-3.2, 3.2, 300)
    network, model = gwi("net", data, steps, seed)
    predictors = {
        "GWI-net": network,
        "MC dropout": monte_carlo_dropout(data, steps, seed),
        "exact GP": exact_gp(data),
    }
    deviations = [predict(plane)[1].reshape(80, 80) for predict in predictors.values()]
    levels = np.linspace(0.0, np.ceil(20.0 * np.max(deviations)) / 20.0, 33)
    for axis, name, deviation in zip(upper, predictors, deviations, strict=True):
        shown = axis.contourf(side, side, deviation, levels=levels, cmap="viridis")
        axis.plot(*slice_inputs(t).T, "w--", linewidth=1.0)
        axis.plot(*data.X.T, "k.", markersize=3)
        axis.set(title=name, xlabel="$x_1$", aspect="equal", xlim=side[[0, -1]])
        axis.set(ylim=side[[0, -1]], xticks=[-2, 0, 2], yticks=[-2, 0, 2])
    _draw_inducing(upper[0], data.inputs(model.inducing_variable.Z))
    upper[0].set_ylabel("$x_2$")
    bar = figure.colorbar(shown, cax=upper[-1].inset_axes([1.04, 0.0, 0.05, 1.0]))
    bar.set_ticks(np.arange(0.0, levels[-1], 0.2))
    bar.set_label("predictive standard deviation of y")
    for axis, predict in zip(lower, predictors.values(), strict=True):
        _draw_bands(axis, t, *predict(slice_inputs(t)))
        _draw_data(axis, data, data.X @ DIAGONAL)
        axis.set(xlabel="position on the dashed line", xlim=t[[0, -1]])
    lower[0].set_ylabel("y")
    _draw_legend(figure, lower[0], upper[0])


# Eigenvalues of the cross term


def spectrum_data(seed: int) -> Data:
    """500 inputs of four features, a smooth function of them, and noise of deviation 0.1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(500, 4))
    Y = np.sin(X[:, :1] + X[:, 1:2]) + np.tanh(X[:, 2:3] * X[:, 3:])
    return Data(X, Y + 0.1 * rng.normal(size=Y.shape), seed)


def draw_spectrum(figure: Any, steps: int, seed: int) -> None:
    """Eigenvalues by rank, for the cross term's points among the batch's and for all of them."""
    data = spectrum_data(seed)
    _, model = gwi("net", data, steps, seed)
    X, _ = data.training
    figure.set_size_inches(11.0, 4.4)
    axes = figure.subplots(1, 2, sharey=True)
    for axis, num_points in zip(axes, (len(X) // 4, len(X)), strict=True):
        values = model.spectrum(X, num_points, seed=seed).numpy()[0]
        chosen = "$X_S = X_B$" if num_points == len(X) else r"$X_S \subset X_B$"
        rounding = num_points * np.finfo(float).eps
        axis.axhspan(1e-18, rounding, color="0.9", label="rounding errors")
        _draw_eigenvalues(axis, values / np.abs(values).max())
        axis.set(title=f"{chosen}: {num_points} of {len(X)} points", xlabel="rank by real part")
    axes[0].set(ylabel="eigenvalue / the largest", ylim=(1e-18, 5.0))
    _draw_legend(figure, axes[0])


def _draw_eigenvalues(axis: Any, values: np.ndarray) -> None:
    rank = np.arange(1, len(values) + 1)
    real, imaginary = np.real(values), np.abs(np.imag(values))
    for chosen, size, style, label in (
        (real > 0.0, real, "C0.", "real part"),
        (real < 0.0, -real, "C3x", "negative real part, its size"),
        (imaginary > 0.0, imaginary, "C1^", "imaginary part, its size"),
    ):
        axis.semilogy(rank[chosen], size[chosen], style, markersize=4, label=label)


# Models


def gwi(mean: Literal["net", "svgp"], data: Data, steps: int, seed: int) -> tuple[Predictor, Any]:
    """GWI with its temperature from the held-out part; its predictor and the model.

    Sigma all but vanishes in training, so that the bands' width is what the inducing points leave of
    k: with many more of them than the square root of N, or a short gap, the bands stay narrow in it.
    """
    from tqdm import tqdm

    from gpflow_dkp.models import GWI
    from gpflow_dkp.training import fit

    X, Y = data.training
    model = GWI.from_data(X, Y, mean=mean, seed=seed)
    with tqdm(total=steps, desc="GWI-net" if mean == "net" else "GWI-SVGP") as bar:
        fit(
            model,
            (X, Y),
            num_steps=steps,
            learning_rate=LEARNING_RATE,
            kl_annealing_steps=0,
            seed=seed,
            callbacks=[lambda step: bar.update(step - bar.n)],
            progress=False,
        )
    model.temper(data.validation)
    return data.predictor(model.predict_y), model


def svgp(data: Data, steps: int, seed: int) -> tuple[Predictor, Any]:
    """GPflow's SVGP with GWI's number of inducing points, all its parameters trained."""
    import gpflow
    from tqdm import tqdm

    X, Y = data.training
    rows = np.random.default_rng(seed).permutation(len(X))[: round(len(X) ** 0.5)]
    model = gpflow.models.SVGP(
        gpflow.kernels.SquaredExponential(),
        gpflow.likelihoods.Gaussian(0.1),
        X[rows],
        num_data=len(X),
    )
    limit = min(steps, 200)
    with tqdm(total=limit, desc="SVGP") as bar:
        gpflow.optimizers.Scipy().minimize(
            model.training_loss_closure((X, Y), compile=False),
            model.trainable_variables,
            step_callback=lambda step, *_: bar.update(1),
            options={"maxiter": limit},
            tf_fun_args=NO_AUTOGRAPH,
        )
    return data.predictor(model.predict_y), model


def exact_gp(data: Data) -> Predictor:
    """GP regression at the largest marginal likelihood."""
    import gpflow

    X, Y = data.training
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.ones(X.shape[1]))
    model = gpflow.models.GPR((X, Y), kernel, noise_variance=0.1)
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, tf_fun_args=NO_AUTOGRAPH
    )
    return data.predictor(model.predict_y)


def monte_carlo_dropout(data: Data, steps: int, seed: int, *, num_samples: int = 300) -> Predictor:
    """A network that drops units in training and in prediction alike; the draws' moments, and noise."""
    import tensorflow as tf
    from tqdm import tqdm

    X, Y = data.training
    network = _dropout_network(X.shape[1], seed)
    for _ in tqdm(range(steps), desc="MC dropout"):
        network.train_on_batch(X, Y)
    dropped = _dropout_network(X.shape[1], seed, one_mask=True)
    dropped.set_weights(network.get_weights())
    draw = tf.function(lambda inputs: dropped(inputs, training=True), **NO_AUTOGRAPH)

    def moments(inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        draws = [np.asarray(draw(inputs)) for _ in range(num_samples)]
        return np.mean(draws, 0), np.var(draws, 0)

    X, Y = data.validation
    mean, variance = moments(X)
    noise = max(float(np.mean(np.square(Y - mean) - variance)), 1e-4)

    def with_noise(inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = moments(inputs)
        return mean, variance + noise

    return data.predictor(with_noise)


def _dropout_network(num_features: int, seed: int, *, one_mask: bool = False) -> Any:
    """Two hidden layers of 50 units, each dropped with probability 0.1.

    :param one_mask: drop the same units for all inputs, so that a draw is a function of them.
    """
    import tensorflow as tf

    rng = np.random.default_rng(seed)

    def dense(units: int, activation: str | None) -> Any:
        start = tf.keras.initializers.GlorotUniform(seed=int(rng.integers(2**31)))
        return tf.keras.layers.Dense(units, activation=activation, kernel_initializer=start)

    layers: list[Any] = [tf.keras.Input([num_features])]
    for _ in range(2):
        layers.append(dense(50, "relu"))
        shape = (1, 50) if one_mask else None
        mask_seed = int(rng.integers(2**31))
        layers.append(tf.keras.layers.Dropout(0.1, noise_shape=shape, seed=mask_seed))
    network = tf.keras.Sequential([*layers, dense(1, None)])
    network.compile(tf.keras.optimizers.AdamW(LEARNING_RATE / 2.0, weight_decay=1e-3), loss="mse")
    return network


# Drawing and the command line

FIGURES: dict[str, Callable[[Any, int, int], None]] = {
    "fits": draw_fits,
    "plane": draw_plane,
    "spectrum": draw_spectrum,
}


def _draw_bands(axis: Any, x: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> None:
    for factor, opacity in ((2, 0.2), (1, 0.3)):
        axis.fill_between(
            x,
            mean - factor * deviation,
            mean + factor * deviation,
            color="C0",
            alpha=opacity,
            linewidth=0,
            label=rf"$\pm$ {factor} sd",
        )
    axis.plot(x, mean, color="C0", linewidth=1.5, label="mean")


def _draw_data(axis: Any, data: Data, x: np.ndarray) -> None:
    """The training points filled, the others open, at x [N]."""
    for rows, fill, label in (
        (~data.held_out, "k", "training data"),
        (data.held_out, "none", "held-out data"),
    ):
        axis.plot(
            x[rows], data.Y[rows, 0], "o", color="k", mfc=fill, mew=0.6, markersize=3, label=label
        )


def _draw_inducing(axis: Any, points: np.ndarray) -> None:
    """Inducing points at points [M, 2] of the picture."""
    axis.plot(*points.T, "^", color="C3", mec="w", mew=0.5, markersize=6, label="inducing points")


def _draw_legend(figure: Any, *axes: Any) -> None:
    """One for all panels, below them."""
    shown = [axis.get_legend_handles_labels() for axis in axes]
    handles = [handle for part, _ in shown for handle in part]
    labels = [label for _, part in shown for label in part]
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="plot_gwi.py",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--figure", choices=[*FIGURES, "all"], default="all", help="default %(default)s"
    )
    parser.add_argument(
        "--output",
        default=".",
        metavar="PATH",
        help="a folder for gwi_FIGURE.png, default the current one, or the name of one picture",
    )
    parser.add_argument(
        "--steps", type=int, default=1000, help="of training a model, default %(default)s"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of data and training, default %(default)s"
    )
    return parser.parse_args(argv)


def _pictures(arguments: argparse.Namespace) -> dict[str, Path]:
    """Where each figure goes; refuses what would otherwise fail only after training."""
    if arguments.steps < 1:
        raise ConfigError(f"--steps is {arguments.steps}; it must be at least 1.")
    if not 0 <= arguments.seed < 2**32:
        raise ConfigError(f"--seed is {arguments.seed}; it must be from 0 to {2**32 - 1}.")
    output = Path(arguments.output)
    if arguments.figure == "all":
        if not output.is_dir():
            raise ConfigError(f"--output is {output}; three pictures need a folder that is there.")
        names = list(FIGURES)
    else:
        names = [arguments.figure]
    pictures = {name: output / f"gwi_{name}.png" if output.is_dir() else output for name in names}
    for path in pictures.values():
        check_picture(path)
    return pictures


if __name__ == "__main__":
    sys.exit(main())
