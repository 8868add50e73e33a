"""Bootstrap over users and seeds: how far a mean would move with other users and other training runs.

Every resample draws users and, apart from them, seeds, both with replacement; the value of each drawn pair counts.
Source: Owen, "The pigeonhole bootstrap", 2007. Few seeds show little of how much training runs differ: with one, the
interval is that of the users alone; with three, it is rough.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gti_pipeline.errors import GtiError
from gti_pipeline.evaluate.intervals import draws

SEEDS = 1  # apart from the draws of users


def seed_intervals(
    values: NDArray[np.float64], resamples: int, confidence: float, seed: int = 0
) -> NDArray[np.float64]:
    """Means and intervals of M columns from the same resamples of users and seeds.

    Differences of two arms are paired by giving `ours - theirs`, seed by seed and user by user.

    Args:
        values: [seeds, users, M], finite.
        resamples: how many times both are drawn.
        confidence: share of the resampled means inside the interval, for instance 0.95.
        seed: equal ones draw the same users and seeds.

    Returns:
        [3, M]: mean, low, high. With one seed it equals `intervals.mean_intervals`.

    Raises:
        GtiError: no users or seeds, or values that are not finite.
    """
    seeds, users, columns = values.shape
    if not seeds or not users:
        raise GtiError("no users: an interval needs at least one user and one seed")
    if not np.isfinite(values).all():
        raise GtiError("a user's metric is not a finite number")
    flat = values.transpose(1, 0, 2).reshape(users, seeds * columns)
    by_seed = np.concatenate([counts @ flat / users for counts in draws(users, resamples, np.random.default_rng(seed))])
    chosen = np.concatenate(list(draws(seeds, resamples, np.random.default_rng([seed, SEEDS])))) / seeds
    means = np.einsum("rs,rsm->rm", chosen, by_seed.reshape(resamples, seeds, columns))
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    mean = values.mean(axis=(0, 1))
    # Rounding alone can put the mean of equal values beside its interval.
    return np.stack([mean, np.minimum(low, mean), np.maximum(high, mean)])
