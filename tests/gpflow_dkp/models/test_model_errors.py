"""What the models refuse, and that one clear line says so."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels as k
from model_cases import MODELS, make_model, regression_data

from gpflow_dkp.gram import KernelNotComputableFromGram
from gpflow_dkp.models import DGP, DIWP, DWP
from gpflow_dkp.models.checks import check_targets
from gpflow_dkp.training import fit

X, Y = regression_data()
models = pytest.mark.parametrize("model", [DWP, DGP])
all_models = pytest.mark.parametrize("model", list(MODELS.values()))


def build(model: type, kernels: list[k.Kernel] | None = None, **settings):  # type: ignore[no-untyped-def]
    if model in (DWP, DGP):
        settings.setdefault("widths", [2])
    Z = settings.pop("Z", X[:4])
    kernels = [k.Matern32(), k.Matern32()] if kernels is None else kernels
    likelihood = settings.pop("likelihood", gpflow.likelihoods.Gaussian())
    return model(kernels, likelihood, Z, **settings)


def check_refused(function, pattern: str, error: type[Exception] = ValueError) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=pattern) as raised:
        function()
    assert "\n" not in str(raised.value)


@all_models
def test_every_model_makes_the_checks(model: type) -> None:
    """One check of each kind; the rest of this file goes into them with one model."""
    check_refused(lambda: build(model, num_samples=0), "num_samples: got 0, needs an integer")
    check_refused(
        lambda: build(model, likelihood="gauss"), "likelihood: got str 'gauss', needs a GPflow"
    )
    check_refused(lambda: build(model, jitter=-1e-6), "jitter: got -1e-06, needs a finite number")
    check_refused(lambda: build(model, precision="half"), "precision: got 'half', choose one of")
    check_refused(lambda: build(model, Z=np.zeros(4)), r"inducing_variable: got shape \(4,\)")
    check_refused(lambda: build(model, [k.Matern32(), k.Cosine()]), "kernel Cosine .*cannot act")
    with pytest.raises(TypeError, match="num_lattent_gps"):
        build(model, num_lattent_gps=1)
    built, wrong = build(model), np.zeros((3, 5))
    check_refused(lambda: built.elbo((X, Y[:5])), r"data: got X .* needs X \[N, D\]")
    check_refused(lambda: built.predict_f(wrong, num_samples=2), r"\(3, 5\), needs 2 columns")
    check_refused(lambda: built.sample_prior(wrong), r"\(3, 5\), needs 2 columns")
    check_refused(lambda: model.from_data(X[:1], Y[:1]), "data: got 1 rows, needs at least 2")


@pytest.mark.parametrize("delta", [0.0, -1.0, float("inf"), float("nan"), "five"])
def test_bad_delta(delta: object) -> None:
    check_refused(lambda: build(DIWP, delta=delta), "delta: got .*, needs a positive finite number")


@models
@pytest.mark.parametrize("widths", [[], [2, 3], [2, 3, 4]])
def test_number_of_widths(model: type, widths: list[int]) -> None:
    check_refused(
        lambda: build(model, widths=widths),
        f"got 2 kernels and {len(widths)} widths, needs one kernel more than widths",
    )


@pytest.mark.parametrize("width", [0, -1, 2.5, "two", None])
def test_bad_width(width: object) -> None:
    check_refused(lambda: build(DWP, widths=[width]), "width.*: got .*, needs an integer")


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (lambda: k.SquaredExponential(lengthscales=[1.0, 2.0]), "SquaredExponential"),
        (lambda: k.Matern32() + k.Periodic(k.SquaredExponential()), "Periodic"),
        (lambda: k.Linear(active_dims=[0]), "Linear"),
        (lambda: k.Cosine(), "Cosine"),
    ],
)
def test_hidden_kernel_that_no_gram_matrix_gives(kernel, name: str) -> None:  # type: ignore[no-untyped-def]
    check_refused(
        lambda: build(DWP, [k.Matern32(), kernel()]),
        f"kernel {name} .*cannot act on a Gram matrix",
        KernelNotComputableFromGram,
    )
    assert len(build(DWP, [kernel(), k.Matern32()]).kernels) == 2


@pytest.mark.parametrize("posterior", ["wishart", "AB-GW", "", None])
def test_unknown_posterior(posterior: object) -> None:
    check_refused(
        lambda: build(DWP, posterior=posterior), "posterior: got .* one of gw, a-gw, ab-gw"
    )


@models
def test_unknown_choices(model: type) -> None:
    check_refused(lambda: build(model, log_ratio="both"), "log_ratio: got 'both', choose one of")
    check_refused(lambda: build(model, precision="half"), "precision: got 'half', choose one of")
    built = build(model)
    with pytest.raises(ValueError, match="precision: got 'half'"):
        built.precision = "half"
    assert built.precision == "full"


@pytest.mark.parametrize("name", ["num_latent_gps", "num_samples", "num_data"])
@pytest.mark.parametrize("value", [0, -3, 1.5, True])
def test_counts(name: str, value: object) -> None:
    check_refused(lambda: build(DWP, **{name: value}), f"{name}: got {value}, needs an integer")


@pytest.mark.parametrize("jitter", [-1e-6, np.nan, np.inf])
def test_bad_jitter(jitter: float) -> None:
    check_refused(lambda: build(DWP, jitter=jitter), "jitter: got .*, needs a finite number")


@all_models
def test_kernels_that_are_no_list_of_kernels(model: type) -> None:
    check_refused(
        lambda: build(model, []), r"kernels: got list \[\], needs a list of GPflow kernels"
    )
    check_refused(lambda: build(model, k.Matern32()), "kernels: got Matern32, needs a list")
    check_refused(lambda: build(model, [k.Matern32(), "rbf"]), "kernels: got str 'rbf' among them")


@pytest.mark.parametrize("shape", [(4,), (4, 2, 1), (0, 2), (3, 0)])
def test_inducing_points_of_a_wrong_shape(shape: tuple[int, ...]) -> None:
    check_refused(lambda: build(DWP, Z=np.zeros(shape)), "inducing_variable: got shape")


@pytest.mark.parametrize("bad", [np.nan, -np.inf, "many"])
def test_inducing_points_that_are_not_finite(bad: object) -> None:
    Z = X[:4].astype(object)
    Z[1, 0] = bad
    Z = Z if bad == "many" else Z.astype(float)
    check_refused(lambda: build(DWP, Z=Z), "inducing_variable: got values that are not finite")


LABELS = {
    "Softmax": (lambda: gpflow.likelihoods.Softmax(3), [3, -1, 0.5], "integers from 0 to 2"),
    "MultiClass": (lambda: gpflow.likelihoods.MultiClass(3), [3, -1, 0.5], "integers from 0 to 2"),
    "Bernoulli": (gpflow.likelihoods.Bernoulli, [2, -1, 0.5], "0 and 1, or -1 and 1"),
}


@pytest.mark.parametrize("likelihood", list(LABELS))
def test_labels_that_the_likelihood_would_misread(likelihood: str) -> None:
    make, bad_labels, needs = LABELS[likelihood]
    good = np.tile([[0.0], [1.0]], [len(X) // 2, 1])
    built = DWP.from_data(X, good, num_inducing=3, likelihood=make())
    assert np.isfinite(built.elbo((X, good), num_samples=1))
    for bad in bad_labels:
        labels = good.copy()
        labels[3] = bad
        message = rf"data: got a label .*, {likelihood} needs {needs}"
        check_refused(
            lambda labels=labels: DWP.from_data(X, labels, num_inducing=3, likelihood=make()),
            message,
        )
        check_refused(lambda labels=labels: built.elbo((X, labels), num_samples=1), message)
        check_refused(lambda labels=labels: fit(built, (X, labels), num_steps=1), message)


def test_bernoulli_labels_of_either_kind_are_taken() -> None:
    built = make_model("DWP", 2, likelihood=gpflow.likelihoods.Bernoulli())
    labels = np.where(Y > 0, 1.0, 0.0)
    same = float(built.elbo((X, labels), seed=0))
    assert float(built.elbo((X, 2.0 * labels - 1.0), seed=0)) == pytest.approx(same, rel=1e-12)


@pytest.mark.parametrize("columns", [1, 3])
def test_inducing_points_of_a_wrong_width(columns: int) -> None:
    built = build(DWP, Z=np.zeros((4, columns)))
    pattern = f"X \\(12, 2\\), needs {columns} columns as the inducing points have"
    check_refused(lambda: built.elbo((X, Y)), pattern)
    check_refused(lambda: built.predict_log_density((X, Y)), pattern)


@pytest.mark.parametrize(
    "method", ["predict_f", "predict_y", "predict_f_samples", "predict_mixture"]
)
def test_predictions_at_points_of_a_wrong_width(method: str) -> None:
    check_refused(
        lambda: getattr(build(DWP), method)(np.zeros((3, 5)), num_samples=2),
        r"\(3, 5\).* 2 columns",
    )


@pytest.mark.parametrize("points", [np.zeros(2), np.zeros((2, 3, 2))])
def test_predictions_at_points_of_a_wrong_rank(points: np.ndarray) -> None:
    check_refused(lambda: build(DWP).predict_f(points, num_samples=2), r"\[N, D\]")


@pytest.mark.parametrize(
    ("X", "Y"),
    [(X, Y[:5]), (X, Y[:, 0]), (X[:, 0], Y), (X[None], Y)],
)
def test_data_of_a_wrong_shape(X: np.ndarray, Y: np.ndarray) -> None:
    check_refused(lambda: build(DWP).elbo((X, Y)), r"data: got X .* needs X \[N, D\]")


def test_more_columns_of_y_than_outputs() -> None:
    check_refused(lambda: build(DWP).elbo((X, np.hstack([Y, Y]))), r"Y .*\(12, 2\)")


@pytest.mark.parametrize("number", [0, -1, 2.5])
def test_bad_number_of_samples(number: object) -> None:
    model = make_model("DWP", 2)
    check_refused(lambda: model.predict_f(X, num_samples=number), "num_samples: got")
    check_refused(lambda: model.predict_f_samples(X, number), "num_samples: got")
    check_refused(lambda: model.elbo((X, Y), num_samples=number), "num_samples: got")
    check_refused(lambda: model.prior_kl(num_samples=number), "num_samples: got")
    check_refused(lambda: model.sample_prior(X, number), "num_samples: got")


@pytest.mark.parametrize("batch_size", [0, -1, 2.5])
def test_bad_batch_size(batch_size: object) -> None:
    model = make_model("DWP", 2)
    check_refused(lambda: model.predict_f(X, batch_size=batch_size), "batch_size: got")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_from_data_with_values_that_are_not_finite(bad: float) -> None:
    X_bad, Y_bad = X.copy(), Y.copy()
    X_bad[3, 1], Y_bad[5, 0] = bad, bad
    check_refused(lambda: DWP.from_data(X_bad, Y), r"X\[3, 1\] is .*inf|X\[3, 1\] is nan")
    check_refused(lambda: DWP.from_data(X, Y_bad), r"Y\[5, 0\] is .*(inf|nan), needs finite")


def test_from_data_with_bad_arguments() -> None:
    check_refused(lambda: DWP.from_data(X, Y[:5]), r"got X \(12, 2\) and Y \(5, 1\)")
    check_refused(lambda: DWP.from_data(X[:, 0], Y), r"needs X \[N, D\]")
    check_refused(lambda: DWP.from_data(X[:1], Y[:1]), "got 1 rows, needs at least 2")
    check_refused(lambda: DWP.from_data(X[:, :0], Y), r"got X \(12, 0\).* at least one column")
    check_refused(lambda: DWP.from_data(X, Y[:, :0]), r"and Y \(12, 0\), needs at least one column")
    check_refused(lambda: DWP.from_data(X, Y, depth=0), "depth: got 0")
    check_refused(lambda: DWP.from_data(X, Y, num_inducing=0), "num_inducing: got 0")


@pytest.mark.parametrize("width", [0, -2])
def test_from_data_with_a_bad_width(width: int) -> None:
    check_refused(lambda: DWP.from_data(X, Y, num_inducing=3, width=width), f"got {width}")


def test_from_data_of_text() -> None:
    text = X.astype(object)
    text[2, 0] = "many"
    check_refused(lambda: DWP.from_data(text, Y), "data: X")


def test_labels_are_checked_in_a_tf_function_without_a_warning() -> None:
    """Which AutoGraph prints where it cannot transform what a traced function calls."""
    transformed = tf.autograph.to_graph(check_targets)
    softmax = gpflow.likelihoods.Softmax(3)
    transformed(softmax, np.array([[0.0], [2.0]]))
    check_refused(lambda: transformed(softmax, np.array([[3.0]])), "data: got a label 3, Softmax")
