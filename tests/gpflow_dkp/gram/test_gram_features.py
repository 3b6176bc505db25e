"""`ReLUFeatures` on features, its infinite-width limit, and what refuses it."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import ArcCosine, Linear, White

from gpflow_dkp import gram
from gpflow_dkp.gram import FeatureBlocks, KernelNotComputableFromGram, ReLUFeatures
from gpflow_dkp.models import DGP, DIWP, DWP

S, M, N, D = 3, 4, 5, 7


def blocks() -> FeatureBlocks:
    rng = np.random.default_rng(0)
    inducing = rng.normal(size=(S, M, D)) / np.sqrt(D)
    data = rng.normal(size=(S, D, N)) / np.sqrt(D)
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


def test_whole_block_is_the_kernel_on_features() -> None:
    kernel, features = ReLUFeatures(1.3), blocks()
    K = gram.covariance(kernel, FeatureBlocks(features.inducing, features.data, full_cov=True))
    assert K.full_cov
    for s in range(S):
        inducing, data = features.inducing[s], tf.transpose(features.data[s])
        np.testing.assert_allclose(K.ii[s], kernel(inducing), rtol=0, atol=1e-12)
        np.testing.assert_allclose(K.it[s], kernel(inducing, data), rtol=0, atol=1e-12)
        np.testing.assert_allclose(K.tt[s], kernel(data), rtol=0, atol=1e-12)


def test_features_with_lengths_of_their_own_are_refused() -> None:
    """What stands behind such a length is not known."""
    own = tf.ones([S, N], tf.float64)
    with pytest.raises(KernelNotComputableFromGram, match="it needs the features"):
        gram.covariance(ReLUFeatures(), FeatureBlocks(blocks().inducing, blocks().data, own))


def test_many_features_approach_the_arc_cosine_kernel() -> None:
    rng = np.random.default_rng(0)
    width = 400_000
    factor = rng.normal(size=(M, 3))
    features = factor @ rng.normal(size=(3, width)) / np.sqrt(width)
    limit = ArcCosine(order=1, variance=1.3, bias_variance=1e-12)(factor).numpy()
    # A unit's 2 relu(u) relu(v) has a variance of at most 6 E[u^2] E[v^2], and 5 where u = v.
    scale = np.sqrt(np.outer(np.diag(limit), np.diag(limit)))
    error = np.abs(ReLUFeatures(1.3)(features) - limit) / (np.sqrt(6.0 / width) * scale)
    assert np.max(error) < 6.0


@pytest.mark.parametrize("model", [DWP, DIWP])
def test_models_of_gram_matrices_refuse_it(model: type) -> None:
    settings = {"widths": [3]} if model is DWP else {}
    with pytest.raises(
        KernelNotComputableFromGram, match=r"ReLUFeatures .*layers of a DGP"
    ) as raised:
        model([Linear(), ReLUFeatures()], gpflow.likelihoods.Gaussian(), np.eye(4), **settings)
    assert "\n" not in str(raised.value)


def test_network_is_trained_as_a_deep_gp() -> None:
    X = np.random.default_rng(0).normal(size=(12, 2))
    data = X, np.abs(X[:, :1])
    kernels = [Linear(), ReLUFeatures(), ReLUFeatures()]
    network = DGP(kernels, gpflow.likelihoods.Gaussian(0.1), X[:6], widths=[8, 5])
    with tf.GradientTape() as tape:
        elbo = network.elbo(data, seed=0)
    for gradient in tape.gradient(elbo, network.trainable_variables):
        assert np.all(np.isfinite(gradient))
