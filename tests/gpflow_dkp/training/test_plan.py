"""How long a run is: steps, a time, or until the bound has stopped rising."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fit_cases import numbers, toy_data, toy_model

from gpflow_dkp.training import Cosine, History, Recipe, fit, plan
from gpflow_dkp.training.plan import Seconds, Steps, UntilFlat, has_stopped_rising

DATA = toy_data()


def walk(of: plan.Plan, elbo: Any = None, most: int = 10_000) -> tuple[list[plan.Stretch], History]:
    """The stretches of a run whose bound at step n is `elbo[n]`."""
    history, stretches, step = History(), [], 0
    while (stretch := of.next(step, history)) is not None:
        stretches.append(stretch)
        history.elbo += [0.0] * stretch.size if elbo is None else elbo[step : step + stretch.size]
        history.position = stretch.position + stretch.size * stretch.pace
        step += stretch.size
        assert step < most
    return stretches, history


def test_steps_are_taken_by_fifties_and_end_where_the_schedule_does() -> None:
    stretches, history = walk(Steps(120))
    assert [stretch.size for stretch in stretches] == [50, 50, 20]
    np.testing.assert_allclose([s.position for s in stretches], [0.0, 50 / 120, 100 / 120])
    assert history.position == pytest.approx(1.0)
    assert history.ended == "120 steps were taken"


class Clock:
    """A time that passes by what a step takes."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def timed(
    monkeypatch: pytest.MonkeyPatch,
    max_seconds: float,
    seconds_at: Any,
    num_steps: int | None = None,
) -> tuple[list[plan.Stretch], History, float]:
    """A run within a time whose steps take `seconds_at(step)`, and what it took."""
    clock = Clock()
    monkeypatch.setattr(plan, "time", clock)
    of, history, stretches, step = Seconds(max_seconds, num_steps), History(), [], 0
    while (stretch := of.next(step, history)) is not None:
        stretches.append(stretch)
        clock.now += sum(seconds_at(step + i) for i in range(stretch.size))
        history.position = stretch.position + stretch.size * stretch.pace
        step += stretch.size
    return stretches, history, clock.now


@pytest.mark.parametrize("slower", [1.0, 2.0, 0.5])
def test_a_time_is_kept_and_the_schedule_ends_with_it(
    monkeypatch: pytest.MonkeyPatch, slower: float
) -> None:
    """Where the compilation takes 3 s, and steps become faster or slower on the way."""

    def seconds(step: int) -> float:
        return 3.0 if step == 0 else 0.01 * (slower if step > 300 else 1.0)

    stretches, history, took = timed(monkeypatch, 10.0, seconds)
    assert took == pytest.approx(10.0, abs=0.15)
    assert history.position == pytest.approx(1.0, abs=0.02)
    assert history.ended == "10 s were over"
    positions = [stretch.position for stretch in stretches]
    assert positions == sorted(positions)


def test_of_steps_and_seconds_what_is_over_first_ends_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stretches, history, took = timed(monkeypatch, 10.0, lambda step: 0.01, num_steps=140)
    assert sum(stretch.size for stretch in stretches) == 140
    assert history.position == pytest.approx(1.0)
    assert history.ended == "140 steps were taken"
    stretches, history, took = timed(monkeypatch, 1.0, lambda step: 0.01, num_steps=10_000)
    assert took == pytest.approx(1.0, abs=0.02)
    assert history.ended == "1 s were over"


def test_a_time_shorter_than_the_compilation_takes_one_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stretches, _, _ = timed(monkeypatch, 1.0, lambda step: 3.0)
    assert [stretch.size for stretch in stretches] == [1]


def rising(num_steps: int, until: int, noise: float) -> list[float]:
    """A bound that rises by one over `until` steps, and then no more."""
    rng = np.random.default_rng(0)
    means = np.minimum(np.arange(num_steps) / until, 1.0)
    return list(means + noise * rng.normal(size=num_steps))


@pytest.mark.parametrize("noise", [1e-3, 0.1, 0.3])
def test_training_waits_until_the_bound_is_flat_and_then_lets_the_rate_fall(noise: float) -> None:
    of = UntilFlat(0.05, 200, falls=True)
    stretches, history = walk(of, rising(10_000, 1500, noise))
    flat = history.flat_from
    assert flat is not None
    assert 1500 < flat <= 3000
    assert sum(stretch.size for stretch in stretches) == 2 * flat
    assert history.position == pytest.approx(1.0)
    starts = np.cumsum([0, *(stretch.size for stretch in stretches)])[:-1]
    waiting = [s for s, start in zip(stretches, starts, strict=True) if 100 <= start < flat]
    assert {(s.position, s.pace) for s in waiting} == {(0.05, 0.0)}
    assert history.ended == (
        f"the bound had stopped rising after {flat} steps, and the rate has fallen over {flat} more"
    )
    assert stretches[0].position == 0.0  # the warm-up
    assert stretches[0].pace == pytest.approx(0.05 / 100)


def test_a_rate_that_does_not_fall_ends_as_soon_as_the_bound_is_flat() -> None:
    stretches, history = walk(UntilFlat(0.0, 0, falls=False), rising(10_000, 600, 0.05))
    assert sum(stretch.size for stretch in stretches) == history.flat_from
    assert history.ended.endswith(f"after {history.flat_from} steps")


def test_a_bound_that_rises_for_ever_is_said_to_rise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "MAX_WAITING_STEPS", 1000)
    _, history = walk(UntilFlat(0.05, 0, falls=True), list(np.arange(5000.0)))
    assert history.flat_from == 1000
    assert history.ended.startswith("the bound was still rising after 1000 steps, and the rate")


def test_the_bound_before_the_end_of_the_annealing_is_not_looked_at() -> None:
    """It falls as the KL term's weight rises, which is no sign of an end."""
    annealed = [-step / 1000 for step in range(1000)]
    values = annealed + list(-1.0 + np.minimum(np.arange(9000) / 2000, 1.0))
    _, history = walk(UntilFlat(0.05, 1000, falls=True), values)
    assert history.flat_from is not None
    assert history.flat_from > 3000


def test_noise_alone_is_flat_and_a_slow_rise_is_not() -> None:
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(200, 500))
    share = np.mean([has_stopped_rising(list(values)) for values in noise])
    assert share > 0.95  # two standard errors, one-sided: 0.977
    assert not has_stopped_rising(list(0.002 * np.arange(500) + 0.1 * noise[0]))
    assert not has_stopped_rising(list(noise[0][:499]))


def test_a_rise_without_noise_ends_where_it_is_no_longer_worth_the_steps() -> None:
    """As of a GP regression's marginal likelihood, which rises for as long as numbers differ."""
    steps = np.arange(20_000)
    _, history = walk(UntilFlat(0.0, 0, falls=False), list(-np.exp(-steps / 500)), 20_000)
    assert history.flat_from is not None
    assert 2000 < history.flat_from < 10_000


def test_a_run_of_a_time_or_until_it_is_flat_says_how_it_ended() -> None:
    history = fit(toy_model(), DATA, max_seconds=4.0, progress=False)
    assert history.ended == "4 s were over"
    assert history.num_steps >= 1
    assert fit(toy_model(), DATA, max_seconds=1e4, num_steps=3, progress=False).num_steps == 3
    history = fit(toy_model(), DATA, schedule=Recipe(Cosine(0.1), annealing=0.0), progress=False)
    assert history.ended.startswith("the bound had stopped rising after")
    assert history.num_steps == 2 * history.flat_from
    assert np.mean(history.elbo[-50:]) > np.mean(history.elbo[:500])


def test_a_run_until_it_is_flat_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    class Stop(Exception):  # noqa: N818
        pass

    def stop(step: int, at: int) -> None:
        if step == at:
            raise Stop

    recipe: dict[str, Any] = {"schedule": Recipe(Cosine(0.1), annealing=0.0), "progress": False}
    whole_model = toy_model()
    whole = fit(whole_model, DATA, **recipe)
    assert whole.flat_from is not None
    kept: dict[str, Any] = {"checkpoint_dir": tmp_path, "checkpoint_seconds": 0.0}
    for at in (250, whole.flat_from + 50):
        with pytest.raises(Stop):
            fit(toy_model(), DATA, callbacks=[partial(stop, at=at)], **recipe, **kept)
    model = toy_model()
    broken = fit(model, DATA, **recipe, **kept)
    assert numbers(model, broken) == numbers(whole_model, whole)
    assert (broken.flat_from, broken.ended) == (whole.flat_from, whole.ended)
    assert fit(toy_model(), DATA, **recipe, **kept).elbo == whole.elbo  # nothing is left to do
    with pytest.raises(ValueError, match=r"its num_steps is None, this one's 70, on which"):
        fit(toy_model(), DATA, num_steps=70, **recipe, **kept)


@pytest.mark.parametrize("max_seconds", [-1.0, "60", True, float("nan")])
def test_impossible_times_are_refused(max_seconds: object) -> None:
    with pytest.raises(
        ValueError, match=r"max_seconds: got .*, needs a number of seconds"
    ) as error:
        fit(toy_model(), DATA, max_seconds=max_seconds, progress=False)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)
