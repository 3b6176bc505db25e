"""`sample`: a conjugate layer's posterior, EM's gradient, what is held, resumed and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from chain_cases import FALSE_ALARM, check_law, relative_error
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Gaussian
from scipy import stats

from gpflow_dkp.layers import SampledGP
from gpflow_dkp.models import SGHMCDGP, LatentVariableDGP
from gpflow_dkp.training import SGHMC, TrainingFailed, fit, sample
from gpflow_dkp.training.fit import run
from gpflow_dkp.training.plan import Stretch
from gpflow_dkp.training.sample import Sampler

RNG = np.random.default_rng(0)
N, D, M = 12, 1, 4
X = np.sort(RNG.uniform(-2.0, 2.0, size=(N, D)), 0)
Y = np.sin(2.0 * X) + 0.4 * RNG.normal(size=(N, 1))
DATA = X, Y
NOISE = 0.2
FEW: dict[str, Any] = {"num_burn_in": 30, "num_samples": 5, "thinning": 4, "progress": False}


def make_model(Z: np.ndarray | None = None, **settings: Any) -> SGHMCDGP:
    """One layer of fixed hyperparameters."""
    Z = np.linspace(-1.5, 1.5, M)[:, None] if Z is None else Z
    model = SGHMCDGP([SampledGP(SquaredExponential(1.3, 0.9), Z, 1)], Gaussian(NOISE), **settings)
    gpflow.set_trainable(model, False)
    return model


def trained_model(depth: int = 1) -> SGHMCDGP:
    return SGHMCDGP.from_data(X, Y, depth=depth, num_inducing=M)


def sampler_of(model: SGHMCDGP, **changes: Any) -> Sampler:
    chain = {"step_size": 0.05, "friction": 0.1, "temperature": 1.0, "window_size": 8}
    steps = {"num_burn_in": 30, "num_samples": 4, "thinning": 4, "batch_size": None}
    given: dict[str, Any] = {"learning_rate": 0.01, "seed": 0} | chain | steps | changes
    return Sampler(model, DATA, **given)


def optimum(model: SGHMCDGP) -> tuple[np.ndarray, np.ndarray]:
    """Mean and precision of the optimal q(v) of [Titsias 2009]: I + B^T B / s^2 with the basis B."""
    (layer,) = model.layers
    K = layer.kernel(layer.inducing_variable.Z).numpy()
    tril = np.linalg.cholesky(K + layer.jitter.numpy() * np.eye(len(K)))
    basis = np.linalg.solve(tril, layer.kernel(layer.inducing_variable.Z, X)).T
    precision = np.eye(len(K)) + basis.T @ basis / NOISE
    return np.linalg.solve(precision, basis.T @ Y)[:, 0] / NOISE, precision


def chains_of(model: SGHMCDGP, num_chains: int, step_size: float, friction: float) -> Any:
    """Chains side by side in one variable [C, M, 1], and their joint log density."""
    variable = tf.Variable(np.zeros([num_chains, M, 1]))

    def log_density(seed: tf.Tensor) -> tf.Tensor:
        terms = model.log_joint_terms(DATA, [variable], seed=seed)
        return tf.add_n([tf.reduce_sum(term) for term in terms])

    return SGHMC([variable], step_size=step_size, friction=friction), log_density


def test_chains_have_the_closed_form_s_law_and_at_half_the_step_too() -> None:
    """The masses are learnt, each chain's own; the step's error is below a tenth of the statistical one."""
    model, num_chains, num_kept = make_model(), 400, 5
    mean, precision = optimum(model)
    mass = np.sqrt(np.diag(precision))  # what the masses tend to: the gradient's mean square
    stiffness = np.linalg.eigvalsh(precision / np.sqrt(np.outer(mass, mass)))
    error = 0.1 * relative_error(num_chains * num_kept)
    step_size = np.sqrt(error * 2.0 / stiffness[-1])
    for size in (step_size, 0.5 * step_size):
        friction = 2.0 * size * np.sqrt(stiffness[0])  # damps the slowest direction critically
        steps = int(np.ceil(2.0 / friction))
        sampler, log_density = chains_of(model, num_chains, size, friction)
        sampler.chain(log_density, 1, thinning=5 * steps, seed=0, adapt=True)
        sampler.chain(log_density, 1, thinning=12 * steps, seed=1)
        (draws,) = sampler.chain(log_density, num_kept, thinning=2 * steps, seed=2)
        check_law(draws.numpy()[..., 0], mean, np.linalg.inv(precision))


def test_one_chain_with_z_at_x_is_the_exact_posterior() -> None:
    """By batch means: those of many relaxation times are nearly independent."""
    model, num_batches = make_model(Z=X), 25
    steps = {"num_burn_in": 500, "num_samples": 2500, "thinning": 5}
    sample(model, DATA, step_size=0.2, friction=0.3, progress=False, learning_rate=None, **steps)
    exact = gpflow.models.GPR(DATA, model.layers[0].kernel, noise_variance=NOISE)
    mean, covariance = exact.predict_f(X, full_cov=True)
    (layer,) = model.layers
    tril = np.linalg.cholesky(layer.kernel(X) + layer.jitter * np.eye(N))
    f = (tril @ layer.samples.numpy())[..., 0]
    centred = f - mean.numpy()[:, 0]
    moments = np.hstack([centred, centred**2 - np.diag(covariance[0])])
    batches = moments.reshape(num_batches, -1, 2 * N).mean(1)
    p_values = stats.ttest_1samp(batches, 0.0).pvalue
    assert np.min(p_values) > FALSE_ALARM / p_values.size, p_values
    seen = stats.ttest_1samp(batches + 0.2 * np.sqrt(np.diag(covariance[0])).mean(), 0.0).pvalue
    assert (
        np.min(seen) < FALSE_ALARM / p_values.size
    )  # a mean wrong by a fifth of a deviation would be


def test_the_gradient_of_the_hyperparameters_is_that_of_the_bound_with_v_integrated_out() -> None:
    """EM's: the mean over the posterior of the log density's gradient is the collapsed bound's."""
    model, num_draws = make_model(), 100_000
    gpflow.set_trainable(model.likelihood, True)
    variable = model.likelihood.variance.unconstrained_variable
    mean, precision = optimum(model)
    root = np.linalg.cholesky(np.linalg.inv(precision))
    values = (mean + RNG.normal(size=(num_draws, M)) @ root.T)[..., None]
    one = tf.ones_like(variable)
    with tf.autodiff.ForwardAccumulator(variable, one) as forward:
        expected, _ = model.log_joint_terms(DATA, [tf.constant(values)])
    draws = forward.jvp(expected).numpy()
    collapsed = gpflow.models.SGPR(
        DATA, model.layers[0].kernel, model.layers[0].inducing_variable, noise_variance=NOISE
    )
    with tf.GradientTape() as tape:
        tape.watch(collapsed.likelihood.variance.unconstrained_variable)
        bound = collapsed.elbo()
    gradient = tape.gradient(bound, collapsed.likelihood.variance.unconstrained_variable).numpy()
    assert stats.ttest_1samp(draws, gradient).pvalue > FALSE_ALARM
    assert stats.ttest_1samp(draws, 0.9 * gradient).pvalue < FALSE_ALARM  # a tenth would be seen


def test_hyperparameters_step_from_a_random_one_of_the_window() -> None:
    """The gradient of a step, out of Adam's mean, is that at one of the last values of v, each as often."""
    model, num_steps, window_size = make_model(), 250, 5
    gpflow.set_trainable(model.likelihood, True)
    variable = model.likelihood.variance.unconstrained_variable
    # So fast a chain has other values at each step, and so slow an ascent the same density at all of them.
    sampler = sampler_of(
        model,
        num_burn_in=num_steps,
        window_size=window_size,
        learning_rate=1e-9,
        step_size=0.3,
        friction=0.5,
    )
    values, means = [], [0.0]
    for step in range(num_steps):
        values.append(model.layers[0].values.numpy())
        sampler.steps(step, Stretch(1, float(step), 1.0))
        means.append(float(sampler.optimizer.adam.first_moment[0]))  # type: ignore[attr-defined]
    gradients = np.diff(means) / 0.1 + means[:-1]
    with tf.autodiff.ForwardAccumulator(variable, tf.ones_like(variable)) as forward:
        expected, _ = model.log_joint_terms(DATA, [tf.constant(np.array(values))])
    at_values = -forward.jvp(expected).numpy() / N
    ages = []
    for step, gradient in enumerate(gradients):
        errors = np.abs(at_values[: step + 1] - gradient)
        assert np.min(errors) < 1e-6
        ages.append(step - int(np.argmin(errors)))
    assert max(ages) < window_size
    counts = np.zeros([window_size, window_size], int)  # by the place of the newest, and by age
    for step in range(window_size, num_steps):
        counts[step % window_size, ages[step]] += 1
    assert stats.chisquare(counts.ravel()).pvalue > FALSE_ALARM, counts


def hyperparameters(model: SGHMCDGP) -> np.ndarray:
    return np.concatenate([variable.numpy().ravel() for variable in model.trainable_variables])


def test_hyperparameters_move_in_the_burn_in_only_and_masses_too() -> None:
    def held(num_samples: int) -> tuple[np.ndarray, np.ndarray]:
        model = trained_model()
        sampler = sampler_of(model, batch_size=5, num_samples=num_samples)
        sampler.steps(0, sampler.plan.next(0, None))  # type: ignore[arg-type]
        scales = [v.numpy().ravel() for scale in sampler.sghmc.scales for v in scale.variables]
        return hyperparameters(model), np.concatenate(scales)

    start = hyperparameters(trained_model())
    short, long = held(1), held(4)
    assert not np.any(short[0] == start)
    np.testing.assert_array_equal(short[0], long[0])
    np.testing.assert_array_equal(short[1], long[1])


def test_hyperparameters_stay_where_they_are_to() -> None:
    model = trained_model()
    start = hyperparameters(model)
    sample(model, DATA, learning_rate=None, **FEW)
    np.testing.assert_array_equal(hyperparameters(model), start)
    assert np.any(model.layers[0].values != 0.0)


def test_the_same_seed_is_the_same_chain() -> None:
    def chain(seed: int) -> tuple[np.ndarray, list[float]]:
        model = trained_model()
        history = sample(model, DATA, seed=seed, batch_size=5, **FEW)
        assert history.num_steps == 50
        return model.layers[-1].samples.numpy(), history.elbo

    first, second, other = chain(1), chain(1), chain(2)
    np.testing.assert_array_equal(first[0], second[0])
    assert first[1] == second[1]
    assert not np.any(first[0] == other[0])
    assert len(np.unique(first[0][:, 0, 0])) == FEW["num_samples"]


def test_steps_are_traced_once() -> None:
    sampler = sampler_of(make_model(), num_burn_in=100, learning_rate=None)
    run(sampler, progress=False)
    assert sampler._steps.experimental_get_tracing_count() == 1


def test_what_is_kept_ends_where_the_chain_does() -> None:
    model = trained_model(depth=2)
    sample(model, DATA, **FEW)
    for layer in model.layers:
        np.testing.assert_array_equal(layer.samples[-1], layer.values)
        assert layer.samples.shape[1:] == layer.values.shape


def test_a_run_that_was_interrupted_ends_with_the_numbers_of_an_unbroken_one(
    tmp_path: Path,
) -> None:
    steps = {"num_burn_in": 60, "num_samples": 20, "thinning": 3, "progress": False}
    whole, broken = trained_model(), trained_model()
    sample(whole, DATA, batch_size=5, **steps)

    def interrupt(step: int) -> None:
        if step == 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sample(broken, DATA, batch_size=5, checkpoint_dir=tmp_path, callbacks=[interrupt], **steps)
    assert len(broken.layers[0].samples.numpy()) == 1  # what there was before
    resumed = trained_model()
    history = sample(resumed, DATA, batch_size=5, checkpoint_dir=tmp_path, **steps)
    assert history.num_steps == 120
    for layer, same in zip(whole.layers, resumed.layers, strict=True):
        np.testing.assert_array_equal(layer.samples, same.samples)
    other = trained_model()
    with pytest.raises(ValueError, match="its thinning is 3, this one's 2"):
        sample(other, DATA, batch_size=5, checkpoint_dir=tmp_path, **(steps | {"thinning": 2}))


def test_a_step_that_is_not_finite_names_the_part() -> None:
    model = make_model()
    model.layers[0].kernel.variance.unconstrained_variable.assign(np.nan)
    with pytest.raises(TrainingFailed, match="step 0: the loss or its gradient is not finite"):
        sample(model, DATA, **FEW)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_burn_in": 0}, "num_burn_in: got 0, needs an integer of at least 1"),
        ({"num_samples": 1.5}, "num_samples: got 1.5, needs an integer of at least 1"),
        ({"thinning": 0}, "thinning: got 0, needs an integer of at least 1"),
        ({"window_size": -1}, "window_size: got -1, needs an integer of at least 1"),
        ({"batch_size": 0}, "batch_size: got 0, needs an integer of at least 1"),
        ({"step_size": -1.0}, "step_size: got -1.0, needs a positive finite number"),
        ({"friction": 2.0}, "friction: got 2.0, needs a number between 0 and 1"),
        ({"temperature": 0.0}, "temperature: got 0.0, needs a positive finite number"),
        ({"learning_rate": 0.0}, "learning_rate: got .*0.0.*, needs positive rates"),
        ({"learning_rate": -0.1}, "learning_rate: got .*-0.1.*, needs positive rates"),
        ({"seed": "one"}, "seed: got 'one', needs an integer"),
        ({"data": (X, np.full([N, 1], np.nan))}, "data: Y.*finite"),
        ({"data": (X,)}, "data: got .*, needs a pair"),
        ({"model": 3}, "model: got 3, needs an SGHMCDGP or SGHMCDWP"),
    ],
)
def test_bad_arguments_get_one_line(change: dict[str, Any], message: str) -> None:
    given = {"model": make_model(), "data": DATA} | FEW | change
    with pytest.raises(ValueError, match=message) as raised:
        sample(**given)
    assert "\n" not in str(raised.value)


def test_each_kind_of_model_has_its_own_function() -> None:
    with pytest.raises(ValueError, match=r"call gpflow_dkp\.training\.sample"):
        fit(trained_model(), DATA, num_steps=1, progress=False)
    other = LatentVariableDGP.from_architecture("GP", DATA, num_inducing=M)
    with pytest.raises(
        ValueError, match=r"needs an SGHMCDGP or SGHMCDWP; .* gpflow_dkp\.training\.fit"
    ):
        sample(other, DATA, **FEW)  # type: ignore[arg-type]
