"""Unique semantic IDs: nearest codes first, then a minimum-cost assignment where items collide."""

from __future__ import annotations

from collections.abc import Iterator
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


def unique_codes(latents: Floats, codebooks: Floats, taken: Ints | None = None) -> Assignment:
    """Distinct codes for all items, as near as can be to the plain residual argmin.

    Items that share the first L-1 codes get distinct last codes by a linear sum assignment on squared distances from
    their last residual to the last codebook. A prefix of length l has room for K^(L-l) items; where more fall on it,
    those whose next best code costs least move there first (`limit_occupancy`), and their later codes follow from the
    new residual. So K^L items always fit.

    Args:
        latents: [N, C]. Of equal rows the earlier keeps the nearer code: sort rows for a stable result.
        codebooks: [L, K, C].
        taken: [M, L], distinct codes that other items have and keep.

    Raises:
        GtiError: more than K^L items, those of `taken` included.
    """
    levels, size, _ = codebooks.shape
    held = np.empty((0, levels), dtype=np.int64) if taken is None else np.asarray(taken, dtype=np.int64)
    check_room(len(latents) + len(held), levels, size)
    nearest, nearest_cost = nearest_codes(latents, codebooks)
    codes = np.empty_like(nearest)
    residual: Floats = latents.copy()
    parent = np.zeros(len(latents) + len(held), dtype=np.int64)  # the items' prefixes, then those of `held`
    for level, codebook in enumerate(codebooks):
        code = argmin_codes(residual, codebook)
        room = size ** (levels - 1 - level)
        others = _Held(parent[len(latents) :], held[:, level], size)
        for rows in _crowded(parent[: len(latents)], code, room, others):
            free = room - others.under(parent[rows[0]])
            distances = _distances(residual[rows], codebook)
            code[rows] = _last_codes(distances, free) if room == 1 else limit_occupancy(distances, code[rows], free)
        codes[:, level] = code
        subtract(residual, codebook, code)
        chosen = np.concatenate([code, held[:, level]])
        parent = np.unique(parent * size + chosen, return_inverse=True)[1]
    differs = codes != nearest
    return Assignment(
        codes=codes,
        nearest=nearest,
        moved=int(differs.any(axis=1).sum()),
        moved_early=int(differs[:, :-1].any(axis=1).sum()),
        cost=sum_of_squares(residual) - nearest_cost,
        nearest_cost=nearest_cost,
    )


class _Held:
    """How many items that keep their codes lie on each (prefix, code) of one level."""

    def __init__(self, parent: Ints, code: Ints, size: int) -> None:
        self.size = size
        self.child, self.counts = np.unique(parent * size + code, return_counts=True)

    def on(self, child: Ints) -> Ints:
        """Counts on each `prefix * size + code` [n]."""
        if not len(self.child):
            return np.zeros(len(child), dtype=np.int64)
        at = np.searchsorted(self.child, child).clip(max=len(self.child) - 1)
        return np.where(self.child[at] == child, self.counts[at], 0)

    def under(self, prefix: int) -> Ints:
        """Counts on every code of one prefix [K]."""
        return self.on(prefix * self.size + np.arange(self.size))


def _last_codes(distances: NDArray[np.float64], free: Ints) -> Ints:
    """Distinct codes of [n, K] distances at minimum total cost, among the codes that are free [K]."""
    open_codes = np.flatnonzero(free > 0)
    return np.asarray(open_codes[linear_sum_assignment(distances[:, open_codes])[1]])


def nearest_codes(latents: Floats, codebooks: Floats) -> tuple[Ints, float]:
    """The plain residual argmin [N, L], and the sum of squared distances that it leaves."""
    residual: Floats = latents.copy()
    codes = np.empty((len(residual), len(codebooks)), dtype=np.int64)
    for level, codebook in enumerate(codebooks):
        codes[:, level] = argmin_codes(residual, codebook)
        subtract(residual, codebook, codes[:, level])
    return codes, sum_of_squares(residual)


def _parts(rows: int, width: int) -> Iterator[slice]:
    """Slices of so many rows that a block of `width` columns stays within `CHUNK` cells."""
    step = max(1, CHUNK // width)
    return (slice(start, start + step) for start in range(0, rows, step))


def subtract(residual: Floats, codebook: Floats, code: Ints) -> None:
    """Takes each row's codeword away, in place; in parts, because a million rows fill gigabytes."""
    for part in _parts(len(residual), codebook.shape[1]):
        residual[part] -= codebook[code[part]]


def sum_of_squares(residual: Floats) -> float:
    """The sum of squares of [N, C]."""
    squares = (np.square(residual[part], dtype=np.float64).sum() for part in _parts(len(residual), residual.shape[1]))
    return float(sum(squares))


def limit_occupancy(distances: Floats, codes: Ints, room: Ints | int) -> Ints:
    """Moves items off codes that hold more than `room`, cheapest move first.

    In rounds: every item on an overfull code looks up its best code with room left; in order of extra distance each
    overfull code lets go as many as it must, each other code takes as many as it can. Greedy, so near the minimum cost
    rather than at it; exact transport would need a column per free place.

    Args:
        distances: [n, K], with n at most the places of all codes.
        codes: [n], where the items are.
        room: places of each code, one number for all or [K].

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


def _crowded(parent: Ints, code: Ints, room: int, held: _Held) -> list[Ints]:
    """The rows of each prefix under which some code holds more than `room` items, rows ascending."""
    child, counts = np.unique(parent * held.size + code, return_counts=True)
    parents = np.unique(child[counts + held.on(child) > room] // held.size)
    rows = np.flatnonzero(np.isin(parent, parents))
    rows = rows[np.argsort(parent[rows], kind="stable")]
    return np.split(rows, np.searchsorted(parent[rows], parents)[1:]) if len(parents) else []


def argmin_codes(residual: Floats, codebook: Floats) -> Ints:
    """The nearest code [N] of each row, the first of equals."""
    parts = [_distances(residual[part], codebook).argmin(axis=1) for part in _parts(len(residual), len(codebook))]
    return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, dtype=np.int64)


def _distances(residual: Floats, codebook: Floats) -> NDArray[np.float64]:
    """Squared distances [n, K], in double precision: ties and near ties are common among like items."""
    rows, codewords = np.asarray(residual, dtype=np.float64), np.asarray(codebook, dtype=np.float64)
    norms = np.square(rows).sum(1)[:, None] + np.square(codewords).sum(1)
    return np.asarray(norms - 2 * rows @ codewords.T)


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
