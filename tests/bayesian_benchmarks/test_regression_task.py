"""The regression task on models whose scores are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_models import FakeModel, Record
from scipy import stats

from bayesian_benchmarks import Settings, get_dataset, run_task
from bayesian_benchmarks.errors import UnknownNameError
from bayesian_benchmarks.tasks import metrics_of
from bayesian_benchmarks.tasks.regression import evaluate
from bayesian_benchmarks.tasks.training import elbo_per_point, training_metrics

SETTINGS = Settings(num_steps=20, test_samples=6, elbo_samples=7, train_samples=3, batch_size=150)


class Gaussian:
    """Predicts N(0.5, 2) everywhere; its ELBO depends on the batch and on the seed."""

    def __init__(self, num_data: int) -> None:
        self.num_data = num_data
        self.calls: list[tuple[int, int, int]] = []

    def elbo(self, data: Any, *, num_samples: int, seed: int) -> float:
        X, Y = data
        self.calls.append((len(X), num_samples, seed))
        return float(self.num_data / len(Y) * np.sum(Y**2) - 10.0 + (seed - 40))

    def predict_mixture(self, X: np.ndarray, *, num_samples: int, seed: int) -> Any:
        shape = (num_samples, len(X), 1)
        return np.full(shape, 0.5), np.full(shape, 2.0)


def test_scores_are_those_of_the_original_units() -> None:
    dataset = get_dataset("diabetes", 1)
    scores = evaluate(Gaussian(398), dataset, settings=SETTINGS)
    scale, mean = dataset.scaling.Y_std[0], dataset.scaling.Y_mean[0]
    Y = dataset.scaling.restore_Y(dataset.Y_test)[:, 0]
    predicted = stats.norm(mean + 0.5 * scale, np.sqrt(2.0) * scale)
    assert scores["test_log_likelihood"] == pytest.approx(predicted.logpdf(Y).mean())
    assert scores["test_rmse"] == pytest.approx(np.sqrt(np.mean((Y - predicted.mean()) ** 2)))
    normalised = stats.norm(0.5, np.sqrt(2.0)).logpdf(dataset.Y_test).mean()
    assert scores["nlpd"] == pytest.approx(-normalised)
    assert scores["test_log_likelihood_mc_error"] == pytest.approx(0.0)
    for percent in (50, 90, 95):
        low, high = predicted.interval(percent / 100)
        assert scores[f"coverage_{percent}"] == pytest.approx(np.mean((low <= Y) & (high >= Y)))
    transforms, _ = np.histogram(predicted.cdf(Y), np.linspace(0.0, 1.0, 11))
    assert [scores[f"pit_count_{i}"] for i in range(10)] == transforms.tolist()
    z = (Y - predicted.mean()) / predicted.std()
    crps = predicted.std() * (
        z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi)
    )
    assert scores["crps"] == pytest.approx(crps.mean())


def test_elbo_of_batches_is_the_elbo_of_all_points() -> None:
    dataset = get_dataset("diabetes")
    model = Gaussian(398)
    data = dataset.X_train, dataset.Y_train
    value = elbo_per_point(model, data, settings=SETTINGS, seed=40)
    seeds = (3 * 0 + 3 * 3 + 1 * 6) / 7
    assert value == pytest.approx((np.sum(dataset.Y_train**2) - 10.0 + seeds) / 398)
    sizes = [150, 150, 98]
    assert model.calls[:2] == [(150, 3, 40), (150, 3, 43)]  # to see whether there are draws
    assert model.calls[2:] == [
        (rows, samples, seed) for samples, seed in ((3, 40), (3, 43), (1, 46)) for rows in sizes
    ]


def test_run_task_gives_every_metric() -> None:
    scores = run_task("diabetes", "fake", settings=SETTINGS)
    # Of models that choose, and of those without a bound.
    absent = {"test_log_likelihood_best_candidate", "objective_per_point"}
    assert set(metrics_of("regression")) - set(scores) == absent
    assert set(scores) <= set(metrics_of("regression"))
    assert all(type(value) is float for value in scores.values())


def test_an_epoch_is_as_many_steps_as_batches_cover_the_training_points() -> None:
    scores = run_task("diabetes", "fake", settings=SETTINGS)  # 398 points, 150 a step
    assert scores["seconds_per_step"] == 1 / 20
    assert scores["epoch_seconds"] == pytest.approx(3 / 20)


def test_seconds_an_epoch_are_not_known_where_those_a_step_are_not() -> None:
    record = Record(seconds=2.0, seconds_per_step=float("nan"))
    assert training_metrics(record, 398, 150) == {"seconds": 2.0, "num_recoveries": 0.0}


def test_training_that_is_taken_up_ends_with_the_same_numbers(tmp_path: Path) -> None:
    whole = run_task("diabetes", "fake", settings=SETTINGS)
    half = Settings(**(SETTINGS.model_dump() | {"num_steps": 10}))
    training = {"checkpoint_dir": tmp_path}
    assert run_task("diabetes", "fake", settings=half, **training) != whole
    assert run_task("diabetes", "fake", settings=SETTINGS, **training) == whole


def test_steps_are_reported() -> None:
    steps: list[int] = []
    run_task("diabetes", "fake", settings=SETTINGS, report_step=steps.append)
    assert steps == list(range(1, 21))


def test_a_metric_that_is_nan_is_an_error() -> None:
    with pytest.raises(FloatingPointError, match=r"elbo_per_point, test_log_.* NaN or infinite"):
        run_task("diabetes", "fake-nan", settings=SETTINGS)


def test_unknown_model_names_the_known() -> None:
    with pytest.raises(UnknownNameError, match=r"Unknown model 'dwp-ab'. Did you mean dwp-.*dgp"):
        run_task("diabetes", "dwp-ab", settings=SETTINGS)


def test_fake_model_is_deterministic() -> None:
    assert FakeModel(3, 1).elbo(None, num_samples=1, seed=0) == -3 * (1 + 1 / 3)
