"""The jitter of a layer: a variable that is no parameter, but is saved and copied with the layer."""

import copy
from collections.abc import Callable
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import SquaredExponential
from gpflow.utilities import parameter_dict, set_trainable

from gpflow_dkp.gram import InputBlocks
from gpflow_dkp.jitter import jitter_variable
from gpflow_dkp.layers import InputInverseWishart, SparseGP

Z = np.random.default_rng(0).normal(size=(3, 5))

LAYERS: dict[str, Callable[[], gpflow.Module]] = {
    "SparseGP": lambda: SparseGP(SquaredExponential(), Z, 2),
    "InputInverseWishart": lambda: InputInverseWishart(3, 5),
}
layers = pytest.mark.parametrize("name", LAYERS)


@layers
def test_jitter_is_no_variable_of_the_layer(name: str) -> None:
    layer = LAYERS[name]()
    references = {variable.ref() for variable in layer.variables}
    assert layer.jitter.ref() not in references
    assert len(references) == len(layer.trainable_variables) == len(layer.parameters)
    assert not any("jitter" in key for key in parameter_dict(layer))
    for trainable in (False, True):
        set_trainable(layer, trainable)
        assert not layer.jitter.trainable
        assert len(layer.trainable_variables) == (len(references) if trainable else 0)
    gpflow.utilities.multiple_assign(layer, parameter_dict(layer))


@layers
def test_a_copy_has_the_jitter_as_its_own(name: str) -> None:
    layer = LAYERS[name]()
    layer.jitter.assign(0.25)
    other = copy.deepcopy(layer)
    assert float(other.jitter) == 0.25
    layer.jitter.assign(0.5)
    assert float(other.jitter) == 0.25
    assert float(gpflow.utilities.deepcopy(layer).jitter) == 0.5
    set_trainable(other, False)
    assert layer.trainable_variables


@layers
def test_a_checkpoint_keeps_the_jitter(name: str, tmp_path: Path) -> None:
    layer = LAYERS[name]()
    layer.jitter.assign(0.25)
    layer.parameters[0].unconstrained_variable.assign_add(
        tf.ones_like(layer.parameters[0].unconstrained_variable)
    )
    path = tf.train.Checkpoint(layer=layer).save(str(tmp_path / "layer"))
    other = LAYERS[name]()
    tf.train.Checkpoint(layer=other).restore(path).assert_consumed()
    assert float(other.jitter) == 0.25
    for ours, theirs in zip(layer.variables, other.variables, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_compiled_function_sees_the_jitter_raised() -> None:
    layer = LAYERS["InputInverseWishart"]()
    K = layer.covariance(InputBlocks(Z))
    compiled = tf.function(lambda: layer.sample(K.ii, seed=0).prior_tril, autograph=False)
    for jitter in (1e-6, 0.1, 2.0):
        layer.jitter.assign(jitter)
        scale = float(layer.delta.numpy()) * Z @ Z.T / 5
        V = Z @ layer.V.numpy() / np.sqrt(5)
        expected = np.linalg.cholesky(scale + V @ V.T + jitter * np.eye(3))
        np.testing.assert_allclose(compiled(), expected, rtol=0, atol=1e-10)


def test_default_is_gpflows() -> None:
    assert float(jitter_variable()) == gpflow.default_jitter()
    with gpflow.config.as_context(gpflow.config.Config(jitter=0.05, float=np.float32)):
        variable = jitter_variable()
    assert variable.dtype == tf.float32
    assert float(variable) == pytest.approx(0.05)
    assert float(jitter_variable(0.0)) == 0.0


@pytest.mark.parametrize("jitter", [-1e-9, np.inf, np.nan, True, "much", [1e-6]])
def test_bad_jitter(jitter: object) -> None:
    with pytest.raises(ValueError, match=r"jitter: got .*, needs a finite number of at least 0"):
        jitter_variable(jitter)
