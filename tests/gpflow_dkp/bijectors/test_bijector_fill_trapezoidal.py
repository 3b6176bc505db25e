"""FillTrapezoidal: order, inverse, shapes, Jacobian, errors."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_dkp.bijectors import FillTrapezoidal

SHAPES = [(1, 1), (4, 1), (5, 3), (5, 5)]


def size(rows: int, columns: int) -> int:
    return rows * columns - columns * (columns - 1) // 2


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_fills_in_the_order_of_tril_indices(
    rows: int, columns: int, batch: tuple[int, ...]
) -> None:
    vector = np.random.default_rng(0).normal(size=(*batch, size(rows, columns)))
    expected = np.zeros((*batch, rows, columns))
    expected[(..., *np.tril_indices(rows, m=columns))] = vector
    bijector = FillTrapezoidal(rows, columns)
    np.testing.assert_array_equal(bijector.forward(vector), expected)
    np.testing.assert_array_equal(bijector.inverse(expected), vector)


def test_the_docstrings_example() -> None:
    matrix = FillTrapezoidal(3, 2).forward(tf.constant([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert matrix.dtype == tf.float32
    np.testing.assert_array_equal(matrix, [[1.0, 0.0], [2.0, 3.0], [4.0, 5.0]])


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_log_det_jacobian(rows: int, columns: int) -> None:
    bijector = FillTrapezoidal(rows, columns)
    vector = tf.random.stateless_normal([size(rows, columns)], [0, 1], dtype=tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(vector)
        matrix = bijector.forward(tf.identity(vector))
        entries = tf.boolean_mask(matrix, np.tri(rows, columns, dtype=bool))
    jacobian = tape.jacobian(entries, vector).numpy()
    _, expected = np.linalg.slogdet(jacobian)
    assert bijector.forward_log_det_jacobian(vector).numpy() == expected
    assert bijector.inverse_log_det_jacobian(matrix).numpy() == -expected


def test_shapes() -> None:
    bijector = FillTrapezoidal(5, 3)
    assert bijector.forward_event_shape([2, 12]) == [2, 5, 3]
    assert bijector.inverse_event_shape([2, 5, 3]) == [2, 12]
    np.testing.assert_array_equal(bijector.forward_event_shape_tensor([2, 12]), [2, 5, 3])
    np.testing.assert_array_equal(bijector.inverse_event_shape_tensor([2, 5, 3]), [2, 12])


@pytest.mark.parametrize(("rows", "columns"), [(2, 3), (3, 0)])
def test_wide_and_empty_matrices_are_refused(rows: int, columns: int) -> None:
    with pytest.raises(ValueError, match="1 <= columns <= rows"):
        FillTrapezoidal(rows, columns)


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"pass \[\.\.\., 5\]"):
        FillTrapezoidal(3, 2).forward(tf.zeros([6]))
    with pytest.raises(ValueError, match=r"pass \[\.\.\., 3, 2\]"):
        FillTrapezoidal(3, 2).inverse(tf.zeros([2, 3]))
