"""Unique semantic IDs: nearest codes first, then a minimum-cost assignment where items collide."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from gti_pipeline.errors import GtiError

Floats = NDArray[np.float32] | NDArray[np.float64]
Ints = NDArray[np.int64]
CHUNK = 2**22  # cells of a distance matrix held at a time


@dataclass(frozen=True)
class Assignment:
    """Codes of N items at L levels.

    Attributes:
        codes: [N, L], no two rows equal.
        nearest: [N, L], the plain residual argmin.
        moved: items whose codes are not the nearest ones.
        moved_early: those of them that differ at a level before the last.
        cost: by how much the moves raised the sum of squared distances between latents and their codewords' sums.
        nearest_cost: that sum under the nearest codes.
    """

    codes: Ints
    nearest: Ints
    moved: int
    moved_early: int
    cost: float
    nearest_cost: float


def unique_codes(latents: Floats, codebooks: Floats) -> Assignment:
    """Distinct codes for all items, as near as can be to the plain residual argmin.

    Items that share the first L-1 codes get distinct last codes by a linear sum assignment on squared distances from
    their last residual to the last codebook. A prefix of length l has room for K^(L-l) items; where more fall on it,
    those whose next best code costs least move there first (`limit_occupancy`), and their later codes follow from the
    new residual. So K^L items always fit.

    Args:
        latents: [N, C]. Of equal rows the earlier keeps the nearer code: sort rows for a stable result.
        codebooks: [L, K, C].

    Raises:
        GtiError: more than K^L items.
    """
    levels, size, _ = codebooks.shape
    check_room(len(latents), levels, size)
    nearest, nearest_cost = nearest_codes(latents, codebooks)
    codes = np.empty_like(nearest)
    residual = np.asarray(latents, dtype=np.float64).copy()
    parent = np.zeros(len(latents), dtype=np.int64)
    for level, codebook in enumerate(np.asarray(codebooks, dtype=np.float64)):
        code = _argmin(residual, codebook)
        room = size ** (levels - 1 - level)
        for rows in _crowded(parent, code, room, size):
            distances = _distances(residual[rows], codebook)
            if room == 1:
                code[rows] = linear_sum_assignment(distances)[1]
            else:
                code[rows] = limit_occupancy(distances, code[rows], room)
        codes[:, level] = code
        residual -= codebook[code]
        parent = np.unique(parent * size + code, return_inverse=True)[1]
    differs = codes != nearest
    return Assignment(
        codes=codes,
        nearest=nearest,
        moved=int(differs.any(axis=1).sum()),
        moved_early=int(differs[:, :-1].any(axis=1).sum()),
        cost=float(np.square(residual).sum()) - nearest_cost,
        nearest_cost=nearest_cost,
    )


def nearest_codes(latents: Floats, codebooks: Floats) -> tuple[Ints, float]:
    """The plain residual argmin [N, L], and the sum of squared distances that it leaves."""
    residual = np.asarray(latents, dtype=np.float64).copy()
    codes = np.empty((len(residual), len(codebooks)), dtype=np.int64)
    for level, codebook in enumerate(np.asarray(codebooks, dtype=np.float64)):
        codes[:, level] = _argmin(residual, codebook)
        residual -= codebook[codes[:, level]]
    return codes, float(np.square(residual).sum())


def limit_occupancy(distances: Floats, codes: Ints, room: int) -> Ints:
    """Moves items off codes that hold more than `room`, cheapest move first.

    In rounds: every item on an overfull code looks up its best code with room left; in order of extra distance each
    overfull code lets go as many as it must, each other code takes as many as it can. Greedy, so near the minimum cost
    rather than at it; exact transport would need a column per free place.

    Args:
        distances: [n, K], with n at most K * room.
        codes: [n], where the items are.
        room: places of each code.

    Returns:
        Codes [n], each at most `room` times.
    """
    codes = codes.copy()
    size = distances.shape[1]
    while True:
        counts = np.bincount(codes, minlength=size)
        excess, free = np.maximum(counts - room, 0), np.maximum(room - counts, 0)
        if not excess.any():
            return codes
        rows = np.flatnonzero(excess[codes] > 0)
        open_distances = np.where(free > 0, distances[rows], np.inf)
        target = open_distances.argmin(axis=1)
        extra = open_distances[np.arange(len(rows)), target] - distances[rows, codes[rows]]
        order = np.argsort(extra, kind="stable")
        order = order[_rank(codes[rows[order]]) < excess[codes[rows[order]]]]
        order = order[_rank(target[order]) < free[target[order]]]
        codes[rows[order]] = target[order]


def _rank(groups: Ints) -> Ints:
    """Each position's rank among the positions of its group: [n] to [n]."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    return rank


def _crowded(parent: Ints, code: Ints, room: int, size: int) -> list[Ints]:
    """The rows of each prefix under which some code holds more than `room` items, rows ascending."""
    child, counts = np.unique(parent * size + code, return_counts=True)
    parents = np.unique(child[counts > room] // size)
    rows = np.flatnonzero(np.isin(parent, parents))
    rows = rows[np.argsort(parent[rows], kind="stable")]
    return np.split(rows, np.searchsorted(parent[rows], parents)[1:]) if len(parents) else []


def _argmin(residual: NDArray[np.float64], codebook: NDArray[np.float64]) -> Ints:
    step = max(1, CHUNK // len(codebook))
    parts = [_distances(residual[i : i + step], codebook).argmin(axis=1) for i in range(0, len(residual), step)]
    return np.concatenate(parts).astype(np.int64)


def _distances(residual: NDArray[np.float64], codebook: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared distances [n, K]."""
    norms = np.square(residual).sum(1)[:, None] + np.square(codebook).sum(1)
    return np.asarray(norms - 2 * residual @ codebook.T)


def check_room(items: int, levels: int, size: int) -> None:
    """Refuses more items than there are IDs, and says what would do."""
    if items <= size**levels:
        return
    smallest = int(items ** (1 / levels))
    while smallest**levels < items:
        smallest += 1
    enough = levels
    while size**enough < items:
        enough += 1
    raise GtiError(
        f"{items} items share the empty prefix, but semantic_ids.num_levels={levels} of"
        f" semantic_ids.codebook_size={size} give only {size**levels} distinct semantic IDs:"
        f" set semantic_ids.codebook_size to at least {smallest}, or semantic_ids.num_levels to {enough}"
    )
