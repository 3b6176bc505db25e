"""`ReLUFeatures` on features, its infinite-width limit, and what refuses it."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import ArcCosine, Linear, White

from gpflow_dkp import gram
from gpflow_dkp.gram import FeatureBlocks, KernelNotComputableFromGram, ReLUFeatures
from gpflow_dkp.models import DGP, DIWP, DWP

rng = np.random.default_rng(0)
S, M, N, D = 3, 4, 5, 7


def blocks(num_features: int = D) -> FeatureBlocks:
    inducing = rng.normal(size=(S, M, num_features)) / np.sqrt(num_features)
    data = rng.normal(size=(S, num_features, N)) / np.sqrt(num_features)
    return FeatureBlocks(tf.constant(inducing), tf.constant(data))


def test_covariance_is_the_kernel_on_features() -> None:
    kernel, features = ReLUFeatures(1.3), blocks()
    K = gram.covariance(kernel, features)
    for s in range(S):
        inducing, data = features.inducing[s], tf.transpose(features.data[s])
        np.testing.assert_allclose(K.ii[s], kernel(inducing), rtol=0, atol=1e-12)
        np.testing.assert_allclose(K.it[s], kernel(inducing, data), rtol=0, atol=1e-12)
        np.testing.assert_allclose(K.tt[s], kernel(data, full_cov=False), rtol=0, atol=1e-12)
    both = gram.covariance(kernel + White(0.2), features)
    np.testing.assert_allclose(both.ii, K.ii + 0.2 * np.eye(M), rtol=0, atol=1e-12)


def test_many_features_approach_the_arc_cosine_kernel() -> None:
    width = 40_000
    factor = rng.normal(size=(M, 3))
    features = factor @ rng.normal(size=(3, width)) / np.sqrt(width)
    limit = ArcCosine(order=1, variance=1.3, bias_variance=1e-12)(factor).numpy()
    # The mean over the units has a relative standard error of order 1 / sqrt(width) = 0.005.
    np.testing.assert_allclose(ReLUFeatures(1.3)(features), limit, rtol=0, atol=0.02 * limit.max())


@pytest.mark.parametrize("model", [DWP, DIWP])
def test_models_of_gram_matrices_refuse_it(model: type) -> None:
    settings = {"widths": [3]} if model is DWP else {}
    with pytest.raises(
        KernelNotComputableFromGram, match=r"ReLUFeatures .*layers of a DGP"
    ) as raised:
        model([Linear(), ReLUFeatures()], gpflow.likelihoods.Gaussian(), np.eye(4), **settings)
    assert "\n" not in str(raised.value)


def test_network_is_trained_as_a_deep_gp() -> None:
    X = rng.normal(size=(12, 2))
    data = X, np.abs(X[:, :1])
    kernels = [Linear(), ReLUFeatures(), ReLUFeatures()]
    network = DGP(kernels, gpflow.likelihoods.Gaussian(0.1), X[:6], widths=[8, 5])
    with tf.GradientTape() as tape:
        elbo = network.elbo(data, seed=0)
    for gradient in tape.gradient(elbo, network.trainable_variables):
        assert np.all(np.isfinite(gradient))
