"""Scores to ranked lists, the same way for every baseline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gti_pipeline import columns as c

CELLS = 1 << 24  # of the score matrix held at a time: 64 MiB
Ranked = tuple[Sequence[Any] | NDArray[Any], Sequence[float] | NDArray[Any]]  # items and their scores, best first


def top(scores: NDArray[np.floating[Any]], num: int) -> NDArray[np.int64]:
    """Positions of the `num` best scores [N], best first, ties by position; -inf is never among them."""
    if num < len(scores):
        last = np.partition(scores, len(scores) - num)[len(scores) - num]
        places = np.flatnonzero((scores >= last) & (scores > -np.inf))
    else:
        places = np.flatnonzero(scores > -np.inf)
    return places[np.argsort(-scores[places], kind="stable")][:num]


def rank_by_product(
    profiles: NDArray[np.float32],
    factors: NDArray[np.float32],
    item_ids: NDArray[np.object_],
    num: int,
    hidden: Sequence[Sequence[int]] | None = None,
) -> Iterator[Ranked]:
    """The best items of each profile by inner product, a block of users at a time.

    Args:
        profiles: [U, D].
        factors: [N, D], in the order of `item_ids`.
        item_ids: [N], sorted, so that ties go by item id.
        num: the most items per user.
        hidden: positions of items never shown to a user, for each of the U users.
    """
    block = max(1, CELLS // max(1, len(factors)))
    for start in range(0, len(profiles), block):
        scores = profiles[start : start + block] @ factors.T
        for row, user_scores in enumerate(scores, start):
            if hidden is not None:
                user_scores[list(hidden[row])] = -np.inf
            best = top(user_scores, num)
            yield item_ids[best], user_scores[best]


def recommendations(user_ids: Iterable[str], lists: Iterable[Ranked]) -> pd.DataFrame:
    """`schemas.RECOMMENDATIONS` from a list of items and scores, best first, for each user; lists may be empty."""
    users, ranks, items, scores = [], [], [], []
    for user, (ids, values) in zip(user_ids, lists, strict=True):
        users.append(np.full(len(ids), user, dtype=object))
        ranks.append(np.arange(1, len(ids) + 1, dtype=np.int32))
        items.append(np.asarray(ids, dtype=object))
        scores.append(np.asarray(values, dtype=np.float64))
    return pd.DataFrame(
        {
            c.USER_ID: pd.Series(_joined(users, object), dtype="str"),
            c.RANK: _joined(ranks, np.int32),
            c.ITEM_ID: pd.Series(_joined(items, object), dtype="str"),
            c.SCORE: _joined(scores, np.float64),
        }
    )


def _joined(parts: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, dtype=dtype)
