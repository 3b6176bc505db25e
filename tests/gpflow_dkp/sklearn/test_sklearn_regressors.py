"""Regressors: results in the data's own units, and what scikit-learn's tools do with them."""

from __future__ import annotations

import copy
import functools
import importlib
import pickle
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import gpflow
import joblib
import numpy as np
import pandas as pd
import pytest
from scipy.integrate import trapezoid
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn_cases import REGRESSORS, toy_data

from gpflow_dkp.models import DWP
from gpflow_dkp.selection import CrossValidation, select_gwi
from gpflow_dkp.sklearn import (
    DWPRegressor,
    GWIRegressor,
    LatentVariableDGPRegressor,
    estimators,
)
from gpflow_dkp.training import fit

every_regressor = pytest.mark.parametrize("name", REGRESSORS)


def fitted(name: str, **parameters: Any) -> Any:
    return clone(REGRESSORS[name]).set_params(**parameters).fit(*toy_data())


@every_regressor
def test_log_density_integrates_to_one_in_the_targets_units(name: str) -> None:
    estimator, (X, _) = fitted(name), toy_data()
    mean, std = estimator.predict(X[:1], return_std=True)
    grid = np.linspace(mean[0] - 30.0 * std[0], mean[0] + 30.0 * std[0], 4001)
    density = np.exp(estimator.log_density(np.repeat(X[:1], len(grid), 0), grid))
    assert trapezoid(density, grid) == pytest.approx(1.0, abs=1e-5)
    assert trapezoid(density * grid, grid) == pytest.approx(mean[0], abs=1e-4 * std[0])
    second = trapezoid(density * np.square(grid - mean[0]), grid)
    assert np.sqrt(second) == pytest.approx(std[0], rel=1e-4)


@every_regressor
def test_quantiles_are_those_of_the_models_mixture_in_the_targets_units(name: str) -> None:
    estimator, (X, y) = fitted(name), toy_data()
    inputs = (X[:3] - X.mean(0)) / X.std(0)
    levels = [0.1, 0.5, 0.9]
    expected = estimator.model_.predict_quantiles(inputs, levels, num_samples=10).numpy()[..., 0].T
    quantiles = estimator.predict_quantiles(X[:3], levels)
    np.testing.assert_allclose(quantiles, y.mean() + y.std() * expected, rtol=1e-9)
    density = estimator.model_.predict_log_density(
        (inputs, ((y[:3] - y.mean()) / y.std())[:, None]), num_samples=10
    )
    np.testing.assert_allclose(
        estimator.log_density(X[:3], y[:3]), density - np.log(y.std()), rtol=1e-9
    )


@every_regressor
def test_results_follow_the_units_of_the_targets(name: str) -> None:
    X, y = toy_data()
    one = fitted(name)
    other = clone(REGRESSORS[name]).fit(X, 1000.0 * y + 5.0)
    mean, std = one.predict(X, return_std=True)
    other_mean, other_std = other.predict(X, return_std=True)
    np.testing.assert_allclose(other_mean, 1000.0 * mean + 5.0, rtol=1e-6)
    np.testing.assert_allclose(other_std, 1000.0 * std, rtol=1e-6)


@every_regressor
def test_constant_features_and_huge_offsets_change_nothing(name: str) -> None:
    X, y = toy_data()
    # A power of two apart, so that the offset rounds nothing away that the comparison would see.
    moved = np.round(X * 2.0**20) / 2.0**20
    one = clone(REGRESSORS[name]).fit(moved, y)
    wide = np.column_stack([np.full(len(X), 3.7), moved + 2.0**30, np.full(len(X), 1e9 + 0.1)])
    other = clone(REGRESSORS[name]).fit(wide, y + 1e6)
    np.testing.assert_allclose(other.predict(wide) - 1e6, one.predict(moved), atol=1e-5)
    wide[:, 0] = -8.0
    np.testing.assert_allclose(other.predict(wide) - 1e6, one.predict(moved), atol=1e-5)


@every_regressor
def test_a_second_fit_of_other_rows_traces_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorflow.python.framework import func_graph

    fitted(name).predict_distribution(toy_data()[0])
    traced: list[str] = []
    whole = func_graph.func_graph_from_py_func

    def counting(name: str, *arguments: Any, **settings: Any) -> Any:
        traced.append(name)
        return whole(name, *arguments, **settings)

    monkeypatch.setattr(func_graph, "func_graph_from_py_func", counting)
    X, y = toy_data(37, seed=1)
    estimator = clone(REGRESSORS[name]).set_params(random_state=8).fit(X, y)
    estimator.predict_distribution(X[:5])
    assert not traced


def test_a_trace_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name that the test above counts by is the one that TensorFlow calls."""
    import tensorflow as tf
    from tensorflow.python.framework import func_graph

    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("traced")

    monkeypatch.setattr(func_graph, "func_graph_from_py_func", refuse)
    with pytest.raises(RuntimeError, match="traced"):
        tf.function(lambda x: x)(tf.constant(1.0))


def test_the_model_is_that_of_from_data_and_fit() -> None:
    """The twin's steps are `fit`'s: same data, same seeds, same numbers."""
    X, y = toy_data()
    estimator = clone(REGRESSORS["DWP"]).fit(X, y)
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    data = (X - X.mean(0)) / X.std(0), ((y - y.mean()) / y.std())[:, None]
    settings = {"num_samples": 2, "precision": "mixed-gradient", "kernel": "rational_quadratic"}
    model = DWP.from_data(*data, num_inducing=5, seed=seed, **settings)
    history = fit(model, data, num_steps=40, seed=seed, progress=False)
    np.testing.assert_allclose(estimator.history_.elbo, history.elbo, rtol=1e-8)
    for ours, theirs in zip(estimator.model_.variables, model.variables, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)


def test_minibatches_are_those_of_fit() -> None:
    X, y = toy_data()
    estimator = clone(REGRESSORS["NNGP"]).set_params(batch_size=7).fit(X, y)
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    data = (X - X.mean(0)) / X.std(0), ((y - y.mean()) / y.std())[:, None]
    build = type(estimator.model_).from_data
    settings = {"num_samples": 2, "precision": "mixed-gradient", "kernel": "rational_quadratic"}
    model = build(*data, num_inducing=5, seed=seed, **settings)
    history = fit(model, data, num_steps=40, batch_size=7, seed=seed, progress=False)
    np.testing.assert_allclose(estimator.history_.elbo, history.elbo, rtol=1e-8)


@every_regressor
def test_pickles_and_copies_predict_the_same(name: str, tmp_path: Any) -> None:
    estimator, (X, _) = fitted(name), toy_data()
    mean, std = estimator.predict(X, return_std=True)
    joblib.dump(estimator, tmp_path / "estimator.joblib")
    for other in (
        pickle.loads(pickle.dumps(estimator)),
        joblib.load(tmp_path / "estimator.joblib"),
        copy.deepcopy(estimator),
    ):
        other_mean, other_std = other.predict(X, return_std=True)
        np.testing.assert_allclose(other_mean, mean, rtol=1e-12)
        np.testing.assert_allclose(other_std, std, rtol=1e-12)


def test_two_fitted_estimators_do_not_disturb_each_other() -> None:
    """They share a twin."""
    X, y = toy_data()
    one = clone(REGRESSORS["DWP"]).fit(X, y)
    before = one.predict(X)
    other = clone(REGRESSORS["DWP"]).fit(X, -y)
    np.testing.assert_array_equal(one.predict(X), before)
    assert np.corrcoef(other.predict(X), before)[0, 1] < 0.0
    np.testing.assert_array_equal(one.predict(X), before)


def test_random_state_decides_all() -> None:
    X, y = toy_data()
    regressor = REGRESSORS["DWP"]
    first = clone(regressor).fit(X, y).predict(X)
    np.testing.assert_array_equal(clone(regressor).fit(X, y).predict(X), first)
    other = clone(regressor).set_params(random_state=1).fit(X, y).predict(X)
    assert np.max(np.abs(other - first)) > 1e-6
    generator = np.random.RandomState(3)
    of_generator = clone(regressor).set_params(random_state=generator).fit(X, y).predict(X)
    repeated = clone(regressor).set_params(random_state=np.random.RandomState(3)).fit(X, y)
    np.testing.assert_array_equal(repeated.predict(X), of_generator)


def test_warm_start_goes_on_from_where_it_was() -> None:
    X, y = toy_data()
    estimator = clone(REGRESSORS["NNGP"]).set_params(warm_start=True).fit(X, y)
    first, model = estimator.history_.elbo, estimator.model_
    estimator.fit(X, y)
    assert estimator.history_.elbo[0] > first[0] + 0.1
    assert np.mean(estimator.history_.elbo[-10:]) >= np.mean(first[-10:])
    assert estimator.model_ is not model
    colder = estimator.set_params(num_inducing=4).fit(X, y)  # another structure
    assert colder.model_.num_inducing_points == 4


def test_results_have_the_shapes_of_gaussian_process_regressor() -> None:
    X, y = toy_data()
    reference = GaussianProcessRegressor()
    estimator = clone(REGRESSORS["DWP"])
    for targets in (y, np.column_stack([y, -y])):
        reference.fit(X, targets)
        estimator.fit(X, targets)
        assert estimator.predict(X).shape == reference.predict(X).shape
        for flag in ("return_std", "return_cov"):
            ours, theirs = (e.predict(X, **{flag: True}) for e in (estimator, reference))
            assert [part.shape for part in ours] == [part.shape for part in theirs]
        assert estimator.sample_y(X, 3).shape == reference.sample_y(X, 3).shape
    assert estimator.predict_quantiles(X, [0.1, 0.9]).shape == (30, 2, 2)
    assert estimator.log_density(X, targets).shape == (30,)
    frame = estimator.fit(X, pd.DataFrame(targets, columns=["a", "b"])).predict_distribution(X)
    assert list(frame.columns[:3]) == ["a_mean", "a_std", "a_quantile_0.05"]
    assert len(frame.columns) == 10


def test_covariance_and_joint_draws_agree_with_the_standard_deviations() -> None:
    estimator, (X, _) = fitted("NNGP"), toy_data()
    mean, std = estimator.predict(X, return_std=True)
    same, covariance = estimator.predict(X, return_cov=True)
    np.testing.assert_array_equal(same, mean)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std, rtol=1e-5)
    draws = estimator.sample_y(X, 1000)
    error = 6.0 * np.max(np.square(std)) / np.sqrt(1000)
    np.testing.assert_allclose(np.cov(draws), covariance, atol=2.0 * error)
    np.testing.assert_array_equal(
        estimator.sample_y(X, 2), estimator.sample_y(X, 2, random_state=0)
    )


def test_frames_keep_index_and_names() -> None:
    X, y = toy_data()
    frame = pd.DataFrame(X, columns=["length", "width"], index=[f"row{i}" for i in range(len(X))])
    estimator = clone(REGRESSORS["NNGP"]).fit(frame, pd.Series(y, name="mass"))
    assert list(estimator.feature_names_in_) == ["length", "width"]
    distribution = estimator.predict_distribution(frame[:4], levels=(0.25, 0.75))
    assert list(distribution.index) == ["row0", "row1", "row2", "row3"]
    assert list(distribution.columns) == ["mean", "std", "quantile_0.25", "quantile_0.75"]
    np.testing.assert_array_equal(distribution["mean"], estimator.predict(frame[:4]))
    with pytest.raises(ValueError, match="feature names"):
        estimator.predict(frame.rename(columns={"width": "height"}))


def test_polars_frames() -> None:
    polars = pytest.importorskip("polars")
    X, y = toy_data()
    frame = polars.DataFrame({"length": X[:, 0], "width": X[:, 1]})
    estimator = clone(REGRESSORS["NNGP"]).fit(frame, polars.Series("mass", y))
    expected = clone(REGRESSORS["NNGP"]).fit(X, y).predict(X)
    np.testing.assert_array_equal(estimator.predict(frame), expected)


# What scikit-learn makes of many fits


@pytest.fixture(scope="module")
def process() -> Iterator[ProcessPoolExecutor]:
    """Another process, which imports TensorFlow while the tests here before the one of its results run."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        pool.submit(importlib.import_module, "gpflow_dkp.sklearn")
        yield pool


with_process = pytest.mark.xdist_group("another process")


@with_process
@pytest.mark.usefixtures("process")
def test_pipelines_and_cross_validation() -> None:
    X, y = toy_data(60)
    pipeline = make_pipeline(StandardScaler(), clone(REGRESSORS["NNGP"]))
    assert cross_val_score(pipeline, X, y, cv=2).shape == (2,)


@with_process
@pytest.mark.usefixtures("process")
def test_search() -> None:
    X, y = toy_data(60)
    search = GridSearchCV(clone(REGRESSORS["NNGP"]), {"num_inducing": [2, 8]}, cv=2, refit=True)
    search.fit(X, y)
    assert search.best_params_ == {"num_inducing": 8}
    assert search.score(X, y) > 0.5


@with_process
def test_cross_validation_in_another_process(process: ProcessPoolExecutor) -> None:
    """As `n_jobs=2` does it, with one process, since the import of TensorFlow is what takes the time."""
    X, y = toy_data(60)
    arguments = clone(REGRESSORS["NNGP"]), X, y
    scores = process.submit(cross_val_score, *arguments, cv=2)
    expected = cross_val_score(*arguments, cv=2)
    np.testing.assert_allclose(scores.result(), expected, rtol=1e-6)


@pytest.mark.parametrize("num_data", [2, 3])
def test_two_rows_are_enough(num_data: int) -> None:
    X, y = toy_data(num_data)
    assert np.all(np.isfinite(clone(REGRESSORS["DWP"]).fit(X, y).predict(X)))


@every_regressor
def test_constant_targets_and_duplicated_rows(name: str) -> None:
    X = np.repeat(toy_data(3)[0], 10, 0)
    estimator = clone(REGRESSORS[name]).fit(X, np.full(30, 5.0))
    np.testing.assert_allclose(estimator.predict(X), 5.0, atol=1.0)
    assert np.all(np.isfinite(estimator.log_density(X, np.full(30, 5.0))))


@pytest.mark.parametrize("scale", [1.0, 0.0])
def test_many_features_and_constant_inputs(scale: float) -> None:
    rng = np.random.default_rng(0)
    X, y = scale * rng.normal(size=(20, 200)), rng.normal(size=20)
    assert np.all(np.isfinite(clone(REGRESSORS["DIWP"]).fit(X, y).predict(X)))


def test_another_likelihood() -> None:
    X, y = toy_data()
    likelihood = gpflow.likelihoods.StudentT(scale=0.3)
    estimator = clone(REGRESSORS["NNGP"]).set_params(likelihood=likelihood).fit(X, y)
    assert likelihood.scale.numpy() == pytest.approx(0.3)
    grid = np.linspace(-3000.0, 3000.0, 20_001)
    density = np.exp(estimator.log_density(np.repeat(X[:1], len(grid), 0), grid))
    assert trapezoid(density, grid) == pytest.approx(1.0, abs=1e-3)
    for call in (estimator.predict_quantiles, estimator.predict_distribution):
        with pytest.raises(ValueError, match=r"got likelihood StudentT, needs Gaussian"):
            call(X)
    with pytest.raises(ValueError, match=r"return_cov: got likelihood StudentT"):
        estimator.predict(X, return_cov=True)


def test_a_likelihood_of_counts() -> None:
    X, _ = toy_data()
    counts = np.random.default_rng(0).poisson(3.0, len(X))
    estimator = clone(REGRESSORS["NNGP"]).set_params(likelihood=gpflow.likelihoods.Poisson())
    estimator.fit(X, counts)
    assert np.mean(estimator.predict(X)) == pytest.approx(np.mean(counts), rel=0.5)


def test_selected_gwi_is_tempered(monkeypatch: pytest.MonkeyPatch) -> None:
    shorter = functools.partial(
        select_gwi,
        protocol=CrossValidation(num_folds=2, step_fractions=(1.0,)),
        noise_variances=(0.1,),
        inducing_factors=(1.0,),
    )
    monkeypatch.setattr(estimators, "select_gwi", shorter)
    X, y = toy_data(40)
    estimator = GWIRegressor(select=True, num_steps=10, hidden_units=(3,), random_state=0).fit(X, y)
    assert estimator.n_iter_ >= 1
    assert float(estimator.model_.temperature[0]) != 1.0
    _, std = estimator.predict(X, return_std=True)
    expected = estimator.model_.predict_y(estimator.input_scaling_.standardise(X))
    np.testing.assert_allclose(std, y.std() * np.sqrt(expected[1][:, 0]), rtol=1e-9)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"depth": "deep"}, r"depth: got 'deep', needs a number of layers or 'auto'"),
        ({"num_inducing": 0}, r"num_inducing: got 0, needs an integer of at least 1"),
        ({"kernel": "cubic"}, r"kernel: got 'cubic', choose one of"),
        ({"posterior": "bw"}, r"posterior: got 'bw'"),
        ({"num_steps": -1}, r"num_steps: got -1, needs an integer of at least 1"),
        ({"max_seconds": "long"}, r"max_seconds: got 'long', needs a number"),
        ({"batch_size": 0}, r"batch_size: got 0, needs an integer of at least 1"),
        ({"schedule": "slow"}, r"schedule: got 'slow', needs 'fast' or 'paper'"),
        ({"prediction_samples": 0}, r"prediction_samples: got 0"),
        ({"num_samples": 1.5}, r"num_samples: got 1.5"),
        ({"warm_start": "yes"}, r"warm_start: got 'yes', needs True or False"),
        ({"likelihood": "gaussian"}, r"likelihood: got str 'gaussian'"),
        ({"width": 0}, r"widths: got 0"),
    ],
)
def test_bad_parameters_are_said_in_one_line(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        fitted("DWP", **parameters)
    assert "\n" not in str(error.value)


def test_defaults_are_those_of_the_most_special_class() -> None:
    """Where two bases have a parameter, the general one's default does not win."""
    assert (DWPRegressor().num_steps, LatentVariableDGPRegressor().num_steps) == (2000, 5000)
    assert LatentVariableDGPRegressor().num_samples == 1
    assert (DWPRegressor().minibatch, LatentVariableDGPRegressor().minibatch) == (2000, 1000)


@pytest.mark.parametrize(("num_rows", "expected"), [(100, 100), (500, 150), (501, 300)])
def test_larger_tables_have_more_inducing_points(num_rows: int, expected: int) -> None:
    X, Y = np.random.default_rng(0).normal(size=(2, num_rows, 1))
    model = DWPRegressor(num_steps=1, batch_size=10, num_samples=1).fit(X, Y[:, 0]).model_
    assert model.inducing_variable.Z.shape == (expected, 1)


def test_other_errors() -> None:
    X, y = toy_data()
    with pytest.raises(ValueError, match=r"sample_weight: got .* needs None"):
        DWPRegressor().fit(X, y, sample_weight=np.ones(30))
    with pytest.raises(NotFittedError):
        DWPRegressor().predict(X)
    with pytest.raises(ValueError, match="architecture: got 'LV'"):
        LatentVariableDGPRegressor(architecture="LV").fit(X, y)
    with pytest.raises(ValueError, match="mean: got 'tree'"):
        GWIRegressor(mean="tree").fit(X, y)
    estimator = fitted("NNGP")
    with pytest.raises(ValueError, match="return_std, return_cov: got both"):
        estimator.predict(X, return_std=True, return_cov=True)
    with pytest.raises(ValueError, match="levels"):
        estimator.predict_quantiles(X, [0.0])
    with pytest.raises(ValueError, match="2 outputs, needs 1"):
        estimator.log_density(X, np.column_stack([y, y]))
