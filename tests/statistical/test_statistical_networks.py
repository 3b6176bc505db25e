"""Bayesian neural networks as deep kernel processes, against explicit networks in NumPy."""

import gpflow
import numpy as np
from false_alarm import check_equal_means, second_moments
from gpflow.kernels import ArcCosine, Kernel, Linear

from gpflow_dkp.gram import InputBlocks, ReLUFeatures
from gpflow_dkp.layers import WishartLayer
from gpflow_dkp.models import DGP, DWP

N, D, S = 4, 3, 40_000
X = np.random.default_rng(0).normal(size=(N, D))
WIDTHS = [3, 5]


def check_moments(ours: np.ndarray, theirs: np.ndarray) -> None:
    """First and second moments of draws [S, N, N] or [S, N] agree to five standard errors."""
    below = np.tril_indices(N)
    if theirs.ndim == 3:
        ours, theirs = (G[:, below[0], below[1]] for G in (ours, theirs))
    for power in (1, 2):
        products = [
            G if power == 1 else (G[:, :, None] * G[:, None, :]).reshape(len(G), -1)
            for G in (ours, theirs)
        ]
        means = [np.mean(product, 0) for product in products]
        variances = [np.var(product, 0) / len(product) for product in products]
        error = np.sqrt(variances[0] + variances[1])
        assert np.max(np.abs(means[0] - means[1]) / error) < 5.0
    # Of the second moments, none of which is 0.
    assert np.median(error / np.abs(means[1])) < 0.1


def gram_matrices(kernels: list[Kernel]) -> tuple[np.ndarray, np.ndarray]:
    """Draws of the two hidden layers' Gram matrices, by the layers of the deep Wishart process."""
    blocks, draws = InputBlocks(X), []
    for number, (kernel, width) in enumerate(zip(kernels[:-1], WIDTHS, strict=True)):
        layer = WishartLayer(N, width, kernel=kernel)
        K_ii = layer.covariance(blocks, 1e-9).ii
        blocks = layer.prior_sample(K_ii, seed=number, num_samples=S).inducing
        draws.append(blocks.ii.numpy())
    return draws[0], draws[1]


def explicit_network() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gram matrices of the pre-activations of two hidden layers, and the output, of a ReLU network.

    Weights of variance 1 / D on the inputs and 2 / width after each ReLU.
    """
    rng = np.random.default_rng(1)
    units = np.broadcast_to(X, (S, N, D)) @ rng.normal(size=(S, D, WIDTHS[0])) / np.sqrt(D)
    first = units @ np.swapaxes(units, 1, 2) / WIDTHS[0]
    weights = rng.normal(size=(S, *WIDTHS)) * np.sqrt(2.0 / WIDTHS[0])
    units = np.maximum(units, 0.0) @ weights
    second = units @ np.swapaxes(units, 1, 2) / WIDTHS[1]
    weights = rng.normal(size=(S, WIDTHS[1], 1)) * np.sqrt(2.0 / WIDTHS[1])
    return first, second, (np.maximum(units, 0.0) @ weights)[..., 0]


def test_finite_network() -> None:
    kernels = [Linear(1.0 / D), ReLUFeatures(), ReLUFeatures()]
    first, second, output = explicit_network()
    ours = gram_matrices(kernels)
    check_moments(ours[0], first)
    check_moments(ours[1], second)
    network = DGP(kernels, gpflow.likelihoods.Gaussian(), X, widths=WIDTHS, jitter=1e-9)
    check_moments(network.sample_prior(X, S, seed=3).numpy()[..., 0], output)


def explicit_bottlenecks(num_units: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gram matrices of two linear bottlenecks between wide ReLU layers, and the network's output.

    One draw of the weights at a time.
    """
    rng = np.random.default_rng(2)

    def through_relus(values: np.ndarray, width: int) -> np.ndarray:
        hidden = np.maximum(values @ rng.normal(size=(values.shape[1], num_units)), 0.0)
        return hidden @ rng.normal(size=(num_units, width)) * np.sqrt(2.0 / num_units)

    draws = []
    for _ in range(8_000):
        first = through_relus(X / np.sqrt(D), WIDTHS[0]) / np.sqrt(WIDTHS[0])
        second = through_relus(first, WIDTHS[1]) / np.sqrt(WIDTHS[1])
        draws.append((first @ first.T, second @ second.T, through_relus(second, 1)[:, 0]))
    first, second, output = (np.array(part) for part in zip(*draws, strict=True))
    return first, second, output


def test_infinite_network_with_finite_bottlenecks() -> None:
    kernels = [
        ArcCosine(order=1, weight_variances=1.0 / D, bias_variance=1e-12),
        *(ArcCosine(order=1, bias_variance=1e-12) for _ in WIDTHS),
    ]
    first, second, output = explicit_bottlenecks(1_000)
    ours = gram_matrices(kernels)
    check_moments(ours[0], first)
    check_moments(ours[1], second)
    process = DWP(kernels, gpflow.likelihoods.Gaussian(), X, widths=WIDTHS, jitter=1e-9)
    draws = process.sample_prior(X, S, seed=3).numpy()[..., 0]
    check_moments(draws, output)
    # Fourth moments too: the second ones hardly see that a hidden layer is random.
    check_equal_means(second_moments(draws**2), second_moments(output**2))
