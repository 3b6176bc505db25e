"""Whether a mixture's probabilities are the frequencies of what came: coverage and transformed targets."""

from __future__ import annotations

from collections.abc import Sequence

from . import metrics
from .metrics import Array
from .protocol import Metric

LEVELS = (50, 90, 95)
"""Percent of the central intervals whose coverage rows have."""

PIT_BINS = 10
"""Of the histogram of probability integral transforms."""

METRICS = {
    **{
        f"coverage_{level}": Metric(
            f"fraction of test targets inside the central {level} % interval"
        )
        for level in LEVELS
    },
    **{
        f"pit_count_{i}": Metric(
            f"test targets whose probability integral transform is in bin {i} of {PIT_BINS}"
        )
        for i in range(PIT_BINS)
    },
}


def scores(means: Array, variances: Array, Y: Array) -> dict[str, float]:
    """`METRICS` of a mixture's components [S, N, P] at targets [N, P]."""
    counts: Sequence[float] = metrics.pit_counts(means, variances, Y, PIT_BINS).tolist()
    return {
        **{
            f"coverage_{level}": metrics.interval_coverage(means, variances, Y, level / 100)
            for level in LEVELS
        },
        **{f"pit_count_{i}": float(count) for i, count in enumerate(counts)},
    }
