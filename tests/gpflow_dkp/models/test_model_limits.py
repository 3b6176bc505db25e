"""The infinite-width limit, and the processes that approach it."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import ArcCosine, Kernel, SquaredExponential
from model_cases import D, M, make_model, regression_data

from gpflow_dkp.models import DGP, DIWP, DWP, NNGP, DeepKernelProcess

X, Y = regression_data()
Z = np.random.default_rng(1).uniform(-2.0, 2.0, size=(M, D))
JITTER = 1e-8


class Composed(Kernel):
    """k2(k1(x)) on inputs, for squared exponentials: k2's distance is k1's."""

    def __init__(self, first: Kernel, second: SquaredExponential) -> None:
        super().__init__()
        self.first = first
        self.second = second

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:  # GPflow's
        X2 = X if X2 is None else X2
        inner = self.first(X, full_cov=False)[:, None] + self.first(X2, full_cov=False)[None]
        squared = (inner - 2.0 * self.first(X, X2)) / self.second.lengthscales**2
        return self.second.variance * tf.exp(-0.5 * squared)

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:  # GPflow's
        return self.second.variance * tf.ones(tf.shape(X)[0], X.dtype)


def kernels_of_two_layers(scale: float = 1.0) -> list[Kernel]:
    return [
        SquaredExponential(variance=1.3, lengthscales=1.1 * scale),
        SquaredExponential(variance=0.9, lengthscales=0.8),
    ]


def agree_at_the_output(model: DeepKernelProcess) -> DeepKernelProcess:
    rng = np.random.default_rng(5)
    model.output_layer.v.assign(rng.normal(size=(M, 1)))
    model.output_layer.precision_tril.assign(np.eye(M) + 0.2 * np.tril(rng.normal(size=(M, M))))
    return model


def nngp(kernels: list[Kernel]) -> NNGP:
    return agree_at_the_output(
        NNGP(kernels, gpflow.likelihoods.Gaussian(0.2), Z, jitter=JITTER, num_samples=3)
    )


def test_nngp_is_a_gp_of_the_composed_kernel() -> None:
    first, second = kernels_of_two_layers()
    deep = nngp([first, second])
    shallow = agree_at_the_output(
        DWP(
            [Composed(first, second)],
            gpflow.likelihoods.Gaussian(0.2),
            Z,
            widths=[],
            jitter=JITTER,
        )
    )
    assert float(deep.elbo((X, Y))) == pytest.approx(float(shallow.elbo((X, Y))), abs=1e-9)
    for ours, theirs in zip(deep.predict_f(X), shallow.predict_f(X), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10)


def test_nngp_of_arc_cosines_is_gpflows_network_kernel() -> None:
    """Two arc-cosine kernels, against GPflow's on explicit features of the first."""
    first, second = ArcCosine(order=1, bias_variance=0.3), ArcCosine(order=1, variance=0.7)
    K = first(Z).numpy() + 1e-12 * np.eye(M)
    features = np.linalg.cholesky(K)
    expected = second(features).numpy() + JITTER * np.eye(M)
    model = nngp([first, second])
    K = model.output_layer.kernel(Z).numpy() + JITTER * np.eye(M)
    np.testing.assert_allclose(K, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kernel", [SquaredExponential, ArcCosine])
def test_diwp_approaches_the_nngp_as_delta_grows(kernel: type) -> None:
    limit = float(nngp([_on_scaled_inputs(kernel), kernel()]).elbo((X, Y)))
    errors = []
    for delta in (1e2, 1e4, 1e6):
        likelihood = gpflow.likelihoods.Gaussian(0.2)
        model = DIWP([kernel(), kernel()], likelihood, Z, delta=delta, jitter=JITTER)
        for layer in agree_at_the_output(model).hidden_layers:
            layer.gamma.assign(1e-9)
            layer.V.assign(tf.zeros_like(layer.V))
        errors.append(abs(float(model.elbo((X, Y), num_samples=400, seed=0)) - limit))
    assert errors[2] < 0.01, errors
    assert errors[2] < errors[1] < errors[0] / 3.0, errors


def _on_scaled_inputs(kernel: type) -> Kernel:
    """Equal on X to `kernel()` on X / sqrt(D), where the deep inverse Wishart process starts."""
    if kernel is SquaredExponential:
        return SquaredExponential(lengthscales=np.sqrt(D))
    return ArcCosine(weight_variances=1.0 / D)


@pytest.mark.parametrize("model", [DWP, DGP])
def test_wide_processes_approach_the_nngp(model: type) -> None:
    """Errors of draws of the prior, in standard errors of S draws from the limit."""
    kernels, S, N = kernels_of_two_layers(), 4000, len(X)
    K = nngp(kernels).output_layer.kernel(X).numpy() + JITTER * np.eye(N)

    def errors(width: int) -> list[float]:
        wide = model(kernels, gpflow.likelihoods.Gaussian(0.2), Z, widths=[width], jitter=JITTER)
        samples = wide.sample_prior(X, S, seed=3).numpy()[..., 0]
        # Whitened, each squared length is chi-square with N degrees of freedom.
        squared = np.sum(np.linalg.solve(np.linalg.cholesky(K), samples.T) ** 2, 0)
        of_covariance = np.sqrt((np.outer(np.diag(K), np.diag(K)) + K**2) / S)
        return [
            abs(np.mean(squared) - N) / np.sqrt(2 * N / S),
            abs(np.var(squared) / (2 * N) - 1) / np.sqrt((2 + 12 / N) / S),
            np.max(np.abs(samples.T @ samples / S - K) / of_covariance),
        ]

    # 80 comparisons at 5 standard errors: a false alarm for one seed in 20 000.
    wide, narrow = errors(400), errors(2)
    assert max(wide) < 5.0, wide
    assert min(narrow) > 8.0, narrow


def test_diwp_does_not_depend_on_how_the_data_are_batched() -> None:
    """In expectation: the data term of each point alone, or beside others, over many draws."""
    model = make_model("DIWP", 2)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, D], tf.float64),
            tf.TensorSpec([None, 1], tf.float64),
            tf.TensorSpec([], tf.int32),
        ],
        autograph=False,
    )
    def data_term(X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return model.elbo_terms((X, Y), num_samples=500, seed=seed)[0]

    whole = [float(data_term(X, Y, tf.constant(seed))) for seed in range(8, 16)]
    for batch in (1, 5):
        draws = [
            [
                float(data_term(X[i : i + n], Y[i : i + n], tf.constant(seed)))
                for i, n in _batches(batch)
            ]
            for seed in range(8)
        ]
        check_same_expectation(np.sum(draws, 1), whole)


def check_same_expectation(parts: np.ndarray, whole: list[float]) -> None:
    error = np.sqrt((np.var(parts, ddof=1) + np.var(whole, ddof=1)) / 8)
    assert abs(np.mean(parts) - np.mean(whole)) < 4.0 * error
    assert error < 0.02 * abs(np.mean(whole))


def _batches(size: int) -> list[tuple[int, int]]:
    return [(start, size) for start in range(0, len(X), size)]
