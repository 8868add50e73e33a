"""Measures of a matrix of rows: cosines, spectrum, effective rank, likeness to the codebooks, nearest rows.

Shapes: n rows of length d. All is computed in float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]
CHUNK = 1 << 14  # rows normalised at a time: a vocabulary is large
FLAT = 1e-9  # cosines that differ by less are equal up to rounding: the rows are one direction


class Rsa(NamedTuple):
    """Correlations of two sets of pairwise cosines, in -1..1; None where one of the sets does not vary."""

    pearson: float | None
    spearman: float | None


def unit(rows: Floats) -> Floats:
    """[n, d], each row of length 1; rows of zeros stay zeros."""
    rows = np.asarray(rows, dtype=np.float64)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(norms > 0, norms, 1))


def cosines(rows: Floats, others: Floats | None = None) -> Floats:
    """[n, d] and [m, d] (by default the same) to their cosines [n, m]; 0 with a row of zeros."""
    left = unit(rows)
    return np.asarray(left @ (left if others is None else unit(others)).T)


def upper(matrix: Floats) -> Floats:
    """The n (n - 1) / 2 values above the diagonal of [n, n], row by row."""
    return np.asarray(matrix[np.triu_indices(len(matrix), k=1)])


def singular_values(rows: Floats) -> Floats:
    """Of [n, d], not centred: min(n, d) values, the largest first."""
    return np.asarray(np.linalg.svd(np.asarray(rows, dtype=np.float64), compute_uv=False))


def effective_rank(singular: Floats) -> float:
    """Exp of the entropy (natural logarithm) of the singular values over their sum; 0 for a matrix of zeros.

    Source: Roy and Vetterli, "The effective rank", EUSIPCO 2007. n equal rows have 1, n orthogonal rows of one length
    have n.
    """
    total = singular.sum()
    if total <= 0:
        return 0.0
    shares = singular[singular > 0] / total
    return float(np.exp(-(shares * np.log(shares)).sum()))


def rsa(rows: Floats, vectors: Floats) -> Rsa:
    """Representational similarity analysis: whether rows that are alike belong to vectors that are alike.

    The cosines of all pairs of rows [n, d] and of all pairs of vectors [n, e] (upper triangles) are correlated.
    Source: Kriegeskorte and others, 2008; the GTI paper's use of it.
    """
    ours, theirs = upper(cosines(rows)), upper(cosines(vectors))
    if len(ours) < 2 or min(np.ptp(ours), np.ptp(theirs)) < FLAT:
        return Rsa(None, None)
    return Rsa(_correlation(ours, theirs), _correlation(rankdata(ours), rankdata(theirs)))


def nearest(rows: Floats, others: Floats, num: int) -> tuple[Ints, Floats]:
    """For each of [n, d] the `num` rows of [m, d] with the highest cosine: indices and cosines [n, num], best first."""
    parts = [cosines(rows, others[start : start + CHUNK]) for start in range(0, len(others), CHUNK)]
    values = np.concatenate(parts, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")[:, :num]
    return order.astype(np.int64), np.take_along_axis(values, order, axis=1)


def mean_pair(matrix: Floats) -> float | None:
    """The mean over distinct pairs of [n, n]; None for less than two rows."""
    values = upper(matrix)
    return float(values.mean()) if len(values) else None


def _correlation(one: Floats, other: Floats) -> float:
    return float(np.corrcoef(one, other)[0, 1])
