"""k-means through faiss, for any number of points."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def kmeans(points: Floats, count: int, iterations: int, seed: int) -> Floats:
    """Centroids [count, C] of points [N, C]; deterministic for a seed.

    Where there are no more distinct points than centroids, every distinct point is one and the others are copies with
    a jitter of a thousandth of the points' spread (or of their size, where all are equal), so that no two coincide.
    """
    import faiss

    distinct = _distinct(points)
    if len(distinct) > count:
        run = faiss.Kmeans(
            points.shape[1],
            count,
            niter=iterations,
            seed=seed + 1,
            min_points_per_centroid=1,
            max_points_per_centroid=256,
        )
        run.train(np.ascontiguousarray(points, dtype=np.float32))
        return np.asarray(run.centroids, dtype=np.float32).reshape(count, -1)
    rng = np.random.default_rng(seed)
    chosen = distinct[np.arange(count) % len(distinct)]
    spread = float(distinct.std()) or float(np.abs(distinct).max()) or 1.0
    jitter = rng.normal(0, 1e-3 * spread, chosen.shape)
    jitter[: len(distinct)] = 0
    return np.asarray(chosen + jitter, dtype=np.float32)


def _distinct(points: Floats) -> Floats:
    """Points that differ by more than rounding: 1e-5 of the largest coordinate."""
    unit = 1e-5 * (float(np.abs(points).max()) or 1.0)
    _, first = np.unique(np.round(points.astype(np.float64) / unit).astype(np.int64), axis=0, return_index=True)
    return points[np.sort(first)]
