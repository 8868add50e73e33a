"""Percentile bootstrap over users (Efron and Tibshirani, 1993): of a mean, and of a paired difference of means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gti_pipeline.errors import GtiError

CELLS = 1 << 23  # of the resampling matrix held at a time: 64 MiB


class Interval(NamedTuple):
    """A mean and its interval, in the unit of the values."""

    mean: float
    low: float
    high: float


def mean_intervals(
    values: NDArray[np.float64], resamples: int, confidence: float, seed: int = 0
) -> NDArray[np.float64]:
    """Means and intervals of M columns from the same resamples of users.

    Args:
        values: [num_users, M], finite.
        resamples: how many times the users are drawn, with replacement.
        confidence: share of the resampled means inside the interval, for instance 0.95.
        seed: equal seeds and numbers of users draw the same users, so arms are compared on equal terms.

    Returns:
        [3, M]: mean, low, high.

    Raises:
        GtiError: no users, or values that are not finite.
    """
    if not len(values):
        raise GtiError("no users: an interval needs at least one")
    if not np.isfinite(values).all():
        raise GtiError("a user's metric is not a finite number")
    drawn = draws(len(values), resamples, np.random.default_rng(seed))
    means = np.concatenate([counts @ values / len(values) for counts in drawn])  # [resamples, M]
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    mean = values.mean(axis=0)
    # Rounding alone can put the mean of equal values beside its interval.
    return np.stack([mean, np.minimum(low, mean), np.maximum(high, mean)])


def mean_interval(values: NDArray[np.float64], resamples: int, confidence: float, seed: int = 0) -> Interval:
    """Mean and interval of one value per user [num_users]; see `mean_intervals`."""
    mean, low, high = mean_intervals(values[:, np.newaxis], resamples, confidence, seed)[:, 0]
    return Interval(float(mean), float(low), float(high))


def paired_interval(
    ours: NDArray[np.float64], theirs: NDArray[np.float64], resamples: int, confidence: float, seed: int = 0
) -> Interval:
    """Mean and interval of `ours - theirs`, both [num_users] over the same users in the same order.

    Raises:
        GtiError: lengths that differ, and as `mean_intervals`.
    """
    if ours.shape != theirs.shape:
        raise GtiError(f"a paired comparison needs the same users: {len(ours)} against {len(theirs)}")
    return mean_interval(ours - theirs, resamples, confidence, seed)


def draws(num_users: int, resamples: int, rng: np.random.Generator) -> Iterator[NDArray[np.float64]]:
    """How often each user is drawn, [chunk, num_users] at a time: a resampled mean is then one product."""
    chunk = max(1, CELLS // num_users)
    for start in range(0, resamples, chunk):
        rows = min(chunk, resamples - start)
        drawn = rng.integers(num_users, size=(rows, num_users)) + np.arange(rows)[:, np.newaxis] * num_users
        counts = np.bincount(drawn.reshape(-1), minlength=rows * num_users)
        yield counts.reshape(rows, num_users).astype(np.float64)
