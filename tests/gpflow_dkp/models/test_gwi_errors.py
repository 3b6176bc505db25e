"""GWI's errors, one clear line each."""

import copy
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints, SharedIndependentInducingVariables
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Gaussian, MultiClass, Softmax
from gwi_cases import LABELS, N, X, Y, Z, classes, keras_network, make_model, se

from gpflow_dkp.means import KernelExpansion
from gpflow_dkp.models import GWI
from gpflow_dkp.models.marginal_likelihood import marginal_likelihood_start
from gpflow_dkp.networks import MultilayerPerceptron
from gpflow_dkp.wasserstein import Eigenvalues, Nystrom


class OwnKerasModel(tf.keras.Model):
    """Without what Keras needs to make another one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden, self.out = tf.keras.layers.Dense(width), tf.keras.layers.Dense(2)

    def call(self, X: tf.Tensor) -> tf.Tensor:
        return self.out(self.hidden(X))


ERRORS: dict[str, tuple[Callable[[], Any], str]] = {
    "distance": (
        lambda: make_model(distance="W2"),
        r"distance: got 'W2', choose one of squared, root, published",
    ),
    "cross term": (
        lambda: make_model(cross_term="svd"),
        r"cross_term: got 'svd', choose one of nystrom, eigenvalues, exact",
    ),
    "no cross points": (
        lambda: make_model(num_cross_points=0),
        r"num_cross_points: got 0, needs an integer of at least 1",
    ),
    "more cross points than rows": (
        lambda: make_model(num_cross_points=9).elbo((X, Y), seed=0),
        r"num_points: got 9 for the cross term of a batch of 8 rows, needs at most the batch's",
    ),
    "mean of another shape": (
        lambda: make_model(mean=lambda x: x[:, :1]),
        r"mean: function gives shape \(2, 1\) for 2 points, needs \[N, 2\]: one column",
    ),
    "mean of one axis": (
        lambda: make_model(mean=lambda x: x[:, 0]),
        r"mean: function gives shape \(2,\) for 2 points",
    ),
    "network of another width": (
        lambda: make_model(3, mean=keras_network()),
        r"mean: KerasMean gives shape \(2, 2\) for 2 points, needs \[N, 3\]",
    ),
    "mean of a fixed number of points": (
        lambda: make_model(mean=lambda x: tf.zeros([2, 2], x.dtype)).elbo((X, Y)),
        r"mean: function gives shape \(2, 2\) for 8 points, needs \[N, 2\]",
    ),
    "mean of another precision": (
        lambda: make_model(mean=lambda x: x @ tf.ones([2, 2], tf.float32)),
        r"mean: function fails on 2 points of 2 columns in float64 \(\w+\), needs a callable",
    ),
    "mean of nothing": (
        lambda: make_model(mean=lambda x: None),
        r"mean: function fails on 2 points of 2 columns in float64 \(ValueError\), needs",
    ),
    "network of another input": (
        lambda: make_model(mean=keras_network(num_inputs=3)),
        r"mean: Sequential fails on 2 points of 2 columns in float64 \(\w+\), needs a callable",
    ),
    "mean from data": (
        lambda: GWI.from_data(X, Y, mean="nett"),
        r"mean: got 'nett', choose one of net, svgp",
    ),
    "kernel of several outputs": (
        lambda: make_model(kernel=gpflow.kernels.SharedIndependent(se(), 2)),
        r"kernel: got SharedIndependent, needs one of a single output, which all share",
    ),
    "labels of one class": (
        lambda: GWI.from_data(X, np.ones([N, 1]), likelihood=classes()),
        r"data: got labels of one class, 1, needs at least 2 to tell apart",
    ),
    "NaN to temper on": (
        lambda: make_model().temper((X, np.where(Y[1, 0] == Y, np.nan, Y))),
        r"data: Y\[1, 0\] is nan, needs finite numbers",
    ),
    "divergence of another mean": (
        lambda: make_model(mean=keras_network()).prior_kl(),
        r"prior_kl: got the mean KerasMean, needs 'svgp'; `squared_distance` is of any mean",
    ),
    "mean that cannot be called": (
        lambda: make_model(mean=3.0),
        r"mean: got 3.0, needs 'svgp' or a callable from \[N, 2\] to \[N, 2\]",
    ),
    "name of no mean": (lambda: make_model(mean="net"), r"mean: got 'net', needs 'svgp' or a"),
    "one class": (
        lambda: GWI(se(), MultiClass(1), Z),
        r"likelihood: got 1 class, needs at least 2",
    ),
    "one class of softmax": (
        lambda: GWI(se(), Softmax(1), Z),
        r"likelihood: got 1 class, needs at least 2 to tell apart",
    ),
    "outputs that the likelihood has not": (
        lambda: GWI(se(), MultiClass(3), Z, num_latent_gps=2),
        r"num_latent_gps: got 2, MultiClass needs 3",
    ),
    "jitter": (lambda: make_model(jitter=-1.0), r"jitter: got -1.0, needs a finite number"),
    "jitter in words": (lambda: make_model(jitter="1e-6"), r"jitter: got '1e-6', needs a finite"),
    "jitter of no number": (lambda: make_model(jitter=np.nan), r"jitter: got nan, needs a finite"),
    "complex jitter": (lambda: make_model(jitter=1j), r"jitter: got 1j, needs a finite number"),
    "class of a kernel": (
        lambda: make_model(kernel=SquaredExponential),
        r"kernel: got .*SquaredExponential.*, needs a GPflow kernel",
    ),
    "no kernel": (lambda: GWI(None, Gaussian(), Z), r"kernel: got None, needs a GPflow kernel"),
    "kernel of other columns": (
        lambda: make_model(kernel=SquaredExponential(lengthscales=[1.0, 1.0, 1.0])),
        r"kernel: SquaredExponential fails on inputs of 2 columns \(\w+\), needs one for as many",
    ),
    "kernel of columns that there are not": (
        lambda: make_model(kernel=SquaredExponential(active_dims=[2])),
        r"kernel: SquaredExponential fails on inputs of 2 columns",
    ),
    "class of a likelihood": (
        lambda: make_model(likelihood=Gaussian),
        r"likelihood: got the class Gaussian, needs a GPflow likelihood object",
    ),
    "no inducing points": (
        lambda: make_model(inducing=Z[:0]),
        r"inducing_variable: got shape \(0, 2\), needs \[M, D\] with M and D at least 1",
    ),
    "inducing points in words": (
        lambda: make_model(inducing="Z"),
        r"inducing_variable: got shape \(\), needs \[M, D\]",
    ),
    "None for inducing points": (
        lambda: GWI(se(), Gaussian(), None),
        r"inducing_variable: got shape \(\), needs \[M, D\]",
    ),
    "infinite inducing points": (
        lambda: make_model(inducing=np.where(Z[0, 0] == Z, np.inf, Z)),
        r"inducing_variable: got values that are not finite",
    ),
    "inducing points of several outputs": (
        lambda: GWI(
            se(),
            Gaussian(),
            SharedIndependentInducingVariables(InducingPoints(Z)),
        ),
        r"inducing_variable: got SharedIndependentInducingVariables, needs inducing points Z",
    ),
    "number of outputs": (
        lambda: make_model(0),
        r"num_latent_gps: got 0, needs an integer of at least 1",
    ),
    "number of outputs in words": (
        lambda: make_model("two"),
        r"num_latent_gps: got 'two', needs an integer of at least 1",
    ),
    "size of the data": (
        lambda: make_model(num_data=0),
        r"num_data: got 0, needs an integer of at least 1",
    ),
    "part of a row": (
        lambda: make_model(num_data=10.5),
        r"num_data: got 10.5, needs an integer of at least 1",
    ),
    "part of a cross point": (
        lambda: make_model(num_cross_points=2.5),
        r"num_cross_points: got 2.5, needs an integer of at least 1",
    ),
    "cross points for all points": (
        lambda: make_model(cross_term="exact", num_cross_points=3),
        r"num_cross_points: got 3 with the cross term 'exact', which takes none; leave it out",
    ),
    "cross points for an object": (
        lambda: make_model(cross_term=Nystrom(3), num_cross_points=3),
        r"num_cross_points: got 3 with the cross term Nystrom\(num_points=3\), which takes none",
    ),
    "class of a cross term": (
        lambda: make_model(cross_term=Nystrom),
        r"cross_term: got <class '.*Nystrom'>, choose one of",
    ),
    "no cross term": (lambda: make_model(cross_term=None), r"cross_term: got None, choose one of"),
    "points of a cross term": (
        lambda: Eigenvalues(0),
        r"num_points: got 0, needs an integer of at least 1",
    ),
    "distance of another type": (lambda: make_model(distance=2), r"distance: got 2, choose one of"),
    "class of a mean": (
        lambda: make_model(mean=MultilayerPerceptron),
        r"mean: got <class '.*MultilayerPerceptron'>, needs 'svgp' or a callable",
    ),
    "no mean": (lambda: make_model(mean=None), r"mean: got None, needs 'svgp' or a callable"),
    "array for a mean": (
        lambda: make_model(mean=Y),
        r"mean: got array of shape \(8, 2\), needs 'svgp' or a callable",
    ),
    "class of a prior mean": (
        lambda: make_model(prior_mean=gpflow.functions.Zero),
        r"prior_mean: got .*Zero.*, needs a GPflow mean function",
    ),
    "prior mean of other columns": (
        lambda: make_model(prior_mean=gpflow.functions.Linear(np.ones([3, 1]))),
        r"prior_mean: Linear fails on 2 points of 2 columns in float64 \(\w+\), needs a GPflow mean",
    ),
    "prior mean of three outputs": (
        lambda: make_model(prior_mean=gpflow.functions.Linear(np.ones([2, 3]))),
        r"prior_mean: gives shape \(2, 3\) for 2 points, needs one column, or 2",
    ),
    "network with dropout": (
        lambda: make_model(mean=keras_network(tf.keras.layers.Dropout(0.5))),
        r"mean: Sequential is another function in training, as layers like Dropout",
    ),
    "kernel of an expansion": (
        lambda: KernelExpansion("rbf", X),
        r"kernel: got 'rbf', needs a GPflow kernel",
    ),
    "jitter of an expansion": (
        lambda: KernelExpansion(se(), X, jitter=-1.0),
        r"jitter: got -1.0, needs a finite number",
    ),
    "rows to start from": (
        lambda: make_model().start_at_sparse_posterior((X, Y), 0.1, num_data=0),
        r"num_data: got 0, needs an integer of at least 1",
    ),
    "points of a spectrum": (
        lambda: make_model().spectrum(X, 9),
        r"num_points: got 9 for the cross term of a batch of 8 rows",
    ),
    "inducing points": (
        lambda: make_model(inducing=Z[0]),
        r"inducing_variable: got shape \(2,\), needs \[M, D\]",
    ),
    "kernel": (lambda: make_model(kernel="rbf"), r"kernel: got 'rbf', needs a GPflow kernel"),
    "nothing to temper on": (
        lambda: make_model().temper((X[:0], Y[:0])),
        r"held-out data: got no rows, needs at least 1 to choose a temperature",
    ),
    "nothing held out": (
        lambda: make_model().held_out_log_density((X[:0], Y[:0])),
        r"held-out data: got no rows",
    ),
    "columns of the inputs": (
        lambda: make_model().elbo((X[:, :1], Y)),
        r"data: got X \(8, 1\), needs 2 columns as the inducing points have",
    ),
    "columns of the targets": (
        lambda: make_model().elbo((X, Y[:, :1])),
        r"data: got Y \(8, 1\), needs 2 columns for",
    ),
    "label": (
        lambda: make_model(3, likelihood=classes()).elbo((X, LABELS + 1)),
        r"data: got a label 3, MultiClass needs integers from 0 to 2",
    ),
    "label from data": (
        lambda: GWI.from_data(X, LABELS + 1, likelihood=classes()),
        r"data: got a label 3, MultiClass needs integers from 0 to 2",
    ),
    "negative noise to start from": (
        lambda: make_model().start_at_sparse_posterior((X, Y), -0.1),
        r"noise_variance: got -0.1, needs a positive finite number",
    ),
    "negative noise from data": (
        lambda: GWI.from_data(X, Y, noise_variance=-0.1),
        r"noise_variance: got -0.1, needs a positive finite number",
    ),
    "no noise to start from": (
        lambda: GWI.from_data(X, Y, num_marginal_points=0),
        r"noise_variance: got None, needs a number if num_marginal_points is 0",
    ),
    "kernel from data": (
        lambda: GWI.from_data(X, Y, kernel="matern"),
        r"kernel: got 'matern', choose one of squared_exponential, rational_quadratic, relu",
    ),
    "inducing points from data": (
        lambda: GWI.from_data(X, Y, num_inducing=0),
        r"num_inducing: got 0, needs an integer of at least 1",
    ),
    "NaN in the data": (
        lambda: GWI.from_data(X, np.where(np.arange(2 * N).reshape(N, 2) == 5, np.nan, Y)),
        r"data: Y\[2, 1\] is nan, needs finite numbers",
    ),
    "points of a marginal likelihood": (
        lambda: marginal_likelihood_start(se(), X, Y, num_points=0),
        r"num_points: got 0, needs an integer of at least 1",
    ),
    "number of draws": (
        lambda: make_model().predict_f_samples(X, 0, full_cov=True),
        r"num_samples: got 0, needs an integer of at least 1",
    ),
    "draws of the prior": (lambda: make_model().sample_prior(X, 0), r"num_samples: got 0"),
    "hidden units": (
        lambda: MultilayerPerceptron(2, hidden_units=(3, 0)),
        r"hidden_units: got 0, needs an integer of at least 1",
    ),
    "activation": (
        lambda: MultilayerPerceptron(2, activation="gelu"),
        r"activation: got 'gelu', choose one of tanh, relu",
    ),
    "weight variance": (
        lambda: GWI.net(se(), Gaussian(), Z, weight_variance=0.0),
        r"weight_variance: got 0.0, needs a positive finite number",
    ),
    "no likelihood": (
        lambda: make_model(likelihood="gauss"),
        r"likelihood: got str 'gauss', needs a GPflow likelihood",
    ),
    "no likelihood of a network": (
        lambda: GWI.net(se(), None, Z),
        r"likelihood: got NoneType None, needs a GPflow likelihood",
    ),
    "prior mean that cannot be called": (
        lambda: make_model(prior_mean=3.0),
        r"prior_mean: got 3.0, needs a GPflow mean function",
    ),
    "distance on no points": (
        lambda: make_model().squared_distance(X[:0]),
        r"X: got no rows, needs at least 1",
    ),
    "one hidden layer, not a list": (
        lambda: GWI.net(se(), Gaussian(), Z, hidden_units=10),
        r"hidden_units: got 10, needs a list of integers",
    ),
    "noise of an expansion": (
        lambda: KernelExpansion(se(), X, 2).interpolate(Y, -1.0),
        r"noise_variance: got -1.0, needs a positive finite number",
    ),
    "targets of an expansion": (
        lambda: KernelExpansion(se(), X, 2).interpolate(Y[:5], 0.1),
        r"data: got Y \(5, 2\), needs \(8, 2\), a row a point",
    ),
    "copy of a Keras model of a class of one's own": (
        lambda: copy.deepcopy(make_model(mean=OwnKerasModel(4))),
        r"mean: Keras cannot copy a OwnKerasModel, which needs get_config",
    ),
    "outputs of an expansion": (
        lambda: KernelExpansion(se(), X, 0),
        r"output_dim: got 0, needs an integer of at least 1",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_one_clear_line(name: str) -> None:
    call, message = ERRORS[name]
    with pytest.raises(ValueError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)
