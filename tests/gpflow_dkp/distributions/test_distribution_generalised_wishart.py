"""GeneralisedWishart: densities by changes of variables, special cases, means, samples, errors."""

import copy
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from wishart_reference import (
    CASES,
    Parameters,
    bartlett_sample,
    check_mean,
    cholesky_factor,
    dense_matrix,
    gram_log_prob,
    mixed_sign_triangle,
    parameters,
    sample_size,
)

from gpflow_dkp.distributions import BartlettFactor, GeneralisedWishart, Wishart

KINDS = ["gw", "a-gw", "ab-gw", "b-gw"]


def matrices(kind: str, P: int, p: int, batch: tuple[int, ...] = ()) -> dict[str, np.ndarray]:
    """The keyword arguments of one kind; the last has B without A."""
    arguments = {}
    if kind in ("gw", "b-gw"):
        arguments["scale_tril"] = cholesky_factor(P, batch=batch)
    if kind in ("a-gw", "ab-gw"):
        arguments["A"] = dense_matrix(P, batch=batch)
    if kind in ("ab-gw", "b-gw"):
        arguments["B"] = mixed_sign_triangle(p, batch=batch)
    return arguments


def make(df: Any, q: Any, arguments: dict[str, Any], **settings: Any) -> GeneralisedWishart:
    named = dict(zip(Parameters._fields, q, strict=True))
    return GeneralisedWishart(df, **named, **arguments, **settings)


def left_and_right(arguments: dict[str, np.ndarray], p: int) -> tuple[np.ndarray, np.ndarray]:
    left = arguments["A"] if "A" in arguments else arguments["scale_tril"]
    return left, arguments.get("B", np.eye(p))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("P", "df"), CASES)
def test_log_prob_by_a_change_of_variables(P: int, df: int, kind: str) -> None:
    p = min(P, df)
    q, T, arguments = parameters(P, df), bartlett_sample(P, p), matrices(kind, P, p)
    A, B = left_and_right(arguments, p)
    G = A @ T @ B @ B.T @ T.T @ A.T
    expected = gram_log_prob(T, q, A, B)
    np.testing.assert_allclose(make(df, q, arguments).log_prob(G), expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("P", "df"), CASES)
def test_sample_and_log_prob_by_a_change_of_variables(P: int, df: int, kind: str) -> None:
    """The density of a sample, from the T that was drawn, which the same seed gives again."""
    p = min(P, df)
    q, arguments = parameters(P, df), matrices(kind, P, p)
    A, B = left_and_right(arguments, p)
    G, log_prob = make(df, q, arguments).experimental_sample_and_log_prob(seed=1)
    T = BartlettFactor(df, P, *q).sample(seed=1).numpy()
    np.testing.assert_allclose(G, A @ T @ B @ B.T @ T.T @ A.T, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(log_prob, gram_log_prob(T, q, A, B), rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("P", "df"), [(3, 5), (5, 3), (4, 1)])
def test_log_prob_of_a_sample(P: int, df: int, kind: str) -> None:
    p = min(P, df)
    distribution = make(df, parameters(P, df), matrices(kind, P, p))
    G, log_prob = distribution.experimental_sample_and_log_prob([2, 3], seed=2)
    assert G.shape == [2, 3, P, P]
    assert log_prob.shape == [2, 3]
    np.testing.assert_array_equal(G, distribution.sample([2, 3], seed=2))
    np.testing.assert_array_equal(np.linalg.matrix_rank(G, hermitian=True, tol=1e-9), p)
    np.testing.assert_allclose(distribution.log_prob(G), log_prob, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("P", "df"), [*CASES, (3, 2.5)])
def test_the_defaults_are_the_wishart(P: int, df: float) -> None:
    L = cholesky_factor(P)
    general, wishart = GeneralisedWishart(df, L), Wishart(df, L)
    G, log_prob = general.experimental_sample_and_log_prob(4, seed=3)
    np.testing.assert_allclose(G, wishart.sample(4, seed=3), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(log_prob, wishart.log_prob(G), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(general.log_prob(G), wishart.log_prob(G), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(general.mean(), wishart.mean(), rtol=1e-12)


@pytest.mark.parametrize(("P", "df"), CASES)
def test_special_cases(P: int, df: int) -> None:
    """B = I is A-GW, a triangular A is GW, and the signs of the columns of B do not matter."""
    p = min(P, df)
    q, L, A, B = parameters(P, df), cholesky_factor(P), dense_matrix(P), mixed_sign_triangle(p)
    signs = np.sign(np.random.default_rng(0).normal(size=p))
    for one, other in (
        ({"A": A, "B": np.eye(p)}, {"A": A}),
        ({"A": L}, {"scale_tril": L}),
        ({"A": A, "B": B * signs}, {"A": A, "B": B}),
        ({"scale_tril": L, "A": A}, {"A": A}),
    ):
        G, log_prob = make(df, q, one).experimental_sample_and_log_prob(3, seed=4)
        G_other, log_prob_other = make(df, q, other).experimental_sample_and_log_prob(3, seed=4)
        np.testing.assert_allclose(G, G_other, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(log_prob, log_prob_other, rtol=0, atol=1e-10)
        np.testing.assert_allclose(
            make(df, q, one).log_prob(G), make(df, q, other).log_prob(G), rtol=0, atol=1e-8
        )
        np.testing.assert_allclose(
            make(df, q, one).mean(), make(df, q, other).mean(), rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize(("P", "df"), [(3, 5), (5, 3)])
def test_diag_of_b_is_redundant(P: int, df: int) -> None:
    """T diag(d) has rate / d^2, d loc and d scale."""
    p = min(P, df)
    q, A, B = parameters(P, df), dense_matrix(P), mixed_sign_triangle(p)
    d = np.abs(np.diag(B))
    unit = B / np.diag(B)[:, None]
    scaled = Parameters(q.concentration, q.rate / d**2, q.loc * d, q.scale * d)
    first = make(df, q, {"A": A, "B": d[:, None] * unit})
    second = make(df, scaled, {"A": A, "B": unit})
    G = first.sample(5, seed=5).numpy()
    np.testing.assert_allclose(first.log_prob(G), second.log_prob(G), rtol=0, atol=1e-8)
    np.testing.assert_allclose(first.mean(), second.mean(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["gw", "ab-gw"])
@pytest.mark.parametrize(("P", "df"), [(2, 4), (4, 2)])
def test_mean(P: int, df: int, kind: str) -> None:
    distribution = make(df, parameters(P, df, seed=6), matrices(kind, P, min(P, df)))
    samples = distribution.sample(sample_size(P * P, 1e-6, bias=0.05), seed=6).numpy()
    check_mean(samples, distribution.mean().numpy(), false_alarm=1e-6)


@pytest.mark.parametrize(("P", "df"), [(3, 5), (4, 2)])
def test_importance_weights_average_to_one(P: int, df: int) -> None:
    """E_q[p(G) / q(G)] = 1 for an AB-GW near the Wishart p: a sampler and two densities agree."""
    p = min(P, df)
    rng = np.random.default_rng(7)
    L = cholesky_factor(P)
    q = Parameters(
        0.5 * (df - np.arange(p)) * 1.1,
        np.full(p, 0.45),
        0.1 * rng.normal(size=(P, p)),
        1.0 + 0.1 * rng.uniform(size=(P, p)),
    )
    A = L @ (np.eye(P) + 0.05 * rng.normal(size=(P, P)))
    B = np.tril(0.1 * rng.normal(size=(p, p)), -1) - np.eye(p)
    G, log_q = make(df, q, {"A": A, "B": B}).experimental_sample_and_log_prob(
        sample_size(1, 1e-6, bias=0.05), seed=7
    )
    weights = tf.exp(Wishart(df, L).log_prob(G) - log_q).numpy()
    assert weights.std() > 0.1
    check_mean(weights, np.array(1.0), false_alarm=1e-6)


@pytest.mark.parametrize(("P", "df"), [(3, 5), (4, 2)])
def test_gradients(P: int, df: int) -> None:
    """Of log_prob at a fixed G, of a sample at a fixed seed, and of its log_prob.

    Not with respect to the concentration: the gradient of a Gamma draw is implicit, and has its
    own test with the Bartlett factor.
    """
    p = min(P, df)
    q, arguments = parameters(P, df, seed=8), matrices("ab-gw", P, p)
    names = ["A", "B", "rate", "loc", "scale"]
    values = {**arguments, **q._asdict()}
    G = make(df, q, arguments).sample(seed=8).numpy()
    weights = np.random.default_rng(8).normal(size=(P, P))

    def total(**changed: Any) -> tf.Tensor:
        distribution = GeneralisedWishart(df, **{**values, **changed})
        sample, log_prob = distribution.experimental_sample_and_log_prob(seed=9)
        mean = distribution.mean()
        return distribution.log_prob(G) + log_prob + tf.reduce_sum(weights * (sample + mean))

    tensors = {name: tf.constant(values[name]) for name in names}
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = total(**tensors)
    gradients = tape.gradient(value, tensors)
    step = 1e-6
    rng = np.random.default_rng(10)
    for name in names:
        # A random direction checks all entries at once.
        direction = rng.normal(size=values[name].shape)
        if name == "B":
            direction = np.tril(direction)
        up, down = (total(**{name: values[name] + s * step * direction}) for s in (1.0, -1.0))
        difference = (up - down) / (2 * step)
        np.testing.assert_allclose(
            tf.reduce_sum(gradients[name] * direction), difference, rtol=1e-6, err_msg=name
        )


def test_gradients_of_log_prob_with_respect_to_the_concentration_and_g() -> None:
    P, df = 4, 2
    q, arguments = parameters(P, df), matrices("ab-gw", P, df)
    G = make(df, q, arguments).sample(seed=0)
    concentration = tf.constant(q.concentration)

    def log_prob(concentration: Any, G: Any) -> tf.Tensor:
        return make(df, q._replace(concentration=concentration), arguments).log_prob(G)

    with tf.GradientTape() as tape:
        tape.watch([concentration, G])
        value = log_prob(concentration, G)
    by_concentration, by_gram = tape.gradient(value, [concentration, G])
    step = 1e-6
    for shift in np.eye(df) * step:
        difference = log_prob(q.concentration + shift, G) - log_prob(q.concentration - shift, G)
        np.testing.assert_allclose(
            tf.reduce_sum(by_concentration * shift), difference / 2, rtol=1e-6, atol=1e-12
        )
    # Along the Gram matrices of rank df: G(t) = M(t) G M(t)^T.
    direction = 0.1 * np.random.default_rng(1).normal(size=(P, P))
    up, down = (
        log_prob(q.concentration, (np.eye(P) + t * direction) @ G @ (np.eye(P) + t * direction).T)
        for t in (step, -step)
    )
    velocity = direction @ G.numpy() + G.numpy() @ direction.T
    np.testing.assert_allclose(
        tf.reduce_sum(by_gram * velocity), (up - down) / (2 * step), rtol=1e-6
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("P", "df"), [(2, 3), (4, 2)])
def test_batches_are_their_members(P: int, df: int, kind: str) -> None:
    p = min(P, df)
    q, arguments = parameters(P, df, batch=(3,)), matrices(kind, P, p, batch=(2, 1))
    distribution = make(df, q, arguments)
    assert distribution.batch_shape == [2, 3]
    assert distribution.event_shape == [P, P]
    np.testing.assert_array_equal(distribution.batch_shape_tensor(), [2, 3])
    G, log_prob = distribution.experimental_sample_and_log_prob([4], seed=0)
    assert G.shape == [4, 2, 3, P, P]
    assert log_prob.shape == [4, 2, 3]
    assert distribution.mean().shape == [2, 3, P, P]
    recovered = distribution.log_prob(G.numpy()).numpy()
    np.testing.assert_allclose(recovered, log_prob, rtol=1e-7, atol=1e-7)
    for i, j in np.ndindex(2, 3):
        member = make(
            df, [value[j] for value in q], {name: value[i, 0] for name, value in arguments.items()}
        )
        np.testing.assert_allclose(
            recovered[:, i, j], member.log_prob(G[:, i, j]), rtol=1e-8, atol=1e-8
        )
        np.testing.assert_allclose(distribution.mean()[i, j], member.mean(), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(
            distribution[i, j].log_prob(G[:, i, j]), recovered[:, i, j], rtol=1e-8, atol=1e-8
        )


def test_members_of_a_batch_are_independent() -> None:
    """T is drawn anew for every member, also when only A has a batch."""
    distribution = GeneralisedWishart(2, A=np.stack([dense_matrix(3)] * 4))
    for G in (
        distribution.sample(seed=0),
        distribution.experimental_sample_and_log_prob(seed=0)[0],
    ):
        assert len(np.unique(G.numpy()[:, 0, 0])) == 4


def test_a_scale_tril_that_is_not_used_has_no_batch() -> None:
    distribution = GeneralisedWishart(2, cholesky_factor(3, batch=(4,)), A=dense_matrix(3))
    assert distribution.batch_shape == []
    assert distribution.sample(seed=0).shape == [3, 3]


def test_seeds_in_a_graph() -> None:
    distribution = make(2, parameters(4, 2), matrices("ab-gw", 4, 2, batch=(3,)))
    for seed in (7, tf.constant([1, 2])):
        first = distribution.sample(2, seed=seed)
        np.testing.assert_array_equal(distribution.sample(2, seed=seed), first)
        compiled = tf.function(lambda seed=seed: distribution.sample(2, seed=seed), autograph=False)
        np.testing.assert_allclose(compiled(), first, rtol=1e-12, atol=1e-12)
    assert np.any(distribution.sample(seed=0) != distribution.sample(seed=1))


def test_variables_are_read_when_they_are_used() -> None:
    """Also at a G that has been seen before, whose T the bijectors might remember."""
    P, df = 4, 2
    q, arguments = parameters(P, df), matrices("ab-gw", P, df)
    variables = {name: tf.Variable(value) for name, value in {**arguments, **q._asdict()}.items()}
    distribution = GeneralisedWishart(df, **variables)
    assert len(distribution.trainable_variables) == 6
    G = tf.constant(make(df, q, arguments).sample(seed=0).numpy())
    np.testing.assert_allclose(
        distribution.log_prob(G), make(df, q, arguments).log_prob(G), rtol=1e-13
    )
    for name, variable in variables.items():
        changed = variable.numpy() * 1.5
        variable.assign(changed)
        if name in arguments:
            arguments[name] = changed
        else:
            q = q._replace(**{name: changed})
    np.testing.assert_allclose(
        distribution.log_prob(G), make(df, q, arguments).log_prob(G), rtol=1e-10
    )
    with tf.GradientTape() as tape:
        value = distribution.log_prob(G)
    gradients = tape.gradient(value, variables)
    assert all(np.any(gradient != 0.0) for gradient in gradients.values())


def test_deferred_parameters() -> None:
    """A `TransformedVariable`, of which `gpflow.Parameter` is one."""
    P, df = 3, 2
    q, arguments = parameters(P, df), matrices("ab-gw", P, df)
    rate = tfp.util.TransformedVariable(q.rate, tfp.bijectors.Softplus())
    B = tfp.util.TransformedVariable(arguments["B"], tfp.bijectors.FillTriangular())
    distribution = make(df, q._replace(rate=rate), {**arguments, "B": B})
    G = make(df, q, arguments).sample(seed=0).numpy()
    np.testing.assert_allclose(
        distribution.log_prob(G), make(df, q, arguments).log_prob(G), rtol=1e-10
    )
    with tf.GradientTape() as tape:
        value = distribution.log_prob(G)
    gradients = tape.gradient(value, distribution.trainable_variables)
    assert len(gradients) == 2
    assert all(gradient is not None for gradient in gradients)


def test_copies() -> None:
    for distribution in (
        make(2, parameters(3, 2), matrices("ab-gw", 3, 2)),
        GeneralisedWishart(2, cholesky_factor(3)),
    ):
        G = distribution.sample(seed=0).numpy()
        expected = distribution.log_prob(G)
        np.testing.assert_array_equal(copy.deepcopy(distribution).log_prob(G), expected)
        np.testing.assert_array_equal(distribution.copy().log_prob(G), expected)
        returned = tf.function(lambda distribution=distribution: distribution, autograph=False)()
        np.testing.assert_array_equal(returned.log_prob(G), expected)


def test_it_is_a_transformed_bartlett_factor() -> None:
    q, arguments = parameters(4, 2), matrices("ab-gw", 4, 2)
    distribution = make(2, q, arguments)
    assert isinstance(distribution, tfp.distributions.TransformedDistribution)
    assert isinstance(distribution.distribution, BartlettFactor)
    assert distribution.reparameterization_type == tfp.distributions.FULLY_REPARAMETERIZED
    names = [bijector.name for bijector in distribution.bijector.bijectors]
    assert names == ["congruence", "outer_product", "right_multiply_tril"]
    assert (distribution.rank, distribution.dimension, distribution.df) == (2, 4, 2)
    np.testing.assert_array_equal(distribution.B, arguments["B"])
    np.testing.assert_array_equal(distribution.A, arguments["A"])
    np.testing.assert_array_equal(distribution.rate, q.rate)
    assert distribution.scale_tril is None


def test_float32() -> None:
    P, df = 4, 2
    q, arguments = parameters(P, df), matrices("ab-gw", P, df)
    G = make(df, q, arguments).sample(3, seed=0).numpy()
    single = make(
        df,
        [value.astype(np.float32) for value in q],
        {name: value.astype(np.float32) for name, value in arguments.items()},
    )
    sample, log_prob = single.experimental_sample_and_log_prob(seed=0)
    assert {sample.dtype, log_prob.dtype, single.mean().dtype} == {tf.float32}
    np.testing.assert_allclose(
        single.log_prob(G.astype(np.float32)), make(df, q, arguments).log_prob(G), rtol=1e-3
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "scale_tril and A are both None; pass scale_tril for GW, A for A-GW"),
        ({"A": np.ones((4, 3))}, r"A has shape \(4, 3\); it must be \[\.\.\., P, P\]"),
        ({"A": np.full((4, 4), np.nan)}, "A has the value nan"),
        ({"scale_tril": np.ones((4, 4))}, "scale_tril has non-zero values above the diagonal"),
        ({"scale_tril": -np.eye(4)}, "scale_tril has -1.0 on its diagonal"),
        ({"A": np.eye(4), "B": np.eye(3)}, r"B has shape \(3, 3\); its last 2 must be \(2, 2\)"),
        ({"A": np.eye(4), "B": np.ones((2, 2))}, "B has non-zero values above the diagonal"),
        ({"A": np.eye(4), "B": np.diag([1.0, 0.0])}, r"B has 0\.0 on its diagonal"),
        ({"A": np.eye(4), "rate": np.ones(4)}, r"rate has shape \(4,\); its last 1 must be \(2,\)"),
        ({"A": np.eye(4), "scale": -np.ones((4, 2))}, r"scale has the value -1\.0"),
        ({"A": tf.eye(4), "B": np.eye(2)}, "float32, float64"),
    ],
)
def test_parameters_are_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GeneralisedWishart(2, **arguments)


def test_values_are_checked() -> None:
    with pytest.raises(ValueError, match=r"df is 2\.5 for dimension 4"):
        GeneralisedWishart(2.5, A=np.eye(4))
    with pytest.raises(ValueError, match=r"value has shape \(3, 3\)"):
        GeneralisedWishart(2, A=np.eye(4)).log_prob(np.eye(3))
    with pytest.raises(tf.errors.InvalidArgumentError, match="symmetric"):
        GeneralisedWishart(2, A=np.eye(2), validate_args=True).log_prob(np.tri(2))
