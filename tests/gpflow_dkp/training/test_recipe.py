"""Recipes: what of a model they reach, what they refuse, and that a run goes on by them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from fit_cases import toy_data, toy_model
from scipy import stats

from gpflow_dkp.models import LatentVariableDGP
from gpflow_dkp.random import MirroredSeed, mirrored
from gpflow_dkp.training import Cosine, Recipe, fit
from gpflow_dkp.training.recipe import FAST, FAST_OF_SPARSE_GP, PAPER, check_recipe, names_of
from gpflow_dkp.training.trainer import Trainer

DATA = toy_data()


def test_variables_have_the_names_of_their_parameters() -> None:
    model = toy_model("DWP", 2)
    names = names_of(model, model.trainable_variables)
    assert {"q", "V", "A", "B", "alpha", "beta", "mu", "sigma"} <= set(names)
    assert {"lengthscales", "variance", "Z", "v"} <= set(names)
    of_mu = [v for v, name in zip(model.trainable_variables, names, strict=True) if name == "mu"]
    assert len(of_mu) == 1


def test_the_fast_recipe_is_the_default_and_the_papers_is_by_name() -> None:
    settings: dict[str, Any] = {"num_steps": 20, "progress": False}
    said: list[dict[str, Any]] = [
        {},
        {"schedule": "fast"},
        {"schedule": "paper"},
        {"schedule": Recipe([(0.0, 1e-2), (0.5, 1e-3)], 0.999, annealing=0.05)},
    ]
    default, fast, paper, papers = (
        fit(toy_model(), DATA, **settings, **more).elbo for more in said
    )
    assert default == fast != paper == papers


@pytest.mark.parametrize(
    ("recipe", "num_steps", "expected"),
    [
        (FAST, 2_000, 1_000),
        (FAST, 5_000, 2_500),
        (FAST, 20_000, 2_500),
        (FAST, None, 1_000),
        (replace(FAST, max_annealing_steps=300), None, 300),
        (PAPER, 100_000, 5_000),
        (Recipe(annealing=0.0, max_annealing_steps=10), 100, 0),
        (Recipe(annealing=0.0, max_annealing_steps=10), None, 0),
    ],
)
def test_long_runs_are_annealed_over_no_more_than_the_limit(
    recipe: Recipe, num_steps: int | None, expected: int
) -> None:
    assert recipe.annealing_steps(num_steps) == expected


@pytest.mark.parametrize("length", [{"num_steps": 60}, {"num_steps": 60, "max_seconds": 1e6}])
def test_a_limit_of_the_annealing_is_that_of_as_many_steps(length: dict[str, Any]) -> None:
    settings = {"progress": False, **length}
    limited = Recipe(0.01, annealing=0.5, max_annealing_steps=7)
    free = replace(limited, max_annealing_steps=None)
    histories = [
        fit(toy_model(), DATA, schedule=limited, **settings).elbo,
        fit(toy_model(), DATA, schedule=free, kl_annealing_steps=7, **settings).elbo,
        fit(toy_model(), DATA, schedule=free, **settings).elbo,
    ]
    assert histories[0] == histories[1] != histories[2]


def test_the_fast_recipe_steps_a_sparse_gp_at_the_end_naturally() -> None:
    """As asked for by hand, and not where its posterior is not trained."""

    def model() -> LatentVariableDGP:
        return LatentVariableDGP.from_architecture("GP", DATA, num_inducing=5, inference="vi")

    by_hand = replace(FAST_OF_SPARSE_GP, natural_gradient=None)
    settings: dict[str, Any] = {"num_steps": 10, "progress": False}
    rates = FAST_OF_SPARSE_GP.natural_gradient
    default, asked, without = (
        fit(model(), DATA, **settings, **more).elbo
        for more in (
            {},
            {"schedule": by_hand, "natural_gradient": rates},
            {"schedule": by_hand},
        )
    )
    assert default == asked != without
    # One's own optimiser has all parameters.
    adam = tf.keras.optimizers.Adam(0.01)
    fit(trained := model(), DATA, optimizer=adam, **settings)
    assert len(adam.variables) >= 2 * len(trained.trainable_variables)
    fixed = model()
    gpflow.set_trainable(fixed.output_layer.q_sqrt, False)
    assert check_recipe("fast", fixed) == check_recipe("fast", toy_model()) == FAST


def test_latent_variables_inferred_by_vi_have_an_annealing_of_their_own() -> None:
    def model(architecture: str = "LV-GP", inference: Any = "vi") -> LatentVariableDGP:
        return LatentVariableDGP.from_architecture(
            architecture, DATA, num_inducing=5, inference=inference
        )

    annealed = replace(FAST_OF_SPARSE_GP, annealing=0.1)
    assert check_recipe("fast", model()) == annealed
    for other in (model("GP-GP"), model(inference="iwvi"), model(inference="iwvi-sampled")):
        assert check_recipe("fast", other) == FAST_OF_SPARSE_GP
    settings: dict[str, Any] = {"num_steps": 20, "progress": False}
    own = replace(FAST_OF_SPARSE_GP, annealing=0.5, latent_annealing=0.0)
    default, asked, without, also_without = (
        fit(model(), DATA, **settings, **more).elbo
        for more in (
            {},
            {"schedule": replace(annealed, latent_annealing=None)},
            {"schedule": own},
            {"kl_annealing_steps": 0},
        )
    )
    assert default == asked != without == also_without


def test_a_run_by_the_fast_recipe_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    class Stop(Exception):  # noqa: N818
        pass

    def stop(step: int) -> None:
        if step == 50:
            raise Stop

    settings: dict[str, Any] = {"num_steps": 70, "schedule": "fast", "progress": False}
    whole = fit(toy_model(), DATA, **settings)
    checkpoints: dict[str, Any] = {"checkpoint_dir": tmp_path, "checkpoint_seconds": 0.0}
    with pytest.raises(Stop):
        fit(toy_model(), DATA, callbacks=[lambda step: None, stop], **settings, **checkpoints)
    broken = fit(toy_model(), DATA, **settings, **checkpoints)
    assert broken.elbo == whole.elbo
    with pytest.raises(
        ValueError, match=r"is of another run: its beta_2 is 0\.99, this one's 0\.999"
    ):
        fit(
            toy_model(),
            DATA,
            num_steps=70,
            schedule=replace(FAST, beta_2=0.999),
            progress=False,
            **checkpoints,
        )


def test_scales_of_a_recipe_reach_the_model() -> None:
    models = [toy_model(), toy_model()]
    before = [variable.numpy() for variable in models[0].trainable_variables]
    for model, scales in zip(models, ({}, {"mu": 2.0}), strict=True):
        recipe = Recipe(1e-3, scales=scales, clip=None, annealing=0.0)
        fit(model, DATA, num_steps=1, schedule=recipe, progress=False)
    names = names_of(models[0], models[0].trainable_variables)
    moved = [
        [v.numpy() - b for v, b in zip(model.trainable_variables, before, strict=True)]
        for model in models
    ]
    for name, one, other in zip(names, *moved, strict=True):
        np.testing.assert_allclose(other, (2.0 if name == "mu" else 1.0) * one, rtol=1e-9)


@pytest.mark.parametrize("kind", ["DGP", "DWP"])
def test_antithetic_samples_leave_less_noise_in_a_gradient_of_the_same_mean(kind: str) -> None:
    model = toy_model(kind, 3)
    variables = model.trainable_variables

    @tf.function(autograph=False)
    def gradient(seed: tf.Tensor, in_pairs: bool) -> tf.Tensor:
        with tf.GradientTape() as tape:
            bound = model.elbo(DATA, num_samples=4, seed=mirrored(seed) if in_pairs else seed)
        return tf.concat([tf.reshape(g, [-1]) for g in tape.gradient(bound, variables)], 0)

    plain, pairs = (
        np.array([gradient(tf.constant([7, i]), in_pairs) for i in range(200)])
        for in_pairs in (False, True)
    )
    spread = [np.var(draws, 0, ddof=1) for draws in (plain, pairs)]
    assert np.sum(spread[1]) < 0.9 * np.sum(spread[0])
    error = np.sqrt((spread[0] + spread[1]) / 200)
    off = np.abs(np.mean(pairs, 0) - np.mean(plain, 0))[error > 0] / error[error > 0]
    assert np.max(off) < stats.norm.isf(1e-5 / off.size)


def test_momentum_of_a_recipe_reaches_adam() -> None:
    bounds = []
    for beta_1 in (0.9, 0.0):
        recipe = Recipe(1e-2, annealing=0.0, beta_1=beta_1)
        bounds.append(fit(toy_model(), DATA, num_steps=3, schedule=recipe, progress=False).elbo)
    assert bounds[0][:2] == pytest.approx(bounds[1][:2], rel=1e-12)  # the first step has no past
    assert bounds[0][2] != pytest.approx(bounds[1][2], rel=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: check_recipe("quick", toy_model()),
            r"schedule: got 'quick', needs 'fast' or 'paper', or a Recipe",
        ),
        (lambda: check_recipe(3, toy_model()), r"schedule: got 3"),  # type: ignore[arg-type]
        (
            lambda: Recipe(latent_annealing=1.0),
            r"latent_annealing: got 1.0, needs a part of the steps",
        ),
        (lambda: Recipe(annealing=None), r"annealing: got None, needs a part"),  # type: ignore[arg-type]
        (lambda: Recipe(-1.0), r"learning_rate: got .*-1.0.* needs positive rates"),
        (lambda: Recipe(Cosine(0.0)), r"learning_rate: got Cosine"),
        (lambda: Recipe(beta_2=1.0), r"beta_2: got 1.0, needs a number from 0 to below 1"),
        (lambda: Recipe(beta_1=-0.1), r"beta_1: got -0.1, needs a number from 0 to below 1"),
        (lambda: Recipe(antithetic=1), r"antithetic: got 1, needs True or False"),  # type: ignore[arg-type]
        (lambda: Recipe(clip=0.0), r"clip: got 0.0, needs a positive number or None"),
        (lambda: Recipe(annealing=1.0), r"annealing: got 1.0, needs a part of the steps"),
        (lambda: Recipe(max_annealing_steps=0), r"max_annealing_steps: got 0, needs an integer"),
        (lambda: Recipe(scales={"mu": -1.0}), r"scales: got -1.0 for 'mu'"),
    ],
)
def test_what_is_refused_in_one_line(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_step_s_samples_come_in_pairs_where_a_recipe_says_so() -> None:
    """Of a deep kernel process alone: an importance-weighted bound is of independent draws."""
    lv = LatentVariableDGP.from_architecture("GP", DATA, num_inducing=3)
    kinds = [
        isinstance(Trainer(model, DATA, num_steps=3, schedule=recipe).seed_of(1), MirroredSeed)
        for model in (toy_model(), lv)
        for recipe in (FAST, replace(FAST, antithetic=True))
    ]
    assert kinds == [False, True, False, False]


def test_pairs_change_a_run_and_its_checkpoint_says_so(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"num_steps": 3, "progress": False}
    plain = fit(toy_model(), DATA, **settings, checkpoint_dir=tmp_path)
    pairs = replace(FAST, antithetic=True)
    in_pairs = fit(toy_model(depth=2), DATA, **settings, schedule=pairs)
    assert np.all(np.isfinite(in_pairs.elbo))
    with pytest.raises(ValueError, match=r"is of another run: its antithetic is False"):
        fit(toy_model(), DATA, **settings, schedule=pairs, checkpoint_dir=tmp_path)
    assert len(plain.elbo) == 3
