r"""
Gaussian Wasserstein inference: the paper's pictures
====================================================

Figures in the manner of [NeurIPS22]: bands on functions of one input with a stretch removed, the
deviation of the function beside those of other Bayesian networks, and the eigenvalues of the
distance's cross term. As in the paper's first figure a function is seen at 1 000 points at equal
distances with noise of deviation 0.5, there are 30 inducing points, and a band is 1.96 deviations of
the predictive distribution wide; the first function is the paper's too. The two others and the
stretch without data are ours.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from bayesian_benchmarks import get_dataset
from gpflow_dkp.models import GWI, NNGP, NeuralNetwork
from gpflow_dkp.training import fit

FUNCTIONS = {
    r"$\sin x + 0.1 x$": lambda x: np.sin(x) + 0.1 * x,
    r"$\cos(2 x) e^{-x^2 / 20}$": lambda x: np.cos(2.0 * x) * np.exp(-(x**2) / 20.0),
    r"$|x| / 3 - 1$": lambda x: np.abs(x) / 3.0 - 1.0,
}
NOISE = 0.5
grid = np.linspace(-10.0, 10.0, 400)[:, None]


def data_of(function, num_data=1000, seed=0):
    """Inputs from -6 to 6, in the units of the pictures, and which are seen: not those from 0 to 2.5."""
    x = np.linspace(-6.0, 6.0, num_data)[:, None]
    y = function(x) + NOISE * np.random.default_rng(seed).normal(size=x.shape)
    return x, y, ((x < 0.0) | (x > 2.5))[:, 0]


def gwi_net(X, Y, num_steps=1500):
    """Trained, with thirty inducing points."""
    model = GWI.from_data(X, Y, mean="net", num_inducing=30, seed=0)
    fit(model, (X, Y), num_steps=num_steps, batch_size=200, learning_rate=1e-2, progress=False)
    return model


# %%
# **Bands.** The mean is a network's, the variance a sparse GP's. Beyond the ends the band grows to the
# prior's width, whatever the network does there; in the stretch without data, whose points are orange, it
# opens as far as the kernel's lengthscale lets it.
figure, axes = plt.subplots(1, 3, figsize=(11.0, 3.4), sharey=True)
for axis, (name, function) in zip(axes, FUNCTIONS.items()):
    X, Y, is_seen = data_of(function)
    model = gwi_net(X[is_seen], Y[is_seen])
    mean, variance = (np.asarray(moment)[:, 0] for moment in model.predict_y(grid))
    band = mean - 1.96 * variance**0.5, mean + 1.96 * variance**0.5
    axis.fill_between(grid[:, 0], *band, color="C0", alpha=0.25, linewidth=0)
    axis.plot(X[is_seen][::3], Y[is_seen][::3], "k.", markersize=1.5)
    axis.plot(X[~is_seen][::3], Y[~is_seen][::3], ".", color="C1", markersize=1.5)
    axis.plot(grid, mean, color="C0")
    axis.plot(grid, function(grid), "k--", linewidth=0.8)
    axis.set(title=name, xlabel="x", ylim=(-4.0, 4.0), xlim=(-10.0, 10.0))
_ = axes[0].set(ylabel="y")

# %%
# **The deviation of f.** Beside it are those of the same network with mean-field variational inference
# and with Hamiltonian Monte Carlo (TensorFlow Probability's), and of the infinitely wide ReLU network, a
# GP with composed arc-cosine kernels. A hundred points. Mean-field's is nearly the same everywhere;
# Monte Carlo's and the wide network's open in the gap and grow beyond the ends. GWI's, which ends at the GP
# prior's, all but vanishes on the data, where its inducing points explain the prior: ``temper`` mends that.
X, Y, is_seen = data_of(FUNCTIONS[r"$\sin x + 0.1 x$"], 120)
X, Y = X[is_seen], Y[is_seen]


def hamiltonian(X, Y, num_draws=300, num_burn_in=500):
    """Functions [S, N] of a network of two layers of ten units, weights N(0, 1), noise known."""
    network = NeuralNetwork(1, gpflow.likelihoods.Gaussian(NOISE**2), inference="map", seed=0)
    gpflow.set_trainable(network.likelihood, False)
    fit(network, (X / 5.0, Y), num_steps=800, learning_rate=1e-2, progress=False)
    for parameter in network.trainable_parameters:  # which `elbo` has; the helper asks for them
        parameter.prior = tfp.distributions.Normal(np.float64(0.0), np.float64(1.0))
    parameters = gpflow.optimizers.SamplingHelper(
        lambda: network.elbo((X / 5.0, Y)), list(network.trainable_parameters)
    )
    kernel = tfp.mcmc.SimpleStepSizeAdaptation(
        tfp.mcmc.HamiltonianMonteCarlo(
            parameters.target_log_prob_fn, num_leapfrog_steps=12, step_size=0.01
        ),
        num_adaptation_steps=int(0.8 * num_burn_in),
    )

    @tf.function(autograph=False)
    def run():
        return tfp.mcmc.sample_chain(
            num_results=num_draws,
            num_burnin_steps=num_burn_in,
            current_state=parameters.current_state,
            kernel=kernel,
            trace_fn=None,
            seed=[0, 1],
        )

    functions = []
    for state in zip(*run()):
        for parameter, value in zip(network.trainable_parameters, state):
            parameter.unconstrained_variable.assign(value)
        functions.append(network.predict_f(grid / 5.0)[0][:, 0])
    return np.array(functions)


mean_field = NeuralNetwork(1, inference="mean-field", num_samples=5, seed=0)
fit(mean_field, (X / 5.0, Y), num_steps=2000, learning_rate=1e-2, progress=False)
wide = NNGP.from_data(X, Y, depth=3, kernel="relu", num_inducing=40)
fit(wide, (X, Y), num_steps=300, progress=False)
deviations = {
    "GWI-net": gwi_net(X, Y).predict_f(grid)[1][:, 0] ** 0.5,
    "mean-field": mean_field.predict_f(grid / 5.0, num_samples=200, seed=0)[1][:, 0] ** 0.5,
    "HMC": hamiltonian(X, Y).std(0),
    "NNGP": wide.predict_f(grid)[1][:, 0] ** 0.5,
}
figure, axis = plt.subplots(figsize=(8.0, 3.4))
for name, deviation in deviations.items():
    axis.plot(grid, deviation, label=name)
axis.plot(X, np.full_like(X, 1.2e-3), "k|", markersize=5)
axis.set(xlabel="x", ylabel=r"$\sigma[f(x)]$", yscale="log", ylim=(1e-3, 10.0), xlim=(-10.0, 10.0))
_ = axis.legend(frameon=False, ncols=4)

# %%
# **Eigenvalues** of the cross term on real data: they decay so fast that few of a batch's points say what
# the distance is. Those of 50 of 200 points, by whose matrix the paper estimates it, on the five small sets
# of its table.
figure, axis = plt.subplots(figsize=(8.0, 3.4))
for dataset in ("boston", "concrete", "energy", "wine", "yacht"):
    data = get_dataset(dataset)
    model = GWI.from_data(data.X_train, data.Y_train, mean="svgp", seed=0)
    values = np.sort(np.abs(model.spectrum(data.X_train[:200], 50)[0]))[::-1]
    axis.semilogy(np.arange(1, 51), np.maximum(values, 1e-12), ".-", label=dataset)
axis.set(xlabel="number", ylabel="absolute eigenvalue")
_ = axis.legend(frameon=False)
plt.show()
