r"""
Gaussian Wasserstein inference: the paper's pictures
====================================================

The figures of [NeurIPS22], with the data and settings of its text and of the code that its authors
published: bands on functions of one input with stretches removed, the deviation of a function between
two clusters beside those of other Bayesian networks, and the eigenvalues of the distance's cross term.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from bayesian_benchmarks import get_dataset
from gpflow_dkp.models import GWI, NeuralNetwork
from gpflow_dkp.networks import MultilayerPerceptron
from gpflow_dkp.training import fit

# %%
# **Figure 1.** A function is seen at 1 000 points at equal distances, but for seven of twenty stretches,
# those that the authors' seed leaves out (orange). Noise has a deviation of 0.5, of the third function 0.25,
# the mean is a network of two layers of 50 tanh units, and there are thirty inducing points; bands are 1.96
# deviations of the predictive distribution of y. In the first two pictures the mean crosses the stretches
# well, and the band hardly widens in them. In the third, where a stretch holds a wave, the mean misses two of
# them; the band widens, but not far enough for the second.
FUNCTIONS = {
    r"$\sin x + 0.1\, x$": (lambda x: np.sin(x) + 0.1 * x, 10.0, 0.5),
    r"$\sin x + 0.1\, x^2$": (lambda x: np.sin(x) + 0.1 * x**2, 10.0, 0.5),
    r"$\sin 3 \pi x + 0.3 \cos 9 \pi x + 0.5 \sin 7 \pi x$": (
        lambda x: np.sin(3 * np.pi * x) + 0.3 * np.cos(9 * np.pi * x) + 0.5 * np.sin(7 * np.pi * x),
        1.0,
        0.25,
    ),
}
REMOVED = (1, 3, 4, 5, 8, 9, 18)
"""Of twenty stretches, from the left."""

figure, axes = plt.subplots(1, 3, figsize=(12.0, 3.6))
for axis, (name, (function, end, noise)) in zip(axes, FUNCTIONS.items()):
    x = np.linspace(-end, end, 1000)[:, None]
    y = function(x) + noise * np.random.default_rng(0).normal(size=x.shape)
    is_seen = ~np.isin(np.arange(1000) // 50, REMOVED)
    scale = x.std(), y[is_seen].mean(), y[is_seen].std()
    data = x[is_seen] / scale[0], (y[is_seen] - scale[1]) / scale[2]
    network = MultilayerPerceptron(1, hidden_units=[50, 50], seed=0)
    variance = (noise / scale[2]) ** 2
    model = GWI.from_data(*data, mean=network, num_inducing=30, noise_variance=variance, seed=0)
    fit(model, data, num_steps=1000, learning_rate=1e-2, seed=0, progress=False)
    mean, variance = (np.asarray(moment) for moment in model.predict_y(x / scale[0]))
    mean, deviation = scale[1] + scale[2] * mean, scale[2] * variance**0.5
    low, high = (mean + sign * 1.96 * deviation for sign in (-1.0, 1.0))
    axis.fill_between(x[:, 0], low[:, 0], high[:, 0], color="C0", alpha=0.25, linewidth=0)
    axis.plot(x[is_seen], y[is_seen], "k.", markersize=1.5, alpha=0.5)
    axis.plot(x[~is_seen], y[~is_seen], ".", color="C1", markersize=1.5)
    axis.plot(x, mean, color="C0")
    axis.plot(x, function(x), "k--", linewidth=0.8)
    Z = np.asarray(model.inducing_variable.Z) * scale[0]
    axis.plot(Z, np.full_like(Z, y.min()), "|", color="C2", markersize=7)
    axis.set(title=name, xlabel="x")
_ = axes[0].set(ylabel="y")

# %%
# **Figures 2 and 3.** Fifty points around (1, 1) and fifty around (-1, -1), as in Foong et al. (2020), from
# whose code the paper's comparison comes. The network has one layer of 50 ReLU units with weights N(0, 1);
# targets are drawn from its limit of infinite width, a GP with an arc-cosine kernel, with noise of
# deviation 0.1. That GP's exact posterior is the NNGP's column; Hamiltonian Monte Carlo (TensorFlow
# Probability's) draws from the posterior of the network of 50 units.
NOISE = 0.1
rng = np.random.default_rng(0)
X = np.repeat([[1.0, 1.0], [-1.0, -1.0]], 50, axis=0) + 0.1 * rng.normal(size=(100, 2))


def arc_cosine():
    """The covariance of 50 units' sum as their number grows: E relu(u) relu(v) is half GPflow's."""
    hidden = gpflow.kernels.ArcCosine(order=1, variance=25.0, weight_variances=np.ones(2))
    return hidden + gpflow.kernels.Constant(1.0)


covariance = arc_cosine()(X).numpy() + NOISE**2 * np.eye(100)
Y = np.linalg.cholesky(covariance) @ rng.normal(size=(100, 1))


def network(inference):
    """Fifty ReLU units, the noise known."""
    likelihood = gpflow.likelihoods.Gaussian(NOISE**2)
    gpflow.set_trainable(likelihood, False)
    options = {"hidden_units": [50], "activation": "relu", "num_samples": 5, "seed": 0}
    return NeuralNetwork(2, likelihood, inference=inference, **options)


def moments_of(model, **options):
    """Mean and deviation of f [N] at inputs [N, 2], as a function of them."""

    def moments(inputs):
        mean, variance = model.predict_f(inputs, **options)
        return np.ravel(mean), np.sqrt(np.ravel(variance))

    return moments


def mean_field():
    """Those of a normal for each weight."""
    model = network("mean-field")
    fit(model, (X, Y), num_steps=2000, learning_rate=1e-2, seed=0, progress=False)
    return moments_of(model, num_samples=500, seed=0)


def hamiltonian(num_draws=300, num_burn_in=400):
    """Those of draws from the posterior of the weights."""
    model = network("map")
    fit(model, (X, Y), num_steps=1000, learning_rate=1e-2, seed=0, progress=False)
    for parameter in model.trainable_parameters:  # which `elbo` has; the helper asks for them
        parameter.prior = tfp.distributions.Normal(np.float64(0.0), np.float64(1.0))
    helper = gpflow.optimizers.SamplingHelper(
        lambda: model.elbo((X, Y)), list(model.trainable_parameters)
    )
    kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(
        tfp.mcmc.HamiltonianMonteCarlo(
            helper.target_log_prob_fn, num_leapfrog_steps=40, step_size=np.float64(0.002)
        ),
        num_adaptation_steps=int(0.8 * num_burn_in),
        target_accept_prob=np.float64(0.8),
    )

    @tf.function(autograph=False)
    def run():
        return tfp.mcmc.sample_chain(
            num_results=num_draws,
            num_burnin_steps=num_burn_in,
            current_state=helper.current_state,
            kernel=kernel,
            trace_fn=None,
            seed=[0, 1],
        )

    states = list(zip(*run()))

    def moments(inputs):
        draws = []
        for state in states[::3]:
            for parameter, value in zip(model.trainable_parameters, state):
                parameter.unconstrained_variable.assign(value)
            draws.append(model.predict_f(inputs)[0][:, 0])
        return np.mean(draws, 0), np.std(draws, 0)

    return moments


def wide():
    """Those of the network's limit, exactly."""
    return moments_of(gpflow.models.GPR((X, Y), arc_cosine(), noise_variance=NOISE**2))


def gwi_net():
    """Those of Gaussian Wasserstein inference with a mean of fifty ReLU units."""
    mean = MultilayerPerceptron(2, hidden_units=[50], activation="relu", seed=0)
    model = GWI.from_data(X, Y, mean=mean, noise_variance=NOISE**2, num_inducing=10, seed=0)
    fit(model, (X, Y), num_steps=1000, learning_rate=1e-2, seed=0, progress=False)
    return moments_of(model)


# %%
# Above is the deviation of f on a scale for each, below f and two deviations along the dashed line.
# Mean-field VI is as sure of f between the clusters as at them; the others are not.
side = np.linspace(-2.0, 2.0, 40)
plane = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
line = np.linspace(-2.0 * 2.0**0.5, 2.0 * 2.0**0.5, 200)
diagonal = np.ones(2) / 2.0**0.5
figure, axes = plt.subplots(2, 4, figsize=(13.0, 5.6), height_ratios=(1.6, 1.0))
trained = {
    "GWI-net": gwi_net(),
    "mean-field VI": mean_field(),
    "HMC": hamiltonian(),
    "NNGP": wide(),
}
for column, (name, moments) in zip(axes.T, trained.items()):
    shown = column[0].contourf(side, side, np.reshape(moments(plane)[1], (40, 40)), levels=50)
    column[0].plot(side, side, "w--", linewidth=0.8)
    column[0].plot(*X.T, "r+", markersize=3)
    column[0].set(title=rf"{name}: $\sigma[f(x)]$", aspect="equal")
    figure.colorbar(shown, ax=column[0], format="%.1f")
    mean, deviation = moments(line[:, None] * diagonal)
    column[1].fill_between(line, mean - 2.0 * deviation, mean + 2.0 * deviation, alpha=0.3)
    column[1].plot(line, mean)
    column[1].plot(X @ diagonal, Y[:, 0], "r+", markersize=3)
    column[1].set(xlabel="position on the dashed line", ylim=(-15.0, 8.0))
_ = axes[1, 0].set(ylabel="f")

# %%
# **Figure 4.** Eigenvalues of the cross term on the five small sets of the paper's table, of its numbers of
# points in the estimate: they decay so fast that a few points of a batch say what the distance is.
figure, axes = plt.subplots(1, 5, figsize=(13.0, 3.2), sharey=True)
for axis, dataset in zip(axes, ("boston", "concrete", "energy", "wine", "yacht")):
    data = get_dataset(dataset)
    model = GWI.from_data(data.X_train, data.Y_train, mean="net", seed=0)
    for num_points in (50, 100, 150, 200, 250):
        values = np.sort(np.abs(model.spectrum(data.X_train, num_points)[0]))[::-1]
        axis.semilogy(np.arange(1, len(values) + 1), np.maximum(values, 1e-12), label=num_points)
    axis.set(title=dataset, xlabel="number")
axes[0].set(ylabel="absolute eigenvalue")
_ = axes[-1].legend(title="points", frameon=False)
plt.show()
