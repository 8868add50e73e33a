"""k-means through faiss, for any number of points."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
SAMPLE = 256  # points a centroid that it learns from


def kmeans(points: Floats, count: int, iterations: int, seed: int) -> Floats:
    """Centroids [count, C] of points [N, C]; deterministic for a seed.

    Where there are no more distinct points than centroids, every distinct point is one and the others are copies with
    a jitter of a thousandth of the points' spread (or of their size, where all are equal), so that no two coincide.
    """
    # most often a part shows that there are enough; sorting a million long rows costs minutes and gigabytes
    if len(_distinct(points[:: max(1, len(points) // (4 * count))])) > count:
        return _clusters(points, count, iterations, seed)
    distinct = _distinct(points)
    if len(distinct) > count:
        return _clusters(points, count, iterations, seed)
    rng = np.random.default_rng(seed)
    chosen = distinct[np.arange(count) % len(distinct)]
    spread = float(distinct.std()) or float(np.abs(distinct).max()) or 1.0
    jitter = rng.normal(0, 1e-3 * spread, chosen.shape)
    jitter[: len(distinct)] = 0
    return np.asarray(chosen + jitter, dtype=np.float32)


def _clusters(points: Floats, count: int, iterations: int, seed: int) -> Floats:
    """Lloyd's iterations by faiss from k-means++ (Arthur and Vassilvitskii, 2007) on a sample of the points.

    faiss starts from random points, several of which may lie in one cluster and never leave it.
    """
    import faiss
    from sklearn.cluster import kmeans_plusplus

    rng = np.random.default_rng(seed)
    sample = points
    if len(points) > SAMPLE * count:
        sample = points[np.sort(rng.choice(len(points), SAMPLE * count, replace=False))]
    sample = np.ascontiguousarray(sample, dtype=np.float32)
    start, _ = kmeans_plusplus(sample, count, random_state=seed)
    run = faiss.Kmeans(
        sample.shape[1],
        count,
        niter=iterations,
        seed=seed + 1,
        min_points_per_centroid=1,
        max_points_per_centroid=SAMPLE + 1,  # it draws a sample of its own beyond that
    )
    run.train(sample, init_centroids=np.ascontiguousarray(start, dtype=np.float32))
    return np.asarray(run.centroids, dtype=np.float32).reshape(count, -1)


def _distinct(points: Floats) -> Floats:
    """Points that differ by more than rounding: 1e-5 of the largest coordinate."""
    unit = 1e-5 * (float(np.abs(points).max()) or 1.0)
    _, first = np.unique(np.round(points.astype(np.float64) / unit).astype(np.int64), axis=0, return_index=True)
    return points[np.sort(first)]
