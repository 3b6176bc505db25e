"""Learning rate, weight of the KL term and minibatches, at each step."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from gpflow_dkp.random import as_seed
from gpflow_dkp.training.schedules import (
    PAPER_LEARNING_RATE,
    Cosine,
    ExponentialDecay,
    Moment,
    check_learning_rate,
    kl_weight_at,
    learning_rate_at,
    minibatch_rows,
)


def moment(step: int, num_steps: int) -> Moment:
    position, pace = (tf.constant(x / num_steps, tf.float64) for x in (step, 1))
    return Moment(tf.constant(step), position, pace)


def rates(learning_rate, num_steps: int) -> list[float]:  # type: ignore[no-untyped-def]
    schedule = check_learning_rate(learning_rate)
    return [
        float(learning_rate_at(schedule, moment(step, num_steps), tf.float64))
        for step in range(num_steps)
    ]


def test_papers_learning_rate_drops_after_half() -> None:
    assert rates(PAPER_LEARNING_RATE, 10) == [1e-2] * 5 + [1e-3] * 5


def test_constant_learning_rate() -> None:
    assert rates(0.3, 4) == [0.3] * 4
    assert rates(1, 2) == [1.0] * 2


def test_learning_rate_in_three_pieces() -> None:
    assert rates([(0.0, 0.3), (0.25, 0.2), (0.75, 0.1)], 8) == [0.3] * 2 + [0.2] * 4 + [0.1] * 2


def test_exponential_decay_falls_in_steps() -> None:
    decay = ExponentialDecay(0.4, factor=0.5, every=3)
    np.testing.assert_allclose(rates(decay, 8), [0.4] * 3 + [0.2] * 3 + [0.1] * 2, rtol=1e-15)


def test_cosine_rises_in_its_warmup_and_falls_to_its_floor() -> None:
    found = rates(Cosine(0.4, warmup=0.2, floor=0.1), 20)
    np.testing.assert_allclose(found[:4], [0.1, 0.2, 0.3, 0.4], rtol=1e-14)
    # From the warm-up's end on 1/10 + 9/10 (1 + cos(pi x)) / 2 of the rate, x from 0 in 16 steps.
    x = np.arange(16) / 16
    np.testing.assert_allclose(found[4:], 0.4 * (0.1 + 0.45 * (1 + np.cos(np.pi * x))), rtol=1e-14)
    assert found[12] == pytest.approx(0.4 * 0.55)
    assert rates(Cosine(0.4, warmup=0.0), 1) == rates(Cosine(0.4), 1) == [0.4]


@pytest.mark.parametrize(
    "cosine",
    [
        Cosine(0.0),
        Cosine(float("nan")),
        Cosine(0.1, warmup=1.0),
        Cosine(0.1, floor=1.1),
        Cosine(True),
    ],
)
def test_impossible_cosines_are_refused(cosine: Cosine) -> None:
    with pytest.raises(ValueError, match=r"learning_rate: got Cosine\(.* positive rate, a warmup"):
        check_learning_rate(cosine)


@pytest.mark.parametrize(
    "decay",
    [
        ExponentialDecay(0.0),
        ExponentialDecay(0.1, factor=0.0),
        ExponentialDecay(0.1, factor=1.1),
        ExponentialDecay(0.1, every=0),
    ],
)
def test_impossible_decays_are_refused_by_the_arguments_name(decay: ExponentialDecay) -> None:
    with pytest.raises(
        ValueError, match=r"natural_gradient: got ExponentialDecay\(.* positive rate"
    ):
        check_learning_rate(decay, "natural_gradient")


def test_learning_rate_has_the_precision_asked() -> None:
    schedule = check_learning_rate(PAPER_LEARNING_RATE)
    assert learning_rate_at(schedule, moment(0, 10), tf.float32).dtype == tf.float32


@pytest.mark.parametrize(
    "learning_rate",
    [
        0.0,
        -1e-2,
        float("nan"),
        float("inf"),
        [],
        [(0.5, 1e-2)],
        [(0.0, 1e-2), (0.0, 1e-3)],
        [(0.0, 1e-2), (0.6, 1e-3), (0.5, 1e-4)],
        [(0.0, 1e-2), (1.0, 1e-3)],
        [(0.0, 1e-2), (0.5, 0.0)],
        [(0.0, 1e-2), (0.5, float("nan"))],
        [(0.0, 1e-2), (float("nan"), 1e-3)],
        "fast",
        [1e-2, 1e-3],
    ],
)
def test_bad_learning_rate(learning_rate: object) -> None:
    with pytest.raises(ValueError, match="learning_rate: got"):
        check_learning_rate(learning_rate)  # type: ignore[arg-type]


def test_kl_weight_rises_to_one() -> None:
    weights = [float(kl_weight_at(moment(step, 6), tf.float64, steps=4)) for step in range(6)]
    assert weights == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    weights = [float(kl_weight_at(moment(step, 8), tf.float64, part=0.5)) for step in range(6)]
    np.testing.assert_allclose(weights, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0], rtol=1e-14)


@pytest.mark.parametrize(("steps", "rise"), [(2, 2), (4, 4), (8, 4), (100, 4)])
def test_kl_weight_rises_over_the_shorter(steps: int, rise: int) -> None:
    both = {"steps": steps, "part": 0.5}
    weights = [float(kl_weight_at(moment(step, 8), tf.float64, **both)) for step in range(8)]
    expected = [min(1.0, (step + 1) / rise) for step in range(8)]
    np.testing.assert_allclose(weights, expected, rtol=1e-14)


def test_kl_weight_without_annealing() -> None:
    assert float(kl_weight_at(moment(0, 5), tf.float64, steps=0)) == 1.0
    assert float(kl_weight_at(moment(0, 5), tf.float64)) == 1.0
    assert kl_weight_at(moment(0, 5), tf.float32, steps=3).dtype == tf.float32


def stream(num_steps: int, batch_size: int, num_data: int, seed: int) -> np.ndarray:
    batches = [
        minibatch_rows(tf.constant(step), batch_size, num_data, as_seed(seed)).numpy()
        for step in range(num_steps)
    ]
    assert all(batch.shape == (batch_size,) for batch in batches)
    return np.concatenate(batches)


@pytest.mark.parametrize(("batch_size", "num_data"), [(5, 20), (1, 7), (7, 20), (19, 20), (6, 7)])
def test_each_epoch_is_a_permutation(batch_size: int, num_data: int) -> None:
    """Also where the batch does not divide the data: the stream of rows goes on over the edge."""
    rows = stream(3 * num_data, batch_size, num_data, seed=0)
    epochs = rows[: len(rows) // num_data * num_data].reshape(-1, num_data)
    np.testing.assert_array_equal(np.sort(epochs, 1), [np.arange(num_data)] * len(epochs))


def test_epochs_differ() -> None:
    epochs = stream(40, 5, 20, seed=0).reshape(10, 20)
    assert len({tuple(epoch) for epoch in epochs}) == 10


def test_seeds_differ() -> None:
    permutations = {tuple(stream(4, 5, 20, seed)) for seed in range(10)}
    assert len(permutations) == 10
    assert tuple(stream(4, 5, 20, 0)) == tuple(stream(4, 5, 20, 0))


def test_rows_are_the_same_inside_a_graph() -> None:
    compiled = tf.function(lambda step: minibatch_rows(step, 5, 21, as_seed(3)), autograph=False)
    for step in (0, 3, 4, 1000):
        np.testing.assert_array_equal(
            compiled(tf.constant(step)), minibatch_rows(tf.constant(step), 5, 21, as_seed(3))
        )


def test_rows_far_along() -> None:
    """Beyond 2^31 rows, where 32-bit arithmetic overflows."""
    rows = minibatch_rows(tf.constant(2_000_000), 5000, 10_000, as_seed(0)).numpy()
    assert len(set(rows)) == 5000
    assert rows.min() >= 0
    assert rows.max() < 10_000


@pytest.mark.parametrize("place", [0, 1, 10])
def test_every_row_is_as_likely_at_a_place_of_an_epoch(place: int) -> None:
    """Chi-squared over the 20 rows at one place of 600 epochs' permutations."""
    seed = as_seed(1)

    def row_of(epoch: tf.Tensor) -> tf.Tensor:
        return minibatch_rows(20 * epoch + place, 1, 20, seed)[0]

    rows = tf.map_fn(row_of, tf.range(600), fn_output_signature=tf.int64)
    counts = np.bincount(rows, minlength=20)
    assert stats.chisquare(counts).pvalue > 1e-5 / 3
