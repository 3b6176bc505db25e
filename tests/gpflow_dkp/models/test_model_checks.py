"""The checks of kernels, likelihoods and data that all models share."""

from __future__ import annotations

import re
from collections.abc import Callable

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from gpflow.likelihoods import (
    Bernoulli,
    Beta,
    Exponential,
    Gamma,
    Gaussian,
    GaussianMC,
    HeteroskedasticTFPConditional,
    Likelihood,
    MultiClass,
    Ordinal,
    Poisson,
    ScalarLikelihood,
    Softmax,
    StudentT,
    SwitchedLikelihood,
)

from gpflow_dkp.models import checks
from gpflow_dkp.models.checks import (
    Support,
    check_arrays,
    check_likelihood,
    check_num_latent_gps,
    check_shapes,
    check_target_columns,
    check_targets,
    num_latent_gps_for,
    num_target_columns,
    target_support,
)

N = 12
X = np.random.default_rng(0).normal(size=(N, 3))
Y = np.random.default_rng(1).normal(size=(N, 1))


def check_refused(function: Callable[[], object], message: str) -> None:
    """One line, that begins with what the message says."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}") as raised:
        function()
    assert "\n" not in str(raised.value)


class Custom(ScalarLikelihood):
    """A user's own likelihood, of which nothing is known."""

    def _scalar_log_prob(self, X, F, Y):  # type: ignore[no-untyped-def]
        return -tf.abs(Y - F)

    def _conditional_mean(self, X, F):  # type: ignore[no-untyped-def]
        return F

    def _conditional_variance(self, X, F):  # type: ignore[no-untyped-def]
        return tf.ones_like(F)


def switched(*parts: Likelihood) -> SwitchedLikelihood:
    return SwitchedLikelihood(parts or (Gaussian(), Poisson()))


# Likelihoods and their number of outputs


@pytest.mark.parametrize(
    ("likelihood", "message"),
    [
        ("gaussian", "likelihood: got str 'gaussian', needs a GPflow likelihood object, such as"),
        (None, "likelihood: got NoneType None, needs a GPflow likelihood object"),
        (Gaussian, "likelihood: got the class Gaussian, needs a GPflow likelihood object"),
        (0.1, "likelihood: got float 0.1, needs a GPflow likelihood object"),
        (MultiClass(1), "likelihood: got 1 class, needs at least 2 to tell apart"),
        (Softmax(1), "likelihood: got 1 class, needs at least 2 to tell apart"),
        (Softmax(0), "likelihood: got 0 class, needs at least 2 to tell apart"),
        (Softmax(2.5), "likelihood: got 2.5 class, needs at least 2 to tell apart"),
        (SwitchedLikelihood([]), "likelihood: got SwitchedLikelihood of none, needs at least 1"),
        (switched(Gaussian(), "poisson"), "likelihood: got str 'poisson', needs a GPflow"),
    ],
)
def test_what_is_no_likelihood(likelihood: object, message: str) -> None:
    check_refused(lambda: check_likelihood(likelihood), message)  # type: ignore[arg-type]
    check_refused(lambda: check_num_latent_gps(likelihood, None), message)  # type: ignore[arg-type]


ANY_NUMBER = [
    Gaussian,
    GaussianMC,
    StudentT,
    Bernoulli,
    Poisson,
    Exponential,
    Gamma,
    Beta,
    lambda: Ordinal(np.array([-1.0, 1.0])),
    Custom,
]


@pytest.mark.parametrize("make", ANY_NUMBER)
def test_likelihoods_of_one_column_an_output(make: Callable[[], Likelihood]) -> None:
    likelihood = make()
    assert check_num_latent_gps(likelihood, None) == 1
    for number in (1, 3):
        assert check_num_latent_gps(likelihood, number) == number
        assert num_target_columns(likelihood, number) == number
        assert num_latent_gps_for(likelihood, np.ones([N, number])) == number


NEEDED = {
    "MultiClass": (lambda: MultiClass(3), 3, "3, one a class", 1),
    "Softmax": (lambda: Softmax(4), 4, "4, one a class", 1),
    "HeteroskedasticTFPConditional": (HeteroskedasticTFPConditional, 2, "2", 1),
    "SwitchedLikelihood": (
        lambda: switched(HeteroskedasticTFPConditional(), HeteroskedasticTFPConditional()),
        2,
        "2",
        2,
    ),
}


@pytest.mark.parametrize("name", NEEDED)
def test_likelihoods_of_their_own_number_of_outputs(name: str) -> None:
    make, needed, text, columns = NEEDED[name]
    likelihood = make()
    assert check_num_latent_gps(likelihood, None) == needed
    assert check_num_latent_gps(likelihood, needed) == needed
    assert num_target_columns(likelihood, needed) == columns
    assert num_latent_gps_for(likelihood, np.ones([N, columns])) == needed
    for number in (1, 5):
        message = f"num_latent_gps: got {number}, {name} needs {text}"
        check_refused(lambda number=number: check_num_latent_gps(likelihood, number), message)
    noun = "column" if columns == 1 else "columns"
    check_refused(
        lambda: num_latent_gps_for(likelihood, np.ones([N, columns + 1])),
        f"data: got Y ({N}, {columns + 1}), needs {columns} {noun} for {likelihood.name}",
    )


def test_the_index_of_a_switched_likelihood_is_no_output() -> None:
    for outputs in (1, 2):
        assert num_target_columns(switched(), outputs) == outputs + 1
        assert num_latent_gps_for(switched(), np.ones([N, outputs + 1])) == outputs
    nested = switched(switched(), switched())
    assert num_target_columns(nested, 1) == 3
    assert num_latent_gps_for(nested, np.ones([N, 3])) == 1
    assert check_num_latent_gps(switched(), None) == 1
    check_refused(
        lambda: check_target_columns(switched(), 1, Y),
        f"data: got Y ({N}, 1), needs 2 columns for switched_likelihood, the last of them the index",
    )
    check_refused(lambda: num_latent_gps_for(switched(), Y), f"data: got Y ({N}, 1), needs 2")
    check_refused(
        lambda: check_num_latent_gps(switched(Softmax(2), Softmax(3)), None),
        "likelihood: got SwitchedLikelihood of parts with [2, 3] latent functions, needs one number",
    )


def test_the_number_agrees_with_what_gpflow_computes() -> None:
    """A density of the targets that have these columns, one a row."""
    cases = [Gaussian(), Poisson(), MultiClass(3), HeteroskedasticTFPConditional(), switched()]
    for likelihood in cases:
        number = check_num_latent_gps(likelihood, None)
        targets = np.ones([N, num_target_columns(likelihood, number)])
        F = np.zeros([N, number])
        density = likelihood.predict_log_density(X, F, F + 1.0, targets)
        assert density.shape == (N,)
        assert np.all(np.isfinite(density))


@pytest.mark.parametrize("number", [0, -1, 1.5, True, "two"])
def test_bad_number_of_outputs(number: object) -> None:
    message = f"num_latent_gps: got {number!r}, needs an integer of at least 1"
    check_refused(lambda: check_num_latent_gps(Gaussian(), number), message)  # type: ignore[arg-type]


def test_columns_of_tensors_whose_shape_is_not_known_are_not_checked() -> None:
    gaussian = Gaussian()

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float64)], autograph=False)
    def traced(Y: tf.Tensor) -> tf.Tensor:
        check_target_columns(gaussian, 1, Y)
        return Y

    traced(np.ones([2, 2]))


# Targets

SUPPORTS = {
    "Gaussian": (Gaussian, [-1e30, 0.0, 3.5], [], ""),
    "StudentT": (StudentT, [-1e30, 0.0, 3.5], [], ""),
    "Custom": (Custom, [-1e30, 0.0, 3.5], [], ""),
    "HeteroskedasticTFPConditional": (HeteroskedasticTFPConditional, [-1e30, 0.0, 3.5], [], ""),
    "Poisson": (Poisson, [0, 1, 7, 1e15], [-1, 0.5, -0.5], "integers of at least 0"),
    "Exponential": (Exponential, [0, 1e-300, 2.5], [-1, -1e-300], "numbers of at least 0"),
    "Gamma": (Gamma, [1e-300, 2.5], [0, -1], "positive numbers"),
    "Beta": (
        Beta,
        [1e-300, 0.5, 1.0 - 1e-16],
        [0, 1, -0.1, 1.1],
        "numbers strictly between 0 and 1",
    ),
    "Ordinal": (
        lambda: Ordinal(np.array([-1.0, 1.0])),
        [0, 1, 2],
        [-1, 3, 0.5],
        "integers from 0 to 2",
    ),
    "Softmax": (lambda: Softmax(3), [0, 1, 2], [-1, 3, 0.5], "integers from 0 to 2"),
    "MultiClass": (lambda: MultiClass(3), [0, 1, 2], [-1, 3, 0.5], "integers from 0 to 2"),
    "Bernoulli": (Bernoulli, [0, 1], [2, -1, 0.5], "0 and 1, or -1 and 1"),
}


@pytest.mark.parametrize("name", SUPPORTS)
@pytest.mark.parametrize("as_tensor", [False, True])
def test_targets_that_a_likelihood_cannot_have_given(name: str, as_tensor: bool) -> None:
    make, good, bad, needs = SUPPORTS[name]
    likelihood = make()
    targets = np.resize(np.array(good, float), [N, 1])
    convert = tf.constant if as_tensor else np.asarray
    check_targets(likelihood, convert(targets))
    for value in bad:
        targets[5] = value
        beside = " beside 0" if name == "Bernoulli" and value == -1 else ""
        message = rf"data: got a (value|label|count) {value:g}{beside}, {name} needs {needs}; see Y\[5, 0\]$"
        with pytest.raises(ValueError, match=message):
            check_targets(likelihood, convert(targets))


@pytest.mark.parametrize("name", SUPPORTS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_targets_that_are_not_finite(name: str, bad: float) -> None:
    make, good, _, _ = SUPPORTS[name]
    targets = np.resize(np.array(good, float), [N, 1])
    targets[7] = bad
    message = f"data: Y[7, 0] is {bad}, needs finite numbers; remove or impute such rows"
    check_refused(lambda: check_targets(make(), targets), message)
    check_refused(lambda: check_targets(make(), targets.astype(np.float32)), message)


def test_targets_whose_squares_overflow() -> None:
    """And with them every log density of a Gaussian."""
    targets = np.where(np.arange(N)[:, None] == 3, -1.4e154, 1.3e154)
    check_refused(
        lambda: check_targets(Gaussian(), targets),
        "data: Y[3, 0] is -1.4e+154, needs numbers whose squares are finite in float64, at most 1.3e+154",
    )
    targets[3] = 1e150
    check_targets(Gaussian(), targets)
    density = Gaussian().predict_log_density(X, 0.0 * Y, 1.0 + 0.0 * Y, targets)
    assert np.all(np.isfinite(density))
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        check_refused(
            lambda: check_targets(Gaussian(), np.where(np.arange(N)[:, None] == 2, 1e30, 1.0)),
            "data: Y[2, 0] is 1e+30, needs numbers whose squares are finite in float32, at most 1.8e+19",
        )


def test_targets_that_single_precision_rounds_to_a_bound() -> None:
    for likelihood, value in ((Gamma(), 1e-60), (Beta(), 1.0 - 1e-12)):
        targets = np.full([N, 1], value)
        check_targets(likelihood, targets)
        with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
            check_refused(
                lambda one=likelihood, Y=targets: check_targets(one, Y), "data: got a value"
            )


def test_the_first_bad_target_of_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "BLOCK_ROWS", 4)
    targets = np.ones([N, 2])
    targets[9, 1], targets[11, 0] = -3.0, -4.0
    check_refused(
        lambda: check_targets(Poisson(), targets),
        "data: got a count -3, Poisson needs integers of at least 0; see Y[9, 1]",
    )
    targets[10, 0] = np.nan
    check_refused(lambda: check_targets(Poisson(), targets), "data: Y[10, 0] is nan, needs finite")


def test_a_value_close_to_a_bound_is_printed_in_full() -> None:
    targets = np.full([N, 1], 1.0 - 1e-12)
    check_refused(
        lambda: check_targets(Softmax(3), targets), "data: got a label 0.999999999999, Softmax"
    )


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.float32, bool])
def test_labels_of_any_type(dtype: type) -> None:
    labels = np.resize(np.array([0, 1], dtype), [N, 1])
    for likelihood in (Softmax(2), MultiClass(2), Bernoulli(), Poisson()):
        check_targets(likelihood, labels)
    if dtype is not bool:
        labels[4] = 2
        check_refused(lambda: check_targets(Softmax(2), labels), "data: got a label 2, Softmax")


def test_bernoulli_labels_are_of_one_kind() -> None:
    check_targets(Bernoulli(), np.where(Y > 0, 1.0, -1.0))
    check_targets(Bernoulli(), np.where(Y > 0, 1.0, 0.0))
    mixed = np.resize([0.0, 1.0, -1.0], [N, 1])
    check_refused(
        lambda: check_targets(Bernoulli(), mixed),
        "data: got a label -1 beside 0, Bernoulli needs 0 and 1, or -1 and 1; see Y[2, 0]",
    )


def test_targets_of_a_switched_likelihood() -> None:
    index = np.resize([0.0, 0.0, 1.0], [N, 1])
    targets = np.hstack([np.where(index == 1.0, 2.0, -0.5), index])
    check_targets(switched(), targets)
    bad = targets.copy()
    bad[8, 0] = -1.0
    check_refused(
        lambda: check_targets(switched(), bad),
        "data: got a count -1, Poisson needs integers of at least 0; see Y[8, 0]",
    )
    for value in (2.0, -1.0, 0.5):
        bad = targets.copy()
        bad[7, 1] = value
        check_refused(
            lambda bad=bad: check_targets(switched(), bad),
            f"data: got a likelihood's index {value:g}, SwitchedLikelihood needs integers from 0 to 1; "
            "see Y[7, 1]",
        )
    nested = switched(switched(), switched(Bernoulli()))
    targets = np.array([[-0.3, 0, 0], [3, 1, 0], [1, 0, 1], [2, 0, 1]])
    check_targets(nested, targets[:3])
    check_refused(
        lambda: check_targets(nested, targets), "data: got a label 2, Bernoulli needs 0 and 1"
    )


def test_a_users_likelihood_says_which_targets_it_takes() -> None:
    class Angles(Custom):
        """Targets of a circle."""

    @target_support.register(Angles)
    def _(likelihood: Angles) -> Support:
        return Support("radians from -pi to pi", -np.pi, np.pi, noun="direction")

    check_targets(Angles(), np.full([N, 1], 3.0))
    check_refused(
        lambda: check_targets(Angles(), np.full([N, 1], 4.0)),
        "data: got a direction 4, Angles needs radians from -pi to pi; see Y[0, 0]",
    )


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (np.zeros(N), f"data: got Y ({N},), needs Y [N, P] with P at least 1"),
        (np.zeros([N, 0]), f"data: got Y ({N}, 0), needs Y [N, P] with P at least 1"),
        (np.array([["a"], ["b"]]), "data: Y is of type <U1, needs numbers"),
        (np.array([["a"], [1.0]], object), "data: Y is of type object, needs numbers"),
        ([[1.0], [1.0, 2.0]], "data: Y is list [[1.0], [1.0, 2.0]], needs rows of equal length"),
    ],
)
def test_targets_that_are_no_table_of_numbers(targets: object, message: str) -> None:
    for likelihood in (Gaussian(), Softmax(3), switched()):
        check_refused(lambda one=likelihood: check_targets(one, targets), message)  # type: ignore[misc,arg-type]


def test_tensors_of_a_graph_pass() -> None:
    softmax = Softmax(3)

    @tf.function(autograph=False)
    def traced(Y: tf.Tensor) -> tf.Tensor:
        check_targets(softmax, Y)
        return Y

    traced(np.full([2, 1], -1.0))


# Data


@pytest.mark.parametrize(
    "convert",
    [
        lambda array: array,
        lambda array: array.tolist(),
        lambda array: pd.DataFrame(array),
        lambda array: tf.constant(array),
        lambda array: tf.Variable(array),
        lambda array: array.astype(np.float32).astype(np.float16).astype(np.longdouble),
        lambda array: np.asfortranarray(array)[:, :],
        lambda array: np.ma.masked_array(array, mask=False),
    ],
)
def test_tables_of_any_kind(convert: Callable[[np.ndarray], object]) -> None:
    for result, given in zip(check_arrays(convert(X), convert(Y)), (X, Y), strict=True):  # type: ignore[arg-type]
        assert result.dtype == gpflow.default_float()
        np.testing.assert_allclose(result, given, atol=1e-2)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.int64])
def test_tables_of_integers_and_truth_values(dtype: type) -> None:
    table = (X > 0).astype(dtype)
    result, _ = check_arrays(table, Y)
    assert result.dtype == gpflow.default_float()
    np.testing.assert_array_equal(result, X > 0)
    assert check_arrays(table, Y, convert=False)[0].dtype == dtype


MASKED = np.ma.masked_array(Y, mask=np.arange(N)[:, None] == 3)
WITH_TEXT = X.astype(object)
WITH_TEXT[2, 0] = "many"
WITH_NAN = np.where(np.arange(N)[:, None] == 4, np.nan, Y)

BAD_DATA = {
    "text": (np.full([N, 2], "a"), Y, "data: X is of type <U1, needs numbers"),
    "objects": (WITH_TEXT, Y, "data: X is of type object, needs numbers"),
    "a frame with text": (
        pd.DataFrame({"a": X[:, 0], "b": ["x"] * N}),
        Y,
        "data: X is of type object, needs numbers",
    ),
    "a frame with dates": (
        X,
        pd.DataFrame({"a": pd.date_range("2020", periods=N)}),
        "data: Y is of type datetime64[",
    ),
    "missing values of pandas": (
        X,
        pd.DataFrame({"a": pd.array([1, None] * (N // 2), dtype="Int64")}),
        "data: Y",  # NaN or of objects, by the version
    ),
    "complex": (X, Y + 0j, "data: Y is of type complex128, needs numbers"),
    "nothing": (None, Y, "data: X is of type object, needs numbers"),
    "a dictionary": ({"a": X}, Y, "data: X is of type object, needs numbers"),
    "masked": (X, MASKED, "data: Y has masked values, needs numbers; remove or impute such rows"),
    "ragged": ([[1.0], [1.0, 2.0]], Y, "data: X is list [[1.0], [1.0, 2.0]], needs rows of equal"),
    "Y of one axis": (
        X,
        Y[:, 0],
        f"data: got X ({N}, 3) and Y ({N},), needs X [N, D] and Y [N, P]; a single column is np.resh",
    ),
    "a series": (X, pd.Series(Y[:, 0]), f"data: got X ({N}, 3) and Y ({N},), needs X [N, D]"),
    "X of one axis": (
        X[:, 0],
        Y,
        f"data: got X ({N},) and Y ({N}, 1), needs X [N, D] and Y [N, P]",
    ),
    "a number": (1.0, Y, f"data: got X () and Y ({N}, 1), needs X [N, D] and Y [N, P]"),
    "three axes": (X[None], Y, f"data: got X (1, {N}, 3) and Y ({N}, 1), needs X [N, D]"),
    "rows that differ": (X, Y[:5], f"data: got X ({N}, 3) and Y (5, 1), needs X [N, D]"),
    "no rows": (X[:0], Y[:0], "data: got 0 rows, needs at least 2"),
    "one row": (X[:1], Y[:1], "data: got 1 rows, needs at least 2"),
    "an empty list": ([], [], "data: got X (0,) and Y (0,), needs X [N, D] and Y [N, P]"),
    "no columns of X": (X[:, :0], Y, f"data: got X ({N}, 0) and Y ({N}, 1), needs at least one"),
    "no columns of Y": (X, Y[:, :0], f"data: got X ({N}, 3) and Y ({N}, 0), needs at least one"),
    "NaN": (X, WITH_NAN, "data: Y[4, 0] is nan, needs finite numbers; remove or impute such rows"),
    "infinity": (
        np.where(np.isnan(WITH_NAN), -np.inf, X),
        Y,
        "data: X[4, 0] is -inf, needs finite",
    ),
}


@pytest.mark.parametrize("name", BAD_DATA)
@pytest.mark.parametrize("convert", [True, False])
def test_bad_data(name: str, convert: bool) -> None:
    X, Y, message = BAD_DATA[name]
    check_refused(lambda: check_arrays(X, Y, convert=convert), message)


@pytest.mark.parametrize("name", [n for n in BAD_DATA if "axis" in n or "differ" in n])
def test_bad_shapes(name: str) -> None:
    X, Y, message = BAD_DATA[name]
    check_refused(lambda: check_shapes(X, Y), message)


def test_shapes_of_lists() -> None:
    check_shapes(X.tolist(), Y.tolist())
    check_refused(lambda: check_shapes(X.tolist(), [1.0] * N), f"data: got X ({N}, 3) and Y ({N},)")
    check_refused(lambda: check_shapes([[1.0], [1.0, 2.0]], Y), "data: X is list")


def test_one_row_where_that_is_enough() -> None:
    check_arrays(X[:1], Y[:1], min_rows=1)


def test_numbers_that_the_default_float_cannot_hold() -> None:
    """Which would be infinite without a word."""
    large = np.where(np.arange(N)[:, None] == 6, 1e200, X)
    check_arrays(large, Y)
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        check_refused(
            lambda: check_arrays(large, Y),
            "data: X[6, 0] is 1e+200, needs finite numbers in float32, at most 3.4e+38",
        )


def test_tensors_without_values() -> None:
    @tf.function(autograph=False)
    def traced(X: tf.Tensor) -> tf.Tensor:
        with pytest.raises(ValueError, match=r"^data: X has no values inside a tf\.function"):
            check_arrays(X, Y)
        return X

    traced(X)


def test_a_table_on_the_disk_stays_there(tmp_path) -> None:  # type: ignore[no-untyped-def]
    table = np.memmap(tmp_path / "table", np.float32, "w+", shape=(N, 3))
    table[:] = X
    result, _ = check_arrays(table, Y, convert=False)
    assert np.shares_memory(result, table)
