"""RQ-k-means: residual quantization of the item vectors themselves, level by level, through faiss. No network."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gti_pipeline import columns as c
from gti_pipeline.config import SemanticIdsConfig
from gti_pipeline.semantic_ids.assign import argmin_codes, subtract, sum_of_squares
from gti_pipeline.semantic_ids.kmeans import kmeans

Floats = NDArray[np.float32]


def fit_rqkmeans(
    vectors: Floats, config: SemanticIdsConfig, progress: Callable[[int, int], None]
) -> tuple[Floats, pd.DataFrame]:
    """Codebooks [L, K, D], each by k-means on what the levels before it left of the vectors [N, D].

    k-means learns from at most 256 items a code, drawn at random (faiss's own limit), so a level's time grows with the
    catalogue only in the assignment.

    Args:
        vectors: finite, in the caller's canonical order.
        config: `num_levels` L, `codebook_size` K, `kmeans_iterations`, `seed`.
        progress: called with (levels done, L).

    Returns:
        The codebooks, and `schemas.STEPS` with a step for each level.
    """
    residual = vectors.copy()
    variance = _variance(vectors)
    codebooks, records = [], []
    for level in range(config.num_levels):
        codebook = kmeans(residual, config.codebook_size, config.kmeans_iterations, config.seed + level)
        codes = argmin_codes(residual, codebook)
        subtract(residual, codebook, codes)
        codebooks.append(codebook)
        records.append((level + 1, "reconstruction_error", sum_of_squares(residual) / variance))
        records.append((level + 1, "code_use", len(np.unique(codes)) / config.codebook_size))
        progress(level + 1, config.num_levels)
    return np.stack(codebooks), pd.DataFrame(records, columns=[c.STEP, c.METRIC, c.VALUE])


def rqkmeans_error(vectors: Floats, codebooks: Floats, codes: NDArray[np.int64]) -> float:
    """The share of the vectors' variance that codes [N, L] leave unexplained."""
    residual = vectors.copy()
    for level, codebook in enumerate(codebooks):
        subtract(residual, codebook, codes[:, level])
    return sum_of_squares(residual) / _variance(vectors)


def _variance(vectors: Floats) -> float:
    """The sum of squared distances to the mean; 1 where all vectors are equal, so that it can divide."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    total = sum_of_squares(vectors) - len(vectors) * float(np.square(mean).sum())
    return total if total > 1e-9 * sum_of_squares(vectors) else 1.0
