"""The cross term of the Wasserstein distance against matrix square roots, and its gradients."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError
from scipy import linalg

from gpflow_dkp.wasserstein import (
    LowRankUpdate,
    cross_spectrum,
    eigenvalue_cross_term,
    exact_cross_term,
    nuclear_norm,
    nystrom_cross_term,
    root_distance,
    whitened_nuclear_norm,
)

B, S, P = 9, 4, 2
JITTER = 1e-8


def dense(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def gradient_of(function: Callable, *arguments: np.ndarray) -> list[np.ndarray]:
    """Of the sum of a function's values, with respect to each argument."""
    tensors = [tf.constant(argument) for argument in arguments]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = tf.reduce_sum(function(*tensors))
    return [gradient.numpy() for gradient in tape.gradient(value, tensors)]


def slope(function: Callable, point: np.ndarray, direction: np.ndarray, step: float) -> float:
    """Central difference, of fourth order, of the sum of a function's values."""

    def at(distance: float) -> float:
        return float(np.sum(function(tf.constant(point + distance * direction))))

    near, far = at(step) - at(-step), at(2.0 * step) - at(-2.0 * step)
    return (8.0 * near - far) / (12.0 * step)


# The nuclear norm

SHAPES = [(3, 3), (6, 3), (3, 6), (1, 1), (5, 1), (1, 4), (2, 5, 3), (2, 3, 4, 4)]


@pytest.mark.parametrize("shape", SHAPES)
def test_nuclear_norm_is_the_sum_of_the_singular_values(shape: tuple[int, ...]) -> None:
    matrix = dense(*shape)
    values = [linalg.svdvals(part).sum() for part in matrix.reshape(-1, *shape[-2:])]
    actual = nuclear_norm(tf.constant(matrix))
    assert actual.shape == shape[:-2]
    np.testing.assert_allclose(actual, np.reshape(values, shape[:-2]), rtol=1e-10)


@pytest.mark.parametrize("shape", [(3, 3), (6, 3), (5, 1), (2, 5, 3), (2, 3, 4, 4)])
def test_gradient_of_nuclear_norm(shape: tuple[int, ...]) -> None:
    """Full column rank; every matrix of the batch with its own weight."""
    matrix, weights = dense(*shape), dense(*shape[:-2], seed=1)

    def weighted(matrix: tf.Tensor) -> tf.Tensor:
        return weights * nuclear_norm(matrix)

    (gradient,) = gradient_of(weighted, matrix)
    for seed in range(3):
        direction = dense(*shape, seed=10 + seed)
        expected = slope(weighted, matrix, direction, 1e-3)
        assert np.sum(gradient * direction) == pytest.approx(expected, rel=1e-6, abs=1e-8)


def with_singular_values(values: list[float], rows: int, seed: int = 0) -> np.ndarray:
    left, _ = np.linalg.qr(dense(rows, len(values), seed=seed))
    right, _ = np.linalg.qr(dense(len(values), len(values), seed=seed + 1))
    return left @ np.diag(values) @ right.T


SPECTRA = {
    "repeated": [2.0, 2.0, 2.0, 0.5],
    "one zero": [2.0, 1.0, 0.3, 0.0],
    "repeated zeros": [2.0, 0.0, 0.0, 0.0],
    "all zero": [0.0, 0.0, 0.0, 0.0],
    "nine decades": [1.0, 1e-3, 1e-6, 1e-9],
    "below the square root of rounding": [1.0, 1e-10, 1e-10, 1e-12],
}


@pytest.mark.parametrize("rows", [4, 7])
@pytest.mark.parametrize("name", SPECTRA)
def test_nuclear_norm_with_repeated_and_vanishing_singular_values(name: str, rows: int) -> None:
    """The gradient is a subgradient: of spectral norm 1, with inner product the norm itself."""
    matrix = with_singular_values(SPECTRA[name], rows)
    total = sum(SPECTRA[name])
    value = float(nuclear_norm(tf.constant(matrix)))
    assert value == pytest.approx(total, rel=1e-9, abs=1e-300)
    (gradient,) = gradient_of(nuclear_norm, matrix)
    assert np.all(np.isfinite(gradient))
    assert np.max(linalg.svdvals(gradient)) < 1.0 + 1e-6
    assert np.sum(gradient * matrix) == pytest.approx(total, rel=1e-7, abs=1e-300)


def test_gradient_of_small_singular_values_is_right() -> None:
    """U V^T to the last of four decades, which the square of the matrix spreads over eight."""
    matrix = with_singular_values([1.0, 1e-1, 1e-3, 1e-4], 6)
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    (gradient,) = gradient_of(nuclear_norm, matrix)
    np.testing.assert_allclose(gradient, left @ right, rtol=0, atol=1e-6)


def test_zero_matrix_of_a_batch_does_not_disturb_the_others() -> None:
    matrices = np.stack([np.zeros([3, 3]), dense(3, 3)])
    (gradient,) = gradient_of(nuclear_norm, matrices)
    np.testing.assert_array_equal(gradient[0], 0.0)
    np.testing.assert_allclose(gradient[1], gradient_of(nuclear_norm, matrices[1])[0], atol=1e-12)


# The cross terms


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_whitened_nuclear_norm_is_differentiated_as_its_parts_are(batch: tuple[int, ...]) -> None:
    matrix, root = dense(*batch, S + 2, S), dense(*batch, S, S, seed=1)
    covariance = root @ np.swapaxes(root, -1, -2) + 0.1 * np.eye(S)

    def of_parts(matrix: tf.Tensor, covariance: tf.Tensor) -> tf.Tensor:
        transposed = tf.linalg.matrix_transpose(matrix)
        whitened = tf.linalg.triangular_solve(tf.linalg.cholesky(covariance), transposed)
        return tf.linalg.svd(whitened, compute_uv=False)

    arguments = matrix, covariance
    actual, parts = whitened_nuclear_norm(*arguments), of_parts(*arguments)
    np.testing.assert_allclose(actual, np.sum(parts, -1), rtol=1e-12)
    gradients = gradient_of(whitened_nuclear_norm, *arguments)
    for gradient, expected in zip(gradients, gradient_of(of_parts, *arguments), strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=1e-8, atol=1e-10)


def covariances(num_points: int = B, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """k [B, B] of condition below 1e3, and r [P, B, B] as a posterior's, of other eigenvectors."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=[num_points, num_points]) / np.sqrt(num_points)
    k = root @ root.T + 0.1 * np.eye(num_points)
    shrink = rng.normal(size=[P, num_points, 3 * num_points]) / np.sqrt(3 * num_points)
    r = 0.3 * shrink @ np.swapaxes(shrink, 1, 2) + 0.05 * np.eye(num_points)
    return k, r


def square_root_trace(k: np.ndarray, r: np.ndarray) -> np.ndarray:
    """tr (k^{1/2} r k^{1/2})^{1/2} / B by SciPy's matrix square root."""
    root = linalg.sqrtm(k)
    return np.array([np.trace(linalg.sqrtm(root @ one @ root)).real for one in r]) / len(k)


def nystrom(k: np.ndarray, r: np.ndarray, chosen: np.ndarray, jitter: float) -> tf.Tensor:
    square = np.ix_(chosen, chosen)
    r_ss = np.stack([one[square] for one in r])
    return nystrom_cross_term(
        *map(tf.constant, (k[:, chosen], k[square], r[:, :, chosen], r_ss)), jitter
    )


ALL = np.arange(B)
ESTIMATORS: dict[str, Callable] = {
    "nystrom": lambda k, r: nystrom(k, r, ALL, 1e-12),
    "exact": lambda k, r: exact_cross_term(tf.constant(k), tf.constant(r), 0.0),
    "eigenvalues": lambda k, r: eigenvalue_cross_term(tf.constant(k), tf.constant(r)),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_of_all_points_is_the_trace_of_the_square_root(
    estimator: str, seed: int
) -> None:
    k, r = covariances(seed=seed)
    actual = ESTIMATORS[estimator](k, r)
    assert actual.shape == (P,)
    np.testing.assert_allclose(actual, square_root_trace(k, r), rtol=0, atol=1e-6)


def test_order_of_the_chosen_points_does_not_matter() -> None:
    k, r = covariances()
    order = np.random.default_rng(1).permutation(B)
    np.testing.assert_allclose(
        nystrom(k, r, order, 1e-12), square_root_trace(k, r), rtol=0, atol=1e-6
    )


def test_equal_covariances_have_their_trace() -> None:
    """tr (k^{1/2} k k^{1/2})^{1/2} = tr k."""
    k, _ = covariances()
    trace = np.trace(k) / B
    for estimator in ESTIMATORS.values():
        np.testing.assert_allclose(estimator(k, k[None]), [trace], rtol=1e-9)


def test_exact_with_jitter_is_of_the_jittered_covariances() -> None:
    k, r = covariances()
    eye = 0.3 * np.eye(B)
    actual = exact_cross_term(tf.constant(k), tf.constant(r), 0.3)
    np.testing.assert_allclose(actual, square_root_trace(k + eye, r + eye), rtol=1e-9)


def test_nystrom_is_the_cross_term_of_the_nystrom_approximations() -> None:
    """k_BS (k_SS + jI)^{-1} k_SB and the like for r, [B, B] each, by an explicit inverse."""
    k, r = covariances()
    chosen, jitter = np.array([5, 0, 7, 2]), 0.01

    def low_rank(matrix: np.ndarray) -> np.ndarray:
        inverse = np.linalg.inv(matrix[np.ix_(chosen, chosen)] + jitter * np.eye(S))
        return matrix[:, chosen] @ inverse @ matrix[chosen]

    expected = []
    for one in r:
        # Of the product, whose square root SciPy does not have where it is singular.
        values = np.linalg.eigvals(low_rank(k) @ low_rank(one)).real
        expected.append(np.sum(np.sqrt(np.sort(values)[-S:])) / B)
    np.testing.assert_allclose(nystrom(k, r, chosen, jitter), expected, rtol=1e-7)


def test_nystrom_is_never_above_the_exact_value() -> None:
    """Any covariances, any choice of points, any jitter; equal where all points are chosen."""
    rng = np.random.default_rng(0)
    gaps = []
    for trial in range(100):
        num_points = int(rng.integers(2, 12))
        k, r = covariances(num_points, seed=trial)
        if trial % 2:
            inputs = rng.normal(size=[num_points, 1])
            k = np.exp(-0.5 * (inputs - inputs.T) ** 2) + 1e-6 * np.eye(num_points)
        chosen = rng.permutation(num_points)[: int(rng.integers(1, num_points + 1))]
        gap = square_root_trace(k, r) - nystrom(k, r, chosen, rng.choice([1e-6, 1e-3, 0.1]))
        gaps.append(gap)
    assert np.min(gaps) > -1e-9
    assert np.max(gaps) > 1e-2


@pytest.mark.parametrize("as_low_rank", [True, False], ids=["low rank", "dense"])
@pytest.mark.parametrize("num_chosen", [50, 300])
@pytest.mark.parametrize(
    ("variance", "jitter"), [(1.0, 1e-6), (1.0, 1e-10), (100.0, 1e-6), (1e4, 1e-6)]
)
def test_rounding_does_not_lift_nystrom_above_the_exact_value(
    variance: float, jitter: float, num_chosen: int, as_low_rank: bool
) -> None:
    """Many points of a smooth kernel, whose posterior variance is a small part of the prior's."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=[300, 1])
    k = variance * np.exp(-0.5 * ((x - x.T) / 3.0) ** 2)
    tril = np.linalg.cholesky(k[:20, :20] + jitter * np.eye(20))
    explained = linalg.solve_triangular(tril, k[:20], lower=True).T
    excess = np.linalg.inv(np.eye(20) + 10.0 * explained.T @ explained) - np.eye(20)
    update = LowRankUpdate(*map(tf.constant, (k, explained, explained, excess[None])))
    r = update.to_dense()
    chosen = rng.permutation(300)[:num_chosen]
    r_bs = update._replace(
        prior=tf.gather(update.prior, chosen, axis=1), right=tf.constant(explained[chosen])
    )
    r_ss = tf.gather(tf.gather(r, chosen, axis=1), chosen, axis=2)
    k_bs, k_ss = tf.constant(k[:, chosen]), tf.constant(k[np.ix_(chosen, chosen)])
    actual = nystrom_cross_term(k_bs, k_ss, r_bs if as_low_rank else r_bs.to_dense(), r_ss, jitter)

    def features(square: np.ndarray, cross: np.ndarray) -> np.ndarray:
        tril = np.linalg.cholesky(square + jitter * np.eye(num_chosen))
        return linalg.solve_triangular(tril, np.transpose(cross), lower=True)

    phi_p, phi_q = features(k_ss, k_bs), features(r_ss[0], r_bs.to_dense()[0])
    expected = linalg.svdvals(phi_p @ phi_q.T).sum() / 300
    assert float(actual[0]) == pytest.approx(expected, abs=1e-9 * variance)
    assert float(actual[0]) < float(exact_cross_term(tf.constant(k), r, jitter)[0])


@pytest.mark.parametrize("num_chosen", [1, S, B])
def test_papers_estimator_is_its_formula(num_chosen: int) -> None:
    """sum_s sqrt(max(Re lambda_s, 0)) / sqrt(B S), where the product is not symmetric."""
    expected, smallest = [], []
    actual = []
    for seed in range(5):
        k, r = covariances(seed=seed)
        chosen = np.random.default_rng(seed).permutation(B)[:num_chosen]
        # Some points' own covariance is turned round: eigenvalues with a negative real part.
        sign = np.where(np.arange(num_chosen) == 0, -1.0, 1.0)
        k_bs, r_bs = k[:, chosen], r[:, :, chosen] * sign
        values = [np.linalg.eigvals(one.T @ k_bs) for one in r_bs]
        roots = [np.sum(np.sqrt(np.maximum(value.real, 0.0))) for value in values]
        expected.append(np.array(roots) / np.sqrt(B * num_chosen))
        smallest.append(min(np.min(value.real) for value in values))
        actual.append(eigenvalue_cross_term(tf.constant(k_bs), tf.constant(r_bs)))
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-15)
    assert min(smallest) < 0.0


def test_papers_estimator_of_complex_pairs() -> None:
    """A rotation by 60 degrees: eigenvalues (1 +- i sqrt 3) / 2, of real part 1/2 each."""
    rotation = np.array([[0.5, -np.sqrt(0.75)], [np.sqrt(0.75), 0.5]])
    actual = eigenvalue_cross_term(tf.constant(rotation), tf.constant(np.eye(2)[None]))
    np.testing.assert_allclose(actual, [2.0 * np.sqrt(0.5) / 2.0], rtol=1e-12)
    (gradient,) = gradient_of(
        lambda k: eigenvalue_cross_term(k, tf.constant(np.eye(2)[None])), rotation
    )
    # Each root's slope is sqrt(1/2): d Re lambda = tr(dA) / 2 of a normal matrix with its pair.
    direction = dense(2, 2)
    expected = slope(
        lambda k: eigenvalue_cross_term(k, tf.constant(np.eye(2)[None])), rotation, direction, 1e-3
    )
    assert np.sum(gradient * direction) == pytest.approx(expected, rel=1e-7)


def low_rank(k: np.ndarray, seed: int = 7) -> tuple[LowRankUpdate, np.ndarray]:
    """A posterior's covariances at all the points, and the same by NumPy [P, B, B]."""
    rng, num_inducing = np.random.default_rng(seed), 3
    left = np.linalg.cholesky(k)[:, :num_inducing]  # A A^T is below k
    roots = np.tril(rng.normal(size=[P, num_inducing, num_inducing]))
    excess = roots @ np.swapaxes(roots, 1, 2) - np.eye(num_inducing)
    dense = np.array([k + left @ one @ left.T for one in excess])
    return LowRankUpdate(*map(tf.constant, (k, left, left, excess))), dense


def test_low_rank_update_is_its_dense_matrix() -> None:
    k, _ = covariances()
    whole, dense_whole = low_rank(k)
    some = whole._replace(
        prior=tf.gather(whole.prior, CHOSEN, axis=1), right=tf.gather(whole.right, CHOSEN)
    )
    dense_some = dense_whole[:, :, CHOSEN]
    np.testing.assert_allclose(some.to_dense(), dense_some, rtol=0, atol=1e-12)
    matrix = dense(S + 1, B)
    product = matrix @ dense_some
    np.testing.assert_allclose(some.multiplied_by(matrix), product, rtol=0, atol=1e-12)
    k_bs, k_ss = tf.constant(k[:, CHOSEN]), tf.constant(k[np.ix_(CHOSEN, CHOSEN)])
    r_ss = tf.constant(dense_some[:, CHOSEN])
    functions: list[Callable] = [
        lambda r: nystrom_cross_term(k_bs, k_ss, r, r_ss, JITTER),
        lambda r: eigenvalue_cross_term(k_bs, r),
        lambda r: cross_spectrum(k_bs, r),
    ]
    for function in functions:
        of_dense = function(tf.constant(dense_some))
        np.testing.assert_allclose(function(some), of_dense, rtol=0, atol=1e-10)


# Gradients of the cross terms


def of_inputs(
    estimator: str, inputs: tf.Tensor, jitter: float = JITTER, chosen: np.ndarray = ALL[:S]
) -> tf.Tensor:
    """A cross term with k = SE and r = a shrunken SE of other lengthscale, of points' positions."""
    chosen = tf.constant(chosen)

    def kernel(x: tf.Tensor, y: tf.Tensor, lengthscale: float) -> tf.Tensor:
        squared = tf.reduce_sum(tf.square(x[:, None] - y[None]), -1)
        return tf.exp(-0.5 * squared / lengthscale**2)

    few = tf.gather(inputs, chosen)
    k = [kernel(inputs, few, 0.5), kernel(few, few, 0.5), kernel(inputs, inputs, 0.5)]
    r = [0.4 * kernel(*pair, 0.3)[None] for pair in ((inputs, few), (few, few), (inputs, inputs))]
    if estimator == "nystrom":
        return nystrom_cross_term(k[0], k[1], r[0], r[1], jitter)
    if estimator == "eigenvalues":
        return eigenvalue_cross_term(k[0], r[0])
    return exact_cross_term(k[2], r[2], jitter)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_gradient_with_respect_to_the_points(estimator: str) -> None:
    inputs = np.random.default_rng(0).permutation(np.linspace(-2.0, 2.0, B))[:, None]
    (gradient,) = gradient_of(lambda x: of_inputs(estimator, x), inputs)
    assert np.max(np.abs(gradient)) > 1e-3
    for seed in range(3):
        direction = dense(B, 1, seed=20 + seed)
        expected = slope(lambda x: of_inputs(estimator, x), inputs, direction, 1e-4)
        assert np.sum(gradient * direction) == pytest.approx(expected, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_gradient_with_respect_to_the_covariances(estimator: str) -> None:
    k, r = covariances()
    gradients = gradient_of(
        lambda k, r: CROSS_TERMS[estimator](k, r),
        k,
        r,
    )
    symmetric = dense(B, B, seed=3)
    symmetric = symmetric + symmetric.T
    expected = slope(lambda k: CROSS_TERMS[estimator](k, tf.constant(r)), k, symmetric, 1e-4)
    assert np.sum(gradients[0] * symmetric) == pytest.approx(expected, rel=1e-6)
    towards = np.stack([symmetric, -0.5 * symmetric])
    expected = slope(lambda r: CROSS_TERMS[estimator](tf.constant(k), r), r, towards, 1e-4)
    assert np.sum(gradients[1] * towards) == pytest.approx(expected, rel=1e-6)


CHOSEN = [5, 0, 7, 2]
CROSS_TERMS: dict[str, Callable] = {
    "nystrom": lambda k, r: nystrom_cross_term(
        tf.gather(k, CHOSEN, axis=1),
        tf.gather(tf.gather(k, CHOSEN), CHOSEN, axis=1),
        tf.gather(r, CHOSEN, axis=2),
        tf.gather(tf.gather(r, CHOSEN, axis=1), CHOSEN, axis=2),
        JITTER,
    ),
    "exact": lambda k, r: exact_cross_term(k, r, JITTER),
    "eigenvalues": lambda k, r: eigenvalue_cross_term(
        tf.gather(k, CHOSEN, axis=1), tf.gather(r, CHOSEN, axis=2)
    ),
}

DUPLICATES = {
    "two": [0, 0, 1, 2, 3, 4, 5, 6, 7],
    "among the chosen and the rest": [0, 1, 1, 2, 0, 4, 4, 6, 7],
    "one point only": [0] * B,
}


@pytest.mark.parametrize("chosen", [ALL[:S], ALL], ids=["some", "all"])
@pytest.mark.parametrize("rows", DUPLICATES)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_gradient_is_finite_with_duplicate_rows(
    estimator: str, rows: str, chosen: np.ndarray
) -> None:
    inputs = np.linspace(-2.0, 2.0, B)[DUPLICATES[rows], None]
    value = of_inputs(estimator, tf.constant(inputs), 1e-6, chosen)
    (gradient,) = gradient_of(lambda x: of_inputs(estimator, x, 1e-6, chosen), inputs)
    assert np.all(np.isfinite(value))
    assert np.all(np.isfinite(gradient))
    assert np.max(np.abs(gradient)) < 1e3


def test_gradient_of_small_eigenvalues_is_right() -> None:
    """d sqrt(lambda) = d lambda / (2 sqrt(lambda)), down to a millionth of the largest root."""
    values = np.array([1.0, 1e-4, 1e-9, 1e-12])
    gradient, _ = gradient_of(eigenvalue_cross_term, np.diag(values), np.eye(4)[None])
    np.testing.assert_allclose(np.diag(gradient), 0.5 / np.sqrt(values) / 4.0, rtol=1e-9)


def test_gradient_is_finite_where_the_eigenvectors_have_no_inverse() -> None:
    """A Jordan block: one eigenvalue, one eigenvector."""
    jordan = np.array([[1.0, 1.0], [0.0, 1.0]])
    gradients = gradient_of(eigenvalue_cross_term, jordan, np.eye(2)[None])
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


def test_gradient_with_eigenvalues_of_no_positive_real_part() -> None:
    negative = -np.diag([1.0, 2.0, 3.0])
    assert float(eigenvalue_cross_term(tf.constant(negative), np.eye(3)[None])[0]) == 0.0
    gradients = gradient_of(eigenvalue_cross_term, negative, np.eye(3)[None])
    for gradient in gradients:
        np.testing.assert_array_equal(gradient, 0.0)


# The spectrum


def test_cross_spectrum_is_sorted_and_right() -> None:
    k, r = covariances()
    chosen = np.array([5, 0, 7, 2])
    k_bs, r_bs = k[:, chosen], r[:, :, chosen]
    spectrum = cross_spectrum(tf.constant(k_bs), tf.constant(r_bs)).numpy()
    assert spectrum.shape == (P, S)
    assert spectrum.dtype == np.complex128
    assert np.all(np.diff(spectrum.real, axis=-1) <= 0.0)
    for actual, one in zip(spectrum, r_bs, strict=True):
        expected = np.linalg.eigvals(one.T @ k_bs / (B * S))
        np.testing.assert_allclose(np.sort_complex(actual), np.sort_complex(expected), atol=1e-12)


def test_cross_spectrum_of_all_points_is_of_the_operators() -> None:
    """Real and positive, and the sum of the roots is the cross term."""
    k, r = covariances()
    spectrum = cross_spectrum(tf.constant(k), tf.constant(r)).numpy()
    np.testing.assert_allclose(spectrum.imag, 0.0, atol=1e-12)
    assert np.min(spectrum.real) > 0.0
    roots = np.sum(np.sqrt(spectrum.real), -1)
    np.testing.assert_allclose(roots, square_root_trace(k, r), rtol=1e-8)


def test_cross_spectrum_of_a_rotation_has_its_imaginary_parts() -> None:
    rotation = np.array([[0.5, -np.sqrt(0.75)], [np.sqrt(0.75), 0.5]])
    spectrum = cross_spectrum(tf.constant(rotation), tf.constant(np.eye(2)[None])).numpy()
    np.testing.assert_allclose(np.sort(spectrum[0].imag), np.array([-1, 1]) * np.sqrt(0.75) / 4)
    np.testing.assert_allclose(spectrum[0].real, 0.125)


# What is no number


NOT_FINITE: dict[str, Callable] = {
    "nuclear norm": nuclear_norm,
    "whitened nuclear norm": lambda a: whitened_nuclear_norm(a, tf.eye(3, dtype=a.dtype)),
    "root eigenvalues": lambda a: eigenvalue_cross_term(tf.eye(3, dtype=a.dtype), a),
    "spectrum": lambda a: tf.math.abs(cross_spectrum(tf.eye(3, dtype=a.dtype), a)),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", NOT_FINITE)
def test_what_is_no_number_gives_none(name: str, value: float, dtype: type) -> None:
    """Rather than TensorFlow's error; the rest of a batch is as it is alone."""
    matrices = np.stack([dense(3, 3), dense(3, 3, seed=1)]).astype(dtype)
    expected = NOT_FINITE[name](tf.constant(matrices[1:]))
    matrices[0, 1, 2] = value
    found = NOT_FINITE[name](tf.constant(matrices))
    assert np.all(np.isnan(found[0]))
    np.testing.assert_allclose(found[1:], expected, rtol=1e-6)


def test_covariance_that_is_not_positive_definite_gives_no_number() -> None:
    assert np.isnan(whitened_nuclear_norm(dense(4, 3), -np.eye(3)))
    assert np.isnan(exact_cross_term(-tf.eye(3, dtype=tf.float64), np.eye(3)[None], 0.0)[0])


def test_root_of_the_distance() -> None:
    """With a gradient of zero where there is no positive number, and no number where there is none."""
    assert float(root_distance(tf.constant(4.0))) == 2.0
    for value, expected in ((4.0, 0.25), (0.0, 0.0), (-1e-9, 0.0)):
        point = tf.constant(value)
        with tf.GradientTape() as tape:
            tape.watch(point)
            root = root_distance(point)
        assert float(root) == max(value, 0.0) ** 0.5
        assert float(tape.gradient(root, point)) == expected
    assert np.isnan(root_distance(tf.constant(np.nan)))


WRONG_SHAPES: dict[str, Callable] = {
    "nystrom": lambda: nystrom_cross_term(
        dense(B, S), np.eye(S), dense(P, B, S), np.eye(S), JITTER
    ),
    "exact": lambda: exact_cross_term(np.eye(B), np.eye(B), JITTER),
    "update": lambda: LowRankUpdate(
        dense(B, 1), dense(B, 3), dense(S, 3), np.stack([np.eye(3)] * P)
    ).to_dense(),
}


@pytest.mark.parametrize("name", WRONG_SHAPES)
def test_shapes_that_would_broadcast_are_refused(name: str) -> None:
    """One posterior covariance for all outputs, or one prior covariance for all points."""
    with pytest.raises(ShapeMismatchError):
        WRONG_SHAPES[name]()
