"""The layers of [ICML19] for an architecture such as "LV-GP-GP" and data."""

from __future__ import annotations

import math
from typing import Any

import gpflow
import numpy as np
from gpflow.functions import Linear
from gpflow.kernels import Kernel, White

from ..checks import brief, check_flag, check_positive, check_positive_integer, check_seed
from ..layers import Encoder, FeatureLayer, IndependentGPs, LatentVariableLayer, SparseGP
from ..layers.features.latent_variable import START_VARIANCE
from .checks import check_arrays
from .from_data import cluster, kernel_maker

CLUSTERED_ROWS = 10_000
"""Rows that are clustered, at most."""

FARTHEST_START = 1_000.0
"""Factor by which a kernel's parameter that a search found may differ from its usual start.

The marginal likelihood of columns that do not matter has no optimum, and training no way back from 1e8."""

INNER_Q_SQRT = 1e-5
"""Starting scale of an inner layer's `q_sqrt`: nearly deterministic."""


def parse_architecture(architecture: str) -> list[str]:
    """The layers' letters, "LV" and "GP".

    :raises ValueError: for other letters, none, or no GP last.
    """
    letters = architecture.split("-") if isinstance(architecture, str) else []
    if not letters or any(letter not in ("LV", "GP") for letter in letters):
        raise ValueError(
            f"architecture: got {brief(architecture)}, needs LV and GP joined by hyphens, such as LV-GP-GP"
        )
    if letters[-1] != "GP":
        raise ValueError(f"architecture: got {brief(architecture)}, needs a GP as the last layer")
    return letters


def build_layers(
    architecture: str,
    X: np.ndarray,
    Y: np.ndarray,
    *,
    num_outputs: int,
    num_inducing: int,
    num_inner_gps: int,
    kernel: str | Kernel,
    seed: int,
    latent_dim: int = 1,
    latent_variance: float = START_VARIANCE,
    amortised: bool = True,
    whiten: bool = True,
    separate_kernels: bool = False,
    inner_noise: float | None = None,
    keep_latents: bool = False,
) -> list[FeatureLayer]:
    """The layers; arguments as in `LatentVariableDGP.from_architecture`."""
    letters = parse_architecture(architecture)
    make_kernel = kernel_maker(kernel)
    check_positive_integer("num_inducing", num_inducing)
    check_positive_integer("num_inner_gps", num_inner_gps)
    check_positive("latent_variance", latent_variance)
    check_flag("amortised", amortised)
    check_flag("whiten", whiten)
    check_flag("separate_kernels", separate_kernels)
    check_flag("keep_latents", keep_latents)
    if inner_noise is not None:
        check_positive("inner_noise", inner_noise)
    check_seed("seed", seed)
    num_data = len(X)
    rng = np.random.default_rng(seed)
    if num_data > CLUSTERED_ROWS:
        rows = np.sort(rng.choice(num_data, CLUSTERED_ROWS, replace=False))
        X, Y = X[rows], Y[rows]
    X, Y = check_arrays(X, Y)
    num_features = X.shape[1]
    centres, _ = cluster(X, Y, num_inducing, seed)
    # More inducing points than distinct inputs serve the latent dimensions.
    padding = rng.normal(size=(num_inducing - len(centres), num_features))
    centres = np.concatenate([centres, padding])
    directions = np.linalg.svd(X - X.mean(0), full_matrices=False)[2][:num_inner_gps].T
    layers: list[FeatureLayer] = []
    columns = num_features
    for number, letter in enumerate(letters):
        if letter == "LV":
            if amortised:
                bias, own_seed = math.log(latent_variance), [seed, number]
                encoder = Encoder(num_features + Y.shape[1], latent_dim, bias=bias, seed=own_seed)
                layers.append(LatentVariableLayer(latent_dim, encoder=encoder))
            else:
                free: dict[str, Any] = {"num_points": num_data, "start_variance": latent_variance}
                layers.append(LatentVariableLayer(latent_dim, **free))
            columns += latent_dim
            continue
        Z = rng.normal(size=(num_inducing, columns))
        Z[:, :num_features] = centres
        if number == len(letters) - 1:
            layers.append(SparseGP(make_kernel(columns), Z, num_outputs, whiten=whiten))
            break
        kernels = [make_kernel(columns) for _ in directions.T[: None if separate_kernels else 1]]
        if not isinstance(kernel, Kernel):
            for own in kernels:
                gpflow.set_trainable(own.variance, False)
        if inner_noise is not None:
            kernels = [own + White(inner_noise) for own in kernels]
        columns = columns if keep_latents else num_features
        projection = np.pad(directions, ((0, columns - num_features), (0, 0)))
        layers.append(_inner_layer(kernels, Z, projection, whiten=whiten))
    return layers


def start_kernel(kernel: Kernel, start: Kernel) -> None:
    """Give a kernel the values of one of its first columns alone; of the other columns it keeps its own."""
    for own, found in zip(kernel.parameters, start.parameters, strict=True):
        value, usual = found.numpy(), own.numpy()
        if value.ndim:
            value = np.append(value, usual[len(value) :])
        own.assign(np.clip(value, usual / FARTHEST_START, usual * FARTHEST_START))


def _inner_layer(
    kernels: list[Kernel], Z: np.ndarray, projection: np.ndarray, *, whiten: bool
) -> FeatureLayer:
    """x + W g(x) of the P first columns x, for L GPs g with one kernel or a kernel each; W [P, L]."""
    identity = Linear(A=np.eye(Z.shape[1], len(projection)), b=np.zeros(len(projection)))
    gpflow.set_trainable(identity, False)
    outside: dict[str, Any] = {"mean_function": identity, "projection": projection}
    inside: dict[str, Any] = {"whiten": whiten, "q_sqrt_scale": INNER_Q_SQRT}
    if len(kernels) == 1:
        return SparseGP(kernels[0], Z, projection.shape[1], **inside, **outside)
    return IndependentGPs([SparseGP(kernel, Z, 1, **inside) for kernel in kernels], **outside)
