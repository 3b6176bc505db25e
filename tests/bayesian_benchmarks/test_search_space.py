"""Ranges of settings: what they say, what they make, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bayesian_benchmarks.errors import BenchmarkError, ConfigError
from bayesian_benchmarks.models import model_source
from bayesian_benchmarks.search_space import (
    Choice,
    Interval,
    search_space,
    suggested,
    with_setting,
    words_of_file,
)
from bayesian_benchmarks.settings import Decay, DensitySettings, GWISettings, Settings

DGP, GWI, GP = (model_source(name) for name in ("dgp", "gwi-net", "gp"))


def space(*words: str, source: Any = DGP, settings: Settings | None = None) -> Any:
    return search_space(words, source, settings or Settings())


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("num_inducing=50:200", Interval(50, 200)),
        ("batch_size=log:10:1000", Interval(10, 1000, log=True)),
        ("learning_rate=log:1e-3:1e-1", Interval(1e-3, 1e-1, log=True)),
        ("learning_rate=1:2", Interval(1.0, 2.0)),
        ("schedule=fast,paper", Choice(("fast", "paper"))),
        ("ard=true,false", Choice((True, False))),
        ("num_inducing=10,20", Choice((10, 20))),
    ],
)
def test_a_range_is_read(word: str, expected: Interval | Choice) -> None:
    (found,) = space(word).values()
    assert found == expected
    if isinstance(found, Interval):
        assert isinstance(found.low, type(expected.examples[0]))


def test_a_file_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "ranges.yaml"
    path.write_text(
        "num_inducing: 50:200\nard: [true, false]\nlearning_rate: log:1e-3:1e-1\nprecision: full,mixed\n"
    )
    assert words_of_file(path) == [
        "num_inducing=50:200",
        "ard=true,false",
        "learning_rate=log:1e-3:1e-1",
        "precision=full,mixed",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Nothing is to be searched; give --search NAME=LOW:HIGH"),
        (["num_inducing"], "'num_inducing' is no range; write NAME=LOW:HIGH"),
        (["num_inducing=1:2:3"], "'1:2:3' is no range"),
        (["num_inducing=a:b"], "'a:b' is no range"),
        (["num_inducing=20:10"], "goes from 20 to 10; it must rise"),
        (["num_inducing=5:inf"], "goes from 5 to inf; it must rise"),
        (["batch_size=log:0:10"], "starts at 0; log needs it above 0"),
        (["ard=true,true"], "has a value twice"),
        (
            ["num_inducing=0:10"],
            "--search num_inducing: num_inducing: .* greater than or equal to 1",
        ),
        (["num_inducing=1.5:10"], "--search num_inducing: num_inducing: .* valid integer"),
        (["schedule=slow,paper"], "schedule: needs fast or paper, or a recipe"),
        (["num_inducing=5:9", "num_inducing=5:8"], "num_inducing stands twice"),
        (
            ["num_induced=5:9"],
            "Unknown setting to search of dgp 'num_induced'. Did you mean num_ind",
        ),
        (["schedule.clop=5:9", "schedule=fast"], "schedule.clop: no such field; did you mean clip"),
        (
            ["gwi.patience=5:9"],
            "the training of dgp does not read gwi.patience; it reads num_steps",
        ),
        (["elbo_samples=5:9"], "does not read elbo_samples, which only scores depend on; it reads"),
        (["kl_annealing_steps=5:9", "schedule=fast"], "does not read kl_annealing_steps"),
        (["schedule.clip=1:4"], "does not read schedule.clip"),
        (["learning_rate.rate.x=1:4"], "--search learning_rate.rate.x: "),
    ],
)
def test_what_cannot_be_searched_is_one_line(words: list[str], message: str) -> None:
    with pytest.raises(BenchmarkError, match=message) as raised:
        space(*words)
    assert "\n" not in str(raised.value)


def test_a_model_is_searched_among_settings_that_it_can_have() -> None:
    word = "gwi.distance=squared,kl"
    with pytest.raises(ConfigError, match=r"^gwi-net: got the distance kl, .*, or gwi-svgp\.$"):
        space(word, source=GWI)
    sparse = space(word, source=model_source("gwi-svgp"))
    assert sparse == {"gwi.distance": Choice(("squared", "kl"))}


def test_a_number_is_the_first_rate_of_the_schedule_in_use() -> None:
    paper = with_setting(Settings(), "learning_rate", 0.1)
    assert paper.learning_rate == ((0.0, 0.1), (0.5, pytest.approx(0.01)))
    fast = with_setting(Settings(schedule="fast"), "learning_rate", 0.1)
    assert fast.schedule is not None
    assert fast.schedule.learning_rate.rate == 0.1  # type: ignore[union-attr]
    assert fast.learning_rate == Settings().learning_rate
    decay = with_setting(DensitySettings(), "natural_gradient", 0.1)
    assert isinstance(decay, DensitySettings)
    assert decay.natural_gradient == Decay(rate=0.1)


def test_parts_of_settings_are_searched() -> None:
    fast = with_setting(Settings(schedule="fast"), "schedule.learning_rate.warmup", 0.2)
    assert fast.schedule is not None
    assert fast.schedule.learning_rate.warmup == 0.2  # type: ignore[union-attr]
    assert with_setting(Settings(), "gwi.patience", 3).gwi == GWISettings(patience=3)
    assert space("gwi.patience=3:5", source=GWI)["gwi.patience"] == Interval(3, 5)
    with pytest.raises(ConfigError, match=r"the training of gwi-net does not read num_inducing"):
        space("num_inducing=3:5", source=GWI)


def test_what_a_schedule_replaces_is_not_chosen_beside_it() -> None:
    pytest.importorskip("optuna")
    from optuna.trial import FixedTrial

    found = space("kl_annealing_steps=5:9", "schedule=fast,paper", "num_inducing=5:9")
    fast = suggested(found, DGP, Settings(), FixedTrial({"schedule": "fast", "num_inducing": 7}))
    assert (fast.num_inducing, fast.kl_annealing_steps) == (7, 1_000)
    choices = {"schedule": "paper", "num_inducing": 7, "kl_annealing_steps": 6}
    paper = suggested(found, DGP, Settings(), FixedTrial(choices))
    assert (paper.schedule, paper.kl_annealing_steps) == (None, 6)


def test_a_model_is_searched_with_the_settings_of_its_task() -> None:
    words = ("natural_gradient=log:1e-3:1e-1", "latent_dim=1:3")
    assert set(space(*words, source=GP, settings=DensitySettings())) == {
        "natural_gradient",
        "latent_dim",
    }
